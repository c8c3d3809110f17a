//! The effect of an append on offsets, bytes and segments.

use thalweg_log::{AppendError, AppendOptions, LogConfig};
use thalweg_record::{Batch, LeaderEpoch, Offset, TimestampType, batches, verify};

use crate::support::*;

#[test]
fn the_leader_assigns_offsets_and_epoch_and_leaves_the_rest() {
    let bench = Bench::new();
    let mut log = bench.create();
    let batch = Spec::new(3).build();
    let info = log.append_as_leader(&batch, LeaderEpoch(7), AppendOptions::default()).expect("accepted");
    assert_eq!((info.first_offset, info.last_offset), (Offset(0), Offset(2)));
    assert_eq!(info.log_append_time, -1);
    let info = log.append_as_leader(&batch, LeaderEpoch(8), AppendOptions::default()).expect("accepted");
    assert_eq!((info.first_offset, info.last_offset), (Offset(3), Offset(5)));
    assert_eq!(log.log_end_offset(), Offset(6));
    assert_eq!(log.published().log_end_offset(), Offset(6));
    let stored = bench.read_file(&log_name(0));
    assert_eq!(stored.len(), 2 * batch.len());
    assert_eq!(&stored[16..batch.len()], &batch[16..], "what the CRC covers is stored as it came");
    let heads: Vec<_> = batches(&stored).map(|batch| batch.expect("whole").header).collect();
    assert_eq!((heads[1].base_offset, heads[1].leader_epoch), (Offset(3), LeaderEpoch(8)));
    assert_eq!(log.leader_epochs(), [(LeaderEpoch(7), Offset(0)), (LeaderEpoch(8), Offset(3))]);
}

#[test]
fn several_batches_of_one_append_are_all_stored() {
    let bench = Bench::new();
    let mut log = bench.create();
    let mut records = Vec::new();
    for count in 1..=700 {
        records.extend(Spec::new(1 + count % 3).value_bytes(count % 7).build());
    }
    let info = append(&mut log, &records);
    assert_eq!(info.appended_bytes, records.len() as u64);
    let heads = headers(&mut log);
    assert_eq!(heads.len(), 700, "more pieces than one gather write takes");
    let mut next = Offset(0);
    for head in heads {
        assert_eq!(head.base_offset, next);
        next = head.next_offset();
    }
    assert_eq!(info.last_offset, next - 1);
}

#[test]
fn log_append_time_is_stamped_with_a_new_crc() {
    let config = LogConfig { message_timestamp_type: TimestampType::LogAppendTime, ..LogConfig::default() };
    let bench = Bench::with(config);
    let mut log = bench.create();
    bench.clock.advance_ms(77);
    let info = append(&mut log, &Spec::new(5).timestamp(1).build());
    assert_eq!(info.log_append_time, NOW_MS + 77);
    let stored = bench.read_file(&log_name(0));
    let header = verify(&stored).expect("the CRC fits");
    assert_eq!(header.max_timestamp, NOW_MS + 77);
    assert_eq!(header.attributes.timestamp_type(), TimestampType::LogAppendTime);
}

#[test]
fn segments_are_rolled_by_size() {
    let bench = Bench::with(LogConfig { segment_bytes: 2000, ..LogConfig::default() });
    let mut log = bench.create();
    let mut rolled = 0;
    for _ in 0..100 {
        rolled += usize::from(append(&mut log, &Spec::new(4).build()).rolled);
    }
    let offsets = log.segment_offsets();
    assert_eq!(offsets.len(), rolled + 1);
    assert!(offsets.len() > 5);
    for base in &offsets {
        assert!(bench.read_file(&log_name(base.0)).len() <= 2000);
    }
    assert!(bench.file(&format!("{:020}.snapshot", offsets[1].0)).exists(), "a roll takes a snapshot");
    assert_eq!(headers(&mut log).len(), 100);
}

#[test]
fn segments_are_rolled_by_time() {
    let bench = Bench::with(LogConfig { segment_ms: 1000, ..LogConfig::default() });
    let mut log = bench.create();
    append(&mut log, &Spec::new(1).timestamp(NOW_MS).build());
    assert!(!append(&mut log, &Spec::new(1).timestamp(NOW_MS + 1000).build()).rolled);
    assert!(append(&mut log, &Spec::new(1).timestamp(NOW_MS + 1001).build()).rolled);
    assert!(!append(&mut log, &Spec::new(1).timestamp(NOW_MS + 2001).build()).rolled);
    drop(log);
    let mut log = bench.open_unclean();
    assert!(
        append(&mut log, &Spec::new(1).timestamp(NOW_MS + 2002).build()).rolled,
        "the age survives a restart"
    );
}

