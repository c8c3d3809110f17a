//! Validates a producer's records by a topic's rules, in one walk: their count matches the header, they are
//! well-formed, offsets have no gaps, compacted topics have keys, timestamps are within bounds (KIP-937).
//! Reports the failed records, as a Produce response does.
//!
//! # Checks that the header alone allows
//! Kafka's `LogValidator` checks every record of every batch, and so does [`validate_records`].
//! [`RecordRules::header_suffices`] decides when the walk can be skipped for trusted producers:
//!
//! - A topic with LogAppendTime has no producer's timestamps to check.
//! - `message.timestamp.after.max.ms` (one hour by default) bounds the largest timestamp, and that is the
//!   header's max timestamp. Only if that timestamp is out of bounds are the records read, to report the
//!   failed ones.
//! - `message.timestamp.before.max.ms` bounds the smallest timestamp, which no header field holds: the base
//!   timestamp is the first record's. The default is unlimited; a topic with a limit pays for the walk.
//! - A header whose max timestamp is before its base timestamp is wrong. The walk returns the true maximum,
//!   which the caller then writes with [`crate::stamp_max_timestamp`], as Kafka does for every batch.
//!
//! Accepted risks if the header suffices:
//!
//! - A max timestamp between the base timestamp and the true maximum is trusted. Such a timestamp affects
//!   only the topic's lookups by time.
//! - Malformed records, or a wrong count, under a valid CRC are stored. The CRC excludes accidents; the
//!   remaining causes are faulty or hostile producers, and the effect is consumers that cannot continue.
//!
//! # Where the walk differs from Kafka's
//! - Offsets with gaps are refused. Kafka stores them unchanged in uncompressed batches, and fails with
//!   UNKNOWN_SERVER_ERROR on other batches unless the topic recompresses.
//! - The decompressed size of a batch is limited; Kafka has no limit.
//! - Compressed records whose own length is wrong are refused; Kafka notices them only in its consumers.

use crate::attributes::{Compression, TimestampType};
use crate::batch::Batch;
use crate::decompress::{DecompressBuffer, RecordScratch};
use crate::error::InvalidRecordCount;
use crate::header::{BatchHeader, NO_TIMESTAMP};
use crate::record::{Record, RecordError};
use crate::walk::{WalkedRecord, walk_slice, walk_stream};
use thalweg_ids::Offset;

/// Maximum number of failed records that are listed; others are only counted.
pub const REFUSED_RECORDS_MAX: usize = 1000;

/// A topic's rules for records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordRules {
    /// The broker's time, the reference of the timestamp bounds.
    pub now_ms: i64,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// True if `cleanup.policy` contains `compact`.
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

    /// True if a batch with this header satisfies the rules, provided that its producer wrote the records
    /// that it describes. See the head of this module for the reasons.
    pub fn header_suffices(&self, header: &BatchHeader) -> bool {
        if self.compacted {
            return false;
        }
        if self.timestamp_type == TimestampType::LogAppendTime {
            return true;
        }
        header.max_timestamp >= header.base_timestamp
            && self.timestamp_before_max_ms == i64::MAX
            && self.is_in_bounds(header.max_timestamp)
            && self.is_in_bounds(header.base_timestamp)
    }

    /// The minimum and maximum timestamp of the topic. Kafka computes the difference to its clock in wrapping
    /// 64 bits: even if the past is not limited, a timestamp 2^63 ms ago is too old.
    fn timestamp_bounds(&self) -> (i64, i64) {
        let earliest = self.now_ms.saturating_sub(self.timestamp_before_max_ms);
        (earliest, self.now_ms.saturating_add(self.timestamp_after_max_ms))
    }

    fn is_in_bounds(&self, timestamp: i64) -> bool {
        let (earliest, latest) = self.timestamp_bounds();
        timestamp == NO_TIMESTAMP || (earliest <= timestamp && timestamp <= latest)
    }
}

