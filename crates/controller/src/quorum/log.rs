//! The metadata log: opening and replaying, appending, syncing, reading, and deleting old parts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use thalweg_hash::HashMap;
use thalweg_log::disk::{Disk, Durability, is_disk_full};
use thalweg_log::{
    AppendError, AppendOptions, AppendOrigin, CleanupPolicy, FlushTarget, Home, LogConfig, LogError,
    OpenOptions, PartitionLog, TopicPartition,
};
use thalweg_metadata::batches::{self as metadata_batches, ControlRecord};
use thalweg_metadata::{BrokerId, Image, Loader};
use thalweg_record::{
    ControlRecordType, DECOMPRESSED_BYTES_MAX_DEFAULT, DecompressBuffer, LeaderEpoch, Offset, batches,
};
use thalweg_wire::{MetadataRecord, Uuid};

use super::recovery_point::RecoveryPoint;
use super::reserve::Reserve;
use super::snapshot::{self, LoadedSnapshot};
use super::{ControllerStartError, LOG_DIR, Remedy, SnapshotContent, SnapshotError, SnapshotId};
use crate::options::ControllerOptions;
use crate::state::Claim;

/// Number of bytes per read during replay.
const REPLAY_BYTES: usize = 1024 * 1024;
/// Size of a replay that does not slow down a start: a few thousand changes of partitions.
const LONG_REPLAY_BYTES: u64 = 256 * 1024;
/// Preallocation of the log's file, in bytes. The log grows slowly.
const PREALLOCATE_BYTES: u32 = 1024 * 1024;

/// The reason why a batch was not appended.
#[derive(Debug)]
pub(crate) enum AppendFailure {
    /// The disk is full. A retry may find room.
    Full(std::io::Error),
    /// The log is closed for appends.
    Dead(AppendError),
}

/// The recovered content of the log.
#[derive(Debug)]
pub(crate) struct RecoveredMetadata {
    pub image: Arc<Image>,
    /// The offset of each broker's registration, if the log still contains it.
    pub registered_at: HashMap<BrokerId, i64>,
    /// True if the log ends within a metadata transaction.
    pub open_transaction: bool,
    /// The level of `kraft.version`; `None` if the log has none.
    pub kraft_version: Option<i16>,
    /// The latest voters in the log; empty without a record of voters.
    pub voters: Vec<i32>,
}

/// The starting point of a replay.
struct Base {
    image: Arc<Image>,
    kraft_version: Option<i16>,
    voters: Option<Vec<i32>>,
}

/// The metadata log and its snapshots.
#[derive(Debug)]
pub(crate) struct MetadataLog {
    log: PartitionLog,
    dir: PathBuf,
    disk: Disk,
    recovery_point: RecoveryPoint,
    reserve: Reserve,
    /// Snapshots on disk with sizes and ages, without the bootstrap snapshot.
    snapshots: BTreeMap<SnapshotId, SnapshotFile>,
    /// Bytes appended since the newest snapshot.
    pub bytes_since_snapshot: u64,
    retention_bytes: i64,
    retention_ms: i64,
}

#[derive(Clone, Copy, Debug)]
struct SnapshotFile {
    size: u64,
    modified_ms: i64,
}

impl MetadataLog {
    /// Opens the log, creating it if there is none, and replays it. The files contain verifiers of passwords
    /// and HMACs of delegation tokens, so only the process's user may read them.
    pub fn open(
        options: &ControllerOptions,
    ) -> Result<(MetadataLog, RecoveredMetadata), ControllerStartError> {
        let disk = options.disk.private();
        let dir = options.metadata_log_dir.join(LOG_DIR);
        disk.create_dir(&dir).map_err(|error| ControllerStartError::Directory { dir: dir.clone(), error })?;
        for path in [&dir, &bootstrap_file(options)] {
            close_to_others(&disk, path);
        }
        let snapshots = find_snapshots(&disk, &dir)?;
        let recovery_point = RecoveryPoint::new(disk.clone(), &dir);
        let reserve = Reserve::open(disk.clone(), &dir);
        let log = open_log(options, &dir, &recovery_point)?;
        let mut opened = MetadataLog {
            log,
            dir,
            disk,
            recovery_point,
            reserve,
            snapshots,
            bytes_since_snapshot: 0,
            retention_bytes: options.retention_bytes,
            retention_ms: options.retention_ms,
        };
        let base = opened.load_snapshot()?;
        let recovered = opened.replay(base)?;
        Ok((opened, recovered))
    }

