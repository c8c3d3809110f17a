//! Black-box tests of share groups: members join, share initialized partitions, leave and are fenced; offsets
//! are set and deleted.

use super::harness::{Harness, client};
use crate::answer::GroupAnswer;
use crate::config::GroupConfig;
use crate::record::{CoordinatorRecord, ShareGroupRecord};
use crate::share::{AlteredOffsets, DeletedOffsets, Initialization, ShareAnswer, SharePartitions};
use std::collections::BTreeMap;
use thalweg_shard::{Ticket, WriteError};
use thalweg_wire::request::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use thalweg_wire::request::share_group_describe_response::DescribedGroup;
use thalweg_wire::request::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};
use thalweg_wire::{ErrorCode, Uuid};

const GROUP: &str = "g";
/// The default of `group.share.session.timeout.ms`.
const SESSION_MS: i64 = 45_000;

/// A client's view of a member.
#[derive(Clone, Debug, Default)]
struct Member {
    id: String,
    topics: Vec<String>,
    epoch: i32,
    assigned: Vec<(u128, i32)>,
}

impl Member {
    fn new(id: &str, topics: &[&str]) -> Member {
        let topics = topics.iter().map(|&topic| topic.to_owned()).collect();
        Member { id: id.to_owned(), topics, ..Member::default() }
    }

    fn request(&self) -> ShareGroupHeartbeatRequest {
        ShareGroupHeartbeatRequest {
            group_id: GROUP.to_owned(),
            member_id: self.id.clone(),
            member_epoch: self.epoch,
            subscribed_topic_names: (self.epoch == 0).then(|| self.topics.clone()),
            ..ShareGroupHeartbeatRequest::default()
        }
    }

    fn take(&mut self, response: &ShareGroupHeartbeatResponse) {
        assert_eq!(response.error_code, 0, "{:?}", response.error_message);
        self.epoch = response.member_epoch;
        if let Some(assignment) = &response.assignment {
            let topics = assignment.topic_partitions.iter();
            self.assigned = topics.flat_map(|t| t.partitions.iter().map(|p| (t.topic_id.0, *p))).collect();
        }
    }
}

/// A group, its members, and the topics `t` (7, two partitions) and `u` (8, one).
struct Scene {
    harness: Harness,
}

impl Scene {
    fn new() -> Scene {
        Scene::with(GroupConfig::default())
    }

    fn with(config: GroupConfig) -> Scene {
        let harness = Harness::with(config);
        harness.topics.set("t", 7, 2);
        harness.topics.set("u", 8, 1);
        Scene { harness }
    }

