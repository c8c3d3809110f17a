//! Traits of all messages and of requests.

use crate::{ApiKey, DecodeError, Decoder, EncodeError, Encoder};
use bytes::Bytes;
use std::fmt::Debug;

/// A message of Kafka's protocol or of one of its logs: one struct for all versions.
pub trait Message: Sized + Default + Clone + PartialEq + Debug {
    /// Kafka's name of it.
    const NAME: &'static str;
    /// The first version that exists.
    const MIN_VERSION: i16;
    /// The last version that exists.
    const MAX_VERSION: i16;

    /// Whether lengths are compact, and tagged fields present, at this version (KIP-482).
    fn is_flexible(version: i16) -> bool;

    /// Reads the message. The caller has checked that the version is in the message's range.
    fn decode(d: &mut Decoder, version: i16) -> Result<Self, DecodeError>;

    /// Writes the message. Fails where a field is set that the version cannot carry.
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError>;

    /// The bytes of the message alone, without a header.
    fn to_bytes(&self, version: i16) -> Result<Bytes, EncodeError> {
        let mut e = Encoder::new();
        self.encode(&mut e, version)?;
        Ok(e.into_bytes())
    }

    /// Reads a message that fills `bytes` to the last.
    fn from_bytes(bytes: Bytes, version: i16) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(bytes);
        let message = Self::decode(&mut d, version)?;
        d.finish()?;
        Ok(message)
    }
}

/// A request, and the response that belongs to it.
pub trait Request: Message {
    /// Its API.
    const KEY: ApiKey;
    /// Its response, of the same version.
    type Response: Message + 'static;
}

/// Why a message could not be decoded and encoded again.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The message has no such version.
    #[error("{name} has versions {min} to {max}, not {version}")]
    Version {
        /// The message.
        name: &'static str,
        /// Its first version.
        min: i16,
        /// Its last version.
        max: i16,
        /// The requested version.
        version: i16,
    },
    /// It could not be read.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// It could not be written.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// Decodes all of `bytes` at version `from` and encodes the message again at version `to`.
pub fn decode_encode<M: Message>(from: i16, bytes: Bytes, to: i16) -> Result<Vec<u8>, RegistryError> {
    check_version::<M>(from)?;
    check_version::<M>(to)?;
    Ok(M::from_bytes(bytes, from)?.to_bytes(to)?.to_vec())
}

/// Encodes the message with every field at its default.
pub fn encode_default<M: Message>(version: i16) -> Result<Vec<u8>, RegistryError> {
    check_version::<M>(version)?;
    Ok(M::default().to_bytes(version)?.to_vec())
}

fn check_version<M: Message>(version: i16) -> Result<(), RegistryError> {
    let (name, min, max) = (M::NAME, M::MIN_VERSION, M::MAX_VERSION);
    if (min..=max).contains(&version) {
        Ok(())
    } else {
        Err(RegistryError::Version { name, min, max, version })
    }
}
