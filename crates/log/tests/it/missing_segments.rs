//! Closed segments that something else has emptied, removed, or overwritten while the log was closed: no
//! reader may skip their records.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use thalweg_log::disk::{CallError, Disk, Faults, FaultyCall, MemoryDisk};
use thalweg_log::{
    AppendOptions, AppendOrigin, BatchFault, CleanupPolicy, Clock, Damage, LogConfig, LogDirs,
    LogDirsOptions, LogError, OpenOptions, PartitionLog, ReadError, TopicPartition, Uuid,
};
use thalweg_record::{Batch, ControlRecordType, LeaderEpoch, Offset, batches};

use crate::support::*;

type Lose = Box<dyn Fn(&Bench)>;
type Forget = fn(&mut PartitionLog);
type Arrange = Box<dyn Fn(&mut Bench, &mut OpenOptions)>;

const BATCHES_OF_SEGMENT: i64 = 3;
const SEGMENTS: i64 = 5;
pub const END: Offset = Offset(2 * BATCHES_OF_SEGMENT * SEGMENTS);
/// The base offsets of the segments that are tampered with, of the next, and of another.
pub const BASE: Offset = Offset(12);
pub const NEXT: Offset = Offset(18);
const OTHERS: [Offset; 2] = [Offset(6), NEXT];
/// That of the second.
const NEXT_OF_FIRST: Offset = Offset(6);

/// A closed log of several segments with some batches each.
pub fn closed() -> Bench {
    let config = LogConfig { segment_bytes: 480, index_interval_bytes: 100, ..LogConfig::default() };
    let bench = Bench::with(config);
    let mut log = bench.create();
    for index in 0..BATCHES_OF_SEGMENT * SEGMENTS {
        append(&mut log, &Spec::new(2).value_bytes(25).timestamp(NOW_MS + index * 1000).build());
    }
    let expected: Vec<_> = (0..SEGMENTS).map(|index| Offset(index * 2 * BATCHES_OF_SEGMENT)).collect();
    assert_eq!(log.segment_offsets(), expected);
    log.set_high_watermark(END);
    log.close().expect("closes");
    bench
}

pub fn open(bench: &Bench, clean: bool) -> PartitionLog {
    bench.open(&OpenOptions { recovery_point: END, high_watermark: END, ..OpenOptions::new(clean) })
}

fn remove(bench: &Bench, base: Offset, suffixes: &[&str]) {
    for suffix in suffixes {
        bench.disk.remove(&bench.home().file(base, suffix)).expect("removes");
    }
}

fn overwrite(bench: &Bench, base: Offset, other: Offset) {
    for suffix in [".log", ".index", ".timeindex"] {
        let bytes = bench.disk.read(&bench.home().file(other, suffix)).expect("the file is there");
        let file = bench.disk.open_or_create(&bench.home().file(base, suffix)).expect("opens");
        file.set_len(0).expect("is cut");
        file.write_all_at(&bytes, 0).expect("is written");
    }
}

/// The ways in which the records of a segment get lost, and whether a start knows of it before anything is
/// read.
fn ways() -> Vec<(&'static str, bool, Lose)> {
    let all = [".log", ".index", ".timeindex", ".snapshot"];
    let mut ways: Vec<(_, _, Lose)> = vec![
        ("emptied", true, Box::new(|bench| bench.write_file(&log_name(BASE.0), &[]))),
        ("without .log", true, Box::new(|bench| remove(bench, BASE, &[".log"]))),
        ("removed", false, Box::new(move |bench| remove(bench, BASE, &all))),
    ];
    for other in OTHERS {
        ways.push(("overwritten", false, Box::new(move |bench| overwrite(bench, BASE, other))));
    }
    ways
}

/// The offsets of the records that a reader gets from `from` on, and the damage that ends it.
pub fn offsets(log: &mut PartitionLog, from: Offset) -> (Vec<i64>, Option<LogError>) {
    offsets_to(log, from, END)
}

/// The same, below `to`.
pub fn offsets_to(log: &mut PartitionLog, mut from: Offset, to: Offset) -> (Vec<i64>, Option<LogError>) {
    let mut found = Vec::new();
    loop {
        let slice = match log.read(from, 200, to, true) {
            Ok(Some(slice)) => slice,
            Ok(None) => return (found, None),
            Err(ReadError::Log(error)) => return (found, Some(error)),
            Err(error) => panic!("{error}"),
        };
        let mut bytes = vec![0; slice.len];
        slice.file.read_at(&mut bytes, slice.position).expect("is read");
        for header in batches(&bytes).map(|batch| batch.expect("whole").header) {
            found.extend(header.base_offset.0..header.next_offset().0);
            from = header.next_offset();
        }
    }
}

