//! Black-box tests of streams groups: members join, get tasks once the topics exist, give tasks up, leave and
//! are fenced.

use super::harness::{Harness, client};
use crate::answer::GroupAnswer;
use crate::config::GroupConfig;
use crate::record::CoordinatorRecord;
use crate::record::StreamsGroupRecord;
use crate::streams::StreamsAnswer;
use std::collections::{BTreeMap, BTreeSet};
use thalweg_shard::{Ticket, WriteError};
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use thalweg_wire::request::offset_fetch_request::OffsetFetchRequestGroup;
use thalweg_wire::request::streams_group_describe_response::DescribedGroup;
use thalweg_wire::request::streams_group_heartbeat_request::{
    CopartitionGroup, Endpoint, Subtopology, TaskIds, TopicInfo, Topology,
};
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Uuid};

pub(super) const GROUP: &str = "g";
/// The default of `group.streams.session.timeout.ms`.
pub(super) const SESSION_MS: i64 = 45_000;
const REBALANCE_MS: i32 = 60_000;
/// The default of `group.streams.initial.rebalance.delay.ms`.
const DELAY_MS: i64 = 3_000;

pub(super) type Tasks = BTreeSet<(String, i32)>;
/// Topics with partitions, by port.
type Endpoints = BTreeMap<u16, Vec<(String, Vec<i32>)>>;

/// A client's view of a member of Kafka Streams.
#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    pub(super) id: String,
    pub(super) process: String,
    pub(super) endpoint: Option<u16>,
    topology: Topology,
    pub(super) epoch: i32,
    pub(super) active: Tasks,
    pub(super) standby: Tasks,
    /// The codes of the last answer's statuses.
    statuses: Vec<i8>,
    /// Queryable partitions by port.
    endpoints: Option<Endpoints>,
    endpoint_epoch: i32,
}

impl Member {
    pub(super) fn new(id: &str, topology: Topology) -> Member {
        let process = format!("process of {id}");
        Member { id: id.to_owned(), process, topology, ..Member::default() }
    }

    /// A request: all fields when the member joins, its tasks otherwise.
    pub(super) fn request(&self) -> StreamsGroupHeartbeatRequest {
        let joins = self.epoch == 0;
        StreamsGroupHeartbeatRequest {
            group_id: GROUP.to_owned(),
            member_id: self.id.clone(),
            member_epoch: self.epoch,
            endpoint_information_epoch: self.endpoint_epoch,
            rebalance_timeout_ms: if joins { REBALANCE_MS } else { -1 },
            topology: joins.then(|| self.topology.clone()),
            active_tasks: Some(ids(&self.active)),
            standby_tasks: Some(ids(&self.standby)),
            warmup_tasks: Some(Vec::new()),
            process_id: joins.then(|| self.process.clone()),
            user_endpoint: self
                .endpoint
                .filter(|_| joins)
                .map(|port| Endpoint { host: "localhost".to_owned(), port }),
            client_tags: joins.then(Vec::new),
            ..StreamsGroupHeartbeatRequest::default()
        }
    }

    pub(super) fn take(&mut self, response: &StreamsGroupHeartbeatResponse) {
        assert_eq!(response.error_code, 0, "{self:?} {response:?}");
        self.epoch = response.member_epoch;
        let tasks = |ids: &Option<Vec<streams_group_heartbeat_response::TaskIds>>| -> Option<Tasks> {
            let one = |ids: &streams_group_heartbeat_response::TaskIds| {
                let id = ids.subtopology_id.clone();
                ids.partitions.iter().map(|index| (id.clone(), *index)).collect::<Vec<_>>()
            };
            ids.as_ref().map(|ids| ids.iter().flat_map(one).collect())
        };
        self.active = tasks(&response.active_tasks).unwrap_or_else(|| self.active.clone());
        self.standby = tasks(&response.standby_tasks).unwrap_or_else(|| self.standby.clone());
        self.statuses = response.status.iter().flatten().map(|status| status.status_code).collect();
        self.endpoint_epoch = response.endpoint_information_epoch;
        if let Some(endpoints) = &response.partitions_by_user_endpoint {
            let one = |endpoint: &streams_group_heartbeat_response::EndpointToPartitions| {
                let active = endpoint.active_partitions.iter();
                let active = active.map(|topic| (topic.topic.clone(), topic.partitions.clone())).collect();
                (endpoint.user_endpoint.port, active)
            };
            self.endpoints = Some(endpoints.iter().map(one).collect());
        }
    }
}

