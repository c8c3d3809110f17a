//! The driver librdkafka: the C client that most languages use, in the process of the worker.
//!
//! It does what the own driver does, with the same clock, values, stamps and counts, so that their results compare: a record's
//! intended time travels with it to its delivery report. Each producer has a thread that waits for delivery reports, as
//! librdkafka's users have; its own threads come on top. TLS and SASL/SCRAM are there where the build has the feature
//! `librdkafka-ssl`.

mod consumer;
mod producer;
mod properties;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use rdkafka::error::KafkaError;
use thalweg_client::InvalidSetting;

use super::link::Link;
use super::{Assignment, Report, Role, WorkerError};

/// Does what is assigned.
pub(super) fn run(assignment: &Assignment, link: &mut Link) -> Result<Report, WorkerError> {
    match assignment.role {
        Role::Producer => producer::run(assignment, link),
        Role::Consumer => consumer::run(assignment, link),
    }
}

/// The properties of an assignment under librdkafka's names, but for cluster and group: for others who speak by it. They
/// may hold secrets.
pub(super) fn properties_of(
    assignment: &Assignment,
    number: u32,
) -> Result<BTreeMap<String, String>, InvalidSetting> {
    Ok(properties::named(assignment, number)?.0)
}

/// Name and version, for the result.
pub(super) fn client() -> String {
    format!("librdkafka {}", rdkafka::util::get_rdkafka_version().1)
}

/// A client could not be made from its properties.
#[derive(Clone, Debug, thiserror::Error)]
#[error("librdkafka refuses the properties: {0}")]
pub struct Unconfigurable(KafkaError);

/// The cluster or a topic could not be reached.
#[derive(Clone, Debug, thiserror::Error)]
#[error("librdkafka did not find {what} at {}: {source}{}", bootstrap.join(","),
    last.as_ref().map(|last| format!(" (last: {last})")).unwrap_or_default())]
pub struct Unreachable {
    /// What was asked for.
    what: String,
    /// Where.
    bootstrap: Vec<String>,
    /// The answer.
    source: KafkaError,
    /// The last error that the client told by itself.
    last: Option<String>,
}

/// The client cannot go on.
#[derive(Clone, Debug, thiserror::Error)]
#[error("librdkafka cannot go on: {0}")]
pub struct Broken(KafkaError);

/// The last error that a client told by itself, for the text of another.
#[derive(Debug, Default)]
struct LastError(Mutex<Option<String>>);

impl LastError {
    fn set(&self, error: &KafkaError, reason: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{error}: {reason}"));
    }

    fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
