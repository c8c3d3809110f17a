//! The walk over the records of a producer's batch: every length and integer is read once, keys and values
//! are skipped. The walk builds no record, and neither copies nor allocates.
//!
//! Owns: the definition of a well-formed record, for records in memory ([`walk_slice`]) and records
//! decompressed in pieces ([`walk_stream`]). Refuses the same records as Kafka's `DefaultRecord.readFrom`.
//! Kafka reads compressed records more loosely on produce (ignoring a record's own length) and refuses a
//! wrong length only in its consumers; this walk refuses it at once.

use std::mem::replace;
use std::ops::Range;

use crate::decompress::RecordStream;
use crate::record::{BytesAfterLastRecord, MalformedRecord, RecordError, RecordFault};
use crate::varint;

/// Maximum size of a record that is walked as a whole. A larger record is walked field by field as its bytes
/// arrive, so that it takes no memory.
const WHOLE_RECORD_BYTES_MAX: usize = 64 << 10;
/// Maximum size of an integer in a record.
const VARINT_BYTES_MAX: usize = 10;

/// The fields of a record that the walk returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WalkedRecord {
    /// Difference of the record's timestamp to the base timestamp of the batch.
    pub(crate) timestamp_delta: i64,
    /// Difference of the record's offset to the base offset of the batch.
    pub(crate) offset_delta: i32,
    /// True if the record has a key.
    pub(crate) has_key: bool,
}

/// Walks over `count` records that fill `bytes` exactly, and passes each to `visit`.
pub(crate) fn walk_slice(
    bytes: &[u8],
    count: i32,
    mut visit: impl FnMut(WalkedRecord),
) -> Result<(), RecordError> {
    let (end, index) = walk_whole_records(bytes, 0, count, &mut visit)?;
    if index < count {
        return Err(MalformedRecord { index, fault: RecordFault::Short }.into());
    }
    match bytes.len() - end {
        0 => Ok(()),
        trailing => Err(BytesAfterLastRecord { record_count: count, trailing }.into()),
    }
}

