//! Topics, partitions, configurations, features, reassignments, and forwarded requests.

use bytes::Bytes;
use thalweg_metadata::{BrokerId, ConfigResource, PartitionIndex};
use thalweg_wire::frame::{self, LENGTH_LEN};
use thalweg_wire::request::alter_configs_request::{
    AlterConfigsResource as LegacyResource, AlterableConfig as Legacy,
};
use thalweg_wire::request::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use thalweg_wire::request::create_partitions_request::CreatePartitionsTopic;
use thalweg_wire::request::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use thalweg_wire::request::delete_topics_request::DeleteTopicState;
use thalweg_wire::request::elect_leaders_request::TopicPartitions;
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::update_features_request::FeatureUpdateKey;
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Message, Uuid};

use crate::support::*;

fn topic(name: &str) -> CreatableTopic {
    CreatableTopic { name: name.to_owned(), num_partitions: 1, replication_factor: 1, ..Default::default() }
}

async fn create_one(bench: &Bench, topic: CreatableTopic) -> (ErrorCode, Option<String>) {
    let response = bench.send(CreateTopicsRequest { topics: vec![topic], ..Default::default() }).await;
    let result = &response.topics[0];
    (ErrorCode::from_i16(result.error_code).unwrap(), result.error_message.clone())
}

#[tokio::test]
async fn a_topic_is_created_with_its_configuration() {
    let bench = Bench::new().await;
    bench.join(1).await;
    let mut wanted = topic("orders");
    wanted.num_partitions = 3;
    wanted.configs =
        vec![CreatableTopicConfig { name: "retention.ms".to_owned(), value: Some("5".to_owned()) }];
    let response = bench.send(CreateTopicsRequest { topics: vec![wanted], ..Default::default() }).await;
    let result = &response.topics[0];
    assert_eq!((result.error_code, result.num_partitions, result.replication_factor), (0, 3, 1));
    let configs = result.configs.as_ref().unwrap();
    assert_eq!(configs.len(), 2);
    assert_eq!((configs[1].name.as_str(), configs[1].config_source), ("retention.ms", 1));
    let image = bench.image().await;
    let topic = image.topic("orders").unwrap();
    assert_eq!(topic.id, result.topic_id);
    assert_eq!(topic.partitions.len(), 3);
    let partition = topic.partition(PartitionIndex(2)).unwrap();
    assert_eq!((partition.leader, partition.replicas.as_slice()), (BrokerId(1), [BrokerId(1)].as_slice()));
    assert_eq!(partition.directories, [Uuid(1001)]);
    assert_eq!(image.configs().value(&ConfigResource::topic("orders"), "retention.ms"), Some("5"));
}

#[tokio::test]
async fn refusals_are_kafkas() {
    let bench = Bench::new().await;
    let no_broker = create_one(&bench, topic("a")).await;
    assert_eq!(no_broker.0, ErrorCode::InvalidReplicationFactor);
    bench.join(1).await;
    assert_eq!(create_one(&bench, topic("a.b")).await.0, ErrorCode::None);
    let (code, message) = create_one(&bench, topic("a_b")).await;
    assert_eq!(code, ErrorCode::InvalidTopicException);
    assert_eq!(message.as_deref(), Some("Topic 'a_b' collides with existing topic: a.b"));
    let (code, message) = create_one(&bench, topic("a.b")).await;
    assert_eq!(code, ErrorCode::TopicAlreadyExists);
    assert_eq!(message.as_deref(), Some("Topic 'a.b' already exists."));
    let both = vec![topic("t.t"), topic("t_t")];
    let response = bench.send(CreateTopicsRequest { topics: both, ..Default::default() }).await;
    assert!(
        response.topics.iter().all(|topic| topic.error_code == 0),
        "Kafka looks at topics that exist only"
    );
    for (change, code) in [
        (CreatableTopic { num_partitions: 0, ..topic("x") }, ErrorCode::InvalidPartitions),
        (CreatableTopic { replication_factor: 0, ..topic("x") }, ErrorCode::InvalidReplicationFactor),
        (CreatableTopic { replication_factor: 2, ..topic("x") }, ErrorCode::InvalidReplicationFactor),
        (topic("bad name"), ErrorCode::InvalidTopicException),
        (topic("__cluster_metadata"), ErrorCode::InvalidRequest),
        (CreatableTopic { num_partitions: 10_001, ..topic("x") }, ErrorCode::PolicyViolation),
        (
            CreatableTopic {
                configs: vec![CreatableTopicConfig {
                    name: "nonsense".to_owned(),
                    value: Some("1".to_owned()),
                }],
                ..topic("x")
            },
            ErrorCode::InvalidConfig,
        ),
        (
            CreatableTopic {
                configs: vec![CreatableTopicConfig { name: "retention.ms".to_owned(), value: None }],
                ..topic("x")
            },
            ErrorCode::InvalidConfig,
        ),
    ] {
        assert_eq!(create_one(&bench, change.clone()).await.0, code, "{change:?}");
    }
    let twice =
        CreateTopicsRequest { topics: vec![topic("d"), topic("d"), topic("e")], ..Default::default() };
    let response = bench.send(twice).await;
    let codes: Vec<_> = response.topics.iter().map(|t| (t.name.as_str(), t.error_code)).collect();
    assert_eq!(codes, [("e", 0), ("d", ErrorCode::InvalidRequest.code())]);
}

