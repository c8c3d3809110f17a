//! Data that survives: everything after a clean stop, acknowledged records after a crash. A crash is a copy
//! of the directories, taken while the broker writes to them.

use crate::records::{Topic, batch, batch_at, get, put, values};
use crate::running::{RunningBroker, configuration, is_coming_up};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use thalweg_broker::{Loading, Machine, StartError, start_on};
use thalweg_config::{BrokerConfig, ServerProperties};
use thalweg_log::disk::{Disk, Faults};
use thalweg_record::{BatchOptions, ProducerEpoch, ProducerId};
use thalweg_wire::request::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;
use thalweg_wire::request::join_group_request::JoinGroupRequestProtocol;
use thalweg_wire::request::metadata_request::MetadataRequestTopic;
use thalweg_wire::request::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use thalweg_wire::request::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use thalweg_wire::request::sync_group_request::SyncGroupRequestAssignment;
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Request};
use tokio::time::Instant;

pub async fn start(dir: &Path) -> RunningBroker {
    let properties = [
        ("log.retention.ms", "-1"),
        ("log.segment.bytes", "1048576"),
        ("log.flush.offset.checkpoint.interval.ms", "100"),
        ("group.initial.rebalance.delay.ms", "0"),
    ];
    RunningBroker::start(dir, &properties).await
}

