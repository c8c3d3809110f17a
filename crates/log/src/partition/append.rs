//! Appending batches: as the leader, which assigns offsets, and as a follower, which keeps them.
//!
//! Owns: the steps of an append: validate all batches; roll; record the epoch; write all bytes in one gather
//! write; only then change memory. Refuses: any batch after a write failure that leaves the file in doubt.

use thalweg_record::{
    Batch, BatchHeader, LeaderEpoch, NO_TIMESTAMP, Offset, STAMPED_HEAD_LEN, TimestampType, batches,
    stamped_head, stamped_header, verify,
};

use super::error::{
    AppendError, BatchTooLarge, LogError, OffsetsMissing, OffsetsOutOfOrder, UnexpectedEpoch,
    UnexpectedOffset,
};
use super::{PartitionLog, replay};
use crate::disk::{self, Durability};
use crate::producers::{AppendOrigin, BatchMetadata, PreparedAppend, VerificationGuard};
use crate::segment::transactions::AbortedTransaction;
use crate::segment::{Piece, WriteError};

/// Options of an append as the leader.
#[derive(Clone, Copy, Debug)]
pub struct AppendOptions {
    /// The writer of the batches: a client, or a coordinator of the cluster.
    pub origin: AppendOrigin,
    /// The guard of a transactional batch, if transactions are verified.
    pub guard: Option<VerificationGuard>,
    /// The transaction version of the request that carries a marker.
    pub transaction_version: i16,
}

impl Default for AppendOptions {
    fn default() -> AppendOptions {
        AppendOptions { origin: AppendOrigin::Client, guard: None, transaction_version: 0 }
    }
}

/// The outcome of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendInfo {
    /// Offset of the first record; for a duplicate, of the original record.
    pub first_offset: Offset,
    /// Offset of the last record.
    pub last_offset: Offset,
    /// The broker's time if the topic uses LogAppendTime, else -1. For a duplicate, the timestamp of the
    /// original.
    pub log_append_time: i64,
    /// The log start offset.
    pub log_start_offset: Offset,
    /// True if the batches were in the log already, and nothing was appended.
    pub duplicate: bool,
    /// Number of appended bytes.
    pub appended_bytes: u64,
    /// True if the log rolled, and the old segment waits for its background flush.
    pub rolled: bool,
    /// True if `flush.messages` requires a flush.
    pub flush_due: bool,
}

/// A batch as it will be stored: a patched head and the received rest.
pub(super) struct PreparedBatch<'a> {
    pub(super) header: BatchHeader,
    head: Head,
    bytes: &'a [u8],
}

enum Head {
    /// The head of the received batch.
    Same,
    /// A new base offset and leader epoch.
    Stamped([u8; STAMPED_HEAD_LEN]),
    /// A new timestamp too, and with it a new CRC.
    Restamped([u8; BatchHeader::LEN]),
}

impl PreparedBatch<'_> {
    fn pieces(&self) -> [&[u8]; 2] {
        match &self.head {
            Head::Same => [self.bytes, &[]],
            Head::Stamped(head) => [head, &self.bytes[head.len()..]],
            Head::Restamped(head) => [head, &self.bytes[head.len()..]],
        }
    }
}

pub(super) enum AppendVerdict {
    New(PreparedAppend),
    Duplicate(BatchMetadata),
}

impl PartitionLog {
    /// Appends the batches in `records`, which were checked before, at the log end: all of them, or none.
    pub fn append_as_leader(
        &mut self,
        records: &[u8],
        leader_epoch: LeaderEpoch,
        options: AppendOptions,
    ) -> Result<AppendInfo, AppendError> {
        let appended = self.try_append_as_leader(records, leader_epoch, options);
        self.note_outcome(&appended);
        appended
    }

