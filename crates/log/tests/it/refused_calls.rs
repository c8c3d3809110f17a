//! Single calls that the disk refuses, in operations of several files: renames without room for the name,
//! removals and reads that fail.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_log::disk::{CallError, Disk, Faults, FaultyCall, MemoryDisk};
use thalweg_log::{
    CleanupPolicy, Clock, Damage, LogConfig, LogDirs, LogDirsOptions, LogError, OpenError, PartitionLog,
    TopicPartition, Uuid,
};
use thalweg_record::{Offset, ProducerId};

use crate::support::*;

/// A log directory in memory, whose process can be killed.
struct Machine {
    disk: Arc<MemoryDisk>,
    faults: Arc<Faults>,
    clock: Clock,
    config: LogConfig,
}

impl Machine {
    fn new(config: LogConfig) -> Machine {
        let clock = Clock::manual(NOW_MS);
        let disk = MemoryDisk::new(clock.clone());
        Machine { disk, faults: Arc::default(), clock, config }
    }

    fn open(&self) -> (LogDirs, Vec<PartitionLog>) {
        self.try_to_open().expect("the directory opens")
    }

    fn try_to_open(&self) -> Result<(LogDirs, Vec<PartitionLog>), OpenError> {
        let options = LogDirsOptions {
            disk: Disk::in_memory(Arc::clone(&self.disk)).and_faults(Arc::clone(&self.faults)),
            clock: self.clock.clone(),
            threads: 1,
            ..LogDirsOptions::new(vec![Path::new("/data").to_path_buf()], 1)
        };
        LogDirs::open(options, |_| Arc::new(self.config.clone()))
    }

    fn create(&self, dirs: &LogDirs) -> PartitionLog {
        let name = TopicPartition::new("t", 0);
        dirs.create(&name, Some(Uuid::random()), Arc::new(self.config.clone()), None).expect("creates")
    }

    /// Kills the process and opens the log again, as a broker does.
    fn restart(&self) -> (LogDirs, PartitionLog) {
        self.faults.heal();
        self.disk.end_process();
        let (dirs, mut logs) = self.open();
        let mut log = logs.pop().expect("the log is there");
        log.end_at_gap().expect("it is looked through");
        (dirs, log)
    }

    fn names(&self) -> Vec<String> {
        let files = self.disk.files().into_iter();
        files.map(|(path, _)| path.strip_prefix("/data").expect("in it").display().to_string()).collect()
    }
}

/// One batch of 4 records per segment, a second apart.
fn config() -> LogConfig {
    LogConfig { segment_bytes: 250, retention_ms: 2500, file_delete_delay_ms: 500, ..LogConfig::default() }
}

fn fill(log: &mut PartitionLog, segments: i64) {
    for index in 0..segments {
        append(log, &Spec::new(4).timestamp(NOW_MS + index * 1000).producer(7, 0, index as i32 * 4).build());
    }
    log.set_high_watermark(log.log_end_offset());
}

fn offsets(log: &mut PartitionLog) -> Vec<i64> {
    headers(log).iter().map(|header| header.base_offset.0).collect()
}

#[test]
fn retention_stops_at_a_segment_that_cannot_be_renamed() {
    for refused in [0, 4, 8] {
        let machine = Machine::new(config());
        let (dirs, _) = machine.open();
        let mut log = machine.create(&dirs);
        fill(&mut log, 10);
        machine.faults.fail(
            FaultyCall::Rename,
            &format!("{refused:020}.log.deleted"),
            CallError::InputOutput,
        );
        let failed = log.delete_old_segments(NOW_MS + 9_003);
        assert!(matches!(failed, Err(LogError::Io(_))), "{failed:?}");
        assert_eq!(log.segment_offsets()[0], Offset(refused));
        assert!(
            !dirs.describe()[0].offline.as_deref().unwrap_or_default().is_empty(),
            "the directory is offline"
        );
        let there: Vec<i64> = (refused..40).step_by(4).collect();
        assert_eq!(offsets(&mut log), there, "what was not deleted is served");
        drop((dirs, log));
        let (_dirs, mut log) = machine.restart();
        assert_eq!(offsets(&mut log), there);
        assert_eq!(append(&mut log, &Spec::new(1).build()).first_offset, Offset(40));
    }
}

