//! Aborted transactions: what the transaction indexes of a leader, its followers and a recovered log contain,
//! and what a consumer of committed records sees at every bound.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use thalweg_log::disk::{Disk, MemoryDisk};
use thalweg_log::{CleanupPolicy, Damage, LogConfig, OpenOptions, PartitionLog};
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

/// Base offsets of the data batches in `from..upper` that a consumer hides, as Kafka's does: a producer
/// counts as aborted from the first offset of its aborted transaction to its next abort marker.
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

/// Three transactions in one answer: two of producer 1 that are aborted, and an open one between the second's
/// beginning and its end.
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
    // As of a replica that appended all at once: producer 3 begins behind the marker.
    record_last_stable(&bench, 0, 4);
    check_reads(&mut log, "wrong in the file");
}

/// Gives the checkpoint the version of earlier builds, which say nothing of last stable offsets.
fn to_version_0(bench: &Bench) {
    let text = String::from_utf8(bench.read_file(CHECKPOINT)).expect("text");
    let entries = text.strip_prefix("1\n").expect("the current version");
    bench.write_file(CHECKPOINT, format!("0\n{entries}").as_bytes());
}

#[test]
fn the_first_start_corrects_indexes_of_earlier_versions_and_of_other_brokers() {
    for clean in [false, true] {
        let bench = Bench::with(LogConfig { segment_bytes: 700, ..LogConfig::default() });
        let mut log = bench.create();
        write_interleaved(&mut log);
        while log.segment_offsets().len() < 3 {
            append(&mut log, &Spec::new(1).build());
        }
        let (written, end) = (txn_indexes(&bench), log.log_end_offset());
        record_last_stable(&bench, 0, 4);
        // The index and the checkpoint are those of an earlier version.
        log.close().expect("closes");
        to_version_0(&bench);
        let recovery_point = if clean { end } else { log.segment_offsets()[2] };
        let options = OpenOptions { recovery_point, ..OpenOptions::new(clean) };
        let check = |of| {
            let mut log = bench.open(&options);
            check_reads(&mut log, of);
            assert_eq!(txn_indexes(&bench), written, "{of}");
            log.close().expect("closes");
            assert!(bench.read_file(CHECKPOINT).starts_with(b"1\n"), "{of}");
        };
        check("an earlier version");
        // Another broker has no checkpoint, or leaves the one that is there alone.
        record_last_stable(&bench, 0, 4);
        check("a checkpoint that does not fit");
        record_last_stable(&bench, 0, 4);
        bench.disk.remove(&bench.file(CHECKPOINT)).expect("is removed");
        check("no checkpoint");
    }
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

/// A compacted log: a plain record, then aborted ones with the same key, and a transaction that stays open
/// over a roll.
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

#[test]
fn transaction_index_of_a_log_that_was_emptied_hides_nothing_of_what_is_appended_again() {
    let bench = Bench::new();
    let mut log = bench.create();
    let fill = |log: &mut PartitionLog| {
        for sequence in 0..3 {
            begin(log, 1, sequence);
            end(log, 1, ControlRecordType::Abort);
        }
    };
    fill(&mut log);
    log.set_high_watermark(Offset(6));
    log.close().expect("closes");
    let whole = txn_indexes(&bench);
    assert_eq!(whole.len(), 3 * TXN_INDEX_ENTRY_BYTES);
    bench.write_file(&log_name(0), &[]);
    // Without a checkpoint, and with nothing else that says how long the log was.
    let mut log = bench.open(&OpenOptions::new(true));
    assert_eq!(log.log_end_offset(), Offset(0));
    fill(&mut log);
    log.close().expect("closes");
    assert_eq!(txn_indexes(&bench), whole);
}

#[test]
fn high_watermark_of_a_clean_stop_reveals_missing_records() {
    let bench = Bench::new();
    let mut log = bench.create();
    begin(&mut log, 1, 0);
    end(&mut log, 1, ControlRecordType::Commit);
    log.close().expect("closes");
    bench.write_file(&log_name(0), &[]);
    let options = OpenOptions { high_watermark: Offset(2), ..OpenOptions::new(true) };
    assert_eq!(bench.open(&options).damage(), Some(Damage::Missing(Offset(2))));
    let options = OpenOptions { clean: false, ..options };
    assert_eq!(bench.open(&options).damage(), None, "a power failure may have taken them");
}

/// A closed log whose first segments have a transaction that the second one aborts, the base offset of that
/// and the next, and the log end.
fn aborted_in_second() -> (Bench, Offset, Offset, Offset) {
    aborted_in_second_of(Bench::new())
}

fn aborted_in_second_of(mut bench: Bench) -> (Bench, Offset, Offset, Offset) {
    bench.config = LogConfig { segment_bytes: 500, ..LogConfig::default() };
    let mut log = bench.create();
    let mut sequence = 0;
    while log.segment_offsets().len() < 2 {
        begin(&mut log, 1, sequence);
        sequence += 1;
    }
    end(&mut log, 1, ControlRecordType::Abort);
    while log.segment_offsets().len() < 4 {
        append(&mut log, &Spec::new(2).value_bytes(60).build());
    }
    log.set_high_watermark(log.log_end_offset());
    log.close().expect("closes");
    let segments = log.segment_offsets();
    (bench, segments[1], segments[2], log.log_end_offset())
}

#[test]
fn aborted_records_stay_hidden_when_the_segment_with_the_marker_is_missing() {
    for (clean, ways) in [(true, 0), (false, 0), (true, 1), (false, 1)] {
        let (bench, base, next, end) = aborted_in_second();
        let (log_name, deleted) = (log_name(base.0), format!("{:020}.log.deleted", base.0));
        let bytes = bench.read_file(&log_name);
        match ways {
            0 => bench.disk.remove(&bench.file(&log_name)).expect("removes"),
            _ => bench.disk.rename(&bench.file(&log_name), &bench.file(&deleted)).expect("renames"),
        }
        for start in 0..3 {
            let options = OpenOptions { high_watermark: end, ..OpenOptions::new(clean) };
            let recovery_point = if clean { end } else { next };
            let mut log = bench.open(&OpenOptions { recovery_point, ..options });
            assert_eq!(log.end_at_gap().expect("it is looked through"), None);
            assert_eq!(log.damage(), Some(Damage::Unreadable(base)), "start {start}");
            let hidden = log.aborted_transactions(Offset(0), base).expect("reads");
            assert_eq!(hidden.len(), 1, "start {start}, clean: {clean}, {ways}");
            assert_eq!(hidden[0].first_offset, Offset(0));
            assert!((base..next).contains(&hidden[0].last_offset));
            log.accept_loss_at_ends().expect("no other replica has them");
            if clean {
                log.close().expect("closes");
            }
        }
        if ways == 1 {
            bench.disk.remove(&bench.file(&deleted)).expect("removes");
        }
        bench.write_file(&log_name, &bytes);
        let mut log = bench.open(&OpenOptions { recovery_point: next, ..OpenOptions::new(false) });
        for from in [Offset(0), base] {
            let hidden = log.aborted_transactions(from, next).expect("reads");
            assert_eq!(hidden.len(), 1, "it is there again: {hidden:?}");
        }
        log.truncate_to(base).expect("truncates");
        assert_eq!(log.aborted_transactions(Offset(0), base).expect("reads"), []);
    }
}

#[test]
fn aborted_records_of_a_missing_segment_stay_hidden_after_a_power_failure() {
    for seed in 0..100 {
        let random = &mut SmallRng::seed_from_u64(seed);
        let bench = Bench::new();
        let memory = MemoryDisk::new(bench.clock.clone());
        let disk = Disk::in_memory(Arc::clone(&memory));
        disk.create_dir(bench.dir.path()).expect("creates");
        let (bench, base, next, end) = aborted_in_second_of(Bench { disk, ..bench });
        bench.disk.remove(&bench.file(&log_name(base.0))).expect("removes");
        for name in bench.names() {
            bench.disk.open(&bench.file(&name)).expect("opens").sync_data().expect("is on the medium");
        }
        for dir in bench.home().dir.ancestors() {
            bench.disk.sync_dir(dir).expect("is on the medium");
        }
        let options = OpenOptions { recovery_point: end, high_watermark: end, ..OpenOptions::new(true) };
        for start in 0..3 {
            let log = bench.open(&OpenOptions { clean: start == 0, ..options.clone() });
            let hidden = log.aborted_transactions(Offset(0), base).expect("reads");
            assert_eq!(hidden.len(), 1, "seed {seed}, start {start}");
            assert!((base..next).contains(&hidden[0].last_offset));
            memory.lose_power(&mut |end| random.random_range(0..end));
        }
    }
}

#[test]
fn truncation_drops_the_aborted_transactions_of_a_missing_segment() {
    let (bench, base, next, _) = aborted_in_second();
    bench.disk.remove(&bench.file(&log_name(base.0))).expect("removes");
    let mut log = bench.open(&OpenOptions { recovery_point: next, ..OpenOptions::new(true) });
    log.drop_damage().expect("drops");
    assert_eq!(log.log_end_offset(), base);
    assert_eq!(log.aborted_transactions(Offset(0), base).expect("reads"), []);
}

#[test]
fn missing_segment_with_an_abort_marker_is_damage_at_once() {
    for clean in [true, false] {
        let (bench, base, next, end) = aborted_in_second();
        for name in bench.names().iter().filter(|name| name.starts_with(&format!("{:020}.", base.0))) {
            bench.disk.remove(&bench.file(name)).expect("removes");
        }
        let recovery_point = if clean { end } else { next };
        for start in 0..2 {
            let options = OpenOptions { recovery_point, high_watermark: end, ..OpenOptions::new(clean) };
            let mut log = bench.open(&options);
            assert_eq!(log.end_at_gap().expect("it is looked through"), None);
            assert_eq!(log.damage(), Some(Damage::Unreadable(base)), "start {start}");
            log.close().expect("closes");
        }
    }
}

/// The replacement of a segment by one before it ends before the next segment where its last records have
/// later values.
#[test]
fn segment_with_an_abort_marker_that_a_compaction_has_replaced_is_not_missing() {
    // In the middle; at its end, before the checkpoint is written; and by Apache Kafka, which does not write
    // it.
    for way in 0..3 {
        let mut bench = Bench::with(LogConfig {
            segment_bytes: 360,
            cleanup_policy: CleanupPolicy::COMPACT,
            min_cleanable_dirty_ratio: 0.0,
            file_delete_delay_ms: 60_000,
            ..LogConfig::default()
        });
        let mut log = bench.create();
        begin(&mut log, 1, 0);
        append(&mut log, &Spec::new(2).value_bytes(60).build());
        end(&mut log, 1, ControlRecordType::Abort);
        append(&mut log, &Spec::new(2).value_bytes(60).build());
        (0..2).for_each(|_| _ = append(&mut log, &Spec::new(4).value_bytes(60).build()));
        let (segments, log_end) = (log.segment_offsets(), log.log_end_offset());
        log.set_high_watermark(log_end);
        log.flush().expect("is on the medium");
        let checkpoint = bench.read_file(CHECKPOINT);
        bench.config.segment_bytes = 700;
        log.set_config(Arc::new(bench.config.clone()));
        let job = log.plan_compaction(NOW_MS).expect("plans").expect("it is dirty");
        let outcome = job.run().expect("compacts");
        let mut cleaned_to = Offset(0);
        if way > 0 {
            take_over(&mut log, &job, outcome).expect("nothing has changed");
            assert_eq!(log.segment_offsets(), [&segments[..1], &segments[2..]].concat());
            bench.write_file(CHECKPOINT, &checkpoint);
            if way == 2 {
                log.purge_deleted(i64::MAX);
                cleaned_to = log.cleaned_to();
            }
        } else {
            for name in bench.names().iter().filter(|name| name.ends_with(".cleaned")) {
                let swap = bench.file(&name.replace(".cleaned", ".swap"));
                bench.disk.rename(&bench.file(name), &swap).expect("renames");
            }
        }
        drop((log, job));
        let options =
            OpenOptions { recovery_point: log_end, high_watermark: log_end, ..OpenOptions::new(false) };
        let options = OpenOptions { cleaned_to, ..options };
        drop(bench.open(&options));
        for start in 0..2 {
            let mut log = bench.open(&options);
            assert_eq!(log.segment_offsets(), [&segments[..1], &segments[2..]].concat());
            assert_eq!(log.end_at_gap().expect("it is looked through"), None);
            assert_eq!(log.damage(), None, "start {start}, {way}");
            log.purge_deleted(i64::MAX);
        }
    }
}

#[test]
fn aborted_records_stay_hidden_where_all_indexes_are_missing() {
    for clean in [true, false] {
        let (bench, _, next, end) = aborted_in_second();
        let (known, recovery_point) = (txn_indexes(&bench), if clean { end } else { next });
        for name in bench.names().into_iter().filter(|name| name.contains("index")) {
            bench.disk.remove(&bench.file(&name)).expect("removes");
        }
        let options = OpenOptions { high_watermark: end, ..OpenOptions::new(clean) };
        for start in ["the first start", "the second start"] {
            let mut log = bench.open(&OpenOptions { recovery_point, ..options });
            assert_eq!(log.aborted_transactions(Offset(0), end).expect("reads").len(), 1, "{start}, {clean}");
            assert_eq!(txn_indexes(&bench), known, "{start}, {clean}");
            if clean {
                log.close().expect("closes");
            }
        }
    }
}
