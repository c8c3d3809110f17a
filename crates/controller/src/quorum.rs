//! The metadata log on disk, its snapshots, and serving observers.
//!
//! ```text
//! <metadata.log.dir>/
//!   bootstrap.checkpoint                         what the cluster was formatted with
//!   __cluster_metadata-0/
//!     00000000000000000000.log .index ...        the log: one of ours (see `thalweg_log`)
//!     <end offset>-<epoch>.checkpoint            snapshots (see `snapshot`)
//!     quorum-state                               the epoch and its leader (see `quorum_state`)
//!     recovery-point                             up to where the log is synced (see `recovery_point`)
//!     reserve                                    room for what frees a full disk (see `reserve`)
//! ```

mod batch;
mod describe;
mod fetch;
mod log;
mod quorum_state;
mod recovery_point;
mod reserve;
mod snapshot;

use std::io;
use std::path::PathBuf;

use thalweg_metadata::batches::MetadataBatchError;

pub(crate) use batch::{encode_batch, encode_control_batch};
pub(crate) use describe::describe_quorum;
pub(crate) use fetch::{Leader, Observers, ParsedFetch, Ready, fetch_snapshot};
pub(crate) use log::{AppendFailure, MetadataLog, RecoveredMetadata, formatted_with};
pub(crate) use quorum_state::QuorumState;
pub use quorum_state::QuorumStateError;
pub use snapshot::SnapshotError;
pub(crate) use snapshot::{SnapshotContent, SnapshotId};

/// The bare name of the log's directory.
pub(crate) const LOG_DIR: &str = "__cluster_metadata-0";

/// The reason why the controller cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ControllerStartError {
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
    #[error(
        "the metadata log contains a record that cannot be applied, at offset {offset}: {error}. {remedy}"
    )]
    Replay { offset: i64, error: thalweg_metadata::ReplayError, remedy: Remedy },
    #[error("the metadata transaction of the metadata log does not fit together: {0}")]
    Transaction(#[from] thalweg_metadata::ReplayError),
    #[error("the metadata log is damaged at offset {offset}, and that is not its end: {reason}. {remedy}")]
    Damaged { offset: i64, reason: String, remedy: Remedy },
    #[error(
        "the metadata log in {} ends at offset {log_end}, and had been synced up to {synced_to}: later changes are missing. Nothing \
         was changed. Restore the directory from a copy of one moment; or, to go on with what is there, copy it, and delete \
         leader-epoch-checkpoint and {} in it",
        dir.display(), recovery_point::FILE
    )]
    EndsEarly { log_end: i64, synced_to: i64, dir: PathBuf },
    #[error(
        "the metadata log in {} lacks the offsets {from} to {to}, the last one excluded. Nothing was changed: restore \
         the directory from a copy",
        dir.display()
    )]
    Gap { from: i64, to: i64, dir: PathBuf },
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
    #[error("the first records of the cluster, or of this start, cannot be written: {reason}")]
    FirstRecords { reason: String },
    #[error("the task that opens the metadata log has failed")]
    Task,
}

/// The operator's remedy for a metadata log that is unreadable from a batch on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// The directory of the log.
    pub dir: PathBuf,
    /// Base offset of the segment with the batch.
    pub segment: i64,
    /// Position of the batch in the segment.
    pub position: u64,
}

impl std::fmt::Display for Remedy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Remedy { dir, segment, position } = self;
        let (dir, recovery_point) = (dir.display(), recovery_point::FILE);
        write!(
            f,
            "Nothing was changed. Restore {dir} from a copy; or, to go on without the changes from there on, copy {dir}, then \
             run truncate -s {position} {dir}/{segment:020}.log, and delete from {dir} leader-epoch-checkpoint, \
             {recovery_point}, and the files of later segments"
        )
    }
}

fn listed(ids: &[i32]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
