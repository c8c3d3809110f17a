//! Against a real cluster: Apache Kafka, started from the jars in `KAFKA_CLASSPATH`, or the cluster at
//! `TEST_BOOTSTRAP_SERVER`. Skipped, with a message, if neither is set.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use thalweg_client::{
    Acks, Chunk, Cluster, ConnectionOptions, Consumer, ConsumerConfig, Delivery, GroupProtocol, OffsetReset,
    OffsetSpec, PollEvent, Producer, ProducerConfig, ProducerRecord, RefusedRequest, StartAt, TopicPartition,
};
use thalweg_ports::free_port;
use thalweg_record::{Compression, DecompressBuffer, Header, Offset};
use thalweg_wire::request::CreateTopicsRequest;
use thalweg_wire::request::create_topics_request::CreatableTopic;
use tokio::time::Instant;

use crate::fake::StoredRecord;
use crate::random::{record, seeded};

/// A broker, stopped when it is dropped.
pub struct Kafka {
    pub bootstrap: Vec<String>,
    pub child: Option<Child>,
    pub _data: Option<tempfile::TempDir>,
}

impl Drop for Kafka {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            child.kill().and_then(|()| child.wait()).expect("the broker is ours to stop");
        }
    }
}

impl Kafka {
    /// Kills the broker, if it is ours.
    pub fn kill(&mut self) -> bool {
        let Some(child) = &mut self.child else { return false };
        child.kill().and_then(|()| child.wait()).expect("the broker is ours to stop");
        true
    }

    /// Starts the broker again, with the data that it had.
    pub fn start_again(&mut self) {
        let data = self._data.as_ref().expect("the broker is ours");
        let classpath = std::env::var("KAFKA_CLASSPATH").expect("it was started from there");
        let properties = data.path().join("server.properties");
        let child = java(&classpath, "-Xmx512m").arg("kafka.Kafka").arg(&properties).spawn();
        self.child = Some(child.expect("java runs"));
    }
}

/// Records here are years old by their timestamps, and Kafka looks for such half a minute after its start.
pub const KEEP_OLD_RECORDS: &str = "log.retention.ms=-1\n";

/// Reports in the summary of all tests that this one did not run; the test harness would hide a printed line.
pub fn skipped(what: &str) {
    let how = "export KAFKA_CLASSPATH=\"$(compat/kafka-jars/fetch)\", with Java 17 or later";
    writeln!(std::io::stderr(), "SKIPPED: {what}: {how}").expect("stderr takes a line");
}

