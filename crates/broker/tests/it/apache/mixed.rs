//! Brokers of both makes in one cluster: ours follow a leader of Apache Kafka, Apache Kafka follows ours, and
//! either dies. Transactions span them in `transactions`, and groups of Kafka Streams move between them in
//! `streams`.

mod streams;
mod transactions;

use super::controllers::{Controllers, JVM_OPTIONS, Quorum};
use super::{jars, join, until};
use crate::records::{Topic, batch, produce, values_of};
use crate::replication::contents;
use crate::running::RunningBroker;
use crate::transactions::ONE_SEGMENT;
use bytes::Bytes;
use std::process::{Child, Command};
use tempfile::TempDir;
use thalweg_dial::{Connection, ConnectionOptions};
use thalweg_metadata::{PartitionIndex, PartitionRegistration};
use thalweg_ports::free_port;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use thalweg_wire::request::*;

/// A broker of Apache Kafka as a child process.
pub(super) struct Jvm {
    dir: TempDir,
    classpath: String,
    pub(super) address: String,
    child: Option<Child>,
}

impl Jvm {
    /// `more` are further lines of its file, where ADDRESS is replaced by the address for clients.
    pub(super) fn new(classpath: String, controllers: &Controllers, id: i32, more: &str) -> Jvm {
        Jvm::of(classpath, &controllers.servers(), &controllers.cluster_id, id, more)
    }

