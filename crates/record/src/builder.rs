//! Builds a batch: records are written consecutively into one buffer, after the space for the header, which
//! is filled in at the end. This is the inner loop of the load generator and of every coordinator's append.
//!
//! An append writes each byte once and allocates nothing once the buffer has grown to the size of a batch:
//! the buffer's length is its capacity, `end` is the position of the next record. With a codec, the records
//! are compressed as a whole into a second buffer when the batch is finished.

use std::fmt;

use bytes::Bytes;

use crate::attributes::{Attributes, Compression, TimestampType};
use crate::compress::Compressor;
use crate::control::ControlRecordType;
use crate::crc::crc;
use crate::header::{ATTRIBUTES_AT, BatchHeader, CRC_AT, LOG_OVERHEAD, NO_TIMESTAMP};
use crate::record::Header;
use crate::varint;
use thalweg_ids::{LeaderEpoch, Offset};
use thalweg_ids::{NO_SEQUENCE, ProducerEpoch, ProducerId};

/// Maximum size of a batch before compression: half of the range of its length field, so that no codec's
/// worst case overflows it.
pub const BUILT_BATCH_BYTES_MAX: usize = 1 << 30;

/// The properties of a batch to build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchOptions {
    /// Base offset; 0 for a producer, because the broker assigns offsets.
    pub base_offset: Offset,
    /// Leader epoch; -1 for a producer.
    pub leader_epoch: LeaderEpoch,
    /// The codec of the records.
    pub compression: Compression,
    /// The codec's level; `None` for Kafka's default. Out-of-range levels are clamped.
    pub compression_level: Option<i32>,
    /// If set, the batch is of type LogAppendTime and this is the time of all its records.
    pub log_append_time_ms: Option<i64>,
    /// The idempotent producer, or [`ProducerId::NONE`].
    pub producer_id: ProducerId,
    /// The producer's epoch, or [`ProducerEpoch::NONE`].
    pub producer_epoch: ProducerEpoch,
    /// The sequence of the first record, or [`NO_SEQUENCE`].
    pub base_sequence: i32,
    /// True if the records belong to a transaction.
    pub transactional: bool,
    /// True if the records are control records.
    pub control: bool,
}

impl Default for BatchOptions {
    /// An uncompressed batch of a producer that is not idempotent.
    fn default() -> BatchOptions {
        BatchOptions {
            base_offset: Offset::ZERO,
            leader_epoch: LeaderEpoch::NONE,
            compression: Compression::None,
            compression_level: None,
            log_append_time_ms: None,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: NO_SEQUENCE,
            transactional: false,
            control: false,
        }
    }
}

/// A record would make the batch larger than [`BUILT_BATCH_BYTES_MAX`]. The batch is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("A record of {record_bytes} bytes does not fit into a batch of {batch_bytes} bytes")]
pub struct BatchFull {
    /// Size of the record.
    pub record_bytes: usize,
    /// Size of the batch without the record.
    pub batch_bytes: usize,
}

