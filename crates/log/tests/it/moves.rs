//! Moving a partition to another log directory: the final switch, and the state after an interrupted one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use thalweg_log::disk::{Disk, Faults, MemoryDisk};
use thalweg_log::{Clock, LogConfig, LogDirs, LogDirsOptions, PartitionLog, TopicPartition, Uuid};
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
        let options = LogDirsOptions {
            disk: self.disk.clone(),
            clock: self.clock.clone(),
            threads: 1,
            ..LogDirsOptions::new(DIRS.map(PathBuf::from).to_vec(), 1)
        };
        LogDirs::open(options, |_| Arc::new(config())).expect("the directories open")
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
        let copies = machine.names().iter().filter(|name| name.ends_with("-future")).count();
        assert_eq!(copies, usize::from(place == 0), "seed {seed}: {:?}", machine.names());
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
