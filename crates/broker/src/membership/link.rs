//! The way to the active controller. The broker uses KRaft's requests only, as bytes, whether the controller is in
//! this process or elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicI16, AtomicI32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use thalweg_controller::{Controller, HandleError};
use thalweg_wire::frame::{self, LENGTH_LEN};
use thalweg_wire::{DecodeError, EncodeError, Request};
use tokio::sync::watch;

/// How long a controller in this process may keep a Fetch waiting. A wait costs nothing there, and waking up does.
const IN_PROCESS_FETCH_WAIT: Duration = Duration::from_secs(30);

/// A request was not answered.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// It cannot be written in this version.
    #[error("a request to the controller cannot be written: {0}")]
    Encode(#[from] EncodeError),
    /// The answer makes no sense.
    #[error("an answer of the controller cannot be read: {0}")]
    Decode(#[from] DecodeError),
    /// The controller did not answer.
    #[error("the controller does not answer: {0}")]
    Controller(#[from] HandleError),
}

enum Way {
    InProcess(Arc<Controller>),
}

struct Shared {
    way: Way,
    correlation_ids: AtomicI32,
    /// The offset of the image that was published last.
    published: watch::Sender<i64>,
    /// The level of `kraft.version` in the part of the log that has been applied.
    kraft_version: AtomicI16,
}

/// The way to the active controller. Cheap to clone.
#[derive(Clone)]
pub struct ControllerLink(Arc<Shared>);

impl ControllerLink {
    /// To the controller in this process.
    pub fn in_process(controller: Arc<Controller>) -> ControllerLink {
        let (published, _) = watch::channel(-1);
        let (way, correlation_ids) = (Way::InProcess(controller), AtomicI32::new(0));
        let kraft_version = AtomicI16::new(0);
        ControllerLink(Arc::new(Shared { way, correlation_ids, published, kraft_version }))
    }

    /// Sends a request with the broker's own rights and waits for the answer. What the answer speaks of is committed
    /// by then; the broker's image may come to show it a moment later (see [`ControllerLink::image_changes`]).
    pub async fn send<R: Request>(&self, request: R, version: i16) -> Result<R::Response, LinkError> {
        let correlation_id = self.0.correlation_ids.fetch_add(1, Ordering::Relaxed);
        let frame = frame::encode_request(&request, version, correlation_id, None)?;
        let answer = self.send_frame(frame.slice(LENGTH_LEN..)).await?;
        let (_, response) = frame::decode_response::<R>(answer, version)?;
        Ok(response)
    }

    async fn send_frame(&self, frame: Bytes) -> Result<Bytes, LinkError> {
        match &self.0.way {
            Way::InProcess(controller) => Ok(controller.handle(frame).await?),
        }
    }

    /// Tells the offset of each image after it was published. Offsets only rise.
    pub fn image_changes(&self) -> watch::Receiver<i64> {
        self.0.published.subscribe()
    }

    pub(super) fn set_published(&self, offset: i64) {
        self.0.published.send_replace(offset);
    }

    /// The finalized level of `kraft.version`. It is in no image: the quorum keeps it in control records of its log
    /// (KAFKA-18979).
    pub fn kraft_version(&self) -> i16 {
        self.0.kraft_version.load(Ordering::Relaxed)
    }

    pub(super) fn set_kraft_version(&self, level: i16) {
        self.0.kraft_version.store(level, Ordering::Relaxed);
    }

    /// The id under which the log is observed. A controller knows its own node as a voter, not as an observer, so the
    /// broker beside it follows the log without a name, as KRaft allows.
    pub(super) fn replica_id(&self, node_id: i32) -> i32 {
        match &self.0.way {
            Way::InProcess(controller) if controller.node_id() == node_id => -1,
            Way::InProcess(_) => node_id,
        }
    }

    /// How long a Fetch may wait for something new.
    pub(super) fn fetch_wait(&self) -> Duration {
        match &self.0.way {
            Way::InProcess(_) => IN_PROCESS_FETCH_WAIT,
        }
    }
}
