//! Records: the walk over the records of a batch, and the fields of a record (Kafka's `DefaultRecord`).
//!
//! A record owns nothing: key, value and headers are slices of the batch, or of the decompression buffer.
//! Reading a record also walks its headers, so that every returned record is completely well-formed.
//!
//! ```text
//! length varint | attributes i8 (unused) | timestamp delta varlong | offset delta varint
//! | key length varint (-1 null), key | value length varint (-1 null), value
//! | header count varint, then for each: key length varint, key | value length varint (-1 null), value
//! ```

use crate::attributes::TimestampType;
use crate::batch::Batch;
use crate::decompress::{DecompressBuffer, DecompressError};
use crate::error::{InvalidRecordCount, UnknownCompression};
use crate::header::BatchHeader;
use crate::varint::{self, VarintFault};
use thalweg_ids::Offset;
use thalweg_ids::{NO_SEQUENCE, increment_sequence};

/// Errors of reading the records of a batch. Kafka: INVALID_RECORD for all of them.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// The codec is unknown.
    #[error(transparent)]
    UnknownCompression(#[from] UnknownCompression),
    /// Decompression failed, or its output exceeds the limit.
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    /// The header's count is negative.
    #[error(transparent)]
    InvalidRecordCount(#[from] InvalidRecordCount),
    /// A record is not well-formed.
    #[error(transparent)]
    Malformed(#[from] MalformedRecord),
    /// Bytes follow the last record.
    #[error(transparent)]
    TrailingBytes(#[from] BytesAfterLastRecord),
}

/// A record that is not well-formed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Record {index} of the batch is malformed: {fault}")]
pub struct MalformedRecord {
    /// The index of the record in the batch, from 0.
    pub index: i32,
    pub fault: RecordFault,
}

/// The fault of a malformed record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordFault {
    /// The batch, or the record's own length, ends before the end of the record.
    #[error("its bytes end early")]
    Short,
    /// The record's fields end before the end of its length.
    #[error("its length exceeds its fields")]
    Long,
    /// An integer has more bytes than its maximum.
    #[error("an integer does not end")]
    Varint,
    /// The number of headers is negative, or larger than the number of bytes left.
    #[error("its header count is impossible")]
    HeaderCount,
    /// A header has no key.
    #[error("a header key is null")]
    NullHeaderKey,
}

impl From<VarintFault> for RecordFault {
    fn from(fault: VarintFault) -> RecordFault {
        match fault {
            VarintFault::Short => RecordFault::Short,
            VarintFault::Long => RecordFault::Varint,
        }
    }
}

/// Bytes follow the last record, by the header's count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{trailing} bytes follow the last of {record_count} records")]
pub struct BytesAfterLastRecord {
    /// The count in the header.
    pub record_count: i32,
    /// Number of bytes after the last record, decompressed.
    pub trailing: usize,
}

/// A record of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The record's offset in the log, from the batch's base offset.
    pub offset: Offset,
    /// Milliseconds; the batch's max timestamp for LogAppendTime; -1 if there is none.
    pub timestamp: i64,
    /// The record's sequence; -1 if there is none.
    pub sequence: i32,
    /// The key; `None` for null.
    pub key: Option<&'a [u8]>,
    /// The value; `None` for a tombstone.
    pub value: Option<&'a [u8]>,
    /// The headers, in order.
    pub headers: Headers<'a>,
}

/// A header of a record, read or to be appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header<'a> {
    /// The key: UTF-8 by convention, which is not checked.
    pub key: &'a [u8],
    /// The value; `None` for null.
    pub value: Option<&'a [u8]>,
}

impl<'a> Header<'a> {
    /// A header to append.
    pub fn new(key: &'a str, value: Option<&'a [u8]>) -> Header<'a> {
        Header { key: key.as_bytes(), value }
    }

    /// The key as text; `None` unless UTF-8.
    pub fn key_str(&self) -> Option<&'a str> {
        std::str::from_utf8(self.key).ok()
    }
}

/// The headers of a record, read one by one from the record's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    remaining: i32,
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        if self.remaining == 0 {
            return None;
        }
        self.remaining -= 1;
        let mut at = 0;
        let header = read_header(self.bytes, &mut at).expect("reading the record walked its headers");
        self.bytes = &self.bytes[at..];
        Some(header)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let remaining =
            usize::try_from(self.remaining).expect("the count is not negative once the record is read");
        (remaining, Some(remaining))
    }
}

impl ExactSizeIterator for Headers<'_> {}

