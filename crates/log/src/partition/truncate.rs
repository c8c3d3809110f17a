//! Truncates the end of the log: for a follower whose log has diverged from the leader's.
//!
//! Owns: keeping segments, epochs, producers and offsets consistent. Refuses: choosing the offset.

use std::io;

use thalweg_record::Offset;

use super::error::LogError;
use super::examine::{Oddities, Region, examine};
use super::in_flight::recall_in_flight;
use super::replay::replay_segments;
use super::{PartitionLog, ReadHints};
use crate::disk::{self, Durability};
use crate::producers::{Producers, snapshot};
use crate::scan::ScanError;
use crate::segment::{self, LOG_SUFFIX, SNAPSHOT_SUFFIX};
use crate::set_aside::SetAside;

/// The reason why syncs happen under the partition's lock here.
pub(super) const CUTTING: &str =
    "a log that is cut is one that nobody writes to, and must not be written to before it is synced";

/// Why a log was not truncated.
pub(super) struct NotCut {
    error: LogError,
    /// True if the files match the state in memory, so that the truncation can be retried.
    is_whole: bool,
}

impl NotCut {
    fn in_the_middle(error: LogError) -> NotCut {
        NotCut { error, is_whole: false }
    }

    /// True if only room or descriptors were missing, and the truncation can be retried.
    fn is_shortage(&self) -> bool {
        self.is_whole && matches!(&self.error, LogError::Io(error) if disk::is_shortage(error))
    }
}

impl From<LogError> for NotCut {
    fn from(error: LogError) -> NotCut {
        NotCut { error, is_whole: true }
    }
}

impl PartitionLog {
    /// Drops all records at and above `offset`. Returns true if undeleted records were dropped. Epochs that
    /// start at or above the log end are always dropped. The batch that contains `offset` is dropped whole,
    /// and the log ends with the last remaining batch: an end at `offset` would leave a gap.
    pub fn truncate_to(&mut self, offset: Offset) -> Result<bool, LogError> {
        self.truncate(offset, true)
    }

    /// Truncates like [`PartitionLog::truncate_to`], for records that the leader has sent in its present
    /// epoch: none is set aside.
    pub fn truncate_sent(&mut self, offset: Offset) -> Result<bool, LogError> {
        self.truncate(offset, false)
    }

    /// Truncates the log. With `keeps`, records below the high watermark are set aside.
    fn truncate(&mut self, offset: Offset, keeps: bool) -> Result<bool, LogError> {
        let _allowed = disk::allow_waits(CUTTING);
        if offset >= self.log_end {
            self.epochs.truncate_from_end(self.log_end);
            return Ok(false);
        }
        match self.try_truncate_to(offset, keeps) {
            Ok(had_records) => Ok(had_records),
            Err(not_cut) => Err(self.after_failed_cut(offset, not_cut)),
        }
    }

    /// Closes the log after a failed truncation to `offset`, unless that can be retried.
    pub(super) fn after_failed_cut(&mut self, offset: Offset, not_cut: NotCut) -> LogError {
        let reason = format!("the log cannot be truncated to offset {offset}: {}", not_cut.error);
        match &not_cut.error {
            LogError::Io(io) if not_cut.is_shortage() => {
                if disk::is_disk_full(io)
                    && let Some(state) = &self.state
                {
                    state.note_full();
                }
            }
            // A restart determines the end of the truncated log again.
            LogError::Corrupt { .. } => self.refuse_appends(reason),
            _ => self.set_poison(reason),
        }
        not_cut.error
    }

    fn try_truncate_to(&mut self, offset: Offset, keeps: bool) -> Result<bool, NotCut> {
        self.check_descriptors(offset)?;
        // A log may begin, or end, within a batch that is missing, or whose records are all deleted.
        let has_records = self.has_batches_from(offset.max(self.log_start))?;
        // Records below the high watermark were acknowledged, and this may be their last copy.
        if keeps && has_records && offset < self.high_watermark {
            self.set_aside_from(offset)?;
        }
        self.cut_from(offset).map_err(NotCut::in_the_middle)?;
        Ok(has_records)
    }