/// Walks like [`walk_slice`], over records that are decompressed during the walk.
pub(crate) fn walk_stream(
    stream: &mut RecordStream<'_, '_>,
    count: i32,
    mut visit: impl FnMut(WalkedRecord),
) -> Result<(), RecordError> {
    let mut index = 0;
    while index < count {
        let end;
        (end, index) = walk_whole_records(stream.unread(), index, count, &mut visit)?;
        stream.consume(end);
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

/// Walks over the records from `index` on, until `count`, or until the next record exceeds `bytes`. Returns
/// the end of the last record and the index of the next.
#[inline(never)] // Its loops want all registers: inlined, records of varying sizes take 10 % longer.
fn walk_whole_records(
    bytes: &[u8],
    mut index: i32,
    count: i32,
    visit: &mut impl FnMut(WalkedRecord),
) -> Result<(usize, i32), MalformedRecord> {
    let (mut at, mut size) = (0, 0);
    while index < count {
        let Some(end) = walk_plain_record(bytes, at, visit) else {
            match walk_any_record(bytes, at, visit) {
                Ok(Some(end)) => at = end,
                Ok(None) => break,
                Err(fault) => return Err(MalformedRecord { index, fault }),
            }
            index += 1;
            continue;
        };
        index += 1;
        let size_before = replace(&mut size, end - at);
        if size == size_before
            && let Some(shape) = Shape::of_plain(&bytes[at..], size)
        {
            let alike = shape.walk(&bytes[end..], count - index, visit);
            at = end + alike as usize * size;
            index += alike;
        } else {
            at = end;
        }
    }
    Ok((at, index))
}

/// Fast path for most records: small numbers, no headers, and not at the end of the bytes. `None` for any
/// other, valid or not: [`walk_any_record`] decides.
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
    // Passed on rather than returned: in registers, this takes a third of the time.
    visit(WalkedRecord {
        timestamp_delta,
        offset_delta: varint::signed(offset_delta),
        has_key: key & 1 == 0,
    });
    Some(end)
}

/// The common shape of a run of records: size, key length, value length, and the widths of both deltas.
///
/// A walk that reads the size of a record to find the next one waits for memory at every record. With an
/// assumed shape, that of the previous record, two comparisons confirm the next record without waiting: a
/// record takes less than half the time.
struct Shape {
    size: usize,
    /// The bits of a record's first word that its shape fixes: all except the attributes, the timestamp delta
    /// and the bytes after the key's length.
    head_mask: u64,
    /// The masked bits of the first record.
    head: u64,
    /// Increment of `head` for the next offset delta. All its bytes but the last have the continuation bit,
    /// also after a carry.
    offset_step: u64,
    offset_continues: u64,
    offset_delta: i32,
    /// The first offset delta that needs more bytes.
    offset_delta_end: i32,
    timestamp_bits: u64,
    timestamp_shift: usize,
    has_key: bool,
    value_at: usize,
    /// The mask for the bits of the value's length.
    tail_mask: u64,
    tail: u64,
}

impl Shape {
    /// The shape of the record at the start of `bytes`, which [`walk_plain_record`] has accepted.
    #[cold]
    fn of_plain(bytes: &[u8], size: usize) -> Option<Shape> {
        let mut integers = SmallIntegers::at(bytes, 0)?;
        let head = integers.word;
        integers.take()?;
        let attributes_at = integers.taken;
        integers.pass_byte();
        let timestamp_at = integers.taken;
        integers.take()?;
        let offset_at = integers.taken;
        let offset_delta = varint::signed(integers.take()?);
        let key_at = integers.taken;
        let key = integers.take()?;
        let key_bytes_at = integers.taken;
        let value_at = key_bytes_at + length_of(key).unwrap_or(0);
        let mut integers = SmallIntegers::at(bytes, value_at)?;
        let tail = integers.word;
        integers.take()?;
        let tail_mask = byte_mask(0..integers.taken);
        let timestamp_bits = byte_mask(timestamp_at..offset_at) & !SmallIntegers::CONTINUES;
        let head_mask =
            byte_mask(0..key_bytes_at) & !byte_mask(attributes_at..timestamp_at) & !timestamp_bits;
        // A negative offset delta would count down, and is refused anyway.
        (offset_delta >= 0).then_some(Shape {
            size,
            head_mask,
            head: head & head_mask,
            offset_step: 2 << (8 * offset_at),
            offset_continues: head & byte_mask(offset_at..key_at) & SmallIntegers::CONTINUES,
            offset_delta,
            offset_delta_end: 1 << (7 * (key_at - offset_at) - 1),
            timestamp_bits,
            timestamp_shift: 8 * timestamp_at,
            has_key: key & 1 == 0,
            value_at,
            tail_mask,
            tail: tail & tail_mask,
        })
    }

    /// Walks over records of this shape after the first, up to `count`, and returns their number.
    #[inline(never)]
    fn walk(&self, bytes: &[u8], count: i32, visit: &mut impl FnMut(WalkedRecord)) -> i32 {
        let first = self.offset_delta + 1;
        let end = first.saturating_add(count).min(self.offset_delta_end);
        let (mut expected, mut offset_delta) = (self.head, first);
        // Most records have the timestamp of the previous one.
        let (mut timestamp, mut timestamp_delta) = (0, 0);
        for record in bytes.windows(self.size + SmallIntegers::BYTES).step_by(self.size) {
            expected = (expected + self.offset_step) | self.offset_continues;
            let (Some(head), Some(tail)) = (word(record, 0), word(record, self.value_at)) else { break };
            let is_alike = head & self.head_mask == expected && tail & self.tail_mask == self.tail;
            let has_headers = record[self.size - 1] != 0;
            if !is_alike || has_headers || offset_delta >= end {
                break;
            }
            if head & self.timestamp_bits != timestamp {
                timestamp = head & self.timestamp_bits;
                let raw = without_continues((timestamp >> self.timestamp_shift) as u32);
                timestamp_delta = i64::from(varint::signed(raw));
            }
            visit(WalkedRecord { timestamp_delta, offset_delta, has_key: self.has_key });
            offset_delta += 1;
        }
        offset_delta - first
    }
}

/// The bits of these bytes, at least one, in a word.
fn byte_mask(bytes: Range<usize>) -> u64 {
    (u64::MAX >> (64 - 8 * bytes.len())) << (8 * bytes.start)
}

#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The low seven bits of each of three bytes.
#[inline]
fn without_continues(bytes: u32) -> u32 {
    bytes & 0x7f | bytes >> 1 & 0x3f80 | bytes >> 2 & 0x1f_c000
}

/// Eight bytes from which integers of up to three bytes are taken.
struct SmallIntegers {
    word: u64,
    /// Number of consumed bytes: more than available if the last integer exceeds them.
    taken: usize,
}

impl SmallIntegers {
    const BYTES: usize = 8;
    /// The continuation bit of each byte.
    const CONTINUES: u64 = 0x8080_8080_8080_8080;

    #[inline]
    fn at(bytes: &[u8], at: usize) -> Option<SmallIntegers> {
        Some(SmallIntegers { word: word(bytes, at)?, taken: 0 })
    }

    /// The next integer, in zigzag form.
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
            Some(without_continues(word))
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

/// A length from its zigzag form; `None` if negative.
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

/// The size claimed by the next record, once enough of its bytes are available.
fn next_size(bytes: &[u8]) -> Option<usize> {
    usize::try_from(varint::read_i32(bytes, &mut 0).ok()?).ok()
}

#[inline]
fn walk_body(body: &[u8]) -> Result<WalkedRecord, RecordFault> {
    // The attributes of a record are unused.
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

/// Skips a key or value. Any negative length is null, as in Kafka.
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

/// Walks over a record larger than the window of a stream.
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

/// A record with only a part in memory at any time.
struct LongRecord<'a, 'p, 's> {
    stream: &'a mut RecordStream<'p, 's>,
    index: i32,
    /// Number of bytes left in the record, by its own length.
    left: usize,
}

impl LongRecord<'_, '_, '_> {
    fn malformed(&self, fault: RecordFault) -> RecordError {
        MalformedRecord { index: self.index, fault }.into()
    }

    /// The bytes of the next integer, as far as the record and the stream go.
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

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::{BatchBuilder, BatchHeader, BatchOptions, Header};

    type Outcome = (Result<(), RecordError>, Vec<WalkedRecord>);

    fn walked(bytes: &[u8], count: i32) -> Outcome {
        let mut records = Vec::new();
        (walk_slice(bytes, count, |record| records.push(record)), records)
    }

    fn walked_field_by_field(bytes: &[u8], count: i32) -> Outcome {
        let (mut at, mut records) = (0, Vec::new());
        for index in 0..count {
            match walk_any_record(bytes, at, &mut |record| records.push(record)) {
                Ok(Some(end)) => at = end,
                Ok(None) => {
                    return (Err(MalformedRecord { index, fault: RecordFault::Short }.into()), records);
                }
                Err(fault) => return (Err(MalformedRecord { index, fault }.into()), records),
            }
        }
        let trailing = bytes.len() - at;
        let error = BytesAfterLastRecord { record_count: count, trailing };
        (if trailing == 0 { Ok(()) } else { Err(error.into()) }, records)
    }

    fn one_below(random: &mut SmallRng, limits: &[usize]) -> usize {
        let limit = limits[random.random_range(0..limits.len())];
        random.random_range(0..limit)
    }

    /// Runs of records of one shape, as most producers write them, with interruptions.
    fn random_records(random: &mut SmallRng, runs: usize, run_max: usize) -> (Vec<u8>, i32) {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        let (key, value) = ([7; 200], [0x81; 9000]);
        for _ in 0..runs {
            let key_len = one_below(random, &[4, 70, 200]);
            let value_len = one_below(random, &[4, 4, 150, 150, 150, 150, 1000, 9000]);
            let key = random.random_bool(0.7).then_some(&key[..key_len]);
            let value = random.random_bool(0.9).then_some(&value[..value_len]);
            let headers = [Header::new("h", None)];
            let headers = if random.random_bool(0.1) { &headers[..] } else { &[] };
            let spread = [1, 3, 200, 20_000, 1 << 40][random.random_range(0..5)];
            for _ in 0..random.random_range(1..=run_max) {
                let timestamp = random.random_range(-spread..spread);
                builder.append(timestamp, key, value, headers).expect("far from full");
            }
        }
        (builder.finish()[BatchHeader::LEN..].to_vec(), builder.record_count())
    }

    #[test]
    fn runs_are_walked_as_field_by_field() {
        let mut random = SmallRng::seed_from_u64(0x51ab);
        for case in 0..8000 {
            let (runs, run_max) =
                if case % 1000 == 0 { (2, 10_000) } else { (random.random_range(1..5), 40) };
            let (mut bytes, mut count) = random_records(&mut random, runs, run_max);
            for _ in 0..[0, 1, 1, 2][random.random_range(0..4)] {
                let at = random.random_range(0..bytes.len());
                // Lengths, deltas and header counts are there, not in the long values.
                let at = (at..bytes.len()).find(|at| bytes[*at] != 0x81).unwrap_or(at);
                match random.random_range(0..6) {
                    0 => bytes[at] = random.random(),
                    1 => bytes[at] ^= 1 << random.random_range(0..8),
                    2 => bytes[at] ^= 0x80,
                    3 => bytes[at] = bytes[at].wrapping_add(2),
                    4 => bytes.insert(at, random.random_range(0..4)),
                    _ => drop(bytes.drain(at..)),
                }
                if bytes.is_empty() {
                    break;
                }
            }
            count += [0, 0, 0, 1, -1][random.random_range(0..5)];
            let (fast, slow) = (walked(&bytes, count), walked_field_by_field(&bytes, count));
            assert!(fast == slow, "case {case}: {:?} instead of {:?}", fast.0, slow.0);
        }
    }

    /// Records whose offset deltas count up as bytes, not as integers of the format: a carry produces another
    /// integer.
    #[test]
    fn carries_into_other_integers_are_not_followed() {
        for (width, first) in [(1, 0u32), (2, 0x01_80), (3, 0x01_80_80)] {
            let mut bytes = Vec::new();
            for i in 0..300 {
                bytes.extend([2 * (9 + width as u8), 0, 0]);
                bytes.extend(&(first + 2 * i).to_le_bytes()[..width]);
                bytes.extend([1, 8, 0, 0, 0, 0, 0]);
            }
            assert!(walked(&bytes, 300) == walked_field_by_field(&bytes, 300), "{width} bytes");
        }
    }
}
