//! Seeded histories of a partition that moves back and forth between two directories while it is written,
//! truncated, deleted from and compacted, on disks that lose power: flushed records survive, and a copy that
//! replaces the log equals it. Also full and failing disks of the copy.

use super::*;
use crate::partition::Divergence;
use crate::partition::testing::{NODE, partition, registration};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::PathBuf;
use thalweg_hash::{HashMap, HashSet};
use thalweg_log::disk::{CallEffect, CallError, Disk, DiskCall, Faults, FaultyCall, MemoryDisk};
use thalweg_log::{BatchFault, CleanupPolicy, Clock, CorruptBatch, LogDirsOptions, TopicPartition};
use thalweg_metadata::{BrokerId, PartitionRegistration};
use thalweg_record::{BatchBuilder, BatchOptions, ProducerEpoch, ProducerId, batches};

const OTHER: BrokerId = BrokerId(2);
const PRODUCER: ProducerId = ProducerId(7);

/// The batches of a log: first offset, next offset, bytes.
type StoredBatches = Vec<(Offset, Offset, Vec<u8>)>;

fn stored(log: &mut PartitionLog) -> StoredBatches {
    let (mut from, end) = (log.log_start_offset(), log.log_end_offset());
    let mut found = Vec::new();
    while let Some(slice) = log.read(from, 1 << 20, end, true).expect("it can be read") {
        let bytes = read(&slice).expect("it can be read").expect("it is as long as it says");
        for batch in batches(&bytes) {
            let batch = batch.expect("whole batches");
            from = batch.header.next_offset();
            found.push((batch.header.base_offset, from, batch.bytes.to_vec()));
        }
    }
    found
}

fn append_batch(partition: &Partition, batch: &[u8], epoch: i32) {
    let appended =
        partition.with_log(|log| log.append_as_leader(batch, LeaderEpoch(epoch), Default::default()));
    assert!(!appended.expect("accepted").duplicate);
}

struct History {
    random: SmallRng,
    disk: Arc<MemoryDisk>,
    clock: Clock,
    config: LogConfig,
    dirs: LogDirs,
    partition: Partition,
    epoch: i32,
    /// Every batch that was ever in the log.
    seen: HashSet<Vec<u8>>,
    /// The log start that must survive a crash.
    promised_start: Offset,
    moved: usize,
    resumed: usize,
}

fn open(disk: &Arc<MemoryDisk>, clock: &Clock, config: &LogConfig) -> (LogDirs, PartitionLog) {
    let options = LogDirsOptions {
        disk: Disk::in_memory(Arc::clone(disk)),
        clock: clock.clone(),
        threads: 1,
        ..LogDirsOptions::new(["/one", "/two"].map(PathBuf::from).to_vec(), NODE.0)
    };
    let (dirs, mut logs) =
        LogDirs::open(options, |_| Arc::new(config.clone())).expect("the directories open");
    assert!(logs.len() <= 1, "{logs:?}");
    let log = logs.pop().unwrap_or_else(|| {
        let (name, id) = (TopicPartition::new("t", 0), Some(Uuid(7)));
        dirs.create(&name, id, Arc::new(config.clone()), None).expect("creates")
    });
    (dirs, log)
}

impl History {
    fn new(seed: u64) -> History {
        let mut random = SmallRng::seed_from_u64(seed);
        let config = LogConfig {
            segment_bytes: [1700, 9000, 100_000][random.random_range(0..3)],
            index_interval_bytes: random.random_range(0..2000),
            cleanup_policy: [CleanupPolicy::DELETE, CleanupPolicy::COMPACT][random.random_range(0..2)],
            retention_ms: 3000,
            retention_bytes: [-1, 20_000][random.random_range(0..2)],
            min_cleanable_dirty_ratio: 0.1,
            file_delete_delay_ms: 100,
            ..LogConfig::default()
        };
        let clock = Clock::manual(1_700_000_000_000);
        let disk = MemoryDisk::new(clock.clone());
        disk.set_names_apart(random.random_range(0..2) == 0);
        let (dirs, log) = open(&disk, &clock, &config);
        let partition = partition(log, 0);
        let (seen, promised_start) = (HashSet::default(), Offset::ZERO);
        History {
            random,
            disk,
            clock,
            config,
            dirs,
            partition,
            epoch: 0,
            seen,
            promised_start,
            moved: 0,
            resumed: 0,
        }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.random_range(0..one_in) == 0
    }

