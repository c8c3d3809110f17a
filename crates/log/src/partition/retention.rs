//! Deleting old records: by age, by size, or by a client's request.
//!
//! Owns: the choice of segments, and the order of changes: files get their `.deleted` names, oldest segment
//! first, the log start rises over the deleted segments, and later the files are removed. A segment that
//! cannot be renamed ends the deletion: it stays in the log, with all later segments, so that the log never
//! has a hole. On a disk without room for another name, files are removed at once. Refuses: deleting a
//! segment with records that are not replicated.

use std::sync::Arc;

use thalweg_record::{NO_TIMESTAMP, Offset};

use super::PartitionLog;
use super::error::{DeleteRecordsError, LogError, OffsetOutOfRange};
use crate::disk;
use crate::scan::ScanError;

impl PartitionLog {
    /// Raises the log start to `offset` (for DeleteRecords, or to the leader's log start) and deletes the
    /// segments completely below it; during a compaction, these are left to the next retention. Returns the
    /// log start. The new log start is durable once [`crate::LogDirs::checkpoint_log_starts`] has written it.
    pub fn delete_records(&mut self, offset: Offset) -> Result<Offset, DeleteRecordsError> {
        // A closed log writes no checkpoint that would preserve the new log start.
        if let Some(reason) = &self.health.poison {
            return Err(LogError::Poisoned { reason: Arc::clone(reason) }.into());
        }
        if offset > self.high_watermark {
            let (first, last) = (self.log_start, self.high_watermark);
            return Err(OffsetOutOfRange { offset, first, last }.into());
        }
        if offset > self.log_start {
            self.raise_log_start(offset);
            self.delete_below_log_start()?;
        }
        if offset >= self.segments[0].base_offset {
            self.forget_lost_beginning().map_err(LogError::Io)?;
        } else if let Some(lost) = &mut self.health.lost_beginning {
            lost.from = lost.from.max(offset);
            self.publish();
        }
        Ok(self.log_start)
    }

    fn raise_log_start(&mut self, offset: Offset) {
        if offset <= self.log_start {
            return;
        }
        self.log_start = offset;
        self.high_watermark = self.high_watermark.max(offset);
        self.epochs.truncate_from_start(offset);
        self.producers.on_log_start(offset.0);
        self.update_first_unstable();
        self.publish();
    }

    /// Deletes the segments that the policies allow. Returns their number. A compacted log without deletion
    /// loses only segments below the log start. During a compaction nothing is deleted: call it again
    /// afterwards.
    pub fn delete_old_segments(&mut self, now_ms: i64) -> Result<usize, LogError> {
        if self.is_being_compacted() {
            return Ok(0);
        }
        let mut deleted = self.delete_below_log_start()?;
        if self.config.cleanup_policy.delete {
            deleted += self.delete_by_size()?;
            deleted += self.delete_by_age(now_ms)?;
        }
        Ok(deleted)
    }

    fn delete_below_log_start(&mut self) -> Result<usize, LogError> {
        if self.is_being_compacted() {
            return Ok(0);
        }
        let mut count = 0;
        while let Some(next) = self.segments.get(count + 1)
            && next.base_offset <= self.log_start
        {
            count += 1;
        }
        self.delete_first(count)
    }

    fn delete_by_size(&mut self) -> Result<usize, LogError> {
        let Ok(retention_bytes) = u64::try_from(self.config.retention_bytes) else { return Ok(0) };
        let mut excess = self.size_bytes().saturating_sub(retention_bytes);
        let mut count = 0;
        while let Some(segment) = self.segments.get(count)
            && self.is_replicated(count)
            && segment.size_bytes() <= excess
            && excess > 0
        {
            excess -= segment.size_bytes();
            count += 1;
        }
        self.delete_first(count)
    }

