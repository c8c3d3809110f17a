//! Output: bytes in memory by one gather write, large batches in a file by sendfile, small ones by a read and
//! the same gather write. Over TLS everything is packed into records.

use super::stream::tls::TlsStream;
use super::stream::{self, Stream};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use thalweg_log::LogSlice;
use thalweg_wire::Gap;

/// Maximum number of buffers in one gather write.
const GATHER_MAX: usize = 64;
/// Maximum bytes in memory waiting for the peer; a single answer may be larger.
pub(super) const HELD_MAX: usize = 1024 * 1024;
/// Maximum size of a file slice that is sent from memory: reading it costs less than the two additional
/// system calls of sendfile between head and tail of an answer.
const PACKED_SLICE_MAX: usize = 16 * 1024;
/// Maximum bytes packed for one write.
const PACKED_MAX: usize = 64 * 1024;
/// Size below which a buffer is not copied to release its unused room.
const COMPACT_MIN: usize = 64 * 1024;

/// A part of an answer.
#[derive(Debug)]
pub enum FrameSegment {
    /// Bytes in memory.
    Bytes(Bytes),
    /// Whole batches in a log segment.
    File(LogSlice),
}

impl FrameSegment {
    fn len(&self) -> usize {
        match self {
            FrameSegment::Bytes(bytes) => bytes.len(),
            FrameSegment::File(slice) => slice.len,
        }
    }
}

/// One answer, with its length in front.
#[derive(Debug, Default)]
pub struct Frame(pub Vec<FrameSegment>);

impl Frame {
    /// An answer in memory.
    pub fn bytes(bytes: Bytes) -> Frame {
        Frame(vec![FrameSegment::Bytes(bytes)])
    }

    /// An answer in memory without its length.
    pub fn with_length(answer: Bytes) -> Frame {
        let length = i32::try_from(answer.len()).expect("an answer fits into a frame");
        let head = Bytes::copy_from_slice(&length.to_be_bytes());
        Frame(vec![FrameSegment::Bytes(head), FrameSegment::Bytes(answer)])
    }

    /// Number of bytes, in memory and in files.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(FrameSegment::len).sum()
    }

    /// Number of bytes in memory.
    pub(super) fn bytes_in_memory(&self) -> usize {
        let in_memory = |segment: &FrameSegment| match segment {
            FrameSegment::Bytes(bytes) => bytes.len(),
            FrameSegment::File(_) => 0,
        };
        self.0.iter().map(in_memory).sum()
    }

    /// Encoded bytes with file slices in their gaps, in order.
    pub fn with_slices(mut head: BytesMut, gaps: &[Gap], slices: Vec<LogSlice>) -> Frame {
        debug_assert_eq!(gaps.len(), slices.len(), "every gap is a slice");
        let mut segments = Vec::with_capacity(2 * slices.len() + 1);
        let mut written = 0;
        for (gap, slice) in gaps.iter().zip(slices) {
            segments.push(FrameSegment::Bytes(head.split_to(gap.position - written).freeze()));
            written = gap.position;
            segments.push(FrameSegment::File(slice));
        }
        if !head.is_empty() {
            segments.push(FrameSegment::Bytes(head.freeze()));
        }
        Frame(segments)
    }
}

/// The answers of one connection that are not sent yet.
#[derive(Debug, Default)]
pub(super) struct OutputQueue {
    segments: VecDeque<FrameSegment>,
    /// Bytes pushed since everything was sent; slices of files count as zero.
    pushed_bytes: usize,
    /// The unsent part of the pushed bytes.
    unsent_bytes: usize,
    /// Bytes that are encrypted and not sent.
    sealed_bytes: usize,
    /// Number of bytes taken by the peer's socket, including files. Wraps around.
    progress: u64,
}

impl OutputQueue {
    pub(super) fn push(&mut self, frame: Frame) {
        let bytes = frame.bytes_in_memory();
        self.pushed_bytes += bytes;
        self.unsent_bytes += bytes;
        self.segments.extend(frame.0);
    }

    /// True if some output must be sent before further answers.
    pub(super) fn is_full(&self) -> bool {
        self.pushed_bytes >= HELD_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Number of unsent bytes in memory.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes + self.sealed_bytes
    }

    /// Number of bytes taken by the socket so far. Wraps around.
    pub(super) fn progress(&self) -> u64 {
        self.progress
    }