    fn step(&mut self) {
        match self.random.random_range(0..40) {
            0 => {
                let target = self.partition.with_log(PartitionLog::flush_target).expect("the log is well");
                if let Some(target) = target {
                    let outcome = target.sync();
                    self.partition.with_log(|log| log.complete_flush(&target, outcome)).expect("syncs");
                }
            }
            1 => self.truncate(),
            2 => self.delete_records(),
            3 => {
                let now_ms = self.clock.now_ms();
                let expired = self.partition.with_log(|log| {
                    log.set_high_watermark(log.log_end_offset());
                    log.delete_old_segments(now_ms).expect("deletes");
                    log.take_expired(now_ms)
                });
                expired.remove();
                self.dirs.purge_deleted(now_ms);
            }
            4 => self.compact(),
            5 => self.clock.advance_ms(self.random.random_range(0..2000)),
            6 => self.partition.release_if_idle(),
            7 => self.dirs.checkpoint_recovery_points(),
            8 => self.dirs.checkpoint_high_watermarks(),
            9 => {
                self.dirs.checkpoint_log_starts();
                self.promised_start = self.partition.with_log(|log| log.log_start_offset());
            }
            10..=12 => {
                let to = self.dirs.online_ids()[self.random.random_range(0..2)];
                self.partition.begin_move(&self.dirs, to).expect("it begins");
            }
            13..=20 => {
                let bytes_max = [1, 500, 5000][self.random.random_range(0..3)];
                self.partition.copy_next(&self.dirs, bytes_max).expect("it is copied");
            }
            21..=23 => self.finish(),
            _ => self.append(),
        }
        self.seen.extend(self.partition.with_log(stored).into_iter().map(|(_, _, bytes)| bytes));
    }

    fn append(&mut self) {
        let producer = self.chance(2);
        let sequence = self
            .partition
            .with_log(|log| log.producer(PRODUCER).map_or(0, |known| known.last_sequence() + 1));
        let mut options = BatchOptions::default();
        if producer {
            options = BatchOptions {
                producer_id: PRODUCER,
                producer_epoch: ProducerEpoch(0),
                base_sequence: sequence,
                ..options
            };
        }
        let mut builder = BatchBuilder::new(options);
        for _ in 0..self.random.random_range(1..5) {
            let (key, value) =
                ([self.random.random_range(0..4u8)], vec![b'v'; self.random.random_range(0..300)]);
            builder.append(self.clock.now_ms(), Some(&key), Some(&value), &[]).expect("it fits");
        }
        append_batch(&self.partition, &builder.build(), self.epoch);
    }

    /// Another leader takes over with a different log end, and then this broker leads again.
    fn truncate(&mut self) {
        let back = [3, 30][self.random.random_range(0..2)];
        let back = self.random.random_range(0..back);
        self.epoch += 2;
        self.partition.apply(&registration(OTHER, self.epoch - 1));
        let (end, leader) = self.partition.with_log(|log| {
            let (start, end) = (log.log_start_offset(), log.log_end_offset());
            let end_offset = (end - back).max(start);
            let parting = |leader_epoch| Divergence { leader_epoch, end_offset, leader_start: start };
            (end, log.epoch_at(end_offset).map(parting))
        });
        if let Some(leader) = leader {
            let epoch = LeaderEpoch(self.epoch - 1);
            self.partition.truncate_to_leader(epoch, end, leader).expect("it can be cut");
        }
        self.partition.apply(&registration(NODE, self.epoch));
    }

