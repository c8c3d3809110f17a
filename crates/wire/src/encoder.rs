//! Writes Kafka's primitive types.
//!
//! Records in a file are not copied: the encoder writes their length and remembers the [`Gap`], which the
//! sender of the frame fills.

use crate::{Records, Uuid};
use bytes::{BufMut, Bytes, BytesMut};

/// A message could not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    #[error("{message} has no field {field} in version {version}, and it is set")]
    NotInVersion { message: &'static str, field: &'static str, version: i16 },
    #[error("{field} of {message} is null, which version {version} does not allow")]
    Null { message: &'static str, field: &'static str, version: i16 },
    #[error("a string of {length} bytes exceeds the maximum of 32767")]
    StringTooLong { length: usize },
    #[error("{length} bytes or elements exceed the maximum of 2147483647")]
    TooLong { length: usize },
}

impl EncodeError {
    /// A field is set that the version lacks.
    pub fn not_in_version(message: &'static str, field: &'static str, version: i16) -> Self {
        Self::NotInVersion { message, field, version }
    }

    /// A field is null that must not be null in the version.
    pub fn null(message: &'static str, field: &'static str, version: i16) -> Self {
        Self::Null { message, field, version }
    }
}

/// A place in the encoded bytes where records from elsewhere belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Number of encoded bytes before the gap.
    pub position: usize,
    /// Length of the missing records, in bytes.
    pub len: usize,
}

/// Limit of a string, in bytes: the length is an `int16`.
const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// A growing buffer of encoded bytes.
#[derive(Debug, Default)]
pub struct Encoder {
    buf: BytesMut,
    gaps: Vec<Gap>,
}

