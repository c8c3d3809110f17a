//! A log whose leader has lost its beginning: it remembers that those records were not deleted, whatever
//! happens to it.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use thalweg_log::disk::{CallError, Disk, Faults, FaultyCall, MemoryDisk};
use thalweg_log::{
    AppendOptions, Clock, Damage, Home, LogConfig, LogDirs, LogDirsOptions, OpenOptions, PartitionLog,
    TopicPartition, Uuid,
};
use thalweg_record::{LeaderEpoch, Offset, batches};

use crate::missing_segments::{closed, open, without_beginning};
use crate::support::*;

/// A log that was restarted where its leader's begins, which has lost the records from 3 on. It had the first
/// six.
fn restarted(bench: &Bench) -> PartitionLog {
    let mut log = bench.create();
    for _ in 0..3 {
        append(&mut log, &Spec::new(2).build());
    }
    log.set_high_watermark(Offset(6));
    log.restart_with_lost_beginning(Offset(20), Offset(3)).expect("restarts");
    append(&mut log, &Spec::new(2).build());
    log
}

fn reopened(bench: &Bench, clean: bool) -> PartitionLog {
    bench.open(&OpenOptions { high_watermark: Offset(22), ..OpenOptions::new(clean) })
}

#[test]
fn what_a_leader_has_lost_is_remembered_until_it_is_deleted_there() {
    let bench = Bench::new();
    let mut log = restarted(&bench);
    for _ in 0..2 {
        assert_eq!((log.damage(), log.log_start_offset()), (None, Offset(20)), "it is as good as the leader");
        assert_eq!(log.log_start_for_followers(), Offset(3));
        log.close().expect("closes");
        log = reopened(&bench, true);
    }
    log.forget_lost_beginning_below(Offset(2)).expect("nothing changes");
    assert!(log.lacks_what_a_leader_lacked());
    log.compare_beginning(Offset(20));
    assert_eq!(log.damage(), None);
    log.compare_beginning(Offset(10));
    assert_eq!(log.damage(), Some(Damage::Unreadable(Offset(3))), "the present leader has some of it");
    let mut log = reopened(&bench, false);
    assert_eq!(log.damage(), None);
    log.forget_lost_beginning_below(Offset(20)).expect("forgets");
    assert_eq!(log.log_start_for_followers(), Offset(20));
    drop(log);
    assert_eq!(reopened(&bench, false).log_start_for_followers(), Offset(20));
}

#[test]
fn records_that_only_a_follower_has_are_set_aside_when_it_restarts_behind_them() {
    let bench = Bench::new();
    drop(restarted(&bench));
    let [aside] = &bench.set_aside()[..] else { panic!("one directory") };
    let bytes = bench.disk.read(&aside.join(log_name(3))).expect("the end of the segment");
    let offsets: Vec<_> = batches(&bytes).map(|batch| batch.expect("whole").header.base_offset).collect();
    assert_eq!(offsets, [Offset(2), Offset(4)], "with the whole batch of the first");
}

#[test]
fn mark_is_left_when_the_log_is_cut_or_fetched_again_behind_it() {
    let bench = without_beginning();
    let mut log = open(&bench, true);
    log.truncate_to(Offset(3)).expect("cuts");
    assert_eq!((log.log_end_offset(), log.log_start_for_followers()), (Offset(3), Offset(0)));

    let bench = closed();
    let mut log = open(&bench, true);
    log.restart_with_lost_beginning(Offset(100), Offset(0)).expect("restarts");
    (0..6).for_each(|_| _ = append(&mut log, &Spec::new(2).value_bytes(25).build()));
    let (end, bytes) = (log.log_end_offset(), log.size_bytes() as usize / 2);
    assert_eq!(log.segment_offsets(), [Offset(100), Offset(106)]);
    log.set_high_watermark(end);
    log.close().expect("closes");
    bench.write_file(&log_name(100), &vec![0xA5; bytes]);
    let options = OpenOptions { recovery_point: end, high_watermark: end, ..OpenOptions::new(true) };
    let mut log = bench.open(&options);
    log.read(Offset(100), 100, end, true).expect_err("it is damaged");
    assert_eq!(log.damage(), Some(Damage::Unreadable(Offset(100))));
    log.drop_damage().expect("drops");
    assert_eq!(log.log_start_for_followers(), Offset(0), "the records before are lost as before");
}