    fn delete_records(&mut self) {
        let random = &mut self.random;
        self.partition.with_log(|log| {
            let end = log.set_high_watermark(log.log_end_offset());
            let offset = Offset(random.random_range(log.log_start_offset().0..=end.0));
            log.delete_records(offset).expect("deletes");
        });
    }

    fn compact(&mut self) {
        if self.partition.is_moving() {
            return;
        }
        let now_ms = self.clock.now_ms();
        let planned = self.partition.with_log(|log| {
            log.set_high_watermark(log.log_end_offset());
            log.plan_compaction(now_ms).expect("plans")
        });
        let Some(job) = planned else { return };
        let outcome = job.run().expect("compacts");
        let swap = self.partition.with_log(|log| log.finish_compaction(&job, outcome));
        let mut swap = swap.expect("is taken over").expect("nothing came between");
        let synced = swap.sync();
        self.partition.with_log(|log| log.complete_compaction(&mut swap, synced)).expect("is on the medium");
    }

    fn finish(&mut self) {
        let facts = |log: &mut PartitionLog| {
            let offsets = (
                log.log_start_offset(),
                log.high_watermark(),
                log.log_end_offset(),
                log.last_stable_offset(),
            );
            let producer = log.producer(PRODUCER).map(|known| known.last_sequence());
            (stored(log), offsets, log.leader_epochs().to_vec(), producer, log.cleaned_to())
        };
        let before = self.partition.with_log(facts);
        let (from, synced) = self.partition.with_log(|log| (log.directory_id(), log.recovery_point()));
        let Some(to) = self.partition.moves_to() else { return };
        if self.partition.finish_move(&self.dirs, to).expect("it is copied") == Progress::Moved {
            self.moved += 1;
            let after = self.partition.with_log(facts);
            assert!(after.0 == before.0, "{} of {} batches", after.0.len(), before.0.len());
            assert_eq!((after.1, after.2, after.3, after.4), (before.1, before.2, before.3, before.4));
            let (to, still_synced) =
                self.partition.with_log(|log| (log.directory_id(), log.recovery_point()));
            assert!(from != to && still_synced >= synced, "{from:?} {to:?}: {synced} {still_synced}");
            assert!(!self.partition.is_moving());
        }
    }

    /// Ends the process or the power; the log is opened again and checked.
    fn stop(&mut self) {
        let (before, end, synced) =
            self.partition.with_log(|log| (stored(log), log.log_end_offset(), log.recovery_point()));
        let safe_to = if self.chance(4) {
            self.disk.end_process();
            end
        } else {
            let random = &mut self.random;
            self.disk.lose_power(&mut |end| random.random_range(0..end));
            synced
        };
        let start = before.first().map_or(end, |(base, _, _)| *base);
        let (dirs, mut log) = open(&self.disk, &self.clock, &self.config);
        if !self.config.cleanup_policy.compact {
            log.end_at_gap().expect("it is looked through");
        }
        self.check(&mut log, &before, start, safe_to);
        self.epoch = log.latest_epoch().map_or(0, |epoch| epoch.0).max(self.epoch) + 1;
        let copy = dirs.take_future(&TopicPartition::new("t", 0));
        (self.dirs, self.partition) = (dirs, partition(log, self.epoch));
        if let Some(copy) = copy {
            self.resumed += 1;
            self.partition.resume_move(copy).expect("it goes on");
        }
    }