#[test]
fn no_reader_skips_the_records_of_a_lost_segment() {
    for (what, is_known_at_once, lose) in ways() {
        for clean in [true, false] {
            let what = format!("{what}, clean: {clean}");
            let bench = closed();
            lose(&bench);
            let mut log = open(&bench, clean);
            assert_eq!(
                log.end_at_gap().expect("looks"),
                None,
                "{what}: all below the recovery point was synced"
            );
            if is_known_at_once {
                assert_eq!(log.damage(), Some(Damage::Unreadable(BASE)), "{what}");
            }
            for from in [Offset(0), BASE, Offset(13), NEXT - 1] {
                let (found, error) = offsets(&mut log, from);
                let expected: Vec<_> = (from.0.min(BASE.0)..BASE.0).collect();
                assert_eq!(found, expected, "{what}, from {from}");
                assert!(matches!(error, Some(LogError::Corrupt { .. })), "{what}, from {from}: {error:?}");
            }
            assert_eq!(log.damage(), Some(Damage::Unreadable(BASE)), "{what}");
            assert!(log.published().is_damaged());
            let (found, error) = offsets(&mut log, NEXT);
            assert_eq!((found, error.is_none()), ((NEXT.0..END.0).collect(), true), "{what}");
            assert!(bench.set_aside().is_empty(), "{what}: the other segments are sound");
            // A follower fetches it again.
            log.drop_damage().expect("drops");
            assert_eq!((log.damage(), log.log_end_offset(), log.poison()), (None, BASE, None), "{what}");
            (BASE.0..END.0).for_each(|_| _ = append(&mut log, &Spec::new(1).build()));
            let (found, error) = offsets(&mut log, Offset(0));
            assert_eq!((found, error.is_none()), ((0..END.0).collect(), true), "{what}");
        }
    }
}

#[test]
fn lost_segment_is_found_before_anybody_reads_it() {
    for (what, _, lose) in ways() {
        let bench = closed();
        lose(&bench);
        let mut log = open(&bench, true);
        while log.check_next_segment().expect("looks") {}
        assert_eq!(log.damage(), Some(Damage::Unreadable(BASE)), "{what}");
        log.delete_records(NEXT).expect("deletes");
        assert_eq!(log.damage(), None, "{what}: the records are deleted");
    }
}

#[test]
fn lost_first_segment_is_damage_until_its_records_are_there_or_deleted() {
    let first = NEXT_OF_FIRST;
    for clean in [true, false] {
        let bench = closed();
        remove(&bench, Offset(0), &[".log"]);
        for _ in 0..2 {
            let mut log = open(&bench, clean);
            assert_eq!(log.damage(), Some(Damage::Unreadable(Offset(0))), "clean: {clean}");
            assert_eq!(
                offsets(&mut log, first).0,
                (first.0..END.0).collect::<Vec<_>>(),
                "the others are sound"
            );
            log.close().expect("closes");
        }
        let mut log = open(&bench, clean);
        log.drop_damage().expect("drops");
        assert_eq!(
            (log.damage(), log.log_start_offset(), log.log_end_offset()),
            (None, Offset(0), Offset(0))
        );
        (0..END.0).for_each(|_| _ = append(&mut log, &Spec::new(1).build()));
        assert_eq!(offsets(&mut log, Offset(0)).0, (0..END.0).collect::<Vec<_>>());

        let bench = closed();
        remove(&bench, Offset(0), &[".log"]);
        let mut log = open(&bench, clean);
        log.delete_records(BASE).expect("deletes");
        assert_eq!(log.damage(), None, "the records are deleted");
        log.close().expect("closes");
        assert_eq!(open(&bench, clean).damage(), None);
    }
}

#[test]
fn index_before_the_first_segment_is_no_damage_where_its_records_were_deleted() {
    let cases: [(&str, Arrange); 2] = [
        ("by a client", Box::new(|_, options| options.log_start = NEXT_OF_FIRST)),
        (
            "killed between two renames",
            Box::new(|bench, options| {
                bench.write_file(&format!("{}.deleted", log_name(0)), &[]);
                options.clean = false;
            }),
        ),
    ];
    for (what, arrange) in cases {
        let mut bench = closed();
        remove(&bench, Offset(0), &[".log"]);
        let mut options = OpenOptions { recovery_point: END, high_watermark: END, ..OpenOptions::new(true) };
        arrange(&mut bench, &mut options);
        let log = bench.open(&options);
        assert_eq!((log.damage(), log.log_start_offset()), (None, NEXT_OF_FIRST), "{what}");
        assert!(!bench.disk.exists(&bench.home().file(Offset(0), ".index")), "{what}");
    }
}

#[test]
fn index_before_the_first_segment_is_damage_of_a_compacted_log() {
    for cleaned_to in [Offset(0), NEXT_OF_FIRST, END] {
        let mut bench = closed();
        bench.config.cleanup_policy = CleanupPolicy { compact: true, delete: false };
        bench.config.min_cleanable_dirty_ratio = 0.0;
        remove(&bench, Offset(0), &[".log"]);
        for clean in [true, false, false] {
            let options = OpenOptions {
                recovery_point: END,
                high_watermark: END,
                cleaned_to,
                ..OpenOptions::new(clean)
            };
            let mut log = bench.open(&options);
            assert_eq!(log.end_at_gap().expect("it is looked through"), None);
            assert_eq!(log.damage(), Some(Damage::Unreadable(Offset(0))), "compacted to {cleaned_to}");
            assert!(compact(&mut log, NOW_MS).is_none(), "a tombstone may have a value there");
        }
    }
}

/// A log without its first segment, of which the index is left.
pub fn without_beginning() -> Bench {
    let bench = closed();
    remove(&bench, Offset(0), &[".log"]);
    bench
}