    fn share(&mut self, ticket: Ticket) -> ShareAnswer {
        let answer = self.harness.answer(ticket).cloned().expect("an answer at once");
        assert_eq!(self.harness.reloaded().share_picture(GROUP), self.harness.shard.share_picture(GROUP));
        match answer {
            GroupAnswer::Share(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn send(
        &mut self,
        request: &ShareGroupHeartbeatRequest,
    ) -> (ShareGroupHeartbeatResponse, Option<Initialization>) {
        let ticket =
            self.harness.turn(|shard, ticket, now| shard.share_heartbeat(&client("c"), request, ticket, now));
        match self.share(ticket) {
            ShareAnswer::Heartbeat(response, initialization) => (response, initialization),
            other => panic!("{other:?}"),
        }
    }

    fn refusal(&mut self, request: &ShareGroupHeartbeatRequest) -> ErrorCode {
        ErrorCode::from_i16(self.send(request).0.error_code).expect("a code")
    }

    fn beat(&mut self, member: &mut Member) -> Option<Initialization> {
        let (response, initialization) = self.send(&member.request());
        member.take(&response);
        initialization
    }

    /// Reports the outcome of the share coordinator's work.
    fn answer(&mut self, initialization: &Initialization, succeeded: bool) {
        let topics = initialization.offsets.iter();
        let partitions: SharePartitions = topics.map(|(t, o)| (*t, o.keys().copied().collect())).collect();
        let ticket = self.harness.turn(|shard, ticket, now| {
            shard.share_states_answered(GROUP, &partitions, succeeded, ticket, now);
        });
        assert_eq!(self.share(ticket), ShareAnswer::Noted(Ok(())));
    }

    /// A member that has its target partitions.
    fn joined(&mut self, id: &str, topics: &[&str]) -> Member {
        let mut member = Member::new(id, topics);
        if let Some(initialization) = self.beat(&mut member) {
            self.answer(&initialization, true);
        }
        self.harness.advance(1_000);
        assert_eq!(self.beat(&mut member), None);
        member
    }

    fn described(&mut self) -> DescribedGroup {
        let ids = [GROUP.to_owned()];
        let ticket = self.harness.turn(|shard, ticket, _| shard.describe_share_groups(&ids, ticket));
        match self.share(ticket) {
            ShareAnswer::Described(mut groups) => groups.pop().expect("one"),
            other => panic!("{other:?}"),
        }
    }

    fn alter(&mut self, topic: &str, offsets: &[(i32, i64)]) -> Result<AlteredOffsets, ErrorCode> {
        let partition =
            |(partition_index, start_offset): &(i32, i64)| AlterShareGroupOffsetsRequestPartition {
                partition_index: *partition_index,
                start_offset: *start_offset,
            };
        let topics = [AlterShareGroupOffsetsRequestTopic {
            topic_name: topic.to_owned(),
            partitions: offsets.iter().map(partition).collect(),
        }];
        let ticket = self.harness.turn(|shard, ticket, now| {
            shard.alter_share_offsets(GROUP, &topics, ticket, now);
        });
        match self.share(ticket) {
            ShareAnswer::Altered(altered) => altered.map_err(|error| error.code()),
            other => panic!("{other:?}"),
        }
    }

    fn delete_offsets(&mut self, topics: &[&str]) -> Result<DeletedOffsets, ErrorCode> {
        let names: Vec<String> = topics.iter().map(|&name| name.to_owned()).collect();
        let ticket = self.harness.turn(|shard, ticket, now| {
            shard.delete_share_offsets(GROUP, &names, ticket, now);
        });
        match self.share(ticket) {
            ShareAnswer::DeletedOffsets(deleted) => deleted.map_err(|error| error.code()),
            other => panic!("{other:?}"),
        }
    }

    fn initialized(&self) -> SharePartitions {
        self.harness.shard.initialized_share_partitions(GROUP)
    }
}

fn partitions(all: &[(u128, &[i32])]) -> SharePartitions {
    all.iter().map(|(topic, some)| (Uuid(*topic), some.iter().copied().collect())).collect()
}

#[test]
fn partitions_are_assigned_once_their_state_is_initialized() {
    let mut scene = Scene::new();
    let mut one = Member::new("one", &["t"]);
    let initialization = scene.beat(&mut one).expect("two partitions without a state");
    let offsets: BTreeMap<i32, i64> = [(0, -1), (1, -1)].into();
    assert_eq!(initialization.offsets, [(Uuid(7), offsets)].into());
    assert_eq!((initialization.state_epoch, one.epoch), (2, 2));
    assert_eq!(one.assigned, []);
    assert_eq!(scene.beat(&mut one), None, "it was asked for just now");
    scene.answer(&initialization, true);
    assert_eq!(scene.initialized(), partitions(&[(7, &[0, 1])]));
    scene.harness.advance(1_000);
    assert_eq!(scene.beat(&mut one), None);
    assert_eq!((one.epoch, one.assigned.as_slice()), (3, [(7, 0), (7, 1)].as_slice()));

    let mut two = scene.joined("two", &["t"]);
    let mut three = scene.joined("three", &["t"]);
    for member in [&mut one, &mut two, &mut three] {
        scene.beat(member);
        assert!(!member.assigned.is_empty(), "with fewer partitions than members, some share: {member:?}");
    }
    let described = scene.described();
    assert_eq!((described.group_state.as_str(), described.assignor_name.as_str()), ("Stable", "simple"));
    assert_eq!(described.members.len(), 3);
    assert_eq!(described.group_epoch, described.assignment_epoch);
}

#[test]
fn a_failed_initialization_is_requested_again() {
    let mut scene = Scene::new();
    let mut one = Member::new("one", &["t"]);
    let initialization = scene.beat(&mut one).expect("a topic without states");
    scene.answer(&initialization, false);
    let again = scene.beat(&mut one).expect("the share coordinator could not");
    assert_eq!(again.offsets, initialization.offsets);
    // The broker fails before the answer.
    scene.harness.restart();
    assert_eq!(scene.beat(&mut one), None, "it may be on its way");
    scene.harness.advance(-3_600_000);
    assert!(scene.beat(&mut one).is_some(), "the clock was set back, and it is not lately any more");
    assert_eq!(scene.beat(&mut one), None);
    scene.harness.advance(30_000);
    assert!(scene.beat(&mut one).is_some());
}

#[test]
fn a_topic_that_grows_is_initialized_where_it_is_new() {
    let mut scene = Scene::new();
    let mut one = scene.joined("one", &["t"]);
    scene.harness.topics.set("t", 7, 3);
    scene.harness.turn(|shard, _, _| shard.topics_changed(&["t".to_owned()], false));
    let initialization = scene.beat(&mut one).expect("a new partition");
    assert_eq!(initialization.offsets, [(Uuid(7), [(2, -1)].into())].into());
    scene.answer(&initialization, true);
    scene.harness.advance(1_000);
    scene.beat(&mut one);
    assert_eq!(one.assigned, [(7, 0), (7, 1), (7, 2)]);
}

#[test]
fn members_change_their_topics_leave_and_time_out() {
    let mut scene = Scene::new();
    let mut one = scene.joined("one", &["t"]);
    let mut two = scene.joined("two", &["t", "u"]);
    let request =
        ShareGroupHeartbeatRequest { subscribed_topic_names: Some(vec!["u".to_owned()]), ..one.request() };
    let (response, _) = scene.send(&request);
    one.take(&response);
    assert!(
        one.assigned.iter().all(|(topic, _)| *topic == 8),
        "what it does not subscribe to is taken: {one:?}"
    );
    let (response, _) = scene.send(&ShareGroupHeartbeatRequest { member_epoch: -1, ..one.request() });
    assert_eq!((response.error_code, response.member_epoch), (0, -1));
    scene.harness.advance(1_000);
    scene.beat(&mut two);
    assert_eq!(two.assigned, [(7, 0), (7, 1), (8, 0)]);
    scene.harness.advance(SESSION_MS - 1);
    scene.beat(&mut two);
    scene.harness.advance(SESSION_MS);
    assert_eq!(scene.refusal(&two.request()), ErrorCode::UnknownMemberId);
    assert_eq!(scene.described().group_state, "Empty");
    assert_eq!(scene.harness.shard.deadline_count(), 0);
    two.epoch = 0;
    scene.beat(&mut two);
}

#[test]
fn the_epoch_of_a_member_is_checked() {
    let mut scene = Scene::new();
    let mut one = scene.joined("one", &["t"]);
    let epoch = one.epoch;
    assert_eq!(
        scene.refusal(&ShareGroupHeartbeatRequest { member_epoch: epoch + 1, ..one.request() }),
        ErrorCode::FencedMemberEpoch
    );
    assert_eq!(
        scene.refusal(&ShareGroupHeartbeatRequest { member_epoch: epoch - 2, ..one.request() }),
        ErrorCode::FencedMemberEpoch
    );
    one.epoch = epoch - 1;
    scene.beat(&mut one);
    assert_eq!(one.epoch, epoch, "the answer with the new epoch may be lost");
    let mut other = Member::new("other", &["t"]);
    other.epoch = 3;
    assert_eq!(scene.refusal(&other.request()), ErrorCode::UnknownMemberId);
    let elsewhere = ShareGroupHeartbeatRequest { group_id: "h".to_owned(), ..other.request() };
    assert_eq!(scene.refusal(&elsewhere), ErrorCode::GroupIdNotFound);
}

#[test]
fn a_group_has_a_largest_size_and_one_kind() {
    let mut config = GroupConfig::default();
    config.share.group_size_max = 2;
    let mut scene = Scene::with(config);
    let mut one = scene.joined("one", &["t"]);
    scene.joined("two", &["t"]);
    assert_eq!(scene.refusal(&Member::new("three", &["t"]).request()), ErrorCode::GroupMaxSizeReached);
    scene.beat(&mut one);
    let list = scene.harness.shard.list_groups(&["stable".to_owned()], &["SHARE".to_owned()]);
    assert_eq!((list[0].group_type.as_str(), list[0].protocol_type.as_str()), ("share", "share"));
    assert_eq!(scene.harness.shard.list_groups(&[], &["consumer".to_owned()]), []);
    let classic = scene.harness.shard.describe_group(GROUP, 6);
    assert_eq!(classic.error_code, ErrorCode::GroupIdNotFound.code());
}

#[test]
fn offsets_are_set_and_deleted_while_there_are_no_members() {
    let mut scene = Scene::new();
    let altered = scene.alter("t", &[(0, 5), (1, 6), (2, 7)]).expect("it makes the group");
    let codes: Vec<i16> = altered.topics[0].partitions.iter().map(|partition| partition.error_code).collect();
    assert_eq!(codes, [0, 0, ErrorCode::UnknownTopicOrPartition.code()]);
    assert_eq!(altered.initialization.offsets, [(Uuid(7), [(0, 5), (1, 6)].into())].into());
    scene.answer(&altered.initialization, true);
    assert_eq!(scene.initialized(), partitions(&[(7, &[0, 1])]));

    let deleted = scene.delete_offsets(&["t", "u", "v"]).expect("it has no members");
    assert_eq!(deleted.states, partitions(&[(7, &[0, 1])]));
    let refused: Vec<&str> = deleted.refused.iter().map(|topic| topic.topic_name.as_str()).collect();
    assert_eq!(refused, ["u", "v"]);
    let again = scene.delete_offsets(&["t"]).expect("as before");
    assert_eq!(again.states, deleted.states, "a deletion without an outcome is repeated");
    let ticket = scene.harness.turn(|shard, ticket, now| {
        shard.share_offsets_deleted(GROUP, &[Uuid(7)].into(), ticket, now);
    });
    assert_eq!(scene.share(ticket), ShareAnswer::Noted(Ok(())));
    assert_eq!(scene.delete_offsets(&["t"]).expect("as before").states, SharePartitions::new());

    scene.joined("one", &["t"]);
    assert_eq!(scene.alter("t", &[(0, 0)]), Err(ErrorCode::NonEmptyGroup));
    assert_eq!(scene.delete_offsets(&["t"]), Err(ErrorCode::NonEmptyGroup));
}

#[test]
fn a_group_loses_its_states_and_then_itself() {
    let mut scene = Scene::new();
    let one = scene.joined("one", &["t"]);
    let delete_states = |scene: &mut Scene| {
        let ticket = scene.harness.turn(|shard, ticket, now| shard.delete_share_states(GROUP, ticket, now));
        match scene.share(ticket) {
            ShareAnswer::DeletedStates(states) => states.map_err(|error| error.code()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(delete_states(&mut scene), Err(ErrorCode::NonEmptyGroup));
    scene.send(&ShareGroupHeartbeatRequest { member_epoch: -1, ..one.request() });
    assert_eq!(delete_states(&mut scene), Ok(partitions(&[(7, &[0, 1])])));
    assert_eq!(delete_states(&mut scene), Ok(partitions(&[(7, &[0, 1])])), "until it is done");
    let ids = [GROUP.to_owned()];
    scene.harness.turn(|shard, ticket, _| shard.delete_groups(&ids, ticket));
    assert_eq!(scene.described().error_code, ErrorCode::GroupIdNotFound.code());
    assert!(!scene.harness.reloaded().is_share_group(GROUP));
    let last = scene.harness.records().pop().expect("tombstones");
    assert!(
        matches!(&last, CoordinatorRecord::Share(record) if matches!(**record, ShareGroupRecord::Group(_, None))),
        "{last:?}"
    );
}

#[test]
fn a_topic_deleted_during_its_initialization_is_not_initialized() {
    let mut scene = Scene::new();
    let mut one = Member::new("one", &["t", "u"]);
    let initialization = scene.beat(&mut one).expect("two topics without a state");
    scene.harness.topics.delete("t");
    let deleted = [crate::topics::DeletedTopic { name: "t".to_owned(), id: Uuid(7) }];
    scene.harness.turn(|shard, _, _| shard.topics_deleted(&deleted));
    scene.answer(&initialization, true);
    assert_eq!(scene.initialized(), partitions(&[(8, &[0])]));
}

#[test]
fn the_states_of_a_deleted_topic_are_forgotten() {
    let mut scene = Scene::new();
    let mut one = scene.joined("one", &["t", "u"]);
    scene.harness.topics.delete("t");
    let deleted = [crate::topics::DeletedTopic { name: "t".to_owned(), id: Uuid(7) }];
    scene.harness.turn(|shard, _, _| shard.topics_deleted(&deleted));
    scene.harness.turn(|shard, _, _| shard.topics_changed(&["t".to_owned()], false));
    assert_eq!(scene.initialized(), partitions(&[(8, &[0])]));
    scene.harness.advance(1_000);
    scene.beat(&mut one);
    assert_eq!(one.assigned, [(8, 0)]);
}

#[test]
fn a_heartbeat_that_cannot_be_written_changes_nothing() {
    let mut scene = Scene::new();
    let mut one = scene.joined("one", &["t"]);
    scene.harness.refuses = Some(WriteError::NotLeader);
    let code = scene.refusal(&Member::new("two", &["t"]).request());
    assert_eq!(code, ErrorCode::NotCoordinator);
    scene.harness.refuses = None;
    assert_eq!(scene.described().members.len(), 1);
    let records = scene.harness.log.len();
    scene.beat(&mut one);
    assert_eq!(scene.harness.log.len(), records, "a heartbeat without news leaves no record");
}

#[test]
fn a_heartbeat_that_cannot_be_written_extends_the_session() {
    let mut scene = Scene::new();
    let mut one = scene.joined("one", &["t"]);
    scene.harness.refuses = Some(WriteError::TooFewReplicas);
    let request = ShareGroupHeartbeatRequest {
        subscribed_topic_names: Some(vec!["t".to_owned(), "u".to_owned()]),
        ..one.request()
    };
    for _ in 0..4 {
        scene.harness.advance(SESSION_MS / 2);
        assert_eq!(scene.refusal(&request), ErrorCode::CoordinatorNotAvailable);
    }
    scene.harness.refuses = None;
    scene.harness.advance(1_000);
    scene.beat(&mut one);
    scene.harness.advance(SESSION_MS + 1);
    assert_eq!(scene.refusal(&one.request()), ErrorCode::UnknownMemberId);
}

#[test]
fn topics_that_a_refused_heartbeat_drops_are_still_initialized() {
    let mut scene = Scene::new();
    let mut one = scene.joined("one", &["t", "later"]);
    scene.harness.topics.set("later", 9, 1);
    scene.harness.turn(|shard, _, _| shard.topics_changed(&["later".to_owned()], true));
    let initialization = scene.beat(&mut one).expect("a new topic");
    scene.answer(&initialization, false);
    scene.harness.refuses = Some(WriteError::TooFewReplicas);
    let request =
        ShareGroupHeartbeatRequest { subscribed_topic_names: Some(vec!["t".to_owned()]), ..one.request() };
    assert_eq!(scene.refusal(&request), ErrorCode::CoordinatorNotAvailable);
    scene.harness.refuses = None;
    let again = scene.beat(&mut one).expect("the member still subscribes to the topic");
    assert_eq!(again.offsets, [(Uuid(9), [(0, -1)].into())].into());
    scene.answer(&again, true);
    scene.harness.advance(1_000);
    scene.beat(&mut one);
    assert_eq!(one.assigned, [(7, 0), (7, 1), (9, 0)]);
}

#[test]
fn a_refused_clean_up_of_a_deleted_topic_is_tried_again_and_raises_no_epoch() {
    let mut scene = Scene::new();
    let mut one = scene.joined("one", &["t", "u"]);
    scene.harness.topics.delete("t");
    scene.harness.topics.set("t", 9, 1);
    let deleted = [crate::topics::DeletedTopic { name: "t".to_owned(), id: Uuid(7) }];
    scene.harness.refuses = Some(WriteError::TooLarge);
    scene.harness.turn(|shard, _, _| shard.topics_deleted(&deleted));
    scene.harness.turn(|shard, _, _| shard.topics_changed(&["t".to_owned()], true));
    scene.harness.refuses = None;
    scene.harness.advance(1_000);
    for _ in 0..3 {
        if let Some(initialization) = scene.beat(&mut one) {
            scene.answer(&initialization, true);
        }
        scene.harness.advance(2_000);
    }
    let epoch = one.epoch;
    for _ in 0..10 {
        scene.beat(&mut one);
        scene.harness.advance(2_000);
    }
    assert_eq!(one.epoch, epoch);
    assert_eq!(one.assigned, [(8, 0), (9, 0)]);
    assert!(scene.initialized().contains_key(&Uuid(7)));
    for _ in 0..60 {
        scene.harness.advance(10_000);
        scene.beat(&mut one);
    }
    assert_eq!(scene.initialized(), partitions(&[(8, &[0]), (9, &[0])]));
}

#[test]
fn members_join_again_where_any_batch_is_lost() {
    let lived = || {
        let mut scene = Scene::new();
        let mut one = scene.joined("one", &["t"]);
        let two = scene.joined("two", &["t", "u"]);
        scene.harness.advance(1_000);
        scene.beat(&mut one);
        (scene, [one, two])
    };
    let batches = lived().0.harness.log.len();
    assert!(batches > 4, "{batches}");
    for lost in 0..batches {
        let (mut scene, members) = lived();
        for restart in 0..2 {
            scene.harness.restart_without(lost);
            for member in &members {
                let refusal = scene.refusal(&member.request());
                let expected = [ErrorCode::UnknownMemberId, ErrorCode::GroupIdNotFound];
                assert!(expected.contains(&refusal), "{lost} {restart}: {refusal}");
            }
            let mut member = scene.joined("one", &["t", "u"]);
            // An initialization without a known outcome is requested again after a while.
            for _ in 0..60 {
                scene.harness.advance(1_000);
                if let Some(initialization) = scene.beat(&mut member) {
                    scene.answer(&initialization, true);
                }
            }
            assert_eq!(member.assigned, [(7, 0), (7, 1), (8, 0)], "{lost} {restart}");
        }
    }
}
