//! The offsets of a partition at a read, by which a reader notices a change.

use super::Partition;
use std::sync::atomic::Ordering;
use thalweg_record::Offset;

/// Offsets and generation of a partition at a read. Another read returns something new only if they differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionSnapshot {
    log_start: Offset,
    high_watermark: Offset,
    log_end: Offset,
    generation: u64,
}

impl Partition {
    /// The present offsets and generation. Consistent under the lock; without it, good enough to notice a
    /// change.
    pub fn snapshot(&self) -> PartitionSnapshot {
        PartitionSnapshot {
            log_start: self.published.log_start_offset(),
            high_watermark: self.published.high_watermark(),
            log_end: self.published.log_end_offset(),
            generation: self.generation.load(Ordering::Relaxed),
        }
    }
}
