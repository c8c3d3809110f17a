//! Input: frames cut from a buffer without a copy.
//!
//! Owns: the buffers of one connection and their share of the common memory (`memory`). Small frames are cut
//! from a reused block; a larger frame gets its own buffer (`large`), which grows with the received bytes and
//! is freed after the frame's last use.

use super::large_frame::LargeFrame;
use super::memory::{Charge, MemoryShare, Purpose};
use super::stream::Stream;
use bytes::{Buf, Bytes, BytesMut};
use std::io;
use std::time::Duration;
use thalweg_config::NetworkSettings;
use tokio::time::Instant;

/// Block size of a quiet connection.
const BLOCK_SMALL: usize = 16 * 1024;
/// Block size of a connection whose reads fill a small block.
const BLOCK_LARGE: usize = 256 * 1024;
/// Maximum size of a frame that gets an exactly sized block, if memory allows.
const BLOCK_MAX: usize = 2 * 1024 * 1024;
/// Minimum size of a block.
const BLOCK_MIN: usize = 512;
/// Size of a frame's length prefix.
const LENGTH: usize = 4;

/// A frame's length is outside the limits of the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", described(*.length, *.max, .setting))]
pub(super) struct FrameLength {
    pub(super) length: i32,
    pub(super) max: usize,
    pub(super) setting: &'static str,
}

/// The setting of the frame limit, after authentication.
const FRAME_MAX: &str = NetworkSettings::request_max_bytes.name();
/// The start of a TLS handshake, read as a length: record type and first byte of the version.
const TLS_HELLO: i32 = 0x1603;

fn described(length: i32, max: usize, setting: &str) -> String {
    match length >> 16 {
        TLS_HELLO => "the client begins TLS on a listener without it (its security.protocol may have to be PLAINTEXT or \
                      SASL_PLAINTEXT)"
            .to_owned(),
        _ => format!("a frame of {length} bytes, where {setting} allows {max}"),
    }
}

/// The outcome of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    /// Number of received bytes; 0 at the end of the stream.
    Bytes(usize),
    /// Other connections use all memory, or received frames have to be served first.
    NoRoom,
}

/// The received bytes that are not handled yet.
#[derive(Debug)]
pub(super) struct Input {
    memory: MemoryShare,
    frame_max: usize,
    /// A lower limit, and the name of its setting.
    limit: Option<(usize, &'static str)>,
    block: Option<Block>,
    /// Blocks that contain frames in use.
    retired: Vec<Block>,
    large: Option<LargeFrame>,
    /// True if reads fill a small block.
    is_busy: bool,
    /// Time since which the connection waits for the rest of a frame.
    since: Option<Instant>,
}

/// A buffer, and its charge in the common memory.
#[derive(Debug)]
struct Block {
    buf: BytesMut,
    charge: Charge,
}

impl Block {
    fn new(charge: Charge) -> Block {
        Block { buf: BytesMut::with_capacity(charge.bytes()), charge }
    }

    /// Number of allocated bytes.
    fn size(&self) -> usize {
        self.charge.bytes()
    }

    /// Maximum number of bytes of the next read.
    fn free(&self) -> usize {
        self.buf.capacity() - self.buf.len()
    }

    /// True if no byte of the block is in use.
    fn is_unused(&mut self) -> bool {
        self.buf.is_empty() && self.reclaim()
    }

    /// Moves the content to the front to make room at the end, unless a frame in use prevents it or there is
    /// too much to move. Fails if the block is full.
    fn reclaim(&mut self) -> bool {
        let free = self.size() - self.buf.len();
        free > 0 && self.buf.try_reclaim(free)
    }
}

impl Input {
    pub(super) fn new(frame_max: usize, memory: MemoryShare) -> Self {
        let (retired, large) = (Vec::new(), None);
        Self { memory, frame_max, limit: None, block: None, retired, large, is_busy: false, since: None }
    }

    /// Charges further buffers to another holder.
    pub(super) fn charge_to(&mut self, memory: MemoryShare) {
        self.memory = memory;
    }