/// The index of a first segment whose log is gone cannot be renamed when the segments behind it are deleted,
/// or when all is fetched again.
#[test]
fn index_of_a_lost_first_segment_that_stays_takes_the_directory_offline() {
    let machine = Machine::new(config());
    let (dirs, _) = machine.open();
    let mut log = machine.create(&dirs);
    fill(&mut log, 10);
    log.flush().expect("syncs");
    log.close().expect("closes");
    dirs.checkpoint_recovery_points();
    drop((dirs, log));
    Disk::in_memory(Arc::clone(&machine.disk))
        .remove(Path::new("/data/t-0").join(log_name(0)).as_path())
        .expect("removes");
    let (dirs, mut log) = machine.restart();
    assert_eq!(log.damage(), Some(Damage::Unreadable(Offset(0))));
    log.set_high_watermark(Offset(40));
    machine.faults.fail(FaultyCall::Rename, &format!("{:020}.index.deleted", 0), CallError::InputOutput);
    let failed = log.delete_old_segments(NOW_MS + 9_003);
    assert!(matches!(failed, Err(LogError::Io(_))), "{failed:?}");
    assert!(dirs.describe()[0].offline.is_some(), "the directory is offline");
    assert_eq!(log.log_start_offset(), log.segment_offsets()[0]);
    let there: Vec<i64> = (log.log_start_offset().0..40).step_by(4).collect();
    assert_eq!(offsets(&mut log), there);
    drop((dirs, log));
    let (_dirs, mut log) = machine.restart();
    assert_eq!(offsets(&mut log), there);
}

#[test]
fn deleted_records_leave_no_hole_after_a_failed_rename() {
    let machine = Machine::new(config());
    let (dirs, _) = machine.open();
    let mut log = machine.create(&dirs);
    fill(&mut log, 10);
    machine.faults.fail(FaultyCall::Rename, "00000000000000000004.log.deleted", CallError::InputOutput);
    log.delete_records(Offset(18)).expect_err("a rename has failed");
    drop((dirs, log));
    let (_dirs, mut log) = machine.restart();
    assert_eq!(offsets(&mut log), (4..40).step_by(4).collect::<Vec<i64>>());
}

#[test]
fn retention_frees_a_disk_without_room_for_names() {
    let machine = Machine::new(config());
    let (dirs, _) = machine.open();
    let mut log = machine.create(&dirs);
    fill(&mut log, 10);
    machine.faults.fail(FaultyCall::Rename, ".deleted", CallError::NoSpace);
    let (lines, deleted) = warnings_of(|| log.delete_old_segments(NOW_MS + 9_003));
    assert_eq!(deleted.expect("files are removed at once"), 7);
    let of_logs = lines.iter().filter(|line| line.contains(".log") && line.contains("removing it at once"));
    assert_eq!(of_logs.count(), 7, "{lines:?}");
    assert!(log.poison().is_none());
    let files = machine.names().into_iter().filter(|name| name.ends_with(".log"));
    let live: Vec<String> = (28..40).step_by(4).map(|base| format!("t-0/{base:020}.log")).collect();
    assert_eq!(files.collect::<Vec<_>>(), live);
    append(&mut log, &Spec::new(1).build());
    // The active segment goes too once its successor has room, and until then it stays as the last.
    machine.clock.advance_ms(1_000_000);
    log.set_high_watermark(Offset(41));
    machine.faults.fail(FaultyCall::Create, ".log", CallError::NoSpace);
    assert_eq!(log.delete_old_segments(machine.clock.now_ms()).expect("others went"), 3);
    assert_eq!(offsets(&mut log), [40]);
    log.delete_old_segments(machine.clock.now_ms()).expect_err("there is no room for another segment");
    assert!(log.poison().is_none());
    machine.faults.heal();
    assert_eq!(log.delete_old_segments(machine.clock.now_ms()).expect("there is room"), 1);
    drop((dirs, log));
    let (_dirs, log) = machine.restart();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(41), Offset(41)));
}

/// As an earlier version left it: segments around one that could not be renamed are gone. Something else may
/// have renamed the one behind that.
#[test]
fn hole_left_by_retention_does_not_cut_the_log_and_is_damage() {
    let bench = Bench::with(LogConfig { file_delete_delay_ms: 60_000, ..config() });
    let mut log = bench.create();
    fill(&mut log, 10);
    drop(log);
    for base in [0, 8] {
        let path = bench.file(&log_name(base));
        std::fs::rename(&path, format!("{}.deleted", path.display())).expect("renames");
    }
    let mut log = bench.open_unclean();
    assert_eq!(log.end_at_gap().expect("it is looked through"), None);
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(4), Offset(40)));
    assert_eq!(log.damage(), Some(Damage::Unreadable(Offset(8))));
    assert!(bench.set_aside().is_empty());
}

