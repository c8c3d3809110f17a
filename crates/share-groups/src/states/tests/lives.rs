//! The life of share partitions: initialized, read by leaders, written, repeated in snapshots, deleted.

use super::harness::{Harness, key};
use crate::states::error::StateError;
use crate::states::request::{StateReply, StateRequest, StateWrite};
use crate::states::runs::{OVERLAPPING_MAX, StateRun};
use thalweg_hash::HashSet;
use thalweg_shard::WriteError;
use thalweg_share::StateSummary;
use thalweg_wire::{ErrorCode, Uuid};

fn run(first_offset: i64, last_offset: i64, delivery_count: i16, delivery_state: i8) -> StateRun {
    StateRun { first_offset, last_offset, delivery_count, delivery_state }
}

fn write(leader_epoch: i32, start_offset: i64, runs: Vec<StateRun>) -> StateRequest {
    StateRequest::Write(StateWrite {
        state_epoch: 0,
        leader_epoch,
        start_offset,
        delivery_complete_count: 0,
        runs,
    })
}

fn initialized(updates_per_snapshot: usize) -> Harness {
    let mut harness = Harness::new(updates_per_snapshot);
    let begin = StateRequest::Initialize { state_epoch: 0, start_offset: -1 };
    assert_eq!(harness.request(&key("g", 7, 0), begin), Ok(StateReply::Changed));
    harness
}

#[test]
fn a_state_is_what_was_written_before_and_after_a_restart() {
    let mut harness = initialized(3);
    let g = key("g", 7, 0);
    for round in 0..10 {
        let runs = vec![run(10 * round, 10 * round + 4, 1, 2), run(10 * round + 5, 10 * round + 9, 1, 0)];
        assert_eq!(harness.request(&g, write(1, 5 * round, runs)), Ok(StateReply::Changed));
        assert_eq!(harness.reloaded().entry(&g), harness.shard.entry(&g), "round {round}");
    }
    let entry = harness.shard.entry(&g).expect("it is there").clone();
    assert_eq!(
        (entry.start_offset, entry.snapshot_epoch),
        (45, 2),
        "a snapshot in place of every fourth update"
    );
    let read = harness.request(&g, StateRequest::Read { leader_epoch: 1 });
    let runs = entry.runs.as_slice().to_vec();
    assert_eq!(runs[0], run(45, 49, 1, 0), "what is before the start offset is gone");
    assert_eq!(read, Ok(StateReply::State { state_epoch: 0, start_offset: 45, runs }));
}

#[test]
fn an_earlier_leader_is_fenced_by_the_first_read_of_a_new_one() {
    let mut harness = initialized(500);
    let g = key("g", 7, 0);
    assert!(harness.request(&g, StateRequest::Read { leader_epoch: 4 }).is_ok());
    assert_eq!(harness.request(&g, write(3, 0, Vec::new())), Err(StateError::FencedLeaderEpoch));
    assert_eq!(
        harness.request(&g, StateRequest::Read { leader_epoch: 3 }),
        Err(StateError::FencedLeaderEpoch)
    );
    let batches = harness.log.len();
    assert!(harness.request(&g, StateRequest::Read { leader_epoch: 4 }).is_ok());
    assert_eq!(harness.log.len(), batches, "a leader that is known leaves no record");
    assert_eq!(harness.request(&g, write(4, 0, Vec::new())), Ok(StateReply::Changed));
    harness.shard = harness.reloaded();
    assert_eq!(harness.request(&g, write(3, 0, Vec::new())), Err(StateError::FencedLeaderEpoch));
}

#[test]
fn a_state_that_begins_again_fences_writes_of_the_one_before() {
    let mut harness = initialized(500);
    let g = key("g", 7, 0);
    let again = StateRequest::Initialize { state_epoch: 3, start_offset: 100 };
    assert_eq!(harness.request(&g, again), Ok(StateReply::Changed));
    assert_eq!(harness.request(&g, write(0, 50, Vec::new())), Err(StateError::FencedStateEpoch));
    let earlier = StateRequest::Initialize { state_epoch: 2, start_offset: 0 };
    assert_eq!(harness.request(&g, earlier), Err(StateError::FencedStateEpoch));
    let summary =
        StateSummary { state_epoch: 3, leader_epoch: 0, start_offset: 100, delivery_complete_count: 0 };
    assert_eq!(
        harness.request(&g, StateRequest::Summarize { leader_epoch: 0 }),
        Ok(StateReply::Summary(summary))
    );
}