impl Encoder {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty buffer with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { buf: BytesMut::with_capacity(capacity), gaps: Vec::new() }
    }

    /// Continues writing behind the bytes of `buf`.
    pub fn append_to(buf: BytesMut) -> Self {
        Self { buf, gaps: Vec::new() }
    }

    /// The encoded bytes, without the records of gaps.
    pub fn into_bytes(self) -> Bytes {
        self.buf.freeze()
    }

    /// The encoded bytes, and the positions of records in them.
    pub fn into_parts(self) -> (BytesMut, Vec<Gap>) {
        (self.buf, self.gaps)
    }

    /// Number of bytes written, without the records of gaps.
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// True if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Number of bytes to send, with the records of gaps.
    pub fn total_len(&self) -> usize {
        self.buf.len() + self.gaps.iter().map(|g| g.len).sum::<usize>()
    }

    /// Overwrites four bytes that were written before, to set a length after its content.
    pub fn patch_i32(&mut self, position: usize, value: i32) {
        self.buf[position..position + 4].copy_from_slice(&value.to_be_bytes());
    }

    pub fn bool(&mut self, value: bool) {
        self.buf.put_u8(u8::from(value));
    }

    pub fn i8(&mut self, value: i8) {
        self.buf.put_i8(value);
    }

    pub fn i16(&mut self, value: i16) {
        self.buf.put_i16(value);
    }

    pub fn u16(&mut self, value: u16) {
        self.buf.put_u16(value);
    }

    pub fn i32(&mut self, value: i32) {
        self.buf.put_i32(value);
    }

    pub fn u32(&mut self, value: u32) {
        self.buf.put_u32(value);
    }

    pub fn i64(&mut self, value: i64) {
        self.buf.put_i64(value);
    }

    pub fn f64(&mut self, value: f64) {
        self.buf.put_f64(value);
    }

    pub fn uuid(&mut self, value: Uuid) {
        self.buf.put_u128(value.0);
    }

    /// An unsigned variable-length integer.
    pub fn uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.buf.put_u8(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.buf.put_u8(value.to_le_bytes()[0]);
    }

    /// Bytes without a length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buf.put_slice(bytes);
    }

    fn length(&mut self, length: usize, flexible: bool) -> Result<(), EncodeError> {
        let length_i32 = i32::try_from(length).map_err(|_| EncodeError::TooLong { length })?;
        if flexible {
            self.uvarint(length_i32.unsigned_abs() + 1)
        } else {
            self.i32(length_i32)
        }
        Ok(())
    }

    pub fn string(&mut self, value: &str, flexible: bool) -> Result<(), EncodeError> {
        let length = value.len();
        let length_i16 = i16::try_from(length).map_err(|_| EncodeError::StringTooLong { length })?;
        if flexible {
            self.uvarint(u32::from(length_i16.unsigned_abs()) + 1)
        } else {
            self.i16(length_i16)
        }
        self.raw(value.as_bytes());
        Ok(())
    }

    /// An error message as a `string`. A message that quotes a client's input may exceed the maximum length
    /// of a string; the text is truncated then, so that the error is always reported.
    pub fn text(&mut self, value: &str, flexible: bool) {
        let end = value.floor_char_boundary(STRING_BYTES_MAX);
        self.string(&value[..end], flexible).expect("it was cut to what fits");
    }

    /// A `string` that is null.
    pub fn null_string(&mut self, flexible: bool) {
        if flexible { self.uvarint(0) } else { self.i16(-1) }
    }

    pub fn bytes(&mut self, value: &[u8], flexible: bool) -> Result<(), EncodeError> {
        self.length(value.len(), flexible)?;
        self.raw(value);
        Ok(())
    }

    /// `bytes` or `records` that are null.
    pub fn null_bytes(&mut self, flexible: bool) {
        if flexible { self.uvarint(0) } else { self.i32(-1) }
    }

    /// `records`: the bytes, or their length and a gap.
    pub fn records(&mut self, value: &Records, flexible: bool) -> Result<(), EncodeError> {
        match value {
            Records::Inline(bytes) => self.bytes(bytes, flexible),
            Records::Elsewhere(len) => {
                self.length(*len, flexible)?;
                if *len > 0 {
                    self.gaps.push(Gap { position: self.buf.len(), len: *len });
                }
                Ok(())
            }
        }
    }

    /// The count of an array.
    pub fn array_len(&mut self, count: usize, flexible: bool) -> Result<(), EncodeError> {
        self.length(count, flexible)
    }

    /// An array that is null.
    pub fn null_array(&mut self, flexible: bool) {
        if flexible { self.uvarint(0) } else { self.i32(-1) }
    }

    /// The end of a struct that sends no tagged field.
    pub fn no_tagged_fields(&mut self) {
        self.uvarint(0);
    }

    /// The tagged fields at the end of a struct.
    pub fn tagged_fields(&mut self, fields: TaggedFields) {
        self.uvarint(u32::try_from(fields.0.len()).expect("a struct has few fields"));
        for (tag, field) in fields.0 {
            self.uvarint(tag);
            self.uvarint(u32::try_from(field.buf.len()).expect("a tagged field is smaller than its frame"));
            self.raw(&field.buf);
        }
    }
}

/// The tagged fields of one struct, gathered in the order of their tags.
#[derive(Debug, Default)]
pub struct TaggedFields(Vec<(u32, Encoder)>);

impl TaggedFields {
    /// Adds the output of `write` under `tag`.
    pub fn add(
        &mut self,
        tag: u32,
        write: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let mut field = Encoder::new();
        write(&mut field)?;
        debug_assert!(field.gaps.is_empty(), "Kafka sends no records in tagged fields");
        self.0.push((tag, field));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Decoder;

    #[test]
    fn text_is_cut_where_it_no_longer_fits_and_never_within_a_character() {
        for flexible in [false, true] {
            for (text, kept) in [
                (String::new(), 0),
                ("x".repeat(32_767), 32_767),
                ("x".repeat(40_000), 32_767),
                ("ä".repeat(20_000), 32_766),
                (format!("x{}", "😀".repeat(10_000)), 32_765),
            ] {
                let mut e = Encoder::new();
                e.text(&text, flexible);
                let read = Decoder::new(e.into_bytes()).string(flexible).expect("a string");
                assert_eq!(read.len(), kept);
                assert!(text.starts_with(&read));
            }
        }
    }
}