fn ids(tasks: &Tasks) -> Vec<TaskIds> {
    let mut by_id: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (id, partition) in tasks {
        by_id.entry(id).or_default().push(*partition);
    }
    let ids = |(id, partitions): (&str, Vec<i32>)| TaskIds { subtopology_id: id.to_owned(), partitions };
    by_id.into_iter().map(ids).collect()
}

fn tasks(all: &[(&str, i32)]) -> Tasks {
    all.iter().map(|(id, partition)| ((*id).to_owned(), *partition)).collect()
}

pub(super) fn topic(name: &str, partitions: i32) -> TopicInfo {
    TopicInfo { name: name.to_owned(), partitions, ..TopicInfo::default() }
}

pub(super) fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|&name| name.to_owned()).collect()
}

/// A topology that reads words from `t`, repartitions and counts them.
pub(super) fn word_count() -> Topology {
    let split = Subtopology {
        subtopology_id: "0".to_owned(),
        source_topics: names(&["t"]),
        repartition_sink_topics: names(&["r"]),
        ..Subtopology::default()
    };
    let count = Subtopology {
        subtopology_id: "1".to_owned(),
        repartition_source_topics: vec![topic("r", 0)],
        state_changelog_topics: vec![topic("c", 0)],
        ..Subtopology::default()
    };
    Topology { epoch: 0, subtopologies: vec![split, count] }
}

/// One subtopology that reads `t`.
fn plain() -> Topology {
    let subtopology = Subtopology {
        subtopology_id: "0".to_owned(),
        source_topics: names(&["t"]),
        ..Subtopology::default()
    };
    Topology { epoch: 0, subtopologies: vec![subtopology] }
}

/// A group, its members, and the topic `t` with two partitions.
pub(super) struct Scene {
    pub(super) harness: Harness,
}

impl Scene {
    pub(super) fn new() -> Scene {
        Scene::with(|_| {})
    }

    /// A scene with changed settings, and without the initial delay.
    fn with(change: impl FnOnce(&mut GroupConfig)) -> Scene {
        let mut config = GroupConfig::default();
        config.streams.times.initial_rebalance_delay_ms = 0;
        change(&mut config);
        let harness = Harness::with(config);
        harness.topics.set("t", 7, 2);
        Scene { harness }
    }

