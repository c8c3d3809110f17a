//! Three brokers and a controller in separate processes, with acks=all producers: brokers are killed and
//! paused, and afterwards all acknowledged records are on every disk, once, in order and identical.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use thalweg_client::{Connection, ConnectionOptions};
use thalweg_ports::free_port;
use thalweg_record::{BatchBuilder, BatchOptions, DecompressBuffer, ProducerEpoch, ProducerId, batches};
use thalweg_wire::request::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use thalweg_wire::request::metadata_request::MetadataRequestTopic;
use thalweg_wire::request::metadata_response::MetadataResponsePartition;
use thalweg_wire::request::produce_request::{PartitionProduceData, TopicProduceData};
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Records};
use tokio::task::JoinSet;

/// A generous timeout for busy machines.
const PATIENCE: Duration = Duration::from_secs(90);
const TOPIC: &str = "replicated";

struct Cluster {
    dir: TempDir,
    controller: String,
    addresses: BTreeMap<i32, String>,
    nodes: BTreeMap<i32, Child>,
}

impl Cluster {
    fn start() -> Cluster {
        let mut ports = (0..4).map(|_| format!("127.0.0.1:{}", free_port()));
        let controller = ports.next().expect("four ports");
        let addresses: BTreeMap<i32, String> = (1..).zip(ports).collect();
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut cluster = Cluster { dir, controller, addresses, nodes: BTreeMap::new() };
        for id in [100, 1, 2, 3] {
            cluster.begin(id);
        }
        cluster
    }

    fn data(&self, id: i32) -> PathBuf {
        self.dir.path().join(id.to_string())
    }

