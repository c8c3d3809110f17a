//! Partitions reported under their locks, until a task of the broker handles the reports.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use thalweg_metadata::TopicIdPartition;
use tokio::sync::Notify;

/// The queue of reported partitions.
#[derive(Debug, Default)]
pub struct PartitionReports {
    waiting: Mutex<BTreeSet<TopicIdPartition>>,
    reported: Notify,
}

impl PartitionReports {
    /// Reports a partition.
    pub fn report(&self, key: TopicIdPartition) {
        self.waiting.lock().insert(key);
        self.reported.notify_one();
    }

    /// Takes all reported partitions; waits until there is at least one.
    pub(crate) async fn next(&self) -> BTreeSet<TopicIdPartition> {
        loop {
            let waiting = std::mem::take(&mut *self.waiting.lock());
            if !waiting.is_empty() {
                return waiting;
            }
            self.reported.notified().await;
        }
    }
}