#[test]
fn gap_is_ended_once_there_is_room_to_set_aside_what_is_behind_it() {
    let machine = Machine::new(LogConfig { retention_ms: -1, ..config() });
    let (dirs, _) = machine.open();
    let mut log = machine.create(&dirs);
    fill(&mut log, 5);
    drop((dirs, log));
    machine.disk.end_process();
    let emptied = Path::new("/data/t-0").join(log_name(8));
    Disk::in_memory(Arc::clone(&machine.disk)).open(&emptied).and_then(|file| file.set_len(0)).expect("cut");
    for (call, suffix) in [(FaultyCall::Rename, ".log"), (FaultyCall::Create, "-stray")] {
        machine.faults.fail(call, suffix, CallError::NoSpace);
        let (dirs, mut logs) = machine.open();
        let mut log = logs.pop().expect("the log is there");
        log.end_at_gap().expect_err("there is no room");
        // Neither served with the gap, nor a failure of the directory.
        assert!(log.poison().is_some());
        assert_eq!(dirs.online_ids().len(), 1);
        machine.faults.heal();
        drop((dirs, log));
        machine.disk.end_process();
    }
    let (_dirs, mut log) = machine.restart();
    assert_eq!(offsets(&mut log), [0, 4]);
    assert_eq!(log.log_end_offset(), Offset(8));
}

#[test]
fn log_that_waits_at_a_gap_takes_records_once_there_are_descriptors_or_room() {
    for failure in [CallError::TooManyOpen, CallError::NoSpace] {
        let machine = Machine::new(LogConfig { retention_ms: -1, ..config() });
        let (dirs, _) = machine.open();
        let mut log = machine.create(&dirs);
        fill(&mut log, 5);
        drop((dirs, log));
        machine.disk.end_process();
        let emptied = Path::new("/data/t-0").join(log_name(8));
        Disk::in_memory(Arc::clone(&machine.disk))
            .open(&emptied)
            .and_then(|file| file.set_len(0))
            .expect("cut");
        machine.faults.fail(FaultyCall::Create, "-stray", failure);
        let (dirs, mut logs) = machine.open();
        let mut log = logs.pop().expect("the log is there");
        for attempt in 0..3 {
            let (lines, ended) = warnings_of(|| log.end_at_gap());
            ended.expect_err("it cannot be set aside");
            assert!(log.waits_at_gap() && log.poison().is_some());
            let logged = lines.iter().filter(|line| line.contains("closed for appends")).count();
            assert_eq!(logged, usize::from(attempt == 0), "{lines:?}");
            let name = log.name().clone();
            dirs.keep_unopened(log);
            assert!(dirs.is_unopened(&name));
            let again = dirs.open_unopened(&name, Arc::new(machine.config.clone()));
            log = again.expect("it waits").expect("it is open");
        }
        machine.faults.heal();
        assert_eq!(log.end_at_gap().expect("there is room"), Some(Offset(8)));
        assert!(!log.waits_at_gap() && log.poison().is_none());
        assert_eq!(append(&mut log, &Spec::new(1).build()).first_offset, Offset(8));
        assert_eq!(offsets(&mut log), [0, 4, 8]);
    }
}

/// Flips a bit in the records of the batch at `position`.
fn flip(machine: &Machine, path: &Path, position: u64) {
    let file = Disk::in_memory(Arc::clone(&machine.disk)).open(path).expect("it is there");
    let mut byte = [0];
    file.read_at(&mut byte, position + 70).expect("reads");
    file.write_all_at(&[byte[0] ^ 1], position + 70).expect("writes");
}

#[test]
fn log_without_room_to_set_damaged_records_aside_is_kept_and_opened_later() {
    let copy = format!("-stray/{}", log_name(4));
    for (call, suffix) in [
        (FaultyCall::Create, "-stray"),
        (FaultyCall::Create, &*log_name(4)),
        (FaultyCall::Write, &log_name(4)),
        (FaultyCall::Rename, &log_name(12)),
    ] {
        let machine = Machine::new(LogConfig { segment_bytes: 650, ..config() });
        let (dirs, _) = machine.open();
        let mut log = machine.create(&dirs);
        fill(&mut log, 5);
        log.set_high_watermark(Offset(20));
        log.delete_records(Offset(2)).expect("deletes");
        let other = TopicPartition::new("other", 0);
        let mut whole = dirs.create(&other, None, Arc::new(machine.config.clone()), None).expect("creates");
        append(&mut whole, &Spec::new(1).build());
        dirs.checkpoint_high_watermarks();
        dirs.checkpoint_log_starts();
        assert_eq!(log.segment_offsets(), [Offset(0), Offset(12)]);
        drop((dirs, log, whole));
        machine.disk.end_process();
        // The second of the three batches in the first segment is damaged.
        let first = Path::new("/data/t-0").join(log_name(0));
        let read = || Disk::in_memory(Arc::clone(&machine.disk)).read(&first).expect("reads");
        let third = read().len() as u64 / 3;
        flip(&machine, &first, third);
        let damaged = read();
        machine.faults.fail(call, suffix, CallError::NoSpace);

        let (dirs, logs) = machine.open();
        assert_eq!(dirs.online_ids().len(), 1, "{call:?} {suffix}: {:?}", dirs.describe()[0].offline);
        assert_eq!(logs.iter().map(PartitionLog::name).collect::<Vec<_>>(), [&other]);
        assert!(read() == damaged);
        let name = TopicPartition::new("t", 0);
        assert!(dirs.is_unopened(&name) && dirs.are_full());
        let config = || Arc::new(machine.config.clone());
        dirs.create(&name, None, config(), None).expect_err("it is there");
        let again = |dirs: &LogDirs| dirs.open_unopened(&name, config()).expect("it waits");
        dirs.look_for_room();
        again(&dirs).expect_err("it has just been tried");
        machine.clock.advance_ms(10_000);
        again(&dirs).expect_err("there is still no room");
        assert!(read() == damaged);
        dirs.checkpoint_high_watermarks();
        dirs.checkpoint_log_starts();
        drop(logs);
        assert!(!dirs.close(1), "the next start is to look at it");
        drop(dirs);
        machine.disk.end_process();

        let (dirs, _logs) = machine.open();
        assert!(dirs.is_unopened(&name));
        machine.faults.heal();
        machine.clock.advance_ms(10_000);
        dirs.look_for_room();
        let mut log = again(&dirs).expect("there is room");
        assert!(!dirs.is_unopened(&name));
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(2), Offset(4)));
        assert_eq!(log.high_watermark(), Offset(4));
        let kept = machine.names().into_iter().filter(|name| name.ends_with(&copy)).count();
        assert_eq!(kept, 1, "{:?}", machine.names());
        assert_eq!(append(&mut log, &Spec::new(1).build()).first_offset, Offset(4));
    }
}