pub fn java(classpath: &str, heap: &str) -> Command {
    let mut command = Command::new("java");
    command.args([heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

pub async fn kafka() -> Option<Kafka> {
    kafka_with(&[]).await
}

/// With these features in place of those of the release, as `kafka-storage.sh format --feature` takes them.
pub async fn kafka_with(features: &[&str]) -> Option<Kafka> {
    if let Ok(servers) = std::env::var("TEST_BOOTSTRAP_SERVER") {
        return Some(Kafka { bootstrap: vec![servers], child: None, _data: None });
    }
    let Ok(classpath) = std::env::var("KAFKA_CLASSPATH") else {
        skipped("the client against Apache Kafka");
        return None;
    };
    let data = tempfile::tempdir().expect("a directory");
    let (port, controller) = (free_port(), free_port());
    let properties = data.path().join("server.properties");
    let text = format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         controller.listener.names=CONTROLLER\nlog.dirs={}\nnum.partitions=3\n\
         offsets.topic.replication.factor=1\noffsets.topic.num.partitions=3\ngroup.initial.rebalance.delay.ms=0\n\
         group.consumer.min.heartbeat.interval.ms=200\ngroup.consumer.heartbeat.interval.ms=200\n\
         group.consumer.min.session.timeout.ms=10000\ngroup.consumer.session.timeout.ms=10000\n\
         group.share.min.heartbeat.interval.ms=200\ngroup.share.heartbeat.interval.ms=200\n\
         share.coordinator.state.topic.replication.factor=1\nshare.coordinator.state.topic.min.isr=1\n\
         share.coordinator.state.topic.num.partitions=3\n\
         transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
         transaction.state.log.num.partitions=3\n{KEEP_OLD_RECORDS}",
        data.path().join("data").display()
    );
    std::fs::write(&properties, text).expect("written");
    let format = java(&classpath, "-Xmx256m")
        .args(["kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c"])
        .arg(&properties)
        .args(features.iter().flat_map(|feature| ["--feature", feature]))
        .status();
    assert!(format.expect("java runs").success(), "the data directory is formatted");
    let child = java(&classpath, "-Xmx512m").arg("kafka.Kafka").arg(&properties).spawn().expect("java runs");
    let bootstrap = vec![format!("127.0.0.1:{port}")];
    let kafka = Kafka { bootstrap, child: Some(child), _data: Some(data) };
    let deadline = Instant::now() + Duration::from_secs(120);
    while Cluster::connect(&kafka.bootstrap, &ConnectionOptions::default()).await.is_err() {
        assert!(Instant::now() < deadline, "Kafka did not start within two minutes");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Some(kafka)
}

#[tokio::test]
async fn a_cluster_understands_us_and_we_it() {
    let Some(kafka) = kafka().await else { return };
    every_codec_comes_back(&kafka).await;
    offsets_are_found(&kafka).await;
    for protocol in PROTOCOLS {
        a_group_shares_and_takes_over(&kafka, protocol).await;
    }
    a_reset_follows_the_setting(&kafka).await;
}

pub async fn create(kafka: &Kafka, kind: &str, partitions: i32) -> String {
    let name = format!("{kind}-{}", std::process::id());
    let cluster = Cluster::connect(&kafka.bootstrap, &ConnectionOptions::default()).await.expect("connected");
    let topic = CreatableTopic {
        name: name.clone(),
        num_partitions: partitions,
        replication_factor: -1,
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
    let response = cluster.send_controller(&request).await.expect("an answer");
    RefusedRequest::check(response.topics[0].error_code, None, || name.clone()).expect("created");
    // A broker reports a topic a moment before it leads it; records sent in between without acks are lost.
    let all =
        (0..partitions).map(|partition| (TopicPartition::new(name.as_str(), partition), OffsetSpec::Latest));
    let all: Vec<_> = all.collect();
    loop {
        cluster.refresh(std::slice::from_ref(&name), false).await.expect("metadata");
        if cluster.list_offsets(&all, false).await.values().all(Result::is_ok) {
            return name;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub async fn produce(kafka: &Kafka, topic: &str, config: ProducerConfig, records: &[StoredRecord]) {
    let report = |delivery: &Delivery<'_>| assert!(delivery.result.is_ok(), "{:?}", delivery.result);
    let mut producer = Producer::connect(&kafka.bootstrap, config, report).await.expect("connected");
    let topic = producer.topic(topic).await.expect("the topic");
    for record in records {
        let headers: Vec<Header<'_>> =
            record.headers.iter().map(|(key, value)| Header { key, value: value.as_deref() }).collect();
        let record = ProducerRecord {
            topic,
            partition: None,
            timestamp: record.timestamp,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &headers,
            sent_at: Instant::now(),
            number: 0,
        };
        producer.send(&record).await.expect("taken");
    }
    producer.close().await;
}

pub fn read(chunk: &Chunk, into: &mut Vec<StoredRecord>) {
    let mut buffer = DecompressBuffer::default();
    let mut offset = chunk.start;
    chunk
        .for_each(&mut buffer, |record| {
            assert!(record.offset >= offset, "offsets grow");
            offset = record.offset + 1;
            into.push(StoredRecord {
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers: record.headers.map(|h| (h.key.to_vec(), h.value.map(<[u8]>::to_vec))).collect(),
                timestamp: record.timestamp,
            });
            ControlFlow::Continue(())
        })
        .expect("readable");
}

/// Reads `count` records, and gives those of each partition.
pub async fn consume(consumer: &mut Consumer, count: usize) -> BTreeMap<i32, Vec<StoredRecord>> {
    let mut read_by_partition: BTreeMap<i32, Vec<StoredRecord>> = BTreeMap::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while read_by_partition.values().map(Vec::len).sum::<usize>() < count {
        let so_far = read_by_partition.values().map(Vec::len).sum::<usize>();
        assert!(
            Instant::now() < deadline,
            "{so_far} of {count} records came: {:?}",
            consumer.assignment().next()
        );
        if let PollEvent::Chunk(chunk) = consumer.poll(Duration::from_millis(500)).await.expect("a poll") {
            read(&chunk, read_by_partition.entry(chunk.at.partition).or_default());
        }
    }
    read_by_partition
}

async fn every_codec_comes_back(kafka: &Kafka) {
    let mut random = seeded(1);
    for (at, compression) in
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd]
            .into_iter()
            .enumerate()
    {
        for acks in [Acks::None, Acks::Leader, Acks::All] {
            let topic = create(kafka, &format!("codec-{at}-{}", acks.code()), 3).await;
            let sent: Vec<StoredRecord> = (0..500).map(|number| record(&mut random, number, 300)).collect();
            let idempotence = acks == Acks::All;
            let config =
                ProducerConfig { acks, compression, idempotence, batch_bytes: 2000, ..Default::default() };
            produce(kafka, &topic, config, &sent).await;
            let mut consumer =
                Consumer::connect(&kafka.bootstrap, ConsumerConfig::default()).await.expect("connected");
            let all = (0..3).map(|partition| {
                (TopicPartition::new(topic.as_str(), partition), StartAt::Spec(OffsetSpec::Earliest))
            });
            consumer.assign(all.collect()).await.expect("assigned");
            let read = consume(&mut consumer, sent.len()).await;
            for records in read.values() {
                let mut values =
                    records.iter().map(|record| record.value.as_deref().expect("a value")[..8].to_vec());
                assert!(
                    values.by_ref().is_sorted(),
                    "{compression}, acks={}: a partition keeps the order",
                    acks.code()
                );
            }
            let mut read: Vec<StoredRecord> = read.into_values().flatten().collect();
            read.sort_by(|a, b| a.value.cmp(&b.value));
            assert_eq!(read, sent, "{compression} with acks={}", acks.code());
        }
    }
}

async fn offsets_are_found(kafka: &Kafka) {
    let topic = create(kafka, "offsets", 1).await;
    let mut random = seeded(2);
    let sent: Vec<StoredRecord> = (0..100).map(|number| record(&mut random, number, 10)).collect();
    produce(
        kafka,
        &topic,
        ProducerConfig { ignore_keys: true, batch_bytes: 100, ..Default::default() },
        &sent,
    )
    .await;
    let cluster = Cluster::connect(&kafka.bootstrap, &ConnectionOptions::default()).await.expect("connected");
    cluster.refresh(std::slice::from_ref(&topic), false).await.expect("metadata");
    let at = TopicPartition::new(topic.as_str(), 0);
    for (spec, offset) in [
        (OffsetSpec::Earliest, 0),
        (OffsetSpec::Latest, 100),
        (OffsetSpec::At(sent[40].timestamp), 40),
        (OffsetSpec::At(i64::MAX), -1),
        (OffsetSpec::MaxTimestamp, 99),
    ] {
        let found = cluster.list_offsets(&[(at.clone(), spec)], false).await;
        let found = found[&at].as_ref().expect("an offset");
        assert_eq!(found.offset, Offset(offset), "{spec:?}");
    }
    let nowhere = TopicPartition::new("nowhere", 0);
    let found = cluster.list_offsets(&[(nowhere.clone(), OffsetSpec::Latest)], false).await;
    assert!(found[&nowhere].is_err());
}

/// Both protocols of consumer groups.
pub const PROTOCOLS: [GroupProtocol; 2] = [GroupProtocol::Classic, GroupProtocol::Consumer];

/// A name of this protocol's own.
pub fn named(name: &str, protocol: GroupProtocol) -> String {
    format!("{name}-{protocol:?}").to_lowercase()
}

pub fn of_group(group: &str) -> ConsumerConfig {
    ConsumerConfig {
        group: Some(group.to_owned()),
        offset_reset: OffsetReset::Earliest,
        heartbeat_interval: Duration::from_millis(200),
        fetch_wait_max: Duration::from_millis(100),
        ..ConsumerConfig::default()
    }
}

/// Polls both until each has two partitions. What is revoked is given up by the next poll only.
async fn until_shared(first: &mut Consumer, second: &mut Consumer) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while first.assignment().count() != 2 || second.assignment().count() != 2 {
        assert!(Instant::now() < deadline, "the partitions are not shared");
        let wait = Duration::from_millis(100);
        let (one, other) = tokio::join!(first.poll(wait), second.poll(wait));
        for polled in [one, other] {
            let polled = polled.expect("a poll");
            assert!(
                !matches!(polled, PollEvent::Chunk(_)),
                "what was read is committed before it changes hands"
            );
        }
    }
}

async fn a_group_shares_and_takes_over(kafka: &Kafka, protocol: GroupProtocol) {
    let topic = create(kafka, &named("group", protocol), 4).await;
    let group = format!("{}-{}", named("g", protocol), std::process::id());
    let member = || ConsumerConfig { group_protocol: protocol, ..of_group(&group) };
    let mut random = seeded(3);
    let sent: Vec<StoredRecord> = (0..400).map(|number| record(&mut random, number, 10)).collect();
    let config = ProducerConfig { batch_bytes: 300, ..ProducerConfig::default() };
    produce(kafka, &topic, config.clone(), &sent).await;
    let mut first = Consumer::connect(&kafka.bootstrap, member()).await.expect("connected");
    first.subscribe(vec![topic.clone()]).expect("there is a group");
    assert_eq!(consume(&mut first, sent.len()).await.into_values().flatten().count(), sent.len());
    assert_eq!(first.assignment().count(), 4);

    // A second member gets its share.
    let mut second = Consumer::connect(&kafka.bootstrap, member()).await.expect("connected");
    second.subscribe(vec![topic.clone()]).expect("there is a group");
    until_shared(&mut first, &mut second).await;
    let held: BTreeSet<_> = first.assignment().chain(second.assignment()).collect();
    assert_eq!(held.len(), 4, "each partition has one reader");

    // When it leaves, the first takes over where it was.
    second.close().await.expect("left");
    produce(kafka, &topic, config, &sent).await;
    let mut again = 0;
    let deadline = Instant::now() + Duration::from_secs(60);
    while again < sent.len() || first.assignment().count() != 4 {
        assert!(Instant::now() < deadline, "the first did not take over: {again} records");
        if let PollEvent::Chunk(chunk) = first.poll(Duration::from_millis(100)).await.expect("a poll") {
            let mut records = Vec::new();
            read(&chunk, &mut records);
            again += records.len();
        }
    }
    assert_eq!(again, sent.len(), "nothing is read twice");
    first.close().await.expect("left");
}

async fn a_reset_follows_the_setting(kafka: &Kafka) {
    let topic = create(kafka, "reset", 1).await;
    let mut random = seeded(4);
    let sent: Vec<StoredRecord> = (0..10).map(|number| record(&mut random, number, 10)).collect();
    produce(kafka, &topic, ProducerConfig::default(), &sent).await;
    let at = TopicPartition::new(topic.as_str(), 0);
    for (reset, position) in
        [(OffsetReset::Earliest, Some(10)), (OffsetReset::Latest, Some(10)), (OffsetReset::None, None)]
    {
        let config = ConsumerConfig {
            offset_reset: reset,
            fetch_wait_max: Duration::from_millis(100),
            ..ConsumerConfig::default()
        };
        let mut consumer = Consumer::connect(&kafka.bootstrap, config).await.expect("connected");
        consumer.assign(vec![(at.clone(), StartAt::Offset(Offset(500)))]).await.expect("assigned");
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut polled = consumer.poll(Duration::from_millis(500)).await;
        while matches!(polled, Ok(PollEvent::Nothing))
            && !(reset == OffsetReset::Latest && consumer.position(&at) == position.map(Offset))
            && Instant::now() < deadline
        {
            polled = consumer.poll(Duration::from_millis(500)).await;
        }
        match (reset, polled) {
            (OffsetReset::Earliest, Ok(PollEvent::Chunk(chunk))) => assert_eq!(chunk.start, Offset(0)),
            (OffsetReset::Latest, Ok(PollEvent::Nothing)) => {}
            (OffsetReset::None, Err(error)) => {
                assert!(error.to_string().contains("500 is not in its log"), "{error}");
                continue;
            }
            (reset, polled) => panic!("{reset:?}: {polled:?}"),
        }
        assert_eq!(consumer.position(&at), position.map(Offset));
    }
}
