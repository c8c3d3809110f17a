//! Which records a member gets.

use super::*;
use thalweg_share::{Acknowledgement, DeliveryState};

fn released(partition: &mut SharePartition, member: &str) {
    let batches = partition.release_member(member, &LIMITS);
    partition.written(&batches);
}

#[test]
fn no_record_goes_to_two_members() {
    let (mut partition, log) = (begun(0), spans(0, 10, 10));
    assert_eq!(runs(&acquire(&mut partition, "a", 25, &log)), [(0, 29, 1)]);
    assert_eq!(runs(&acquire(&mut partition, "b", 25, &log)), [(30, 59, 1)]);
    assert_eq!(partition.in_flight(), 60);
    assert_eq!(partition.members(), 2);
}

#[test]
fn new_records_are_divided_into_batches_of_the_wanted_size() {
    let (mut partition, log) = (begun(0), spans(0, 10, 10));
    let wanted =
        AcquireRequest { member: "a", mode: AcquireMode::BatchOptimised, records: 70, batch_size: 25 };
    let acquired = partition.acquire(&wanted, &LIMITS, 0, 0, log);
    assert_eq!(runs(&acquired), [(0, 29, 1), (30, 59, 1), (60, 69, 1)]);
    assert_eq!(acquired.bytes, 0..700);
    assert_eq!(acquired.records, 70);
}

#[test]
fn a_limit_of_records_is_kept_where_it_divides_a_batch() {
    let (mut partition, log) = (begun(0), spans(0, 10, 10));
    let limit = |partition: &mut SharePartition, member, records| {
        acquire_as(partition, AcquireMode::RecordLimit, member, records, &log, 0)
    };
    let acquired = limit(&mut partition, "a", 3);
    assert_eq!((runs(&acquired), acquired.bytes), (vec![(0, 2, 1)], 0..100));
    let acquired = limit(&mut partition, "b", 12);
    assert_eq!((runs(&acquired), acquired.bytes), (vec![(3, 14, 1)], 0..200));
    released(&mut partition, "b");
    assert_eq!(runs(&limit(&mut partition, "a", 5)), [(3, 7, 2)]);
    assert_eq!(runs(&limit(&mut partition, "a", 9)), [(8, 14, 2), (15, 16, 1)]);
}

#[test]
fn as_many_are_in_flight_as_may_be() {
    let (mut partition, log) = (begun(0), spans(0, 10, 10));
    let limits = ShareLimits { in_flight: 35, ..LIMITS };
    let wanted =
        AcquireRequest { member: "a", mode: AcquireMode::BatchOptimised, records: 100, batch_size: 100 };
    let acquired = partition.acquire(&wanted, &limits, 0, 0, log.clone());
    assert_eq!(runs(&acquired), [(0, 39, 1)]);
    assert_eq!(partition.fetch_offset(&limits), None);
    let batches = partition
        .acknowledge("a", &[Acknowledgement { first: 0, last: 9, types: &[1] }], &limits, 0)
        .expect("the member has them");
    assert_eq!(partition.fetch_offset(&limits), None, "it is not written yet");
    partition.written(&batches);
    assert_eq!(partition.start_offset(), 10);
    assert_eq!(partition.fetch_offset(&limits), Some(40));
}

#[test]
fn what_is_released_is_delivered_again_and_not_more_often_than_allowed() {
    let (mut partition, log) = (begun(0), spans(0, 1, 1));
    for delivery in 1..=LIMITS.deliveries {
        assert_eq!(runs(&acquire(&mut partition, "a", 10, &log)), [(0, 0, delivery)]);
        released(&mut partition, "a");
    }
    assert!(acquire(&mut partition, "a", 10, &log).runs.is_empty());
    assert_eq!((partition.start_offset(), partition.in_flight()), (1, 0));
}

#[test]
fn a_batch_that_fails_often_is_delivered_in_parts_and_its_records_alone_at_last() {
    let (mut partition, log) = (begun(0), spans(0, 8, 1));
    for _ in 0..3 {
        assert_eq!(acquire(&mut partition, "a", 100, &log).records, 8);
        released(&mut partition, "a");
    }
    assert_eq!(runs(&acquire(&mut partition, "a", 100, &log)), [(0, 3, 4)]);
    assert_eq!(runs(&acquire(&mut partition, "a", 100, &log)), [(4, 7, 4)]);
    released(&mut partition, "a");
    assert_eq!(runs(&acquire(&mut partition, "a", 100, &log)), [(0, 0, 5)]);
    assert_eq!(runs(&acquire(&mut partition, "a", 100, &log)), [(1, 1, 5)]);
}

#[test]
fn locks_end_and_others_get_the_records() {
    let (mut partition, log) = (begun(0), spans(0, 10, 2));
    acquire(&mut partition, "a", 10, &log);
    acquire_as(&mut partition, AcquireMode::BatchOptimised, "a", 10, &log, 1000);
    assert_eq!(partition.next_deadline_ms(), Some(30_000));
    assert_eq!(partition.expire(29_999, &LIMITS).records, 0);
    let expired = partition.expire(30_000, &LIMITS);
    assert_eq!((expired.records, expired.batches.len()), (10, 1));
    assert_eq!(partition.next_deadline_ms(), Some(31_000));
    assert_eq!(runs(&acquire(&mut partition, "b", 100, &log)), [(0, 9, 2)]);
}

