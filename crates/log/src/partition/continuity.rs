//! Checks that closed segments continue each other. If another program removes, empties or overwrites a
//! segment, the remaining batches are sound, so that no reader would notice the missing records.
//!
//! A roll begins the next segment where the last batch ends. So in a log without gaps the records between the
//! end of a segment and the base offset of the next are missing, if they were synced once. The check runs at
//! times when it costs nothing: a start sees empty segments and indexes without a log, and a reader reaches
//! the end of each segment. A background task checks the other segments, one at a time, because a check of
//! all segments at a start would cost some reads of each.
//!
//! A log may have gaps although its topic is not compacted: a follower takes over the gaps of a formerly
//! compacted leader. The bytes distinguish a gap from lost records, so that no file has to record gaps.
//! Within a segment the batches are adjacent, starting at the beginning of the file: damage to a file leaves
//! no sound batch at its place. Between segments only Apache Kafka's followers leave a gap, because their
//! rolls begin at the next batch; the batches beside such a gap have gaps, too.
//!
//! Owns: that judgement. Refuses: judging compacted logs, and losses by a power failure, which recovery and
//! `end_at_gap` handle. Also refuses reading whole segments, unless a segment seems to be lost.

use std::io;
use std::ops::Range;

use thalweg_record::Offset;

use super::error::LogError;
use super::fit_epochs::EpochScan;
use super::health::{LostBeginning, Signs, first_of};
use super::overlaps::batch_of_next;
use super::suspects::Suspects;
use super::{PartitionLog, lost_mark};
use crate::disk::{self, LogFile};
use crate::scan::{BatchFault, CorruptBatch, HeaderScan, ScanError};
use crate::segment::{LOST_SUFFIX, Segment, take_out};

/// The state of a check of closed segments.
#[derive(Debug)]
pub enum SegmentCheck {
    /// All segments are checked.
    NoneLeft,
    /// One segment was checked.
    Done,
    /// One segment was checked except for its epochs, which must be read without the partition's lock.
    Epochs(EpochScan),
}

impl PartitionLog {
    /// Notes signs that a start sees without reading: emptied closed segments, and segments with only an
    /// index. All other segments are checked later. `deleted_to` is the log start requested by clients.
    pub(super) fn note_lost_segments(&mut self, signs: Signs, deleted_to: Offset) -> Result<(), LogError> {
        let Signs { lost, marks, suspects, renamed } = signs;
        self.note_lost_beginning(&lost, marks, deleted_to)?;
        self.health.unchecked = self.segments[0].base_offset..self.log_end;
        self.health.suspects = Suspects::new(suspects, renamed);
        self.check_segments_before_added()?;
        if self.may_have_gaps() {
            return self.check_suspects_of_compacted();
        }
        self.judge_suspects(Self::check_end_before_lost, false)
    }

    /// Checks the empty closed segments of a log without compaction. Compaction leaves empty segments too,
    /// and the log is known as compacted a moment later.
    pub(super) fn check_empty_segments(&mut self) -> Result<(), LogError> {
        for index in 0..self.segments.len() - 1 {
            if self.segments[index].is_empty()
                && let Some(from) = self.damage_at(index, Self::check_end_before_lost)?
            {
                self.mark_damage(from, self.segments[index].base_offset)?;
            }
        }
        Ok(())
    }

    /// Checks the signs that a start saw in a log with gaps: unsynced records are cut off only in a log
    /// without gaps.
    pub(super) fn check_suspects_of_compacted(&mut self) -> Result<(), LogError> {
        self.judge_suspects(Self::check_end_whatever_was_synced, self.config.cleanup_policy.compact)
    }

