//! The consumer in a real cluster: positions, commits, subscriptions by pattern, cooperative rebalances,
//! static members, and records that pass from topic to topic exactly once.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use thalweg_client::{
    AssignmentStrategy, CommittedOffset, Consumer, ConsumerConfig, GroupProtocol, OffsetReset, OffsetSpec,
    PollEvent, Producer, ProducerConfig, ProducerRecord, StartAt, TopicPartition,
};
use thalweg_record::{DecompressBuffer, Offset};
use tokio::time::Instant;

use crate::fake::StoredRecord;
use crate::kafka::{Kafka, PROTOCOLS, create, java, kafka, named, of_group, produce, read, skipped};

const POLL: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_consumer_finds_its_place_in_a_cluster() {
    let Some(kafka) = kafka().await else { return };
    positions_move_by_seeks(&kafka).await;
    a_fetch_that_is_held_gives_way_to_a_seek(&kafka).await;
    commits_keep_their_order_and_notes(&kafka).await;
    for protocol in PROTOCOLS {
        records_wait_for_who_polls_for_rebalances(&kafka, protocol).await;
        a_pattern_finds_topics_as_they_come(&kafka, protocol).await;
        a_cooperative_member_keeps_what_it_can(&kafka, protocol).await;
        a_static_member_comes_back_without_a_rebalance(&kafka, protocol).await;
        records_pass_exactly_once(&kafka, protocol).await;
    }
    let [classic, consumer] = PROTOCOLS;
    foreign_members_share_with_ours(&kafka, "with-java", classic, java_member).await;
    foreign_members_share_with_ours(&kafka, "with-java-848", consumer, java_member_of_consumer_group).await;
    foreign_members_share_with_ours(&kafka, "with-older-java", consumer, java_member).await;
    foreign_members_share_with_ours(&kafka, "with-librdkafka", classic, librdkafka_member).await;
}

async fn fill(kafka: &Kafka, topic: &str, count: usize) {
    let record = |number: usize| StoredRecord {
        key: Some(number.to_be_bytes().to_vec()),
        value: Some(format!("{number}").into_bytes()),
        headers: Vec::new(),
        timestamp: 1_700_000_000_000 + i64::try_from(number).expect("few"),
    };
    let records: Vec<StoredRecord> = (0..count).map(record).collect();
    produce(kafka, topic, ProducerConfig { batch_bytes: 500, ..ProducerConfig::default() }, &records).await;
}

/// Polls until it has this many more records.
async fn take(consumer: &mut Consumer, count: usize) -> Vec<StoredRecord> {
    let mut records = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while records.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} records came", records.len());
        if let PollEvent::Chunk(chunk) = consumer.poll(POLL).await.expect("a poll") {
            read(&chunk, &mut records);
        }
    }
    records
}

async fn quiet(consumer: &mut Consumer) {
    for _ in 0..5 {
        let polled = consumer.poll(POLL).await.expect("a poll");
        assert!(matches!(polled, PollEvent::Nothing), "{polled:?}");
    }
}

async fn positions_move_by_seeks(kafka: &Kafka) {
    let topic = create(kafka, "positions", 1).await;
    fill(kafka, &topic, 100).await;
    let at = TopicPartition::new(topic.as_str(), 0);
    let mut consumer = Consumer::connect(&kafka.bootstrap, of_group("positions")).await.expect("connected");
    consumer.assign(vec![(at.clone(), StartAt::Spec(OffsetSpec::Latest))]).await.expect("assigned");
    quiet(&mut consumer).await;
    consumer.seek_to(&at, StartAt::Spec(OffsetSpec::Earliest));
    assert_eq!(take(&mut consumer, 100).await.len(), 100);
    consumer.seek_to(&at, StartAt::Spec(OffsetSpec::At(1_700_000_000_090)));
    assert_eq!(take(&mut consumer, 10).await.len(), 10);
    consumer.seek(&at, Offset(95));
    consumer.pause(std::slice::from_ref(&at));
    quiet(&mut consumer).await;
    consumer.resume(std::slice::from_ref(&at));
    assert_eq!(take(&mut consumer, 5).await.len(), 5);
    assert_eq!(consumer.position(&at), Some(Offset(100)));
    let specs = [OffsetSpec::Earliest, OffsetSpec::Latest, OffsetSpec::At(1_700_000_000_042)];
    for (spec, offset) in specs.into_iter().zip([0, 100, 42]) {
        let found = consumer.list_offsets(&[(at.clone(), spec)]).await.expect("an answer");
        assert_eq!(found[&at].offset, Offset(offset), "{spec:?}");
    }
}

