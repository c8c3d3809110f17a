//! Administration: settings that change at run time, deleted records, descriptions of directories and
//! producers, stored quotas, and their persistence.

use crate::running::RunningBroker;
use std::collections::BTreeMap;
use thalweg_record::{BatchBuilder, BatchOptions, Compression, ProducerEpoch, ProducerId};
use thalweg_wire::request::alter_client_quotas_request::{EntityData, EntryData, OpData};
use thalweg_wire::request::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use thalweg_wire::request::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;
use thalweg_wire::request::describe_log_dirs_request::DescribableLogDirTopic;
use thalweg_wire::request::describe_producers_request::TopicRequest;
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::produce_request::{PartitionProduceData, TopicProduceData};
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Records};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const LOGGER: i8 = 8;
const GROUP: i8 = 32;
const SET: i8 = 0;
const DELETE: i8 = 1;

type Broker = RunningBroker;

/// A directory that is removed with the test.
fn data() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

async fn create(broker: &Broker, name: &str, configs: &[(&str, &str)]) {
    let configs = configs.iter().map(|(name, value)| CreatableTopicConfig {
        name: (*name).to_owned(),
        value: Some((*value).to_owned()),
    });
    let topic = CreatableTopic {
        name: name.to_owned(),
        num_partitions: 1,
        replication_factor: 1,
        configs: configs.collect(),
        ..Default::default()
    };
    let response = broker
        .ask(&CreateTopicsRequest { topics: vec![topic], timeout_ms: 5000, ..Default::default() })
        .await;
    assert_eq!(response.topics[0].error_code, 0, "{:?}", response.topics[0].error_message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_with_the_longest_name_is_sent_and_the_connection_stays() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[]).await;
    let longest = "x".repeat(32_767);
    // The controller refuses it, with the name in its words.
    let topic = CreatableTopic {
        name: longest.clone(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 5000, ..Default::default() };
    for version in [4, 7] {
        let refused = broker.ask_at(&request, version).await.topics.remove(0);
        assert_eq!(refused.error_code, ErrorCode::InvalidTopicException.code());
        let message = refused.error_message.expect("a reason");
        assert!(message.contains("xxx") && message.len() == 32_767, "{} bytes", message.len());
    }
    // The broker and the controller refuse it.
    create(&broker, "topic", &[]).await;
    let config = AlterableConfig { name: longest, config_operation: SET, value: Some("1".to_owned()) };
    for resource_type in [TOPIC, BROKER] {
        let resource_name = if resource_type == TOPIC { "topic" } else { "0" }.to_owned();
        let resource = AlterConfigsResource { resource_type, resource_name, configs: vec![config.clone()] };
        let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
        assert_ne!(broker.ask(&request).await.responses[0].error_code, 0);
    }
    broker.stop().await;
}

/// Produces one batch with one value of this size to partition 0; returns the error code.
async fn produce(broker: &Broker, topic: &str, bytes: usize, options: BatchOptions) -> i16 {
    let mut builder = BatchBuilder::new(options);
    let now_ms = broker.server().broker.clock.now_ms();
    builder.append(now_ms, Some(b"key"), Some(&vec![b'x'; bytes]), &[]).expect("it fits");
    let partition = PartitionProduceData { index: 0, records: Some(Records::Inline(builder.build())) };
    let topic =
        TopicProduceData { name: topic.to_owned(), partition_data: vec![partition], ..Default::default() };
    let request =
        ProduceRequest { acks: -1, timeout_ms: 5000, topic_data: vec![topic], ..Default::default() };
    broker.ask_at(&request, 12).await.responses[0].partition_responses[0].error_code
}

fn change(kind: i8, name: &str, key: &str, op: i8, value: Option<&str>) -> AlterConfigsResource {
    let config =
        AlterableConfig { name: key.to_owned(), config_operation: op, value: value.map(str::to_owned) };
    AlterConfigsResource { resource_type: kind, resource_name: name.to_owned(), configs: vec![config] }
}

/// The code and the message for each resource.
async fn alter(broker: &Broker, resources: Vec<AlterConfigsResource>) -> Vec<(i16, Option<String>)> {
    let request = IncrementalAlterConfigsRequest { resources, validate_only: false };
    let responses = broker.ask(&request).await.responses;
    responses.into_iter().map(|answer| (answer.error_code, answer.error_message)).collect()
}

/// The value of a key and its source.
async fn described(broker: &Broker, kind: i8, name: &str, key: &str) -> (Option<String>, i8) {
    let resource = DescribeConfigsResource {
        resource_type: kind,
        resource_name: name.to_owned(),
        configuration_keys: Some(vec![key.to_owned()]),
    };
    let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
    let mut results = broker.ask(&request).await.results;
    assert_eq!(results[0].error_code, 0, "{:?}", results[0].error_message);
    match results[0].configs.pop() {
        Some(config) => (config.value, config.config_source),
        None => (None, 0),
    }
}

const FINE: (i16, Option<String>) = (0, None);

#[tokio::test(flavor = "multi_thread")]
async fn settings_take_effect_while_the_broker_runs() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[]).await;
    create(&broker, "t", &[]).await;
    let send = |bytes| produce(&broker, "t", bytes, BatchOptions::default());
    let too_large = ErrorCode::MessageTooLarge.code();
    assert_eq!(send(2000).await, 0);

    let of_topic = |op, value| vec![change(TOPIC, "t", "max.message.bytes", op, value)];
    assert_eq!(alter(&broker, of_topic(SET, Some("1000"))).await, [FINE]);
    assert_eq!(send(2000).await, too_large, "the topic's own limit");
    let of_all = |op, value| vec![change(BROKER, "", "message.max.bytes", op, value)];
    assert_eq!(alter(&broker, of_all(SET, Some("500"))).await, [FINE]);
    assert_eq!(send(700).await, 0, "the topic's limit hides the broker's");
    assert_eq!(alter(&broker, of_topic(DELETE, None)).await, [FINE]);
    assert_eq!(send(700).await, too_large, "the limit of all brokers");
    let of_broker = vec![change(BROKER, "1", "message.max.bytes", SET, Some("800"))];
    assert_eq!(alter(&broker, of_broker).await, [FINE]);
    assert_eq!(send(700).await, 0, "this broker's limit goes before that of all");
    let inherited = described(&broker, TOPIC, "t", "max.message.bytes").await;
    assert_eq!(inherited, (Some("800".to_owned()), 2));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_limited_while_the_broker_runs() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[]).await;
    assert!(broker.admits_another().await);
    let limit = |op, value| vec![change(BROKER, "", "max.connections", op, value)];
    assert_eq!(alter(&broker, limit(SET, Some("1"))).await, [FINE]);
    {
        let mut another = std::pin::pin!(broker.admits_another());
        let soon = std::time::Duration::from_millis(300);
        let waits = tokio::time::timeout(soon, &mut another).await.is_err();
        assert!(waits, "the connection that asks is the only one");
        assert_eq!(alter(&broker, limit(DELETE, None)).await, [FINE]);
        assert!(another.await);
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_that_has_no_effect_here_is_stored_and_described() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[]).await;
    let kerberos = "sasl.kerberos.min.time.before.relogin";
    let of_broker = |op, value| vec![change(BROKER, "1", kerberos, op, value)];
    assert_eq!(alter(&broker, of_broker(SET, Some("1000"))).await, [FINE]);
    assert_eq!(described(&broker, BROKER, "1", kerberos).await, (Some("1000".to_owned()), 2));
    broker.stop().await;
    let broker = RunningBroker::start(dir.path(), &[]).await;
    assert_eq!(described(&broker, BROKER, "1", kerberos).await, (Some("1000".to_owned()), 2));
    assert_eq!(alter(&broker, of_broker(DELETE, None)).await, [FINE]);
    assert_eq!(described(&broker, BROKER, "1", kerberos).await, (None, 0));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_outlive_the_broker() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[("message.max.bytes", "900")]).await;
    create(&broker, "t", &[("retention.ms", "777000")]).await;
    let changes = vec![
        change(BROKER, "", "message.max.bytes", SET, Some("500")),
        change(GROUP, "g", "consumer.session.timeout.ms", SET, Some("50000")),
    ];
    assert_eq!(alter(&broker, changes).await, [FINE, FINE]);
    broker.stop().await;

    let broker = RunningBroker::start(dir.path(), &[("message.max.bytes", "900")]).await;
    assert_eq!(described(&broker, TOPIC, "t", "retention.ms").await, (Some("777000".to_owned()), 1));
    assert_eq!(described(&broker, BROKER, "1", "message.max.bytes").await, (Some("500".to_owned()), 3));
    let group = described(&broker, GROUP, "g", "consumer.session.timeout.ms").await;
    assert_eq!(group, (Some("50000".to_owned()), 8));
    assert_eq!(produce(&broker, "t", 700, BatchOptions::default()).await, ErrorCode::MessageTooLarge.code());
    let changes = vec![change(BROKER, "", "message.max.bytes", DELETE, None)];
    assert_eq!(alter(&broker, changes).await, [FINE]);
    assert_eq!(produce(&broker, "t", 700, BatchOptions::default()).await, 0, "the file's limit is back");
    let resources = broker.ask(&ListConfigResourcesRequest::default()).await.config_resources;
    let named: Vec<_> = resources.iter().map(|r| (r.resource_type, r.resource_name.as_str())).collect();
    assert_eq!(named, [(GROUP, "g"), (LOGGER, "1"), (BROKER, "1"), (TOPIC, "t")]);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broker_and_controller_answer_for_one_request_together() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[]).await;
    create(&broker, "t", &[]).await;
    let answers = alter(
        &broker,
        vec![
            change(TOPIC, "t", "retention.ms", SET, Some("1000")),
            change(BROKER, "1", "node.id", SET, Some("1")),
            change(TOPIC, "nope", "retention.ms", SET, Some("1000")),
            change(BROKER, "2", "log.retention.ms", SET, Some("1000")),
            change(LOGGER, "1", "root", SET, Some("DEBUG")),
            change(GROUP, "g", "nope", SET, Some("1")),
            change(TOPIC, "t", "retention.ms", 9, Some("1000")),
        ],
    )
    .await;
    let told = |code: i16, message: &str| (code, Some(message.to_owned()));
    let twice = told(42, "Each resource must appear at most once.");
    assert_eq!(
        answers,
        [
            twice.clone(),
            told(42, "Cannot update these configs dynamically: [node.id]"),
            told(3, "The topic 'nope' does not exist."),
            told(42, "Unexpected broker id, expected 1, but received 2"),
            told(40, "Logger root does not exist!"),
            told(40, "Unknown group config name: nope"),
            twice,
        ]
    );
    // As every broker of these tests has it: nothing of the topic was changed.
    assert_eq!(described(&broker, TOPIC, "t", "retention.ms").await, (Some("-1".to_owned()), 4));
    broker.stop().await;
}

