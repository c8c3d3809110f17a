//! Leader epochs and truncation.

use thalweg_log::{CleanupPolicy, EpochEnd, LogConfig, OpenOptions, SegmentCheck};
use thalweg_record::{BatchBuilder, BatchOptions, LeaderEpoch, Offset, ProducerId};

use crate::support::*;

fn epoch_log(bench: &Bench) -> thalweg_log::PartitionLog {
    let mut log = bench.create();
    for (epoch, sequence) in [(1, 0), (1, 2), (2, 4), (5, 6), (5, 8)] {
        let batch = Spec::new(2).producer(7, 0, sequence).build();
        log.append_as_leader(&batch, LeaderEpoch(epoch), Default::default()).expect("accepted");
    }
    log
}

fn end_of(log: &thalweg_log::PartitionLog, epoch: i32) -> Option<(i32, i64)> {
    log.end_offset_for_epoch(LeaderEpoch(epoch))
        .map(|EpochEnd { leader_epoch, end_offset }| (leader_epoch.0, end_offset.0))
}

#[test]
fn epochs_end_where_the_next_begins_after_any_stop() {
    let bench = Bench::new();
    let check = |log: &thalweg_log::PartitionLog| {
        assert_eq!(end_of(log, 1), Some((1, 4)));
        assert_eq!(end_of(log, 4), Some((2, 6)));
        assert_eq!(end_of(log, 5), Some((5, 10)));
        assert_eq!(end_of(log, 6), None);
        assert_eq!(end_of(log, 0), Some((0, 0)));
    };
    check(&epoch_log(&bench));
    let mut log = bench.open_unclean();
    check(&log);
    log.close().expect("closes");
    check(&bench.open_clean());
}

#[test]
fn epochs_of_deleted_records_are_not_rebuilt() {
    let bench = Bench::new();
    let mut log = epoch_log(&bench);
    log.set_high_watermark(Offset(10));
    log.delete_records(Offset(10)).expect("deletes");
    log.close().expect("closes");
    let end = Offset(10);
    let log = bench.open(&OpenOptions { log_start: end, recovery_point: end, ..OpenOptions::new(true) });
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (end, end));
    assert_eq!(log.leader_epochs(), []);
}

#[test]
fn truncation_drops_records_epochs_and_producer_state() {
    for segment_bytes in [1 << 20, 250] {
        for target in 0..=10 {
            let bench =
                Bench::with(LogConfig { segment_bytes, file_delete_delay_ms: 0, ..LogConfig::default() });
            let mut log = epoch_log(&bench);
            log.set_high_watermark(Offset(3));
            assert_eq!(log.truncate_to(Offset(target)).expect("truncates"), target < 10);
            let end = target / 2 * 2;
            assert_eq!(log.log_end_offset(), Offset(end), "where the last batch ends");
            assert_eq!(log.high_watermark(), Offset(end.min(3)));
            assert!(log.leader_epochs().iter().all(|&(_, start)| start.0 < target));
            let kept = headers(&mut log);
            assert_eq!(kept.len() as i64, target / 2, "a batch goes whole");
            let last = log.producer(ProducerId(7)).map_or(-1, |producer| producer.last_sequence());
            assert_eq!(i64::from(last), target / 2 * 2 - 1);
            assert!(!log.truncate_to(Offset(99)).expect("beyond the end"));
            // The log continues, and is the same after a restart.
            log.append_as_leader(&Spec::new(3).build(), LeaderEpoch(9), Default::default())
                .expect("accepted");
            assert_eq!(end_of(&log, 9), Some((9, end + 3)));
            let before = headers(&mut log);
            drop(log);
            let mut log = bench.open_unclean();
            assert_eq!(headers(&mut log), before);
            assert_eq!(end_of(&log, 9), Some((9, end + 3)));
        }
    }
}

#[test]
fn an_epoch_without_records_goes_with_a_truncation_to_the_log_end() {
    let bench = Bench::new();
    let mut log = epoch_log(&bench);
    log.assign_leader_epoch_start(LeaderEpoch(8));
    assert_eq!(log.latest_epoch(), Some(LeaderEpoch(8)));
    assert!(!log.truncate_to(Offset(10)).expect("nothing to cut"));
    assert_eq!(log.latest_epoch(), Some(LeaderEpoch(5)));
}