async fn a_fetch_that_is_held_gives_way_to_a_seek(kafka: &Kafka) {
    let topic = create(kafka, "held", 2).await;
    fill(kafka, &topic, 100).await;
    let partitions = [0, 1].map(|partition| TopicPartition::new(topic.as_str(), partition));
    let config = ConsumerConfig { fetch_wait_max: PATIENCE, ..of_group("held") };
    let mut consumer = Consumer::connect(&kafka.bootstrap, config).await.expect("connected");
    let latest = partitions.clone().map(|at| (at, StartAt::Spec(OffsetSpec::Latest)));
    consumer.assign(latest.to_vec()).await.expect("assigned");
    // The broker holds the fetch now, for a minute.
    quiet(&mut consumer).await;
    let began = Instant::now();
    for at in &partitions {
        consumer.seek(at, Offset(0));
    }
    assert_eq!(take(&mut consumer, 100).await.len(), 100);
    assert!(began.elapsed() < PATIENCE / 4, "{:?}", began.elapsed());
}

async fn records_wait_for_who_polls_for_rebalances(kafka: &Kafka, protocol: GroupProtocol) {
    let topic = create(kafka, &named("full", protocol), 1).await;
    fill(kafka, &topic, 100).await;
    let config = ConsumerConfig { group_protocol: protocol, ..of_group(&topic) };
    let mut consumer = Consumer::connect(&kafka.bootstrap, config).await.expect("connected");
    consumer.subscribe(vec![topic]).expect("it has a group");
    let polled = consumer.poll_rebalance(PATIENCE).await.expect("a poll");
    assert!(matches!(&polled, PollEvent::Assigned(partitions) if partitions.len() == 1), "{polled:?}");
    for _ in 0..10 {
        let polled = consumer.poll_rebalance(POLL).await.expect("a poll");
        assert!(matches!(polled, PollEvent::Nothing), "{polled:?}");
    }
    assert_eq!(take(&mut consumer, 100).await.len(), 100);
    consumer.close().await.expect("left");
}

async fn commits_keep_their_order_and_notes(kafka: &Kafka) {
    let topic = create(kafka, "commits", 2).await;
    let group = format!("commits-{}", std::process::id());
    let mut consumer = Consumer::connect(&kafka.bootstrap, of_group(&group)).await.expect("connected");
    let partitions = [0, 1].map(|partition| TopicPartition::new(topic.as_str(), partition));
    let offset = |offset| CommittedOffset {
        metadata: format!("note {offset}"),
        ..CommittedOffset::new(Offset(offset))
    };
    for number in 0..50 {
        let commit = BTreeMap::from([(partitions[0].clone(), offset(number))]);
        drop(consumer.commit_async(commit).expect("there is a group"));
    }
    let last = BTreeMap::from([(partitions[1].clone(), offset(7))]);
    consumer.commit_offsets(last).await.expect("committed");
    let committed = consumer.committed(&partitions).await.expect("an answer");
    assert_eq!(committed[&partitions[0]].offset, Offset(49));
    assert_eq!(committed[&partitions[0]].metadata, "note 49");
    assert_eq!(committed[&partitions[1]].offset, Offset(7));
}

