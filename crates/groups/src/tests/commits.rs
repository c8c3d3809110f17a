//! Offsets: permission to commit, retention, and visibility.

use super::consumer::{Consumer, with_topic};
use super::harness::{Commit, GROUP, Harness, Join, error, fetch_request};
use crate::GroupAnswer;
use crate::offsets::TransactionOutcome;
use crate::record::CoordinatorRecord;
use crate::shard::EndOfTransaction;
use crate::topics::DeletedTopic;
use thalweg_metadata::PartitionIndex;
use thalweg_record::{ProducerEpoch, ProducerId};
use thalweg_shard::WriteError;
use thalweg_wire::request::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use thalweg_wire::request::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use thalweg_wire::request::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use thalweg_wire::request::offset_fetch_response::OffsetFetchResponseGroup;
use thalweg_wire::request::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use thalweg_wire::request::{OffsetCommitRequest, OffsetDeleteRequest, TxnOffsetCommitRequest};
use thalweg_wire::{ErrorCode, Uuid};

pub(super) fn fetch_stable(h: &mut Harness, group: &str) -> Option<OffsetFetchResponseGroup> {
    let request = fetch_request(group, 0);
    let ticket = h.turn(|shard, ticket, _| shard.fetch_offsets_after_writes(&request, true, ticket));
    match h.answer(ticket)? {
        GroupAnswer::OffsetFetch(group) => Some(group.clone()),
        other => panic!("{other:?}"),
    }
}

/// The offset or the error of the only partition in an answer.
pub(super) fn only_offset(group: &OffsetFetchResponseGroup) -> Result<i64, ErrorCode> {
    let partition = &group.topics[0].partitions[0];
    match error(partition.error_code) {
        ErrorCode::None => Ok(partition.committed_offset),
        error => Err(error),
    }
}

fn delete_offset(h: &mut Harness, partition_index: i32) -> ErrorCode {
    let partitions = vec![OffsetDeleteRequestPartition { partition_index }];
    let topics = vec![OffsetDeleteRequestTopic { name: "t".to_owned(), partitions }];
    let request = OffsetDeleteRequest { group_id: GROUP.to_owned(), topics };
    let ticket = h.turn(|shard, ticket, _| shard.delete_offsets(&request, ticket));
    match h.answer(ticket) {
        Some(GroupAnswer::OffsetDelete(response)) if response.error_code != 0 => error(response.error_code),
        Some(GroupAnswer::OffsetDelete(response)) => error(response.topics[0].partitions[0].error_code),
        other => panic!("{other:?}"),
    }
}

pub(super) fn commit_in_transaction(h: &mut Harness, producer_id: i64, offset: i64) -> ErrorCode {
    let partition = TxnOffsetCommitRequestPartition { committed_offset: offset, ..Default::default() };
    let topic = TxnOffsetCommitRequestTopic { name: "t".to_owned(), partitions: vec![partition] };
    let request = TxnOffsetCommitRequest {
        group_id: GROUP.to_owned(),
        producer_id,
        topics: vec![topic],
        ..TxnOffsetCommitRequest::default()
    };
    let ticket = h.turn(|shard, ticket, now| shard.commit_transactional_offsets(&request, None, ticket, now));
    match h.answer(ticket) {
        Some(GroupAnswer::TxnOffsetCommit(response)) => error(response.topics[0].partitions[0].error_code),
        other => panic!("{other:?}"),
    }
}

pub(super) fn end_transaction(h: &mut Harness, producer_id: i64, outcome: TransactionOutcome) {
    let end = EndOfTransaction { outcome, coordinator_epoch: 0, transaction_version: 2 };
    let ticket = h.turn(|shard, ticket, _| {
        shard.complete_transaction(ProducerId(producer_id), ProducerEpoch(0), end, ticket);
    });
    if !h.holds {
        assert_eq!(h.answer(ticket), Some(&GroupAnswer::TransactionEnded(Ok(()))));
    }
}

