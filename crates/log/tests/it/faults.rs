//! Disks that fill up and disks that fail.

use std::sync::Arc;

use thalweg_log::disk::{Disk, Faults, NoWaits};
use thalweg_log::{
    AppendError, AppendOptions, AppendOrigin, LogConfig, LogError, PartitionLog, TopicPartition, Uuid,
};
use thalweg_record::{ControlRecordType, LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use crate::support::*;

fn faulty(config: LogConfig, suffix: &str) -> (Bench, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    faults.only(suffix);
    let bench = Bench { disk: Disk::with_faults(Arc::clone(&faults)), ..Bench::with(config) };
    (bench, faults)
}

#[test]
fn a_full_disk_refuses_appends_until_there_is_room() {
    let (bench, faults) = faulty(LogConfig::default(), ".log");
    let mut log = bench.create();
    let batch = Spec::new(3).producer(5, 0, 0).build();
    for free in [0, 1, 50, batch.len() as u64 - 1] {
        faults.set_free_bytes(Some(free));
        let refused = log.append_as_leader(&batch, LeaderEpoch(0), AppendOptions::default());
        assert!(matches!(refused, Err(AppendError::DiskFull(_))), "{refused:?}");
        assert_eq!(log.log_end_offset(), Offset(0));
        assert_eq!(bench.read_file(&log_name(0)), [], "no part of the batch stays");
    }
    faults.set_free_bytes(None);
    assert!(!append(&mut log, &batch).duplicate, "a refused batch is not remembered");
    faults.set_free_bytes(Some(10));
    let next = Spec::new(3).producer(5, 0, 3).build();
    assert!(log.append_as_leader(&next, LeaderEpoch(0), AppendOptions::default()).is_err());
    assert_eq!(headers(&mut log).len(), 1, "what is there is served");
    faults.set_free_bytes(Some(1_000_000));
    append(&mut log, &next);
    assert_eq!(headers(&mut log).len(), 2);
    assert!(log.poison().is_none());
}

#[test]
fn a_full_disk_during_a_roll_is_no_failure() {
    let (bench, faults) = faulty(LogConfig { segment_bytes: 300, ..LogConfig::default() }, "");
    let mut log = bench.create();
    append(&mut log, &Spec::new(3).producer(5, 0, 0).value_bytes(50).build());
    let next = Spec::new(3).producer(5, 0, 3).value_bytes(50).build();
    for free in 0..next.len() as u64 {
        faults.set_free_bytes(Some(free));
        let refused = log.append_as_leader(&next, LeaderEpoch(0), AppendOptions::default());
        assert!(matches!(refused, Err(AppendError::DiskFull(_))), "{free}: {refused:?}");
        assert_eq!(headers(&mut log).len(), 1);
    }
    faults.set_free_bytes(None);
    append(&mut log, &next);
    assert_eq!(log.segment_offsets(), [Offset(0), Offset(3)]);
    drop(log);
    assert_eq!(headers(&mut bench.open_unclean()).len(), 2);
}

#[test]
fn epochs_of_a_refused_append_refuse_no_batch_of_the_epoch_before() {
    let (bench, faults) = faulty(LogConfig::default(), ".log");
    let mut log = bench.create();
    let [first, second, third] =
        [(0, 1), (1, 1), (2, 2)].map(|(at, epoch)| Spec::new(1).at(at, epoch).build());
    log.append_as_follower(&first, LeaderEpoch(1)).expect("there is room");
    faults.set_free_bytes(Some(10));
    let refused = log.append_as_follower(&[second.clone(), third.clone()].concat(), LeaderEpoch(2));
    assert!(matches!(refused, Err(AppendError::DiskFull(_))), "{refused:?}");
    faults.set_free_bytes(None);
    log.append_as_follower(&second, LeaderEpoch(2)).expect("its epoch is the log's latest");
    log.append_as_follower(&third, LeaderEpoch(2)).expect("there is room");
    assert_eq!(log.latest_epoch(), Some(LeaderEpoch(2)));
}

#[test]
fn a_follower_owes_the_flush_of_what_it_has_appended_before_a_disk_was_full() {
    let config = LogConfig { segment_bytes: 300, flush_messages: 1, ..LogConfig::default() };
    let (bench, faults) = faulty(config, ".log");
    let mut log = bench.create();
    let of_segment = |base| Spec::new(1).value_bytes(150).at(base, 0).build();
    let both = [of_segment(0), of_segment(1)].concat();
    faults.set_free_bytes(Some(of_segment(0).len() as u64));
    let info = log.append_as_follower(&both, LeaderEpoch(0)).expect("the first was appended");
    assert_eq!((info.first_offset, info.last_offset, info.flush_due), (Offset(0), Offset(0), true));
    assert_eq!(info.appended_bytes, of_segment(0).len() as u64);
    let refused = log.append_as_follower(&of_segment(1), LeaderEpoch(0));
    assert!(matches!(refused, Err(AppendError::DiskFull(_))), "{refused:?}");
    faults.set_free_bytes(None);
    assert_eq!(
        log.append_as_follower(&of_segment(1), LeaderEpoch(0)).expect("there is room").last_offset,
        Offset(1)
    );
}

#[test]
fn a_failed_write_stops_the_log_and_leaves_what_was_there() {
    let (bench, faults) = faulty(LogConfig::default(), ".log");
    let mut log = bench.create();
    append(&mut log, &Spec::new(3).build());
    faults.set_failing_writes(true);
    let failed = log.append_as_leader(&Spec::new(1).build(), LeaderEpoch(0), AppendOptions::default());
    assert!(matches!(failed, Err(AppendError::Log(LogError::Io(_)))), "{failed:?}");
    faults.set_failing_writes(false);
    let refused = log.append_as_leader(&Spec::new(1).build(), LeaderEpoch(0), AppendOptions::default());
    let Err(AppendError::Poisoned { reason }) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("write"), "{reason}");
    assert!(matches!(
        log.append_as_follower(&Spec::new(1).at(3, 0).build(), LeaderEpoch(0)),
        Err(AppendError::Poisoned { .. })
    ));
    assert_eq!(headers(&mut log).len(), 1);
    drop(log);
    assert_eq!(bench.open_unclean().log_end_offset(), Offset(3));
}

