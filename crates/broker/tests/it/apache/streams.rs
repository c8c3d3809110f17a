//! Streams groups here and at a broker of Apache Kafka: the same heartbeats, descriptions, commits and
//! fetches, one after the other; the answers are compared field by field. Words of errors are not compared,
//! and lists without an order are sorted.

use super::controllers::{Controllers, Quorum};
use super::mixed::Jvm;
use super::{jars, until};
use crate::running::RunningBroker;
use std::collections::BTreeMap;
use std::fmt::Debug;
use thalweg_dial::{Connection, ConnectionOptions};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use thalweg_wire::request::offset_fetch_request::OffsetFetchRequestGroup;
use thalweg_wire::request::streams_group_heartbeat_request::{
    CopartitionGroup, Endpoint, KeyValue, Subtopology, TaskIds, TaskOffset, TopicInfo, Topology,
};
use thalweg_wire::request::*;

/// Without waits, so that both decide at the same step.
const SETTINGS: [(&str, &str); 4] = [
    ("group.streams.initial.rebalance.delay.ms", "0"),
    ("group.streams.assignment.interval.ms", "0"),
    ("offsets.topic.replication.factor", "1"),
    ("group.initial.rebalance.delay.ms", "0"),
];

/// A broker of each make, each with its cluster.
struct BrokerPair {
    kafka: Connection,
    ours: Connection,
    compared: usize,
    different: Vec<String>,
}

impl BrokerPair {
    /// Asks both, and compares the answers as `normal` makes them. Returns ours.
    async fn ask<R>(&mut self, step: &str, request: &R, normal: impl Fn(&mut R::Response)) -> R::Response
    where
        R: thalweg_wire::Request + Debug,
        R::Response: Debug,
    {
        let mut theirs = self.kafka.send(request).await.expect("an answer");
        let mut own = self.ours.send(request).await.expect("an answer");
        normal(&mut theirs);
        normal(&mut own);
        self.compared += 1;
        let (expected, found) = (format!("{theirs:?}"), format!("{own:?}"));
        if expected != found {
            self.different.push(format!("{step}: {request:?}\n  Kafka: {expected}\n  ours:  {found}"));
        }
        own
    }

    async fn beat(
        &mut self,
        step: &str,
        request: &StreamsGroupHeartbeatRequest,
    ) -> StreamsGroupHeartbeatResponse {
        self.ask(step, request, normal_heartbeat).await
    }

    async fn describe(&mut self, step: &str, group: &str) -> StreamsGroupDescribeResponse {
        let request = StreamsGroupDescribeRequest { group_ids: vec![group.to_owned()], ..Default::default() };
        self.ask(step, &request, normal_description).await
    }

    async fn create(&mut self, name: &str, num_partitions: i32) {
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions,
            replication_factor: 1,
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, validate_only: false };
        for connection in [&self.kafka, &self.ours] {
            let answer = connection.send(&request).await.expect("an answer");
            assert_eq!(answer.topics[0].error_code, 0, "{answer:?}");
        }
        self.wait_for(name).await;
    }

    /// Waits until both brokers have a topic.
    async fn wait_for(&self, name: &str) {
        let topic =
            metadata_request::MetadataRequestTopic { name: Some(name.to_owned()), ..Default::default() };
        let request = MetadataRequest { topics: Some(vec![topic]), ..Default::default() };
        for connection in [&self.kafka, &self.ours] {
            until("the topic", async || {
                let answer = connection.send(&request).await.expect("an answer");
                answer.topics[0].error_code == 0
            })
            .await;
        }
        // Kafka's coordinator looks at new metadata after others.
        tokio::time::sleep(std::time::Duration::from_millis(1_000)).await;
    }

    /// Waits until both coordinate the group.
    async fn find(&self, group: &str) {
        let find = FindCoordinatorRequest { coordinator_keys: vec![group.to_owned()], ..Default::default() };
        let describe =
            StreamsGroupDescribeRequest { group_ids: vec![group.to_owned()], ..Default::default() };
        for connection in [&self.kafka, &self.ours] {
            until("a coordinator", async || {
                let found = connection.send(&find).await.expect("an answer");
                let described = connection.send(&describe).await.expect("an answer");
                let code = described.groups[0].error_code;
                found.coordinators[0].error_code == 0 && code == ErrorCode::GroupIdNotFound.code()
            })
            .await;
        }
    }

    async fn configure(&self, group: &str, key: &str, value: &str) {
        let config =
            AlterableConfig { name: key.to_owned(), config_operation: 0, value: Some(value.to_owned()) };
        let resource = AlterConfigsResource {
            resource_type: 32,
            resource_name: group.to_owned(),
            configs: vec![config],
        };
        let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
        for connection in [&self.kafka, &self.ours] {
            let answer = connection.send(&request).await.expect("an answer");
            assert_eq!(answer.responses[0].error_code, 0, "{answer:?}");
        }
        // The broker of the other make applies it when its image has it.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
}