async fn delete_records(broker: &Broker, topic: &str, partition_index: i32, offset: i64) -> (i64, i16) {
    let partitions = vec![DeleteRecordsPartition { partition_index, offset }];
    let topics = vec![DeleteRecordsTopic { name: topic.to_owned(), partitions }];
    let mut response = broker.ask(&DeleteRecordsRequest { topics, timeout_ms: 5000 }).await;
    let answer = response.topics.remove(0).partitions.remove(0);
    (answer.low_watermark, answer.error_code)
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_records_stay_deleted() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[]).await;
    create(&broker, "t", &[]).await;
    create(&broker, "compacted", &[("cleanup.policy", "compact")]).await;
    for _ in 0..10 {
        assert_eq!(produce(&broker, "t", 10, BatchOptions::default()).await, 0);
    }
    assert_eq!(delete_records(&broker, "t", 0, 5).await, (5, 0));
    assert_eq!(delete_records(&broker, "t", 0, 3).await, (5, 0), "it never goes back");
    assert_eq!(delete_records(&broker, "t", 0, 11).await, (-1, ErrorCode::OffsetOutOfRange.code()));
    assert_eq!(delete_records(&broker, "t", 0, -2).await, (-1, ErrorCode::OffsetOutOfRange.code()));
    assert_eq!(delete_records(&broker, "t", 9, 0).await, (-1, ErrorCode::UnknownTopicOrPartition.code()));
    assert_eq!(delete_records(&broker, "compacted", 0, 0).await, (-1, ErrorCode::PolicyViolation.code()));

    // The state after a crash: no clean stop.
    let copy = data();
    copy_dir(dir.path(), copy.path());
    broker.stop().await;
    let broker = RunningBroker::start(copy.path(), &[]).await;
    assert_eq!(delete_records(&broker, "t", 0, 0).await, (5, 0));
    assert_eq!(delete_records(&broker, "t", 0, -1).await, (10, 0), "up to the high watermark");
    broker.stop().await;
}