#[test]
fn a_failed_sync_stops_the_log() {
    let (bench, faults) = faulty(LogConfig { flush_messages: 1, ..LogConfig::default() }, "");
    let mut log = bench.create();
    assert!(append(&mut log, &Spec::new(3).build()).flush_due);
    log.flush().expect("syncs");
    assert_eq!(log.recovery_point(), Offset(3));
    append(&mut log, &Spec::new(3).build());
    faults.set_failing_syncs(true);
    log.flush().expect_err("the sync fails");
    faults.set_failing_syncs(false);
    assert_eq!(log.recovery_point(), Offset(3), "nothing is known to be durable beyond");
    let refused = log.append_as_leader(&Spec::new(1).build(), LeaderEpoch(0), AppendOptions::default());
    assert!(matches!(refused, Err(AppendError::Poisoned { .. })), "{refused:?}");
    assert!(matches!(log.flush_target(), Err(LogError::Poisoned { .. })), "it is not tried again");
    assert_eq!(headers(&mut log).len(), 2);
}

#[test]
fn a_log_on_a_full_disk_is_opened_and_read() {
    for clean in [true, false] {
        let (bench, faults) = faulty(LogConfig { segment_bytes: 3000, ..LogConfig::default() }, "");
        let mut log = bench.create();
        for sequence in 0..50 {
            append(&mut log, &Spec::new(1).value_bytes(200).producer(5, 0, sequence).build());
        }
        if clean {
            log.close().expect("closes");
        }
        drop(log);
        faults.set_free_bytes(Some(0));
        let mut log = bench.open(&thalweg_log::OpenOptions::new(clean));
        assert_eq!(headers(&mut log).len(), 50);
        let next = Spec::new(1).producer(5, 0, 50).build();
        let refused = log.append_as_leader(&next, LeaderEpoch(0), AppendOptions::default());
        assert!(matches!(refused, Err(AppendError::DiskFull(_))), "{refused:?}");
        faults.set_free_bytes(None);
        append(&mut log, &next);
        log.close().expect("closes");
        assert_eq!(headers(&mut bench.open_clean()).len(), 51);
    }
}

#[test]
fn a_partition_that_could_not_be_created_can_be_created_later() {
    for suffix in [".log", "metadata"] {
        let (bench, faults) = faulty(LogConfig::default(), suffix);
        faults.set_failing_writes(true);
        let name = TopicPartition::new("t", 0);
        let create = || {
            let (name, config) = (name.clone(), Arc::new(bench.config.clone()));
            PartitionLog::create(bench.home(), name, Some(Uuid::random()), config, bench.clock.clone())
        };
        create().expect_err("the file cannot be written");
        faults.set_failing_writes(false);
        assert!(!bench.home().dir.exists(), "{suffix}: nothing is left of it");
        append(&mut create().expect("there is room now"), &Spec::new(1).build());
        let again = create().err().map(|error| error.kind());
        assert_eq!(again, Some(std::io::ErrorKind::AlreadyExists), "what is there is not overwritten");
        assert_eq!(bench.open_unclean().log_end_offset(), Offset(1));
    }
}