#[test]
fn an_epoch_without_records_survives_a_clean_stop() {
    let bench = Bench::new();
    let mut log = epoch_log(&bench);
    log.assign_leader_epoch_start(LeaderEpoch(8));
    log.close().expect("closes");
    // The cache is truncated at the log end when it is loaded: an epoch that starts there has no record.
    assert_eq!(bench.open_clean().latest_epoch(), Some(LeaderEpoch(5)));
    let text = String::from_utf8(bench.read_file("leader-epoch-checkpoint")).expect("text");
    assert_eq!(text, "0\n4\n1 0\n2 4\n5 6\n8 10\n");
}

/// The file of epochs is written before the first batch of an epoch, and may reach the medium after it.
#[test]
fn first_batch_of_an_epoch_outlives_a_power_failure_before_the_checkpoint() {
    for epoch in [5, 6, 7] {
        let bench = Bench::new();
        let mut log = bench.create();
        let mut append_in = |epoch| {
            let batch = Spec::new(2).build();
            log.append_as_leader(&batch, LeaderEpoch(epoch), Default::default()).expect("appends");
        };
        append_in(4);
        let before = bench.read_file("leader-epoch-checkpoint");
        append_in(epoch);
        drop(log);
        bench.write_file("leader-epoch-checkpoint", &before);
        let log = bench.open_unclean();
        assert_eq!((log.log_end_offset(), log.latest_epoch()), (Offset(4), Some(LeaderEpoch(epoch))));
    }
}

/// As above, where that batch was the last one of its segment.
#[test]
fn first_batch_of_an_epoch_outlives_a_power_failure_at_the_end_of_a_closed_segment() {
    for (epoch, next) in [(5, None), (5, Some(5)), (6, Some(6)), (5, Some(6)), (7, Some(7))] {
        let bench = Bench::with(LogConfig { segment_bytes: 400, ..LogConfig::default() });
        let mut log = bench.create();
        let mut append_in = |epoch, value_bytes| {
            let batch = Spec::new(1).value_bytes(value_bytes).build();
            log.append_as_leader(&batch, LeaderEpoch(epoch), Default::default()).expect("appends").rolled
        };
        append_in(4, 100);
        let before = bench.read_file("leader-epoch-checkpoint");
        append_in(epoch, 100);
        // The next segment may have been created, and its first batch not have reached the medium.
        assert!(append_in(next.unwrap_or(epoch), 100));
        drop(log);
        bench.write_file("leader-epoch-checkpoint", &before);
        if next.is_none() {
            bench.write_file(&log_name(2), b"");
        }
        let log = bench.open_unclean();
        let latest = next.unwrap_or(epoch);
        let end = Offset(2 + i64::from(next.is_some()));
        assert_eq!(
            (log.log_end_offset(), log.latest_epoch()),
            (end, Some(LeaderEpoch(latest))),
            "{epoch}, then {next:?}"
        );
        assert!(bench.set_aside().is_empty());
    }
}

/// Where the next segment begins in the epoch of the checkpoint, the epoch of the last batch is a flipped
/// bit.
#[test]
fn flipped_epoch_at_the_end_of_a_closed_segment_is_repaired() {
    let bench = Bench::with(LogConfig { segment_bytes: 400, ..LogConfig::default() });
    let mut log = bench.create();
    for _ in 0..4 {
        let batch = Spec::new(1).value_bytes(100).build();
        log.append_as_leader(&batch, LeaderEpoch(4), Default::default()).expect("appends");
    }
    drop(log);
    let whole = bench.read_file(&log_name(0));
    let mut flipped = whole.clone();
    // The last byte of the leader epoch of the second of two batches.
    let at = whole.len() / 2 + 15;
    assert_eq!(flipped[at], 4);
    flipped[at] = 5;
    bench.write_file(&log_name(0), &flipped);
    let log = bench.open_unclean();
    assert_eq!((log.log_end_offset(), log.latest_epoch()), (Offset(4), Some(LeaderEpoch(4))));
    assert!(bench.read_file(&log_name(0)) == whole);
}