#[tokio::test]
async fn validation_alone_changes_nothing() {
    let bench = Bench::new().await;
    bench.join(1).await;
    let before = bench.image().await.offset();
    let request = CreateTopicsRequest { topics: vec![topic("x")], validate_only: true, ..Default::default() };
    assert_eq!(bench.send(request).await.topics[0].error_code, 0);
    assert_eq!(bench.image().await.offset(), before);
}

#[tokio::test]
async fn assignments_by_hand_are_kept_or_refused() {
    let bench = Bench::new().await;
    for id in 1..=3 {
        bench.join(id).await;
    }
    let assigned = |name: &str, assignments: &[&[i32]]| CreatableTopic {
        name: name.to_owned(),
        num_partitions: -1,
        replication_factor: -1,
        assignments: (0..)
            .zip(assignments)
            .map(|(partition_index, ids)| CreatableReplicaAssignment {
                partition_index,
                broker_ids: ids.to_vec(),
            })
            .collect(),
        ..Default::default()
    };
    assert_eq!(create_one(&bench, assigned("good", &[&[3, 1], &[2, 3]])).await.0, ErrorCode::None);
    let image = bench.image().await;
    let partition = image.partition("good", PartitionIndex(0)).unwrap();
    let (one, three) = (BrokerId(1), BrokerId(3));
    assert_eq!((partition.replicas.as_slice(), partition.leader), ([three, one].as_slice(), three));
    for bad in [
        assigned("x", &[&[1, 1]]),
        assigned("x", &[&[9]]),
        assigned("x", &[&[]]),
        assigned("x", &[&[1, 2], &[3]]),
    ] {
        assert_eq!(create_one(&bench, bad).await.0, ErrorCode::InvalidReplicaAssignment);
    }
    let mut both = assigned("x", &[&[1]]);
    both.num_partitions = 1;
    assert_eq!(create_one(&bench, both).await.0, ErrorCode::InvalidRequest);
}

#[tokio::test]
async fn topics_are_deleted_by_name_and_by_id() {
    let bench = Bench::new().await;
    bench.join(1).await;
    for name in ["a", "b", "c"] {
        bench.create(name, 1, 1).await;
    }
    let image = bench.image().await;
    let id = image.topic("b").unwrap().id;
    let state = |name: Option<&str>, topic_id| DeleteTopicState { name: name.map(str::to_owned), topic_id };
    let topics = vec![
        state(Some("a"), Uuid::ZERO),
        state(None, id),
        state(Some("none"), Uuid::ZERO),
        state(None, Uuid(4711)),
    ];
    let response = bench.send(DeleteTopicsRequest { topics, ..Default::default() }).await;
    let code = |name: Option<&str>, id: Uuid| {
        let found = response.responses.iter().find(|r| r.name.as_deref() == name && r.topic_id == id);
        ErrorCode::from_i16(found.unwrap_or_else(|| panic!("{response:?}")).error_code).unwrap()
    };
    assert_eq!(code(Some("a"), image.topic("a").unwrap().id), ErrorCode::None);
    assert_eq!(code(Some("b"), id), ErrorCode::None);
    assert_eq!(code(Some("none"), Uuid::ZERO), ErrorCode::UnknownTopicOrPartition);
    assert_eq!(code(None, Uuid(4711)), ErrorCode::UnknownTopicId);
    let image = bench.image().await;
    assert_eq!(image.topics().iter().map(|t| &*t.name).collect::<Vec<_>>(), ["c"]);
    let old = DeleteTopicsRequest { topic_names: vec!["c".to_owned()], ..Default::default() };
    assert_eq!(bench.send_version(old, 4).await.unwrap().responses[0].error_code, 0);
}

