//! Errors of requests to the controller.

use std::time::Duration;

use thalweg_controller::HandleError;
use thalweg_dial::ClientError;
use thalweg_wire::{DecodeError, EncodeError, ErrorCode};

/// A request was not answered.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// It cannot be written in this version.
    #[error("a request to the controller cannot be written: {0}")]
    Encode(#[from] EncodeError),
    /// The answer makes no sense.
    #[error("an answer of the controller cannot be read: {0}")]
    Decode(#[from] DecodeError),
    /// The controller did not answer.
    #[error("the controller does not answer: {0}")]
    Controller(#[from] HandleError),
    /// A node of the quorum did not answer.
    #[error(transparent)]
    Quorum(#[from] ClientError),
    /// No node of the quorum was found to be the active controller.
    #[error("no active controller answers within {} ms; the last attempt: {last}", after.as_millis())]
    NoController {
        /// How long was tried.
        after: Duration,
        /// How it ended last.
        last: String,
    },
    /// A node of the quorum does not return its cluster id.
    #[error("{address} did not return its cluster id: {}", why_no_cluster_id(*code, message))]
    NoClusterId {
        /// The node.
        address: String,
        /// Its answer.
        code: ErrorCode,
        /// Its words.
        message: String,
    },
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
    /// True if there was no controller that could answer, rather than one that would not.
    pub fn is_absence(&self) -> bool {
        match self {
            LinkError::NoController { .. }
            | LinkError::Controller(HandleError::Stopped | HandleError::DiskFull) => true,
            LinkError::Quorum(error) => error.is_retriable(),
            LinkError::Encode(_)
            | LinkError::Decode(_)
            | LinkError::Controller(_)
            | LinkError::NoClusterId { .. } => false,
        }
    }
}
