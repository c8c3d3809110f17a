//! The content of a `records` field.

use bytes::Bytes;

/// Record batches: at hand, or in a file from which they are sent without passing through memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Records {
    /// The batches themselves.
    Inline(Bytes),
    /// Their length; the sender puts the bytes into the frame's [`Gap`](crate::Gap).
    Elsewhere(usize),
}

impl Records {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        match self {
            Records::Inline(bytes) => bytes.len(),
            Records::Elsewhere(len) => *len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Records {
    fn default() -> Self {
        Records::Inline(Bytes::new())
    }
}
