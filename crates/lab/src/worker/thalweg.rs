//! Thalweg's driver: the producer and consumer of `thalweg_client`, several per thread, each thread with its
//! own runtime, so that no record moves between threads. A cluster of Apache Pulsar gets the clients of
//! `super::pulsar` instead.

mod consumer;
mod error;
mod producer;
mod settings;

pub use error::{NoGroup, NoTopics, NotProducible};

use super::link::Link;
use super::{Assignment, Report, Role, WorkerError, stamp};

/// Name and version, for the result.
fn client() -> String {
    format!("thalweg {}", env!("CARGO_PKG_VERSION"))
}

/// Runs an assignment, and returns the report.
pub(super) fn run(assignment: &Assignment, link: &mut Link) -> Result<Report, WorkerError> {
    if assignment.topics.is_empty() {
        return Err(WorkerError::driver(NoTopics));
    }
    stamp::check_assignment(assignment).map_err(WorkerError::driver)?;
    if assignment.pulsar_service_url().is_some() {
        return super::pulsar::run(assignment, link);
    }
    match assignment.role {
        Role::Producer => producer::run(assignment, link),
        Role::Consumer => consumer::run(assignment, link),
    }
}
