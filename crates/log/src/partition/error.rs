//! Errors of the operations on a partition.

use std::io;
use std::sync::Arc;

use thalweg_record::{BatchError, LeaderEpoch, Offset};

use crate::disk;
use crate::producers::ProducerError;
use crate::scan::{CorruptBatch, ScanError};

/// Why an append failed.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The bytes are not batches (CORRUPT_MESSAGE).
    #[error(transparent)]
    Malformed(#[from] BatchError),
    /// The producer's sequence, epoch or transaction forbids it.
    #[error(transparent)]
    Producer(#[from] ProducerError),
    /// The batches do not fit into a segment (RECORD_LIST_TOO_LARGE).
    #[error(transparent)]
    TooLarge(#[from] BatchTooLarge),
    /// The offsets of replicated batches do not increase.
    #[error(transparent)]
    OffsetsOutOfOrder(#[from] OffsetsOutOfOrder),
    /// Replicated batches start below the log end.
    #[error(transparent)]
    UnexpectedOffset(#[from] UnexpectedOffset),
    /// Replicated batches skip offsets, in a log without gaps.
    #[error(transparent)]
    OffsetsMissing(#[from] OffsetsMissing),
    /// A replicated batch has an impossible leader epoch.
    #[error(transparent)]
    UnexpectedEpoch(#[from] UnexpectedEpoch),
    /// The disk is full: nothing was stored, and a later append may succeed (KAFKA_STORAGE_ERROR).
    #[error("the disk is full: {0}")]
    DiskFull(io::Error),
    /// Too many files are open: nothing was stored, and a later append may succeed (KAFKA_STORAGE_ERROR).
    #[error("too many files are open: {0}")]
    TooManyOpenFiles(io::Error),
    /// A write or a sync has failed before, in this log or another log of its directory, and the log is
    /// closed for appends (KAFKA_STORAGE_ERROR).
    #[error("the log is closed for appends: {reason}")]
    Poisoned {
        /// The earlier failure.
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
        /// Position and cause.
        fault: CorruptBatch,
    },
    /// The records of a batch are unreadable, and its CRC is valid: the producer sent them so. The log itself
    /// is sound (CORRUPT_MESSAGE).
    #[error(
        "the records of the batch at offset {base_offset} cannot be read, as their producer sent them: {reason}"
    )]
    UnreadableRecords {
        /// Base offset of the batch.
        base_offset: Offset,
        reason: String,
    },
    /// The log is damaged before its end: the damaged part was synced, or sound batches follow. The log is
    /// kept unchanged.
    #[error("records are damaged from offset {offset} on, in segment {segment}: {fault}")]
    Damaged {
        /// Base offset of the segment.
        segment: Offset,
        /// The first offset that cannot be read.
        offset: Offset,
        /// Position and cause.
        fault: CorruptBatch,
    },
    /// Synced batches are missing from the end of the log.
    #[error("the log ends at offset {log_end}, and had been synced up to offset {synced_to}")]
    EndsEarly {
        /// The current log end.
        log_end: Offset,
        /// The end of the batches that were synced.
        synced_to: Offset,
    },
    /// A write or a sync has failed before: the log can no longer be made durable.
    #[error("the log has failed: {reason}")]
    Poisoned {
        /// The earlier failure.
        reason: Arc<str>,
    },
}

impl LogError {
    /// True if the error is transient and harmless; see [`disk::is_shortage`].
    pub fn is_shortage(&self) -> bool {
        matches!(self, LogError::Io(error) if disk::is_shortage(error))
    }

    /// Adds the segment to the error of a failed walk.
    pub(super) fn in_segment(segment: Offset) -> impl Fn(ScanError) -> LogError {
        move |error| match error {
            ScanError::Io(error) => LogError::Io(error),
            ScanError::Corrupt(fault) => LogError::Corrupt { segment, fault },
        }
    }
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The offset is not in the log (OFFSET_OUT_OF_RANGE).
    #[error(transparent)]
    OutOfRange(#[from] OffsetOutOfRange),
    /// The log could not be read (KAFKA_STORAGE_ERROR).
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Why records were not deleted.
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
    /// The smallest valid offset.
    pub first: Offset,
    /// The largest valid offset.
    pub last: Offset,
}

/// Batches larger than a segment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{size_bytes} bytes do not fit into a segment of {segment_bytes}")]
pub struct BatchTooLarge {
    /// Total size of the batches in bytes.
    pub size_bytes: u64,
    pub segment_bytes: u32,
}

/// Batches whose offsets do not increase.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the batch with offsets {first} to {last} comes after one that ends before {expected}")]
pub struct OffsetsOutOfOrder {
    /// Base offset of the batch.
    pub first: Offset,
    /// Last offset of the batch.
    pub last: Offset,
    /// The smallest valid base offset.
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

/// Replicated batches that start after the log end, in a log without compaction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the batch starts at {first}, and offsets from {expected} on are missing before it")]
pub struct OffsetsMissing {
    /// Base offset of the batch.
    pub first: Offset,
    /// The expected base offset.
    pub expected: Offset,
}

/// A replicated batch whose leader epoch is below that of the previous batch, or above that of the leader.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the batch at {first} has leader epoch {found}, which is not between {earliest} and {latest}")]
pub struct UnexpectedEpoch {
    /// Base offset of the batch.
    pub first: Offset,
    /// The leader epoch of the batch.
    pub found: LeaderEpoch,
    /// The epoch of the previous batch.
    pub earliest: LeaderEpoch,
    /// The epoch of the leader.
    pub latest: LeaderEpoch,
}
