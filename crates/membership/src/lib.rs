//! The broker as a member of its cluster: it observes the metadata log, registers, sends heartbeats, and
//! shuts down cleanly.
//!
//! Two tasks: the observer fetches the log as any KRaft observer does and publishes images; the member
//! registers and sends heartbeats. [`ControllerLink`] carries the requests of both, in this process or over
//! the network, where `quorum` keeps the connections and `leader` finds the active controller. A start
//! follows Kafka's order: observe and register, wait until the broker's own registration is in an applied
//! image, then ask to be unfenced.
//!
//! Refuses: acting on the image, which is left to an [`ImageListener`].

mod error;
pub mod features;
mod fetched;
mod leader;
mod link;
mod member;
mod observer;
mod outbox;
mod outgoing;
mod peers;
mod quorum;
mod registered;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thalweg_config::BrokerConfig;
use thalweg_metadata::{BrokerId, Delta, Endpoint, Image, VersionRange};
use thalweg_wire::{ErrorCode, Uuid};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub use error::{LinkError, LocalControllerError};
pub use link::{ControllerLink, LocalAnswer, LocalController};
pub use observer::ObserverError;
pub use outbox::{Letter, NoAnswer, Outbox};
pub use outgoing::OutgoingSecurity;
pub use peers::{PeerError, PeerOptions, Peers};
pub use quorum::QuorumOptions;
pub use registered::RegisteredBroker;

use member::{Member, Wish};
use observer::Observer;
use thalweg_watch as watch;

/// Acts on images. Called by one task with every image, in order; the next call follows when the last one has
/// returned.
pub trait ImageListener: Send + Sync {
    /// Handles a new image of the cluster. `delta` is the difference to the previous image, which is empty
    /// before the first call.
    fn publish(&self, delta: &Delta, image: Arc<Image>);
}

/// The broker's data in its registration, and its timeouts.
#[derive(Clone, Debug)]
pub struct MembershipOptions {
    pub node_id: BrokerId,
    pub cluster_id: String,
    /// Incarnation id of this process.
    pub incarnation_id: Uuid,
    /// Rack of the broker.
    pub rack: Option<String>,
    /// The endpoints that the broker advertises.
    pub endpoints: Vec<Endpoint>,
    /// Served features. Other features of the cluster are reported too if their refusal is implemented.
    pub features: BTreeMap<String, VersionRange>,
    /// Ids of the log directories.
    pub directories: Vec<Uuid>,
    /// Broker epoch before the last stop, if that was clean.
    pub previous_broker_epoch: Option<i64>,
    /// `broker.heartbeat.interval.ms`.
    pub heartbeat_interval: Duration,
    /// `broker.session.timeout.ms`: time without heartbeats after which a broker is fenced.
    pub session_timeout: Duration,
    /// `initial.broker.registration.timeout.ms`.
    pub registration_timeout: Duration,
    /// Time limit for moving leadership away at shutdown.
    pub controlled_shutdown_timeout: Duration,
}

impl Default for MembershipOptions {
    fn default() -> MembershipOptions {
        let settings = BrokerConfig::default().controller;
        MembershipOptions {
            node_id: BrokerId::NONE,
            cluster_id: String::new(),
            incarnation_id: Uuid::random(),
            rack: None,
            endpoints: Vec::new(),
            features: BTreeMap::new(),
            directories: Vec::new(),
            previous_broker_epoch: None,
            heartbeat_interval: settings.heartbeat_interval,
            session_timeout: settings.session_timeout,
            registration_timeout: settings.initial_registration_timeout,
            controlled_shutdown_timeout: Duration::from_secs(30),
        }
    }
}

/// Why the broker could not join the cluster.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The controller refuses the registration.
    #[error("the controller refuses to register the broker: {code}{}", hint(*code))]
    Refused {
        /// The controller's error code.
        code: ErrorCode,
    },
    /// The cluster has features or levels unknown to this version.
    #[error(
        "the controller refuses to register the broker: the cluster has {} finalized, which this version does not support",
        listed(features)
    )]
    Features {
        /// Features with their levels and the supported ranges.
        features: Vec<(String, i16, VersionRange)>,
    },
    /// The controller did not register the broker in time.
    #[error("the broker could not be registered within {} ms; the last answer was: {last}", after.as_millis())]
    Timeout {
        /// Duration of the attempt.
        after: Duration,
        /// The last error.
        last: String,
    },
    /// The metadata log cannot be followed.
    #[error(transparent)]
    Observer(#[from] Arc<ObserverError>),
    /// The membership has ended.
    #[error("the broker has left the cluster")]
    Left,
}

impl JoinError {
    /// True if the controllers belong to another cluster.
    pub fn is_of_other_cluster(&self) -> bool {
        match self {
            JoinError::Refused { code } => *code == ErrorCode::InconsistentClusterId,
            JoinError::Observer(error) => matches!(**error, ObserverError::OtherCluster),
            JoinError::Features { .. } | JoinError::Timeout { .. } | JoinError::Left => false,
        }
    }
}

fn hint(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::UnsupportedVersion => {
            ": the cluster uses a feature, or a level of one, that this version does not support"
        }
        ErrorCode::InconsistentClusterId => ": the data directories belong to another cluster",
        ErrorCode::DuplicateBrokerRegistration => {
            ": another broker with this node.id is alive, or was until less than broker.session.timeout.ms ago"
        }
        ErrorCode::InvalidRegistration => {
            ": the controllers do not accept its log directories (none can be used, or one has a copied meta.properties) or \
             listeners"
        }
        ErrorCode::ClusterAuthorizationFailed => {
            ": the controllers grant it no CLUSTER_ACTION on the cluster (super.users on the controllers)"
        }
        _ => "",
    }
}