#[tokio::test]
async fn partitions_are_added_and_never_taken_away() {
    let bench = Bench::new().await;
    bench.join(1).await;
    bench.create("t", 2, 1).await;
    let ask = |name: &str, count| CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic { name: name.to_owned(), count, assignments: None }],
        ..Default::default()
    };
    let result = bench.send(ask("t", 5)).await.results[0].clone();
    assert_eq!((result.name.as_str(), result.error_code), ("t", 0));
    assert_eq!(bench.image().await.topic("t").unwrap().partitions.len(), 5);
    for (name, count, code, message) in [
        ("t", 5, ErrorCode::InvalidPartitions, "Topic already has 5 partition(s)."),
        (
            "t",
            4,
            ErrorCode::InvalidPartitions,
            "The topic t currently has 5 partition(s); 4 would not be an increase.",
        ),
        ("none", 3, ErrorCode::UnknownTopicOrPartition, "This server does not host this topic-partition."),
    ] {
        let result = bench.send(ask(name, count)).await.results[0].clone();
        assert_eq!((result.error_code, result.error_message.as_deref()), (code.code(), Some(message)));
    }
}

#[tokio::test]
async fn a_resource_that_is_named_twice_is_refused_once_and_the_others_are_altered() {
    let bench = Bench::new().await;
    bench.join(1).await;
    bench.create("t", 1, 1).await;
    bench.create("u", 1, 1).await;
    let names = ["t", "u", "t", "t"];
    let set = |name: &str| AlterConfigsResource {
        resource_type: 2,
        resource_name: name.to_owned(),
        configs: vec![AlterableConfig {
            name: "retention.ms".to_owned(),
            config_operation: 0,
            value: Some("5".to_owned()),
        }],
    };
    let resources = names.map(set).to_vec();
    let told = bench.send(IncrementalAlterConfigsRequest { resources, validate_only: false }).await;
    let told = told.responses.into_iter().map(|r| (r.resource_name, r.error_code, r.error_message));
    let duplicate =
        ("t".to_owned(), ErrorCode::InvalidRequest.code(), Some("Duplicate resource.".to_owned()));
    let expected = [duplicate, ("u".to_owned(), 0, None)];
    assert_eq!(told.collect::<Vec<_>>(), expected);

    let set = |name: &str| LegacyResource {
        resource_type: 2,
        resource_name: name.to_owned(),
        configs: vec![Legacy { name: "retention.ms".to_owned(), value: Some("6".to_owned()) }],
    };
    let resources = names.map(set).to_vec();
    let told = bench.send(AlterConfigsRequest { resources, validate_only: false }).await;
    let told = told.responses.into_iter().map(|r| (r.resource_name, r.error_code, r.error_message));
    assert_eq!(told.collect::<Vec<_>>(), expected);
    let image = bench.image().await;
    let value =
        |name: &str| image.configs().value(&ConfigResource::topic(name), "retention.ms").map(str::to_owned);
    assert_eq!((value("t"), value("u").as_deref()), (None, Some("6")));
}

