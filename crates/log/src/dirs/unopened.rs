//! Logs that a start could not open for lack of room: recovery sets damaged batches aside before it cuts
//! them. Logs that could not be truncated at a gap for lack of room or descriptors wait here, too.
//!
//! Owns: such a log until there is room. The name and checkpoints of the log stay in its directory, which is
//! not cleanly closed until the log is opened. Refuses: copies of logs, because a move without its copy could
//! seem finished.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::job::Job;
use super::{CreateError, DirectoryOffline, LogDirs};
use crate::config::LogConfig;
use crate::partition::{LogError, OpenOptions, PartitionLog};
use crate::published::PublishedOffsets;
use crate::topic_partition::TopicPartition;

/// The pause between two attempts: each reads the log again.
const AGAIN_MS: i64 = 10_000;

/// A log that waits for room.
#[derive(Debug)]
pub(super) struct UnopenedLog {
    job: Job,
    /// The offsets of the log in the directory's checkpoints.
    offsets: Arc<PublishedOffsets>,
    retry_at_ms: i64,
}

impl UnopenedLog {
    /// Leaves a log unopened for lack of room. The log's checkpoint entries are kept.
    pub(super) fn new(job: Job, error: &io::Error, elapsed_ms: i64) -> UnopenedLog {
        tracing::error!(
            partition = %job.name, dir = %job.state.path().display(), %error,
            "Failed to open a log for lack of room, as to set damaged records aside: it is kept as it is, and opened once there is room"
        );
        job.state.note_full();
        let offsets = Arc::new(offsets(&job.options));
        job.state.register(job.name.clone(), Arc::clone(&offsets));
        UnopenedLog { job, offsets, retry_at_ms: elapsed_ms.saturating_add(AGAIN_MS) }
    }

    pub(super) fn name(&self) -> &TopicPartition {
        &self.job.name
    }

    pub(super) fn log_dir(&self) -> &Path {
        self.job.state.path()
    }
}

/// The offsets in the checkpoints.
fn offsets(options: &OpenOptions) -> PublishedOffsets {
    let offsets = PublishedOffsets::default();
    for (field, offset) in [
        (&offsets.log_start, options.log_start),
        (&offsets.start_for_followers, options.log_start),
        (&offsets.durable_start, options.log_start),
        (&offsets.recovery_point, options.recovery_point),
        (&offsets.high_watermark, options.high_watermark),
        (&offsets.log_end, options.recovery_point.max(options.high_watermark)),
        (&offsets.cleaned_to, options.cleaned_to),
    ] {
        field.store(offset.0, Ordering::Relaxed);
    }
    offsets
}

impl LogDirs {
    /// True if a log exists that could not be opened at the start.
    pub fn is_unopened(&self, name: &TopicPartition) -> bool {
        self.unopened.lock().contains_key(name) || self.gapped.lock().contains_key(name)
    }

    /// Keeps a log that [waits at a gap](PartitionLog::waits_at_gap), until it is opened again.
    pub fn keep_unopened(&self, log: PartitionLog) {
        self.gapped.lock().insert(log.name().clone(), log);
    }

    /// Opens a log that had no room at the start, if it has waited long enough. `None` if there is none of
    /// this name. Blocks for the duration of a recovery. Call [`PartitionLog::end_at_gap`] afterwards.
    pub fn open_unopened(
        &self,
        name: &TopicPartition,
        config: Arc<LogConfig>,
    ) -> Option<Result<PartitionLog, CreateError>> {
        if let Some(log) = self.gapped.lock().remove(name) {
            return Some(Ok(log));
        }
        let UnopenedLog { mut job, offsets, retry_at_ms } = self.unopened.lock().remove(name)?;
        let now_ms = self.clock.elapsed_ms();
        let result = if job.state.offline().is_some() {
            Err(DirectoryOffline { directory: Some(job.state.id()) }.into())
        } else if job.state.is_full() || now_ms < retry_at_ms {
            Err(CreateError::Io(io::ErrorKind::StorageFull.into()))
        } else {
            // The previous attempt may have changed the log.
            job.options.clean = false;
            let opened = job.open(config, &self.clock);
            return Some(self.opened(job, offsets, opened));
        };
        self.unopened.lock().insert(name.clone(), UnopenedLog { job, offsets, retry_at_ms });
        Some(result)
    }

    /// Deletes the unopened log of a deleted partition, if there is one: its files may be filling the disk.
    /// On failure it is kept, for another attempt.
    pub fn delete_unopened(&self, name: &TopicPartition) -> io::Result<()> {
        let gapped = self.gapped.lock().remove(name);
        if let Some(mut log) = gapped {
            return self.delete(&mut log).inspect_err(|_| self.keep_unopened(log));
        }
        let Some(waits) = self.unopened.lock().remove(name) else { return Ok(()) };
        let state = Arc::clone(&waits.job.state);
        let renamed = state.path().join(name.delete_dir_name());
        match self.disk.rename(&state.path().join(name.dir_name()), &renamed) {
            // Another program has removed the log.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                self.unopened.lock().insert(name.clone(), waits);
                return Err(error);
            }
            Ok(()) => state.doom(self.clock.elapsed_ms(), renamed),
        }
        state.unregister(name, &waits.offsets);
        self.changed.notify_one();
        Ok(())
    }

    fn opened(
        &self,
        job: Job,
        offsets: Arc<PublishedOffsets>,
        opened: Result<PartitionLog, LogError>,
    ) -> Result<PartitionLog, CreateError> {
        match opened {
            Ok(log) => {
                tracing::info!(partition = %job.name, "Opened a log that had found no room at the start");
                Ok(log)
            }
            Err(LogError::Io(error)) if crate::disk::is_shortage(&error) => {
                let retry_at_ms = self.clock.elapsed_ms().saturating_add(AGAIN_MS);
                let waits = UnopenedLog { job, offsets, retry_at_ms };
                self.unopened.lock().insert(waits.job.name.clone(), waits);
                Err(error.into())
            }
            Err(error) => {
                job.state.fail(&format!("opening {} has failed: {error}", job.name));
                Err(DirectoryOffline { directory: Some(job.state.id()) }.into())
            }
        }
    }
}