    /// True if there is a batch with this offset or a later one, as far as readable.
    fn has_batches_from(&mut self, offset: Offset) -> Result<bool, LogError> {
        let behind = self.segments.partition_point(|segment| segment.base_offset <= offset);
        if self.segments[behind..].iter().any(|segment| !segment.is_empty()) {
            return Ok(true);
        }
        let Some(segment) = self.segments[..behind].last_mut() else { return Ok(false) };
        match segment.locate(&self.home, offset) {
            Ok(found) => Ok(found.is_some()),
            Err(ScanError::Corrupt(_)) => Ok(true),
            Err(ScanError::Io(error)) => Err(error.into()),
        }
    }

    /// Opens the files that a truncation needs: a lack of descriptors must show before the first cut.
    fn check_descriptors(&mut self, offset: Offset) -> Result<(), LogError> {
        let Some(index) = self.floor_index(offset) else { return Ok(()) };
        if let Err(ScanError::Io(error)) = self.segments[index].locate(&self.home, offset) {
            return Err(error.into());
        }
        if let Some(&snapshot) = self.snapshots.iter().rfind(|snapshot| **snapshot <= offset) {
            self.home.disk.read_if_exists(&self.home.file(snapshot, SNAPSHOT_SUFFIX))?;
        }
        Ok(())
    }

    /// Sets aside the records to be cut. Without room, first frees dispensable space.
    pub(super) fn set_aside_from(&mut self, offset: Offset) -> Result<(), NotCut> {
        match self.try_to_set_aside_from(offset) {
            Err(NotCut { error: LogError::Io(error), is_whole: true }) if disk::is_disk_full(&error) => {
                self.free_room();
                self.try_to_set_aside_from(offset)
            }
            other => other,
        }
    }

    /// Sets records aside like [`PartitionLog::set_aside_from`]: first whole segments, last first, which
    /// shortens the log, then a copy of the end of the segment with `offset`.
    fn try_to_set_aside_from(&mut self, offset: Offset) -> Result<(), NotCut> {
        let (high_watermark, log_end) = (self.high_watermark, self.log_end);
        let aside = SetAside::create(&self.home, &self.name).map_err(LogError::Io)?;
        let filled = self.fill(&aside, offset);
        if aside.discard_if_empty() {
            return filled;
        }
        tracing::error!(
            partition = %self.name, offset = offset.0, high_watermark = high_watermark.0, log_end = log_end.0,
            kept_in = %aside.dir().display(), "Truncated a log below its high watermark; set aside the truncated records"
        );
        filled
    }

    fn fill(&mut self, aside: &SetAside, offset: Offset) -> Result<(), NotCut> {
        let kept = self.segments.partition_point(|segment| segment.base_offset <= offset);
        self.move_aside(aside, kept.max(1))?;
        if let Some(index) = self.floor_index(offset) {
            return Ok(self.copy_end(aside, index, offset).map_err(LogError::Io)?);
        }
        let log = self.home.file(self.segments[0].base_offset, LOG_SUFFIX);
        aside.take_files(&mut self.segments[0]).map_err(|error| {
            let is_whole = self.home.disk.exists(&log);
            NotCut { error: error.into(), is_whole }
        })
    }

    fn copy_end(&mut self, aside: &SetAside, index: usize, offset: Offset) -> io::Result<()> {
        let segment = &mut self.segments[index];
        let position = match segment.locate(&self.home, offset) {
            Ok(found) => found.map_or(segment.size_bytes(), |found| found.position),
            Err(ScanError::Corrupt(fault)) => fault.position,
            Err(ScanError::Io(error)) => return Err(error),
        };
        aside.copy_end(segment, position, offset)
    }

    /// Moves the segments from `index` on to the directory aside, last first. The log then ends before the
    /// moved ones, even if not all could be moved. Returns their number.
    fn move_aside(&mut self, aside: &SetAside, index: usize) -> Result<usize, NotCut> {
        let bases = self.segment_offsets();
        let outcome = aside.take_from(&mut self.segments, index);
        let left = self.segments.len();
        if left < bases.len() {
            self.truncate_segments(bases[left], left).map_err(NotCut::in_the_middle)?;
        }
        outcome.map_err(LogError::Io)?;
        Ok(bases.len() - left)
    }

    fn cut_from(&mut self, offset: Offset) -> Result<(), LogError> {
        match self.segments.partition_point(|segment| segment.base_offset <= offset) {
            0 => self.restart_keeping_loss(offset),
            kept => self.truncate_segments(offset, kept),
        }
    }