    fn try_append_as_leader(
        &mut self,
        records: &[u8],
        leader_epoch: LeaderEpoch,
        options: AppendOptions,
    ) -> Result<AppendInfo, AppendError> {
        self.check_writable()?;
        let now_ms = self.append_time();
        let mut stored = Vec::with_capacity(1);
        self.assign_offsets(records, leader_epoch, now_ms, &mut stored)?;
        let size_bytes = records.len() as u64;
        if size_bytes > u64::from(self.config.segment_bytes) {
            return Err(BatchTooLarge { size_bytes, segment_bytes: self.config.segment_bytes }.into());
        }
        match self.judge(&stored, options)? {
            AppendVerdict::New(prepared) => {
                let mut info = self.append_stored(&stored, prepared)?;
                info.log_append_time = now_ms.unwrap_or(NO_TIMESTAMP);
                Ok(info)
            }
            AppendVerdict::Duplicate(original) => Ok(AppendInfo {
                first_offset: Offset(original.first_offset()),
                last_offset: Offset(original.last_offset),
                log_append_time: original.timestamp,
                duplicate: true,
                // The flush of the first request may be pending, or its connection may have ended before the
                // flush.
                flush_due: self.flushing.recovery_point.0 <= original.last_offset && self.flush_is_due(),
                ..self.nothing_appended()
            }),
        }
    }

    /// Appends batches as the leader sent them, up to the first batch that is incomplete, cannot follow, or
    /// has no room. A batch cannot follow if, for example, its epoch is above `leader_epoch` (KAFKA-18723).
    /// If the very first batch fails, that is an error: a repeated fetch would return the same.
    pub fn append_as_follower(
        &mut self,
        records: &[u8],
        leader_epoch: LeaderEpoch,
    ) -> Result<AppendInfo, AppendError> {
        self.check_writable()?;
        let mut stored: Vec<PreparedBatch<'_>> = Vec::new();
        for batch in batches(records) {
            let before = stored.last().map(|stored| stored.header);
            let judged = batch.map_err(AppendError::from).and_then(|Batch { header, bytes }| {
                verify(bytes)?;
                self.check_follows(&header, before.as_ref(), leader_epoch)?;
                Ok(PreparedBatch { header, head: Head::Same, bytes })
            });
            match judged {
                Ok(batch) => stored.push(batch),
                Err(error) => {
                    if matches!(error, AppendError::OffsetsOutOfOrder(_)) {
                        self.drop_behind_gap(&mut stored);
                    }
                    if stored.is_empty() {
                        return Err(error);
                    }
                    break;
                }
            }
        }
        self.append_replicated(&stored)
    }

    /// Checks that a batch of the leader can follow: after `before`, or at the log end.
    fn check_follows(
        &self,
        header: &BatchHeader,
        before: Option<&BatchHeader>,
        leader_epoch: LeaderEpoch,
    ) -> Result<(), AppendError> {
        let expected = before.map_or(self.log_end, BatchHeader::next_offset);
        let (first, last) = (header.base_offset, header.last_offset());
        if before.is_none() && first < self.log_end {
            return Err(UnexpectedOffset { first, log_end: self.log_end }.into());
        }
        if first < expected || header.last_offset_delta < 0 || last.0 == i64::MAX {
            return Err(OffsetsOutOfOrder { first, last, expected }.into());
        }
        if first > expected && !self.may_have_gaps() {
            return Err(OffsetsMissing { first, expected }.into());
        }
        let latest = before.map(|before| before.leader_epoch).or(self.epochs.latest());
        let earliest = latest.unwrap_or(LeaderEpoch::NONE);
        if header.leader_epoch > leader_epoch || header.leader_epoch < earliest {
            let (found, latest) = (header.leader_epoch, leader_epoch);
            return Err(UnexpectedEpoch { first, found, earliest, latest }.into());
        }
        Ok(())
    }

    /// Drops a last batch that leaves a gap if its successor goes back: either may be damaged.
    fn drop_behind_gap(&self, stored: &mut Vec<PreparedBatch<'_>>) {
        let Some(last) = stored.pop() else { return };
        let expected = stored.last().map_or(self.log_end, |before| before.header.next_offset());
        if last.header.base_offset == expected {
            stored.push(last);
        }
    }