fn normal_heartbeat(answer: &mut StreamsGroupHeartbeatResponse) {
    answer.error_message = None;
    for tasks in [&mut answer.active_tasks, &mut answer.standby_tasks, &mut answer.warmup_tasks] {
        tasks.iter_mut().for_each(|tasks| tasks.sort_by(|a, b| a.subtopology_id.cmp(&b.subtopology_id)));
    }
    for endpoint in answer.partitions_by_user_endpoint.iter_mut().flatten() {
        for partitions in [&mut endpoint.active_partitions, &mut endpoint.standby_partitions] {
            partitions.sort_by(|a, b| a.topic.cmp(&b.topic));
            partitions.iter_mut().for_each(|topic| topic.partitions.sort_unstable());
        }
    }
    if let Some(endpoints) = &mut answer.partitions_by_user_endpoint {
        endpoints.sort_by_key(|endpoint| endpoint.user_endpoint.port);
    }
    for status in answer.status.iter_mut().flatten() {
        // The names of missing topics have no order.
        if let Some((words, names)) = status.status_detail.split_once(": ") {
            let mut names: Vec<&str> = names.split(", ").collect();
            names.sort_unstable();
            status.status_detail = format!("{words}: {}", names.join(", "));
        }
    }
}

pub(super) fn normal_description(answer: &mut StreamsGroupDescribeResponse) {
    for group in &mut answer.groups {
        group.members.sort_by(|a, b| a.member_id.cmp(&b.member_id));
        for topic in
            group.topology.iter_mut().flat_map(|topology| topology.subtopologies.iter_mut().flatten())
        {
            let internal =
                topic.repartition_source_topics.iter_mut().chain(&mut topic.state_changelog_topics);
            internal.for_each(|topic| topic.topic_configs.sort_by(|a, b| a.key.cmp(&b.key)));
        }
    }
}

/// The same group at both.
pub(super) struct Group {
    pub(super) id: String,
    topology: Topology,
    pub(super) epochs: BTreeMap<String, i32>,
    pub(super) owned: BTreeMap<String, [Vec<TaskIds>; 2]>,
}

impl Group {
    pub(super) fn new(id: &str, topology: Topology) -> Group {
        Group { id: id.to_owned(), topology, epochs: BTreeMap::new(), owned: BTreeMap::new() }
    }

    /// What a member sends: all about it when it joins, and what it has otherwise.
    pub(super) fn request(&self, member: &str) -> StreamsGroupHeartbeatRequest {
        let epoch = self.epochs.get(member).copied().unwrap_or(0);
        let joins = epoch == 0;
        let [active, standby] = self.owned.get(member).cloned().filter(|_| !joins).unwrap_or_default();
        StreamsGroupHeartbeatRequest {
            group_id: self.id.clone(),
            member_id: member.to_owned(),
            member_epoch: epoch,
            rebalance_timeout_ms: if joins { 60_000 } else { -1 },
            topology: joins.then(|| self.topology.clone()),
            active_tasks: Some(active),
            standby_tasks: Some(standby),
            warmup_tasks: Some(Vec::new()),
            process_id: joins.then(|| format!("process of {member}")),
            client_tags: joins.then(|| vec![KeyValue { key: "zone".to_owned(), value: "a".to_owned() }]),
            ..Default::default()
        }
    }

    async fn beat(
        &mut self,
        both: &mut BrokerPair,
        step: &str,
        member: &str,
    ) -> StreamsGroupHeartbeatResponse {
        let answer = both.beat(step, &self.request(member)).await;
        self.take(member, &answer);
        answer
    }