#[test]
fn starting_anew_leaves_nothing_behind() {
    let bench =
        Bench::with(LogConfig { segment_bytes: 250, file_delete_delay_ms: 0, ..LogConfig::default() });
    let mut log = epoch_log(&bench);
    log.truncate_fully_and_start_at(Offset(1000), None).expect("truncates");
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(1000), Offset(1000)));
    assert_eq!(log.leader_epochs(), []);
    assert_eq!(log.producers().count(), 0);
    let batch = Spec::new(2).at(1000, 4).build();
    log.append_as_follower(&batch, LeaderEpoch(4)).expect("accepted");
    log.purge_deleted(NOW_MS);
    assert!(!bench.names().iter().any(|name| name.ends_with(".deleted")), "{:?}", bench.names());
    drop(log);
    let mut log = bench.open(&OpenOptions { log_start: Offset(1000), ..OpenOptions::new(false) });
    assert_eq!(headers(&mut log).len(), 1);
    assert_eq!(log.log_end_offset(), Offset(1002));
}

#[test]
fn truncating_below_the_first_segment_starts_anew() {
    let bench = Bench::new();
    let mut log = bench.create();
    log.truncate_fully_and_start_at(Offset(50), None).expect("truncates");
    log.append_as_follower(&Spec::new(2).at(50, 1).build(), LeaderEpoch(1)).expect("accepted");
    assert!(log.truncate_to(Offset(20)).expect("truncates"));
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(20), Offset(20)));
}

/// The batch that an epoch began with may be compacted away: where it began is in the checkpoint alone.
#[test]
fn epochs_of_a_compacted_log_outlive_an_unclean_stop() {
    let bench = Bench::with(LogConfig {
        segment_bytes: 400,
        cleanup_policy: CleanupPolicy::COMPACT,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    });
    let mut log = bench.create();
    let batch_of = |key: &str| {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.append(NOW_MS, Some(key.as_bytes()), Some(&[b'v'; 100]), &[]).expect("fits");
        builder.finish().to_vec()
    };
    // Of epochs 2 and 5 the first batches go, of epoch 3 all.
    let keys =
        [(2, "a"), (2, "b"), (3, "a"), (3, "a"), (5, "a"), (5, "a"), (5, "c"), (5, "d"), (5, "e"), (5, "f")];
    for (epoch, key) in keys {
        let batch = batch_of(key);
        log.append_as_leader(&batch, LeaderEpoch(epoch), Default::default()).expect("appends");
    }
    log.set_high_watermark(log.log_end_offset());
    let epochs = [(2, 0), (3, 2), (5, 4)].map(|(epoch, start)| (LeaderEpoch(epoch), Offset(start)));
    assert_eq!(log.leader_epochs(), epochs);
    compact(&mut log, NOW_MS).expect("enough is dirty");
    let bases: Vec<i64> = headers(&mut log).iter().map(|header| header.base_offset.0).collect();
    assert_eq!(bases[..2], [1, 5], "what began the epochs is gone");
    drop(log);
    assert_eq!(bench.open_unclean().leader_epochs(), epochs);
    assert_eq!(bench.open_clean().leader_epochs(), epochs);
    // Without a checkpoint, an epoch begins where the one before may have ended.
    bench.write_file("leader-epoch-checkpoint", b"torn");
    let rebuilt = [(2, 0), (5, 2)].map(|(epoch, start)| (LeaderEpoch(epoch), Offset(start)));
    assert_eq!(bench.open_unclean().leader_epochs(), rebuilt);
}

/// A replica of a compacted log begins with the first batch that was left there.
#[test]
fn epochs_of_a_replica_of_a_compacted_log_are_not_rebuilt() {
    let bench = Bench::new();
    let mut log = bench.create();
    log.accept_gaps();
    for (base, epoch) in [(5, 3), (20, 4)] {
        log.append_as_follower(&Spec::new(2).at(base, epoch).build(), LeaderEpoch(4)).expect("accepted");
    }
    drop(log);
    let (warnings, log) = warnings_of(|| bench.open_clean());
    assert_eq!(log.leader_epochs(), [(LeaderEpoch(3), Offset(5)), (LeaderEpoch(4), Offset(20))]);
    assert!(!warnings.iter().any(|warning| warning.contains("epochs")), "{warnings:?}");
}

