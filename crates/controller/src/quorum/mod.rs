//! The metadata log on disk, its snapshots, and serving observers.
//!
//! ```text
//! <metadata.log.dir>/
//!   bootstrap.checkpoint                         what the cluster was formatted with
//!   __cluster_metadata-0/
//!     00000000000000000000.log .index ...        the log: one of ours (see `thalweg_log`)
//!     <end offset>-<epoch>.checkpoint            snapshots (see `snapshot`)
//!     quorum-state                               the epoch and its leader (see `quorum_state`)
//! ```

mod describe;
mod fetch;
mod log;
mod quorum_state;
mod snapshot;

use std::io;
use std::path::PathBuf;

pub(crate) use describe::describe_quorum;
pub(crate) use fetch::{FetchAsk, Leader, Observers, Ready, fetch_snapshot};
pub(crate) use log::{
    AppendFailure, MetadataLog, Recovered, encode_batch, encode_control_batch, formatted_with,
};
pub(crate) use quorum_state::QuorumState;
pub use quorum_state::QuorumStateError;
pub use snapshot::SnapshotError;
pub(crate) use snapshot::{SnapshotContent, SnapshotId};

use crate::batches::MetadataBatchError;

/// The bare name of the log's directory.
pub(crate) const LOG_DIR: &str = "__cluster_metadata-0";

/// The controller cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the metadata log's directory {} (metadata.log.dir) cannot be used: {error}", dir.display())]
    Directory { dir: PathBuf, error: io::Error },
    #[error("the metadata log cannot be used: {0}")]
    Io(#[from] io::Error),
    #[error("the metadata log cannot be opened: {0}")]
    Log(#[from] thalweg_log::LogError),
    #[error("the metadata log cannot be written: {0}")]
    Append(#[from] thalweg_log::AppendError),
    #[error("the metadata log cannot be read: {0}")]
    Batch(#[from] MetadataBatchError),
    #[error("the metadata log contains an invalid record: {0}")]
    Replay(#[from] thalweg_metadata::ReplayError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    QuorumState(#[from] QuorumStateError),
    #[error(
        "the metadata log starts at offset {log_start} and there is no snapshot of the records before it"
    )]
    NoSnapshot { log_start: i64 },
    #[error(
        "there is no metadata log in {} (metadata.log.dir), and log.dirs hold partitions of a cluster: a new one would \
         not know their topics. Give metadata.log.dir its former value, or restore __cluster_metadata-0 from a copy; to \
         begin anew, give log.dirs empty directories",
        dir.display()
    )]
    NoMetadataLog { dir: PathBuf },
    #[error("the metadata log ends at offset {log_end}, below the {wanted} that was read")]
    ShortRead { log_end: i64, wanted: i64 },
    #[error(
        "{} (metadata.log.dir) belongs to a quorum with the voters {}, and the embedded controller has one vote, its own: \
         leave it to Apache Kafka's controllers, and join them with process.roles=broker",
        dir.display(), listed(voters)
    )]
    OtherVoters { dir: PathBuf, voters: Vec<i32> },
    #[error(
        "{} was formatted with metadata.version {level}, and the embedded controller starts clusters with 3.9-IV0 (21) to \
         4.3-IV0 (30): use kafka-storage format --release-version 3.9, or no file",
        path.display()
    )]
    FormattedVersion { path: PathBuf, level: i16 },
    #[error(
        "feature {feature} is finalized at level {level}, and this node serves it up to level {served}: while Apache Kafka \
         runs on this directory, use kafka-features.sh --bootstrap-server HOST:PORT downgrade --feature {feature}={served}, \
         or leave the directory to Apache Kafka's controllers and join them with process.roles=broker"
    )]
    UnservedFeature { feature: String, level: i16, served: i16 },
    #[error("the task that opens the metadata log has failed")]
    Task,
}

fn listed(ids: &[i32]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
