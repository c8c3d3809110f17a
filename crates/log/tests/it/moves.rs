//! Moving a partition to another log directory: the final switch, and the state after an interrupted one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use thalweg_log::disk::{CallEffect, CallError, Disk, Faults, MemoryDisk};
use thalweg_log::{Clock, LogConfig, LogDirs, LogDirsOptions, OpenError, PartitionLog, TopicPartition, Uuid};
use thalweg_record::{LeaderEpoch, Offset, ProducerId};

use crate::support::*;

const DIRS: [&str; 2] = ["/one", "/two"];

struct Machine {
    memory: Arc<MemoryDisk>,
    disk: Disk,
    clock: Clock,
}

impl Machine {
    fn new() -> Machine {
        let clock = Clock::manual(NOW_MS);
        let memory = MemoryDisk::new(clock.clone());
        Machine { disk: Disk::in_memory(Arc::clone(&memory)), memory, clock }
    }

    fn open(&self) -> (LogDirs, Vec<PartitionLog>) {
        self.try_open(&DIRS).expect("the directories open")
    }

    fn try_open(&self, dirs: &[&str]) -> Result<(LogDirs, Vec<PartitionLog>), OpenError> {
        let options = LogDirsOptions {
            disk: self.disk.clone(),
            clock: self.clock.clone(),
            threads: 1,
            ..LogDirsOptions::new(dirs.iter().map(PathBuf::from).collect(), 1)
        };
        LogDirs::open(options, |_| Arc::new(config()))
    }

    /// Makes all calls in directories that begin so fail, except the first `calls`. Returns whether one did.
    fn fail_after(&self, mut calls: u64, begin: &'static str) -> Arc<AtomicBool> {
        let has_failed = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&has_failed);
        self.memory.watch_calls(move |_, path| {
            if !path.starts_with(begin) {
                return CallEffect::Works;
            }
            match calls.checked_sub(1) {
                Some(left) => calls = left,
                None => noted.store(true, Ordering::Relaxed),
            }
            if noted.load(Ordering::Relaxed) {
                CallEffect::Fails(CallError::InputOutput)
            } else {
                CallEffect::Works
            }
        });
        has_failed
    }

    /// Ends the process, and the failures.
    fn end_process(&self) {
        self.memory.end_process();
        self.memory.watch_calls(|_, _| CallEffect::Works);
    }

    fn has(&self, path: &str) -> bool {
        self.disk.exists(Path::new(path))
    }

    /// The names of the directories of partitions, in both log directories.
    fn names(&self) -> Vec<String> {
        let listed = DIRS.iter().flat_map(|dir| self.disk.list(Path::new(dir)).expect("lists"));
        listed.filter(|listed| listed.is_dir).map(|listed| listed.name).collect()
    }
}

fn config() -> LogConfig {
    LogConfig { segment_bytes: 1000, file_delete_delay_ms: 0, ..LogConfig::default() }
}

fn name() -> TopicPartition {
    TopicPartition::new("t", 0)
}

/// A log with batches of a producer in the first directory, and a copy of it in the second.
fn log_and_copy(dirs: &LogDirs) -> (PartitionLog, PartitionLog) {
    let ids = dirs.online_ids();
    let mut log =
        dirs.create(&name(), Some(Uuid::random()), Arc::new(config()), Some(ids[0])).expect("creates");
    for sequence in 0..20 {
        let batch = Spec::new(1).value_bytes(100).producer(7, 0, sequence).build();
        log.append_as_leader(&batch, LeaderEpoch(sequence / 8), Default::default()).expect("accepted");
    }
    log.set_high_watermark(Offset(18));
    log.flush().expect("syncs");
    let mut copy = create_copy(dirs, &log, ids[1]);
    let batches = read_all(&mut log, Offset(0), 1 << 20);
    copy.append_as_follower(&batches, LeaderEpoch(i32::MAX)).expect("accepted");
    copy.flush().expect("syncs");
    (log, copy)
}

fn create_copy(dirs: &LogDirs, log: &PartitionLog, directory: Uuid) -> PartitionLog {
    dirs.create_future(log.name(), log.topic_id(), Arc::clone(log.config()), directory).expect("creates")
}

