//! Three brokers and a controller in one process, each with its own listener: logs of followers, acks=all,
//! in-sync replicas, and the effects of failing brokers.

mod coordinators;
mod damage;
mod damaged_replicas;
mod eligible;
mod failures;
mod full_disks;
mod in_sync;
mod moves;
mod share_states;
mod transactions;
mod unclean;

use crate::records::{Topic, batch, produce, values_of};
use crate::running::{RunningBroker, configuration};
use bytes::Bytes;
use std::time::Duration;
use tempfile::TempDir;
use thalweg_broker::{ControllerServer, Machine, start_controller};
use thalweg_metadata::{BrokerId, PartitionIndex, PartitionRegistration};
use thalweg_replica::partition::Partition;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use thalweg_wire::request::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use thalweg_wire::request::*;
use tokio::time::Instant;

/// Longer than anything here takes, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(90);

const CONTROLLER: [(&str, &str); 3] =
    [("process.roles", "controller"), ("node.id", "100"), ("auto.leader.rebalance.enable", "false")];

/// Three brokers, 1 to 3, and a controller.
struct Cluster {
    controller: Option<ControllerServer>,
    controller_at: String,
    controller_dir: TempDir,
    dirs: Vec<TempDir>,
    brokers: Vec<Option<RunningBroker>>,
    properties: Vec<(&'static str, &'static str)>,
}

impl Cluster {
    async fn start(properties: &[(&'static str, &'static str)]) -> Cluster {
        let data = || tempfile::tempdir().expect("a temporary directory");
        let controller_dir = data();
        let mut cluster = Cluster {
            controller: None,
            controller_at: "127.0.0.1:0".to_owned(),
            controller_dir,
            dirs: (0..3).map(|_| data()).collect(),
            brokers: vec![None, None, None],
            properties: properties.to_vec(),
        };
        cluster.begin_controller().await;
        for id in 1..=3 {
            cluster.begin(id).await;
        }
        cluster
    }

    async fn stop_controller(&mut self) {
        self.controller.take().expect("the controller runs").stop().await;
    }

    /// Starts the controller, where it was before.
    async fn begin_controller(&mut self) {
        self.begin_controller_with(&[]).await;
    }

    /// As [`Cluster::begin_controller`], with additional properties.
    async fn begin_controller_with(&mut self, more: &[(&str, &str)]) {
        let listener = format!("CONTROLLER://{}", self.controller_at);
        let mut alone = CONTROLLER.to_vec();
        alone.push(("listeners", &listener));
        alone.extend(&self.properties);
        alone.extend(more);
        let controller = start_controller(configuration(self.controller_dir.path(), &alone)).await;
        let controller = controller.expect("the controller starts");
        self.controller_at = controller.addresses[0].1[0].to_string();
        self.controller = Some(controller);
    }

    /// Starts a broker that does not run.
    async fn begin(&mut self, id: usize) {
        self.begin_with(id, &[]).await;
    }

    /// As [`Cluster::begin`], with additional properties.
    async fn begin_with(&mut self, id: usize, more: &[(&str, &str)]) {
        self.begin_on(&Machine::real(), id, more).await;
    }

    /// As [`Cluster::begin_with`], on this machine.
    async fn begin_on(&mut self, machine: &Machine, id: usize, more: &[(&str, &str)]) {
        let node_id = id.to_string();
        let mut properties = vec![
            ("process.roles", "broker"),
            ("node.id", node_id.as_str()),
            ("broker.rack", ["a", "b", "c"][id - 1]),
            ("controller.quorum.bootstrap.servers", self.controller_at.as_str()),
            ("broker.heartbeat.interval.ms", "200"),
            ("log.retention.ms", "-1"),
        ];
        properties.extend(&self.properties);
        properties.extend(more);
        let running = RunningBroker::start_on(machine, self.dirs[id - 1].path(), &properties).await;
        self.brokers[id - 1] = Some(running);
    }

    fn broker(&self, id: usize) -> &RunningBroker {
        self.brokers[id - 1].as_ref().expect("the broker runs")
    }

    async fn kill(&mut self, id: usize) {
        self.brokers[id - 1].take().expect("the broker runs").kill().await;
    }

    async fn stop(&mut self, id: usize) {
        self.brokers[id - 1].take().expect("the broker runs").stop().await;
    }

    async fn stop_all(mut self) {
        for id in [3, 2, 1] {
            if self.brokers[id - 1].is_some() {
                self.stop(id).await;
            }
        }
        self.stop_controller().await;
        self.controller_dir.close().expect("the directory can be removed");
    }

