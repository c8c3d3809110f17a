//! Errors of opening log directories and creating partitions.

use std::io;
use std::path::PathBuf;

use crate::topic_partition::TopicPartition;
use thalweg_ids::Uuid;

/// Why the log directories cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has a directory open.
    #[error(transparent)]
    Locked(#[from] DirectoryLocked),
    /// A directory belongs to another broker.
    #[error(transparent)]
    WrongNodeId(#[from] WrongNodeId),
    /// A directory belongs to another cluster.
    #[error(transparent)]
    WrongClusterId(#[from] WrongClusterId),
    /// A directory's `meta.properties` is invalid.
    #[error(transparent)]
    BadMetaProperties(#[from] BadMetaProperties),
    /// Two directories are copies of each other.
    #[error(transparent)]
    DuplicateDirectoryId(#[from] DuplicateDirectoryId),
    /// Two directories have different logs of a partition.
    #[error(transparent)]
    DuplicatePartition(#[from] DuplicatePartition),
    /// A directory is empty, and others are not.
    #[error(transparent)]
    EmptyDirectory(#[from] EmptyDirectory),
    /// A directory has the metadata log of an unknown cluster.
    #[error(transparent)]
    UnidentifiedMetadataLog(#[from] UnidentifiedMetadataLog),
    /// No directory can be used.
    #[error(transparent)]
    NoDirectory(#[from] NoDirectory),
    /// The process has too many open files.
    #[error(transparent)]
    TooManyOpenFiles(#[from] TooManyOpenFiles),
}

/// Another process has a directory open.
#[derive(Debug, thiserror::Error)]
#[error(
    "log directory {} (log.dirs) is in use by another process, which holds its .lock: each broker needs its own",
    path.display()
)]
pub struct DirectoryLocked {
    pub path: PathBuf,
}

/// A directory belongs to another broker.
#[derive(Debug, thiserror::Error)]
#[error(
    "log directory {} (log.dirs) belongs to node.id {found}, and this broker is configured as node.id {expected}: one of \
     the two keys is wrong",
    path.display()
)]
pub struct WrongNodeId {
    pub path: PathBuf,
    /// The id in its `meta.properties`.
    pub found: i32,
    /// The id in the configuration.
    pub expected: i32,
}

/// A directory belongs to another cluster.
#[derive(Debug, thiserror::Error)]
#[error(
    "log directory {} (log.dirs) belongs to cluster.id {found}, and this broker or its other directories to {expected}",
    path.display()
)]
pub struct WrongClusterId {
    pub path: PathBuf,
    /// The id in its `meta.properties`.
    pub found: String,
    /// The id in the configuration, or in another directory.
    pub expected: String,
}

/// A directory has no `meta.properties`, and others have been used. Partitions with their only log in this
/// directory would start empty.
#[derive(Debug, thiserror::Error)]
#[error(
    "log directory {} (log.dirs) has no meta.properties, and {} has been used by this broker: if a disk is missing, mount it; if \
     the directory is new, or its logs are lost, start once with thalweg.log.dirs.add=true",
    path.display(),
    used.display()
)]
pub struct EmptyDirectory {
    pub path: PathBuf,
    /// A directory that has been used.
    pub used: PathBuf,
}

/// A directory has a metadata log, and no `meta.properties` with its cluster id.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} (metadata.log.dir, log.dirs) has a metadata log with records, and no meta.properties that names its cluster: with a new \
     cluster.id, none of its brokers could join. Restore meta.properties from a copy, or write it again: version=1, \
     node.id={node_id}, and the cluster.id that meta.properties of a broker has; for a new cluster, give an empty directory",
    path.display()
)]
pub struct UnidentifiedMetadataLog {
    pub path: PathBuf,
    pub node_id: i32,
}

/// An invalid `meta.properties`.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be used: {reason}", path.display())]
pub struct BadMetaProperties {
    pub path: PathBuf,
    pub reason: String,
}

/// Two directories with the same id.
#[derive(Debug, thiserror::Error)]
#[error("log directories {} and {} have the same directory.id {id}", first.display(), second.display())]
pub struct DuplicateDirectoryId {
    pub id: Uuid,
    pub first: PathBuf,
    /// The other directory.
    pub second: PathBuf,
}

/// Two directories with the same partition, and neither log has all records.
#[derive(Debug, thiserror::Error)]
#[error(
    "partition {name} is in log directory {} and in {}, and neither log has all records of the other: move the one away that is \
     not needed",
    first.display(), second.display()
)]
pub struct DuplicatePartition {
    pub name: TopicPartition,
    pub first: PathBuf,
    /// The other directory.
    pub second: PathBuf,
}

/// The process, or the system, has too many open files to open a directory. The directory itself is not at
/// fault.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} (log.dirs) cannot be opened: {error}. This process may open {} files: raise its limit (RLIMIT_NOFILE, `ulimit -n`), or \
     the system's (fs.file-max)",
    path.display(),
    limit.map_or_else(|| "any number of".to_owned(), |limit| limit.to_string())
)]
pub struct TooManyOpenFiles {
    /// Path of the log directory or the partition.
    pub path: PathBuf,
    /// The limit of open files of the process.
    pub limit: Option<usize>,
    pub error: io::Error,
}

/// No directory can be used.
#[derive(Debug, thiserror::Error)]
#[error("no log directory of log.dirs can be used: {reasons}")]
pub struct NoDirectory {
    /// The reason for each directory.
    pub reasons: String,
}

/// Why a partition cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The partition exists already.
    #[error(transparent)]
    Exists(#[from] PartitionExists),
    /// The requested directory is not online.
    #[error(transparent)]
    Offline(#[from] DirectoryOffline),
    /// An I/O error.
    #[error("the partition cannot be created: {0}")]
    Io(#[from] io::Error),
}

/// A partition that exists already.
#[derive(Debug, thiserror::Error)]
#[error("partition {name} is already in log directory {}", path.display())]
pub struct PartitionExists {
    pub name: TopicPartition,
    pub path: PathBuf,
}

/// No directory is online, or not the one that contains the partition.
#[derive(Debug, thiserror::Error)]
#[error("no log directory is online for the partition; requested: {directory:?}")]
pub struct DirectoryOffline {
    /// The requested directory.
    pub directory: Option<Uuid>,
}