#[test]
fn segments_are_rolled_when_an_index_is_full() {
    let config = LogConfig {
        index_interval_bytes: 0,
        segment_index_bytes: 80,
        segment_ms: i64::MAX,
        ..LogConfig::default()
    };
    let bench = Bench::with(config);
    let mut log = bench.create();
    for index in 0..50 {
        append(&mut log, &Spec::new(1).timestamp(NOW_MS + index).build());
    }
    assert!(log.segment_offsets().len() > 4);
    log.close().expect("closes");
    for base in log.segment_offsets() {
        assert!(bench.read_file(&format!("{:020}.index", base.0)).len() <= 80);
        assert!(bench.read_file(&format!("{:020}.timeindex", base.0)).len() <= 80);
    }
}

#[test]
fn a_follower_keeps_offsets_with_gaps_and_drops_a_partial_tail() {
    let bench = Bench::new();
    let mut log = bench.create();
    log.accept_gaps();
    let mut fetched = Spec::new(2).at(5, 3).build();
    fetched.extend(Spec::new(2).at(20, 4).build());
    let partial = Spec::new(2).at(22, 4).build();
    fetched.extend(&partial[..partial.len() - 1]);
    let info = log.append_as_follower(&fetched, LeaderEpoch(4)).expect("accepted");
    assert_eq!((info.first_offset, info.last_offset), (Offset(5), Offset(21)));
    assert_eq!(log.leader_epochs(), [(LeaderEpoch(3), Offset(5)), (LeaderEpoch(4), Offset(20))]);
    let again = log.append_as_follower(&Spec::new(2).at(21, 4).build(), LeaderEpoch(4));
    assert!(matches!(again, Err(AppendError::UnexpectedOffset(_))), "{again:?}");
}

#[test]
fn a_follower_stops_at_a_batch_of_a_later_epoch() {
    let bench = Bench::new();
    let mut log = bench.create();
    let mut fetched = Spec::new(1).at(0, 3).build();
    fetched.extend(Spec::new(1).at(1, 5).build());
    log.append_as_follower(&fetched, LeaderEpoch(4)).expect("accepted");
    assert_eq!(log.log_end_offset(), Offset(1));
}

#[test]
fn a_follower_refuses_a_damaged_batch() {
    let bench = Bench::new();
    let mut log = bench.create();
    let mut fetched = Spec::new(1).at(0, 3).build();
    let last = fetched.len() - 1;
    fetched[last] ^= 1;
    assert!(matches!(log.append_as_follower(&fetched, LeaderEpoch(4)), Err(AppendError::Malformed(_))));
    assert_eq!(log.log_end_offset(), Offset(0));
}

#[test]
fn offsets_far_apart_begin_a_new_segment() {
    let bench = Bench::new();
    let mut log = bench.create();
    log.accept_gaps();
    log.append_as_follower(&Spec::new(1).at(10, 0).build(), LeaderEpoch(0)).expect("accepted");
    let far = i64::from(i32::MAX) + 100;
    log.append_as_follower(&Spec::new(1).at(far, 0).build(), LeaderEpoch(0)).expect("accepted");
    assert_eq!(log.segment_offsets(), [Offset(0), Offset(far)]);
    let bytes = read_all(&mut log, Offset(11), 1000);
    assert_eq!(Batch::parse(&bytes).expect("a batch").header.base_offset, Offset(far));
    drop(log);
    let mut log = bench.open_unclean();
    assert_eq!(log.log_end_offset(), Offset(far + 1));
    assert_eq!(headers(&mut log).len(), 2);
    log.close().expect("closes");
    let mut log = bench.open_clean();
    assert_eq!(headers(&mut log).len(), 2, "a restart takes the gap for none of lost records");
    while log.check_next_segment().expect("looks") {}
    assert_eq!(log.damage(), None);
}

#[test]
fn batches_larger_than_a_segment_are_refused() {
    let bench = Bench::with(LogConfig { segment_bytes: 500, ..LogConfig::default() });
    let mut log = bench.create();
    let batch = Spec::new(1).value_bytes(600).build();
    let refused = log.append_as_leader(&batch, LeaderEpoch(0), AppendOptions::default());
    assert!(matches!(refused, Err(AppendError::TooLarge(_))), "{refused:?}");
    assert_eq!(log.log_end_offset(), Offset(0));
}

#[test]
fn reserved_space_shows_neither_in_the_size_nor_after_closing() {
    use std::os::unix::fs::MetadataExt;
    let bench = Bench::new();
    let mut log = bench.create();
    for _ in 0..40 {
        append(&mut log, &Spec::new(1).value_bytes(100_000).build());
    }
    let path = bench.file(&log_name(0));
    let open = std::fs::metadata(&path).expect("the file is there");
    assert_eq!(open.len(), log.size_bytes());
    assert!(open.blocks() * 512 > open.len() + 500_000, "space is reserved while the segment grows");
    log.close().expect("closes");
    let closed = std::fs::metadata(&path).expect("the file is there");
    assert_eq!(closed.len(), open.len());
    assert!(closed.blocks() * 512 < closed.len() + 100_000, "the reserved space is given back");
}