    pub(super) fn take(&mut self, member: &str, answer: &StreamsGroupHeartbeatResponse) {
        if answer.error_code != 0 {
            return;
        }
        self.epochs.insert(member.to_owned(), answer.member_epoch.max(0));
        let tasks = |ids: &[streams_group_heartbeat_response::TaskIds]| -> Vec<TaskIds> {
            let one = |ids: &streams_group_heartbeat_response::TaskIds| TaskIds {
                subtopology_id: ids.subtopology_id.clone(),
                partitions: ids.partitions.clone(),
            };
            ids.iter().map(one).collect()
        };
        if let (Some(active), Some(standby)) = (&answer.active_tasks, &answer.standby_tasks) {
            self.owned.insert(member.to_owned(), [tasks(active), tasks(standby)]);
        }
    }
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|&name| name.to_owned()).collect()
}

fn internal(name: &str, partitions: i32, configs: &[(&str, &str)]) -> TopicInfo {
    let config =
        |(key, value): &(&str, &str)| KeyValue { key: (*key).to_owned(), value: (*value).to_owned() };
    TopicInfo {
        name: name.to_owned(),
        partitions,
        topic_configs: configs.iter().map(config).collect(),
        ..Default::default()
    }
}

pub(super) fn word_count(prefix: &str, source: &str) -> Topology {
    let (repartition, changelog) = (format!("{prefix}-repartition"), format!("{prefix}-changelog"));
    let split = Subtopology {
        subtopology_id: "0".to_owned(),
        source_topics: names(&[source]),
        repartition_sink_topics: names(&[&repartition]),
        ..Default::default()
    };
    let count = Subtopology {
        subtopology_id: "1".to_owned(),
        repartition_source_topics: vec![internal(&repartition, 0, &[("cleanup.policy", "delete")])],
        state_changelog_topics: vec![internal(&changelog, 0, &[("cleanup.policy", "compact")])],
        ..Default::default()
    };
    Topology { epoch: 0, subtopologies: vec![split, count] }
}