/// The result of [`validate_records`] for a valid batch.
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
    /// The records are unreadable.
    #[error(transparent)]
    Unreadable(#[from] RecordError),
    /// Some records violate the topic's rules.
    #[error(transparent)]
    Refused(#[from] RefusedRecords),
}

/// A batch with records that violate the topic's rules. Kafka refuses the whole batch: INVALID_TIMESTAMP if
/// any record is refused for its timestamp, else INVALID_RECORD, with the records' indexes and messages in
/// the response.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{total} records were refused; the first: {}", .records[0])]
pub struct RefusedRecords {
    /// The refused records, up to [`REFUSED_RECORDS_MAX`]; at least one.
    pub records: Vec<RefusedRecord>,
    /// Number of refused records.
    pub total: usize,
    /// True if any record was refused for its timestamp.
    pub for_timestamp: bool,
}

/// A record that violates the topic's rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("record {index}: {reason}")]
pub struct RefusedRecord {
    /// The index of the record in the batch, from 0: Kafka's `BatchIndex`.
    pub index: i32,
    /// The reason, with the text of Kafka's `BatchIndexErrorMessage`.
    pub reason: RefusalReason,
}

/// Why a record violates the topic's rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RefusalReason {
    /// The record has no key, in a compacted topic.
    #[error("a compacted topic takes no record without a key")]
    MissingKey,
    /// The timestamp is out of bounds: the producer's clock or data is wrong.
    #[error("timestamp {timestamp} is out of range, it should be within [{earliest}, {latest}]")]
    TimestampOutOfRange {
        /// The record's timestamp, in milliseconds.
        timestamp: i64,
        /// The minimum, in milliseconds.
        earliest: i64,
        /// The maximum, in milliseconds.
        latest: i64,
    },
    /// The offsets of a producer's batch have a gap.
    #[error("offset {found} should be {expected}")]
    OffsetGap {
        /// The expected offset: base offset plus index.
        expected: Offset,
        /// The record's offset.
        found: Offset,
    },
}

/// Walks over all records of a batch once and checks them against `rules`, without a copy or an allocation.
/// Compressed records are decompressed piece by piece into `scratch`, up to `limit_bytes`.
pub fn validate_records(
    batch: &Batch<'_>,
    rules: &RecordRules,
    scratch: &mut RecordScratch,
    limit_bytes: usize,
) -> Result<RecordsSummary, ValidateRecordsError> {
    let BatchHeader { attributes, record_count, .. } = batch.header;
    if record_count < 0 {
        return Err(RecordError::from(InvalidRecordCount { record_count }).into());
    }
    let compression = attributes.compression().map_err(RecordError::from)?;
    let mut judge = Judge::new(&batch.header, rules);
    if compression == Compression::None {
        walk_slice(batch.payload(), record_count, |record| judge.judge(record))?;
        return judge.end(batch.payload().len());
    }
    let walked = scratch
        .stream(compression, batch.payload(), limit_bytes)
        .map_err(RecordError::from)
        .and_then(|mut stream| {
            walk_stream(&mut stream, record_count, |record| judge.judge(record))?;
            Ok(stream.bytes())
        });
    scratch.trim();
    judge.end(walked?)
}

/// Validates like [`validate_records`], for callers that need the records: each record is passed to `take`,
/// even if a later one is refused. Compressed records are decompressed as a whole into `buffer`.
pub fn validate_each<'b>(
    batch: &Batch<'b>,
    rules: &RecordRules,
    buffer: &'b mut DecompressBuffer,
    mut take: impl FnMut(&Record<'b>),
) -> Result<RecordsSummary, ValidateRecordsError> {
    let mut judge = Judge::new(&batch.header, rules);
    let records = batch.records(buffer)?;
    let payload_bytes = records.payload_bytes();
    for record in records {
        let record = record?;
        let offset_delta = record.offset.0.wrapping_sub(batch.header.base_offset.0);
        judge.judge(WalkedRecord {
            timestamp_delta: record.timestamp.wrapping_sub(batch.header.base_timestamp),
            offset_delta: i32::try_from(offset_delta).expect("it was read from 32 bits"),
            has_key: record.key.is_some(),
        });
        take(&record);
    }
    judge.end(payload_bytes)
}