    #[expect(clippy::disallowed_types, reason = "the log of a child process is no data file")]
    fn begin(&mut self, id: i32) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.arg("serve").arg("--data-dir").arg(self.data(id)).stdin(Stdio::null());
        let mut set = |key: &str, value: &str| {
            command.arg("--set").arg(format!("{key}={value}"));
        };
        set("node.id", &id.to_string());
        set("broker.session.timeout.ms", "2000");
        set("broker.heartbeat.interval.ms", "300");
        match self.addresses.get(&id) {
            None => {
                set("process.roles", "controller");
                set("listeners", &format!("CONTROLLER://{}", self.controller));
            }
            Some(address) => {
                set("process.roles", "broker");
                set("listeners", &format!("PLAINTEXT://{address}"));
                set("controller.quorum.bootstrap.servers", &self.controller);
                set("replica.lag.time.max.ms", "4000");
                set("log.segment.bytes", "1048576");
            }
        }
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join(format!("{id}.log")));
        let log = log.expect("a log can be opened");
        command.env_remove("RUST_LOG").stderr(log.try_clone().expect("a descriptor")).stdout(log);
        self.nodes.insert(id, command.spawn().expect("the binary runs"));
    }

    fn kill(&mut self, id: i32) {
        let mut node = self.nodes.remove(&id).expect("it runs");
        node.kill().expect("it can be killed");
        node.wait().expect("it is gone");
    }

    fn signal(&self, id: i32, signal: Signal) {
        let pid = Pid::from_child(&self.nodes[&id]);
        kill_process(pid, signal).expect("it can be signalled");
    }

    /// Stops every node cleanly, brokers first.
    fn stop(&mut self) {
        for id in [1, 2, 3, 100] {
            self.signal(id, Signal::TERM);
            let status = self.nodes.remove(&id).expect("it runs").wait().expect("it ends");
            assert!(status.success(), "{id}: {status}");
        }
    }

    /// A connection to any broker that answers.
    async fn connect(&self) -> Option<Connection> {
        for id in self.nodes.keys() {
            if let Some(address) = self.addresses.get(id)
                && let Ok(connection) = Connection::connect(address, &options()).await
            {
                return Some(connection);
            }
        }
        None
    }

    async fn partition(&self) -> Option<MetadataResponsePartition> {
        let topic = MetadataRequestTopic { name: Some(TOPIC.to_owned()), ..Default::default() };
        let request = MetadataRequest { topics: Some(vec![topic]), ..Default::default() };
        let answer = self.connect().await?.send(&request).await.ok()?;
        answer.topics.into_iter().next()?.partitions.into_iter().next()
    }

    async fn create(&self) {
        let assignment = CreatableReplicaAssignment { partition_index: 0, broker_ids: vec![1, 2, 3] };
        let config =
            CreatableTopicConfig { name: "min.insync.replicas".to_owned(), value: Some("2".to_owned()) };
        let topic = CreatableTopic {
            name: TOPIC.to_owned(),
            num_partitions: -1,
            replication_factor: -1,
            assignments: vec![assignment],
            configs: vec![config],
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..Default::default() };
        until("the topic", async || {
            let Some(connection) = self.connect().await else { return false };
            let answer = connection.send(&request).await.ok();
            // A request whose answer was late may have created it.
            answer.is_some_and(|answer| {
                [ErrorCode::None.code(), ErrorCode::TopicAlreadyExists.code()]
                    .contains(&answer.topics[0].error_code)
            })
        })
        .await;
    }

    async fn wait_for_all_in_sync(&self) {
        until("all in sync", async || self.partition().await.is_some_and(|p| p.isr_nodes.len() == 3)).await;
    }

    /// All batches on a broker's disk.
    fn batches(&self, id: i32) -> Vec<u8> {
        let dir = self.data(id).join(format!("{TOPIC}-0"));
        let entries = std::fs::read_dir(&dir).expect("the partition is there").flatten();
        let is_log = |path: &Path| path.extension().is_some_and(|ending| ending == "log");
        let mut segments: Vec<_> = entries.map(|entry| entry.path()).filter(|path| is_log(path)).collect();
        segments.sort();
        segments.iter().flat_map(|path| std::fs::read(path).expect("it can be read")).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in self.nodes.values_mut() {
            // It may have exited; the failed test gives a better reason.
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

fn options() -> ConnectionOptions {
    ConnectionOptions {
        connect_timeout: Duration::from_secs(2),
        request_timeout: Duration::from_secs(4),
        ..ConnectionOptions::default()
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let held = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, held).await.unwrap_or_else(|_| panic!("{what} did not come"));
}

/// The producers' view of the cluster.
#[derive(Default)]
struct ProducerView {
    addresses: BTreeMap<i32, String>,
    stop: AtomicBool,
    acknowledged: AtomicUsize,
}

/// An idempotent producer: one record at a time, each until it is acknowledged. Returns their number.
async fn produce(known: Arc<ProducerView>, producer_id: i64) -> i32 {
    let mut leader = 1;
    let mut connection: Option<Connection> = None;
    let mut next = 0;
    while !known.stop.load(Ordering::Relaxed) {
        let open = match connection.take().filter(|connection| !connection.is_closed()) {
            Some(open) => Some(open),
            None => Connection::connect(&known.addresses[&leader], &options()).await.ok(),
        };
        let sent = match &open {
            Some(open) => open.send_at(&request(producer_id, next), 12).await.ok(),
            None => None,
        };
        let code = sent.map(|answer| answer.responses[0].partition_responses[0].error_code);
        if code == Some(ErrorCode::None.code()) {
            next += 1;
            known.acknowledged.fetch_add(1, Ordering::Relaxed);
            connection = open;
        } else {
            // Another broker may be the leader.
            leader = leader % 3 + 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    next
}

fn request(producer_id: i64, sequence: i32) -> ProduceRequest {
    let mut builder = BatchBuilder::new(BatchOptions {
        producer_id: ProducerId(producer_id),
        producer_epoch: ProducerEpoch(0),
        base_sequence: sequence,
        ..BatchOptions::default()
    });
    let value = format!("{producer_id}:{sequence}:{}", "x".repeat(500));
    let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis());
    let now = i64::try_from(now).expect("a time of this age");
    builder.append(now, None, Some(value.as_bytes()), &[]).expect("it fits");
    let data = PartitionProduceData { index: 0, records: Some(Records::Inline(builder.build())) };
    let topic = TopicProduceData { name: TOPIC.to_owned(), partition_data: vec![data], ..Default::default() };
    ProduceRequest { acks: -1, timeout_ms: 3000, topic_data: vec![topic], ..Default::default() }
}

/// Waits until this many more records are acknowledged.
async fn pass(known: &ProducerView, more: usize) {
    let enough = known.acknowledged.load(Ordering::Relaxed) + more;
    until("more acknowledged records", async || known.acknowledged.load(Ordering::Relaxed) >= enough).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn brokers_that_are_killed_and_paused_lose_nothing_that_was_acknowledged() {
    let mut cluster = Cluster::start();
    cluster.create().await;
    cluster.wait_for_all_in_sync().await;
    let known = Arc::new(ProducerView { addresses: cluster.addresses.clone(), ..ProducerView::default() });
    let mut producers = JoinSet::new();
    for producer_id in 1000..1004 {
        let known = Arc::clone(&known);
        producers.spawn(async move { (producer_id, produce(known, producer_id).await) });
    }
    pass(&known, 200).await;
    let leader = cluster.partition().await.expect("it is known").leader_id;
    cluster.kill(leader);
    pass(&known, 100).await;
    cluster.begin(leader);
    cluster.wait_for_all_in_sync().await;
    // The new leader is paused until others lead, and resumes as a follower.
    let leader = cluster.partition().await.expect("it is known").leader_id;
    cluster.signal(leader, Signal::STOP);
    pass(&known, 100).await;
    cluster.signal(leader, Signal::CONT);
    cluster.wait_for_all_in_sync().await;
    let follower = cluster.partition().await.expect("it is known").leader_id % 3 + 1;
    cluster.kill(follower);
    pass(&known, 100).await;
    cluster.begin(follower);
    cluster.wait_for_all_in_sync().await;
    known.stop.store(true, Ordering::Relaxed);
    let produced = producers.join_all().await;
    cluster.stop();
    check(&cluster, &produced);
}

fn check(cluster: &Cluster, produced: &[(i64, i32)]) {
    let all = cluster.batches(1);
    for id in [2, 3] {
        assert!(cluster.batches(id) == all, "broker {id} has other batches than broker 1");
    }
    let mut found: BTreeMap<i64, Vec<i32>> = BTreeMap::new();
    let mut buffer = DecompressBuffer::default();
    let mut next_offset = 0;
    for batch in batches(&all) {
        let batch = batch.expect("whole batches");
        assert_eq!(batch.header.base_offset.0, next_offset);
        next_offset = batch.header.next_offset().0;
        let sequences = found.entry(batch.header.producer_id.0).or_default();
        for record in batch.records(&mut buffer).expect("readable records") {
            let value = record.expect("a readable record").value.unwrap_or_default().to_vec();
            let text = String::from_utf8(value).expect("text");
            sequences.push(text.split(':').nth(1).expect("three parts").parse().expect("a number"));
        }
    }
    for (producer_id, count) in produced {
        let sequences = &found[producer_id];
        // Records in flight at the end may exist, too.
        assert!(
            sequences.len() >= usize::try_from(*count).expect("a count"),
            "{producer_id}: records are lost"
        );
        assert!(
            (0..).zip(sequences).all(|(expected, found)| expected == *found),
            "{producer_id}: {sequences:?}"
        );
    }
}
