//! Rolling to the next segment.
//!
//! Owns: the conditions (size, age, full indexes, offsets out of range) and the steps of a roll. Refuses:
//! syncing at once; the old segment is flushed in the background (see `flush`).

use std::io;
use std::path::PathBuf;

use thalweg_record::{BatchHeader, NO_TIMESTAMP, Offset};

use super::error::LogError;
use super::{AppendError, PartitionLog};
use crate::disk::{self, Durability};
use crate::producers::snapshot;
use crate::scan::ScanError;
use crate::segment::{self, LOG_SUFFIX, SNAPSHOT_SUFFIX, Segment};

/// Segments before the active one whose files stay open.
const OPEN_SEGMENTS_MAX: usize = 4;

impl PartitionLog {
    /// Rolls if the batches to be appended require it. Returns true after a roll.
    pub(super) fn roll_if_needed<'h>(
        &mut self,
        headers: impl Iterator<Item = &'h BatchHeader>,
        incoming_bytes: u64,
    ) -> Result<bool, AppendError> {
        let (mut first_offset, mut last_offset, mut max_timestamp) = (None, self.log_end, NO_TIMESTAMP);
        for header in headers {
            first_offset.get_or_insert(header.base_offset);
            last_offset = header.last_offset();
            max_timestamp = max_timestamp.max(header.max_timestamp);
        }
        let active = self.segments.last_mut().expect("a log always has a segment");
        let base = active.base_offset;
        if let Some(fault) = active.prepare_append(&self.home).map_err(LogError::Io)? {
            self.note_damage(base, &fault);
        }
        let active = self.segments.last_mut().expect("a log always has a segment");
        let too_large = active.size_bytes() + incoming_bytes > u64::from(self.config.segment_bytes);
        let full = active.indexes_full(self.config.segment_index_bytes);
        let out_of_reach = !active.can_hold(last_offset);
        let due =
            (too_large && !active.is_empty()) || full || out_of_reach || self.active_is_old(max_timestamp)?;
        if !due {
            return Ok(false);
        }
        // At the log end, so that segments are contiguous: after a power failure a gap means unwritten data.
        let in_reach = last_offset - self.log_end <= i64::from(i32::MAX);
        let base = first_offset.filter(|_| !in_reach).unwrap_or(self.log_end);
        self.roll(base).map_err(|error| match error {
            LogError::Io(error) if disk::is_disk_full(&error) => self.lacks_room(error),
            other => other.into(),
        })?;
        Ok(true)
    }

    /// True if the records of the active segment span more than `segment.ms`.
    fn active_is_old(&mut self, incoming_timestamp: i64) -> Result<bool, LogError> {
        let now_ms = self.clock.now_ms();
        let active = self.segments.last_mut().expect("a log always has a segment");
        if active.is_empty() {
            return Ok(false);
        }
        let base = active.base_offset;
        let first = match active.first_timestamp(&self.home) {
            Ok(first) => first,
            Err(ScanError::Io(error)) => return Err(error.into()),
            // Fall back to the segment's age: the damaged batch does not concern the append.
            Err(ScanError::Corrupt(fault)) => {
                self.note_damage(base, &fault);
                None
            }
        };
        let active = self.segments.last_mut().expect("a log always has a segment");
        let waited_ms = match first {
            Some(first) if first >= 0 => incoming_timestamp.saturating_sub(first),
            _ => now_ms.saturating_sub(active.created_ms),
        };
        Ok(waited_ms > self.config.segment_ms.saturating_sub(self.jitter_ms(base)))
    }

    /// The reduction of `segment.ms` for this segment, by its base offset and partition, so that partitions
    /// created together do not all roll together.
    fn jitter_ms(&self, base: Offset) -> i64 {
        let jitter = self.config.segment_jitter_ms.min(self.config.segment_ms);
        if jitter <= 0 {
            return 0;
        }
        let mut mixed = base.0 as u64 ^ 0x9e37_79b9_7f4a_7c15;
        for byte in self.name.topic.bytes().chain(self.name.partition.to_be_bytes()) {
            mixed = (mixed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        i64::try_from(mixed % jitter.unsigned_abs()).unwrap_or(0)
    }

    /// Closes the active segment and starts one at `first_offset`, or at the log end if that is higher.
    pub(super) fn roll(&mut self, first_offset: Offset) -> Result<(), LogError> {
        let base = first_offset.max(self.log_end);
        let now_ms = self.clock.now_ms();
        if self.has_zeros() {
            self.cut_is_unsynced();
        }
        let active = self.segments.last_mut().expect("a log always has a segment");
        if active.is_empty() {
            if active.base_offset == base {
                return Ok(());
            }
            // An empty segment that cannot hold the next offset is replaced by one that can.
            let next = Segment::create(&self.home, base, now_ms)?;
            let mut empty = std::mem::replace(active, next);
            match empty.mark_deleted(&self.home) {
                Ok(waiting) => self.doom(waiting),
                Err(error) => return Err(self.take_back(empty, error)),
            }
        } else {
            // Create the new files first: if there is no room for them, the active segment stays unchanged.
            let next = Segment::create(&self.home, base, now_ms)?;
            if let Err(error) = self.home.disk.unless_full(active.finish(&self.home)) {
                self.drop_unused(base);
                return Err(error.into());
            }
            self.segments.push(next);
        }
        self.flushing.names.note_change();
        self.producers.set_map_end(base.0);
        match self.take_snapshot(Durability::PageCache) {
            Err(LogError::Io(error)) => self.home.disk.unless_full(Err(error))?,
            other => other?,
        }
        if self.segments.iter().rev().nth(1).is_some_and(|left| left.txn_index(&self.home).is_some()) {
            self.note_txn_indexes();
        }
        self.limit_open_files();
        self.publish();
        Ok(())
    }

    /// Restores an empty segment that cannot be replaced: otherwise a restart would find a gap before the new
    /// segment.
    fn take_back(&mut self, empty: Segment, error: io::Error) -> LogError {
        let unused = std::mem::replace(self.active(), empty).base_offset;
        self.drop_unused(unused);
        error.into()
    }

    /// Removes the file of an unused new segment. A restart would find it between others.
    fn drop_unused(&mut self, base: Offset) {
        let _allowed = disk::allow_waits("an empty file");
        if let Err(error) = self.home.disk.remove(&self.home.file(base, LOG_SUFFIX)) {
            self.set_poison(format!("an empty segment cannot be removed: {error}"));
        }
    }

    /// Writes the producers to a snapshot at the log end, if batches were appended since the last snapshot.
    pub(super) fn take_snapshot(&mut self, durability: Durability) -> Result<(), LogError> {
        let offset = Offset(self.producers.map_end());
        if offset.0 <= self.producers.snapshot_offset() {
            return Ok(());
        }
        let path = self.home.file(offset, SNAPSHOT_SUFFIX);
        snapshot::write(&self.home.disk, &path, &self.producers, durability)?;
        self.producers.set_snapshot_offset(offset.0);
        if let Err(index) = self.snapshots.binary_search(&offset) {
            self.snapshots.insert(index, offset);
        }
        Ok(())
    }

    /// Closes the files of all but the newest segments.
    fn limit_open_files(&mut self) {
        let closable = self.segments.len().saturating_sub(OPEN_SEGMENTS_MAX + 1);
        for segment in self.segments[..closable].iter_mut().filter(|segment| segment.is_open()) {
            if let Err(error) = segment.release(&self.home) {
                tracing::warn!(partition = %self.name, %error, "Failed to close a segment");
            }
        }
    }

    /// Deletes the snapshots that belong to no segment: all below the first segment, except the newest of
    /// all.
    pub(super) fn remove_old_snapshots(&mut self) {
        let first = self.segments[0].base_offset;
        let newest = self.snapshots.last().copied();
        let old: Vec<_> = self
            .snapshots
            .iter()
            .copied()
            .filter(|&offset| offset < first && Some(offset) != newest)
            .collect();
        for offset in old {
            let waiting = self.take_out_snapshot(offset);
            self.doom(waiting);
        }
    }

    /// Takes a producer snapshot out of the log; returns the path that waits for removal. A snapshot that
    /// cannot be renamed stays until the next call.
    pub(super) fn take_out_snapshot(&mut self, offset: Offset) -> Option<PathBuf> {
        match segment::take_out(&self.home, &self.home.file(offset, SNAPSHOT_SUFFIX)) {
            Ok(waiting) => {
                self.snapshots.retain(|&known| known != offset);
                waiting
            }
            Err(error) => {
                tracing::warn!(partition = %self.name, offset = offset.0, %error, "Failed to remove a producer snapshot, retrying later");
                None
            }
        }
    }
}
