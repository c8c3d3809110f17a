//! Share groups in a real cluster: each record goes to one member, and what becomes of it is what was
//! acknowledged. The client's tests run this against Apache Kafka, the broker's against Thalweg.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use thalweg_client::{
    AcknowledgeType, AcknowledgementMode, AcquireMode, Admin, Cluster, ConfigChange, ConfigOperation,
    ConfigResource, ConnectionOptions, Delivery, GroupKind, NewTopic, OffsetSpec, Producer, ProducerConfig,
    ProducerRecord, ShareChunk, ShareConfig, ShareConsumer, SharePollEvent, TopicPartition,
};
use thalweg_record::{DecompressBuffer, Offset};
use thalweg_wire::ErrorCode;
use tokio::time::Instant;

const POLL: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster, by the addresses of its brokers.
type Bootstrap = [String];

/// What members of share groups see of a cluster. Heartbeats are short there, so that members get partitions
/// soon.
pub async fn a_share_group_shares_records(cluster: &Bootstrap) {
    let options = ConnectionOptions::default();
    let admin = Admin::new(Cluster::connect(cluster, &options).await.expect("connected"));
    accepted_records_are_not_delivered_again(cluster, &admin).await;
    released_records_come_again_and_rejected_ones_do_not(cluster, &admin).await;
    a_renewed_lock_is_kept(cluster, &admin).await;
    records_of_a_member_that_is_gone_come_again(cluster, &admin).await;
    members_divide_the_work(cluster, &admin).await;
    start_offsets_are_set_and_forgotten(cluster, &admin).await;
}