    fn truncate_segments(&mut self, offset: Offset, kept: usize) -> Result<(), LogError> {
        let renamed = segment::drop_from(&mut self.segments, kept, &self.home)?;
        self.doom(renamed);
        let end = self.truncate_active(offset)?;
        let end = self.end_without_gap(end)?;
        if end < self.log_start && self.log_start <= offset {
            // Deleted records must not reappear.
            return self.restart_keeping_loss(self.log_start);
        }
        self.log_end = end;
        // The index may contain entries of a missing later segment.
        let active = self.segments.last_mut().expect("the segment with the offset was kept");
        active.truncate_transactions(&self.home, end)?;
        self.log_start = self.log_start.min(self.log_end);
        self.epochs.truncate_from_end(self.log_end);
        self.reload_producers()?;
        self.after_truncation();
        Ok(())
    }

    /// Drops the segments from the one that begins at `from` on, all of whose records the leader has: they
    /// are deleted like old segments. Setting them aside could fill the disk.
    pub(super) fn drop_segments_from(&mut self, from: Offset) -> Result<(), LogError> {
        let _allowed = disk::allow_waits(CUTTING);
        // If the beginning is lost, the log start is only the start of the remaining records.
        let begins_before = from < self.segments[0].base_offset;
        let to = if begins_before { from } else { from.max(self.log_start) };
        self.check_descriptors(to)?;
        let cut = match self.segments.partition_point(|segment| segment.base_offset < from) {
            0 => self.restart_keeping_loss(to),
            kept => self.truncate_segments(to, kept),
        };
        cut.inspect_err(|error| {
            self.set_poison(format!("the log cannot be truncated to offset {to}: {error}"))
        })
    }

    /// Truncates the newest segment; returns the end of its batches. If the segment is damaged before
    /// `offset`, it is truncated at the damage.
    fn truncate_active(&mut self, offset: Offset) -> Result<Offset, LogError> {
        let active = self.segments.last_mut().expect("the segment with the offset was kept");
        let base = active.base_offset;
        let cut = active.truncate(&self.home, offset).and_then(|_| active.read_next_offset(&self.home));
        let fault = match cut {
            Ok(end) => return Ok(end.max(base)),
            Err(ScanError::Io(error)) => return Err(error.into()),
            Err(ScanError::Corrupt(fault)) => fault,
        };
        let file = active.file(&self.home)?;
        let size_bytes = active.size_bytes();
        let examined = examine(Region {
            name: &self.name,
            segment: base,
            file: &file,
            from: 0,
            to: size_bytes,
            size_bytes,
            expected: base,
            next_base: None,
            next_first: None,
            last_before: None,
            knows_neighbours: false,
            epochs: &self.epochs,
            has_gaps: self.config.cleanup_policy.compact || self.cleaning.cleaned_to > Offset::ZERO,
            synced_to: self.log_end,
        })?;
        let (position, end) =
            if examined.next_offset > offset { (0, base) } else { (examined.end, examined.next_offset) };
        let aside = SetAside::keep_end(&self.home, &self.name, active, position, end)?;
        tracing::error!(
            partition = %self.name, segment = base.0, %fault, offset = offset.0, log_end = end.0,
            kept_in = %aside.dir().display(),
            "Log is damaged below its truncation offset; truncated it at the damage and set aside the rest"
        );
        active.cut(&self.home, position)?;
        file.sync_data()?;
        active.truncate_transactions(&self.home, end)?;
        active.rebuild_indexes(&self.home).map_err(LogError::in_segment(base))?;
        active.read_next_offset(&self.home).map_err(LogError::in_segment(base))
    }

    /// The end of the last batch, if the newest segment ends at `end` and may be empty: in a log without
    /// gaps, segments that start after the end of the previous one are removed.
    fn end_without_gap(&mut self, end: Offset) -> Result<Offset, LogError> {
        let mut end = end;
        while !self.may_have_gaps()
            && let [.., before, newest] = &mut self.segments[..]
            && newest.is_empty()
        {
            let base = before.base_offset;
            let before_end = before.read_next_offset(&self.home).map_err(LogError::in_segment(base))?;
            if before_end >= newest.base_offset {
                break;
            }
            let index = self.segments.len() - 1;
            let renamed = segment::drop_from(&mut self.segments, index, &self.home)?;
            self.doom(renamed);
            end = before_end.max(base);
        }
        Ok(end)
    }