/// An idle partition has many leaders without a batch, of which the checkpoint knows nothing; and one that
/// was truncated may know of later ones than the log has. What is sound is kept.
#[test]
fn last_batch_is_kept_whatever_its_epoch() {
    for (known, found, latest) in [(5, 40, 40), (5, 69, 69), (5, 4101, 5), (5, 1000, 1000), (5, 4, 4)] {
        let bench = Bench::new();
        let mut log = bench.create();
        let mut append_in = |epoch| {
            let batch = Spec::new(2).build();
            log.append_as_leader(&batch, LeaderEpoch(epoch), Default::default()).expect("appends");
        };
        append_in(known.min(found));
        append_in(found);
        drop(log);
        let stale = format!("0\n2\n{} 0\n{known} 2\n", known.min(found));
        let stale = if known < found { format!("0\n1\n{known} 0\n") } else { stale };
        bench.write_file("leader-epoch-checkpoint", stale.as_bytes());
        let log = bench.open_unclean();
        // One that differs by one bit of much weight was damaged.
        assert_eq!(
            (log.log_end_offset(), log.latest_epoch()),
            (Offset(4), Some(LeaderEpoch(latest))),
            "{known}, {found}"
        );
    }
}

/// Whether a flipped bit explains the difference of two epochs better than a file of another time.
fn is_far(found: i32, known: i32) -> bool {
    (found ^ known).count_ones() == 1 && found.abs_diff(known) > 2000
}

/// Whether a file that fits all batches of one record but one may be the right one: a bit of that batch's
/// epoch may have been flipped, and no batch beside it is of that epoch.
fn is_explained_by_a_flip(history: &[i32], file: &str) -> bool {
    let entries: Vec<(i32, usize)> = file
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(epoch, start)| (epoch.parse().expect("a number"), start.parse().expect("a number")))
        .collect();
    let known = |offset| entries.iter().rfind(|(_, start)| *start <= offset).map_or(-1, |(epoch, _)| *epoch);
    let mut others = (0..history.len()).filter(|offset| history[*offset] != known(*offset));
    let (Some(at), None) = (others.next(), others.next()) else { return false };
    let has_epoch =
        |beside: Option<usize>| beside.and_then(|beside| history.get(beside)) == Some(&history[at]);
    is_far(history[at], known(at)) && !has_epoch(at.checked_sub(1)) && !has_epoch(Some(at + 1))
}