    fn check(&self, log: &mut PartitionLog, before: &StoredBatches, start: Offset, safe_to: Offset) {
        let there = stored(log);
        let found: HashMap<Offset, &[u8]> =
            there.iter().map(|(base, _, bytes)| (*base, &bytes[..])).collect();
        let log_start = log.log_start_offset();
        assert!(
            log_start >= self.promised_start.min(start),
            "it begins at {log_start}, and began at {start}, {} promised",
            self.promised_start
        );
        // A compaction whose result was lost in a power failure leaves the previous state.
        let is_compacted = self.config.cleanup_policy.compact;
        for (base, next, bytes) in before.iter().filter(|(_, next, _)| *next <= safe_to) {
            let same = found.get(base) == Some(&&bytes[..]);
            assert!(
                same || is_compacted && log.epoch_at(*base).is_some(),
                "the batch from {base} to {next} was flushed"
            );
        }
        for (base, _, bytes) in there.iter().filter(|(_, next, _)| *next > start) {
            assert!(self.seen.contains(bytes), "the batch at {base} was never written");
        }
    }
}

#[test]
fn a_partition_that_moves_is_the_same_log_through_everything() {
    let seeds = match std::env::var("THALWEG_MOVE_SEEDS") {
        Ok(seeds) => {
            let (from, to) = seeds.split_once("..").expect("THALWEG_MOVE_SEEDS is a range like 0..1000");
            from.parse().expect("a number")..to.parse().expect("a number")
        }
        Err(_) => 0..200,
    };
    let (mut moved, mut resumed) = (0, 0);
    let mut run = |seed| {
        let mut history = History::new(seed);
        for _ in 0..6 {
            for _ in 0..history.random.random_range(0..80) {
                history.step();
            }
            history.stop();
        }
        moved += history.moved;
        resumed += history.resumed;
    };
    let failed: Vec<u64> = seeds
        .clone()
        .filter(|&seed| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed))).is_err())
        .collect();
    assert!(failed.is_empty(), "seeds {failed:?} (run one alone with THALWEG_MOVE_SEEDS=7..8)");
    let runs = usize::try_from(seeds.end - seeds.start).expect("a number of runs");
    assert!(runs < 100 || moved > runs && resumed > runs / 2, "{moved} moves, {resumed} of them resumed");
}

/// A partition with 50 batches in the first of two directories, whose move to the second has begun. Faults
/// affect only the copy.
fn moving_with_faults() -> (tempfile::TempDir, Arc<Faults>, LogDirs, Partition) {
    let root = tempfile::tempdir().expect("a temporary directory");
    let faults = Arc::new(Faults::default());
    faults.only("no file");
    let paths = ["one", "two"].map(|name| root.path().join(name));
    let disk = Disk::with_faults(Arc::clone(&faults));
    let options = LogDirsOptions { disk, threads: 1, ..LogDirsOptions::new(paths.to_vec(), NODE.0) };
    let config = Arc::new(LogConfig::default());
    let (dirs, _) = LogDirs::open(options, |_| Arc::clone(&config)).expect("the directories open");
    let (name, ids) = (TopicPartition::new("t", 0), dirs.online_ids());
    let partition = partition(dirs.create(&name, None, config, Some(ids[0])).expect("creates"), 0);
    (0..50).for_each(|_| append_batch(&partition, &one_record(), 0));
    // Open files are exempt from faults.
    faults.only(".log");
    assert!(partition.begin_move(&dirs, ids[1]).expect("it begins"), "somebody has to see to it");
    (root, faults, dirs, partition)
}

fn one_record() -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(1_700_000_000_000, None, Some(&[b'v'; 100]), &[]).expect("it fits");
    builder.build().to_vec()
}

fn copy_until_it_fails(partition: &Partition, dirs: &LogDirs) -> MoveError {
    loop {
        match partition.copy_next(dirs, 500) {
            Ok(Progress::Copied(_)) => {}
            Ok(progress) => panic!("{progress:?} in spite of the fault"),
            Err(error) => return error,
        }
    }
}

