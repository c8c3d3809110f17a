//! Moves between the data directories of a broker: they continue beside clients, through a crash and under a
//! throttle.

use crate::records::{Topic, batch, batch_at, get, put, values};
use crate::running::RunningBroker;
use bytes::Bytes;
use std::path::Path;
use std::time::Duration;
use thalweg_log::Clock;
use thalweg_metadata::PartitionIndex;
use thalweg_record::{BatchOptions, ProducerEpoch, ProducerId};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic};
use thalweg_wire::request::describe_log_dirs_response::DescribeLogDirsPartition;
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::*;
use tokio::time::Instant;

const THROTTLE: &str = "replica.alter.log.dirs.io.max.bytes.per.second";
const VALUE_BYTES: usize = 1000;

struct Dirs {
    root: tempfile::TempDir,
}

impl Dirs {
    fn new() -> Dirs {
        Dirs { root: tempfile::tempdir().expect("a temporary directory") }
    }

    fn path(&self, index: usize) -> String {
        self.root.path().join(["a", "b"][index]).to_str().expect("UTF-8").to_owned()
    }

    async fn start(&self, more: &[(&str, &str)]) -> RunningBroker {
        let dirs = format!("{},{}", self.path(0), self.path(1));
        let mut properties = vec![("log.dirs", dirs.as_str())];
        properties.extend(more);
        RunningBroker::start(self.root.path(), &properties).await
    }

    /// The description of the partition in each directory.
    async fn describe(&self, broker: &RunningBroker, topic: &Topic) -> [Option<DescribeLogDirsPartition>; 2] {
        let described = broker.ask(&DescribeLogDirsRequest { topics: None }).await;
        [0, 1].map(|index| {
            let path = self.path(index);
            let dir = described.results.iter().find(|dir| dir.log_dir == path).expect("it is described");
            let found = dir.topics.iter().find(|found| found.name == topic.name);
            found.map(|found| found.partitions[0].clone())
        })
    }

    /// The directory that contains the partition's log.
    async fn place(&self, broker: &RunningBroker, topic: &Topic) -> usize {
        let described = self.describe(broker, topic).await;
        let is_log =
            |found: &Option<DescribeLogDirsPartition>| found.as_ref().is_some_and(|f| !f.is_future_key);
        described.iter().position(is_log).expect("it lies in one of them")
    }

