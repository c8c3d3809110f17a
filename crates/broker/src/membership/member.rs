//! Registration and heartbeats (Kafka's `BrokerLifecycleManager`).

use std::sync::Arc;
use std::time::Duration;

use thalweg_wire::request::broker_registration_request::{Feature, Listener};
use thalweg_wire::request::{BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest};
use thalweg_wire::{ErrorCode, Message};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::{ControllerLink, JoinError, MembershipOptions, Progress};

/// How long after a failure a request is tried again.
const RETRY: Duration = Duration::from_millis(50);
/// How soon a request is repeated that waits for others, when nothing tells that they are done.
const REPEAT: Duration = Duration::from_millis(10);

/// What is asked of the member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    Unfence,
    Leave,
}

pub(super) struct Member {
    link: ControllerLink,
    options: MembershipOptions,
    progress: Arc<Progress>,
    epoch: watch::Sender<i64>,
    /// Whether the broker is to be fenced: until it is ready.
    want_fence: bool,
}

/// How a heartbeat was answered.
enum Beat {
    Answered(BrokerHeartbeatResponse),
    /// The controller does not know this registration any more.
    Unknown,
    Failed(String),
}

impl Member {
    pub fn new(link: ControllerLink, options: MembershipOptions, progress: Arc<Progress>) -> Member {
        Member { link, options, progress, epoch: watch::Sender::new(-1), want_fence: true }
    }

    pub fn epoch(&self) -> watch::Receiver<i64> {
        self.epoch.subscribe()
    }

    pub fn registration_timeout(&self) -> Duration {
        self.options.registration_timeout
    }

