//! Idempotent and transactional producers, judged as Kafka judges them.

use thalweg_log::{
    AppendError, AppendInfo, AppendOptions, AppendOrigin, LogConfig, OpenOptions, PartitionLog,
    ProducerError, SequenceFault,
};
use thalweg_record::{ControlRecordType, LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use crate::support::*;

fn try_append(log: &mut PartitionLog, spec: Spec) -> Result<AppendInfo, ProducerError> {
    match log.append_as_leader(&spec.build(), LeaderEpoch(0), AppendOptions::default()) {
        Ok(info) => Ok(info),
        Err(AppendError::Producer(error)) => Err(error),
        Err(other) => panic!("not the producer's fault: {other}"),
    }
}

#[test]
fn a_retry_gets_the_original_offsets() {
    let bench = Bench::new();
    let mut log = bench.create();
    for batch in 0..7 {
        try_append(&mut log, Spec::new(2).producer(9, 0, batch * 2).timestamp(NOW_MS + i64::from(batch)))
            .expect("in order");
    }
    for batch in 2..7 {
        let info =
            try_append(&mut log, Spec::new(2).producer(9, 0, batch * 2)).expect("a duplicate is no error");
        assert!(info.duplicate);
        assert_eq!(info.first_offset, Offset(i64::from(batch) * 2));
        assert_eq!(info.last_offset, Offset(i64::from(batch) * 2 + 1));
        assert_eq!(info.log_append_time, NOW_MS + i64::from(batch) + 1);
        assert_eq!(info.appended_bytes, 0);
    }
    assert_eq!(log.log_end_offset(), Offset(14));
    // Only five batches are remembered.
    let forgotten = try_append(&mut log, Spec::new(2).producer(9, 0, 2));
    assert!(matches!(forgotten, Err(ProducerError::OutOfOrderSequence(_))), "{forgotten:?}");
}

#[test]
fn sequences_must_follow() {
    let bench = Bench::new();
    let mut log = bench.create();
    try_append(&mut log, Spec::new(3).producer(9, 0, 0)).expect("first");
    let gap = try_append(&mut log, Spec::new(1).producer(9, 0, 4)).expect_err("a gap");
    let ProducerError::OutOfOrderSequence(gap) = gap else { panic!("{gap}") };
    assert_eq!(gap.fault, SequenceFault::NotNext { last_sequence: 2 });
    try_append(&mut log, Spec::new(1).producer(9, 0, 3)).expect("the next");
    // An unknown producer may start with any sequence: its state may have expired.
    try_append(&mut log, Spec::new(1).producer(10, 5, 77)).expect("unknown producer");
    assert_eq!(log.log_end_offset(), Offset(5));
}

#[test]
fn sequences_wrap() {
    let bench = Bench::new();
    let mut log = bench.create();
    try_append(&mut log, Spec::new(3).producer(9, 0, i32::MAX - 3)).expect("near the end");
    try_append(&mut log, Spec::new(3).producer(9, 0, i32::MAX)).expect("wraps inside the batch");
    let retry = try_append(&mut log, Spec::new(3).producer(9, 0, i32::MAX)).expect("a retry across the wrap");
    assert!(retry.duplicate && retry.first_offset == Offset(3));
    try_append(&mut log, Spec::new(1).producer(9, 0, 2)).expect("goes on after the wrap");
}

#[test]
fn a_new_epoch_begins_with_zero_and_fences_the_old() {
    let bench = Bench::new();
    let mut log = bench.create();
    try_append(&mut log, Spec::new(3).producer(9, 1, 0)).expect("first");
    let error = try_append(&mut log, Spec::new(1).producer(9, 2, 3)).expect_err("not zero");
    let ProducerError::OutOfOrderSequence(error) = error else { panic!("{error}") };
    assert!(matches!(error.fault, SequenceFault::NewEpochNotZero { .. }));
    try_append(&mut log, Spec::new(1).producer(9, 2, 0)).expect("a new epoch");
    let error = try_append(&mut log, Spec::new(1).producer(9, 1, 3)).expect_err("fenced");
    assert!(matches!(error, ProducerError::InvalidProducerEpoch(_)), "{error}");
}

#[test]
fn a_refused_batch_changes_nothing() {
    let bench = Bench::new();
    let mut log = bench.create();
    try_append(&mut log, Spec::new(1).producer(9, 0, 0)).expect("first");
    let before = log.producer(ProducerId(9)).cloned();
    try_append(&mut log, Spec::new(1).producer(9, 0, 9)).expect_err("a gap");
    assert_eq!(log.producer(ProducerId(9)), before.as_ref());
    assert_eq!(log.log_end_offset(), Offset(1));
}

#[test]
fn producers_survive_any_stop() {
    let bench = Bench::with(LogConfig { segment_bytes: 400, ..LogConfig::default() });
    let mut log = bench.create();
    for batch in 0..20 {
        try_append(&mut log, Spec::new(2).producer(9, 3, batch * 2)).expect("in order");
        try_append(&mut log, Spec::new(1).producer(8, 0, batch)).expect("in order");
    }
    drop(log);
    let mut log = bench.open_unclean();
    assert!(try_append(&mut log, Spec::new(2).producer(9, 3, 38)).expect("a retry").duplicate);
    try_append(&mut log, Spec::new(2).producer(9, 3, 40)).expect("the next");
    log.close().expect("closes");
    let mut log = bench.open_clean();
    assert!(try_append(&mut log, Spec::new(2).producer(9, 3, 40)).expect("a retry").duplicate);
    assert!(try_append(&mut log, Spec::new(1).producer(8, 0, 19)).expect("a retry").duplicate);
    try_append(&mut log, Spec::new(2).producer(9, 3, 42)).expect("the next");
    try_append(&mut log, Spec::new(2).producer(9, 2, 44)).expect_err("fenced");
}

/// Appends `count` batches of two records by producer 9, from sequence `2 * first` on.
fn append_in_order(log: &mut PartitionLog, first: i32, count: i32) {
    for batch in first..first + count {
        let spec = Spec::new(2).producer(9, 3, batch * 2).timestamp(NOW_MS + i64::from(batch));
        try_append(log, spec).expect("in order");
    }
}

/// The last five batches of producer 9 are retried, oldest first, after `written` batches of two records.
fn assert_five_are_recognised(log: &mut PartitionLog, written: i32, what: &str) {
    let end = log.log_end_offset();
    for batch in written - 5..written {
        let info = try_append(log, Spec::new(2).producer(9, 3, batch * 2))
            .unwrap_or_else(|error| panic!("{what}: batch {batch} of {written}: {error}"));
        assert!(info.duplicate, "{what}: batch {batch} of {written}");
        assert_eq!(info.first_offset, Offset(i64::from(batch) * 2), "{what}");
        assert_eq!(info.last_offset, Offset(i64::from(batch) * 2 + 1), "{what}");
    }
    assert_eq!(log.log_end_offset(), end, "{what}: nothing is stored twice");
    try_append(log, Spec::new(2).producer(9, 3, (written - 6) * 2)).expect_err("only five are remembered");
}

#[test]
fn batches_in_flight_are_recognised_after_any_stop() {
    // Segments of many batches, of three, and of one: the five are in one segment or in five.
    for segment_bytes in [100_000, 2000, 500, 200] {
        for written in 6..16 {
            let bench =
                Bench::with(LogConfig { segment_bytes, index_interval_bytes: 300, ..LogConfig::default() });
            let mut log = bench.create();
            append_in_order(&mut log, 0, written);
            let (base, end) = (*log.segment_offsets().last().expect("a segment"), log.log_end_offset());
            drop(log);
            // The synced part: nothing, all but the active segment, everything.
            for recovery_point in [Offset(0), base, end] {
                let mut log = bench.open(&OpenOptions { recovery_point, ..OpenOptions::new(false) });
                let what = format!("segments of {segment_bytes}, recovery point {recovery_point:?}");
                assert_five_are_recognised(&mut log, written, &what);
            }
            bench.open_unclean().close().expect("closes");
            for _ in 0..2 {
                let mut log = bench.open_clean();
                assert_five_are_recognised(&mut log, written, &format!("clean, segments of {segment_bytes}"));
                log.close().expect("closes");
            }
        }
    }
}

#[test]
fn batches_in_flight_of_many_producers_are_recognised_behind_a_roll() {
    let bench = Bench::with(LogConfig { segment_bytes: 200_000, ..LogConfig::default() });
    let mut log = bench.create();
    let mut sequence = 0;
    while log.segment_offsets().len() == 1 {
        for producer in 0..100 {
            try_append(&mut log, Spec::new(1).producer(producer, 0, sequence)).expect("in order");
        }
        sequence += 1;
    }
    let recovery_point = *log.segment_offsets().last().expect("a segment");
    let known: Vec<_> = (0..100).map(|id| log.producer(ProducerId(id)).cloned()).collect();
    drop(log);
    let log = bench.open(&OpenOptions { recovery_point, ..OpenOptions::new(false) });
    for (id, known) in known.iter().enumerate() {
        assert_eq!(log.producer(ProducerId(id as i64)), known.as_ref());
    }
}

#[test]
fn batches_of_a_former_epoch_are_not_taken_for_those_of_this() {
    let bench = Bench::with(LogConfig { segment_bytes: 600, ..LogConfig::default() });
    let mut log = bench.create();
    for epoch in 0..3 {
        for batch in 0..4 {
            try_append(&mut log, Spec::new(1).producer(9, epoch, batch)).expect("in order");
        }
    }
    let known = log.producer(ProducerId(9)).cloned();
    let recovery_point = log.log_end_offset();
    drop(log);
    let log = bench.open(&OpenOptions { recovery_point, ..OpenOptions::new(false) });
    assert_eq!(log.producer(ProducerId(9)), known.as_ref());
}

#[test]
fn batches_in_flight_are_recognised_after_a_truncation() {
    let bench = Bench::with(LogConfig { segment_bytes: 2000, ..LogConfig::default() });
    let mut log = bench.create();
    append_in_order(&mut log, 0, 60);
    for written in (7..60).rev() {
        assert!(log.truncate_to(Offset(i64::from(written) * 2)).expect("truncates"));
        assert_five_are_recognised(&mut log, written, "truncated");
    }
}

#[test]
fn only_the_end_of_an_earlier_segment_is_read_for_batches_in_flight() {
    let bench = Bench::with(LogConfig { index_interval_bytes: 300, ..LogConfig::default() });
    let mut log = bench.create();
    append_in_order(&mut log, 0, 3000);
    log.close().expect("closes");
    let name = log_name(0);
    let mut damaged = bench.read_file(&name);
    let middle = damaged.len() / 2;
    damaged[..middle].fill(0xff);
    bench.write_file(&name, &damaged);
    let mut log = bench.open_clean();
    assert_five_are_recognised(&mut log, 3000, "the first half is unreadable");
}

#[test]
fn silent_producers_are_forgotten() {
    let bench = Bench::new();
    let mut log = bench.create();
    try_append(&mut log, Spec::new(1).producer(9, 0, 0)).expect("first");
    try_append(&mut log, Spec::new(1).producer(8, 0, 0).transactional()).expect("first");
    log.remove_expired_producers(NOW_MS + 999, 1000);
    assert_eq!(log.producers().count(), 2);
    log.remove_expired_producers(NOW_MS + 1000, 1000);
    let left: Vec<_> = log.producers().map(|(id, _)| id).collect();
    assert_eq!(left, [ProducerId(8)], "an open transaction is not forgotten");
}

#[test]
fn the_last_stable_offset_waits_for_transactions() {
    let bench = Bench::new();
    let mut log = bench.create();
    let set_high_watermark = |log: &mut PartitionLog| log.set_high_watermark(log.log_end_offset());
    append(&mut log, &Spec::new(2).build());
    append(&mut log, &Spec::new(2).producer(1, 0, 0).transactional().build());
    append(&mut log, &Spec::new(2).producer(2, 0, 0).transactional().build());
    set_high_watermark(&mut log);
    assert_eq!((log.high_watermark(), log.last_stable_offset()), (Offset(6), Offset(2)));
    assert!(log.has_ongoing_transaction(ProducerId(1), ProducerEpoch(0)));
    append_marker(&mut log, &marker(1, 0, ControlRecordType::Abort, 0));
    assert_eq!(log.last_stable_offset(), Offset(2), "the marker is not replicated yet");
    set_high_watermark(&mut log);
    assert_eq!(log.last_stable_offset(), Offset(4), "the second transaction is open");
    append_marker(&mut log, &marker(2, 0, ControlRecordType::Commit, 0));
    set_high_watermark(&mut log);
    assert_eq!(log.last_stable_offset(), Offset(8));
    let aborted = log.aborted_transactions(Offset(0), Offset(8)).expect("reads");
    assert_eq!(aborted.len(), 1);
    assert_eq!((aborted[0].producer_id, aborted[0].first_offset), (ProducerId(1), Offset(2)));
    assert_eq!((aborted[0].last_offset, aborted[0].last_stable_offset), (Offset(6), Offset(4)));
    assert_eq!(log.aborted_transactions(Offset(7), Offset(8)).expect("reads"), []);
    assert_eq!(log.aborted_transactions(Offset(0), Offset(2)).expect("reads"), []);
    assert_eq!(log.aborted_transactions(Offset(3), Offset(4)).expect("reads").len(), 1, "it began before");
}

#[test]
fn transactions_survive_any_stop_and_span_segments() {
    let bench = Bench::with(LogConfig { segment_bytes: 400, ..LogConfig::default() });
    let mut log = bench.create();
    for round in 0..10 {
        append(&mut log, &Spec::new(2).producer(1, 0, round * 4).transactional().build());
        append(&mut log, &Spec::new(2).producer(1, 0, round * 4 + 2).transactional().build());
        let kind = if round % 2 == 0 { ControlRecordType::Abort } else { ControlRecordType::Commit };
        append_marker(&mut log, &marker(1, 0, kind, 0));
    }
    let open_from = log.log_end_offset();
    append(&mut log, &Spec::new(1).producer(2, 0, 0).transactional().build());
    let end = log.log_end_offset();
    log.set_high_watermark(end);
    let aborted = log.aborted_transactions(Offset(0), end).expect("reads");
    assert_eq!(aborted.len(), 5);
    for clean in [false, true, false] {
        let mut log = bench.open(&OpenOptions::new(clean));
        log.set_high_watermark(end);
        assert_eq!(log.last_stable_offset(), open_from);
        assert_eq!(log.aborted_transactions(Offset(0), end).expect("reads"), aborted);
        log.close().expect("closes");
    }
}

#[test]
fn writing_outside_of_an_open_transaction_is_refused() {
    let bench = Bench::new();
    let mut log = bench.create();
    append(&mut log, &Spec::new(1).producer(1, 0, 0).transactional().build());
    let error = try_append(&mut log, Spec::new(1).producer(1, 0, 1)).expect_err("outside");
    assert!(matches!(error, ProducerError::InvalidTransactionState(_)), "{error}");
}

#[test]
fn markers_of_a_former_coordinator_are_refused() {
    let bench = Bench::new();
    let mut log = bench.create();
    append(&mut log, &Spec::new(1).producer(1, 0, 0).transactional().build());
    append_marker(&mut log, &marker(1, 0, ControlRecordType::Commit, 5));
    append(&mut log, &Spec::new(1).producer(1, 0, 1).transactional().build());
    let options = AppendOptions { origin: AppendOrigin::Coordinator, ..AppendOptions::default() };
    let zombie = log.append_as_leader(&marker(1, 0, ControlRecordType::Abort, 4), LeaderEpoch(0), options);
    let Err(AppendError::Producer(ProducerError::TransactionCoordinatorFenced(_))) = zombie else {
        panic!("{zombie:?}")
    };
    // Transaction version 2: a marker raises the epoch, and one with the epoch of the transaction is stale.
    let options = AppendOptions { transaction_version: 2, ..options };
    let stale = log.append_as_leader(&marker(1, 0, ControlRecordType::Abort, 6), LeaderEpoch(0), options);
    assert!(matches!(stale, Err(AppendError::Producer(ProducerError::InvalidProducerEpoch(_)))), "{stale:?}");
    log.append_as_leader(&marker(1, 1, ControlRecordType::Abort, 6), LeaderEpoch(0), options)
        .expect("bumped");
    log.append_as_leader(&marker(1, 1, ControlRecordType::Abort, 6), LeaderEpoch(0), options)
        .expect("a retry");
    try_append(&mut log, Spec::new(1).producer(1, 0, 2).transactional()).expect_err("fenced by the marker");
    try_append(&mut log, Spec::new(1).producer(1, 1, 0).transactional()).expect("the next transaction");
}

#[test]
fn unverified_transactional_batches_are_refused() {
    let bench = Bench::new();
    let mut log = bench.create();
    let (id, epoch) = (ProducerId(1), ProducerEpoch(0));
    let guard = log.start_verification(id, 0, epoch, false).expect("begins");
    let batch = Spec::new(1).producer(1, 0, 0).transactional().build();
    let none =
        AppendOptions { guard: Some(thalweg_log::VerificationGuard::NONE), ..AppendOptions::default() };
    let refused = log.append_as_leader(&batch, LeaderEpoch(0), none);
    assert!(matches!(refused, Err(AppendError::Producer(ProducerError::InvalidTransactionState(_)))));
    let verified = AppendOptions { guard: Some(guard), ..AppendOptions::default() };
    log.append_as_leader(&batch, LeaderEpoch(0), verified).expect("verified");
    let again = log.start_verification(id, 1, epoch, false).expect("begins");
    assert_eq!(again, thalweg_log::VerificationGuard::NONE, "the transaction is known now");
    let next = Spec::new(1).producer(1, 0, 1).transactional().build();
    log.append_as_leader(&next, LeaderEpoch(0), none).expect("no word is needed inside a transaction");
}
