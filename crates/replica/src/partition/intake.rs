//! Validates a producer's batch before it is appended, outside the partition's lock, because nothing here
//! depends on the partition's content.
//!
//! The header and CRC of the batch are checked, and then the records are walked once, without a copy. With
//! `thalweg.produce.validation=header`, the records are walked only if the topic requires checks beyond the
//! header. If the topic's `compression.type` differs from the batch's codec, the records are read and
//! rewritten in the same pass.
//!
//! Owns the bound on that work: a request decompresses as much as its [`DecompressionBudget`] allows on the
//! task of its connection, and the rest on a separate thread. Refuses batches whose decompressed records
//! exceed [`DECOMPRESSED_BYTES_MAX_DEFAULT`].

use super::LeaderAppendError;
use bytes::{Bytes, BytesMut};
use std::cell::RefCell;
use thalweg_config::{EffectiveTopicConfig, TimestampType, TopicCompression};
use thalweg_record::{
    Batch, BatchBuilder, BatchFull, BatchHeader, BatchOptions, Compression, DECOMPRESSED_BYTES_MAX_DEFAULT,
    DecompressBuffer, DecompressError, Header, RecordError, RecordRules, RecordScratch, ValidateRecordsError,
    check, stamp_max_timestamp, validate_each, validate_records,
};

/// Decompressed bytes that one request may validate on the task of its connection: about 20 ms of gzip, the
/// slowest codec.
const INLINE_BYTES: usize = 4 << 20;
/// Cost of a recompressed byte, relative to a decompressed one.
const RECOMPRESSION_COST: usize = 16;
/// Divisor of the cost of a byte without a codec.
const UNCOMPRESSED_DISCOUNT: usize = 8;

thread_local! {
    /// The walk's scratch memory, one per thread.
    static SCRATCH: RefCell<RecordScratch> = RefCell::default();
}

/// Bytes of records that a request may still decompress or walk.
#[derive(Debug)]
pub struct DecompressionBudget {
    bytes: usize,
}

impl DecompressionBudget {
    /// The budget of a request, on the task of its connection.
    pub fn inline() -> DecompressionBudget {
        DecompressionBudget { bytes: INLINE_BYTES }
    }

    /// The budget of one batch, on a separate thread.
    pub fn whole() -> DecompressionBudget {
        DecompressionBudget { bytes: usize::MAX }
    }

