//! Opening log directories and all partitions in them.
//!
//! Owns: the order of a start: lock; `meta.properties`; the marker of a clean stop, removed before any
//! change; the checkpoints; then the partitions, in parallel. Refuses: directories of another node or
//! cluster. An unusable directory is reported and skipped.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_hash::{HashMap, HashSet};
use thalweg_record::Offset;

use super::error::{
    DirectoryLocked, DuplicateDirectoryId, EmptyDirectory, NoDirectory, OpenError, TooManyOpenFiles,
    UnidentifiedMetadataLog, WrongClusterId, WrongNodeId,
};
use super::job::Job;
use super::meta_properties::{self, MetaProperties};
use super::moves::{self, RetiredDir};
use super::unopened::UnopenedLog;
use super::{FailedDir, LOCK_FILE, LogDir, LogDirs, NO_CHECKPOINT, clean_shutdown, duplicates, never_opened};
use crate::checkpoint::{CLEANER_FILE, LOG_START_FILE, RECOVERY_POINT_FILE};
use crate::clock::Clock;
use crate::config::LogConfig;
use crate::dir_state::{Checkpoint, DirState};
use crate::disk::{DirLock, Disk, is_disk_full, is_shortage, lacks_descriptors};
use crate::partition::{LogError, OpenOptions, PartitionLog};
use crate::segment::LOG_SUFFIX;
use crate::topic_partition::{DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX, TopicPartition};
use thalweg_ids::Uuid;
use tokio::sync::Notify;

/// The topic of the metadata log, which only the controller opens.
const CLUSTER_METADATA_TOPIC: &str = "__cluster_metadata";

/// Options for opening log directories.
#[derive(Clone, Debug)]
pub struct LogDirsOptions {
    /// `log.dirs`.
    pub dirs: Vec<PathBuf>,
    /// The directory of the metadata log, for a controller.
    pub metadata_log_dir: Option<PathBuf>,
    pub node_id: i32,
    /// The cluster id, if known; otherwise it is read from the directories, or generated.
    pub cluster_id: Option<String>,
    /// True if empty directories may be added to used ones (`thalweg.log.dirs.add`).
    pub adds: bool,
    /// Number of threads that open partitions (`num.recovery.threads.per.data.dir`, for all directories
    /// together).
    pub threads: usize,
    pub disk: Disk,
    pub clock: Clock,
}

impl LogDirsOptions {
    /// The usual options for these directories.
    pub fn new(dirs: Vec<PathBuf>, node_id: i32) -> LogDirsOptions {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let (disk, clock) = (Disk::real(), Clock::system());
        LogDirsOptions {
            dirs,
            metadata_log_dir: None,
            node_id,
            cluster_id: None,
            adds: false,
            threads,
            disk,
            clock,
        }
    }
}

/// A directory whose lock is held and whose `meta.properties` was read.
struct LockedDir {
    path: PathBuf,
    lock: DirLock,
    meta: Option<MetaProperties>,
}

impl LogDirs {
    /// The cluster id of the first directory that has one. Changes nothing and takes no lock. Faults of a
    /// directory are reported when it is opened.
    pub fn recorded_cluster_id(disk: &Disk, dirs: &[PathBuf]) -> Option<String> {
        dirs.iter().find_map(|dir| meta_properties::read(disk, dir).ok()??.cluster_id)
    }

