//! What becomes of a producer's batch before it may be appended: outside the partition's lock, since nothing here
//! depends on what the partition holds.
//!
//! The batch is checked by its header and CRC. Its records are opened only where the topic demands it: a compacted
//! topic, timestamps with bounds that the header cannot answer for, or a `compression.type` that is not the batch's.

use super::AppendError;
use crate::config::{EffectiveTopicConfig, TimestampType, TopicCompression};
use bytes::{Bytes, BytesMut};
use thalweg_record::{
    Batch, BatchBuilder, BatchHeader, BatchOptions, Compression, DecompressBuffer, Header, RecordRules,
    ValidateRecordsError, check, stamp_max_timestamp, validate_records,
};

/// The batch as it will be appended, or why it will not be.
pub(super) fn take(
    records: Bytes,
    settings: &EffectiveTopicConfig,
    now_ms: i64,
) -> Result<(Bytes, BatchHeader), AppendError> {
    let header = check(&records)?;
    let (size, max) = (records.len(), settings.max_message_bytes as usize);
    if size > max {
        return Err(AppendError::TooLarge { size, max });
    }
    let rules = RecordRules {
        now_ms,
        timestamp_type: settings.timestamp_type,
        timestamp_before_max_ms: settings.timestamp_before_max_ms,
        timestamp_after_max_ms: settings.timestamp_after_max_ms,
        compacted: settings.cleanup_policy.compact,
    };
    let wanted = wanted_codec(&header, settings);
    if wanted.is_none() && rules.header_suffices(&header) {
        return Ok((records, header));
    }
    let mut buffer = DecompressBuffer::default();
    let summary = validate_records(&Batch { header, bytes: &records }, &rules, &mut buffer)?;
    let mut records = records;
    if rules.timestamp_type == TimestampType::CreateTime && summary.max_timestamp != header.max_timestamp {
        let mut copy = BytesMut::from(&records[..]);
        stamp_max_timestamp(&mut copy, rules.timestamp_type, summary.max_timestamp)?;
        records = copy.freeze();
    }
    match wanted {
        None => {
            let header = BatchHeader::parse(&records)?;
            Ok((records, header))
        }
        Some((compression, level)) => {
            let (records, header) = recompress(&records, compression, level, &mut buffer)?;
            // What a codec had made small may be large without it.
            let size = records.len();
            if size > max { Err(AppendError::TooLarge { size, max }) } else { Ok((records, header)) }
        }
    }
}

/// The codec that the topic wants and the batch does not have.
fn wanted_codec(header: &BatchHeader, settings: &EffectiveTopicConfig) -> Option<(Compression, Option<i32>)> {
    let (wanted, level) = match settings.compression {
        TopicCompression::Producer => return None,
        TopicCompression::Uncompressed => (Compression::None, None),
        TopicCompression::Gzip(level) => (Compression::Gzip, Some(level)),
        TopicCompression::Snappy => (Compression::Snappy, None),
        TopicCompression::Lz4(level) => (Compression::Lz4, Some(level)),
        TopicCompression::Zstd(level) => (Compression::Zstd, Some(level)),
    };
    (header.attributes.compression().ok() != Some(wanted)).then_some((wanted, level))
}

/// Writes the batch anew with another codec; everything else stays.
fn recompress(
    records: &Bytes,
    compression: Compression,
    compression_level: Option<i32>,
    buffer: &mut DecompressBuffer,
) -> Result<(Bytes, BatchHeader), AppendError> {
    let batch = Batch::parse(records)?;
    let header = batch.header;
    let mut builder = BatchBuilder::new(BatchOptions {
        compression,
        compression_level,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        transactional: header.attributes.is_transactional(),
        ..BatchOptions::default()
    });
    for record in batch.records(buffer).map_err(ValidateRecordsError::from)? {
        let record = record.map_err(ValidateRecordsError::from)?;
        let headers: Vec<Header<'_>> = record.headers.collect();
        let appended = builder.append(record.timestamp, record.key, record.value, &headers);
        appended.map_err(|_| AppendError::TooLarge { size: records.len(), max: i32::MAX as usize })?;
    }
    let bytes = builder.build();
    let header = BatchHeader::parse(&bytes)?;
    Ok((bytes, header))
}
