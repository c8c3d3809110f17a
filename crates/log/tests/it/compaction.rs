//! Log compaction: retained records, and the state after an interrupted run.

use std::collections::BTreeMap;

use thalweg_log::{CleanupPolicy, CompactionStep, Dirtiness, LogConfig, OpenOptions, PartitionLog};
use thalweg_record::{
    BatchBuilder, BatchOptions, Compression, ControlRecordType, DecompressBuffer, Offset, ProducerId, batches,
};

use crate::support::*;

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 2000,
        index_interval_bytes: 300,
        cleanup_policy: CleanupPolicy::COMPACT,
        delete_retention_ms: 1000,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    }
}

/// A batch of keys and values; a value of `None` is a tombstone.
fn batch(options: BatchOptions, records: &[(&str, Option<&str>)]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for (key, value) in records {
        builder.append(NOW_MS, Some(key.as_bytes()), value.map(str::as_bytes), &[]).expect("fits");
    }
    builder.finish().to_vec()
}

fn put(log: &mut PartitionLog, records: &[(&str, Option<&str>)]) {
    append(log, &batch(BatchOptions::default(), records));
    log.set_high_watermark(log.log_end_offset());
}

/// All data records, in order.
fn records(log: &mut PartitionLog) -> Vec<(i64, String, Option<String>)> {
    let start = log.log_start_offset();
    let bytes = read_all(log, start, 1 << 20);
    let mut buffer = DecompressBuffer::new(1 << 20);
    let mut found = Vec::new();
    for batch in batches(&bytes) {
        let batch = batch.expect("whole");
        thalweg_record::verify(batch.bytes).expect("the CRC fits");
        if batch.header.attributes.is_control() {
            continue;
        }
        for record in batch.records(&mut buffer).expect("records") {
            let record = record.expect("a record");
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
            found.push((record.offset.0, text(record.key.expect("a key")), record.value.map(text)));
        }
    }
    found
}

fn latest(log: &mut PartitionLog) -> BTreeMap<String, String> {
    let mut latest = BTreeMap::new();
    for (_, key, value) in records(log) {
        match value {
            Some(value) => latest.insert(key, value),
            None => latest.remove(&key),
        };
    }
    latest
}

fn fill(log: &mut PartitionLog, codec: Compression) {
    let options = BatchOptions { compression: codec, ..BatchOptions::default() };
    for round in 0..200 {
        let (first, second) = (format!("key-{}", round % 7), format!("key-{}", round % 3));
        let value = format!("value-{round}");
        append(log, &batch(options, &[(&first, Some(&value)), (&second, Some(&value))]));
    }
    log.set_high_watermark(log.log_end_offset());
}

#[test]
fn the_last_value_of_each_key_stays_at_its_offset() {
    for codec in [Compression::None, Compression::Zstd] {
        let bench = Bench::with(config());
        let mut log = bench.create();
        fill(&mut log, codec);
        let (before, end) = (records(&mut log), log.log_end_offset());
        let wanted = latest(&mut log);
        let stats = compact(&mut log, NOW_MS).expect("enough is dirty");
        assert!(stats.bytes_after < stats.bytes_before / 10, "{stats:?}");
        assert_eq!(log.log_end_offset(), end);
        assert_eq!(latest(&mut log), wanted);
        let after = records(&mut log);
        assert!(after.iter().all(|record| before.contains(record)));
        let active = log.segment_offsets().pop().expect("a segment");
        let below: Vec<_> = after.iter().filter(|(offset, ..)| *offset < active.0).collect();
        let keys: std::collections::BTreeSet<_> = below.iter().map(|(_, key, _)| key).collect();
        assert_eq!(keys.len(), below.len(), "one record a key below the active segment");
        assert_eq!(log.cleaned_to(), active);
        assert!(compact(&mut log, NOW_MS).is_none(), "nothing is dirty");
        // It continues, survives any stop, and is compacted again.
        fill(&mut log, codec);
        let wanted = latest(&mut log);
        drop(log);
        let mut log = bench.open(&OpenOptions { cleaned_to: active, ..OpenOptions::new(false) });
        assert_eq!(latest(&mut log), wanted);
        log.set_high_watermark(log.log_end_offset());
        compact(&mut log, NOW_MS).expect("enough is dirty");
        assert_eq!(latest(&mut log), wanted);
        for offset in 0..log.log_end_offset().0 {
            let end = log.log_end_offset();
            log.read(Offset(offset), 100, end, true)
                .expect("every offset is in range")
                .expect("something follows");
        }
        log.purge_deleted(NOW_MS);
        assert!(bench.names().iter().all(|name| !name.ends_with("deleted") && !name.ends_with("cleaned")));
    }
}