#[test]
fn segments_behind_damage_do_not_follow_the_cut_log() {
    for (call, suffix) in [(FaultyCall::Rename, log_name(8)), (FaultyCall::Rename, log_name(16))] {
        // Gaps are normal in a compacted log.
        let machine = Machine::new(LogConfig { cleanup_policy: CleanupPolicy::COMPACT, ..config() });
        let (dirs, _) = machine.open();
        let mut log = machine.create(&dirs);
        fill(&mut log, 5);
        drop((dirs, log));
        machine.disk.end_process();
        flip(&machine, &Path::new("/data/t-0").join(log_name(4)), 0);
        machine.faults.fail(call, &suffix, CallError::InputOutput);
        let refused = machine.try_to_open().map(drop);
        assert!(matches!(refused, Err(OpenError::NoDirectory(_))), "{refused:?}");
        let (_dirs, mut log) = machine.restart();
        assert_eq!((offsets(&mut log), log.log_end_offset()), (vec![0], Offset(4)), "{suffix}");
    }
}

#[test]
fn snapshot_that_had_no_room_at_a_recovery_does_not_take_the_place_of_others() {
    let machine = Machine::new(config());
    let (dirs, _) = machine.open();
    let mut log = machine.create(&dirs);
    append(&mut log, &Spec::new(4).timestamp(NOW_MS).producer(9, 0, 0).build());
    fill(&mut log, 5);
    drop((dirs, log));
    machine.disk.end_process();
    machine.faults.fail(FaultyCall::Create, ".snapshot", CallError::NoSpace);
    machine.faults.fail(FaultyCall::Rename, ".snapshot", CallError::NoSpace);
    let (dirs, mut logs) = machine.open();
    machine.faults.heal();
    let mut log = logs.pop().expect("the log is there");
    log.set_high_watermark(log.log_end_offset());
    machine.clock.advance_ms(5_000);
    log.delete_old_segments(machine.clock.now_ms()).expect("some are old");
    assert!(log.log_start_offset() > Offset(4));
    log.purge_deleted(i64::MAX);
    log.close().expect("closes");
    drop(log);
    dirs.close(1);
    let (_dirs, log) = machine.restart();
    assert_eq!(log.producer(ProducerId(9)).map(|producer| producer.last_sequence()), Some(3));
}

#[test]
fn hole_below_the_log_start_does_not_cut_the_log() {
    let bench = Bench::with(config());
    let mut log = bench.create();
    fill(&mut log, 10);
    drop(log);
    std::fs::remove_file(bench.file(&log_name(8))).expect("removes");
    let options = thalweg_log::OpenOptions { log_start: Offset(14), ..thalweg_log::OpenOptions::new(false) };
    let mut log = bench.open(&options);
    assert_eq!(log.end_at_gap().expect("it is looked through"), None);
    assert_eq!(log.log_end_offset(), Offset(40));
    assert!(bench.set_aside().is_empty());
}

