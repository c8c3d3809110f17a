//! Follows a request that changes the cluster to its answer, and records the changes.
//!
//! The request continues in a separate task, so that a client cannot hide a change by closing its connection
//! early.

use super::AuditedRequest;
use super::changes::{Changes, ClusterChange, Describe};
use bytes::{Bytes, BytesMut};
use thalweg_log::disk::Disk;
use thalweg_net::{Frame, FrameSegment, Reply};
use thalweg_wire::ApiKey;
use thalweg_wire::frame::LENGTH_LEN;
use thalweg_wire::request::{CreateTopicsRequest, CreateTopicsResponse};

/// Size from which on requests are described on a separate thread, in bytes.
const LARGE_CHANGE_BYTES: usize = 16 * 1024;

/// A request that changes the cluster.
pub(crate) struct ChangeRecorder {
    request: AuditedRequest,
    key: ApiKey,
    version: i16,
    describe: Describe,
    frame: Bytes,
    disk: Disk,
}

impl ChangeRecorder {
    /// Starts to follow a request, if its API describes changes and changes are recorded.
    pub fn begin(
        request: Option<&AuditedRequest>,
        (key, version): (ApiKey, i16),
        describe: Option<Describe>,
        frame: &Bytes,
        disk: &Disk,
    ) -> Option<ChangeRecorder> {
        let describe = describe?;
        let request = request.filter(|request| request.wants_changes())?.clone();
        Some(ChangeRecorder { request, key, version, describe, frame: frame.clone(), disk: disk.clone() })
    }

    /// The reply, which is recorded before it is sent.
    pub fn follow(self, reply: Reply) -> Reply {
        match reply {
            Reply::Later(answer) | Reply::Ordered(answer) => {
                let answered = tokio::spawn(async move {
                    let reply = Reply::Later(answer).resolved().await;
                    self.record(answer_of(&reply)).await;
                    reply
                });
                Reply::Later(Box::pin(async move {
                    match answered.await {
                        Ok(reply) => reply,
                        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                        Err(_) => Reply::Close("the broker stops".to_owned()),
                    }
                }))
            }
            Reply::Now(_) | Reply::Last(..) => {
                let recorded = self.record(answer_of(&reply));
                let recorded = tokio::spawn(recorded);
                Reply::Later(Box::pin(async move {
                    // A panic of the task is reported elsewhere, and the answer is valid without the event.
                    let _ = recorded.await;
                    reply
                }))
            }
            Reply::Nothing | Reply::Close(_) => reply,
        }
    }

    /// Records the changes from an answer without its length prefix. Without an answer there are no changes.
    async fn record(self, answer: Option<Bytes>) {
        let Some(answer) = answer else { return };
        if self.frame.len() + answer.len() < LARGE_CHANGE_BYTES {
            return self.describe(answer);
        }
        let disk = self.disk.clone();
        if disk.spawn(move || self.describe(answer)).await.is_err() {
            tracing::error!("Describing a request for the audit trail panicked");
        }
    }

    fn describe(self, answer: Bytes) {
        let ChangeRecorder { request, key, version, describe, frame, .. } = self;
        let mut take = |change| request.changed(change);
        describe(version, frame, answer, &mut Changes::of(key, &mut take));
    }
}

/// The bytes of an answer, without its length.
fn answer_of(reply: &Reply) -> Option<Bytes> {
    let (Reply::Now(Frame(segments)) | Reply::Last(Frame(segments), _)) = reply else { return None };
    let mut answer = BytesMut::new();
    for segment in segments {
        match segment {
            FrameSegment::Bytes(bytes) => answer.extend_from_slice(bytes),
            FrameSegment::File(_) => return None,
        }
    }
    (answer.len() >= LENGTH_LEN).then(|| answer.freeze().slice(LENGTH_LEN..))
}

/// Records topics that were created automatically for a client.
pub(crate) fn record_auto_created(
    request: Option<&AuditedRequest>,
    key: ApiKey,
    created: &CreateTopicsRequest,
    answer: &CreateTopicsResponse,
) {
    let Some(request) = request.filter(|request| request.wants_changes()) else { return };
    let mut take = |change| request.changed(change);
    created.describe(answer, &mut Changes::of(key, &mut take));
}
