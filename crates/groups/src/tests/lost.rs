//! Logs with an unreadable batch at any place: the rest is served, and no member's state is trusted.

use super::commits::{commit_in_transaction, end_transaction, fetch_stable, only_offset};
use super::consumer::Consumer;
use super::harness::{Commit, GROUP, Harness, SESSION_MS};
use crate::offsets::TransactionOutcome;
use crate::record::ConsumerRecord;
use std::collections::BTreeSet;
use thalweg_wire::ErrorCode;
use thalweg_wire::group::{
    ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
};
use thalweg_wire::request::ConsumerGroupHeartbeatRequest;

impl Harness {
    /// Restarts the broker with a damaged batch in the log.
    pub(super) fn restart_without(&mut self, place: usize) {
        self.lost.insert(place);
        self.restart();
        self.advance(0);
    }
}

const PRODUCER: i64 = 9;

#[test]
fn marker_behind_a_lost_one_commits_nothing_from_before() {
    let mut h = Harness::new();
    h.commit(Commit { offset: 7, ..Commit::default() });
    assert_eq!(commit_in_transaction(&mut h, PRODUCER, 50), ErrorCode::None);
    let lost = h.log.len();
    end_transaction(&mut h, PRODUCER, TransactionOutcome::Abort);
    // The marker belongs to the next transaction, which has committed other offsets.
    end_transaction(&mut h, PRODUCER, TransactionOutcome::Commit);
    h.restart_without(lost);
    assert_eq!(h.fetch(GROUP, 0), 7, "the transaction was aborted");
}

#[test]
fn transaction_whose_marker_is_lost_keeps_no_reader_waiting() {
    let mut h = Harness::new();
    h.commit(Commit { offset: 7, ..Commit::default() });
    assert_eq!(commit_in_transaction(&mut h, PRODUCER, 50), ErrorCode::None);
    let lost = h.log.len();
    end_transaction(&mut h, PRODUCER, TransactionOutcome::Commit);
    h.restart_without(lost);
    let fetched = fetch_stable(&mut h, GROUP).expect("an answer at once");
    assert_eq!(only_offset(&fetched), Ok(7), "nobody knows that it was committed");
    assert_eq!(commit_in_transaction(&mut h, PRODUCER, 60), ErrorCode::None);
    end_transaction(&mut h, PRODUCER, TransactionOutcome::Commit);
    assert_eq!(h.fetch(GROUP, 0), 60);
    h.restart();
    assert_eq!(h.fetch(GROUP, 0), 60);
}

/// A commit without members, a member that expires, and two other members, one of which commits.
fn classic() -> (Harness, Vec<String>, i32) {
    let mut h = Harness::new();
    h.commit(Commit { partition: 1, offset: 3, ..Commit::default() });
    h.stable_group(&["a"]);
    h.advance(i64::from(SESSION_MS) + 1);
    let (ids, generation) = h.stable_group(&["b", "c"]);
    let commit = Commit { member_id: &ids[0], generation, offset: 5, ..Commit::default() };
    assert_eq!(h.commit(commit), ErrorCode::None);
    (h, ids, generation)
}

#[test]
fn members_of_a_classic_group_join_again() {
    let batches = classic().0.log.len();
    assert!(batches >= 5, "{batches}");
    for lost in 0..batches {
        let (mut h, mut ids, mut generation) = classic();
        for restart in 0..2 {
            h.restart_without(lost);
            for id in &ids {
                assert_eq!(h.heartbeat(id, generation), ErrorCode::UnknownMemberId, "{lost} {restart}");
                let commit = Commit { member_id: id, generation, offset: 9, ..Commit::default() };
                assert_ne!(h.commit(commit), ErrorCode::None, "{lost} {restart}");
            }
            let offsets = (h.fetch(GROUP, 0), h.fetch(GROUP, 1));
            assert!([(5, 3), (-1, 3), (5, -1)].contains(&offsets), "{lost} {restart}: {offsets:?}");
            (ids, generation) = h.stable_group(&["b", "c"]);
        }
    }
}

/// Members of a consumer group: one is static, one changes its topics, and one leaves.
fn consumers() -> (Harness, [Consumer; 2]) {
    let mut h = Harness::new();
    h.topics.set("t", 7, 4);
    h.topics.set("u", 8, 2);
    let (mut a, mut b) = (Consumer::new("a", &["t"]), Consumer::with_instance("b", "instance"));
    let mut c = Consumer::new("c", &["t"]);
    h.settle_consumers(&mut [&mut a]);
    h.settle_consumers(&mut [&mut a, &mut b]);
    h.settle_consumers(&mut [&mut a, &mut b, &mut c]);
    b.topics.push("u".to_owned());
    b.is_full = true;
    h.settle_consumers(&mut [&mut a, &mut b, &mut c]);
    let farewell = ConsumerGroupHeartbeatRequest { member_epoch: -1, ..c.request() };
    assert_eq!(h.beat_error(&farewell), ErrorCode::None);
    h.settle_consumers(&mut [&mut a, &mut b]);
    (h, [a, b])
}

#[test]
fn members_of_a_consumer_group_join_again_and_have_all_partitions() {
    let all: BTreeSet<(u128, i32)> = (0..4).map(|index| (7, index)).chain([(8, 0), (8, 1)]).collect();
    let batches = consumers().0.log.len();
    assert!(batches > 10, "{batches}");
    for lost in 0..batches {
        let (mut h, [mut a, mut b]) = consumers();
        for restart in 0..2 {
            h.restart_without(lost);
            for member in [&mut a, &mut b] {
                let refusal = h.beat_error(&member.request());
                let expected = [ErrorCode::UnknownMemberId, ErrorCode::GroupIdNotFound];
                assert!(expected.contains(&refusal), "{lost} {restart}: {refusal}");
                (member.epoch, member.owned, member.assigned) = Default::default();
            }
            h.settle_consumers(&mut [&mut a, &mut b]);
            assert!(a.assigned.is_disjoint(&b.assigned), "{lost} {restart}: {a:?} {b:?}");
            let assigned: BTreeSet<_> = a.assigned.union(&b.assigned).copied().collect();
            assert_eq!(assigned, all, "{lost} {restart}");
        }
    }
}

/// The target assignment may be in a later batch, after the interval between two assignments.
#[test]
fn group_whose_epoch_is_lost_makes_a_target_for_a_later_one() {
    let mut h = Harness::new();
    h.topics.set("t", 7, 2);
    let group_id = || GROUP.to_owned();
    let group = ConsumerGroupMetadataKey { group_id: group_id() };
    let value = ConsumerGroupMetadataValue { epoch: 2, metadata_hash: 0 };
    h.append(&[ConsumerRecord::Group(group, Some(value)).into()]);
    let target = ConsumerGroupTargetAssignmentMetadataKey { group_id: group_id() };
    let value = ConsumerGroupTargetAssignmentMetadataValue { assignment_epoch: 3, assignment_timestamp: 0 };
    h.append(&[ConsumerRecord::Target(target, Some(value)).into()]);
    h.restart();
    let mut member = Consumer::new("a", &["t"]);
    h.settle_consumers(&mut [&mut member]);
    assert_eq!(member.assigned, [(7, 0), (7, 1)].into());
}