#[test]
fn a_copy_takes_the_place_of_a_log() {
    let machine = Machine::new();
    let (dirs, _) = machine.open();
    let (mut log, mut copy) = log_and_copy(&dirs);
    let ids = dirs.online_ids();
    let published = Arc::clone(log.published());
    let (bytes, epochs) = (read_all(&mut log, Offset(0), 1 << 20), log.leader_epochs().to_vec());
    let target = log.flush_target().expect("a target");
    assert!(target.is_none());
    let next = |sequence| Spec::new(1).producer(7, 0, sequence).build();
    log.append_as_leader(&next(20), LeaderEpoch(2), Default::default()).expect("accepted");
    let target = log.flush_target().expect("a target").expect("something to sync");
    let last = read_all(&mut log, Offset(20), 1 << 20);
    copy.append_as_follower(&last, LeaderEpoch(i32::MAX)).expect("accepted");

    assert_eq!(dirs.directory_of(&name()), Some(ids[0]));
    dirs.replace(&mut log, &mut copy).expect("is replaced");
    assert_eq!((log.directory_id(), dirs.directory_of(&name())), (Some(ids[1]), Some(ids[1])));
    assert_eq!((log.high_watermark(), log.log_end_offset()), (Offset(18), Offset(21)));
    assert_eq!(log.leader_epochs(), epochs);
    assert_eq!(log.producer(ProducerId(7)).map(|producer| producer.batches().len()), Some(5));
    assert!(Arc::ptr_eq(&published, log.published()), "whoever looks sees the new one");
    log.complete_flush(&target, target.sync()).expect("the flush of the old log is none of the new one's");
    assert_eq!(log.recovery_point(), Offset(20));
    assert!(copy.poison().is_some(), "nothing is appended to the old one");

    log.append_as_leader(&next(21), LeaderEpoch(2), Default::default()).expect("accepted");
    assert!(read_all(&mut log, Offset(0), 1 << 20).starts_with(&bytes));
    dirs.purge_deleted(machine.clock.now_ms());
    assert_eq!(machine.names(), ["t-0"]);
    log.close().expect("closes");
    dirs.close(1);
    drop((dirs, log, copy));
    let (dirs, mut logs) = machine.open();
    assert_eq!(dirs.directory_of(&name()), Some(ids[1]));
    assert!(read_all(&mut logs[0], Offset(0), 1 << 20).starts_with(&bytes));
}

#[test]
fn a_log_in_its_new_place_has_its_checkpoints_after_a_crash() {
    let machine = Machine::new();
    let (dirs, _) = machine.open();
    let (mut log, mut copy) = log_and_copy(&dirs);
    dirs.checkpoint_high_watermarks();
    dirs.checkpoint_recovery_points();
    dirs.replace(&mut log, &mut copy).expect("is replaced");
    machine.memory.end_process();
    drop((dirs, log, copy));
    let points = machine.disk.read(Path::new("/two/recovery-point-offset-checkpoint")).expect("it is there");
    assert_eq!(String::from_utf8_lossy(&points), "0\n1\nt 0 20\n");
    let (_dirs, logs) = machine.open();
    assert_eq!(logs[0].high_watermark(), Offset(18));
}

#[test]
fn a_copy_waits_for_its_log_and_is_found_again() {
    let machine = Machine::new();
    let (dirs, _) = machine.open();
    let (log, copy) = log_and_copy(&dirs);
    drop((log, copy, dirs));
    machine.memory.end_process();
    let (dirs, logs) = machine.open();
    assert_eq!(logs.len(), 1);
    let copy = dirs.take_future(&name()).expect("it is found");
    assert_eq!((copy.log_end_offset(), copy.directory_id()), (Offset(20), Some(dirs.online_ids()[1])));
    let futures: Vec<_> = dirs.describe().into_iter().flat_map(|dir| dir.partitions).collect();
    assert_eq!(futures.iter().filter(|partition| partition.is_future).count(), 1);

    // Without its log, a copy does not replace it: the log may be in an unavailable directory.
    machine.memory.end_process();
    drop((dirs, logs, copy));
    machine.disk.remove_dir(Path::new("/one/t-0")).expect("removes");
    // That of an earlier move, or of a topic that was deleted, is not the log which makes way for this copy.
    machine.disk.create_dir(&Path::new("/one").join(name().delete_dir_name())).expect("creates");
    let (dirs, logs) = machine.open();
    assert!(logs.is_empty() && dirs.take_future(&name()).is_some());
}