/// A partition that has never had a record costs as few files as possible. A clean stop makes the index
/// files, which Apache Kafka misses otherwise.
#[test]
fn an_empty_partition_has_no_index_files_until_a_clean_stop() {
    let bench = Bench::new();
    let empty = ["00000000000000000000.log", "partition.metadata"];
    drop(bench.create());
    assert_eq!(bench.names(), empty);
    drop(bench.open_unclean());
    assert_eq!(bench.names(), empty);
    bench.open_unclean().close().expect("closes");
    let indexes = ["00000000000000000000.index", "00000000000000000000.timeindex"];
    assert_eq!(bench.names(), [indexes[0], empty[0], indexes[1], empty[1]]);
    let mut log = bench.open_clean();
    append(&mut log, &Spec::new(3).build());
    log.close().expect("closes");
    for file in ["00000000000000000000.index", "00000000000000000000.timeindex"] {
        assert!(bench.names().iter().any(|name| name == file), "{file} is there: {:?}", bench.names());
    }
    assert_eq!(bench.open_clean().log_end_offset(), Offset(3));
}

/// Each file that a log writes finds the disk full in turn: appends are refused until there is room, accepted
/// records are served and complete after a crash, and no restart is needed.
#[test]
fn a_full_disk_under_any_of_the_files_is_no_failure() {
    for suffix in [".txnindex", "index", ".snapshot", ".snapshot.tmp", "checkpoint", "checkpoint.tmp", ""] {
        for free in [0, 1, 40, 100, 300] {
            a_full_disk_is_survived(suffix, free);
        }
    }
}

fn a_full_disk_is_survived(suffix: &str, free: u64) {
    let config = LogConfig { segment_bytes: 1500, index_interval_bytes: 100, ..LogConfig::default() };
    let (bench, faults) = faulty(config, suffix);
    let mut log = bench.create();
    let mut accepted = Vec::new();
    let mut aborted = 0;
    for round in 0..40 {
        match round {
            10 => faults.set_free_bytes(Some(free)),
            25 => faults.set_free_bytes(None),
            _ => {}
        }
        let sequence = log.producer(ProducerId(1)).map_or(0, |producer| producer.last_sequence() + 1);
        let data = Spec::new(2).value_bytes(50).producer(1, 0, sequence).transactional().build();
        let coordinator = AppendOptions { origin: AppendOrigin::Coordinator, ..AppendOptions::default() };
        let abort = marker(1, 0, ControlRecordType::Abort, 0);
        let has_open = log.has_ongoing_transaction(ProducerId(1), ProducerEpoch(0));
        let (batch, options) =
            if has_open { (&abort, coordinator) } else { (&data, AppendOptions::default()) };
        // Every few appends in another epoch, which is written down.
        match log.append_as_leader(batch, LeaderEpoch(round / 4), options) {
            Ok(info) => {
                accepted.push(info.first_offset);
                aborted += usize::from(has_open);
            }
            Err(AppendError::DiskFull(_)) if (10..25).contains(&round) => {}
            Err(error) => panic!("{suffix} with {free} bytes left, at {round}: {error}"),
        }
    }
    assert!(log.poison().is_none(), "{suffix}: {:?}", log.poison());
    let end = log.log_end_offset();
    log.set_high_watermark(end);
    log.truncate_to(end - 1).expect("the log can be cut");
    let cut = accepted.pop().expect("something was accepted");
    assert!(cut < end, "{suffix}");
    for open_again in [false, true] {
        if open_again {
            drop(log);
            log = bench.open_unclean();
        }
        let found: Vec<_> = headers(&mut log).iter().map(|header| header.base_offset).collect();
        assert_eq!(found, accepted, "{suffix} with {free} bytes left");
        let known = log.aborted_transactions(Offset(0), log.log_end_offset()).expect("it is read");
        assert!([aborted, aborted - 1].contains(&known.len()), "{suffix}: {aborted} aborted, {known:?}");
        assert!(headers(&mut log).iter().all(|b| log.epoch_at(b.base_offset) == Some(b.leader_epoch)));
    }
}

#[test]
fn a_log_with_aborted_transactions_is_opened_on_a_full_disk_after_a_crash() {
    let (bench, faults) = faulty(LogConfig::default(), "");
    let mut log = bench.create();
    append(&mut log, &Spec::new(2).producer(1, 0, 0).transactional().build());
    append_marker(&mut log, &marker(1, 0, ControlRecordType::Abort, 0));
    drop(log);
    faults.set_free_bytes(Some(0));
    let log = bench.open_unclean();
    let known = log.aborted_transactions(Offset(0), Offset(3)).expect("it is read");
    assert_eq!((known.len(), known[0].last_offset), (1, Offset(2)));
}