    /// The segments before the first with only an index. The deletion of old records leaves no such index,
    /// since it renames the log before the index, and the log is still there under its other name if the
    /// process ends between the two renames. Compaction leaves none either: of merged segments, the first
    /// keeps its base offset, and `resolve_swaps` comes before. The index stays, so that the next start sees
    /// it too, until the records are deleted or fetched again. The recovery point does not matter: no crash
    /// leaves such an index, because a log is created before its index, and other segments follow it.
    ///
    /// A mark is the same sign for records that a leader lacked when this log was restarted at the leader's
    /// start (see `lost_mark`).
    fn note_lost_beginning(
        &mut self,
        lost: &[Offset],
        marks: Vec<Offset>,
        deleted_to: Offset,
    ) -> Result<(), LogError> {
        let first = self.segments[0].base_offset;
        let indexes: Vec<Offset> = lost.iter().copied().filter(|base| *base < first).collect();
        let marks = self.without_left_over(marks, &indexes)?;
        let Some(&oldest) = indexes.iter().chain(&marks).min() else { return Ok(()) };
        let from = oldest.max(deleted_to);
        self.health.lost_beginning = Some(LostBeginning { from, indexes, marks, ..LostBeginning::default() });
        if from >= first {
            return Ok(self.forget_lost_beginning()?);
        }
        if self.lacks_what_a_leader_lacked() {
            self.publish();
            return Ok(());
        }
        let reason = BatchFault::Missing { from: from.0, to: first.0 };
        self.log_damage(from, &CorruptBatch { position: 0, reason });
        self.publish();
        Ok(())
    }

    /// The valid marks: those with the first segment, or with a segment of which only an index is left. Other
    /// marks are removed.
    fn without_left_over(&mut self, marks: Vec<Offset>, indexes: &[Offset]) -> io::Result<Vec<Offset>> {
        let first_segments = [&[self.segments[0].base_offset], indexes].concat();
        let mut left_over = Vec::new();
        let mut counting = Vec::new();
        for mark in marks {
            let counts = lost_mark::counts(&self.home, mark, &first_segments)?;
            if counts { &mut counting } else { &mut left_over }.push(mark);
        }
        if !left_over.is_empty() {
            self.remove_signs(&LostBeginning { marks: left_over, ..LostBeginning::default() }, None)?;
        }
        Ok(counting)
    }

    /// Forgets that records are missing before the first segment, once the signs are removed. Can be retried.
    pub(super) fn forget_lost_beginning(&mut self) -> io::Result<()> {
        if let Some(lost) = self.health.lost_beginning.take() {
            if let Err(error) = self.remove_signs(&lost, None) {
                self.health.lost_beginning = Some(lost);
                return Err(error);
            }
            self.publish();
        }
        Ok(())
    }

    /// Removes signs, durably: a sign restored by a power failure would report deleted records as lost.
    pub(super) fn remove_signs(&mut self, lost: &LostBeginning, kept_mark: Option<Offset>) -> io::Result<()> {
        // A truncation to the beginning may have created a segment of the same name.
        let is_there = |base: &Offset| self.segments.iter().any(|segment| segment.base_offset == *base);
        let mut alone = lost.indexes.iter().filter(|base| !is_there(base));
        let mut renamed = Vec::new();
        let outcome: io::Result<()> = alone.try_for_each(|base| {
            for path in Segment::paths(&self.home, *base) {
                renamed.extend(take_out(&self.home, &path)?);
            }
            Ok(())
        });
        self.doom(renamed);
        outcome?;
        let _allowed = disk::allow_waits("a beginning is lost once");
        let mut marks = lost.marks.iter().filter(|mark| Some(**mark) != kept_mark);
        marks.try_for_each(|mark| self.home.disk.remove(&self.home.file(*mark, LOST_SUFFIX)))?;
        self.home.disk.sync_dir(&self.home.dir)
    }

    /// Checks one of the segments found at the start (only the epochs of the newest one), and notes its
    /// damage. Returns true if there was one left to check. For a log without a lock.
    pub fn check_next_segment(&mut self) -> Result<bool, LogError> {
        match self.begin_segment_check()? {
            SegmentCheck::NoneLeft => return Ok(false),
            SegmentCheck::Done => {}
            SegmentCheck::Epochs(scan) => self.finish_segment_check(&scan, &scan.run()?)?,
        }
        Ok(true)
    }

    /// Checks one of the segments found at the start, without the scan for epochs, which takes no lock. Pass
    /// its result to [`PartitionLog::finish_segment_check`].
    pub fn begin_segment_check(&mut self) -> Result<SegmentCheck, LogError> {
        let unchecked = &self.health.unchecked;
        let index = self.segments.partition_point(|segment| segment.base_offset < unchecked.start);
        if self.segments.get(index).is_none_or(|segment| segment.base_offset >= unchecked.end) {
            return Ok(SegmentCheck::NoneLeft);
        }
        if index + 1 == self.segments.len() && !self.has_starts_of_epochs(index) {
            self.checked_to(index);
            return Ok(SegmentCheck::NoneLeft);
        }
        let was_open = self.segments[index].is_open();
        self.damage_at(index, Self::check_begin)?;
        self.damage_at(index, Self::check_end)?;
        let misfit = self.misfit(index)?;
        // A failure before this line is not a result: the segment is checked again.
        if misfit.is_none() {
            self.checked_to(index);
        }
        if !was_open {
            self.segments[index].release(&self.home)?;
        }
        Ok(misfit.map_or(SegmentCheck::Done, SegmentCheck::Epochs))
    }

