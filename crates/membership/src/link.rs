//! The link to the active controller. The broker uses only KRaft's requests, as bytes, whether the controller
//! is in this process or remote.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI16, AtomicI32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use thalweg_metadata::BrokerId;
use thalweg_wire::frame::{self, LENGTH_LEN};
use thalweg_wire::request::{FetchRequest, FetchResponse};
use thalweg_wire::{ApiKey, Message, Request};
use tokio::time::Instant;

use super::error::{LinkError, LocalControllerError};
use super::fetched::QuorumNews;
use super::quorum::{FETCH_WAIT, Quorum, QuorumOptions};
use thalweg_watch as watch;

/// Maximum wait of a Fetch at a controller in this process. Waiting is free there, waking up is not.
const IN_PROCESS_FETCH_WAIT: Duration = Duration::from_secs(30);

/// The controller of the cluster in this process.
pub trait LocalController: Send + Sync {
    /// The id of its node.
    fn node_id(&self) -> i32;

    /// The id of the cluster.
    fn cluster_id(&self) -> &str;

    /// True if the controller serves an API.
    fn serves(&self, api: ApiKey) -> bool;

    /// Answers a request of this process's broker: header and body in, header and body out, both without the
    /// length in front.
    fn handle(&self, frame: Bytes) -> LocalAnswer<'_>;
}

/// The pending answer of a [`LocalController`].
pub type LocalAnswer<'a> = Pin<Box<dyn Future<Output = Result<Bytes, LocalControllerError>> + Send + 'a>>;

enum Way {
    InProcess(Arc<dyn LocalController>),
    Network(Box<Quorum>),
}

struct LinkState {
    way: Way,
    correlation_ids: AtomicI32,
    /// The offset of the last published image.
    published: watch::Sender<i64>,
    /// The level of `kraft.version` in the applied part of the log.
    kraft_version: AtomicI16,
}

/// Access to the active controller. Cheap to clone.
#[derive(Clone)]
pub struct ControllerLink(Arc<LinkState>);

impl ControllerLink {
    /// A link to the controller in this process.
    pub fn in_process(controller: Arc<dyn LocalController>) -> ControllerLink {
        ControllerLink::by(Way::InProcess(controller))
    }

    /// A link to the active controller of a quorum, over the network.
    pub fn to_quorum(options: QuorumOptions) -> ControllerLink {
        ControllerLink::by(Way::Network(Box::new(Quorum::new(options))))
    }

    fn by(way: Way) -> ControllerLink {
        let (published, _) = watch::channel(-1);
        let (correlation_ids, kraft_version) = (AtomicI32::new(0), AtomicI16::new(0));
        ControllerLink(Arc::new(LinkState { way, correlation_ids, published, kraft_version }))
    }

    /// Sends a request with the broker's own permissions and waits for the answer. The effect of the request
    /// is committed by then; the broker's image may show it a moment later (see
    /// [`ControllerLink::image_changes`]).
    ///
    /// Over the network the request is retried with the active controller until the timeout.
    pub async fn send<R: Request>(&self, request: R, version: i16) -> Result<R::Response, LinkError> {
        match &self.0.way {
            Way::InProcess(controller) => self.call(&**controller, &request, version).await,
            Way::Network(quorum) => quorum.send(&request, version).await,
        }
    }

    /// The time at which the newest active controller was found; `None` if it is in this process.
    pub(super) fn elected(&self) -> Option<Instant> {
        match &self.0.way {
            Way::InProcess(_) => None,
            Way::Network(quorum) => quorum.elected(),
        }
    }

    /// Fetches the metadata log. Over the network, this request finds the active controller.
    pub(super) async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, LinkError> {
        match &self.0.way {
            Way::InProcess(controller) => self.call(&**controller, &request, FetchRequest::MAX_VERSION).await,
            Way::Network(quorum) => quorum.fetch(&request, FetchRequest::MAX_VERSION).await,
        }
    }

    async fn call<R: Request>(
        &self,
        controller: &dyn LocalController,
        request: &R,
        version: i16,
    ) -> Result<R::Response, LinkError> {
        let correlation_id = self.0.correlation_ids.fetch_add(1, Ordering::Relaxed);
        let frame = frame::encode_request(request, version, correlation_id, None)?;
        let answer = controller.handle(frame.slice(LENGTH_LEN..)).await?;
        let (_, response) = frame::decode_response::<R>(answer, version)?;
        Ok(response)
    }

    /// The cluster id of the controller.
    pub async fn cluster_id(&self) -> Result<String, LinkError> {
        match &self.0.way {
            Way::InProcess(controller) => Ok(controller.cluster_id().to_owned()),
            Way::Network(quorum) => quorum.cluster_id().await,
        }
    }

    /// The versions of an API that the controller serves; while these are unknown, the versions of this
    /// build.
    pub fn served(&self, api: ApiKey) -> Option<(i16, i16)> {
        match &self.0.way {
            Way::InProcess(controller) => controller.serves(api).then(|| api.versions()),
            Way::Network(quorum) if !quorum.is_known() => Some(api.versions()),
            Way::Network(quorum) => quorum.served(api),
        }
    }

    /// The finalized features of the cluster, as reported by its controllers at connection. Empty for a
    /// controller in this process, which has the same features as the broker.
    pub(super) fn features(&self) -> Vec<(String, i16)> {
        match &self.0.way {
            Way::InProcess(_) => Vec::new(),
            Way::Network(quorum) => quorum.features(),
        }
    }

    /// True if remote controllers have reported no features so far.
    pub(super) fn lacks_features(&self) -> bool {
        matches!(self.0.way, Way::Network(_)) && self.features().is_empty()
    }

    /// Refreshes [`ControllerLink::served`] and the features. A starting controller reports no features.
    pub(super) async fn ask_versions(&self) -> Result<(), LinkError> {
        match &self.0.way {
            Way::InProcess(_) => Ok(()),
            Way::Network(quorum) => quorum.ask_versions().await,
        }
    }

    /// The offset of each published image. Offsets only rise.
    pub fn image_changes(&self) -> watch::Receiver<i64> {
        self.0.published.subscribe()
    }

    pub(super) fn set_published(&self, offset: i64) {
        self.0.published.send_replace(offset);
    }

    /// The finalized level of `kraft.version`. Images lack it, because the quorum keeps it in control records
    /// of its log (KAFKA-18979).
    pub fn kraft_version(&self) -> i16 {
        self.0.kraft_version.load(Ordering::Relaxed)
    }

    /// Applies the quorum's state from the log.
    pub(super) fn heed(&self, news: &QuorumNews) {
        if let Some(level) = news.kraft_version {
            self.0.kraft_version.store(level, Ordering::Relaxed);
        }
        if let (Way::Network(quorum), Some(voters)) = (&self.0.way, &news.voters) {
            quorum.learn(voters);
        }
    }

    /// The replica id for observing the log. A controller treats its own node id as a voter, not an observer,
    /// so the broker beside it observes anonymously, as KRaft allows.
    pub(super) fn replica_id(&self, broker: BrokerId) -> i32 {
        match &self.0.way {
            Way::InProcess(controller) if controller.node_id() == broker.0 => -1,
            Way::InProcess(_) | Way::Network(_) => broker.0,
        }
    }

    /// Maximum wait of a Fetch for new records.
    pub(super) fn fetch_wait(&self) -> Duration {
        match &self.0.way {
            Way::InProcess(_) => IN_PROCESS_FETCH_WAIT,
            Way::Network(_) => FETCH_WAIT,
        }
    }
}
