//! Requests about topics and settings: creation and deletion, deleted records, configurations, directories
//! and producers.

use super::Trial;
use thalweg_wire::request::create_partitions_request::CreatePartitionsTopic;
use thalweg_wire::request::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use thalweg_wire::request::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use thalweg_wire::request::delete_topics_request::DeleteTopicState;
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;
use thalweg_wire::request::describe_log_dirs_request::DescribableLogDirTopic;
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Uuid};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const NO_TOPIC: i16 = ErrorCode::UnknownTopicOrPartition as i16;

pub async fn ask(trial: &mut Trial) {
    topics(trial).await;
    partitions(trial).await;
    records(trial).await;
    describe_configs(trial).await;
    alter_configs(trial).await;
    looked_at(trial).await;
}

async fn topics(trial: &mut Trial) {
    let topic = |name: String, num_partitions: i32| CreatableTopic {
        name,
        num_partitions,
        replication_factor: 1,
        configs: vec![CreatableTopicConfig {
            name: "retention.ms".to_owned(),
            value: Some("1000000".to_owned()),
        }],
        ..Default::default()
    };
    let make = |version: i16, validate_only| {
        let placed = CreatableReplicaAssignment { partition_index: 0, broker_ids: vec![1] };
        let assignments = vec![placed];
        let placed =
            CreatableTopic { assignments, replication_factor: -1, ..topic(format!("placed-{version}"), -1) };
        let topics = vec![
            topic(format!("made-{version}"), 1),
            placed,
            topic("known".to_owned(), 1),
            topic("not/a/name".to_owned(), 1),
        ];
        CreateTopicsRequest { topics, timeout_ms: 5000, validate_only }
    };
    let good = |version, answer: &CreateTopicsResponse| {
        let code =
            |start: &str| answer.topics.iter().find(|t| t.name.starts_with(start)).map(|t| t.error_code);
        let told = answer.topics.iter().find(|t| t.name.starts_with("made"));
        let configs =
            told.and_then(|topic| topic.configs.as_ref()).is_some_and(|configs| !configs.is_empty());
        code("made") == Some(0)
            && code("placed") == Some(0)
            && code("known") == Some(ErrorCode::TopicAlreadyExists.code())
            && code("not") == Some(ErrorCode::InvalidTopicException.code())
            && (version >= 5) == configs
    };
    trial.each("tried", |version| make(version, true), good).await;
    trial.each("made", |version| make(version, false), good).await;
    let names = |version: i16| vec![format!("made-{}", version + 1), "nowhere".to_owned()];
    let make = |version: i16| DeleteTopicsRequest {
        topic_names: if version < 6 { names(version) } else { Vec::new() },
        topics: if version < 6 {
            Vec::new()
        } else {
            let by_name = |name| DeleteTopicState { name: Some(name), topic_id: Uuid::ZERO };
            names(version).into_iter().map(by_name).collect()
        },
        timeout_ms: 5000,
    };
    let good = |_, answer: &DeleteTopicsResponse| {
        let code = |start: &str| {
            let named = |name: &String| name.starts_with(start);
            answer.responses.iter().find(|t| t.name.as_ref().is_some_and(named)).map(|t| t.error_code)
        };
        code("made") == Some(0) && code("nowhere") == Some(NO_TOPIC)
    };
    trial.each("by name", make, good).await;
    let nowhere = trial.unknown.clone();
    let by_id = |version: i16| {
        if version < 6 {
            return DeleteTopicsRequest { topic_names: vec!["nowhere".to_owned()], ..Default::default() };
        }
        let topics = vec![DeleteTopicState { name: None, topic_id: nowhere.id }];
        DeleteTopicsRequest { topics, ..Default::default() }
    };
    let missing = |version, answer: &DeleteTopicsResponse| {
        let expected = if version < 6 { NO_TOPIC } else { ErrorCode::UnknownTopicId.code() };
        answer.responses[0].error_code == expected
    };
    trial.each("by id", by_id, missing).await;
}