#[test]
fn beginning_that_is_lost_in_part_is_damage() {
    let (all, some) = (OpenOptions { recovery_point: END, ..OpenOptions::new(true) }, Offset(3));
    for (what, options, from) in [
        ("the first records were deleted", OpenOptions { log_start: some, ..all.clone() }, some),
        (
            "the last ones were not synced",
            OpenOptions { recovery_point: some, ..OpenOptions::new(false) },
            Offset(0),
        ),
        ("no checkpoint says what was synced", OpenOptions::new(false), Offset(0)),
    ] {
        let log = without_beginning().open(&OpenOptions { high_watermark: END, ..options });
        assert_eq!(log.damage(), Some(Damage::Unreadable(from)), "{what}");
        assert_eq!((log.log_start_offset(), log.log_start_for_followers()), (NEXT_OF_FIRST, from), "{what}");
    }
}

#[test]
fn beginning_stays_lost_when_the_end_is_cut_but_not_when_all_is() {
    let bench = without_beginning();
    let mut log = open(&bench, true);
    log.truncate_to(END - 2).expect("cuts");
    assert_eq!(log.damage(), Some(Damage::Unreadable(Offset(0))));
    log.truncate_fully_and_start_at(Offset(500), None).expect("begins anew");
    append(&mut log, &Spec::new(1).build());
    log.close().expect("closes");
    let options = OpenOptions { recovery_point: Offset(501), ..OpenOptions::new(true) };
    assert_eq!((log.damage(), bench.open(&options).damage()), (None, None));
}

#[test]
fn lost_beginning_is_known_or_all_is_gone_whenever_its_replacement_ends() {
    for calls in 0.. {
        let mut bench = without_beginning();
        let (faults, real) = (Arc::new(Faults::default()), bench.disk.clone());
        bench.disk = Disk::with_faults(Arc::clone(&faults));
        let mut log = open(&bench, true);
        faults.fail_once_after(calls, CallError::InputOutput);
        let dropped = log.drop_damage();
        if faults.is_pending() {
            assert!(dropped.is_ok() && calls > 10, "{calls}");
            return;
        }
        drop(log);
        bench.disk = real;
        let log = open(&bench, false);
        let is_known = log.damage() == Some(Damage::Unreadable(Offset(0)));
        let is_empty = (log.log_start_offset(), log.log_end_offset()) == (Offset(0), Offset(0));
        assert!(is_known || is_empty, "{calls}: {:?} {:?}", log.damage(), log.log_end_offset());
    }
}

#[test]
fn segment_that_was_cut_off_before_excuses_no_records_that_are_missing() {
    for (base, lose) in [(BASE, &[".log"][..]), (NEXT, &[".log", ".index", ".timeindex", ".snapshot"])] {
        let bench = Bench::with(LogConfig { file_delete_delay_ms: 60_000, ..closed().config });
        let mut log = bench.create();
        let fill = |log: &mut PartitionLog, from: i64| {
            for _ in from..BATCHES_OF_SEGMENT * SEGMENTS {
                append(log, &Spec::new(2).value_bytes(25).build());
            }
        };
        fill(&mut log, 0);
        log.set_high_watermark(BASE - 2);
        log.truncate_to(BASE - 2).expect("cuts");
        fill(&mut log, BASE.0 / 2 - 1);
        log.set_high_watermark(END);
        log.flush().expect("syncs");
        drop(log);
        assert!(
            bench
                .names()
                .iter()
                .any(|name| name.starts_with(&log_name(base.0)) && name.ends_with(".deleted"))
        );
        remove(&bench, base, lose);
        let mut log = open(&bench, false);
        while log.check_next_segment().expect("looks") {}
        assert_eq!(log.damage(), Some(Damage::Unreadable(base)), "{base}");
    }
}

#[test]
fn lost_beginning_is_forgotten_when_it_is_deleted_or_accepted() {
    let ways: [(&str, Forget); 3] = [
        ("deleted exactly", |log| _ = log.delete_records(NEXT_OF_FIRST).expect("deletes")),
        ("deleted with more", |log| _ = log.delete_records(NEXT_OF_FIRST + 2).expect("deletes")),
        ("accepted", |log| log.accept_loss().expect("forgets")),
    ];
    for (what, forget) in ways {
        let bench = without_beginning();
        let mut log = open(&bench, true);
        log.delete_records(Offset(3)).expect("nothing is deleted");
        assert!(log.damage().is_some(), "{what}");
        forget(&mut log);
        assert_eq!((log.damage(), log.published().is_damaged()), (None, false), "{what}");
        assert_eq!(log.log_start_for_followers(), log.log_start_offset(), "{what}");
        log.close().expect("closes");
        assert_eq!(open(&bench, true).damage(), None, "{what}");
    }
}

#[test]
fn deletion_of_the_first_segment_is_no_damage_although_a_start_fails_behind_it() {
    let mut bench = without_beginning();
    bench.write_file(&format!("{}.deleted", log_name(0)), &[]);
    let (faults, real) = (Arc::new(Faults::default()), bench.disk.clone());
    bench.disk = Disk::with_faults(Arc::clone(&faults));
    faults.set_lacking_descriptors(true);
    let (name, config) = (TopicPartition::new("t", 0), Arc::new(bench.config.clone()));
    let clock = bench.clock.clone();
    PartitionLog::open(bench.home(), name, config, clock, &OpenOptions::new(false))
        .expect_err("it cannot be read");
    assert!(bench.names().iter().all(|name| !name.ends_with(".deleted")));
    bench.disk = real;
    assert_eq!(open(&bench, false).damage(), None);
}

