//! SaslHandshake (key 17), versions 0 and 1, and SaslAuthenticate (key 36), versions 0 to 2, where no
//! authentication is expected: on a listener without SASL, or after the exchange. The exchange itself is in
//! `authentication`.

use super::entry::{Api, Open, now};
use thalweg_wire::request::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const HANDSHAKE: Api =
    Api::new(ApiKey::SaslHandshake, 0..=1, Open, |b, c, d| now(b, c, d, |_, _, r| handshake(r)));
pub(super) const AUTHENTICATE: Api =
    Api::new(ApiKey::SaslAuthenticate, 0..=2, Open, |b, c, d| now(b, c, d, |_, _, r| authenticate(r)));

/// The answer is ILLEGAL_SASL_STATE, as in Kafka.
pub fn handshake(_: SaslHandshakeRequest) -> SaslHandshakeResponse {
    SaslHandshakeResponse { error_code: ErrorCode::IllegalSaslState.code(), mechanisms: Vec::new() }
}

/// The answer is ILLEGAL_SASL_STATE, as in Kafka.
pub fn authenticate(_: SaslAuthenticateRequest) -> SaslAuthenticateResponse {
    let message = "SaslAuthenticate request received after successful authentication";
    SaslAuthenticateResponse {
        error_code: ErrorCode::IllegalSaslState.code(),
        error_message: Some(message.to_owned()),
        ..Default::default()
    }
}