fn reader(topics: &[&str]) -> Topology {
    let source_topics = names(topics);
    let subtopology = Subtopology { subtopology_id: "0".to_owned(), source_topics, ..Default::default() };
    Topology { epoch: 0, subtopologies: vec![subtopology] }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_groups_get_the_answers_of_apache_kafka() {
    let Some(classpath) = jars() else { return };
    let controllers = Controllers::start(classpath.clone(), Quorum::OfKafkasDefaults, "").await;
    let lines: Vec<String> = SETTINGS.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let more = format!("offsets.topic.num.partitions=1\n{}", lines.join("\n"));
    let mut jvm = Jvm::new(classpath, &controllers, 1, &more);
    jvm.begin();
    let mut kafka = None;
    until("the JVM listens", async || {
        kafka = Connection::connect(&jvm.address, &ConnectionOptions::default()).await.ok();
        kafka.is_some()
    })
    .await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let ours = RunningBroker::start(dir.path(), &SETTINGS).await;
    let kafka = kafka.expect("it was just opened");
    let to_ours =
        Connection::connect(ours.address(), &ConnectionOptions::default()).await.expect("it listens");
    let mut both = BrokerPair { kafka, ours: to_ours, compared: 0, different: Vec::new() };
    both.create("lines", 2).await;
    both.create("wide", 3).await;
    both.find("words").await;
    lives(&mut both).await;
    misfits(&mut both).await;
    wrong_requests(&mut both).await;
    offsets(&mut both).await;
    let BrokerPair { compared, different, kafka, ours: to_ours } = both;
    kafka.close();
    to_ours.close();
    ours.stop().await;
    assert!(different.is_empty(), "{} of {compared} differ:\n{}", different.len(), different.join("\n"));
    assert!(compared > 80, "{compared}");
}

/// Members come, share tasks, and go.
async fn lives(both: &mut BrokerPair) {
    let mut group = Group::new("words", word_count("words", "lines"));
    group.beat(both, "the first member, internal topics are missing", "a").await;
    both.describe("not ready", "words").await;
    both.wait_for("words-repartition").await;
    both.wait_for("words-changelog").await;
    for step in ["internal topics are there", "settled", "settled still"] {
        group.beat(both, step, "a").await;
    }
    both.describe("one member", "words").await;
    for step in ["another member joins", "tasks are given up", "tasks are taken", "settled"] {
        for member in ["a", "b"] {
            group.beat(both, &format!("{step}: {member}"), member).await;
            both.describe(step, "words").await;
        }
    }
    let mut behind = group.request("a");
    behind.member_epoch -= 1;
    both.beat("one epoch back", &behind).await;
    behind.member_epoch += 2;
    both.beat("one epoch ahead", &behind).await;
    behind.member_epoch = 1;
    both.beat("far back", &behind).await;
    // All about it again.
    group.epochs.insert("a".to_owned(), 0);
    for step in ["joins again", "goes on"] {
        group.beat(both, step, "a").await;
    }
    let mut endpoint = group.request("a");
    endpoint.user_endpoint = Some(Endpoint { host: "localhost".to_owned(), port: 7 });
    let answer = both.beat("an endpoint", &endpoint).await;
    group.take("a", &answer);
    for member in ["a", "b", "a", "b"] {
        group.beat(both, "endpoints", member).await;
    }
    both.configure("words", "streams.num.standby.replicas", "1").await;
    for _ in 0..3 {
        for member in ["a", "b"] {
            group.beat(both, "standbys", member).await;
        }
    }
    both.describe("standbys", "words").await;
    let mut stop = group.request("b");
    stop.shutdown_application = true;
    let answer = both.beat("a shutdown", &stop).await;
    group.take("b", &answer);
    group.beat(both, "a shutdown", "a").await;
    for member in ["a", "b"] {
        let farewell = StreamsGroupHeartbeatRequest {
            group_id: "words".to_owned(),
            member_id: member.to_owned(),
            member_epoch: -1,
            ..Default::default()
        };
        both.beat("a farewell", &farewell).await;
        both.beat("a farewell again", &farewell).await;
        both.describe("a farewell", "words").await;
    }
    group.epochs.clear();
    group.beat(both, "a group that was empty", "c").await;
    both.describe("a group that was empty", "words").await;
}

/// Topologies that do not fit.
async fn misfits(both: &mut BrokerPair) {
    let mut count = 0;
    let mut topologies: Vec<(&str, Topology)> = vec![
        ("a source is missing", reader(&["absent", "missing", "lines", "gone", "lost"])),
        ("no source", reader(&[])),
        ("an internal topic of Kafka", reader(&["__consumer_offsets"])),
        ("no name", reader(&["a topic"])),
        ("no subtopologies", Topology::default()),
    ];
    let mut copartitioned = reader(&["lines", "wide"]);
    copartitioned.subtopologies[0].copartition_groups =
        vec![CopartitionGroup { source_topics: vec![0, 1], ..Default::default() }];
    topologies.push(("different sources", copartitioned.clone()));
    copartitioned.subtopologies[0].copartition_groups[0].source_topics = vec![0, 7];
    topologies.push(("a copartition group beyond the topics", copartitioned));
    let mut fixed = word_count("fixed", "lines");
    fixed.subtopologies[1].repartition_source_topics[0].partitions = 5;
    topologies.push(("a number of its own", fixed.clone()));
    fixed.subtopologies[1].source_topics = names(&["wide"]);
    fixed.subtopologies[1].copartition_groups = vec![CopartitionGroup {
        source_topics: vec![0],
        repartition_source_topics: vec![0],
        ..Default::default()
    }];
    topologies.push(("a number of its own beside a source", fixed));
    let mut follows = word_count("follows", "lines");
    follows.subtopologies[1].source_topics = names(&["wide"]);
    follows.subtopologies[1].copartition_groups = vec![CopartitionGroup {
        source_topics: vec![0],
        repartition_source_topics: vec![0],
        ..Default::default()
    }];
    topologies.push(("a repartition topic follows a source", follows));
    let mut endless = word_count("loop", "lines");
    endless.subtopologies[0].source_topics.clear();
    endless.subtopologies[0].repartition_source_topics = vec![internal("loop-repartition", 0, &[])];
    topologies.push(("a loop", endless));
    let mut unwritten = word_count("unwritten", "lines");
    unwritten.subtopologies[0].repartition_sink_topics.clear();
    topologies.push(("nothing writes it", unwritten));
    let mut changelog = word_count("counted", "lines");
    changelog.subtopologies[1].state_changelog_topics[0].partitions = 2;
    topologies.push(("a changelog with a number", changelog));
    let mut negative = word_count("negative", "lines");
    negative.subtopologies[1].repartition_source_topics[0].partitions = -3;
    topologies.push(("a negative number", negative));
    let mut twice = reader(&["lines"]);
    twice.subtopologies.push(twice.subtopologies[0].clone());
    topologies.push(("one subtopology twice", twice));
    topologies.push(("a negative epoch", Topology { epoch: -1, ..reader(&["lines"]) }));
    let mut regex = reader(&["lines"]);
    regex.subtopologies[0].source_topic_regex = names(&["l.*"]);
    topologies.push(("a regular expression", regex));
    let mut existing = word_count("existing", "lines");
    existing.subtopologies[1].repartition_source_topics[0].name = "wide".to_owned();
    existing.subtopologies[0].repartition_sink_topics = names(&["wide"]);
    topologies.push(("a repartition topic with another number", existing));
    for (step, topology) in topologies {
        count += 1;
        let mut group = Group::new(&format!("misfit-{count}"), topology);
        let id = group.id.clone();
        group.beat(both, step, "a").await;
        both.describe(step, &id).await;
    }
}

/// Requests without sense.
async fn wrong_requests(both: &mut BrokerPair) {
    let mut group = Group::new("right", reader(&["lines"]));
    for step in ["a member", "settled"] {
        group.beat(both, step, "a").await;
    }
    let (join, beat) = (Group::new("right", reader(&["lines"])).request("b"), group.request("a"));
    let tasks = |id: &str, partition: i32| {
        Some(vec![TaskIds { subtopology_id: id.to_owned(), partitions: vec![partition] }])
    };
    let offset = TaskOffset { subtopology_id: "0".to_owned(), partition: 0, offset: 1 };
    type Request = StreamsGroupHeartbeatRequest;
    let all: Vec<(&str, Request)> = vec![
        ("no member", Request { member_id: String::new(), ..join.clone() }),
        ("a blank member", Request { member_id: "  ".to_owned(), ..join.clone() }),
        ("no group", Request { group_id: String::new(), ..join.clone() }),
        ("an instance", Request { instance_id: Some("i".to_owned()), ..join.clone() }),
        ("an empty rack", Request { rack_id: Some(String::new()), ..join.clone() }),
        ("a rack", Request { rack_id: Some("r".to_owned()), ..beat.clone() }),
        ("no timeout", Request { rebalance_timeout_ms: -1, ..join.clone() }),
        ("no topology", Request { topology: None, ..join.clone() }),
        ("tasks at a join", Request { active_tasks: tasks("0", 0), ..join.clone() }),
        ("no tasks at a join", Request { active_tasks: None, ..join.clone() }),
        ("a topology later", Request { topology: join.topology.clone(), ..beat.clone() }),
        ("another topology", Request { topology: Some(reader(&["wide"])), ..join.clone() }),
        (
            "a later topology",
            Request { topology: Some(Topology { epoch: 3, ..reader(&["lines"]) }), ..join.clone() },
        ),
        ("some tasks only", Request { standby_tasks: None, ..beat.clone() }),
        ("warm-up tasks", Request { warmup_tasks: tasks("0", 0), ..beat.clone() }),
        ("offsets of tasks", Request { task_offsets: Some(vec![offset.clone()]), ..beat.clone() }),
        ("end offsets of tasks", Request { task_end_offsets: Some(vec![offset]), ..beat.clone() }),
        ("no such subtopology", Request { active_tasks: tasks("9", 0), ..beat.clone() }),
        ("no such task", Request { standby_tasks: tasks("0", 2), ..beat.clone() }),
        ("a negative task", Request { active_tasks: tasks("0", -1), ..beat.clone() }),
        ("leaves for a while", Request { member_epoch: -2, ..beat.clone() }),
        ("a negative epoch", Request { member_epoch: -3, ..beat.clone() }),
        ("an unknown member", Request { member_id: "z".to_owned(), ..beat.clone() }),
        ("an unknown group", Request { group_id: "none".to_owned(), ..beat.clone() }),
        (
            "an unknown member leaves",
            Request { member_id: "z".to_owned(), member_epoch: -1, topology: None, ..beat.clone() },
        ),
        (
            "leaves an unknown group",
            Request { group_id: "none".to_owned(), member_epoch: -1, topology: None, ..beat.clone() },
        ),
        (
            "nothing of its tasks",
            Request { active_tasks: None, standby_tasks: None, warmup_tasks: None, ..beat.clone() },
        ),
        ("nothing new", beat.clone()),
    ];
    for (step, request) in &all {
        both.beat(step, request).await;
    }
    both.describe("after all", "right").await;
    both.describe("no such group", "none").await;
    both.describe("no group", "").await;
    // A group of another kind.
    let heartbeat = ConsumerGroupHeartbeatRequest {
        group_id: "right".to_owned(),
        member_id: "c".to_owned(),
        rebalance_timeout_ms: 30_000,
        subscribed_topic_names: Some(names(&["lines"])),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    };
    both.ask("a consumer", &heartbeat, |answer| answer.error_message = None).await;
    let describe = ConsumerGroupDescribeRequest { group_ids: names(&["right"]), ..Default::default() };
    both.ask("as a consumer group", &describe, |_| ()).await;
    let describe = DescribeGroupsRequest { groups: names(&["right"]), ..Default::default() };
    both.ask("as a classic group", &describe, |_| ()).await;
    let list = ListGroupsRequest { types_filter: names(&["streams"]), ..Default::default() };
    both.ask("a list", &list, |answer| answer.groups.sort_by(|a, b| a.group_id.cmp(&b.group_id))).await;
    let delete = DeleteGroupsRequest { groups_names: names(&["right"]) };
    both.ask("a group with members", &delete, |_| ()).await;
}

/// Offsets of members.
async fn offsets(both: &mut BrokerPair) {
    let mut group = Group::new("offsets", reader(&["lines"]));
    for member in ["a", "a", "b", "a", "b", "a", "b"] {
        group.beat(both, "two members", member).await;
    }
    let epoch = group.epochs["a"];
    for (step, member, epoch) in [
        ("its epoch", "a", epoch),
        ("an epoch back", "a", epoch - 1),
        ("long ago", "a", 1),
        ("an epoch ahead", "a", epoch + 1),
        ("no member", "", -1),
        ("an unknown member", "z", epoch),
    ] {
        for partition in [0, 1, 7] {
            let one = OffsetCommitRequestPartition {
                partition_index: partition,
                committed_offset: 5,
                ..Default::default()
            };
            let topic = OffsetCommitRequestTopic {
                name: "lines".to_owned(),
                partitions: vec![one],
                ..Default::default()
            };
            let request = OffsetCommitRequest {
                group_id: "offsets".to_owned(),
                generation_id_or_member_epoch: epoch,
                member_id: member.to_owned(),
                topics: vec![topic],
                ..Default::default()
            };
            both.compare_at(9, &format!("commit: {step}, {partition}"), &request).await;
        }
        let wanted = OffsetFetchRequestGroup {
            group_id: "offsets".to_owned(),
            member_id: (!member.is_empty()).then(|| member.to_owned()),
            member_epoch: epoch,
            topics: None,
        };
        let request = OffsetFetchRequest { groups: vec![wanted], ..Default::default() };
        both.compare_at(9, &format!("fetch: {step}"), &request).await;
    }
}

impl BrokerPair {
    /// Compares whole answers at a version.
    async fn compare_at<R>(&mut self, version: i16, step: &str, request: &R)
    where
        R: thalweg_wire::Request + Debug,
        R::Response: Debug,
    {
        let theirs = self.kafka.send_at(request, version).await.expect("an answer");
        let own = self.ours.send_at(request, version).await.expect("an answer");
        self.compared += 1;
        let (expected, found) = (format!("{theirs:?}"), format!("{own:?}"));
        if expected != found {
            self.different.push(format!("{step}\n  Kafka: {expected}\n  ours:  {found}"));
        }
    }
}
