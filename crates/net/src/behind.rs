//! The requests behind the one that is served, for a handler that serves several together.

use super::connection::Reply;
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

/// What a handler returns: the answer to the request, and those to the requests behind it that it served together with it.
pub struct Replies {
    /// To the request itself.
    pub first: Reply,
    /// To those behind, in their order.
    pub behind: Vec<ReplyBehind>,
}

/// The answer to a request that was taken from behind.
pub struct ReplyBehind {
    /// The request's length.
    pub frame_len: usize,
    /// Its answer.
    pub reply: Reply,
}

impl From<Reply> for Replies {
    fn from(first: Reply) -> Replies {
        Replies { first, behind: Vec::new() }
    }
}
