//! Letting old records go.

use thalweg_log::{CleanupPolicy, Damage, DeleteRecordsError, LogConfig, OpenOptions};
use thalweg_record::{LeaderEpoch, Offset};

use crate::support::*;

/// One batch of 4 records per segment, a second apart.
fn filled(bench: &Bench, segments: i64) -> thalweg_log::PartitionLog {
    let mut log = bench.create();
    for index in 0..segments {
        append(&mut log, &Spec::new(4).timestamp(NOW_MS + index * 1000).build());
    }
    assert_eq!(log.segment_offsets().len() as i64, segments);
    log
}

fn config() -> LogConfig {
    LogConfig { segment_bytes: 250, file_delete_delay_ms: 500, ..LogConfig::default() }
}

#[test]
fn old_segments_go_when_they_are_replicated() {
    let bench = Bench::with(LogConfig { retention_ms: 3500, ..config() });
    let mut log = filled(&bench, 10);
    let now_ms = NOW_MS + 9_003;
    assert_eq!(log.delete_old_segments(now_ms).expect("deletes"), 0, "nothing is replicated");
    log.set_high_watermark(Offset(15));
    assert_eq!(log.delete_old_segments(now_ms).expect("deletes"), 3);
    assert_eq!(log.log_start_offset(), Offset(12));
    log.set_high_watermark(Offset(40));
    assert_eq!(log.delete_old_segments(now_ms).expect("deletes"), 3);
    assert_eq!(log.segment_offsets()[0], Offset(24));
    assert_eq!(log.leader_epochs(), [(LeaderEpoch(0), Offset(24))]);
    let deleted = bench.names().iter().filter(|name| name.ends_with(".log.deleted")).count();
    assert_eq!(deleted, 6);
    log.purge_deleted(NOW_MS + 499);
    assert!(bench.names().iter().any(|name| name.ends_with(".deleted")));
    log.purge_deleted(NOW_MS + 500);
    assert!(!bench.names().iter().any(|name| name.ends_with(".deleted")));
}

#[test]
fn all_segments_may_go_and_the_log_goes_on() {
    let bench = Bench::with(LogConfig { retention_ms: 10, ..config() });
    let mut log = filled(&bench, 3);
    log.set_high_watermark(Offset(12));
    assert_eq!(log.delete_old_segments(NOW_MS + 100_000).expect("deletes"), 3);
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(12), Offset(12)));
    assert_eq!(log.segment_offsets(), [Offset(12)]);
    assert_eq!(log.delete_old_segments(NOW_MS + 200_000).expect("an empty segment stays"), 0);
    drop(log);
    let mut log = bench.open_unclean();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(12), Offset(12)));
    append(&mut log, &Spec::new(1).build());
    assert_eq!(log.log_end_offset(), Offset(13));
}

#[test]
fn segments_go_by_size() {
    let bench = Bench::with(config());
    let mut log = filled(&bench, 10);
    log.set_high_watermark(Offset(40));
    let one = log.size_bytes() / 10;
    let retention_bytes = i64::try_from(3 * one + one / 2).expect("small");
    log.set_config(std::sync::Arc::new(LogConfig { retention_bytes, ..config() }));
    assert_eq!(log.delete_old_segments(NOW_MS).expect("deletes"), 6);
    assert!(log.size_bytes() >= retention_bytes as u64);
    assert_eq!(log.delete_old_segments(NOW_MS).expect("deletes"), 0);
    log.set_config(std::sync::Arc::new(LogConfig { retention_bytes: 0, ..config() }));
    assert_eq!(log.delete_old_segments(NOW_MS).expect("deletes"), 4);
}

#[test]
fn a_log_that_is_only_compacted_keeps_its_segments() {
    let bench =
        Bench::with(LogConfig { retention_ms: 1, cleanup_policy: CleanupPolicy::COMPACT, ..config() });
    let mut log = filled(&bench, 4);
    log.set_high_watermark(Offset(16));
    assert_eq!(log.delete_old_segments(NOW_MS + 1_000_000).expect("deletes"), 0);
}

