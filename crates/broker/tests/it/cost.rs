//! The cost of a request: no API's time grows faster than its request, whatever its content, and no other
//! client has to wait. Covers the table of served APIs by their schema, so new ones are included
//! automatically.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "real time is what is measured, and printed on request"
)]

#[path = "../../../wire/tests/support/growth.rs"]
mod growth;
#[path = "../../../wire/tests/support/largest.rs"]
mod largest;

use crate::records::Topic;
use crate::running::RunningBroker;
use growth::{FEW, Growth, MANY};
use largest::{NAMINGS, Naming, Schema, Values};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thalweg_broker::api::all_served;
use thalweg_wire::ApiKey;
use thalweg_wire::frame::encode_request;
use thalweg_wire::request::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use thalweg_wire::request::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A broker in which the names that requests have exist.
async fn broker(dir: &tempfile::TempDir) -> (RunningBroker, Topic) {
    let properties = [
        ("auto.create.topics.enable", "false"),
        ("group.initial.rebalance.delay.ms", "0"),
        ("transaction.partition.verification.enable", "false"),
        ("transaction.state.log.num.partitions", "1"),
    ];
    let broker = RunningBroker::start(dir.path(), &properties).await;
    let topic = Topic::create(&broker, "t", 4, &[]).await;
    for key_type in [0, 1] {
        let coordinator_keys = vec!["g".to_owned()];
        broker.ask(&FindCoordinatorRequest { key_type, coordinator_keys, ..Default::default() }).await;
    }
    let commit = OffsetCommitRequest {
        group_id: "g".to_owned(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: "t".to_owned(),
            partitions: vec![OffsetCommitRequestPartition { committed_offset: 1, ..Default::default() }],
            ..Default::default()
        }],
        ..Default::default()
    };
    loop {
        let answer = broker.ask_at(&commit, 8).await;
        if answer.topics[0].partitions[0].error_code == 0 {
            return (broker, topic);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Field values with which requests pass their first checks.
fn values(topic: &Topic) -> Values {
    let strings = [
        ("", "t"),
        ("GroupId", "=g"),
        ("GroupsNames", "absent"),
        ("MemberId", "absent"),
        ("TransactionalId", "=g"),
        ("ClusterId", "=t"),
        ("EntityType", "=user"),
        ("Key", "producer_byte_rate"),
        ("ProtocolType", "=consumer"),
        ("StatesFilter", "Stable"),
        ("StateFilters", "Ongoing"),
        ("Feature", "eligible.leader.replicas.version"),
    ];
    let numbers = [
        ("Acks", 1),
        ("TimeoutMs", 1000),
        ("SessionTimeoutMs", 10_000),
        ("RebalanceTimeoutMs", 10_000),
        ("MaxWaitMs", 0),
        ("SessionEpoch", 0),
        ("ReplicaId", -1),
        ("GenerationId", -1),
        ("GenerationIdOrMemberEpoch", -1),
        ("NumPartitions", 1),
        ("ReplicationFactor", 1),
        ("ResourceType", 2),
        ("ResourceTypes", 2),
        ("BrokerId", 4242),
        ("VoterId", 4242),
        ("MaxVersionLevel", 1),
        ("PartitionMaxBytes", 1024),
        ("ResponsePartitionLimit", 2000),
        ("DurationFilter", -1),
    ];
    let numbers_of = [(("AlterPartitionReassignmentsRequest", "Replicas"), 1)];
    Values {
        strings: strings.into_iter().map(|(field, text)| (field, text.to_owned())).collect(),
        numbers: HashMap::from(numbers),
        numbers_of: HashMap::from(numbers_of),
        counted: Vec::new(),
        uuid: topic.id.0,
    }
}

/// Sends a frame, and returns the time and the length of the answer; the broker may close the connection
/// instead.
async fn time(
    stream: &mut Option<TcpStream>,
    broker: &RunningBroker,
    frame: &[u8],
) -> (Duration, Option<usize>) {
    let mut connection = match stream.take() {
        Some(connection) => connection,
        None => {
            let connection = TcpStream::connect(broker.server().addresses[0].1[0]).await.expect("it listens");
            connection.set_nodelay(true).expect("a TCP connection");
            connection
        }
    };
    let started = Instant::now();
    if connection.write_all(frame).await.is_err() {
        return (started.elapsed(), None);
    }
    let answer = async {
        let length = connection.read_i32().await.ok()?;
        let length = usize::try_from(length).expect("a length");
        let mut left = length;
        let mut buffer = vec![0; left.min(1 << 20)];
        while left > 0 {
            let most = left.min(buffer.len());
            left -= connection.read(&mut buffer[..most]).await.ok().filter(|read| *read > 0)?;
        }
        Some(length)
    };
    let answered =
        tokio::time::timeout(Duration::from_secs(120), answer).await.expect("an answer in two minutes");
    let took = started.elapsed();
    if answered.is_some() {
        *stream = Some(connection);
    }
    (took, answered)
}

/// Each shape that the longest request of an API can have.
fn shapes(schema: &Schema, versions: [i16; 2]) -> Vec<(i16, Vec<String>, Naming)> {
    let mut versions = versions.to_vec();
    versions.dedup();
    let mut shapes = Vec::new();
    for version in versions {
        for path in schema.arrays(version) {
            shapes.extend(NAMINGS.map(|naming| (version, path.clone(), naming)));
        }
    }
    shapes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it compares times: alone, in the nightly form of scripts/test"]
async fn no_request_costs_more_than_its_size() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (broker, topic) = broker(&dir).await;
    let (schemas, values) = (largest::schemas(), values(&topic));
    let mut growth = Growth::default();
    let mut stream = None;
    for api in all_served() {
        let schema = &schemas[&(api.key as i16)];
        for (version, path, naming) in shapes(schema, [api.min, api.max]) {
            let frame = |count| schema.frame(version, &path, count, naming, &values);
            let shape = format!("{:?} version {version}, {} {naming:?}", api.key, path.join("."));
            let time = async |frame: &[u8]| time(&mut stream, &broker, frame).await.0;
            growth.compare(&shape, &frame(FEW), &frame(MANY), time).await;
        }
    }
    growth.assert_linear();
    broker.stop().await;
}

/// Pings on a separate connection, and returns the longest wait at its end.
struct Pinger {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Duration>,
}

impl Pinger {
    fn start(address: std::net::SocketAddr) -> Pinger {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        // A thread, so that the test's own work is not measured.
        let thread = std::thread::spawn(move || {
            let mut stream = std::net::TcpStream::connect(address).expect("it listens");
            stream.set_nodelay(true).expect("a TCP connection");
            let ping = encode_request(&ApiVersionsRequest::default(), 0, 1, None).expect("it fits");
            let (mut longest, mut answer) = (Duration::ZERO, vec![0; 4096]);
            while !stopped.load(Ordering::Relaxed) {
                let sent = Instant::now();
                stream.write_all(&ping).expect("the broker reads");
                let mut length = [0; 4];
                stream.read_exact(&mut length).expect("an answer");
                let length = u32::from_be_bytes(length) as usize;
                stream.read_exact(&mut answer[..length]).expect("the rest of it");
                longest = longest.max(sent.elapsed());
                std::thread::sleep(Duration::from_millis(1));
            }
            longest
        });
        Pinger { stop, thread }
    }

    fn stop(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the broker answers pings")
    }
}

/// Number of tries before a ping counts as delayed by the request.
const TRIES: usize = 4;

/// How many elements the requests have during which others are served, and how long these may wait then.
/// Without optimisation, or beside other tests, the same takes many times as long.
const LONGEST: (usize, Duration) = if cfg!(debug_assertions) {
    (MANY, Duration::from_millis(1_000))
} else {
    (500_000, Duration::from_millis(100))
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it compares times: alone, in the nightly form of scripts/test"]
async fn nobody_waits_for_a_long_request_of_another() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (broker, topic) = broker(&dir).await;
    let (schemas, values) = (largest::schemas(), values(&topic));
    let (elements, patience) = LONGEST;
    let mut late = Vec::new();
    let mut streams = [None, None, None];
    for api in all_served() {
        let schema = &schemas[&(api.key as i16)];
        for (version, path, naming) in shapes(schema, [api.max, api.max]) {
            let frame = schema.frame(version, &path, elements, naming, &values);
            let shape = format!("{:?} version {version}, {} {naming:?}", api.key, path.join("."));
            let mut waited = Duration::MAX;
            for _ in 0..TRIES {
                let pinger = Pinger::start(broker.server().addresses[0].1[0]);
                let [one, two, three] = &mut streams;
                // As many at once as there are workers, and one more.
                let answers = tokio::join!(
                    time(one, &broker, &frame),
                    time(two, &broker, &frame),
                    time(three, &broker, &frame)
                );
                waited = waited.min(pinger.stop());
                if std::env::var_os("COST_TABLE").is_some() {
                    eprintln!("{shape}: {} bytes took {:?}, pings {waited:?}", frame.len(), answers.0);
                }
                if waited <= patience {
                    break;
                }
            }
            if waited > patience {
                late.push(format!("{shape}: {waited:?}"));
            }
        }
    }
    assert!(late.is_empty(), "a ping waited for the request of another:\n{}", late.join("\n"));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_do_not_repeat_what_a_request_repeats() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (broker, topic) = broker(&dir).await;
    let mut values = values(&topic);
    // A resource of a configuration is named with its keys, and all of them where there are none.
    values.strings.insert("GroupsNames", "g".to_owned());
    let schemas = largest::schemas();
    let mut stream = None;
    let apis = [
        (ApiKey::Metadata, 12, "Topics"),
        (ApiKey::Metadata, 9, "Topics"),
        (ApiKey::DescribeConfigs, 4, "Resources"),
        (ApiKey::DescribeGroups, 5, "Groups"),
        (ApiKey::DescribeProducers, 0, "Topics.PartitionIndexes"),
        (ApiKey::DescribeLogDirs, 4, "Topics"),
        (ApiKey::DescribeTopicPartitions, 0, "Topics"),
        (ApiKey::OffsetFetch, 9, "Groups.Topics.PartitionIndexes"),
        (ApiKey::Fetch, 12, "Topics.Partitions"),
        (ApiKey::CreatePartitions, 3, "Topics"),
        (ApiKey::ListOffsets, 11, "Topics"),
        (ApiKey::ListOffsets, 11, "Topics.Partitions"),
        (ApiKey::DeleteRecords, 2, "Topics.Partitions"),
    ];
    for (key, version, path) in apis {
        let path: Vec<String> = path.split('.').map(str::to_owned).collect();
        let mut lengths = Vec::new();
        for count in [2, 5_000] {
            let frame = schemas[&(key as i16)].frame(version, &path, count, Naming::Repeated, &values);
            lengths.push(time(&mut stream, &broker, &frame).await.1.expect("an answer"));
        }
        assert!(lengths[1] <= lengths[0] + 64, "{key:?} {}: {lengths:?} bytes", path.join("."));
    }
    broker.stop().await;
}
