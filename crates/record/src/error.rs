//! Faults of a batch, one struct per failure. Each gives Kafka's error code; the broker does the mapping,
//! because this crate does not know the protocol.

use thalweg_ids::Offset;
use thalweg_ids::ProducerId;

/// Errors of [`crate::batches`], [`crate::verify`] and [`crate::check`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchError {
    /// The bytes end before the end of the batch.
    #[error(transparent)]
    Truncated(#[from] TruncatedBatch),
    /// The length field is too small for a header.
    #[error(transparent)]
    LengthTooSmall(#[from] BatchLengthTooSmall),
    /// A message set of magic 0 or 1.
    #[error(transparent)]
    LegacyMagic(#[from] LegacyMagic),
    /// No format has this magic.
    #[error(transparent)]
    UnknownMagic(#[from] UnknownMagic),
    /// Bytes follow the only allowed batch.
    #[error(transparent)]
    TrailingBytes(#[from] TrailingBytes),
    /// The bytes do not match the CRC.
    #[error(transparent)]
    CrcMismatch(#[from] CrcMismatch),
    /// The codec is unknown.
    #[error(transparent)]
    UnknownCompression(#[from] UnknownCompression),
    /// A producer assigned offsets.
    #[error(transparent)]
    NonZeroBaseOffset(#[from] NonZeroBaseOffset),
    /// The last offset is below the base offset.
    #[error(transparent)]
    InvalidOffsetRange(#[from] InvalidOffsetRange),
    /// The batch claims to have no records.
    #[error(transparent)]
    InvalidRecordCount(#[from] InvalidRecordCount),
    /// The count and the offsets disagree.
    #[error(transparent)]
    InconsistentRecordCount(#[from] InconsistentRecordCount),
    /// A producer wrote a control batch.
    #[error(transparent)]
    ClientControlBatch(#[from] ClientControlBatch),
    /// A producer claims the broker's timestamp type.
    #[error(transparent)]
    ClientLogAppendTime(#[from] ClientLogAppendTime),
    /// An idempotent batch has no sequence.
    #[error(transparent)]
    InvalidBaseSequence(#[from] InvalidBaseSequence),
}

/// The bytes end before the end of the batch: the usual tail of a fetch. Kafka, from a producer:
/// INVALID_RECORD (Kafka then sees no batch).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Record batch needs {needed} bytes, but only {available} are present")]
pub struct TruncatedBatch {
    /// Bytes that the batch needs, as far as known.
    pub needed: usize,
    /// Number of available bytes.
    pub available: usize,
}

/// The length field leaves no room for a header. Kafka: CORRUPT_MESSAGE. Also the result of reading the
/// preallocated empty end of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Batch length {batch_length} is smaller than the 49 bytes of a v2 header")]
pub struct BatchLengthTooSmall {
    /// The length field.
    pub batch_length: i32,
}

/// A message set of magic 0 or 1, which no Produce version that Kafka 4 serves may carry. Kafka:
/// INVALID_RECORD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Message format v{magic} is no longer supported")]
pub struct LegacyMagic {
    /// 0 or 1.
    pub magic: i8,
}

/// No format has this magic. Kafka: CORRUPT_MESSAGE.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Invalid magic found in record: {magic}")]
pub struct UnknownMagic {
    /// The magic byte.
    pub magic: i8,
}

/// A produce request carries exactly one batch per partition. Kafka: INVALID_RECORD for a second batch,
/// CORRUPT_MESSAGE for most other bytes; Kafka ignores up to 11 bytes, which no client relies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{trailing} bytes follow the record batch of {batch_bytes} bytes")]
pub struct TrailingBytes {
    /// Size of the batch, with its offset and length.
    pub batch_bytes: usize,
    /// Bytes after it.
    pub trailing: usize,
}

/// The bytes do not match the CRC. Kafka: CORRUPT_MESSAGE.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Record is corrupt (stored crc = {stored}, computed crc = {computed})")]
pub struct CrcMismatch {
    /// The CRC in the header.
    pub stored: u32,
    /// The CRC of the bytes.
    pub computed: u32,
}

/// Codec ids 5 to 7 belong to no codec. Kafka: an IllegalArgumentException, which clients see as
/// UNKNOWN_SERVER_ERROR; UNSUPPORTED_COMPRESSION_TYPE is more precise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Unknown compression type id: {id}")]
pub struct UnknownCompression {
    /// The three codec bits.
    pub id: u8,
}

/// The broker assigns offsets: a producer's batch starts at 0. Kafka: INVALID_RECORD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("The baseOffset of the record batch should be 0, but it is {base_offset}")]
pub struct NonZeroBaseOffset {
    /// The producer's value.
    pub base_offset: Offset,
}

/// The last offset is below the base offset. Kafka: INVALID_RECORD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Batch has an invalid offset range: last offset delta {last_offset_delta}")]
pub struct InvalidOffsetRange {
    /// The negative delta.
    pub last_offset_delta: i32,
}

/// A producer's batch holds at least one record, and no more than its bytes can contain. Kafka:
/// INVALID_RECORD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Invalid reported count for record batch: {record_count}")]
pub struct InvalidRecordCount {
    /// The count in the header.
    pub record_count: i32,
}

/// A producer's batch has no gaps: the count is the last offset delta plus one. Kafka: INVALID_RECORD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Inconsistent batch: last offset delta {last_offset_delta} and count of records {record_count}")]
pub struct InconsistentRecordCount {
    /// The last offset delta in the header.
    pub last_offset_delta: i32,
    /// The count in the header.
    pub record_count: i32,
}

/// Only coordinators write control records. Kafka: INVALID_RECORD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Clients are not allowed to write control records")]
pub struct ClientControlBatch;

/// Only the broker sets LogAppendTime. Kafka: INVALID_TIMESTAMP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Producer should not set timestamp type to LogAppendTime")]
pub struct ClientLogAppendTime;

/// A batch with a producer id has a sequence. Kafka: INVALID_RECORD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Invalid sequence number {base_sequence} in record batch with producerId {producer_id}")]
pub struct InvalidBaseSequence {
    /// The producer of the batch.
    pub producer_id: ProducerId,
    /// The negative sequence.
    pub base_sequence: i32,
}