    fn spend(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// A batch that may be appended.
#[derive(Debug)]
pub(super) enum ValidatedBatch {
    Unchanged,
    /// With another max timestamp or in another codec.
    Rewritten(Bytes),
}

/// Validates the batch, or returns the reason for refusing it; `None` if validation exceeds the budget.
pub(super) fn take(
    records: &Bytes,
    settings: &EffectiveTopicConfig,
    now_ms: i64,
    budget: &mut DecompressionBudget,
) -> Result<Option<ValidatedBatch>, LeaderAppendError> {
    let header = check(records)?;
    let (size, max) = (records.len(), settings.max_message_bytes as usize);
    if size > max {
        return Err(LeaderAppendError::TooLarge { size, max });
    }
    let rules = RecordRules {
        now_ms,
        timestamp_type: settings.timestamp_type,
        timestamp_before_max_ms: settings.timestamp_before_max_ms,
        timestamp_after_max_ms: settings.timestamp_after_max_ms,
        compacted: settings.cleanup_policy.compact,
    };
    let batch = Batch { header, bytes: records };
    let wanted = wanted_codec(&header, settings);
    if wanted.is_none() && !settings.validates_records && rules.header_suffices(&header) {
        return Ok(Some(ValidatedBatch::Unchanged));
    }
    // The output size of a codec is not known beforehand; the size of an uncompressed batch is.
    let cost = match header.attributes.compression() {
        Ok(Compression::None) if wanted.is_some() => Some(size.saturating_mul(RECOMPRESSION_COST)),
        Ok(Compression::None) => Some(size / UNCOMPRESSED_DISCOUNT),
        _ => None,
    };
    if cost.map_or(budget.bytes == 0, |cost| cost > budget.bytes) {
        return Ok(None);
    }
    let taken = match wanted {
        Some(wanted) => recompress(&batch, &rules, wanted, max, budget),
        None => walk(&batch, &rules, budget),
    };
    taken.map(Some).or_else(|error| {
        let was_short = budget.bytes < DECOMPRESSED_BYTES_MAX_DEFAULT && is_too_large(&error);
        // The progress of the codec is unknown: it may have used all of its budget, and many such batches may
        // follow.
        budget.spend(cost.unwrap_or(budget.bytes));
        if was_short { Ok(None) } else { Err(error) }
    })
}

fn is_too_large(error: &LeaderAppendError) -> bool {
    use ValidateRecordsError::Unreadable;
    matches!(
        error,
        LeaderAppendError::Records(Unreadable(RecordError::Decompress(DecompressError::TooLarge(_))))
    )
}

/// Walks over the records, and corrects a wrong max timestamp in the header.
fn walk(
    batch: &Batch<'_>,
    rules: &RecordRules,
    budget: &mut DecompressionBudget,
) -> Result<ValidatedBatch, LeaderAppendError> {
    let limit = budget.bytes.min(DECOMPRESSED_BYTES_MAX_DEFAULT);
    let summary = SCRATCH.with_borrow_mut(|scratch| validate_records(batch, rules, scratch, limit))?;
    budget.spend(match batch.header.attributes.compression() {
        Ok(Compression::None) => summary.payload_bytes / UNCOMPRESSED_DISCOUNT,
        _ => summary.payload_bytes,
    });
    if rules.timestamp_type == TimestampType::LogAppendTime
        || summary.max_timestamp == batch.header.max_timestamp
    {
        return Ok(ValidatedBatch::Unchanged);
    }
    let mut copy = BytesMut::from(batch.bytes);
    stamp_max_timestamp(&mut copy, rules.timestamp_type, summary.max_timestamp)?;
    Ok(ValidatedBatch::Rewritten(copy.freeze()))
}

/// The topic's codec, if the batch has another.
fn wanted_codec(header: &BatchHeader, settings: &EffectiveTopicConfig) -> Option<(Compression, Option<i32>)> {
    let (wanted, level) = match settings.compression() {
        TopicCompression::Producer => return None,
        TopicCompression::Uncompressed => (Compression::None, None),
        TopicCompression::Gzip(level) => (Compression::Gzip, Some(level)),
        TopicCompression::Snappy => (Compression::Snappy, None),
        TopicCompression::Lz4(level) => (Compression::Lz4, Some(level)),
        TopicCompression::Zstd(level) => (Compression::Zstd, Some(level)),
    };
    (header.attributes.compression().ok() != Some(wanted)).then_some((wanted, level))
}

/// Reads the records and writes them with another codec; everything else stays.
fn recompress(
    batch: &Batch<'_>,
    rules: &RecordRules,
    (compression, compression_level): (Compression, Option<i32>),
    max: usize,
    budget: &mut DecompressionBudget,
) -> Result<ValidatedBatch, LeaderAppendError> {
    let limit = (budget.bytes / RECOMPRESSION_COST).min(DECOMPRESSED_BYTES_MAX_DEFAULT);
    let header = &batch.header;
    let mut builder = BatchBuilder::new(BatchOptions {
        compression,
        compression_level,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        transactional: header.attributes.is_transactional(),
        ..BatchOptions::default()
    });
    let mut buffer = DecompressBuffer::new(limit);
    let mut headers: Vec<Header<'_>> = Vec::new();
    let mut full: Result<(), BatchFull> = Ok(());
    let summary = validate_each(batch, rules, &mut buffer, |record| {
        headers.clear();
        headers.extend(record.headers);
        if full.is_ok() {
            full = builder.append(record.timestamp, record.key, record.value, &headers);
        }
    })?;
    full.map_err(|_| LeaderAppendError::TooLarge { size: batch.bytes.len(), max: i32::MAX as usize })?;
    budget.spend(summary.payload_bytes.saturating_mul(RECOMPRESSION_COST));
    let bytes = builder.build();
    // A compressed batch may be large when decompressed.
    let size = bytes.len();
    if size > max {
        Err(LeaderAppendError::TooLarge { size, max })
    } else {
        Ok(ValidatedBatch::Rewritten(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_config::{BrokerConfig, ServerProperties};

    fn settings() -> EffectiveTopicConfig {
        let config = BrokerConfig::new(&ServerProperties::default()).expect("the defaults are valid");
        config.topic_defaults.apply(&Default::default()).0
    }

    fn gzip(value: &[u8]) -> Bytes {
        let options = BatchOptions { compression: Compression::Gzip, ..BatchOptions::default() };
        let mut builder = BatchBuilder::new(options);
        builder.append(1_700_000_000_000, None, Some(value), &[]).expect("fits");
        builder.build()
    }

    fn taken(
        records: &Bytes,
        budget: &mut DecompressionBudget,
    ) -> Result<Option<ValidatedBatch>, LeaderAppendError> {
        take(records, &settings(), 1_700_000_000_000, budget)
    }

    #[test]
    fn a_batch_that_is_left_for_later_has_cost_its_budget() {
        let (bomb, small) = (gzip(&vec![0; 2 * INLINE_BYTES]), gzip(b"small"));
        let mut budget = DecompressionBudget::inline();
        assert!(matches!(taken(&small, &mut budget), Ok(Some(ValidatedBatch::Unchanged))));
        assert!(matches!(taken(&bomb, &mut budget), Ok(None)), "too much for here");
        assert!(matches!(taken(&small, &mut budget), Ok(None)), "nothing is left of the budget");
        assert!(matches!(
            taken(&small, &mut DecompressionBudget::whole()),
            Ok(Some(ValidatedBatch::Unchanged))
        ));
    }

    #[test]
    fn a_batch_that_is_refused_has_cost_its_budget() {
        let (good, small) = (gzip(&vec![0; INLINE_BYTES / 2]), gzip(b"small"));
        let mut bad = good.to_vec();
        let end = bad.len();
        // The codec's checksum at the end of the batch.
        bad[end - 8] ^= 1;
        let crc = thalweg_record::crc(&bad).to_be_bytes();
        bad[17..21].copy_from_slice(&crc);
        let mut budget = DecompressionBudget::inline();
        assert!(taken(&Bytes::from(bad), &mut budget).is_err());
        assert!(matches!(taken(&small, &mut budget), Ok(None)), "nothing is left of the budget");
    }
}