    /// Sets a lower frame limit and the name of its setting, or removes it.
    pub(super) fn limit(&mut self, limit: Option<(usize, &'static str)>) {
        self.limit = limit;
    }

    /// The next complete frame, without its length.
    pub(super) fn next_frame(&mut self) -> Result<Option<Bytes>, FrameLength> {
        if !self.has_frame() {
            return Ok(None);
        }
        self.since = None;
        if let Some(large) = self.large.take() {
            return Ok(Some(large.into_frame()));
        }
        let announced = self.announced()?;
        let Some((block, length)) = self.block.as_mut().zip(announced) else { return Ok(None) };
        block.buf.advance(LENGTH);
        Ok(Some(block.buf.split_to(length).freeze()))
    }

    /// The next frame if it is complete and in the block, without its length and without taking it.
    pub(super) fn peek_frame(&self) -> Option<&[u8]> {
        if self.large.is_some() || !self.has_frame() {
            return None;
        }
        let length = self.announced().ok().flatten()?;
        self.buffered().get(LENGTH..LENGTH + length)
    }

    fn buffered(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |block| &block.buf)
    }

    fn announced(&self) -> Result<Option<usize>, FrameLength> {
        let Some(head) = self.buffered().first_chunk::<LENGTH>() else { return Ok(None) };
        let length = i32::from_be_bytes(*head);
        let (max, setting) = match self.limit {
            Some((max, setting)) if max < self.frame_max => (max, setting),
            _ => (self.frame_max, FRAME_MAX),
        };
        match usize::try_from(length) {
            Ok(size) if size <= max => Ok(Some(size)),
            _ => Err(FrameLength { length, max, setting }),
        }
    }

    /// The size of the incomplete frame in the block; 0 while its length is unknown.
    fn frame_len(&self) -> usize {
        self.announced().ok().flatten().map_or(0, |length| LENGTH + length)
    }

    /// True if [`Input::next_frame`] has a result: a complete frame, or an error.
    pub(super) fn has_frame(&self) -> bool {
        match &self.large {
            Some(large) => large.is_whole(),
            None => self
                .announced()
                .map_or(true, |length| length.is_some_and(|length| self.buffered().len() >= LENGTH + length)),
        }
    }

    /// True if some buffered frames must be handled before the next read.
    pub(super) fn is_full(&self) -> bool {
        match &self.large {
            Some(large) => large.is_whole(),
            None => self.buffered().len() >= self.frame_len().max(BLOCK_LARGE),
        }
    }

    /// Reads once from the stream.
    pub(super) fn try_read(&mut self, stream: &mut Stream) -> io::Result<ReadOutcome> {
        if !self.has_room() {
            return Ok(ReadOutcome::NoRoom);
        }
        if let Some(large) = &mut self.large {
            return large.try_read(stream).map(ReadOutcome::Bytes);
        }
        let Some(block) = &mut self.block else { return Ok(ReadOutcome::NoRoom) };
        let room = block.free();
        debug_assert!(room > 0, "a read without room would look like the end of the stream");
        let read = stream.try_read_buf(&mut block.buf)?;
        self.is_busy |= read == room;
        Ok(ReadOutcome::Bytes(read))
    }

    /// Makes room for a read, if there is memory for it.
    fn has_room(&mut self) -> bool {
        if let Some(large) = &mut self.large {
            return large.has_room();
        }
        let (len, frame) = (self.buffered().len(), self.frame_len());
        // With room for two frames, a read includes the next frame with the rest of this one, and both are
        // answered at once.
        let usual = if self.is_busy { BLOCK_LARGE.max((2 * frame).min(BLOCK_MAX)) } else { BLOCK_SMALL };
        let wanted = usual.max(frame).max(len + 1);
        if let Some(block) = &mut self.block
            && block.size() >= wanted
        {
            let is_roomy = block.free() >= block.size() / 2 && block.buf.capacity() >= frame;
            if is_roomy || block.reclaim() || (block.free() > 0 && block.buf.capacity() >= frame) {
                return true;
            }
        }
        if wanted <= BLOCK_MAX
            && let Some(charge) = self.memory.take_ahead(wanted)
        {
            self.install(charge);
            return true;
        }
        // Use existing room first: memory grows with the received bytes.
        if let Some(block) = &mut self.block
            && (block.free() > 0 || block.reclaim())
        {
            return true;
        }
        let (bytes, purpose) = self.needed();
        // Complete frames are served before the next read.
        let is_served_first = self.has_frame();
        let charge = if is_served_first { None } else { self.memory.try_take(bytes, purpose) };
        charge.map(|charge| self.take(charge, purpose)).is_some()
    }