/// No CRC covers the epoch of a batch. A leader refuses a follower with an epoch that is too high, for ever,
/// and one with epochs that are too low cuts its followers.
#[test]
fn flipped_epoch_of_one_batch_does_not_outrank_the_checkpoint() {
    let histories: [&[i32]; 5] = [&[5, 5, 5], &[2, 5, 9], &[2, 5, 5, 5, 9], &[2, 2, 5, 5, 5, 5, 5, 5], &[5]];
    // The newest segment may have no batch yet.
    let kinds = [(1 << 20, false), (400, false), (200, false), (200, true)];
    for ((segment_bytes, has_empty), history) in
        kinds.into_iter().flat_map(|kind| histories.map(|history| (kind, history)))
    {
        let bench = Bench::with(LogConfig { segment_bytes, ..LogConfig::default() });
        let mut log = bench.create();
        for epoch in history {
            let batch = Spec::new(1).value_bytes(100).build();
            log.append_as_leader(&batch, LeaderEpoch(*epoch), Default::default()).expect("appends");
        }
        let (epochs, segments) = (log.leader_epochs().to_vec(), log.segment_offsets());
        let options = OpenOptions { recovery_point: log.log_end_offset(), ..OpenOptions::new(true) };
        log.close().expect("closes");
        let whole: Vec<_> = segments.iter().map(|base| bench.read_file(&log_name(base.0))).collect();
        let checkpoint = bench.read_file("leader-epoch-checkpoint");
        let batch_bytes = whole.iter().map(Vec::len).sum::<usize>() / history.len();
        if has_empty {
            bench.write_file(&log_name(options.recovery_point.0), &[]);
        }
        for (at, bit) in (0..history.len()).flat_map(|at| (0..31).map(move |bit| (at, bit))) {
            let flipped = history[at] ^ (1 << bit);
            let is_beside = |beside: Option<&i32>| beside == Some(&flipped);
            let before = at.checked_sub(1).map(|before| &history[before]);
            if is_beside(history.get(at + 1)) || is_beside(before) {
                continue;
            }
            let rises = before.is_none_or(|before| *before < flipped)
                && history.get(at + 1).is_none_or(|behind| flipped < *behind);
            if rises && !is_far(flipped, history[at]) {
                continue;
            }
            for (base, bytes) in segments.iter().zip(&whole) {
                bench.write_file(&log_name(base.0), bytes);
            }
            bench.write_file("leader-epoch-checkpoint", &checkpoint);
            let segment = segments.partition_point(|base| base.0 <= at as i64) - 1;
            let position = (at - segments[segment].0 as usize) * batch_bytes + 12;
            let mut bytes = whole[segment].clone();
            bytes[position..position + 4].copy_from_slice(&flipped.to_be_bytes());
            bench.write_file(&log_name(segments[segment].0), &bytes);
            let what = format!("{history:?} in segments of {segment_bytes}, batch {at} of {flipped}");
            let mut log = bench.open(&options);
            assert_eq!(log.leader_epochs(), epochs, "{what}");
            while log.check_next_segment().expect("looks") {}
            assert_eq!(log.leader_epochs(), epochs, "{what}, after the check");
            for from in 0..history.len() as i64 {
                log.read(Offset(from), 1, options.recovery_point, true).expect("it can be read");
            }
            let found: Vec<i32> = headers(&mut log).iter().map(|header| header.leader_epoch.0).collect();
            assert_eq!((&found[..], log.damage()), (history, None), "{what}");
            assert_eq!(log.leader_epochs(), epochs, "{what}, after a read");
        }
    }
}

/// A file of another time or of another log, beside batches that were written once and are sound.
#[test]
fn batches_outrank_a_checkpoint_of_epochs_that_does_not_fit_them() {
    let files =
        ["7 0", "3 0", "4 0", "4 0\n5 2", "4 0\n5 8\n6 9", "4 0\n6 6", "1 0\n2 3\n9 7", "4 0\n5 1\n6 4\n7 5"];
    let histories: [&[i32]; 6] =
        [&[4], &[5], &[4, 4, 5], &[4, 5, 5, 6], &[4, 4, 4, 4, 5, 5, 5, 6, 6, 6], &[4, 5, 6, 6, 6, 6, 6, 69]];
    for segment_bytes in [1 << 20, 400, 200] {
        for history in histories {
            for file in files {
                let what = format!("{history:?} in segments of {segment_bytes} beside {file:?}");
                let bench = Bench::with(LogConfig { segment_bytes, ..LogConfig::default() });
                let mut log = bench.create();
                for epoch in history {
                    let batch = Spec::new(1).value_bytes(100).build();
                    log.append_as_leader(&batch, LeaderEpoch(*epoch), Default::default()).expect("appends");
                }
                let (epochs, end, segments) =
                    (log.leader_epochs().to_vec(), log.log_end_offset(), log.segment_offsets());
                log.close().expect("closes");
                drop(log);
                let contents =
                    || segments.iter().map(|base| bench.read_file(&log_name(base.0))).collect::<Vec<_>>();
                let before = contents();
                let lines = file.lines().count();
                bench.write_file("leader-epoch-checkpoint", format!("0\n{lines}\n{file}\n").as_bytes());
                if is_explained_by_a_flip(history, file) {
                    continue;
                }
                let options = OpenOptions { recovery_point: end, ..OpenOptions::new(true) };
                let (warnings, mut log) = warnings_of(|| bench.open(&options));
                let latest = epochs.last().map(|(epoch, _)| *epoch);
                assert_eq!(log.latest_epoch(), latest, "{what}");
                let (later, found) = warnings_of(|| {
                    while log.check_next_segment().expect("looks") {}
                    headers(&mut log)
                });
                let found: Vec<i32> = found.iter().map(|header| header.leader_epoch.0).collect();
                assert_eq!((&found[..], log.damage()), (history, None), "{what}");
                assert!(contents() == before, "{what}: a sound batch is not written to");
                if segment_bytes == 200 || history.len() < 3 {
                    assert_eq!(log.leader_epochs(), epochs, "{what}");
                }
                let fits = log.leader_epochs() == epochs && warnings.len() + later.len() == 0;
                let warned = warnings.iter().chain(&later).any(|line| line.contains("eader epoch"));
                assert!(fits || warned || segment_bytes != 200, "{what}: {warnings:?} {later:?}");
            }
        }
    }
}