#[test]
fn tombstones_stay_for_a_while() {
    let bench = Bench::with(config());
    let mut log = bench.create();
    put(&mut log, &[("gone", Some("value")), ("kept", Some("value"))]);
    put(&mut log, &[("gone", None)]);
    let roll = |log: &mut PartitionLog| {
        for _ in 0..40 {
            put(log, &[("filler", Some("a value that fills the segment"))]);
        }
    };
    roll(&mut log);
    compact(&mut log, NOW_MS).expect("enough is dirty");
    let tombstone = |log: &mut PartitionLog| records(log).contains(&(2, "gone".to_owned(), None));
    assert!(!records(&mut log).iter().any(|(offset, ..)| *offset == 0), "its value is gone");
    assert!(tombstone(&mut log));
    roll(&mut log);
    compact(&mut log, NOW_MS + 999).expect("enough is dirty");
    assert!(tombstone(&mut log), "readers have time to see it");
    roll(&mut log);
    compact(&mut log, NOW_MS + 1001).expect("enough is dirty");
    assert!(!tombstone(&mut log));
    assert!(records(&mut log).iter().any(|(_, key, _)| key == "kept"));
}

#[test]
fn aborted_records_go_and_markers_stay_as_long_as_they_are_needed() {
    let bench = Bench::with(config());
    let mut log = bench.create();
    let transactional = |sequence| BatchOptions {
        producer_id: ProducerId(1),
        producer_epoch: thalweg_record::ProducerEpoch(0),
        base_sequence: sequence,
        transactional: true,
        ..BatchOptions::default()
    };
    put(&mut log, &[("a", Some("before"))]);
    append(&mut log, &batch(transactional(0), &[("a", Some("aborted"))]));
    append_marker(&mut log, &marker(1, 0, ControlRecordType::Abort, 0));
    append(&mut log, &batch(transactional(1), &[("b", Some("committed"))]));
    append_marker(&mut log, &marker(1, 0, ControlRecordType::Commit, 0));
    append(&mut log, &batch(transactional(2), &[("c", Some("later"))]));
    append_marker(&mut log, &marker(1, 0, ControlRecordType::Commit, 0));
    for _ in 0..60 {
        put(&mut log, &[("filler", Some("a value that fills the segment"))]);
    }
    compact(&mut log, NOW_MS).expect("enough is dirty");
    let found = records(&mut log);
    assert!(
        found.contains(&(0, "a".to_owned(), Some("before".to_owned()))),
        "an aborted record supersedes nothing"
    );
    assert!(!found.iter().any(|(_, _, value)| value.as_deref() == Some("aborted")));
    assert!(found.iter().any(|(_, key, _)| key == "b") && found.iter().any(|(_, key, _)| key == "c"));
    let end = log.log_end_offset();
    drop(log);
    let mut log = bench.open_unclean();
    log.set_high_watermark(end);
    assert_eq!(log.last_stable_offset(), end);
    assert_eq!(log.producer(ProducerId(1)).expect("known").last_sequence(), 2);
}

#[test]
fn the_last_sequence_of_a_producer_survives_its_records() {
    let bench = Bench::with(config());
    let mut log = bench.create();
    append(&mut log, &Spec::new(3).producer(9, 0, 0).build());
    for _ in 0..60 {
        append(&mut log, &Spec::new(3).build());
    }
    log.set_high_watermark(log.log_end_offset());
    compact(&mut log, NOW_MS).expect("enough is dirty");
    assert_eq!(records(&mut log).iter().filter(|(offset, ..)| *offset < 3).count(), 0);
    for name in bench.names().iter().filter(|name| name.ends_with("snapshot")) {
        bench.disk.remove(&bench.file(name)).expect("removes");
    }
    drop(log);
    let log = bench.open_unclean();
    assert_eq!(log.producer(ProducerId(9)).expect("found in the emptied batch").last_sequence(), 2);
}

#[test]
fn an_outcome_is_dropped_when_the_segments_have_changed() {
    let bench = Bench::with(config());
    let mut log = bench.create();
    fill(&mut log, Compression::None);
    let job = log.plan_compaction(NOW_MS).expect("plans").expect("enough is dirty");
    let outcome = job.run().expect("compacts");
    log.truncate_to(Offset(100)).expect("is cut");
    let before = records(&mut log);
    assert_eq!(take_over(&mut log, &job, outcome), None);
    assert_eq!(records(&mut log), before);
    assert!(!bench.names().iter().any(|name| name.ends_with(".cleaned")));
}

