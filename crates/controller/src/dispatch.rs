//! Decodes frames into requests to the controller's task: served APIs and versions.

mod about;
mod quorum;

use std::sync::Arc;

use bytes::Bytes;
use thalweg_security::acl::Operation;
use thalweg_wire::frame;
use thalweg_wire::request::{ApiVersionsResponse, EnvelopeRequest};
use thalweg_wire::{ApiKey, DecodeError, Decoder, EncodeError, ErrorCode};

use about::api_version;

use crate::request_context::RequestContext;
use crate::requester::Requester;
use crate::state::{self, Access, Api, Call, LARGE_FRAME_BYTES, TaskRequest, encode};

/// Maximum number of array elements in an envelope and its principal, which have no arrays.
pub(crate) const AROUND_MAX: usize = 1_000;

/// The reason why a frame gets no answer.
#[derive(Debug, thiserror::Error)]
pub enum HandleError {
    #[error("a request that cannot be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("a response that cannot be written: {0}")]
    Encode(#[from] EncodeError),
    #[error("API {api_key} is not one of a controller")]
    UnknownApi { api_key: i16 },
    #[error("{api:?} has no version {version} here")]
    UnsupportedVersion { api: ApiKey, version: i16 },
    #[error("the metadata log has no room: the disk is full, or too many files are open")]
    DiskFull,
    #[error("the controller has stopped")]
    Stopped,
}

/// A decoded frame.
pub(crate) enum ParsedFrame {
    /// The answer, if the task is not needed.
    Answered(Bytes),
    /// A request to the controller's task.
    Request(TaskRequest),
}

/// A request that a broker forwards for a client (KIP-590).
pub(crate) const ENVELOPE: &Api =
    &Api::undecided(ApiKey::Envelope, Access::Cluster(Operation::ClusterAction), None);

/// The entries, in no order.
fn entries() -> impl Iterator<Item = &'static Api> {
    let decided = state::APIS.iter().copied().flatten();
    decided.chain(about::APIS).chain(quorum::APIS).chain(std::iter::once(ENVELOPE))
}

/// The entry of an API.
fn served(key: ApiKey) -> Option<&'static Api> {
    entries().find(|api| api.key == key)
}

/// True if the controller serves an API.
pub fn serves(key: ApiKey) -> bool {
    served(key).is_some()
}

/// True if brokers may forward clients' requests of an API in envelopes.
pub fn takes_forwarded(key: ApiKey) -> bool {
    served(key).is_some_and(|api| api.is_forwarded)
}

/// The served APIs in the order of their keys, which ApiVersions uses as well.
pub(crate) fn served_keys() -> Vec<ApiKey> {
    let mut keys: Vec<_> = entries().map(|api| api.key).collect();
    keys.sort_unstable_by_key(|key| *key as i16);
    keys
}

/// Checks that a served API has a version.
pub(crate) fn check_version(api: &Api, version: i16) -> Result<(), HandleError> {
    let (min, max) = api.key.versions();
    if (min..=max).contains(&version) {
        return Ok(());
    }
    Err(HandleError::UnsupportedVersion { api: api.key, version })
}

/// True if a request may take too long for a worker of the runtime.
pub(crate) fn is_large(frame: &Bytes) -> bool {
    frame.len() >= LARGE_FRAME_BYTES
}

/// Decodes a frame. `notes_permissions` comes from the [`Witness`](crate::Witness).
pub(crate) fn parse(
    frame: Bytes,
    requester: &Requester,
    notes_permissions: bool,
) -> Result<ParsedFrame, HandleError> {
    let prefix = frame::peek_request(&frame)?;
    let (version, correlation_id) = (prefix.api_version, prefix.correlation_id);
    let unknown = || HandleError::UnknownApi { api_key: prefix.api_key };
    let api = ApiKey::from_i16(prefix.api_key).and_then(served).ok_or_else(unknown)?;
    if api.key == ApiKey::ApiVersions && check_version(api, version).is_err() {
        // A client cannot know the versions of ApiVersions, so an unknown version is answered as version 0.
        let response = ApiVersionsResponse {
            error_code: ErrorCode::UnsupportedVersion.code(),
            api_keys: vec![api_version(ApiKey::ApiVersions)],
            ..ApiVersionsResponse::default()
        };
        return Ok(ParsedFrame::Answered(encode(&response, api.key, 0, correlation_id)?));
    }
    check_version(api, version)?;
    let is_large = api.is_large(frame.len());
    let mut d = Decoder::new(frame).with_elements_max(api.elements_max);
    let header = frame::decode_request_header(&mut d, api.key, version)?;
    let by = RequestContext::new(requester.clone(), api.key).noting_permissions(notes_permissions);
    let by = Arc::new(by.with_client_id(header.client_id));
    let read = api.read.ok_or_else(unknown)?;
    Ok(ParsedFrame::Request(read(&mut d, Call { api, version, correlation_id, is_large, by })?))
}

/// Checks that the request in an envelope may be forwarded. Returns the client.
pub(crate) fn check_envelope(envelope: &EnvelopeRequest) -> Result<Requester, ErrorCode> {
    let client = Requester::of_envelope(envelope)?;
    let prefix = frame::peek_request(&envelope.request_data).map_err(|_| ErrorCode::InvalidRequest)?;
    let is_forwarded = ApiKey::from_i16(prefix.api_key).is_some_and(takes_forwarded);
    if is_forwarded { Ok(client) } else { Err(ErrorCode::InvalidRequest) }
}