#[test]
fn what_was_never_initialized_or_does_not_exist_is_refused() {
    let mut harness = initialized(500);
    let other = key("g", 7, 1);
    assert_eq!(
        harness.request(&other, StateRequest::Read { leader_epoch: 0 }),
        Err(StateError::UninitializedRead)
    );
    assert_eq!(harness.request(&other, write(0, 0, Vec::new())), Err(StateError::UninitializedWrite));
    assert_eq!(
        harness.request(&other, StateRequest::Delete),
        Ok(StateReply::Changed),
        "there is nothing to delete"
    );
    for (topic, partition, expected) in [
        (7, -1, StateError::NegativePartition),
        (7, 8, StateError::UnknownPartition),
        (1, 0, StateError::UnknownPartition),
    ] {
        let begin = StateRequest::Initialize { state_epoch: 0, start_offset: -1 };
        assert_eq!(harness.request(&key("g", topic, partition), begin), Err(expected));
    }
    let g = key("g", 7, 0);
    assert_eq!(harness.request(&g, write(0, 0, vec![run(5, 4, 1, 0)])), Err(StateError::InvalidRuns));
    let nested = (0..=OVERLAPPING_MAX as i64).map(|n| run(n, 5_000, 1, 0)).collect();
    assert_eq!(harness.request(&g, write(0, 0, nested)), Err(StateError::InvalidRuns));
}

#[test]
fn answers_wait_for_the_replicas_and_a_read_for_the_writes_before_it() {
    let mut harness = initialized(500);
    let g = key("g", 7, 0);
    harness.holds = true;
    let writes = [(g.clone(), write(0, 3, vec![run(3, 9, 1, 2)])), (key("g", 7, 1), StateRequest::Delete)];
    let written = harness.begin(&writes);
    let read = harness.begin(&[(g.clone(), StateRequest::Read { leader_epoch: -1 })]);
    assert!(harness.answers.is_empty());
    harness.acknowledge(Ok(()));
    assert_eq!(
        harness.answers.remove(&written),
        Some(vec![Ok(StateReply::Changed), Ok(StateReply::Changed)])
    );
    let state = StateReply::State { state_epoch: 0, start_offset: 3, runs: vec![run(3, 9, 1, 2)] };
    assert_eq!(harness.answers.remove(&read), Some(vec![Ok(state)]));

    let written = harness.begin(&writes[..1]);
    harness.acknowledge(Err(WriteError::TimedOut));
    let failed = harness.answers.remove(&written).expect("an answer").pop().expect("one");
    assert_eq!(failed.expect_err("it may not be on the replicas").code(), ErrorCode::CoordinatorNotAvailable);
    harness.holds = false;
    harness.refuses = Some(WriteError::NotLeader);
    let refused = harness.request(&g, write(0, 50, Vec::new())).expect_err("it is not in the log");
    assert_eq!(refused.code(), ErrorCode::NotCoordinator);
    assert_eq!(harness.shard.entry(&g).map(|entry| entry.start_offset), Some(3), "nothing has happened");
}

#[test]
fn a_read_waits_for_what_it_rests_on_even_if_its_writer_gave_up() {
    let mut harness = initialized(500);
    let g = key("g", 7, 0);
    let read = || [(g.clone(), StateRequest::Read { leader_epoch: -1 })];
    let timed_out = || Some(vec![Err(StateError::from(WriteError::TimedOut))]);
    harness.holds = true;
    let written = harness.begin(&[(g.clone(), write(0, 3, vec![run(3, 9, 1, 2)]))]);
    harness.pass(4_999);
    assert!(harness.answers.is_empty());
    harness.pass(1);
    assert_eq!(harness.answers.remove(&written), timed_out());
    // The state already has the leader epoch, but no replica does.
    let second = harness.begin(&read());
    assert!(harness.answers.is_empty());
    harness.pass(5_000);
    assert_eq!(harness.answers.remove(&second), timed_out());
    let third = harness.begin(&read());
    assert!(harness.answers.is_empty());
    harness.acknowledge(Ok(()));
    let state = StateReply::State { state_epoch: 0, start_offset: 3, runs: vec![run(3, 9, 1, 2)] };
    assert_eq!(harness.answers.remove(&third), Some(vec![Ok(state)]));
    let fourth = harness.begin(&read());
    assert!(harness.answers.contains_key(&fourth), "nothing is awaited any more");
}

