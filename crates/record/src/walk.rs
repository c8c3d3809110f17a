//! The walk over the records of a producer's batch: every length and integer is read once, keys and values are
//! passed over. No record is built and nothing is copied or allocated.
//!
//! Owns: what a well-formed record is, for records at hand ([`walk_record`]) and for records that a codec yields
//! in pieces ([`walk_stream`]). Refuses what Kafka's `DefaultRecord.readFrom` refuses. Kafka reads compressed
//! records more loosely on produce (it ignores a record's own length) and refuses such a batch only in its
//! consumers; here it is refused at once.

use crate::decompress::RecordStream;
use crate::record::{BytesAfterLastRecord, MalformedRecord, RecordError, RecordFault};
use crate::varint;

/// A record of more bytes than this is walked field by field as its bytes come, so that it takes no memory.
const WHOLE_RECORD_BYTES_MAX: usize = 64 << 10;
/// The longest integer of a record.
const VARINT_BYTES_MAX: usize = 10;

/// What the walk learns about a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WalkedRecord {
    /// What its timestamp adds to the base timestamp of the batch.
    pub(crate) timestamp_delta: i64,
    /// What its offset adds to the base offset of the batch.
    pub(crate) offset_delta: i32,
    /// Whether it has a key.
    pub(crate) has_key: bool,
}

/// Walks over `count` records that are exactly `bytes`, and gives each to `visit`.
pub(crate) fn walk_slice(
    bytes: &[u8],
    count: i32,
    mut visit: impl FnMut(WalkedRecord),
) -> Result<(), RecordError> {
    let mut at = 0;
    for index in 0..count {
        match walk_record(bytes, at, &mut visit) {
            Ok(Some(end)) => at = end,
            Ok(None) => return Err(MalformedRecord { index, fault: RecordFault::Short }.into()),
            Err(fault) => return Err(MalformedRecord { index, fault }.into()),
        }
    }
    match bytes.len() - at {
        0 => Ok(()),
        trailing => Err(BytesAfterLastRecord { record_count: count, trailing }.into()),
    }
}

/// As [`walk_slice`], over records that are decompressed as they are walked.
pub(crate) fn walk_stream(
    stream: &mut RecordStream<'_, '_>,
    count: i32,
    mut visit: impl FnMut(WalkedRecord),
) -> Result<(), RecordError> {
    let mut index = 0;
    while index < count {
        let (unread, mut at) = (stream.unread(), 0);
        while index < count {
            let walked = walk_record(unread, at, &mut visit);
            let Some(end) = walked.map_err(|fault| MalformedRecord { index, fault })? else { break };
            at = end;
            index += 1;
        }
        stream.consume(at);
        if index == count {
            break;
        }
        if next_size(stream.unread()).is_some_and(|size| size > WHOLE_RECORD_BYTES_MAX) {
            visit(walk_long_record(stream, index)?);
            index += 1;
        } else if !stream.read_more()? {
            return Err(MalformedRecord { index, fault: RecordFault::Short }.into());
        }
    }
    if stream.unread().is_empty() && !stream.read_more()? {
        return Ok(());
    }
    Err(BytesAfterLastRecord { record_count: count, trailing: stream.unread().len() }.into())
}

/// Walks over the record at `at`, gives it to `visit` and returns where it ends; `None`, when it ends after `bytes` do.
#[inline]
fn walk_record(
    bytes: &[u8],
    at: usize,
    visit: &mut impl FnMut(WalkedRecord),
) -> Result<Option<usize>, RecordFault> {
    match walk_plain_record(bytes, at, visit) {
        Some(end) => Ok(Some(end)),
        None => walk_any_record(bytes, at, visit),
    }
}