    /// As [`Jvm::new`], of a cluster with this id, whose controllers listen there.
    pub(super) fn of(classpath: String, servers: &str, cluster_id: &str, id: i32, more: &str) -> Jvm {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let address = format!("127.0.0.1:{}", free_port());
        let text = format!(
            "process.roles=broker\nnode.id={id}\nlisteners=PLAINTEXT://{address}\ncontroller.listener.names=CONTROLLER\n\
             controller.quorum.bootstrap.servers={servers}\nlog.dirs={}\nbroker.heartbeat.interval.ms=500\n\
             num.network.threads=2\nnum.io.threads=2\n{}\n",
            dir.path().join("data").display(),
            more.replace("ADDRESS", &address),
        );
        let properties = dir.path().join("server.properties");
        std::fs::write(&properties, text).expect("it can be written");
        let jvm = Jvm { dir, classpath, address, child: None };
        let mut format = jvm.java("kafka.tools.StorageTool");
        format.args(["format", "--cluster-id", cluster_id, "--config"]).arg(properties);
        let output = format.output().expect("java is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        jvm
    }

    fn java(&self, class: &str) -> Command {
        let mut command = Command::new("java");
        command.env("CLASSPATH", &self.classpath).current_dir(self.dir.path()).args(JVM_OPTIONS);
        command.arg(format!("-Djava.io.tmpdir={}", self.dir.path().display())).arg(class);
        command
    }

    #[expect(clippy::disallowed_types, reason = "the log of a child process is no data file")]
    pub(super) fn begin(&mut self) {
        let mut command = self.java("kafka.Kafka");
        let log = std::fs::File::options().create(true).append(true).open(self.dir.path().join("log"));
        let log = log.expect("a log can be opened");
        command.arg("server.properties").stderr(log.try_clone().expect("a descriptor")).stdout(log);
        self.child = Some(command.spawn().expect("java is installed"));
    }

    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have exited, which the test will notice.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The bytes of the first segment of a partition.
    pub(super) fn segment(&self, topic: &str, partition: i32) -> Vec<u8> {
        let dir = self.dir.path().join("data").join(format!("{topic}-{partition}"));
        std::fs::read(dir.join("00000000000000000000.log")).unwrap_or_default()
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The JVM is broker 1; 2 and 3 are ours.
struct MixedCluster {
    controllers: Controllers,
    jvm: Jvm,
    /// To the JVM, as it is at first.
    to_jvm: Connection,
    dirs: [TempDir; 2],
    ours: [Option<RunningBroker>; 2],
}

impl MixedCluster {
    async fn start(classpath: String) -> MixedCluster {
        let controllers =
            Controllers::start(classpath.clone(), Quorum::OfKafkasDefaults, "broker.session.timeout.ms=6000")
                .await;
        // Its coordinators count partitions by these, once and for all, if their topics do not exist yet.
        let internal = "offsets.topic.num.partitions=2\ntransaction.state.log.num.partitions=2";
        let mut jvm = Jvm::new(classpath, &controllers, 1, internal);
        jvm.begin();
        let mut to_jvm = None;
        until("the JVM listens", async || {
            to_jvm = Connection::connect(&jvm.address, &ConnectionOptions::default()).await.ok();
            to_jvm.is_some()
        })
        .await;
        let to_jvm = to_jvm.expect("it was just opened");
        let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
        let mut mixed = MixedCluster { controllers, jvm, to_jvm, dirs, ours: [None, None] };
        mixed.begin(2).await;
        mixed.begin(3).await;
        until("all three brokers", async || {
            mixed.somebody().server().broker.image().alive_brokers().count() == 3
        })
        .await;
        mixed
    }

    /// Ends the test: the JVM logged no error but those that a producer mends by itself, and our brokers stop
    /// cleanly.
    async fn finish(mut self) {
        let log = std::fs::read_to_string(self.jvm.dir.path().join("log")).expect("a log");
        let mut lines = log.lines();
        while let Some(line) = lines.by_ref().find(|line| line.contains(" ERROR ")) {
            // A producer with several batches in flight sends again what was behind a batch that was refused,
            // as it is while the coordinator still completes its last transaction.
            let why = lines.next().unwrap_or_default();
            let is_mended =
                why.contains("OutOfOrderSequenceException") && why.contains("with no existing state");
            assert!(is_mended, "{line}\n{why}\n{log}");
        }
        for broker in self.ours.iter_mut().filter_map(Option::take) {
            broker.stop().await;
        }
    }

    async fn begin(&mut self, id: usize) {
        let properties = [("broker.heartbeat.interval.ms", "500"), ("broker.session.timeout.ms", "6000")];
        let servers = self.controllers.servers();
        let running = join(self.dirs[id - 2].path(), &id.to_string(), &servers, &properties).await;
        self.ours[id - 2] = Some(running);
    }

    fn somebody(&self) -> &RunningBroker {
        self.ours.iter().flatten().next().expect("one of ours runs")
    }

    async fn create(&self, name: &str, assignments: [[i32; 3]; 2]) -> Topic {
        let assignments = (0..).zip(assignments).map(|(partition_index, replicas)| {
            CreatableReplicaAssignment { partition_index, broker_ids: replicas.to_vec() }
        });
        // The records have old timestamps, and on a busy machine a test outlasts the interval of retention
        // checks.
        let configs = [("min.insync.replicas", "2"), ("retention.ms", "-1"), ONE_SEGMENT];
        let configs = configs.map(|(name, value)| CreatableTopicConfig {
            name: name.to_owned(),
            value: Some(value.to_owned()),
        });
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: -1,
            replication_factor: -1,
            assignments: assignments.collect(),
            configs: configs.to_vec(),
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
        let created = self.somebody().ask(&request).await.topics.remove(0);
        assert_eq!(created.error_code, 0, "{:?}", created.error_message);
        Topic { name: name.to_owned(), id: created.topic_id }
    }

    fn registration(&self, topic: &Topic, partition: i32) -> Option<PartitionRegistration> {
        let image = self.somebody().server().broker.image();
        image
            .partition(&topic.name, PartitionIndex(partition))
            .map(|found| PartitionRegistration::clone(found))
    }

    fn address(&self, id: i32) -> Option<String> {
        match id {
            1 => Some(self.jvm.address.clone()),
            2 | 3 => self.ours[usize::try_from(id - 2).ok()?].as_ref().map(|one| one.address().to_owned()),
            _ => None,
        }
    }

    /// Sends one batch to the leader until it is acknowledged; returns the earlier error codes.
    async fn put(&self, topic: &Topic, partition: i32, acks: i16, value: &str) {
        until("an acknowledgement", async || {
            let leader = self.registration(topic, partition).map_or(-1, |registration| registration.leader.0);
            let Some(address) = self.address(leader) else { return false };
            let Ok(connection) = Connection::connect(&address, &ConnectionOptions::default()).await else {
                return false;
            };
            let request = produce(12, topic, partition, acks, batch(&[value.as_bytes()]));
            let answer = connection.send_at(&request, 12).await;
            answer.is_ok_and(|answer| {
                answer.responses[0].partition_responses[0].error_code == ErrorCode::None.code()
            })
        })
        .await;
    }

    async fn wait_for_isr(&self, topic: &Topic, partition: i32, size: usize) {
        until("the in-sync replicas", async || {
            self.registration(topic, partition).is_some_and(|found| found.isr.len() == size)
        })
        .await;
    }

    fn ours(&self, id: usize, topic: &Topic, partition: i32) -> Bytes {
        let broker = self.ours[id - 2].as_ref().expect("it runs");
        let found = broker.server().broker.partitions.get(&topic.name, PartitionIndex(partition));
        found.map_or_else(Bytes::new, |found| contents(&found))
    }

    /// Waits until all three have the same bytes, and gives the values.
    async fn assert_same(&self, topic: &Topic, partition: i32) -> Vec<String> {
        until("the same bytes on all three", async || {
            let jvm = self.jvm.segment(&topic.name, partition);
            [2, 3].iter().all(|id| self.ours(*id, topic, partition)[..] == jvm[..])
        })
        .await;
        let read = values_of(&self.ours(2, topic, partition));
        read.into_iter().map(|(_, value)| String::from_utf8_lossy(&value).into_owned()).collect()
    }
}

/// Each expected value is there, in this order; one that was sent again may be there twice.
fn assert_in_order(mut found: Vec<String>, expected: &[String]) {
    found.dedup();
    found.retain(|value| !value.starts_with("unsafe"));
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn brokers_of_both_makes_replicate_to_each_other_and_survive_each_others_death() {
    let Some(jars) = jars() else { return };
    let mut mixed = MixedCluster::start(jars).await;
    // Partition 0 is led by the JVM, partition 1 by ours.
    let topic = mixed.create("mixed", [[1, 2, 3], [2, 1, 3]]).await;
    let mut expected = [Vec::new(), Vec::new()];
    let mut next = 0;
    for victim in [0, 1, 2] {
        // The first round is without a death.
        for _ in 0..20 {
            for partition in [0, 1] {
                let value = format!("{next}");
                mixed.put(&topic, partition, -1, &value).await;
                expected[usize::try_from(partition).expect("small")].push(value);
                mixed.put(&topic, partition, 1, &format!("unsafe {next}")).await;
            }
            next += 1;
        }
        match victim {
            1 => mixed.jvm.kill(),
            2 => mixed.ours[0].take().expect("it runs").kill().await,
            _ => continue,
        }
        for partition in [0, 1] {
            mixed.put(&topic, partition, -1, &format!("{next}")).await;
            expected[usize::try_from(partition).expect("small")].push(format!("{next}"));
        }
        next += 1;
        match victim {
            1 => mixed.jvm.begin(),
            _ => mixed.begin(2).await,
        }
        for partition in [0, 1] {
            mixed.wait_for_isr(&topic, partition, 3).await;
        }
    }
    for partition in [0, 1] {
        let found = mixed.assert_same(&topic, partition).await;
        assert_in_order(found, &expected[usize::try_from(partition).expect("small")]);
    }
    mixed.finish().await;
}

impl MixedCluster {
    /// Runs one of Kafka's tools off the tasks of the brokers in this process.
    async fn tool(&self, class: &str, arguments: &[&str]) -> String {
        let mut command = self.jvm.java(&format!("org.apache.kafka.tools.{class}"));
        command.args(arguments);
        let output = tokio::task::spawn_blocking(move || command.output()).await;
        let output = output.expect("it is not cancelled").expect("java is installed");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{class}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
        text
    }
}
