//! One open log directory: its partitions and its checkpoints.
//!
//! Owns: the registry of the partitions in the directory, the content of its checkpoint files, and its
//! offline state. Refuses: recovery; a failed directory stays offline until the broker restarts.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use thalweg_hash::{HashMap, HashSet};
use thalweg_record::Offset;
use tokio::sync::Notify;

use crate::checkpoint::{
    self, BadCheckpoint, CLEANER_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE,
};
use crate::disk::{DirFailure, Disk};
use crate::published::PublishedOffsets;
use crate::topic_partition::TopicPartition;
use thalweg_ids::Uuid;

/// Free space required before a full disk accepts appends again: this share of the disk, or this many bytes.
/// With less, the disk would fill up again at once.
const ROOM_SHARE: u64 = 10;
const ROOM_BYTES: u64 = 1 << 30;

/// The kinds of checkpoint files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checkpoint {
    RecoveryPoint,
    HighWatermark,
    LogStart,
    Cleaner,
}

impl Checkpoint {
    const ALL: [Checkpoint; 4] =
        [Checkpoint::RecoveryPoint, Checkpoint::HighWatermark, Checkpoint::LogStart, Checkpoint::Cleaner];

    fn file(self) -> &'static str {
        match self {
            Checkpoint::RecoveryPoint => RECOVERY_POINT_FILE,
            Checkpoint::HighWatermark => HIGH_WATERMARK_FILE,
            Checkpoint::LogStart => LOG_START_FILE,
            Checkpoint::Cleaner => CLEANER_FILE,
        }
    }

    fn offset(self, offsets: &PublishedOffsets) -> Offset {
        match self {
            Checkpoint::RecoveryPoint => offsets.recovery_point(),
            Checkpoint::HighWatermark => offsets.high_watermark(),
            // Lost records before the log start must not seem deleted at the next start.
            Checkpoint::LogStart => offsets.log_start_for_followers(),
            Checkpoint::Cleaner => offsets.cleaned_to(),
        }
    }

    /// The partition's value in the file; `None` if it needs no entry.
    fn value(self, offsets: &PublishedOffsets) -> Option<Offset> {
        let offset = self.offset(offsets);
        let is_needed = match self {
            Checkpoint::RecoveryPoint | Checkpoint::HighWatermark => true,
            Checkpoint::LogStart => offset > offsets.first_segment_offset(),
            Checkpoint::Cleaner => offset > Offset::ZERO,
        };
        is_needed.then_some(offset)
    }
}

type Written = BTreeMap<TopicPartition, Offset>;

#[derive(Debug)]
struct Partition {
    offsets: Arc<PublishedOffsets>,
    closed: bool,
    /// True for a copy that will replace the log in another directory.
    is_future: bool,
}

/// A partition in a log directory, as described by DescribeLogDirs.
#[derive(Clone, Debug)]
pub struct PartitionDescription {
    /// The partition's name.
    pub name: TopicPartition,
    /// The log's offsets and size.
    pub offsets: Arc<PublishedOffsets>,
    /// True for a copy that will replace the log in another directory.
    pub is_future: bool,
}

/// One open log directory.
#[derive(Debug)]
pub struct DirState {
    id: Uuid,
    path: PathBuf,
    disk: Disk,
    failure: Arc<DirFailure>,
    /// True if a write has failed for lack of space, and no space was found since.
    is_full: AtomicBool,
    partitions: Mutex<HashMap<TopicPartition, Partition>>,
    /// The content of each checkpoint file, in the order of [`Checkpoint::ALL`]. The lock is held while
    /// writing.
    written: [Mutex<Written>; 4],
    doomed: Mutex<Vec<(i64, PathBuf)>>,
}

impl DirState {
    /// An online directory. Notifies `troubles` when it fails or becomes full.
    pub(crate) fn new(id: Uuid, path: PathBuf, disk: &Disk, troubles: Arc<Notify>) -> DirState {
        let failure = DirFailure::new(path.clone(), troubles);
        DirState {
            id,
            path,
            disk: disk.of_directory(Arc::clone(&failure)),
            failure,
            is_full: AtomicBool::new(false),
            partitions: Mutex::default(),
            written: Default::default(),
            doomed: Mutex::default(),
        }
    }