/// The shortest way over what most records are: small numbers, no headers, and not at the end of the bytes. `None` for
/// any other, good or bad: [`walk_any_record`] decides.
#[inline]
fn walk_plain_record(bytes: &[u8], at: usize, visit: &mut impl FnMut(WalkedRecord)) -> Option<usize> {
    let mut head = SmallIntegers::at(bytes, at)?;
    let size = head.take()?;
    let end = at + head.taken + length_of(size)?;
    head.pass_byte();
    let timestamp_delta = head.take()?;
    let offset_delta = head.take()?;
    let key = head.take()?;
    let value_at = at + head.taken + length_of(key).unwrap_or(0);
    let mut tail = SmallIntegers::at(bytes, value_at)?;
    let value = tail.take()?;
    let headers_at = value_at + tail.taken + length_of(value).unwrap_or(0);
    let is_plain = head.taken <= SmallIntegers::BYTES && headers_at + 1 == end;
    if !is_plain || bytes.get(headers_at) != Some(&0) {
        return None;
    }
    let timestamp_delta = i64::from(varint::signed(timestamp_delta));
    // Given on rather than returned: through registers, a third of the time.
    visit(WalkedRecord {
        timestamp_delta,
        offset_delta: varint::signed(offset_delta),
        has_key: key & 1 == 0,
    });
    Some(end)
}

/// Eight bytes from which integers of up to three bytes each are taken.
struct SmallIntegers {
    word: u64,
    /// Bytes that were taken: more than there are, when the last integer goes beyond them.
    taken: usize,
}

impl SmallIntegers {
    const BYTES: usize = 8;

    #[inline]
    fn at(bytes: &[u8], at: usize) -> Option<SmallIntegers> {
        let word = u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
        Some(SmallIntegers { word, taken: 0 })
    }

    /// The next integer, before its zigzag is undone.
    #[inline]
    fn take(&mut self) -> Option<u32> {
        let word = self.word as u32;
        if word & 0x80 == 0 {
            self.word >>= 8;
            self.taken += 1;
            Some(word & 0x7f)
        } else if word & 0x8000 == 0 {
            self.word >>= 16;
            self.taken += 2;
            Some(word & 0x7f | word >> 1 & 0x3f80)
        } else if word & 0x0080_0000 == 0 {
            self.word >>= 24;
            self.taken += 3;
            Some(word & 0x7f | word >> 1 & 0x3f80 | word >> 2 & 0x001f_c000)
        } else {
            None
        }
    }

    #[inline]
    fn pass_byte(&mut self) {
        self.word >>= 8;
        self.taken += 1;
    }
}

/// A length in zigzag form; none when it is negative.
#[inline]
fn length_of(raw: u32) -> Option<usize> {
    if raw & 1 == 0 { usize::try_from(raw >> 1).ok() } else { None }
}

fn walk_any_record(
    bytes: &[u8],
    mut at: usize,
    visit: &mut impl FnMut(WalkedRecord),
) -> Result<Option<usize>, RecordFault> {
    let size = match varint::read_i32(bytes, &mut at) {
        Ok(size) => usize::try_from(size).map_err(|_| RecordFault::Short)?,
        Err(varint::VarintFault::Short) => return Ok(None),
        Err(fault) => return Err(fault.into()),
    };
    let Some(body) = bytes[at..].get(..size) else { return Ok(None) };
    visit(walk_body(body)?);
    Ok(Some(at + size))
}

/// The size that the next record claims, once that much of it is there.
fn next_size(bytes: &[u8]) -> Option<usize> {
    usize::try_from(varint::read_i32(bytes, &mut 0).ok()?).ok()
}

#[inline]
fn walk_body(body: &[u8]) -> Result<WalkedRecord, RecordFault> {
    // The attributes of a record have no meaning yet.
    let mut at = 1;
    let timestamp_delta = varint::read_i64(body, &mut at)?;
    let offset_delta = varint::read_i32(body, &mut at)?;
    let key_len = varint::read_i32(body, &mut at)?;
    skip(body, &mut at, key_len)?;
    let value_len = varint::read_i32(body, &mut at)?;
    skip(body, &mut at, value_len)?;
    let header_count = varint::read_i32(body, &mut at)?;
    if header_count != 0 {
        walk_headers(body, &mut at, header_count)?;
    }
    if at != body.len() {
        return Err(RecordFault::Long);
    }
    Ok(WalkedRecord { timestamp_delta, offset_delta, has_key: key_len >= 0 })
}

