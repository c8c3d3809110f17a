//! Message headers: an ordered list of names and values; names may repeat, and values may be null.
//!
//! Headers are consecutive in a buffer of the batch: length and bytes of the name, then length plus one and
//! bytes of the value. Lengths take four bytes; 0 in place of the second means null. Only this module reads
//! and writes this format.

use bytes::{BufMut, BytesMut};

/// A header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The header's name, which may repeat.
    pub name: &'a str,
    /// The header's value; `None` for null.
    pub value: Option<&'a [u8]>,
}

impl Header<'_> {
    /// Appends the encoded header to a buffer.
    pub(super) fn write(&self, out: &mut BytesMut) {
        out.put_u32_le(self.name.len() as u32);
        out.put_slice(self.name.as_bytes());
        out.put_u32_le(self.value.map_or(0, |value| value.len() as u32 + 1));
        out.put_slice(self.value.unwrap_or_default());
    }
}

/// The headers of one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a>(&'a [u8]);

impl<'a> Headers<'a> {
    /// Headers from their encoded bytes.
    pub(super) fn new(bytes: &'a [u8]) -> Headers<'a> {
        Headers(bytes)
    }

    /// True if there are no headers.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The headers' encoded bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// All headers, in order.
    pub fn iter(self) -> impl Iterator<Item = Header<'a>> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (name, behind_name) = cut(rest, 0)?;
            let (value, behind_value) = match behind_name.first_chunk::<4>()? {
                [0, 0, 0, 0] => (None, &behind_name[4..]),
                _ => cut(behind_name, 1).map(|(value, rest)| (Some(value), rest))?,
            };
            rest = behind_value;
            Some(Header { name: std::str::from_utf8(name).unwrap_or_default(), value })
        })
    }

    /// The value of the last header with this name, which wins over earlier ones.
    pub fn get(self, name: &str) -> Option<Option<&'a [u8]>> {
        self.iter().filter(|header| header.name == name).last().map(|header| header.value)
    }
}

/// Encoded headers of a message outside a batch. Reused from message to message.
#[derive(Debug, Default)]
pub struct HeaderBuffer(BytesMut);

impl HeaderBuffer {
    /// Replaces the content of the buffer.
    pub fn fill<'h>(&mut self, headers: impl IntoIterator<Item = Header<'h>>) -> Headers<'_> {
        self.0.clear();
        for header in headers {
            header.write(&mut self.0);
        }
        Headers(&self.0)
    }
}

/// Splits off bytes after their length, which is stored increased by `more`.
fn cut(bytes: &[u8], more: usize) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked((u32::from_le_bytes(*length) as usize).checked_sub(more)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_were_written() {
        let written = [
            Header { name: "a", value: Some(b"1") },
            Header { name: "", value: Some(b"") },
            Header { name: "a", value: None },
        ];
        let mut bytes = BytesMut::new();
        for header in &written {
            header.write(&mut bytes);
        }
        let headers = Headers::new(&bytes);
        assert_eq!(headers.iter().collect::<Vec<_>>(), written);
        assert_eq!(
            (headers.get("a"), headers.get(""), headers.get("b")),
            (Some(None), Some(Some(&b""[..])), None)
        );
        assert!(Headers::default().is_empty() && Headers::default().iter().next().is_none());
        // A truncated list ends after its last complete header.
        assert_eq!(Headers::new(&bytes[..bytes.len() - 1]).iter().count(), 2);
    }
}
