//! The log directories of a broker (`log.dirs`).
//!
//! ```text
//! <log dir>/
//!   .lock                              held while the directory is open
//!   meta.properties                    whose directory this is (see `dirs::meta_properties`)
//!   .kafka_cleanshutdown               there when the last stop was clean (see `dirs::clean_shutdown`)
//!   recovery-point-offset-checkpoint   see `checkpoint`
//!   replication-offset-checkpoint
//!   log-start-offset-checkpoint
//!   <topic>-<partition>/               see `partition`
//!   <topic>-<partition>.<hex>-delete/  a deleted partition, removed a little later
//!   <topic>-<partition>.<hex>-future/  a copy that will replace a log elsewhere (see `dirs::moves`)
//!   <topic>-<partition>.<hex>-stray/   a partition that the cluster does not know, kept for people to judge
//! ```
//!
//! Owns: the location of partitions, the checkpoints, and the effects of a failed disk. Refuses: owning the
//! partitions' logs, which the broker holds, each behind its lock. Each log publishes its checkpoint values
//! in atomics ([`crate::PublishedOffsets`]), so that writing checkpoints takes no partition's lock.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_hash::{HashMap, HashSet};
use thalweg_record::Offset;

use crate::checkpoint::{HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE};
use crate::clock::Clock;
use crate::config::LogConfig;
use crate::dir_state::{Checkpoint, DirState, PartitionDescription};
use crate::disk::{DirLock, Disk};
use crate::partition::{METADATA_FILE, PartitionLog};
use crate::segment::Home;
use crate::topic_partition::TopicPartition;
use thalweg_ids::Uuid;
use tokio::sync::Notify;

mod clean_shutdown;
mod duplicates;
mod error;
mod job;
mod meta_properties;
mod moves;
mod never_opened;
mod open;
mod unopened;

pub use error::{
    BadMetaProperties, CreateError, DirectoryLocked, DirectoryOffline, DuplicateDirectoryId,
    DuplicatePartition, EmptyDirectory, NoDirectory, OpenError, PartitionExists, TooManyOpenFiles,
    UnidentifiedMetadataLog, WrongClusterId, WrongNodeId,
};
pub use open::LogDirsOptions;

/// The name of the lock file.
pub const LOCK_FILE: &str = ".lock";

/// The open log directories of a broker. Shared between threads; partitions are created, deleted and
/// checkpointed through it.
#[derive(Debug)]
pub struct LogDirs {
    cluster_id: String,
    node_id: i32,
    dirs: Vec<LogDir>,
    failed: Vec<FailedDir>,
    previous_broker_epoch: Option<i64>,
    /// Copies that were found when the directories were opened.
    futures: Mutex<HashMap<TopicPartition, PartitionLog>>,
    /// Logs that could not be recovered for lack of space when the directories were opened.
    unopened: Mutex<HashMap<TopicPartition, unopened::UnopenedLog>>,
    /// Logs that could not be truncated at a gap for lack of space.
    gapped: Mutex<HashMap<TopicPartition, PartitionLog>>,
    /// Partitions known from checkpoints whose logs were not found when the directories were opened.
    lost: Mutex<HashSet<TopicPartition>>,
    /// Notified when a partition is created, deleted or set aside.
    changed: Notify,
    /// Notified when a directory fails or becomes full.
    troubles: Arc<Notify>,
    disk: Disk,
    clock: Clock,
}

#[derive(Debug)]
struct LogDir {
    state: Arc<DirState>,
    _lock: DirLock,
}

/// A directory that could not be opened.
#[derive(Clone, Debug)]
pub struct FailedDir {
    /// The configured path.
    pub path: PathBuf,
    pub reason: String,
}

/// A log directory as described by DescribeLogDirs.
#[derive(Clone, Debug)]
pub struct DirDescription {
    /// The directory id, from its `meta.properties`.
    pub id: Uuid,
    pub path: PathBuf,
    /// The reason why the directory is offline, if it is.
    pub offline: Option<Arc<str>>,
    /// Total and free bytes of the volume; `None` if unknown.
    pub space: Option<(u64, u64)>,
    /// The partitions in the directory.
    pub partitions: Vec<PartitionDescription>,
}

