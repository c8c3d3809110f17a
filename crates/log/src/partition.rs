//! One partition on disk.
//!
//! Owns: the segments, the offsets that bound them (log start, high watermark, last stable, log end, recovery
//! point), the leader epochs and the producers. Refuses: locking (its caller holds the partition's lock and every
//! call is short), networking, and any decision about who leads.
//!
//! ```text
//! <topic>-<partition>/
//!   <base offset>.log .index .timeindex .txnindex   the segments (see `segment`)
//!   <offset>.snapshot                               the producers as of that offset (see `producers::snapshot`)
//!   leader-epoch-checkpoint                         the first offset of each leader epoch (see `epochs`)
//!   transaction-index-checkpoint                    what the .txnindex files were (see `partition::txn_index`)
//!   partition.metadata                              the topic's id (see `partition::metadata`)
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};

use thalweg_record::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use crate::clock::Clock;
use crate::config::LogConfig;
use crate::dirs::DirState;
use crate::disk::Disk;
use crate::epochs::{EpochEnd, LeaderEpochs};
use crate::producers::{ProducerEntry, ProducerError, Producers, VerificationGuard};
use crate::segment::{Home, Segment};
use crate::topic_partition::TopicPartition;
use thalweg_ids::Uuid;

mod append;
mod compact;
mod error;
mod examine;
mod flush;
mod in_flight;
mod load;
pub mod metadata;
mod read;
mod recover;
mod replay;
mod retention;
mod roll;
mod timestamps;
mod truncate;
mod txn_index;

pub use append::{AppendInfo, AppendOptions};
pub use compact::{CompactionSwap, Dirtiness};
pub use error::{
    AppendError, BatchTooLarge, DeleteRecordsError, LogError, OffsetOutOfRange, OffsetsMissing,
    OffsetsOutOfOrder, ReadError, UnexpectedEpoch, UnexpectedOffset,
};
pub use flush::FlushTarget;
pub use load::OpenOptions;
pub use read::LogSlice;
pub use timestamps::{RecordScan, SearchTurn, TimestampSearch, TimestampedOffset};

use examine::Oddities;
use flush::Names;
use read::ReadHints;

/// The offsets of a partition that others may look at without its lock: the checkpoint writers, metrics.
#[derive(Debug, Default)]
pub struct PublishedOffsets {
    log_start: AtomicI64,
    first_segment: AtomicI64,
    recovery_point: AtomicI64,
    high_watermark: AtomicI64,
    log_end: AtomicI64,
    cleaned_to: AtomicI64,
    size_bytes: AtomicI64,
}

impl PublishedOffsets {
    /// The first offset that may be read.
    pub fn log_start_offset(&self) -> Offset {
        Offset(self.log_start.load(Ordering::Relaxed))
    }

    /// The base offset of the first segment on the medium: what the log start is when no checkpoint says otherwise.
    pub fn first_segment_offset(&self) -> Offset {
        Offset(self.first_segment.load(Ordering::Relaxed))
    }

    /// All batches below it are on the medium.
    pub fn recovery_point(&self) -> Offset {
        Offset(self.recovery_point.load(Ordering::Relaxed))
    }

    /// The offset below which consumers may read.
    pub fn high_watermark(&self) -> Offset {
        Offset(self.high_watermark.load(Ordering::Relaxed))
    }

    /// The offset of the next record.
    pub fn log_end_offset(&self) -> Offset {
        Offset(self.log_end.load(Ordering::Relaxed))
    }

    /// The log is compacted below it.
    pub fn cleaned_to(&self) -> Offset {
        Offset(self.cleaned_to.load(Ordering::Relaxed))
    }