#[test]
fn segment_of_a_log_that_was_truncated_during_the_scan_is_looked_at_again() {
    let bench = Bench::with(LogConfig { segment_bytes: 200, ..LogConfig::default() });
    let mut log = bench.create();
    for epoch in [4, 4, 4, 4, 6, 6, 6] {
        let batch = Spec::new(1).value_bytes(100).build();
        log.append_as_leader(&batch, LeaderEpoch(epoch), Default::default()).expect("appends");
    }
    let (epochs, end) = (log.leader_epochs().to_vec(), log.log_end_offset());
    log.close().expect("closes");
    bench.write_file("leader-epoch-checkpoint", b"0\n2\n1 0\n6 4\n");
    let mut log = bench.open(&OpenOptions { recovery_point: end, ..OpenOptions::new(true) });
    let SegmentCheck::Epochs(scan) = log.begin_segment_check().expect("looks") else {
        panic!("it does not fit")
    };
    let found = scan.run().expect("it can be read");
    assert_eq!(found, epochs[..1]);
    log.truncate_to(end - 1).expect("it can be cut");
    log.finish_segment_check(&scan, &found).expect("ends");
    assert_ne!(log.leader_epochs(), epochs);
    while log.check_next_segment().expect("looks") {}
    assert_eq!(log.leader_epochs(), epochs);
}

/// An older copy of the file, from before a truncation or not, and files of other logs: after any stop the
/// batches count, and none is written to.
#[test]
fn batches_outrank_an_older_checkpoint_of_epochs_after_a_crash() {
    let files = ["1 0", "1 0\n2 2", "1 0\n9 4", "0 0\n2 2", "1 0\n2 1\n4 2\n5 3\n6 4", "6 0"];
    let histories: [&[i32]; 5] = [
        &[1, 1, 3, 4, 4, 5, 5, 5, 5, 5, 5, 5],
        &[1, 1, 1, 1, 1, 1, 1, 1, 1, 3],
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        &[0, 0, 0, 2, 2],
        &[1, 1, 1, 1, 1, 1, 2, 2, 4],
    ];
    for (segment_bytes, history, file) in [1 << 20, 400].into_iter().flat_map(|segment_bytes| {
        histories.into_iter().flat_map(move |history| files.map(|file| (segment_bytes, history, file)))
    }) {
        let bench =
            Bench::with(LogConfig { segment_bytes, index_interval_bytes: 300, ..LogConfig::default() });
        let mut log = bench.create();
        for epoch in history {
            let batch = Spec::new(1).value_bytes(100).build();
            log.append_as_leader(&batch, LeaderEpoch(*epoch), Default::default()).expect("appends");
        }
        let (epochs, segments) = (log.leader_epochs().to_vec(), log.segment_offsets());
        log.close().expect("closes");
        drop(log);
        let contents = || segments.iter().map(|base| bench.read_file(&log_name(base.0))).collect::<Vec<_>>();
        let before = contents();
        let lines = file.lines().count();
        // In an older copy all epochs but the latest are those of the log: it may have been cut since.
        let is_older = file.lines().rev().enumerate().all(|(age, line)| {
            let (epoch, start) = line.split_once(' ').expect("two numbers");
            let known = epochs.iter().find(|(known, _)| known.0.to_string() == epoch);
            known.map_or(age == 0, |(_, known)| known.0.to_string() == start)
        });
        for recovery_point in (0..=history.len() as i64).step_by(3) {
            bench.write_file("leader-epoch-checkpoint", format!("0\n{lines}\n{file}\n").as_bytes());
            let options = OpenOptions { recovery_point: Offset(recovery_point), ..OpenOptions::new(false) };
            let what = format!("{history:?} in segments of {segment_bytes}, {file:?}, from {recovery_point}");
            let mut log = bench.open(&options);
            assert!(!is_older || log.leader_epochs() == epochs, "{what}: {:?}", log.leader_epochs());
            while log.check_next_segment().expect("looks") {}
            assert_eq!(log.leader_epochs(), epochs, "{what}");
            assert_eq!((log.log_end_offset().0, log.damage()), (history.len() as i64, None), "{what}");
            assert!(
                contents() == before && bench.set_aside().is_empty(),
                "{what}: a sound batch is written to"
            );
        }
    }
}