    /// The directory's id.
    pub fn id(&self) -> Uuid {
        self.id
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The disk of the directory. Failing calls take the directory offline.
    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The reason why the directory is offline, if it is.
    pub fn offline(&self) -> Option<Arc<str>> {
        self.failure.reason()
    }

    /// Takes the directory offline.
    pub(crate) fn fail(&self, reason: &str) {
        self.failure.fail(reason);
    }

    /// Notes that a write has failed for lack of space.
    pub(crate) fn note_full(&self) {
        if !self.is_full.swap(true, Ordering::AcqRel) {
            tracing::warn!(dir = %self.path.display(), "Disk is full, appends are refused until there is room");
            self.failure.notify();
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Checks if a full directory has space again.
    pub(crate) fn look_for_room(&self) {
        if let Some(free) = self.room().filter(|_| self.is_full()) {
            tracing::info!(dir = %self.path.display(), free, "Disk has room again");
            self.is_full.store(false, Ordering::Release);
        }
    }

    /// True if there is room for another partition.
    pub(crate) fn has_room(&self) -> bool {
        !self.is_full() && self.room().is_some()
    }

    /// The free bytes, if they are enough; `u64::MAX` if unknown.
    fn room(&self) -> Option<u64> {
        let (size, free) = self.disk.space(&self.path).unwrap_or((u64::MAX, u64::MAX));
        (free >= (size / ROOM_SHARE).min(ROOM_BYTES)).then_some(free)
    }

    pub(crate) fn partitions(&self) -> Vec<PartitionDescription> {
        let partitions = self.partitions.lock();
        let describe = |(name, partition): (&TopicPartition, &Partition)| PartitionDescription {
            name: name.clone(),
            offsets: Arc::clone(&partition.offsets),
            is_future: partition.is_future,
        };
        partitions.iter().map(describe).collect()
    }

    pub(crate) fn partition_count(&self) -> usize {
        self.partitions.lock().len()
    }

    pub(crate) fn contains(&self, name: &TopicPartition) -> bool {
        self.partitions.lock().get(name).is_some_and(|partition| !partition.is_future)
    }

    pub(crate) fn register(&self, name: TopicPartition, offsets: Arc<PublishedOffsets>) {
        self.partitions.lock().insert(name, Partition { offsets, closed: false, is_future: false });
    }

    pub(crate) fn register_future(&self, name: TopicPartition, offsets: Arc<PublishedOffsets>) {
        self.partitions.lock().insert(name, Partition { offsets, closed: false, is_future: true });
    }

    /// Forgets a log or a copy, unless another log of the partition has replaced it here.
    pub(crate) fn unregister(&self, name: &TopicPartition, offsets: &Arc<PublishedOffsets>) {
        let mut partitions = self.partitions.lock();
        if partitions.get(name).is_some_and(|partition| Arc::ptr_eq(&partition.offsets, offsets)) {
            partitions.remove(name);
        }
    }

    /// Removes all traces of a partition that is about to be created here.
    pub(crate) fn make_way(&self, name: &TopicPartition) -> io::Result<()> {
        self.partitions.lock().remove(name);
        self.forget_checkpoints(name)
    }

    /// Records that a log has been closed.
    pub(crate) fn set_closed(&self, name: &TopicPartition, offsets: &Arc<PublishedOffsets>) {
        let mut partitions = self.partitions.lock();
        if let Some(partition) = partitions.get_mut(name).filter(|known| Arc::ptr_eq(&known.offsets, offsets))
        {
            partition.closed = true;
        }
    }

    pub(crate) fn doom(&self, due_ms: i64, path: PathBuf) {
        self.doomed.lock().push((due_ms, path));
    }

    pub(crate) fn take_doomed(&self, now_ms: i64) -> Vec<PathBuf> {
        let mut doomed = self.doomed.lock();
        let (due, later) =
            std::mem::take(&mut *doomed).into_iter().partition(|&(due_ms, _)| due_ms <= now_ms);
        *doomed = later;
        let due: Vec<(i64, PathBuf)> = due;
        due.into_iter().map(|(_, path)| path).collect()
    }

    fn written(&self, checkpoint: Checkpoint) -> &Mutex<Written> {
        &self.written[checkpoint as usize]
    }

    /// Reads a checkpoint file. An invalid file counts as empty, with a warning. An unreadable file is an
    /// error: its content may be valid, and overwriting it could restore deleted records.
    pub(crate) fn read_checkpoint(&self, checkpoint: Checkpoint) -> io::Result<Written> {
        let path = self.path.join(checkpoint.file());
        match checkpoint::read_offsets(&self.disk, &path) {
            Ok(offsets) => {
                self.written(checkpoint).lock().clone_from(&offsets);
                Ok(offsets)
            }
            Err(BadCheckpoint::Io(error)) => Err(error),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "Ignored an invalid checkpoint");
                Ok(Written::new())
            }
        }
    }

    /// The partitions in the high watermark checkpoint whose logs were not found. A high watermark of 0
    /// counts, too: records may have been committed since it was written.
    pub(crate) fn missing<'a>(&self, found: impl Iterator<Item = &'a TopicPartition>) -> Vec<TopicPartition> {
        let known = self.written(Checkpoint::HighWatermark).lock();
        let found: HashSet<&TopicPartition> = found.collect();
        known.keys().filter(|name| !found.contains(name)).cloned().collect()
    }

