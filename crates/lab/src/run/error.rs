//! Errors of repetitions.

use std::time::Duration;

use thalweg_client::ClientError;

use crate::agent::AgentError;
use crate::evidence::EvidenceError;
use crate::result::HistogramUnreadable;
use crate::target::{AdminFailure, ConnectError, TargetError};
use crate::worker::HandleError;

/// Why a point was not measured, or not completely.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The cluster did not start.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A broker exited during the run.
    #[error("{0}")]
    BrokerDied(String),
    /// The cluster cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The cluster refused a request of the run.
    #[error("{what}: {source}")]
    Refused {
        /// The refused request.
        what: String,
        /// The broker's answer.
        source: ClientError,
    },
    /// The topics did not get leaders.
    #[error("{} of {partitions} partitions of the run's topics still have no leader after {waited:?}", partitions - led)]
    NoLeaders {
        /// Partitions with a leader.
        led: usize,
        /// Total number of partitions.
        partitions: usize,
        /// The time waited.
        waited: Duration,
    },
    /// Idle partitions in a cluster that is not the lab's: they would stay.
    #[error(
        "Idle partitions (cluster.idle_partitions = {0}) are made only in clusters that the lab starts: use --target embedded or \
         --target apache-kafka, or measure the running cluster with what it has"
    )]
    IdlePartitionsElsewhere(u32),
    /// The admin API of a cluster of Pulsar refused a request of the run.
    #[error(transparent)]
    PulsarAdmin(#[from] AdminFailure),
    /// A driver of Kafka's protocol on a cluster of Pulsar.
    #[error("The driver {driver} has Kafka's protocol only: on Apache Pulsar, use --driver thalweg")]
    DriverOfKafka { driver: &'static str },
    /// A part of a point that the lab does not do on Pulsar.
    #[error("The lab makes no {what} on Apache Pulsar: leave this point to the other targets")]
    NotOnPulsar { what: &'static str },
    /// Without a cluster, only streams in memory can be measured.
    #[error(
        "There is no cluster (cluster.brokers = 0), and the driver {driver} needs one: use --driver stream"
    )]
    NeedsCluster { driver: &'static str },
    /// A worker failed.
    #[error(transparent)]
    Worker(#[from] HandleError),
    /// An agent cannot be used.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// A worker did not get ready.
    #[error("The worker {worker} was not ready after {waited:?}")]
    NotReady {
        /// The worker's name.
        worker: String,
        /// The time waited.
        waited: Duration,
    },
    /// A worker does not report.
    #[error("The worker {worker} has not reported for {} s: its process or its machine hangs", silence.as_secs())]
    WorkerSilent {
        /// The worker's name, with its agent.
        worker: String,
        /// The time since its last sign of life.
        silence: Duration,
    },
    /// The lab's limit of open files is too low for the idle connections.
    #[error(
        "{count} idle connections need {files} open files, and the limit is {files_max}: raise it (ulimit -n {files}), or use \
         fewer (cluster.idle_connections)"
    )]
    TooManyIdle {
        /// Number of idle connections.
        count: u32,
        /// Number of files needed.
        files: u64,
        /// Limit of open files of the lab's process (RLIMIT_NOFILE).
        files_max: u64,
    },
    /// The repetition made no progress.
    #[error("No record was {what} for {waited:?}, after {so_far} before")]
    Stalled {
        /// `acknowledged` or `consumed`.
        what: &'static str,
        /// The number of records so far.
        so_far: u64,
        /// The time without progress.
        waited: Duration,
    },
    /// The brokers' disk is full.
    #[error(
        "The brokers' disk is full: {free_bytes} of {all_bytes} bytes are free at {}, and they use at most {} % of it. Use a \
         larger one (--work-dir), or a shorter run (--scale)", dir.display(), usage_max * 100.0
    )]
    DiskFull {
        /// The brokers' data directory.
        dir: std::path::PathBuf,
        /// Free bytes on the disk.
        free_bytes: u64,
        /// Size of the disk in bytes.
        all_bytes: u64,
        /// The share of it that the brokers use.
        usage_max: f64,
    },
    /// All records failed.
    #[error("No record was acknowledged, and {given_up} failed: {why}")]
    NothingTaken {
        /// Number of failed records.
        given_up: u64,
        /// The first error.
        why: String,
    },
    /// Nothing was consumed or produced during the measurement.
    #[error(
        "Nothing was {what} during the measurement: make it longer; Kafka's Java tools take seconds to start"
    )]
    NothingMeasured {
        /// `produced` or `consumed`.
        what: &'static str,
    },
    /// A backlog did not drain.
    #[error("The backlog did not drain within {waited:?}: {left} of {backlog} records are left")]
    NotDrained {
        /// The initial backlog, in records.
        backlog: u64,
        /// The remaining backlog, in records.
        left: u64,
        /// The time waited.
        waited: Duration,
    },
    /// The evidence cannot be collected.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// A worker's histogram is unreadable.
    #[error(transparent)]
    Histogram(#[from] HistogramUnreadable),
    /// Files of deleted topics still exist.
    #[error("Files of deleted topics still exist after {waited:?}, such as {example}")]
    FilesLeft {
        /// A remaining file.
        example: String,
        /// The time waited.
        waited: Duration,
    },
}