#[test]
fn a_read_waits_for_a_write_that_the_medium_refused() {
    let mut harness = initialized(500);
    let g = key("g", 7, 0);
    harness.holds = true;
    let written = harness.begin(&[(g.clone(), write(0, 3, Vec::new()))]);
    harness.acknowledge(Err(WriteError::Storage));
    assert_eq!(harness.answers.remove(&written), Some(vec![Err(StateError::from(WriteError::Storage))]));
    let read = harness.begin(&[(g.clone(), StateRequest::Read { leader_epoch: -1 })]);
    assert!(harness.answers.is_empty(), "the replicas may or may not get it");
    let written = harness.begin(&[(g.clone(), write(0, 5, Vec::new()))]);
    harness.acknowledge(Err(WriteError::TooFewReplicas));
    let failed = || Some(vec![Err(StateError::from(WriteError::TooFewReplicas))]);
    assert_eq!((harness.answers.remove(&read), harness.answers.remove(&written)), (failed(), failed()));
    let read = harness.begin(&[(g, StateRequest::Read { leader_epoch: -1 })]);
    let state = StateReply::State { state_epoch: 0, start_offset: 5, runs: Vec::new() };
    assert_eq!(harness.answers.remove(&read), Some(vec![Ok(state)]), "the replicas have it");
}

#[test]
fn a_refusal_waits_for_the_state_that_it_rests_on() {
    let mut harness = initialized(500);
    let g = key("g", 7, 0);
    harness.holds = true;
    harness.begin(&[(g.clone(), StateRequest::Read { leader_epoch: 3 })]);
    let fenced = harness.begin(&[(g, StateRequest::Read { leader_epoch: 2 })]);
    assert!(harness.answers.is_empty(), "another coordinator may not know of the newer leader");
    harness.acknowledge(Ok(()));
    assert_eq!(harness.answers.remove(&fenced), Some(vec![Err(StateError::FencedLeaderEpoch)]));
}

#[test]
fn no_record_is_redundant_before_the_replicas_have_the_snapshot_in_its_place() {
    let mut harness = initialized(0);
    let g = key("g", 7, 0);
    harness.holds = true;
    harness.begin(&[(g, write(0, 0, Vec::new()))]);
    harness.turn(|shard, ticket, _| shard.find_redundant(ticket));
    assert_eq!(harness.redundant_before, None);
    harness.acknowledge(Ok(()));
    assert_eq!(harness.redundant_before, Some(1));
}

#[test]
fn records_before_the_oldest_snapshot_are_redundant() {
    let mut harness = initialized(2);
    let (g, h) = (key("g", 7, 0), key("h", 7, 0));
    assert_eq!(harness.shard.redundant_before(), None, "the first record is a snapshot");
    for _ in 0..4 {
        assert!(harness.request(&g, write(0, 0, Vec::new())).is_ok());
    }
    assert_eq!(harness.shard.redundant_before(), Some(3), "two updates, then a snapshot");
    assert!(harness.request(&h, StateRequest::Initialize { state_epoch: 0, start_offset: 0 }).is_ok());
    for _ in 0..9 {
        assert!(harness.request(&g, write(0, 0, Vec::new())).is_ok());
    }
    assert_eq!(harness.shard.redundant_before(), Some(5), "the other has not changed since");
    // Five minutes later the snapshot is repeated.
    harness.pass(300_000);
    let before = harness.shard.redundant_before().expect("its snapshot is a new one");
    assert!(before > 14, "{before}");
    let batches = harness.log.len();
    harness.pass(300_000);
    assert_eq!(harness.log.len(), batches, "nothing has changed since: nothing is repeated");
    harness.shard = harness.reloaded();
    assert_eq!(harness.shard.redundant_before(), Some(before));
}

#[test]
fn the_states_of_a_deleted_topic_and_of_a_deleted_share_partition_are_gone() {
    let mut harness = initialized(500);
    let others = [key("h", 7, 3), key("g", 8, 0)];
    for key in &others {
        assert!(harness.request(key, StateRequest::Initialize { state_epoch: 0, start_offset: 0 }).is_ok());
    }
    harness.turn(|shard, _, _| shard.topics_deleted(&HashSet::from_iter([Uuid(7)])));
    for (key, is_there) in [(key("g", 7, 0), false), (others[0].clone(), false), (others[1].clone(), true)] {
        assert_eq!(harness.shard.entry(&key).is_some(), is_there);
        assert_eq!(harness.reloaded().entry(&key).is_some(), is_there);
    }
    assert_eq!(harness.request(&others[1], StateRequest::Delete), Ok(StateReply::Changed));
    let batches = i64::try_from(harness.log.len()).expect("few");
    assert_eq!(harness.shard.redundant_before(), Some(batches), "all but the last tombstone");
}