/// A directory and the space on its volume.
#[derive(Clone, Debug)]
pub struct Volume {
    pub path: PathBuf,
    pub is_offline: bool,
    /// Total and free bytes of the volume; `None` if unknown.
    pub space: Option<(u64, u64)>,
}

impl LogDirs {
    /// The cluster id: as configured, as found in a directory, or generated.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// The disk of the directories.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The broker's id.
    pub fn node_id(&self) -> i32 {
        self.node_id
    }

    /// The ids of the directories that are online.
    pub fn online_ids(&self) -> Vec<Uuid> {
        self.online().map(|dir| dir.state.id()).collect()
    }

    /// Number of online directories.
    pub fn online_count(&self) -> usize {
        self.online().count()
    }

    /// The directories that could not be opened.
    pub fn failed(&self) -> &[FailedDir] {
        &self.failed
    }

    /// The previous broker epoch, if all directories were cleanly closed with the same epoch, and all logs
    /// have their synced records. The broker may claim that epoch when it registers again.
    pub fn previous_broker_epoch(&self) -> Option<i64> {
        self.previous_broker_epoch
    }

    fn online(&self) -> impl Iterator<Item = &LogDir> {
        self.dirs.iter().filter(|dir| dir.state.offline().is_none())
    }

    fn are_all_online(&self) -> bool {
        self.failed.is_empty() && self.online().count() == self.dirs.len()
    }

    /// All open directories with their partitions.
    pub fn describe(&self) -> Vec<DirDescription> {
        self.dirs
            .iter()
            .map(|LogDir { state, .. }| DirDescription {
                id: state.id(),
                path: state.path().to_owned(),
                offline: state.offline(),
                space: self.disk.space(state.path()).ok(),
                partitions: state.partitions(),
            })
            .collect()
    }

    /// The open directories with the space on their volumes.
    pub fn volumes(&self) -> Vec<Volume> {
        self.dirs
            .iter()
            .map(|LogDir { state, .. }| Volume {
                path: state.path().to_owned(),
                is_offline: state.offline().is_some(),
                space: self.disk.space(state.path()).ok(),
            })
            .collect()
    }

    /// The id of the directory in which a partition is.
    pub fn directory_of(&self, name: &TopicPartition) -> Option<Uuid> {
        self.dirs.iter().find(|dir| dir.state.contains(name)).map(|dir| dir.state.id())
    }

    /// True if a partition without a log was in one of the directories before, with committed records: its
    /// high watermark is known, and its log was removed while no broker ran.
    pub fn has_lost(&self, name: &TopicPartition) -> bool {
        self.lost.lock().contains(name)
    }

    /// Forgets the losses found at the start, which [`LogDirs::has_lost`] reports.
    pub fn forget_lost(&self) {
        self.lost.lock().clear();
    }

    /// Creates a partition in the directory with the given id, or in the one with the fewest partitions.
    /// Directories without room come last, and if a directory has no room the next one is tried. If the given
    /// directory no longer exists, as after the replacement of a disk, the partition is created in another,
    /// unless it may be in an offline directory: an empty log beside that one would lose its data.
    pub fn create(
        &self,
        name: &TopicPartition,
        topic_id: Option<Uuid>,
        config: Arc<LogConfig>,
        directory: Option<Uuid>,
    ) -> Result<PartitionLog, CreateError> {
        if let Some(there) = self.dirs.iter().find(|dir| dir.state.contains(name)) {
            let (name, path) = (name.clone(), there.state.path().to_owned());
            return Err(PartitionExists { name, path }.into());
        }
        let dirs = match directory.map(|id| self.online().find(|dir| dir.state.id() == id)) {
            Some(Some(requested)) => vec![requested],
            Some(None) if !self.are_all_online() => Vec::new(),
            Some(None) | None => self.by_preference(),
        };
        self.disk.descriptors().check_new_partition().map_err(io::Error::from)?;
        let mut refused = CreateError::from(DirectoryOffline { directory });
        for dir in dirs {
            match self.create_in(&dir.state, name, topic_id, Arc::clone(&config)) {
                Ok(log) => {
                    self.changed.notify_one();
                    return Ok(log);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let (name, path) = (name.clone(), dir.state.path().to_owned());
                    return Err(PartitionExists { name, path }.into());
                }
                Err(error) => {
                    if crate::disk::is_disk_full(&error) {
                        dir.state.note_full();
                    } else if !crate::disk::is_shortage(&error) {
                        dir.state.fail(&format!("creating {name} has failed: {error}"));
                    }
                    refused = error.into();
                }
            }
        }
        Err(refused)
    }

