//! Errors of SASL.

use std::sync::Arc;
use std::time::Duration;

pub use thalweg_security::sasl::scram::ScramFault;
use thalweg_wire::ErrorCode;

use super::CloseReason;

/// A broker does not let a client in.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{peer} rejects this client by {mechanism}: {fault}")]
pub struct AuthenticationFailed {
    /// The other side.
    pub peer: Arc<str>,
    /// `sasl.mechanism`.
    pub mechanism: &'static str,
    /// Why.
    pub fault: AuthenticationFault,
}

/// Why a broker does not let a client in.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AuthenticationFault {
    /// The listener has no SASL.
    #[error("this listener does not use SASL (expected security.protocol=PLAINTEXT or SSL)")]
    NoSasl,
    /// The listener has other mechanisms.
    #[error("this listener supports {} (sasl.mechanism)", .0.join(", "))]
    Mechanism(Vec<String>),
    /// User or password are wrong, as a rule.
    #[error(
        "{message} ({error_code}; user and password are those of sasl.jaas.config or sasl.username, sasl.password)"
    )]
    Refused {
        /// The broker's words.
        message: String,
        /// Its code.
        error_code: ErrorCode,
    },
    /// The exchange violates SCRAM, or the broker does not know the password.
    #[error(transparent)]
    Scram(#[from] ScramFault),
    /// There is no token to show: its file, and why.
    #[error("the token cannot be read from {0}")]
    Token(String),
    /// The broker asks for more messages than the mechanism has.
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
    /// True if the same exchange may go better later.
    pub fn is_retriable(&self) -> bool {
        matches!(self, AuthenticationFault::Ended(_) | AuthenticationFault::NoAnswer(_))
    }
}
