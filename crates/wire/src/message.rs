//! Traits of all messages and of requests.

use crate::{ApiKey, DecodeError, Decoder, EncodeError, Encoder};
use bytes::Bytes;
use std::fmt::Debug;

/// A message of Kafka's protocol or of one of its logs: one struct for all versions.
pub trait Message: Sized + Default + Clone + PartialEq + Debug {
    /// Kafka's name of the message.
    const NAME: &'static str;
    /// The oldest version of the schema.
    const MIN_VERSION: i16;
    /// The newest version of the schema.
    const MAX_VERSION: i16;

    /// True if lengths are compact, and tagged fields present, at this version (KIP-482).
    fn is_flexible(version: i16) -> bool;

    /// Reads the message. The caller has checked that the version is in the message's range.
    fn decode(d: &mut Decoder, version: i16) -> Result<Self, DecodeError>;

    /// Writes the message. Fails if a field is set that the version cannot carry.
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError>;

    /// The bytes of the message alone, without a header.
    fn to_bytes(&self, version: i16) -> Result<Bytes, EncodeError> {
        let mut e = Encoder::new();
        self.encode(&mut e, version)?;
        Ok(e.into_bytes())
    }

    /// Reads a message from `bytes`; fails if bytes remain.
    fn from_bytes(bytes: Bytes, version: i16) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(bytes);
        let message = Self::decode(&mut d, version)?;
        d.finish()?;
        Ok(message)
    }
}

/// A request, with its API and response.
pub trait Request: Message {
    /// The API of the request.
    const KEY: ApiKey;
    /// The response to the request, of the same version.
    type Response: Response + 'static;
}

/// A response, with the fields common to the responses of all APIs.
pub trait Response: Message {
    /// Time for the client to wait before its next request; `None` if the response lacks the field.
    fn throttle_time_ms(&mut self) -> Option<&mut i32> {
        None
    }

    /// Calls `each` for every error code in the response, including 0.
    fn each_error_code(&self, _each: &mut dyn FnMut(i16)) {}
}

/// The position of a field of fixed length in the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldPosition {
    /// Before all other fields.
    First,
    /// After all other fields, before the tagged ones, of which the message defines none.
    Last,
}

/// The reason why a message could not be decoded and encoded again.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The message has no such version.
    #[error("{name} has versions {min} to {max}, not {version}")]
    Version {
        /// Kafka's name of the message.
        name: &'static str,
        /// The first version of the message.
        min: i16,
        /// The last version of the message.
        max: i16,
        /// The requested version.
        version: i16,
    },
    /// The message could not be read.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The message could not be written.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::find_coordinator_response::Coordinator;
    use crate::request::txn_offset_commit_response::{
        TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
    };
    use crate::request::{
        EndTxnResponse, FindCoordinatorResponse, SaslHandshakeResponse, StreamsGroupHeartbeatResponse,
        TxnOffsetCommitResponse,
    };

    fn codes(response: &impl Response) -> Vec<i16> {
        let mut codes = Vec::new();
        response.each_error_code(&mut |code| codes.push(code));
        codes
    }

    #[test]
    fn error_codes_are_found_wherever_a_response_has_them() {
        assert_eq!(codes(&EndTxnResponse { error_code: 48, ..Default::default() }), [48]);
        let coordinators =
            [0, 15].map(|error_code| Coordinator { error_code, ..Default::default() }).to_vec();
        assert_eq!(codes(&FindCoordinatorResponse { coordinators, ..Default::default() }), [0, 0, 15]);
        let partitions =
            [27, 25].map(|error_code| TxnOffsetCommitResponsePartition { error_code, ..Default::default() });
        let topic = TxnOffsetCommitResponseTopic { partitions: partitions.to_vec(), ..Default::default() };
        assert_eq!(codes(&TxnOffsetCommitResponse { topics: vec![topic], ..Default::default() }), [27, 25]);
    }

    #[test]
    fn throttle_time_is_set_where_a_response_has_it() {
        let mut response = StreamsGroupHeartbeatResponse::default();
        *response.throttle_time_ms().expect("it has one") = 7;
        assert_eq!(response.throttle_time_ms, 7);
        assert_eq!(SaslHandshakeResponse::default().throttle_time_ms(), None);
    }
}