    /// The directories for a new partition: those with room first, then those with few partitions.
    fn by_preference(&self) -> Vec<&LogDir> {
        let mut dirs: Vec<_> = self.online().collect();
        if dirs.len() > 1 {
            dirs.sort_by_cached_key(|dir| (!dir.state.has_room(), dir.state.partition_count()));
        }
        dirs
    }

    fn create_in(
        &self,
        state: &Arc<DirState>,
        name: &TopicPartition,
        topic_id: Option<Uuid>,
        config: Arc<LogConfig>,
    ) -> io::Result<PartitionLog> {
        // Checkpoints may contain an earlier partition of this name; its entries must not apply to the new
        // one.
        state.make_way(name)?;
        let home = Home::new(state.disk().clone(), state.path().join(name.dir_name()));
        let mut log = PartitionLog::create(home, name.clone(), topic_id, config, self.clock.clone())?;
        log.attach(Arc::clone(state));
        state.register(name.clone(), Arc::clone(log.published()));
        Ok(log)
    }

    /// Deletes a partition: its directory is renamed to end with `-delete`, and removed later by
    /// [`LogDirs::purge_deleted`]. The log is closed for appends. After an error, the call can be retried; if
    /// there is no room for the longer name, [`LogDirs::empty`] frees some.
    pub fn delete(&self, log: &mut PartitionLog) -> io::Result<()> {
        let Some(state) = log.state().cloned() else { return Ok(()) };
        state.set_closed(log.name(), log.published());
        let renamed = state.path().join(log.name().delete_dir_name());
        let due_ms = self.clock.elapsed_ms().saturating_add(log.config().file_delete_delay_ms);
        match log.retire(&renamed) {
            // Another program has removed the directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            retired => {
                retired?;
                state.doom(due_ms, renamed);
            }
        }
        // Unregister only after the rename: another log of this name, in another directory, would confuse the
        // next start.
        state.unregister(log.name(), log.published());
        self.changed.notify_one();
        Ok(())
    }

    /// Removes the files of a deleted partition, except the file with the topic id: without it, files left
    /// after a crash could be assigned to another topic. For a full disk without room for another name. Call
    /// it without the partition's lock.
    pub fn empty(&self, partition: &Path) -> io::Result<()> {
        for listed in self.disk.list(partition)? {
            if listed.name != METADATA_FILE {
                self.disk.remove(&partition.join(&listed.name))?;
            }
        }
        Ok(())
    }

    /// Sets aside a partition unknown to the cluster: its directory is renamed to end with `-stray`, and
    /// kept. The log is closed for appends. Returns the new path.
    pub fn set_aside(&self, log: &mut PartitionLog) -> io::Result<PathBuf> {
        let Some(state) = log.state().cloned() else { return Err(io::ErrorKind::NotFound.into()) };
        state.set_closed(log.name(), log.published());
        let renamed = state.path().join(log.name().stray_dir_name());
        log.retire(&renamed)?;
        state.unregister(log.name(), log.published());
        self.changed.notify_one();
        Ok(renamed)
    }

    /// Returns once partitions have been created or removed since the last call. The high watermarks should
    /// then be written soon, since the file shows missing partitions at the next start.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns once a directory has failed or become full since the last call.
    pub async fn troubled(&self) {
        self.troubles.notified().await;
    }

    /// Removes the directories of deleted partitions whose delay has passed by [`Clock::elapsed_ms`]. May
    /// take long: call it only if blocking is allowed.
    pub fn purge_deleted(&self, elapsed_ms: i64) {
        for dir in self.online() {
            for path in dir.state.take_doomed(elapsed_ms) {
                match dir.state.disk().remove_dir(&path) {
                    Ok(()) => tracing::info!(path = %path.display(), "Removed a deleted partition"),
                    Err(error) => {
                        tracing::warn!(path = %path.display(), %error, "Failed to remove a deleted partition, retrying later");
                        dir.state.doom(elapsed_ms.saturating_add(60_000), path);
                    }
                }
            }
        }
    }

    /// Writes the high watermarks (Kafka: every 5 s).
    pub fn checkpoint_high_watermarks(&self) {
        self.checkpoint(HIGH_WATERMARK_FILE, Checkpoint::HighWatermark);
    }

    /// Writes the recovery points (Kafka: every 60 s).
    pub fn checkpoint_recovery_points(&self) {
        self.checkpoint(RECOVERY_POINT_FILE, Checkpoint::RecoveryPoint);
        self.disk.log_missed_hints();
    }

    /// Writes the log starts (Kafka: every 60 s). Returns the directories whose log starts are synced. After
    /// DeleteRecords, call it before answering if the records must stay deleted after a crash.
    pub fn checkpoint_log_starts(&self) -> Vec<Uuid> {
        self.checkpoint(LOG_START_FILE, Checkpoint::LogStart)
    }

    fn checkpoint(&self, file: &str, checkpoint: Checkpoint) -> Vec<Uuid> {
        let mut written = Vec::new();
        for dir in self.online() {
            match dir.state.write_checkpoint(checkpoint) {
                Ok(()) => written.push(dir.state.id()),
                Err(error) if crate::disk::is_shortage(&error) => {
                    tracing::warn!(dir = %dir.state.path().display(), file, %error, "Failed to write a checkpoint");
                }
                Err(error) => dir.state.fail(&format!("writing {file} has failed: {error}")),
            }
        }
        written
    }

    /// Closes the directories. Every log must have been closed ([`PartitionLog::close`]) for its directory to
    /// count as clean: everything is synced, the checkpoints are written, and the clean shutdown marker comes
    /// last. Returns true if every directory is clean; the next start checks the logs of directories that are
    /// not.
    pub fn close(&self, broker_epoch: i64) -> bool {
        let mut is_clean = true;
        for mut future in self.take_futures() {
            if let Err(error) = future.close() {
                tracing::error!(partition = %future.name(), %error, "Failed to close the copy of a log");
                is_clean = false;
            }
        }
        for dir in self.online() {
            let path = dir.state.path();
            let mut is_marked = false;
            match dir.state.close() {
                Ok(true) => match clean_shutdown::write(&self.disk, path, broker_epoch) {
                    Ok(()) => is_marked = true,
                    Err(error) => {
                        tracing::error!(dir = %path.display(), %error, "Failed to write the clean shutdown marker");
                    }
                },
                Ok(false) => {
                    tracing::warn!(dir = %path.display(), "Left a log directory with logs that are not closed");
                }
                Err(error) => {
                    tracing::error!(dir = %path.display(), %error, "Failed to close a log directory cleanly");
                }
            }
            is_clean &= is_marked;
        }
        is_clean
    }

    /// Takes a directory offline: its partitions are closed for appends, those of other directories continue.
    pub fn fail_directory(&self, id: Uuid, reason: &str) {
        if let Some(dir) = self.dirs.iter().find(|dir| dir.state.id() == id) {
            dir.state.fail(reason);
        }
    }

    /// True if all directories are full. [`LogDirs::look_for_room`] detects free space.
    pub fn are_full(&self) -> bool {
        self.online().next().is_some() && self.online().all(|dir| dir.state.is_full())
    }

    /// The full directories.
    pub fn full_ids(&self) -> Vec<Uuid> {
        self.online().filter(|dir| dir.state.is_full()).map(|dir| dir.state.id()).collect()
    }

    /// Checks if full directories have space again.
    pub fn look_for_room(&self) {
        self.online().filter(|dir| dir.state.is_full()).for_each(|dir| dir.state.look_for_room());
    }

    /// The clock of the logs.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The path of a directory.
    pub fn path_of(&self, id: Uuid) -> Option<&Path> {
        self.dirs.iter().find(|dir| dir.state.id() == id).map(|dir| dir.state.path())
    }
}

/// The recovery point of a partition without a checkpoint.
const NO_CHECKPOINT: Offset = Offset::ZERO;