    /// Notes that segments up to this one are checked.
    pub(super) fn checked_to(&mut self, index: usize) {
        let unchecked = &mut self.health.unchecked;
        let next = self.segments.get(index + 1).map_or(unchecked.end, |next| next.base_offset);
        unchecked.start = unchecked.start.max(next);
    }

    /// Runs a check of a segment. Damage is noted, without an error: returns its first offset.
    pub(super) fn damage_at(
        &mut self,
        index: usize,
        check: fn(&mut PartitionLog, usize) -> Result<(), LogError>,
    ) -> Result<Option<Offset>, LogError> {
        match check(self, index) {
            Err(LogError::Corrupt { segment, fault }) => {
                self.note_damage(segment, &fault);
                let from = first_of(segment, &fault);
                Ok(self.health.is_unreadable(from).then_some(from))
            }
            other => other.map(|()| None),
        }
    }

    /// Checks that the first batch of a closed segment belongs to it. After a gap, its offset could be
    /// damaged: then the next batch goes back.
    pub(super) fn check_begin(&mut self, index: usize) -> Result<(), LogError> {
        let Some(next) = self.next_base_if_synced(index) else { return Ok(()) };
        let segment = &mut self.segments[index];
        let base = segment.base_offset;
        let first = segment.batch_at(&self.home, 0).map_err(LogError::in_segment(base))?;
        let Some(first) = first else { return Ok(()) };
        let mut bound = next;
        if first.header.base_offset > base {
            let second = segment.batch_at(&self.home, first.end()).map_err(LogError::in_segment(base))?;
            bound = second.map_or(next, |second| second.header.base_offset.min(next));
        }
        if first.header.base_offset >= base && first.header.next_offset() <= bound {
            return Ok(());
        }
        let reason = BatchFault::out_of_order(&first.header, base);
        Err(LogError::Corrupt { segment: base, fault: CorruptBatch { position: 0, reason } })
    }

    /// Checks that the last batch of a closed segment ends at the next segment's start, in a log without
    /// gaps, and never after it.
    pub(super) fn check_end(&mut self, index: usize) -> Result<(), LogError> {
        self.check_overlap(index)?;
        match self.find_missing(index)? {
            Some(missing) if !self.is_gap(index, missing.start)? => Err(self.missing(index, &missing)),
            _ => Ok(()),
        }
    }

    /// Checks that no batch of a closed segment belongs to the next: the valid one of the two is unknown. The
    /// next segment is no longer read, because its transaction index may lack transactions aborted in this
    /// segment.
    pub(super) fn check_overlap(&mut self, index: usize) -> Result<(), LogError> {
        let Some(next_base) = self.segments.get(index + 1).map(|next| next.base_offset) else {
            return Ok(());
        };
        let segment = &mut self.segments[index];
        let base = segment.base_offset;
        let found = batch_of_next(&self.home, segment, next_base).map_err(LogError::in_segment(base))?;
        let Some(batch) = found else { return Ok(()) };
        self.health.overlapped.insert(next_base);
        let fault = CorruptBatch::reaching_into(&batch, next_base);
        Err(LogError::Corrupt { segment: base, fault })
    }

    /// Checks like [`PartitionLog::check_end`] a segment that is empty, or followed by an index without a
    /// log. No gap looks like that.
    fn check_end_before_lost(&mut self, index: usize) -> Result<(), LogError> {
        self.find_missing(index)?.map_or(Ok(()), |missing| Err(self.missing(index, &missing)))
    }

    /// Checks a segment that had batches, synced or not: a power failure may have emptied it, and a log with
    /// gaps is not cut there. Applies to compacted logs, too: compaction leaves neither an index with entries
    /// beside an empty log, nor an index without a log, unless its log exists under another name, without a
    /// second index (see `found`).
    pub(super) fn check_end_whatever_was_synced(&mut self, index: usize) -> Result<(), LogError> {
        match self.end_before_next(index)? {
            Some(missing) => Err(self.missing(index, &missing)),
            None => Ok(()),
        }
    }