    /// Creates a topic with these replicas for each partition, and waits until every one of them is there.
    async fn create(&self, name: &str, assignments: &[&[i32]], configs: &[(&str, &str)]) -> Topic {
        let configs = configs.iter().map(|(name, value)| CreatableTopicConfig {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        });
        let assignments: Vec<_> = (0..)
            .zip(assignments)
            .map(|(partition_index, replicas)| CreatableReplicaAssignment {
                partition_index,
                broker_ids: replicas.to_vec(),
            })
            .collect();
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: -1,
            replication_factor: -1,
            assignments: assignments.clone(),
            configs: configs.collect(),
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
        let created = self.somebody().ask(&request).await.topics.remove(0);
        assert_eq!(created.error_code, 0, "{:?}", created.error_message);
        for assignment in assignments {
            for id in assignment.broker_ids {
                let id = usize::try_from(id).expect("a small id");
                let index = assignment.partition_index;
                wait_for("the replica", || {
                    self.broker(id).server().broker.partitions.get(name, PartitionIndex(index)).is_some()
                })
                .await;
            }
        }
        Topic { name: name.to_owned(), id: created.topic_id }
    }

    /// Any broker that runs.
    fn somebody(&self) -> &RunningBroker {
        self.brokers.iter().flatten().next().expect("a broker runs")
    }

    /// A partition as some broker's image has it.
    fn registration(&self, topic: &Topic, partition: i32) -> PartitionRegistration {
        let image = self.somebody().server().broker.image();
        PartitionRegistration::clone(
            image.partition(&topic.name, PartitionIndex(partition)).expect("the partition exists"),
        )
    }

    async fn wait_for_isr(&self, topic: &Topic, partition: i32, isr: &[i32]) {
        let sorted = |isr: &[BrokerId]| {
            let mut isr = BrokerId::numbers(isr);
            isr.sort_unstable();
            isr
        };
        let what = format!("the in-sync replicas {isr:?}");
        wait_for(&what, || sorted(&self.registration(topic, partition).isr) == isr).await;
    }

