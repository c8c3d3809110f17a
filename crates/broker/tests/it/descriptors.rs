//! A broker that may have few open files: topics are refused before anything else breaks, and connections
//! before topics.

use crate::child::ChildBroker;
use crate::records::Topic;
use crate::records::{batch, fetch, fetch_partition, produce};
use std::time::Duration;
use thalweg_dial::Connection;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::*;
use tokio::net::TcpStream;
use tokio::time::Instant;

const OPEN_FILES: u32 = 256;

async fn create(client: &Connection, name: &str, partitions: i32) -> Topic {
    let topic = CreatableTopic {
        name: name.to_owned(),
        num_partitions: partitions,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 5000, ..Default::default() };
    let created = client.send(&request).await.expect("an answer").topics.remove(0);
    assert_eq!(created.error_code, 0, "{:?}", created.error_message);
    Topic { name: name.to_owned(), id: created.topic_id }
}

/// The outcome of a record for a partition, once the broker knows the topic.
async fn written(client: &Connection, topic: &Topic, partition: i32) -> i16 {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let request = produce(9, topic, partition, -1, batch(&[b"value"]));
        let answer = client.send_at(&request, 9).await.expect("an answer");
        let code = answer.responses[0].partition_responses[0].error_code;
        let is_early = code == ErrorCode::UnknownTopicOrPartition.code();
        if !is_early || Instant::now() > deadline {
            return code;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn end_offset(client: &Connection, topic: &Topic, partition: i32) -> i64 {
    let request = fetch(12, topic, vec![fetch_partition(partition, 0)]);
    let answer = client.send_at(&request, 12).await.expect("an answer");
    let data = &answer.responses[0].partitions[0];
    assert_eq!(data.error_code, 0);
    data.high_watermark
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_are_refused_when_descriptors_run_out() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let properties =
        [("log.segment.bytes", "1048576"), ("replica.high.watermark.checkpoint.interval.ms", "200")];
    let mut broker = ChildBroker::start(dir.path(), &properties, Some(OPEN_FILES));
    let client = broker.client().await;
    let mut accepted = Vec::new();
    let mut refused = None;
    for number in 0..60 {
        let topic = create(&client, &format!("topic-{number}"), 8).await;
        for partition in 0..8 {
            match written(&client, &topic, partition).await {
                0 => accepted.push((topic.clone(), partition)),
                code => refused = Some((topic.clone(), partition, code)),
            }
        }
        if refused.is_some() {
            break;
        }
    }
    let (topic, partition, code) = refused.expect("480 partitions are more than 256 descriptors allow");
    assert_eq!(code, ErrorCode::KafkaStorageError.code());
    assert!(accepted.len() >= 64, "{} partitions were accepted, too few", accepted.len());
    // Connections cannot take the rest either.
    let mut connections = Vec::new();
    for _ in 0..2 * OPEN_FILES {
        connections.push(TcpStream::connect(broker.address).await.expect("the kernel accepts it"));
    }
    // Checkpoints are written meanwhile, and segments roll.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(broker.is_alive(), "the process goes on");
    let (first, value) = (&accepted[0], vec![7; 500_000]);
    for _ in 0..6 {
        let request = produce(9, &first.0, first.1, -1, batch(&[&value]));
        let answer = client.send_at(&request, 9).await.expect("an answer");
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 0, "a segment rolls");
    }
    for (topic, partition) in &accepted {
        assert_eq!(written(&client, topic, *partition).await, 0, "what was there is served");
    }
    drop(connections);
    broker.stop();

    let broker = ChildBroker::start(dir.path(), &properties, Some(OPEN_FILES));
    let client = broker.client().await;
    for (topic, partition) in &accepted[1..] {
        assert_eq!(end_offset(&client, topic, *partition).await, 2, "{} {partition}", topic.name);
    }
    broker.stop();
    // With more descriptors, the refused partitions are opened.
    let broker = ChildBroker::start(dir.path(), &properties, Some(4 * OPEN_FILES));
    let client = broker.client().await;
    assert_eq!(written(&client, &topic, partition).await, 0);
    broker.stop();
}
