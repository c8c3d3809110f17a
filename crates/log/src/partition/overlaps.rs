//! Segments with offsets that the previous segment has, too.
//!
//! A roll begins the next segment at the end of the last batch. A file can contain more for two reasons: a
//! power failure has undone a truncation, or another program has put another segment into the log. After a
//! truncation the next segment has a later leader epoch, listed in `leader-epoch-checkpoint`: only such bytes
//! are cut. All other bytes may be acknowledged records and stay. If they reach the recovery point, the
//! contradicting segment is set aside. If that segment has more offsets, not of an earlier epoch, or if the
//! epoch of the bytes is not in the checkpoint, records count as missing.
//!
//! Owns: finding such segments, and the choice between two of them at the end of a log. Refuses: the choice
//! between two segments before others: both are damaged then (see `continuity`).

use std::io;

use thalweg_record::{BatchHeader, Offset};

use super::PartitionLog;
use super::error::LogError;
use super::examine::Examination;
use super::loading::{Contradiction, LoadingPartition, OpenOptions};
use super::recover::before_cut;
use super::replay::EpochReplay;
use crate::scan::{BatchPlace, CorruptBatch, ScanError, is_sound};
use crate::segment::{Home, Segment};
use crate::set_aside::SetAside;
use crate::topic_partition::TopicPartition;

/// The batch of a segment that has offsets of the next segment, or lies after its own last offset.
pub(super) fn batch_of_next(
    home: &Home,
    segment: &mut Segment,
    next_base: Offset,
) -> Result<Option<BatchPlace>, ScanError> {
    let Some(last) = segment.locate(home, next_base - 1)? else { return Ok(None) };
    let found = segment.batch_at(home, last.position)?;
    let Some(batch) = found.filter(|batch| batch.header.next_offset() <= next_base) else { return Ok(found) };
    // Bytes that are not a batch belong to no segment.
    match segment.batch_at(home, batch.end()) {
        Err(ScanError::Corrupt(_)) => Ok(None),
        followed => followed,
    }
}

/// True if the last index entry of a segment has an offset of the next; that entry is at most an index
/// interval before the end.
fn is_indexed_beyond(home: &Home, segment: &mut Segment, next_base: Offset) -> io::Result<bool> {
    Ok(segment.last_indexed(home)?.is_some_and(|last| last >= next_base))
}

/// The last batch of a segment.
fn last_of(home: &Home, segment: &mut Segment) -> Result<Option<BatchHeader>, ScanError> {
    let end = segment.read_next_offset(home)?;
    segment.batch_with(home, Offset(end.0 - 1))
}

impl LoadingPartition {
    /// The first segment to recover: the one with the recovery point. Segments inserted between the batches
    /// of an earlier segment that reaches the recovery point are set aside, and leftovers of a truncation
    /// before it are cut.
    pub(super) fn first_to_recover(
        &mut self,
        name: &TopicPartition,
        options: &OpenOptions,
    ) -> Result<usize, LogError> {
        loop {
            let recovery_point = options.recovery_point;
            let first = self.segments.partition_point(|segment| segment.base_offset <= recovery_point);
            let first = first.saturating_sub(1);
            let first_base = self.segments[first].base_offset;
            self.epoch_replay = EpochReplay::new(self.epochs.clone(), first_base);
            let Some(before) = first.checked_sub(1) else { return Ok(first) };
            let mut contradicted = None;
            for index in 0..=before {
                let next_base = self.segments[index + 1].base_offset;
                if contradicted.is_none()
                    && (index == before
                        || is_indexed_beyond(&self.home, &mut self.segments[index], next_base)?)
                {
                    let batch = self.contradiction(index, name, options)?;
                    contradicted = batch.map(|batch| (index, batch));
                }
            }
            let Some((index, batch)) = contradicted else {
                self.cut_leftovers(before, name, options)?;
                return Ok(first);
            };
            self.set_next_aside(index, name, options, &batch)?;
        }
    }

