//! Kafka's v2 record batch: header, CRC, records, compression, validation. No I/O.
//!
//! A batch is opaque to a broker: a batch is read once, by [`check`] and, unless its producer is trusted, by
//! one walk over its records ([`validate_records`]). [`stamped_head`] sets the 16 bytes outside the CRC; the
//! rest is stored and served unchanged. Reading records ([`Batch::records`]) is only for places that need
//! them: recompression, compaction, a lookup by time, control records, coordinators, clients.
//!
//! Bad bytes are errors, never panics, and cost no more memory than the caller's limit: a length in a batch
//! is a bound to check against the bytes at hand, never a size to allocate.
//!
//! ```text
//! byte  0  base offset            i64   ┐
//!       8  batch length           i32   │ outside the CRC: the broker's to write
//!      12  partition leader epoch i32   ┘
//!      16  magic                  i8    (2)
//!      17  CRC-32C of all below   u32
//!      21  attributes             i16   bits: 0-2 codec, 3 timestamp type, 4 transactional, 5 control,
//!                                       6 delete horizon
//!      23  last offset delta      i32
//!      27  base timestamp         i64
//!      35  max timestamp          i64
//!      43  producer id            i64
//!      51  producer epoch         i16
//!      53  base sequence          i32
//!      57  record count           i32
//!      61  records, compressed as one block when the attributes name a codec
//! ```

mod attributes;
mod batch;
mod builder;
mod check;
mod compress;
mod control;
mod crc;
mod decompress;
mod error;
mod header;
mod rebuild;
mod record;
mod stamp;
mod validate;
mod varint;
mod walk;

pub use attributes::{Attributes, Compression, TimestampType};
pub use batch::{Batch, Batches, batches};
pub use builder::{BUILT_BATCH_BYTES_MAX, BatchBuilder, BatchFull, BatchOptions};
pub use check::{check, verify};
pub use control::{ControlRecordType, InvalidControlKey};
pub use crc::crc;
pub use decompress::{
    CorruptPayload, DECOMPRESSED_BYTES_MAX_DEFAULT, DecompressBuffer, DecompressError, DecompressedTooLarge,
    RecordScratch,
};
pub use error::{
    BatchError, BatchLengthTooSmall, ClientControlBatch, ClientLogAppendTime, CrcMismatch,
    InconsistentRecordCount, InvalidBaseSequence, InvalidOffsetRange, InvalidRecordCount, LegacyMagic,
    NonZeroBaseOffset, TrailingBytes, TruncatedBatch, UnknownCompression, UnknownMagic,
};
pub use header::{BatchHeader, LOG_OVERHEAD, NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP};
pub use rebuild::{emptied, rebuild};
pub use record::{
    BytesAfterLastRecord, Header, Headers, MalformedRecord, Record, RecordError, RecordFault, RecordIter,
};
pub use stamp::{
    STAMPED_HEAD_LEN, stamp_head, stamp_log_append_time, stamp_max_timestamp, stamped_head, stamped_header,
};
pub use thalweg_ids::{
    LeaderEpoch, NO_SEQUENCE, Offset, ProducerEpoch, ProducerId, decrement_sequence, increment_sequence,
};
pub use validate::{
    REFUSED_RECORDS_MAX, RecordRules, RecordsSummary, RefusalReason, RefusedRecord, RefusedRecords,
    ValidateRecordsError, validate_each, validate_records,
};