#[test]
fn missing_records_are_named() {
    let bench = closed();
    remove(&bench, BASE, &[".log", ".index", ".timeindex", ".snapshot"]);
    let (lines, error) = warnings_of(|| {
        let mut log = open(&bench, true);
        offsets(&mut log, BASE);
        offsets(&mut log, BASE).1.expect("it is damage")
    });
    let lines: Vec<_> = lines.iter().filter(|line| line.contains("missing")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("partition=t-0") && lines[0].contains("12 to 17"), "{lines:?}");
    let LogError::Corrupt { segment, fault } = error else { panic!("{error}") };
    assert_eq!(segment, Offset(6));
    assert_eq!(fault.reason, BatchFault::Missing { from: BASE.0, to: NEXT.0 });
}

#[test]
fn gaps_of_other_origin_are_no_damage() {
    let all = [".log", ".index", ".timeindex", ".snapshot"];
    let gone: Vec<_> = (0..BASE.0).chain(NEXT.0..END.0).collect();
    let cases: [(&str, Arrange); 4] = [
        ("compacted now", Box::new(|bench, _| bench.config.cleanup_policy = CleanupPolicy::COMPACT)),
        ("compacted once", Box::new(|_, options| options.cleaned_to = Offset(24))),
        ("below the log start", Box::new(|_, options| options.log_start = NEXT)),
        (
            "deleted, and reappeared in part",
            Box::new(|bench, options| {
                bench.write_file(&format!("{}.deleted", log_name(BASE.0)), &[]);
                options.clean = false;
            }),
        ),
    ];
    for (what, arrange) in cases {
        let mut bench = closed();
        remove(&bench, BASE, &all);
        let mut options = OpenOptions { recovery_point: END, high_watermark: END, ..OpenOptions::new(true) };
        arrange(&mut bench, &mut options);
        let mut log = bench.open(&options);
        while log.check_next_segment().expect("looks") {}
        let start = log.log_start_offset();
        let (found, error) = offsets(&mut log, start);
        assert!(error.is_none(), "{what}: {error:?}");
        assert_eq!(found, gone.iter().copied().filter(|at| *at >= start.0).collect::<Vec<_>>(), "{what}");
        assert_eq!(log.damage(), None, "{what}");
    }
}

/// Several segments of a follower whose leader was compacted: gaps before the first batches of segments, and
/// within.
fn with_gaps() -> (Bench, PartitionLog, Vec<i64>) {
    let bench = Bench::with(LogConfig { segment_bytes: 480, ..LogConfig::default() });
    let mut log = bench.create();
    log.accept_gaps();
    let (mut base, mut found) = (3, Vec::new());
    for index in 0..12 {
        let batch = Spec::new(2).value_bytes(25).at(base, 0).build();
        log.append_as_follower(&batch, LeaderEpoch(0)).expect("accepted");
        found.extend([base, base + 1]);
        base += 2 + index % 3;
    }
    log.set_high_watermark(log.log_end_offset());
    log.flush().expect("syncs");
    log.close().expect("closes");
    (bench, log, found)
}

/// Checks that neither a start, a reader nor the background check finds damage in a closed log with gaps.
fn assert_is_whole(bench: &Bench, expected: &[i64]) {
    for reads_first in [true, false] {
        let mut log = bench.open_clean();
        log.set_high_watermark(log.log_end_offset());
        while !reads_first && log.check_next_segment().expect("looks") {}
        let (found, error) = offsets_to(&mut log, Offset(0), Offset(i64::MAX));
        assert!(error.is_none(), "reads first: {reads_first}: {error:?}");
        assert_eq!(found, expected);
        while log.check_next_segment().expect("looks") {}
        assert_eq!(log.damage(), None, "reads first: {reads_first}");
        log.close().expect("closes");
    }
}

#[test]
fn gaps_that_a_follower_took_over_are_no_damage_after_a_restart() {
    let (bench, log, expected) = with_gaps();
    assert!(log.segment_offsets().len() > 3);
    assert_is_whole(&bench, &expected);
}

#[test]
fn a_single_gap_before_the_first_batch_is_no_damage_after_a_restart() {
    let bench = Bench::with(LogConfig { segment_bytes: 480, ..LogConfig::default() });
    let mut log = bench.create();
    log.accept_gaps();
    for base in 3..12 {
        let batch = Spec::new(1).value_bytes(100).at(base, 0).build();
        log.append_as_follower(&batch, LeaderEpoch(0)).expect("accepted");
    }
    log.close().expect("closes");
    assert_is_whole(&bench, &(3..12).collect::<Vec<_>>());
}

/// Apache Kafka's followers begin a segment at its first batch, behind the gap.
fn rename_as_kafka_does(bench: &Bench, log: &PartitionLog) {
    let is_first_of =
        |base: Offset| Batch::parse(&bench.read_file(&log_name(base.0))).expect("a batch").header.base_offset;
    for base in log.segment_offsets().into_iter().skip(1) {
        for suffix in [".index", ".timeindex", ".snapshot"] {
            remove(bench, base, &[suffix]);
        }
        let name = |base| bench.home().file(base, ".log");
        bench.disk.rename(&name(base), &name(is_first_of(base))).expect("renames");
    }
}