    fn delete_by_age(&mut self, now_ms: i64) -> Result<usize, LogError> {
        let retention_ms = self.config.retention_ms;
        if retention_ms < 0 {
            return Ok(0);
        }
        let mut count = 0;
        while count < self.segments.len() && self.is_replicated(count) {
            let newest_ms = self.newest_record_ms(count)?;
            if now_ms.saturating_sub(newest_ms) <= retention_ms {
                break;
            }
            count += 1;
        }
        self.delete_first(count)
    }

    /// The newest timestamp of a segment; if its records have none, the time of its last change.
    pub(super) fn newest_record_ms(&mut self, index: usize) -> Result<i64, LogError> {
        let segment = &mut self.segments[index];
        let base = segment.base_offset;
        let was_open = segment.is_open();
        let timestamp = match segment.max_timestamp(&self.home) {
            Ok((timestamp, _)) => timestamp,
            Err(ScanError::Io(error)) => return Err(error.into()),
            // A damaged segment must not stay forever, and keep all later ones.
            Err(ScanError::Corrupt(fault)) => {
                self.note_damage(base, &fault);
                NO_TIMESTAMP
            }
        };
        let segment = &mut self.segments[index];
        segment.close_indexes();
        let newest_ms = if timestamp >= 0 { timestamp } else { segment.modified_ms(&self.home)? };
        if !was_open {
            segment.release(&self.home)?;
        }
        Ok(newest_ms)
    }

    /// True if all records of a segment are below the high watermark. An empty active segment is never
    /// deleted.
    fn is_replicated(&self, index: usize) -> bool {
        match self.segments.get(index + 1) {
            Some(next) => self.high_watermark >= next.base_offset,
            None => self.high_watermark >= self.log_end && !self.segments[index].is_empty(),
        }
    }

    /// Deletes the first `count` segments. Returns the number deleted.
    fn delete_first(&mut self, count: usize) -> Result<usize, LogError> {
        let mut deleted = self.delete_oldest(count.min(self.segments.len() - 1))?;
        // The active segment is last: earlier deletions may free the room for its successor.
        if deleted < count && self.begin_successor(deleted > 0)? {
            deleted += self.delete_oldest(1)?;
        }
        Ok(deleted)
    }

    /// Rolls, so that the active segment can be deleted. Returns `false` if there is no room although
    /// `others_went`: the next retention retries.
    fn begin_successor(&mut self, others_went: bool) -> Result<bool, LogError> {
        let lacks_room = |rolled: &Result<(), LogError>| matches!(rolled, Err(LogError::Io(error)) if disk::is_disk_full(error));
        let mut rolled = self.roll(self.log_end);
        if lacks_room(&rolled) {
            self.free_room();
            rolled = self.roll(self.log_end);
        }
        if lacks_room(&rolled) && others_went {
            return Ok(false);
        }
        rolled.map(|()| true)
    }

    fn delete_oldest(&mut self, count: usize) -> Result<usize, LogError> {
        let (mut deleted, mut outcome) = (0, Ok(()));
        while deleted < count {
            match self.segments[deleted].mark_deleted(&self.home) {
                Ok(waiting) => self.doom(waiting),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
            deleted += 1;
        }
        if deleted > 0 {
            let log_start = self.segments[deleted].base_offset.max(self.log_start);
            for segment in self.segments.drain(..deleted) {
                tracing::info!(
                    partition = %self.name, segment = segment.base_offset.0, size_bytes = segment.size_bytes(),
                    log_start = log_start.0, "Deleted a segment"
                );
            }
            self.flushing.names.note_change();
            self.health.on_deletion(self.segments[0].base_offset);
            self.forget_mended_suspects();
            self.raise_log_start(log_start);
            self.remove_old_snapshots();
            self.publish();
            outcome = outcome.and_then(|()| self.forget_lost_beginning());
        }
        match outcome {
            Ok(()) => Ok(deleted),
            Err(error) => {
                let base = self.segments[0].base_offset;
                self.set_poison(format!("the segment {base} cannot be deleted: {error}"));
                Err(error.into())
            }
        }
    }
}