#[test]
fn empty_segment_of_a_failed_roll_takes_nothing_with_it() {
    let machine = Machine::new(config());
    let (dirs, _) = machine.open();
    let mut log = machine.create(&dirs);
    fill(&mut log, 3);
    drop((dirs, log));
    machine.disk.end_process();
    // The roll at offset 10 failed, and what it had created stayed.
    let disk = Disk::in_memory(Arc::clone(&machine.disk));
    drop(disk.open_or_create(&PathBuf::from("/data/t-0").join(log_name(10))).expect("creates"));
    let (_dirs, mut log) = machine.restart();
    assert_eq!(offsets(&mut log), [0, 4, 8]);
    assert!(!machine.names().contains(&format!("t-0/{}", log_name(10))));
    assert!(machine.names().iter().all(|name| !name.contains("-stray")));
}

#[test]
fn truncation_of_acknowledged_records_waits_for_room() {
    for refused in [FaultyCall::Write, FaultyCall::Create, FaultyCall::Rename] {
        let machine = Machine::new(LogConfig { segment_bytes: 1000, ..config() });
        let (dirs, _) = machine.open();
        let mut log = machine.create(&dirs);
        fill(&mut log, 20);
        let segments = log.segment_offsets();
        let (last, to) = (segments[segments.len() - 1], segments[1] + 5);
        let before = offsets(&mut log);
        let suffix =
            if refused == FaultyCall::Rename { format!("{:020}.log", segments[2].0) } else { String::new() };
        machine.faults.fail(refused, &suffix, CallError::NoSpace);
        for _ in 0..3 {
            let failed = log.truncate_to(to);
            assert!(matches!(failed, Err(LogError::Io(_))), "{refused:?}: {failed:?}");
            assert_eq!(log.poison(), None, "{refused:?}");
        }
        let strays = machine.names().iter().filter(|name| name.contains("-stray")).count();
        assert!(strays <= 5 * segments.len(), "attempts do not pile up");
        // What is left in the log is served, and is there after a crash.
        let end = log.log_end_offset();
        assert!(end > to && (refused == FaultyCall::Create || end <= last), "{refused:?}: {end}");
        let left: Vec<i64> = before.iter().copied().filter(|base| *base < end.0).collect();
        assert_eq!(offsets(&mut log), left);
        machine.faults.heal();
        assert!(log.truncate_to(to).expect("there is room"));
        let left: Vec<i64> = before.iter().copied().filter(|base| base + 4 <= to.0).collect();
        assert_eq!(offsets(&mut log), left);
        drop((dirs, log));
        let (_dirs, mut log) = machine.restart();
        assert_eq!(offsets(&mut log), left);
        let aside = machine.disk.files().into_iter().filter(|(path, _)| {
            path.to_string_lossy().contains("-stray/") && path.extension().is_some_and(|end| end == "log")
        });
        let bytes: usize = aside.map(|(_, bytes)| bytes.len()).sum();
        assert!(bytes > 0, "{refused:?}");
    }
}

#[test]
fn lack_of_descriptors_does_not_stop_a_log_that_is_to_be_truncated() {
    let machine = Machine::new(LogConfig { segment_bytes: 1000, ..config() });
    let (_dirs, _) = machine.open();
    let mut log = machine.create(&_dirs);
    fill(&mut log, 20);
    log.set_high_watermark(Offset(0));
    log.release_idle_resources().expect("closes");
    machine.faults.fail(FaultyCall::Open, "", CallError::TooManyOpen);
    log.truncate_to(Offset(10)).expect_err("no file can be opened");
    assert_eq!((log.poison(), log.log_end_offset()), (None, Offset(80)));
    machine.faults.heal();
    log.truncate_to(Offset(10)).expect("files can be opened");
    assert_eq!(offsets(&mut log), [0, 4]);
}

#[test]
fn restart_of_a_log_elsewhere_happens_as_a_whole_or_not_at_all() {
    let machine = Machine::new(config());
    let (dirs, _) = machine.open();
    let mut log = machine.create(&dirs);
    fill(&mut log, 10);
    let before = offsets(&mut log);
    machine.faults.fail(FaultyCall::Remove, "00000000000000000008.snapshot", CallError::InputOutput);
    log.truncate_fully_and_start_at(Offset(100), None).expect_err("a snapshot cannot be removed");
    assert_eq!((offsets(&mut log), log.log_end_offset()), (before.clone(), Offset(40)));
    assert!(log.poison().is_some());
    drop((dirs, log));
    let (_dirs, mut log) = machine.restart();
    assert_eq!(offsets(&mut log), before);
    assert_eq!(log.producer(ProducerId(7)).map(|producer| producer.last_sequence()), Some(39));
    log.truncate_fully_and_start_at(Offset(100), None).expect("they can be removed");
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(100), Offset(100)));
}

