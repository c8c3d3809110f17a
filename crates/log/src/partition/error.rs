//! Errors of the operations on a partition.

use std::io;
use std::sync::Arc;

use thalweg_record::{BatchError, LeaderEpoch, Offset};

use crate::disk;
use crate::producers::ProducerError;
use crate::scan::{CorruptBatch, ScanError};

/// Why nothing was appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The bytes are no batches (CORRUPT_MESSAGE).
    #[error(transparent)]
    Malformed(#[from] BatchError),
    /// The producer's sequence, epoch or transaction forbids it.
    #[error(transparent)]
    Producer(#[from] ProducerError),
    /// The batches do not fit into a segment (RECORD_LIST_TOO_LARGE).
    #[error(transparent)]
    TooLarge(#[from] BatchTooLarge),
    /// Replicated batches whose offsets do not rise.
    #[error(transparent)]
    OffsetsOutOfOrder(#[from] OffsetsOutOfOrder),
    /// Replicated batches that start below the log end.
    #[error(transparent)]
    UnexpectedOffset(#[from] UnexpectedOffset),
    /// Replicated batches that leave out offsets, in a log that has none to leave out.
    #[error(transparent)]
    OffsetsMissing(#[from] OffsetsMissing),
    /// Replicated batches of an epoch that cannot be theirs.
    #[error(transparent)]
    UnexpectedEpoch(#[from] UnexpectedEpoch),
    /// The disk is full: nothing was stored, and a later append may succeed (KAFKA_STORAGE_ERROR).
    #[error("the disk is full: {0}")]
    DiskFull(io::Error),
    /// Too many files are open: nothing was stored, and a later append may succeed (KAFKA_STORAGE_ERROR).
    #[error("too many files are open: {0}")]
    TooManyOpenFiles(io::Error),
    /// A write or a sync has failed before, in this log or another of its directory, and the log is closed for
    /// appends (KAFKA_STORAGE_ERROR).
    #[error("the log is closed for appends: {reason}")]
    Poisoned {
        /// The failure.
        reason: Arc<str>,
    },
    /// The log could not be read or written (KAFKA_STORAGE_ERROR).
    #[error(transparent)]
    Log(LogError),
}

impl From<LogError> for AppendError {
    fn from(error: LogError) -> AppendError {
        match error {
            LogError::Io(error) if disk::lacks_descriptors(&error) => AppendError::TooManyOpenFiles(error),
            other => AppendError::Log(other),
        }
    }
}

/// A log that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// An I/O error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A stored batch is damaged.
    #[error("the segment {segment} is damaged: {fault}")]
    Corrupt {
        /// Base offset of the segment.
        segment: Offset,
        /// Where, and how.
        fault: CorruptBatch,
    },
    /// The records of a batch cannot be read, and its CRC is right: they are as the producer sent them. The log
    /// itself is sound (CORRUPT_MESSAGE).
    #[error(
        "the records of the batch at offset {base_offset} cannot be read, as their producer sent them: {reason}"
    )]
    UnreadableRecords {
        /// Base offset of the batch.
        base_offset: Offset,
        /// The fault.
        reason: String,
    },
    /// The log is damaged where it does not end: it was synced there, or sound batches follow. It is kept as it is.
    #[error("records are damaged from offset {offset} on, in segment {segment}: {fault}")]
    Damaged {
        /// Base offset of the segment.
        segment: Offset,
        /// The first offset that cannot be read.
        offset: Offset,
        /// Where, and how.
        fault: CorruptBatch,
    },
    /// Batches that had been synced are gone from the end of the log.
    #[error("the log ends at offset {log_end}, and had been synced up to offset {synced_to}")]
    EndsEarly {
        /// Where the log ends.
        log_end: Offset,
        /// Up to where it had been synced.
        synced_to: Offset,
    },
    /// A write or a sync has failed before: the log cannot be made durable any more.
    #[error("the log has failed: {reason}")]
    Poisoned {
        /// The failure.
        reason: Arc<str>,
    },
}

impl LogError {
    /// Whether the error is transient and harmless; see [`disk::is_shortage`].
    pub fn is_shortage(&self) -> bool {
        matches!(self, LogError::Io(error) if disk::is_shortage(error))
    }

    /// Adds to a failed walk which segment it was in.
    pub(super) fn in_segment(segment: Offset) -> impl Fn(ScanError) -> LogError {
        move |error| match error {
            ScanError::Io(error) => LogError::Io(error),
            ScanError::Corrupt(fault) => LogError::Corrupt { segment, fault },
        }
    }
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The offset is not in the log (OFFSET_OUT_OF_RANGE).
    #[error(transparent)]
    OutOfRange(#[from] OffsetOutOfRange),
    /// The log could not be read (KAFKA_STORAGE_ERROR).
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Why no records were deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteRecordsError {
    /// The offset is above the high watermark (OFFSET_OUT_OF_RANGE).
    #[error(transparent)]
    OutOfRange(#[from] OffsetOutOfRange),
    /// The log could not be changed (KAFKA_STORAGE_ERROR).
    #[error(transparent)]
    Log(#[from] LogError),
}

/// An offset that is not in the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("offset {offset} is not between {first} and {last}")]
pub struct OffsetOutOfRange {
    /// The requested offset.
    pub offset: Offset,
    /// The smallest that would do.
    pub first: Offset,
    /// The largest that would do.
    pub last: Offset,
}

/// Batches that are larger than a segment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{size_bytes} bytes do not fit into a segment of {segment_bytes}")]
pub struct BatchTooLarge {
    /// Bytes of the batches.
    pub size_bytes: u64,
    /// `segment.bytes`.
    pub segment_bytes: u32,
}

/// Batches whose offsets do not rise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the batch with offsets {first} to {last} comes after one that ends before {expected}")]
pub struct OffsetsOutOfOrder {
    /// Base offset of the batch.
    pub first: Offset,
    /// Its last offset.
    pub last: Offset,
    /// The smallest base offset that would do.
    pub expected: Offset,
}

/// Replicated batches that start below the log end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the batch starts at {first}, below the log end {log_end}")]
pub struct UnexpectedOffset {
    /// Base offset of the first batch.
    pub first: Offset,
    /// The log end.
    pub log_end: Offset,
}

/// Replicated batches that start behind the log end, in a log that is not compacted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the batch starts at {first}, and offsets from {expected} on are missing before it")]
pub struct OffsetsMissing {
    /// Base offset of the batch.
    pub first: Offset,
    /// The base offset that would do.
    pub expected: Offset,
}

/// A replicated batch whose leader epoch is below that of the batch before, or above that of the leader.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the batch at {first} has leader epoch {found}, which is not between {earliest} and {latest}")]
pub struct UnexpectedEpoch {
    /// Base offset of the batch.
    pub first: Offset,
    /// Its epoch.
    pub found: LeaderEpoch,
    /// The epoch of the batch before.
    pub earliest: LeaderEpoch,
    /// The epoch of the leader.
    pub latest: LeaderEpoch,
}
