//! Produce requests that arrive together for the same partition: each has the answer that it would have
//! alone.

use crate::child::ChildBroker;
use crate::raw::Raw;
use crate::records::{Topic, batch, batch_at, get, produce, values};
use crate::running::RunningBroker;
use bytes::{Bytes, BytesMut};
use thalweg_record::{BatchOptions, Compression, ProducerEpoch, ProducerId};
use thalweg_wire::ErrorCode;
use thalweg_wire::frame::encode_request;
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::produce_response::PartitionProduceResponse;
use thalweg_wire::request::*;

/// Sends requests in one write, and returns the only entry of each answer.
async fn ask_at_once(
    raw: &mut Raw,
    version: i16,
    requests: &[ProduceRequest],
) -> Vec<PartitionProduceResponse> {
    let mut bytes = BytesMut::new();
    for (id, request) in (1000..).zip(requests) {
        bytes.extend_from_slice(&encode_request(request, version, id, Some("raw")).expect("it fits"));
    }
    raw.send_bytes(&bytes).await;
    let mut entries = Vec::new();
    for (id, _) in (1000..).zip(requests) {
        let answer = raw.answer::<ProduceRequest>(id, version).await.expect("an answer");
        entries.push(answer.responses[0].partition_responses[0].clone());
    }
    entries
}

fn idempotent(sequence: i32, value: &[u8]) -> Bytes {
    let options = BatchOptions {
        producer_id: ProducerId(77),
        producer_epoch: ProducerEpoch(0),
        base_sequence: sequence,
        ..BatchOptions::default()
    };
    batch_at(1_700_000_000_000, &[value], options)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_arrive_together_are_answered_each_for_itself() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &[("log.retention.ms", "-1")]).await;
    for version in [3, 8, 9, 12, 13] {
        let topic = Topic::create(&broker, &format!("topic-{version}"), 2, &[]).await;
        let mut raw = Raw::connect(&broker).await;
        let broken = {
            let mut broken = BytesMut::from(&batch(&[b"broken"])[..]);
            *broken.last_mut().expect("it has bytes") ^= 1;
            broken.freeze()
        };
        let gzip = BatchOptions { compression: Compression::Gzip, ..BatchOptions::default() };
        let put = |acks, records| produce(version, &topic, 0, acks, records);
        // A long record, whose length takes another byte.
        let long = [b'l'; 300];
        let requests = [
            put(1, batch(&[b"a"])),
            put(1, batch(&[b"b", b"c"])),
            put(1, broken),
            put(1, batch(&[&long])),
            put(-1, batch(&[b"d"])),
            put(1, batch_at(1_700_000_000_000, &[b"packed"], gzip)),
            put(1, idempotent(0, b"first")),
            put(1, idempotent(1, b"second")),
            put(1, idempotent(3, b"too early")),
            put(1, idempotent(1, b"second")),
            put(1, idempotent(2, b"third")),
            produce(version, &topic, 1, 1, batch(&[b"elsewhere"])),
            produce(version, &topic, 7, 1, batch(&[b"nowhere"])),
            put(1, batch(&[b"last"])),
        ];
        let entries = ask_at_once(&mut raw, version, &requests).await;
        let outcomes: Vec<(i16, i64)> =
            entries.iter().map(|entry| (entry.error_code, entry.base_offset)).collect();
        let expected = [
            (0, 0),
            (0, 1),
            (ErrorCode::CorruptMessage.code(), -1),
            (0, 3),
            (0, 4),
            (0, 5),
            (0, 6),
            (0, 7),
            (ErrorCode::OutOfOrderSequenceNumber.code(), -1),
            (0, 7),
            (0, 8),
            (0, 0),
            (ErrorCode::UnknownTopicOrPartition.code(), -1),
            (0, 9),
        ];
        assert_eq!(outcomes, expected, "version {version}");
        let stored = values(&get(&broker, &topic, 0).await);
        assert_eq!(stored.len(), 10, "version {version}: {stored:?}");
        assert_eq!((stored[3].0, &stored[3].1[..]), (3, &long[..]));
        assert_eq!((stored[9].0, &stored[9].1[..]), (9, &b"last"[..]));
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_arrive_together_share_a_write() {
    const ROUNDS: u64 = 200;
    const TOGETHER: usize = 5;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = ChildBroker::start(dir.path(), &[], None);
    let connection = broker.client().await;
    let create = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: "topic".to_owned(),
            num_partitions: 1,
            replication_factor: 1,
            ..Default::default()
        }],
        timeout_ms: 30_000,
        ..CreateTopicsRequest::default()
    };
    let created = connection.send(&create).await.expect("an answer").topics.remove(0);
    let topic = Topic { name: "topic".to_owned(), id: created.topic_id };
    let mut raw = Raw::connect_to(broker.address).await;
    let requests = vec![produce(13, &topic, 0, 1, batch(&[b"small"])); TOGETHER];
    // The partition is there, and its file is open.
    while ask_at_once(&mut raw, 13, &requests).await.iter().any(|entry| entry.error_code != 0) {}
    let before = broker.writes();
    for _ in 0..ROUNDS {
        let entries = ask_at_once(&mut raw, 13, &requests).await;
        let offsets: Vec<i64> = entries.iter().map(|entry| entry.base_offset).collect();
        assert!(offsets.is_sorted_by(|before, next| next - before == 1), "{offsets:?}");
    }
    // One to the file and one to the socket, and what the broker writes now and then.
    let writes = broker.writes() - before;
    assert!(writes < 3 * ROUNDS, "{writes} writes for {ROUNDS} times {TOGETHER} requests");
}