/// The state of validating a batch's records.
struct Judge {
    base_offset: Offset,
    /// Base of the timestamp deltas; in a LogAppendTime batch the append time, with a delta mask of 0.
    base_timestamp: i64,
    timestamp_delta_mask: i64,
    needs_key: bool,
    /// The timestamp rules, as precomputed bounds.
    earliest: i64,
    latest: i64,
    index: i32,
    max_timestamp: i64,
    max_timestamp_index: i32,
    refused: RefusedRecords,
}

impl Judge {
    fn new(header: &BatchHeader, rules: &RecordRules) -> Judge {
        let by_broker = header.attributes.timestamp_type() == TimestampType::LogAppendTime;
        let (earliest, latest) = match rules.timestamp_type {
            TimestampType::CreateTime => rules.timestamp_bounds(),
            TimestampType::LogAppendTime => (i64::MIN, i64::MAX),
        };
        Judge {
            base_offset: header.base_offset,
            base_timestamp: if by_broker { header.max_timestamp } else { header.base_timestamp },
            timestamp_delta_mask: if by_broker { 0 } else { -1 },
            needs_key: rules.compacted,
            earliest,
            latest,
            index: 0,
            max_timestamp: NO_TIMESTAMP,
            max_timestamp_index: 0,
            refused: RefusedRecords { records: Vec::new(), total: 0, for_timestamp: false },
        }
    }

    #[inline]
    fn judge(&mut self, record: WalkedRecord) {
        let WalkedRecord { timestamp_delta, offset_delta, has_key } = record;
        let timestamp = self.base_timestamp.wrapping_add(timestamp_delta & self.timestamp_delta_mask);
        let is_in_bounds = self.earliest <= timestamp && timestamp <= self.latest;
        if offset_delta != self.index || !is_in_bounds || (self.needs_key && !has_key) {
            self.look_closer(timestamp, offset_delta, has_key);
        }
        if timestamp > self.max_timestamp {
            (self.max_timestamp, self.max_timestamp_index) = (timestamp, self.index);
        }
        self.index += 1;
    }

    /// Refuses a record, unless it only lacks a timestamp. A missing key takes precedence over an offset gap,
    /// and that over a timestamp.
    #[cold]
    fn look_closer(&mut self, timestamp: i64, offset_delta: i32, has_key: bool) {
        let offset = |delta: i32| Offset(self.base_offset.0.wrapping_add(i64::from(delta)));
        let reason = if self.needs_key && !has_key {
            RefusalReason::MissingKey
        } else if offset_delta != self.index {
            RefusalReason::OffsetGap { expected: offset(self.index), found: offset(offset_delta) }
        } else if timestamp == NO_TIMESTAMP {
            return;
        } else {
            self.refused.for_timestamp = true;
            RefusalReason::TimestampOutOfRange { timestamp, earliest: self.earliest, latest: self.latest }
        };
        self.refused.total += 1;
        if self.refused.records.len() < REFUSED_RECORDS_MAX {
            self.refused.records.push(RefusedRecord { index: self.index, reason });
        }
    }

    fn end(self, payload_bytes: usize) -> Result<RecordsSummary, ValidateRecordsError> {
        if self.refused.total > 0 {
            return Err(self.refused.into());
        }
        let max_timestamp_offset =
            Offset(self.base_offset.0.wrapping_add(i64::from(self.max_timestamp_index)));
        Ok(RecordsSummary { max_timestamp: self.max_timestamp, max_timestamp_offset, payload_bytes })
    }
}
