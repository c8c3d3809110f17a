//! The driver librdkafka: the C client that most languages use, in the worker's process. Only with the cargo
//! feature `librdkafka`, because the library takes minutes to build and few runs need it.
//!
//! This driver uses the same clock, values, stamps and counters as Thalweg's driver, so that results compare:
//! a record's intended time travels with it to its delivery report. Each producer has a thread for delivery
//! reports, as usual with librdkafka, in addition to the library's threads.

mod consumer;
mod producer;

use std::sync::{Mutex, PoisonError};

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use thalweg_client::InvalidSetting;

use super::librdkafka_properties::named;
use super::link::Link;
use super::{Assignment, Report, Role, WorkerError};

/// Runs an assignment.
pub(super) fn run(assignment: &Assignment, link: &mut Link) -> Result<Report, WorkerError> {
    match assignment.role {
        Role::Producer => producer::run(assignment, link),
        Role::Consumer => consumer::run(assignment, link),
    }
}

/// A client's configuration, and notes for readers of the result.
#[derive(Debug)]
struct TranslatedConfig {
    config: ClientConfig,
    notes: Vec<String>,
}

/// Translates the assignment's properties.
fn translate(assignment: &Assignment, number: u32) -> Result<TranslatedConfig, InvalidSetting> {
    let (mut set, notes) = named(assignment, number)?;
    set.insert("bootstrap.servers".to_owned(), assignment.bootstrap.join(","));
    if let (Role::Consumer, Some(group)) = (assignment.role, assignment.group_of(number)) {
        set.insert("group.id".to_owned(), group.to_owned());
    }
    let mut config = ClientConfig::new();
    config.extend(set);
    Ok(TranslatedConfig { config, notes })
}

/// Name and version, for the result.
pub(super) fn client() -> String {
    format!("librdkafka {}", rdkafka::util::get_rdkafka_version().1)
}

/// A client could not be created from its properties.
#[derive(Clone, Debug, thiserror::Error)]
#[error("librdkafka rejected the properties: {0}")]
pub struct UnconfigurableClient(KafkaError);

/// The cluster or a topic could not be reached.
#[derive(Clone, Debug, thiserror::Error)]
#[error("librdkafka did not find {what} at {}: {source}{}", bootstrap.join(","),
    last.as_ref().map(|last| format!(" (last: {last})")).unwrap_or_default())]
pub struct UnreachableCluster {
    /// The requested object.
    what: String,
    bootstrap: Vec<String>,
    source: KafkaError,
    /// The client's last own error.
    last: Option<String>,
}

/// The client failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("librdkafka failed: {0}")]
pub struct ClientFailure(KafkaError);

/// The last own error of a client, for the text of another.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::{Driver, testing};

    #[test]
    fn clients_get_the_cluster_and_consumers_their_group() {
        for (role, group) in [(Role::Producer, None), (Role::Consumer, Some("g"))] {
            let assignment = testing::assignment(role, Driver::Librdkafka);
            let config = translate(&assignment, 0).expect("settings that can be").config;
            assert_eq!(config.get("bootstrap.servers"), Some("a:1,b:2"));
            assert_eq!(config.get("group.id"), group);
        }
    }
}
