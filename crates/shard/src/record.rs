//! The bytes of the records of coordinators.

use bytes::{BufMut, Bytes, BytesMut};
use thalweg_wire::{EncodeError, Message};

/// A message preceded by a number, as in the records of all coordinators: the type of a key, or the version
/// of a value.
pub fn prefixed<M: Message>(prefix: i16, message: &M, version: i16) -> Result<Bytes, EncodeError> {
    let body = message.to_bytes(version)?;
    let mut bytes = BytesMut::with_capacity(2 + body.len());
    bytes.put_i16(prefix);
    bytes.put_slice(&body);
    Ok(bytes.freeze())
}
