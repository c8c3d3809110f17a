//! Markers on their way from shards to partitions.

use super::{MarkerOrder, TransactionShard};
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_groups::TransactionOutcome;
use thalweg_metadata::PartitionIndex;
use thalweg_record::{ProducerEpoch, ProducerId};
use thalweg_shard::Cell;
use thalweg_wire::ErrorCode;
use tokio::sync::Notify;

/// The result of a marker in a partition.
pub(in super::super) type PartitionResult = ((Arc<str>, PartitionIndex), ErrorCode);
pub(in super::super) type TopicPartitions = Vec<(Arc<str>, PartitionIndex)>;

/// The end of one producer's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Producer id of the transaction.
    pub producer_id: ProducerId,
    /// Producer epoch of the marker.
    pub producer_epoch: ProducerEpoch,
    /// Epoch of the marker's coordinator.
    pub coordinator_epoch: i32,
    /// Commit or abort.
    pub outcome: TransactionOutcome,
    /// The level of transaction.version of the transaction.
    pub transaction_version: i16,
}

/// Markers on their way.
#[derive(Clone, Debug)]
pub(in super::super) struct MarkerDelivery {
    pub(in super::super) cell: Arc<Cell<TransactionShard>>,
    pub(in super::super) order: Arc<MarkerOrder>,
    /// Partitions without the marker yet on this route.
    pub(in super::super) partitions: TopicPartitions,
}

impl MarkerDelivery {
    pub(in super::super) fn marker(&self) -> Marker {
        let order = &self.order;
        Marker {
            producer_id: ProducerId(order.producer_id),
            producer_epoch: ProducerEpoch(order.producer_epoch),
            coordinator_epoch: order.coordinator_epoch,
            outcome: order.outcome,
            transaction_version: order.transaction_version,
        }
    }

    /// Processes the results of partitions. Returns the partitions to retry.
    pub(in super::super) fn complete(self, results: Vec<PartitionResult>) -> Option<MarkerDelivery> {
        let (mut written, mut again) = (Vec::new(), Vec::new());
        for ((topic, partition), error) in results {
            match error {
                ErrorCode::None => written.push((topic, partition)),
                // A partition that accepts no markers cannot contain transactional records.
                ErrorCode::UnsupportedForMessageFormat | ErrorCode::UnsupportedVersion => {
                    written.push((topic, partition));
                }
                ErrorCode::InvalidProducerEpoch | ErrorCode::TransactionCoordinatorFenced => {
                    let order = &self.order;
                    tracing::info!(
                        transactional_id = &*order.id, producer_id = order.producer_id,
                        producer_epoch = order.producer_epoch, coordinator_epoch = order.coordinator_epoch,
                        %topic, %partition, %error, "Transaction marker is stale and is not retried"
                    );
                    return None;
                }
                error => {
                    tracing::debug!(transactional_id = &*self.order.id, %topic, %partition, %error, "Retrying a transaction marker");
                    again.push((topic, partition));
                }
            }
        }
        if !written.is_empty() {
            self.cell.turn(|shard, turn| shard.markers_written(&self.order.id, &written, turn));
        }
        (!again.is_empty()).then_some(MarkerDelivery { partitions: again, ..self })
    }
}

/// Markers waiting to be sent, at most as many as there are ending transactions.
#[derive(Debug, Default)]
pub(in super::super) struct MarkerQueue {
    pub(in super::super) waiting: Mutex<Vec<MarkerDelivery>>,
    pub(in super::super) news: Notify,
}

impl MarkerQueue {
    /// Adds the orders of a shard.
    pub(in super::super) fn add(&self, cell: &Arc<Cell<TransactionShard>>, orders: Vec<MarkerOrder>) {
        if orders.is_empty() {
            return;
        }
        self.put(orders.into_iter().map(|order| {
            let partitions = order.partitions.clone();
            MarkerDelivery { cell: Arc::clone(cell), order: Arc::new(order), partitions }
        }));
    }

    pub(in super::super) fn put(&self, sendings: impl IntoIterator<Item = MarkerDelivery>) {
        self.waiting.lock().extend(sendings);
        self.news.notify_one();
    }
}
