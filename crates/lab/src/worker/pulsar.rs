//! The lab's driver on a cluster of Apache Pulsar: the producer and consumer of `thalweg_pulsar`, with the
//! same clock, values, stamps, pace and counters as on Kafka's protocol. Each client has its own connections.
//!
//! A producer of the lab is a producer of Pulsar for each partition. The members of a group share the
//! partitions by their numbers, and each partition has an exclusive consumer, as in a group of Kafka's: the
//! partitions of a member do not depend on the time of its subscription.

mod consumer;
mod in_flight;
mod producer;
mod router;
mod settings;

pub(crate) use in_flight::{InFlight, SentRecord};
pub(crate) use router::Router;

use thalweg_pulsar::{Client, ClientOptions, PulsarError};

use super::link::Link;
use super::{Assignment, Report, Role, WorkerError};

/// Runs an assignment.
pub(super) fn run(assignment: &Assignment, link: &mut Link) -> Result<Report, WorkerError> {
    match assignment.role {
        Role::Producer => producer::run(assignment, link),
        Role::Consumer => consumer::run(assignment, link),
    }
}

/// Name and version, for the result.
fn client() -> String {
    format!("thalweg {}, Pulsar's protocol", env!("CARGO_PKG_VERSION"))
}

/// A partition of the assignment's topics.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    topic: String,
    partition: i32,
    /// The complete name, for Pulsar.
    name: String,
}

/// A client with its own connections.
async fn connect(assignment: &Assignment) -> Result<Client, PulsarError> {
    let url = assignment.pulsar_service_url().unwrap_or_default();
    Client::connect(url, ClientOptions::default()).await
}

/// The partitions of all topics, in the order of the topics.
async fn places(client: &Client, assignment: &Assignment) -> Result<Vec<Place>, PulsarError> {
    let mut places = Vec::new();
    for topic in &assignment.topics {
        for name in client.partitions(topic).await? {
            places.push(Place {
                topic: topic.clone(),
                partition: name.partition_index().and_then(|at| i32::try_from(at).ok()).unwrap_or(0),
                name: name.as_str().to_owned(),
            });
        }
    }
    Ok(places)
}
