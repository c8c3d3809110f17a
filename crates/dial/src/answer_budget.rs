//! A limit on the memory of answers that several connections share: a large answer is received when there is
//! a place for its bytes, and holds the place until the last part of the answer is dropped. The bytes of a
//! waiting answer are in the buffers of the sockets.

use std::any::Any;
use std::fmt;
use std::pin::Pin;

use bytes::Bytes;

/// A place in a budget, released on drop.
pub type AnswerPlace = Box<dyn Any + Send + Sync>;
/// A wait for a place.
pub type AnswerPlaceFuture = Pin<Box<dyn Future<Output = AnswerPlace> + Send>>;

/// A limit on the bytes of large answers.
pub trait AnswerBudget: fmt::Debug + Send + Sync {
    /// Waits for a place for an answer of this size.
    fn place(&self, bytes: usize) -> AnswerPlaceFuture;
}

/// An answer with its place.
struct PlacedAnswer {
    answer: Bytes,
    _place: AnswerPlace,
}

impl AsRef<[u8]> for PlacedAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}

/// An answer whose parts hold a place.
pub(crate) fn with_place(answer: Bytes, place: AnswerPlace) -> Bytes {
    Bytes::from_owner(PlacedAnswer { answer, _place: place })
}
