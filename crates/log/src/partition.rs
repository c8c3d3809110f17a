//! One partition on disk.
//!
//! Owns: the segments, the offsets that bound them (log start, high watermark, last stable, log end, recovery
//! point), the leader epochs and the producers. Refuses: locking (its caller holds the partition's lock and
//! every call is short), networking, and decisions about leadership.
//!
//! ```text
//! <topic>-<partition>/
//!   <base offset>.log .index .timeindex .txnindex   the segments (see `segment`)
//!   <offset>.snapshot                               producers as of that offset (see `producers::snapshot`)
//!   leader-epoch-checkpoint                         the first offset of each leader epoch (see `epochs`)
//!   transaction-index-checkpoint                    sums of the .txnindex files (see `partition::txn_index`)
//!   partition.metadata                              the topic's id (see `partition::metadata`)
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thalweg_record::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use crate::clock::Clock;
use crate::config::LogConfig;
use crate::dir_state::DirState;
use crate::disk::{self, Disk};
use crate::epochs::{EpochEnd, LeaderEpochs};
use crate::producers::{ProducerEntry, ProducerError, Producers, VerificationGuard};
use crate::published::PublishedOffsets;
use crate::segment::{self, DELETED_SUFFIX, Home, Segment, split_name};
use crate::topic_partition::TopicPartition;
use thalweg_ids::Uuid;

mod append;
mod batch_check;
mod compact;
mod continuity;
mod epoch_search;
mod error;
mod examine;
mod fit_epochs;
mod flush;
mod found;
mod health;
mod in_flight;
mod load;
mod loading;
mod lost_mark;
pub mod metadata;
mod overlaps;
mod read;
mod recover;
mod replay;
mod restart;
mod retention;
mod roll;
mod salvage;
mod suspects;
mod timestamps;
mod together;
mod truncate;
mod txn_index;

pub use append::{AppendInfo, AppendOptions};
pub use batch_check::BatchCheck;
pub use compact::{CompactionSwap, Dirtiness};
pub use continuity::SegmentCheck;
pub use error::{
    AppendError, BatchTooLarge, DeleteRecordsError, LogError, OffsetOutOfRange, OffsetsMissing,
    OffsetsOutOfOrder, ReadError, UnexpectedEpoch, UnexpectedOffset,
};
pub use fit_epochs::EpochScan;
pub use flush::FlushTarget;
pub use health::Damage;
pub use loading::OpenOptions;
pub(crate) use metadata::FILE as METADATA_FILE;
pub use read::LogSlice;
pub use salvage::{Salvage, SalvageStep};
pub use timestamps::{NewestScan, RecordScan, SearchTurn, TimestampSearch, TimestampedOffset};

use compact::CompactionState;
use flush::FlushState;
use health::Health;
use read::ReadHints;

/// A file that waits for its removal.
#[derive(Debug)]
struct DoomedFile {
    due_ms: i64,
    path: PathBuf,
}

/// One partition's log.
#[derive(Debug)]
pub struct PartitionLog {
    name: TopicPartition,
    topic_id: Option<Uuid>,
    home: Home,
    config: Arc<LogConfig>,
    clock: Clock,
    /// Ordered by base offset; never empty; the last is the active one.
    segments: Vec<Segment>,
    log_start: Offset,
    log_end: Offset,
    high_watermark: Offset,
    first_unstable: Option<Offset>,
    epochs: LeaderEpochs,
    producers: Producers,
    /// Offsets of the producer snapshots on disk, rising.
    snapshots: Vec<Offset>,
    hints: ReadHints,
    flushing: FlushState,
    cleaning: CompactionState,
    health: Health,
    /// Number of truncations and compactions, for searches that release the lock between steps.
    rewrites: u64,
    /// The log end at the last check for a quiet partition.
    trim_seen_end: Offset,
    doomed: Vec<DoomedFile>,
    published: Arc<PublishedOffsets>,
    /// The log directory, unless the log is opened without one.
    state: Option<Arc<DirState>>,
}

/// Pause before another attempt to remove a file.
const REMOVAL_RETRY_MS: i64 = 60_000;

