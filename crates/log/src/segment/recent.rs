//! The positions of the newest batches of the active segment, in memory.
//!
//! Owns: the last few hundred batches, so that a consumer or follower at the tail is served, and the position
//! of the high watermark found, without reading the file. Refuses: batches that were not appended by this
//! process.

use std::collections::VecDeque;

/// Maximum number of remembered batches: at most 6 KiB for each partition with appends.
const RECENT_MAX: usize = 512;

#[derive(Clone, Copy, Debug)]
struct RecentBatch {
    /// Offsets relative to the segment's base offset.
    base: u32,
    last: u32,
    position: u32,
}

/// A batch boundary: position and base offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// Position of the batch's first byte.
    pub position: u64,
    /// Base offset of the batch, relative to the segment's base offset.
    pub relative_base: u32,
}

/// The newest batches, oldest first, without a hole before the end of the segment.
#[derive(Debug, Default)]
pub struct RecentBatches {
    batches: VecDeque<RecentBatch>,
    /// The last offset before the oldest remembered batch, if any.
    before: Option<u32>,
}

impl RecentBatches {
    /// An empty memory for a segment that ends with the record at `last`, or is empty.
    pub fn after(last: Option<u32>) -> RecentBatches {
        RecentBatches { batches: VecDeque::new(), before: last }
    }

    /// Adds an appended batch.
    pub fn push(&mut self, base: u32, last: u32, position: u32) {
        if self.batches.len() == RECENT_MAX
            && let Some(oldest) = self.batches.pop_front()
        {
            self.before = Some(oldest.last);
        }
        self.batches.push_back(RecentBatch { base, last, position });
    }

    /// The first batch whose last offset is not below `offset`: `None` if unknown here, `Some(None)` if there
    /// is known to be none.
    pub fn find(&self, offset: u32) -> Option<Option<Boundary>> {
        if self.before.is_some_and(|before| offset <= before) {
            return None;
        }
        let index = self.batches.partition_point(|batch| batch.last < offset);
        Some(self.batches.get(index).map(RecentBatch::boundary))
    }

    /// The last remembered batch that starts at or before `position`.
    pub fn last_at_or_before(&self, position: u64) -> Option<Boundary> {
        let after = self.batches.partition_point(|batch| u64::from(batch.position) <= position);
        after.checked_sub(1).map(|index| self.batches[index].boundary())
    }

    /// Releases the memory of an idle partition.
    pub fn forget(&mut self) {
        if let Some(newest) = self.batches.back() {
            self.before = Some(newest.last);
        }
        self.batches = VecDeque::new();
    }
}

impl RecentBatch {
    fn boundary(&self) -> Boundary {
        Boundary { position: u64::from(self.position), relative_base: self.base }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_found_by_offset_and_by_position() {
        let mut recent = RecentBatches::after(Some(9));
        recent.push(10, 19, 100);
        recent.push(25, 29, 200);
        assert_eq!(recent.find(9), None);
        assert_eq!(recent.find(10), Some(Some(Boundary { position: 100, relative_base: 10 })));
        assert_eq!(recent.find(20), Some(Some(Boundary { position: 200, relative_base: 25 })));
        assert_eq!(recent.find(30), Some(None));
        assert_eq!(recent.last_at_or_before(99), None);
        assert_eq!(recent.last_at_or_before(150).map(|found| found.position), Some(100));
        recent.forget();
        assert_eq!(recent.find(29), None);
        assert_eq!(recent.find(30), Some(None));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut recent = RecentBatches::after(None);
        for batch in 0..2000u32 {
            recent.push(batch * 2, batch * 2 + 1, batch * 100);
        }
        assert_eq!(recent.find(0), None);
        assert_eq!(recent.find(3999), Some(Some(Boundary { position: 199_900, relative_base: 3998 })));
        let oldest = (2000 - 512) * 2;
        assert!(recent.find(oldest).is_some() && recent.find(oldest - 1).is_none());
    }
}
