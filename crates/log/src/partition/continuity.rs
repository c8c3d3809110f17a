//! Checks that closed segments continue each other. A segment that something else has removed, emptied or overwritten leaves
//! batches that are sound each for itself, so that no reader would notice what is gone.
//!
//! A roll begins the next segment where the last batch ends. So in a log without gaps the records between the end of a
//! segment and the base offset of the next are missing, if they were synced once. The check runs where it costs nothing:
//! a start sees empty segments and indexes without a log, and a reader reaches the end of each segment. A background task
//! checks the other segments, one at a time: at a start that would cost some reads of each.
//!
//! Owns: that judgement. Refuses: judging logs that may have gaps, and what a power failure may have taken: recovery and
//! `end_at_gap` do that. Reading whole segments.

use thalweg_record::Offset;

use super::PartitionLog;
use super::error::LogError;
use crate::scan::{BatchFault, CorruptBatch};

impl PartitionLog {
    /// Notes what a start sees without reading: closed segments without a batch, and segments of which only an index is
    /// there. All other segments are to be checked later.
    pub(super) fn note_lost_segments(&mut self, lost: &[Offset]) -> Result<(), LogError> {
        let closed = self.segments.len() - 1;
        self.health.unchecked = self.segments[0].base_offset..self.segments[closed].base_offset;
        let empty = (0..closed).filter(|&index| self.segments[index].is_empty());
        let before_lost = lost.iter().filter_map(|base| self.floor_index(*base));
        for index in empty.chain(before_lost).collect::<Vec<_>>() {
            self.unless_damaged(index, Self::check_end)?;
        }
        Ok(())
    }

    /// Checks one of the closed segments that were found at the start, and notes its damage. Returns whether there was one
    /// left.
    pub fn check_next_segment(&mut self) -> Result<bool, LogError> {
        let unchecked = &self.health.unchecked;
        let index = self.segments.partition_point(|segment| segment.base_offset < unchecked.start);
        let Some(next) = self.segments.get(index + 1) else { return Ok(false) };
        if self.segments[index].base_offset >= unchecked.end {
            return Ok(false);
        }
        let after = next.base_offset;
        let was_open = self.segments[index].is_open();
        self.unless_damaged(index, Self::check_begin)?;
        self.unless_damaged(index, Self::check_end)?;
        // A failure before this line is no answer: the segment is looked at again.
        self.health.unchecked.start = after;
        if !was_open {
            self.segments[index].release(&self.home)?;
        }
        Ok(true)
    }

    /// Makes a check of a segment. Damage is noted, and no error.
    fn unless_damaged(
        &mut self,
        index: usize,
        check: fn(&mut PartitionLog, usize) -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        match check(self, index) {
            Err(LogError::Corrupt { segment, fault }) => {
                self.note_damage(segment, &fault);
                Ok(())
            }
            other => other,
        }
    }

    /// The first batch of a closed segment must be of that segment, and have its name in a log without gaps.
    fn check_begin(&mut self, index: usize) -> Result<(), LogError> {
        let Some(next) = self.next_base_if_synced(index) else { return Ok(()) };
        let has_gaps = self.may_have_gaps();
        let segment = &mut self.segments[index];
        let base = segment.base_offset;
        let first = segment.batch_at(&self.home, 0).map_err(LogError::in_segment(base))?;
        let Some(first) = first.map(|first| first.header) else { return Ok(()) };
        let is_right = if has_gaps { first.base_offset >= base } else { first.base_offset == base };
        if is_right && first.next_offset() <= next {
            return Ok(());
        }
        let reason = BatchFault::out_of_order(&first, base);
        Err(LogError::Corrupt { segment: base, fault: CorruptBatch { position: 0, reason } })
    }

    /// The last batch of a closed segment must end where the next segment begins, in a log without gaps.
    pub(super) fn check_end(&mut self, index: usize) -> Result<(), LogError> {
        let Some(next) = self.next_base_if_synced(index) else { return Ok(()) };
        if self.may_have_gaps() || next <= self.log_start {
            return Ok(());
        }
        let segment = &mut self.segments[index];
        let base = segment.base_offset;
        let has_last = segment.locate(&self.home, next - 1).map_err(LogError::in_segment(base))?.is_some();
        if has_last {
            return Ok(());
        }
        let end = segment.read_next_offset(&self.home).map_err(LogError::in_segment(base))?;
        if self.health.was_deleted(end..next) {
            return Ok(());
        }
        let reason = BatchFault::Missing { from: end.0, to: next.0 };
        let position = self.segments[index].size_bytes();
        Err(LogError::Corrupt { segment: base, fault: CorruptBatch { position, reason } })
    }

    /// The base offset of the next segment, if all below it was synced.
    fn next_base_if_synced(&self, index: usize) -> Option<Offset> {
        let next = self.segments.get(index + 1)?.base_offset;
        (next <= self.flushing.recovery_point).then_some(next)
    }
}