#[test]
fn restart_with_a_lost_beginning_leaves_the_old_log_or_the_memory_of_it_whenever_it_ends() {
    for calls in 0.. {
        let mut bench = Bench::new();
        let mut log = bench.create();
        append(&mut log, &Spec::new(2).build());
        log.set_high_watermark(Offset(2));
        log.close().expect("closes");
        let (faults, real) = (Arc::new(Faults::default()), bench.disk.clone());
        bench.disk = Disk::with_faults(Arc::clone(&faults));
        let mut log = open(&bench, true);
        faults.fail_once_after(calls, CallError::InputOutput);
        let restarted = log.restart_with_lost_beginning(Offset(20), Offset(0));
        if faults.is_pending() {
            assert!(restarted.is_ok() && calls > 5, "{calls}");
            return;
        }
        drop(log);
        bench.disk = real;
        let log = open(&bench, false);
        let is_old = (log.log_start_for_followers(), log.log_end_offset()) == (Offset(0), Offset(2));
        let is_empty = (log.log_start_offset(), log.log_end_offset()) == (Offset(0), Offset(0));
        let is_known = (log.log_start_for_followers(), log.log_start_offset()) == (Offset(0), Offset(20));
        assert!(
            is_old || is_empty || is_known,
            "{calls}: {:?}..{:?}",
            log.log_start_offset(),
            log.log_end_offset()
        );
    }
}

/// A log directory with small segments, and the logs in it.
fn open_dirs(dir: &TempDir) -> (LogDirs, Vec<PartitionLog>) {
    let options = LogDirsOptions::new(vec![dir.path().to_path_buf()], 1);
    LogDirs::open(options, |_| small()).expect("opens")
}

fn small() -> Arc<LogConfig> {
    Arc::new(LogConfig { segment_bytes: 480, index_interval_bytes: 100, ..LogConfig::default() })
}

fn create(dirs: &LogDirs) -> PartitionLog {
    dirs.create(&TopicPartition::new("t", 0), Some(Uuid::random()), small(), None).expect("creates")
}

#[test]
fn lost_beginning_is_known_at_each_start() {
    for is_clean in [false, true] {
        let dir = TempDir::new();
        let (dirs, _) = open_dirs(&dir);
        let mut log = create(&dirs);
        for _ in 0..15 {
            append(&mut log, &Spec::new(2).value_bytes(25).build());
        }
        log.set_high_watermark(log.log_end_offset());
        log.flush().expect("syncs");
        dirs.checkpoint_recovery_points();
        dirs.checkpoint_high_watermarks();
        drop((log, dirs));
        std::fs::remove_file(dir.path().join("t-0").join(log_name(0))).expect("removes");
        for start in 0..3 {
            let (dirs, mut logs) = open_dirs(&dir);
            let mut log = logs.pop().expect("it is there");
            assert_eq!(log.damage(), Some(Damage::Unreadable(Offset(0))), "start {start}");
            assert_eq!(log.log_start_for_followers(), Offset(0), "start {start}");
            if is_clean {
                log.close().expect("closes");
                drop(log);
                dirs.close(42);
            }
        }
    }
}

#[test]
fn mark_outlives_a_clean_stop_with_what_was_deleted_since() {
    let dir = TempDir::new();
    let (dirs, _) = open_dirs(&dir);
    let mut log = create(&dirs);
    append(&mut log, &Spec::new(2).build());
    log.restart_with_lost_beginning(Offset(100), Offset(0)).expect("restarts");
    log.delete_records(Offset(30)).expect("nothing is there to delete");
    assert_eq!(log.log_start_for_followers(), Offset(30));
    log.close().expect("closes");
    drop(log);
    dirs.close(42);
    drop(dirs);
    let (_dirs, logs) = open_dirs(&dir);
    assert_eq!((logs[0].log_start_offset(), logs[0].log_start_for_followers()), (Offset(100), Offset(30)));
}

