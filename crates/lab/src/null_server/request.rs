//! A request being served: its body decoded, its answer encoded.

use bytes::BytesMut;
use thalweg_wire::{ApiKey, DecodeError, Decoder, EncodeError, Message, frame};

use super::ServerState;

/// A request that cannot be answered, which ends the connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnanswerableRequest {
    #[error("a request could not be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("an answer could not be written: {0}")]
    Encode(#[from] EncodeError),
    #[error("api_key={key} version={version} is not served")]
    NotServed { key: i16, version: i16 },
}

/// A request being served.
pub(super) struct Request<'a> {
    pub(super) shared: &'a ServerState,
    pub(super) key: ApiKey,
    pub(super) version: i16,
    pub(super) correlation_id: i32,
}

impl Request<'_> {
    /// Encodes an answer.
    pub(super) fn encode<M: Message>(&self, response: &M) -> Result<BytesMut, UnanswerableRequest> {
        Ok(frame::encode_response(response, self.key, self.version, self.correlation_id)?.0)
    }

    pub(super) fn decode<M: Message>(&self, d: &mut Decoder) -> Result<M, UnanswerableRequest> {
        Ok(M::decode(d, self.version)?)
    }
}