#[test]
fn states_of_a_deleted_topic_whose_tombstones_were_refused_go_later() {
    let mut harness = initialized(500);
    let (gone, kept) = (key("g", 7, 0), key("g", 8, 0));
    assert!(harness.request(&kept, StateRequest::Initialize { state_epoch: 0, start_offset: 0 }).is_ok());
    harness.delete_topic(Uuid(7));
    harness.refuses = Some(WriteError::TooFewReplicas);
    harness.turn(|shard, _, _| shard.topics_deleted(&HashSet::from_iter([Uuid(7)])));
    assert!(harness.shard.entry(&gone).is_some(), "the tombstone is not in the log");
    harness.refuses = None;
    // The first interval repeats snapshots; in the second there is nothing to repeat.
    for _ in 0..2 {
        harness.pass(300_000);
        for shard in [&harness.shard, &harness.reloaded()] {
            assert!(shard.entry(&gone).is_none() && shard.entry(&kept).is_some());
        }
    }
}

#[test]
fn many_share_partitions_in_one_request_share_batches_of_bounded_size() {
    let mut harness = Harness::new(500);
    let begin = || StateRequest::Initialize { state_epoch: 0, start_offset: -1 };
    let requests: Vec<_> = (0..2_000).map(|n| (key(&format!("group-{n}"), 7, n % 8), begin())).collect();
    let ticket = harness.begin(&requests);
    let answer = harness.answers.remove(&ticket).expect("an answer");
    assert_eq!(answer, vec![Ok(StateReply::Changed); 2_000]);
    assert!((2..20).contains(&harness.log.len()), "{} batches", harness.log.len());
    assert!(harness.log.iter().all(|batch| batch.len() < 200 << 10));
}

/// Apart from the reset, every write is of delivered records.
#[test]
fn runs_from_before_a_lost_reset_keep_no_record_from_being_delivered() {
    let mut harness = initialized(500);
    let g = key("g", 7, 0);
    assert_eq!(harness.request(&g, write(1, 0, vec![run(5, 90, 1, 2)])), Ok(StateReply::Changed));
    harness.lost.insert(harness.log.len());
    let reset = StateRequest::Initialize { state_epoch: 0, start_offset: 0 };
    assert_eq!(harness.request(&g, reset), Ok(StateReply::Changed));
    assert_eq!(harness.request(&g, write(1, 3, vec![run(20, 24, 1, 2)])), Ok(StateReply::Changed));
    assert_eq!(harness.request(&g, write(1, -1, vec![run(30, 34, 1, 2)])), Ok(StateReply::Changed));
    let entry = harness.reloaded().entry(&g).expect("it is there").clone();
    assert_eq!((entry.start_offset, entry.runs.as_slice()), (3, &[run(20, 24, 1, 2), run(30, 34, 1, 2)][..]));
}

/// The first snapshot of a recreated share partition has the same epoch as that of its predecessor.
#[test]
fn runs_from_before_a_lost_deletion_keep_no_record_from_being_delivered() {
    let mut harness = initialized(500);
    let g = key("g", 7, 0);
    assert_eq!(harness.request(&g, write(1, -1, vec![run(5, 9, 1, 2)])), Ok(StateReply::Changed));
    let begin = StateRequest::Initialize { state_epoch: 0, start_offset: -1 };
    for request in [StateRequest::Delete, begin] {
        harness.lost.insert(harness.log.len());
        assert_eq!(harness.request(&g, request), Ok(StateReply::Changed));
    }
    assert_eq!(harness.reloaded().entry(&g).expect("it is there").runs.as_slice(), []);
    assert_eq!(harness.request(&g, write(1, -1, vec![run(0, 0, 1, 2)])), Ok(StateReply::Changed));
    assert_eq!(harness.reloaded().entry(&g).expect("it is there").runs.as_slice(), [run(0, 0, 1, 2)]);
}

#[test]
fn lost_update_leaves_those_behind_it() {
    let mut harness = initialized(500);
    let g = key("g", 7, 0);
    for first in [0, 10, 20] {
        assert_eq!(
            harness.request(&g, write(1, -1, vec![run(first, first + 4, 1, 2)])),
            Ok(StateReply::Changed)
        );
    }
    harness.lost.insert(harness.log.len() - 2);
    let entry = harness.reloaded().entry(&g).expect("it is there").clone();
    assert_eq!(entry.runs.as_slice(), [run(20, 24, 1, 2)]);
}
