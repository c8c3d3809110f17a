//! Connections: answers in the order of the requests, frames in pieces, limits, idleness, and the end of the
//! broker while its clients are at work.

use crate::raw::Raw;
use crate::records::{Topic, batch, fetch, fetch_partition, produce};
use crate::running::{RunningBroker, configuration};
use bytes::Bytes;
use std::time::Duration;
use thalweg_metadata::PartitionIndex;
use thalweg_wire::ErrorCode;
use thalweg_wire::frame::encode_request;
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;
use thalweg_wire::request::join_group_request::JoinGroupRequestProtocol;
use thalweg_wire::request::*;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

fn data() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A fetch that waits for a megabyte.
fn long_poll(topic: &Topic, partition: i32, wait: Duration) -> FetchRequest {
    let max_wait_ms = i32::try_from(wait.as_millis()).expect("a short time");
    FetchRequest { max_wait_ms, min_bytes: 1 << 20, ..fetch(12, topic, vec![fetch_partition(partition, 0)]) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_leave_in_the_order_of_the_requests_slow_ones_too() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[("log.flush.interval.messages", "1")]).await;
    let topic = Topic::create(&broker, "topic", 3, &[]).await;
    let mut raw = Raw::connect(&broker).await;
    let started = Instant::now();
    // The acknowledged ones wait for the disk, the fetches for records that never arrive.
    let first = raw.send(&produce(12, &topic, 0, -1, batch(&[b"a"])), 12).await;
    let slow = raw.send(&long_poll(&topic, 1, Duration::from_millis(200)), 12).await;
    let unanswered = raw.send(&produce(12, &topic, 1, 0, batch(&[b"b"])), 12).await;
    let second = raw.send(&produce(12, &topic, 1, 1, batch(&[b"c"])), 12).await;
    let metadata = raw.send(&MetadataRequest::default(), 12).await;
    let slow_again = raw.send(&long_poll(&topic, 2, Duration::from_millis(100)), 12).await;
    let versions = raw.send(&ApiVersionsRequest::default(), 0).await;
    assert!(unanswered < second);

    let offset = |answer: Option<ProduceResponse>| {
        answer.expect("an answer").responses[0].partition_responses[0].base_offset
    };
    assert_eq!(offset(raw.answer::<ProduceRequest>(first, 12).await), 0);
    let empty = raw.answer::<FetchRequest>(slow, 12).await.expect("an answer");
    assert_eq!(
        empty.responses[0].partitions[0].high_watermark, 0,
        "what is sent behind a fetch comes behind it"
    );
    assert!(started.elapsed() >= Duration::from_millis(200), "the fetch waited");
    assert_eq!(offset(raw.answer::<ProduceRequest>(second, 12).await), 1, "behind the one without an answer");
    assert!(raw.answer::<MetadataRequest>(metadata, 12).await.is_some());
    assert!(raw.answer::<FetchRequest>(slow_again, 12).await.is_some());
    assert!(raw.answer::<ApiVersionsRequest>(versions, 0).await.is_some());
    assert!(started.elapsed() >= Duration::from_millis(300), "the second fetch waited as well");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_requests_in_one_write_are_served_one_after_another() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[]).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let mut raw = Raw::connect(&broker).await;
    let mut all = Vec::new();
    for id in 0..500 {
        all.extend_from_slice(
            &encode_request(&produce(9, &topic, 0, -1, batch(&[b"x"])), 9, id, None).expect("fits"),
        );
    }
    raw.send_bytes(&all).await;
    for id in 0..500 {
        let answer = raw.answer::<ProduceRequest>(id, 9).await.expect("an answer");
        assert_eq!(answer.responses[0].partition_responses[0].base_offset, i64::from(id));
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_may_come_in_pieces() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[]).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let mut raw = Raw::connect(&broker).await;
    let frame =
        encode_request(&produce(9, &topic, 0, 1, batch(&[b"piece by piece"])), 9, 1, None).expect("fits");
    for byte in &frame {
        raw.send_bytes(&[*byte]).await;
    }
    assert!(raw.answer::<ProduceRequest>(1, 9).await.is_some());

    // Halves of two frames in one write.
    let (end, next) = (frame.len() / 2, frame.len() / 3);
    raw.send_bytes(&frame[..end]).await;
    raw.send_bytes(&[&frame[end..], &frame[..next]].concat()).await;
    assert!(raw.answer::<ProduceRequest>(1, 9).await.is_some());
    raw.send_bytes(&frame[next..]).await;
    let answer = raw.answer::<ProduceRequest>(1, 9).await.expect("an answer");
    assert_eq!(answer.responses[0].partition_responses[0].base_offset, 2);

    // A large batch, in pieces of a kilobyte.
    let value = vec![b'v'; 900_000];
    let large = encode_request(&produce(9, &topic, 0, 1, batch(&[&value])), 9, 2, None).expect("fits");
    for piece in large.chunks(64 * 1024) {
        raw.send_bytes(piece).await;
    }
    assert!(raw.answer::<ProduceRequest>(2, 9).await.is_some());

    // A client that disconnects in the middle leaves nothing behind.
    raw.send_bytes(&frame[..end]).await;
    drop(raw);
    let mut other = Raw::connect(&broker).await;
    other.send_bytes(&frame).await;
    let answer = other.answer::<ProduceRequest>(1, 9).await.expect("an answer");
    assert_eq!(answer.responses[0].partition_responses[0].base_offset, 4);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_that_is_no_frame_closes_its_connection_only() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[("socket.request.max.bytes", "5000")]).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let soon = Duration::from_secs(30);
    for length in [5001, i32::MAX, -1, i32::MIN, 0, 1, 7] {
        let mut raw = Raw::connect(&broker).await;
        raw.send_bytes(&length.to_be_bytes()).await;
        raw.send_bytes(&[0; 7]).await;
        assert!(raw.is_closed_within(soon).await, "a length of {length}");
    }
    // Every request truncated, with a matching length.
    let whole =
        encode_request(&produce(9, &topic, 0, 1, batch(&[b"x"])), 9, 1, None).expect("fits").slice(4..);
    for length in 0..whole.len() - 1 {
        let mut raw = Raw::connect(&broker).await;
        raw.send_bytes(&u32::try_from(length).expect("short").to_be_bytes()).await;
        raw.send_bytes(&whole[..length]).await;
        assert!(raw.is_closed_within(soon).await, "cut at {length}");
    }
    // A count of two thousand millions costs nothing but the connection.
    let mut raw = Raw::connect(&broker).await;
    let mut metadata = vec![0, 3, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
    metadata.extend_from_slice(&i32::MAX.to_be_bytes());
    raw.send_bytes(&u32::try_from(metadata.len()).expect("short").to_be_bytes()).await;
    raw.send_bytes(&metadata).await;
    assert!(raw.is_closed_within(soon).await);

    let mut raw = Raw::connect(&broker).await;
    let answer = raw.ask(&produce(9, &topic, 0, 1, batch(&[&[b'x'; 4800]])), 9).await.expect("an answer");
    assert_eq!(answer.responses[0].partition_responses[0].base_offset, 0, "nothing of it was appended");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_connection_is_closed_and_a_busy_one_is_not() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[("connections.max.idle.ms", "500")]).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let (mut quiet, mut half, mut busy) =
        (Raw::connect(&broker).await, Raw::connect(&broker).await, Raw::connect(&broker).await);
    half.send_bytes(&[0, 0, 0, 50, 0]).await;
    let mut waiting = Raw::connect(&broker).await;
    let id = waiting.send(&long_poll(&topic, 0, Duration::from_millis(1200)), 12).await;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(busy.ask(&ApiVersionsRequest::default(), 0).await.is_some());
    }
    assert!(quiet.is_closed_within(Duration::from_millis(50)).await);
    assert!(half.is_closed_within(Duration::from_millis(50)).await);
    assert!(waiting.answer::<FetchRequest>(id, 12).await.is_some(), "whoever is waited for is not idle");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_have_a_limit_of_an_address_and_in_all() {
    for name in ["max.connections.per.ip", "max.connections"] {
        let dir = data();
        // One is the connection of the test's own broker.
        let broker = RunningBroker::start(dir.path(), &[(name, "3")]).await;
        let mut held = vec![Raw::connect(&broker).await, Raw::connect(&broker).await];
        for raw in &mut held {
            assert!(raw.ask(&ApiVersionsRequest::default(), 0).await.is_some());
        }
        let mut more = Raw::connect(&broker).await;
        if name == "max.connections" {
            let id = more.send(&ApiVersionsRequest::default(), 0).await;
            assert!(!more.is_closed_within(Duration::from_millis(200)).await, "it waits");
            held.pop();
            assert!(more.answer::<ApiVersionsRequest>(id, 0).await.is_some(), "a place is given back");
        } else {
            let soon = Duration::from_secs(30);
            assert!(more.is_closed_within(soon).await, "an address may not keep others out");
            held.pop();
            let deadline = Instant::now() + soon;
            while Raw::connect(&broker).await.is_closed_within(Duration::from_millis(50)).await {
                assert!(Instant::now() < deadline, "a place is given back");
            }
        }
        broker.stop().await;
    }
}

