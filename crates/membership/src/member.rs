//! Registration and heartbeats (Kafka's `BrokerLifecycleManager`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thalweg_metadata::{BrokerId, Image};
use thalweg_wire::request::broker_registration_request::{Feature, Listener};
use thalweg_wire::request::{BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest};
use thalweg_wire::{ErrorCode, Message};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{ControllerLink, JoinError, MembershipOptions, ObserverError, Progress};
use crate::features::Claims;
use thalweg_watch as watch;

/// Retry backoff for failed requests.
const RETRY: Duration = Duration::from_millis(50);
/// Delay before repeating a request that depends on other brokers, if no notification arrives.
const REPEAT: Duration = Duration::from_millis(10);

/// Minimum time for which a stopping broker tries to report its shutdown, even to a silent controller: the
/// time a quorum takes to detect the loss of its leader and to elect another, by Kafka's defaults 2 s and 1
/// s. The new leader still counts the broker as alive, because it restarts every session.
const LEAVE: Duration = Duration::from_secs(3);

/// Requests to the member task.
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
    /// True until the broker is ready to be unfenced.
    want_fence: bool,
    logged_unserved: bool,
}

/// The outcome of a heartbeat.
enum Beat {
    Answered(BrokerHeartbeatResponse),
    /// The controller no longer knows this registration.
    Unknown,
    Failed(String),
}

impl Member {
    pub fn new(link: ControllerLink, options: MembershipOptions, progress: Arc<Progress>) -> Member {
        Member {
            link,
            options,
            progress,
            epoch: watch::Sender::new(-1),
            want_fence: true,
            logged_unserved: false,
        }
    }

    pub fn epoch(&self) -> watch::Receiver<i64> {
        self.epoch.subscribe()
    }

    pub fn registration_timeout(&self) -> Duration {
        self.options.registration_timeout
    }

    /// Registers the broker, and retries while an earlier process of this broker still has a session. Stops
    /// once the metadata log cannot be followed.
    pub async fn register(&mut self, until: Instant) -> Result<(), JoinError> {
        let mut failed = self.progress.failed.subscribe();
        tokio::select! {
            biased;
            error = failed.wait_for(Option::is_some) => {
                let error = error.ok().and_then(|error| error.clone());
                Err(error.map_or(JoinError::Left, JoinError::Observer))
            }
            registered = self.try_to_register(until) => registered,
        }
    }

