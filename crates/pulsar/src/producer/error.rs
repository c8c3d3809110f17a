//! Failures of messages.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{PulsarError, in_brackets};
use crate::server_error::ServerError;

/// Why a message was not stored, or is not known to be stored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SendError {
    /// The message can never be sent.
    #[error(transparent)]
    TooLarge(#[from] MessageTooLarge),
    /// The broker did not store the message.
    #[error(transparent)]
    Refused(#[from] SendRefused),
    /// No receipt arrived in time; the message may be stored.
    #[error(transparent)]
    TimedOut(#[from] SendTimedOut),
    /// The producer was closed; an unanswered message may be stored.
    #[error(transparent)]
    Closed(#[from] ProducerClosed),
    /// The producer could not reconnect; an unanswered message may be stored.
    #[error("The producer has stopped: {0}")]
    Disconnected(#[source] Arc<PulsarError>),
}

/// A message exceeds the broker's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("A message of {message_bytes} bytes is larger than the broker's maxMessageSize={limit_bytes}")]
pub struct MessageTooLarge {
    /// Size of the payload after compression, in bytes.
    pub message_bytes: usize,
    /// `maxMessageSize` in bytes.
    pub limit_bytes: usize,
}

/// The broker refused a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{topic} does not store a message: {error}{}", in_brackets(message))]
pub struct SendRefused {
    pub topic: Arc<str>,
    /// The broker's error, by Pulsar's name.
    pub error: ServerError,
    /// The broker's message; may be empty.
    pub message: Arc<str>,
}

/// A batch got no receipt in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{topic} did not acknowledge a message within {} ms", timeout.as_millis())]
pub struct SendTimedOut {
    pub topic: Arc<str>,
    pub timeout: Duration,
}

/// The producer is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The producer is closed")]
pub struct ProducerClosed;