    /// Sends as much as the socket accepts. Returns true if everything was sent. `unasked` tries a socket
    /// that did not report room, because sockets report it only when much of their buffer is free.
    pub(super) fn send(&mut self, stream: &mut Stream, unasked: bool) -> io::Result<bool> {
        let flushed = match stream {
            Stream::Tls(tls) => self.flush_sealed(tls, unasked),
            stream => self.try_flush(stream, unasked),
        };
        match flushed {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        self.pushed_bytes = 0;
        // A quiet connection releases the memory of a burst of answers.
        if self.segments.capacity() > GATHER_MAX {
            self.segments = VecDeque::new();
        }
        Ok(true)
    }

    fn flush_sealed(&mut self, tls: &mut TlsStream, unasked: bool) -> io::Result<()> {
        let before = tls.progress();
        let flushed = self.write_sealed(tls, unasked);
        self.progress = self.progress.wrapping_add(tls.progress().wrapping_sub(before));
        self.sealed_bytes = tls.unsent_bytes();
        flushed
    }

    fn write_sealed(&mut self, tls: &mut TlsStream, unasked: bool) -> io::Result<()> {
        loop {
            tls.flush(unasked)?;
            if self.segments.is_empty() {
                return Ok(());
            }
            tls.write(|room| self.take_into(room), unasked)?;
        }
    }

    /// Moves answers from the front into a buffer, until the buffer is full.
    fn take_into(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < room.len() {
            let rest = &mut room[filled..];
            let (taken, is_all) = match self.segments.front_mut() {
                None => break,
                Some(FrameSegment::Bytes(bytes)) => {
                    let taken = bytes.split_to(bytes.len().min(rest.len()));
                    rest[..taken.len()].copy_from_slice(&taken);
                    self.unsent_bytes -= taken.len();
                    (taken.len(), bytes.is_empty())
                }
                Some(FrameSegment::File(slice)) => {
                    let wanted = slice.len.min(rest.len());
                    let read = slice.file.read_at(&mut rest[..wanted], slice.position)?;
                    if read == 0 && wanted > 0 {
                        return Err(stream::cut(slice));
                    }
                    slice.position += read as u64;
                    slice.len -= read;
                    (read, slice.len == 0)
                }
            };
            filled += taken;
            if is_all {
                self.segments.pop_front();
            }
        }
        Ok(filled)
    }

    /// Copies unsent bytes that occupy too much memory: buffers have unused room at the end, and the front of
    /// the first one was sent.
    pub(super) fn compact(&mut self) {
        for segment in &mut self.segments {
            if let FrameSegment::Bytes(bytes) = segment
                && bytes.len() > COMPACT_MIN
            {
                *bytes = Bytes::copy_from_slice(bytes);
            }
        }
    }

    /// Reads small slices at the front into one buffer, together with the small buffers around them.
    fn pack(&mut self) -> io::Result<()> {
        let is_small = |segment: &&FrameSegment| segment.len() <= PACKED_SLICE_MAX;
        let first_two = self.segments.iter().take(2).take_while(is_small);
        if !first_two.into_iter().any(|segment| matches!(segment, FrameSegment::File(_))) {
            return Ok(());
        }
        let (mut count, mut size) = (0, 0);
        for segment in self.segments.iter().take_while(is_small) {
            if size + segment.len() > PACKED_MAX {
                break;
            }
            (count, size) = (count + 1, size + segment.len());
        }
        let mut packed = BytesMut::with_capacity(size);
        for segment in self.segments.drain(..count) {
            match segment {
                FrameSegment::Bytes(bytes) => packed.extend_from_slice(&bytes),
                FrameSegment::File(slice) => {
                    let begin = packed.len();
                    packed.resize(begin + slice.len, 0);
                    read_whole(&slice, &mut packed[begin..])?;
                    self.pushed_bytes += slice.len;
                    self.unsent_bytes += slice.len;
                }
            }
        }
        self.segments.push_front(FrameSegment::Bytes(packed.freeze()));
        Ok(())
    }

    fn try_flush(&mut self, stream: &Stream, unasked: bool) -> io::Result<()> {
        loop {
            self.pack()?;
            let sent = match (self.segments.front(), self.segments.get(1)) {
                (None, _) => return Ok(()),
                (Some(FrameSegment::File(_)), _) => {
                    self.send_file(stream, unasked)?;
                    continue;
                }
                (Some(FrameSegment::Bytes(bytes)), _) if unasked => stream.send_unasked(bytes)?,
                (Some(FrameSegment::Bytes(bytes)), None) => stream.try_send(bytes, false)?,
                // The head of a fetch answer waits in the kernel for the following batches.
                (Some(FrameSegment::Bytes(bytes)), Some(FrameSegment::File(_))) => {
                    stream.try_send(bytes, true)?
                }
                (Some(FrameSegment::Bytes(_)), Some(FrameSegment::Bytes(_))) => self.send_gathered(stream)?,
            };
            self.sent(sent);
        }
    }

    fn send_file(&mut self, stream: &Stream, unasked: bool) -> io::Result<()> {
        if let Some(FrameSegment::File(slice)) = self.segments.front_mut() {
            let before = slice.len;
            let sent = stream.try_send_slice(slice, unasked);
            self.progress = self.progress.wrapping_add((before - slice.len) as u64);
            sent?;
            self.segments.pop_front();
        }
        Ok(())
    }

    fn send_gathered(&self, stream: &Stream) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); GATHER_MAX];
        let mut count = 0;
        for segment in self.segments.iter().take(GATHER_MAX) {
            let FrameSegment::Bytes(bytes) = segment else { break };
            slices[count] = IoSlice::new(bytes);
            count += 1;
        }
        stream.try_write_vectored(&slices[..count])
    }

    /// Drops sent bytes from the front.
    fn sent(&mut self, mut sent: usize) {
        self.progress = self.progress.wrapping_add(sent as u64);
        self.unsent_bytes -= sent;
        while let Some(FrameSegment::Bytes(bytes)) = self.segments.front_mut() {
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

/// Fills the buffer with the slice.
fn read_whole(slice: &LogSlice, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match slice.file.read_at(&mut buffer[filled..], slice.position + filled as u64)? {
            0 => return Err(stream::cut(slice)),
            read => filled += read,
        }
    }
    Ok(())
}
