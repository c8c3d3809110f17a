//! Answers on their way out: bytes from memory in one gathered write, batches from a file by sendfile.

use super::stream::Stream;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use thalweg_log::LogSlice;
use thalweg_wire::Gap;

/// The most buffers that one gathered write takes.
const GATHER_MAX: usize = 64;
/// How much in memory may wait for the peer; one answer may be larger.
const HELD_MAX: usize = 1024 * 1024;

/// A part of an answer.
#[derive(Debug)]
pub enum Segment {
    /// Bytes in memory.
    Bytes(Bytes),
    /// Whole batches in a log segment.
    File(LogSlice),
}

/// One answer, with its length in front.
#[derive(Debug, Default)]
pub struct Frame(pub Vec<Segment>);

impl Frame {
    /// An answer that lies in memory.
    pub fn bytes(bytes: Bytes) -> Frame {
        Frame(vec![Segment::Bytes(bytes)])
    }

    /// An answer that lies in memory without its length.
    pub fn with_length(answer: Bytes) -> Frame {
        let length = i32::try_from(answer.len()).expect("an answer fits into a frame");
        let head = Bytes::copy_from_slice(&length.to_be_bytes());
        Frame(vec![Segment::Bytes(head), Segment::Bytes(answer)])
    }

    /// Encoded bytes with file slices put into their gaps, in order.
    pub fn with_slices(mut head: BytesMut, gaps: &[Gap], slices: Vec<LogSlice>) -> Frame {
        debug_assert_eq!(gaps.len(), slices.len(), "every gap is a slice");
        let mut segments = Vec::with_capacity(2 * slices.len() + 1);
        let mut written = 0;
        for (gap, slice) in gaps.iter().zip(slices) {
            segments.push(Segment::Bytes(head.split_to(gap.position - written).freeze()));
            written = gap.position;
            segments.push(Segment::File(slice));
        }
        if !head.is_empty() {
            segments.push(Segment::Bytes(head.freeze()));
        }
        Frame(segments)
    }
}

/// The answers of one connection that are not sent yet.
#[derive(Debug, Default)]
pub(super) struct Output {
    segments: VecDeque<Segment>,
    /// What was pushed since all was sent; slices of files count as nothing.
    pushed_bytes: usize,
}

impl Output {
    pub(super) fn push(&mut self, frame: Frame) {
        let in_memory = |segment: &Segment| match segment {
            Segment::Bytes(bytes) => bytes.len(),
            Segment::File(_) => 0,
        };
        self.pushed_bytes += frame.0.iter().map(in_memory).sum::<usize>();
        self.segments.extend(frame.0);
    }

    /// Whether so much waits that no more should be answered before it is sent.
    pub(super) fn is_full(&self) -> bool {
        self.pushed_bytes >= HELD_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Sends all there is, and waits while the peer does not take it.
    pub(super) async fn flush(&mut self, stream: &Stream) -> io::Result<()> {
        while !self.segments.is_empty() {
            match self.try_flush(stream) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
                Err(error) => return Err(error),
            }
        }
        self.pushed_bytes = 0;
        // What a burst of answers needed is not kept for a quiet connection.
        if self.segments.capacity() > GATHER_MAX {
            self.segments = VecDeque::new();
        }
        Ok(())
    }

    fn try_flush(&mut self, stream: &Stream) -> io::Result<()> {
        loop {
            let sent = match (self.segments.front(), self.segments.get(1)) {
                (None, _) => return Ok(()),
                (Some(Segment::File(_)), _) => {
                    self.send_file(stream)?;
                    continue;
                }
                (Some(Segment::Bytes(bytes)), None) => stream.try_send(bytes, false)?,
                // The head of a fetch answer waits in the kernel for the batches that follow it.
                (Some(Segment::Bytes(bytes)), Some(Segment::File(_))) => stream.try_send(bytes, true)?,
                (Some(Segment::Bytes(_)), Some(Segment::Bytes(_))) => self.send_gathered(stream)?,
            };
            self.sent(sent);
        }
    }

    fn send_file(&mut self, stream: &Stream) -> io::Result<()> {
        if let Some(Segment::File(slice)) = self.segments.front_mut() {
            stream.try_send_slice(slice)?;
            self.segments.pop_front();
        }
        Ok(())
    }

    fn send_gathered(&self, stream: &Stream) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); GATHER_MAX];
        let mut count = 0;
        for segment in self.segments.iter().take(GATHER_MAX) {
            let Segment::Bytes(bytes) = segment else { break };
            slices[count] = IoSlice::new(bytes);
            count += 1;
        }
        stream.try_write_vectored(&slices[..count])
    }

    /// Drops what was sent from the front.
    fn sent(&mut self, mut sent: usize) {
        while let Some(Segment::Bytes(bytes)) = self.segments.front_mut() {
            if sent < bytes.len() {
                let _ = bytes.split_to(sent);
                return;
            }
            sent -= bytes.len();
            self.segments.pop_front();
            if sent == 0 {
                return;
            }
        }
    }
}