#[test]
fn a_stop_in_the_middle_of_the_change_leaves_one_whole_log() {
    let mut places = [0; 2];
    for seed in 0..300 {
        let mut random = SmallRng::seed_from_u64(seed);
        let machine = Machine::new();
        machine.memory.set_names_apart(true);
        let (dirs, _) = machine.open();
        let (mut log, mut copy) = log_and_copy(&dirs);
        let (ids, bytes) = (dirs.online_ids(), read_all(&mut log, Offset(0), 1 << 20));
        // From here on every name may or may not be on the medium, up to any of them.
        machine.memory.set_syncs_lie(true);
        if random.random_range(0..4) > 0 {
            dirs.replace(&mut log, &mut copy).expect("is replaced");
        }
        if random.random_range(0..3) > 0 {
            dirs.purge_deleted(machine.clock.now_ms());
        }
        drop((dirs, log, copy));
        machine.memory.lose_power(&mut |end| random.random_range(0..end));
        machine.memory.set_syncs_lie(false);
        let (dirs, mut logs) = machine.open();
        assert_eq!(logs.len(), 1, "seed {seed}: {:?}", machine.names());
        assert!(read_all(&mut logs[0], Offset(0), 1 << 20) == bytes, "seed {seed}: all is there");
        let place =
            ids.iter().position(|id| dirs.directory_of(&name()) == Some(*id)).expect("in one of them");
        places[place] += 1;
        // The copy goes on, or it had its name and was the second log.
        let names = machine.names();
        let copies =
            names.iter().filter(|name| name.ends_with("-future") || name.ends_with("-stray")).count();
        assert_eq!(copies, usize::from(place == 0), "seed {seed}: {names:?}");
    }
    assert!(places.iter().all(|&count| count > 30), "{places:?}");
}

#[test]
fn a_copy_that_is_given_up_and_comes_back_is_dropped() {
    let machine = Machine::new();
    let (dirs, _) = machine.open();
    let (log, mut copy) = log_and_copy(&dirs);
    let kept = copy.dir().to_owned();
    dirs.delete(&mut copy).expect("is given up");
    let second = create_copy(&dirs, &log, dirs.online_ids()[1]);
    drop((dirs, log, second));
    machine.memory.end_process();
    machine.disk.rename(copy.dir(), &kept).expect("it is back");
    let (dirs, logs) = machine.open();
    assert_eq!((logs.len(), dirs.take_futures().len()), (1, 1));
}

#[test]
fn second_copy_is_kept_where_there_is_no_log() {
    let machine = Machine::new();
    let (dirs, _) = machine.open();
    let (log, copy) = log_and_copy(&dirs);
    let second = create_copy(&dirs, &log, dirs.online_ids()[0]);
    drop((dirs, log, copy, second));
    machine.end_process();
    machine.disk.remove_dir(Path::new("/one/t-0")).expect("removes");
    let (dirs, logs) = machine.open();
    dirs.purge_deleted(i64::MAX / 2);
    assert_eq!((logs.len(), dirs.take_futures().len()), (0, 1));
    let names = machine.names();
    assert!(names.len() == 2 && names.iter().any(|name| name.ends_with("-stray")), "{names:?}");
}

#[test]
fn deleted_records_stay_deleted_in_the_new_directory() {
    let machine = Machine::new();
    let (dirs, _) = machine.open();
    let (mut log, mut copy) = log_and_copy(&dirs);
    log.delete_records(Offset(12)).expect("deletes");
    log.delete_old_segments(NOW_MS).expect("deletes");
    log.flush().expect("syncs");
    assert!(log.segment_offsets()[0] > Offset(0) && copy.segment_offsets()[0] == Offset(0));
    copy.set_high_watermark(Offset(18));
    copy.delete_records(Offset(12)).expect("deletes");
    dirs.replace(&mut log, &mut copy).expect("is replaced");
    dirs.checkpoint_log_starts();
    drop((dirs, log, copy));
    machine.memory.end_process();
    let (_dirs, logs) = machine.open();
    assert_eq!(logs[0].log_start_offset(), Offset(12));
}

