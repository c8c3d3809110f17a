//! Reporting of failed commands.

use std::io;
use std::process::ExitCode;

use crate::logging;
use thalweg_client::{BootstrapError, ClientError, InvalidProperty, InvalidSetting};
use thalweg_config::{BadAssignment, RefusedConfig};
use thalweg_lab::perf::PerfError;
use thalweg_lab::result::ReadError;
use thalweg_lab::worker::DriverNotBuilt;
use thalweg_lab::workload::WorkloadError;
use thalweg_stream::NotExactlyOnce;
use thalweg_stream::deployment::WrongProperty;
use thalweg_stream::language::Complaints;
use thalweg_wire::ApiKey;

/// Arguments that do not go together, or have no meaning.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The command ran, and its result is a failure.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failed(pub String);

/// The command ran, and its result has a special exit code.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Unhealthy {
    /// The exit code.
    pub code: u8,
    /// The result.
    pub why: String,
}

/// Prints the reason, and returns the exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    // The reader has closed the output; `thalweg consume | head` is not a failure.
    if error.chain().any(is_broken_pipe) {
        return ExitCode::SUCCESS;
    }
    logging::say(&format!("{}{}", causes(error), hint(error)));
    match error.downcast_ref::<Unhealthy>() {
        Some(unhealthy) => ExitCode::from(unhealthy.code),
        None if is_usage(error) => ExitCode::from(2),
        None => ExitCode::FAILURE,
    }
}

/// The error and its causes, without causes that the previous error already contains.
fn causes(error: &anyhow::Error) -> String {
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
