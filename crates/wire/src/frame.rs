//! Frames: four bytes of length, a header, a message.
//!
//! The header's version follows from the API and its version (KIP-482), with one exception: the response to
//! ApiVersions keeps header 0 at all versions, so that a client without knowledge of the broker's versions
//! can read the response.

use crate::data::{RequestHeader, ResponseHeader};
use crate::{ApiKey, DecodeError, Decoder, EncodeError, Encoder, Gap, Message, Request};
use bytes::{Bytes, BytesMut};

/// Size of a frame's length field, in bytes.
pub const LENGTH_LEN: usize = 4;

/// The version of the header of a request.
pub fn request_header_version(key: ApiKey, version: i16) -> i16 {
    if version >= key.flexible_from() { 2 } else { 1 }
}

/// The version of the header of a response.
pub fn response_header_version(key: ApiKey, version: i16) -> i16 {
    if key != ApiKey::ApiVersions && version >= key.flexible_from() { 1 } else { 0 }
}

/// The key, version and correlation id at the start of every request, independent of its header's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestPrefix {
    /// The API's key, known or unknown.
    pub api_key: i16,
    /// The API's version, served or not.
    pub api_version: i16,
    /// The id that the response repeats.
    pub correlation_id: i32,
}

/// Reads the common start of every request and leaves `frame` (without its length) unchanged.
pub fn peek_request(frame: &Bytes) -> Result<RequestPrefix, DecodeError> {
    let mut d = Decoder::new(frame.clone());
    Ok(RequestPrefix { api_key: d.i16()?, api_version: d.i16()?, correlation_id: d.i32()? })
}

/// Reads the header of a request whose API and version are served.
pub fn decode_request_header(
    d: &mut Decoder,
    key: ApiKey,
    version: i16,
) -> Result<RequestHeader, DecodeError> {
    RequestHeader::decode(d, request_header_version(key, version))
}

/// A frame that carries a request, with its length.
pub fn encode_request<R: Request>(
    request: &R,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
) -> Result<Bytes, EncodeError> {
    let mut e = Encoder::with_capacity(256);
    e.i32(0);
    let header = RequestHeader {
        request_api_key: R::KEY as i16,
        request_api_version: version,
        correlation_id,
        client_id: client_id.map(str::to_owned),
    };
    header.encode(&mut e, request_header_version(R::KEY, version))?;
    request.encode(&mut e, version)?;
    finish(e).map(|(buf, _)| buf.freeze())
}

/// A frame that carries a response, with its length, and the gaps where records from elsewhere belong.
pub fn encode_response<M: Message>(
    response: &M,
    key: ApiKey,
    version: i16,
    correlation_id: i32,
) -> Result<(BytesMut, Vec<Gap>), EncodeError> {
    encode_response_into(BytesMut::with_capacity(256), response, key, version, correlation_id)
}

/// Like [`encode_response`], into an empty buffer.
pub fn encode_response_into<M: Message>(
    buf: BytesMut,
    response: &M,
    key: ApiKey,
    version: i16,
    correlation_id: i32,
) -> Result<(BytesMut, Vec<Gap>), EncodeError> {
    debug_assert!(buf.is_empty(), "the frame's length is patched at the start of the buffer");
    let mut e = Encoder::append_to(buf);
    e.i32(0);
    let header = ResponseHeader { correlation_id };
    header.encode(&mut e, response_header_version(key, version))?;
    response.encode(&mut e, version)?;
    finish(e)
}

fn finish(mut e: Encoder) -> Result<(BytesMut, Vec<Gap>), EncodeError> {
    let length = e.total_len() - LENGTH_LEN;
    let length = i32::try_from(length).map_err(|_| EncodeError::TooLong { length })?;
    e.patch_i32(0, length);
    Ok(e.into_parts())
}

/// Reads the response to a request of type `R` from a frame without its length: its correlation id and
/// message.
pub fn decode_response<R: Request>(frame: Bytes, version: i16) -> Result<(i32, R::Response), DecodeError> {
    let mut d = Decoder::new(frame);
    let header = ResponseHeader::decode(&mut d, response_header_version(R::KEY, version))?;
    Ok((header.correlation_id, R::Response::decode(&mut d, version)?))
}
