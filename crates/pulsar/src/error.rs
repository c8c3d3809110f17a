//! Failures of connections and requests: the peer, the request, and the reason.
//!
//! All errors can be cloned, because the end of a connection is returned to everything that used it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::frame::FrameFault;
use crate::server_error::ServerError;
use crate::service_url::InvalidServiceUrl;
use crate::topic::InvalidTopicName;

/// Why a request failed, or a producer or consumer could not be opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PulsarError {
    /// The service URL is wrong, or a broker's answer has a wrong one.
    #[error(transparent)]
    InvalidServiceUrl(#[from] InvalidServiceUrl),
    #[error(transparent)]
    InvalidTopicName(#[from] InvalidTopicName),
    /// No connection could be made.
    #[error(transparent)]
    ConnectFailed(#[from] ConnectFailed),
    /// No connection was made in time.
    #[error(transparent)]
    ConnectTimedOut(#[from] ConnectTimedOut),
    /// The peer does not behave like a broker in the handshake.
    #[error(transparent)]
    Handshake(#[from] HandshakeFailed),
    /// The connection ended before the answer arrived.
    #[error(transparent)]
    Closed(#[from] ConnectionClosed),
    /// The answer did not arrive in time.
    #[error(transparent)]
    RequestTimedOut(#[from] RequestTimedOut),
    /// The broker answered with an error.
    #[error(transparent)]
    Refused(#[from] RequestRefused),
    /// The answer does not belong to the request, or lacks a part.
    #[error(transparent)]
    UnexpectedAnswer(#[from] UnexpectedAnswer),
    /// Brokers pass the lookup of a topic around.
    #[error(transparent)]
    TooManyRedirects(#[from] TooManyRedirects),
    /// The broker took the topic away while a producer or consumer was being opened.
    #[error(transparent)]
    TopicMoved(#[from] TopicMoved),
}

impl PulsarError {
    /// The broker's error; `None` without an answer.
    pub fn server_error(&self) -> Option<ServerError> {
        match self {
            PulsarError::Refused(refused) => Some(refused.error),
            PulsarError::Handshake(HandshakeFailed { fault: HandshakeFault::Refused(error, _), .. }) => {
                Some(*error)
            }
            _ => None,
        }
    }

    /// True if the same request may succeed later, perhaps at another broker.
    pub fn is_retriable(&self) -> bool {
        self.passes(ServerError::is_retriable)
    }

    /// True if a reconnection may succeed later.
    pub(crate) fn is_retriable_again(&self) -> bool {
        self.passes(ServerError::is_retriable_again)
    }

    fn passes(&self, refusal_passes: impl Fn(ServerError) -> bool) -> bool {
        match self {
            PulsarError::ConnectFailed(_)
            | PulsarError::ConnectTimedOut(_)
            | PulsarError::Closed(_)
            | PulsarError::RequestTimedOut(_)
            | PulsarError::TooManyRedirects(_)
            | PulsarError::TopicMoved(_) => true,
            PulsarError::Handshake(failed) => match failed.fault {
                HandshakeFault::NoAnswer(_) | HandshakeFault::Closed | HandshakeFault::Other(_) => true,
                HandshakeFault::Refused(error, _) => refusal_passes(error),
                HandshakeFault::Foreign(_)
                | HandshakeFault::Authentication
                | HandshakeFault::Unexpected(_) => false,
            },
            PulsarError::Refused(refused) => refusal_passes(refused.error),
            PulsarError::InvalidServiceUrl(_)
            | PulsarError::InvalidTopicName(_)
            | PulsarError::UnexpectedAnswer(_) => false,
        }
    }
}

/// No connection could be made to any address of a host.
#[derive(Clone, Debug, thiserror::Error)]
#[error("Cannot connect to {peer}: {source}")]
pub struct ConnectFailed {
    /// Address, `host:port`.
    pub peer: Arc<str>,
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

/// A connection was opened, but the peer did not answer CONNECT with CONNECTED.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{peer} did not answer like a Pulsar broker: {fault}")]
pub struct HandshakeFailed {
    /// Address, `host:port`.
    pub peer: Arc<str>,
    pub fault: HandshakeFault,
}

/// The peer's behaviour instead of answering CONNECTED.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HandshakeFault {
    /// No answer within this time.
    #[error("no answer within {} ms", .0.as_millis())]
    NoAnswer(Duration),
    #[error("it closed the connection (a TLS listener does so)")]
    Closed,
    /// Bytes of another protocol.
    #[error("it speaks {0}")]
    Foreign(&'static str),
    /// The broker asks for an authentication that this client lacks.
    #[error("it asks for authentication, which this client lacks")]
    Authentication,
    /// The broker's error, and its message.
    #[error("{0} ({1})")]
    Refused(ServerError, Arc<str>),
    /// A command of this kind came instead (`BaseCommand.Type`).
    #[error("it sent a command of kind {0}")]
    Unexpected(u32),
    /// The connection ended for another reason.
    #[error(transparent)]
    Other(CloseReason),
}

impl From<CloseReason> for HandshakeFault {
    fn from(reason: CloseReason) -> HandshakeFault {
        match &reason {
            CloseReason::ByPeer => HandshakeFault::Closed,
            // The bytes in the position of a frame's length.
            CloseReason::Frame(FrameFault::Length { length, .. }) => match &length.to_be_bytes() {
                b"HTTP" => HandshakeFault::Foreign("HTTP (expected the port of pulsar://, often 6650)"),
                b"SSH-" => HandshakeFault::Foreign("SSH"),
                [0x14..=0x17, 0x03, ..] => HandshakeFault::Foreign("TLS, which this client lacks"),
                _ => HandshakeFault::Other(reason),
            },
            _ => HandshakeFault::Other(reason),
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
    #[error("the peer closed it")]
    ByPeer,
    /// All users of the connection were dropped.
    #[error("closed locally")]
    ByClient,
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[source] Arc<io::Error>),
    #[error(transparent)]
    Frame(#[from] FrameFault),
    /// Neither a command nor the answer to PING arrived.
    #[error("the peer was silent for {} ms", .0.as_millis())]
    Silent(Duration),
    /// A receipt skips messages that were sent before.
    #[error("received the receipt of sequence id {received}; expected {expected:?}")]
    Receipt {
        received: u64,
        /// Sequence id of the oldest unanswered batch; `None` if all are answered.
        expected: Option<u64>,
    },
    /// The broker sends more messages than it was permitted to.
    #[error("the peer sent {entries} batches without permission")]
    Overrun { entries: usize },
}

impl From<io::Error> for CloseReason {
    fn from(error: io::Error) -> CloseReason {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return CloseReason::ByPeer;
        }
        CloseReason::Io(Arc::new(error))
    }
}

/// A request was not answered in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{peer} did not answer within {} ms: {request}", timeout.as_millis())]
pub struct RequestTimedOut {
    /// Address of the peer.
    pub peer: Arc<str>,
    pub request: RequestSubject,
    pub timeout: Duration,
}

/// A broker answered with an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{request}: {error}{}", in_brackets(message))]
pub struct RequestRefused {
    pub request: RequestSubject,
    /// The broker's error, by Pulsar's name.
    pub error: ServerError,
    /// The broker's message; may be empty.
    pub message: String,
}

/// The answer to a request is of another kind, or lacks a part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{request}: the answer has no {missing}")]
pub struct UnexpectedAnswer {
    pub request: RequestSubject,
    pub missing: &'static str,
}

/// Brokers referred the lookup of a topic to each other too often.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The lookup of {topic} was redirected {redirects} times, at last to {broker}")]
pub struct TooManyRedirects {
    pub topic: String,
    pub redirects: usize,
    /// Address of the last broker, `host:port`.
    pub broker: Arc<str>,
}

/// The broker closed a producer or consumer that was being opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{topic} moved to another broker meanwhile")]
pub struct TopicMoved {
    pub topic: String,
}

/// A request and its subject, as the beginning of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSubject {
    /// The request, such as `Lookup of`.
    pub action: &'static str,
    /// Topic, or topic and subscription.
    pub subject: Arc<str>,
}

impl fmt::Display for RequestSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action, self.subject)
    }
}

/// A broker's message after its error, without Java's line breaks.
pub(crate) fn in_brackets(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default().trim();
    if line.is_empty() { String::new() } else { format!(" ({line})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_request_and_pulsars_error() {
        let request = RequestSubject { action: "Lookup of", subject: "persistent://a/b/c".into() };
        let message = "Topic not found\n  at org.apache".to_owned();
        let refused = RequestRefused { request, error: ServerError::TopicNotFound, message };
        assert_eq!(refused.to_string(), "Lookup of persistent://a/b/c: TopicNotFound (Topic not found)");
        let error = PulsarError::from(refused);
        assert_eq!(error.server_error(), Some(ServerError::TopicNotFound));
        assert!(!error.is_retriable());
    }

    #[test]
    fn other_protocols_are_named() {
        let fault = |bytes: [u8; 4]| {
            let length = i64::from(u32::from_be_bytes(bytes));
            let length = u32::try_from(length).expect("four bytes");
            HandshakeFault::from(CloseReason::from(FrameFault::Length { length, limit: 10 })).to_string()
        };
        assert!(fault(*b"HTTP").contains("HTTP"));
        assert!(fault([0x15, 3, 3, 0]).contains("TLS"));
        assert!(fault([0xff; 4]).contains("limit is 10"));
    }
}