/// The beginning of a log as it is known: the first lost offset, where it begins, and where it ends.
fn bounds(log: &PartitionLog) -> (Option<i64>, i64, i64) {
    (log.lost_from().map(|from| from.0), log.log_start_offset().0, log.log_end_offset().0)
}

/// A restart at 20 that fails at each of its calls, and what the next start makes of a log.
fn restarts_that_fail(prepare: fn(&mut PartitionLog), options: &OpenOptions) -> Vec<(Option<i64>, i64, i64)> {
    let mut found = Vec::new();
    for calls in 0.. {
        let mut bench = Bench::new();
        let (faults, real) = (Arc::new(Faults::default()), bench.disk.clone());
        bench.disk = Disk::with_faults(Arc::clone(&faults));
        let mut log = bench.create();
        prepare(&mut log);
        faults.fail_once_after(calls, CallError::InputOutput);
        let restarted = log.restart_with_lost_beginning(Offset(50), Offset(3));
        if faults.is_pending() {
            assert!(restarted.is_ok() && calls > 5, "{calls}");
            return found;
        }
        drop(log);
        bench.disk = real;
        found.push(bounds(&bench.open(options)));
    }
    found
}

#[test]
fn mark_of_a_restart_that_was_interrupted_is_left_over() {
    let begins_at_5 = |log: &mut PartitionLog| {
        log.truncate_fully_and_start_at(Offset(5), None).expect("restarts");
        append(log, &Spec::new(2).build());
    };
    let found = restarts_that_fail(begins_at_5, &OpenOptions::new(false));
    let expected = [(None, 5, 7), (None, 5, 5), (None, 0, 0), (Some(3), 50, 50)];
    assert!(found.iter().all(|found| expected.contains(found)), "{found:?}");
    assert!([0, 3].iter().all(|index| found.contains(&expected[*index])), "{found:?}");
}

#[test]
fn interrupted_restart_leaves_what_was_lost_before_it() {
    let has_lost = |log: &mut PartitionLog| {
        log.restart_with_lost_beginning(Offset(20), Offset(3)).expect("restarts");
        append(log, &Spec::new(2).build());
    };
    let found = restarts_that_fail(has_lost, &OpenOptions::new(false));
    let expected = [(Some(3), 20, 22), (Some(3), 20, 20), (None, 0, 0), (Some(3), 50, 50)];
    assert!(found.iter().all(|found| expected.contains(found)), "{found:?}");
    assert!([0, 3].iter().all(|index| found.contains(&expected[*index])), "{found:?}");
}

#[test]
fn mark_that_a_deletion_has_overtaken_is_left_over() {
    let config = LogConfig { segment_bytes: 480, ..LogConfig::default() };
    let bench = Bench::with(config);
    let mut log = bench.create();
    log.restart_with_lost_beginning(Offset(20), Offset(3)).expect("restarts");
    (0..9).for_each(|_| _ = append(&mut log, &Spec::new(2).value_bytes(25).build()));
    let second = log.segment_offsets()[1];
    log.close().expect("closes");
    // The process ended between the deletion of the segment and that of the mark.
    for suffix in [".log", ".index", ".timeindex"] {
        let path = bench.home().file(Offset(20), suffix);
        let renamed = path.with_extension(format!("{}.deleted", &suffix[1..]));
        bench.disk.rename(&path, &renamed).expect("renames");
    }
    for _ in 0..2 {
        let log = bench.open_unclean();
        assert_eq!((log.lost_from(), log.log_start_offset()), (None, second));
    }
}

