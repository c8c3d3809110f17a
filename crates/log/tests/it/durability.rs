//! Flushing: when it is due, and its coverage.

use thalweg_log::LogConfig;
use thalweg_record::Offset;

use crate::support::*;

#[test]
fn one_sync_covers_all_appends_before_it() {
    let bench = Bench::with(LogConfig { flush_messages: 1, ..LogConfig::default() });
    let mut log = bench.create();
    append(&mut log, &Spec::new(1).build());
    append(&mut log, &Spec::new(1).build());
    assert!(log.needs_flush(NOW_MS));
    let target = log.flush_target().expect("a target").expect("something to sync");
    assert_eq!(target.up_to(), Offset(2));
    // More is appended while the sync runs without the lock.
    append(&mut log, &Spec::new(1).build());
    let outcome = target.sync();
    log.complete_flush(&target, outcome).expect("synced");
    assert_eq!(log.recovery_point(), Offset(2));
    assert!(log.needs_flush(NOW_MS), "what came meanwhile is for the next flush");
    log.flush().expect("syncs");
    assert!(!log.needs_flush(NOW_MS));
    assert!(log.flush_target().expect("no target").is_none());
}

#[test]
fn flushes_are_due_by_count_and_by_time() {
    let bench = Bench::with(LogConfig { flush_messages: 5, flush_ms: 1000, ..LogConfig::default() });
    let mut log = bench.create();
    assert!(!append(&mut log, &Spec::new(4).build()).flush_due);
    assert!(!log.needs_flush(NOW_MS + 999));
    assert!(log.needs_flush(NOW_MS + 1000));
    assert!(append(&mut log, &Spec::new(1).build()).flush_due);
    bench.clock.advance_ms(500);
    log.flush().expect("syncs");
    append(&mut log, &Spec::new(1).build());
    assert!(!log.needs_flush(NOW_MS + 1499));
    assert!(log.needs_flush(NOW_MS + 1500));
}

#[test]
fn a_retry_waits_for_the_flush_that_the_first_try_waits_for() {
    let bench = Bench::with(LogConfig { flush_messages: 1, ..LogConfig::default() });
    let mut log = bench.create();
    let batch = Spec::new(2).producer(9, 0, 0).build();
    assert!(append(&mut log, &batch).flush_due);
    let retry = append(&mut log, &batch);
    assert!(retry.duplicate && retry.flush_due, "nothing is on the medium yet");
    log.flush().expect("syncs");
    let retry = append(&mut log, &batch);
    assert!(retry.duplicate && !retry.flush_due);
    append(&mut log, &Spec::new(1).build());
    assert!(!append(&mut log, &batch).flush_due, "it was flushed, whatever came since");
}

#[test]
fn a_segment_that_was_left_is_flushed_in_the_background() {
    let bench = Bench::with(LogConfig { segment_bytes: 300, ..LogConfig::default() });
    let mut log = bench.create();
    append(&mut log, &Spec::new(4).build());
    assert!(!log.needs_background_flush());
    let info = append(&mut log, &Spec::new(4).value_bytes(40).build());
    assert!(info.rolled && !info.flush_due);
    assert!(log.needs_background_flush());
    let target = log.background_flush_target().expect("a target").expect("something to sync");
    let outcome = target.sync();
    log.complete_flush(&target, outcome).expect("synced");
    assert_eq!(log.recovery_point(), Offset(4));
    assert!(!log.needs_background_flush());
}

#[test]
fn a_flush_that_a_truncation_overtook_proves_nothing() {
    let bench = Bench::new();
    let mut log = bench.create();
    append(&mut log, &Spec::new(10).build());
    let target = log.flush_target().expect("a target").expect("something to sync");
    log.truncate_to(Offset(0)).expect("truncates");
    append(&mut log, &Spec::new(10).build());
    let outcome = target.sync();
    log.complete_flush(&target, outcome).expect("synced");
    assert_eq!(log.recovery_point(), Offset(0));
}
