//! Cutting the end of the log: what a follower does when its log has parted from the leader's.
//!
//! Owns: keeping segments, epochs, producers and offsets consistent. Refuses: deciding how far to go back.

use std::io;

use thalweg_record::Offset;

use super::error::LogError;
use super::in_flight::recall_in_flight;
use super::replay::replay_segments;
use super::{PartitionLog, ReadHints};
use crate::disk::{self, Durability};
use crate::producers::{Producers, snapshot};
use crate::segment::{self, SNAPSHOT_SUFFIX, Segment};
use crate::set_aside::SetAside;

impl PartitionLog {
    /// Drops all records at and above `offset`. Says whether any went. Epochs that begin at or above the log end
    /// are dropped in any case. The batch that contains `offset` goes whole; the log end is `offset` all the same.
    pub fn truncate_to(&mut self, offset: Offset) -> Result<bool, LogError> {
        if offset >= self.log_end {
            self.epochs.truncate_from_end(self.log_end);
            return Ok(false);
        }
        if offset < self.high_watermark {
            tracing::warn!(
                partition = %self.name, offset = offset.0, high_watermark = self.high_watermark.0,
                "Log is truncated below its high watermark"
            );
        }
        if offset < self.segments[0].base_offset {
            self.truncate_fully_and_start_at(offset, None)?;
        } else if let Err(error) = self.truncate_segments(offset) {
            // What was cut, and what not, is known again after a restart.
            self.set_poison(format!("the log cannot be truncated to offset {offset}: {error}"));
            return Err(error);
        }
        Ok(true)
    }

    fn truncate_segments(&mut self, offset: Offset) -> Result<(), LogError> {
        let kept = self.segments.partition_point(|segment| segment.base_offset <= offset);
        let renamed = segment::drop_from(&mut self.segments, kept, &self.home)?;
        self.doom(renamed);
        let active = self.segments.last_mut().expect("the segment with the offset was kept");
        let base = active.base_offset;
        active.truncate(&self.home, offset).map_err(LogError::in_segment(base))?;
        // An earlier gap may lie before the batch that went.
        let end = active.read_next_offset(&self.home).map_err(LogError::in_segment(base))?;
        self.gap_from = Some(end.max(base)).filter(|end| *end < offset);
        self.log_end = offset;
        self.log_start = self.log_start.min(offset);
        self.epochs.truncate_from_end(offset);
        self.reload_producers()?;
        self.after_truncation();
        Ok(())
    }

    /// Ends the log where batches are missing between two segments of which the first is not known to be synced: a power
    /// failure spares any of them, and may take whole batches from the end of one. For logs that are not compacted: what was
    /// compacted before, as far as that is known, has other gaps. Says where it ends, if it does so earlier now.
    pub fn end_at_gap(&mut self) -> Result<Option<Offset>, LogError> {
        let first = self.floor_index(self.recovery_point).unwrap_or(0);
        for index in first..self.segments.len() - 1 {
            let next = self.segments[index + 1].base_offset;
            let segment = &mut self.segments[index];
            let end =
                segment.read_next_offset(&self.home).map_err(LogError::in_segment(segment.base_offset))?;
            if end < next && end >= self.recovery_point && next > self.cleaned_to {
                tracing::warn!(
                    partition = %self.name, log_end = end.0, next = next.0,
                    "Log ends before its next segment begins: what lies between was not written out"
                );
                let aside = SetAside::create(&self.home, &self.name)?;
                for lost in &self.segments[index + 1..] {
                    tracing::error!(
                        partition = %self.name, segment = lost.base_offset.0, size_bytes = lost.size_bytes(),
                        log_end = end.0, kept_in = %aside.dir().display(),
                        "Segment does not follow the one before, whose end is lost, and is set aside"
                    );
                }
                aside.take_from(&mut self.segments, index + 1)?;
                if end < self.log_start {
                    // Offsets below the log start are not given out again.
                    self.truncate_fully_and_start_at(self.log_start, None)?;
                } else {
                    self.truncate_to(end)?;
                }
                return Ok(Some(self.log_end));
            }
        }
        Ok(None)
    }

    /// Drops everything and begins anew at `offset`; the log start is `log_start`, or `offset`.
    pub fn truncate_fully_and_start_at(
        &mut self,
        offset: Offset,
        log_start: Option<Offset>,
    ) -> Result<(), LogError> {
        if let Err((what, error)) = self.begin_segments_at(offset) {
            self.set_poison(format!("a segment cannot be {what}: {error}"));
            return Err(error.into());
        }
        for snapshot in std::mem::take(&mut self.snapshots) {
            self.home.disk.remove(&self.home.file(snapshot, SNAPSHOT_SUFFIX))?;
        }
        self.epochs.clear();
        self.gap_from = None;
        self.producers = Producers::starting_at(offset.0);
        self.log_end = offset;
        self.log_start = log_start.unwrap_or(offset).min(offset);
        self.after_truncation();
        Ok(())
    }

    /// Has an empty segment take the place of all that are there, on the medium too: a power failure must not leave the end of
    /// a log without its beginning, nor bring back what goes. An error comes with what could not be done to a segment, and
    /// leaves one, since a log without any is none.
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

    /// The recovery point sinks with the log end, and no flush that is under way may raise it again.
    fn after_truncation(&mut self) {
        self.truncations += 1;
        self.hints = ReadHints::default();
        self.names.note_change();
        self.cut_is_unsynced();
        self.cleaned_to = self.cleaned_to.min(self.log_end);
        self.set_high_watermark(self.high_watermark);
        if let Err(error) = self.epochs.write(&self.home.disk, &self.home.dir, Durability::PageCache) {
            tracing::warn!(partition = %self.name, %error, "Leader epochs cannot be written yet");
        }
        self.publish();
        self.recovery_point_sank = true;
        // Without room for that the log takes no batches until there is.
        if let Err(error) = self.lower_recovery_point()
            && !disk::is_disk_full(&error)
        {
            self.set_poison(format!("the recovery point cannot be lowered: {error}"));
        }
    }

    /// Has the checkpoint say no more than the recovery point after a truncation. Until it does, nothing is appended: a
    /// crash would take for synced what is not.
    pub(super) fn lower_recovery_point(&mut self) -> io::Result<()> {
        if self.recovery_point_sank {
            if let Some(state) = &self.state {
                state.recovery_point_sank(&self.name, self.recovery_point)?;
            }
            self.recovery_point_sank = false;
        }
        Ok(())
    }

    /// Takes the producers from the newest snapshot at or below the log end and replays the batches after it.
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
                        tracing::warn!(path = %path.display(), %error, "Producer snapshot is of no use");
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