#[test]
fn a_log_that_is_closed_promises_no_deletion() {
    let bench = Bench::with(config());
    let mut log = filled(&bench, 5);
    log.set_high_watermark(Offset(18));
    log.close().expect("closes");
    let refused = log.delete_records(Offset(10));
    assert!(matches!(refused, Err(DeleteRecordsError::Log(_))), "{refused:?}");
    assert_eq!(log.log_start_offset(), Offset(0));
}

#[test]
fn deleted_records_stay_deleted() {
    let bench = Bench::with(config());
    let mut log = filled(&bench, 5);
    log.set_high_watermark(Offset(18));
    let beyond = log.delete_records(Offset(19));
    assert!(matches!(beyond, Err(DeleteRecordsError::OutOfRange(_))), "{beyond:?}");
    assert_eq!(log.delete_records(Offset(10)).expect("deletes"), Offset(10));
    assert_eq!(log.delete_records(Offset(3)).expect("never goes back"), Offset(10));
    assert_eq!(log.segment_offsets(), [Offset(8), Offset(12), Offset(16)]);
    assert_eq!(log.published().log_start_offset(), Offset(10));
    drop(log);
    let mut log = bench.open(&OpenOptions { log_start: Offset(10), ..OpenOptions::new(false) });
    assert_eq!(log.log_start_offset(), Offset(10));
    assert!(log.read(Offset(9), 10, Offset(20), true).is_err());
    assert!(log.read(Offset(10), 10, Offset(20), true).expect("in range").is_some());
}

#[test]
fn a_log_start_beyond_the_log_end_starts_anew() {
    for (recovery_point, missing) in [(0, 101), (8, 101), (60, 101), (200, 200)] {
        let bench = Bench::with(config());
        drop(filled(&bench, 2));
        let (recovery_point, log_start) = (Offset(recovery_point), Offset(100));
        let damage = Some(Damage::Missing(Offset(missing)));
        let options = OpenOptions { recovery_point, log_start, ..OpenOptions::new(false) };
        let mut log = bench.open(&options);
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(100), Offset(100)));
        assert_eq!(log.damage(), damage, "it must not lead before another that has records");
        for clean in [false, true] {
            let published = log.published();
            let options = OpenOptions {
                recovery_point: published.recovery_point(),
                high_watermark: published.high_watermark(),
                log_start: published.log_start_offset(),
                ..OpenOptions::new(clean)
            };
            log = bench.open(&options);
            assert_eq!(log.damage(), damage, "the next start knows it, too");
        }
        append(&mut log, &Spec::new(1).build());
        assert_eq!(headers(&mut log).len(), 1);
        log.forget_missing_if_there().expect("can be written");
        assert_eq!(log.damage(), damage, "the record is behind the log start, and the others are missing");
        assert!(log.published().recovery_point() > log.log_end_offset());
        log.drop_damage().expect("restarts");
        assert_eq!(
            (log.damage(), log.log_start_offset(), log.log_end_offset()),
            (None, Offset(0), Offset(0))
        );
        assert_eq!(bench.set_aside().len(), 1, "the number may be wrong");
    }
}

#[test]
fn the_largest_log_start_is_damage_like_any_other() {
    let bench = Bench::with(config());
    drop(filled(&bench, 2));
    let log_start = Offset(i64::MAX);
    let mut log = bench.open(&OpenOptions { log_start, ..OpenOptions::new(false) });
    assert_eq!(log.damage(), Some(Damage::Missing(log_start)));
    log.drop_damage().expect("restarts");
    assert_eq!((log.damage(), log.log_end_offset()), (None, Offset(0)));
}

#[test]
fn a_log_start_beyond_the_end_of_a_log_that_was_cleanly_closed_is_ignored() {
    let bench = Bench::with(config());
    let mut log = filled(&bench, 2);
    log.close().expect("closes");
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    let options = OpenOptions { log_start: end + 1, recovery_point: end, ..OpenOptions::new(true) };
    let log = bench.open(&options);
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (start, end));
}