fn listed(features: &[(String, i16, VersionRange)]) -> String {
    let one = |(name, level, range): &(String, i16, VersionRange)| match range.max {
        0 => format!("{name}={level}"),
        max => format!("{name}={level} (supported: {} to {max})", range.min),
    };
    features.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// State shared by the tasks.
struct Progress {
    /// Offset of the last applied image, after its listener has returned.
    pub applied: watch::Sender<i64>,
    /// The last published image.
    pub image: watch::Sender<Arc<Image>>,
    /// Why the log is no longer followed.
    pub failed: watch::Sender<Option<Arc<ObserverError>>>,
    /// The log directories that have failed.
    pub offline: watch::Sender<Vec<Uuid>>,
    /// True if the running broker wants to be fenced, so that other brokers lead.
    pub withdrawn: watch::Sender<bool>,
}

fn progress() -> Arc<Progress> {
    Arc::new(Progress {
        applied: watch::Sender::new(-1),
        image: watch::Sender::new(Arc::new(Image::empty())),
        failed: watch::Sender::new(None),
        offline: watch::Sender::new(Vec::new()),
        withdrawn: watch::Sender::new(false),
    })
}

/// A broker that has joined its cluster.
pub struct Membership {
    node_id: BrokerId,
    wishes: mpsc::Sender<(Wish, oneshot::Sender<()>)>,
    epoch: watch::Receiver<i64>,
    progress: Arc<Progress>,
    observer: AbortOnDrop,
    member: AbortOnDrop,
}

impl Membership {
    /// Joins the cluster. Returns when the broker is registered and an image with the registration has been
    /// published. The broker is still fenced then.
    pub async fn start(
        link: ControllerLink,
        options: MembershipOptions,
        listener: Arc<dyn ImageListener>,
    ) -> Result<Membership, JoinError> {
        let progress = progress();
        let node_id = options.node_id;
        let observer = Observer::new(link.clone(), &options, listener, progress.clone());
        let observer = AbortOnDrop(Some(tokio::spawn(observer.run())));
        let mut member = Member::new(link, options, progress.clone());
        let until = Instant::now() + member.registration_timeout();
        member.register(until).await?;
        member.catch_up(until).await?;
        let epoch = member.epoch();
        let (wishes, wished) = mpsc::channel(4);
        let member = AbortOnDrop(Some(tokio::spawn(member.run(wished))));
        Ok(Membership { node_id, wishes, epoch, progress, observer, member })
    }

    /// The epoch of the registration.
    pub fn broker_epoch(&self) -> i64 {
        *self.epoch.borrow()
    }

    /// The epochs of the registration, which changes when the controllers have lost it.
    pub fn epochs(&self) -> watch::Receiver<i64> {
        self.epoch.clone()
    }

    /// The last published image.
    pub fn image(&self) -> Arc<Image> {
        self.progress.image.borrow().clone()
    }

    /// The last applied offset of the metadata log.
    pub fn applied_offset(&self) -> i64 {
        *self.progress.applied.borrow()
    }

    /// Asks to be unfenced, which makes the broker visible to clients and lets it lead. Returns when the
    /// image shows the broker unfenced.
    pub async fn unfence(&self) -> Result<(), JoinError> {
        let mut images = self.progress.image.subscribe();
        let node_id = self.node_id;
        let unfenced = async {
            self.wish(Wish::Unfence).await?;
            let shown = images.wait_for(|image| image.is_alive(node_id)).await;
            shown.map(drop).map_err(|_| JoinError::Left)
        };
        tokio::select! {
            biased;
            error = self.failed() => Err(error.into()),
            unfenced = unfenced => unfenced,
        }
    }

    /// Performs a controlled shutdown: leadership moves to other brokers, and clients learn of it. Returns
    /// when the controller allows the shutdown, or after a timeout.
    pub async fn controlled_shutdown(&self) {
        // A member that has ended needs no shutdown.
        let _ = self.wish(Wish::Leave).await;
    }

    /// Reports failed log directories to the controller, which then elects other leaders for their
    /// partitions.
    pub fn report_offline(&self, directories: Vec<Uuid>) {
        self.progress.offline.send_replace(directories);
    }

    /// Asks the controller to fence the broker while `wanted`, so that other brokers lead its partitions.
    /// Returns true if this is a change.
    pub fn withdraw(&self, wanted: bool) -> bool {
        self.progress.withdrawn.send_if_modified(|withdrawn| std::mem::replace(withdrawn, wanted) != wanted)
    }

    /// Waits until the metadata log cannot be followed any more, or another process has taken the broker's
    /// place. The broker must stop in either case.
    pub async fn failed(&self) -> Arc<ObserverError> {
        let mut failed = self.progress.failed.subscribe();
        let error = failed.wait_for(Option::is_some).await.ok().and_then(|error| error.clone());
        match error {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Ends the tasks.
    pub async fn stop(self) {
        let (observer, member) = (self.observer.keep(), self.member.keep());
        observer.abort();
        member.abort();
        // The tasks may be in the middle of a publication, so wait for its end.
        let _ = observer.await;
        let _ = member.await;
    }

    async fn wish(&self, wish: Wish) -> Result<(), JoinError> {
        let (done, fulfilled) = oneshot::channel();
        self.wishes.send((wish, done)).await.map_err(|_| JoinError::Left)?;
        fulfilled.await.map_err(|_| JoinError::Left)
    }
}

/// A task that is aborted if the start fails or the broker is dropped without a stop.
struct AbortOnDrop(Option<JoinHandle<()>>);

impl AbortOnDrop {
    fn keep(mut self) -> JoinHandle<()> {
        self.0.take().expect("it is kept once")
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