    /// Writes a checkpoint file if its content has changed.
    pub(crate) fn write_checkpoint(&self, checkpoint: Checkpoint) -> io::Result<()> {
        let mut written = self.written(checkpoint).lock();
        let (mut now, mut starts) = (Written::new(), Vec::new());
        for (name, Partition { offsets, .. }) in self.partitions.lock().iter() {
            let log_start = offsets.log_start_offset();
            if checkpoint == Checkpoint::LogStart && log_start > offsets.durable_log_start() {
                starts.push((Arc::clone(offsets), log_start));
            }
            if let Some(value) = checkpoint.value(offsets) {
                now.insert(name.clone(), value);
            }
        }
        if *written != now {
            if checkpoint == Checkpoint::LogStart {
                self.cover_log_starts(&written, &now)?;
            }
            checkpoint::write_offsets(&self.disk, &self.path.join(checkpoint.file()), &now)?;
            *written = now;
        }
        starts.iter().for_each(|(offsets, log_start)| offsets.set_durable_start(*log_start));
        Ok(())
    }

    /// Writes high watermarks before log starts that rise above those on disk. After a power failure they
    /// distinguish deleted records, none of which may remain in the log, from a wrong log start.
    fn cover_log_starts(&self, before: &Written, now: &Written) -> io::Result<()> {
        let is_beyond = {
            let known = self.written(Checkpoint::HighWatermark).lock();
            let is_above = |offsets: &Written, name: &TopicPartition, start: &Offset| {
                offsets.get(name).is_none_or(|known| known < start)
            };
            now.iter().any(|(name, start)| is_above(before, name, start) && is_above(&known, name, start))
        };
        if is_beyond { self.write_checkpoint(Checkpoint::HighWatermark) } else { Ok(()) }
    }

    /// Writes all checkpoint files whose content has changed.
    pub(crate) fn write_checkpoints(&self) -> io::Result<()> {
        Checkpoint::ALL.into_iter().try_for_each(|checkpoint| self.write_checkpoint(checkpoint))
    }

    /// Writes the cleaner checkpoint.
    pub(crate) fn write_cleaner_checkpoint(&self) -> io::Result<()> {
        self.write_checkpoint(Checkpoint::Cleaner)
    }

    /// Removes an absent partition from the checkpoint files.
    pub(crate) fn forget_checkpoints(&self, name: &TopicPartition) -> io::Result<()> {
        for checkpoint in Checkpoint::ALL {
            let is_mentioned = self.written(checkpoint).lock().contains_key(name);
            if is_mentioned {
                self.write_checkpoint(checkpoint)?;
            }
        }
        Ok(())
    }

    /// Lowers the checkpoints after a truncation: none on disk may stay above the offset of the log.
    /// Otherwise a start would treat later appends as synced, replicated, compacted, or deleted.
    pub(crate) fn lower_checkpoints(&self, name: &TopicPartition) -> io::Result<()> {
        let offsets = self.partitions.lock().get(name).map(|partition| Arc::clone(&partition.offsets));
        let Some(offsets) = offsets else { return Ok(()) };
        for checkpoint in Checkpoint::ALL {
            // A writer may have set this value since the log was truncated.
            let written = self.written(checkpoint).lock().get(name).copied();
            if checkpoint == Checkpoint::LogStart {
                offsets.lower_durable_start();
            }
            if written.is_some_and(|written| written > checkpoint.offset(&offsets)) {
                self.write_checkpoint(checkpoint)?;
            }
        }
        Ok(())
    }

    /// Syncs all files and writes the checkpoints. Returns true if all logs were closed.
    pub(crate) fn close(&self) -> io::Result<bool> {
        let partitions = self.partitions.lock();
        let all_closed = partitions.values().all(|partition| partition.closed);
        self.disk.sync_filesystem(&self.path)?;
        for partition in partitions.values().filter(|partition| partition.closed) {
            partition.offsets.set_all_recovered();
        }
        drop(partitions);
        self.write_checkpoints()?;
        Ok(all_closed)
    }
}
