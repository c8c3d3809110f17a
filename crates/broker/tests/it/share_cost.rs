//! A share group with a million acquired records, none of them acknowledged: its memory, and how soon it is
//! served again after `kill -9`.

use crate::child::ChildBroker;
use crate::records::{Topic, batch, produce};
use std::path::Path;
use std::time::Duration;
use thalweg_dial::Connection;
use thalweg_wire::request::share_acknowledge_request::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch,
};
use thalweg_wire::request::share_fetch_request::{FetchPartition, FetchTopic};
use thalweg_wire::request::*;
use thalweg_wire::request::{create_topics_request, initialize_share_group_state_request as initialize};
use tokio::time::Instant;

const GROUP: &str = "hoarders";
const PARTITIONS: i32 = 100;
/// The most that a share partition may have in flight.
const RECORDS_EACH: i64 = 10_000;
const RECORDS: i64 = RECORDS_EACH * PARTITIONS as i64;
/// See `crates/share/src/run.rs`: what a record costs that is a separate run.
const BYTES_EACH: u64 = 112;
/// What serving them takes besides: requests and answers of megabytes, and what the allocator keeps of them.
const SLACK: u64 = 96 << 20;
const RESTART_MAX: Duration = Duration::from_secs(1);
const ACCEPT: i8 = 1;
const RENEW: i8 = 4;

const PROPERTIES: &[(&str, &str)] = &[
    ("share.coordinator.state.topic.num.partitions", "4"),
    ("group.share.max.partition.max.record.locks", "10000"),
    ("group.share.partition.max.record.locks", "10000"),
    ("group.share.max.record.lock.duration.ms", "3600000"),
    ("group.share.record.lock.duration.ms", "3600000"),
];

/// The only member, on one connection.
struct Member {
    connection: Connection,
    topic: Topic,
    epoch: i32,
}

impl Member {
    /// Acquires until it has so many records. Returns how many it has.
    async fn acquire(&mut self, wanted: i64) -> i64 {
        let mut acquired = 0;
        while acquired < wanted {
            let all = (0..PARTITIONS)
                .map(|partition_index| FetchPartition { partition_index, ..FetchPartition::default() });
            let partitions = if self.epoch == 0 { all.collect() } else { Vec::new() };
            let request = ShareFetchRequest {
                group_id: Some(GROUP.to_owned()),
                member_id: Some("member".to_owned()),
                share_session_epoch: self.epoch,
                max_wait_ms: 500,
                min_bytes: 1,
                max_bytes: 50 << 20,
                max_records: i32::MAX,
                batch_size: 500,
                topics: vec![FetchTopic { topic_id: self.topic.id, partitions }],
                ..ShareFetchRequest::default()
            };
            let answer = self.connection.send(&request).await.expect("an answer");
            assert_eq!(answer.error_code, 0, "{answer:?}");
            self.epoch += 1;
            let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
            let runs = partitions.flat_map(|partition| {
                assert!(matches!(partition.error_code, 0 | 15), "{}", partition.error_code);
                &partition.acquired_records
            });
            acquired += runs.map(|run| run.last_offset - run.first_offset + 1).sum::<i64>();
        }
        acquired
    }

    /// Acknowledges every second record with this type.
    async fn acknowledge(&mut self, kind: i8) {
        for partition_index in 0..PARTITIONS {
            let offsets = (1..RECORDS_EACH).step_by(2);
            let batches = offsets.map(|offset| AcknowledgementBatch {
                first_offset: offset,
                last_offset: offset,
                acknowledge_types: vec![kind],
            });
            let acknowledgement_batches = batches.collect();
            let partition = AcknowledgePartition { partition_index, acknowledgement_batches };
            let topic = AcknowledgeTopic { topic_id: self.topic.id, partitions: vec![partition] };
            let request = ShareAcknowledgeRequest {
                group_id: Some(GROUP.to_owned()),
                member_id: Some("member".to_owned()),
                share_session_epoch: self.epoch,
                is_renew_ack: kind == RENEW,
                topics: vec![topic],
            };
            let answer = self.connection.send(&request).await.expect("an answer");
            assert_eq!((answer.error_code, answer.responses[0].partitions[0].error_code), (0, 0));
            self.epoch += 1;
        }
    }
}