#[test]
fn a_full_disk_holds_a_move_up_until_there_is_room() {
    let (_root, faults, dirs, partition) = moving_with_faults();
    faults.set_free_bytes(Some(1000));
    let error = copy_until_it_fails(&partition, &dirs);
    assert!(error.is_for_lack_of_room(), "{error}");
    append_batch(&partition, &one_record(), 0);
    assert!(copy_until_it_fails(&partition, &dirs).is_for_lack_of_room());
    faults.set_free_bytes(None);
    let to = dirs.online_ids()[1];
    while partition.finish_move(&dirs, to).expect("there is room") != Progress::Moved {}
    assert_eq!(partition.with_log(|log| log.directory_id()), Some(dirs.online_ids()[1]));
    assert_eq!(partition.with_log(stored).len(), 51);
    append_batch(&partition, &one_record(), 0);
}

#[test]
fn a_disk_that_fails_under_the_copy_leaves_the_log_alone() {
    type Break = fn(&Faults, bool);
    for (on_append, fault) in
        [(true, Faults::set_failing_writes as Break), (false, Faults::set_failing_syncs)]
    {
        let (_root, faults, dirs, partition) = moving_with_faults();
        let ids = dirs.online_ids();
        fault(&faults, true);
        let error = if on_append {
            copy_until_it_fails(&partition, &dirs)
        } else {
            while partition.copy_next(&dirs, 1 << 20).expect("it is copied") != Progress::CaughtUp {}
            partition.finish_move(&dirs, ids[1]).expect_err("a sync fails")
        };
        assert!(!error.is_for_lack_of_room(), "{error}");
        partition.cancel_move(&dirs);
        assert!(!partition.is_moving());
        assert_eq!(dirs.online_ids(), ids[..1], "the other directory is offline");
        append_batch(&partition, &one_record(), 0);
        assert_eq!(partition.with_log(stored).len(), 51);
    }
}

#[test]
fn move_waits_in_the_directory_of_a_log_that_has_failed() {
    let (_root, _faults, dirs, partition) = moving_with_faults();
    let ids = dirs.online_ids();
    while partition.copy_next(&dirs, 1 << 20).expect("it is copied") != Progress::CaughtUp {}
    assert_eq!(partition.unreported_directory(Some(ids[0])), None);
    assert_eq!(partition.unreported_directory(Some(ids[1])), None, "the controller consents to the move");
    assert_eq!(
        partition.finish_move(&dirs, ids[0]).expect("refused"),
        Progress::Copied(0),
        "not the copy's directory"
    );
    dirs.fail_directory(ids[0], "a test");
    assert_eq!(partition.copy_next(&dirs, 1 << 20).expect("reads"), Progress::LogFailed);
    assert_ne!(partition.finish_move(&dirs, ids[1]).expect("reads"), Progress::Moved);
    assert_eq!(partition.unreported_directory(Some(ids[1])), Some(ids[0]), "the log stays where it is");
    assert!(partition.is_moving(), "a restart continues");
}

#[test]
fn target_disk_that_dies_in_the_switch_leaves_the_log() {
    let mut struck = 0;
    for calls in 0..60 {
        for stops in [false, true] {
            let (root, faults, dirs, partition) = moving_with_faults();
            let ids = dirs.online_ids();
            while partition.copy_next(&dirs, 1 << 20).expect("it is copied") != Progress::CaughtUp {}
            let end = partition.with_log(|log| log.log_end_offset());
            // The target's disk fails: one call, and then every rename back on that disk.
            faults.fail(FaultyCall::Rename, "-future", CallError::InputOutput);
            faults.fail_once_after(calls, CallError::InputOutput);
            let finished = partition.finish_move(&dirs, ids[1]);
            if finished.is_ok() || faults.is_pending() {
                continue;
            }
            struck += 1;
            if stops {
                // The process ends in the middle instead, when the log has another name.
                let names = std::fs::read_dir(root.path().join("one")).expect("lists");
                let names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
                if names.iter().any(|name| name == "t-0") {
                    let retired = format!("t-0.{}-delete", Uuid::random());
                    std::fs::rename(root.path().join("one/t-0"), root.path().join("one").join(retired))
                        .expect("renames");
                }
            }
            faults.heal();
            drop((partition, dirs));
            // At the next start the other disk is dead.
            std::fs::rename(root.path().join("two"), root.path().join("dead")).expect("renames");
            std::fs::write(root.path().join("two"), b"not a directory").expect("writes");
            let paths = ["one", "two"].map(|name| root.path().join(name));
            let options = LogDirsOptions { threads: 1, ..LogDirsOptions::new(paths.to_vec(), NODE.0) };
            let config = Arc::new(LogConfig::default());
            let (dirs, logs) = LogDirs::open(options, |_| Arc::clone(&config)).expect("the directories open");
            dirs.purge_deleted(i64::MAX / 2);
            if stops {
                let kept = std::fs::read_dir(root.path().join("one")).expect("lists");
                let kept = kept.filter(|entry| {
                    entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().ends_with("-delete"))
                });
                assert_eq!(kept.count(), 1, "{calls}: it is removed once the other directory has the log");
            } else {
                let ends: Vec<_> = logs.iter().map(PartitionLog::log_end_offset).collect();
                assert_eq!(ends, [end], "{calls}: the log of the sound disk is there");
            }
        }
    }
    assert!(struck > 4, "{struck} calls");
}

