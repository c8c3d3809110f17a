//! Aborted transactions: what the transaction indexes of a leader, its followers and a recovered log contain, and what a
//! consumer of committed records sees at every bound.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use thalweg_log::{CleanupPolicy, LogConfig, LogError, OpenOptions, PartitionLog};
use thalweg_record::{
    Batch, BatchHeader, ControlRecordType, DecompressBuffer, LeaderEpoch, Offset, ProducerId, batches,
};

use crate::support::*;

const TXN_INDEX_ENTRY_BYTES: usize = 34;
const CHECKPOINT: &str = "transaction-index-checkpoint";

fn begin(log: &mut PartitionLog, id: i64, sequence: i32) {
    append(log, &Spec::new(1).producer(id, 0, sequence).transactional().build());
}

fn end(log: &mut PartitionLog, id: i64, kind: ControlRecordType) {
    append_marker(log, &marker(id, 0, kind, 0));
}

/// The transaction indexes of all segments, one after another.
fn txn_indexes(bench: &Bench) -> Vec<u8> {
    let names = bench.names().into_iter().filter(|name| name.ends_with(".txnindex"));
    names.flat_map(|name| bench.read_file(&name)).collect()
}

/// Whether a control batch aborts; a test's markers are readable.
fn aborts(batch: &Batch<'_>) -> bool {
    let mut buffer = DecompressBuffer::default();
    let mut records = batch.records(&mut buffer).expect("a marker is readable");
    let record = records.next().expect("a marker has a record").expect("it is whole");
    let kind = ControlRecordType::parse_key(record.key.expect("a marker has a key"));
    kind.expect("it is a marker") == Some(ControlRecordType::Abort)
}