/// A topic with so many records in each partition, and a group that reads it from its beginning.
async fn prepare(connection: &Connection) -> Topic {
    let create = CreateTopicsRequest {
        topics: vec![create_topics_request::CreatableTopic {
            name: "hoard".to_owned(),
            num_partitions: PARTITIONS,
            replication_factor: 1,
            ..Default::default()
        }],
        timeout_ms: 30_000,
        ..CreateTopicsRequest::default()
    };
    let created = connection.send(&create).await.expect("an answer").topics.remove(0);
    assert_eq!(created.error_code, 0, "{created:?}");
    let topic = Topic { name: "hoard".to_owned(), id: created.topic_id };
    let records = batch(&vec![&b"some value of a few bytes"[..]; 1000]);
    for partition in 0..PARTITIONS {
        for _ in 0..RECORDS_EACH / 1000 {
            let request = produce(13, &topic, partition, 1, records.clone());
            let answer = connection.send(&request).await.expect("an answer");
            assert_eq!(answer.responses[0].partition_responses[0].error_code, 0, "{answer:?}");
        }
    }
    for partition in 0..PARTITIONS {
        let key = format!("{GROUP}:{}:{partition}", topic.id);
        let find = FindCoordinatorRequest { key_type: 2, coordinator_keys: vec![key], ..Default::default() };
        let data = initialize::PartitionData { partition, state_epoch: 0, start_offset: 0 };
        let of_topic = initialize::InitializeStateData { topic_id: topic.id, partitions: vec![data] };
        let request = InitializeShareGroupStateRequest { group_id: GROUP.to_owned(), topics: vec![of_topic] };
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            connection.send(&find).await.expect("an answer");
            let answer = connection.send(&request).await.expect("an answer");
            let code = answer.results[0].partitions[0].error_code;
            if code == 0 {
                break;
            }
            assert!(Instant::now() < deadline, "{code} after 30 s");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    topic
}

/// Starts it on its data; returns how long it took until the group had so many records again.
async fn restart(dir: &Path, topic: &Topic, records: i64) -> (ChildBroker, Duration) {
    let began = Instant::now();
    let broker = ChildBroker::start(dir, PROPERTIES, None);
    let topic = Topic { name: topic.name.clone(), id: topic.id };
    let mut member = Member { connection: broker.client().await, topic, epoch: 0 };
    let some = member.acquire(1).await;
    let first = began.elapsed();
    assert_eq!(some + member.acquire(records - some).await, records, "each once");
    (broker, first)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a million records, and it measures: cargo test --release -p thalweg-broker --test it -- --ignored a_million_acquired"]
#[expect(clippy::print_stdout, reason = "the figures")]
async fn a_million_acquired_records_cost_no_more_than_they_may() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = ChildBroker::start(dir.path(), PROPERTIES, None);
    let connection = broker.client().await;
    let topic = prepare(&connection).await;
    let before = broker.memory("VmRSS");
    let grown = |broker: &ChildBroker| broker.memory("VmRSS").saturating_sub(before);
    let mut member = Member { connection, topic, epoch: 0 };
    assert_eq!(member.acquire(RECORDS).await, RECORDS);
    let acquired = grown(&broker);
    // Each record becomes a run: its neighbours are locked until another millisecond.
    member.acknowledge(RENEW).await;
    let renewed = grown(&broker);
    println!("a million acquired records: {} MiB; each a run: {} MiB", acquired >> 20, renewed >> 20);
    let bound = BYTES_EACH * RECORDS.unsigned_abs() + SLACK;
    assert!(renewed < bound, "{renewed} bytes, and {bound} are allowed");
    drop(broker);

    let (broker, first) = restart(dir.path(), &member.topic, RECORDS).await;
    println!("served again {first:?} after the start");
    drop(broker);
    // The states of the share coordinator are as large as they can be: every second record is accepted.
    let broker = ChildBroker::start(dir.path(), PROPERTIES, None);
    member.connection = broker.client().await;
    member.epoch = 0;
    member.acquire(RECORDS).await;
    let began = Instant::now();
    member.acknowledge(ACCEPT).await;
    println!("half of them accepted one by one in {:?}: {} MiB", began.elapsed(), grown(&broker) >> 20);
    drop(broker);
    let (_broker, largest) = restart(dir.path(), &member.topic, RECORDS / 2).await;
    println!("served again {largest:?} after the start, with half a million states");
    assert!(first.max(largest) < RESTART_MAX, "{first:?}, {largest:?}");
}
