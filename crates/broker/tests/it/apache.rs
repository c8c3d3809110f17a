//! Brokers in this process as members of a cluster whose controllers are Apache Kafka's, and Kafka's tools
//! against them. They need Kafka's jars: set `KAFKA_CLASSPATH`, for instance to `/path/to/kafka/libs/*`.

mod controllers;
mod joining;
mod mixed;
mod own_controller;
mod quorum;
mod quotas;
mod secured;
mod streams;
mod tokens;
mod tools;

use crate::running::RunningBroker;
use std::path::Path;
use std::time::Duration;

/// Longer than anything here takes, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(90);

/// Kafka's jars; without them a test prints that it is skipped.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
pub(crate) fn jars() -> Option<String> {
    let jars = std::env::var("KAFKA_CLASSPATH").ok().filter(|jars| !jars.is_empty());
    if jars.is_none() {
        eprintln!("skipped: KAFKA_CLASSPATH is not set");
    }
    jars
}

/// A broker in this process that joins `controllers`.
async fn join(dir: &Path, node_id: &str, controllers: &str, more: &[(&str, &str)]) -> RunningBroker {
    let mut properties = vec![
        ("process.roles", "broker"),
        ("node.id", node_id),
        ("controller.quorum.bootstrap.servers", controllers),
    ];
    properties.extend(more);
    RunningBroker::start(dir, &properties).await
}

/// Waits until something holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let held = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, held).await.unwrap_or_else(|_| panic!("{what}"));
}
