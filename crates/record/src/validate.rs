//! Checks that need the records themselves: keys on compacted topics, timestamps out of bounds (KIP-937),
//! offsets without gaps. Says which record failed, as a Produce response does.
//!
//! # What the header alone can tell
//! Kafka's `LogValidator` looks at every record of every batch. [`RecordRules::header_suffices`] says when
//! that can be left out, which with Kafka's default settings is always:
//!
//! - A topic with LogAppendTime has no producer's timestamps to check.
//! - `message.timestamp.after.max.ms` (one hour by default) bounds the largest timestamp, and that is the
//!   header's max timestamp. Only when it is out of bounds are the records read, to name the ones that are.
//! - `message.timestamp.before.max.ms` bounds the smallest, which no field holds: the base timestamp is the
//!   first record's. By default it is unlimited; a topic that limits it pays for the walk.
//! - A header whose max timestamp lies before its base timestamp is wrong. The walk gives the true one, which
//!   the caller then writes with [`crate::stamp_max_timestamp`], as Kafka does for every batch.
//!
//! What is given up where the header suffices, and Kafka would notice:
//!
//! - A max timestamp between the base timestamp and the true maximum is believed, where Kafka would correct it. It
//!   harms the topic's lookups by time, and nothing else.
//! - Records that are not what the header counts, or not well-formed, under a CRC that is right: Kafka refuses the
//!   batch, here its consumers do. The CRC rules accidents out; what is left is a producer that is broken.
//!
//! Another departure: Kafka rewrites compressed batches whose offsets have gaps (very old clients wrote
//! them); here they are refused.

use crate::attributes::TimestampType;
use crate::batch::Batch;
use crate::decompress::DecompressBuffer;
use crate::header::{BatchHeader, NO_TIMESTAMP};
use crate::offset::Offset;
use crate::record::{Record, RecordError};

/// How many failed records are named; the rest are only counted.
pub const REFUSED_RECORDS_MAX: usize = 1000;

/// What a topic demands of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordRules {
    /// The broker's time, which the timestamps' bounds count from.
    pub now_ms: i64,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// Whether `cleanup.policy` contains `compact`.
    pub compacted: bool,
}

impl RecordRules {
    /// Kafka's default topic settings at the time `now_ms`.
    pub fn defaults(now_ms: i64) -> RecordRules {
        RecordRules {
            now_ms,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            compacted: false,
        }
    }

    /// Whether a batch with this header satisfies the rules for certain, so that its records need not be
    /// read. See the head of this module for why.
    pub fn header_suffices(&self, header: &BatchHeader) -> bool {
        if self.compacted {
            return false;
        }
        if self.timestamp_type == TimestampType::LogAppendTime {
            return true;
        }
        header.max_timestamp >= header.base_timestamp
            && self.timestamp_before_max_ms == i64::MAX
            && self.is_early_enough(header.max_timestamp)
    }

    fn is_early_enough(&self, timestamp: i64) -> bool {
        timestamp.saturating_sub(self.now_ms) <= self.timestamp_after_max_ms
    }

    fn is_late_enough(&self, timestamp: i64) -> bool {
        self.now_ms.saturating_sub(timestamp) <= self.timestamp_before_max_ms
    }

    /// What is wrong with the record at `expected`, when something is. The key counts before the timestamp.
    fn refuse(&self, record: &Record<'_>, expected: Offset) -> Option<RefusalReason> {
        if self.compacted && record.key.is_none() {
            return Some(RefusalReason::MissingKey);
        }
        if record.offset != expected {
            return Some(RefusalReason::OffsetGap { expected, found: record.offset });
        }
        let timestamp = record.timestamp;
        let bounded = self.timestamp_type == TimestampType::CreateTime && timestamp != NO_TIMESTAMP;
        if bounded && !(self.is_early_enough(timestamp) && self.is_late_enough(timestamp)) {
            return Some(RefusalReason::TimestampOutOfRange {
                timestamp,
                earliest: self.now_ms.saturating_sub(self.timestamp_before_max_ms),
                latest: self.now_ms.saturating_add(self.timestamp_after_max_ms),
            });
        }
        None
    }
}

