//! The seam to the internal topics: the operations that a coordinator needs of a log.

use super::WriteError;
use bytes::Bytes;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use thalweg_metadata::PartitionIndex;
use thalweg_record::{BatchError, Offset, RecordError, batches};
use thalweg_replica::partition::{AppendAs, DeleteError};
use thalweg_wire::DecodeError;

/// The partitions of a coordinator's topic that this broker leads.
pub trait CoordinatorLog: Send + Sync + 'static {
    /// Appends one batch, as a leader does in `leader_epoch`. Runs inline and does not wait for replicas: the order
    /// of calls is the order in the log. `batch` has base offset 0; the log stamps offsets and epoch.
    fn append(
        &self,
        partition: PartitionIndex,
        leader_epoch: i32,
        batch: Bytes,
        append_as: AppendAs,
    ) -> Result<Appended, WriteError>;

    /// Maximum size of a batch in this partition. Larger ones need not be built.
    fn batch_bytes_max(&self, _partition: PartitionIndex) -> usize {
        usize::MAX
    }

    /// Waits until an append of this leader epoch counts, as long as this broker leads in it. Returns the offset before
    /// which the replicas have all.
    fn acknowledgement(
        &self,
        partition: PartitionIndex,
        leader_epoch: i32,
        of: Appended,
    ) -> Pin<Box<dyn Future<Output = Result<Offset, WriteError>> + Send>>;

    /// Reads the log from its start to its end, in order, as the leader of `leader_epoch`. Blocks; it is called on a blocking
    /// thread. Stops when `each` fails, unless that is for damage which no other replica can mend: the damage is noted, and the
    /// readable batches around it follow. Returns the end of the log, if not all of it is acknowledged.
    fn replay(
        &self,
        partition: PartitionIndex,
        leader_epoch: i32,
        each: &mut dyn FnMut(Part<'_>) -> Result<(), ReplayError>,
    ) -> Result<Option<Appended>, ReplayError>;

    /// Deletes the records before an offset, which the replicas have. Blocks.
    fn delete_before(&self, partition: PartitionIndex, offset: i64) -> Result<(), DeleteError>;
}

/// A batch has its place in the log. It counts once the high watermark is past it, and it is on the medium if the flush
/// policy asks for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The offset of its last record.
    pub last_offset: Offset,
    /// True if the replicas have it, as on a partition with one replica.
    pub is_replicated: bool,
    /// True if it is on the medium, or need not be.
    pub is_flushed: bool,
}

/// A part of a log that is replayed.
#[derive(Clone, Debug)]
pub enum Part<'a> {
    /// Batches.
    Piece(Piece<'a>),
    /// Offsets with records that can be read nowhere any more.
    Lost(Range<Offset>),
}

/// A piece of a log that is replayed: whole batches, in their order.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The batches.
    pub bytes: &'a [u8],
    /// The offset that they were read from: none of their records has a smaller one.
    pub from: Offset,
    /// The offset before which all replicas have the log. Another leader may not know what is behind.
    pub acknowledged_before: Offset,
}

impl Piece<'_> {
    /// A piece that all replicas have.
    #[cfg(any(test, feature = "testing"))]
    pub fn acknowledged(bytes: &[u8]) -> Piece<'_> {
        Piece { bytes, from: Offset::ZERO, acknowledged_before: Offset(i64::MAX) }
    }

    /// Whether the batches are those that were written. A bit that the medium has lost must not become a committed offset.
    pub(super) fn check(&self) -> Result<(), ReplayError> {
        let damaged =
            |offset: Offset, position, error| ReplayError::Damaged { offset: offset.0, position, error };
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

    /// The offset of a record that is not acknowledged yet.
    pub fn unacknowledged(&self, offset: Offset) -> Option<i64> {
        (offset >= self.acknowledged_before).then_some(offset.0)
    }
}

/// The offsets that a load left out, for its log line.
#[derive(Debug, Default)]
pub(super) struct LostOffsets {
    /// The first of them.
    ranges: Vec<Range<Offset>>,
    /// How many ranges are not listed.
    further: usize,
}

/// More ranges than these are counted.
const LOST_RANGES_MAX: usize = 20;

impl LostOffsets {
    /// Adds a range behind all others.
    pub(super) fn add(&mut self, lost: Range<Offset>) {
        let is_listed = self.ranges.len() < LOST_RANGES_MAX;
        match self.ranges.last_mut() {
            Some(last) if last.end == lost.start && self.further == 0 => last.end = lost.end,
            _ if is_listed => self.ranges.push(lost),
            _ => self.further += 1,
        }
    }

    /// True if nothing is lost.
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

/// Why a partition could not be loaded. Nothing of it is served then: offsets that are silently missing would send
/// consumers back to the start. Only records that no replica has any more are left out, and not by every coordinator
/// (`Shard::LOSS`).
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The partition is led elsewhere by now.
    #[error("This broker no longer leads the partition")]
    NotLeader,
    /// The log could not be read now.
    #[error("The log could not be read: {reason}")]
    Read {
        /// The log's error.
        reason: String,
    },
    /// Bytes that are no batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A batch whose bytes have changed since they were written.
    #[error("The batch at offset {offset} is damaged: {error}")]
    Damaged {
        /// Its base offset, or the first that it may have.
        offset: i64,
        /// Where it begins in the piece.
        position: usize,
        /// The fault.
        error: BatchError,
    },
    /// Damage that the log itself has found, and logged.
    #[error("The log is damaged from offset {offset} on")]
    DamagedLog {
        /// The offset that could not be read.
        offset: i64,
    },
    /// A batch whose records cannot be read.
    #[error("The batch at offset {offset} cannot be read: {error}")]
    Records {
        /// Its base offset.
        offset: i64,
        /// The fault.
        error: RecordError,
    },
    /// A record that is no coordinator record.
    #[error("The record at offset {offset} cannot be read: {error}")]
    Record {
        /// Its offset.
        offset: i64,
        /// The fault.
        error: RecordDecodeError,
    },
}

impl ReplayError {
    /// True if another attempt may soon succeed with nothing done about it: descriptors are free again, or the directory is
    /// offline and another broker leads.
    pub(super) fn passes(&self) -> bool {
        matches!(self, ReplayError::Read { .. })
    }
}

/// A key or value in a format that Kafka does not write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordDecodeError {
    /// A record without a key.
    #[error("it has no key")]
    NoKey,
    /// The bytes are not the message.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A value of a version that is not known, from which nothing can be guessed.
    #[error("its value has unknown version {version}; the last known one is {max}")]
    ValueVersion {
        /// The version found.
        version: i16,
        /// The last one known.
        max: i16,
    },
    /// A transaction in a state that there is not.
    #[error("its value has transaction state {status}; expected 0 to 7")]
    TransactionStatus {
        /// The state found.
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