fn data() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Asks until the coordinator has loaded its groups.
pub async fn ask_loaded<R: Request>(
    broker: &RunningBroker,
    request: &R,
    code: impl Fn(&R::Response) -> i16,
) -> R::Response {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = broker.ask(request).await;
        if !is_coming_up(code(&answer)) {
            return answer;
        }
        assert!(Instant::now() < deadline, "the coordinator does not come up: {answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A batch of now: a producer that has been silent for a day is forgotten.
fn of_producer(id: i64, sequence: i32, value: &[u8]) -> Bytes {
    let options = BatchOptions {
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(0),
        base_sequence: sequence,
        ..BatchOptions::default()
    };
    batch_at(thalweg_log::Clock::system().now_ms(), &[value], options)
}

async fn producer_id(broker: &RunningBroker) -> i64 {
    broker.ask(&InitProducerIdRequest { transactional_id: None, ..Default::default() }).await.producer_id
}

pub async fn commit(broker: &RunningBroker, group: &str, topic: &Topic, offset: i64) {
    commit_noted(broker, group, topic, offset, "note".to_owned()).await;
}

/// As [`commit`], with this metadata.
pub async fn commit_noted(broker: &RunningBroker, group: &str, topic: &Topic, offset: i64, note: String) {
    // The first look for a coordinator makes the topic that it keeps its offsets in.
    broker
        .ask(&FindCoordinatorRequest { coordinator_keys: vec![group.to_owned()], ..Default::default() })
        .await;
    let partition = OffsetCommitRequestPartition {
        committed_offset: offset,
        committed_metadata: Some(note),
        ..Default::default()
    };
    let topics = vec![OffsetCommitRequestTopic {
        topic_id: topic.id,
        partitions: vec![partition],
        ..Default::default()
    }];
    let request = OffsetCommitRequest {
        group_id: group.to_owned(),
        generation_id_or_member_epoch: -1,
        topics,
        ..Default::default()
    };
    let answer = ask_loaded(broker, &request, |answer| answer.topics[0].partitions[0].error_code).await;
    assert_eq!(answer.topics[0].partitions[0].error_code, 0);
}

pub async fn committed(broker: &RunningBroker, group: &str, topic: &Topic) -> (i64, Option<String>) {
    let topics =
        OffsetFetchRequestTopics { topic_id: topic.id, partition_indexes: vec![0], ..Default::default() };
    let group = OffsetFetchRequestGroup {
        group_id: group.to_owned(),
        topics: Some(vec![topics]),
        ..Default::default()
    };
    let request = OffsetFetchRequest { groups: vec![group], ..Default::default() };
    let answer = ask_loaded(broker, &request, |answer| answer.groups[0].error_code).await;
    let partition = &answer.groups[0].topics[0].partitions[0];
    (partition.committed_offset, partition.metadata.clone())
}

/// A stable group of one member: its id and generation.
pub async fn member(broker: &RunningBroker, group: &str) -> (String, i32) {
    let mut join = JoinGroupRequest {
        group_id: group.to_owned(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".to_owned(),
            metadata: Bytes::from_static(b"m"),
        }],
        ..Default::default()
    };
    join.member_id = ask_loaded(broker, &join, |answer| answer.error_code).await.member_id;
    let joined = broker.ask(&join).await;
    let assigned = SyncGroupRequestAssignment {
        member_id: joined.member_id.clone(),
        assignment: Bytes::from_static(b"a"),
    };
    let sync = SyncGroupRequest {
        group_id: group.to_owned(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        protocol_type: joined.protocol_type.clone(),
        protocol_name: joined.protocol_name.clone(),
        assignments: vec![assigned],
        ..Default::default()
    };
    assert_eq!(broker.ask(&sync).await.error_code, 0);
    (joined.member_id, joined.generation_id)
}

async fn retention(broker: &RunningBroker, topic: &str) -> Option<String> {
    let resource = DescribeConfigsResource {
        resource_type: 2,
        resource_name: topic.to_owned(),
        configuration_keys: Some(vec!["retention.bytes".to_owned()]),
    };
    let answer =
        broker.ask(&DescribeConfigsRequest { resources: vec![resource], ..Default::default() }).await;
    answer.results[0].configs[0].value.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orderly_stop_keeps_everything() {
    let dir = data();
    let broker = start(dir.path()).await;
    let topic = Topic::create(&broker, "topic", 3, &[("retention.bytes", "123456789")]).await;
    let gone = Topic::create(&broker, "gone", 1, &[]).await;
    let state = delete_topics_request::DeleteTopicState { name: Some(gone.name), ..Default::default() };
    broker.ask(&DeleteTopicsRequest { topics: vec![state], ..Default::default() }).await;
    let id = producer_id(&broker).await;
    for sequence in 0..10 {
        assert_eq!(put(&broker, &topic, -1, of_producer(id, sequence, b"value")).await.error_code, 0);
    }
    let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset: 4 }];
    let topics = vec![DeleteRecordsTopic { name: "topic".to_owned(), partitions }];
    broker.ask(&DeleteRecordsRequest { topics, timeout_ms: 1000 }).await;
    commit(&broker, "simple", &topic, 7).await;
    let (member_id, generation) = member(&broker, "members").await;
    let cluster_id = broker.server().broker.cluster_id.clone();
    broker.stop().await;

    for _ in 0..2 {
        let broker = start(dir.path()).await;
        assert_eq!(broker.server().broker.cluster_id, cluster_id);
        let metadata = broker.ask(&MetadataRequest { topics: None, ..Default::default() }).await;
        let known: Vec<_> = metadata.topics.iter().filter(|topic| !topic.is_internal).collect();
        assert_eq!(known.len(), 1, "the deleted topic stays deleted");
        assert_eq!((known[0].topic_id, known[0].partitions.len()), (topic.id, 3));
        assert_eq!(retention(&broker, "topic").await.as_deref(), Some("123456789"));
        let data = get(&broker, &topic, 4).await;
        assert_eq!((data.log_start_offset, data.high_watermark, values(&data).len()), (4, 10, 6));
        assert_eq!(get(&broker, &topic, 3).await.error_code, ErrorCode::OffsetOutOfRange.code());
        assert_eq!(committed(&broker, "simple", &topic).await, (7, Some("note".to_owned())));
        let heartbeat = HeartbeatRequest {
            group_id: "members".to_owned(),
            generation_id: generation,
            member_id: member_id.clone(),
            ..Default::default()
        };
        assert_eq!(ask_loaded(&broker, &heartbeat, |answer| answer.error_code).await.error_code, 0);
        let again = put(&broker, &topic, -1, of_producer(id, 9, b"value")).await;
        assert_eq!((again.error_code, again.base_offset), (0, 9), "the last batch is known");
        let skipped = put(&broker, &topic, -1, of_producer(id, 11, b"value")).await;
        assert_eq!(skipped.error_code, ErrorCode::OutOfOrderSequenceNumber.code());
        assert_ne!(producer_id(&broker).await, id, "no id is given twice");
        broker.stop().await;
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    let entries = std::fs::read_dir(from).expect("a directory").map(|entry| entry.expect("an entry"));
    let mut entries: Vec<_> = entries.collect();
    // A crash never leaves a recovery point above what was written.
    entries.sort_by_key(|entry| entry.file_name() != "recovery-point");
    for entry in entries {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else if let Err(error) = std::fs::copy(&path, &to) {
            // Files of the broker appear and disappear meanwhile.
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{}", path.display());
        }
    }
}

/// Everything that is in partition 0 of the topic.
async fn read_all(broker: &RunningBroker, topic: &Topic) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let at = i64::try_from(all.len()).expect("a few");
        let data = get(broker, topic, at).await;
        assert_eq!(data.error_code, 0);
        let found = values(&data);
        if found.is_empty() {
            assert_eq!(data.high_watermark, at, "all that is there can be read");
            return all;
        }
        all.extend(found.into_iter().filter(|(offset, _)| *offset >= at).map(|(_, value)| value));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_loses_nothing_that_was_acknowledged() {
    let dirs = [data(), data(), data()];
    let broker = Arc::new(start(dirs[0].path()).await);
    let topic = Topic::create(&broker, "topic", 1, &[("retention.bytes", "123456789")]).await;
    let id = producer_id(&broker).await;
    let acknowledged = Arc::new(AtomicI64::new(0));
    let producing = tokio::spawn({
        let (broker, topic, acknowledged) = (Arc::clone(&broker), topic.clone(), Arc::clone(&acknowledged));
        async move {
            for number in 0.. {
                let mut value = vec![b'v'; 3000];
                value[..4].copy_from_slice(&i32::to_be_bytes(number));
                let put = put(&broker, &topic, -1, of_producer(id, number, &value)).await;
                assert_eq!((put.error_code, put.base_offset), (0, i64::from(number)));
                acknowledged.store(i64::from(number) + 1, Ordering::Release);
            }
        }
    });
    commit(&broker, "group", &topic, 5).await;
    // Some segments are full by then.
    while acknowledged.load(Ordering::Acquire) < 1000 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for dir in &dirs[1..] {
        let promised = acknowledged.load(Ordering::Acquire);
        copy(dirs[0].path(), dir.path());
        let crashed = start(dir.path()).await;
        let found = read_all(&crashed, &topic).await;
        let count = i64::try_from(found.len()).expect("a few");
        assert!(count >= promised, "{promised} were acknowledged, {count} are there");
        for (number, value) in (0i32..).zip(&found) {
            assert_eq!((value.len(), &value[..4]), (3000, &number.to_be_bytes()[..]));
        }
        assert_eq!(committed(&crashed, "group", &topic).await, (5, Some("note".to_owned())));
        assert_eq!(retention(&crashed, "topic").await.as_deref(), Some("123456789"));
        let last = i32::try_from(count - 1).expect("a few");
        let again = put(&crashed, &topic, -1, of_producer(id, last, &found[found.len() - 1])).await;
        assert_eq!((again.error_code, again.base_offset), (0, count - 1), "the last batch is known");
        let next = put(&crashed, &topic, -1, of_producer(id, last + 1, b"next")).await;
        assert_eq!((next.error_code, next.base_offset), (0, count));
        assert!(producer_id(&crashed).await > id);
        crashed.stop().await;
    }
    producing.abort();
    let _ = producing.await;
    Arc::into_inner(broker).expect("the producer has ended").stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_with_a_torn_tail_and_without_hints_is_recovered_from() {
    let dirs = [data(), data()];
    let broker = start(dirs[0].path()).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let id = producer_id(&broker).await;
    for number in 0..600 {
        assert_eq!(put(&broker, &topic, 1, of_producer(id, number, &[b'v'; 3000])).await.error_code, 0);
    }
    copy(dirs[0].path(), dirs[1].path());
    broker.stop().await;
    let partition = dirs[1].path().join("topic-0");
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(&partition).expect("the partition") {
        let path = entry.expect("an entry").path();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("log") => logs.push(path),
            Some("index" | "timeindex" | "snapshot") => std::fs::remove_file(path).expect("removed"),
            _ => {}
        }
    }
    logs.sort();
    assert!(logs.len() > 1, "{logs:?}");
    // An interrupted write: half of a batch behind the last one.
    let last = logs.pop().expect("a segment");
    let mut bytes = std::fs::read(&last).expect("a segment");
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("records") + 1;
    bytes.truncate(end.max(1));
    let torn = of_producer(id, 600, &[b'v'; 3000]);
    bytes.extend_from_slice(&torn[..1500]);
    std::fs::write(&last, &bytes).expect("written");
    for name in
        ["recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"]
    {
        let _ = std::fs::remove_file(dirs[1].path().join(name));
    }

    let crashed = start(dirs[1].path()).await;
    assert_eq!(read_all(&crashed, &topic).await.len(), 600);
    let again = put(&crashed, &topic, -1, of_producer(id, 599, &[b'v'; 3000])).await;
    assert_eq!((again.error_code, again.base_offset), (0, 599));
    let next = put(&crashed, &topic, -1, of_producer(id, 600, b"next")).await;
    assert_eq!((next.error_code, next.base_offset), (0, 600));
    let named = MetadataRequestTopic { name: Some("topic".to_owned()), ..Default::default() };
    let metadata = crashed.ask(&MetadataRequest { topics: Some(vec![named]), ..Default::default() }).await;
    assert_eq!(metadata.topics[0].error_code, 0);
    crashed.stop().await;
}

/// A copy of a directory and all that is in it.
fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("creates");
    for entry in std::fs::read_dir(from).expect("lists") {
        let entry = entry.expect("lists");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copies");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn data_that_the_metadata_does_not_know_is_never_deleted() {
    let dir = data();
    let broker = start(dir.path()).await;
    let topic = Topic::create(&broker, "precious", 1, &[]).await;
    assert_eq!(put(&broker, &topic, -1, batch(&[b"a", b"b"])).await.error_code, 0);
    broker.stop().await;
    copy_dir(&dir.path().join("precious-0"), &dir.path().join("stray-0"));
    start(dir.path()).await.stop().await;
    let names = || -> Vec<String> {
        let listed = std::fs::read_dir(dir.path()).expect("lists");
        listed.map(|entry| entry.expect("lists").file_name().into_string().expect("UTF-8")).collect()
    };
    let is_set_aside = |name: &String| name.starts_with("stray-0.") && name.ends_with("-stray");
    let strays: Vec<_> = names().into_iter().filter(is_set_aside).collect();
    assert_eq!(strays.len(), 1, "{:?}", names());
    let kept = std::fs::read(dir.path().join(&strays[0]).join("00000000000000000000.log")).expect("is there");
    assert!(!kept.is_empty());

    std::fs::rename(dir.path().join("__cluster_metadata-0"), dir.path().join("elsewhere")).expect("renames");
    let mut properties = ServerProperties::default();
    properties.set("listeners", "PLAINTEXT://127.0.0.1:0");
    properties.set("log.dirs", dir.path().to_str().expect("UTF-8"));
    let config = BrokerConfig::new(&properties).expect("a valid configuration");
    let refused = thalweg_broker::start(config).await.err().expect("is refused");
    assert!(refused.to_string().contains("metadata.log.dir"), "{refused}");
    std::fs::remove_dir_all(dir.path().join("__cluster_metadata-0")).expect("removes");
    std::fs::rename(dir.path().join("elsewhere"), dir.path().join("__cluster_metadata-0")).expect("renames");
    let broker = start(dir.path()).await;
    assert_eq!(values(&get(&broker, &topic, 0).await).len(), 2);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_ends_while_the_broker_joins_ends_the_start() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    start(dir.path()).await.stop().await;
    let point = dir.path().join("__cluster_metadata-0/recovery-point");
    let before = std::fs::read(&point).expect("it was written");
    let faults = Arc::new(Faults::default());
    faults.only("__cluster_metadata-0/00000000000000000000.log");
    let machine = Machine { disk: Disk::with_faults(Arc::clone(&faults)), ..Machine::real() };
    // The controller has opened its log once the recovery point moves. The next sync, of the broker's
    // registration or of its unfencing, fails.
    std::thread::spawn(move || {
        while std::fs::read(&point).is_ok_and(|now| now == before) {
            std::thread::yield_now();
        }
        faults.set_hanging(true);
        faults.wait_until_hung();
        faults.set_failing_syncs(true);
        faults.set_hanging(false);
    });
    let (config, loading) = (configuration(dir.path(), &[]), Loading::default());
    let started = tokio::time::timeout(Duration::from_secs(60), start_on(&machine, config, &loading)).await;
    let started = started.expect("the start ends").map(drop);
    assert!(matches!(started, Err(StartError::ControllerEnded)), "{started:?}");
}