    /// Opens the directories, creating those that are missing, and all partitions in them.
    pub fn open(
        options: LogDirsOptions,
        config_of: impl Fn(&TopicPartition) -> Arc<LogConfig> + Sync,
    ) -> Result<(LogDirs, Vec<PartitionLog>), OpenError> {
        let (locked, mut failed) = lock_all(&options)?;
        let of_metadata = metadata_dir(&options, &locked)?;
        check_metadata_log(&options, &locked, of_metadata.as_ref())?;
        let cluster_id = agree_on_cluster(&options, &locked, of_metadata.as_ref())?;
        let never_opened = never_opened_of(&options, &locked)?;
        let mut dirs = Vec::new();
        let mut jobs = Vec::new();
        let mut epochs = Vec::new();
        let (mut retired, mut lost) = (Vec::new(), HashSet::default());
        let troubles = Arc::default();
        for LockedDir { path, lock, meta } in locked {
            match open_dir(&options, &cluster_id, &path, meta, &mut retired, &troubles) {
                Ok((state, found, epoch)) => {
                    lost.extend(state.missing(found.iter().map(|job| &job.name)));
                    jobs.extend(found);
                    epochs.push(epoch);
                    dirs.push(LogDir { state, _lock: lock });
                }
                Err(error) => fail(&options.disk, &mut failed, &path, error)?,
            }
        }
        if dirs.is_empty() {
            return Err(no_directory(&failed).into());
        }
        note_never_opened(&options.disk, &dirs, never_opened);
        moves::finish_interrupted(&mut jobs, &retired);
        let all_are_online = failed.is_empty() && dirs.iter().all(|dir| dir.state.offline().is_none());
        moves::remove_retired(retired, all_are_online);
        // A moved partition is in another directory; a copy may be its only remainder, or replace it.
        for job in &jobs {
            lost.remove(&job.name);
        }
        let OpenedLogs { logs, futures, unopened } = open_partitions(&options, jobs, config_of)?;
        let (logs, duplicates) = duplicates::choose(logs)?;
        let unopened = duplicates::among_unopened(unopened, &logs)?;
        let futures = Mutex::new(futures.into_iter().map(|log| (log.name().clone(), log)).collect());
        let all_are_online = failed.is_empty() && dirs.iter().all(|dir| dir.state.offline().is_none());
        let is_complete = all_are_online && unopened.is_empty() && lost.is_empty();
        let previous_broker_epoch = epoch_of(&epochs, &logs).filter(|_| is_complete);
        let LogDirsOptions { node_id, disk, clock, .. } = options;
        // An absent log may have moved to a directory that cannot be opened now.
        let lost = Mutex::new(if failed.is_empty() { lost } else { HashSet::default() });
        let dirs = LogDirs {
            cluster_id,
            node_id,
            dirs,
            failed,
            previous_broker_epoch,
            futures,
            unopened: Mutex::new(unopened),
            gapped: Mutex::default(),
            lost,
            changed: Notify::new(),
            troubles,
            disk,
            clock,
        };
        duplicates.into_iter().for_each(|log| dirs.set_duplicate_aside(log));
        // Recovery may have moved log ends below the offsets on disk. High watermarks are kept until the next
        // checkpoint, since they list the logs of the previous process.
        dirs.checkpoint_recovery_points();
        dirs.checkpoint(LOG_START_FILE, Checkpoint::LogStart);
        dirs.checkpoint(CLEANER_FILE, Checkpoint::Cleaner);
        if dirs.online_count() > 0 { Ok((dirs, logs)) } else { Err(dirs.none_online().into()) }
    }

    /// The reasons why no directory is online: some could not be opened, and others have failed since.
    fn none_online(self) -> NoDirectory {
        let since = self.dirs.iter().filter_map(|dir| {
            let reason = dir.state.offline()?.to_string();
            Some(FailedDir { path: dir.state.path().to_owned(), reason })
        });
        no_directory(&self.failed.iter().cloned().chain(since).collect::<Vec<_>>())
    }

    /// Sets aside a log whose records are all in another log of the partition.
    fn set_duplicate_aside(&self, mut log: PartitionLog) {
        let (partition, from, log_end) = (log.name().clone(), log.dir().to_owned(), log.log_end_offset().0);
        match self.set_aside(&mut log) {
            Ok(path) => tracing::warn!(
                %partition, from = %from.display(), path = %path.display(), log_end,
                "Set aside the second log of a partition, whose records the first has; delete it if it is not needed"
            ),
            // The next start retries.
            Err(error) => {
                tracing::error!(%partition, path = %from.display(), %error, "Failed to set aside the second log of a partition");
                if let Some(state) = log.state() {
                    state.unregister(&partition, log.published());
                }
            }
        }
    }
}

fn no_directory(failed: &[FailedDir]) -> NoDirectory {
    let reasons = failed.iter().map(|dir| format!("{}: {}", dir.path.display(), dir.reason));
    NoDirectory { reasons: reasons.collect::<Vec<_>>().join("; ") }
}

/// The epoch with which every directory was cleanly closed; `None` if acknowledged records may be missing
/// nevertheless, because the broker must not claim the epoch then (KIP-966). The claim covers all its
/// replicas. A damaged replica is also reported as lost, but only Thalweg's controllers then stop counting
/// it, and only if they keep eligible leader replicas.
fn epoch_of(epochs: &[Option<i64>], logs: &[PartitionLog]) -> Option<i64> {
    let is_one = epochs.windows(2).all(|pair| pair[0] == pair[1]);
    let is_whole = logs.iter().all(|log| log.damage().is_none());
    epochs.first().copied().flatten().filter(|_| is_one && is_whole)
}

