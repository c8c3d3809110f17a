//! The bytes that the broker writes into an appended batch.
//!
//! Base offset, length and leader epoch are the first 16 bytes and are outside the CRC: a patched copy of
//! them and the received rest form the stored batch ([`stamped_head`]). The timestamps are covered by the
//! CRC: [`stamped_header`] returns the 61 patched bytes with the new CRC, so that even a LogAppendTime topic
//! copies no record. Both have forms that patch in place.
//!
//! Compressed batches are no exception: compression begins after the header, and readers take the time of
//! every record of a LogAppendTime batch from its max timestamp.

use crate::attributes::TimestampType;
use crate::batch::Batch;
use crate::crc::{crc, crc_of};
use crate::error::BatchError;
use crate::header::{
    ATTRIBUTES_AT, BatchHeader, CRC_AT, LAST_OFFSET_DELTA_AT, LENGTH_AT, LOG_OVERHEAD, MAX_TIMESTAMP_AT,
};
use thalweg_ids::{LeaderEpoch, Offset};

/// Bytes of a batch outside its CRC, written by the broker.
pub const STAMPED_HEAD_LEN: usize = 16;

/// The first 16 bytes of the batch with `header`, with its assigned offset and epoch.
pub fn stamped_head(
    header: &BatchHeader,
    base_offset: Offset,
    leader_epoch: LeaderEpoch,
) -> [u8; STAMPED_HEAD_LEN] {
    let mut head = [0; STAMPED_HEAD_LEN];
    head[..LENGTH_AT].copy_from_slice(&base_offset.0.to_be_bytes());
    head[LENGTH_AT..LOG_OVERHEAD].copy_from_slice(&header.batch_length.to_be_bytes());
    head[LOG_OVERHEAD..].copy_from_slice(&leader_epoch.0.to_be_bytes());
    head
}

/// Writes base offset and leader epoch into a batch in place.
///
/// # Panics
/// If `batch` is shorter than 16 bytes.
pub fn stamp_head(batch: &mut [u8], base_offset: Offset, leader_epoch: LeaderEpoch) {
    batch[..LENGTH_AT].copy_from_slice(&base_offset.0.to_be_bytes());
    batch[LOG_OVERHEAD..STAMPED_HEAD_LEN].copy_from_slice(&leader_epoch.0.to_be_bytes());
}

/// The 61 header bytes of `batch` with its assigned offset and epoch, and with the timestamp of a
/// LogAppendTime topic if `log_append_time_ms` is given. Only then is the CRC recomputed.
pub fn stamped_header(
    batch: &Batch<'_>,
    base_offset: Offset,
    leader_epoch: LeaderEpoch,
    log_append_time_ms: Option<i64>,
) -> [u8; BatchHeader::LEN] {
    let mut header = BatchHeader { base_offset, leader_epoch, ..batch.header };
    let Some(now_ms) = log_append_time_ms else {
        return header.to_bytes();
    };
    header.attributes = header.attributes.with_timestamp_type(TimestampType::LogAppendTime);
    header.max_timestamp = now_ms;
    let mut head = header.to_bytes();
    let crc = crc_of(&[&head[ATTRIBUTES_AT..], batch.payload()]);
    head[CRC_AT..ATTRIBUTES_AT].copy_from_slice(&crc.to_be_bytes());
    head
}

/// Turns a whole batch into one of a LogAppendTime topic: sets the attribute bit, the max timestamp and the
/// CRC.
pub fn stamp_log_append_time(batch: &mut [u8], now_ms: i64) -> Result<BatchHeader, BatchError> {
    stamp_max_timestamp(batch, TimestampType::LogAppendTime, now_ms)
}

/// Sets timestamp type and max timestamp of a whole batch (Kafka's `setMaxTimestamp`), with a new CRC if
/// either changes; bytes after the batch are ignored. Returns the new header.
pub fn stamp_max_timestamp(
    batch: &mut [u8],
    timestamp_type: TimestampType,
    max_timestamp: i64,
) -> Result<BatchHeader, BatchError> {
    let mut header = Batch::parse(batch)?.header;
    if header.attributes.timestamp_type() == timestamp_type && header.max_timestamp == max_timestamp {
        return Ok(header);
    }
    let batch = &mut batch[..header.size_bytes()];
    header.attributes = header.attributes.with_timestamp_type(timestamp_type);
    header.max_timestamp = max_timestamp;
    batch[ATTRIBUTES_AT..LAST_OFFSET_DELTA_AT].copy_from_slice(&header.attributes.0.to_be_bytes());
    batch[MAX_TIMESTAMP_AT..MAX_TIMESTAMP_AT + 8].copy_from_slice(&max_timestamp.to_be_bytes());
    header.crc = crc(batch);
    batch[CRC_AT..ATTRIBUTES_AT].copy_from_slice(&header.crc.to_be_bytes());
    Ok(header)
}