    /// True if offsets without a batch are normal: compaction leaves gaps, and so does replication from a
    /// compacted log.
    pub(super) fn may_have_gaps(&self) -> bool {
        self.config.cleanup_policy.compact
            || self.cleaning.cleaned_to > Offset::ZERO
            || self.health.oddities.gaps > 0
    }

    /// The offset from which the log may differ from its leader's: recovery found an unexplained gap there.
    pub fn doubtful_from(&self) -> Option<Offset> {
        let Oddities { first_gap, doubt, .. } = &self.health.oddities;
        let explained = self.config.cleanup_policy.compact || self.cleaning.cleaned_to > Offset::ZERO;
        let gap = first_gap.filter(|_| !explained).or(*doubt)?;
        Some(gap.expected)
    }

    /// Truncates the log if batches are missing between two segments and the first segment is not known to be
    /// synced: a power failure may remove whole batches from the end of either. A formerly compacted part has
    /// other gaps. Returns the new end if it is lower.
    ///
    /// A compacted log is not truncated: emptied or removed segments are damage there. The policy of the
    /// topic must be known.
    ///
    /// Without room to set aside the records after the gap, or without descriptors, the log accepts no
    /// records until another call succeeds: a log with a gap must neither be followed nor lead.
    pub fn end_at_gap(&mut self) -> Result<Option<Offset>, LogError> {
        let waited = std::mem::take(&mut self.health.waits_at_gap);
        let closed_before = self.health.poison.take_if(|_| waited);
        if self.config.cleanup_policy.compact {
            self.check_suspects_of_compacted()?;
            return Ok(None);
        }
        let end_before = self.log_end;
        let mut ended = self.try_to_end_at_gap();
        if ended.as_ref().is_err_and(NotCut::is_shortage) {
            self.free_room();
            ended = self.try_to_end_at_gap();
        }
        if let Err(not_cut) = ended {
            let reason = format!("the log cannot be ended at a gap: {}", not_cut.error);
            match &not_cut.error {
                _ if not_cut.is_shortage() => {
                    self.health.waits_at_gap = true;
                    match closed_before {
                        // The reason was logged before.
                        Some(reason) => self.health.poison = Some(reason),
                        None => self.refuse_appends(reason),
                    }
                }
                LogError::Corrupt { .. } if not_cut.is_whole => {}
                _ => self.set_poison(reason),
            }
            return Err(not_cut.error);
        }
        self.judge_renamed()?;
        self.end_suspicion()?;
        self.check_empty_segments()?;
        Ok((self.log_end < end_before).then_some(self.log_end))
    }

    fn try_to_end_at_gap(&mut self) -> Result<(), NotCut> {
        self.end_before_doubt()?;
        let first = self.floor_index(self.flushing.recovery_point).unwrap_or(0);
        for index in first..self.segments.len() - 1 {
            let next = self.segments[index + 1].base_offset;
            let segment = &mut self.segments[index];
            let end =
                segment.read_next_offset(&self.home).map_err(LogError::in_segment(segment.base_offset))?;
            // Records below the log start, and in deleted segments, are missing on purpose.
            let is_deleted = next <= self.log_start || self.health.was_deleted(end..next);
            if end < next
                && !is_deleted
                && end >= self.flushing.recovery_point
                && next > self.cleaning.cleaned_to
            {
                tracing::warn!(
                    partition = %self.name, log_end = end.0, next = next.0,
                    "Log ends before its next segment begins: the bytes between were never written"
                );
                let aside = SetAside::create(&self.home, &self.name).map_err(LogError::Io)?;
                for lost in &self.segments[index + 1..] {
                    tracing::error!(
                        partition = %self.name, segment = lost.base_offset.0, size_bytes = lost.size_bytes(),
                        log_end = end.0, kept_in = %aside.dir().display(),
                        "Set aside a segment that does not follow the one before, whose end is lost"
                    );
                }
                let moved = self.move_aside(&aside, index + 1);
                if moved.is_err() {
                    aside.discard_if_empty();
                }
                return moved.map(drop);
            }
        }
        Ok(())
    }