async fn a_pattern_finds_topics_as_they_come(kafka: &Kafka, protocol: GroupProtocol) {
    let prefix = named("pattern", protocol);
    let first = create(kafka, &format!("{prefix}-a"), 1).await;
    let other = create(kafka, &format!("other-{prefix}-a"), 1).await;
    fill(kafka, &first, 10).await;
    fill(kafka, &other, 10).await;
    let metadata_max_age = Duration::from_millis(300);
    let config = ConsumerConfig { metadata_max_age, group_protocol: protocol, ..of_group(&prefix) };
    let mut consumer = Consumer::connect(&kafka.bootstrap, config).await.expect("connected");
    consumer.subscribe_pattern(&format!("{prefix}-.*")).expect("it is one");
    assert_eq!(take(&mut consumer, 10).await.len(), 10);
    let second = create(kafka, &format!("{prefix}-b"), 2).await;
    fill(kafka, &second, 20).await;
    assert_eq!(take(&mut consumer, 20).await.len(), 20, "what was read is not read again");
    assert_eq!(consumer.assignment().count(), 3);
    consumer.close().await.expect("left");
}

async fn a_cooperative_member_keeps_what_it_can(kafka: &Kafka, protocol: GroupProtocol) {
    let name = named("cooperative", protocol);
    let topic = create(kafka, &name, 4).await;
    fill(kafka, &topic, 200).await;
    let group = format!("{name}-{}", std::process::id());
    let config = || ConsumerConfig {
        group_protocol: protocol,
        assignment_strategies: vec![AssignmentStrategy::CooperativeSticky],
        auto_commit: None,
        ..of_group(&group)
    };
    let mut first = Consumer::connect(&kafka.bootstrap, config()).await.expect("connected");
    first.subscribe(vec![topic.clone()]).expect("there is a group");
    take(&mut first, 200).await;
    assert_eq!(first.assignment().count(), 4);
    let mut second = Consumer::connect(&kafka.bootstrap, config()).await.expect("connected");
    second.subscribe(vec![topic.clone()]).expect("there is a group");
    let mut revoked = BTreeSet::new();
    let deadline = Instant::now() + PATIENCE;
    while second.assignment().count() < 2 {
        assert!(Instant::now() < deadline, "the second got {:?}", second.assignment().collect::<Vec<_>>());
        let (one, other) = tokio::join!(first.poll(POLL), second.poll(POLL));
        match one.expect("a poll") {
            PollEvent::Revoked(partitions) => {
                assert_eq!(first.assignment().count() + partitions.len(), 4, "the rest is kept");
                revoked.extend(partitions);
                first.commit().await.expect("they are its own until the next poll");
            }
            PollEvent::Assigned(partitions) => assert!(partitions.is_empty(), "{partitions:?} are new"),
            PollEvent::Lost(partitions) => panic!("{partitions:?} are lost"),
            PollEvent::Chunk(_) | PollEvent::Nothing => {}
        }
        let other = other.expect("a poll");
        assert!(!matches!(other, PollEvent::Chunk(_)), "what was committed is not read again");
    }
    assert_eq!(revoked, second.assignment().collect::<BTreeSet<_>>());
    second.close().await.expect("left");
    first.close().await.expect("left");
}

/// A classic member of Kafka's own client, in another process.
fn java_member(kafka: &Kafka, topic: &str, group: &str) -> Option<Child> {
    let properties = [
        "partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        "heartbeat.interval.ms=500",
        "session.timeout.ms=6000",
    ];
    java_member_with(kafka, topic, group, &properties)
}

fn java_member_of_consumer_group(kafka: &Kafka, topic: &str, group: &str) -> Option<Child> {
    java_member_with(kafka, topic, group, &["group.protocol=consumer"])
}

fn java_member_with(kafka: &Kafka, topic: &str, group: &str, properties: &[&str]) -> Option<Child> {
    let Ok(classpath) = std::env::var("KAFKA_CLASSPATH") else {
        skipped("a group with members of Kafka's own client");
        return None;
    };
    let mut command = java(&classpath, "-Xmx128m");
    command.args(["org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", topic, "--group", group]);
    command.args(["--bootstrap-server", &kafka.bootstrap[0]]);
    for property in properties {
        command.args(["--command-property", property]);
    }
    Some(command.spawn().expect("java runs"))
}

