//! A broker that stops while in use, without a controlled shutdown (`controlled.shutdown.enable=false`), so
//! that it leads its partitions to the end: acknowledged records exist afterwards, and requests during the
//! closing of logs are refused.

use crate::raw::Raw;
use crate::records::{Topic, batch, fetch, fetch_partition, get, produce, put, values};
use crate::running::RunningBroker;
use bytes::{Bytes, BytesMut};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use thalweg_broker::api::ApiHandler;
use thalweg_broker::authentication::Session;
use thalweg_net::{FrameSegment, Handler, Reply};
use thalweg_wire::frame::{LENGTH_LEN, decode_response, encode_request};
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use thalweg_wire::request::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use thalweg_wire::request::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Request};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Answers that every client must have had before the broker is stopped.
const ANSWERS_MIN: usize = 20;

async fn start(dir: &Path) -> RunningBroker {
    let properties = [
        ("controlled.shutdown.enable", "false"),
        ("group.initial.rebalance.delay.ms", "0"),
        ("log.retention.ms", "-1"),
    ];
    RunningBroker::start(dir, &properties).await
}

fn create(name: &str) -> CreateTopicsRequest {
    let topic = CreatableTopic {
        name: name.to_owned(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    CreateTopicsRequest { topics: vec![topic], timeout_ms: 5000, ..Default::default() }
}

fn delete_records(topic: &Topic, offset: i64) -> DeleteRecordsRequest {
    let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset }];
    let topics = vec![DeleteRecordsTopic { name: topic.name.clone(), partitions }];
    DeleteRecordsRequest { topics, timeout_ms: 5000 }
}

fn commit(topic: &Topic, offset: i64) -> OffsetCommitRequest {
    let partitions = vec![OffsetCommitRequestPartition { committed_offset: offset, ..Default::default() }];
    let topic = OffsetCommitRequestTopic { topic_id: topic.id, partitions, ..Default::default() };
    OffsetCommitRequest {
        group_id: "group".to_owned(),
        generation_id_or_member_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    }
}