    /// Accepts gaps in the leader's batches from now on: the leader no longer has the missing offsets, as in
    /// a formerly compacted log.
    pub fn accept_gaps(&mut self) {
        self.health.oddities.gaps = self.health.oddities.gaps.max(1);
    }

    /// Appends replicated batches, with one write per segment. After an error, earlier appends count, and may
    /// still need their flush; the next call returns the error first.
    fn append_replicated(&mut self, stored: &[PreparedBatch<'_>]) -> Result<AppendInfo, AppendError> {
        let mut info = self.nothing_appended();
        let mut rest = stored;
        while let Some(first) = rest.first() {
            let segment_bytes = usize::try_from(self.config.segment_bytes).unwrap_or(usize::MAX);
            let (mut count, mut group_bytes) = (1, first.bytes.len());
            while let Some(next) = rest.get(count)
                && group_bytes + next.bytes.len() <= segment_bytes
            {
                group_bytes += next.bytes.len();
                count += 1;
            }
            let (group, later) = rest.split_at(count);
            let part = match self.append_group(group) {
                Err(_) if info.appended_bytes > 0 => break,
                appended => appended?,
            };
            if info.appended_bytes == 0 {
                info.first_offset = part.first_offset;
            }
            info.last_offset = part.last_offset;
            info.appended_bytes += part.appended_bytes;
            info.rolled |= part.rolled;
            info.flush_due |= part.flush_due;
            rest = later;
        }
        Ok(info)
    }

    /// Appends replicated batches to one segment.
    fn append_group(&mut self, group: &[PreparedBatch<'_>]) -> Result<AppendInfo, AppendError> {
        let options = AppendOptions { origin: AppendOrigin::Replication, ..AppendOptions::default() };
        let AppendVerdict::New(prepared) = self.judge(group, options)? else {
            unreachable!("duplicates are looked for in what clients send");
        };
        self.append_stored(group, prepared)
    }

    /// The timestamp for records, if the topic uses LogAppendTime.
    pub(super) fn append_time(&self) -> Option<i64> {
        match self.config.message_timestamp_type {
            TimestampType::CreateTime => None,
            TimestampType::LogAppendTime => Some(self.clock.now_ms()),
        }
    }

    pub(super) fn nothing_appended(&self) -> AppendInfo {
        AppendInfo {
            first_offset: self.log_end,
            last_offset: self.log_end - 1,
            log_append_time: NO_TIMESTAMP,
            log_start_offset: self.log_start,
            duplicate: false,
            appended_bytes: 0,
            rolled: false,
            flush_due: false,
        }
    }

    pub(super) fn check_writable(&mut self) -> Result<(), AppendError> {
        if let Some(reason) = self.failure() {
            return Err(AppendError::Poisoned { reason });
        }
        match self.lower_checkpoints() {
            Err(error) if disk::is_disk_full(&error) => Err(self.lacks_room(error)),
            lowered => Ok(lowered.map_err(LogError::Io)?),
        }
    }

    /// Assigns offsets to the batches, and adds them to `stored`.
    pub(super) fn assign_offsets<'a>(
        &self,
        records: &'a [u8],
        leader_epoch: LeaderEpoch,
        now_ms: Option<i64>,
        stored: &mut Vec<PreparedBatch<'a>>,
    ) -> Result<(), AppendError> {
        let mut next = stored.last().map_or(self.log_end, |before| before.header.next_offset());
        for batch in batches(records) {
            let batch = batch?;
            let mut header = BatchHeader { base_offset: next, leader_epoch, ..batch.header };
            let last = header.last_offset();
            if header.last_offset_delta < 0 || last.0 == i64::MAX {
                return Err(OffsetsOutOfOrder { first: next, last, expected: next }.into());
            }
            let head = match now_ms {
                None => Head::Stamped(stamped_head(&header, next, leader_epoch)),
                Some(now_ms) => {
                    header.attributes = header.attributes.with_timestamp_type(TimestampType::LogAppendTime);
                    header.max_timestamp = now_ms;
                    Head::Restamped(stamped_header(&batch, next, leader_epoch, Some(now_ms)))
                }
            };
            next = header.next_offset();
            stored.push(PreparedBatch { header, head, bytes: batch.bytes });
        }
        Ok(())
    }

    /// Compares the batches with the state of their producers.
    pub(super) fn judge(
        &mut self,
        stored: &[PreparedBatch<'_>],
        options: AppendOptions,
    ) -> Result<AppendVerdict, AppendError> {
        let mut prepared = PreparedAppend::default();
        for PreparedBatch { header, bytes, .. } in stored {
            if !header.producer_id.is_some() {
                continue;
            }
            if options.origin == AppendOrigin::Client
                && let Some(original) = self.producers.duplicate_of(header)
            {
                return Ok(AppendVerdict::Duplicate(original));
            }
            if options.origin != AppendOrigin::Replication {
                self.producers.check_transaction(header, options.guard)?;
            }
            let marker = replay::end_marker(header, bytes);
            self.producers.prepare(
                &mut prepared,
                header,
                marker,
                options.origin,
                options.transaction_version,
            )?;
        }
        Ok(AppendVerdict::New(prepared))
    }

    /// Writes validated batches and applies their changes.
    pub(super) fn append_stored(
        &mut self,
        stored: &[PreparedBatch<'_>],
        prepared: PreparedAppend,
    ) -> Result<AppendInfo, AppendError> {
        let (Some(first), Some(last)) = (stored.first(), stored.last()) else {
            return Ok(self.nothing_appended());
        };
        let appended_bytes: u64 = stored.iter().map(|batch| batch.bytes.len() as u64).sum();
        let rolled = self.roll_if_needed(stored.iter().map(|batch| &batch.header), appended_bytes)?;
        let (first_offset, last_offset) = (first.header.base_offset, last.header.last_offset());
        let earlier_epochs = self.assign_epochs(stored);
        if let Err(error) = self.write_with_indexes(stored, &prepared) {
            // Epochs of batches that are not in the log would refuse those that the leader sends next.
            if let Some(earlier) = earlier_epochs {
                self.epochs.replace_by(&earlier);
            }
            return Err(error);
        }
        self.log_end = last_offset + 1;
        self.health.oddities.doubt = None;
        self.producers.apply(prepared.producers);
        prepared.completed.iter().for_each(|transaction| self.producers.complete(transaction));
        self.producers.set_map_end(self.log_end.0);
        self.update_first_unstable();
        self.publish_append(appended_bytes);
        Ok(AppendInfo {
            first_offset,
            last_offset,
            appended_bytes,
            rolled,
            flush_due: self.flush_is_due(),
            ..self.nothing_appended()
        })
    }

    /// Assigns the epochs of batches. Returns the earlier ones if that has changed any.
    fn assign_epochs(&mut self, stored: &[PreparedBatch<'_>]) -> Option<Vec<(LeaderEpoch, Offset)>> {
        let latest = self.epochs.latest();
        if stored.iter().all(|batch| Some(batch.header.leader_epoch) == latest) {
            return None;
        }
        let earlier = self.epochs.entries().to_vec();
        for batch in stored {
            self.epochs.assign(batch.header.leader_epoch, batch.header.base_offset);
        }
        Some(earlier)
    }

    /// Writes changed epochs, index entries of aborted transactions, then the batches.
    fn write_with_indexes(
        &mut self,
        stored: &[PreparedBatch<'_>],
        prepared: &PreparedAppend,
    ) -> Result<(), AppendError> {
        if self.epochs.is_stale() {
            self.write_epochs()?;
        }
        let aborted = self.producers.aborted_by(prepared);
        self.add_aborted(&aborted)?;
        let written = self.write(stored);
        if let (Err(_), Some(first)) = (&written, stored.first()) {
            self.take_aborted_back(&aborted, first.header.base_offset);
        }
        written
    }

    fn write_epochs(&mut self) -> Result<(), AppendError> {
        match self.epochs.write(&self.home.disk, &self.home.dir, Durability::PageCache) {
            Ok(()) => Ok(()),
            Err(error) if disk::is_disk_full(&error) => Err(self.lacks_room(error)),
            Err(error) => Err(LogError::Io(error).into()),
        }
    }

    /// Notes in the directory that an append failed for lack of room.
    pub(super) fn lacks_room(&self, error: std::io::Error) -> AppendError {
        if let Some(directory) = &self.state {
            directory.note_full();
        }
        AppendError::DiskFull(error)
    }

    fn write(&mut self, stored: &[PreparedBatch<'_>]) -> Result<(), AppendError> {
        let segment = self.segments.last_mut().expect("a log always has a segment");
        let headers = stored.iter().map(|batch| &batch.header);
        let result = if let [only] = stored {
            let mut pieces = only.pieces().map(Piece::new);
            segment.append(&self.home, &self.config, &mut pieces, headers)
        } else {
            let mut pieces: Vec<_> = stored.iter().flat_map(|batch| batch.pieces()).map(Piece::new).collect();
            segment.append(&self.home, &self.config, &mut pieces, headers)
        };
        match result {
            Ok(()) => Ok(()),
            Err(WriteError::DiskFull(error)) => Err(self.lacks_room(error)),
            Err(WriteError::Shortened(fault)) => {
                let segment = self.active().base_offset;
                self.note_shortened(segment, &fault);
                Err(LogError::Corrupt { segment, fault }.into())
            }
            // The file could not be opened, so nothing was written.
            Err(WriteError::Failed(error)) if disk::lacks_descriptors(&error) => {
                Err(LogError::Io(error).into())
            }
            Err(WriteError::Failed(error)) => {
                self.set_poison(format!("a write to {} has failed: {error}", self.home.dir.display()));
                Err(LogError::Io(error).into())
            }
        }
    }

    /// Writes aborted transactions to the index, before the abort markers: in the reverse order, a disk that
    /// fills up in between would leave a log whose consumers see aborted records after a restart.
    fn add_aborted(&mut self, aborted: &[AbortedTransaction]) -> Result<(), AppendError> {
        if aborted.is_empty() {
            return Ok(());
        }
        let segment = self.segments.last_mut().expect("a log always has a segment");
        if segment.txn_index(&self.home).is_none() {
            self.flushing.names.note_change();
        }
        match segment.add_aborted(&self.home, aborted) {
            Ok(()) => Ok(()),
            Err(error) if disk::is_disk_full(&error) => Err(self.lacks_room(error)),
            Err(error) if disk::lacks_descriptors(&error) => Err(LogError::Io(error).into()),
            Err(error) => {
                self.set_poison(format!("the transaction index cannot be written: {error}"));
                Err(LogError::Io(error).into())
            }
        }
    }

    /// Removes the index entries again, because the markers could not be written.
    fn take_aborted_back(&mut self, aborted: &[AbortedTransaction], first_offset: Offset) {
        if aborted.is_empty() {
            return;
        }
        let _allowed =
            disk::allow_waits("what is removed has no entry but those of this append, which has failed");
        let segment = self.segments.last_mut().expect("a log always has a segment");
        if let Err(error) = segment.truncate_transactions(&self.home, first_offset) {
            self.set_poison(format!("the transaction index cannot be cut back: {error}"));
        }
    }

    fn publish_append(&self, appended_bytes: u64) {
        use std::sync::atomic::Ordering::Relaxed;
        self.published.log_end.store(self.log_end.0, Relaxed);
        let appended = i64::try_from(appended_bytes).unwrap_or(i64::MAX);
        self.published.size_bytes.fetch_add(appended, Relaxed);
    }
}