    /// The image of the newest readable snapshot, or the empty image. A log that ends before a snapshot is
    /// dropped.
    fn load_snapshot(&mut self) -> Result<Base, ControllerStartError> {
        let log_start = self.log.log_start_offset().0;
        let mut failure: Option<SnapshotError> = None;
        for id in self.snapshots.keys().rev().copied().collect::<Vec<_>>() {
            match snapshot::load(&self.disk, &self.dir, id) {
                Ok(LoadedSnapshot { image, kraft_version, voters }) if id.end_offset >= log_start => {
                    if self.log.log_end_offset().0 < id.end_offset {
                        self.log.truncate_fully_and_start_at(Offset(id.end_offset), None)?;
                    }
                    return Ok(Base { image, kraft_version: Some(kraft_version), voters });
                }
                Ok(_) => break,
                Err(error) => {
                    tracing::error!(snapshot = id.file_name(), %error, "Ignored an invalid metadata snapshot");
                    self.snapshots.remove(&id);
                    failure.get_or_insert(error);
                }
            }
        }
        match failure {
            _ if log_start == 0 => {
                // The voters from `kafka-storage format`. Records in the log override them.
                let formatted = snapshot::load(&self.disk, &self.dir, SnapshotId::BOOTSTRAP);
                let voters = formatted.ok().and_then(|formatted| formatted.voters);
                Ok(Base { image: Arc::new(Image::empty()), kraft_version: None, voters })
            }
            Some(error) => Err(error.into()),
            None => Err(ControllerStartError::NoSnapshot { log_start }),
        }
    }

    fn replay(&mut self, base: Base) -> Result<RecoveredMetadata, ControllerStartError> {
        let Base { image, mut kraft_version, mut voters } = base;
        let log_end = self.log.log_end_offset().0;
        let mut next = image.offset() + 1;
        let mut loader = Loader::new(image);
        let mut registered_at = HashMap::default();
        let mut buffer = DecompressBuffer::new(DECOMPRESSED_BYTES_MAX_DEFAULT);
        while next < log_end {
            let bytes = self.read(next, REPLAY_BYTES, log_end)?;
            if bytes.is_empty() {
                return Err(ControllerStartError::ShortRead { log_end: next, wanted: log_end });
            }
            self.bytes_since_snapshot += bytes.len() as u64;
            for batch in batches(&bytes) {
                let batch = batch.map_err(|error| {
                    ControllerStartError::Batch(metadata_batches::MetadataBatchError::Batch {
                        base_offset: next,
                        error,
                    })
                })?;
                let decoded = metadata_batches::decode(&batch, &mut buffer)?;
                if decoded.base_offset > next {
                    return Err(ControllerStartError::Gap {
                        from: next,
                        to: decoded.base_offset,
                        dir: self.dir.clone(),
                    });
                }
                for (offset, record) in (decoded.base_offset..).zip(&decoded.records) {
                    if let MetadataRecord::RegisterBroker(record) = record {
                        registered_at.insert(BrokerId(record.broker_id), offset);
                    }
                }
                for control in &decoded.control {
                    if let ControlRecord::KRaftVersion(version) = control {
                        kraft_version = Some(version.k_raft_version);
                    }
                    voters = control.voters().or(voters);
                }
                loader.load(decoded.last, [])?;
                for (offset, record) in (decoded.base_offset..).zip(&decoded.records) {
                    loader.load(decoded.last, [record]).map_err(|error| ControllerStartError::Replay {
                        offset,
                        error,
                        remedy: self.remedy(decoded.base_offset),
                    })?;
                }
                next = decoded.last.offset + 1;
            }
        }
        let open_transaction = loader.in_transaction();
        if open_transaction {
            // The first record that this controller writes is an abort, which undoes the transaction's
            // records.
            let abort = MetadataRecord::AbortTransaction(Default::default());
            loader.load(loader_position(&loader, log_end), [&abort])?;
        }
        loader.publish();
        let image = loader.image().clone();
        let voters = voters.unwrap_or_default();
        Ok(RecoveredMetadata { image, registered_at, open_transaction, kraft_version, voters })
    }

