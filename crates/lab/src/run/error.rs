//! Why a repetition was not taken to its end.

use std::time::Duration;

use thalweg_client::ClientError;

use crate::evidence::EvidenceError;
use crate::result::HistogramUnreadable;
use crate::target::{ConnectError, TargetError};
use crate::worker::HandleError;

/// Why a point was not measured, or not to the end.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The cluster did not start.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A broker ended in the middle.
    #[error("{0}")]
    BrokerDied(String),
    /// The cluster cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The cluster refused what the run needs.
    #[error("{what}: {source}")]
    Refused {
        /// What was asked of it.
        what: String,
        /// Its answer.
        source: ClientError,
    },
    /// The topics did not get leaders.
    #[error("After {waited:?}, {} of {partitions} partitions of the run's topics have no leader", partitions - led)]
    NoLeaders {
        /// Partitions with a leader.
        led: usize,
        /// All of them.
        partitions: usize,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Without a cluster only streams in memory can be measured.
    #[error(
        "There is no cluster (cluster.brokers = 0), and the driver {driver} needs one: --driver stream would be right"
    )]
    NeedsCluster {
        /// Who was to be measured.
        driver: &'static str,
    },
    /// A worker failed.
    #[error(transparent)]
    Worker(#[from] HandleError),
    /// A worker does not get ready.
    #[error("The worker {worker} was not ready after {waited:?}")]
    NotReady {
        /// Its name.
        worker: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Nothing goes on.
    #[error("For {waited:?} no record was {what}: {so_far} were until then")]
    Stalled {
        /// `acknowledged` or `consumed`.
        what: &'static str,
        /// How many were before.
        so_far: u64,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The brokers have no room left.
    #[error(
        "The brokers' disk is full: {free_bytes} of {all_bytes} bytes are free at {}. A larger one (--work-dir), or a \
         shorter run (--scale), would be right", dir.display()
    )]
    DiskFull {
        /// Where the brokers have their data.
        dir: std::path::PathBuf,
        /// What is free.
        free_bytes: u64,
        /// How large it is.
        all_bytes: u64,
    },
    /// All records were given up.
    #[error("No record was acknowledged, and {given_up} were given up: {why}")]
    NothingTaken {
        /// How many.
        given_up: u64,
        /// The first reason.
        why: String,
    },
    /// Nothing was consumed or produced within the measurement.
    #[error(
        "Nothing was {what} within the measurement: a longer one would be right; Kafka's Java tools take seconds to begin"
    )]
    NothingMeasured {
        /// `produced` or `consumed`.
        what: &'static str,
    },
    /// A backlog does not go away.
    #[error("After {waited:?} the backlog is not gone: {left} of {backlog} records are left")]
    NotDrained {
        /// What there was at the start.
        backlog: u64,
        /// What there is.
        left: u64,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The evidence cannot be collected.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// A worker's histogram cannot be read.
    #[error(transparent)]
    Histogram(#[from] HistogramUnreadable),
    /// The topics' files are still there.
    #[error("After {waited:?} the files of deleted topics are still there, {example} among them")]
    FilesLeft {
        /// One of them.
        example: String,
        /// How long it was waited for.
        waited: Duration,
    },
}