fn copy_dir(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_show_their_partitions_and_sizes() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[]).await;
    create(&broker, "t", &[]).await;
    create(&broker, "u", &[]).await;
    assert_eq!(produce(&broker, "t", 1000, BatchOptions::default()).await, 0);
    let asked = |topics| DescribeLogDirsRequest { topics };
    let response = broker.ask(&asked(None)).await;
    assert_eq!((response.error_code, response.results.len()), (0, 1));
    let found = &response.results[0];
    assert_eq!((found.error_code, found.log_dir.as_str()), (0, dir.path().to_str().expect("UTF-8")));
    assert!(found.total_bytes > found.usable_bytes && found.usable_bytes > 0);
    let sizes: BTreeMap<_, _> =
        found.topics.iter().map(|topic| (topic.name.as_str(), topic.partitions[0].partition_size)).collect();
    assert_eq!(sizes.keys().copied().collect::<Vec<_>>(), ["t", "u"]);
    assert!((1000..1200).contains(&sizes["t"]) && sizes["u"] == 0, "{sizes:?}");

    let only = DescribableLogDirTopic { topic: "u".to_owned(), partitions: vec![0, 9] };
    let response = broker.ask(&asked(Some(vec![only]))).await;
    let topics = &response.results[0].topics;
    assert_eq!((topics.len(), topics[0].name.as_str(), topics[0].partitions.len()), (1, "u", 1));
    assert!(broker.ask(&asked(Some(Vec::new()))).await.results[0].topics.is_empty());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_are_described() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[]).await;
    create(&broker, "t", &[]).await;
    let idempotent = BatchOptions {
        producer_id: ProducerId(4000),
        producer_epoch: ProducerEpoch(0),
        base_sequence: 0,
        compression: Compression::None,
        ..Default::default()
    };
    assert_eq!(produce(&broker, "t", 10, idempotent).await, 0);
    let topics = vec![
        TopicRequest { name: "t".to_owned(), partition_indexes: vec![0, 9] },
        TopicRequest { name: "a b".to_owned(), partition_indexes: vec![0] },
    ];
    let topics = broker.ask(&DescribeProducersRequest { topics }).await.topics;
    let producers = &topics[0].partitions[0].active_producers;
    assert_eq!(producers.len(), 1);
    assert_eq!((producers[0].producer_id, producers[0].last_sequence), (4000, 0));
    assert_eq!(producers[0].current_txn_start_offset, -1);
    assert_eq!(topics[0].partitions[1].error_code, ErrorCode::UnknownTopicOrPartition.code());
    assert_eq!(topics[1].partitions[0].error_code, ErrorCode::InvalidTopicException.code());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quotas_are_stored() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[]).await;
    let alter = |value: f64, remove| {
        let entity = vec![EntityData { entity_type: "user".to_owned(), entity_name: Some("u".to_owned()) }];
        let ops = vec![OpData { key: "producer_byte_rate".to_owned(), value, remove }];
        AlterClientQuotasRequest { entries: vec![EntryData { entity, ops }], validate_only: false }
    };
    assert_eq!(broker.ask(&alter(1024.0, false)).await.entries[0].error_code, 0);
    let refused = &broker.ask(&alter(-1.0, false)).await.entries[0];
    assert_eq!(refused.error_message.as_deref(), Some("Quota producer_byte_rate must be greater than 0"));
    let entries = broker.ask(&DescribeClientQuotasRequest::default()).await.entries.expect("a list");
    assert_eq!(entries.len(), 1);
    assert_eq!(
        (entries[0].values[0].key.as_str(), entries[0].values[0].value),
        ("producer_byte_rate", 1024.0)
    );
    assert_eq!(broker.ask(&alter(0.0, true)).await.entries[0].error_code, 0);
    let entries = broker.ask(&DescribeClientQuotasRequest::default()).await.entries;
    assert_eq!(entries, Some(Vec::new()));
    broker.stop().await;
}
