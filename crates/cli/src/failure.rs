//! Failed commands: why, in a sentence, and the exit code.

use std::collections::BTreeSet;
use std::io;

use thalweg_client::{
    BootstrapError, ClientError, ConsumerError, DeliveryError, InvalidProperty, InvalidSetting,
    RefusedRequest,
};
use thalweg_config::{BadAssignment, RefusedConfig};
use thalweg_lab::perf::PerfError;
use thalweg_lab::result::ReadError;
use thalweg_lab::worker::DriverNotBuilt;
use thalweg_lab::workload::WorkloadError;
use thalweg_stream::NotExactlyOnce;
use thalweg_stream::deployment::WrongProperty;
use thalweg_stream::language::Complaints;
use thalweg_wire::{ApiKey, ErrorCode};

/// Contradictory or invalid arguments.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The command ran, and its result is a failure.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CommandFailure(pub String);

/// The object that the command names does not exist.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotFound(pub String);

/// A server asks for a login, or does not accept it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct LoginFailure(pub String);

/// The command ran, and its result has a special exit code.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct CommandExit {
    /// The exit code of the process.
    pub code: u8,
    /// The reason, for standard error.
    pub why: String,
}

impl CommandExit {
    /// The errors of at least one object, with their common exit code, if any. The text has the first `shown`
    /// errors.
    pub fn with(errors: &[anyhow::Error], shown: usize) -> Self {
        let mut texts: Vec<String> = errors.iter().take(shown).map(causes).collect();
        if errors.len() > shown {
            texts.push(format!("and {} more errors", errors.len() - shown));
        }
        let codes: BTreeSet<u8> = errors.iter().map(code).collect();
        let one = codes.len() == 1;
        CommandExit { code: codes.into_iter().next().filter(|_| one).unwrap_or(1), why: texts.join("; ") }
    }
}

/// The reason, and the exit code; none if the reader has closed the output: `thalweg consume | head` is not a
/// failure.
pub fn reason(error: &anyhow::Error) -> Option<(String, u8)> {
    let is_failure = !error.chain().any(is_broken_pipe);
    is_failure.then(|| (format!("{}{}", causes(error), hint(error)), code(error)))
}

fn code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<CommandExit>() {
        Some(ended) => ended.code,
        None if is_usage(error) => 2,
        None => error.chain().find_map(kind).unwrap_or(1),
    }
}

/// No broker answers; also used by `cluster status`.
pub(crate) const UNREACHABLE: u8 = 5;
/// The login failed, or an ACL does not allow it.
pub(crate) const REFUSED: u8 = 6;
/// The object that the command names does not exist.
const NOT_FOUND: u8 = 7;
/// After a second signal, or if a command did not end in time after the first one.
pub const EXIT_KILLED: i32 = 130;

/// The special exit code of an error, if it has one.
fn kind(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if cause.is::<LoginFailure>() {
        return Some(REFUSED);
    }
    if cause.is::<NotFound>() {
        return Some(NOT_FOUND);
    }
    let of_perf = || match cause.downcast_ref::<PerfError>()? {
        PerfError::Client(error) | PerfError::Consumer(ConsumerError::Client(error)) => Some(error),
        _ => None,
    };
    let of_consumer = || match cause.downcast_ref::<ConsumerError>()? {
        ConsumerError::Client(error) => Some(error),
        _ => None,
    };
    let of_delivery = || match cause.downcast_ref::<PerfError>() {
        Some(PerfError::NotStored { first, .. }) => first.error_code(),
        _ => cause.downcast_ref::<DeliveryError>()?.error_code(),
    };
    let code = match cause.downcast_ref::<ClientError>().or_else(of_consumer).or_else(of_perf) {
        Some(ClientError::ConnectFailed(_) | ClientError::ConnectTimedOut(_) | ClientError::Handshake(_)) => {
            return Some(UNREACHABLE);
        }
        Some(ClientError::Authentication(_)) => return Some(REFUSED),
        Some(ClientError::BrokerUnknown(_)) => return Some(NOT_FOUND),
        Some(error) => error.error_code()?,
        None => match cause.downcast_ref::<RefusedRequest>() {
            Some(refused) => refused.error_code,
            None => of_delivery()?,
        },
    };
    match code {
        ErrorCode::TopicAuthorizationFailed
        | ErrorCode::GroupAuthorizationFailed
        | ErrorCode::ClusterAuthorizationFailed
        | ErrorCode::TransactionalIdAuthorizationFailed
        | ErrorCode::DelegationTokenAuthorizationFailed
        | ErrorCode::SaslAuthenticationFailed => Some(REFUSED),
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::UnknownTopicId
        | ErrorCode::GroupIdNotFound
        | ErrorCode::ResourceNotFound
        | ErrorCode::BrokerIdNotRegistered
        | ErrorCode::UnknownMemberId
        | ErrorCode::DelegationTokenNotFound
        | ErrorCode::TransactionalIdNotFound => Some(NOT_FOUND),
        _ => None,
    }
}

/// The error and its causes, without causes that the previous error already contains.
pub(crate) fn causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// A hint about an unanswered request.
fn hint(error: &anyhow::Error) -> &'static str {
    let timed_out = error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(ClientError::RequestTimedOut(late)) => Some(late.api),
        _ => None,
    });
    match timed_out {
        Some(
            ApiKey::CreateTopics
            | ApiKey::DeleteTopics
            | ApiKey::CreatePartitions
            | ApiKey::IncrementalAlterConfigs,
        ) => {
            "; brokers forward this to the active controller, and `thalweg cluster status` shows whether there is one"
        }
        _ => "",
    }
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn is_usage(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.is::<Usage>()
            || cause.is::<InvalidSetting>()
            || cause.is::<InvalidProperty>()
            || cause.is::<BootstrapError>()
            || cause.is::<RefusedConfig>()
            || cause.is::<BadAssignment>()
            || cause.is::<WorkloadError>()
            || cause.is::<DriverNotBuilt>()
            || cause.is::<ReadError>()
            || cause.is::<Complaints>()
            || cause.is::<WrongProperty>()
            || cause.is::<NotExactlyOnce>()
            || cause.downcast_ref::<PerfError>().is_some_and(PerfError::is_usage)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use thalweg_client::{BatchRefused, NoProducerId};

    #[test]
    fn records_without_the_right_to_write_are_refused() {
        let batch = |error_code| {
            DeliveryError::from(BatchRefused {
                topic: Arc::from("orders"),
                partition: 0,
                error_code,
                message: None,
            })
        };
        let of = |error: DeliveryError| code(&anyhow::Error::from(error).context("context"));
        assert_eq!(of(batch(ErrorCode::TopicAuthorizationFailed)), REFUSED);
        assert_eq!(of(batch(ErrorCode::RecordListTooLarge)), 1);
        let what = "Producer id".to_owned();
        let error_code = ErrorCode::ClusterAuthorizationFailed;
        let reason = RefusedRequest { what, error_code, message: None }.into();
        assert_eq!(of(NoProducerId { reason }.into()), REFUSED);
        let first = batch(ErrorCode::TopicAuthorizationFailed);
        let measured = PerfError::NotStored { failed: 1, records: 1, first };
        assert_eq!(code(&measured.into()), REFUSED);
    }
}
