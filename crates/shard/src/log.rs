//! The seam to the internal topics: the log operations of a coordinator.

use super::WriteError;
use bytes::Bytes;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use thalweg_metadata::PartitionIndex;
use thalweg_record::{BatchError, Offset, RecordError, batches};
use thalweg_replica::partition::{DeleteError, TransactionalAppendOptions};
use thalweg_wire::DecodeError;

/// The partitions of a coordinator's topic that this broker leads.
pub trait CoordinatorLog: Send + Sync + 'static {
    /// Appends one batch as the leader of `leader_epoch`. Runs inline and does not wait for replicas: the
    /// order of calls is the order in the log. `batch` has base offset 0; the log stamps offsets and epoch.
    fn append(
        &self,
        partition: PartitionIndex,
        leader_epoch: i32,
        batch: Bytes,
        options: TransactionalAppendOptions,
    ) -> Result<AppendedBatch, WriteError>;

    /// Maximum size of a batch in this partition. Larger batches need not be built.
    fn batch_bytes_max(&self, _partition: PartitionIndex) -> usize {
        usize::MAX
    }

    /// Waits until an append of this leader epoch is acknowledged, as long as this broker leads in it.
    /// Returns the offset before which the replicas have the whole log.
    fn acknowledgement(
        &self,
        partition: PartitionIndex,
        leader_epoch: i32,
        of: AppendedBatch,
    ) -> Pin<Box<dyn Future<Output = Result<Offset, WriteError>> + Send>>;

    /// Reads the whole log in order, as the leader of `leader_epoch`. Blocks, so it is called on a blocking
    /// thread. Stops when `each` fails, except for damage that no other replica can repair: the damage is
    /// recorded, and the readable batches around it follow. Returns the end of the log, if it is not fully
    /// acknowledged.
    fn replay(
        &self,
        partition: PartitionIndex,
        leader_epoch: i32,
        each: &mut dyn FnMut(Part<'_>) -> Result<(), ShardLoadError>,
    ) -> Result<Option<AppendedBatch>, ShardLoadError>;

    /// Deletes replicated records before an offset. Blocks.
    fn delete_before(&self, partition: PartitionIndex, offset: i64) -> Result<(), DeleteError>;
}

/// The position of a batch in the log. The batch is acknowledged once the high watermark is past it, and it
/// is on the medium if the flush policy requires that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendedBatch {
    /// Offset of the batch's last record.
    pub last_offset: Offset,
    /// True if the replicas have the batch, as on a partition with one replica.
    pub is_replicated: bool,
    /// True if the batch is on the medium, or need not be.
    pub is_flushed: bool,
}

/// A part of a replayed log.
#[derive(Clone, Debug)]
pub enum Part<'a> {
    /// Batches that can be read.
    Piece(Piece<'a>),
    /// Offsets of records that no replica can read any more.
    Lost(Range<Offset>),
}

/// A piece of a replayed log: whole batches, in order.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The encoded batches.
    pub bytes: &'a [u8],
    /// The offset of the read: no record has a smaller offset.
    pub from: Offset,
    /// The offset before which all replicas have the log. Another leader may lack later records.
    pub acknowledged_before: Offset,
}

impl Piece<'_> {
    /// A piece that all replicas have.
    #[cfg(any(test, feature = "testing"))]
    pub fn acknowledged(bytes: &[u8]) -> Piece<'_> {
        Piece { bytes, from: Offset::ZERO, acknowledged_before: Offset(i64::MAX) }
    }

    /// Checks that the batches are the written ones: a flipped bit on the medium must not become a committed
    /// offset.
    pub(super) fn check(&self) -> Result<(), ShardLoadError> {
        let damaged =
            |offset: Offset, position, error| ShardLoadError::Damaged { offset: offset.0, position, error };
        let (mut batches, mut next) = (batches(self.bytes), self.from);
        loop {
            let position = batches.position();
            let Some(batch) = batches.next() else { return Ok(()) };
            let batch = batch.map_err(|error| damaged(next, position, error))?;
            let base = batch.header.base_offset;
            batch.check_crc().map_err(|error| damaged(base, position, error.into()))?;
            next = batch.header.next_offset();
        }
    }

    /// The offset of the record if it is not acknowledged yet.
    pub fn unacknowledged(&self, offset: Offset) -> Option<i64> {
        (offset >= self.acknowledged_before).then_some(offset.0)
    }
}

