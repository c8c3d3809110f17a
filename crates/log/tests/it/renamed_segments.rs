//! Segments behind the first whose logs have the names of deleted ones: only a compaction gives them such
//! names.

use std::path::PathBuf;
use std::sync::Arc;

use thalweg_log::{CleanupPolicy, Damage, LogConfig, OpenOptions, PartitionLog};
use thalweg_record::Offset;

use crate::missing_segments::{BASE, END, NEXT, closed, offsets, open};
use crate::support::*;

fn renamed(bench: &Bench, base: Offset) -> PathBuf {
    bench.file(&format!("{}.deleted", log_name(base.0)))
}

/// A closed log, a segment of whose middle has the name of a deleted one.
fn with_renamed() -> Bench {
    let bench = closed();
    bench.disk.rename(&bench.file(&log_name(BASE.0)), &renamed(&bench, BASE)).expect("renames");
    bench
}

/// Opens a log as a broker does whose topic is not compacted.
fn opened(bench: &Bench, options: &OpenOptions) -> PartitionLog {
    let mut log = bench.open(options);
    assert_eq!(log.end_at_gap().expect("it is looked through"), None);
    log
}

#[test]
fn records_in_a_log_with_the_name_of_a_deleted_one_are_missing_and_the_file_stays() {
    for (clean, recovery_point) in [(true, END), (false, END), (false, BASE), (false, Offset(0))] {
        let bench = with_renamed();
        let options = OpenOptions { recovery_point, high_watermark: END, ..OpenOptions::new(clean) };
        for start in 0..2 {
            let mut log = opened(&bench, &options);
            assert_eq!(
                log.damage(),
                Some(Damage::Unreadable(BASE)),
                "start {start}, synced to {recovery_point}"
            );
            let (found, error) = offsets(&mut log, Offset(0));
            assert_eq!((found, error.is_some()), ((0..BASE.0).collect(), true));
            log.accept_loss().expect("forgets");
            log.purge_deleted(i64::MAX);
            assert!(bench.disk.exists(&renamed(&bench, BASE)), "start {start}");
        }
        bench.disk.rename(&renamed(&bench, BASE), &bench.file(&log_name(BASE.0))).expect("renames");
        let mut log = opened(&bench, &options);
        let (found, error) = offsets(&mut log, Offset(0));
        assert_eq!((log.damage(), error.is_none()), (None, true));
        assert_eq!(found, (0..END.0).collect::<Vec<_>>(), "it has its name again");
    }
}

#[test]
fn neighbours_with_names_of_deleted_ones_stay_all() {
    let bench = with_renamed();
    bench.disk.rename(&bench.file(&log_name(NEXT.0)), &renamed(&bench, NEXT)).expect("renames");
    for _ in 0..2 {
        let mut log = opened(&bench, &OpenOptions { high_watermark: END, ..OpenOptions::new(false) });
        assert_eq!(log.damage(), Some(Damage::Unreadable(BASE)));
        log.purge_deleted(i64::MAX);
        assert!([BASE, NEXT].iter().all(|base| bench.disk.exists(&renamed(&bench, *base))));
    }
}

#[test]
fn log_with_the_name_of_a_deleted_one_goes_once_its_records_are_there_again() {
    let bench = with_renamed();
    let options = OpenOptions { recovery_point: END, high_watermark: END, ..OpenOptions::new(false) };
    let mut log = opened(&bench, &options);
    log.drop_damage().expect("drops");
    assert_eq!((log.damage(), log.log_end_offset()), (None, BASE));
    log.purge_deleted(i64::MAX);
    assert!(bench.disk.exists(&renamed(&bench, BASE)), "no other log has the records yet");
    (BASE.0 - 1..END.0).for_each(|_| _ = append(&mut log, &Spec::new(1).build()));
    drop(log);
    let mut log = opened(&bench, &options);
    log.purge_deleted(i64::MAX);
    assert_eq!(log.damage(), None);
    assert!(!bench.disk.exists(&renamed(&bench, BASE)));
}

#[test]
fn log_with_the_name_of_a_deleted_one_is_damage_of_a_log_with_one_writer() {
    let bench = with_renamed();
    let options = OpenOptions {
        recovery_point: END,
        high_watermark: END,
        synced_to: Some(END),
        ..OpenOptions::new(true)
    };
    assert_eq!(bench.open(&options).damage(), Some(Damage::Unreadable(BASE)));
}