/// A topic that is served, with a name of this process.
async fn create(admin: &Admin, kind: &str, partitions: i32) -> String {
    let name = format!("{kind}-{}", std::process::id());
    let topic = NewTopic { partitions: Some(partitions), ..NewTopic::new(name.as_str()) };
    let created = admin.create_topics(&[topic], false).await.expect("an answer");
    created[&name].as_ref().expect("created");
    let ends =
        (0..partitions).map(|partition| (TopicPartition::new(name.as_str(), partition), OffsetSpec::Latest));
    let ends: Vec<_> = ends.collect();
    // A broker reports a topic a moment before it leads it.
    loop {
        admin.cluster().refresh(std::slice::from_ref(&name), false).await.expect("metadata");
        if admin.cluster().list_offsets(&ends, false).await.values().all(Result::is_ok) {
            return name;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Produces so many records, numbered by their values, in batches of a few or of all.
async fn produce(cluster: &Bootstrap, topic: &str, records: usize, small: bool) {
    let config =
        ProducerConfig { batch_bytes: if small { 300 } else { 16_384 }, ..ProducerConfig::default() };
    let report = |delivery: &Delivery<'_>| assert!(delivery.result.is_ok(), "{:?}", delivery.result);
    let mut producer = Producer::connect(cluster, config, report).await.expect("connected");
    let topic = producer.topic(topic).await.expect("the topic");
    for number in 0..records {
        let value = number.to_string().into_bytes();
        let record = ProducerRecord {
            topic,
            partition: None,
            timestamp: 1_700_000_000_000,
            key: None,
            value: Some(&value),
            headers: &[],
            sent_at: Instant::now(),
            number: 0,
        };
        producer.send(&record).await.expect("taken");
    }
    producer.close().await;
}

/// A topic, and a share group that reads it from its beginning.
async fn group(admin: &Admin, name: &str, partitions: i32) -> (String, String) {
    let topic = create(admin, name, partitions).await;
    let group = format!("share-{topic}");
    set(admin, &group, "share.auto.offset.reset", "earliest").await;
    (topic, group)
}

async fn set(admin: &Admin, group: &str, key: &str, value: &str) {
    let resource = ConfigResource::Group(group.to_owned());
    let change = ConfigChange { name: key.to_owned(), operation: ConfigOperation::Set(value.to_owned()) };
    let changed = admin.alter_configs(&BTreeMap::from([(resource.clone(), vec![change])]), false).await;
    changed.expect("an answer")[&resource].as_ref().expect("changed");
}

fn explicit(group: &str) -> ShareConfig {
    let fetch_wait_max = Duration::from_millis(100);
    ShareConfig {
        acknowledgement_mode: AcknowledgementMode::Explicit,
        fetch_wait_max,
        ..ShareConfig::new(group)
    }
}

async fn member(cluster: &Bootstrap, topic: &str, config: ShareConfig) -> ShareConsumer {
    let mut consumer = ShareConsumer::connect(cluster, config).await.expect("connected");
    consumer.subscribe(vec![topic.to_owned()]);
    consumer
}

/// The next chunk, if one comes within a while.
async fn next(consumer: &mut ShareConsumer, within: Duration) -> Option<ShareChunk> {
    let deadline = Instant::now() + within;
    while Instant::now() < deadline {
        match consumer.poll(POLL).await.expect("a poll") {
            SharePollEvent::Chunk(chunk) => return Some(chunk),
            SharePollEvent::NotAcknowledged(at, error) => panic!("{at}: {error}"),
            SharePollEvent::Nothing => {}
        }
    }
    None
}

/// Offsets with delivery counts.
fn read(chunk: &ShareChunk) -> Vec<(i64, i16)> {
    let (mut read, mut buffer) = (Vec::new(), DecompressBuffer::default());
    let walked = chunk.for_each(&mut buffer, |record, count| {
        read.push((record.offset.0, count));
        ControlFlow::Continue(())
    });
    walked.expect("readable");
    read
}

fn offsets(chunk: &ShareChunk) -> Vec<i64> {
    read(chunk).into_iter().map(|(offset, _)| offset).collect()
}

async fn commit(consumer: &mut ShareConsumer) {
    for (at, outcome) in consumer.commit().await.expect("answers") {
        outcome.unwrap_or_else(|error| panic!("{at}: {error}"));
    }
}

async fn close(consumer: ShareConsumer) {
    for (at, outcome) in consumer.close().await.expect("left") {
        outcome.unwrap_or_else(|error| panic!("{at}: {error}"));
    }
}

async fn accepted_records_are_not_delivered_again(cluster: &Bootstrap, admin: &Admin) {
    let (topic, group) = group(admin, "accepted", 3).await;
    produce(cluster, &topic, 600, true).await;
    // Each poll accepts what the last one returned.
    let mut consumer =
        member(cluster, &topic, ShareConfig { records_max: 50, ..ShareConfig::new(&group) }).await;
    let mut seen = BTreeSet::new();
    while seen.len() < 600 {
        let chunk = next(&mut consumer, PATIENCE).await.expect("more records");
        for (offset, count) in read(&chunk) {
            assert_eq!(count, 1);
            assert!(seen.insert((chunk.at.partition, offset)), "each is delivered once");
        }
    }
    assert_eq!(consumer.acquisition_lock_timeout(), Some(Duration::from_secs(30)));
    assert_eq!(consumer.assignment().len(), 3);
    let described = admin.describe_groups(std::slice::from_ref(&group)).await;
    let described = described[&group].as_ref().expect("described");
    assert_eq!((described.kind, described.members.len()), (GroupKind::Share, 1));
    assert_eq!(described.members[0].assignment.len(), 3);
    close(consumer).await;
    let mut again = member(cluster, &topic, ShareConfig::new(&group)).await;
    assert!(next(&mut again, Duration::from_secs(3)).await.is_none(), "all are accepted");
    produce(cluster, &topic, 1, true).await;
    assert_eq!(read(&next(&mut again, PATIENCE).await.expect("the new one")).len(), 1);
    close(again).await;
}

async fn released_records_come_again_and_rejected_ones_do_not(cluster: &Bootstrap, admin: &Admin) {
    let (topic, group) = group(admin, "released", 1).await;
    produce(cluster, &topic, 10, false).await;
    let mut consumer = member(cluster, &topic, explicit(&group)).await;
    let chunk = next(&mut consumer, PATIENCE).await.expect("records");
    assert_eq!(read(&chunk).len(), 10);
    consumer.acknowledge(&chunk, Offset(0), Offset(3), AcknowledgeType::Accept).expect("acquired");
    consumer.acknowledge(&chunk, Offset(4), Offset(4), AcknowledgeType::Reject).expect("acquired");
    consumer.acknowledge(&chunk, Offset(6), Offset(7), AcknowledgeType::Release).expect("acquired");
    let error = consumer.acknowledge(&chunk, Offset(4), Offset(5), AcknowledgeType::Accept);
    assert_eq!(error.expect_err("4 is done with").first, Offset(4));
    consumer.acknowledge_chunk(&chunk, AcknowledgeType::Accept).expect("acquired");
    commit(&mut consumer).await;
    let again = next(&mut consumer, PATIENCE).await.expect("the released ones");
    assert_eq!(read(&again), [(6, 2), (7, 2)]);
    // What is not acknowledged is released by the end of the session; the broker may not count that delivery.
    close(consumer).await;
    let mut other = member(cluster, &topic, explicit(&group)).await;
    let again = next(&mut other, PATIENCE).await.expect("the released ones");
    assert_eq!(offsets(&again), [6, 7]);
    other.acknowledge_chunk(&again, AcknowledgeType::Accept).expect("acquired");
    close(other).await;
}

async fn a_renewed_lock_is_kept(cluster: &Bootstrap, admin: &Admin) {
    let (topic, group) = group(admin, "renewed", 1).await;
    set(admin, &group, "share.record.lock.duration.ms", "15000").await;
    produce(cluster, &topic, 3, false).await;
    let config = ShareConfig { acquire_mode: AcquireMode::RecordLimit, records_max: 2, ..explicit(&group) };
    let mut consumer = member(cluster, &topic, config).await;
    let chunk = next(&mut consumer, PATIENCE).await.expect("records");
    assert_eq!(read(&chunk), [(0, 1), (1, 1)], "no more than the limit");
    assert_eq!(consumer.acquisition_lock_timeout(), Some(Duration::from_secs(15)));
    consumer.acknowledge(&chunk, Offset(0), Offset(1), AcknowledgeType::Renew).expect("acquired");
    commit(&mut consumer).await;
    consumer.acknowledge(&chunk, Offset(0), Offset(1), AcknowledgeType::Accept).expect("acquired still");
    commit(&mut consumer).await;
    let rest = next(&mut consumer, PATIENCE).await.expect("the third");
    assert_eq!(read(&rest), [(2, 1)]);
    close(consumer).await;
}

async fn records_of_a_member_that_is_gone_come_again(cluster: &Bootstrap, admin: &Admin) {
    let (topic, group) = group(admin, "dropped", 1).await;
    produce(cluster, &topic, 5, false).await;
    let mut lost = member(cluster, &topic, explicit(&group)).await;
    let chunk = next(&mut lost, PATIENCE).await.expect("records");
    assert_eq!(read(&chunk).len(), 5);
    let mut other = member(cluster, &topic, explicit(&group)).await;
    assert!(next(&mut other, Duration::from_secs(2)).await.is_none(), "they are locked");
    // Its connections end without a word.
    drop(lost);
    let again = next(&mut other, PATIENCE).await.expect("records");
    assert_eq!(offsets(&again), [0, 1, 2, 3, 4]);
    other.acknowledge_chunk(&again, AcknowledgeType::Accept).expect("acquired");
    close(other).await;
}

async fn members_divide_the_work(cluster: &Bootstrap, admin: &Admin) {
    const RECORDS: usize = 3000;
    let (topic, group) = group(admin, "divided", 2).await;
    let mut members = Vec::new();
    for _ in 0..3 {
        let config = ShareConfig { records_max: 20, ..explicit(&group) };
        members.push(member(cluster, &topic, config).await);
    }
    // The first would read all of it alone before the others have joined.
    for member in &mut members {
        member.wait_for_assignment().await.expect("assigned");
    }
    let (records_of, mut taken) = tokio::sync::mpsc::channel(100);
    let mut tasks = tokio::task::JoinSet::new();
    for (number, mut consumer) in members.into_iter().enumerate() {
        let seen = records_of.clone();
        tasks.spawn(async move {
            while let Some(chunk) = next(&mut consumer, Duration::from_secs(5)).await {
                // One record of each chunk is released, and comes again.
                let read = read(&chunk);
                let released = (chunk.acquired[0].delivery_count == 1).then(|| read[0].0);
                for (offset, _) in read {
                    let is_released = Some(offset) == released;
                    let with = if is_released { AcknowledgeType::Release } else { AcknowledgeType::Accept };
                    let at = Offset(offset);
                    consumer.acknowledge(&chunk, at, at, with).expect("acquired");
                    if !is_released {
                        seen.send((number, chunk.at.partition, offset)).await.expect("it is read");
                    }
                }
            }
            close(consumer).await;
        });
    }
    drop(records_of);
    produce(cluster, &topic, RECORDS, true).await;
    let (mut accepted, mut by_member) = (BTreeSet::new(), BTreeMap::<usize, usize>::new());
    while let Some((number, partition, offset)) = taken.recv().await {
        assert!(accepted.insert((partition, offset)), "{partition}: {offset} was accepted before");
        *by_member.entry(number).or_default() += 1;
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic");
    }
    assert_eq!(accepted.len(), RECORDS);
    assert!(by_member.len() > 1, "{by_member:?}");
}

async fn start_offsets_are_set_and_forgotten(cluster: &Bootstrap, admin: &Admin) {
    let (topic, group) = group(admin, "moved", 1).await;
    produce(cluster, &topic, 10, false).await;
    let mut consumer = member(cluster, &topic, explicit(&group)).await;
    let chunk = next(&mut consumer, PATIENCE).await.expect("records");
    consumer.acknowledge_chunk(&chunk, AcknowledgeType::Accept).expect("acquired");
    commit(&mut consumer).await;
    let at = TopicPartition::new(topic.as_str(), 0);
    let to = BTreeMap::from([(at.clone(), Offset(4))]);
    let refused = admin.alter_share_group_offsets(&group, &to).await.expect_err("it has a member");
    assert_eq!(refused.error_code(), Some(ErrorCode::NonEmptyGroup));
    close(consumer).await;
    let altered = admin.alter_share_group_offsets(&group, &to).await.expect("an answer");
    altered[&at].as_ref().expect("altered");
    let listed = admin.list_share_group_offsets(&group).await.expect("an answer");
    let listed = listed[&at].as_ref().expect("an offset");
    assert_eq!((listed.start, listed.lag), (Offset(4), Some(6)));
    let mut consumer = member(cluster, &topic, explicit(&group)).await;
    let chunk = next(&mut consumer, PATIENCE).await.expect("records");
    assert_eq!(read(&chunk)[0], (4, 1));
    close(consumer).await;
    let topics = [topic];
    admin.delete_share_group_offsets(&group, &topics).await.expect("an answer")[&topics[0]]
        .as_ref()
        .expect("deleted");
    admin.delete_groups(std::slice::from_ref(&group)).await[&group].as_ref().expect("deleted");
}