    /// The operator's remedy for a batch that cannot be applied: a start without this batch and all later
    /// ones.
    fn remedy(&mut self, base_offset: i64) -> Remedy {
        let segments = self.log.segment_offsets();
        let segment =
            segments.into_iter().rev().find(|segment| segment.0 <= base_offset).unwrap_or(Offset::ZERO);
        let found = self.log.read(Offset(base_offset), 1, self.log.log_end_offset(), true);
        let position = found.ok().flatten().map_or(0, |slice| slice.position);
        Remedy { dir: self.dir.clone(), segment: segment.0, position }
    }

    /// The offset of the next record.
    pub fn end_offset(&self) -> i64 {
        self.log.log_end_offset().0
    }

    /// The first readable offset.
    pub fn start_offset(&self) -> i64 {
        self.log.log_start_offset().0
    }

    /// The epoch of the last batch, or of the snapshot that replaces it; 0 in an empty log.
    pub fn last_epoch(&self) -> i32 {
        let snapshot = self.latest_snapshot().map_or(0, |id| id.epoch);
        self.log.latest_epoch().map_or(snapshot, |epoch| epoch.0.max(snapshot))
    }

    /// Starts an epoch at the end of the log.
    pub fn begin_epoch(&mut self, epoch: i32) {
        self.log.assign_leader_epoch_start(LeaderEpoch(epoch));
    }

    /// The end of an epoch: the latest epoch that is not above it, and its end.
    pub fn end_of_epoch(&self, epoch: i32) -> (i32, i64) {
        match self.log.end_offset_for_epoch(LeaderEpoch(epoch)) {
            Some(end) => (end.leader_epoch.0, end.end_offset.0),
            None => (self.last_epoch(), self.end_offset()),
        }
    }

    /// Appends a whole batch at the end.
    pub fn append(&mut self, batch: &[u8], epoch: i32, claim: Claim) -> Result<(), AppendFailure> {
        let is_full =
            |failure: &AppendFailure| matches!(failure, AppendFailure::Full(error) if is_disk_full(error));
        self.with_reserve(claim, |log| log.try_append(batch, epoch), is_full)
    }

    /// Runs `work`, and retries on a full disk with more and more of the reserve, up to the limit of its
    /// claim.
    pub fn with_reserve<T, E>(
        &mut self,
        claim: Claim,
        mut work: impl FnMut(&mut MetadataLog) -> Result<T, E>,
        is_full: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        let mut done = work(self);
        let mut was_used = false;
        while done.as_ref().is_err_and(&is_full) && self.reserve.give_up_piece(claim) {
            was_used = true;
            done = work(self);
        }
        if was_used {
            self.reserve.fill();
        }
        done
    }

    /// Fills the missing part of the reserve.
    pub fn fill_reserve(&mut self) {
        self.reserve.fill();
    }

    /// True if the reserve is complete.
    pub fn has_whole_reserve(&self) -> bool {
        self.reserve.is_whole()
    }

    fn try_append(&mut self, batch: &[u8], epoch: i32) -> Result<(), AppendFailure> {
        let options = AppendOptions { origin: AppendOrigin::Coordinator, ..AppendOptions::default() };
        match self.log.append_as_leader(batch, LeaderEpoch(epoch), options) {
            Ok(_) => {
                self.bytes_since_snapshot += batch.len() as u64;
                Ok(())
            }
            Err(AppendError::DiskFull(error) | AppendError::TooManyOpenFiles(error)) => {
                Err(AppendFailure::Full(error))
            }
            Err(error) => Err(AppendFailure::Dead(error)),
        }
    }

