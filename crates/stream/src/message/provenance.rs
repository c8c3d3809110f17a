//! The source partition of a batch's messages. Messages of one partition are in order; messages of several
//! are not, so a stage that depends on order, such as `aggregate`, tracks each partition separately.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_client::TopicPartition;

/// The number of a source, or of a stage whose output is not its input, unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(u64);

impl SourceId {
    /// A number that no other source has.
    pub fn unique() -> SourceId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        SourceId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A partition that a source reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedPartition {
    /// The number of the partition in its source.
    pub partition: u32,
    /// The partition in the cluster, if the source reads topics.
    pub at: Option<TopicPartition>,
    /// True if the source has read everything in the partition.
    pub is_at_end: bool,
}

/// The origin of a batch. An empty batch with a provenance announces a change of the source.
#[derive(Clone, Debug)]
pub struct Provenance {
    pub source: SourceId,
    /// The partition of the messages; `None` in a batch that only announces.
    pub partition: Option<u32>,
    /// True if the partition had no further message when the last message of the batch was read.
    pub is_at_end: bool,
    /// False if the source never tells whether a partition has further messages.
    pub has_ends: bool,
    /// All partitions of the source that may have further messages, and those of the batch.
    pub assigned: Arc<[AssignedPartition]>,
    /// Partitions that were revoked just now: their messages come again, here or at another member of the
    /// group, except for acknowledged ones. `None` if the source keeps its partitions.
    pub revoked: Option<Arc<[u32]>>,
}

/// The partition of a source that can lose it.
pub type RevocablePartition = (SourceId, u32);

impl Provenance {
    /// The provenance of messages of a source with a single partition, whose end is not told.
    pub fn single(source: SourceId) -> Provenance {
        let assigned = Arc::new([AssignedPartition { partition: 0, at: None, is_at_end: false }]);
        Provenance { source, partition: Some(0), is_at_end: false, has_ends: false, assigned, revoked: None }
    }

    /// The announcement that a source has ended.
    pub fn over(source: SourceId) -> Provenance {
        Provenance { partition: None, is_at_end: true, assigned: Arc::new([]), ..Provenance::single(source) }
    }

    /// True if partitions were revoked just now.
    pub fn has_revoked(&self) -> bool {
        self.revoked.as_ref().is_some_and(|revoked| !revoked.is_empty())
    }

    /// The partition of the messages, if the source can lose it.
    pub fn revocable(&self) -> Option<RevocablePartition> {
        self.revoked.as_ref()?;
        Some((self.source, self.partition?))
    }
}
