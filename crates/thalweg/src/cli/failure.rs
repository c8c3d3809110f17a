//! How a command ends that could not do what it was asked.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use super::log_limit;
use indicatif::MultiProgress;
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
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::log_filter;

/// Arguments that do not go together, or have no meaning.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// What was asked for was done, and the outcome is a failure.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failed(pub String);

/// What was asked for was done, and what it found has an exit code of its own.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Unhealthy {
    /// The exit code.
    pub code: u8,
    /// What was found.
    pub why: String,
}

/// Tells why, and with which exit code to end.
pub fn report(error: &anyhow::Error) -> ExitCode {
    // Whoever read the output has enough; `thalweg consume | head` is no failure.
    if error.chain().any(is_broken_pipe) {
        return ExitCode::SUCCESS;
    }
    // With standard error closed there is nobody to tell.
    let _ = writeln!(io::stderr(), "thalweg: {}{}", causes(error), hint(error));
    match error.downcast_ref::<Unhealthy>() {
        Some(unhealthy) => ExitCode::from(unhealthy.code),
        None if is_usage(error) => ExitCode::from(2),
        None => ExitCode::FAILURE,
    }
}

/// The error and its causes, but for those that the error before them tells already.
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

/// What it may mean that a request was not answered.
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
            "; brokers send this on to the active controller, and `thalweg cluster status` tells whether there is one"
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

/// Sends what is of this level or above to standard error, or what `RUST_LOG` asks for. Bars are taken away while a line
/// is written.
pub fn log_to_standard_error(level: &str, bars: &MultiProgress) {
    let asked = std::env::var_os(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let (filter, complaints) = log_filter::read(&asked.to_string_lossy(), level);
    for complaint in complaints {
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "thalweg: {complaint}");
    }
    // https://no-color.org
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colours = io::stderr().is_terminal() && !unwanted;
    let bars = bars.clone();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(move || AboveBars(bars.clone()))
        .with_ansi(colours)
        .with_target(false);
    tracing_subscriber::registry().with(filter).with(log_limit::layer()).with(lines).init();
}

/// Standard error, above the bars that may be drawn there.
struct AboveBars(MultiProgress);

impl Write for AboveBars {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write(line))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