    async fn until_moved(&self, broker: &RunningBroker, topic: &Topic, to: usize) {
        until("the partition is moved", async || {
            let described = self.describe(broker, topic).await;
            described[1 - to].is_none() && described[to].as_ref().is_some_and(|found| !found.is_future_key)
        })
        .await;
        // The controller knows, too.
        until("the controller is told", async || {
            let server = broker.server();
            let image = server.broker.image();
            let known = image
                .partition_by_id(topic.id, PartitionIndex(0))
                .and_then(|found| found.directory(server.broker.node_id));
            let dirs = server.broker.log_dirs.describe();
            let dir = dirs.iter().find(|dir| dir.path == Path::new(&self.path(to))).expect("it is open");
            known.is_some_and(|known| known == dir.id)
        })
        .await;
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Asks for the move of partition 0.
pub async fn alter(broker: &RunningBroker, path: &str, topic: &str) -> ErrorCode {
    let to = |path: &str| {
        let topics = vec![AlterReplicaLogDirTopic { name: topic.to_owned(), partitions: vec![0] }];
        AlterReplicaLogDir { path: path.to_owned(), topics }
    };
    // Of two places for one partition, the last counts.
    let answer = broker.ask(&AlterReplicaLogDirsRequest { dirs: vec![to("/elsewhere"), to(path)] }).await;
    assert_eq!((answer.results.len(), answer.results[0].partitions.len()), (1, 1));
    let partition = &answer.results[0].partitions[0];
    assert_eq!((answer.results[0].topic_name.as_str(), partition.partition_index), (topic, 0));
    ErrorCode::from_i16(partition.error_code).expect("a known code")
}

async fn set_throttle(broker: &RunningBroker, rate: &str) {
    let config =
        AlterableConfig { name: THROTTLE.to_owned(), config_operation: 0, value: Some(rate.to_owned()) };
    let resource =
        AlterConfigsResource { resource_type: 4, resource_name: String::new(), configs: vec![config] };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    assert_eq!(broker.ask(&request).await.responses[0].error_code, 0);
}

fn value(index: i64) -> Vec<u8> {
    let mut value = vec![b'v'; VALUE_BYTES];
    value[..8].copy_from_slice(&index.to_be_bytes());
    value
}

fn from_producer(sequence: i32) -> Bytes {
    let options = BatchOptions {
        producer_id: ProducerId(9),
        producer_epoch: ProducerEpoch(0),
        base_sequence: sequence,
        ..BatchOptions::default()
    };
    batch_at(Clock::system().now_ms(), &[&value(i64::from(sequence))], options)
}

async fn write(broker: &RunningBroker, topic: &Topic, range: std::ops::Range<i32>) {
    for sequence in range {
        let answer = put(broker, topic, 1, from_producer(sequence)).await;
        assert_eq!((answer.error_code, answer.base_offset), (0, i64::from(sequence)));
    }
}

async fn assert_all_there(broker: &RunningBroker, topic: &Topic, end: i64) {
    let mut next = 0;
    while next < end {
        let found = values(&get(broker, topic, next).await);
        assert!(!found.is_empty(), "nothing at {next}");
        for (offset, found) in found {
            assert_eq!((offset, found), (next, value(next)));
            next += 1;
        }
    }
    assert_eq!(next, end);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_moves_while_it_is_written_and_read() {
    let dirs = Dirs::new();
    let broker = dirs.start(&[("log.segment.bytes", "1048576")]).await;
    let topic = Topic::create(&broker, "t", 1, &[("flush.messages", "1")]).await;
    write(&broker, &topic, 0..300).await;
    let mut written = 300;
    for _ in 0..2 {
        let to = 1 - dirs.place(&broker, &topic).await;
        assert_eq!(alter(&broker, &dirs.path(to), "t").await, ErrorCode::None);
        let moved = dirs.until_moved(&broker, &topic, to);
        tokio::pin!(moved);
        loop {
            tokio::select! {
                biased;
                () = &mut moved => break,
                () = write(&broker, &topic, written..written + 1) => written += 1,
            }
        }
        // The last append may have been cut off from its answer.
        let answer = put(&broker, &topic, 1, from_producer(written)).await;
        assert_eq!(
            (answer.error_code, answer.base_offset),
            (0, i64::from(written)),
            "a duplicate or the next"
        );
        written += 1;
        assert_all_there(&broker, &topic, i64::from(written)).await;
    }
    let again = put(&broker, &topic, 1, from_producer(written - 3)).await;
    assert_eq!(
        (again.error_code, again.base_offset),
        (0, i64::from(written - 3)),
        "a batch that was in flight"
    );
    assert_eq!(alter(&broker, &dirs.path(dirs.place(&broker, &topic).await), "t").await, ErrorCode::None);
    broker.stop().await;
    let broker = dirs.start(&[]).await;
    assert_all_there(&broker, &topic, i64::from(written)).await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_throttled_move_goes_on_after_a_crash_and_ends_once_it_may() {
    let dirs = Dirs::new();
    let broker = dirs.start(&[(THROTTLE, "20000")]).await;
    let topic = Topic::create(&broker, "t", 1, &[]).await;
    write(&broker, &topic, 0..500).await;
    let to = 1 - dirs.place(&broker, &topic).await;
    assert_eq!(alter(&broker, &dirs.path(to), "t").await, ErrorCode::None);
    let lag = async |broker: &RunningBroker| {
        let copy = dirs.describe(broker, &topic).await[to].clone();
        copy.filter(|copy| copy.is_future_key && copy.partition_size > 0).map(|copy| copy.offset_lag)
    };
    until("a part is copied", async || lag(&broker).await.is_some_and(|lag| (1..500).contains(&lag))).await;
    assert_eq!(alter(&broker, &dirs.path(to), "t").await, ErrorCode::None, "it is under way");
    broker.kill().await;

    let broker = dirs.start(&[(THROTTLE, "20000")]).await;
    until("the move goes on", async || lag(&broker).await.is_some_and(|lag| (1..500).contains(&lag))).await;
    assert_all_there(&broker, &topic, 500).await;
    broker.stop().await;

    let broker = dirs.start(&[(THROTTLE, "20000")]).await;
    until("the move goes on", async || lag(&broker).await.is_some_and(|lag| (1..500).contains(&lag))).await;
    set_throttle(&broker, "9223372036854775807").await;
    dirs.until_moved(&broker, &topic, to).await;
    assert_all_there(&broker, &topic, 500).await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_are_refused_and_given_up() {
    let dirs = Dirs::new();
    let broker = dirs.start(&[(THROTTLE, "20000")]).await;
    let topic = Topic::create(&broker, "t", 1, &[]).await;
    for _ in 0..300 {
        assert_eq!(put(&broker, &topic, 1, batch(&[&value(0)])).await.error_code, 0);
    }
    let from = dirs.place(&broker, &topic).await;
    assert_eq!(alter(&broker, "/nowhere", "t").await, ErrorCode::LogDirNotFound);
    assert_eq!(alter(&broker, &dirs.path(0), "unknown").await, ErrorCode::UnknownTopicOrPartition);
    let too_long = "t".repeat(249);
    assert_eq!(alter(&broker, &dirs.path(0), &too_long).await, ErrorCode::InvalidTopicException);
    let has_copy = async || dirs.describe(&broker, &topic).await[1 - from].is_some();

    for round in 0..3 {
        assert_eq!(alter(&broker, &dirs.path(1 - from), "t").await, ErrorCode::None);
        assert!(has_copy().await, "round {round}");
        assert_eq!(alter(&broker, &dirs.path(from), "t").await, ErrorCode::None);
        assert!(!has_copy().await, "round {round}");
    }
    // A topic that is deleted takes its copy along.
    assert_eq!(alter(&broker, &dirs.path(1 - from), "t").await, ErrorCode::None);
    let request = DeleteTopicsRequest {
        topics: vec![delete_topics_request::DeleteTopicState {
            name: Some("t".to_owned()),
            ..Default::default()
        }],
        timeout_ms: 5000,
        ..Default::default()
    };
    assert_eq!(broker.ask(&request).await.responses[0].error_code, 0);
    until("both are gone", async || dirs.describe(&broker, &topic).await.iter().all(Option::is_none)).await;
    broker.stop().await;
}