    async fn try_to_register(&mut self, until: Instant) -> Result<(), JoinError> {
        let started = Instant::now();
        let mut logged = false;
        loop {
            let claims = self.claims();
            let request = self.registration(&claims);
            let last = match self.link.send(request, BrokerRegistrationRequest::MAX_VERSION).await {
                Ok(response) => match ErrorCode::from_i16(response.error_code) {
                    Some(ErrorCode::None) => {
                        self.epoch.send_replace(response.broker_epoch);
                        tracing::debug!(epoch = response.broker_epoch, "Registered the broker");
                        self.log_unserved(&claims);
                        return Ok(());
                    }
                    Some(ErrorCode::UnsupportedVersion) => self.unsupported(claims).await?,
                    Some(
                        code @ (ErrorCode::InconsistentClusterId
                        | ErrorCode::InvalidRegistration
                        | ErrorCode::ClusterAuthorizationFailed
                        | ErrorCode::InvalidRequest),
                    ) => return Err(JoinError::Refused { code }),
                    Some(code) => format!("{code}{}", super::hint(code)),
                    None => format!("error {}", response.error_code),
                },
                Err(error) => error.to_string(),
            };
            if !logged {
                tracing::info!(last, "Broker is not registered yet, retrying");
                logged = true;
            }
            if Instant::now() >= until {
                return Err(JoinError::Timeout { after: started.elapsed(), last });
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Handles a controller's rejection of these claims. The rejection is final, unless the cluster's
    /// features were unknown at the time: the controller was starting, or features have been enabled since.
    async fn unsupported(&self, claims: Claims) -> Result<String, JoinError> {
        let asked = self.link.ask_versions().await;
        if !claims.beyond.is_empty() {
            return Err(JoinError::Features { features: claims.beyond });
        }
        let code = ErrorCode::UnsupportedVersion;
        match asked {
            Ok(()) if self.claims() == claims && !self.link.lacks_features() => {
                Err(JoinError::Refused { code })
            }
            Ok(()) => Ok(format!("{code}: the cluster's features were not known yet")),
            Err(error) => Ok(error.to_string()),
        }
    }

    /// The features to claim: by the image, or before the first image by the controllers.
    fn claims(&self) -> Claims {
        let image = self.progress.image.borrow().clone();
        let features = self.link.features();
        let of_image = image.features().iter();
        let of_controllers = features.iter().map(|(name, level)| (name.as_str(), *level));
        // No image has the quorum's own version.
        let finalized: BTreeMap<&str, i16> = of_controllers.chain(of_image).collect();
        Claims::of(&self.options.features, finalized)
    }

    /// Logs once the enabled features that are not served.
    fn log_unserved(&mut self, claims: &Claims) {
        if !std::mem::replace(&mut self.logged_unserved, true) {
            for (feature, level, refused) in &claims.unserved {
                tracing::warn!(
                    feature,
                    level,
                    "Cluster has a feature that this broker does not serve: {refused}"
                );
            }
        }
    }

    fn registration(&self, claims: &Claims) -> BrokerRegistrationRequest {
        let options = &self.options;
        BrokerRegistrationRequest {
            broker_id: options.node_id.0,
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
            features: claims
                .ranges
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

    /// Sends heartbeats of the fenced broker until the controller confirms that the broker has seen its own
    /// registration.
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
            // The records before the registration may be in the same batch or in others: wait briefly for
            // more.
            let _ = tokio::time::timeout(REPEAT, applied.changed()).await;
        }
        Err(JoinError::Timeout { after: started.elapsed(), last })
    }

    async fn beat(&self, want_shut_down: bool) -> Beat {
        let request = BrokerHeartbeatRequest {
            broker_id: self.options.node_id.0,
            broker_epoch: *self.epoch.borrow(),
            current_metadata_offset: *self.progress.applied.borrow(),
            // Together with the request to shut down, the controller would fence at once, without moving
            // leadership first.
            want_fence: self.want_fence || (!want_shut_down && *self.progress.withdrawn.borrow()),
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

    /// Sends heartbeats as long as the broker lives, and serves wishes.
    pub async fn run(mut self, mut wishes: mpsc::Receiver<(Wish, oneshot::Sender<()>)>) {
        let mut wait = self.options.heartbeat_interval;
        let mut offline = self.progress.offline.subscribe();
        let mut withdrawn = self.progress.withdrawn.subscribe();
        let images = self.progress.image.subscribe();
        let mut watch = Watch { images, leaving: BTreeSet::new(), fenced: true, logged_fence: false };
        let mut contact = Contact { heard: Instant::now(), unanswered: 0 };
        loop {
            tokio::select! {
                biased;
                _ = offline.changed() => {}
                _ = withdrawn.changed() => {}
                seen = watch.next(&self) => if seen == ImageChange::Replaced {
                    let error = ObserverError::Replaced { node_id: self.options.node_id };
                    tracing::error!(%error, "Broker has lost its place in the cluster");
                    self.progress.failed.send_replace(Some(Arc::new(error)));
                    return;
                },
                wish = wishes.recv() => match wish {
                    None => return,
                    Some((Wish::Unfence, done)) => self.unfence(&mut contact, done).await,
                    Some((Wish::Leave, done)) => {
                        self.leave(contact).await;
                        let _ = done.send(());
                        return;
                    }
                },
                () = tokio::time::sleep(wait) => {}
            }
            wait = match self.beat(false).await {
                Beat::Answered(_) => {
                    contact.answered();
                    self.options.heartbeat_interval
                }
                Beat::Unknown => {
                    tokio::select! {
                        biased;
                        wish = wishes.recv() => match wish {
                            // The unfencing includes the registration.
                            Some((Wish::Unfence, done)) => self.unfence(&mut contact, done).await,
                            // The controller knows no partitions led by this broker, so there is no
                            // leadership to move.
                            Some((Wish::Leave, done)) => {
                                let _ = done.send(());
                                return;
                            }
                            None => return,
                        },
                        () = self.register_again() => {}
                    }
                    RETRY
                }
                Beat::Failed(why) => {
                    contact.failed(&why);
                    RETRY
                }
            };
        }
    }

    async fn register_again(&mut self) {
        tracing::warn!("Controller no longer knows this broker, registering again");
        let until = Instant::now() + self.options.registration_timeout;
        match self.register(until).await {
            Ok(()) => tracing::info!(epoch = *self.epoch.borrow(), "Registered the broker again"),
            Err(error) => tracing::error!(%error, "Failed to register the broker again"),
        }
    }

    async fn unfence(&mut self, contact: &mut Contact, done: oneshot::Sender<()>) {
        self.want_fence = false;
        let mut applied = self.progress.applied.subscribe();
        loop {
            applied.mark_unchanged();
            match self.beat(false).await {
                Beat::Answered(response) => {
                    contact.answered();
                    if !response.is_fenced {
                        // The caller may have stopped waiting.
                        let _ = done.send(());
                        return;
                    }
                }
                Beat::Unknown => self.register_again().await,
                Beat::Failed(why) => contact.failed(&why),
            }
            let _ = tokio::time::timeout(REPEAT, applied.changed()).await;
        }
    }

    /// Asks to shut down until the controller agrees, or until no controller counts the broker as alive any
    /// more.
    async fn leave(&mut self, mut contact: Contact) {
        let until = Instant::now() + self.options.controlled_shutdown_timeout;
        let at_least = Instant::now() + LEAVE;
        let mut applied = self.progress.applied.subscribe();
        while Instant::now() < until {
            applied.mark_unchanged();
            let answered = tokio::select! {
                biased;
                answered = self.beat(true) => answered,
                () = self.given_up(contact.heard, at_least) => {
                    tracing::warn!("No controller answers, stopping without controlled shutdown");
                    return;
                }
            };
            match answered {
                Beat::Answered(response) if response.should_shut_down => return,
                Beat::Answered(_) => contact.answered(),
                Beat::Unknown => return,
                Beat::Failed(why) => {
                    contact.failed(&why);
                    tokio::time::sleep(RETRY).await;
                }
            }
            let _ = tokio::time::timeout(REPEAT, applied.changed()).await;
        }
        tracing::warn!("Controlled shutdown timed out");
    }

    /// Waits until the session has expired at a controller that last heard of the broker at `heard`, and at
    /// each controller elected since: a new controller restarts the sessions of all brokers in its image.
    async fn given_up(&self, heard: Instant, at_least: Instant) {
        loop {
            let waits_since = self.link.elected().map_or(heard, |elected| elected.max(heard));
            let given_up = (waits_since + self.options.session_timeout).max(at_least);
            if Instant::now() >= given_up {
                return;
            }
            tokio::time::sleep_until(given_up).await;
        }
    }
}

/// Changes in an image that trigger an immediate heartbeat.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ImageChange {
    /// Another process has registered under this broker id.
    Replaced,
    /// Another broker is shutting down. It may stop once all other brokers have confirmed.
    Leaving,
    /// The controller has fenced the broker, after missing heartbeats or on request.
    Fenced,
}

struct Watch {
    images: watch::Receiver<Arc<Image>>,
    /// The leaving brokers in the previous image.
    leaving: BTreeSet<BrokerId>,
    /// True if the broker is fenced, as after registration.
    fenced: bool,
    /// True if the fencing was logged.
    logged_fence: bool,
}

impl Watch {
    /// Waits for an image with a relevant change. Dropping the future loses no change.
    async fn next(&mut self, member: &Member) -> ImageChange {
        loop {
            if self.images.changed().await.is_err() {
                return std::future::pending().await;
            }
            let image = self.images.borrow_and_update().clone();
            let (node_id, incarnation) = (member.options.node_id, member.options.incarnation_id);
            if let Some(own) = image.broker(node_id) {
                let is_this_process = own.incarnation_id == incarnation;
                if !is_this_process && own.epoch.0 > *member.epoch.borrow() {
                    return ImageChange::Replaced;
                }
                let was_fenced = std::mem::replace(&mut self.fenced, own.fenced);
                if is_this_process && own.fenced && !was_fenced {
                    if !*member.progress.withdrawn.borrow() {
                        tracing::warn!("Controller fenced this broker: its session expired");
                    }
                    self.logged_fence = true;
                    return ImageChange::Fenced;
                }
                if !own.fenced && std::mem::take(&mut self.logged_fence) {
                    tracing::info!("Broker is unfenced again");
                }
            }
            let brokers = image.cluster().brokers.values();
            let leaving = brokers.filter(|broker| broker.in_controlled_shutdown && broker.id != node_id);
            let leaving: BTreeSet<BrokerId> = leaving.map(|broker| broker.id).collect();
            let before = std::mem::replace(&mut self.leaving, leaving);
            if !self.leaving.is_subset(&before) {
                return ImageChange::Leaving;
            }
        }
    }
}

/// State of the contact with the controller.
struct Contact {
    /// Time of the last answered heartbeat.
    heard: Instant,
    /// Number of failed heartbeats since, logged once.
    unanswered: u32,
}

impl Contact {
    fn failed(&mut self, why: &str) {
        if self.unanswered == 0 {
            tracing::warn!(why, "Heartbeat was not answered");
        }
        self.unanswered = self.unanswered.saturating_add(1);
    }

    fn answered(&mut self) {
        if self.unanswered > 0 {
            tracing::info!(unanswered = self.unanswered, "Heartbeats are answered again");
        }
        *self = Contact { heard: Instant::now(), unanswered: 0 };
    }
}