/// Continues without a directory, unless the cause is a lack of descriptors.
fn fail(disk: &Disk, failed: &mut Vec<FailedDir>, path: &Path, error: io::Error) -> Result<(), OpenError> {
    if lacks_descriptors(&error) {
        return Err(too_many_open(disk, path, error).into());
    }
    let reason = error.to_string();
    tracing::error!(dir = %path.display(), reason, "Failed to open a log directory");
    failed.push(FailedDir { path: path.to_owned(), reason });
    Ok(())
}

fn too_many_open(disk: &Disk, path: &Path, error: io::Error) -> TooManyOpenFiles {
    TooManyOpenFiles { path: path.to_owned(), limit: disk.descriptors().max(), error }
}

/// The locked directories, and the failed ones.
fn lock_all(options: &LogDirsOptions) -> Result<(Vec<LockedDir>, Vec<FailedDir>), OpenError> {
    let (mut locked, mut failed) = (Vec::new(), Vec::new());
    for path in &options.dirs {
        match lock_dir(&options.disk, path)? {
            Ok(dir) => locked.push(dir),
            Err(error) => fail(&options.disk, &mut failed, path, error)?,
        }
    }
    Ok((locked, failed))
}

fn lock_dir(disk: &Disk, path: &Path) -> Result<io::Result<LockedDir>, OpenError> {
    let lock_file = path.join(LOCK_FILE);
    let taken = disk.create_dir(path).and_then(|_| {
        // An error of the operating system does not contain the file's name.
        disk.lock(&lock_file).map_err(|error| match error.kind() {
            _ if is_shortage(&error) => error,
            io::ErrorKind::IsADirectory => {
                let reason = format!("{} is a directory, and must be a file: remove it", lock_file.display());
                io::Error::new(io::ErrorKind::IsADirectory, reason)
            }
            kind => io::Error::new(kind, format!("{}: {error}", lock_file.display())),
        })
    });
    let lock = match taken {
        Ok(Some(lock)) => lock,
        Ok(None) => return Err(DirectoryLocked { path: path.to_owned() }.into()),
        Err(error) => return Ok(Err(error)),
    };
    match meta_properties::read(disk, path) {
        Ok(meta) => Ok(Ok(LockedDir { path: path.to_owned(), lock, meta })),
        Err(meta_properties::MetaPropertiesError::Bad(error)) => Err(error.into()),
        Err(meta_properties::MetaPropertiesError::Io(error)) => Ok(Err(error)),
    }
}

/// The directory of the metadata log with its `meta.properties`, if it is not one of the log directories.
fn metadata_dir<'a>(
    options: &'a LogDirsOptions,
    locked: &[LockedDir],
) -> Result<Option<(&'a Path, MetaProperties)>, OpenError> {
    let Some(dir) = options.metadata_log_dir.as_deref() else { return Ok(None) };
    if locked.iter().any(|log_dir| log_dir.path == dir) {
        return Ok(None);
    }
    match meta_properties::read(&options.disk, dir) {
        Ok(meta) => Ok(Some((dir, meta.unwrap_or_default()))),
        Err(meta_properties::MetaPropertiesError::Bad(error)) => Err(error.into()),
        // The controller reports an unreadable file.
        Err(meta_properties::MetaPropertiesError::Io(_)) => Ok(None),
    }
}

/// The cluster id, after comparing the directories and the configuration.
fn agree_on_cluster(
    options: &LogDirsOptions,
    locked: &[LockedDir],
    of_metadata: Option<&(&Path, MetaProperties)>,
) -> Result<String, OpenError> {
    let mut cluster_id = options.cluster_id.clone();
    let mut ids: HashMap<Uuid, &Path> = HashMap::default();
    let of_logs = locked.iter().filter_map(|dir| Some((&*dir.path, dir.meta.as_ref()?)));
    for (path, meta) in of_logs.chain(of_metadata.map(|(path, meta)| (*path, meta))) {
        if let Some(found) = meta.node_id
            && found != options.node_id
        {
            return Err(WrongNodeId { path: path.to_owned(), found, expected: options.node_id }.into());
        }
        if let Some(found) = &meta.cluster_id {
            let expected = cluster_id.get_or_insert_with(|| found.clone());
            if expected != found {
                let (found, expected) = (found.clone(), expected.clone());
                return Err(WrongClusterId { path: path.to_owned(), found, expected }.into());
            }
        }
        if let Some(id) = meta.directory_id
            && let Some(first) = ids.insert(id, path)
        {
            return Err(DuplicateDirectoryId { id, first: first.to_owned(), second: path.to_owned() }.into());
        }
    }
    Ok(cluster_id.unwrap_or_else(|| Uuid::random().to_string()))
}