    /// Sends one batch to the current leader until it is acknowledged.
    async fn put(&self, topic: &Topic, partition: i32, acks: i16, value: &[u8]) -> i64 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (code, offset) = self.try_put(topic, partition, acks, value).await;
            if code == ErrorCode::None.code() {
                return offset;
            }
            assert!(Instant::now() < deadline, "{code}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends one batch to the leader: the error and the offset.
    async fn try_put(&self, topic: &Topic, partition: i32, acks: i16, value: &[u8]) -> (i16, i64) {
        let leader = usize::try_from(self.registration(topic, partition).leader.0).unwrap_or(0);
        let Some(Some(leader)) = leader.checked_sub(1).map(|at| &self.brokers[at]) else {
            return (ErrorCode::LeaderNotAvailable.code(), -1);
        };
        let request = produce(12, topic, partition, acks, batch(&[value]));
        let answer = leader.ask_at(&request, 12).await;
        let answer = &answer.responses[0].partition_responses[0];
        (answer.error_code, answer.base_offset)
    }

    fn replica(&self, id: usize, topic: &Topic, partition: i32) -> std::sync::Arc<Partition> {
        let found = self.broker(id).server().broker.partitions.get(&topic.name, PartitionIndex(partition));
        found.unwrap_or_else(|| panic!("{id} has a replica of {}-{partition}", topic.name))
    }

    fn log_end(&self, id: usize, topic: &Topic, partition: i32) -> i64 {
        let found = self.broker(id).server().broker.partitions.get(&topic.name, PartitionIndex(partition));
        found.map_or(-1, |replica| replica.published_offsets().log_end_offset().0)
    }

    fn high_watermark(&self, id: usize, topic: &Topic, partition: i32) -> i64 {
        self.replica(id, topic, partition).published_offsets().high_watermark().0
    }

    /// Waits until these replicas end at the same offset, with all of it replicated, and compares their
    /// batches.
    async fn assert_same(&self, topic: &Topic, partition: i32, ids: &[usize]) -> Bytes {
        let leader = usize::try_from(self.registration(topic, partition).leader.0).expect("a leader");
        let end = self.log_end(leader, topic, partition);
        wait_for("the same end everywhere", || {
            ids.iter().all(|id| self.log_end(*id, topic, partition) == end)
                && ids.iter().all(|id| self.high_watermark(*id, topic, partition) == end)
        })
        .await;
        let logs: Vec<Bytes> = ids.iter().map(|id| contents(&self.replica(*id, topic, partition))).collect();
        for (id, log) in ids.iter().zip(&logs) {
            assert!(*log == logs[0], "the batches of broker {id} differ from those of broker {}", ids[0]);
        }
        logs[0].clone()
    }
}

/// Every batch of a log, as stored.
pub fn contents(partition: &Partition) -> Bytes {
    let mut all = Vec::new();
    let (mut next, end) = partition.with_log(|log| (log.log_start_offset(), log.log_end_offset()));
    while next < end {
        let slice = partition.with_log(|log| log.read(next, 1 << 20, end, true));
        let slice = slice.expect("the log can be read").expect("there is more");
        let mut buffer = vec![0; slice.len];
        let length = slice.file.read_at(&mut buffer, slice.position).expect("the file can be read");
        assert_eq!(length, slice.len);
        all.extend_from_slice(&buffer);
        next = slice.end_offset.max(next + 1);
    }
    all.into()
}

async fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not come");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_acknowledged_by_all_is_on_every_replica_byte_for_byte() {
    let cluster = Cluster::start(&[]).await;
    let topic = cluster.create("topic", &[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]], &[]).await;
    for round in 0..30 {
        for partition in 0..3 {
            let value = format!("{partition}-{round}");
            let offset = cluster.put(&topic, partition, -1, value.as_bytes()).await;
            assert_eq!(offset, round);
            for id in 1..=3 {
                assert!(cluster.log_end(id, &topic, partition) > offset, "broker {id} lacks {value}");
            }
        }
    }
    for partition in 0..3 {
        let log = cluster.assert_same(&topic, partition, &[1, 2, 3]).await;
        let expected: Vec<_> =
            (0..30).map(|round| (round, format!("{partition}-{round}").into_bytes())).collect();
        assert_eq!(values_of(&log), expected);
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn diagnostic_readers_see_every_replicas_end_and_consumers_the_leaders() {
    let cluster = Cluster::start(&[]).await;
    let topic = cluster.create("topic", &[&[1, 2, 3]], &[]).await;
    cluster.put(&topic, 0, -1, b"one").await;
    for (replica_id, id, expected) in
        [(-2, 1, (0, 1)), (-2, 2, (0, 1)), (-2, 3, (0, 1)), (-1, 1, (0, 1)), (-1, 2, (6, -1))]
    {
        let partition = ListOffsetsPartition { partition_index: 0, current_leader_epoch: -1, timestamp: -1 };
        let asked = ListOffsetsTopic { name: topic.name.clone(), partitions: vec![partition] };
        let request = ListOffsetsRequest { replica_id, topics: vec![asked], ..Default::default() };
        let told = cluster.broker(id).ask(&request).await.topics.remove(0).partitions.remove(0);
        assert_eq!((told.error_code, told.offset), expected, "as {replica_id}, of broker {id}");
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_broker_that_does_not_lead_names_the_leader() {
    let cluster = Cluster::start(&[]).await;
    let topic = cluster.create("topic", &[&[2, 3]], &[]).await;
    let code = ErrorCode::NotLeaderOrFollower.code();
    let nobody = (code, (-1, -1), None);
    let leader = (code, (2, 0), Some((2, cluster.broker(2).address().to_owned())));
    // The one has nothing of the topic, the other follows.
    for id in [1, 3] {
        for version in [9, 10, 12, 13] {
            let request = produce(version, &topic, 0, -1, batch(&[b"astray"]));
            let answer = cluster.broker(id).ask_at(&request, version).await;
            assert!(answer.node_endpoints.len() <= 1, "{:?}", answer.node_endpoints);
            let address =
                answer.node_endpoints.first().map(|at| (at.node_id, format!("{}:{}", at.host, at.port)));
            let refused = &answer.responses[0].partition_responses[0];
            let told = (refused.current_leader.leader_id, refused.current_leader.leader_epoch);
            let expected = if version < 10 { &nobody } else { &leader };
            assert_eq!((refused.error_code, told, address), *expected, "produce {version} to broker {id}");
        }
    }
    // Of followers, consumers of these versions may read.
    for version in [12, 15, 16, 18] {
        let request = crate::records::fetch(version, &topic, vec![crate::records::fetch_partition(0, 0)]);
        let answer = cluster.broker(1).ask_at(&request, version).await;
        let address =
            answer.node_endpoints.first().map(|at| (at.node_id, format!("{}:{}", at.host, at.port)));
        let refused = &answer.responses[0].partitions[0];
        let told = (refused.current_leader.leader_id, refused.current_leader.leader_epoch);
        let expected = if version < 16 { &nobody } else { &leader };
        assert_eq!((refused.error_code, told, address), *expected, "fetch {version}");
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn consumers_see_what_is_replicated_on_the_leader_and_on_followers() {
    let cluster = Cluster::start(&[]).await;
    let topic = cluster.create("topic", &[&[2, 3]], &[]).await;
    cluster.put(&topic, 0, -1, b"one").await;
    let read = crate::records::get(cluster.broker(2), &topic, 0).await;
    assert_eq!((read.error_code, read.high_watermark), (0, 1));
    // Consumers that do not know of followers are sent to the leader.
    let old = FetchRequest {
        max_wait_ms: 0,
        ..crate::records::fetch(10, &topic, vec![crate::records::fetch_partition(0, 0)])
    };
    let mut refused = cluster.broker(3).ask_at(&old, 10).await;
    let code = refused.responses.remove(0).partitions.remove(0).error_code;
    assert_eq!(code, ErrorCode::NotLeaderOrFollower.code());
    let (_, offset) = cluster.try_put(&topic, 0, 1, b"two").await;
    assert_eq!(offset, 1);
    // The high watermark travels with the next answer to the follower.
    wait_for("the high watermark", || cluster.high_watermark(3, &topic, 0) == 2).await;
    let read = crate::records::get(cluster.broker(3), &topic, 0).await;
    assert_eq!((read.error_code, read.high_watermark), (0, 2));
    assert_eq!(values_of(&crate::records::fetched_bytes(&read)).len(), 2);
    cluster.stop_all().await;
}
