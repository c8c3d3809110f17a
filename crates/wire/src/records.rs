//! The content of a `records` field.

use bytes::Bytes;

/// Record batches: in memory, or in a file and sent without passing through memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Records {
    /// The batches themselves.
    Inline(Bytes),
    /// The length of the batches. The sender puts the bytes into the frame's [`Gap`](crate::Gap).
    Elsewhere(usize),
}

impl Records {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Records::Inline(bytes) => bytes.len(),
            Records::Elsewhere(len) => *len,
        }
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Records {
    fn default() -> Self {
        Records::Inline(Bytes::new())
    }
}