#[test]
fn gaps_between_the_segments_of_a_kafka_follower_are_no_damage() {
    let (bench, log, expected) = with_gaps();
    rename_as_kafka_does(&bench, &log);
    let renamed = bench.open_clean().segment_offsets();
    assert_ne!(renamed, log.segment_offsets(), "some gaps lie between segments");
    assert_is_whole(&bench, &expected);
}

#[test]
fn emptied_segment_is_damage_among_gaps_too() {
    for kafka in [false, true] {
        let (bench, log, _) = with_gaps();
        if kafka {
            rename_as_kafka_does(&bench, &log);
        }
        let emptied = bench.open_clean().segment_offsets()[1];
        bench.write_file(&log_name(emptied.0), &[]);
        let mut log = bench.open_clean();
        // Without its indexes it may be one that compaction has left, until the policy is known.
        assert_eq!(log.damage(), (!kafka).then_some(Damage::Unreadable(emptied)));
        assert_eq!(log.end_at_gap().expect("looks"), None);
        assert_eq!(log.damage(), Some(Damage::Unreadable(emptied)));
        log.set_high_watermark(log.log_end_offset());
        while log.check_next_segment().expect("looks") {}
        let (_, error) = offsets_to(&mut log, emptied, Offset(i64::MAX));
        assert!(matches!(error, Some(LogError::Corrupt { .. })), "{error:?}");
        assert_eq!(log.damage(), Some(Damage::Unreadable(emptied)));
    }
}

#[test]
fn segment_without_its_log_is_damage_among_gaps_too() {
    let (bench, log, _) = with_gaps();
    let lost = log.segment_offsets()[1];
    remove(&bench, lost, &[".log"]);
    let mut log = bench.open_clean();
    let Some(Damage::Unreadable(from)) = log.damage() else { panic!("{:?}", log.damage()) };
    log.set_high_watermark(log.log_end_offset());
    while log.check_next_segment().expect("looks") {}
    let (_, error) = offsets_to(&mut log, Offset(0), Offset(i64::MAX));
    assert!(matches!(error, Some(LogError::Corrupt { .. })), "{error:?}");
    assert_eq!(log.damage(), Some(Damage::Unreadable(from)));
}

#[test]
fn first_batch_with_a_raised_offset_is_damage() {
    let bench = closed();
    let mut bytes = bench.read_file(&log_name(BASE.0));
    bytes[7] ^= 1;
    bench.write_file(&log_name(BASE.0), &bytes);
    let mut log = open(&bench, true);
    while log.check_next_segment().expect("looks") {}
    assert_eq!(log.damage(), Some(Damage::Unreadable(BASE)), "the second batch contradicts it");
}

#[test]
fn gaps_that_were_synced_are_not_fetched_again_after_a_crash() {
    let (bench, log, expected) = with_gaps();
    let end = log.log_end_offset();
    let newest = log.segment_offsets().pop().expect("there is one");
    // Nothing confirms the gap before the last batch of all.
    let last = Offset(expected[expected.len() - 3] + 1);
    for (recovery_point, doubtful_from) in [(end, last), (newest, newest)] {
        let options = OpenOptions { recovery_point, high_watermark: end, ..OpenOptions::new(false) };
        let mut log = bench.open(&options);
        assert_eq!(log.end_at_gap().expect("looks"), None, "the gaps lie within segments");
        assert_eq!(log.doubtful_from(), Some(doubtful_from), "synced to {recovery_point}");
        assert_eq!(offsets_to(&mut log, Offset(0), Offset(i64::MAX)).0, expected);
    }
}

/// A segment that a clean stop did not leave is not a part of the log, however it came there.
#[test]
fn segment_of_another_log_is_set_aside_after_a_clean_stop() {
    for bytes in [Vec::new(), Spec::new(2).at(1_000_000, 3).build()] {
        let bench = Bench::new();
        let mut log = bench.create();
        for _ in 0..3 {
            append(&mut log, &Spec::new(2).build());
        }
        log.close().expect("closes");
        let end = log.log_end_offset();
        drop(log);
        bench.write_file(&log_name(1_000_000), &bytes);
        let mut log = bench.open(&OpenOptions { recovery_point: end, ..OpenOptions::new(true) });
        log.end_at_gap().expect("it is looked through");
        assert_eq!(log.log_end_offset(), end);
        assert!(!bench.set_aside().is_empty());
        append(&mut log, &Spec::new(2).build());
    }
}

#[test]
fn segment_of_a_compacted_log_without_a_batch_is_damage() {
    let compacted = CleanupPolicy { compact: true, delete: false };
    let ways: [(&str, Lose); 2] = [
        ("emptied", Box::new(|bench| bench.write_file(&log_name(BASE.0), &[]))),
        ("without .log", Box::new(|bench| remove(bench, BASE, &[".log"]))),
    ];
    for (what, lose) in ways {
        for (clean, recovery_point) in [(true, END), (false, END), (false, Offset(0))] {
            let mut bench = closed();
            bench.config.cleanup_policy = compacted;
            lose(&bench);
            let options = OpenOptions { recovery_point, high_watermark: END, ..OpenOptions::new(clean) };
            let mut log = bench.open(&options);
            assert_eq!(log.damage(), Some(Damage::Unreadable(BASE)), "{what} {clean} {recovery_point}");
            log.drop_damage().expect("drops");
            assert_eq!((log.damage(), log.log_end_offset()), (None, BASE), "{what}");
            drop(log);
            for cleaned_to in [NEXT, END] {
                let mut bench = closed();
                bench.config.cleanup_policy = compacted;
                lose(&bench);
                let log = bench.open(&OpenOptions { cleaned_to, ..options.clone() });
                assert_eq!(log.damage(), Some(Damage::Unreadable(BASE)), "{what}, compacted to {cleaned_to}");
            }
        }
    }
}