/// Deleted files whose delay is over. Dropped without [`ExpiredFiles::remove`], they are left to the next
/// start.
#[derive(Debug)]
#[must_use]
pub struct ExpiredFiles {
    paths: Vec<PathBuf>,
    disk: Disk,
}

impl ExpiredFiles {
    /// Removes the files. Freeing a large file takes a while; call it without the partition's lock. Returns
    /// files that could not be removed, for [`PartitionLog::remove_later`].
    pub fn remove(mut self) -> Option<ExpiredFiles> {
        self.paths.retain(|path| match self.disk.remove(path) {
            Ok(()) => false,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "Failed to remove a deleted segment file, retrying later");
                true
            }
        });
        (!self.paths.is_empty()).then_some(self)
    }
}

impl PartitionLog {
    /// The topic and the partition.
    pub fn name(&self) -> &TopicPartition {
        &self.name
    }

    /// The topic id, if known.
    pub fn topic_id(&self) -> Option<Uuid> {
        self.topic_id
    }

    /// Writes the topic id to `partition.metadata`. Returns `false` if it contains another id.
    pub fn assign_topic_id(&mut self, topic_id: Uuid) -> io::Result<bool> {
        match self.topic_id {
            Some(known) => Ok(known == topic_id),
            None => {
                metadata::write(&self.home.disk, &self.home.dir, topic_id)?;
                self.topic_id = Some(topic_id);
                Ok(true)
            }
        }
    }

    /// The partition's directory.
    pub fn dir(&self) -> &Path {
        &self.home.dir
    }

    /// The id of the partition's log directory; `None` for a log opened without one.
    pub fn directory_id(&self) -> Option<Uuid> {
        self.state.as_ref().map(|state| state.id())
    }

    /// The clock of the log.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The current settings.
    pub fn config(&self) -> &Arc<LogConfig> {
        &self.config
    }

    /// Replaces the settings; they apply from the next append on.
    pub fn set_config(&mut self, config: Arc<LogConfig>) {
        self.config = config;
    }

    /// The offsets, readable without the lock.
    pub fn published(&self) -> &Arc<PublishedOffsets> {
        &self.published
    }

    /// The first offset that may be read.
    pub fn log_start_offset(&self) -> Offset {
        self.log_start
    }

    /// The offset of the next record.
    pub fn log_end_offset(&self) -> Offset {
        self.log_end
    }

    /// The offset below which consumers may read.
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// The recovery point: all batches below are synced.
    pub fn recovery_point(&self) -> Offset {
        self.flushing.recovery_point
    }

    /// True if there is no record to read.
    pub fn is_empty(&self) -> bool {
        self.log_start == self.log_end
    }