    /// Says that everything was synced; the log takes no more batches.
    pub(crate) fn set_all_recovered(&self) {
        self.recovery_point.store(self.log_end.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Bytes of all segments.
    pub fn size_bytes(&self) -> u64 {
        u64::try_from(self.size_bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

/// A file on its way out.
#[derive(Debug)]
struct Doomed {
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
    recovery_point: Offset,
    /// The log is compacted below it.
    cleaned_to: Offset,
    /// Alive while a compaction is planned or runs.
    compacting: Weak<()>,
    /// Batches below it that compaction cannot read were named.
    unread_named_to: Offset,
    first_unstable: Option<Offset>,
    epochs: LeaderEpochs,
    producers: Producers,
    /// Offsets of the producer snapshots on disk, rising.
    snapshots: Vec<Offset>,
    /// Why nothing is appended any more.
    poison: Option<Arc<str>>,
    hints: ReadHints,
    /// Whether the checkpoint may say more than the recovery point, since a truncation.
    recovery_point_sank: bool,
    /// What recovery has found odd.
    oddities: Oddities,
    /// The segment and the position of the damaged batch that was logged last.
    noted_damage: Option<(Offset, u64)>,
    /// Why the last append failed, when it did.
    failed_append: Option<Box<str>>,
    /// Counts truncations, so that a flush that began before one is not taken for one after.
    truncations: u64,
    /// Counts truncations and compactions, for searches that let go of the lock between their turns.
    rewrites: u64,
    /// Names in the directory.
    names: Names,
    /// The name of the directory itself.
    own_name: Names,
    last_flush_ms: i64,
    /// The log end when it was last asked whether the partition is quiet.
    trim_seen_end: Offset,
    doomed: Vec<Doomed>,
    published: Arc<PublishedOffsets>,
    /// The log directory, unless the log is opened by itself.
    state: Option<Arc<DirState>>,
}

/// Deleted files whose time is over. Dropped as it is, it leaves them to the next start.
#[derive(Debug)]
#[must_use]
pub struct ExpiredFiles {
    paths: Vec<PathBuf>,
    disk: Disk,
}

impl ExpiredFiles {
    /// Removes them. Freeing a large file takes a while; call it without the partition's lock.
    pub fn remove(self) {
        for path in &self.paths {
            if let Err(error) = self.disk.remove(path) {
                tracing::warn!(path = %path.display(), %error, "Deleted segment file cannot be removed");
            }
        }
    }
}

impl PartitionLog {
    /// The topic and the partition.
    pub fn name(&self) -> &TopicPartition {
        &self.name
    }

    /// The topic's id, when it is known here.
    pub fn topic_id(&self) -> Option<Uuid> {
        self.topic_id
    }

    /// Notes the topic's id in `partition.metadata`. Says `false` when another id is there already.
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

    /// The id of the log directory that the partition lies in; `None` for a log that is opened by itself.
    pub fn directory_id(&self) -> Option<Uuid> {
        self.state.as_ref().map(|state| state.id())
    }

    /// The settings in force.
    pub fn config(&self) -> &Arc<LogConfig> {
        &self.config
    }

    /// Replaces the settings; they apply from the next append on.
    pub fn set_config(&mut self, config: Arc<LogConfig>) {
        self.config = config;
    }

    /// The offsets, for those who look without the lock.
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

    /// All batches below it are on the medium.
    pub fn recovery_point(&self) -> Offset {
        self.recovery_point
    }

    /// Whether there is no record to read.
    pub fn is_empty(&self) -> bool {
        self.log_start == self.log_end
    }

    /// Bytes of all segments.
    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(Segment::size_bytes).sum()
    }

    /// The base offsets of the segments, rising.
    pub fn segment_offsets(&self) -> Vec<Offset> {
        self.segments.iter().map(|segment| segment.base_offset).collect()
    }

    /// Sets the high watermark, within the log start and the log end, and says what it is now. It may move back:
    /// whether that is right is for the caller to know (followers do, leaders do not).
    pub fn set_high_watermark(&mut self, offset: Offset) -> Offset {
        self.high_watermark = offset.min(self.log_end).max(self.log_start);
        self.producers.on_high_watermark(self.high_watermark.0);
        self.update_first_unstable();
        self.published.high_watermark.store(self.high_watermark.0, Ordering::Relaxed);
        self.high_watermark
    }

    /// The offset below which consumers that want committed transactions only may read.
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

    /// Where a leader epoch ends; `None` when this log cannot say.
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<EpochEnd> {
        self.epochs.end_of(epoch, self.log_end)
    }

    /// Notes that a leader begins its epoch at the log end. Costs no write until the epoch has its first batch.
    pub fn assign_leader_epoch_start(&mut self, epoch: LeaderEpoch) {
        self.epochs.assign(epoch, self.log_end);
    }

    /// What is remembered of a producer.
    pub fn producer(&self, producer_id: ProducerId) -> Option<&ProducerEntry> {
        self.producers.get(producer_id)
    }

    /// The producers that are remembered, in no order.
    pub fn producers(&self) -> impl Iterator<Item = (ProducerId, &ProducerEntry)> {
        self.producers.iter()
    }

    /// Whether the producer has a transaction open here.
    pub fn has_ongoing_transaction(&self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool {
        self.producers.has_ongoing_transaction(producer_id, epoch)
    }

    /// Whether some transaction has been open for longer than `transaction_timeout_ms` and five minutes more.
    pub fn has_late_transaction(&self, now_ms: i64, transaction_timeout_ms: i64) -> bool {
        const GRACE_MS: i64 = 5 * 60 * 1000;
        self.producers
            .oldest_transaction_timestamp()
            .is_some_and(|since_ms| since_ms > 0 && now_ms - since_ms > transaction_timeout_ms + GRACE_MS)
    }

    /// Before the first batch of a transaction: the guard with which the batch is appended once the coordinator
    /// has confirmed the partition. `NONE` when the transaction is known here already.
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

    /// Forgets producers that have been silent for `expiration_ms`.
    pub fn remove_expired_producers(&mut self, now_ms: i64, expiration_ms: i64) {
        self.producers.remove_expired(now_ms, expiration_ms);
    }

    /// Why the log takes no more batches, when it does not.
    pub fn poison(&self) -> Option<&str> {
        self.poison.as_deref()
    }

    /// Refuses all further appends; what is in the log is still served.
    fn set_poison(&mut self, reason: String) {
        if self.poison.is_none() {
            if let Some(state) = &self.state {
                state.fail(&reason);
            }
            self.refuse_appends(reason);
        }
    }

    /// As [`PartitionLog::set_poison`], where the disk is not to blame: other logs of the directory go on.
    fn refuse_appends(&mut self, reason: String) {
        if self.poison.is_none() {
            tracing::error!(partition = %self.name, dir = %self.home.dir.display(), reason, "Log takes no more batches");
            self.poison = Some(reason.into());
        }
    }

    /// Says to which log directory the log belongs.
    pub(crate) fn attach(&mut self, state: Arc<DirState>) {
        self.state = Some(state);
    }

    /// The log directory.
    pub(crate) fn state(&self) -> Option<&Arc<DirState>> {
        self.state.as_ref()
    }

    /// The newest segment's file was cut: the next flush has to cover it, also when the log has gone on in another segment
    /// by then. Else a power failure might bring back what was cut, in front of what came after it.
    fn cut_is_unsynced(&mut self) {
        let base = self.active().base_offset;
        self.recovery_point = self.recovery_point.min(base);
    }

    /// Goes to the end of a log of which this one has all batches. Behind the last of them there may be offsets without one,
    /// which must not be given out again.
    pub fn go_to_end_of(&mut self, log: &PartitionLog) -> Result<(), LogError> {
        if self.log_end < log.log_end {
            self.roll(log.log_end)?;
            self.log_end = log.log_end;
            self.producers.set_map_end(self.log_end.0);
        }
        Ok(())
    }

    /// Takes over from a log that this one equals, whose name it has got: what is known of the producers beyond the batches,
    /// the leader epochs, what others look at, and up to where it is compacted.
    pub(crate) fn succeed(&mut self, old: &mut PartitionLog, dir: PathBuf) {
        assert_eq!(self.log_end, old.log_end, "a log is only replaced by one with the same end");
        for doomed in &mut self.doomed {
            if let Some(file) = doomed.path.file_name() {
                doomed.path = dir.join(file);
            }
        }
        self.home.dir = dir;
        let snapshot_offset = self.producers.snapshot_offset();
        self.producers = std::mem::take(&mut old.producers);
        self.producers.set_snapshot_offset(snapshot_offset);
        self.epochs.replace_by(old.epochs.entries());
        // Where this log begins on the medium is what counts, not where the other did.
        let first_segment = self.published.first_segment_offset();
        self.published = std::mem::take(&mut old.published);
        self.published.first_segment.store(first_segment.0, Ordering::Relaxed);
        self.config = Arc::clone(&old.config);
        self.cleaned_to = old.cleaned_to;
        self.note_unsynced_names();
        self.set_high_watermark(old.high_watermark);
        self.publish();
    }

    /// Ends the log: its directory has this name and will be removed.
    pub(crate) fn leave(&mut self, renamed: PathBuf) {
        self.poison = Some("the partition lies in another log directory".into());
        self.home.dir = renamed;
        self.doomed.clear();
    }

    /// Moves the directory to a name under which it will be removed; nothing is appended any more.
    pub(crate) fn retire(&mut self, renamed: &Path) -> io::Result<()> {
        self.poison = Some("the partition is deleted".into());
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
        // As long as segments that were deleted may come back with the power, the checkpoint has to say where the log begins.
        let mut first_segment = self.segments[0].base_offset;
        if self.names.unsynced().is_some() {
            first_segment = first_segment.min(published.first_segment_offset());
        }
        published.first_segment.store(first_segment.0, Ordering::Relaxed);
        published.recovery_point.store(self.recovery_point.0, Ordering::Relaxed);
        published.high_watermark.store(self.high_watermark.0, Ordering::Relaxed);
        published.log_end.store(self.log_end.0, Ordering::Relaxed);
        published.cleaned_to.store(self.cleaned_to.0, Ordering::Relaxed);
        published.size_bytes.store(i64::try_from(self.size_bytes()).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Gives back what an idle partition need not hold: open files, reserved space, cached places. Everything
    /// comes back at the next append or read.
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

    /// Whether the newest file is longer than its batches.
    pub fn has_zeros(&self) -> bool {
        self.segments.last().is_some_and(Segment::has_zeros)
    }

    /// Ends the newest file where its batches end, when nothing was appended since the last call: so that Kafka's tools,
    /// which know no zeros, can read it.
    pub fn trim_if_quiet(&mut self) -> io::Result<()> {
        let is_quiet = std::mem::replace(&mut self.trim_seen_end, self.log_end) == self.log_end;
        match self.segments.last_mut() {
            Some(active) if is_quiet && active.has_zeros() => active.trim(&self.home)?,
            _ => return Ok(()),
        }
        self.cut_is_unsynced();
        Ok(())
    }

    /// The files whose time under the `.deleted` name is over, to be removed without the partition's lock.
    pub fn take_expired(&mut self, now_ms: i64) -> ExpiredFiles {
        let expired = self.doomed.extract_if(.., |doomed| doomed.due_ms <= now_ms);
        ExpiredFiles { paths: expired.map(|doomed| doomed.path).collect(), disk: self.home.disk.clone() }
    }

    /// Deletes the files whose time under the `.deleted` name is over, on the spot: for a log without a lock.
    pub fn purge_deleted(&mut self, now_ms: i64) {
        self.take_expired(now_ms).remove();
    }
}
