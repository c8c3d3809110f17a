//! Requests on their way in: one buffer a connection, frames cut from it without a copy.

use super::memory::{FrameMemory, Reservation};
use super::stream::Stream;
use bytes::{Buf, Bytes, BytesMut};
use std::io;

/// What the first read of a quiet connection has room for.
const READ_SMALL: usize = 16 * 1024;
/// What a read of a busy connection has room for.
const READ_LARGE: usize = 256 * 1024;
/// A buffer that grew beyond this for one frame is given back after it.
const KEEP_MAX: usize = 1024 * 1024;

/// A frame's length is no length that this listener takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {length} bytes, where socket.request.max.bytes allows {max}")]
pub(super) struct FrameLength {
    pub(super) length: i32,
    pub(super) max: usize,
}

/// The bytes that have come and are not handled yet.
#[derive(Debug)]
pub(super) struct Input {
    buf: BytesMut,
    /// What the next read has room for: grows when reads fill it.
    chunk: usize,
    frame_max: usize,
    /// What the frame that is arriving has taken from the memory of all connections.
    reservation: Reservation,
}

impl Input {
    pub(super) fn new(frame_max: usize, memory: FrameMemory) -> Self {
        Self { buf: BytesMut::new(), chunk: READ_SMALL, frame_max, reservation: memory.reserve_nothing() }
    }

    /// The next whole frame, without its length.
    pub(super) fn next_frame(&mut self) -> Result<Option<Bytes>, FrameLength> {
        let Some(length) = self.announced()? else { return Ok(None) };
        if self.buf.len() < 4 + length {
            return Ok(None);
        }
        self.buf.advance(4);
        let frame = self.buf.split_to(length).freeze();
        self.reservation.release();
        Ok(Some(frame))
    }

    fn announced(&self) -> Result<Option<usize>, FrameLength> {
        let Some(head) = self.buf.first_chunk::<4>() else { return Ok(None) };
        let length = i32::from_be_bytes(*head);
        match usize::try_from(length) {
            Ok(size) if size <= self.frame_max => Ok(Some(size)),
            _ => Err(FrameLength { length, max: self.frame_max }),
        }
    }

    /// Whether [`Input::next_frame`] has something to say: a whole frame, or that there can be none.
    pub(super) fn has_frame(&self) -> bool {
        self.announced().map_or(true, |length| length.is_some_and(|length| self.buf.len() >= 4 + length))
    }

    /// Whether so much waits that no more should be read before some of it is handled.
    pub(super) fn is_full(&self) -> bool {
        let wanted = self.announced().ok().flatten().map_or(4, |length| length + 4);
        self.buf.len() >= wanted.max(READ_LARGE)
    }

    /// Waits until the frame that is arriving may take the memory it needs next.
    pub(super) async fn admit(&mut self) {
        if let Ok(Some(length)) = self.announced() {
            self.reservation.grow_to(self.next_capacity(length)).await;
        }
    }

    /// Doubles what has come, up to the frame's length: memory follows the bytes, not the announcement.
    fn next_capacity(&self, length: usize) -> usize {
        (length + 4).min((2 * self.buf.len()).max(KEEP_MAX))
    }

    /// Reads once. `Ok(0)` is the end of the stream.
    pub(super) fn try_read(&mut self, stream: &Stream) -> io::Result<usize> {
        let wanted = match self.announced() {
            Ok(Some(length)) => self.next_capacity(length).saturating_sub(self.buf.len()),
            _ => 0,
        };
        self.buf.reserve(wanted.max(self.chunk));
        let room = self.buf.capacity() - self.buf.len();
        let read = stream.try_read_buf(&mut self.buf)?;
        if read == room {
            self.chunk = READ_LARGE;
        }
        Ok(read)
    }

    /// Gives back a buffer that one large frame has blown up. Called when no frame is in hand.
    pub(super) fn trim(&mut self) {
        if self.buf.is_empty() && self.buf.capacity() > KEEP_MAX {
            self.release();
        }
    }

    /// Gives the buffer back: the connection is quiet.
    pub(super) fn release(&mut self) {
        if self.buf.is_empty() {
            self.buf = BytesMut::new();
            self.chunk = READ_SMALL;
        }
    }
}
