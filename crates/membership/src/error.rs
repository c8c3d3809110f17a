//! Errors of requests to the controller.

use std::time::Duration;

use thalweg_dial::ClientError;
use thalweg_wire::{DecodeError, EncodeError, ErrorCode};

/// A failed request to the controller.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The request cannot be encoded in this version.
    #[error("a request to the controller cannot be written: {0}")]
    Encode(#[from] EncodeError),
    /// The answer cannot be decoded.
    #[error("an answer of the controller cannot be read: {0}")]
    Decode(#[from] DecodeError),
    /// The controller did not answer.
    #[error("the controller does not answer: {0}")]
    Controller(#[from] LocalControllerError),
    /// A node of the quorum did not answer.
    #[error(transparent)]
    Quorum(#[from] ClientError),
    /// No node of the quorum is known as the active controller.
    #[error("no active controller answers within {} ms; the last attempt: {last}", after.as_millis())]
    NoController {
        /// Duration of the search.
        after: Duration,
        /// Error of the last attempt.
        last: String,
    },
    /// A node of the quorum did not return its cluster id.
    #[error("{address} did not return its cluster id: {}", why_no_cluster_id(*code, message))]
    NoClusterId {
        /// Address of the node.
        address: String,
        /// Error code of the answer.
        code: ErrorCode,
        /// Message of the answer.
        message: String,
    },
}

/// A failed request to the controller in this process.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct LocalControllerError {
    /// The controller's error.
    pub error: Box<dyn std::error::Error + Send + Sync>,
    /// True if the controller has stopped, or cannot write.
    pub is_absence: bool,
}

fn why_no_cluster_id(code: ErrorCode, message: &str) -> String {
    match code {
        ErrorCode::MismatchedEndpointType => {
            "it is a broker's listener; expected a controller's (one of its controller.listener.names)"
                .to_owned()
        }
        code => format!("{code} {message}"),
    }
}

impl LinkError {
    /// True if no controller could answer, false if a controller refused.
    pub fn is_absence(&self) -> bool {
        match self {
            LinkError::NoController { .. } => true,
            LinkError::Controller(error) => error.is_absence,
            LinkError::Quorum(error) => error.is_retriable(),
            LinkError::Encode(_) | LinkError::Decode(_) | LinkError::NoClusterId { .. } => false,
        }
    }
}