/// What [`validate_records`] learns about the records of a good batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordsSummary {
    /// The largest timestamp of the records, which the header should have as its max timestamp.
    pub max_timestamp: i64,
    /// The offset of the first record with that timestamp.
    pub max_timestamp_offset: Offset,
    /// Bytes of the records, decompressed.
    pub payload_bytes: usize,
}

/// Why [`validate_records`] refuses a batch.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ValidateRecordsError {
    /// The records cannot be read.
    #[error(transparent)]
    Unreadable(#[from] RecordError),
    /// The topic does not want some of them.
    #[error(transparent)]
    Refused(#[from] RefusedRecords),
}

/// A batch with records that the topic does not want. Kafka refuses the whole batch: INVALID_TIMESTAMP when
/// any record is refused for its timestamp, else INVALID_RECORD, with the records' indexes and messages in
/// the response.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{total} records were refused; the first: {}", .records[0])]
pub struct RefusedRecords {
    /// The refused records, up to [`REFUSED_RECORDS_MAX`]; at least one.
    pub records: Vec<RefusedRecord>,
    /// How many were refused.
    pub total: usize,
    /// Whether any of them was refused for its timestamp.
    pub for_timestamp: bool,
}

/// A record that the topic does not want.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("record {index}: {reason}")]
pub struct RefusedRecord {
    /// Which record of the batch, from 0: Kafka's `BatchIndex`.
    pub index: i32,
    /// Why; its text is what Kafka's `BatchIndexErrorMessage` says.
    pub reason: RefusalReason,
}

/// Why a topic does not want a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RefusalReason {
    /// Compaction has nothing to compact by.
    #[error("a compacted topic takes no record without a key")]
    MissingKey,
    /// The producer's clock, or its data, is too far off.
    #[error("timestamp {timestamp} is out of range, it should be within [{earliest}, {latest}]")]
    TimestampOutOfRange {
        /// Of the record, in milliseconds.
        timestamp: i64,
        /// The earliest that the topic takes.
        earliest: i64,
        /// The latest that the topic takes.
        latest: i64,
    },
    /// The offsets of a producer's batch count up without gaps.
    #[error("offset {found} should be {expected}")]
    OffsetGap {
        /// The base offset and the record's index.
        expected: Offset,
        /// The record's.
        found: Offset,
    },
}

/// Reads all records of a batch and checks them against `rules`. `buffer` is what compressed records are
/// decompressed to.
pub fn validate_records(
    batch: &Batch<'_>,
    rules: &RecordRules,
    buffer: &mut DecompressBuffer,
) -> Result<RecordsSummary, ValidateRecordsError> {
    let base_offset = batch.header.base_offset;
    let records = batch.records(buffer)?;
    let payload_bytes = records.payload_bytes();
    let mut summary =
        RecordsSummary { max_timestamp: NO_TIMESTAMP, max_timestamp_offset: base_offset, payload_bytes };
    let mut refused = RefusedRecords { records: Vec::new(), total: 0, for_timestamp: false };
    for (index, record) in (0i32..).zip(records) {
        let record = record?;
        let expected = Offset(base_offset.0.saturating_add(i64::from(index)));
        if let Some(reason) = rules.refuse(&record, expected) {
            refused.total += 1;
            refused.for_timestamp |= matches!(reason, RefusalReason::TimestampOutOfRange { .. });
            if refused.records.len() < REFUSED_RECORDS_MAX {
                refused.records.push(RefusedRecord { index, reason });
            }
        }
        if record.timestamp > summary.max_timestamp {
            summary.max_timestamp = record.timestamp;
            summary.max_timestamp_offset = record.offset;
        }
    }
    if refused.total == 0 { Ok(summary) } else { Err(refused.into()) }
}