#[test]
fn log_that_did_not_move_is_whole_if_the_controller_knew_where_it_is() {
    let (_root, _faults, dirs, partition) = moving_with_faults();
    let ids = dirs.online_ids();
    assert_eq!(partition.place_until_known(), None, "a new log");
    partition.note_found();
    partition.note_known_directory(Some(ids[1]));
    partition.note_known_directory(None);
    assert_eq!(partition.place_until_known(), Some(DIRECTORY_LOST), "perhaps an earlier one");
    partition.note_known_directory(Some(ids[0]));
    assert_eq!(partition.place_until_known(), Some(DIRECTORY_FULL));
}

#[test]
fn copy_does_not_take_the_place_of_a_damaged_log() {
    let (_root, _faults, dirs, partition) = moving_with_faults();
    let to = dirs.online_ids()[1];
    while partition.copy_next(&dirs, 1 << 20).expect("it is copied") != Progress::CaughtUp {}
    let reason = BatchFault::Missing { from: 3, to: 5 };
    let fault = CorruptBatch { position: 0, reason };
    partition.note_error(&LogError::Corrupt { segment: Offset(0), fault });
    assert!(partition.is_damaged());
    let with_other = PartitionRegistration { replicas: vec![NODE, BrokerId(2)], ..registration(NODE, 1) };
    partition.apply(&with_other);
    assert_eq!(partition.finish_move(&dirs, to).expect("the log is read"), Progress::LogDamaged);
    assert!(partition.is_moving());
    partition.apply(&registration(NODE, 2));
    assert_eq!(
        partition.finish_move(&dirs, to).expect("the log is read"),
        Progress::Moved,
        "nobody has the records"
    );
}

#[test]
fn copy_is_kept_where_the_disk_of_the_log_dies_in_the_switch() {
    let (root, faults, dirs, partition) = moving_with_faults();
    let ids = dirs.online_ids();
    while partition.copy_next(&dirs, 1 << 20).expect("it is copied") != Progress::CaughtUp {}
    faults.fail(FaultyCall::Rename, "-delete", CallError::InputOutput);
    assert_eq!(partition.finish_move(&dirs, ids[1]).expect("no failure of the copy"), Progress::LogFailed);
    assert_eq!(dirs.online_ids(), ids[1..], "the directory of the log is offline");
    assert!(partition.is_moving());
    assert_eq!(partition.copy_next(&dirs, 1 << 20).expect("no failure of the copy"), Progress::LogFailed);
    partition.close_future().expect("closes");
    faults.heal();
    drop((partition, dirs));
    let options = LogDirsOptions { threads: 1, ..LogDirsOptions::new(vec![root.path().join("two")], NODE.0) };
    let config = Arc::new(LogConfig::default());
    let (_dirs, mut logs) = LogDirs::open(options, |_| Arc::clone(&config)).expect("the directory opens");
    assert_eq!(logs.len(), 1, "the other disk is gone, and the copy is whole");
    assert_eq!(stored(&mut logs[0]).len(), 50);
}