#[test]
fn a_log_lives_on_where_the_disk_of_its_copy_fails_as_they_change_places() {
    let (one, two) = (TempDir::new(), TempDir::new());
    let faults = Arc::new(Faults::default());
    faults.only(two.path().to_str().expect("UTF-8"));
    let open = || {
        let disk = Disk::with_faults(Arc::clone(&faults));
        let paths = vec![one.path().to_owned(), two.path().to_owned()];
        let options = LogDirsOptions { disk, threads: 1, ..LogDirsOptions::new(paths, 1) };
        LogDirs::open(options, |_| Arc::new(config())).expect("the directories open")
    };
    let (dirs, _) = open();
    let (mut log, mut copy) = log_and_copy(&dirs);
    let (ids, bytes) = (dirs.online_ids(), read_all(&mut log, Offset(0), 1 << 20));
    faults.set_failing_syncs(true);
    dirs.replace(&mut log, &mut copy).expect_err("the new directory cannot be synced");
    assert_eq!((log.directory_id(), dirs.directory_of(&name())), (Some(ids[0]), Some(ids[0])));
    assert_eq!(dirs.online_ids(), ids[..1]);
    append(&mut log, &Spec::new(1).build());
    log.flush().expect("syncs");
    drop((dirs, log, copy));
    faults.set_failing_syncs(false);
    let (dirs, mut logs) = open();
    assert_eq!(dirs.directory_of(&name()), Some(ids[0]));
    assert!(read_all(&mut logs[0], Offset(0), 1 << 20).starts_with(&bytes));
    assert_eq!((logs[0].log_end_offset(), dirs.take_futures().len()), (Offset(21), 1));
}

/// The directory that the log is in, or only that of its copy, may be taken out of `log.dirs` afterwards.
#[test]
fn a_stop_at_any_call_of_the_change_leaves_a_whole_log_in_each_directory() {
    for begin in ["/", "/one", "/two"] {
        for calls in 0.. {
            let mut has_failed = false;
            for listed in [&DIRS[..], &DIRS[..1], &DIRS[1..]] {
                let what = format!("{calls} calls in {begin}, {listed:?}");
                let machine = Machine::new();
                let (dirs, _) = machine.open();
                let (mut log, mut copy) = log_and_copy(&dirs);
                let bytes = read_all(&mut log, Offset(0), 1 << 20);
                let failed = machine.fail_after(calls, begin);
                let replaced = dirs.replace(&mut log, &mut copy);
                has_failed = failed.load(Ordering::Relaxed);
                drop((dirs, log, copy));
                machine.end_process();
                let is_moved = !machine.has("/one/t-0");
                assert!(!is_moved || machine.has("/two/t-0"), "{what}: {:?}", machine.names());
                assert!(is_moved || replaced.is_err(), "{what}");
                let (dirs, mut logs) =
                    machine.try_open(listed).unwrap_or_else(|error| panic!("{what}: {error}"));
                dirs.purge_deleted(machine.clock.now_ms());
                if logs.is_empty() && listed[0] == DIRS[1] {
                    logs.extend(dirs.take_future(&name()));
                }
                if is_moved && listed.len() == 1 && listed[0] == DIRS[0] {
                    continue;
                }
                assert_eq!(logs.len(), 1, "{what}: {:?}", machine.names());
                assert!(read_all(&mut logs[0], Offset(0), 1 << 20) == bytes, "{what}");
            }
            if !has_failed {
                break;
            }
        }
    }
}

#[test]
fn a_log_that_goes_on_without_its_new_directory_is_the_one_when_that_returns() {
    for calls in 0.. {
        let machine = Machine::new();
        let (dirs, _) = machine.open();
        let (mut log, mut copy) = log_and_copy(&dirs);
        let failed = machine.fail_after(calls, DIRS[1]);
        let replaced = dirs.replace(&mut log, &mut copy);
        if !failed.load(Ordering::Relaxed) {
            assert!(calls > 1 && replaced.is_ok());
            break;
        }
        if replaced.is_ok() {
            continue;
        }
        append(&mut log, &Spec::new(1).build());
        log.flush().expect("syncs");
        let bytes = read_all(&mut log, Offset(0), 1 << 20);
        drop((dirs, log, copy));
        machine.end_process();
        let (dirs, mut logs) = machine.open();
        assert_eq!(logs.len(), 1, "{calls} calls: {:?}", machine.names());
        assert!(read_all(&mut logs[0], Offset(0), 1 << 20) == bytes, "{calls} calls");
        assert_eq!(dirs.directory_of(&name()), Some(dirs.online_ids()[0]));
    }
}

