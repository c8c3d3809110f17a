//! Black-box tests of consumer groups: members join, revoke, get revoked partitions, leave and are fenced.

use super::harness::{Harness, client, error, subscription};
use crate::answer::GroupAnswer;
use crate::config::GroupConfig;
use crate::record::ConsumerRecord;
use crate::record::CoordinatorRecord;
use crate::topic_filter::TopicFilter;
use std::collections::BTreeSet;
use thalweg_shard::Ticket;
use thalweg_wire::request::consumer_group_describe_response::DescribedGroup;
use thalweg_wire::request::consumer_group_heartbeat_request::TopicPartitions;
use thalweg_wire::request::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use thalweg_wire::request::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use thalweg_wire::request::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Uuid};

pub(super) const GROUP: &str = "g";
/// The default of `group.consumer.session.timeout.ms`.
pub(super) const SESSION_MS: i64 = 45_000;
const REBALANCE_MS: i32 = 60_000;

/// A partition of a topic with a small id.
pub(super) type Partition = (u128, i32);

/// A client's view of a member (KIP-848).
#[derive(Clone, Debug, Default)]
pub(super) struct Consumer {
    pub(super) id: String,
    pub(super) instance_id: Option<String>,
    pub(super) topics: Vec<String>,
    pub(super) assignor: Option<String>,
    /// True if the next request has all fields, as after an error.
    pub(super) is_full: bool,
    pub(super) epoch: i32,
    /// Partitions that the member has.
    pub(super) owned: BTreeSet<Partition>,
    /// Partitions of the last answer.
    pub(super) assigned: BTreeSet<Partition>,
}

impl Consumer {
    pub(super) fn new(id: &str, topics: &[&str]) -> Consumer {
        let topics = topics.iter().map(|&topic| topic.to_owned()).collect();
        Consumer { id: id.to_owned(), topics, ..Consumer::default() }
    }

    pub(super) fn with_instance(id: &str, instance: &str) -> Consumer {
        Consumer { instance_id: Some(instance.to_owned()), ..Consumer::new(id, &["t"]) }
    }

    /// A request: all fields when the member joins, its partitions otherwise.
    pub(super) fn request(&self) -> ConsumerGroupHeartbeatRequest {
        let joins = self.epoch == 0 || self.is_full;
        ConsumerGroupHeartbeatRequest {
            group_id: GROUP.to_owned(),
            member_id: self.id.clone(),
            member_epoch: self.epoch,
            instance_id: self.instance_id.clone(),
            rebalance_timeout_ms: if joins { REBALANCE_MS } else { -1 },
            subscribed_topic_names: joins.then(|| self.topics.clone()),
            server_assignor: if joins { self.assignor.clone() } else { None },
            topic_partitions: Some(partitions(&self.owned)),
            ..ConsumerGroupHeartbeatRequest::default()
        }
    }

    /// Processes an answer: revokes partitions that are no longer assigned, and takes new ones.
    pub(super) fn take(&mut self, response: &ConsumerGroupHeartbeatResponse) {
        self.epoch = response.member_epoch;
        self.is_full = false;
        if let Some(assignment) = &response.assignment {
            self.assigned = assignment
                .topic_partitions
                .iter()
                .flat_map(|topic| topic.partitions.iter().map(|partition| (topic.topic_id.0, *partition)))
                .collect();
            self.owned = self.assigned.clone();
        }
    }
}

fn partitions(owned: &BTreeSet<Partition>) -> Vec<TopicPartitions> {
    let mut topics: Vec<TopicPartitions> = Vec::new();
    for &(topic, partition) in owned {
        match topics.last_mut() {
            Some(last) if last.topic_id == Uuid(topic) => last.partitions.push(partition),
            _ => topics.push(TopicPartitions { topic_id: Uuid(topic), partitions: vec![partition] }),
        }
    }
    topics
}

impl Harness {
    pub(super) fn send_beat(&mut self, request: &ConsumerGroupHeartbeatRequest) -> Ticket {
        self.turn(|shard, ticket, now| {
            let filter = TopicFilter::new(|topic, _| topic != "secret");
            shard.consumer_heartbeat(&client("c"), request, &filter, ticket, now);
        })
    }