#[test]
fn copy_that_lacks_its_end_is_made_again_and_is_no_damaged_log_afterwards() {
    let (root, faults, dirs, partition) = moving_with_faults();
    while partition.copy_next(&dirs, 1 << 20).expect("it is copied") != Progress::CaughtUp {}
    partition.close_future().expect("closes");
    partition.with_log(PartitionLog::close).expect("closes");
    drop(partition);
    dirs.close(42);
    drop(dirs);
    faults.heal();
    let mut two = std::fs::read_dir(root.path().join("two"))
        .expect("lists")
        .map(|entry| entry.expect("an entry").path());
    let copy = two.find(|path| path.is_dir()).expect("the copy is there");
    let file = Disk::real().open(&copy.join(format!("{:020}.log", 0))).expect("opens");
    file.set_len(1000).expect("cuts");
    let paths = ["one", "two"].map(|name| root.path().join(name));
    let options = LogDirsOptions { threads: 1, ..LogDirsOptions::new(paths.to_vec(), NODE.0) };
    let (dirs, mut logs) = LogDirs::open(options, |_| Arc::new(LogConfig::default())).expect("opens");
    let partition = crate::partition::testing::partition(logs.pop().expect("it is there"), 0);
    let copy = dirs.take_future(&TopicPartition::new("t", 0)).expect("it is there");
    assert!(copy.damage().is_some());
    let to = copy.directory_id().expect("it lies in a directory");
    partition.resume_move(copy).expect("it goes on");
    while partition.finish_move(&dirs, to).expect("it is copied") != Progress::Moved {}
    assert_eq!(partition.with_log(|log| (log.damage(), log.recovery_point())), (None, Offset(50)));
    assert_eq!(partition.with_log(stored).len(), 50);
}

/// Until the metadata is known, logs are opened with the broker's own policy.
#[test]
fn copy_that_lacks_a_segment_is_made_again_although_the_broker_compacts_other_topics() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let paths = ["one", "two"].map(|name| root.path().join(name));
    let options = || LogDirsOptions { threads: 1, ..LogDirsOptions::new(paths.to_vec(), NODE.0) };
    let config = Arc::new(LogConfig { segment_bytes: 1000, ..LogConfig::default() });
    let of_broker = Arc::new(LogConfig { cleanup_policy: CleanupPolicy::COMPACT, ..(*config).clone() });
    let (dirs, _) = LogDirs::open(options(), |_| Arc::clone(&of_broker)).expect("the directories open");
    let ids = dirs.online_ids();
    let created = dirs.create(&TopicPartition::new("t", 0), None, Arc::clone(&config), Some(ids[0]));
    let moving = partition(created.expect("creates"), 0);
    (0..50).for_each(|_| append_batch(&moving, &one_record(), 0));
    assert!(moving.begin_move(&dirs, ids[1]).expect("it begins"), "somebody has to see to it");
    while moving.copy_next(&dirs, 1 << 20).expect("it is copied") != Progress::CaughtUp {}
    let segments = moving.with_log(|log| log.segment_offsets());
    moving.close_future().expect("closes");
    moving.with_log(PartitionLog::close).expect("closes");
    drop(moving);
    dirs.close(42);
    drop(dirs);
    let mut two = std::fs::read_dir(&paths[1]).expect("lists").map(|entry| entry.expect("an entry").path());
    let copy = two.find(|path| path.is_dir()).expect("the copy is there");
    for suffix in ["log", "index", "timeindex", "snapshot"] {
        let _ = std::fs::remove_file(copy.join(format!("{:020}.{suffix}", segments[2].0)));
    }
    let (dirs, mut logs) = LogDirs::open(options(), |_| Arc::clone(&of_broker)).expect("opens");
    let mut log = logs.pop().expect("it is there");
    log.set_config(config);
    let moving = partition(log, 0);
    let copy = dirs.take_future(&TopicPartition::new("t", 0)).expect("it is there");
    let to = copy.directory_id().expect("it lies in a directory");
    moving.resume_move(copy).expect("it goes on");
    while moving.finish_move(&dirs, to).expect("it is copied") != Progress::Moved {}
    assert_eq!(moving.with_log(stored).len(), 50);
}