    /// Appends batches one after the other, all of them or none.
    pub fn append_all(&mut self, batches: &[Bytes], epoch: i32, claim: Claim) -> Result<(), AppendFailure> {
        let before = self.log.log_end_offset();
        for (index, batch) in batches.iter().enumerate() {
            match self.append(batch, epoch, claim) {
                Ok(()) => {}
                Err(AppendFailure::Full(error)) if index > 0 => {
                    // None of these batches is synced or read yet.
                    self.log.truncate_to(before).map_err(|error| AppendFailure::Dead(error.into()))?;
                    return Err(AppendFailure::Full(error));
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// True if the next start's replay would take a noticeable time and read more bytes than a new snapshot
    /// has.
    pub fn replay_is_long(&self) -> bool {
        let snapshot = self.snapshots.values().next_back().map_or(0, |file| file.size);
        self.bytes_since_snapshot >= LONG_REPLAY_BYTES.max(snapshot.saturating_mul(2))
    }

    /// The files to sync for all records appended so far.
    pub fn flush_target(&mut self) -> Result<Option<FlushTarget>, LogError> {
        self.log.flush_target()
    }

    /// True if a write or a sync has failed, which closes the log for appends.
    pub fn is_poisoned(&self) -> bool {
        self.log.poison().is_some()
    }

    /// Records the outcome of a sync. Synced records are committed: there is no other voter.
    pub fn complete_flush(
        &mut self,
        target: &FlushTarget,
        outcome: std::io::Result<()>,
    ) -> Result<(), LogError> {
        self.log.complete_flush(target, outcome)?;
        self.log.set_high_watermark(target.up_to());
        Ok(())
    }

    /// Syncs the log immediately.
    pub fn flush(&mut self) -> Result<(), LogError> {
        self.log.flush()?;
        self.recovery_point.write(self.log.log_end_offset());
        self.log.set_high_watermark(self.log.log_end_offset());
        Ok(())
    }

    /// The high watermark: all records below are committed.
    pub fn high_watermark(&self) -> i64 {
        self.log.high_watermark().0
    }

    /// Whole batches from an offset on, below a bound; at least one if there is one.
    pub fn read(&mut self, from: i64, max_bytes: usize, below: i64) -> Result<Bytes, LogError> {
        let slice = match self.log.read(Offset(from), max_bytes, Offset(below), true) {
            Ok(slice) => slice,
            Err(thalweg_log::ReadError::Log(error)) => return Err(error),
            Err(thalweg_log::ReadError::OutOfRange(_)) => None,
        };
        let Some(slice) = slice else { return Ok(Bytes::new()) };
        let mut bytes = vec![0; slice.len];
        let read = slice.file.read_at(&mut bytes, slice.position)?;
        bytes.truncate(read);
        Ok(bytes.into())
    }

    /// The newest snapshot.
    pub fn latest_snapshot(&self) -> Option<SnapshotId> {
        self.snapshots.keys().next_back().copied()
    }

    /// The oldest snapshot.
    pub fn earliest_snapshot(&self) -> Option<SnapshotId> {
        self.snapshots.keys().next().copied()
    }

    /// A piece of a snapshot and its total size; `None` if it does not exist.
    pub fn read_snapshot(
        &self,
        id: SnapshotId,
        position: u64,
        max_bytes: usize,
    ) -> std::io::Result<Option<(Bytes, u64)>> {
        let Some(file) = self.snapshots.get(&id) else { return Ok(None) };
        let left = usize::try_from(file.size.saturating_sub(position)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; max_bytes.min(left)];
        let opened = self.disk.open(&self.dir.join(id.file_name()))?;
        let read = opened.read_at(&mut bytes, position)?;
        bytes.truncate(read);
        Ok(Some((bytes.into(), file.size)))
    }

    /// The file that records the end of a sync.
    pub fn recovery_point(&self) -> RecoveryPoint {
        self.recovery_point.clone()
    }

    /// The disk and the directory of snapshots.
    pub fn snapshot_place(&self) -> (Disk, PathBuf) {
        (self.disk.clone(), self.dir.clone())
    }

    /// Adds a written snapshot, and deletes old data: old snapshots by size and age, and the log before the
    /// oldest remaining one.
    pub fn add_snapshot(&mut self, id: SnapshotId, size: u64, now_ms: i64) -> Result<(), LogError> {
        self.snapshots.insert(id, SnapshotFile { size, modified_ms: now_ms });
        self.clean(now_ms)
    }

    fn clean(&mut self, now_ms: i64) -> Result<(), LogError> {
        while self.snapshots.len() > 1 {
            let Some((&oldest, &file)) = self.snapshots.first_key_value() else { break };
            let total = self.log.size_bytes() + self.snapshots.values().map(|file| file.size).sum::<u64>();
            let too_large = u64::try_from(self.retention_bytes).is_ok_and(|limit| total > limit);
            let too_old = self.retention_ms >= 0 && now_ms - file.modified_ms > self.retention_ms;
            // Two snapshots are kept, unless they are too large or too old.
            if !too_large && !too_old && self.snapshots.len() <= 2 {
                break;
            }
            self.snapshots.remove(&oldest);
            self.disk.remove(&self.dir.join(oldest.file_name()))?;
        }
        if let Some(oldest) = self.earliest_snapshot() {
            let offset = Offset(oldest.end_offset.min(self.high_watermark()));
            match self.log.delete_records(offset) {
                Ok(_) => {}
                Err(thalweg_log::DeleteRecordsError::Log(error)) => return Err(error),
                Err(error) => tracing::warn!(%error, "Failed to delete old metadata records"),
            }
        }
        self.log.purge_deleted(self.log.clock().elapsed_ms());
        Ok(())
    }

    /// Writes the bootstrap files of a new cluster, like `kafka-storage format`. `records` are the first
    /// records if the directory was not formatted before.
    pub fn format(
        &self,
        options: &ControllerOptions,
        quorum: Vec<(ControlRecordType, Bytes)>,
        records: Option<Vec<thalweg_metadata::VersionedRecord>>,
    ) -> Result<(), ControllerStartError> {
        let now_ms = options.clock.now_ms();
        if let Some(records) = records {
            let bootstrap = SnapshotContent {
                id: SnapshotId::BOOTSTRAP,
                last_timestamp_ms: 0,
                now_ms,
                quorum: Vec::new(),
                records,
            };
            self.disk.replace(&bootstrap_file(options), &bootstrap.encode()?, Durability::Synced)?;
        }
        let first = SnapshotContent {
            id: SnapshotId::BOOTSTRAP,
            last_timestamp_ms: now_ms,
            now_ms,
            quorum,
            records: Vec::new(),
        };
        let path = self.dir.join(SnapshotId::BOOTSTRAP.file_name());
        self.disk.replace(&path, &first.encode()?, Durability::PageCache)?;
        Ok(())
    }

    /// Closes the log.
    pub fn close(&mut self) -> Result<(), LogError> {
        self.log.close()
    }
}

/// Removes other users' permissions on files from an earlier version or Apache Kafka. Group permissions stay,
/// as a backup may need them.
fn close_to_others(disk: &Disk, path: &Path) {
    if !disk.exists(path) {
        return;
    }
    if let Err(error) = disk.close_to_others(path) {
        let path = path.display();
        tracing::warn!(%path, %error, "Other users may read the metadata log, and its mode cannot be changed: chmod o= the path");
    }
}

/// The bootstrap file of a directory, from this controller or from `kafka-storage format` before the first
/// start.
fn bootstrap_file(options: &ControllerOptions) -> PathBuf {
    options.metadata_log_dir.join("bootstrap.checkpoint")
}

/// The records of the bootstrap file; `None` if there is no such file.
pub(crate) fn formatted_with(
    options: &ControllerOptions,
) -> Result<Option<Vec<MetadataRecord>>, SnapshotError> {
    snapshot::read_bootstrap(&options.disk, &bootstrap_file(options))
}

/// Adds the position and the remedy to an error about a damaged log.
fn start_error(dir: &Path, error: LogError) -> ControllerStartError {
    match error {
        LogError::Damaged { segment, offset, fault } => {
            let position = fault.position;
            let remedy = Remedy { dir: dir.to_owned(), segment: segment.0, position };
            ControllerStartError::Damaged { offset: offset.0, reason: fault.reason.to_string(), remedy }
        }
        LogError::EndsEarly { log_end, synced_to } => ControllerStartError::EndsEarly {
            log_end: log_end.0,
            synced_to: synced_to.0,
            dir: dir.to_owned(),
        },
        other => other.into(),
    }
}

/// The position of a loader, if the abort of its transaction is replayed before it is written.
fn loader_position(loader: &Loader, log_end: i64) -> thalweg_metadata::Provenance {
    thalweg_metadata::Provenance { offset: log_end - 1, ..loader.image().provenance() }
}

fn find_snapshots(disk: &Disk, dir: &Path) -> std::io::Result<BTreeMap<SnapshotId, SnapshotFile>> {
    let mut snapshots = BTreeMap::new();
    for listed in disk.list(dir)? {
        let path = dir.join(&listed.name);
        if listed.name.ends_with(".checkpoint.tmp") || listed.name.ends_with(".checkpoint.part") {
            disk.remove(&path)?;
        } else if let Some(id) = SnapshotId::from_file_name(&listed.name)
            && id != SnapshotId::BOOTSTRAP
        {
            let facts = disk.facts(&path)?;
            snapshots.insert(id, SnapshotFile { size: facts.len, modified_ms: facts.modified_ms });
        }
    }
    Ok(snapshots)
}

fn open_log(
    options: &ControllerOptions,
    dir: &Path,
    recovery_point: &RecoveryPoint,
) -> Result<PartitionLog, ControllerStartError> {
    let config = Arc::new(LogConfig {
        segment_bytes: options.segment_bytes,
        segment_ms: options.segment_ms,
        retention_bytes: -1,
        retention_ms: -1,
        cleanup_policy: CleanupPolicy::DELETE,
        preallocate_bytes: PREALLOCATE_BYTES.min(options.segment_bytes),
        ..LogConfig::default()
    });
    let home = Home::new(options.disk.private(), dir.to_owned());
    let name = TopicPartition::new(crate::state::CLUSTER_METADATA_TOPIC, 0);
    let clock = options.clock.clone();
    let has_segment = options.disk.list(dir)?.iter().any(|listed| listed.name.ends_with(".log"));
    if has_segment {
        // The whole log is read and checked, and a torn tail is truncated after any stop. Damage to synced
        // records is not a torn tail: without these records, topics would be missing and their data treated
        // as strays.
        let found = OpenOptions { synced_to: Some(recovery_point.read()?), ..OpenOptions::new(false) };
        let opened = PartitionLog::open(home, name, config, clock, &found);
        let mut log = opened.map_err(|error| start_error(dir, error))?;
        options.disk.log_missed_hints();
        log.set_high_watermark(log.log_end_offset());
        return Ok(log);
    }
    // The files with synced records are missing. An empty log would turn the logs of all partitions into
    // strays.
    let synced_to = recovery_point.read()?;
    if synced_to > Offset::ZERO {
        return Err(ControllerStartError::EndsEarly {
            log_end: 0,
            synced_to: synced_to.0,
            dir: dir.to_owned(),
        });
    }
    let topic_id = Uuid::METADATA_TOPIC;
    Ok(PartitionLog::create(home, name, Some(topic_id), config, clock)?)
}