    pub(super) fn beat_answer(&self, ticket: Ticket) -> Option<ConsumerGroupHeartbeatResponse> {
        match self.answer(ticket)? {
            GroupAnswer::ConsumerHeartbeat(response) => Some(response.clone()),
            other => panic!("a heartbeat was answered by {other:?}"),
        }
    }

    pub(super) fn request_beat(
        &mut self,
        request: &ConsumerGroupHeartbeatRequest,
    ) -> ConsumerGroupHeartbeatResponse {
        let ticket = self.send_beat(request);
        self.beat_answer(ticket).expect("nothing is held")
    }

    /// Sends a heartbeat that has to succeed.
    pub(super) fn beat(&mut self, consumer: &mut Consumer) {
        let response = self.request_beat(&consumer.request());
        assert_eq!(error(response.error_code), ErrorCode::None, "{consumer:?} {response:?}");
        consumer.take(&response);
    }

    /// Sends a heartbeat that has to fail.
    pub(super) fn beat_error(&mut self, request: &ConsumerGroupHeartbeatRequest) -> ErrorCode {
        error(self.request_beat(request).error_code)
    }

    /// Sends heartbeats of all members until nothing changes any more.
    pub(super) fn settle_consumers(&mut self, consumers: &mut [&mut Consumer]) {
        for _ in 0..10 {
            for consumer in consumers.iter_mut() {
                self.beat(consumer);
            }
            self.advance(1_000);
        }
    }

    pub(super) fn described(&mut self) -> DescribedGroup {
        let ids = [GROUP.to_owned()];
        let ticket = self.turn(|shard, ticket, _| shard.describe_consumer_groups(&ids, ticket));
        match self.answer(ticket) {
            Some(GroupAnswer::ConsumerDescribe(groups)) => groups[0].clone(),
            other => panic!("a description was answered by {other:?}"),
        }
    }

    /// Resolves the due regular expressions, like the background task.
    pub(super) fn resolve(&mut self) {
        let due = self.shard.take_resolutions();
        assert_eq!(due.len(), 1);
        let (matches, version) = due[0].look_up(&*self.topics);
        self.turn(|shard, _, now| shard.regexes_resolved(GROUP, matches, version, now));
    }

    /// A new coordinator loads an identical group from the log.
    pub(super) fn check_replay(&self) {
        assert_eq!(self.reloaded().consumer_picture(GROUP), self.shard.consumer_picture(GROUP));
    }
}

/// Topic `t` with id 7 and this many partitions.
pub(super) fn with_topic(partitions: i32) -> Harness {
    let h = Harness::new();
    h.topics.set("t", 7, partitions);
    h
}

fn all(partitions: std::ops::Range<i32>) -> BTreeSet<Partition> {
    partitions.map(|partition| (7, partition)).collect()
}

#[test]
fn the_first_member_gets_all_partitions() {
    let mut h = with_topic(3);
    let mut a = Consumer::new("a", &["t"]);
    h.beat(&mut a);
    assert_eq!((a.epoch, &a.owned), (2, &all(0..3)));
    let group = h.described();
    assert_eq!((group.group_state.as_str(), group.group_epoch, group.assignment_epoch), ("Stable", 2, 2));
    assert_eq!((group.assignor_name.as_str(), group.members.len()), ("uniform", 1));
    assert_eq!(group.members[0].assignment, group.members[0].target_assignment);
    let listed = h.shard.list_groups(&[], &["consumer".to_owned()]);
    assert_eq!((listed[0].group_state.as_str(), listed[0].group_type.as_str()), ("Stable", "consumer"));
    assert_eq!(h.shard.list_groups(&[], &["classic".to_owned()]), []);
    assert_eq!(h.shard.describe_group(GROUP, 6).error_code, ErrorCode::GroupIdNotFound.code());
    h.check_replay();
}

