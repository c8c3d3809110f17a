//! Making batches durable, and closing.
//!
//! Owns: the files to sync before the recovery point can rise. Refuses: syncing under the partition's lock:
//! the caller takes a [`FlushTarget`], drops the lock, syncs, takes the lock again and reports the outcome.
//! Later appends are covered by the next flush, so one sync serves many appends.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thalweg_record::Offset;

use super::error::LogError;
use super::{PartitionLog, metadata};
use crate::checkpoint::LEADER_EPOCH_FILE;
use crate::disk::{self, Disk, Durability, LogFile};

/// The files to sync so that all records below an offset are durable.
#[derive(Debug)]
pub struct FlushTarget {
    up_to: Offset,
    /// The directory of the log.
    log_dir: PathBuf,
    files: Vec<Arc<LogFile>>,
    /// The transaction indexes of the segments: recovery does not read batches below the recovery point to
    /// rebuild them.
    txn_indexes: Vec<PathBuf>,
    disk: Disk,
    epoch_file: Option<(PathBuf, u64)>,
    /// Synced with the name of the directory: without its topic id, any topic of that name could claim the
    /// directory.
    metadata_file: Option<PathBuf>,
    /// The directories with changed names, each with the changes covered by a sync.
    dir: Option<(PathBuf, u64)>,
    parent: Option<(PathBuf, u64)>,
    truncations: u64,
}

/// The number of renames, and the number of synced ones. Both only increase: a flush that started before a
/// rename does not cover it, and a failed flush leaves it to the next one.
#[derive(Debug, Default)]
pub(super) struct RenameCounts {
    changes: u64,
    synced: u64,
}

impl RenameCounts {
    pub(super) fn note_change(&mut self) {
        self.changes += 1;
    }

    /// Number of changes.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// The number of changes that a sync started now covers; `None` if there is nothing to sync.
    pub(super) fn unsynced(&self) -> Option<u64> {
        (self.changes > self.synced).then_some(self.changes)
    }

    pub(super) fn set_synced(&mut self, changes: u64) {
        self.synced = self.synced.max(changes);
    }
}

/// The durability state of a log.
#[derive(Debug)]
pub(super) struct FlushState {
    /// All batches below this offset are synced.
    pub(super) recovery_point: Offset,
    /// True if checkpoints on disk may be above the log's offsets, after a truncation.
    pub(super) offsets_sank: bool,
    /// Number of truncations, to detect a truncation during a flush.
    pub(super) truncations: u64,
    /// Names in the directory.
    pub(super) names: RenameCounts,
    /// The name of the directory itself.
    own_name: RenameCounts,
    last_flush_ms: i64,
}

impl FlushState {
    /// The state of a log that is durable up to this recovery point.
    pub(super) fn new(recovery_point: Offset, now_ms: i64) -> FlushState {
        FlushState {
            recovery_point,
            offsets_sank: false,
            truncations: 0,
            names: RenameCounts::default(),
            own_name: RenameCounts::default(),
            last_flush_ms: now_ms,
        }
    }
}

impl FlushTarget {
    /// The offset below which all records will be durable.
    pub fn up_to(&self) -> Offset {
        self.up_to
    }

    /// True if the target belongs to this log, not to a log that this one has replaced.
    pub fn is_of(&self, log: &PartitionLog) -> bool {
        self.log_dir == log.home.dir
    }

