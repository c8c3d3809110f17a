//! Reads Kafka's primitive types from a frame.
//!
//! The frame is shared, so `bytes` fields are slices of the frame. Every length and count is checked against
//! the remaining bytes before use; an array's count is checked against the minimum size of its elements. So
//! the memory of a message is bounded by its size.

use crate::Uuid;
use bytes::{Buf, Bytes};

/// A message could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {position}: {problem}")]
pub struct DecodeError {
    /// The offset in the frame, in bytes.
    pub position: usize,
    pub problem: DecodeProblem,
}

/// A fault of a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeProblem {
    #[error("{needed} bytes needed, {left} left")]
    Truncated { needed: usize, left: usize },
    #[error("{left} bytes follow the end of the message")]
    Trailing { left: usize },
    #[error("length {length}, with {left} bytes left")]
    Length { length: i64, left: usize },
    #[error("{count} elements, with {left} bytes left")]
    Count { count: i64, left: usize },
    #[error("more than {max} elements in arrays and tagged fields; split the request")]
    Elements { max: usize },
    #[error("null, which this version does not allow")]
    Null,
    #[error("a variable-length integer of more than five bytes, or beyond 32 bits")]
    Varint,
    #[error("a string that is not UTF-8")]
    Utf8,
    #[error("tagged field {tag} has {used} bytes instead of {size}")]
    TaggedFieldSize { tag: u32, used: usize, size: usize },
    #[error("{value} as the presence of a struct; expected 1 or -1")]
    Presence { value: i8 },
}

/// A reading position in a frame. A clone reads on from the same position.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// The remaining bytes.
    rest: Bytes,
    /// The length of the whole frame, from which the position follows.
    total: usize,
    /// Remaining number of array elements and tagged fields; `elements_max` is the limit at the start.
    elements_left: usize,
    elements_max: usize,
}