/// The file of another log may fit the ends of a segment.
#[test]
fn checkpoint_that_fits_the_ends_of_segments_is_compared_with_the_batches_where_epochs_begin() {
    for (segment_bytes, is_clean) in [(1 << 20, true), (800, true), (800, false)] {
        let bench =
            Bench::with(LogConfig { segment_bytes, index_interval_bytes: 300, ..LogConfig::default() });
        let mut log = bench.create();
        let append_in = |log: &mut thalweg_log::PartitionLog, epoch| {
            let batch = Spec::new(1).value_bytes(100).build();
            log.append_as_leader(&batch, LeaderEpoch(epoch), Default::default()).expect("appends");
        };
        [1, 1, 1, 2, 3, 3, 3, 3, 3, 3].into_iter().for_each(|epoch| append_in(&mut log, epoch));
        let (mut epochs, end) = (log.leader_epochs().to_vec(), log.log_end_offset());
        log.close().expect("closes");
        drop(log);
        bench.write_file("leader-epoch-checkpoint", b"0\n3\n1 0\n2 1\n3 2\n");
        let recovery_point = if is_clean { end } else { end - 1 };
        let mut log = bench.open(&OpenOptions { recovery_point, ..OpenOptions::new(is_clean) });
        append_in(&mut log, 5);
        epochs.push((LeaderEpoch(5), end));
        while log.check_next_segment().expect("looks") {}
        assert_eq!(log.leader_epochs(), epochs, "{segment_bytes}, {is_clean}");
    }
}

/// Records that are appended during a scan of the newest segment keep their epochs.
#[test]
fn epoch_that_begins_during_a_scan_is_kept() {
    let bench = Bench::new();
    let mut log = bench.create();
    for epoch in [1, 1, 2, 2] {
        log.append_as_leader(&Spec::new(1).build(), LeaderEpoch(epoch), Default::default()).expect("appends");
    }
    let (mut epochs, end) = (log.leader_epochs().to_vec(), log.log_end_offset());
    log.close().expect("closes");
    drop(log);
    bench.write_file("leader-epoch-checkpoint", b"0\n2\n1 0\n2 1\n");
    let mut log = bench.open(&OpenOptions { recovery_point: end, ..OpenOptions::new(true) });
    let mut append_in = |log: &mut thalweg_log::PartitionLog, epoch| {
        let info = log
            .append_as_leader(&Spec::new(1).build(), LeaderEpoch(epoch), Default::default())
            .expect("appends");
        epochs.push((LeaderEpoch(epoch), info.last_offset));
    };
    append_in(&mut log, 3);
    let SegmentCheck::Epochs(scan) = log.begin_segment_check().expect("looks") else {
        panic!("it does not fit")
    };
    append_in(&mut log, 4);
    log.finish_segment_check(&scan, &scan.run().expect("it can be read")).expect("ends");
    append_in(&mut log, 5);
    assert_eq!(log.leader_epochs(), epochs);
    assert!(!log.check_next_segment().expect("looks"));
}