#[tokio::test]
async fn configurations_change_one_by_one() {
    let bench = Bench::new().await;
    bench.join(1).await;
    bench.create("t", 1, 1).await;
    let alter = |name: &str, changes: &[(&str, i8, Option<&str>)]| IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: 2,
            resource_name: name.to_owned(),
            configs: changes
                .iter()
                .map(|(name, operation, value)| AlterableConfig {
                    name: (*name).to_owned(),
                    config_operation: *operation,
                    value: value.map(str::to_owned),
                })
                .collect(),
        }],
        validate_only: false,
    };
    let code = async |request: IncrementalAlterConfigsRequest| {
        let response = bench.send(request).await;
        ErrorCode::from_i16(response.responses[0].error_code).unwrap()
    };
    let value = async |name: &str| {
        bench.image().await.configs().value(&ConfigResource::topic("t"), name).map(str::to_owned)
    };
    assert_eq!(code(alter("t", &[("retention.ms", 0, Some("7"))])).await, ErrorCode::None);
    assert_eq!(value("retention.ms").await.as_deref(), Some("7"));
    assert_eq!(code(alter("t", &[("cleanup.policy", 2, Some("compact"))])).await, ErrorCode::None);
    assert_eq!(value("cleanup.policy").await.as_deref(), Some("delete,compact"), "onto the default");
    assert_eq!(code(alter("t", &[("cleanup.policy", 3, Some("delete"))])).await, ErrorCode::None);
    assert_eq!(value("cleanup.policy").await.as_deref(), Some("compact"));
    assert_eq!(code(alter("t", &[("retention.ms", 1, None)])).await, ErrorCode::None);
    assert_eq!(value("retention.ms").await, None);
    assert_eq!(code(alter("t", &[("retention.ms", 2, Some("7"))])).await, ErrorCode::InvalidConfig);
    assert_eq!(code(alter("t", &[("retention.ms", 0, Some("soon"))])).await, ErrorCode::InvalidConfig);
    assert_eq!(code(alter("t", &[("retention.ms", 9, Some("1"))])).await, ErrorCode::InvalidRequest);
    assert_eq!(
        code(alter("none", &[("retention.ms", 0, Some("1"))])).await,
        ErrorCode::UnknownTopicOrPartition
    );

    let legacy = AlterConfigsRequest {
        resources: vec![LegacyResource {
            resource_type: 2,
            resource_name: "t".to_owned(),
            configs: vec![Legacy { name: "retention.ms".to_owned(), value: Some("9".to_owned()) }],
        }],
        validate_only: false,
    };
    assert_eq!(bench.send(legacy).await.responses[0].error_code, 0);
    assert_eq!(value("retention.ms").await.as_deref(), Some("9"));
    assert_eq!(value("cleanup.policy").await, None, "what is not named is removed");

    bench
        .send(DeleteTopicsRequest {
            topics: vec![DeleteTopicState { name: Some("t".to_owned()), topic_id: Uuid::ZERO }],
            ..Default::default()
        })
        .await;
    assert!(bench.image().await.configs().is_empty());
}

#[tokio::test]
async fn leaders_are_elected_on_demand() {
    let bench = Bench::new().await;
    let one = bench.join(1).await;
    let two = bench.join(2).await;
    let assigned = CreatableTopic {
        name: "t".to_owned(),
        num_partitions: -1,
        replication_factor: -1,
        assignments: vec![CreatableReplicaAssignment { partition_index: 0, broker_ids: vec![1, 2] }],
        ..Default::default()
    };
    create_one(&bench, assigned).await;
    let elect = |partition| ElectLeadersRequest {
        election_type: 0,
        topic_partitions: Some(vec![TopicPartitions { topic: "t".to_owned(), partitions: vec![partition] }]),
        ..Default::default()
    };
    let code = async |partition| {
        let response = bench.send(elect(partition)).await;
        ErrorCode::from_i16(response.replica_election_results[0].partition_result[0].error_code).unwrap()
    };
    assert_eq!(code(0).await, ErrorCode::ElectionNotNeeded);
    assert_eq!(code(1).await, ErrorCode::UnknownTopicOrPartition);
    bench.beat(1, one, i64::MAX, true, false).await;
    assert_eq!(bench.image().await.partition("t", PartitionIndex(0)).unwrap().leader, BrokerId(2));
    assert_eq!(code(0).await, ErrorCode::PreferredLeaderNotAvailable);
    // The preferred leader returns and is in sync again.
    bench.beat(1, one, i64::MAX, false, false).await;
    let image = bench.image().await;
    let partition = image.partition("t", PartitionIndex(0)).unwrap();
    let proposal = AlterPartitionRequest {
        broker_id: 2,
        broker_epoch: two,
        topics: vec![alter_partition_request::TopicData {
            topic_id: image.topic("t").unwrap().id,
            partitions: vec![alter_partition_request::PartitionData {
                leader_epoch: partition.leader_epoch,
                partition_epoch: partition.partition_epoch.0,
                new_isr_with_epochs: [2, 1]
                    .map(|broker_id| alter_partition_request::BrokerState { broker_id, broker_epoch: -1 })
                    .to_vec(),
                ..Default::default()
            }],
        }],
    };
    assert_eq!(bench.send(proposal).await.topics[0].partitions[0].error_code, 0);
    assert_eq!(code(0).await, ErrorCode::None);
    let image = bench.image().await;
    assert_eq!(image.partition("t", PartitionIndex(0)).unwrap().leader, BrokerId(1));
}