/// A copy of a log that goes on in one of the directories after a failure, and whose name has not changed or
/// was not removed in the other: also one left by Apache Kafka, which refuses to start then.
#[test]
fn of_two_logs_the_one_with_all_records_is_kept_and_the_other_is_set_aside() {
    let next = |epoch| (Spec::new(1).value_bytes(100).build(), LeaderEpoch(epoch));
    for (index, dir) in DIRS.into_iter().enumerate() {
        for epoch in [2, 3] {
            let machine = two_logs(|dirs, log, copy| {
                let longer = if index == 0 { log } else { copy };
                let (batch, epoch) = next(epoch);
                longer.append_as_leader(&batch, epoch, Default::default()).expect("accepted");
                dirs.checkpoint_high_watermarks();
            });
            let (dirs, logs) = machine.open();
            assert_eq!((logs.len(), logs[0].log_end_offset()), (1, Offset(21)));
            assert_eq!(dirs.directory_of(&name()), Some(dirs.online_ids()[index]));
            let names = machine.names();
            assert!(names.len() == 2 && names.iter().any(|name| name.ends_with("-stray")), "{names:?}");
            assert!(machine.has(&format!("{dir}/t-0")));
            assert_eq!(dirs.describe().iter().map(|dir| dir.partitions.len()).sum::<usize>(), 1);
        }
    }
}

#[test]
fn of_two_logs_with_one_end_that_with_the_later_start_is_kept() {
    for deletes in [false, true] {
        let machine = two_logs(|dirs, _, copy| {
            if deletes {
                copy.set_high_watermark(Offset(18));
                copy.delete_records(Offset(12)).expect("deletes");
                dirs.checkpoint_log_starts();
            }
        });
        let (dirs, logs) = machine.open();
        assert_eq!((logs.len(), logs[0].log_end_offset()), (1, Offset(20)));
        assert_eq!(dirs.directory_of(&name()), Some(dirs.online_ids()[usize::from(deletes)]));
    }
}

#[test]
fn of_two_logs_with_one_end_that_which_lost_no_beginning_is_kept() {
    let machine = two_logs(|_, log, copy| {
        let rest = read_all(log, Offset(12), 1 << 20);
        copy.restart_with_lost_beginning(Offset(12), Offset(0)).expect("restarts");
        copy.append_as_follower(&rest, LeaderEpoch(i32::MAX)).expect("accepted");
    });
    let (dirs, logs) = machine.open();
    assert_eq!((logs.len(), logs[0].log_start_offset()), (1, Offset(0)));
    assert_eq!(dirs.directory_of(&name()), Some(dirs.online_ids()[0]));
}

#[test]
fn two_logs_with_different_records_are_not_opened() {
    let batch = Spec::new(1).value_bytes(100).build();
    let machine = two_logs(|_, log, copy| {
        log.append_as_leader(&batch, LeaderEpoch(3), Default::default()).expect("accepted");
        copy.append_as_leader(&batch, LeaderEpoch(4), Default::default()).expect("accepted");
    });
    let refused = machine.try_open(&DIRS).expect_err("nobody knows which is the one");
    assert!(matches!(refused, OpenError::DuplicatePartition(_)), "{refused}");
    assert_eq!(machine.names(), ["t-0", "t-0"], "both are kept");
}

/// A machine with two logs of a partition, which were equal before `change`.
fn two_logs(change: impl FnOnce(&LogDirs, &mut PartitionLog, &mut PartitionLog)) -> Machine {
    let machine = Machine::new();
    let (dirs, _) = machine.open();
    let (mut log, mut copy) = log_and_copy(&dirs);
    change(&dirs, &mut log, &mut copy);
    log.flush().expect("syncs");
    copy.flush().expect("syncs");
    machine.disk.rename(copy.dir(), Path::new("/two/t-0")).expect("renames");
    drop((dirs, log, copy));
    machine.end_process();
    machine
}