#[test]
fn snapshot_that_cannot_be_read_is_not_deleted() {
    let machine = Machine::new(config());
    let (dirs, _) = machine.open();
    let mut log = machine.create(&dirs);
    fill(&mut log, 10);
    // The batches of the producer are gone; only snapshots know it.
    log.delete_records(Offset(40)).expect("deletes");
    dirs.checkpoint_log_starts();
    log.close().expect("closes");
    assert!(dirs.close(1));
    drop((dirs, log));
    machine.disk.end_process();
    for failure in [CallError::TooManyOpen, CallError::InputOutput] {
        machine.faults.fail(FaultyCall::Read, ".snapshot", failure);
        match machine.try_to_open() {
            Ok(_) => panic!("{failure:?}: it is the only directory"),
            Err(OpenError::TooManyOpenFiles(_)) => assert_eq!(failure, CallError::TooManyOpen),
            Err(OpenError::NoDirectory(_)) => assert_eq!(failure, CallError::InputOutput),
            Err(error) => panic!("{failure:?}: {error}"),
        }
        machine.faults.heal();
        machine.disk.end_process();
    }
    let (_dirs, log) = machine.restart();
    assert_eq!(log.producer(ProducerId(7)).map(|producer| producer.last_sequence()), Some(39));
}

#[test]
fn checkpoint_that_cannot_be_read_is_not_overwritten() {
    let machine = Machine::new(config());
    let (dirs, _) = machine.open();
    let mut log = machine.create(&dirs);
    fill(&mut log, 3);
    log.delete_records(Offset(6)).expect("deletes");
    dirs.checkpoint_log_starts();
    drop((dirs, log));
    machine.disk.end_process();
    machine.faults.fail(FaultyCall::Read, "log-start-offset-checkpoint", CallError::InputOutput);
    let options = LogDirsOptions {
        disk: Disk::in_memory(Arc::clone(&machine.disk)).and_faults(Arc::clone(&machine.faults)),
        ..LogDirsOptions::new(vec![Path::new("/data").to_path_buf()], 1)
    };
    LogDirs::open(options, |_| Arc::default()).expect_err("the directory cannot be opened");
    let (_dirs, log) = machine.restart();
    assert_eq!(log.log_start_offset(), Offset(6));
}

#[test]
fn deleted_files_wait_by_elapsed_time_and_are_tried_again() {
    let machine = Machine::new(config());
    let (_dirs, _) = machine.open();
    let mut log = machine.create(&_dirs);
    fill(&mut log, 10);
    assert!(log.delete_old_segments(NOW_MS + 9_003).expect("deletes") > 0);
    let waiting = || machine.names().iter().filter(|name| name.ends_with(".deleted")).count();
    let count = waiting();
    assert!(count > 0);
    machine.clock.set_ms(1_000);
    machine.clock.advance_ms(500);
    machine.faults.fail(FaultyCall::Remove, ".log.deleted", CallError::InputOutput);
    log.purge_deleted(machine.clock.elapsed_ms());
    assert!(waiting() > 0 && waiting() < count, "the delay has passed although the wall clock was set back");
    machine.faults.heal();
    log.purge_deleted(machine.clock.elapsed_ms());
    assert!(waiting() > 0 && !log.is_at_rest(), "not at once again");
    machine.clock.advance_ms(60_000);
    log.purge_deleted(machine.clock.elapsed_ms());
    assert_eq!(waiting(), 0);
}

/// An index that cannot be renamed waits under its name, and is left alone where a new segment has the name.
#[test]
fn index_of_a_deleted_segment_is_removed_later() {
    let machine = Machine::new(LogConfig { index_interval_bytes: 0, segment_bytes: 1000, ..config() });
    let (_dirs, _) = machine.open();
    let mut log = machine.create(&_dirs);
    fill(&mut log, 20);
    machine.faults.fail(FaultyCall::Rename, ".index.deleted", CallError::InputOutput);
    assert!(log.delete_old_segments(NOW_MS + 19_003).expect("deletes") > 1);
    machine.faults.heal();
    let index = || machine.names().iter().any(|name| name.ends_with("00000000000000000000.index"));
    assert!(index());
    machine.clock.advance_ms(60_000);
    log.purge_deleted(machine.clock.elapsed_ms());
    assert!(!index());
}

/// Alone it would stand for records that are missing.
#[test]
fn index_of_a_deleted_segment_does_not_outlive_its_log() {
    let machine = Machine::new(LogConfig { index_interval_bytes: 0, segment_bytes: 1000, ..config() });
    let (dirs, _) = machine.open();
    let mut log = machine.create(&dirs);
    fill(&mut log, 20);
    machine.faults.fail(FaultyCall::Rename, ".index.deleted", CallError::InputOutput);
    assert!(log.delete_old_segments(NOW_MS + 19_003).expect("deletes") > 1);
    machine.clock.advance_ms(60_000);
    log.purge_deleted(machine.clock.elapsed_ms());
    drop((dirs, log));
    let (_dirs, log) = machine.restart();
    assert_eq!((log.damage(), log.lost_from()), (None, None));
}