/// A start opens logs before the metadata says which topics are compacted.
#[test]
fn segment_without_a_batch_is_damage_once_the_log_is_known_to_be_compacted() {
    let all = [".log", ".index", ".timeindex", ".snapshot"];
    let ways: [(&str, bool, Lose); 3] = [
        ("emptied", true, Box::new(|bench| bench.write_file(&log_name(BASE.0), &[]))),
        ("without .log", true, Box::new(|bench| remove(bench, BASE, &[".log"]))),
        ("never there", false, Box::new(move |bench| remove(bench, BASE, &all))),
    ];
    for (what, is_seen, lose) in ways {
        for is_compacted in [true, false] {
            let bench = closed();
            lose(&bench);
            let mut log = bench.open(&OpenOptions { high_watermark: END, ..OpenOptions::new(false) });
            assert_eq!(log.damage(), None, "{what}: it may be what a power failure left");
            if is_compacted {
                let cleanup_policy = CleanupPolicy { compact: true, delete: false };
                log.set_config(Arc::new(LogConfig { cleanup_policy, ..bench.config.clone() }));
            }
            let cut_to = log.end_at_gap().expect("it is looked through");
            let damage = (is_compacted && is_seen).then_some(Damage::Unreadable(BASE));
            assert_eq!(
                (log.damage(), cut_to),
                (damage, (!is_compacted).then_some(BASE)),
                "{what} {is_compacted}"
            );
        }
    }
}

#[test]
fn what_a_start_saw_of_a_compacted_log_outlives_processes_until_the_records_are_there_or_deleted() {
    let compacted = CleanupPolicy { compact: true, delete: true };
    let ways: [(&str, Lose); 2] = [
        ("emptied", Box::new(|bench| bench.write_file(&log_name(BASE.0), &[]))),
        ("without .log", Box::new(|bench| remove(bench, BASE, &[".log"]))),
    ];
    let ends: [(&str, Forget); 4] = [
        ("fetched again", |log| {
            log.drop_damage().expect("drops");
            (BASE.0..END.0).for_each(|_| _ = append(log, &Spec::new(1).build()));
        }),
        ("cut", |log| _ = log.truncate_to(BASE - 2).expect("cuts")),
        ("deleted", |log| _ = log.delete_records(NEXT).expect("deletes")),
        ("accepted", |log| log.accept_loss().expect("forgets")),
    ];
    for (what, lose) in &ways {
        for (ending, end) in &ends {
            let bench = closed();
            lose(&bench);
            let options = OpenOptions { high_watermark: END, ..OpenOptions::new(false) };
            let config = Arc::new(LogConfig { cleanup_policy: compacted, ..bench.config.clone() });
            let start = |knows_policy: bool| {
                let mut log = bench.open(&options);
                if knows_policy {
                    log.set_config(Arc::clone(&config));
                    assert_eq!(log.end_at_gap().expect("it is looked through"), None);
                }
                log
            };
            for knows_policy in [false, false, true, true] {
                let log = start(knows_policy);
                let damage = knows_policy.then_some(Damage::Unreadable(BASE));
                assert_eq!(log.damage(), damage, "{what}, {ending}");
            }
            let mut log = start(true);
            end(&mut log);
            drop(log);
            assert!(bench.names().iter().all(|name| !name.ends_with(".missing")), "{what}, {ending}");
            assert_eq!(start(true).damage(), None, "{what}, {ending}");
        }
    }
}

#[test]
fn log_without_compaction_keeps_no_marks_of_what_was_never_written() {
    let bench = closed();
    bench.write_file(&log_name(BASE.0), &[]);
    let mut log = bench.open(&OpenOptions { high_watermark: END, ..OpenOptions::new(false) });
    assert_eq!(log.end_at_gap().expect("it is looked through"), Some(BASE));
    assert!(bench.names().iter().all(|name| !name.ends_with(".missing")));
}

#[test]
fn compaction_ends_before_records_that_are_missing() {
    let mut bench = closed();
    bench.config.cleanup_policy = CleanupPolicy { compact: true, delete: false };
    bench.config.min_cleanable_dirty_ratio = 0.0;
    bench.write_file(&log_name(BASE.0), &[]);
    let mut log = open(&bench, true);
    assert_eq!(log.damage(), Some(Damage::Unreadable(BASE)));
    compact(&mut log, NOW_MS).expect("something is below");
    assert_eq!(log.cleaned_to(), BASE);
    assert!(compact(&mut log, NOW_MS).is_none());
    drop(log);
    let cleaned = OpenOptions { cleaned_to: BASE, high_watermark: END, ..OpenOptions::new(false) };
    assert_eq!(bench.open(&cleaned).damage(), Some(Damage::Unreadable(BASE)));
}

