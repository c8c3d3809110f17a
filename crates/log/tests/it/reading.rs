//! Which bytes answer a fetch.

use thalweg_log::{LogConfig, ReadError};
use thalweg_record::{LeaderEpoch, Offset, batches};

use crate::support::*;

/// A log with several segments whose batches have all kinds of sizes.
fn filled(bench: &Bench) -> thalweg_log::PartitionLog {
    let mut log = bench.create();
    for index in 0..400usize {
        let spec = Spec::new(1 + index % 5).value_bytes((index * 37) % 600);
        append(&mut log, &spec.timestamp(NOW_MS + index as i64).build());
    }
    log
}

fn segments_bench() -> Bench {
    Bench::with(LogConfig {
        segment_bytes: 60_000,
        index_interval_bytes: 500,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    })
}

#[test]
fn every_offset_is_found_with_and_without_what_memory_holds() {
    let bench = segments_bench();
    let mut log = filled(&bench);
    let all = read_all(&mut log, Offset(0), 1 << 20);
    let wanted: Vec<_> = batches(&all).map(|batch| batch.expect("whole").header).collect();
    log.close().expect("closes");
    let other = segments_bench();
    let fresh = filled(&other);
    for mut log in [bench.open_clean(), bench.open_unclean(), fresh] {
        let end = log.log_end_offset();
        for offset in 0..end.0 {
            let slice = log.read(Offset(offset), 1, end, true).expect("in range").expect("a batch");
            let mut bytes = vec![0; slice.len];
            slice.file.read_at(&mut bytes, slice.position).expect("reads");
            let head = thalweg_record::verify(&bytes).expect("exactly one batch");
            let expected = wanted.iter().find(|head| head.last_offset().0 >= offset).expect("a batch");
            assert_eq!(&head, expected, "offset {offset}");
        }
    }
}

#[test]
fn reading_on_gives_all_bytes_whatever_the_limit() {
    let bench = segments_bench();
    let mut log = filled(&bench);
    let all = read_all(&mut log, Offset(0), usize::MAX / 2);
    log.close().expect("closes");
    for limit in [0, 1, 100, 700, 4096, 10_000, 100_000] {
        assert!(read_all(&mut bench.open_clean(), Offset(0), limit) == all, "limit {limit}");
    }
}

#[test]
fn a_slice_ends_below_its_bound_and_within_its_limit() {
    let bench = segments_bench();
    let mut log = filled(&bench);
    let end = log.log_end_offset();
    for (from, bound) in (0..end.0).step_by(13).zip((0..end.0).rev().step_by(7)) {
        for limit in [50, 5000] {
            let slice = log.read(Offset(from), limit, Offset(bound), false).expect("in range");
            let Some(slice) = slice else { continue };
            assert!(slice.len <= limit);
            let mut bytes = vec![0; slice.len];
            slice.file.read_at(&mut bytes, slice.position).expect("reads");
            for batch in batches(&bytes) {
                let header = batch.expect("whole batches").header;
                assert!(header.last_offset().0 < bound && header.last_offset().0 >= from);
            }
        }
    }
}

#[test]
fn the_bound_may_lie_inside_a_batch() {
    let bench = Bench::new();
    let mut log = bench.create();
    append(&mut log, &Spec::new(10).build());
    append(&mut log, &Spec::new(10).build());
    for bound in 11..20 {
        let slice = log.read(Offset(0), 10_000, Offset(bound), true).expect("in range").expect("a slice");
        assert_eq!(slice.end_offset, Offset(bound));
        assert_eq!(slice.len as u64, log.size_bytes() / 2);
        assert!(log.read(Offset(10), 10_000, Offset(bound), true).expect("in range").is_none());
    }
    assert!(log.read(Offset(0), 10_000, Offset(5), true).expect("in range").is_none());
}

#[test]
fn a_batch_larger_than_the_limit_comes_alone_on_request() {
    let bench = Bench::new();
    let mut log = bench.create();
    append(&mut log, &Spec::new(1).value_bytes(5000).build());
    append(&mut log, &Spec::new(1).build());
    let end = log.log_end_offset();
    assert!(log.read(Offset(0), 100, end, false).expect("in range").is_none());
    let slice = log.read(Offset(0), 100, end, true).expect("in range").expect("a slice");
    assert!(slice.len > 5000 && slice.end_offset == Offset(1));
}

#[test]
fn offsets_outside_are_refused() {
    let bench = Bench::new();
    let mut log = bench.create();
    append(&mut log, &Spec::new(4).build());
    log.set_high_watermark(Offset(4));
    log.delete_records(Offset(2)).expect("deletes");
    for outside in [0, 1, 5] {
        let refused = log.read(Offset(outside), 100, Offset(9), true);
        assert!(matches!(refused, Err(ReadError::OutOfRange(_))), "{refused:?}");
    }
    assert!(log.read(Offset(4), 100, Offset(9), true).expect("the log end is in range").is_none());
    assert!(log.read(Offset(2), 100, Offset(9), true).expect("in range").is_some());
}

#[test]
fn a_slice_outlives_its_segment() {
    let bench =
        Bench::with(LogConfig { retention_ms: 1000, file_delete_delay_ms: 0, ..LogConfig::default() });
    let mut log = bench.create();
    append(&mut log, &Spec::new(4).build());
    log.set_high_watermark(Offset(4));
    let slice = log.read(Offset(0), 1000, Offset(4), true).expect("in range").expect("a slice");
    assert_eq!(log.delete_old_segments(NOW_MS + 5000).expect("deletes"), 1);
    log.purge_deleted(NOW_MS + 5000);
    let mut bytes = vec![0; slice.len];
    assert_eq!(slice.file.read_at(&mut bytes, slice.position).expect("reads"), slice.len);
    thalweg_record::verify(&bytes).expect("the batch is whole");
}

#[test]
fn a_gap_leads_to_the_next_batch() {
    let bench = Bench::new();
    let mut log = bench.create();
    log.accept_gaps();
    for base in [0, 10, 30, 1000] {
        log.append_as_follower(&Spec::new(2).at(base, 0).build(), LeaderEpoch(0)).expect("accepted");
    }
    for (from, base) in [(0, 0), (1, 0), (2, 10), (11, 10), (12, 30), (31, 30), (32, 1000)] {
        let slice = log.read(Offset(from), 1, Offset(2000), true).expect("in range").expect("a slice");
        let mut bytes = vec![0; slice.len];
        slice.file.read_at(&mut bytes, slice.position).expect("reads");
        let head = thalweg_record::verify(&bytes).expect("a batch");
        assert_eq!(head.base_offset, Offset(base), "from {from}");
        // A bound inside a gap does not hide the batch before it.
        let bound = head.last_offset() + 3;
        assert!(log.read(Offset(from), 1, bound, true).expect("in range").is_some());
    }
}