#[test]
fn a_join_is_written_in_one_batch_in_kafkas_order() {
    let mut h = with_topic(1);
    h.beat(&mut Consumer::new("a", &["t"]));
    assert_eq!(h.log.len(), 1);
    let kinds: Vec<&str> = h
        .records()
        .iter()
        .map(|record| match record {
            CoordinatorRecord::Consumer(record) => match &**record {
                ConsumerRecord::Member(..) => "member",
                ConsumerRecord::Group(..) => "group",
                ConsumerRecord::TargetMember(..) => "target of a member",
                ConsumerRecord::Target(..) => "target",
                ConsumerRecord::Current(..) => "current",
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["member", "group", "target of a member", "target", "current"]);
}

#[test]
fn a_heartbeat_that_changes_nothing_writes_nothing() {
    let mut h = with_topic(3);
    let mut a = Consumer::new("a", &["t"]);
    h.beat(&mut a);
    let written = h.log.len();
    let response = h.request_beat(&a.request());
    assert_eq!((response.member_epoch, response.assignment, h.log.len()), (2, None, written));
    let bare = ConsumerGroupHeartbeatRequest { topic_partitions: None, ..a.request() };
    assert_eq!(h.request_beat(&bare).member_epoch, 2);
    assert_eq!(h.log.len(), written);
}

#[test]
fn a_partition_moves_when_its_owner_has_revoked_it() {
    let mut h = with_topic(2);
    let (mut a, mut b) = (Consumer::new("a", &["t"]), Consumer::new("b", &["t"]));
    h.beat(&mut a);
    h.advance(1_000);
    h.beat(&mut b);
    assert_eq!((b.epoch, b.owned.len()), (3, 0));
    // The answer names the partitions to keep, and the member stays at its epoch until it has revoked the
    // rest.
    let response = h.request_beat(&a.request());
    assert_eq!(response.member_epoch, 2);
    h.beat(&mut b);
    assert_eq!(b.owned.len(), 0, "a has not revoked anything yet");
    assert_eq!(h.described().group_state, "Reconciling");
    a.take(&response);
    assert_eq!(a.owned.len(), 1);
    h.beat(&mut a);
    assert_eq!(a.epoch, 3);
    h.beat(&mut b);
    assert_eq!((b.epoch, b.owned.len()), (3, 1));
    assert!(a.owned.is_disjoint(&b.owned));
    assert_eq!(h.described().group_state, "Stable");
    h.check_replay();
}

#[test]
fn members_wait_for_the_next_assignment_no_longer_than_its_interval() {
    let mut h = with_topic(2);
    let (mut a, mut b) = (Consumer::new("a", &["t"]), Consumer::new("b", &["t"]));
    h.beat(&mut a);
    h.beat(&mut b);
    // The last assignment is recent: the new member has an epoch, and no partition.
    assert_eq!((b.epoch, b.owned.len(), h.described().group_state.as_str()), (2, 0, "Assigning"));
    h.advance(999);
    h.beat(&mut b);
    assert_eq!(b.epoch, 2);
    h.advance(1);
    h.beat(&mut b);
    assert_eq!(b.epoch, 3);
}

#[test]
fn a_member_that_leaves_gives_its_partitions_to_the_others() {
    let mut h = with_topic(2);
    let (mut a, mut b) = (Consumer::new("a", &["t"]), Consumer::new("b", &["t"]));
    h.settle_consumers(&mut [&mut a, &mut b]);
    let leave = ConsumerGroupHeartbeatRequest { member_epoch: -1, ..a.request() };
    assert_eq!(h.request_beat(&leave).member_epoch, -1);
    h.settle_consumers(&mut [&mut b]);
    assert_eq!(b.owned, all(0..2));
    let leave = ConsumerGroupHeartbeatRequest { member_epoch: -1, ..b.request() };
    h.request_beat(&leave);
    assert_eq!((h.described().group_state.as_str(), h.described().members.len()), ("Empty", 0));
    h.check_replay();
    assert_eq!(h.beat_error(&leave), ErrorCode::UnknownMemberId);
}

#[test]
fn silent_members_and_members_that_do_not_revoke_are_fenced() {
    let mut h = with_topic(2);
    let (mut a, mut b) = (Consumer::new("a", &["t"]), Consumer::new("b", &["t"]));
    h.beat(&mut a);
    h.advance(SESSION_MS - 1);
    assert_eq!(h.described().members.len(), 1);
    h.advance(1);
    assert_eq!(h.described().group_state, "Empty");
    assert_eq!(h.beat_error(&a.request()), ErrorCode::UnknownMemberId);
    (a.epoch, a.owned) = (0, BTreeSet::new());
    h.beat(&mut a);
    h.advance(1_000);
    h.beat(&mut b);
    for _ in 0..REBALANCE_MS / 1_000 {
        // The member keeps reporting its old partitions.
        h.request_beat(&a.request());
        h.beat(&mut b);
        h.advance(1_000);
    }
    assert_eq!(h.beat_error(&a.request()), ErrorCode::UnknownMemberId);
    h.settle_consumers(&mut [&mut b]);
    assert_eq!(b.owned, all(0..2));
    h.check_replay();
}

#[test]
fn epochs_of_another_time_are_fenced() {
    let mut h = with_topic(2);
    let mut a = Consumer::new("a", &["t"]);
    h.beat(&mut a);
    let with_epoch = |member_epoch| ConsumerGroupHeartbeatRequest { member_epoch, ..a.request() };
    assert_eq!(h.beat_error(&with_epoch(3)), ErrorCode::FencedMemberEpoch);
    assert_eq!(h.beat_error(&with_epoch(1)), ErrorCode::FencedMemberEpoch);
    let stranger = ConsumerGroupHeartbeatRequest { member_id: "x".to_owned(), ..with_epoch(2) };
    assert_eq!(h.beat_error(&stranger), ErrorCode::UnknownMemberId);
    let elsewhere = ConsumerGroupHeartbeatRequest { group_id: "other".to_owned(), ..with_epoch(2) };
    assert_eq!(h.beat_error(&elsewhere), ErrorCode::GroupIdNotFound);
    // The answer with the new epoch may have been lost: the previous epoch is valid for assigned partitions.
    h.topics.set("t", 7, 3);
    h.shard.topics_changed(&["t".to_owned()], true);
    h.advance(1_000);
    let lost = h.request_beat(&a.request());
    assert_eq!(lost.member_epoch, 3);
    h.beat(&mut a);
    assert_eq!(a.epoch, 3);
}

#[test]
fn new_partitions_and_deleted_topics_change_the_assignment() {
    let mut h = with_topic(1);
    let mut a = Consumer::new("a", &["t", "u"]);
    h.beat(&mut a);
    assert_eq!(a.owned, all(0..1));
    let changed = |h: &mut Harness, name: &str| {
        h.shard.topics_changed(&[name.to_owned()], true);
        h.advance(1_000);
    };
    h.topics.set("t", 7, 3);
    changed(&mut h, "t");
    h.beat(&mut a);
    assert_eq!(a.owned, all(0..3));
    h.topics.set("u", 8, 1);
    changed(&mut h, "u");
    h.beat(&mut a);
    assert_eq!(a.owned.len(), 4);
    h.topics.delete("t");
    changed(&mut h, "t");
    h.beat(&mut a);
    h.beat(&mut a);
    assert_eq!(a.owned, BTreeSet::from([(8, 0)]));
    let epoch = a.epoch;
    // A change that does not affect the group leaves its epoch unchanged.
    changed(&mut h, "u");
    h.beat(&mut a);
    assert_eq!(a.epoch, epoch);
    h.check_replay();
}

#[test]
fn a_member_gives_up_topics_that_it_no_longer_subscribes_to() {
    let mut h = with_topic(1);
    h.topics.set("u", 8, 1);
    let mut a = Consumer::new("a", &["t", "u"]);
    h.beat(&mut a);
    assert_eq!(a.owned.len(), 2);
    let names = Some(vec!["u".to_owned()]);
    let request = ConsumerGroupHeartbeatRequest { subscribed_topic_names: names, ..a.request() };
    let response = h.request_beat(&request);
    a.take(&response);
    assert_eq!(a.owned, BTreeSet::from([(8, 0)]));
    h.settle_consumers(&mut [&mut a]);
    assert_eq!(h.described().group_state, "Stable");
    h.check_replay();
}

#[test]
fn a_static_member_that_is_away_for_a_while_keeps_its_partitions() {
    let mut h = with_topic(2);
    let (mut a, mut b) = (Consumer::with_instance("a", "i"), Consumer::new("b", &["t"]));
    h.settle_consumers(&mut [&mut a, &mut b]);
    let owned = a.owned.clone();
    let mut again = Consumer::with_instance("a2", "i");
    assert_eq!(h.beat_error(&again.request()), ErrorCode::UnreleasedInstanceId);
    let leave = ConsumerGroupHeartbeatRequest { member_epoch: -2, ..a.request() };
    assert_eq!(h.request_beat(&leave).member_epoch, -2);
    let epoch = h.described().group_epoch;
    h.beat(&mut again);
    assert_eq!((again.owned.clone(), h.described().group_epoch), (owned, epoch), "nobody else notices");
    assert_eq!(h.beat_error(&a.request()), ErrorCode::FencedInstanceId);
    let unknown = Consumer { epoch: 3, ..Consumer::with_instance("a", "j") };
    assert_eq!(h.beat_error(&unknown.request()), ErrorCode::UnknownMemberId);
    h.check_replay();
    // A static member that does not return in time loses its partitions.
    let leave = ConsumerGroupHeartbeatRequest { member_epoch: -2, ..again.request() };
    h.request_beat(&leave);
    for _ in 0..SESSION_MS / 1_000 {
        h.advance(1_000);
        h.beat(&mut b);
    }
    h.settle_consumers(&mut [&mut b]);
    assert_eq!(b.owned, all(0..2));
    h.check_replay();
}

#[test]
fn a_group_takes_as_many_members_as_it_may() {
    let mut config = GroupConfig::default();
    config.consumer.group_size_max = 1;
    let mut h = Harness::with(config);
    h.topics.set("t", 7, 1);
    h.beat(&mut Consumer::new("a", &["t"]));
    assert_eq!(h.beat_error(&Consumer::new("b", &["t"]).request()), ErrorCode::GroupMaxSizeReached);
    h.beat(&mut Consumer::new("a", &["t"]));
}

#[test]
fn members_choose_the_assignor_by_majority() {
    let mut h = with_topic(4);
    let range = |id: &str| Consumer { assignor: Some("range".to_owned()), ..Consumer::new(id, &["t"]) };
    let (mut a, mut b) = (Consumer::new("a", &["t"]), range("b"));
    h.settle_consumers(&mut [&mut a, &mut b]);
    assert_eq!(h.described().assignor_name, "range");
    assert_eq!((a.owned, b.owned), (all(0..2), all(2..4)));
}

/// As `ConsumerGroup.computePreferredServerAssignor` and `preferredServerAssignor` choose.
#[test]
fn of_equally_many_votes_the_new_one_counts() {
    for (first, second) in [("uniform", "range"), ("range", "uniform")] {
        let mut h = with_topic(4);
        h.topics.set("u", 8, 3);
        let asks = |id: &str, assignor: &str, topics: &[&str]| Consumer {
            assignor: Some(assignor.to_owned()),
            ..Consumer::new(id, topics)
        };
        let (mut a, mut b) = (asks("a", first, &["t"]), asks("b", second, &["t", "u"]));
        h.settle_consumers(&mut [&mut a]);
        h.settle_consumers(&mut [&mut a, &mut b]);
        // With range each has two partitions of t; with uniform as many in all as the other.
        let of_t = a.owned.iter().filter(|(topic, _)| *topic == 7).count();
        assert_eq!(of_t, if second == "range" { 2 } else { 4 }, "{first}, then {second}");
        assert_eq!(h.described().assignor_name, "uniform");
    }
}

#[test]
fn offsets_are_committed_by_members_at_their_epoch() {
    let mut h = with_topic(2);
    let mut a = Consumer::new("a", &["t"]);
    h.beat(&mut a);
    let commit = |h: &mut Harness, member: &str, epoch: i32, partition: i32, version: i16| {
        let partition = OffsetCommitRequestPartition {
            partition_index: partition,
            committed_offset: 5,
            ..Default::default()
        };
        let topic =
            OffsetCommitRequestTopic { name: "t".to_owned(), topic_id: Uuid(7), partitions: vec![partition] };
        let request = OffsetCommitRequest {
            group_id: GROUP.to_owned(),
            generation_id_or_member_epoch: epoch,
            member_id: member.to_owned(),
            topics: vec![topic],
            ..OffsetCommitRequest::default()
        };
        let ticket = h.turn(|shard, ticket, now| shard.commit_offsets(&request, version, ticket, now));
        h.commit_answer(ticket).expect("nothing is held")
    };
    assert_eq!(commit(&mut h, "a", 2, 0, 9), ErrorCode::None);
    assert_eq!(commit(&mut h, "a", 2, 0, 8), ErrorCode::UnsupportedVersion);
    assert_eq!(commit(&mut h, "a", 3, 0, 9), ErrorCode::StaleMemberEpoch);
    assert_eq!(commit(&mut h, "a", 1, 0, 9), ErrorCode::StaleMemberEpoch, "it was not assigned then");
    assert_eq!(commit(&mut h, "b", 2, 0, 9), ErrorCode::UnknownMemberId);
    assert_eq!(commit(&mut h, "", -1, 0, 9), ErrorCode::UnknownMemberId, "the group has members");
    // A partition that stays with the member may be committed with the previous epoch.
    h.topics.set("t", 7, 3);
    h.shard.topics_changed(&["t".to_owned()], true);
    h.advance(1_000);
    h.beat(&mut a);
    assert_eq!(a.epoch, 3);
    assert_eq!(commit(&mut h, "a", 2, 1, 9), ErrorCode::None);
    assert_eq!(commit(&mut h, "a", 2, 2, 9), ErrorCode::StaleMemberEpoch);

    let fetch = |h: &Harness, member_id: Option<&str>, member_epoch: i32| {
        let topic = OffsetFetchRequestTopics {
            name: "t".to_owned(),
            partition_indexes: vec![0],
            ..OffsetFetchRequestTopics::default()
        };
        let member_id = member_id.map(str::to_owned);
        let request = OffsetFetchRequestGroup {
            group_id: GROUP.to_owned(),
            member_id,
            member_epoch,
            topics: Some(vec![topic]),
        };
        error(h.shard.fetch_offsets(&request).error_code)
    };
    assert_eq!(fetch(&h, None, -1), ErrorCode::None);
    assert_eq!(fetch(&h, Some("a"), 3), ErrorCode::None);
    assert_eq!(fetch(&h, Some("a"), 2), ErrorCode::StaleMemberEpoch);
    assert_eq!(fetch(&h, Some("b"), 3), ErrorCode::UnknownMemberId);
}

#[test]
fn offsets_of_subscribed_topics_and_groups_with_members_stay() {
    let mut h = with_topic(1);
    let mut a = Consumer::new("a", &["t"]);
    h.beat(&mut a);
    let request = OffsetDeleteRequest {
        group_id: GROUP.to_owned(),
        topics: vec![OffsetDeleteRequestTopic {
            name: "t".to_owned(),
            partitions: vec![OffsetDeleteRequestPartition { partition_index: 0 }],
        }],
    };
    let ticket = h.turn(|shard, ticket, _| shard.delete_offsets(&request, ticket));
    let Some(GroupAnswer::OffsetDelete(response)) = h.answer(ticket) else { panic!("it is answered") };
    assert_eq!(error(response.topics[0].partitions[0].error_code), ErrorCode::GroupSubscribedToTopic);
    let delete = |h: &mut Harness| {
        let ids = [GROUP.to_owned()];
        let ticket = h.turn(|shard, ticket, _| shard.delete_groups(&ids, ticket));
        match h.answer(ticket) {
            Some(GroupAnswer::DeleteGroups(results)) => error(results[0].error_code),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(delete(&mut h), ErrorCode::NonEmptyGroup);
    h.request_beat(&ConsumerGroupHeartbeatRequest { member_epoch: -1, ..a.request() });
    assert_eq!(delete(&mut h), ErrorCode::None);
    assert_eq!(h.described().error_code, ErrorCode::GroupIdNotFound.code());
    assert_eq!(h.reloaded().list_groups(&[], &[]), []);
    assert_eq!(h.shard.deadline_count(), 0);
}

#[test]
fn an_invalid_regular_expression_is_refused() {
    let mut h = with_topic(1);
    let request = ConsumerGroupHeartbeatRequest {
        subscribed_topic_names: None,
        subscribed_topic_regex: Some("(".to_owned()),
        ..Consumer::new("a", &[]).request()
    };
    assert_eq!(h.beat_error(&request), ErrorCode::InvalidRegularExpression);
    assert_eq!(h.log.len(), 0);
}

#[test]
fn a_write_that_fails_leaves_the_group_as_it_was() {
    let mut h = with_topic(2);
    let mut a = Consumer::new("a", &["t"]);
    h.refuses = Some(thalweg_shard::WriteError::TooFewReplicas);
    assert_eq!(h.beat_error(&a.request()), ErrorCode::CoordinatorNotAvailable);
    assert_eq!(h.shard.consumer_picture(GROUP), None);
    h.refuses = None;
    h.beat(&mut a);
    h.advance(1_000);
    let before = h.shard.consumer_picture(GROUP);
    h.refuses = Some(thalweg_shard::WriteError::TooFewReplicas);
    h.topics.set("t", 7, 3);
    h.shard.topics_changed(&["t".to_owned()], true);
    assert_eq!(h.beat_error(&a.request()), ErrorCode::CoordinatorNotAvailable);
    assert_eq!(h.shard.consumer_picture(GROUP), before);
    h.refuses = None;
    h.beat(&mut a);
    assert_eq!(a.owned.len(), 3, "the change of the topic is not forgotten");
}

#[test]
fn topics_that_match_a_regular_expression_are_assigned_as_they_come_and_go() {
    let mut h = with_topic(2);
    h.topics.set("secret", 9, 1);
    let join = ConsumerGroupHeartbeatRequest {
        subscribed_topic_names: Some(Vec::new()),
        subscribed_topic_regex: Some("t.*|secret".to_owned()),
        ..Consumer::new("a", &[]).request()
    };
    let mut a = Consumer::new("a", &[]);
    let response = h.request_beat(&join);
    a.take(&response);
    assert_eq!(a.owned.len(), 0, "nothing is looked up yet");
    h.resolve();
    h.advance(1_000);
    h.beat(&mut a);
    assert_eq!(a.owned, all(0..2));
    h.check_replay();
    h.topics.set("t2", 8, 1);
    h.shard.topics_changed(&["t2".to_owned()], true);
    h.advance(10_001);
    h.restart();
    h.beat(&mut a);
    // The version of the metadata stays the same, so only the interval starts a resolution.
    for _ in 0..60 {
        h.advance(10_000);
        h.beat(&mut a);
    }
    h.resolve();
    h.advance(1_000);
    h.beat(&mut a);
    assert_eq!(a.owned.len(), 3);
    h.check_replay();
    h.request_beat(&ConsumerGroupHeartbeatRequest { member_epoch: -1, ..a.request() });
    assert!(matches!(h.records().last(), Some(CoordinatorRecord::Consumer(_))));
    h.check_replay();
}

/// The tests of migration also need this metadata of a classic consumer.
#[test]
fn metadata_of_classic_consumers_names_their_topics() {
    let metadata = bytes::Bytes::from(subscription(&["t"]));
    let read = crate::subscription::consumer_subscription(&metadata).expect("a consumer's");
    assert_eq!(read.topics, ["t"]);
}