/// Compacts a log; in one of three cases the process ends before that is on the medium, and in another a call
/// may fail while segments are replaced. Returns whether it goes on.
fn compacts(random: &mut SmallRng, log: &mut PartitionLog, faults: &Faults) -> bool {
    let Ok(Some(job)) = log.plan_compaction(NOW_MS) else { return log.poison().is_none() };
    let Ok(outcome) = job.run() else { return false };
    let is_armed = random.random_range(0..3) == 0;
    if is_armed {
        faults.fail_once_after(random.random_range(0..20), CallError::InputOutput);
    }
    let finished = log.finish_compaction(&job, outcome);
    if is_armed {
        faults.heal();
    }
    let Ok(Some(mut swap)) = finished else { return false };
    if random.random_range(0..3) == 0 {
        return false;
    }
    let synced = swap.sync();
    let is_done = log.complete_compaction(&mut swap, synced).is_ok();
    if random.random_range(0..3) > 0 {
        swap.write_checkpoint();
    }
    is_done
}

/// Appends a transaction that is aborted, of a producer that has no other. Returns whether both appends
/// worked.
fn aborts(log: &mut PartitionLog, batch: Spec, producer: i64) -> bool {
    let batch = batch.producer(producer, 0, 0).transactional().build();
    let marker = marker(producer, 0, ControlRecordType::Abort, 0);
    let options = AppendOptions { origin: AppendOrigin::Coordinator, ..AppendOptions::default() };
    log.append_as_leader(&batch, LeaderEpoch(0), AppendOptions::default()).is_ok()
        && log.append_as_leader(&marker, LeaderEpoch(0), options).is_ok()
}

#[test]
fn no_stop_of_a_compacted_log_looks_like_damage() {
    let (mut stops, mut struck_count, mut cleaned, mut unsynced_losses) = (0, 0, 0, 0);
    for seed in 0..200 {
        let mut random = SmallRng::seed_from_u64(seed);
        let (clock, faults) = (Clock::manual(NOW_MS), Arc::new(Faults::default()));
        let disk = MemoryDisk::new(clock.clone());
        disk.set_names_apart(random.random_range(0..2) == 0);
        let base = LogConfig {
            segment_bytes: 480,
            index_interval_bytes: random.random_range(0..200),
            min_cleanable_dirty_ratio: 0.0,
            file_delete_delay_ms: 0,
            ..LogConfig::default()
        };
        let cleanup_policy = CleanupPolicy { compact: true, delete: true };
        let compacted = Arc::new(LogConfig { cleanup_policy, ..base.clone() });
        let open = || {
            let disk = Disk::in_memory(Arc::clone(&disk)).and_faults(Arc::clone(&faults));
            let options = LogDirsOptions::new(vec!["/data".into()], 1);
            let options = LogDirsOptions { disk, clock: clock.clone(), threads: 1, ..options };
            let (dirs, mut logs) = LogDirs::open(options, |_| Arc::new(base.clone())).expect("opens");
            let mut log = logs.pop().unwrap_or_else(|| {
                let name = TopicPartition::new("t", 0);
                dirs.create(&name, Some(Uuid::random()), Arc::new(base.clone()), None).expect("creates")
            });
            log.set_config(Arc::clone(&compacted));
            log.end_at_gap().expect("looks");
            (dirs, log)
        };
        let (mut dirs, mut log) = open();
        let mut producers = 0;
        for _ in 0..12 {
            let fails_at = random.random_range(0..30);
            let (mut was_flushed, mut is_struck, mut loses_unsynced) = (false, false, false);
            for count in 0..random.random_range(0..15) {
                let is_armed = count == fails_at;
                if is_armed {
                    faults.fail_once_after(random.random_range(0..20), CallError::InputOutput);
                }
                let (start, end) = (log.log_start_offset(), log.log_end_offset());
                log.set_high_watermark(end);
                let kind = random.random_range(0..14);
                let goes_on = match kind {
                    0..=1 => {
                        was_flushed = log.flush().is_ok();
                        let goes_on = compacts(&mut random, &mut log, &faults);
                        cleaned += usize::from(log.cleaned_to() > Offset(0));
                        goes_on
                    }
                    2 => log.delete_records(Offset(random.random_range(start.0..=end.0))).is_ok(),
                    3 => log.truncate_to(Offset(random.random_range((end.0 - 8).max(0)..=end.0))).is_ok(),
                    4 => log.flush().is_ok(),
                    5 => {
                        dirs.checkpoint_recovery_points();
                        dirs.checkpoint_log_starts();
                        true
                    }
                    6 => {
                        log.purge_deleted(i64::MAX);
                        true
                    }
                    _ => {
                        was_flushed = false;
                        let batch = Spec::new(random.random_range(1..4)).value_bytes(25);
                        if random.random_range(0..3) > 0 {
                            log.append_as_leader(&batch.build(), LeaderEpoch(0), Default::default()).is_ok()
                        } else {
                            producers += 1;
                            aborts(&mut log, batch, producers)
                        }
                    }
                };
                if is_armed {
                    is_struck = !faults.is_pending();
                    faults.heal();
                }
                if !goes_on {
                    break;
                }
            }
            stops += 1;
            struck_count += usize::from(is_struck);
            match random.random_range(0..3) {
                0 => {
                    let _ = log.close();
                    dirs.close(42);
                    disk.end_process();
                }
                1 => {
                    loses_unsynced = !was_flushed;
                    disk.lose_power(&mut |end| random.random_range(0..end));
                }
                _ => disk.end_process(),
            }
            unsynced_losses += usize::from(loses_unsynced);
            (dirs, log) = open();
            // A compacted log is not cut where a power failure has emptied a segment.
            let is_unreadable = matches!(log.damage(), Some(Damage::Unreadable(_)));
            assert!(!is_unreadable || loses_unsynced, "seed {seed}: {:?}", log.damage());
            assert!(log.damage().is_none() || is_struck || is_unreadable, "seed {seed}: {:?}", log.damage());
            if is_unreadable {
                log.drop_damage().expect("drops");
            }
            log.accept_loss().expect("forgets");
        }
    }
    assert!(stops > 1000 && struck_count > 30 && cleaned > 100, "{stops} {struck_count} {cleaned}");
    assert!(unsynced_losses > 300, "{unsynced_losses}");
}