    /// Registers, trying again while an earlier process of this broker still has a session.
    pub async fn register(&mut self, until: Instant) -> Result<(), JoinError> {
        let started = Instant::now();
        let mut told = false;
        loop {
            let request = self.registration();
            let last = match self.link.send(request, BrokerRegistrationRequest::MAX_VERSION).await {
                Ok(response) => match ErrorCode::from_i16(response.error_code) {
                    Some(ErrorCode::None) => {
                        self.epoch.send_replace(response.broker_epoch);
                        tracing::debug!(epoch = response.broker_epoch, "Broker is registered");
                        return Ok(());
                    }
                    Some(
                        code @ (ErrorCode::InconsistentClusterId
                        | ErrorCode::UnsupportedVersion
                        | ErrorCode::InvalidRegistration
                        | ErrorCode::ClusterAuthorizationFailed
                        | ErrorCode::InvalidRequest),
                    ) => return Err(JoinError::Refused { code }),
                    Some(code) => code.to_string(),
                    None => format!("error {}", response.error_code),
                },
                Err(error) => error.to_string(),
            };
            if !told {
                tracing::info!(last, "Broker is not registered yet and tries again");
                told = true;
            }
            if Instant::now() >= until {
                return Err(JoinError::Timeout { after: started.elapsed(), last });
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    fn registration(&self) -> BrokerRegistrationRequest {
        let options = &self.options;
        BrokerRegistrationRequest {
            broker_id: options.node_id,
            cluster_id: options.cluster_id.clone(),
            incarnation_id: options.incarnation_id,
            listeners: options
                .endpoints
                .iter()
                .map(|endpoint| Listener {
                    name: endpoint.listener.clone(),
                    host: endpoint.host.clone(),
                    port: endpoint.port,
                    security_protocol: endpoint.security_protocol,
                })
                .collect(),
            features: options
                .features
                .iter()
                .map(|(name, range)| Feature {
                    name: name.clone(),
                    min_supported_version: range.min,
                    max_supported_version: range.max,
                })
                .collect(),
            rack: options.rack.clone(),
            is_migrating_zk_broker: false,
            log_dirs: options.directories.clone(),
            previous_broker_epoch: options.previous_broker_epoch.unwrap_or(-1),
        }
    }

    /// Beats, fenced, until the controller finds that the broker has seen its own registration.
    pub async fn catch_up(&mut self, until: Instant) -> Result<(), JoinError> {
        let started = Instant::now();
        let mut applied = self.progress.applied.subscribe();
        let mut failed = self.progress.failed.subscribe();
        let epoch = *self.epoch.borrow();
        let mut last = "the metadata log was not caught up with".to_owned();
        while Instant::now() < until {
            tokio::select! {
                biased;
                error = failed.wait_for(Option::is_some) => {
                    let error = error.ok().and_then(|error| error.clone());
                    return Err(error.map_or(JoinError::Left, JoinError::Observer));
                }
                _ = applied.wait_for(|offset| *offset >= epoch) => {}
                () = tokio::time::sleep_until(until) => break,
            }
            match self.beat(false).await {
                Beat::Answered(response) if response.is_caught_up => return Ok(()),
                Beat::Answered(_) => {}
                Beat::Unknown => self.register(until).await?,
                Beat::Failed(why) => last = why,
            }
            // The registration may be preceded by records in its own batch or others: a little more is to come.
            let _ = tokio::time::timeout(REPEAT, applied.changed()).await;
        }
        Err(JoinError::Timeout { after: started.elapsed(), last })
    }

    async fn beat(&self, want_shut_down: bool) -> Beat {
        let request = BrokerHeartbeatRequest {
            broker_id: self.options.node_id,
            broker_epoch: *self.epoch.borrow(),
            current_metadata_offset: *self.progress.applied.borrow(),
            want_fence: self.want_fence,
            want_shut_down,
            offline_log_dirs: self.progress.offline.borrow().clone(),
            cordoned_log_dirs: None,
        };
        match self.link.send(request, BrokerHeartbeatRequest::MAX_VERSION).await {
            Ok(response) => match ErrorCode::from_i16(response.error_code) {
                Some(ErrorCode::None) => Beat::Answered(response),
                Some(ErrorCode::StaleBrokerEpoch | ErrorCode::BrokerIdNotRegistered) => Beat::Unknown,
                Some(code) => Beat::Failed(code.to_string()),
                None => Beat::Failed(format!("error {}", response.error_code)),
            },
            Err(error) => Beat::Failed(error.to_string()),
        }
    }

    /// Beats for as long as the broker lives, and fulfils wishes.
    pub async fn run(mut self, mut wishes: mpsc::Receiver<(Wish, oneshot::Sender<()>)>) {
        let mut wait = self.options.heartbeat_interval;
        let mut offline = self.progress.offline.subscribe();
        loop {
            tokio::select! {
                _ = offline.changed() => {}
                wish = wishes.recv() => match wish {
                    None => return,
                    Some((Wish::Unfence, done)) => {
                        self.unfence().await;
                        // Whoever wished may have gone.
                        let _ = done.send(());
                    }
                    Some((Wish::Leave, done)) => {
                        self.leave().await;
                        let _ = done.send(());
                        return;
                    }
                },
                () = tokio::time::sleep(wait) => {}
            }
            wait = match self.beat(false).await {
                Beat::Answered(_) => self.options.heartbeat_interval,
                Beat::Unknown => {
                    tracing::warn!("Controller does not know the broker any more and it registers again");
                    let until = Instant::now() + self.options.registration_timeout;
                    if let Err(error) = self.register(until).await {
                        tracing::error!(%error, "Broker cannot be registered again");
                    }
                    RETRY
                }
                Beat::Failed(why) => {
                    tracing::warn!(why, "Heartbeat is not answered");
                    RETRY * 10
                }
            };
        }
    }

    async fn unfence(&mut self) {
        self.want_fence = false;
        let mut applied = self.progress.applied.subscribe();
        loop {
            applied.mark_unchanged();
            match self.beat(false).await {
                Beat::Answered(response) if !response.is_fenced => return,
                Beat::Answered(_) => {}
                Beat::Unknown => {
                    let until = Instant::now() + self.options.registration_timeout;
                    if let Err(error) = self.register(until).await {
                        tracing::error!(%error, "Broker cannot be registered again");
                    }
                }
                Beat::Failed(why) => tracing::warn!(why, "Heartbeat is not answered"),
            }
            let _ = tokio::time::timeout(REPEAT, applied.changed()).await;
        }
    }

    /// Asks to shut down until the controller agrees.
    async fn leave(&mut self) {
        let until = Instant::now() + self.options.controlled_shutdown_timeout;
        let mut applied = self.progress.applied.subscribe();
        while Instant::now() < until {
            applied.mark_unchanged();
            match self.beat(true).await {
                Beat::Answered(response) if response.should_shut_down => return,
                Beat::Answered(_) => {}
                Beat::Unknown => return,
                Beat::Failed(why) => {
                    tracing::warn!(why, "Heartbeat is not answered");
                    tokio::time::sleep(RETRY).await;
                }
            }
            let _ = tokio::time::timeout(REPEAT, applied.changed()).await;
        }
        tracing::warn!("Controller did not let the broker go in time");
    }
}
