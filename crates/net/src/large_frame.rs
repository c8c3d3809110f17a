//! A request that is too large for a connection's block, in its own buffer.
//!
//! The buffer grows with the received bytes: an announced length is no reason to allocate. The charge in the
//! common memory is released when the last slice of the frame is dropped.

use super::memory::Charge;
use super::stream::Stream;
use bytes::{BufMut, Bytes};
use std::io;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Minimum growth of a buffer.
const GROWTH_MIN: usize = 16 * 1024;
/// Growth from this size on copies to memory that the system has yet to provide, and takes long enough to
/// delay other tasks.
const GROWTH_LONG: usize = 4 * 1024 * 1024;

/// An incomplete frame.
#[derive(Debug)]
pub(super) struct LargeFrame {
    bytes: Vec<u8>,
    length: usize,
    charge: Charge,
}

/// A complete frame in use by the broker.
struct ChargedFrame {
    bytes: Vec<u8>,
    _charge: Charge,
}

impl AsRef<[u8]> for ChargedFrame {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl LargeFrame {
    /// A frame of `length` bytes that starts with `begin`.
    pub(super) fn begin(charge: Charge, length: usize, begin: &[u8]) -> LargeFrame {
        let mut bytes = Vec::with_capacity(charge.bytes());
        bytes.extend_from_slice(begin);
        LargeFrame { bytes, length, charge }
    }

    pub(super) fn received(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn charge(&self) -> &Charge {
        &self.charge
    }

    pub(super) fn is_whole(&self) -> bool {
        self.bytes.len() >= self.length
    }

    pub(super) fn into_frame(self) -> Bytes {
        Bytes::from_owner(ChargedFrame { bytes: self.bytes, _charge: self.charge })
    }

    /// The growth of a full buffer: as much again, up to the frame's length.
    fn growth(&self) -> usize {
        let capacity = self.bytes.capacity();
        self.length.min((2 * capacity).max(GROWTH_MIN)).saturating_sub(capacity)
    }

    fn has_free(&self) -> bool {
        self.bytes.len() < self.bytes.capacity().min(self.length)
    }

    /// Makes room for a read, if there is memory for it.
    pub(super) fn has_room(&mut self) -> bool {
        if self.has_free() {
            return true;
        }
        let growth = self.growth();
        let granted = self.charge.try_grow(growth);
        if granted {
            self.grow(growth);
        }
        granted
    }

    /// Waits for room.
    pub(super) async fn room(&mut self) {
        if self.has_free() {
            return;
        }
        let growth = self.growth();
        self.charge.grow(growth).await;
        self.grow(growth);
    }

    fn grow(&mut self, growth: usize) {
        let capacity = self.bytes.capacity() + growth;
        let bytes = &mut self.bytes;
        let mut grow = || bytes.reserve_exact(capacity - bytes.len());
        // A runtime with one thread cannot move its other tasks to another thread.
        if growth >= GROWTH_LONG && Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread {
            tokio::task::block_in_place(grow);
        } else {
            grow();
        }
    }

    /// Reads once from the stream. Requires room.
    pub(super) fn try_read(&mut self, stream: &mut Stream) -> io::Result<usize> {
        let room = self.bytes.capacity().min(self.length) - self.bytes.len();
        stream.try_read_buf(&mut (&mut self.bytes).limit(room))
    }

    /// Releases unused room.
    pub(super) fn shrink(&mut self) {
        if self.bytes.len() < self.bytes.capacity() / 2 && !self.charge.holds_reserve() {
            self.bytes.shrink_to_fit();
            self.charge.shrink_to(self.bytes.capacity());
        }
    }
}
