//! The requests behind the one that is served, for a handler that serves several together.

use super::input::Input;
use bytes::Bytes;

/// The whole frames that have arrived behind the one that is handled. A handler may take some of them, and then owes an answer to
/// each.
#[derive(Debug)]
pub struct Behind<'a> {
    input: &'a mut Input,
    /// How many may be taken yet.
    room: usize,
}

impl<'a> Behind<'a> {
    pub(super) fn new(input: &'a mut Input, room: usize) -> Behind<'a> {
        Behind { input, room }
    }

    /// The next frame, where it lies.
    pub fn peek(&self) -> Option<&[u8]> {
        if self.room == 0 { None } else { self.input.peek_frame() }
    }

    /// Takes the next frame.
    pub fn take(&mut self) -> Option<Bytes> {
        self.room = self.room.checked_sub(1)?;
        self.input.next_frame().ok().flatten()
    }
}
