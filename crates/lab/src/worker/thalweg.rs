//! Thalweg's driver: the producer and consumer of `thalweg_client`, several per thread, each thread with its
//! own runtime, so that no record moves between threads.

mod consumer;
mod error;
mod pace;
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
    match assignment.role {
        Role::Producer => producer::run(assignment, link),
        Role::Consumer => consumer::run(assignment, link),
    }
}