#[test]
fn a_marker_that_finds_no_room_leaves_no_aborted_transaction_behind() {
    let (bench, faults) = faulty(LogConfig::default(), ".log");
    let mut log = bench.create();
    append(&mut log, &Spec::new(2).producer(1, 0, 0).transactional().build());
    faults.set_free_bytes(Some(10));
    let options = AppendOptions { origin: AppendOrigin::Coordinator, ..AppendOptions::default() };
    let abort = marker(1, 0, ControlRecordType::Abort, 0);
    let refused = {
        let _locked = NoWaits::begin();
        log.append_as_leader(&abort, LeaderEpoch(0), options)
    };
    assert!(matches!(refused, Err(AppendError::DiskFull(_))), "{refused:?}");
    assert!(log.aborted_transactions(Offset(0), Offset(9)).expect("it is read").is_empty());
    assert!(log.has_ongoing_transaction(ProducerId(1), ProducerEpoch(0)));
    faults.set_free_bytes(None);
    append_marker(&mut log, &abort);
    let known = log.aborted_transactions(Offset(0), Offset(9)).expect("it is read");
    assert_eq!(known.iter().map(|aborted| aborted.last_offset).collect::<Vec<_>>(), [Offset(2)]);
}

/// Batches below the recovery point are not read again, so their aborted transactions must be synced too.
#[test]
fn a_flush_covers_the_transaction_index() {
    let (bench, faults) = faulty(LogConfig::default(), ".txnindex");
    let mut log = bench.create();
    append(&mut log, &Spec::new(2).producer(1, 0, 0).transactional().build());
    faults.set_failing_syncs(true);
    log.flush().expect("there is no transaction index yet");
    append_marker(&mut log, &marker(1, 0, ControlRecordType::Abort, 0));
    log.flush().expect_err("the aborted transaction is not on the medium");
    assert!(log.poison().is_some());
}

/// Everything that opens a file fails while too many are open, and works afterwards without a restart.
#[test]
fn log_outlives_a_lack_of_descriptors() {
    let config = LogConfig { segment_bytes: 400, flush_messages: 1, ..LogConfig::default() };
    let (bench, faults) = faulty(config, "");
    let mut log = bench.create();
    let batch = |sequence| Spec::new(1).value_bytes(100).producer(5, 0, sequence).build();
    append(&mut log, &batch(0));
    let mut next = 1;
    let mut refused_while_lacking = |log: &mut PartitionLog| {
        faults.set_lacking_descriptors(true);
        let mut refusal = None;
        while refusal.is_none() {
            match log.append_as_leader(&batch(next), LeaderEpoch(0), AppendOptions::default()) {
                Ok(_) => next += 1,
                Err(error) => refusal = Some(error),
            }
        }
        assert!(matches!(refusal, Some(AppendError::TooManyOpenFiles(_))), "{refusal:?}");
        let flushed = log.flush();
        assert!(flushed.is_ok() || matches!(flushed, Err(LogError::Io(_))), "{flushed:?}");
        assert_eq!(log.poison(), None);
        faults.set_lacking_descriptors(false);
        append(log, &batch(next));
        next += 1;
        log.flush().expect("there are descriptors again");
        assert_eq!(log.recovery_point(), log.log_end_offset());
    };
    // The active segment is full, and no other can be begun.
    refused_while_lacking(&mut log);
    // The active segment was closed, and cannot be opened.
    log.release_idle_resources().expect("it can be closed");
    refused_while_lacking(&mut log);
    refused_while_lacking(&mut log);
    let count = headers(&mut log).len();
    assert_eq!(count, usize::try_from(next).expect("a count"), "all that was accepted is there, once");
    drop(log);
    assert_eq!(headers(&mut bench.open_unclean()).len(), count);
}

#[test]
fn marker_waits_for_descriptors() {
    let (bench, faults) = faulty(LogConfig::default(), "");
    let mut log = bench.create();
    append(&mut log, &Spec::new(1).producer(5, 0, 0).transactional().build());
    let abort = marker(5, 0, ControlRecordType::Abort, 1);
    let options = AppendOptions { origin: AppendOrigin::Coordinator, ..AppendOptions::default() };
    faults.set_lacking_descriptors(true);
    let refused = log.append_as_leader(&abort, LeaderEpoch(0), options);
    assert!(matches!(refused, Err(AppendError::TooManyOpenFiles(_))), "{refused:?}");
    assert_eq!(log.poison(), None);
    faults.set_lacking_descriptors(false);
    append_marker(&mut log, &abort);
    assert_eq!(headers(&mut log).len(), 2);
}
