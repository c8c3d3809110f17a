//! Transactions in a real cluster: committed records are read once, aborted ones are not, and a replaced
//! producer cannot continue. With both protocols: Apache Kafka is started with `transaction.version` 2, and
//! with 0.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_client::{
    CommittedOffset, Consumer, ConsumerConfig, GroupMetadata, OffsetSpec, PollEvent, Producer,
    ProducerConfig, ProducerRecord, StartAt, TopicPartition, TopicRef,
};
use thalweg_record::Offset;
use tokio::time::Instant;

use crate::fake::StoredRecord;
use crate::kafka::{Kafka, create, kafka_with, read};

async fn producer(kafka: &Kafka, id: &str, topic: &str) -> (Producer, TopicRef) {
    let config = ProducerConfig {
        transactional_id: Some(id.to_owned()),
        linger: Duration::from_millis(1),
        ..ProducerConfig::default()
    };
    let mut producer = Producer::connect(&kafka.bootstrap, config, |_| {}).await.expect("connected");
    let topic = producer.topic(topic).await.expect("the topic");
    (producer, topic)
}

async fn send(producer: &mut Producer, topic: TopicRef, partition: i32, value: &str) {
    let record = ProducerRecord {
        topic,
        partition: Some(partition),
        timestamp: 1_700_000_000_000,
        key: None,
        value: Some(value.as_bytes()),
        headers: &[],
        sent_at: Instant::now(),
        number: 0,
    };
    producer.send(&record).await.expect("taken");
}

/// The values of a topic of two partitions, up to its ends.
async fn values(kafka: &Kafka, topic: &str, read_committed: bool) -> Vec<String> {
    let fetch_wait_max = Duration::from_millis(100);
    let config = ConsumerConfig { read_committed, fetch_wait_max, ..ConsumerConfig::default() };
    let mut consumer = Consumer::connect(&kafka.bootstrap, config).await.expect("connected");
    let partitions = [0, 1].map(|partition| TopicPartition::new(topic, partition));
    let from = partitions.clone().map(|at| (at, StartAt::Spec(OffsetSpec::Earliest)));
    consumer.assign(from.to_vec()).await.expect("assigned");
    let ends = partitions.clone().map(|at| (at, OffsetSpec::Latest));
    let ends = consumer.cluster().list_offsets(&ends, read_committed).await;
    let is_done = |consumer: &Consumer| {
        let end = |at| ends[at].as_ref().expect("an offset").offset;
        partitions.iter().all(|at| consumer.position(at).expect("it is assigned") >= end(at))
    };
    let mut records: Vec<StoredRecord> = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_done(&consumer) {
        assert!(Instant::now() < deadline, "{} records came", records.len());
        if let PollEvent::Chunk(chunk) = consumer.poll(Duration::from_millis(100)).await.expect("a poll") {
            read(&chunk, &mut records);
        }
    }
    let value = |record: StoredRecord| String::from_utf8(record.value.expect("a value")).expect("text");
    let mut values: Vec<String> = records.into_iter().map(value).collect();
    values.sort();
    values
}

async fn transactions(kafka: &Kafka, name: &str) {
    let topic = create(kafka, name, 2).await;
    let id = format!("{name}-{}", std::process::id());
    let (mut first, to) = producer(kafka, &id, &topic).await;
    first.init_transactions().await.expect("initialised");
    let mut committed = Vec::new();
    for round in 0..5 {
        first.begin_transaction().expect("it is ready");
        for partition in 0..2 {
            let value = format!("committed-{round}-{partition}");
            send(&mut first, to, partition, &value).await;
            committed.push(value);
        }
        first.commit_transaction().await.expect("committed");
        first.begin_transaction().expect("it is ready");
        send(&mut first, to, round % 2, &format!("aborted-{round}")).await;
        if round % 2 == 0 {
            first.flush().await;
        }
        first.abort_transaction().await.expect("aborted");
    }
    offsets_are_committed_with_the_transaction(kafka, &mut first, to, &topic, &id).await;
    committed.push("with offsets".to_owned());

    // Another takes over: the open transaction is aborted, and the first is fenced.
    first.begin_transaction().expect("it is ready");
    send(&mut first, to, 0, "aborted by the next").await;
    first.flush().await;
    let (mut second, _) = producer(kafka, &id, &topic).await;
    second.init_transactions().await.expect("initialised");
    send(&mut first, to, 0, "fenced").await;
    let error = first.commit_transaction().await.expect_err("the second has the id");
    let fenced = error.is_fenced() || first.abort_transaction().await.expect_err("it is out").is_fenced();
    assert!(fenced, "{error}");
    second.begin_transaction().expect("it is ready");
    send(&mut second, to, 1, "of the second").await;
    second.commit_transaction().await.expect("committed");
    committed.push("of the second".to_owned());
    committed.sort();
    assert_eq!(values(kafka, &topic, true).await, committed);
    assert!(values(kafka, &topic, false).await.contains(&"aborted-0".to_owned()));
}

async fn offsets_are_committed_with_the_transaction(
    kafka: &Kafka,
    producer: &mut Producer,
    to: TopicRef,
    topic: &str,
    id: &str,
) {
    let group = GroupMetadata::without_member(format!("group-{id}"));
    let at = TopicPartition::new(topic, 0);
    for (offset, commit) in [(3, false), (5, true), (7, false)] {
        producer.begin_transaction().expect("it is ready");
        if commit {
            send(producer, to, 0, "with offsets").await;
        }
        let metadata = format!("at {offset}");
        let offset = CommittedOffset { metadata, ..CommittedOffset::new(Offset(offset)) };
        let offsets = BTreeMap::from([(at.clone(), offset)]);
        producer.send_offsets_to_transaction(&offsets, &group).await.expect("sent");
        match commit {
            true => producer.commit_transaction().await.expect("committed"),
            false => producer.abort_transaction().await.expect("aborted"),
        }
    }
    let cluster = thalweg_client::Cluster::connect(&kafka.bootstrap, &Default::default()).await;
    let cluster = cluster.expect("connected");
    let coordinator = cluster.coordinator(thalweg_client::CoordinatorKind::Group, &group.group).await;
    let coordinator = coordinator.expect("there is one");
    let deadline = Instant::now() + Duration::from_secs(30);
    let committed = loop {
        // Until the markers of the last transaction are written, the offsets are not stable.
        match thalweg_client::committed(&coordinator, &group.group, None, true).await {
            Ok(committed) => break committed,
            Err(error) => assert!(error.is_retriable() && Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!((committed[&at].offset, &*committed[&at].metadata), (Offset(5), "at 5"));
}

#[tokio::test]
async fn a_cluster_commits_our_transactions() {
    let Some(kafka) = kafka_with(&[]).await else { return };
    transactions(&kafka, "transactions").await;
}

#[tokio::test]
async fn a_cluster_of_the_older_protocol_commits_our_transactions() {
    let Some(kafka) = kafka_with(&["transaction.version=0"]).await else { return };
    transactions(&kafka, "older-transactions").await;
}