/// A member of librdkafka's, in another process.
fn librdkafka_member(kafka: &Kafka, topic: &str, group: &str) -> Option<Child> {
    let mut command = Command::new("kcat");
    command.args(["-b", &kafka.bootstrap[0], "-G", group, topic]);
    for property in [
        "partition.assignment.strategy=cooperative-sticky",
        "heartbeat.interval.ms=500",
        "session.timeout.ms=6000",
    ] {
        command.args(["-X", property]);
    }
    match command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Ok(child) => Some(child),
        Err(_) => {
            writeln!(std::io::stderr(), "SKIPPED: a group with members of librdkafka: install kcat")
                .expect("stderr takes a line");
            None
        }
    }
}

/// Polls until the member has this many partitions; returns those that were revoked.
async fn until_held(consumer: &mut Consumer, count: usize) -> usize {
    let (mut revoked, deadline) = (0, Instant::now() + PATIENCE);
    while consumer.assignment().count() != count {
        assert!(
            Instant::now() < deadline,
            "{} partitions in place of {count}",
            consumer.assignment().count()
        );
        match consumer.poll(POLL).await.expect("a poll") {
            PollEvent::Revoked(partitions) => revoked += partitions.len(),
            PollEvent::Lost(partitions) => panic!("{partitions:?} are lost"),
            PollEvent::Chunk(_) | PollEvent::Assigned(_) | PollEvent::Nothing => {}
        }
    }
    revoked
}

/// The sticky assignors of other clients and ours use each other's subscriptions, whichever leads.
async fn foreign_members_share_with_ours(
    kafka: &Kafka,
    name: &str,
    protocol: GroupProtocol,
    member: impl Fn(&Kafka, &str, &str) -> Option<Child>,
) {
    let topic = create(kafka, name, 4).await;
    let group = format!("{name}-{}", std::process::id());
    let config = || ConsumerConfig {
        group_protocol: protocol,
        assignment_strategies: vec![AssignmentStrategy::CooperativeSticky],
        session_timeout: Duration::from_secs(6),
        ..of_group(&group)
    };
    // Ours leads, and theirs joins.
    let mut first = Consumer::connect(&kafka.bootstrap, config()).await.expect("connected");
    first.subscribe(vec![topic.clone()]).expect("there is a group");
    until_held(&mut first, 4).await;
    let Some(mut theirs) = member(kafka, &topic, &group) else { return };
    assert_eq!(until_held(&mut first, 2).await, 2, "no more is given up than is due");
    // Then theirs leads, and another of ours joins.
    first.close().await.expect("left");
    let mut second = Consumer::connect(&kafka.bootstrap, config()).await.expect("connected");
    second.subscribe(vec![topic]).expect("there is a group");
    until_held(&mut second, 2).await;
    theirs.kill().and_then(|()| theirs.wait()).expect("it is ours to stop");
    assert_eq!(until_held(&mut second, 4).await, 0, "what it has stays");
    second.close().await.expect("left");
}

async fn a_static_member_comes_back_without_a_rebalance(kafka: &Kafka, protocol: GroupProtocol) {
    let topic = create(kafka, &named("static", protocol), 2).await;
    let group = format!("{}-{}", named("static", protocol), std::process::id());
    let config = |name: &str| ConsumerConfig {
        group_protocol: protocol,
        group_instance_id: Some(name.to_owned()),
        session_timeout: Duration::from_secs(30),
        ..of_group(&group)
    };
    let mut members = Vec::new();
    for name in ["a", "b"] {
        let mut consumer = Consumer::connect(&kafka.bootstrap, config(name)).await.expect("connected");
        consumer.subscribe(vec![topic.clone()]).expect("there is a group");
        members.push(consumer);
    }
    let [a, b] = &mut members[..] else { panic!("two members") };
    let deadline = Instant::now() + PATIENCE;
    while a.assignment().count() != 1 || b.assignment().count() != 1 {
        assert!(Instant::now() < deadline, "the partitions are not shared");
        let (one, other) = tokio::join!(a.poll(POLL), b.poll(POLL));
        one.and(other).expect("two polls");
    }
    let (before, generation) = (b.assignment().next(), a.group_metadata().expect("a member").generation);
    members.pop().expect("b").close().await.expect("closed");
    let mut again = Consumer::connect(&kafka.bootstrap, config("b")).await.expect("connected");
    again.subscribe(vec![topic]).expect("there is a group");
    let a = &mut members[0];
    while again.assignment().count() != 1 {
        assert!(Instant::now() < deadline, "it has no partition");
        let (one, other) = tokio::join!(a.poll(POLL), again.poll(POLL));
        one.and(other).expect("two polls");
    }
    assert_eq!(again.assignment().next(), before);
    assert_eq!(again.group_metadata().expect("a member").generation, generation);
    members.pop().expect("a").close().await.expect("closed");
    again.close().await.expect("closed");
}