#[test]
fn deletion_of_a_mark_is_on_the_medium() {
    let (clock, config) = (Clock::manual(NOW_MS), LogConfig::default());
    let disk = MemoryDisk::new(clock.clone());
    disk.set_names_apart(true);
    let home = || Home::new(Disk::in_memory(Arc::clone(&disk)), "/t-0".into());
    let name = || TopicPartition::new("t", 0);
    let mut log =
        PartitionLog::create(home(), name(), None, Arc::new(config.clone()), clock.clone()).expect("creates");
    log.restart_with_lost_beginning(Offset(20), Offset(3)).expect("restarts");
    append(&mut log, &Spec::new(2).build());
    log.flush().expect("syncs");
    log.set_high_watermark(log.log_end_offset());
    log.delete_records(Offset(20)).expect("they are gone already");
    assert_eq!(log.lost_from(), None);
    disk.lose_power(&mut |_| 0);
    let log = PartitionLog::open(home(), name(), Arc::new(config), clock, &OpenOptions::new(false));
    assert_eq!(bounds(&log.expect("opens")), (None, 20, 22));
}

#[test]
fn beginning_that_the_leader_has_deleted_is_no_damage() {
    let bench = without_beginning();
    let mut log = open(&bench, true);
    log.forget_lost_beginning_below(Offset(4)).expect("some of it");
    assert_eq!(log.damage(), Some(Damage::Unreadable(Offset(4))));
    let first = log.log_start_offset();
    log.forget_lost_beginning_below(first).expect("all of it");
    assert_eq!((log.damage(), log.lost_from()), (None, None));
    drop(log);
    assert_eq!(open(&bench, false).damage(), None);
}

/// The effect that a step of a history may have on the memory of a lost beginning.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    MayLose,
    MayForget,
    Neither,
}

/// One step of a history of a log that loses its beginning, and gets over it.
fn step(random: &mut SmallRng, dirs: &LogDirs, log: &mut PartitionLog) -> (Effect, bool) {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    let (followers_start, at) = (log.log_start_for_followers(), end + random.random_range(1..20));
    log.set_high_watermark(end);
    match random.random_range(0..14) {
        0 => {
            let lost_from = Offset(random.random_range(followers_start.0..=end.0));
            (Effect::MayLose, log.restart_with_lost_beginning(at, lost_from).is_ok())
        }
        1 => (Effect::MayForget, log.truncate_fully_and_start_at(at, None).is_ok()),
        2 => (Effect::MayForget, log.forget_lost_beginning_below(start).is_ok()),
        3 => {
            let below = Offset(random.random_range(followers_start.0..=start.0));
            (Effect::MayForget, log.forget_lost_beginning_below(below).is_ok())
        }
        4 => {
            let offset = Offset(random.random_range(start.0..=end.0));
            (Effect::MayForget, log.delete_records(offset).is_ok())
        }
        5 => {
            let offset = Offset(random.random_range((start.0 - 10).max(0)..=end.0));
            (Effect::MayForget, log.truncate_to(offset).is_ok())
        }
        6 => (Effect::Neither, log.flush().is_ok()),
        7 => {
            dirs.checkpoint_log_starts();
            (Effect::Neither, true)
        }
        8 => {
            dirs.checkpoint_recovery_points();
            (Effect::Neither, true)
        }
        _ => {
            let batch = Spec::new(2).value_bytes(25).build();
            (Effect::Neither, log.append_as_leader(&batch, LeaderEpoch(0), AppendOptions::default()).is_ok())
        }
    }
}

