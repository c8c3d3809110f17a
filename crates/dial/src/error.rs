//! Errors between a client and a broker: the peer, the request, and the reason.
//!
//! All errors can be cloned, because the end of a connection is returned to every waiting request.

mod authentication;
mod tls;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use thalweg_wire::{ApiKey, DecodeError, EncodeError, ErrorCode};

pub use authentication::{AuthenticationFailed, AuthenticationFault, ScramFault};
pub use tls::{TlsFailed, TlsFault};

/// Why a request failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// An address is not `host:port`.
    #[error(transparent)]
    InvalidAddress(#[from] InvalidAddress),
    /// No connection could be made.
    #[error(transparent)]
    ConnectFailed(#[from] ConnectFailed),
    /// No connection was made in time.
    #[error(transparent)]
    ConnectTimedOut(#[from] ConnectTimedOut),
    /// TLS with the broker failed.
    #[error(transparent)]
    Tls(#[from] TlsFailed),
    /// The peer does not behave like a broker in the handshake.
    #[error(transparent)]
    Handshake(#[from] HandshakeFailed),
    /// The broker rejects this client's authentication.
    #[error(transparent)]
    Authentication(#[from] AuthenticationFailed),
    /// The connection ended before the answer arrived.
    #[error(transparent)]
    Closed(#[from] ConnectionClosed),
    /// The answer did not arrive in time.
    #[error(transparent)]
    RequestTimedOut(#[from] RequestTimedOut),
    /// The two sides have no common version of the API.
    #[error(transparent)]
    VersionMismatch(#[from] VersionMismatch),
    /// The request cannot be encoded in this version.
    #[error(transparent)]
    Unencodable(#[from] UnencodableRequest),
    /// The answer cannot be decoded.
    #[error(transparent)]
    Unreadable(#[from] UnreadableResponse),
    /// The broker answered with an error.
    #[error(transparent)]
    Refused(#[from] RefusedRequest),
    /// The metadata has no such broker.
    #[error(transparent)]
    BrokerUnknown(#[from] BrokerUnknown),
    /// There is no bootstrap address.
    #[error(transparent)]
    NoBootstrapServer(#[from] NoBootstrapServer),
}

impl ClientError {
    /// True if the same request may succeed later, perhaps at another broker.
    pub fn is_retriable(&self) -> bool {
        match self {
            ClientError::ConnectFailed(_)
            | ClientError::ConnectTimedOut(_)
            | ClientError::Handshake(_)
            | ClientError::Closed(_)
            | ClientError::RequestTimedOut(_)
            | ClientError::BrokerUnknown(_) => true,
            ClientError::Tls(failed) => failed.fault.is_retriable(),
            ClientError::Authentication(failed) => failed.fault.is_retriable(),
            ClientError::Refused(refused) => refused.error_code.is_retriable(),
            ClientError::InvalidAddress(_)
            | ClientError::VersionMismatch(_)
            | ClientError::Unencodable(_)
            | ClientError::Unreadable(_)
            | ClientError::NoBootstrapServer(_) => false,
        }
    }

    /// This error, extended by the alternative `right` if the broker does not serve the request or the
    /// request's feature is disabled in the cluster.
    pub fn if_unserved(self, what: String, right: &str) -> ClientError {
        let message = match &self {
            ClientError::VersionMismatch(mismatch) => format!("{mismatch}; {right}"),
            ClientError::Refused(refused) if refused.error_code == ErrorCode::UnsupportedVersion => {
                right.to_owned()
            }
            _ => return self,
        };
        RefusedRequest { what, error_code: ErrorCode::UnsupportedVersion, message: Some(message) }.into()
    }

    /// The error code of the broker's answer; `None` without an answer.
    pub fn error_code(&self) -> Option<ErrorCode> {
        match self {
            ClientError::Refused(refused) => Some(refused.error_code),
            _ => None,
        }
    }
}

/// An address is not `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address:?} is not a broker address: expected HOST:PORT, for example localhost:9092")]
pub struct InvalidAddress {
    /// The text as given.
    pub address: String,
}

/// No connection could be made to any address of a host.
#[derive(Clone, Debug, thiserror::Error)]
#[error("Cannot connect to {peer}: {source}")]
pub struct ConnectFailed {
    /// Address, `host:port`.
    pub peer: Arc<str>,
    /// Error of the last attempt.
    pub source: Arc<io::Error>,
}

/// No connection was made in time.
#[derive(Clone, Debug, thiserror::Error)]
#[error("Cannot connect to {peer} within {} ms", timeout.as_millis())]
pub struct ConnectTimedOut {
    /// Address, `host:port`.
    pub peer: Arc<str>,
    pub timeout: Duration,
}

/// A connection was opened, but the peer did not return its versions, the first answer of every broker.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{peer} did not answer like a Kafka broker: {fault}")]
pub struct HandshakeFailed {
    /// Address, `host:port`.
    pub peer: Arc<str>,
    /// The peer's behaviour.
    pub fault: HandshakeFault,
}

/// The peer's behaviour instead of returning its versions.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HandshakeFault {
    /// No answer within this time.
    #[error("no answer within {} ms", .0.as_millis())]
    NoAnswer(Duration),
    /// The peer closed the connection. A broker that is about to stop does so too.
    #[error("it closed the connection (a TLS listener does so)")]
    Closed,
    /// Bytes of another protocol.
    #[error("it speaks {0}")]
    Foreign(&'static str),
    /// The connection ended for another reason.
    #[error(transparent)]
    Other(CloseReason),
}

impl From<CloseReason> for HandshakeFault {
    fn from(reason: CloseReason) -> HandshakeFault {
        match reason {
            CloseReason::ByPeer => HandshakeFault::Closed,
            // The bytes in the position of a frame's length.
            CloseReason::FrameLength { length, .. } => match &length.to_be_bytes() {
                b"HTTP" => HandshakeFault::Foreign("HTTP"),
                b"SSH-" => HandshakeFault::Foreign("SSH"),
                [0x14..=0x17, 0x03, ..] => {
                    HandshakeFault::Foreign("TLS (expected security.protocol=SSL or SASL_SSL)")
                }
                _ => HandshakeFault::Other(reason),
            },
            other => HandshakeFault::Other(other),
        }
    }
}

/// The connection ended.
#[derive(Clone, Debug, thiserror::Error)]
#[error("The connection to {peer} ended: {reason}")]
pub struct ConnectionClosed {
    /// Address of the peer.
    pub peer: Arc<str>,
    pub reason: CloseReason,
}

/// Why a connection ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CloseReason {
    /// The peer closed the connection.
    #[error("the peer closed it")]
    ByPeer,
    /// The peer closed the connection instead of sending the first answer.
    #[error("the peer closed it without an answer (a SASL listener does so)")]
    AtOnce,
    /// All handles were dropped.
    #[error("closed locally")]
    ByClient,
    #[error("{0}")]
    Tls(TlsFault),
    /// The peer limits the session lifetime, and re-authentication failed.
    #[error("the session could not be renewed: {0}")]
    NotRenewed(Arc<str>),
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[source] Arc<io::Error>),
    /// The peer announced a frame beyond the limit, or of negative length.
    #[error("the peer announced a frame of {length} bytes; the limit is {limit}")]
    FrameLength { length: i32, limit: usize },
    /// The answer does not belong to the oldest request.
    #[error("received the answer to request {received}; expected {expected:?}")]
    Correlation { received: i32, expected: Option<i32> },
    /// A request was not answered in time; later answers on this connection are unreliable.
    #[error("{api:?} was not answered within {} ms", timeout.as_millis())]
    RequestTimedOut { api: ApiKey, timeout: Duration },
}

impl From<io::Error> for CloseReason {
    fn from(error: io::Error) -> CloseReason {
        match TlsFault::of(&error) {
            Some(fault) => CloseReason::Tls(fault),
            // A peer that ends TLS without close_notify has closed the connection; Java's TLS does so.
            None if error.kind() == io::ErrorKind::UnexpectedEof => CloseReason::ByPeer,
            None => CloseReason::Io(Arc::new(error)),
        }
    }
}

/// A request was not answered in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{peer} did not answer {api:?} within {} ms", timeout.as_millis())]
pub struct RequestTimedOut {
    /// Address of the peer.
    pub peer: Arc<str>,
    /// API of the request.
    pub api: ApiKey,
    pub timeout: Duration,
}

/// The two sides have no common version of an API.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", mismatch(self))]
pub struct VersionMismatch {
    /// Address of the peer.
    pub peer: Arc<str>,
    /// API of the request.
    pub api: ApiKey,
    /// First and last version that the caller can send.
    pub ours: (i16, i16),
    /// First and last version that the peer serves; `None` if it serves none.
    pub theirs: Option<(i16, i16)>,
    /// True if the peer serves the APIs of controllers for brokers, and no APIs for clients.
    pub is_controller: bool,
}

fn mismatch(mismatch: &VersionMismatch) -> String {
    let VersionMismatch { peer, api, ours, theirs, is_controller } = mismatch;
    let served = match theirs {
        Some((min, max)) => format!("{api:?} in versions {min} to {max}"),
        None if *is_controller => {
            return format!(
                "{peer} is the port of a controller, which serves brokers, not clients: expected a broker's port \
                 (in its advertised.listeners, often 9092)"
            );
        }
        None => format!("no {api:?}"),
    };
    format!("{peer} serves {served}, where {} to {} can be sent", ours.0, ours.1)
}

/// A request cannot be encoded: a field is set that the version lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Cannot write {api:?} version {version} for {peer}: {source}")]
pub struct UnencodableRequest {
    /// Address of the peer.
    pub peer: Arc<str>,
    /// API of the request.
    pub api: ApiKey,
    /// Version of the request.
    pub version: i16,
    /// The encoding error.
    pub source: EncodeError,
}

/// An answer cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Cannot read the answer of {peer} to {api:?} version {version}: {source}")]
pub struct UnreadableResponse {
    /// Address of the peer.
    pub peer: Arc<str>,
    /// API of the request.
    pub api: ApiKey,
    /// Version of the request.
    pub version: i16,
    /// The decoding error.
    pub source: DecodeError,
}

/// The metadata has no such broker, because it is down or never existed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The cluster has no broker {id} at the moment")]
pub struct BrokerUnknown {
    pub id: i32,
}

/// There is no bootstrap address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no bootstrap server is given: expected HOST:PORT[,HOST:PORT...], for example localhost:9092")]
pub struct NoBootstrapServer;

/// The bootstrap addresses cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapError {
    /// The list is empty.
    #[error(transparent)]
    NoBootstrapServer(#[from] NoBootstrapServer),
    /// An entry of the list is not an address.
    #[error(transparent)]
    InvalidAddress(#[from] InvalidAddress),
}

/// A broker answered with an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {error_code}{}", explained(*error_code, message.as_deref()))]
pub struct RefusedRequest {
    /// The request and its subject, as the beginning of a sentence.
    pub what: String,
    /// The broker's error code.
    pub error_code: ErrorCode,
    /// The broker's message, if the answer has one.
    pub message: Option<String>,
}

/// The broker's message, or our own for error codes that typically come from a misspelled name.
fn explained(code: ErrorCode, message: Option<&str>) -> String {
    let words = message.filter(|message| !message.is_empty()).or(match code {
        ErrorCode::UnknownTopicOrPartition => Some("there is no such topic or partition"),
        ErrorCode::InvalidTopicException => Some("no topic can have this name"),
        ErrorCode::GroupIdNotFound => Some("there is no such group"),
        ErrorCode::NonEmptyGroup => Some("the group has members"),
        ErrorCode::CoordinatorNotAvailable => Some(
            "no broker coordinates it now: its partition of the coordinators' topic has no leader, or that topic is not there yet, \
             or too few brokers are for its replication factor",
        ),
        _ => None,
    });
    words.map(|words| format!(" ({words})")).unwrap_or_default()
}

impl RefusedRequest {
    /// Fails if `code` is an error; unknown codes count as UNKNOWN_SERVER_ERROR, as in Kafka.
    pub fn check(
        code: i16,
        message: Option<&str>,
        what: impl FnOnce() -> String,
    ) -> Result<(), RefusedRequest> {
        if code == 0 {
            return Ok(());
        }
        let error_code = ErrorCode::from_i16(code).unwrap_or(ErrorCode::UnknownServerError);
        Err(RefusedRequest { what: what(), error_code, message: message.map(str::to_owned) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_message_of_a_broker_explains_nothing() {
        let refused = |error_code, message: &str| {
            let message = Some(message.to_owned());
            RefusedRequest { what: "Group g".to_owned(), error_code, message }.to_string()
        };
        let code = ErrorCode::GroupAuthorizationFailed;
        assert_eq!(refused(code, ""), "Group g: GROUP_AUTHORIZATION_FAILED");
        assert_eq!(refused(code, "no"), "Group g: GROUP_AUTHORIZATION_FAILED (no)");
        let away = refused(ErrorCode::CoordinatorNotAvailable, "");
        assert!(away.contains("has no leader, or that topic is not there yet"), "{away}");
        assert_eq!(
            refused(ErrorCode::GroupIdNotFound, ""),
            "Group g: GROUP_ID_NOT_FOUND (there is no such group)"
        );
    }
}