    fn streams(&mut self, ticket: Ticket) -> StreamsAnswer {
        let answer = self.harness.answer(ticket).cloned().expect("an answer at once");
        let reloaded = self.harness.reloaded();
        assert_eq!(reloaded.streams_picture(GROUP), self.harness.shard.streams_picture(GROUP));
        match answer {
            GroupAnswer::Streams(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn send(
        &mut self,
        request: &StreamsGroupHeartbeatRequest,
    ) -> (StreamsGroupHeartbeatResponse, Vec<CreatableTopic>) {
        let ticket = self
            .harness
            .turn(|shard, ticket, now| shard.streams_heartbeat(&client("c"), request, ticket, now));
        match self.streams(ticket) {
            StreamsAnswer::Heartbeat(response, topics) => (*response, topics),
            other => panic!("{other:?}"),
        }
    }

    fn refusal(&mut self, request: &StreamsGroupHeartbeatRequest) -> ErrorCode {
        ErrorCode::from_i16(self.send(request).0.error_code).expect("a code")
    }

    fn beat(&mut self, member: &mut Member) -> Vec<CreatableTopic> {
        let (response, topics) = self.send(&member.request());
        member.take(&response);
        topics
    }

    /// Sends heartbeats of all members until nothing changes any more.
    fn settle(&mut self, members: &mut [&mut Member]) {
        for _ in 0..5 {
            for member in members.iter_mut() {
                self.beat(member);
            }
            self.harness.advance(1_000);
        }
    }

    fn set_topic(&mut self, name: &str, id: u128, partitions: i32) {
        self.harness.topics.set(name, id, partitions);
        self.harness.turn(|shard, _, _| shard.topics_changed(&[name.to_owned()], true));
    }

    fn described(&mut self) -> DescribedGroup {
        let ids = [GROUP.to_owned()];
        let ticket = self.harness.turn(|shard, ticket, _| shard.describe_streams_groups(&ids, ticket));
        match self.streams(ticket) {
            StreamsAnswer::Described(mut groups) => groups.pop().expect("one"),
            other => panic!("{other:?}"),
        }
    }

    fn commit(&mut self, member: &str, epoch: i32, topic: &str, partition: i32) -> ErrorCode {
        let one = OffsetCommitRequestPartition {
            partition_index: partition,
            committed_offset: 5,
            ..OffsetCommitRequestPartition::default()
        };
        let topic =
            OffsetCommitRequestTopic { name: topic.to_owned(), topic_id: Uuid(7), partitions: vec![one] };
        let request = OffsetCommitRequest {
            group_id: GROUP.to_owned(),
            generation_id_or_member_epoch: epoch,
            member_id: member.to_owned(),
            topics: vec![topic],
            ..OffsetCommitRequest::default()
        };
        let ticket = self.harness.turn(|shard, ticket, now| shard.commit_offsets(&request, 9, ticket, now));
        self.harness.commit_answer(ticket).expect("an answer at once")
    }
}

#[test]
fn tasks_are_assigned_once_internal_topics_are_there() {
    let mut scene = Scene::new();
    let mut one = Member::new("one", word_count());
    let missing = scene.beat(&mut one);
    let wanted: Vec<(&str, i32, i16)> = missing
        .iter()
        .map(|topic| (topic.name.as_str(), topic.num_partitions, topic.replication_factor))
        .collect();
    assert_eq!(wanted, [("r", 2, -1), ("c", 2, -1)]);
    assert_eq!((one.statuses.as_slice(), one.epoch), ([3].as_slice(), 2));
    assert_eq!(one.active, Tasks::new());
    assert_eq!(scene.described().group_state, "NotReady");

    scene.set_topic("r", 8, 2);
    assert_eq!(scene.beat(&mut one).len(), 1, "the other is missing still");
    scene.set_topic("c", 9, 2);
    scene.settle(&mut [&mut one]);
    assert_eq!(one.active, tasks(&[("0", 0), ("0", 1), ("1", 0), ("1", 1)]));
    assert!(one.statuses.is_empty(), "{one:?}");
    let described = scene.described();
    assert_eq!(described.group_state, "Stable");
    assert_eq!(described.group_epoch, described.assignment_epoch);
    let topology = described.topology.expect("one").subtopologies.expect("two");
    assert_eq!(topology[1].state_changelog_topics[0].partitions, 2, "as was decided");
}

#[test]
fn source_topics_that_are_missing_are_named() {
    let mut scene = Scene::new();
    scene.harness.topics.delete("t");
    let mut one = Member::new("one", plain());
    let (response, topics) = scene.send(&one.request());
    one.take(&response);
    let status = &response.status.expect("one")[0];
    assert_eq!((status.status_code, status.status_detail.as_str()), (1, "Source topics t are missing."));
    assert_eq!(topics, []);
    scene.set_topic("t", 7, 1);
    scene.settle(&mut [&mut one]);
    assert_eq!(one.active, tasks(&[("0", 0)]));
}

#[test]
fn topics_with_the_wrong_number_of_partitions_are_named() {
    let mut scene = Scene::new();
    scene.harness.topics.set("r", 8, 3);
    let mut one = Member::new("one", word_count());
    scene.beat(&mut one);
    assert_eq!(one.statuses, [2], "the repartition topic has another number than its source");
    let mut scene = Scene::new();
    scene.harness.topics.set("u", 8, 3);
    let mut topology = plain();
    topology.subtopologies[0].source_topics = names(&["t", "u"]);
    topology.subtopologies[0].copartition_groups =
        vec![CopartitionGroup { source_topics: vec![0, 1], ..CopartitionGroup::default() }];
    let (response, _) = scene.send(&Member::new("one", topology).request());
    let status = &response.status.expect("one")[0];
    assert_eq!(status.status_code, 2);
    assert!(status.status_detail.contains("[{t=2, u=3}]"), "{}", status.status_detail);
}

#[test]
fn topologies_that_no_topics_fit_are_refused() {
    let mut scene = Scene::new();
    let code = |scene: &mut Scene, topology: Topology| {
        let code = scene.refusal(&Member::new("one", topology).request());
        assert_eq!(scene.harness.log.len(), 0, "nothing is written");
        code
    };
    let mut topology = plain();
    topology.subtopologies[0].source_topics.clear();
    assert_eq!(code(&mut scene, topology), ErrorCode::StreamsInvalidTopology, "nothing to read");
    let mut topology = word_count();
    topology.subtopologies[0].source_topics.clear();
    topology.subtopologies[0].repartition_source_topics = vec![topic("r", 0)];
    assert_eq!(code(&mut scene, topology), ErrorCode::StreamsInvalidTopology, "a loop");
    let mut topology = word_count();
    topology.subtopologies[0].repartition_sink_topics.clear();
    assert_eq!(code(&mut scene, topology), ErrorCode::StreamsInvalidTopology, "nothing writes it");
    let mut topology = plain();
    topology.subtopologies[0].copartition_groups =
        vec![CopartitionGroup { source_topics: vec![-1], ..CopartitionGroup::default() }];
    assert_eq!(code(&mut scene, topology), ErrorCode::UnknownServerError, "as Kafka's exception");
    let mut topology = plain();
    topology.subtopologies.push(topology.subtopologies[0].clone());
    assert_eq!(code(&mut scene, topology), ErrorCode::UnknownServerError);
}

#[test]
fn a_topology_stays_what_the_first_member_has() {
    let mut scene = Scene::new();
    let mut one = Member::new("one", Topology { epoch: 1, ..plain() });
    scene.settle(&mut [&mut one]);
    let other = Topology { epoch: 1, ..word_count() };
    assert_eq!(scene.refusal(&Member::new("two", other).request()), ErrorCode::InvalidRequest);
    let newer = Topology { epoch: 2, ..plain() };
    assert_eq!(scene.refusal(&Member::new("two", newer).request()), ErrorCode::InvalidRequest);
    let mut two = Member::new("two", Topology { epoch: 0, ..word_count() });
    scene.beat(&mut two);
    assert!(two.statuses.contains(&0), "it is stale: {two:?}");
}

#[test]
fn tasks_move_when_members_come_and_go() {
    let mut scene = Scene::new();
    let mut one = Member::new("one", plain());
    scene.settle(&mut [&mut one]);
    assert_eq!(one.active, tasks(&[("0", 0), ("0", 1)]));
    let mut two = Member::new("two", plain());
    scene.beat(&mut two);
    assert_eq!(two.active, Tasks::new(), "the other has not given it up");
    let before = one.active.clone();
    scene.beat(&mut one);
    assert_eq!(one.active.len(), 1);
    let request = StreamsGroupHeartbeatRequest { active_tasks: Some(ids(&before)), ..one.request() };
    let (response, _) = scene.send(&request);
    assert_eq!(response.member_epoch, one.epoch, "it still has the task");
    scene.beat(&mut two);
    assert_eq!(two.active, Tasks::new());
    scene.settle(&mut [&mut one, &mut two]);
    assert_eq!(one.active.union(&two.active).count(), 2);
    assert_eq!(two.active.len(), 1);
    assert_eq!(scene.described().group_state, "Stable");

    let (response, _) = scene.send(&StreamsGroupHeartbeatRequest { member_epoch: -1, ..one.request() });
    assert_eq!((response.error_code, response.member_epoch), (0, -1));
    scene.settle(&mut [&mut two]);
    assert_eq!(two.active, tasks(&[("0", 0), ("0", 1)]));
    scene.harness.advance(SESSION_MS);
    assert_eq!(scene.refusal(&two.request()), ErrorCode::UnknownMemberId, "it was silent for too long");
    assert_eq!(scene.described().group_state, "Empty");
    assert_eq!(scene.harness.shard.deadline_count(), 0);
}

#[test]
fn a_member_whose_answer_was_lost_gets_its_tasks_again() {
    let mut scene = Scene::new();
    let mut one = Member::new("one", plain());
    scene.settle(&mut [&mut one]);
    let mut two = Member::new("two", plain());
    scene.beat(&mut two);
    let (lost, _) = scene.send(&one.request());
    assert_eq!(lost.active_tasks.map(|ids| ids[0].partitions.len()), Some(1), "it is to give one up");
    scene.beat(&mut one);
    assert_eq!(one.active.len(), 1, "it learns of that although the first answer is lost");
    scene.beat(&mut one);
    let (lost, _) = scene.send(&two.request());
    assert_eq!(lost.active_tasks.map(|ids| ids.len()), Some(1));
    scene.beat(&mut two);
    assert_eq!(two.active.len(), 1, "the same of a task that it gets");
    for member in [&one, &two] {
        assert_eq!(scene.send(&member.request()).0.active_tasks, None, "nothing is new");
        let silent = StreamsGroupHeartbeatRequest {
            active_tasks: None,
            standby_tasks: None,
            warmup_tasks: None,
            ..member.request()
        };
        assert_eq!(scene.send(&silent).0.active_tasks, None, "nothing is reported");
    }
}

#[test]
fn a_member_that_keeps_its_tasks_is_fenced() {
    let mut scene = Scene::new();
    let mut one = Member::new("one", plain());
    scene.settle(&mut [&mut one]);
    let kept = one.active.clone();
    let mut two = Member::new("two", plain());
    scene.beat(&mut two);
    for _ in 0..REBALANCE_MS / 10_000 + 1 {
        let request = StreamsGroupHeartbeatRequest { active_tasks: Some(ids(&kept)), ..one.request() };
        let (response, _) = scene.send(&request);
        if response.error_code != 0 {
            assert_eq!(response.error_code, ErrorCode::UnknownMemberId.code());
            scene.settle(&mut [&mut two]);
            assert_eq!(two.active.len(), 2);
            return;
        }
        one.epoch = response.member_epoch;
        scene.beat(&mut two);
        scene.harness.advance(10_000);
    }
    panic!("it is a member still");
}

#[test]
fn standbys_are_with_another_process() {
    let mut scene = Scene::with(|config| config.streams.times.standby_replicas = 1);
    scene.harness.topics.set("r", 8, 2);
    scene.harness.topics.set("c", 9, 2);
    let mut one = Member::new("one", word_count());
    let mut two = Member::new("two", word_count());
    scene.settle(&mut [&mut one, &mut two]);
    assert_eq!(one.active.len() + two.active.len(), 4);
    assert_eq!(one.standby.union(&two.standby).count(), 2, "of the subtopology with state");
    assert!(one.active.is_disjoint(&one.standby) && two.active.is_disjoint(&two.standby));
    // A group's override takes effect with the next heartbeat.
    let times = GroupConfig::default().streams.times;
    let without = crate::config::StreamsGroupTimes { initial_rebalance_delay_ms: 0, ..times };
    scene.harness.set_streams_times(without);
    scene.settle(&mut [&mut one, &mut two]);
    assert!(one.standby.is_empty() && two.standby.is_empty());
}

#[test]
fn a_new_group_waits_for_more_members() {
    let mut scene = Scene::with(|config| {
        config.streams.times = GroupConfig::default().streams.times;
    });
    let mut one = Member::new("one", plain());
    scene.beat(&mut one);
    assert_eq!((one.statuses.as_slice(), one.epoch), ([5].as_slice(), 1), "the assignment is delayed");
    scene.harness.advance(1_000);
    let mut two = Member::new("two", plain());
    scene.beat(&mut two);
    assert_eq!(two.statuses, [5]);
    scene.harness.advance(DELAY_MS);
    scene.beat(&mut one);
    scene.beat(&mut two);
    assert_eq!((one.active.len(), two.active.len()), (1, 1));
}

#[test]
fn the_epoch_of_a_member_is_checked() {
    let mut scene = Scene::new();
    let mut one = Member::new("one", plain());
    scene.settle(&mut [&mut one]);
    let mut two = Member::new("two", plain());
    scene.beat(&mut two);
    scene.settle(&mut [&mut one, &mut two]);
    let (epoch, fenced) = (one.epoch, ErrorCode::FencedMemberEpoch);
    let at = |epoch: i32, one: &Member| StreamsGroupHeartbeatRequest { member_epoch: epoch, ..one.request() };
    assert_eq!(scene.refusal(&at(epoch + 1, &one)), fenced);
    let mut unsure = at(epoch - 1, &one);
    assert_eq!(scene.send(&unsure).0.member_epoch, epoch, "the answer with the new epoch may be lost");
    unsure.active_tasks = Some(ids(&tasks(&[("0", 0), ("0", 1)])));
    assert_eq!(scene.refusal(&unsure), fenced);
    let mut wrong = one.request();
    wrong.active_tasks = Some(ids(&tasks(&[("5", 0)])));
    assert_eq!(scene.refusal(&wrong), ErrorCode::InvalidRequest, "no such subtopology");
    wrong.active_tasks = Some(ids(&tasks(&[("0", 2)])));
    assert_eq!(scene.refusal(&wrong), ErrorCode::InvalidRequest, "no such task");
    let unknown = StreamsGroupHeartbeatRequest { member_id: "other".to_owned(), ..at(3, &one) };
    assert_eq!(scene.refusal(&unknown), ErrorCode::UnknownMemberId);
    let elsewhere = StreamsGroupHeartbeatRequest { group_id: "h".to_owned(), ..at(3, &one) };
    assert_eq!(scene.refusal(&elsewhere), ErrorCode::GroupIdNotFound);
}

#[test]
fn endpoints_are_sent_when_they_change() {
    let mut scene = Scene::new();
    let mut one = Member { endpoint: Some(1), ..Member::new("one", plain()) };
    scene.settle(&mut [&mut one]);
    let all: Endpoints = [(1, vec![("t".to_owned(), vec![0, 1])])].into();
    assert_eq!(one.endpoints.take(), Some(all));
    scene.beat(&mut one);
    assert_eq!(one.endpoints, None, "nothing has changed");
    let mut two = Member { endpoint: Some(2), ..Member::new("two", plain()) };
    scene.settle(&mut [&mut one, &mut two]);
    let endpoints = one.endpoints.take().expect("they have changed");
    assert_eq!(Some(&endpoints), two.endpoints.as_ref());
    let partitions: BTreeSet<i32> =
        endpoints.values().flatten().flat_map(|(_, partitions)| partitions.clone()).collect();
    assert_eq!((endpoints.len(), partitions), (2, [0, 1].into()));
}

#[test]
fn all_stop_when_one_member_wants_it() {
    let mut scene = Scene::new();
    let (mut one, mut two) = (Member::new("one", plain()), Member::new("two", plain()));
    scene.settle(&mut [&mut one, &mut two]);
    let farewell =
        StreamsGroupHeartbeatRequest { member_epoch: -1, shutdown_application: true, ..one.request() };
    scene.send(&farewell);
    scene.beat(&mut two);
    assert!(two.statuses.contains(&4), "{two:?}");
    scene.send(&StreamsGroupHeartbeatRequest { member_epoch: -1, ..two.request() });
    (one.epoch, one.active) = (0, Tasks::new());
    scene.beat(&mut one);
    assert!(!one.statuses.contains(&4), "the group was empty meanwhile: {one:?}");
}

#[test]
fn offsets_are_fenced_by_the_epoch_of_the_task() {
    let mut scene = Scene::new();
    let mut one = Member::new("one", plain());
    scene.settle(&mut [&mut one]);
    let mut two = Member::new("two", plain());
    scene.settle(&mut [&mut one, &mut two]);
    let owned = one.active.first().expect("one").1;
    let other = 1 - owned;
    assert_eq!(scene.commit("one", one.epoch, "t", owned), ErrorCode::None);
    assert_eq!(scene.commit("one", one.epoch - 1, "t", owned), ErrorCode::None, "assigned before that");
    assert_eq!(scene.commit("one", one.epoch - 1, "t", other), ErrorCode::StaleMemberEpoch);
    assert_eq!(scene.commit("one", one.epoch - 1, "x", owned), ErrorCode::StaleMemberEpoch);
    assert_eq!(scene.commit("one", one.epoch + 1, "t", owned), ErrorCode::StaleMemberEpoch);
    assert_eq!(scene.commit("other", one.epoch, "t", owned), ErrorCode::UnknownMemberId);
    assert_eq!(scene.commit("", -1, "t", owned), ErrorCode::UnknownMemberId, "the group has members");
    let fetch = |member: Option<&str>, member_epoch| OffsetFetchRequestGroup {
        group_id: GROUP.to_owned(),
        member_id: member.map(str::to_owned),
        member_epoch,
        ..OffsetFetchRequestGroup::default()
    };
    let code = |scene: &Scene, request| scene.harness.shard.fetch_offsets(&request).error_code;
    assert_eq!(code(&scene, fetch(None, -1)), 0);
    assert_eq!(code(&scene, fetch(Some("one"), one.epoch)), 0);
    assert_eq!(code(&scene, fetch(Some("one"), one.epoch - 1)), ErrorCode::StaleMemberEpoch.code());
    assert_eq!(code(&scene, fetch(Some("other"), 3)), ErrorCode::UnknownMemberId.code());
}

#[test]
fn transactional_offsets_are_fenced_as_those_of_generations() {
    use txn_offset_commit_request::{TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic};
    let mut scene = Scene::new();
    let mut one = Member::new("one", plain());
    scene.settle(&mut [&mut one]);
    let mut commit = |member: &str, generation_id: i32| {
        let partition = TxnOffsetCommitRequestPartition { committed_offset: 5, ..Default::default() };
        let topic = TxnOffsetCommitRequestTopic { name: "t".to_owned(), partitions: vec![partition] };
        let request = TxnOffsetCommitRequest {
            group_id: GROUP.to_owned(),
            producer_id: 1,
            member_id: member.to_owned(),
            generation_id,
            topics: vec![topic],
            ..TxnOffsetCommitRequest::default()
        };
        let commit = |shard: &mut crate::shard::GroupShard, ticket, now| {
            shard.commit_transactional_offsets(&request, None, ticket, now);
        };
        let ticket = scene.harness.turn(commit);
        match scene.harness.answer(ticket) {
            Some(GroupAnswer::TxnOffsetCommit(response)) => {
                super::harness::error(response.topics[0].partitions[0].error_code)
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(commit("one", one.epoch), ErrorCode::None);
    assert_eq!(commit("", -1), ErrorCode::None, "the producer names no member");
    assert_eq!(commit("one", one.epoch + 1), ErrorCode::IllegalGeneration);
    assert_eq!(commit("one", 1), ErrorCode::IllegalGeneration, "before it had the task");
    assert_eq!(commit("other", one.epoch), ErrorCode::UnknownMemberId);
}

#[test]
fn a_group_has_a_largest_size_and_one_kind() {
    let mut scene = Scene::with(|config| config.streams.group_size_max = 2);
    let (mut one, mut two) = (Member::new("one", plain()), Member::new("two", plain()));
    scene.settle(&mut [&mut one, &mut two]);
    assert_eq!(scene.refusal(&Member::new("three", plain()).request()), ErrorCode::GroupMaxSizeReached);
    let list = scene.harness.shard.list_groups(&["Stable".to_owned()], &["Streams".to_owned()]);
    assert_eq!((list[0].group_type.as_str(), list[0].protocol_type.as_str()), ("streams", "streams"));
    assert_eq!(scene.harness.shard.list_groups(&["not_ready".to_owned()], &[]), []);
    assert_eq!(
        scene.harness.shard.describe_group(GROUP, 6).error_code,
        ErrorCode::GroupIdNotFound.code(),
        "it is no classic group"
    );
    let ticket = scene.harness.send_join(super::harness::Join::default());
    let joined = scene.harness.join_answer(ticket).expect("an answer at once");
    assert_eq!(joined.error_code, ErrorCode::InconsistentGroupProtocol.code());
}

#[test]
fn a_group_takes_the_place_of_an_empty_one_and_the_reverse() {
    let mut scene = Scene::new();
    assert_eq!(scene.commit("", -1, "t", 0), ErrorCode::None, "it makes a classic group");
    let mut one = Member::new("one", plain());
    scene.settle(&mut [&mut one]);
    assert_eq!(scene.described().group_state, "Stable");
    scene.send(&StreamsGroupHeartbeatRequest { member_epoch: -1, ..one.request() });
    assert_eq!(scene.described().group_state, "Empty");
    let (_, ticket) = scene.harness.send_new("c");
    scene.harness.advance(DELAY_MS);
    assert_eq!(scene.harness.join_answer(ticket).expect("an answer").error_code, 0);
    assert_eq!(scene.described().error_code, ErrorCode::GroupIdNotFound.code());
    assert_eq!(scene.harness.reloaded().streams_picture(GROUP), None);
}

#[test]
fn a_group_without_members_can_be_deleted() {
    let mut scene = Scene::new();
    let mut one = Member::new("one", plain());
    scene.settle(&mut [&mut one]);
    let ids = [GROUP.to_owned()];
    let delete = |scene: &mut Scene| {
        let ticket = scene.harness.turn(|shard, ticket, _| shard.delete_groups(&ids, ticket));
        match scene.harness.answer(ticket) {
            Some(GroupAnswer::DeleteGroups(results)) => results[0].error_code,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(delete(&mut scene), ErrorCode::NonEmptyGroup.code());
    scene.send(&StreamsGroupHeartbeatRequest { member_epoch: -1, ..one.request() });
    assert_eq!(delete(&mut scene), 0);
    assert_eq!(scene.described().error_code, ErrorCode::GroupIdNotFound.code());
    let last = scene.harness.records().pop().expect("tombstones");
    assert!(
        matches!(&last, CoordinatorRecord::Streams(record) if matches!(**record, StreamsGroupRecord::Topology(_, None))),
        "{last:?}"
    );
}

#[test]
fn a_heartbeat_that_cannot_be_written_changes_nothing() {
    let mut scene = Scene::new();
    let mut one = Member::new("one", plain());
    scene.settle(&mut [&mut one]);
    scene.harness.refuses = Some(WriteError::NotLeader);
    assert_eq!(scene.refusal(&Member::new("two", plain()).request()), ErrorCode::NotCoordinator);
    scene.harness.refuses = None;
    assert_eq!(scene.described().members.len(), 1);
    let records = scene.harness.log.len();
    scene.beat(&mut one);
    assert_eq!(scene.harness.log.len(), records, "a heartbeat without news leaves no record");
}

#[test]
fn an_answer_that_writes_nothing_waits_for_what_it_rests_on_even_if_its_writer_gave_up() {
    let mut scene = Scene::new();
    let harness = &mut scene.harness;
    harness.holds = true;
    let member = Member::new("a", plain());
    let beat = |harness: &mut Harness| {
        let request = member.request();
        harness.turn(|shard, ticket, now| shard.streams_heartbeat(&client("c"), &request, ticket, now))
    };
    let code = |harness: &Harness, ticket| match harness.answer(ticket) {
        Some(GroupAnswer::Streams(StreamsAnswer::Heartbeat(response, _))) => Some(response.error_code),
        Some(other) => panic!("{other:?}"),
        None => None,
    };
    let unavailable = Some(ErrorCode::CoordinatorNotAvailable.code());
    let first = beat(harness);
    harness.advance(5_000);
    assert_eq!(code(harness, first), unavailable);
    // The member joins again. The group already has it, but no replica does.
    let second = beat(harness);
    assert_eq!(code(harness, second), None);
    harness.advance(5_000);
    assert_eq!(code(harness, second), unavailable);
    let third = beat(harness);
    assert_eq!(code(harness, third), None);
    while harness.acknowledge() {}
    assert_eq!(code(harness, third), Some(0));
    let fourth = beat(harness);
    while harness.acknowledge() {}
    assert_eq!(code(harness, fourth), Some(0));
}

#[test]
fn a_heartbeat_that_cannot_be_written_extends_the_session() {
    let mut h = Harness::new();
    h.topics.set("t", 7, 2);
    let mut one = Member::new("one", word_count());
    let send = |h: &mut Harness, request: &StreamsGroupHeartbeatRequest| {
        let ticket = h.turn(|shard, ticket, now| shard.streams_heartbeat(&client("c"), request, ticket, now));
        match h.answer(ticket) {
            Some(GroupAnswer::Streams(StreamsAnswer::Heartbeat(response, _))) => (**response).clone(),
            other => panic!("{other:?}"),
        }
    };
    let response = send(&mut h, &one.request());
    one.take(&response);
    h.refuses = Some(WriteError::TooFewReplicas);
    let request = StreamsGroupHeartbeatRequest { process_id: Some("another".to_owned()), ..one.request() };
    for _ in 0..4 {
        h.advance(SESSION_MS / 2);
        assert_eq!(send(&mut h, &request).error_code, ErrorCode::CoordinatorNotAvailable.code());
    }
    h.refuses = None;
    h.advance(1_000);
    assert_eq!(send(&mut h, &request).error_code, 0);
}

#[test]
fn members_join_again_where_any_batch_is_lost() {
    let lived = || {
        let mut scene = Scene::new();
        let (mut one, mut two) = (Member::new("one", plain()), Member::new("two", plain()));
        scene.settle(&mut [&mut one]);
        scene.settle(&mut [&mut one, &mut two]);
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
            let (mut one, mut two) = (Member::new("one", plain()), Member::new("two", plain()));
            scene.settle(&mut [&mut one, &mut two]);
            assert_eq!((one.active.len(), two.active.len()), (1, 1), "{lost} {restart}");
            assert!(one.active.is_disjoint(&two.active), "{lost} {restart}");
        }
    }
}
