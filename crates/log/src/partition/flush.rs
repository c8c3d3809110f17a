//! Making batches durable, and closing.
//!
//! Owns: what has to be synced for the recovery point to rise. Refuses: syncing under the partition's lock: the
//! caller takes a [`FlushTarget`], drops the lock, syncs, takes the lock again and reports the outcome. Appends
//! that came meanwhile are covered by the next flush, so one sync serves many appends.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thalweg_record::Offset;

use super::PartitionLog;
use super::error::LogError;
use crate::checkpoint::LEADER_EPOCH_FILE;
use crate::disk::{Disk, Durability, LogFile};

/// What to sync so that everything below an offset is durable.
#[derive(Debug)]
pub struct FlushTarget {
    up_to: Offset,
    files: Vec<Arc<LogFile>>,
    /// The transaction indexes of the segments: what is below the recovery point is not read again to make them anew.
    txn_indexes: Vec<PathBuf>,
    disk: Disk,
    epoch_file: Option<(PathBuf, u64)>,
    /// Directories with new names in them.
    dirs: Vec<PathBuf>,
    truncations: u64,
}

impl FlushTarget {
    /// The offset below which everything will be durable.
    pub fn up_to(&self) -> Offset {
        self.up_to
    }

    /// The disk to be waited for.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Syncs. Blocks for as long as the medium takes; call it without the partition's lock.
    pub fn sync(&self) -> io::Result<()> {
        for file in &self.files {
            file.sync_data()?;
        }
        let epoch_file = self.epoch_file.as_ref().map(|(path, _)| path);
        for path in self.txn_indexes.iter().chain(epoch_file) {
            match self.disk.open(path) {
                Ok(file) => file.sync_data()?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        self.dirs.iter().try_for_each(|dir| self.disk.sync_dir(dir))
    }
}

impl PartitionLog {
    /// Records that are not known to be durable.
    pub fn unflushed_records(&self) -> i64 {
        self.log_end - self.recovery_point
    }

    /// Whether `flush.messages` asks for a flush.
    pub fn flush_is_due(&self) -> bool {
        self.unflushed_records() >= self.config.flush_messages
    }

    /// The offset below which all is on the medium that `flush.messages` wants there.
    pub fn flushed_end(&self) -> Offset {
        if self.flush_is_due() { self.recovery_point } else { self.log_end }
    }

    /// Whether `flush.messages` or `flush.ms` asks for a flush now.
    pub fn needs_flush(&self, now_ms: i64) -> bool {
        self.unflushed_records() > 0
            && self.poison.is_none()
            && (self.flush_is_due() || now_ms.saturating_sub(self.last_flush_ms) >= self.config.flush_ms)
    }

    /// Whether segments before the active one wait for their flush, which happens in the background.
    pub fn needs_background_flush(&self) -> bool {
        let active = self.segments.last().expect("a log always has a segment");
        self.poison.is_none() && active.base_offset > self.recovery_point
    }

    /// What to sync so that everything that is in the log now is durable; `None` when it is already. An error once a
    /// write or sync has failed: nobody may be told that his records are durable then.
    pub fn flush_target(&mut self) -> Result<Option<FlushTarget>, LogError> {
        self.flush_target_up_to(self.log_end)
    }

    /// What to sync so that all segments before the active one are durable.
    pub fn background_flush_target(&mut self) -> Result<Option<FlushTarget>, LogError> {
        let up_to = self.active().base_offset;
        self.flush_target_up_to(up_to)
    }

    fn flush_target_up_to(&mut self, up_to: Offset) -> Result<Option<FlushTarget>, LogError> {
        if up_to <= self.recovery_point {
            return Ok(None);
        }
        if let Some(reason) = &self.poison {
            return Err(LogError::Poisoned { reason: Arc::clone(reason) });
        }
        self.epochs.write(&self.home.disk, &self.home.dir, Durability::PageCache)?;
        let (mut files, mut txn_indexes) = (Vec::new(), Vec::new());
        let first = self.floor_index(self.recovery_point).unwrap_or(0);
        for segment in self.segments[first..].iter_mut().take_while(|segment| segment.base_offset < up_to) {
            files.push(segment.file(&self.home)?);
            txn_indexes.extend(segment.txn_index(&self.home));
        }
        let mut dirs = Vec::new();
        if std::mem::take(&mut self.dir_is_dirty) {
            dirs.push(self.home.dir.clone());
        }
        if std::mem::take(&mut self.parent_is_dirty) {
            dirs.extend(self.home.dir.parent().map(ToOwned::to_owned));
        }
        Ok(Some(FlushTarget {
            up_to,
            files,
            txn_indexes,
            disk: self.home.disk.clone(),
            epoch_file: self.epochs.unsynced().map(|writes| (self.home.dir.join(LEADER_EPOCH_FILE), writes)),
            dirs,
            truncations: self.truncations,
        }))
    }

    /// Takes note of the outcome of a flush. After a failed one the log takes no more batches: the kernel may
    /// have dropped what it could not write, and a later sync would not say so.
    pub fn complete_flush(&mut self, target: &FlushTarget, outcome: io::Result<()>) -> Result<(), LogError> {
        if let Err(error) = outcome {
            self.set_poison(format!("a sync of {} has failed: {error}", self.home.dir.display()));
            return Err(error.into());
        }
        if target.truncations == self.truncations {
            self.recovery_point = self.recovery_point.max(target.up_to);
        }
        if let Some((_, writes)) = target.epoch_file {
            self.epochs.set_synced(writes);
        }
        self.last_flush_ms = self.clock.now_ms();
        self.publish();
        Ok(())
    }

    /// Makes everything durable on the spot.
    pub fn flush(&mut self) -> Result<(), LogError> {
        match self.flush_target()? {
            Some(target) => {
                let outcome = target.sync();
                self.complete_flush(&target, outcome)
            }
            None => Ok(()),
        }
    }

    /// Writes out what is only in memory (epochs, producers, index entries), gives resources back and takes no
    /// more batches. The stop is a clean one once [`crate::LogDirs::close`] has synced everything.
    pub fn close(&mut self) -> Result<(), LogError> {
        if self.poison.is_some() {
            return Ok(());
        }
        self.epochs.write(&self.home.disk, &self.home.dir, Durability::PageCache)?;
        self.take_snapshot(Durability::PageCache)?;
        for segment in &mut self.segments {
            segment.finish(&self.home)?;
            segment.release(&self.home)?;
        }
        for doomed in self.doomed.drain(..) {
            self.home.disk.remove(&doomed.path)?;
        }
        self.publish();
        self.poison = Some("the log is closed".into());
        if let Some(state) = &self.state {
            state.set_closed(&self.name);
        }
        Ok(())
    }
}
