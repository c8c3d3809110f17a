//! Reports of completed batches to the caller.

use std::sync::Arc;

use thalweg_record::Offset;
use tokio::time::Instant;

use super::ProducerState;
use super::accumulator::InFlightBatch;
use super::delivery::{Delivery, DeliveryError, TransactionAborted};

/// Reports the outcome of a batch. Call without the accumulator's lock.
pub(super) fn report(
    shared: &ProducerState,
    taken: &InFlightBatch,
    ended_at: Instant,
    result: Result<Offset, &DeliveryError>,
) {
    let (topic, partition) = {
        let accumulator = shared.accumulator.lock();
        let queue = &accumulator.partitions[taken.partition];
        (Arc::clone(&queue.topic), queue.partition)
    };
    let batch = &taken.batch;
    let delivery = Delivery {
        topic: &topic,
        partition,
        records: batch.record_count().unsigned_abs(),
        value_bytes: batch.value_bytes,
        batch_bytes: batch.size_estimate() as u64,
        sent: &batch.sent,
        ended_at,
        result,
    };
    (shared.report.lock())(&delivery);
}

/// Reports batches as failed with one error, and releases their memory.
pub(super) fn fail(shared: &ProducerState, batches: Vec<InFlightBatch>, error: &DeliveryError) {
    let now = Instant::now();
    for taken in batches {
        report(shared, &taken, now, Err(error));
        shared.accumulator.lock().release(taken.batch);
    }
    shared.progress.notify_waiters();
}

/// Drops waiting batches whose transaction cannot be committed.
pub(super) fn drop_waiting(shared: &ProducerState) {
    let dropped = shared.accumulator.lock().drop_waiting();
    fail(shared, dropped, &DeliveryError::Aborted(TransactionAborted));
}