    /// The batch of a segment that contradicts the next one, if the segment reaches the recovery point and
    /// the previous segment does not contradict it.
    fn contradiction(
        &mut self,
        index: usize,
        name: &TopicPartition,
        options: &OpenOptions,
    ) -> Result<Option<BatchPlace>, LogError> {
        if self.batch_of_next(index)?.is_none() || (index > 0 && self.batch_of_next(index - 1)?.is_some()) {
            return Ok(None);
        }
        let next_base = self.segments[index + 1].base_offset;
        let Some(examined) = self.examine_end(index, name, options, next_base)? else { return Ok(None) };
        let found = examined.overlap.is_some().then_some(examined.end);
        let Some(position) = found else { return Ok(None) };
        match self.batch_behind(index, position)? {
            Some(batch) if self.contradicts_next(index, &batch)? && self.begins_at_base(index)? => {
                let reaches = self.segments[index].locate(&self.home, options.recovery_point - 1);
                match reaches {
                    Ok(reaches) => Ok(reaches.map(|_| batch)),
                    Err(ScanError::Io(error)) => Err(error.into()),
                    Err(ScanError::Corrupt(_)) => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    /// Finds a batch like [`batch_of_next`]. Damage below the recovery point is left to readers.
    fn batch_of_next(&mut self, index: usize) -> Result<Option<BatchPlace>, LogError> {
        let next_base = self.segments[index + 1].base_offset;
        match batch_of_next(&self.home, &mut self.segments[index], next_base) {
            Ok(batch) => Ok(batch),
            Err(ScanError::Io(error)) => Err(error.into()),
            Err(ScanError::Corrupt(_)) => Ok(None),
        }
    }

    /// True if a batch at the end of a segment, with offsets of the next, may be preferred to that segment:
    /// the batch is whole, and not explained by a truncation.
    pub(super) fn contradicts_next(&mut self, index: usize, batch: &BatchPlace) -> Result<bool, LogError> {
        let next = &self.segments[index + 1];
        if next.is_empty() || batch.header.next_offset() <= next.base_offset {
            return Ok(false);
        }
        if self.first_of_next(index).is_some_and(|next| self.was_truncated(&batch.header, &next)) {
            return Ok(false);
        }
        let file = self.segments[index].file(&self.home)?;
        Ok(is_sound(&file, batch.position, batch.header.size_bytes())?)
    }

    /// True if the first batch of a segment matches its name. Another program may have replaced a segment
    /// whose first batch does not match: such a segment is no reason to set aside another.
    pub(super) fn begins_at_base(&mut self, index: usize) -> io::Result<bool> {
        let first = self.batch_behind(index, 0)?;
        Ok(first.is_some_and(|first| first.header.base_offset == self.segments[index].base_offset))
    }

    /// True if a batch has an earlier leader epoch than the first batch of the next segment, and the
    /// checkpoint has that later epoch there.
    fn was_truncated(&self, batch: &BatchHeader, next: &BatchHeader) -> bool {
        let known = self.epoch_replay.checkpoint().at(next.base_offset);
        batch.leader_epoch < next.leader_epoch && known == Some(next.leader_epoch)
    }

    /// Sets the next segment aside, because a batch of this one contradicts it. A log with a single writer is
    /// not changed.
    pub(super) fn set_next_aside(
        &mut self,
        index: usize,
        name: &TopicPartition,
        options: &OpenOptions,
        batch: &BatchPlace,
    ) -> Result<(), LogError> {
        let (base, next) = (self.segments[index].base_offset, &mut self.segments[index + 1]);
        let (next_base, size_bytes) = (next.base_offset, next.size_bytes());
        let fault = CorruptBatch::reaching_into(batch, next_base);
        if options.synced_to.is_some() {
            return Err(LogError::Damaged { segment: base, offset: next_base, fault });
        }
        let known = self.epoch_replay.checkpoint().at(batch.header.base_offset);
        let is_confirmed = known == Some(batch.header.leader_epoch);
        let end = match last_of(&self.home, next) {
            // After a batch of a later epoch there are no records of an earlier one.
            Ok(Some(last)) if is_confirmed && last.leader_epoch < batch.header.leader_epoch => next_base,
            Ok(last) => last.map_or(next_base, |last| last.next_offset()),
            Err(ScanError::Io(error)) => return Err(error.into()),
            Err(ScanError::Corrupt(_)) => next_base,
        };
        let aside = SetAside::create(&self.home, name)?;
        tracing::error!(
            partition = %name, segment = next_base.0, size_bytes, before = base.0, %fault,
            kept_in = %aside.dir().display(),
            "Set aside a segment with offsets that the one before has, too"
        );
        aside.take_one(&mut self.segments, index + 1).inspect_err(|_| {
            aside.discard_if_empty();
        })?;
        let before = self.contradicted.unwrap_or_default();
        self.contradicted =
            Some(Contradiction { end: before.end.max(end), in_doubt: before.in_doubt || !is_confirmed });
        Ok(())
    }

    /// Truncates bytes after the last batch of a synced segment, before the next segment: a power failure has
    /// restored truncated bytes.
    fn cut_leftovers(
        &mut self,
        index: usize,
        name: &TopicPartition,
        options: &OpenOptions,
    ) -> Result<(), LogError> {
        let Some(limit) = self.next_begins_at(index) else { return Ok(()) };
        let base = self.segments[index].base_offset;
        let Some(examined) = self.examine_end(index, name, options, limit)? else { return Ok(()) };
        if examined.next_offset != limit || examined.fault.is_some() {
            // Damage below the recovery point is left to readers.
            return Ok(());
        }
        let end = examined.end;
        if end < self.segments[index].size_bytes() {
            if let Some(batch) = self.batch_behind(index, end)?
                && self.contradicts_next(index, &batch)?
            {
                // The valid one of the two segments is unknown.
                return Ok(());
            }
            self.keep_before_cut(index, name, end, limit)?;
            let segment = &mut self.segments[index];
            segment.cut(&self.home, end)?;
            segment.truncate_transactions(&self.home, limit)?;
            segment.rebuild_indexes(&self.home).map_err(LogError::in_segment(base))?;
        }
        Ok(())
    }

    /// Compares the last batches of a segment below `limit` with any batches after them.
    fn examine_end(
        &mut self,
        index: usize,
        name: &TopicPartition,
        options: &OpenOptions,
        limit: Offset,
    ) -> Result<Option<Examination>, LogError> {
        let segment = &mut self.segments[index];
        let base = segment.base_offset;
        let last = match segment.locate(&self.home, limit - 1) {
            Ok(Some(last)) => {
                segment.batch_at(&self.home, last.position).map_err(LogError::in_segment(base))?
            }
            Err(ScanError::Io(error)) => return Err(error.into()),
            // Damage below the recovery point is left to readers.
            Ok(None) | Err(ScanError::Corrupt(_)) => None,
        };
        let Some(last) = last else { return Ok(None) };
        let end = if last.header.next_offset() > limit { last.position } else { last.end() };
        if end == segment.size_bytes() {
            return Ok(None);
        }
        let near = segment.position_not_behind(&self.home, limit - 1).map_err(LogError::in_segment(base))?;
        let first = segment.batch_at(&self.home, near).map_err(LogError::in_segment(base))?;
        let expected = first.filter(|_| near > 0).map_or(base, |first| first.header.base_offset);
        self.examine_from(index, name, options, near, expected).map(Some)
    }

    /// The batch at a position after the last batch that belongs to a segment.
    pub(super) fn batch_behind(&mut self, index: usize, position: u64) -> io::Result<Option<BatchPlace>> {
        match self.segments[index].batch_at(&self.home, position) {
            Ok(batch) => Ok(batch),
            Err(ScanError::Corrupt(_)) => Ok(None),
            Err(ScanError::Io(error)) => Err(error),
        }
    }

    /// Logs that bytes after the last batch of a segment will be cut, from `end` on, and keeps a copy of
    /// them, unless they were truncated before: another program may have damaged records there. The log ends
    /// at `limit`.
    pub(super) fn keep_before_cut(
        &mut self,
        index: usize,
        name: &TopicPartition,
        end: u64,
        limit: Offset,
    ) -> Result<(), LogError> {
        let next = self.first_of_next(index);
        let next_base = self.segments.get(index + 1).map_or(limit, |next| next.base_offset);
        let segment = &mut self.segments[index];
        let (base, cut_bytes) = (segment.base_offset, segment.size_bytes() - end);
        let fault = match segment.batch_at(&self.home, end) {
            Ok(None) => return Ok(()),
            Ok(Some(batch)) if next.is_some_and(|next| self.was_truncated(&batch.header, &next)) => {
                tracing::warn!(
                    partition = %name, segment = base.0, cut_bytes,
                    "Truncated bytes behind the last batch of a segment"
                );
                return Ok(());
            }
            Ok(Some(batch)) => CorruptBatch::reaching_into(&batch, next_base),
            Err(ScanError::Corrupt(fault)) => fault,
            Err(ScanError::Io(error)) => return Err(error.into()),
        };
        let segment = &mut self.segments[index];
        let file = segment.file(&self.home)?;
        before_cut(&self.home, name, segment, &file, &fault, end, limit)
    }
}

impl PartitionLog {
    /// Checks the segments before one without an index, which no process leaves. If no segment has an index,
    /// the whole log was copied here in that state. Other segments are checked when the next segment is first
    /// read, and in the background: a start does not read closed segments.
    pub(super) fn check_segments_before_added(&mut self) -> Result<(), LogError> {
        for index in 1..self.segments.len() {
            let is_added = self.segments[index].lacks_index() && !self.segments[index - 1].lacks_index();
            if is_added {
                self.damage_at(index - 1, Self::check_overlap)?;
                self.segments[index - 1].release(&self.home)?;
            }
        }
        Ok(())
    }

    /// Checks the segment before one that is read for the first time since the start.
    pub(super) fn check_before_first_read(&mut self, index: usize) -> Result<(), LogError> {
        let Some(before) = index.checked_sub(1) else { return Ok(()) };
        let segment = &self.segments[before];
        if !self.health.unchecked.contains(&segment.base_offset) {
            return Ok(());
        }
        let was_open = segment.is_open();
        let checked = match self.damage_at(before, Self::check_begin)? {
            // The whole segment belongs to another log or segment, which does not affect this one.
            Some(_) => Ok(()),
            None => self.check_overlap(before),
        };
        if !was_open {
            self.segments[before].release(&self.home)?;
        }
        checked
    }
}