/// The group's coordinator, found and loaded.
async fn load_group(broker: &RunningBroker, topic: &Topic) {
    let keys = vec!["group".to_owned()];
    broker.ask(&FindCoordinatorRequest { coordinator_keys: keys, ..Default::default() }).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    while broker.ask(&commit(topic, 0)).await.topics[0].partitions[0].error_code != 0 {
        assert!(Instant::now() < deadline, "the coordinator does not come up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The offset that the group has committed.
async fn committed(broker: &RunningBroker, topic: &Topic) -> i64 {
    let topics =
        OffsetFetchRequestTopics { topic_id: topic.id, partition_indexes: vec![0], ..Default::default() };
    let group = OffsetFetchRequestGroup {
        group_id: "group".to_owned(),
        topics: Some(vec![topics]),
        ..Default::default()
    };
    let request = OffsetFetchRequest { groups: vec![group], ..Default::default() };
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = broker.ask(&request).await.groups.remove(0);
        if answer.error_code == 0 {
            return answer.topics[0].partitions[0].committed_offset;
        }
        assert!(Instant::now() < deadline, "the coordinator does not come up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Repeats requests until the broker closes the connection; returns the numbers of the successful ones.
fn ask_on<R>(
    mut raw: Raw,
    progress: &Arc<AtomicUsize>,
    request: impl Fn(i64) -> R + Send + 'static,
    is_yes: impl Fn(&R::Response) -> bool + Send + 'static,
) -> JoinHandle<Vec<i64>>
where
    R: Request + Send + Sync + 'static,
    R::Response: Send,
{
    let progress = Arc::clone(progress);
    tokio::spawn(async move {
        let mut yes = Vec::new();
        for number in 0.. {
            let id = i32::try_from(number).expect("a few");
            let frame = encode_request(&request(number), R::MAX_VERSION, id, Some("raw")).expect("it fits");
            if raw.stream.write_all(&frame).await.is_err() {
                break;
            }
            let Some(answer) = raw.frame().await else { break };
            let (answered, response) = decode_response::<R>(answer, R::MAX_VERSION).expect("an answer");
            assert_eq!(answered, id);
            if is_yes(&response) {
                yes.push(number);
            }
            progress.fetch_add(1, Ordering::Relaxed);
        }
        yes
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_stop_in_the_middle_of_everything_loses_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path()).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let flushed = Topic::create(&broker, "flushed", 1, &[("flush.messages", "1")]).await;
    let shrinking = Topic::create(&broker, "shrinking", 1, &[]).await;
    for _ in 0..200 {
        assert_eq!(put(&broker, &shrinking, 1, batch(&[&b"x"[..]; 100])).await.error_code, 0);
    }
    load_group(&broker, &topic).await;

    let progress: [Arc<AtomicUsize>; 6] = std::array::from_fn(|_| Arc::default());
    let accepted = |answer: &ProduceResponse| answer.responses[0].partition_responses[0].error_code == 0;
    let [to_topic, to_flushed, deleting, committing] =
        [&topic, &flushed, &shrinking, &topic].map(Clone::clone);
    let value = |number: i64| batch(&[&number.to_be_bytes()]);
    let produced = [
        ask_on(
            Raw::connect(&broker).await,
            &progress[0],
            move |number| produce(13, &to_topic, 0, 1, value(number)),
            accepted,
        ),
        ask_on(
            Raw::connect(&broker).await,
            &progress[1],
            move |number| produce(13, &to_flushed, 0, -1, value(number)),
            accepted,
        ),
    ];
    let deleted = ask_on(
        Raw::connect(&broker).await,
        &progress[2],
        move |number| delete_records(&deleting, number),
        |answer: &DeleteRecordsResponse| answer.topics[0].partitions[0].error_code == 0,
    );
    let commits = ask_on(
        Raw::connect(&broker).await,
        &progress[3],
        move |number| commit(&committing, number),
        |answer: &OffsetCommitResponse| answer.topics[0].partitions[0].error_code == 0,
    );
    let created = ask_on(
        Raw::connect(&broker).await,
        &progress[4],
        |number| create(&format!("new-{number}")),
        |answer: &CreateTopicsResponse| answer.topics[0].error_code == 0,
    );
    let fetching = topic.clone();
    let fetched = ask_on(
        Raw::connect(&broker).await,
        &progress[5],
        move |number| FetchRequest {
            max_wait_ms: 50,
            ..fetch(18, &fetching, vec![fetch_partition(0, number % 10)])
        },
        |answer: &FetchResponse| {
            answer.responses.first().is_some_and(|topic| topic.partitions[0].error_code == 0)
        },
    );
    while progress.iter().any(|answers| answers.load(Ordering::Relaxed) < ANSWERS_MIN) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    broker.stop().await;
    let [in_topic, in_flushed] = produced;
    let produced = [(&topic, in_topic.await), (&flushed, in_flushed.await)];
    let (deleted, commits) = (deleted.await.expect("no panic"), commits.await.expect("no panic"));
    let created = created.await.expect("no panic");
    assert!(!fetched.await.expect("no panic").is_empty());

    let broker = start(dir.path()).await;
    for (topic, acknowledged) in produced {
        let acknowledged = acknowledged.expect("no panic");
        let mut found = BTreeSet::new();
        loop {
            let next = i64::try_from(found.len()).expect("a few");
            let data = get(&broker, topic, next).await;
            assert_eq!(data.error_code, 0);
            if next == data.high_watermark {
                break;
            }
            let new = values(&data).into_iter().filter(|(offset, _)| *offset >= next);
            found.extend(new.map(|(_, value)| i64::from_be_bytes(value.try_into().expect("a number"))));
        }
        let lost: Vec<_> = acknowledged.iter().filter(|number| !found.contains(number)).collect();
        assert!(lost.is_empty(), "{lost:?} of {} are lost in {}", acknowledged.len(), topic.name);
    }
    let start_offset = get(&broker, &shrinking, 20_000).await.log_start_offset;
    assert!(start_offset >= *deleted.last().expect("some"), "{start_offset}");
    assert!(committed(&broker, &topic).await >= *commits.last().expect("some"));
    let known = broker.ask(&MetadataRequest { topics: None, ..Default::default() }).await;
    let known: BTreeSet<_> = known.topics.into_iter().filter_map(|topic| topic.name).collect();
    for number in created {
        assert!(known.contains(&format!("new-{number}")), "new-{number} was created");
    }
    broker.stop().await;
}

/// Has a request served by a broker whose connections are gone: the answer, if there is one.
async fn serve<R: Request>(handler: &ApiHandler, session: &mut Session, request: &R) -> Option<R::Response> {
    let frame = encode_request(request, R::MAX_VERSION, 7, Some("late")).expect("it fits");
    let mut reply = handler.handle(session, frame.slice(LENGTH_LEN..));
    let answer = loop {
        reply = match reply {
            Reply::Now(frame) => break frame,
            Reply::Later(later) | Reply::Ordered(later) => {
                tokio::time::timeout(Duration::from_secs(60), later).await.expect("an answer in time")
            }
            Reply::Nothing | Reply::Close(_) | Reply::Last(..) => return None,
        };
    };
    let mut bytes = BytesMut::new();
    for segment in answer.0 {
        match segment {
            FrameSegment::Bytes(part) => bytes.extend_from_slice(&part),
            FrameSegment::File(slice) => {
                let mut part = vec![0; slice.len];
                assert_eq!(slice.file.read_at(&mut part, slice.position).expect("readable"), slice.len);
                bytes.extend_from_slice(&part);
            }
        }
    }
    let answer = Bytes::from(bytes).slice(LENGTH_LEN..);
    Some(decode_response::<R>(answer, R::MAX_VERSION).expect("an answer").1)
}

/// After an answer without brokers, librdkafka does not find this one again either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_node_names_itself_to_the_end() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &[]).await;
    let (handler, mut peer) = broker.session();
    let node = Arc::clone(&broker.server().broker);
    broker.stop().await;
    assert_eq!(node.image().alive_brokers().count(), 0, "it is fenced in the controlled shutdown");
    let answer = serve(&handler, &mut peer, &MetadataRequest::default()).await.expect("an answer");
    let named: Vec<i32> = answer.brokers.iter().map(|broker| broker.node_id).collect();
    assert_eq!(named, [node.node_id.0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_when_the_logs_are_closed_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path()).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let flushed = Topic::create(&broker, "flushed", 1, &[("flush.messages", "1")]).await;
    for topic in [&topic, &flushed] {
        assert_eq!(put(&broker, topic, -1, batch(&[b"in time"])).await.error_code, 0);
    }
    load_group(&broker, &topic).await;
    let (handler, mut peer) = broker.session();
    broker.stop().await;

    let storage = ErrorCode::KafkaStorageError.code();
    for (topic, acks) in [(&topic, 1), (&topic, -1), (&flushed, 1), (&flushed, -1)] {
        let late = produce(13, topic, 0, acks, batch(&[b"late"]));
        let answer = serve(&handler, &mut peer, &late).await.expect("an answer");
        assert_eq!(answer.responses[0].partition_responses[0].error_code, storage);
    }
    let silent = produce(13, &topic, 0, 0, batch(&[b"late"]));
    assert!(serve(&handler, &mut peer, &silent).await.is_none());
    let read = serve(&handler, &mut peer, &fetch(18, &topic, vec![fetch_partition(0, 0)])).await;
    let read = read.expect("an answer").responses.remove(0).partitions.remove(0);
    assert!(read.error_code != 0 || values(&read) == [(0, b"in time".to_vec())], "{read:?}");
    let late = serve(&handler, &mut peer, &commit(&topic, 5)).await.expect("an answer");
    assert_eq!(late.topics[0].partitions[0].error_code, ErrorCode::NotCoordinator.code());
    let late = serve(&handler, &mut peer, &delete_records(&topic, 1)).await.expect("an answer");
    assert_eq!(late.topics[0].partitions[0].error_code, storage);
    let late = serve(&handler, &mut peer, &create("late"))
        .await
        .expect("an answer, though the controller has ended");
    assert_eq!(late.topics[0].error_code, ErrorCode::RequestTimedOut.code());
    drop(handler);

    let broker = start(dir.path()).await;
    for topic in [&topic, &flushed] {
        let data = get(&broker, topic, 0).await;
        assert_eq!((data.log_start_offset, values(&data)), (0, vec![(0, b"in time".to_vec())]));
    }
    assert_eq!(committed(&broker, &topic).await, 0);
    broker.stop().await;
}