    /// Waits for the memory of the next read.
    pub(super) async fn room(&mut self) {
        if let Some(large) = &mut self.large {
            return large.room().await;
        }
        let (bytes, purpose) = self.needed();
        let charge = self.memory.take(bytes, purpose).await;
        self.take(charge, purpose);
    }

    /// The memory for the next read if the block has no room: a small block until the length of a frame is
    /// known, then a buffer for the frame.
    fn needed(&self) -> (usize, Purpose) {
        match self.frame_len() {
            0 => (BLOCK_SMALL, Purpose::Begin),
            _ => (self.first_capacity(), Purpose::Grow),
        }
    }

    fn take(&mut self, charge: Charge, purpose: Purpose) {
        match purpose {
            Purpose::Begin => self.install(charge),
            Purpose::Grow => self.begin_large(charge),
        }
    }

    /// The initial buffer size of a large frame: twice the bytes received so far.
    fn first_capacity(&self) -> usize {
        let length = self.frame_len().max(2 * LENGTH) - LENGTH;
        length.min((2 * self.buffered().len()).max(BLOCK_SMALL))
    }

    /// Moves the incomplete frame, the only content of the block, to its own buffer.
    fn begin_large(&mut self, charge: Charge) {
        let length = self.frame_len() - LENGTH;
        let Some(block) = &mut self.block else { return };
        self.large = Some(LargeFrame::begin(charge, length, &block.buf[LENGTH..]));
        block.buf.clear();
        self.yield_memory();
    }

    /// Continues in another block with the buffered bytes.
    fn install(&mut self, charge: Charge) {
        let mut block = Block::new(charge);
        if let Some(mut old) = self.block.take() {
            block.buf.extend_from_slice(&old.buf);
            old.buf.clear();
            self.retire(old);
        }
        self.block = Some(block);
    }

    fn retire(&mut self, mut block: Block) {
        self.retired.retain_mut(|block| !block.is_unused());
        if !block.is_unused() {
            self.retired.push(block);
        }
    }

    /// Records that the connection waits for the rest of a frame and has been `quiet` so far. Returns true if
    /// the frame is too slow to keep its memory.
    pub(super) fn is_too_slow(&mut self, quiet: Duration) -> bool {
        let (charge, received) = match (&self.large, &self.block) {
            (Some(large), _) => (large.charge(), large.received()),
            (None, Some(block)) if !block.buf.is_empty() => (&block.charge, block.buf.len()),
            _ => return false,
        };
        let since = *self.since.get_or_insert_with(Instant::now);
        charge.is_too_slow(received, since.elapsed(), quiet)
    }

    /// Excludes the time of a wait for memory from the frame's time.
    pub(super) fn was_held_up(&mut self, since: Instant) {
        self.since = self.since.map(|began| began + since.elapsed());
    }

    /// True if a buffer could be released or shrunk.
    pub(super) fn has_memory(&self) -> bool {
        self.block.is_some() || self.large.is_some()
    }

    /// True if a frame is incomplete.
    pub(super) fn is_arriving(&self) -> bool {
        self.large.is_some() || !self.buffered().is_empty()
    }

    /// Releases an empty block before a wait if other connections need memory.
    pub(super) fn yield_memory(&mut self) {
        if self.memory.is_tight() && self.buffered().is_empty() {
            self.release();
        }
    }

    /// Releases an empty block before a long wait. A connection that fills its blocks keeps its block for a
    /// while.
    pub(super) fn rest_if_empty(&mut self) {
        if !self.is_busy && self.large.is_none() && self.buffered().is_empty() {
            self.release();
        }
    }

    fn release(&mut self) {
        self.is_busy = false;
        match self.block.take() {
            Some(block) => self.retire(block),
            None => self.retired.retain_mut(|block| !block.is_unused()),
        }
    }

    /// Releases unused memory of a quiet connection.
    pub(super) fn rest(&mut self) {
        if let Some(large) = &mut self.large {
            large.shrink();
        }
        if self.buffered().is_empty() {
            return self.release();
        }
        let Some(block) = &mut self.block else { return };
        let needed = block.buf.len().max(BLOCK_MIN);
        if needed < block.size() / 2 && block.reclaim() {
            let mut smaller = BytesMut::with_capacity(needed);
            smaller.extend_from_slice(&block.buf);
            block.buf = smaller;
            block.charge.shrink_to(needed);
        }
    }
}