#[test]
fn open_transactions_and_young_records_are_left_alone() {
    let bench = Bench::with(LogConfig { min_compaction_lag_ms: 1000, ..config() });
    let mut log = bench.create();
    fill(&mut log, Compression::None);
    assert!(log.plan_compaction(NOW_MS + 999).expect("plans").is_none(), "too young");
    assert!(log.plan_compaction(NOW_MS + 1000).expect("plans").is_some());
    log.set_high_watermark(Offset(0));
    assert!(log.plan_compaction(NOW_MS + 5000).expect("plans").is_none(), "not replicated");
}

#[test]
fn batches_that_nobody_can_read_stay_as_they_are() {
    let bench = Bench::with(config());
    let mut log = bench.create();
    fill(&mut log, Compression::None);
    let wanted = latest(&mut log);
    let at = log.log_end_offset();
    append(&mut log, &unreadable(3));
    let behind = log.log_end_offset();
    fill(&mut log, Compression::Gzip);
    let batch_at = |log: &mut PartitionLog| {
        let bytes = read_all(log, at, 1 << 20);
        batches(&bytes).next().expect("a batch").expect("whole").bytes.to_vec()
    };
    let before = batch_at(&mut log);
    let stats = compact(&mut log, NOW_MS).expect("enough is dirty");
    assert_eq!((stats.unreadable_batches, stats.first_unreadable), (1, Some(at)));
    assert!(stats.bytes_after < stats.bytes_before / 10, "{stats:?}");
    assert_eq!(batch_at(&mut log), before);
    assert!(log.cleaned_to() > behind, "compaction goes on behind it");
    let mut buffer = DecompressBuffer::new(1 << 20);
    let readable: BTreeMap<_, _> = batches(&read_all(&mut log, behind, 1 << 20))
        .flat_map(|batch| {
            let records = batch.expect("whole").records(&mut buffer).expect("readable");
            let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.expect("set").to_vec()).expect("text");
            records
                .map(|record| record.expect("a record"))
                .map(|record| (text(record.key), text(record.value)))
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(readable, wanted, "both rounds end with the same values");
}

#[test]
fn a_damaged_segment_is_not_compacted() {
    let bench = Bench::with(config());
    let mut log = bench.create();
    fill(&mut log, Compression::None);
    let base = log.segment_offsets()[1];
    let mut bytes = bench.read_file(&log_name(base.0));
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    bench.write_file(&log_name(base.0), &bytes);
    let job = log.plan_compaction(NOW_MS).expect("plans").expect("enough is dirty");
    job.run().expect_err("the CRC does not fit");
    assert!(!bench.names().iter().any(|name| name.ends_with(".cleaned")));
    assert_eq!(bench.read_file(&log_name(base.0)), bytes);
}

#[test]
fn a_stop_in_the_middle_leaves_the_old_or_the_new() {
    let build = || {
        let bench = Bench::with(config());
        let mut log = bench.create();
        fill(&mut log, Compression::None);
        let wanted = latest(&mut log);
        let job = log.plan_compaction(NOW_MS).expect("plans").expect("enough is dirty");
        (bench, log, job, wanted)
    };
    // After the new segments were written, before they replace anything.
    let (bench, log, job, wanted) = build();
    job.run().expect("compacts");
    drop(log);
    assert!(bench.names().iter().any(|name| name.ends_with(".log.cleaned")));
    assert_eq!(latest(&mut bench.open_unclean()), wanted);
    assert!(!bench.names().iter().any(|name| name.contains("cleaned")), "{:?}", bench.names());
    // In the middle of the renames to `.swap`, and after all of them: the segments come in their order, and
    // only the last one here has a batch, and so indexes.
    for renamed in 0..=3 {
        let (bench, log, job, wanted) = build();
        job.run().expect("compacts");
        drop(log);
        let swap = |name: &str| {
            let (from, to) = (format!("{name}.cleaned"), format!("{name}.swap"));
            bench.disk.rename(&bench.file(&from), &bench.file(&to)).expect("renames");
        };
        let names = bench.names();
        let mut new: Vec<_> = names.iter().filter_map(|name| name.strip_suffix(".log.cleaned")).collect();
        new.sort_unstable();
        let last = new.pop().expect("a segment");
        new.iter().for_each(|base| swap(&format!("{base}.log")));
        let suffixes = [".log", ".index", ".timeindex"];
        suffixes[..renamed].iter().for_each(|suffix| swap(&format!("{last}{suffix}")));
        let len = || bench.read_file(&format!("{last}.log")).len();
        let len_before = len();
        let mut log = bench.open_unclean();
        assert_eq!(latest(&mut log), wanted, "{renamed} files renamed");
        assert!(!bench.names().iter().any(|name| name.ends_with("swap") || name.ends_with("cleaned")));
        assert_eq!(bench.read_file(&format!("{}.log", new[0])).len(), 0);
        for _ in 0..2 {
            assert_eq!(log.damage(), None, "{renamed} files renamed: a segment may be empty");
            drop(log);
            log = bench.open_unclean();
        }
        let is_smaller = len() < len_before;
        assert_eq!(is_smaller, renamed == suffixes.len(), "the new segment counts once it is whole");
    }
}

/// A value whose batch is large when decompressed, and small when compressed.
fn put_large(log: &mut PartitionLog, key: &str, bytes: usize) {
    let mut builder =
        BatchBuilder::new(BatchOptions { compression: Compression::Zstd, ..BatchOptions::default() });
    builder.append(NOW_MS, Some(key.as_bytes()), Some(&vec![b'v'; bytes]), &[]).expect("fits");
    append(log, builder.finish());
    log.set_high_watermark(log.log_end_offset());
}

fn roll(log: &mut PartitionLog) {
    for _ in 0..40 {
        put(log, &[("filler", Some("a value that fills the segment"))]);
    }
}

/// Whether a reader from the start finds a value for the key, in batches of any size.
fn has_value(log: &mut PartitionLog, wanted: &str) -> bool {
    let start = log.log_start_offset();
    let bytes = read_all(log, start, 1 << 20);
    let mut buffer = DecompressBuffer::new(256 << 20);
    let mut there = false;
    for batch in batches(&bytes) {
        for record in batch.expect("whole").records(&mut buffer).expect("records") {
            let record = record.expect("a record");
            if record.key == Some(wanted.as_bytes()) {
                there = record.value.is_some();
            }
        }
    }
    there
}

#[test]
fn a_deleted_key_of_a_large_batch_stays_deleted() {
    let bench = Bench::with(LogConfig { segment_bytes: 4000, ..config() });
    let mut log = bench.create();
    put_large(&mut log, "gone", 65 << 20);
    put(&mut log, &[("gone", None)]);
    for round in 0..3 {
        roll(&mut log);
        compact(&mut log, NOW_MS + round * 1001).expect("enough is dirty");
        assert!(!has_value(&mut log, "gone"), "round {round}");
    }
}

#[test]
fn nothing_deleted_returns_behind_an_unread_batch() {
    let bench = Bench::with(LogConfig { segment_bytes: 6000, min_cleanable_dirty_ratio: 0.0, ..config() });
    let mut log = bench.create();
    put(&mut log, &[("early", Some("value")), ("kept", Some("value"))]);
    put(&mut log, &[("early", None)]);
    // A batch that another kind of broker may have stored, or this one before its topic was compacted.
    put_large(&mut log, "gone", 129 << 20);
    put(&mut log, &[("gone", None)]);
    for round in 0..4 {
        roll(&mut log);
        roll(&mut log);
        let stats = compact(&mut log, NOW_MS + round * 1001).expect("enough is dirty");
        assert_eq!((stats.unreadable_batches, stats.first_unreadable), (1, Some(Offset(3))));
        assert!(!has_value(&mut log, "gone"), "round {round}");
        assert!(!has_value(&mut log, "early"));
    }
    let tombstones = |log: &mut PartitionLog, wanted: &str| {
        let (start, mut buffer) = (log.log_start_offset(), DecompressBuffer::new(256 << 20));
        let bytes = read_all(log, start, 1 << 20);
        let mut count = 0;
        for batch in batches(&bytes) {
            let records = batch.expect("whole").records(&mut buffer).expect("records");
            count += records.filter(|r| r.as_ref().is_ok_and(|r| r.key == Some(wanted.as_bytes()))).count();
        }
        count
    };
    assert_eq!(tombstones(&mut log, "early"), 0, "before the unread batch tombstones go in time");
    assert_eq!(tombstones(&mut log, "gone"), 2, "the unread value and its tombstone");
}

#[test]
fn a_pass_survives_retention() {
    let bench = Bench::with(LogConfig {
        cleanup_policy: CleanupPolicy { compact: true, delete: true },
        retention_bytes: 6000,
        retention_ms: -1,
        ..config()
    });
    let mut log = bench.create();
    fill(&mut log, Compression::None);
    let wanted = latest(&mut log);
    let job = log.plan_compaction(NOW_MS).expect("plans").expect("enough is dirty");
    let outcome = job.run().expect("compacts");
    log.delete_old_segments(NOW_MS).expect("deletes");
    log.delete_records(Offset(50)).expect("deletes");
    take_over(&mut log, &job, outcome).expect("the pass counts");
    assert!(log.log_start_offset() >= Offset(50));
    assert_eq!(latest(&mut log), wanted);
    drop(job);
    fill(&mut log, Compression::None);
    assert!(log.delete_old_segments(NOW_MS).expect("deletes") > 0, "what waited for the pass goes");
    assert!(log.size_bytes() <= 6000 + 2000);
}

#[test]
fn the_dirtiest_log_comes_first_and_an_overdue_one_before_it() {
    let dirtiness = |is_overdue, ratio| Dirtiness { is_overdue, ratio };
    assert!(dirtiness(false, 0.9) > dirtiness(false, 0.6));
    assert!(dirtiness(true, 0.1) > dirtiness(false, 0.9) && dirtiness(true, 0.2) > dirtiness(true, 0.1));
    let bench = Bench::with(LogConfig { max_compaction_lag_ms: 5000, ..config() });
    let mut log = bench.create();
    fill(&mut log, Compression::None);
    assert_eq!(log.dirtiness(NOW_MS).expect("looks"), Some(dirtiness(false, 1.0)));
    compact(&mut log, NOW_MS).expect("all is dirty");
    assert_eq!(log.dirtiness(NOW_MS + 5001).expect("looks"), None, "nothing is dirty");
    roll(&mut log);
    let found = log.dirtiness(NOW_MS + 5001).expect("looks").expect("it is old");
    assert!(found.is_overdue && found.ratio < 1.0, "{found:?}");
    let job = log.plan_compaction(NOW_MS).expect("plans").expect("enough is dirty");
    assert_eq!(log.dirtiness(NOW_MS + 5001).expect("looks"), None, "it is being compacted");
    drop(job);
    assert!(log.dirtiness(NOW_MS).expect("looks").is_some());
}

#[test]
fn a_pass_goes_on_step_by_step_and_counts_its_bytes() {
    let bench = Bench::with(LogConfig { segment_bytes: 1 << 20, ..config() });
    let mut log = bench.create();
    for _ in 0..64 {
        append(&mut log, &Spec::new(4).value_bytes(20_000).build());
    }
    log.set_high_watermark(log.log_end_offset());
    let job = log.plan_compaction(NOW_MS).expect("plans").expect("all is dirty");
    let dirty: u64 = log.size_bytes() - (log.size_bytes() % (1 << 20)).min(1 << 20);
    let mut pass = job.begin();
    let (mut steps, mut bytes) = (0, 0);
    let outcome = loop {
        match pass.step(&job).expect("compacts") {
            CompactionStep::Moved { bytes: moved } => {
                assert!(moved <= 3 << 20, "{moved} bytes in a step");
                steps += 1;
                bytes += moved;
            }
            CompactionStep::Done(outcome) => break outcome,
        }
    };
    assert!(steps >= 4, "{steps} steps");
    assert!(bytes > dirty * 3 / 2, "{bytes} bytes for two walks over {dirty}");
    take_over(&mut log, &job, outcome).expect("nothing came between");
}

#[test]
fn a_batch_with_more_keys_than_there_is_room_for_is_named() {
    let bench = Bench::with(config());
    let mut log = bench.create();
    for _ in 0..200 {
        append(&mut log, &batch(BatchOptions::default(), &[("a", Some("1")), ("b", Some("2"))]));
    }
    log.set_high_watermark(log.log_end_offset());
    let mut job = log.plan_compaction(NOW_MS).expect("plans").expect("all is dirty");
    job.dedupe_buffer_bytes = 48;
    let error = job.run().expect_err("a batch has two keys");
    assert!(error.to_string().contains("log.cleaner.dedupe.buffer.size"), "{error}");
    assert!(!bench.names().iter().any(|name| name.ends_with(".cleaned")));
}

#[test]
fn unread_batches_are_named_once() {
    let bench = Bench::with(LogConfig { min_cleanable_dirty_ratio: 0.0, ..config() });
    let mut log = bench.create();
    append(&mut log, &unreadable(3));
    let named = |log: &mut PartitionLog| {
        roll(log);
        let (told, _) = warnings_of(|| compact(log, NOW_MS).expect("enough is dirty"));
        told.iter().filter(|line| line.contains("unreadable")).count()
    };
    assert_eq!((named(&mut log), named(&mut log)), (1, 0));
    append(&mut log, &unreadable(1));
    assert_eq!((named(&mut log), named(&mut log)), (1, 0));
}
