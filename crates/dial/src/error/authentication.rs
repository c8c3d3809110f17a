//! Errors of SASL.

use std::sync::Arc;
use std::time::Duration;

pub use thalweg_security::sasl::scram::ScramFault;
use thalweg_wire::ErrorCode;

use super::CloseReason;

/// A broker rejects a client's authentication.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{peer} rejects this client by {mechanism}: {fault}")]
pub struct AuthenticationFailed {
    /// Address of the peer.
    pub peer: Arc<str>,
    /// `sasl.mechanism`.
    pub mechanism: &'static str,
    pub fault: AuthenticationFault,
}

/// Why a broker rejects a client's authentication.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AuthenticationFault {
    /// The listener has no SASL.
    #[error("this listener does not use SASL (expected security.protocol=PLAINTEXT or SSL)")]
    NoSasl,
    /// The listener does not support the mechanism; it supports these.
    #[error("this listener supports {} (sasl.mechanism)", .0.join(", "))]
    Mechanism(Vec<String>),
    /// User or password are usually wrong.
    #[error(
        "{message} ({error_code}; user and password are those of sasl.jaas.config or sasl.username, sasl.password)"
    )]
    Refused {
        /// The broker's message.
        message: String,
        /// The broker's error code.
        error_code: ErrorCode,
    },
    /// The exchange violates SCRAM, or the broker does not know the password.
    #[error(transparent)]
    Scram(#[from] ScramFault),
    /// The token cannot be read: its file, and the cause.
    #[error("the token cannot be read from {0}")]
    Token(String),
    /// The broker requests more messages than the mechanism has.
    #[error("it continues beyond the mechanism's messages")]
    Rounds,
    /// The connection ended meanwhile.
    #[error("the connection ended meanwhile: {0}")]
    Ended(CloseReason),
    /// The answer did not arrive in time.
    #[error("it did not answer within {} ms", .0.as_millis())]
    NoAnswer(Duration),
}

impl AuthenticationFault {
    /// True if the same exchange may succeed later.
    pub fn is_retriable(&self) -> bool {
        matches!(self, AuthenticationFault::Ended(_) | AuthenticationFault::NoAnswer(_))
    }
}