    /// The offsets without a batch between a segment and the next, unless the log start is after them.
    pub(super) fn end_before_next(&mut self, index: usize) -> Result<Option<Range<Offset>>, LogError> {
        let Some(next) = self.segments.get(index + 1).map(|next| next.base_offset) else { return Ok(None) };
        if next <= self.log_start {
            return Ok(None);
        }
        let segment = &mut self.segments[index];
        let base = segment.base_offset;
        let end = segment.read_next_offset(&self.home).map_err(LogError::in_segment(base))?.max(base);
        Ok((end < next).then_some(end..next))
    }

    /// The offsets without a batch between a closed segment and the next that should have batches: the first
    /// of these offsets was synced, or they are known to be missing.
    fn find_missing(&mut self, index: usize) -> Result<Option<Range<Offset>>, LogError> {
        let synced_to = self.flushing.recovery_point;
        let Some(next) = self.segments.get(index + 1).map(|next| next.base_offset) else { return Ok(None) };
        let base = self.segments[index].base_offset;
        let is_known = self.health.suspects.has_damage_in(base..next);
        if (base >= synced_to && !is_known) || self.may_have_gaps() || next <= self.log_start {
            return Ok(None);
        }
        let segment = &mut self.segments[index];
        let has_last = segment.locate(&self.home, next - 1).map_err(LogError::in_segment(base))?.is_some();
        if has_last {
            return Ok(None);
        }
        let end = segment.read_next_offset(&self.home).map_err(LogError::in_segment(base))?;
        let is_excused = self.health.was_deleted(end..next) && !self.health.suspects.is_suspected(end..next);
        let is_missing = is_known || (end < synced_to && !is_excused);
        Ok(is_missing.then_some(end..next))
    }

    fn missing(&self, index: usize, missing: &Range<Offset>) -> LogError {
        let segment = &self.segments[index];
        let reason = BatchFault::Missing { from: missing.start.0, to: missing.end.0 };
        let fault = CorruptBatch { position: segment.size_bytes(), reason };
        LogError::Corrupt { segment: segment.base_offset, fault }
    }

    /// True if a segment that ends at `end`, or the segment after the apparently missing offsets, shows that
    /// the log has gaps. Noted damage stays damage.
    fn is_gap(&mut self, index: usize, end: Offset) -> Result<bool, LogError> {
        if self.segments[index].is_empty() || self.health.is_unreadable(end) {
            return Ok(false);
        }
        if !self.health.gaps.contains(&end) {
            if !self.has_gaps_within(index)? && !self.has_gaps_within(index + 1)? {
                return Ok(false);
            }
            self.health.gaps.insert(end);
        }
        Ok(true)
    }

    fn has_gaps_within(&mut self, index: usize) -> Result<bool, LogError> {
        let next_base = self.segments.get(index + 1).map_or(self.log_end, |next| next.base_offset);
        let segment = &mut self.segments[index];
        let was_open = segment.is_open();
        let file = segment.file(&self.home)?;
        let found = has_gaps(&file, segment.size_bytes(), segment.base_offset..next_base)?;
        if !was_open {
            segment.release(&self.home)?;
        }
        Ok(found)
    }

    /// The base offset of the next segment, if all below that offset was synced.
    fn next_base_if_synced(&self, index: usize) -> Option<Offset> {
        let next = self.segments.get(index + 1)?.base_offset;
        (next <= self.flushing.recovery_point).then_some(next)
    }
}

/// True if offsets without a batch exist between or before the batches of a segment with these offsets, or
/// batches from which compaction has removed records. A jumping offset counts if the next batch does not go
/// back.
fn has_gaps(file: &LogFile, size_bytes: u64, offsets: Range<Offset>) -> io::Result<bool> {
    let mut scan = HeaderScan::new(file, 0, size_bytes);
    let (mut expected, mut jumped) = (offsets.start, false);
    loop {
        let header = match scan.next() {
            Ok(Some(batch)) => batch.header,
            Ok(None) => return Ok(jumped && expected <= offsets.end),
            Err(ScanError::Corrupt(_)) => return Ok(false),
            Err(ScanError::Io(error)) => return Err(error),
        };
        if header.base_offset < expected {
            return Ok(false);
        }
        if jumped || header.record_count <= header.last_offset_delta {
            return Ok(true);
        }
        jumped = header.base_offset > expected;
        expected = header.next_offset();
    }
}