fn walk_headers(body: &[u8], at: &mut usize, count: i32) -> Result<(), RecordFault> {
    if usize::try_from(count).is_ok_and(|count| count > body.len() - *at) || count < 0 {
        return Err(RecordFault::HeaderCount);
    }
    for _ in 0..count {
        let key_len = varint::read_i32(body, at)?;
        if key_len < 0 {
            return Err(RecordFault::NullHeaderKey);
        }
        skip(body, at, key_len)?;
        let value_len = varint::read_i32(body, at)?;
        skip(body, at, value_len)?;
    }
    Ok(())
}

/// Passes over a key or value. Any negative length is null, as in Kafka.
#[inline]
fn skip(body: &[u8], at: &mut usize, len: i32) -> Result<(), RecordFault> {
    if let Ok(len) = usize::try_from(len) {
        if len > body.len() - *at {
            return Err(RecordFault::Short);
        }
        *at += len;
    }
    Ok(())
}

/// Walks over a record that is larger than what is kept of a stream.
fn walk_long_record(stream: &mut RecordStream<'_, '_>, index: i32) -> Result<WalkedRecord, RecordError> {
    let mut record = LongRecord { stream, index, left: VARINT_BYTES_MAX };
    let size = record.number()?;
    record.left = usize::try_from(size).map_err(|_| record.malformed(RecordFault::Short))?;
    record.skip(1)?;
    let timestamp_delta = record.integer()?;
    let offset_delta = record.number()?;
    let key_len = record.number()?;
    record.skip(key_len)?;
    let value_len = record.number()?;
    record.skip(value_len)?;
    let header_count = record.number()?;
    if usize::try_from(header_count).is_ok_and(|count| count > record.left) || header_count < 0 {
        return Err(record.malformed(RecordFault::HeaderCount));
    }
    for _ in 0..header_count {
        let key_len = record.number()?;
        if key_len < 0 {
            return Err(record.malformed(RecordFault::NullHeaderKey));
        }
        record.skip(key_len)?;
        let value_len = record.number()?;
        record.skip(value_len)?;
    }
    if record.left > 0 {
        return Err(record.malformed(RecordFault::Long));
    }
    Ok(WalkedRecord { timestamp_delta, offset_delta, has_key: key_len >= 0 })
}

/// A record of which only a part is in memory at a time.
struct LongRecord<'a, 'p, 's> {
    stream: &'a mut RecordStream<'p, 's>,
    index: i32,
    /// Bytes that the record still has by its own length.
    left: usize,
}

impl LongRecord<'_, '_, '_> {
    fn malformed(&self, fault: RecordFault) -> RecordError {
        MalformedRecord { index: self.index, fault }.into()
    }

    /// Bytes of the next integer, which are there as far as the record and the stream go.
    fn next_bytes(&mut self) -> Result<&[u8], RecordError> {
        let wanted = VARINT_BYTES_MAX.min(self.left);
        while self.stream.unread().len() < wanted && self.stream.read_more()? {}
        let unread = self.stream.unread();
        Ok(&unread[..wanted.min(unread.len())])
    }

    fn integer(&mut self) -> Result<i64, RecordError> {
        let mut at = 0;
        let read = varint::read_i64(self.next_bytes()?, &mut at);
        self.passed(at);
        read.map_err(|fault| self.malformed(fault.into()))
    }

    fn number(&mut self) -> Result<i32, RecordError> {
        let mut at = 0;
        let read = varint::read_i32(self.next_bytes()?, &mut at);
        self.passed(at);
        read.map_err(|fault| self.malformed(fault.into()))
    }

    fn skip(&mut self, len: i32) -> Result<(), RecordError> {
        let Ok(mut len) = usize::try_from(len) else { return Ok(()) };
        if len > self.left {
            return Err(self.malformed(RecordFault::Short));
        }
        loop {
            let step = len.min(self.stream.unread().len());
            self.passed(step);
            len -= step;
            if len == 0 {
                return Ok(());
            }
            if !self.stream.read_more()? {
                return Err(self.malformed(RecordFault::Short));
            }
        }
    }

    fn passed(&mut self, bytes: usize) {
        self.stream.consume(bytes);
        self.left -= bytes;
    }
}
