//! Restarts the log empty at another offset: for a follower whose leader's log begins after the end of this
//! one.
//!
//! Owns: crash safety: a process that ends in between leaves the old log or an empty one, never the end of a
//! log without a sign of the missing records before it. Refuses: choosing the new start.

use std::io;

use thalweg_record::Offset;

use super::error::LogError;
use super::health::LostBeginning;
use super::truncate::{CUTTING, NotCut};
use super::{PartitionLog, lost_mark};
use crate::disk;
use crate::producers::Producers;
use crate::segment::{self, SNAPSHOT_SUFFIX, Segment};

impl PartitionLog {
    /// Drops all records and restarts at `offset`; the log start is `log_start`, or `offset`.
    pub fn truncate_fully_and_start_at(
        &mut self,
        offset: Offset,
        log_start: Option<Offset>,
    ) -> Result<(), LogError> {
        self.restart_at(offset, log_start)?;
        // Only now: a process that ends before must not leave the other segments without the signs of missing
        // records.
        self.forget_lost_beginning().map_err(|error| self.unremovable(error))
    }

    /// Drops all records and restarts at `offset`, where the leader's log begins because the leader has lost
    /// the records from `lost_from` on. This log remembers the loss like the leader, so that its own
    /// followers keep those records, and sets aside its own copies.
    pub fn restart_with_lost_beginning(&mut self, offset: Offset, lost_from: Offset) -> Result<(), LogError> {
        let _allowed = disk::allow_waits(CUTTING);
        self.create_mark(lost_from, offset)?;
        let kept_from = lost_from.max(self.log_start);
        if kept_from < self.log_end
            && let Err(not_cut) = self.set_aside_from(kept_from)
        {
            return Err(self.after_failed_cut(kept_from, not_cut));
        }
        self.restart_behind_mark(offset, lost_from)
    }

    /// Drops all records and restarts at `offset`. Records missing before it stay missing.
    pub(super) fn restart_keeping_loss(&mut self, offset: Offset) -> Result<(), LogError> {
        match self.lost_from().filter(|lost_from| *lost_from < offset) {
            Some(lost_from) => {
                self.create_mark(lost_from, offset)?;
                self.restart_behind_mark(offset, lost_from)
            }
            None => self.truncate_fully_and_start_at(offset, None),
        }
    }

    /// Restarts at `offset`, with a mark at `lost_from`.
    fn restart_behind_mark(&mut self, offset: Offset, lost_from: Offset) -> Result<(), LogError> {
        let before = self.replace_lost_beginning(lost_from);
        self.restart_at(offset, None)?;
        self.remove_signs(&before, Some(lost_from)).map_err(|error| self.unremovable(error))
    }

    /// Takes over the signs of missing records from the log of which this one is a copy.
    pub fn adopt_lost_beginning(&mut self, of: &PartitionLog) -> Result<(), LogError> {
        let _allowed = disk::allow_waits(CUTTING);
        let lost_from = of.lost_from();
        if lost_from == self.lost_from() {
            return Ok(());
        }
        let Some(lost_from) = lost_from else { return Ok(self.forget_lost_beginning()?) };
        self.create_mark(lost_from, self.segments[0].base_offset)?;
        let before = self.replace_lost_beginning(lost_from);
        self.publish();
        Ok(self.remove_signs(&before, Some(lost_from))?)
    }

    /// Notes that the records from `lost_from` on are missing, according to the mark there. Returns the
    /// earlier state, whose signs still exist.
    fn replace_lost_beginning(&mut self, lost_from: Offset) -> LostBeginning {
        let marks = vec![lost_from];
        let lost = LostBeginning { from: lost_from, marks, ..LostBeginning::default() };
        self.health.lost_beginning.replace(lost).unwrap_or_default()
    }

    /// Marks a log that is about to begin at `offset`. The mark precedes any truncation: until then it counts
    /// only if it did before.
    fn create_mark(&mut self, lost_from: Offset, offset: Offset) -> Result<(), LogError> {
        let mut first_segments = vec![offset];
        if self.health.lost_beginning.as_ref().is_some_and(|lost| lost.marks.contains(&lost_from)) {
            first_segments.push(self.segments[0].base_offset);
        }
        let mut written = lost_mark::write(&self.home, lost_from, &first_segments);
        if written.as_ref().is_err_and(disk::is_disk_full) {
            self.free_room();
            written = lost_mark::write(&self.home, lost_from, &first_segments);
        }
        written.map_err(|error| self.after_failed_cut(lost_from, NotCut::from(LogError::from(error))))
    }

    fn unremovable(&mut self, error: io::Error) -> LogError {
        self.set_poison(format!("a sign of a lost beginning cannot be removed: {error}"));
        error.into()
    }

    fn restart_at(&mut self, offset: Offset, log_start: Option<Offset>) -> Result<(), LogError> {
        let _allowed = disk::allow_waits(CUTTING);
        // Snapshots of a log with another beginning must be removed before the new log reaches their offsets.
        // Without them the old log is still whole.
        while let Some(&snapshot) = self.snapshots.last() {
            if let Err(error) = self.home.disk.remove(&self.home.file(snapshot, SNAPSHOT_SUFFIX)) {
                self.set_poison(format!("a producer snapshot cannot be removed: {error}"));
                return Err(error.into());
            }
            self.snapshots.pop();
        }
        if let Err((what, error)) = self.begin_segments_at(offset) {
            self.set_poison(format!("a segment cannot be {what}: {error}"));
            return Err(error.into());
        }
        self.epochs.clear();
        self.producers = Producers::starting_at(offset.0);
        self.log_end = offset;
        self.log_start = log_start.unwrap_or(offset).min(offset);
        self.health.may_start_too_late = false;
        self.after_truncation();
        Ok(())
    }

    /// Replaces all segments by an empty one, durably: a power failure must neither leave the end of a log
    /// without its beginning nor restore removed segments. After an error one segment remains, because a log
    /// must have one.
    fn begin_segments_at(&mut self, offset: Offset) -> Result<(), (&'static str, io::Error)> {
        let renamed =
            segment::drop_from(&mut self.segments, 1, &self.home).map_err(|error| ("renamed", error))?;
        self.doom(renamed);
        let renamed = self.segments[0].mark_cut(&self.home).map_err(|error| ("renamed", error))?;
        self.doom(renamed);
        // Deleting and creating under the same name is safe: the old file already has its new name.
        let mut created = Segment::create(&self.home, offset, self.clock.now_ms());
        if created.as_ref().is_err_and(disk::is_disk_full) {
            self.purge_deleted(i64::MAX);
            created = Segment::create(&self.home, offset, self.clock.now_ms());
        }
        let synced = created.and_then(|segment| self.home.disk.sync_dir(&self.home.dir).map(|()| segment));
        self.segments[0] = synced.map_err(|error| ("created", error))?;
        Ok(())
    }
}
