//! The requests after the current one, for a handler that serves several together.

use super::input::Input;
use bytes::Bytes;

/// The complete frames received after the current one. A handler that takes frames owes an answer for each.
#[derive(Debug)]
pub struct FramesBehind<'a> {
    input: &'a mut Input,
    /// Number of frames that may still be taken.
    room: usize,
}

impl<'a> FramesBehind<'a> {
    pub(super) fn new(input: &'a mut Input, room: usize) -> FramesBehind<'a> {
        FramesBehind { input, room }
    }

    /// The next frame, without taking it.
    pub fn peek(&self) -> Option<&[u8]> {
        if self.room == 0 { None } else { self.input.peek_frame() }
    }

    /// Takes the next frame.
    pub fn take(&mut self) -> Option<Bytes> {
        self.room = self.room.checked_sub(1)?;
        self.input.next_frame().ok().flatten()
    }
}