/// The offsets left out by a load, for its log line.
#[derive(Debug, Default)]
pub(super) struct LostOffsets {
    /// The first ranges.
    ranges: Vec<Range<Offset>>,
    /// Number of ranges that are not listed.
    further: usize,
}

/// Maximum number of listed ranges; further ranges are only counted.
const LOST_RANGES_MAX: usize = 20;

impl LostOffsets {
    /// Adds a range after all other ranges.
    pub(super) fn add(&mut self, lost: Range<Offset>) {
        let is_listed = self.ranges.len() < LOST_RANGES_MAX;
        match self.ranges.last_mut() {
            Some(last) if last.end == lost.start && self.further == 0 => last.end = lost.end,
            _ if is_listed => self.ranges.push(lost),
            _ => self.further += 1,
        }
    }

    /// True if no records are lost.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

impl fmt::Display for LostOffsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.ranges.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{} to {}", range.start, range.end - 1)?;
        }
        match self.further {
            0 => Ok(()),
            further => write!(f, " and {further} further ranges"),
        }
    }
}

/// Why a partition could not be loaded. No part of it is served then: silently missing offsets would send
/// consumers back to the start. Only records that no replica has any more are left out, and only by some
/// coordinators (`Shard::LOSS`).
#[derive(Debug, thiserror::Error)]
pub enum ShardLoadError {
    /// Another broker leads the partition by now.
    #[error("This broker no longer leads the partition")]
    NotLeader,
    /// The log cannot be read at the moment.
    #[error("The log could not be read: {reason}")]
    Read {
        /// Error of the log.
        reason: String,
    },
    /// The bytes are not a batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The bytes of a batch have changed since the write.
    #[error("The batch at offset {offset} is damaged: {error}")]
    Damaged {
        /// Base offset of the batch, or its lowest possible value.
        offset: i64,
        /// Position of the batch in the piece.
        position: usize,
        error: BatchError,
    },
    /// Damage that the log itself has detected and logged.
    #[error("The log is damaged from offset {offset} on")]
    DamagedLog {
        /// The unreadable offset.
        offset: i64,
    },
    /// The records of a batch cannot be read.
    #[error("The batch at offset {offset} cannot be read: {error}")]
    Records {
        /// Base offset of the batch.
        offset: i64,
        error: RecordError,
    },
    /// A record is not a coordinator record.
    #[error("The record at offset {offset} cannot be read: {error}")]
    Record {
        /// Offset of the record.
        offset: i64,
        error: RecordDecodeError,
    },
}

impl ShardLoadError {
    /// True if another attempt may soon succeed without intervention: descriptors become free, or the
    /// directory is offline and another broker leads.
    pub(super) fn passes(&self) -> bool {
        matches!(self, ShardLoadError::Read { .. })
    }
}

/// A key or value in a format unknown to Kafka.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordDecodeError {
    /// A record without a key.
    #[error("it has no key")]
    NoKey,
    /// The bytes cannot be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A value of an unknown version.
    #[error("its value has unknown version {version}; the last known one is {max}")]
    ValueVersion {
        /// Version in the record.
        version: i16,
        /// Last known version.
        max: i16,
    },
    /// An unknown transaction state.
    #[error("its value has transaction state {status}; expected 0 to 7")]
    TransactionStatus {
        /// State in the record.
        status: i8,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_offsets_are_named_and_many_are_counted() {
        let mut lost = LostOffsets::default();
        assert!(lost.is_empty());
        for (from, to) in [(3, 5), (5, 6), (9, 10)] {
            lost.add(Offset(from)..Offset(to));
        }
        assert_eq!(lost.to_string(), "3 to 5, 9 to 9");
        for index in 0..30 {
            lost.add(Offset(20 + 2 * index)..Offset(21 + 2 * index));
        }
        assert!(lost.to_string().ends_with(", 54 to 54 and 12 further ranges"), "{lost}");
    }
}
