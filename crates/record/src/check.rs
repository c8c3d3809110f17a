//! Checks of a batch before it is stored: [`verify`] for any batch, [`check`] for a producer's batch. Neither
//! reads the records.
//!
//! The rules are those of Kafka's `UnifiedLog.analyzeAndValidateRecords` and `LogValidator.validateBatch`, in
//! their order, so that a batch with two faults gets Kafka's error code. Not checked here: the topic's size
//! limit, sequences against the producer's state, and the records (`validate_records`).
//!
//! One departure: a batch that claims LogAppendTime is always refused. Kafka refuses it on LogAppendTime
//! topics and silently turns it into CreateTime elsewhere; no producer writes it.

use crate::attributes::{Compression, TimestampType};
use crate::batch::Batch;
use crate::crc::verify_crc;
use crate::error::{
    BatchError, ClientControlBatch, ClientLogAppendTime, InconsistentRecordCount, InvalidBaseSequence,
    InvalidOffsetRange, InvalidRecordCount, NonZeroBaseOffset, TrailingBytes,
};
use crate::header::BatchHeader;
use thalweg_ids::Offset;

/// Size of the smallest record, with null key and value and no headers: a byte each for its length, its
/// attributes, both deltas, both lengths and the count of headers.
const RECORD_BYTES_MIN: usize = 7;

/// Checks that `bytes` are exactly one complete batch with a valid CRC, for recovery and followers.
pub fn verify(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = exactly_one(bytes)?;
    verify_crc(&header, bytes)?;
    Ok(header)
}

/// Checks that `bytes` are exactly one whole batch that a producer may append.
pub fn check(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = exactly_one(bytes)?;
    if header.base_offset != Offset::ZERO {
        return Err(NonZeroBaseOffset { base_offset: header.base_offset }.into());
    }
    verify_crc(&header, bytes)?;
    let compression = header.attributes.compression()?;
    check_producer_rules(&header)?;
    if compression == Compression::None {
        check_room(&header, bytes.len() - BatchHeader::LEN)?;
    }
    Ok(header)
}

fn exactly_one(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let batch = Batch::parse(bytes)?;
    if batch.bytes.len() < bytes.len() {
        let batch_bytes = batch.bytes.len();
        return Err(TrailingBytes { batch_bytes, trailing: bytes.len() - batch_bytes }.into());
    }
    Ok(batch.header)
}

/// Rejects a count that exceeds the size of the records, without reading them: such a count would waste
/// offsets, up to 2^31 per batch.
fn check_room(header: &BatchHeader, records_bytes: usize) -> Result<(), InvalidRecordCount> {
    let record_count = header.record_count;
    match usize::try_from(record_count) {
        Ok(count) if count <= records_bytes / RECORD_BYTES_MIN => Ok(()),
        _ => Err(InvalidRecordCount { record_count }),
    }
}

fn check_producer_rules(header: &BatchHeader) -> Result<(), BatchError> {
    let BatchHeader { last_offset_delta, record_count, .. } = *header;
    if last_offset_delta < 0 {
        return Err(InvalidOffsetRange { last_offset_delta }.into());
    }
    if record_count <= 0 {
        return Err(InvalidRecordCount { record_count }.into());
    }
    if last_offset_delta != record_count - 1 {
        return Err(InconsistentRecordCount { last_offset_delta, record_count }.into());
    }
    if header.attributes.is_control() {
        return Err(ClientControlBatch.into());
    }
    if header.producer_id.is_some() && header.base_sequence < 0 {
        let BatchHeader { producer_id, base_sequence, .. } = *header;
        return Err(InvalidBaseSequence { producer_id, base_sequence }.into());
    }
    if header.attributes.timestamp_type() == TimestampType::LogAppendTime {
        return Err(ClientLogAppendTime.into());
    }
    Ok(())
}