    /// Bytes of all segments.
    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(Segment::size_bytes).sum()
    }

    /// The base offsets of the segments, ascending.
    pub fn segment_offsets(&self) -> Vec<Offset> {
        self.segments.iter().map(|segment| segment.base_offset).collect()
    }

    /// Number of segments.
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Sets the high watermark, limited to the log start and the log end, and returns it. The high watermark
    /// may move back; the caller decides if that is right (for followers it is, for leaders not).
    pub fn set_high_watermark(&mut self, offset: Offset) -> Offset {
        self.high_watermark = offset.min(self.log_end).max(self.log_start);
        self.producers.on_high_watermark(self.high_watermark.0);
        self.update_first_unstable();
        self.published.high_watermark.store(self.high_watermark.0, Ordering::Relaxed);
        self.high_watermark
    }

    /// The offset below which read_committed consumers may read.
    pub fn last_stable_offset(&self) -> Offset {
        match self.first_unstable {
            Some(first) if first < self.high_watermark => first,
            _ => self.high_watermark,
        }
    }

    fn update_first_unstable(&mut self) {
        let log_start = self.log_start;
        self.first_unstable =
            self.producers.first_unstable_offset().map(|offset| Offset(offset).max(log_start));
    }

    /// The latest leader epoch.
    pub fn latest_epoch(&self) -> Option<LeaderEpoch> {
        self.epochs.latest()
    }

    /// The leader epochs with their first offsets, oldest first.
    pub fn leader_epochs(&self) -> &[(LeaderEpoch, Offset)] {
        self.epochs.entries()
    }

    /// The leader epoch of the record at `offset`.
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        self.epochs.at(offset)
    }

    /// The end offset of a leader epoch; `None` if unknown.
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<EpochEnd> {
        self.epochs.end_of(epoch, self.log_end)
    }

    /// Starts a leader epoch at the log end. The file is not written until the epoch has its first batch.
    pub fn assign_leader_epoch_start(&mut self, epoch: LeaderEpoch) {
        self.epochs.assign(epoch, self.log_end);
    }

    /// The state of a producer.
    pub fn producer(&self, producer_id: ProducerId) -> Option<&ProducerEntry> {
        self.producers.get(producer_id)
    }

    /// The known producers, unsorted.
    pub fn producers(&self) -> impl Iterator<Item = (ProducerId, &ProducerEntry)> {
        self.producers.iter()
    }

    /// True if the producer has an open transaction here.
    pub fn has_ongoing_transaction(&self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool {
        self.producers.has_ongoing_transaction(producer_id, epoch)
    }

    /// The timestamp of the last batch of the producer whose transaction has been open the longest.
    pub fn oldest_transaction_ms(&self) -> Option<i64> {
        self.producers.oldest_transaction_timestamp()
    }

    /// True if some transaction has been open for longer than `transaction_timeout_ms` plus five minutes.
    pub fn has_late_transaction(&self, now_ms: i64, transaction_timeout_ms: i64) -> bool {
        const GRACE_MS: i64 = 5 * 60 * 1000;
        self.producers
            .oldest_transaction_timestamp()
            .is_some_and(|since_ms| since_ms > 0 && now_ms - since_ms > transaction_timeout_ms + GRACE_MS)
    }

    /// Starts verification before the first batch of a transaction. Returns the guard for the append once the
    /// coordinator has confirmed the partition; `NONE` if the transaction is already known here.
    pub fn start_verification(
        &mut self,
        producer_id: ProducerId,
        sequence: i32,
        epoch: ProducerEpoch,
        supports_epoch_bump: bool,
    ) -> Result<VerificationGuard, ProducerError> {
        if let Some(entry) = self.producers.get(producer_id) {
            if epoch < entry.epoch {
                let (current, offset) = (entry.epoch, self.log_end);
                let error = crate::producers::InvalidProducerEpoch { producer_id, epoch, current, offset };
                return Err(error.into());
            }
            if entry.transaction_start.is_some() && entry.epoch == epoch {
                return Ok(VerificationGuard::NONE);
            }
        }
        let now_ms = self.clock.now_ms();
        Ok(self.producers.verifications.start(producer_id, sequence, epoch, supports_epoch_bump, now_ms))
    }

    /// Forgets producers silent for `expiration_ms`.
    pub fn remove_expired_producers(&mut self, now_ms: i64, expiration_ms: i64) {
        self.producers.remove_expired(now_ms, expiration_ms);
    }

    /// Sets the log directory of the log.
    pub(crate) fn attach(&mut self, state: Arc<DirState>) {
        self.state = Some(state);
    }

    /// The log directory.
    pub(crate) fn state(&self) -> Option<&Arc<DirState>> {
        self.state.as_ref()
    }

    /// Notes that the newest segment's file was truncated. The next flush must cover it, even if the log has
    /// rolled since. Otherwise a power failure might restore truncated batches before newer ones.
    fn cut_is_unsynced(&mut self) {
        let base = self.active().base_offset;
        self.flushing.recovery_point = self.flushing.recovery_point.min(base);
    }

    /// Moves to the end of another log, all of whose batches this log has. Trailing offsets without a batch
    /// must not be assigned again.
    pub fn go_to_end_of(&mut self, log: &PartitionLog) -> Result<(), LogError> {
        if self.log_end < log.log_end {
            self.roll(log.log_end)?;
            self.log_end = log.log_end;
            self.producers.set_map_end(self.log_end.0);
        }
        Ok(())
    }

    /// Notes the new name of the log's directory.
    pub(crate) fn move_to(&mut self, dir: PathBuf) {
        for doomed in &mut self.doomed {
            if let Some(file) = doomed.path.file_name() {
                doomed.path = dir.join(file);
            }
        }
        self.home.dir = dir;
    }

    /// Takes over from an identical log, whose name it has received: producer state beyond the batches,
    /// leader epochs, published offsets, and the end of the compacted part.
    pub(crate) fn succeed(&mut self, old: &mut PartitionLog, dir: PathBuf) {
        assert_eq!(self.log_end, old.log_end, "a log is only replaced by one with the same end");
        self.move_to(dir);
        let snapshot_offset = self.producers.snapshot_offset();
        self.producers = std::mem::take(&mut old.producers);
        self.producers.set_snapshot_offset(snapshot_offset);
        self.epochs.replace_by(old.epochs.entries());
        // The start of this log on disk counts, instead of the other's.
        let first_segment = self.published.first_segment_offset();
        self.published = std::mem::take(&mut old.published);
        self.published.first_segment.store(first_segment.0, Ordering::Relaxed);
        self.config = Arc::clone(&old.config);
        self.cleaning.cleaned_to = old.cleaning.cleaned_to;
        self.note_unsynced_names();
        self.set_high_watermark(old.high_watermark);
        self.publish();
    }

    /// Ends the log: its directory was renamed and will be removed.
    pub(crate) fn leave(&mut self, renamed: PathBuf) {
        self.health.poison = Some("the partition is in another log directory".into());
        self.home = self.home.beside_lock();
        self.home.dir = renamed;
        self.doomed.clear();
    }

    /// Renames the directory for its removal, and closes the log for appends.
    pub(crate) fn retire(&mut self, renamed: &Path) -> io::Result<()> {
        self.health.poison = Some("the partition is deleted".into());
        self.home = self.home.beside_lock();
        self.home.disk.rename(&self.home.dir, renamed)?;
        self.home.dir = renamed.to_owned();
        self.doomed.clear();
        Ok(())
    }

    fn active(&mut self) -> &mut Segment {
        self.segments.last_mut().expect("a log always has a segment")
    }

    /// The index of the last segment whose base offset is not above `offset`.
    fn floor_index(&self, offset: Offset) -> Option<usize> {
        self.segments.partition_point(|segment| segment.base_offset <= offset).checked_sub(1)
    }

    fn publish(&self) {
        let published = &self.published;
        published.log_start.store(self.log_start.0, Ordering::Relaxed);
        published.start_for_followers.store(self.log_start_for_followers().0, Ordering::Relaxed);
        published.lower_durable_start();
        // While deleted segments may reappear after a power failure, the checkpoint must contain the log
        // start.
        let mut first_segment = self.health.first_sign().min(self.segments[0].base_offset);
        if self.flushing.names.unsynced().is_some() {
            first_segment = first_segment.min(published.first_segment_offset());
        }
        published.first_segment.store(first_segment.0, Ordering::Relaxed);
        let recovery_point = self.missing_below().unwrap_or(self.flushing.recovery_point);
        published.recovery_point.store(recovery_point.0, Ordering::Relaxed);
        published.high_watermark.store(self.high_watermark.0, Ordering::Relaxed);
        published.log_end.store(self.log_end.0, Ordering::Relaxed);
        published.cleaned_to.store(self.cleaning.cleaned_to.0, Ordering::Relaxed);
        published.is_damaged.store(self.damage().is_some(), Ordering::Relaxed);
        published.size_bytes.store(i64::try_from(self.size_bytes()).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Releases resources that an idle partition does not need: open files, reserved space, cached positions.
    /// The next append or read restores these resources.
    pub fn release_idle_resources(&mut self) -> io::Result<()> {
        if self.has_zeros() {
            self.cut_is_unsynced();
        }
        for segment in &mut self.segments {
            segment.release(&self.home)?;
        }
        self.hints = ReadHints::default();
        Ok(())
    }

    /// True if the newest file is longer than its batches.
    pub fn has_zeros(&self) -> bool {
        self.segments.last().is_some_and(Segment::has_zeros)
    }

    /// Trims the newest file to its batches if nothing was appended since the last call, because Kafka's
    /// tools cannot read trailing zeros. First checks if another program has cut the file.
    pub fn trim_if_quiet(&mut self) -> io::Result<()> {
        self.check_length(self.segments.len() - 1)?;
        self.active().age();
        let is_quiet = std::mem::replace(&mut self.trim_seen_end, self.log_end) == self.log_end;
        match self.segments.last_mut() {
            Some(active) if is_quiet && active.has_zeros() => active.trim(&self.home)?,
            _ => return Ok(()),
        }
        self.cut_is_unsynced();
        Ok(())
    }

    /// True if no file work is left until the next change: no trimming, flushing, or delayed removal.
    pub fn is_at_rest(&self) -> bool {
        let is_flushed = self.unflushed_records() <= 0 || self.health.poison.is_some();
        !self.has_zeros()
            && self.doomed.is_empty()
            && !self.needs_background_flush()
            && (is_flushed || (!self.flush_is_due() && self.config.flush_ms == i64::MAX))
    }

    /// The `.deleted` files whose delay is over, to be removed without the partition's lock. `elapsed_ms` is
    /// from [`Clock::elapsed_ms`].
    pub fn take_expired(&mut self, elapsed_ms: i64) -> ExpiredFiles {
        let expired = self.doomed.extract_if(.., |doomed| doomed.due_ms <= elapsed_ms);
        let (mut paths, in_place): (Vec<_>, Vec<_>) = expired
            .map(|doomed| doomed.path)
            .partition(|path| path.extension().is_some_and(|end| end == &DELETED_SUFFIX[1..]));
        for path in in_place {
            // An index without its log would be a sign of missing records.
            if let Some(log) = self.rename_again(&path) {
                let waiting: Vec<_> = paths.extract_if(.., |path| *path == log).collect();
                self.remove_at(REMOVAL_RETRY_MS, waiting);
            }
        }
        ExpiredFiles { paths, disk: self.home.disk.clone() }
    }

    /// Retries the renaming of a deleted segment's index, unless a new segment owns the index now. If that
    /// fails again, returns the path of the segment's log, which must stay.
    fn rename_again(&mut self, path: &Path) -> Option<PathBuf> {
        let name = path.file_name().and_then(|name| name.to_str());
        let base = name.and_then(split_name).map(|(base, _)| base)?;
        if self.segments.iter().any(|segment| segment.base_offset == base) {
            return None;
        }
        match segment::take_out(&self.home, path) {
            Ok(renamed) => {
                self.doom(renamed);
                None
            }
            Err(_) => {
                self.remove_at(REMOVAL_RETRY_MS, [path.to_owned()]);
                Some(segment::deleted_name(&self.home.file(base, segment::LOG_SUFFIX)))
            }
        }
    }

    /// Schedules another attempt to remove these files.
    pub fn remove_later(&mut self, failed: ExpiredFiles) {
        // Files of a directory renamed meanwhile are removed with it, or by the next start.
        let mut here = failed.paths;
        here.retain(|path| path.parent() == Some(&self.home.dir));
        self.remove_at(REMOVAL_RETRY_MS, here);
    }

    /// Remembers `.deleted` files until their delay is over.
    fn doom(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        self.remove_at(self.config.file_delete_delay_ms, paths);
    }

    fn remove_at(&mut self, delay_ms: i64, paths: impl IntoIterator<Item = PathBuf>) {
        let due_ms = self.clock.elapsed_ms().saturating_add(delay_ms);
        self.doomed.extend(paths.into_iter().map(|path| DoomedFile { due_ms, path }));
    }

    /// Deletes the `.deleted` files whose delay is over, at once: for a log without a lock.
    pub fn purge_deleted(&mut self, elapsed_ms: i64) {
        if let Some(failed) = self.take_expired(elapsed_ms).remove() {
            self.remove_later(failed);
        }
    }

    /// Frees space on a full disk: deleted files before their time, and space reserved for appends.
    fn free_room(&mut self) {
        let _allowed = disk::allow_waits("nothing can be appended until there is room");
        self.purge_deleted(i64::MAX);
        let active = self.segments.last_mut().expect("a log always has a segment");
        if let Err(error) = active.trim(&self.home) {
            tracing::warn!(partition = %self.name, %error, "Failed to release reserved space");
        }
        self.cut_is_unsynced();
    }
}