#[test]
fn copy_is_restarted_without_setting_anything_aside() {
    let (root, _faults, dirs, partition) = moving_with_faults();
    partition.with_log(|log| {
        log.set_high_watermark(log.log_end_offset());
        log.delete_records(Offset(10)).expect("deletes");
    });
    while partition.copy_next(&dirs, 1 << 20).expect("it is copied") != Progress::CaughtUp {}
    partition.apply(&registration(OTHER, 1));
    let bounds = crate::partition::LeaderBounds { start: Offset(100), end: Offset(120), lost_from: None };
    partition.reset_to_leader(LeaderEpoch(1), Offset(50), bounds).expect("restarts");
    while partition.copy_next(&dirs, 1 << 20).expect("it is copied") != Progress::CaughtUp {}
    let names = std::fs::read_dir(root.path().join("two")).expect("lists");
    let names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name().into_string()).collect();
    assert!(names.iter().flatten().all(|name| !name.ends_with("-stray")), "{names:?}");
}

/// A copy may be large, and produce and fetch continue during its check.
#[test]
fn copy_is_checked_and_restarted_outside_the_lock_of_the_partition() {
    for is_of_log in [true, false] {
        let clock = Clock::manual(1_700_000_000_000);
        let disk = MemoryDisk::new(clock.clone());
        let config = LogConfig { segment_bytes: 1000, ..LogConfig::default() };
        let (dirs, log) = open(&disk, &clock, &config);
        let moving = partition(log, 0);
        (0..50).for_each(|_| append_batch(&moving, &one_record(), 0));
        let from = moving.with_log(|log| log.directory_id());
        let to = dirs.online_ids().into_iter().find(|id| Some(*id) != from).expect("there are two");
        assert!(moving.begin_move(&dirs, to).expect("it begins"), "somebody has to see to it");
        while moving.copy_next(&dirs, 1 << 20).expect("it is copied") != Progress::CaughtUp {}
        moving.close_future().expect("closes");
        if !is_of_log {
            moving.with_log(|log| log.truncate_to(Offset(40))).expect("truncates");
        }
        moving.with_log(PartitionLog::close).expect("closes");
        drop(moving);
        dirs.close(42);
        drop(dirs);
        let (dirs, log) = open(&disk, &clock, &config);
        let moving = Arc::new(partition(log, 0));
        let copy = dirs.take_future(&TopicPartition::new("t", 0)).expect("it is there");
        let path = copy.dir().to_owned();
        let calls = Arc::new(parking_lot::Mutex::new((0, 0)));
        let (watched, counts) = (Arc::clone(&moving), Arc::clone(&calls));
        disk.watch_calls(move |_: DiskCall, called: &std::path::Path| {
            if called.starts_with(&path) {
                let (free, held) = &mut *counts.lock();
                *(if watched.state.is_held() { held } else { free }) += 1;
            }
            CallEffect::Works
        });
        moving.resume_move(copy).expect("it goes on");
        disk.watch_calls(|_, _| CallEffect::Works);
        let (free, held) = *calls.lock();
        assert!(free > 0 && held == 0, "{free} calls for the copy without the lock, {held} under it");
        let end = moving.future.lock().as_ref().map(PartitionLog::log_end_offset);
        assert_eq!(end, Some(Offset(if is_of_log { 50 } else { 0 })));
    }
}