#[tokio::test]
async fn partitions_are_reassigned_and_the_reassignment_can_be_cancelled() {
    let bench = Bench::new().await;
    for id in 1..=2 {
        bench.join(id).await;
    }
    let assigned = CreatableTopic {
        name: "t".to_owned(),
        num_partitions: -1,
        replication_factor: -1,
        assignments: vec![CreatableReplicaAssignment { partition_index: 0, broker_ids: vec![1] }],
        ..Default::default()
    };
    create_one(&bench, assigned).await;
    let reassign = |replicas: Option<Vec<i32>>| AlterPartitionReassignmentsRequest {
        topics: vec![ReassignableTopic {
            name: "t".to_owned(),
            partitions: vec![ReassignablePartition { partition_index: 0, replicas }],
        }],
        ..Default::default()
    };
    let code = async |request: AlterPartitionReassignmentsRequest| {
        let response = bench.send(request).await;
        ErrorCode::from_i16(response.responses[0].partitions[0].error_code).unwrap()
    };
    assert_eq!(code(reassign(None)).await, ErrorCode::NoReassignmentInProgress);
    assert_eq!(code(reassign(Some(vec![7]))).await, ErrorCode::InvalidReplicaAssignment);
    assert_eq!(code(reassign(Some(vec![2]))).await, ErrorCode::None);
    let listed = bench.send(ListPartitionReassignmentsRequest { topics: None, ..Default::default() }).await;
    let ongoing = &listed.topics[0].partitions[0];
    assert_eq!(
        (ongoing.replicas.as_slice(), ongoing.adding_replicas.as_slice()),
        ([2, 1].as_slice(), [2].as_slice())
    );
    assert_eq!(ongoing.removing_replicas, [1]);
    assert_eq!(code(reassign(None)).await, ErrorCode::None);
    let image = bench.image().await;
    let partition = image.partition("t", PartitionIndex(0)).unwrap();
    assert_eq!(
        (partition.replicas.as_slice(), partition.is_reassigning()),
        ([BrokerId(1)].as_slice(), false)
    );
}

#[tokio::test]
async fn features_that_are_not_served_cannot_be_finalized() {
    let bench = Bench::new().await;
    bench.join(1).await;
    let update = |feature: &str, level, upgrade_type| UpdateFeaturesRequest {
        feature_updates: vec![FeatureUpdateKey {
            feature: feature.to_owned(),
            max_version_level: level,
            upgrade_type,
            ..Default::default()
        }],
        ..Default::default()
    };
    for (feature, level, kind) in
        [("group.version", 1, 1), ("metadata.version", 31, 1), ("metadata.version", 29, 2), ("no.such", 1, 1)]
    {
        let response = bench.send(update(feature, level, kind)).await;
        assert_eq!(response.error_code, ErrorCode::InvalidUpdateVersion.code(), "{feature} {level}");
    }
    assert_eq!(bench.send(update("metadata.version", 30, 1)).await.error_code, 0);
}

#[tokio::test]
async fn forwarded_requests_are_unwrapped_and_their_answers_wrapped() {
    let bench = Bench::new().await;
    bench.join(1).await;
    let forward = async |inner: Bytes| {
        let request = EnvelopeRequest {
            request_data: inner,
            request_principal: None,
            client_host_address: Bytes::from_static(&[127, 0, 0, 1]),
        };
        bench.send(request).await
    };
    let create = CreateTopicsRequest { topics: vec![topic("t")], ..Default::default() };
    let inner = frame::encode_request(&create, 5, 4711, Some("client")).unwrap().slice(LENGTH_LEN..);
    let envelope = forward(inner).await;
    assert_eq!(envelope.error_code, 0);
    let answer = envelope.response_data.unwrap();
    let (id, response) = frame::decode_response::<CreateTopicsRequest>(answer, 5).unwrap();
    assert_eq!((id, response.topics[0].error_code), (4711, 0));
    let not_forwardable = frame::encode_request(&fetch_request(1, 0, 0, 0), 18, 1, None).unwrap();
    assert_eq!(
        forward(not_forwardable.slice(LENGTH_LEN..)).await.error_code,
        ErrorCode::InvalidRequest.code()
    );
    assert_eq!(forward(Bytes::from_static(&[1, 2])).await.error_code, ErrorCode::InvalidRequest.code());
    let mut unknown = frame::encode_request(&create, CreateTopicsRequest::MAX_VERSION, 1, None)
        .unwrap()
        .slice(LENGTH_LEN..)
        .to_vec();
    unknown[3] = 77;
    assert_eq!(forward(unknown.into()).await.error_code, ErrorCode::UnsupportedVersion.code());
}