impl<'a> Batch<'a> {
    /// The records of the batch. Compressed records are decompressed as a whole into `buffer`, up to its
    /// limit; uncompressed records are read in place, without touching `buffer`.
    pub fn records<'b>(&self, buffer: &'b mut DecompressBuffer) -> Result<RecordIter<'b>, RecordError>
    where
        'a: 'b,
    {
        let header = &self.header;
        if header.record_count < 0 {
            return Err(InvalidRecordCount { record_count: header.record_count }.into());
        }
        let payload = buffer.decompress(header.attributes.compression()?, self.payload())?;
        Ok(RecordIter::new(header, payload))
    }
}

/// The records of a batch, in order; ends after the header's count or after the first error.
#[derive(Clone, Debug)]
pub struct RecordIter<'a> {
    bytes: &'a [u8],
    at: usize,
    index: i32,
    record_count: i32,
    base_offset: Offset,
    base_timestamp: i64,
    base_sequence: i32,
    log_append_time_ms: Option<i64>,
}

impl<'a> RecordIter<'a> {
    fn new(header: &BatchHeader, bytes: &'a [u8]) -> RecordIter<'a> {
        let by_broker = header.attributes.timestamp_type() == TimestampType::LogAppendTime;
        RecordIter {
            bytes,
            at: 0,
            index: 0,
            record_count: header.record_count,
            base_offset: header.base_offset,
            base_timestamp: header.base_timestamp,
            base_sequence: header.base_sequence,
            log_append_time_ms: by_broker.then_some(header.max_timestamp),
        }
    }

    /// Total size of the records, decompressed.
    pub fn payload_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn read(&mut self) -> Result<Record<'a>, RecordFault> {
        let size = varint::read_i32(self.bytes, &mut self.at)?;
        let size = usize::try_from(size).map_err(|_| RecordFault::Short)?;
        let rest = &self.bytes[self.at..];
        let body = rest.get(..size).ok_or(RecordFault::Short)?;
        self.at += size;
        self.read_body(body)
    }

    fn read_body(&self, body: &'a [u8]) -> Result<Record<'a>, RecordFault> {
        // The attributes of a record are unused.
        let mut at = 1;
        let timestamp_delta = varint::read_i64(body, &mut at)?;
        let offset_delta = varint::read_i32(body, &mut at)?;
        let key = read_field(body, &mut at)?;
        let value = read_field(body, &mut at)?;
        let headers = read_headers(body, &mut at)?;
        if at != body.len() {
            return Err(RecordFault::Long);
        }
        Ok(Record {
            offset: Offset(self.base_offset.0.wrapping_add(i64::from(offset_delta))),
            timestamp: match self.log_append_time_ms {
                Some(time_ms) => time_ms,
                None => self.base_timestamp.wrapping_add(timestamp_delta),
            },
            sequence: if self.base_sequence < 0 || offset_delta < 0 {
                NO_SEQUENCE
            } else {
                increment_sequence(self.base_sequence, offset_delta)
            },
            key,
            value,
            headers,
        })
    }

    /// Makes every later call return `None`.
    fn end(&mut self) {
        self.index = self.record_count;
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.index == self.record_count {
            return None;
        }
        let index = self.index;
        let record = match self.read() {
            Ok(record) => record,
            Err(fault) => {
                self.end();
                return Some(Err(MalformedRecord { index, fault }.into()));
            }
        };
        self.index += 1;
        if self.index == self.record_count && self.at != self.bytes.len() {
            let trailing = self.bytes.len() - self.at;
            return Some(Err(BytesAfterLastRecord { record_count: self.record_count, trailing }.into()));
        }
        Some(Ok(record))
    }
}

impl std::iter::FusedIterator for RecordIter<'_> {}

fn read_field<'a>(body: &'a [u8], at: &mut usize) -> Result<Option<&'a [u8]>, RecordFault> {
    // Any negative length is null, as in Kafka.
    let Ok(len) = usize::try_from(varint::read_i32(body, at)?) else {
        return Ok(None);
    };
    let field = body[*at..].get(..len).ok_or(RecordFault::Short)?;
    *at += len;
    Ok(Some(field))
}

fn read_headers<'a>(body: &'a [u8], at: &mut usize) -> Result<Headers<'a>, RecordFault> {
    let count = varint::read_i32(body, at)?;
    let bytes = &body[*at..];
    if usize::try_from(count).is_ok_and(|count| count <= bytes.len()) {
        for _ in 0..count {
            read_header(body, at)?;
        }
        Ok(Headers { bytes, remaining: count })
    } else {
        Err(RecordFault::HeaderCount)
    }
}

fn read_header<'a>(bytes: &'a [u8], at: &mut usize) -> Result<Header<'a>, RecordFault> {
    let key = read_field(bytes, at)?.ok_or(RecordFault::NullHeaderKey)?;
    let value = read_field(bytes, at)?;
    Ok(Header { key, value })
}