/// Refuses a metadata log of an unknown cluster: a generated cluster id would differ from that of its
/// brokers.
fn check_metadata_log(
    options: &LogDirsOptions,
    locked: &[LockedDir],
    of_metadata: Option<&(&Path, MetaProperties)>,
) -> Result<(), OpenError> {
    let of_logs = || locked.iter().map(|dir| (&*dir.path, dir.meta.as_ref()));
    let mut all = of_logs().chain(of_metadata.map(|(path, meta)| (*path, Some(meta))));
    if all.clone().any(|(_, meta)| meta.is_some_and(|meta| meta.cluster_id.is_some())) {
        return Ok(());
    }
    match all.find(|(path, _)| has_metadata_log(&options.disk, path)) {
        Some((path, _)) => {
            Err(UnidentifiedMetadataLog { path: path.to_owned(), node_id: options.node_id }.into())
        }
        None => Ok(()),
    }
}

/// True if a directory has a metadata log with records, or a snapshot of one.
fn has_metadata_log(disk: &Disk, dir: &Path) -> bool {
    let log = dir.join(format!("{CLUSTER_METADATA_TOPIC}-0"));
    let is_written = |name: &str| disk.facts(&log.join(name)).is_ok_and(|facts| facts.len > 0);
    let is_snapshot =
        |name: &str| name.ends_with(".checkpoint") && !name.starts_with("00000000000000000000-");
    disk.list(&log).is_ok_and(|listed| {
        listed.iter().any(|l| is_snapshot(&l.name) || (l.name.ends_with(LOG_SUFFIX) && is_written(&l.name)))
    })
}

/// Refuses an unused directory beside a used one: its disk may not be mounted. The first start may have been
/// interrupted between two directories; in that case no directory has a checkpoint or the marker of a clean
/// stop.
fn check_none_is_empty(
    disk: &Disk,
    locked: &[LockedDir],
    never_opened: &BTreeSet<String>,
) -> Result<(), EmptyDirectory> {
    let has = |dir: &LockedDir, file| disk.exists(&dir.path.join(file));
    let has_logs = |dir: &LockedDir| has(dir, RECOVERY_POINT_FILE) || has(dir, clean_shutdown::FILE);
    let was_used = |dir: &&LockedDir| has_logs(dir) || has_metadata_log(disk, &dir.path);
    // The controller may have written to a directory that failed as a log directory.
    let is_expected =
        |dir: &LockedDir| never_opened.contains(&never_opened::named(&dir.path)) && !has_logs(dir);
    let empty = locked.iter().find(|dir| dir.meta.is_none() && !is_expected(dir));
    match (empty, locked.iter().find(was_used)) {
        (Some(empty), Some(used)) => {
            Err(EmptyDirectory { path: empty.path.clone(), used: used.path.clone() })
        }
        _ => Ok(()),
    }
}

/// The directories that still wait for their first start. Refuses other directories without `meta.properties`
/// beside used ones.
fn never_opened_of(
    options: &LogDirsOptions,
    locked: &[LockedDir],
) -> Result<BTreeSet<String>, EmptyDirectory> {
    let mut never_opened: BTreeSet<String> =
        locked.iter().flat_map(|dir| never_opened::read(&options.disk, &dir.path)).collect();
    if !options.adds {
        check_none_is_empty(&options.disk, locked, &never_opened)?;
    }
    if locked.iter().all(|dir| dir.meta.is_none()) {
        never_opened.extend(options.dirs.iter().map(|dir| never_opened::named(dir)));
    }
    Ok(never_opened)
}

/// Notes in each directory the other directories that still wait for their first start.
fn note_never_opened(disk: &Disk, dirs: &[LogDir], mut never_opened: BTreeSet<String>) {
    for dir in dirs {
        never_opened.remove(&never_opened::named(dir.state.path()));
    }
    dirs.iter().for_each(|dir| never_opened::write(disk, dir.state.path(), &never_opened));
}

type OpenedDir = (Arc<DirState>, Vec<Job>, Option<i64>);

