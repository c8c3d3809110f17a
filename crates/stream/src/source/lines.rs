//! Splits bytes into lines, which refer to the buffers that were read.

use bytes::{Bytes, BytesMut};
use memchr::{memchr_iter, memrchr};

use crate::message::{Batch, MESSAGE_BYTES_MAX};

/// Splits input into lines. A carriage return before the line feed is part of the line end.
#[derive(Default)]
pub struct Lines {
    pending: BytesMut,
    sequence: u64,
}

/// A line exceeds the maximum message size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Lines {
    /// Continues the sequence of another splitter.
    pub fn follow_on(&mut self, other: &Lines) {
        self.sequence = other.sequence;
    }

    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() > MESSAGE_BYTES_MAX + bytes.len() {
            return Err(TooLong);
        }
        Ok(())
    }

    /// Moves all complete lines to the batch. Returns true if there were any.
    pub fn take(&mut self, batch: &mut Batch, time_ms: i64) -> bool {
        let Some(last) = memrchr(b'\n', &self.pending) else { return false };
        let whole = self.pending.split_to(last + 1).freeze();
        let mut start = 0;
        let ends: Vec<usize> = memchr_iter(b'\n', &whole).collect();
        let ranges: Vec<_> = ends
            .into_iter()
            .map(|end| {
                let line = start..without_return(&whole, start, end);
                start = end + 1;
                line
            })
            .collect();
        let count = ranges.len() as u64;
        batch.push_ranges(whole, ranges, time_ms, self.sequence);
        self.sequence += count;
        true
    }

    /// Moves the unterminated rest to the batch. Returns true if there was any.
    pub fn take_rest(&mut self, batch: &mut Batch, time_ms: i64) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let rest: Bytes = self.pending.split().freeze();
        let end = without_return(&rest, 0, rest.len());
        batch.push_ranges(rest, std::iter::once(0..end), time_ms, self.sequence);
        self.sequence += 1;
        true
    }
}

fn without_return(bytes: &[u8], start: usize, end: usize) -> usize {
    if end > start && bytes[end - 1] == b'\r' { end - 1 } else { end }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(batch: &Batch) -> Vec<&[u8]> {
        batch.messages().map(|message| message.value).collect()
    }

    #[test]
    fn lines_may_come_in_pieces_and_end_in_two_ways() {
        let mut lines = Lines::default();
        let mut batch = Batch::new();
        lines.feed(b"one\ntw").expect("short");
        assert!(lines.take(&mut batch, 0));
        lines.feed(b"o\r\n\nthr").expect("short");
        assert!(lines.take(&mut batch, 0));
        lines.feed(b"ee").expect("short");
        assert!(!lines.take(&mut batch, 0));
        assert!(lines.take_rest(&mut batch, 0) && !lines.take_rest(&mut batch, 0));
        assert_eq!(values(&batch), [&b"one"[..], b"two", b"", b"three"]);
        assert_eq!(batch.messages().map(|m| m.sequence).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }
}