#[test]
fn logs_that_a_compaction_has_replaced_go_once_the_log_is_known_to_be_compacted() {
    let mut bench = closed();
    bench.config.file_delete_delay_ms = 60_000;
    let unknown = bench.config.clone();
    bench.config = LogConfig {
        cleanup_policy: CleanupPolicy::COMPACT,
        min_cleanable_dirty_ratio: 0.0,
        segment_bytes: 2000,
        ..bench.config
    };
    let mut log = open(&bench, true);
    compact(&mut log, NOW_MS).expect("it is dirty");
    assert_eq!(log.segment_offsets().len(), 2, "one for all that were closed");
    drop(log);
    let config = Arc::new(std::mem::replace(&mut bench.config, unknown));
    let deleted = || bench.names().iter().filter(|name| name.ends_with(".log.deleted")).count();
    for _ in 0..2 {
        let mut log = open(&bench, false);
        while log.check_next_segment().expect("looks") {}
        assert!(deleted() > 1, "compaction may have replaced them");
        assert_eq!(log.damage(), None);
    }
    let mut log = open(&bench, false);
    log.set_config(config);
    assert_eq!(log.end_at_gap().expect("it is looked through"), None);
    log.purge_deleted(i64::MAX);
    assert_eq!((log.damage(), deleted()), (None, 0));
}

/// A compacted log whose process was killed right after a compaction, with the files that this has replaced.
fn just_compacted() -> (Bench, OpenOptions, Vec<Offset>) {
    let mut bench = Bench::with(LogConfig {
        cleanup_policy: CleanupPolicy::COMPACT,
        min_cleanable_dirty_ratio: 0.0,
        segment_bytes: 600,
        index_interval_bytes: 100,
        file_delete_delay_ms: 60_000,
        ..LogConfig::default()
    });
    let mut log = bench.create();
    // Some keys of each batch are in no later one.
    for records in (1..=12).rev() {
        append(&mut log, &Spec::new(records).value_bytes(25).build());
    }
    log.set_high_watermark(log.log_end_offset());
    bench.config.segment_bytes = 300;
    log.set_config(Arc::new(bench.config.clone()));
    compact(&mut log, NOW_MS).expect("it is dirty");
    let log_end = log.log_end_offset();
    let options = OpenOptions { recovery_point: log_end, high_watermark: log_end, ..OpenOptions::new(false) };
    let segments = log.segment_offsets();
    assert!(segments.len() > 4, "{segments:?}");
    (bench, options, segments)
}

#[test]
fn segment_that_is_missing_after_a_compaction_is_damage() {
    let ways = [(0, false), (0, true), (2, false), (2, true)];
    for ((at, empties), is_earlier) in ways.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let (bench, options, segments) = just_compacted();
        let base = segments[at];
        let replaced: Vec<_> =
            bench.names().into_iter().filter(|name| name.ends_with(".cut.deleted")).collect();
        assert!(replaced.contains(&format!("{}.cut.deleted", log_name(base.0))), "{replaced:?}");
        if is_earlier {
            // Earlier versions, and Apache Kafka, give them the names of deleted ones.
            for name in replaced {
                let earlier = bench.file(&name.replace(".cut", ""));
                bench.disk.rename(&bench.file(&name), &earlier).expect("renames");
            }
        }
        match empties {
            true => bench.write_file(&log_name(base.0), &[]),
            false => bench.disk.remove(&bench.file(&log_name(base.0))).expect("removes"),
        }
        for start in 0..3 {
            let mut log = bench.open(&options);
            assert_eq!(log.end_at_gap().expect("it is looked through"), None);
            let Some(Damage::Unreadable(from)) = log.damage() else {
                panic!("start {start}: {base} is missing, emptied: {empties}")
            };
            assert!(from <= base && at.checked_sub(1).is_none_or(|before| from > segments[before]), "{from}");
            log.purge_deleted(i64::MAX);
        }
    }
}

#[test]
fn kill_while_a_compacted_segment_is_deleted_is_no_damage() {
    for (renames, is_restarted) in (1..=3).flat_map(|renames| [(renames, true), (renames, false)]) {
        let (bench, options, segments) = just_compacted();
        if is_restarted {
            drop(bench.open(&options));
        }
        for suffix in &[".log", ".index", ".timeindex"][..renames] {
            let path = bench.home().file(segments[0], suffix);
            let deleted = bench.home().file(segments[0], &format!("{suffix}.deleted"));
            bench.disk.rename(&path, &deleted).expect("renames");
        }
        let log = bench.open(&options);
        assert_eq!((log.damage(), log.log_start_offset()), (None, segments[1]), "{renames}, {is_restarted}");
    }
}

#[test]
fn empty_log_with_the_name_of_a_deleted_one_excuses_no_index_with_entries() {
    for (named, clean) in [(BASE, true), (BASE, false), (BASE + 2, true), (BASE + 2, false)] {
        let bench = closed();
        bench.disk.remove(&bench.file(&log_name(BASE.0))).expect("removes");
        bench.write_file(&format!("{}.deleted", log_name(named.0)), &[]);
        let options = OpenOptions { recovery_point: END, high_watermark: END, ..OpenOptions::new(clean) };
        for _ in 0..2 {
            assert_eq!(opened(&bench, &options).damage(), Some(Damage::Unreadable(BASE)), "{named}, {clean}");
        }
    }
}
