//! Partitions that report something under their locks, until a task of the broker looks at it.

use crate::isr_changes::PartitionKey;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use tokio::sync::Notify;

/// The partitions that wait to be reported.
#[derive(Debug, Default)]
pub struct PartitionReports {
    waiting: Mutex<BTreeSet<PartitionKey>>,
    reported: Notify,
}

impl PartitionReports {
    /// Reports a partition.
    pub fn report(&self, key: PartitionKey) {
        self.waiting.lock().insert(key);
        self.reported.notify_one();
    }

    /// All that wait, as soon as there are some.
    pub(crate) async fn next(&self) -> BTreeSet<PartitionKey> {
        loop {
            let waiting = std::mem::take(&mut *self.waiting.lock());
            if !waiting.is_empty() {
                return waiting;
            }
            self.reported.notified().await;
        }
    }
}