/// The checkpoint of recovery points is older than the last roll: the first records of the segment were
/// synced, and the others may not be.
#[test]
fn segment_that_was_synced_in_part_is_damage_too() {
    for (what, _, lose) in ways() {
        let bench = closed();
        lose(&bench);
        let recovery_point = BASE + 2;
        let options = OpenOptions { recovery_point, high_watermark: END, ..OpenOptions::new(false) };
        let mut log = bench.open(&options);
        log.end_at_gap().expect("looks");
        let (found, _) = offsets(&mut log, Offset(0));
        let expected: Vec<_> = (0..BASE.0).collect();
        assert_eq!(found, expected, "{what}");
        while log.check_next_segment().expect("looks") {}
        assert!(log.damage().is_some(), "{what}");
    }
}

#[test]
fn what_a_start_saw_is_judged_before_a_compaction_if_it_could_not_be_judged_before() {
    let mut bench = closed();
    remove(&bench, BASE, &[".log"]);
    let faults = Arc::new(Faults::default());
    bench.disk = Disk::with_faults(Arc::clone(&faults));
    let mut log = bench.open(&OpenOptions { high_watermark: END, ..OpenOptions::new(false) });
    let cleanup_policy = CleanupPolicy { compact: true, delete: false };
    let config = LogConfig { cleanup_policy, min_cleanable_dirty_ratio: 0.0, ..bench.config.clone() };
    log.set_config(Arc::new(config));
    faults.set_lacking_descriptors(true);
    log.end_at_gap().expect_err("nothing can be opened");
    faults.set_lacking_descriptors(false);
    log.set_high_watermark(END);
    while compact(&mut log, NOW_MS).is_some() {}
    assert_eq!((log.damage(), log.cleaned_to()), (Some(Damage::Unreadable(BASE)), BASE));
}

/// Compaction leaves empty segments without entries in their indexes, too.
#[test]
fn empty_segment_that_is_damage_stays_damage_when_the_topic_becomes_compacted() {
    let mut bench = closed();
    for suffix in [".log", ".index", ".timeindex"] {
        bench.write_file(&format!("{:020}{suffix}", BASE.0), &[]);
    }
    let mut log = open(&bench, true);
    assert_eq!((log.damage(), log.end_at_gap().expect("looks")), (None, None));
    assert_eq!(log.damage(), Some(Damage::Unreadable(BASE)));
    drop(log);
    bench.config.cleanup_policy = CleanupPolicy { compact: true, delete: false };
    assert_eq!(open(&bench, false).damage(), Some(Damage::Unreadable(BASE)));
}

/// The replacement of an empty segment, which an earlier one had left, was undone when its batches were
/// removed.
#[test]
fn index_of_a_replacement_that_was_undone_is_no_sign_of_lost_records() {
    let mut bench = closed();
    bench.config.cleanup_policy = CleanupPolicy { compact: true, delete: false };
    for suffix in [".index", ".timeindex"] {
        let name = bench.home().file(BASE, suffix);
        bench.disk.rename(&name, &name.with_extension(format!("{}.swap", &suffix[1..]))).expect("renames");
    }
    bench.write_file(&log_name(BASE.0), &[]);
    for clean in [true, false] {
        let mut log = open(&bench, clean);
        assert_eq!((log.damage(), log.end_at_gap().expect("looks")), (None, None));
        assert!(bench.names().iter().all(|name| !name.ends_with(".swap")));
    }
}

#[test]
fn start_that_has_no_room_for_a_mark_leaves_the_traces() {
    let ways: [(&str, Lose); 2] = [
        ("emptied", Box::new(|bench| bench.write_file(&log_name(BASE.0), &[]))),
        ("without .log", Box::new(|bench| remove(bench, BASE, &[".log"]))),
    ];
    for (what, lose) in ways {
        let mut bench = closed();
        lose(&bench);
        let (faults, real) = (Arc::new(Faults::default()), bench.disk.clone());
        bench.disk = Disk::with_faults(Arc::clone(&faults));
        faults.fail(FaultyCall::Create, ".missing", CallError::NoSpace);
        let (name, config) = (TopicPartition::new("t", 0), Arc::new(bench.config.clone()));
        let clock = bench.clock.clone();
        let opened = PartitionLog::open(bench.home(), name, config, clock, &OpenOptions::new(false));
        assert!(matches!(opened, Err(LogError::Io(_))), "{what}: {opened:?}");
        bench.disk = real;
        bench.config.cleanup_policy = CleanupPolicy { compact: true, delete: false };
        let log = bench.open(&OpenOptions { high_watermark: END, ..OpenOptions::new(false) });
        assert_eq!(log.damage(), Some(Damage::Unreadable(BASE)), "{what}");
    }
}