async fn partitions(trial: &mut Trial) {
    let make = |name: &str, count, validate_only| CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic { name: name.to_owned(), count, assignments: None }],
        timeout_ms: 5000,
        validate_only,
    };
    let grows = |version: i16| make("placed-2", i32::from(version) + 2, false);
    trial.each("more", grows, |_, answer| answer.results[0].error_code == 0).await;
    trial.each("tried", |_| make("placed-3", 3, true), |_, answer| answer.results[0].error_code == 0).await;
    let refused = ErrorCode::InvalidPartitions.code();
    trial
        .each("fewer", |_| make("placed-3", 1, false), |_, answer| answer.results[0].error_code == refused)
        .await;
    trial
        .each("no topic", |_| make("nowhere", 3, false), |_, answer| answer.results[0].error_code == NO_TOPIC)
        .await;
}

async fn records(trial: &mut Trial) {
    let make = |name: &str, partition_index, offset| {
        let partitions = vec![DeleteRecordsPartition { partition_index, offset }];
        let topics = vec![DeleteRecordsTopic { name: name.to_owned(), partitions }];
        DeleteRecordsRequest { topics, timeout_ms: 5000 }
    };
    let of = |answer: &DeleteRecordsResponse| {
        let partition = &answer.topics[0].partitions[0];
        (partition.error_code, partition.low_watermark)
    };
    trial.each("before 0", |_| make("known", 0, 0), |_, answer| of(answer) == (0, 0)).await;
    let beyond = (ErrorCode::OffsetOutOfRange.code(), -1);
    trial.each("too many", |_| make("known", 0, 1000), |_, answer| of(answer) == beyond).await;
    trial.each("no topic", |_| make("nowhere", 0, 0), |_, answer| of(answer) == (NO_TOPIC, -1)).await;
    trial.each("no partition", |_| make("known", 9, 0), |_, answer| of(answer) == (NO_TOPIC, -1)).await;
}

async fn describe_configs(trial: &mut Trial) {
    let make = |version, resource_type, name: &str| {
        let resource = DescribeConfigsResource {
            resource_type,
            resource_name: name.to_owned(),
            configuration_keys: None,
        };
        let documentation = version >= 3;
        DescribeConfigsRequest {
            resources: vec![resource],
            include_synonyms: true,
            include_documentation: documentation,
        }
    };
    let good = |version, answer: &DescribeConfigsResponse| {
        let result = &answer.results[0];
        let types = result.configs.iter().any(|config| config.config_type != 0);
        result.error_code == 0 && result.configs.len() > 20 && types == (version >= 3)
    };
    trial.each("a topic", |version| make(version, TOPIC, "known"), good).await;
    trial.each("this broker", |version| make(version, BROKER, "1"), good).await;
    let fine = |_, answer: &DescribeConfigsResponse| answer.results[0].error_code == 0;
    for (what, kind, name) in
        [("all brokers", BROKER, ""), ("loggers", 8, "1"), ("metrics", 16, "any"), ("a group", 32, "any")]
    {
        trial.each(what, |version| make(version, kind, name), fine).await;
    }
    let code = |answer: &DescribeConfigsResponse| answer.results[0].error_code;
    trial
        .each("no topic", |version| make(version, TOPIC, "nowhere"), |_, answer| code(answer) == NO_TOPIC)
        .await;
    let invalid = ErrorCode::InvalidRequest.code();
    trial.each("no broker", |version| make(version, BROKER, "9"), |_, answer| code(answer) == invalid).await;
    trial.each("no kind", |version| make(version, 99, "x"), |_, answer| code(answer) == invalid).await;
}

