//! Short byte strings stored inline: each heap allocation could cost a cache miss.

use std::ops::Deref;

/// Bytes stored inline up to `FEW`, and on the heap beyond.
#[derive(Clone, Debug)]
pub(super) enum Bytes<const FEW: usize> {
    Few { len: u8, bytes: [u8; FEW] },
    Many(Box<[u8]>),
}

impl<const FEW: usize> Bytes<FEW> {
    pub fn new(from: &[u8]) -> Bytes<FEW> {
        match u8::try_from(from.len()) {
            Ok(len) if from.len() <= FEW => {
                let mut bytes = [0; FEW];
                bytes[..from.len()].copy_from_slice(from);
                Bytes::Few { len, bytes }
            }
            _ => Bytes::Many(from.into()),
        }
    }
}

impl<const FEW: usize> Deref for Bytes<FEW> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Few { len, bytes } => &bytes[..usize::from(*len)],
            Bytes::Many(bytes) => bytes,
        }
    }
}
