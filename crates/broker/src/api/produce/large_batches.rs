//! Batches of a Produce request that take long to validate: batches that decompress to more than the budget
//! of a connection's task, or must be recompressed.
//!
//! Such a batch must not delay other connections. A few batches at a time are validated and appended on
//! separate threads, while their own connections wait. Principals take turns.

use super::{AnswerPosition, accepted, refused_by};
use crate::broker::Broker;
use bytes::Bytes;
use std::sync::Arc;
use thalweg_log::VerificationGuard;
use thalweg_net::Holder;
use thalweg_replica::partition::{DecompressionBudget, Partition, PendingAppend};
use thalweg_wire::request::ProduceResponse;

/// A deferred batch.
pub(super) struct LargeBatch {
    /// Position of the batch's entry in the answer.
    pub(super) position: AnswerPosition,
    pub(super) partition: Arc<Partition>,
    pub(super) records: Bytes,
    pub(super) guard: Option<VerificationGuard>,
}

/// Appends the batches, fills in their entries, and adds waits for durability to `waits`.
pub(super) async fn append(
    broker: &Broker,
    holder: &Holder,
    acks: i16,
    batches: Vec<LargeBatch>,
    response: &mut ProduceResponse,
    waits: &mut Vec<(AnswerPosition, PendingAppend)>,
) {
    for LargeBatch { position, partition, records, guard } in batches {
        let _place = broker.decompressions.take(holder).await;
        let now_ms = broker.clock.now_ms();
        let appends_to = Arc::clone(&partition);
        let work = broker.log_dirs.disk().spawn(move || {
            let mut budget = DecompressionBudget::whole();
            appends_to.append_from_client(&records, acks, guard, now_ms, &mut budget)
        });
        let appended = work.await.expect("appending does not panic");
        let (topic, partition_index) = position;
        response.responses[topic].partition_responses[partition_index] = match appended {
            Ok(Some(appended)) => accepted(&partition, acks, position, &appended, waits),
            Ok(None) => unreachable!("the budget has no bound"),
            Err(error) => refused_by(&partition, &error.into()),
        };
    }
}