async fn alter_configs(trial: &mut Trial) {
    let make = |name: &str, key: &str, value: &str| {
        use thalweg_wire::request::alter_configs_request::{AlterConfigsResource, AlterableConfig};
        let config = AlterableConfig { name: key.to_owned(), value: Some(value.to_owned()) };
        let resource_name = name.to_owned();
        let resource = AlterConfigsResource { resource_type: TOPIC, resource_name, configs: vec![config] };
        AlterConfigsRequest { resources: vec![resource], validate_only: false }
    };
    let code = |answer: &AlterConfigsResponse| answer.responses[0].error_code;
    let invalid = ErrorCode::InvalidConfig.code();
    trial.each("a topic", |_| make("known", "retention.bytes", "-1"), |_, answer| code(answer) == 0).await;
    trial.each("no value", |_| make("known", "retention.ms", "x"), |_, answer| code(answer) == invalid).await;
    trial
        .each("no topic", |_| make("nowhere", "retention.ms", "1"), |_, answer| code(answer) == NO_TOPIC)
        .await;
    let make = |name: &str, key: &str, value: &str| {
        use thalweg_wire::request::incremental_alter_configs_request::{
            AlterConfigsResource, AlterableConfig,
        };
        let config =
            AlterableConfig { name: key.to_owned(), config_operation: 0, value: Some(value.to_owned()) };
        let resource_name = name.to_owned();
        let resource = AlterConfigsResource { resource_type: TOPIC, resource_name, configs: vec![config] };
        IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false }
    };
    let code = |answer: &IncrementalAlterConfigsResponse| answer.responses[0].error_code;
    trial.each("a topic", |_| make("known", "retention.bytes", "-1"), |_, answer| code(answer) == 0).await;
    trial.each("no key", |_| make("known", "no.such.key", "x"), |_, answer| code(answer) == invalid).await;
    trial
        .each("no topic", |_| make("nowhere", "retention.ms", "1"), |_, answer| code(answer) == NO_TOPIC)
        .await;
}

async fn looked_at(trial: &mut Trial) {
    let make = |name: Option<&str>| DescribeLogDirsRequest {
        topics: name
            .map(|name| vec![DescribableLogDirTopic { topic: name.to_owned(), partitions: vec![0, 9] }]),
    };
    let good = |version, answer: &DescribeLogDirsResponse| {
        let dir = &answer.results[0];
        let sizes = (version >= 4) == (dir.total_bytes > 0);
        answer.error_code == 0
            && dir.error_code == 0
            && sizes
            && dir.topics.iter().any(|topic| topic.name == "known")
    };
    trial.each("a topic", |_| make(Some("known")), good).await;
    trial.each("all topics", |_| make(None), good).await;
    let none = |_, answer: &DescribeLogDirsResponse| {
        answer.results[0].topics.iter().all(|t| t.partitions.is_empty())
    };
    trial.each("no topic", |_| make(Some("nowhere")), none).await;

    use thalweg_wire::request::alter_replica_log_dirs_request::{
        AlterReplicaLogDir, AlterReplicaLogDirTopic,
    };
    let make = |_| {
        let topics = vec![AlterReplicaLogDirTopic { name: "known".to_owned(), partitions: vec![0] }];
        AlterReplicaLogDirsRequest { dirs: vec![AlterReplicaLogDir { path: "/nowhere".to_owned(), topics }] }
    };
    let refused = |_, answer: &AlterReplicaLogDirsResponse| {
        answer.results[0].partitions[0].error_code == ErrorCode::LogDirNotFound.code()
    };
    trial.each("no directory", make, refused).await;

    use thalweg_wire::request::describe_producers_request::TopicRequest;
    let make = |name: &str| DescribeProducersRequest {
        topics: vec![TopicRequest { name: name.to_owned(), partition_indexes: vec![0, 9] }],
    };
    let codes = |answer: &DescribeProducersResponse| -> Vec<i16> {
        answer.topics[0].partitions.iter().map(|partition| partition.error_code).collect()
    };
    trial.each("a topic", |_| make("known"), |_, answer| codes(answer) == [0, NO_TOPIC]).await;
    trial.each("no topic", |_| make("nowhere"), |_, answer| codes(answer) == [NO_TOPIC, NO_TOPIC]).await;

    use thalweg_wire::request::describe_topic_partitions_request as described;
    let make = |name: &str| DescribeTopicPartitionsRequest {
        topics: vec![described::TopicRequest { name: name.to_owned() }],
        response_partition_limit: 1,
        cursor: None,
    };
    let good = |_, answer: &DescribeTopicPartitionsResponse| {
        answer.topics[0].error_code == 0
            && answer.topics[0].partitions.len() == 1
            && answer.next_cursor.is_some()
    };
    trial.each("a topic", |_| make("known"), good).await;
    let missing = |_, answer: &DescribeTopicPartitionsResponse| {
        let topic = &answer.topics[0];
        topic.error_code == NO_TOPIC && topic.topic_authorized_operations == 3576
    };
    trial.each("no topic", |_| make("nowhere"), missing).await;
}
