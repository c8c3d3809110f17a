//! Reasons for a failed request: a status, a short kind for programs, and a sentence for people. This file is
//! the only place that maps errors of the cluster to HTTP.

use std::time::Duration;

use axum::http::StatusCode;
use serde::Serialize;
use thalweg_client::ClientError;
use thalweg_wire::ErrorCode;
use utoipa::ToSchema;

/// The reason for a failed request.
#[derive(Clone, Debug)]
pub struct Problem {
    pub status: StatusCode,
    /// Kafka's name of the error, or a short name of the console.
    pub kind: String,
    pub message: String,
}

/// A problem as a response of the API.
#[derive(Serialize, ToSchema)]
pub struct ErrorAnswer {
    error: ErrorBody,
}

/// The kind and message of an error.
#[derive(Serialize, ToSchema)]
struct ErrorBody {
    /// Kafka's name of the error, or a short name of the console.
    kind: String,
    /// A sentence for people.
    message: String,
}

impl Problem {
    /// An invalid request.
    pub fn wrong(message: impl Into<String>) -> Problem {
        Problem { status: StatusCode::BAD_REQUEST, kind: "wrong request".to_owned(), message: message.into() }
    }

    /// An answer that did not arrive within the time of a page.
    pub fn late(what: &str, limit: Duration) -> Problem {
        let message = format!("{what}: no answer within {} s", limit.as_secs());
        Problem { status: StatusCode::GATEWAY_TIMEOUT, kind: "timed out".to_owned(), message }
    }

    /// A missing resource.
    pub fn missing(message: impl Into<String>) -> Problem {
        Problem { status: StatusCode::NOT_FOUND, kind: "not found".to_owned(), message: message.into() }
    }

    /// A request that the console itself forbids, regardless of the cluster.
    pub fn forbidden(kind: &str, message: impl Into<String>) -> Problem {
        Problem { status: StatusCode::FORBIDDEN, kind: kind.to_owned(), message: message.into() }
    }

    /// Checks that a parameter has one of these values, or none.
    pub fn unless_known(name: &str, value: &str, known: &[&str]) -> Result<(), Problem> {
        if value.is_empty() || known.contains(&value) {
            return Ok(());
        }
        Err(Problem::wrong(format!(
            "{name}: {value:?} is unknown: use {}, or leave it out",
            known.join(", ")
        )))
    }

    /// A refusal by the cluster with this error code.
    pub fn refused(code: ErrorCode, message: String) -> Problem {
        Problem { status: status_of(code), kind: code.to_string(), message }
    }

    /// The response of the API.
    pub fn answer(&self) -> ErrorAnswer {
        ErrorAnswer { error: ErrorBody { kind: self.kind.clone(), message: self.message.clone() } }
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Problem {
        let (status, kind) = match &error {
            ClientError::Refused(refused) => (status_of(refused.error_code), refused.error_code.to_string()),
            ClientError::Authentication(_) => (StatusCode::FORBIDDEN, "login failed".to_owned()),
            ClientError::VersionMismatch(_) => (StatusCode::NOT_IMPLEMENTED, "not served".to_owned()),
            ClientError::RequestTimedOut(_) => (StatusCode::GATEWAY_TIMEOUT, "timed out".to_owned()),
            _ => (StatusCode::BAD_GATEWAY, "cluster unavailable".to_owned()),
        };
        Problem { status, kind, message: error.to_string() }
    }
}

fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::TopicAuthorizationFailed
        | ErrorCode::GroupAuthorizationFailed
        | ErrorCode::ClusterAuthorizationFailed
        | ErrorCode::TransactionalIdAuthorizationFailed
        | ErrorCode::DelegationTokenAuthorizationFailed
        | ErrorCode::SecurityDisabled
        | ErrorCode::PolicyViolation => StatusCode::FORBIDDEN,
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::GroupIdNotFound
        | ErrorCode::TransactionalIdNotFound
        | ErrorCode::ResourceNotFound => StatusCode::NOT_FOUND,
        ErrorCode::TopicAlreadyExists
        | ErrorCode::NonEmptyGroup
        | ErrorCode::GroupSubscribedToTopic
        | ErrorCode::DuplicateResource => StatusCode::CONFLICT,
        ErrorCode::UnsupportedVersion => StatusCode::NOT_IMPLEMENTED,
        ErrorCode::ThrottlingQuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::RequestTimedOut => StatusCode::GATEWAY_TIMEOUT,
        ErrorCode::UnknownServerError => StatusCode::BAD_GATEWAY,
        code if code.is_retriable() => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_REQUEST,
    }
}
