//! Errors of repetitions.

use std::time::Duration;

use thalweg_client::ClientError;

use crate::evidence::EvidenceError;
use crate::result::HistogramUnreadable;
use crate::target::{ConnectError, TargetError};
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
        /// The request.
        what: String,
        /// The answer.
        source: ClientError,
    },
    /// The topics did not get leaders.
    #[error("{} of {partitions} partitions of the run's topics still have no leader after {waited:?}", partitions - led)]
    NoLeaders {
        /// Partitions with a leader.
        led: usize,
        /// All partitions.
        partitions: usize,
        /// The wait.
        waited: Duration,
    },
    /// Idle partitions in a cluster that is not the lab's: they would stay.
    #[error(
        "Idle partitions (cluster.idle_partitions = {0}) are made only in clusters that the lab starts: use --target embedded or \
         --target apache-kafka, or measure the running cluster with what it has"
    )]
    IdlePartitionsElsewhere(u32),
    /// Without a cluster, only streams in memory can be measured.
    #[error(
        "There is no cluster (cluster.brokers = 0), and the driver {driver} needs one: use --driver stream"
    )]
    NeedsCluster {
        /// The driver.
        driver: &'static str,
    },
    /// A worker failed.
    #[error(transparent)]
    Worker(#[from] HandleError),
    /// A worker did not get ready.
    #[error("The worker {worker} was not ready after {waited:?}")]
    NotReady {
        /// Its name.
        worker: String,
        /// The wait.
        waited: Duration,
    },
    /// The lab may not open as many files as the idle connections take.
    #[error(
        "{count} idle connections need {files} open files, and the limit is {files_max}: raise it (ulimit -n {files}), or use \
         fewer (cluster.idle_connections)"
    )]
    TooManyIdle {
        /// The connections.
        count: u32,
        /// What the lab needs for them.
        files: u64,
        /// Its limit of open files (RLIMIT_NOFILE).
        files_max: u64,
    },
    /// No progress.
    #[error("No record was {what} for {waited:?}, after {so_far} before")]
    Stalled {
        /// `acknowledged` or `consumed`.
        what: &'static str,
        /// The number before.
        so_far: u64,
        /// The wait.
        waited: Duration,
    },
    /// The brokers' disk is full.
    #[error(
        "The brokers' disk is full: {free_bytes} of {all_bytes} bytes are free at {}. Use a larger one (--work-dir), or a \
         shorter run (--scale)", dir.display()
    )]
    DiskFull {
        /// The brokers' data directory.
        dir: std::path::PathBuf,
        /// Free bytes.
        free_bytes: u64,
        /// Its size.
        all_bytes: u64,
    },
    /// All records failed.
    #[error("No record was acknowledged, and {given_up} failed: {why}")]
    NothingTaken {
        /// How many.
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
        /// Its initial size.
        backlog: u64,
        /// Its remaining size.
        left: u64,
        /// The wait.
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
        /// One of them.
        example: String,
        /// The wait.
        waited: Duration,
    },
}
