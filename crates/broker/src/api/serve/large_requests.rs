//! Serves long requests outside the runtime's workers, a few at a time.
//!
//! A worker serves many connections, and a decision runs without a pause. A request that can take
//! milliseconds therefore releases its worker first and continues like a blocking thread, under the system's
//! scheduler. Few large requests run concurrently, because each may use much memory.
//!
//! [`ELEMENTS_MAX`] limits the number of elements in a request.

use crate::api::entry::{Cost, Serve};
use crate::api::{Call, unreadable};
use crate::broker::Broker;
use std::sync::Arc;
use thalweg_metadata::ImageCell;
use thalweg_net::Reply;
use thalweg_wire::Decoder;

/// Maximum number of array elements in one request. Kafka has no such limit; an element of two bytes needs
/// more than a hundred bytes when decoded and answered.
pub const ELEMENTS_MAX: usize = 1_000_000;

/// Length from which on requests are served outside the workers, in bytes.
const LARGE_REQUEST_BYTES: usize = 64 * 1024;
/// Number of topics from which on a short request that lists all topics is served outside the workers.
const MANY_TOPICS: usize = 2_000;

/// True if a request takes too long for a worker.
pub fn is_large(images: &ImageCell, cost: Cost, frame_len: usize) -> bool {
    match cost {
        Cost::Own => false,
        Cost::Always => true,
        Cost::ByTopics => frame_len >= LARGE_REQUEST_BYTES || images.get().topics().len() >= MANY_TOPICS,
        Cost::ByLength => frame_len >= LARGE_REQUEST_BYTES,
    }
}

/// Serves a request outside the workers.
pub fn serve(broker: &Arc<Broker>, serve: Serve, call: Call, d: Decoder) -> Reply {
    let broker = Arc::clone(broker);
    Reply::Later(Box::pin(async move {
        let disk = broker.log_dirs.disk().clone();
        let mut place = Some(broker.large_requests.take(&call.holder()).await);
        let (key, version) = (call.key, call.version);
        let begun = disk.work_in_place(|| serve(&broker, call, d));
        let mut answer = match begun {
            Ok(Reply::Later(answer) | Reply::Ordered(answer)) => answer,
            Ok(ready) => return ready,
            Err(error) => return unreadable(key, version, &error),
        };
        std::future::poll_fn(|cx| {
            let polled = disk.work_in_place(|| answer.as_mut().poll(cx));
            if polled.is_pending() {
                // The future may itself need a slot.
                drop(place.take());
            }
            polled
        })
        .await
    }))
}