    /// Logs a gap that recovery found in a log without compaction, and removes the last batch if it is alone
    /// after the gap: its offset, which no CRC covers, is damaged.
    fn end_before_doubt(&mut self) -> Result<(), LogError> {
        if self.cleaning.cleaned_to > Offset::ZERO {
            return Ok(());
        }
        if let Some(gap) = &self.health.oddities.first_gap {
            tracing::error!(
                partition = %self.name, segment = gap.segment.0, position = gap.position,
                expected = gap.expected.0, found = gap.found.0, gaps = self.health.oddities.gaps,
                "Offsets are missing from a log that is not compacted"
            );
        }
        let Some(gap) = self.health.oddities.doubt.filter(|_| self.health.oddities.gaps == 0) else {
            return Ok(());
        };
        let active = self.segments.last_mut().expect("a log always has a segment");
        let position = if active.base_offset == gap.segment { gap.position } else { active.size_bytes() };
        let aside = SetAside::keep_end(&self.home, &self.name, active, position, gap.found)?;
        tracing::error!(
            partition = %self.name, segment = gap.segment.0, position = gap.position,
            expected = gap.expected.0, found = gap.found.0, kept_in = %aside.dir().display(),
            "Set aside the last batch, which leaves a gap in a log that is not compacted"
        );
        self.truncate_to(gap.expected.max(self.log_start))?;
        Ok(())
    }

    /// Lowers the recovery point with the log end. No flush in progress may raise it again.
    pub(super) fn after_truncation(&mut self) {
        self.flushing.truncations += 1;
        self.rewrites += 1;
        self.health.on_truncation(self.segments[0].base_offset, self.log_end);
        self.forget_mended_suspects();
        self.rename_deleted_behind_end();
        self.hints = ReadHints::default();
        self.flushing.names.note_change();
        self.cut_is_unsynced();
        self.cleaning.cleaned_to = self.cleaning.cleaned_to.min(self.log_end);
        self.cleaning.unread_named_to = self.cleaning.unread_named_to.min(self.log_end);
        self.set_high_watermark(self.high_watermark);
        if let Err(error) = self.epochs.write(&self.home.disk, &self.home.dir, Durability::PageCache) {
            tracing::warn!(partition = %self.name, %error, "Failed to write leader epochs, retrying later");
        }
        self.note_txn_indexes_durably();
        self.publish();
        self.flushing.offsets_sank = true;
        // Without space for the checkpoints, the log is closed for appends until there is some.
        if let Err(error) = self.lower_checkpoints()
            && !disk::is_shortage(&error)
        {
            self.set_poison(format!("the checkpoints cannot be lowered: {error}"));
        }
    }

    /// Renames the files of deleted segments after the new end to the names of cut-off ones. Under their
    /// present names, a start would treat them as signs of missing records, and keep them.
    fn rename_deleted_behind_end(&mut self) {
        for doomed in &mut self.doomed {
            let base = segment::deleted_base(&doomed.path);
            let Some(base) = base.filter(|base| *base >= self.log_end) else { continue };
            let renamed = segment::cut_name(&self.home.file(base, LOG_SUFFIX));
            match self.home.disk.rename(&doomed.path, &renamed) {
                Ok(()) => doomed.path = renamed,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(path = %doomed.path.display(), %error, "Failed to rename a deleted file");
                }
            }
        }
    }

    /// Lowers the checkpoints to the offsets of the log after a truncation. No append may come before: a
    /// start would treat unsynced batches as synced, dirty ones as compacted, and new ones as deleted.
    pub(super) fn lower_checkpoints(&mut self) -> io::Result<()> {
        if self.flushing.offsets_sank {
            let _allowed = disk::allow_waits(CUTTING);
            if let Some(state) = &self.state {
                state.lower_checkpoints(&self.name)?;
            }
            self.flushing.offsets_sank = false;
        }
        Ok(())
    }

    /// Loads the producers from the newest snapshot at or below the log end and replays the batches after it.
    fn reload_producers(&mut self) -> Result<(), LogError> {
        let verifications = std::mem::take(&mut self.producers.verifications);
        self.producers = Producers::starting_at(self.segments[0].base_offset.0);
        let (now_ms, expiration_ms) = (self.clock.now_ms(), self.config.producer_id_expiration_ms);
        let newest =
            snapshot::load_newest(&self.home, &mut self.snapshots, self.log_end, now_ms, expiration_ms)?;
        if let Some(newest) = newest {
            self.producers = newest;
        }
        replay_segments(&self.home, &mut self.segments, &mut self.producers, self.log_end)?;
        recall_in_flight(&self.home, &mut self.segments, &mut self.producers)?;
        self.producers.set_map_end(self.log_end.0);
        self.producers.verifications = verifications;
        Ok(())
    }
}
