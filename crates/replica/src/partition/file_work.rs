//! Partitions with pending file work: trimming, flushing in the background, delayed removal.
//!
//! A broker may hold tens of thousands of partitions, of which few change. Periodic work visits only those: a
//! change under a partition's lock puts the partition on the list, and `trim` removes it once its files are
//! at rest.

use super::{Partition, State};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use thalweg_metadata::TopicIdPartition;

/// The partitions of a broker with file work. A partition is on the list once, or twice if it was removed and
/// added again.
#[derive(Debug, Default)]
pub(super) struct FileWorkList {
    pub(super) keys: Mutex<Vec<TopicIdPartition>>,
    /// The lock that serializes removals from the list.
    pub(super) removal: Mutex<()>,
}

/// A partition's link to the list; empty until the partition is added to the broker's table.
#[derive(Debug, Default)]
pub(super) struct FileWorkLink(OnceLock<(Arc<FileWorkList>, TopicIdPartition)>);

impl FileWorkLink {
    /// Notes a change of the partition. Called under its lock.
    pub(super) fn changed(&self, state: &mut State) {
        if let Some((list, key)) = self.0.get()
            && !std::mem::replace(&mut state.has_file_work, true)
        {
            list.keys.lock().push(*key);
        }
    }
}

impl Partition {
    /// Links the partition to a broker's list.
    pub(super) fn belongs_to(&self, list: &Arc<FileWorkList>) {
        let mut state = self.state.lock();
        state.has_file_work = false;
        // Releasing the lock puts the partition on the list.
        let _ = self.state.file_work().0.set((Arc::clone(list), (self.topic_id, self.index)));
    }
}