#[test]
fn loss_of_a_beginning_is_neither_forgotten_nor_invented_by_any_stop() {
    let (mut known, mut failed) = ([0; 2], 0);
    for seed in 0..300 {
        let mut random = SmallRng::seed_from_u64(seed);
        let (clock, faults) = (Clock::manual(NOW_MS), Arc::new(Faults::default()));
        let disk = MemoryDisk::new(clock.clone());
        disk.set_names_apart(random.random_range(0..2) == 0);
        let open = || {
            let disk = Disk::in_memory(Arc::clone(&disk)).and_faults(Arc::clone(&faults));
            let options = LogDirsOptions::new(vec!["/data".into()], 1);
            let options = LogDirsOptions { disk, clock: clock.clone(), threads: 1, ..options };
            let (dirs, mut logs) = LogDirs::open(options, |_| small()).expect("opens");
            let log = logs.pop().unwrap_or_else(|| create(&dirs));
            (dirs, log)
        };
        let (mut dirs, mut log) = open();
        let mut failed_here = false;
        for _ in 0..12 {
            let (mut before, mut last) = (log.lost_from(), (Effect::Neither, true));
            let fails_at = random.random_range(0..24);
            for count in 0..random.random_range(0..12) {
                if count == fails_at {
                    faults.fail_once_after(random.random_range(0..12), CallError::InputOutput);
                }
                before = log.lost_from();
                last = step(&mut random, &dirs, &mut log);
                if !last.1 {
                    break;
                }
            }
            let is_struck = fails_at < 12 && !faults.is_pending();
            faults.heal();
            let (now, start) = (log.lost_from(), log.log_start_for_followers());
            match random.random_range(0..3) {
                0 => {
                    let _ = log.close();
                    dirs.close(42);
                    disk.end_process();
                }
                1 => disk.end_process(),
                _ => disk.lose_power(&mut |end| random.random_range(0..end)),
            }
            (dirs, log) = open();
            log.end_at_gap().expect("looks");
            let found = log.lost_from();
            if last.1 && !is_struck {
                known[usize::from(now.is_some())] += 1;
                assert_eq!(found.is_some(), now.is_some(), "seed {seed}: {found:?}, and it was {now:?}");
                assert!(found.is_none_or(|found| found <= start), "seed {seed}: {found:?} after {start}");
                assert!(log.damage().is_none() || failed_here, "seed {seed}: {:?}", log.damage());
            } else {
                (failed, failed_here) = (failed + 1, true);
                let is_known = before.is_some() || now.is_some() || last.0 == Effect::MayLose;
                assert!(found.is_none() || is_known, "seed {seed}: {found:?} is invented");
                let may_forget = before.is_none() || now.is_none() || last.0 != Effect::Neither;
                assert!(found.is_some() || may_forget, "seed {seed}: {before:?} is forgotten");
            }
        }
    }
    assert!(known.iter().all(|count| *count > 300) && failed > 100, "{known:?} {failed}");
}

#[test]
fn index_that_cannot_be_set_aside_with_its_segment_is_no_sign_of_a_loss() {
    let mut bench = closed();
    let (faults, real) = (Arc::new(Faults::default()), bench.disk.clone());
    bench.disk = Disk::with_faults(Arc::clone(&faults));
    let mut log = open(&bench, true);
    let last = log.segment_offsets().pop().expect("there are some");
    faults.fail(FaultyCall::Rename, &format!("{:020}.timeindex", last.0), CallError::InputOutput);
    log.restart_with_lost_beginning(Offset(100), Offset(3)).expect("restarts");
    log.forget_lost_beginning_below(Offset(100)).expect("forgets");
    drop(log);
    bench.disk = real;
    let log = open(&bench, false);
    assert_eq!((log.lost_from(), log.log_start_offset()), (None, Offset(100)));
}

/// The checkpoint of log starts is written from it before the copy takes the place of the log.
#[test]
fn copy_publishes_what_it_has_adopted() {
    let (bench, other) = (Bench::new(), Bench::new());
    let log = restarted(&bench);
    let mut copy = other.create();
    copy.truncate_fully_and_start_at(Offset(20), None).expect("restarts");
    copy.adopt_lost_beginning(&log).expect("adopts");
    assert_eq!(copy.published().log_start_for_followers(), Offset(3));
    assert_eq!(bounds(&other.open_unclean()), (Some(3), 20, 20));
}