/// Builds consecutive batches. See the head of this module.
pub struct BatchBuilder {
    options: BatchOptions,
    compressor: Compressor,
    /// The header's space, the records, and spare room: all initialised, `end` bytes used.
    buffer: Vec<u8>,
    /// The size of an empty buffer's first allocation.
    room: usize,
    end: usize,
    /// The finished batch, if there is a codec.
    compressed: Vec<u8>,
    /// Compressed size of the last finished batch in thousandths of its size: the estimate for the next one.
    ratio_permille: usize,
    bytes_max: usize,
    record_count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl fmt::Debug for BatchBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchBuilder")
            .field("options", &self.options)
            .field("record_count", &self.record_count)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl BatchBuilder {
    /// A builder whose first append allocates a batch of 16 KB, Kafka's default `batch.size`.
    pub fn new(options: BatchOptions) -> BatchBuilder {
        BatchBuilder::with_capacity(options, 16 << 10)
    }

    /// A builder with room for a batch of `bytes`, without reallocation.
    pub fn with_capacity(options: BatchOptions, bytes: usize) -> BatchBuilder {
        BatchBuilder {
            compressor: Compressor::new(options.compression, options.compression_level),
            options,
            buffer: Vec::new(),
            room: bytes.clamp(BatchHeader::LEN, BUILT_BATCH_BYTES_MAX),
            end: BatchHeader::LEN,
            compressed: Vec::new(),
            ratio_permille: 1000,
            bytes_max: BUILT_BATCH_BYTES_MAX,
            record_count: 0,
            base_timestamp: NO_TIMESTAMP,
            max_timestamp: NO_TIMESTAMP,
        }
    }

    /// Forgets the records, and keeps the buffers and options.
    pub fn reset(&mut self) {
        self.end = BatchHeader::LEN;
        self.record_count = 0;
        self.base_timestamp = NO_TIMESTAMP;
        self.max_timestamp = NO_TIMESTAMP;
    }

    /// Sets the producer of this and later batches. Allowed until the batch is finished.
    pub fn set_producer(&mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: i32) {
        self.options.producer_id = id;
        self.options.producer_epoch = epoch;
        self.options.base_sequence = base_sequence;
    }

    /// Sets the base offset of this and later batches.
    pub fn set_base_offset(&mut self, base_offset: Offset) {
        self.options.base_offset = base_offset;
    }

    /// Sets the leader epoch of this and later batches.
    pub fn set_leader_epoch(&mut self, leader_epoch: LeaderEpoch) {
        self.options.leader_epoch = leader_epoch;
    }

    /// Sets the transactional flag of this and later batches.
    pub fn set_transactional(&mut self, transactional: bool) {
        self.options.transactional = transactional;
    }

    /// The properties of the batch.
    pub fn options(&self) -> &BatchOptions {
        &self.options
    }

    /// Records appended since the last reset.
    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    /// True if nothing was appended since the last reset.
    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Bytes of the batch without compression, including the header.
    pub fn uncompressed_bytes(&self) -> usize {
        self.end
    }

    /// Exact size of the batch without a codec; with a codec, the estimate from the previous batch's
    /// compression ratio plus 5 %. A producer sends when this reaches `batch.size`.
    pub fn size_estimate(&self) -> usize {
        if self.options.compression == Compression::None {
            return self.end;
        }
        BatchHeader::LEN + (self.end - BatchHeader::LEN) * self.ratio_permille / 1000 * 105 / 100
    }

    /// Bytes that the record would add, before compression.
    pub fn record_bytes(
        &self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> usize {
        let layout =
            RecordLayout::new(self.timestamp_delta(timestamp), self.record_count, key, value, headers);
        layout.record_bytes
    }

    /// Appends a record. In a LogAppendTime batch, `timestamp` is written anyway, as in Kafka, and ignored by
    /// readers.
    #[inline]
    pub fn append(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> Result<(), BatchFull> {
        let delta = self.timestamp_delta(timestamp);
        let layout = RecordLayout::new(delta, self.record_count, key, value, headers);
        let end = self.end.saturating_add(layout.record_bytes);
        if end > self.buffer.len() {
            self.grow(end)?;
        }
        layout.write(&mut self.buffer[self.end..end], key, value, headers);
        self.end = end;
        if self.record_count == 0 {
            self.base_timestamp = timestamp;
            self.max_timestamp = timestamp;
        } else {
            self.max_timestamp = self.max_timestamp.max(timestamp);
        }
        self.record_count += 1;
        Ok(())
    }

    /// Appends a control record: its kind as the key, and its value.
    pub fn append_control(
        &mut self,
        timestamp: i64,
        kind: ControlRecordType,
        value: &[u8],
    ) -> Result<(), BatchFull> {
        debug_assert!(self.options.control, "control records belong into a control batch");
        self.append(timestamp, Some(&kind.key()), Some(value), &[])
    }

    /// Completes the batch and returns it: fills in header, CRC and compression. Empty if there is no record.
    /// The batch stays until [`BatchBuilder::reset`]; further appends and another finish are allowed.
    pub fn finish(&mut self) -> &[u8] {
        if self.is_empty() {
            return &[];
        }
        if self.options.compression == Compression::None {
            let header = self.header(self.end);
            complete(&mut self.buffer[..self.end], header);
            return &self.buffer[..self.end];
        }
        self.compressed.clear();
        self.compressed.resize(BatchHeader::LEN, 0);
        let payload = &self.buffer[BatchHeader::LEN..self.end];
        self.compressor.compress(payload, &mut self.compressed);
        self.ratio_permille = ((self.compressed.len() - BatchHeader::LEN) * 1000).div_ceil(payload.len());
        let header = self.header(self.compressed.len());
        complete(&mut self.compressed, header);
        &self.compressed
    }

    /// The batch as of the last [`BatchBuilder::finish`], for writing it in several pieces or sending it
    /// again, without another CRC computation.
    pub fn finished(&self) -> &[u8] {
        match self.options.compression {
            _ if self.is_empty() => &[],
            Compression::None => &self.buffer[..self.end],
            _ => &self.compressed,
        }
    }

    /// Completes the batch, returns it without a copy, and resets. The next batch starts with a new buffer of
    /// the same size; to keep the buffer, use [`BatchBuilder::finish`] and [`BatchBuilder::reset`].
    pub fn build(&mut self) -> Bytes {
        let size = self.finish().len();
        let batch = if size == 0 {
            Bytes::new()
        } else if self.options.compression == Compression::None {
            self.room = self.buffer.len();
            let mut batch = std::mem::take(&mut self.buffer);
            batch.truncate(size);
            Bytes::from(batch)
        } else {
            Bytes::from(std::mem::take(&mut self.compressed))
        };
        self.reset();
        batch
    }

    #[inline]
    fn timestamp_delta(&self, timestamp: i64) -> i64 {
        if self.record_count == 0 { 0 } else { timestamp.wrapping_sub(self.base_timestamp) }
    }

    #[cold]
    fn grow(&mut self, end: usize) -> Result<(), BatchFull> {
        if end > self.bytes_max {
            return Err(BatchFull { record_bytes: end - self.end, batch_bytes: self.end });
        }
        let room = end.max(self.buffer.len() * 2).max(self.room).min(self.bytes_max);
        self.buffer.resize(room, 0);
        Ok(())
    }

    fn header(&self, size: usize) -> BatchHeader {
        let options = &self.options;
        let timestamp_type = match options.log_append_time_ms {
            Some(_) => TimestampType::LogAppendTime,
            None => TimestampType::CreateTime,
        };
        BatchHeader {
            base_offset: options.base_offset,
            batch_length: i32::try_from(size - LOG_OVERHEAD).expect("a batch is bounded far below 2 GB"),
            leader_epoch: options.leader_epoch,
            magic: BatchHeader::MAGIC,
            crc: 0,
            attributes: Attributes::new(options.compression, timestamp_type)
                .with_transactional(options.transactional)
                .with_control(options.control),
            last_offset_delta: self.record_count - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: options.log_append_time_ms.unwrap_or(self.max_timestamp),
            producer_id: options.producer_id,
            producer_epoch: options.producer_epoch,
            base_sequence: options.base_sequence,
            record_count: self.record_count,
        }
    }
}

pub(crate) fn complete(batch: &mut [u8], header: BatchHeader) {
    let head = batch.first_chunk_mut().expect("a batch has room for its header");
    header.write(head);
    let crc = crc(batch);
    batch[CRC_AT..ATTRIBUTES_AT].copy_from_slice(&crc.to_be_bytes());
}

/// The sizes of a record about to be written.
pub(crate) struct RecordLayout {
    timestamp_delta: u64,
    offset_delta: u64,
    body_bytes: u64,
    pub(crate) record_bytes: usize,
}

impl RecordLayout {
    #[inline]
    pub(crate) fn new(
        timestamp_delta: i64,
        offset_delta: i32,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> RecordLayout {
        let timestamp_delta = varint::zigzag(timestamp_delta);
        let offset_delta = varint::zigzag(i64::from(offset_delta));
        let mut body = 1 + varint::len(timestamp_delta) + varint::len(offset_delta);
        body += varint::len(varint::zigzag_len(headers.len()));
        body = body.saturating_add(field_bytes(key)).saturating_add(field_bytes(value));
        for header in headers {
            body =
                body.saturating_add(field_bytes(Some(header.key))).saturating_add(field_bytes(header.value));
        }
        let body_bytes = varint::zigzag_len(body);
        let record_bytes = varint::len(body_bytes).saturating_add(body);
        RecordLayout { timestamp_delta, offset_delta, body_bytes, record_bytes }
    }

    /// Writes the record into `out`, which has exactly its size.
    #[inline]
    pub(crate) fn write(
        &self,
        out: &mut [u8],
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) {
        let mut at = 0;
        varint::write(out, &mut at, self.body_bytes);
        out[at] = 0;
        at += 1;
        varint::write(out, &mut at, self.timestamp_delta);
        varint::write(out, &mut at, self.offset_delta);
        write_field(out, &mut at, key);
        write_field(out, &mut at, value);
        varint::write(out, &mut at, varint::zigzag_len(headers.len()));
        for header in headers {
            write_field(out, &mut at, Some(header.key));
            write_field(out, &mut at, header.value);
        }
        debug_assert_eq!(at, out.len(), "a record is as long as its layout says");
    }
}

#[inline]
fn field_bytes(field: Option<&[u8]>) -> usize {
    match field {
        Some(bytes) => varint::len(varint::zigzag_len(bytes.len())).saturating_add(bytes.len()),
        None => 1,
    }
}

#[inline]
fn write_field(out: &mut [u8], at: &mut usize, field: Option<&[u8]>) {
    let Some(bytes) = field else {
        out[*at] = 1;
        *at += 1;
        return;
    };
    varint::write(out, at, varint::zigzag_len(bytes.len()));
    out[*at..*at + bytes.len()].copy_from_slice(bytes);
    *at += bytes.len();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_batch_refuses_and_stays_good() {
        let mut builder = BatchBuilder::with_capacity(BatchOptions::default(), 100);
        builder.bytes_max = 1000;
        for _ in 0..9 {
            builder.append(0, None, Some(&[7; 90]), &[]).expect("fits");
        }
        let full = builder.append(0, None, Some(&[7; 90]), &[]).expect_err("a thousand bytes are too much");
        assert_eq!((full.record_bytes, full.batch_bytes), (99, 61 + 9 * 99));
        builder.append(0, None, Some(&[7; 20]), &[]).expect("a smaller one fits");
        assert_eq!(crate::check(builder.finish()).expect("good").record_count, 10);
    }
}