#[test]
fn checkpoints_are_lowered_with_the_log() {
    let config = LogConfig { cleanup_policy: CleanupPolicy { compact: true, delete: true }, ..config() };
    let machine = Machine::new(LogConfig { min_cleanable_dirty_ratio: 0.0, ..config });
    let (dirs, _) = machine.open();
    let mut log = machine.create(&dirs);
    fill(&mut log, 10);
    compact(&mut log, NOW_MS + 9_003).expect("compacts");
    log.delete_records(Offset(30)).expect("deletes");
    log.flush().expect("syncs");
    dirs.checkpoint_log_starts();
    dirs.checkpoint_recovery_points();
    dirs.checkpoint_high_watermarks();
    assert!(log.cleaned_to() > Offset(4));
    log.truncate_to(Offset(4)).expect("it can be cut");
    let end = log.log_end_offset();
    assert!(end <= Offset(4));
    // The log grows beyond the old offsets before the next regular checkpoint.
    while log.log_end_offset() < Offset(45) {
        append(&mut log, &Spec::new(4).build());
    }
    log.flush().expect("syncs");
    let there = offsets(&mut log);
    drop((dirs, log));
    let (_dirs, mut log) = machine.restart();
    assert_eq!(offsets(&mut log), there, "nothing counts as deleted");
    assert!(log.cleaned_to() <= end, "nothing counts as compacted: {}", log.cleaned_to());
    assert!(log.high_watermark() <= end.max(log.log_start_offset()), "nothing counts as replicated");
}

#[test]
fn checkpoints_are_lowered_with_a_log_that_recovery_has_cut() {
    let config =
        LogConfig { cleanup_policy: CleanupPolicy::COMPACT, min_cleanable_dirty_ratio: 0.0, ..config() };
    let machine = Machine::new(config);
    let (dirs, _) = machine.open();
    let mut log = machine.create(&dirs);
    fill(&mut log, 10);
    compact(&mut log, NOW_MS + 9_003).expect("compacts");
    assert_eq!(log.cleaned_to(), Offset(36));
    drop((dirs, log));
    machine.disk.end_process();
    let disk = Disk::in_memory(Arc::clone(&machine.disk));
    for name in machine.names().iter().filter(|name| name.ends_with(".log") && !name.contains("0000.log")) {
        disk.remove(&Path::new("/data").join(name)).expect("removes");
    }
    let (dirs, mut log) = machine.restart();
    let end = log.log_end_offset();
    assert!(end < Offset(36));
    while log.log_end_offset() < Offset(60) {
        append(&mut log, &Spec::new(4).build());
    }
    drop((dirs, log));
    let (_dirs, log) = machine.restart();
    assert!(log.cleaned_to() <= end, "{}", log.cleaned_to());
}

#[test]
fn compaction_without_room_for_names_changes_nothing() {
    for suffix in [".log.swap", ".index.swap", ".timeindex.swap"] {
        let (machine, dirs, mut log) = compactable();
        let before = headers(&mut log);
        let job = log.plan_compaction(NOW_MS).expect("plans").expect("it is dirty");
        let outcome = job.run().expect("compacts");
        machine.faults.fail(FaultyCall::Rename, suffix, CallError::NoSpace);
        let swap = log.finish_compaction(&job, outcome).expect("a full disk is no failure");
        assert!(swap.is_none() && log.poison().is_none());
        job.discard();
        drop(job);
        assert!(machine.names().iter().all(|name| !name.ends_with(".swap") && !name.ends_with(".cleaned")));
        assert_eq!(headers(&mut log), before);
        machine.faults.heal();
        compact(&mut log, NOW_MS).expect("there is room");
        let after = headers(&mut log);
        assert!(after.len() < before.len());
        drop((dirs, log));
        let (_dirs, mut log) = machine.restart();
        assert_eq!(headers(&mut log), after);
    }
}

#[test]
fn compaction_goes_on_where_old_segments_cannot_be_renamed() {
    let (machine, dirs, mut log) = compactable();
    machine.faults.fail(FaultyCall::Rename, ".deleted", CallError::NoSpace);
    let before = log.size_bytes();
    let (lines, _) = warnings_of(|| compact(&mut log, NOW_MS).expect("old files are replaced and removed"));
    for name in ["0000.log", "0000.index", "0000.timeindex"] {
        assert!(lines.iter().any(|line| line.contains(name)), "{name}: {lines:?}");
    }
    let mut each_once = lines.clone();
    each_once.sort();
    each_once.dedup();
    assert_eq!(each_once.len(), lines.len(), "{lines:?}");
    assert!(log.poison().is_none() && log.size_bytes() < before);
    let after = headers(&mut log);
    let cleaned_to = log.cleaned_to();
    drop((dirs, log));
    let (_dirs, mut log) = machine.restart();
    assert_eq!((headers(&mut log), log.cleaned_to()), (after, cleaned_to));
}