fn delete_groups(h: &mut Harness, ids: &[&str]) -> Vec<ErrorCode> {
    let ids: Vec<String> = ids.iter().map(|&id| id.to_owned()).collect();
    let ticket = h.turn(|shard, ticket, _| shard.delete_groups(&ids, ticket));
    match h.answer(ticket) {
        Some(GroupAnswer::DeleteGroups(results)) => results.iter().map(|r| error(r.error_code)).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_consumer_without_a_group_makes_one_by_committing() {
    let mut h = Harness::new();
    let commit = Commit { offset: 42, metadata: Some("größe\0"), ..Commit::default() };
    assert_eq!(h.commit(commit), ErrorCode::None);
    assert_eq!(h.state(GROUP), "Empty");
    let fetched = h.shard.fetch_offsets(&fetch_request(GROUP, 0));
    let partition = &fetched.topics[0].partitions[0];
    assert_eq!((partition.committed_offset, partition.metadata.as_deref()), (42, Some("größe\0")));
    assert_eq!(h.fetch(GROUP, 1), -1);
    assert_eq!(h.fetch("another", 0), -1);
    let reloaded = h.reloaded();
    assert_eq!(reloaded.fetch_offsets(&fetch_request(GROUP, 0)), fetched);
    assert_eq!(reloaded.list_groups(&[], &[]).len(), 1);
}

#[test]
fn a_generation_that_the_coordinator_does_not_know_cannot_commit() {
    let mut h = Harness::new();
    let commit = Commit { generation: 3, member_id: "m", ..Commit::default() };
    assert_eq!(h.commit(commit), ErrorCode::GroupIdNotFound);
    assert_eq!(h.commit(Commit { version: 8, ..commit }), ErrorCode::IllegalGeneration);
    h.stable_group(&["a"]);
    assert_eq!(h.commit(commit), ErrorCode::UnknownMemberId);
    assert_eq!(h.commit(Commit::default()), ErrorCode::UnknownMemberId, "the group has members");
    assert_eq!(h.records().len(), 2, "the group and its assignment, and no offset");
}

#[test]
fn a_member_commits_while_the_group_prepares_to_rebalance() {
    let mut h = Harness::new();
    let (ids, generation) = h.stable_group(&["a"]);
    h.send_new("b");
    let commit = Commit { member_id: &ids[0], generation, offset: 5, ..Commit::default() };
    assert_eq!(h.commit(commit), ErrorCode::None);
    assert_eq!(h.fetch(GROUP, 0), 5);
}

#[test]
fn metadata_has_a_limit_in_utf16_units() {
    let mut h = Harness::new();
    let fits = "ö".repeat(4_096);
    assert_eq!(h.commit(Commit { metadata: Some(&fits), ..Commit::default() }), ErrorCode::None);
    let too_long = "x".repeat(4_097);
    let refused = Commit { metadata: Some(&too_long), offset: 9, ..Commit::default() };
    assert_eq!(h.commit(refused), ErrorCode::OffsetMetadataTooLarge);
    assert_eq!(h.fetch(GROUP, 0), 1);
}

/// A member at epoch 3 that has had partition 0 since epoch 2, and partition 2 since epoch 3.
fn member_with_a_new_partition() -> Harness {
    let mut h = with_topic(2);
    let mut member = Consumer::new("m", &["t"]);
    h.beat(&mut member);
    h.topics.set("t", 7, 3);
    h.shard.topics_changed(&["t".to_owned()], true);
    h.advance(1_000);
    h.beat(&mut member);
    assert_eq!(member.epoch, 3);
    h
}

/// The errors of a commit at epoch 2, by partition and length of its metadata.
fn commit_at_earlier_epoch(h: &mut Harness, partitions: &[(i32, usize)]) -> Vec<ErrorCode> {
    let partition = |&(partition_index, len): &(i32, usize)| OffsetCommitRequestPartition {
        partition_index,
        committed_metadata: Some("x".repeat(len)),
        ..Default::default()
    };
    let partitions = partitions.iter().map(partition).collect();
    let request = OffsetCommitRequest {
        group_id: GROUP.to_owned(),
        generation_id_or_member_epoch: 2,
        member_id: "m".to_owned(),
        topics: vec![OffsetCommitRequestTopic { name: "t".to_owned(), topic_id: Uuid(7), partitions }],
        ..OffsetCommitRequest::default()
    };
    let ticket = h.turn(|shard, ticket, now| shard.commit_offsets(&request, 9, ticket, now));
    match h.answer(ticket) {
        Some(GroupAnswer::OffsetCommit(response)) => {
            response.topics[0].partitions.iter().map(|partition| error(partition.error_code)).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// The errors of the same commit in a transaction, to a topic of this name.
fn commit_in_transaction_at_earlier_epoch(
    h: &mut Harness,
    name: &str,
    partitions: &[(i32, usize)],
) -> Vec<ErrorCode> {
    let partition = |&(partition_index, len): &(i32, usize)| TxnOffsetCommitRequestPartition {
        partition_index,
        committed_metadata: Some("x".repeat(len)),
        ..Default::default()
    };
    let partitions = partitions.iter().map(partition).collect();
    let request = TxnOffsetCommitRequest {
        group_id: GROUP.to_owned(),
        producer_id: 1,
        generation_id: 2,
        member_id: "m".to_owned(),
        topics: vec![TxnOffsetCommitRequestTopic { name: name.to_owned(), partitions }],
        ..TxnOffsetCommitRequest::default()
    };
    let ticket = h.turn(|shard, ticket, now| shard.commit_transactional_offsets(&request, None, ticket, now));
    match h.answer(ticket) {
        Some(GroupAnswer::TxnOffsetCommit(response)) => {
            response.topics[0].partitions.iter().map(|partition| error(partition.error_code)).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn partitions_with_refused_metadata_are_not_checked_for_their_epoch() {
    use ErrorCode::{IllegalGeneration, None, OffsetMetadataTooLarge, StaleMemberEpoch};
    let mut h = member_with_a_new_partition();
    assert_eq!(commit_at_earlier_epoch(&mut h, &[(0, 1), (2, 5_000)]), [None, OffsetMetadataTooLarge]);
    assert_eq!(h.fetch(GROUP, 0), 0, "the first partition is committed");
    assert_eq!(commit_at_earlier_epoch(&mut h, &[(0, 5_000), (2, 1)]), [StaleMemberEpoch; 2]);
    let in_transaction = commit_in_transaction_at_earlier_epoch;
    assert_eq!(in_transaction(&mut h, "t", &[(0, 1), (2, 5_000)]), [None, OffsetMetadataTooLarge]);
    assert_eq!(in_transaction(&mut h, "t", &[(0, 5_000), (2, 1)]), [IllegalGeneration; 2]);
    assert_eq!(in_transaction(&mut h, "unknown", &[(0, 5_000)]), [IllegalGeneration]);
}

#[test]
fn a_commit_can_be_read_once_it_is_acknowledged() {
    let mut h = Harness::new();
    assert_eq!(h.commit(Commit { offset: 1, ..Commit::default() }), ErrorCode::None);
    h.holds = true;
    let second = h.send_commit(Commit { offset: 2, ..Commit::default() });
    let third = h.send_commit(Commit { offset: 3, ..Commit::default() });
    let other = h.send_commit(Commit { group: "other", ..Commit::default() });
    assert_eq!((h.commit_answer(second), h.fetch(GROUP, 0)), (None, 1));
    assert_eq!(fetch_stable(&mut h, GROUP), None, "it waits for what was written before");
    assert_eq!(h.state("other"), "Dead");
    assert!(h.acknowledge());
    assert_eq!((h.commit_answer(second), h.fetch(GROUP, 0)), (Some(ErrorCode::None), 2));
    assert_eq!(h.commit_answer(third), None);
    assert!(h.acknowledge() && h.acknowledge());
    assert_eq!((h.commit_answer(third), h.fetch(GROUP, 0)), (Some(ErrorCode::None), 3));
    assert_eq!((h.commit_answer(other), h.state("other").as_str()), (Some(ErrorCode::None), "Empty"));
}

#[test]
fn a_commit_that_is_refused_has_not_happened() {
    let mut h = Harness::new();
    for (refusal, told) in [
        (WriteError::NotLeader, ErrorCode::NotCoordinator),
        (WriteError::TooFewReplicas, ErrorCode::CoordinatorNotAvailable),
        (WriteError::TooLarge, ErrorCode::UnknownServerError),
    ] {
        h.refuses = Some(refusal);
        assert_eq!(h.commit(Commit::default()), told);
        assert_eq!((h.fetch(GROUP, 0), h.state(GROUP).as_str()), (-1, "Dead"));
    }
}

#[test]
fn a_commit_that_is_not_acknowledged_in_time_fails() {
    let mut h = Harness::new();
    h.holds = true;
    let ticket = h.send_commit(Commit::default());
    h.advance(5_000);
    assert_eq!(h.commit_answer(ticket), Some(ErrorCode::CoordinatorNotAvailable));
    assert!(h.acknowledge(), "it may yet count");
    assert_eq!(h.fetch(GROUP, 0), 1);
}

#[test]
fn all_offsets_of_a_group_are_fetched_by_a_request_for_none() {
    let mut h = Harness::new();
    for partition in [2, 0, 1] {
        h.commit(Commit { partition, offset: i64::from(partition), ..Commit::default() });
    }
    let all = OffsetFetchRequestGroup { group_id: GROUP.to_owned(), topics: None, ..Default::default() };
    let fetched = h.shard.fetch_offsets(&all);
    let offsets: Vec<i64> = fetched.topics[0].partitions.iter().map(|p| p.committed_offset).collect();
    assert_eq!((fetched.topics.len(), offsets), (1, vec![0, 1, 2]));
    let none = OffsetFetchRequestGroup { group_id: "another".to_owned(), ..all };
    assert_eq!(h.shard.fetch_offsets(&none).topics, []);
}

#[test]
fn an_offset_of_another_topic_of_the_same_name_is_not_returned() {
    let mut h = Harness::new();
    h.commit(Commit { offset: 9, ..Commit::default() });
    let fetch = |topic_id: Uuid| OffsetFetchRequestGroup {
        group_id: GROUP.to_owned(),
        topics: Some(vec![OffsetFetchRequestTopics {
            name: "t".to_owned(),
            topic_id,
            partition_indexes: vec![0],
        }]),
        ..OffsetFetchRequestGroup::default()
    };
    assert_eq!(only_offset(&h.shard.fetch_offsets(&fetch(Uuid(7)))), Ok(9));
    assert_eq!(only_offset(&h.shard.fetch_offsets(&fetch(Uuid(8)))), Ok(-1));
    assert_eq!(only_offset(&h.shard.fetch_offsets(&fetch(Uuid::ZERO))), Ok(9));
}

#[test]
fn offsets_are_deleted_unless_a_member_reads_the_topic() {
    let mut h = Harness::new();
    assert_eq!(delete_offset(&mut h, 0), ErrorCode::GroupIdNotFound);
    h.commit(Commit::default());
    assert_eq!(delete_offset(&mut h, 1), ErrorCode::None, "there is nothing to delete");
    assert_eq!(h.log.len(), 1);
    assert_eq!(delete_offset(&mut h, 0), ErrorCode::None);
    assert_eq!((h.fetch(GROUP, 0), h.log.len()), (-1, 2));
    h.stable_group(&["a"]);
    assert_eq!(
        delete_offset(&mut h, 0),
        ErrorCode::GroupSubscribedToTopic,
        "its subscription cannot be told"
    );
}

#[test]
fn a_group_is_deleted_with_its_offsets_when_nobody_is_in_it() {
    let mut h = Harness::new();
    let (ids, _) = h.stable_group(&["a"]);
    h.commit(Commit { group: "other", ..Commit::default() });
    assert_eq!(
        delete_groups(&mut h, &[GROUP, "other", "none"]),
        [ErrorCode::NonEmptyGroup, ErrorCode::None, ErrorCode::GroupIdNotFound]
    );
    assert_eq!((h.state("other").as_str(), h.fetch("other", 0)), ("Dead", -1));
    h.leave(&[(&ids[0], None)]);
    assert_eq!(delete_groups(&mut h, &[GROUP]), [ErrorCode::None]);
    assert_eq!(h.reloaded().list_groups(&[], &[]), []);
}

#[test]
fn a_deleted_group_can_be_read_until_its_end_is_acknowledged() {
    let mut h = Harness::new();
    h.commit(Commit::default());
    h.holds = true;
    let ids = vec![GROUP.to_owned()];
    h.turn(|shard, ticket, _| shard.delete_groups(&ids, ticket));
    assert_eq!((h.state(GROUP).as_str(), h.fetch(GROUP, 0)), ("Empty", 1));
    // Writers see the new state, and may recreate the group.
    let again = h.send_join(Join { version: 3, ..Join::default() });
    assert!(h.acknowledge());
    assert_eq!((h.state(GROUP).as_str(), h.fetch(GROUP, 0)), ("Dead", -1));
    assert!(h.acknowledge());
    assert_eq!(h.state(GROUP), "PreparingRebalance");
    h.advance(3_000);
    assert_eq!(h.join_answer(again).expect("the delay is over").generation_id, 1);
}

#[test]
fn offsets_go_with_their_topic_and_not_with_its_namesake() {
    let mut h = Harness::new();
    h.commit(Commit::default());
    let deleted = |id| [DeletedTopic { name: "t".to_owned(), id: Uuid(id) }];
    h.turn(|shard, _, _| shard.topics_deleted(&deleted(8)));
    assert_eq!(h.fetch(GROUP, 0), 1);
    h.turn(|shard, _, _| shard.topics_deleted(&deleted(7)));
    assert_eq!(h.fetch(GROUP, 0), -1);
    assert_eq!(h.records().last(), Some(&CoordinatorRecord::offset_tombstone(GROUP, "t", PartitionIndex(0))));
}

#[test]
fn a_transactions_offsets_count_when_it_commits() {
    let mut h = Harness::new();
    h.commit(Commit { offset: 1, ..Commit::default() });
    assert_eq!(commit_in_transaction(&mut h, 11, 50), ErrorCode::None);
    assert_eq!(h.fetch(GROUP, 0), 1);
    let unstable = fetch_stable(&mut h, GROUP).expect("nothing is held");
    assert_eq!(only_offset(&unstable), Err(ErrorCode::UnstableOffsetCommit));
    end_transaction(&mut h, 11, TransactionOutcome::Commit);
    assert_eq!(h.fetch(GROUP, 0), 50);
    assert_eq!(only_offset(&fetch_stable(&mut h, GROUP).expect("nothing is held")), Ok(50));
}

#[test]
fn a_transactions_offsets_are_forgotten_when_it_aborts() {
    let mut h = Harness::new();
    commit_in_transaction(&mut h, 11, 50);
    commit_in_transaction(&mut h, 12, 60);
    end_transaction(&mut h, 11, TransactionOutcome::Abort);
    let unstable = fetch_stable(&mut h, GROUP).expect("nothing is held");
    assert_eq!(only_offset(&unstable), Err(ErrorCode::UnstableOffsetCommit), "another is open");
    end_transaction(&mut h, 12, TransactionOutcome::Abort);
    assert_eq!(only_offset(&fetch_stable(&mut h, GROUP).expect("nothing is held")), Ok(-1));
}

#[test]
fn readers_see_what_a_transaction_commits_once_its_marker_is_acknowledged() {
    let mut h = Harness::new();
    h.commit(Commit { offset: 1, ..Commit::default() });
    commit_in_transaction(&mut h, 11, 50);
    h.holds = true;
    end_transaction(&mut h, 11, TransactionOutcome::Commit);
    assert_eq!(h.fetch(GROUP, 0), 1);
    assert!(h.acknowledge());
    assert_eq!(h.fetch(GROUP, 0), 50);
    h.holds = false;
    h.restart();
    assert_eq!(h.fetch(GROUP, 0), 50, "the marker is in the log");
}

#[test]
fn an_offset_that_was_committed_later_is_not_set_back_by_a_transaction() {
    let mut h = Harness::new();
    commit_in_transaction(&mut h, 11, 50);
    h.commit(Commit { offset: 70, ..Commit::default() });
    end_transaction(&mut h, 11, TransactionOutcome::Commit);
    assert_eq!(h.fetch(GROUP, 0), 70);
}

#[test]
fn open_transactions_survive_a_restart() {
    let mut h = Harness::new();
    commit_in_transaction(&mut h, 11, 50);
    h.restart();
    let unstable = fetch_stable(&mut h, GROUP).expect("nothing is held");
    assert_eq!(only_offset(&unstable), Err(ErrorCode::UnstableOffsetCommit));
    end_transaction(&mut h, 11, TransactionOutcome::Commit);
    assert_eq!(h.fetch(GROUP, 0), 50);
}
