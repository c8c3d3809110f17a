//! Errors of SASL.

use std::sync::Arc;
use std::time::Duration;

use thalweg_wire::ErrorCode;

use super::CloseReason;

/// Minimum number of iterations; fewer would make it cheap to guess passwords from a captured exchange.
pub(crate) const ITERATIONS_MIN: u32 = 4096;
/// Maximum number of iterations: the broker chooses the number, and this side spends the time. Kafka's brokers allow
/// 16384.
pub(crate) const ITERATIONS_MAX: u32 = 1_000_000;

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
    /// Whether the same exchange may go better later.
    pub fn is_retriable(&self) -> bool {
        matches!(self, AuthenticationFault::Ended(_) | AuthenticationFault::NoAnswer(_))
    }
}

/// Why an exchange fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramFault {
    /// A message does not have SCRAM's format.
    #[error("its message {0} is not valid SCRAM")]
    Message(&'static str),
    /// The nonce does not start with ours.
    #[error("it answers another exchange")]
    Nonce,
    /// The number of iterations is out of bounds.
    #[error("it requests {0} iterations; expected {ITERATIONS_MIN} to {ITERATIONS_MAX}")]
    Iterations(u32),
    /// The broker's words for a refusal.
    #[error("it says {0}")]
    Refused(String),
    /// The broker does not know the password either.
    #[error("it does not prove that it knows the password: it may be an impostor")]
    ServerSignature,
}