/// An index of the old segment beside the empty log of the new one would tell of lost records.
#[test]
fn stop_while_a_segment_without_records_takes_its_place_is_no_damage() {
    for suffix in [".index", ".timeindex"] {
        let (machine, dirs, mut log) = compactable();
        let last_of_keys = last_of_keys(&mut log);
        let job = log.plan_compaction(NOW_MS).expect("plans").expect("it is dirty");
        let outcome = job.run().expect("compacts");
        let first = format!("t-0/{:020}{suffix}.cleaned", 0);
        assert!(!machine.names().contains(&first), "all records of the first segment are superseded");
        machine.faults.fail(FaultyCall::Rename, ".deleted", CallError::NoSpace);
        machine.faults.fail(FaultyCall::Remove, suffix, CallError::InputOutput);
        log.finish_compaction(&job, outcome).expect_err("an index can be neither renamed nor removed");
        drop(job);
        drop((dirs, log));
        let (_dirs, mut log) = machine.restart();
        assert_eq!(log.damage(), None, "{suffix}");
        assert_eq!(self::last_of_keys(&mut log), last_of_keys);
    }
}

#[test]
fn compaction_with_room_for_some_segments_replaces_these() {
    let (machine, dirs, mut log) = compactable();
    let job = log.plan_compaction(NOW_MS).expect("plans").expect("it is dirty");
    let outcome = job.run().expect("compacts");
    let mut swaps: Vec<_> =
        machine.names().into_iter().filter(|name| name.ends_with(".log.cleaned")).collect();
    swaps.sort();
    assert!(swaps.len() > 2, "{swaps:?}");
    machine.faults.fail(FaultyCall::Rename, &swaps[1].replace(".cleaned", ".swap"), CallError::NoSpace);
    let last_of_keys = last_of_keys(&mut log);
    let mut swap = log.finish_compaction(&job, outcome).expect("no failure").expect("one was replaced");
    let synced = swap.sync();
    log.complete_compaction(&mut swap, synced).expect("is on the medium");
    swap.write_checkpoint();
    drop(job);
    assert_eq!(log.cleaned_to(), Offset(0));
    assert!(machine.names().iter().all(|name| !name.ends_with(".swap") && !name.ends_with(".cleaned")));
    assert_eq!(self::last_of_keys(&mut log), last_of_keys);
    drop((dirs, log));
    let (_dirs, mut log) = machine.restart();
    assert_eq!(self::last_of_keys(&mut log), last_of_keys);
    log.set_high_watermark(log.log_end_offset());
    compact(&mut log, NOW_MS).expect("it is still dirty");
    assert_eq!(self::last_of_keys(&mut log), last_of_keys);
}

/// A log of several segments in which most records are superseded.
fn compactable() -> (Machine, LogDirs, PartitionLog) {
    let config = LogConfig {
        cleanup_policy: CleanupPolicy::COMPACT,
        segment_bytes: 500,
        min_cleanable_dirty_ratio: 0.0,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    };
    let machine = Machine::new(config);
    let (dirs, _) = machine.open();
    let mut log = machine.create(&dirs);
    for round in 0..30 {
        append(&mut log, &Spec::new(1 + round % 7).value_bytes(30).build());
    }
    log.set_high_watermark(log.log_end_offset());
    (machine, dirs, log)
}

/// The last offset of each key.
fn last_of_keys(log: &mut PartitionLog) -> std::collections::BTreeMap<Vec<u8>, i64> {
    let bytes = read_all(log, Offset(0), 1 << 20);
    let mut buffer = thalweg_record::DecompressBuffer::new(1 << 20);
    let mut last = std::collections::BTreeMap::new();
    for batch in thalweg_record::batches(&bytes) {
        let batch = batch.expect("whole");
        for record in batch.records(&mut buffer).expect("records") {
            let record = record.expect("a record");
            last.insert(record.key.expect("a key").to_vec(), record.offset.0);
        }
    }
    last
}

#[test]
fn log_is_overdue_by_any_dirty_segment() {
    let config = LogConfig {
        cleanup_policy: CleanupPolicy::COMPACT,
        max_compaction_lag_ms: 60_000,
        min_cleanable_dirty_ratio: 1.0,
        ..config()
    };
    let machine = Machine::new(config);
    let (_dirs, _) = machine.open();
    let mut log = machine.create(&_dirs);
    for old_ms in [0, 0, 100_000, 0, 0] {
        append(&mut log, &Spec::new(4).timestamp(NOW_MS - old_ms).build());
    }
    log.set_high_watermark(log.log_end_offset());
    assert!(log.dirtiness(NOW_MS).expect("is computed").is_some_and(|dirtiness| dirtiness.is_overdue));
    assert!(log.dirtiness(NOW_MS - 50_000).expect("is computed").is_none());
}
