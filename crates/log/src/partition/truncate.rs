//! Truncates the end of the log: for a follower whose log has diverged from the leader's.
//!
//! Owns: keeping segments, epochs, producers and offsets consistent. Refuses: deciding how far to go back.

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
use crate::segment::{self, SNAPSHOT_SUFFIX, Segment};
use crate::set_aside::SetAside;

/// Why syncs happen under the partition's lock here.
const CUTTING: &str =
    "a log that is cut is one that nobody writes to, and must not be written to before it is synced";

impl PartitionLog {
    /// Drops all records at and above `offset`. Returns whether there were any. Epochs that start at or above the log
    /// end are always dropped. The batch that contains `offset` is dropped whole, and the log ends with the last
    /// remaining batch: ending at `offset` would leave a gap.
    pub fn truncate_to(&mut self, offset: Offset) -> Result<bool, LogError> {
        let _allowed = disk::allow_waits(CUTTING);
        if offset >= self.log_end {
            self.epochs.truncate_from_end(self.log_end);
            return Ok(false);
        }
        // Records below the high watermark were acknowledged, and this may be their last copy.
        let aside = if offset < self.high_watermark { Some(self.keep_from(offset)?) } else { None };
        if let Err(error) = self.cut_from(offset, aside.as_ref()) {
            // A restart determines again what was truncated.
            let reason = format!("the log cannot be truncated to offset {offset}: {error}");
            match error {
                LogError::Corrupt { .. } => self.refuse_appends(reason),
                _ => self.set_poison(reason),
            }
            return Err(error);
        }
        Ok(true)
    }

    /// Copies the batches from `offset` to the end of the segment that holds it. Nothing is cut yet.
    fn keep_from(&mut self, offset: Offset) -> Result<SetAside, LogError> {
        let aside = match self.floor_index(offset) {
            None => SetAside::create(&self.home, &self.name)?,
            Some(index) => {
                let segment = &mut self.segments[index];
                let position = match segment.locate(&self.home, offset) {
                    Ok(found) => found.map_or(segment.size_bytes(), |found| found.position),
                    Err(ScanError::Corrupt(fault)) => fault.position,
                    Err(ScanError::Io(error)) => return Err(error.into()),
                };
                SetAside::keep_end(&self.home, &self.name, segment, position, offset)?
            }
        };
        tracing::error!(
            partition = %self.name, offset = offset.0, high_watermark = self.high_watermark.0, log_end = self.log_end.0,
            kept_in = %aside.dir().display(), "Truncated a log below its high watermark; set aside the truncated records"
        );
        Ok(aside)
    }

    fn cut_from(&mut self, offset: Offset, aside: Option<&SetAside>) -> Result<(), LogError> {
        let kept = self.segments.partition_point(|segment| segment.base_offset <= offset);
        if let Some(aside) = aside {
            aside.take_from(&mut self.segments, kept.max(1))?;
        }
        if kept > 0 {
            return self.truncate_segments(offset, kept);
        }
        if let Some(aside) = aside {
            aside.take_files(&mut self.segments[0])?;
        }
        self.truncate_fully_and_start_at(offset, None)
    }

    fn truncate_segments(&mut self, offset: Offset, kept: usize) -> Result<(), LogError> {
        let renamed = segment::drop_from(&mut self.segments, kept, &self.home)?;
        self.doom(renamed);
        let end = self.truncate_active(offset)?;
        let end = self.end_without_gap(end)?;
        if end < self.log_start && self.log_start <= offset {
            // Deleted records must not be there again.
            return self.truncate_fully_and_start_at(self.log_start, None);
        }
        self.log_end = end;
        self.log_start = self.log_start.min(self.log_end);
        self.epochs.truncate_from_end(self.log_end);
        self.reload_producers()?;
        self.after_truncation();
        Ok(())
    }

    /// Truncates the newest segment; returns the end of its batches. If it is damaged before `offset`, it is
    /// truncated there.
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

    /// The end of the last batch, when the newest segment ends at `end` and may have none: in a log without gaps,
    /// segments that start behind the end of the one before are removed.
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

    /// Whether offsets without a batch are normal: compaction leaves gaps, and so does replication from a compacted
    /// log.
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

    /// Truncates the log where batches are missing between two segments and the first is not known to be synced: a
    /// power failure may remove whole batches from the end of either. For logs that are not compacted; a formerly
    /// compacted part has other gaps. Returns the new end if it is lower.
    pub fn end_at_gap(&mut self) -> Result<Option<Offset>, LogError> {
        let end_before = self.log_end;
        self.end_before_doubt()?;
        let first = self.floor_index(self.flushing.recovery_point).unwrap_or(0);
        for index in first..self.segments.len() - 1 {
            let next = self.segments[index + 1].base_offset;
            let segment = &mut self.segments[index];
            let end =
                segment.read_next_offset(&self.home).map_err(LogError::in_segment(segment.base_offset))?;
            if end < next && end >= self.flushing.recovery_point && next > self.cleaning.cleaned_to {
                tracing::warn!(
                    partition = %self.name, log_end = end.0, next = next.0,
                    "Log ends before its next segment begins: the bytes between were never written"
                );
                let aside = SetAside::create(&self.home, &self.name)?;
                for lost in &self.segments[index + 1..] {
                    tracing::error!(
                        partition = %self.name, segment = lost.base_offset.0, size_bytes = lost.size_bytes(),
                        log_end = end.0, kept_in = %aside.dir().display(),
                        "Set aside a segment that does not follow the one before, whose end is lost"
                    );
                }
                aside.take_from(&mut self.segments, index + 1)?;
                if end < self.log_start {
                    // Offsets below the log start are not assigned again.
                    self.truncate_fully_and_start_at(self.log_start, None)?;
                } else {
                    self.truncate_to(end)?;
                }
                return Ok(Some(self.log_end));
            }
        }
        Ok((self.log_end < end_before).then_some(self.log_end))
    }