impl Decoder {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: Bytes) -> Self {
        Self { total: bytes.len(), rest: bytes, elements_left: usize::MAX, elements_max: usize::MAX }
    }

    /// Limits the elements of all arrays together to `max`: an element of two bytes can take a hundred in
    /// memory. A tagged field, known or unknown, counts as an element, because each costs time.
    pub fn with_elements_max(mut self, max: usize) -> Self {
        (self.elements_left, self.elements_max) = (max, max);
        self
    }

    /// Number of remaining bytes.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Number of bytes read.
    pub fn position(&self) -> usize {
        self.total - self.rest.len()
    }

    /// The remaining bytes, as a slice of the frame.
    pub fn rest(&self) -> Bytes {
        self.rest.clone()
    }

    /// Fails if bytes remain.
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.error(DecodeProblem::Trailing { left: self.rest.len() }))
        }
    }

    fn error(&self, problem: DecodeProblem) -> DecodeError {
        DecodeError { position: self.position(), problem }
    }

    fn need(&self, needed: usize) -> Result<(), DecodeError> {
        if self.rest.len() >= needed {
            return Ok(());
        }
        Err(self.error(DecodeProblem::Truncated { needed, left: self.rest.len() }))
    }

    /// A boolean: any byte but zero is true, as in Kafka.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.i8()? != 0)
    }

    pub fn i8(&mut self) -> Result<i8, DecodeError> {
        self.need(1)?;
        Ok(self.rest.get_i8())
    }

    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        self.need(2)?;
        Ok(self.rest.get_i16())
    }

    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.need(2)?;
        Ok(self.rest.get_u16())
    }

    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        self.need(4)?;
        Ok(self.rest.get_i32())
    }

    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.need(4)?;
        Ok(self.rest.get_u32())
    }

    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.need(8)?;
        Ok(self.rest.get_i64())
    }

    pub fn f64(&mut self) -> Result<f64, DecodeError> {
        self.need(8)?;
        Ok(self.rest.get_f64())
    }

    pub fn uuid(&mut self) -> Result<Uuid, DecodeError> {
        self.need(16)?;
        Ok(Uuid(self.rest.get_u128()))
    }

    /// An unsigned variable-length integer of at most 32 bits.
    pub fn uvarint(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0u32;
        for (index, &byte) in self.rest.iter().take(5).enumerate() {
            let bits = u32::from(byte & 0x7f);
            if index == 4 && byte > 0x0f {
                return Err(self.error(DecodeProblem::Varint));
            }
            value |= bits << (7 * index);
            if byte & 0x80 == 0 {
                self.rest.advance(index + 1);
                return Ok(value);
            }
        }
        let left = self.rest.len();
        Err(self.error(DecodeProblem::Truncated { needed: left + 1, left }))
    }

    /// The next `length` bytes, as a slice of the frame.
    fn take(&mut self, length: i64) -> Result<Bytes, DecodeError> {
        let left = self.rest.len();
        match usize::try_from(length) {
            Ok(length) if length <= left => Ok(self.rest.split_to(length)),
            _ => Err(self.error(DecodeProblem::Length { length, left })),
        }
    }

    /// A length, or null. A compact length is one more than its value, with zero for null.
    fn length(&mut self, flexible: bool, short: bool) -> Result<Option<i64>, DecodeError> {
        let length = match (flexible, short) {
            (true, _) => i64::from(self.uvarint()?) - 1,
            (false, true) => i64::from(self.i16()?),
            (false, false) => i64::from(self.i32()?),
        };
        match length {
            -1 => Ok(None),
            _ => Ok(Some(length)),
        }
    }

    fn not_null<T>(&self, value: Option<T>) -> Result<T, DecodeError> {
        value.ok_or_else(|| self.error(DecodeProblem::Null))
    }

    fn null_if<T>(&self, value: Option<T>, nullable: bool) -> Result<Option<T>, DecodeError> {
        if value.is_none() && !nullable { Err(self.error(DecodeProblem::Null)) } else { Ok(value) }
    }

    pub fn string(&mut self, flexible: bool) -> Result<String, DecodeError> {
        let value = self.nullable_string(flexible, true)?;
        self.not_null(value)
    }

    /// A `string` that may be null if `nullable` is set.
    pub fn nullable_string(&mut self, flexible: bool, nullable: bool) -> Result<Option<String>, DecodeError> {
        let Some(length) = self.length(flexible, true)? else { return self.null_if(None, nullable) };
        // Kafka applies this limit to compact strings, too, although their encoding allows more.
        if length > i64::from(i16::MAX) {
            return Err(self.error(DecodeProblem::Length { length, left: self.rest.len() }));
        }
        let bytes = self.take(length)?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => Err(self.error(DecodeProblem::Utf8)),
        }
    }

    /// `bytes` or `records`.
    pub fn bytes(&mut self, flexible: bool) -> Result<Bytes, DecodeError> {
        let value = self.nullable_bytes(flexible, true)?;
        self.not_null(value)
    }

    /// `bytes` or `records` that may be null if `nullable` is set.
    pub fn nullable_bytes(&mut self, flexible: bool, nullable: bool) -> Result<Option<Bytes>, DecodeError> {
        match self.length(flexible, false)? {
            None => self.null_if(None, nullable),
            Some(length) => self.take(length).map(Some),
        }
    }

    /// The count of an array whose elements have at least `min_size` bytes each.
    pub fn array_len(&mut self, flexible: bool, min_size: usize) -> Result<usize, DecodeError> {
        let value = self.nullable_array_len(flexible, true, min_size)?;
        self.not_null(value)
    }

    /// The count of an array that may be null if `nullable` is set.
    pub fn nullable_array_len(
        &mut self,
        flexible: bool,
        nullable: bool,
        min_size: usize,
    ) -> Result<Option<usize>, DecodeError> {
        let Some(count) = self.length(flexible, false)? else { return self.null_if(None, nullable) };
        let left = self.rest.len();
        match usize::try_from(count) {
            Ok(n) if n.checked_mul(min_size).is_some_and(|size| size <= left) => {
                self.take_elements(n)?;
                Ok(Some(n))
            }
            _ => Err(self.error(DecodeProblem::Count { count, left })),
        }
    }

    fn take_elements(&mut self, count: usize) -> Result<(), DecodeError> {
        match self.elements_left.checked_sub(count) {
            Some(left) => self.elements_left = left,
            None => return Err(self.error(DecodeProblem::Elements { max: self.elements_max })),
        }
        Ok(())
    }

    /// True if a nullable struct is present. A struct that is not nullable is always present, without a byte
    /// for its presence.
    pub fn is_present(&mut self, nullable: bool) -> Result<bool, DecodeError> {
        if !nullable {
            return Ok(true);
        }
        match self.i8()? {
            1 => Ok(true),
            -1 => Ok(false),
            value => Err(self.error(DecodeProblem::Presence { value })),
        }
    }

    /// True if a nullable tagged struct is present.
    pub fn is_tagged_present(&mut self) -> Result<bool, DecodeError> {
        Ok(self.uvarint()? != 0)
    }

    /// Reads the tagged fields at the end of a struct: `read` returns true for a known field; unknown fields,
    /// of later versions, are skipped.
    pub fn tagged_fields(
        &mut self,
        mut read: impl FnMut(&mut Decoder, u32) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        for _ in 0..self.uvarint()? {
            self.take_elements(1)?;
            let tag = self.uvarint()?;
            let size = self.uvarint()? as usize;
            let total = self.position() + size;
            let field = self.take(i64::try_from(size).expect("a u32 fits"))?;
            let mut inner = Decoder { rest: field, total, ..*self };
            let is_known = read(&mut inner, tag)?;
            self.elements_left = inner.elements_left;
            if is_known && inner.remaining() != 0 {
                let used = size - inner.remaining();
                return Err(self.error(DecodeProblem::TaggedFieldSize { tag, used, size }));
            }
        }
        Ok(())
    }

    /// Skips the tagged fields of a struct that has none.
    pub fn skip_tagged_fields(&mut self) -> Result<(), DecodeError> {
        self.tagged_fields(|_, _| Ok(false))
    }
}