fn join(member_id: &str) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: "group".to_owned(),
        session_timeout_ms: 60_000,
        rebalance_timeout_ms: 60_000,
        member_id: member_id.to_owned(),
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".to_owned(), metadata: Bytes::new() }],
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_broker_stops_soon_whatever_its_clients_wait_for() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[("group.initial.rebalance.delay.ms", "0")]).await;
    let topic = Topic::create(&broker, "topic", 2, &[]).await;
    broker
        .ask(&FindCoordinatorRequest { coordinator_keys: vec!["group".to_owned()], ..Default::default() })
        .await;
    // A member that does not return makes the second one wait for a minute.
    let mut members = [Raw::connect(&broker).await, Raw::connect(&broker).await];
    let joined = loop {
        let answer = members[0].ask(&join(""), 3).await.expect("an answer");
        if answer.error_code != ErrorCode::CoordinatorLoadInProgress.code() {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(joined.error_code, 0);
    members[1].send(&join(""), 3).await;
    let mut polling = Raw::connect(&broker).await;
    let poll = polling.send(&long_poll(&topic, 0, Duration::from_secs(60)), 12).await;
    let mut half = Raw::connect(&broker).await;
    half.send_bytes(&[0, 0, 0, 50, 0]).await;
    let mut deaf = Raw::connect(&broker).await;
    let many = vec![DescribeConfigsResource {
        resource_type: 2,
        resource_name: "topic".to_owned(),
        ..Default::default()
    }];
    let describe =
        DescribeConfigsRequest { resources: many, include_synonyms: true, include_documentation: true };
    for _ in 0..2000 {
        deaf.send(&describe, 4).await;
    }
    let mut busy = Raw::connect(&broker).await;
    let producer = tokio::spawn({
        let topic = topic.clone();
        async move {
            let mut acknowledged = 0;
            while let Some(answer) = busy.ask(&produce(12, &topic, 1, -1, batch(&[b"x"])), 12).await {
                if answer.responses[0].partition_responses[0].error_code != 0 {
                    break;
                }
                acknowledged += 1;
            }
            acknowledged
        }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;

    let started = Instant::now();
    broker.stop().await;
    assert!(started.elapsed() < Duration::from_secs(30), "it took {:?}", started.elapsed());
    let acknowledged = producer.await.expect("no panic");
    assert!(acknowledged > 0);
    // Whatever the poll's answer is, it arrives at once.
    if let Some(answer) = polling.answer::<FetchRequest>(poll, 12).await {
        assert_eq!(answer.error_code, 0);
    }
    let again = RunningBroker::start(dir.path(), &[]).await;
    let partition = again.server().broker.partitions.get("topic", PartitionIndex(1)).expect("it is there");
    let end = partition.published_offsets().log_end_offset();
    assert!(end.0 >= acknowledged, "{acknowledged} were acknowledged, {end:?} are there");
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_that_never_pauses_does_not_hold_up_the_end() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[]).await;
    let (mut answers, mut requests) = Raw::connect(&broker).await.stream.into_split();
    let request = encode_request(&ApiVersionsRequest::default(), 0, 1, Some("hurried"));
    let many = request.expect("it can be encoded").repeat(100);
    let sent = tokio::spawn(async move { while requests.write_all(&many).await.is_ok() {} });
    let read = tokio::spawn(async move { tokio::io::copy(&mut answers, &mut tokio::io::sink()).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!sent.is_finished() && !read.is_finished(), "the client is served");
    let stopped = tokio::time::timeout(Duration::from_secs(30), broker.stop()).await;
    assert!(stopped.is_ok(), "the broker stops while the client goes on");
    sent.await.expect("the connection was closed");
}

#[tokio::test]
async fn unknown_hosts_of_limits_are_refused_at_the_start() {
    let dir = data();
    let overrides = [("max.connections.per.ip.overrides", "127.0.0.1:5,unknown.invalid:7")];
    let refused = thalweg_broker::start(configuration(dir.path(), &overrides)).await;
    let refused = refused.err().expect("a host that is unknown").to_string();
    assert!(refused.contains("max.connections.per.ip.overrides=unknown.invalid:7 is invalid"), "{refused}");
}