    /// Logs a gap that recovery found in a log without compaction, and removes the last batch if it alone is behind
    /// the gap: its offset, which no CRC covers, is damaged.
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

    /// Drops everything and restarts at `offset`; the log start is `log_start`, or `offset`.
    pub fn truncate_fully_and_start_at(
        &mut self,
        offset: Offset,
        log_start: Option<Offset>,
    ) -> Result<(), LogError> {
        let _allowed = disk::allow_waits(CUTTING);
        if let Err((what, error)) = self.begin_segments_at(offset) {
            self.set_poison(format!("a segment cannot be {what}: {error}"));
            return Err(error.into());
        }
        for snapshot in std::mem::take(&mut self.snapshots) {
            self.home.disk.remove(&self.home.file(snapshot, SNAPSHOT_SUFFIX))?;
        }
        self.epochs.clear();
        self.producers = Producers::starting_at(offset.0);
        self.log_end = offset;
        self.log_start = log_start.unwrap_or(offset).min(offset);
        self.after_truncation();
        Ok(())
    }

    /// Replaces all segments by an empty one, durably: a power failure must neither leave the end of a log without
    /// its beginning nor restore removed segments. After an error one segment remains, because a log must have one.
    fn begin_segments_at(&mut self, offset: Offset) -> Result<(), (&'static str, io::Error)> {
        let renamed =
            segment::drop_from(&mut self.segments, 1, &self.home).map_err(|error| ("renamed", error))?;
        self.doom(renamed);
        let renamed = self.segments[0].mark_deleted(&self.home, true).map_err(|error| ("renamed", error))?;
        self.doom(renamed);
        // Deleting under one name and creating under the same is safe: the old file has its new name already.
        let created = Segment::create(&self.home, offset, self.clock.now_ms());
        let synced = created.and_then(|segment| self.home.disk.sync_dir(&self.home.dir).map(|()| segment));
        self.segments[0] = synced.map_err(|error| ("created", error))?;
        Ok(())
    }

    /// The recovery point drops with the log end, and no flush in progress may raise it again.
    fn after_truncation(&mut self) {
        self.flushing.truncations += 1;
        self.rewrites += 1;
        self.health.on_truncation(self.log_end);
        self.hints = ReadHints::default();
        self.flushing.names.note_change();
        self.cut_is_unsynced();
        self.cleaning.cleaned_to = self.cleaning.cleaned_to.min(self.log_end);
        self.cleaning.unread_named_to = self.cleaning.unread_named_to.min(self.log_end);
        self.set_high_watermark(self.high_watermark);
        if let Err(error) = self.epochs.write(&self.home.disk, &self.home.dir, Durability::PageCache) {
            tracing::warn!(partition = %self.name, %error, "Failed to write leader epochs, retrying later");
        }
        self.note_txn_indexes();
        self.publish();
        self.flushing.recovery_point_sank = true;
        // Without space for that the log is closed for appends until there is.
        if let Err(error) = self.lower_recovery_point()
            && !disk::is_disk_full(&error)
        {
            self.set_poison(format!("the recovery point cannot be lowered: {error}"));
        }
    }

    /// Lowers the checkpoint to the recovery point after a truncation. Nothing is appended before: recovery would
    /// treat unsynced batches as synced.
    pub(super) fn lower_recovery_point(&mut self) -> io::Result<()> {
        if self.flushing.recovery_point_sank {
            let _allowed = disk::allow_waits(CUTTING);
            if let Some(state) = &self.state {
                state.recovery_point_sank(&self.name, self.flushing.recovery_point)?;
            }
            self.flushing.recovery_point_sank = false;
        }
        Ok(())
    }

    /// Loads the producers from the newest snapshot at or below the log end and replays the batches after it.
    fn reload_producers(&mut self) -> Result<(), LogError> {
        let verifications = std::mem::take(&mut self.producers.verifications);
        self.producers = Producers::starting_at(self.segments[0].base_offset.0);
        while let Some(&offset) = self.snapshots.last() {
            let path = self.home.file(offset, SNAPSHOT_SUFFIX);
            if offset <= self.log_end {
                let mut producers = Producers::starting_at(offset.0);
                let now_ms = self.clock.now_ms();
                match snapshot::load(
                    &self.home.disk,
                    &path,
                    &mut producers,
                    now_ms,
                    self.config.producer_id_expiration_ms,
                ) {
                    Ok(()) => {
                        self.producers = producers;
                        break;
                    }
                    Err(error) => {
                        tracing::warn!(path = %path.display(), %error, "Ignored an invalid producer snapshot");
                    }
                }
            }
            self.home.disk.remove(&path)?;
            self.snapshots.pop();
        }
        replay_segments(&self.home, &mut self.segments, &mut self.producers, self.log_end)?;
        recall_in_flight(&self.home, &mut self.segments, &mut self.producers)?;
        self.producers.set_map_end(self.log_end.0);
        self.producers.verifications = verifications;
        Ok(())
    }
}