fn open_dir(
    options: &LogDirsOptions,
    cluster_id: &str,
    path: &Path,
    meta: Option<MetaProperties>,
    retired: &mut Vec<RetiredDir>,
    troubles: &Arc<Notify>,
) -> io::Result<OpenedDir> {
    let disk = &options.disk;
    let meta = meta.unwrap_or_default();
    let id = meta.directory_id.unwrap_or_else(Uuid::random);
    if !meta.is_current || meta.directory_id.is_none() {
        meta_properties::write(disk, path, cluster_id, options.node_id, id)?;
    }
    let marker = clean_shutdown::take(disk, path)?;
    let state = Arc::new(DirState::new(id, path.to_owned(), disk, Arc::clone(troubles)));
    let recovery_points = state.read_checkpoint(Checkpoint::RecoveryPoint)?;
    let high_watermarks = state.read_checkpoint(Checkpoint::HighWatermark)?;
    let log_starts = state.read_checkpoint(Checkpoint::LogStart)?;
    let cleaned = state.read_checkpoint(Checkpoint::Cleaner)?;
    let mut jobs = Vec::new();
    for listed in disk.list(path)?.into_iter().filter(|listed| listed.is_dir) {
        if listed.name.ends_with(DELETE_DIR_SUFFIX) {
            retired.push(RetiredDir { state: Arc::clone(&state), name: listed.name });
            continue;
        }
        if listed.name.ends_with(STRAY_DIR_SUFFIX) {
            let stray = path.join(&listed.name);
            tracing::warn!(path = %stray.display(), "Found a log that was set aside; delete it if it is not needed");
            continue;
        }
        let copied = TopicPartition::from_future_dir_name(&listed.name);
        let future = copied.is_some().then(|| path.join(&listed.name));
        let Some(name) = copied.or_else(|| TopicPartition::from_dir_name(&listed.name)) else {
            tracing::info!(dir = %path.display(), name = listed.name, "Ignored a directory that is not a partition");
            continue;
        };
        if &*name.topic == CLUSTER_METADATA_TOPIC {
            continue;
        }
        let of = |offsets: &std::collections::BTreeMap<TopicPartition, Offset>| {
            offsets.get(&name).copied().unwrap_or(NO_CHECKPOINT)
        };
        let options = OpenOptions {
            clean: marker.is_some(),
            recovery_point: of(&recovery_points),
            high_watermark: of(&high_watermarks),
            log_start: of(&log_starts),
            cleaned_to: of(&cleaned),
            synced_to: None,
        };
        jobs.push(Job { state: Arc::clone(&state), name, future, options });
    }
    Ok((state, jobs, marker.flatten()))
}

/// The logs found in the directories.
#[derive(Default)]
struct OpenedLogs {
    logs: Vec<PartitionLog>,
    /// Copies that will replace logs in other directories.
    futures: Vec<PartitionLog>,
    unopened: Vec<UnopenedLog>,
}

/// Opens partitions on several threads. A read failure takes the partition's directory offline. A log without
/// room to set damaged records aside stays unopened. A lack of descriptors ends the start, because no
/// directory is at fault.
fn open_partitions(
    options: &LogDirsOptions,
    jobs: Vec<Job>,
    config_of: impl Fn(&TopicPartition) -> Arc<LogConfig> + Sync,
) -> Result<OpenedLogs, TooManyOpenFiles> {
    let threads = options.threads.clamp(1, jobs.len().max(1));
    let jobs = Mutex::new(jobs.into_iter());
    let opened = Mutex::new(OpenedLogs::default());
    let refused = Mutex::new(None);
    let work = || {
        while refused.lock().is_none() {
            let Some(job) = jobs.lock().next() else { break };
            match job.open(config_of(&job.name), &options.clock) {
                Ok(log) if job.future.is_some() => opened.lock().futures.push(log),
                Ok(log) => opened.lock().logs.push(log),
                Err(LogError::Io(error)) if lacks_descriptors(&error) => {
                    *refused.lock() = Some(too_many_open(&options.disk, &job.dir(), error));
                }
                Err(LogError::Io(error)) if is_disk_full(&error) && job.future.is_none() => {
                    let now_ms = options.clock.elapsed_ms();
                    opened.lock().unopened.push(UnopenedLog::new(job, &error, now_ms));
                }
                Err(error) => job.state.fail(&format!("opening {} has failed: {error}", job.name)),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    refused.into_inner().map_or_else(|| Ok(opened.into_inner()), Err)
}