#[test]
fn a_restart_delivers_what_was_not_complete() {
    let batch =
        |first_offset, last_offset, state| StateBatch { first_offset, last_offset, state, delivery_count: 1 };
    let (acknowledged, available) = (DeliveryState::Acknowledged, DeliveryState::Available);
    let mut partition = loaded(5, &[batch(10, 14, acknowledged), batch(20, 24, available)]);
    assert_eq!((partition.start_offset(), partition.in_flight()), (5, 20));
    assert_eq!(partition.delivery_complete_count(), 5);
    let log = spans(0, 5, 8);
    let acquired = acquire(&mut partition, "a", 100, &log);
    assert_eq!(runs(&acquired), [(5, 9, 1), (15, 19, 1), (20, 24, 2), (25, 39, 1)]);
    assert_eq!(acquired.bytes, 100..800);
}

#[test]
fn what_is_complete_at_the_start_is_forgotten_on_load() {
    let batch =
        StateBatch { first_offset: 5, last_offset: 9, state: DeliveryState::Archived, delivery_count: 1 };
    let partition = loaded(5, &[batch]);
    assert_eq!((partition.start_offset(), partition.in_flight()), (10, 0));
    assert_eq!(partition.delivery_complete_count(), 0);
}

#[test]
fn states_that_cannot_be_are_refused() {
    let batch = |first_offset, last_offset| StateBatch {
        first_offset,
        last_offset,
        state: DeliveryState::Available,
        delivery_count: 1,
    };
    for (start_offset, batches) in [
        (5, vec![batch(4, 9)]),
        (5, vec![batch(9, 8)]),
        (5, vec![batch(5, 9), batch(9, 10)]),
        (5, vec![batch(5, i64::MAX)]),
        (i64::MIN, vec![batch(5, 9)]),
    ] {
        let state = ShareState { state_epoch: 0, start_offset, batches };
        assert!(SharePartition::load(&state).is_err(), "{state:?}");
    }
}

#[test]
fn aborted_records_are_not_delivered_and_do_not_stop_the_group() {
    let (mut partition, mut log) = (begun(0), spans(0, 10, 4));
    log[0].is_aborted = true;
    log[2].is_aborted = true;
    let acquired = acquire(&mut partition, "a", 100, &log);
    assert_eq!((runs(&acquired), acquired.bytes), (vec![(10, 19, 1), (30, 39, 1)], 100..400));
    assert_eq!(partition.start_offset(), 10);
    assert_eq!(partition.delivery_complete_count(), 10);
}

#[test]
fn records_that_compaction_removed_are_not_waited_for() {
    let (mut partition, log) = (begun(0), spans(0, 10, 3));
    acquire(&mut partition, "a", 30, &log);
    released(&mut partition, "a");
    // The first batch is gone, and the middle of the rest.
    let left = [
        Span { first: 12, last: 14, bytes: 0..10, is_aborted: false },
        Span { first: 20, last: 29, bytes: 10..20, is_aborted: false },
    ];
    let acquired = acquire(&mut partition, "b", 100, &left);
    assert_eq!(runs(&acquired), [(12, 14, 2), (20, 29, 2)]);
    assert_eq!(partition.start_offset(), 12);
}

#[test]
fn deleted_records_are_forgotten_whoever_has_them() {
    let (mut partition, log) = (begun(0), spans(0, 10, 3));
    acquire(&mut partition, "a", 10, &log);
    acquire(&mut partition, "b", 10, &log);
    partition.log_start_moved(15);
    assert_eq!((partition.start_offset(), partition.in_flight(), partition.members()), (15, 5, 1));
    let all = [Acknowledgement { first: 0, last: 9, types: &[1] }];
    assert_eq!(partition.acknowledge("a", &all, &LIMITS, 0), Ok(Vec::new()));
    partition.log_start_moved(100);
    assert_eq!((partition.start_offset(), partition.in_flight(), partition.members()), (100, 0, 0));
    assert_eq!(partition.fetch_offset(&LIMITS), Some(100));
}

#[test]
fn what_others_have_is_passed_over_as_long_as_it_is_not_much() {
    let batches_of = |bytes: u64| -> Vec<Span> {
        let spans = spans(0, 1, 20).into_iter().zip(0..);
        spans.map(|(span, n)| Span { bytes: n * bytes..(n + 1) * bytes, ..span }).collect()
    };
    for (bytes, expected) in [(1_000, vec![(0, 0, 2), (19, 19, 2)]), (10_000, vec![(0, 0, 2)])] {
        let log = batches_of(bytes);
        let mut partition = begun(0);
        acquire(&mut partition, "a", 20, &log);
        let mut types = [1; 20];
        (types[0], types[19]) = (2, 2);
        let batches = [Acknowledgement { first: 0, last: 19, types: &types }];
        let written = partition.acknowledge("a", &batches, &LIMITS, 0).expect("the member has them");
        partition.written(&written);
        let acquired = acquire(&mut partition, "b", 20, &log);
        assert_eq!(runs(&acquired), expected);
        assert_eq!(acquired.bytes, 0..bytes * if expected.len() == 2 { 20 } else { 1 });
    }
}