    /// The disk of the log.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Syncs the files. Blocks until the disk is done; call it without the partition's lock.
    pub fn sync(&self) -> io::Result<()> {
        for file in &self.files {
            file.sync_data()?;
        }
        let epoch_file = self.epoch_file.as_ref().map(|(path, _)| path);
        for path in self.txn_indexes.iter().chain(epoch_file).chain(&self.metadata_file) {
            match self.disk.open(path) {
                Ok(file) => file.sync_data()?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        self.dir.iter().chain(&self.parent).try_for_each(|(dir, _)| self.disk.sync_dir(dir))
    }
}

impl PartitionLog {
    /// Number of records not known to be durable.
    pub fn unflushed_records(&self) -> i64 {
        self.log_end - self.flushing.recovery_point
    }

    /// True if `flush.messages` requires a flush.
    pub fn flush_is_due(&self) -> bool {
        self.unflushed_records() >= self.config.flush_messages
    }

    /// The offset below which all records are synced as `flush.messages` requires.
    pub fn flushed_end(&self) -> Offset {
        if self.flush_is_due() { self.flushing.recovery_point } else { self.log_end }
    }

    /// True if `flush.messages` or `flush.ms` requires a flush now.
    pub fn needs_flush(&self, now_ms: i64) -> bool {
        self.unflushed_records() > 0
            && self.health.poison.is_none()
            && (self.flush_is_due()
                || now_ms.saturating_sub(self.flushing.last_flush_ms) >= self.config.flush_ms)
    }

    /// True if segments before the active one wait for their background flush.
    pub fn needs_background_flush(&self) -> bool {
        let active = self.segments.last().expect("a log always has a segment");
        self.health.poison.is_none() && active.base_offset > self.flushing.recovery_point
    }

    /// The files to sync so that the whole log is durable; `None` if it already is. Fails after an earlier
    /// failed write or sync: records must not be reported as durable then.
    pub fn flush_target(&mut self) -> Result<Option<FlushTarget>, LogError> {
        self.flush_target_up_to(self.log_end)
    }

    /// The files to sync so that all segments before the active one are durable.
    pub fn background_flush_target(&mut self) -> Result<Option<FlushTarget>, LogError> {
        let up_to = self.active().base_offset;
        self.flush_target_up_to(up_to)
    }

    fn flush_target_up_to(&mut self, up_to: Offset) -> Result<Option<FlushTarget>, LogError> {
        if up_to <= self.flushing.recovery_point {
            return Ok(None);
        }
        if let Some(reason) = &self.health.poison {
            return Err(LogError::Poisoned { reason: Arc::clone(reason) });
        }
        self.epochs.write(&self.home.disk, &self.home.dir, Durability::PageCache)?;
        let (mut files, mut txn_indexes) = (Vec::new(), Vec::new());
        let first = self.floor_index(self.flushing.recovery_point).unwrap_or(0);
        for segment in self.segments[first..].iter_mut().take_while(|segment| segment.base_offset < up_to) {
            files.push(segment.file(&self.home)?);
            txn_indexes.extend(segment.txn_index(&self.home));
        }
        let dir = self.flushing.names.unsynced().map(|changes| (self.home.dir.clone(), changes));
        let parent = self.flushing.own_name.unsynced().zip(self.home.dir.parent());
        Ok(Some(FlushTarget {
            up_to,
            log_dir: self.home.dir.clone(),
            files,
            txn_indexes,
            disk: self.home.disk.beside_lock(),
            epoch_file: self.epochs.unsynced().map(|writes| (self.home.dir.join(LEADER_EPOCH_FILE), writes)),
            metadata_file: parent.map(|_| self.home.dir.join(metadata::FILE)),
            dir,
            parent: parent.map(|(changes, parent)| (parent.to_owned(), changes)),
            truncations: self.flushing.truncations,
        }))
    }

    /// Records the outcome of a flush. A failed flush closes the log for appends: the kernel may have dropped
    /// unwritten data, and a later sync would not report the loss.
    pub fn complete_flush(&mut self, target: &FlushTarget, outcome: io::Result<()>) -> Result<(), LogError> {
        if !target.is_of(self) {
            // The result for the other file does not apply to this one.
            return Ok(());
        }
        if let Err(error) = outcome {
            if disk::lacks_descriptors(&error) {
                // A file could not be opened for the sync: no data is known to be lost, and a later flush
                // retries.
                return Err(error.into());
            }
            self.set_poison(format!("a sync of {} has failed: {error}", self.home.dir.display()));
            return Err(error.into());
        }
        if target.truncations == self.flushing.truncations {
            self.flushing.recovery_point = self.flushing.recovery_point.max(target.up_to);
        }
        if let Some((_, writes)) = target.epoch_file {
            self.epochs.set_synced(writes);
        }
        if let Some((_, changes)) = target.dir {
            self.flushing.names.set_synced(changes);
        }
        if let Some((_, changes)) = target.parent {
            self.flushing.own_name.set_synced(changes);
        }
        self.flushing.last_flush_ms = self.clock.now_ms();
        self.publish();
        Ok(())
    }

    /// Makes the next flush sync the directory and its own name.
    pub(super) fn note_unsynced_names(&mut self) {
        self.flushing.names.note_change();
        self.flushing.own_name.note_change();
    }

    /// Syncs the whole log at once.
    pub fn flush(&mut self) -> Result<(), LogError> {
        match self.flush_target()? {
            Some(target) => {
                let outcome = target.sync();
                self.complete_flush(&target, outcome)
            }
            None => Ok(()),
        }
    }

    /// Writes in-memory state to disk (epochs, producers, index entries), releases resources and closes the
    /// log for appends. The stop is clean once [`crate::LogDirs::close`] has synced all files.
    pub fn close(&mut self) -> Result<(), LogError> {
        if self.health.poison.is_some() {
            return Ok(());
        }
        let _allowed = disk::allow_waits("the log is about to take no more batches");
        self.epochs.write(&self.home.disk, &self.home.dir, Durability::PageCache)?;
        self.take_snapshot(Durability::PageCache)?;
        for segment in &mut self.segments {
            segment.finish(&self.home)?;
            let completed = segment.complete_files(&self.home);
            self.home.disk.unless_full(completed)?;
            segment.release(&self.home)?;
        }
        // Without the checkpoint, a sound index is rebuilt.
        let written = self.write_txn_checkpoint();
        self.home.disk.unless_full(written)?;
        self.purge_deleted(i64::MAX);
        self.publish();
        self.health.poison = Some("the log is closed".into());
        if let Some(state) = &self.state {
            state.set_closed(&self.name, &self.published);
        }
        Ok(())
    }
}
