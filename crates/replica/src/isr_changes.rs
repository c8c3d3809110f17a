//! Pending changes of in-sync replicas, at most one per partition, on their way to the controller.

use crate::followers::{ChangeOutcome, IsrChange};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_metadata::{PartitionIndex, TopicIdPartition};
use thalweg_wire::Uuid;
use tokio::sync::Notify;

/// Changes by partition.
pub(crate) type Changes = BTreeMap<TopicIdPartition, IsrChange>;

/// The queue of pending changes.
#[derive(Debug, Default)]
pub struct IsrChanges {
    waiting: Mutex<Changes>,
    submitted: Notify,
    counters: IsrCounters,
}

/// Outcomes of changes since the start of the broker.
#[derive(Debug, Default)]
pub struct IsrCounters {
    /// Changes that dropped followers.
    pub shrinks: AtomicU64,
    /// Changes that added a follower.
    pub expands: AtomicU64,
    /// Changes that the controller refused or replaced by a newer registration.
    pub failures: AtomicU64,
}

impl IsrCounters {
    pub(crate) fn count(&self, change: &IsrChange, outcome: &ChangeOutcome) {
        let counter = match outcome {
            ChangeOutcome::Made { .. } if change.grows => &self.expands,
            ChangeOutcome::Made { .. } => &self.shrinks,
            ChangeOutcome::Refused | ChangeOutcome::Outdated => &self.failures,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl IsrChanges {
    /// Queues a change. The new change replaces an older one of the same partition, which the partition has
    /// given up.
    pub fn submit(&self, topic_id: Uuid, partition: PartitionIndex, change: IsrChange) {
        self.waiting.lock().insert((topic_id, partition), change);
        self.submitted.notify_one();
    }

    /// Counters of outcomes since the start of the broker.
    pub fn counters(&self) -> &IsrCounters {
        &self.counters
    }

    /// Queues changes for a retry, except where a newer change of the same partition is queued.
    pub(crate) fn resubmit(&self, changes: Changes) {
        let mut waiting = self.waiting.lock();
        for (key, change) in changes {
            waiting.entry(key).or_insert(change);
        }
        self.submitted.notify_one();
    }

    /// Takes all pending changes; waits until there is at least one.
    pub(crate) async fn next(&self) -> Changes {
        loop {
            let changes = std::mem::take(&mut *self.waiting.lock());
            if !changes.is_empty() {
                return changes;
            }
            self.submitted.notified().await;
        }
    }
}