/// Base offsets of the data batches that were aborted, by all batches of a log.
fn aborted_batches(all: &[Batch<'_>]) -> BTreeSet<i64> {
    let mut open: BTreeMap<ProducerId, Vec<i64>> = BTreeMap::new();
    let mut aborted = BTreeSet::new();
    for batch in all {
        let BatchHeader { producer_id, base_offset, attributes, .. } = batch.header;
        if attributes.is_control() {
            let ended = open.remove(&producer_id).unwrap_or_default();
            if aborts(batch) {
                aborted.extend(ended);
            }
        } else if attributes.is_transactional() {
            open.entry(producer_id).or_default().push(base_offset.0);
        }
    }
    aborted
}

/// Base offsets of the data batches in `from..upper` that a consumer hides, as Kafka's does: a producer counts as aborted
/// from the first offset of its aborted transaction to its next abort marker.
fn hidden_by_consumer(
    log: &mut PartitionLog,
    all: &[Batch<'_>],
    from: Offset,
    upper: Offset,
) -> BTreeSet<i64> {
    let mut aborted = log.aborted_transactions(from, upper).expect("the index is read");
    aborted.sort_by_key(|transaction| std::cmp::Reverse(transaction.first_offset));
    let mut hides = BTreeSet::new();
    let mut hidden = BTreeSet::new();
    for batch in all.iter().filter(|batch| batch.header.last_offset() >= from) {
        let header = &batch.header;
        if header.next_offset() > upper {
            break;
        }
        while aborted.last().is_some_and(|transaction| transaction.first_offset <= header.last_offset()) {
            hides.extend(aborted.pop().map(|transaction| transaction.producer_id));
        }
        if header.attributes.is_control() {
            if aborts(batch) {
                hides.remove(&header.producer_id);
            }
        } else if header.attributes.is_transactional() && hides.contains(&header.producer_id) {
            hidden.insert(header.base_offset.0);
        }
    }
    hidden
}

/// Checks what consumers see from every offset, to every bound up to the last stable offset.
fn check_reads(log: &mut PartitionLog, of: &str) {
    log.set_high_watermark(log.log_end_offset());
    let bytes = read_all(log, log.log_start_offset(), 1 << 20);
    let all: Vec<_> = batches(&bytes).map(|batch| batch.expect("whole batches")).collect();
    let aborted = aborted_batches(&all);
    let stable = log.last_stable_offset();
    for from in all.iter().map(|batch| batch.header.base_offset).filter(|&from| from < stable) {
        for upper in all.iter().map(|batch| batch.header.next_offset()) {
            if upper > stable || upper <= from {
                continue;
            }
            let expected: BTreeSet<i64> = aborted.range(from.0..upper.0).copied().collect();
            let found = hidden_by_consumer(log, &all, from, upper);
            assert_eq!(found, expected, "{of}: hidden from {from} to {upper}");
        }
    }
}

/// Three transactions in one answer: two of producer 1 that are aborted, and an open one between the second's beginning and
/// its end.
fn write_interleaved(log: &mut PartitionLog) {
    append(log, &Spec::new(1).build());
    begin(log, 1, 0);
    end(log, 1, ControlRecordType::Abort);
    begin(log, 1, 1);
    begin(log, 3, 0);
    end(log, 1, ControlRecordType::Abort);
}

#[test]
fn a_follower_that_appends_several_transactions_at_once_hides_all_aborted_records() {
    let (leading, following) = (Bench::new(), Bench::new());
    let (mut leader, mut follower) = (leading.create(), following.create());
    write_interleaved(&mut leader);
    let bytes = read_all(&mut leader, Offset(0), 1 << 20);
    follower.append_as_follower(&bytes, LeaderEpoch(0)).expect("the answer is appended");
    assert_eq!(txn_indexes(&following), txn_indexes(&leading));
    check_reads(&mut leader, "leader");
    check_reads(&mut follower, "follower");
}

/// Replaces the last stable offset of an entry of the first segment's transaction index.
fn record_last_stable(bench: &Bench, entry: usize, last_stable_offset: i64) {
    let name = format!("{:020}.txnindex", 0);
    let mut bytes = bench.read_file(&name);
    let at = (entry + 1) * TXN_INDEX_ENTRY_BYTES;
    bytes[at - 8..at].copy_from_slice(&last_stable_offset.to_be_bytes());
    bench.write_file(&name, &bytes);
}

#[test]
fn a_last_stable_offset_behind_its_marker_is_read_as_the_offset_after_it() {
    let bench = Bench::new();
    let mut log = bench.create();
    write_interleaved(&mut log);
    let written = txn_indexes(&bench);
    // As of a replica that appended all at once: producer 3 begins behind the marker.
    record_last_stable(&bench, 0, 4);
    check_reads(&mut log, "while it is open");
    log.close().expect("closes");
    // Neither Apache Kafka nor earlier versions leave a checkpoint that vouches for the index.
    bench.disk.remove(&bench.file(CHECKPOINT)).expect("is removed");
    let mut log = bench.open_clean();
    check_reads(&mut log, "after a start");
    assert_eq!(txn_indexes(&bench), written, "the start corrects the file");
}

/// A random history of four producers; some transactions stay open.
fn write_history(random: &mut SmallRng, log: &mut PartitionLog) {
    let mut open = [false; 4];
    let mut sequences = [0; 4];
    for _ in 0..random.random_range(4..40) {
        let at = random.random_range(0..4);
        let id = at as i64 + 1;
        match random.random_range(0..10) {
            0 => drop(append(log, &Spec::new(1).build())),
            1..=4 if open[at] => {
                let commits = random.random_range(0..3) == 0;
                end(log, id, if commits { ControlRecordType::Commit } else { ControlRecordType::Abort });
                open[at] = false;
            }
            _ => {
                let records = random.random_range(1..4);
                let batch = Spec::new(records).producer(id, 0, sequences[at]).transactional().build();
                append(log, &batch);
                sequences[at] += records as i32;
                open[at] = true;
            }
        }
    }
}

#[test]
fn replicas_have_equal_transaction_indexes_however_they_fetch_and_recover() {
    for seed in 0..150 {
        let mut random = SmallRng::seed_from_u64(seed);
        let segment_bytes = [600, 2_000, 1 << 20][random.random_range(0..3)];
        let config = LogConfig { segment_bytes, ..LogConfig::default() };
        let [leading, following] = [(); 2].map(|()| Bench::with(config.clone()));
        let (mut leader, mut follower) = (leading.create(), following.create());
        write_history(&mut random, &mut leader);
        let bytes = read_all(&mut leader, Offset(0), 1 << 20);
        let mut ends: Vec<usize> = Vec::new();
        for batch in batches(&bytes) {
            ends.push(ends.last().unwrap_or(&0) + batch.expect("whole").bytes.len());
        }
        let mut from = 0;
        while from < bytes.len() {
            let later: Vec<usize> = ends.iter().copied().filter(|&end| end > from).collect();
            let to = later[random.random_range(0..later.len())];
            follower.append_as_follower(&bytes[from..to], LeaderEpoch(0)).expect("the answer is appended");
            from = to;
        }
        assert_eq!(txn_indexes(&following), txn_indexes(&leading), "seed {seed}");
        check_reads(&mut leader, &format!("seed {seed}, leader"));
        check_reads(&mut follower, &format!("seed {seed}, follower"));
        drop(follower);
        let recovered = following.open(&OpenOptions::new(false));
        assert_eq!(txn_indexes(&following), txn_indexes(&leading), "seed {seed}, recovered");
        drop(recovered);
    }
}

/// A compacted log: a plain record, then aborted ones with the same key, and a transaction that stays open over a roll.
fn compacted() -> (Bench, PartitionLog) {
    let bench = Bench::with(LogConfig {
        segment_bytes: 1_000,
        cleanup_policy: CleanupPolicy::COMPACT,
        min_cleanable_dirty_ratio: 0.0,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    });
    let mut log = bench.create();
    write_interleaved(&mut log);
    let mut sequence = 1;
    while log.segment_offsets().len() == 1 {
        begin(&mut log, 3, sequence);
        sequence += 1;
    }
    log.set_high_watermark(log.log_end_offset());
    (bench, log)
}

#[test]
fn compaction_keeps_what_is_committed_whatever_the_last_stable_offsets_of_the_index_are() {
    let (bench, mut log) = compacted();
    let plain = headers(&mut log)[0];
    record_last_stable(&bench, 0, 4);
    compact(&mut log, NOW_MS).expect("there is something to compact");
    let left = headers(&mut log);
    assert_eq!(left[0], plain, "an aborted record does not replace it");
    // The last batch of a producer stays, without its records.
    let data = left.iter().filter(|header| !header.attributes.is_control() && header.record_count > 0);
    let first: Vec<_> = data.map(|header| header.base_offset.0).take(2).collect();
    assert_eq!(first, [0, 4], "aborted records are gone, those of the open transaction are there");
    check_reads(&mut log, "compacted");
}

/// What an earlier version of the checkpoint says of the indexes: it has no line with an end.
fn to_version_0(bench: &Bench) {
    let text = String::from_utf8(bench.read_file(CHECKPOINT)).expect("text");
    let sums: Vec<_> = text.lines().skip(2).filter(|line| line.split(' ').count() == 3).collect();
    let lines: String = sums.iter().map(|line| format!("{line}\n")).collect();
    bench.write_file(CHECKPOINT, format!("0\n{}\n{lines}", sums.len()).as_bytes());
}

fn rebuild(log: &mut PartitionLog) -> bool {
    let mut rebuild = log.plan_txn_index_rebuild(NOW_MS).expect("indexes are unverified");
    while rebuild.step().expect("reads").is_some() {}
    log.finish_txn_index_rebuild(rebuild).expect("is installed")
}

#[test]
fn entries_that_a_compaction_has_dropped_are_rebuilt_before_committed_records_are_read() {
    for leaves_checkpoint in [false, true] {
        let (bench, mut log) = compacted();
        let (whole, end) = (txn_indexes(&bench), log.log_end_offset());
        log.close().expect("closes");
        // The second aborted transaction was taken for a committed one: its record is there, and its entry is not.
        let name = format!("{:020}.txnindex", 0);
        let entries = bench.read_file(&name);
        bench.write_file(&name, &entries[..TXN_INDEX_ENTRY_BYTES]);
        bench.disk.remove(&bench.file(CHECKPOINT)).expect("is removed");
        if leaves_checkpoint {
            bench.open_clean().close().expect("closes");
            to_version_0(&bench);
        }
        let options = OpenOptions { cleaned_to: Offset(4), ..OpenOptions::new(true) };
        let mut log = bench.open(&options);
        log.set_high_watermark(end);
        let refused = log.aborted_transactions(Offset(0), Offset(4));
        assert!(matches!(refused, Err(LogError::UnverifiedTxnIndexes { .. })), "{refused:?}");
        let segments = log.segment_offsets();
        log.aborted_transactions(segments[1], end).expect("what was not compacted can be read");
        assert!(log.plan_compaction(NOW_MS).expect("plans").is_none(), "aborted records would be kept");
        assert!(log.unverified_txn_indexes().is_some_and(|unverified| unverified.is_awaited));
        assert!(rebuild(&mut log));
        assert_eq!(txn_indexes(&bench), whole);
        check_reads(&mut log, "rebuilt");
        // The checkpoint remembers it through any stop.
        for clean in [false, true, true] {
            let mut log = bench.open(&OpenOptions { clean, ..options.clone() });
            assert_eq!(log.unverified_txn_indexes(), None, "clean: {clean}");
            check_reads(&mut log, "opened again");
            log.close().expect("closes");
        }
    }
}

#[test]
fn what_was_compacted_behind_the_checkpointed_end_is_unverified() {
    let (bench, mut log) = compacted();
    compact(&mut log, NOW_MS).expect("there is something to compact");
    let (cleaned_to, known) = (log.cleaned_to(), log.log_end_offset());
    log.close().expect("closes");
    let opened = |cleaned_to| bench.open(&OpenOptions { cleaned_to, ..OpenOptions::new(true) });
    assert_eq!(opened(cleaned_to).unverified_txn_indexes(), None, "compacted here");
    let checkpoint = bench.read_file(CHECKPOINT);
    let mut log = opened(cleaned_to);
    end(&mut log, 3, ControlRecordType::Commit);
    while log.segment_offsets().len() < 4 {
        append(&mut log, &Spec::new(1).build());
    }
    let segments = log.segment_offsets();
    log.close().expect("closes");
    // Another broker leaves Thalweg's checkpoint alone.
    bench.write_file(CHECKPOINT, &checkpoint);
    let mut log = opened(segments[2]);
    assert!(log.unverified_txn_indexes().is_some(), "compacted up to {}, known up to {known}", segments[2]);
    assert!(rebuild(&mut log));
    assert_eq!(log.unverified_txn_indexes(), None);
    log.close().expect("closes");
    // A log that was truncated, and continued in another epoch, is not the one that the checkpoint speaks of.
    let text = String::from_utf8(bench.read_file(CHECKPOINT)).expect("text");
    let known = log.log_end_offset();
    bench.write_file(CHECKPOINT, text.replace(&format!("{known} 0\n"), &format!("{known} 7\n")).as_bytes());
    assert!(opened(cleaned_to).unverified_txn_indexes().is_some());
}

#[test]
fn a_rebuild_of_a_log_that_was_truncated_meanwhile_is_done_again() {
    let (bench, mut log) = compacted();
    log.close().expect("closes");
    to_version_0(&bench);
    let options = OpenOptions { cleaned_to: Offset(6), ..OpenOptions::new(true) };
    let mut log = bench.open(&options);
    log.set_high_watermark(Offset(0));
    let mut early = log.plan_txn_index_rebuild(NOW_MS).expect("indexes are unverified");
    assert!(log.plan_txn_index_rebuild(NOW_MS).is_none(), "it is planned");
    assert_eq!(log.delete_old_segments(i64::MAX).expect("looks"), 0, "its segments stay");
    while early.step().expect("reads").is_some() {}
    let (cut, end) = (Offset(4), log.log_end_offset());
    assert!(log.truncate_to(cut).expect("truncates") && end > cut);
    assert!(!log.finish_txn_index_rebuild(early).expect("is refused"));
    append_marker(&mut log, &marker(3, 0, ControlRecordType::Commit, 0));
    begin(&mut log, 1, 2);
    assert!(rebuild(&mut log));
    check_reads(&mut log, "truncated and rebuilt");
}