/// Reads the available part of a transaction, and writes it to another topic with the offsets.
async fn pass(consumer: &mut Consumer, producer: &mut Producer, to: &str, aborts: bool) -> usize {
    let to = producer.topic(to).await.expect("the topic");
    let (mut passed, mut buffer) = (0, DecompressBuffer::default());
    let deadline = Instant::now() + PATIENCE;
    while passed == 0 {
        assert!(Instant::now() < deadline, "nothing came");
        let PollEvent::Chunk(chunk) = consumer.poll(POLL).await.expect("a poll") else { continue };
        producer.begin_transaction().expect("it is ready");
        let mut values = Vec::new();
        let each = |record: &thalweg_record::Record<'_>| {
            values.push(record.value.expect("a value").to_vec());
            ControlFlow::Continue(())
        };
        chunk.for_each(&mut buffer, each).expect("readable");
        for value in &values {
            let record = ProducerRecord {
                topic: to,
                partition: None,
                timestamp: 1_700_000_000_000,
                key: None,
                value: Some(value),
                headers: &[],
                sent_at: Instant::now(),
                number: 0,
            };
            producer.send(&record).await.expect("taken");
        }
        passed += values.len();
        let offsets = BTreeMap::from([(chunk.at.clone(), CommittedOffset::new(chunk.next))]);
        let group = consumer.group_metadata().expect("a member");
        producer.send_offsets_to_transaction(&offsets, &group).await.expect("sent");
        match aborts {
            true => {
                producer.abort_transaction().await.expect("aborted");
                consumer.seek_to(&chunk.at, StartAt::Committed);
                return 0;
            }
            false => producer.commit_transaction().await.expect("committed"),
        }
    }
    passed
}

async fn records_pass_exactly_once(kafka: &Kafka, protocol: GroupProtocol) {
    let from = create(kafka, &named("from", protocol), 2).await;
    let to = create(kafka, &named("to", protocol), 1).await;
    fill(kafka, &from, 300).await;
    let config = ProducerConfig {
        transactional_id: Some(format!("pass-{}", std::process::id())),
        ..ProducerConfig::default()
    };
    let mut producer = Producer::connect(&kafka.bootstrap, config, |_| {}).await.expect("connected");
    producer.init_transactions().await.expect("initialised");
    let config = ConsumerConfig {
        auto_commit: None,
        partition_fetch_bytes_max: 2000,
        group_protocol: protocol,
        ..of_group(&format!("{}-{}", named("pass", protocol), std::process::id()))
    };
    let mut consumer = Consumer::connect(&kafka.bootstrap, config).await.expect("connected");
    consumer.subscribe(vec![from]).expect("there is a group");
    let (mut passed, mut round) = (0, 0);
    while passed < 300 {
        passed += pass(&mut consumer, &mut producer, &to, round % 3 == 1).await;
        round += 1;
    }
    consumer.close().await.expect("left");
    let config =
        ConsumerConfig { read_committed: true, offset_reset: OffsetReset::Earliest, ..of_group("out") };
    let mut reader = Consumer::connect(&kafka.bootstrap, config).await.expect("connected");
    let at = TopicPartition::new(to.as_str(), 0);
    reader.assign(vec![(at, StartAt::Spec(OffsetSpec::Earliest))]).await.expect("assigned");
    let records = take(&mut reader, 300).await;
    let values: BTreeSet<Vec<u8>> = records.iter().filter_map(|record| record.value.clone()).collect();
    assert_eq!((records.len(), values.len()), (300, 300), "each once");
    quiet(&mut reader).await;
}
