//! Who may do what: every API that is served, with clients that may do nothing, something, or all.

mod control_topics;
mod described_groups;
mod kafka;
mod probes;
mod streams;

use crate::records::{Topic, batch, produce};
use crate::running::RunningBroker;
use probes::{Names, probes};
use std::path::Path;
use std::time::Duration;
use thalweg_broker::api::all_served;
use thalweg_dial::{Connection, ConnectionOptions, Properties, Security};
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::request::create_acls_request::AclCreation;
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::metadata_request::MetadataRequestTopic;
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, Uuid};

const AUTHORIZER: (&str, &str) =
    ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
const USERS: &str = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"admin\" \
                     password=\"admin-secret\" user_admin=\"admin-secret\";";

/// A broker with a listener for clients without a name, and another for its administrator.
async fn start(dir: &Path, more: &[(&str, &str)]) -> RunningBroker {
    let mut properties = vec![
        ("listeners", "PLAINTEXT://127.0.0.1:0,ADMIN://127.0.0.1:0"),
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,ADMIN:SASL_PLAINTEXT"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.admin.plain.sasl.jaas.config", USERS),
        ("super.users", "User:admin"),
        ("transaction.state.log.num.partitions", "1"),
        AUTHORIZER,
    ];
    properties.extend(more);
    RunningBroker::start(dir, &properties).await
}

/// A connection of the administrator, who may do everything.
async fn admin(address: &str) -> Connection {
    let mut properties = Properties::new();
    for (key, value) in [
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "admin"),
        ("sasl.password", "admin-secret"),
    ] {
        properties.set(key, value);
    }
    let security = Security::take(&mut properties).expect("valid settings");
    let options = ConnectionOptions { security, ..ConnectionOptions::default() };
    Connection::connect(address, &options).await.expect("the administrator is known")
}

fn address_of_admin(broker: &RunningBroker) -> String {
    broker.server().addresses[1].1[0].to_string()
}

/// Waits until something is there.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let held = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), held).await.unwrap_or_else(|_| panic!("{what}"));
}

/// Creates a topic with two records, a group with an offset in it, and both coordinators.
async fn fill(admin: &Connection, topic: &str, group: &str, transactional_id: &str) -> Names {
    let created = CreatableTopic {
        name: topic.to_owned(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![created], timeout_ms: 5000, ..Default::default() };
    let created = admin.send(&request).await.expect("an answer").topics.remove(0);
    assert_eq!(created.error_code, 0, "{:?}", created.error_message);
    let topic = Topic { name: topic.to_owned(), id: created.topic_id };
    until("the topic is known", async || {
        let asked = MetadataRequestTopic { name: Some(topic.name.clone()), ..Default::default() };
        let request = MetadataRequest { topics: Some(vec![asked]), ..Default::default() };
        let known = admin.send(&request).await.expect("an answer").topics.remove(0);
        known.error_code == 0 && known.partitions.iter().all(|partition| partition.error_code == 0)
    })
    .await;
    until("it takes records", async || {
        let request = produce(12, &topic, 0, -1, batch(&[b"one", b"two"]));
        let mut answer = admin.send_at(&request, 12).await.expect("an answer");
        answer.responses.remove(0).partition_responses.remove(0).error_code == 0
    })
    .await;
    for (key_type, key) in [(0, group), (1, transactional_id)] {
        until("there are coordinators", async || {
            let coordinator_keys = vec![key.to_owned()];
            let request = FindCoordinatorRequest { key_type, coordinator_keys, ..Default::default() };
            let found = admin.send_at(&request, 5).await.expect("an answer").coordinators.remove(0);
            found.error_code == 0
        })
        .await;
    }
    until("the group has an offset", async || {
        use offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
        let partitions = vec![OffsetCommitRequestPartition { committed_offset: 1, ..Default::default() }];
        let request = OffsetCommitRequest {
            group_id: group.to_owned(),
            generation_id_or_member_epoch: -1,
            topics: vec![OffsetCommitRequestTopic {
                name: topic.name.clone(),
                partitions,
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut answer = admin.send_at(&request, 9).await.expect("an answer");
        answer.topics.remove(0).partitions.remove(0).error_code == 0
    })
    .await;
    until("a transaction can begin", async || {
        let request = InitProducerIdRequest {
            transactional_id: Some(transactional_id.to_owned()),
            transaction_timeout_ms: 60_000,
            producer_id: -1,
            producer_epoch: -1,
            ..Default::default()
        };
        admin.send_at(&request, 4).await.expect("an answer").error_code == 0
    })
    .await;
    Names { topic, group: group.to_owned(), id: transactional_id.to_owned() }
}

/// Allows clients without a name an operation on each of these resources.
async fn allow(admin: &Connection, acls: &[(ResourceType, &str, Operation)]) {
    let creations = acls.iter().map(|(resource_type, name, operation)| AclCreation {
        resource_type: resource_type.code(),
        resource_name: (*name).to_owned(),
        resource_pattern_type: 3,
        principal: "User:ANONYMOUS".to_owned(),
        host: "*".to_owned(),
        operation: operation.code(),
        permission_type: 3,
    });
    let request = CreateAclsRequest { creations: creations.collect() };
    let answer = admin.send(&request).await.expect("an answer");
    assert!(answer.results.iter().all(|result| result.error_code == 0), "{answer:?}");
}

/// The APIs that everybody may use.
const OPEN: [ApiKey; 5] = [
    ApiKey::ApiVersions,
    ApiKey::SaslHandshake,
    ApiKey::SaslAuthenticate,
    ApiKey::GetTelemetrySubscriptions,
    ApiKey::PushTelemetry,
];

/// What an answer has that denies everything: an error, or nothing.
fn denial(key: ApiKey) -> &'static [&'static str] {
    match key {
        // Brokers are no secret; what may be done with them is nothing.
        ApiKey::DescribeCluster => &["cluster_authorized_operations: 0,"],
        ApiKey::ListGroups => &["groups: []"],
        // Before version 3 there is no place for the error.
        ApiKey::DescribeLogDirs => &["error_code: 31,", "results: []"],
        ApiKey::ListTransactions => &["transaction_states: []"],
        ApiKey::Metadata | ApiKey::DescribeTopicPartitions => &["error_code: 29,", "topics: []"],
        ApiKey::SyncGroup => &["error_code: 30,", "error_code: 23,"],
        ApiKey::Produce => &["error_code: 29,", "error_code: 53,"],
        ApiKey::OffsetFetch => &["error_code: 30,"],
        ApiKey::FindCoordinator => &["error_code: 30,", "error_code: 53,", "error_code: 31,"],
        ApiKey::InitProducerId => &["error_code: 31,", "error_code: 53,"],
        ApiKey::AddPartitionsToTxn => &["error_code: 53,", "error_code: 31,"],
        ApiKey::DescribeConfigs => &["error_code: 29,", "error_code: 31,", "error_code: 30,"],
        ApiKey::IncrementalAlterConfigs => &["error_code: 29,", "error_code: 31,"],
        ApiKey::EndTxn | ApiKey::AddOffsetsToTxn | ApiKey::TxnOffsetCommit | ApiKey::DescribeTransactions => {
            &["error_code: 53,"]
        }
        ApiKey::JoinGroup
        | ApiKey::Heartbeat
        | ApiKey::LeaveGroup
        | ApiKey::DescribeGroups
        | ApiKey::DeleteGroups
        | ApiKey::OffsetCommit
        | ApiKey::OffsetDelete
        | ApiKey::ConsumerGroupHeartbeat
        | ApiKey::ConsumerGroupDescribe
        | ApiKey::ShareGroupHeartbeat
        | ApiKey::ShareGroupDescribe
        | ApiKey::StreamsGroupHeartbeat
        | ApiKey::StreamsGroupDescribe
        | ApiKey::ShareFetch
        | ApiKey::ShareAcknowledge
        | ApiKey::DescribeShareGroupOffsets
        | ApiKey::AlterShareGroupOffsets
        | ApiKey::DeleteShareGroupOffsets => &["error_code: 30,"],
        ApiKey::Fetch
        | ApiKey::ListOffsets
        | ApiKey::OffsetForLeaderEpoch
        | ApiKey::DeleteRecords
        | ApiKey::DescribeProducers
        | ApiKey::CreateTopics
        | ApiKey::CreatePartitions
        | ApiKey::DeleteTopics
        | ApiKey::AlterConfigs => &["error_code: 29,"],
        // Nobody has tokens without a login.
        ApiKey::CreateDelegationToken
        | ApiKey::RenewDelegationToken
        | ApiKey::ExpireDelegationToken
        | ApiKey::DescribeDelegationToken => &["error_code: 64,"],
        _ => &["error_code: 31,"],
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_an_acl_is_refused_by_every_api_and_learns_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path(), &[]).await;
    let administrator = admin(&address_of_admin(&broker)).await;
    let there = fill(&administrator, "secret-topic", "secret-group", "secret-id").await;
    let missing = Names {
        topic: Topic { name: "absent-topic".to_owned(), id: Uuid(there.topic.id.0 ^ 1) },
        group: "absent-group".to_owned(),
        id: "absent-id".to_owned(),
    };
    let mut asked = 0;
    for api in all_served().filter(|api| !OPEN.contains(&api.key)) {
        let (of_there, of_missing) = (probes(api.key, &there), probes(api.key, &missing));
        assert!(!of_there.is_empty(), "{:?} has no probe here: add one, and its check", api.key);
        for (one, other) in of_there.iter().zip(&of_missing) {
            let (one_answer, other_answer) =
                (one.ask(broker.address()).await, other.ask(broker.address()).await);
            let is_by_id =
                one_answer.contains("error_code: 100,") || other_answer.contains("error_code: 100,");
            let denied = denial(api.key).iter().any(|denial| one_answer.contains(denial));
            assert!(denied, "{:?} {}: {one_answer}", api.key, one.version);
            // The id of a topic is no secret: who knows one may learn whether it is one.
            if !is_by_id {
                let same = other_answer.replace("absent", "secret");
                assert_eq!(one_answer, same, "{:?} {}", api.key, one.version);
            }
            asked += 1;
        }
    }
    assert!(asked > all_served().count(), "{asked}");
    administrator.close();
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_authorizer_everybody_may_do_everything() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path(), &[("authorizer.class.name", ""), ("super.users", "")]).await;
    let administrator = admin(&address_of_admin(&broker)).await;
    let names = fill(&administrator, "topic", "group", "id").await;
    for api in all_served().filter(|api| !OPEN.contains(&api.key)) {
        for probe in probes(api.key, &names) {
            let answer = probe.ask(broker.address()).await;
            for denied in ["error_code: 29,", "error_code: 30,", "error_code: 31,"] {
                // Internal topics are nobody's to add to a transaction.
                let is_internal =
                    api.key == ApiKey::AddPartitionsToTxn && answer.contains("__consumer_offsets");
                assert!(is_internal || !answer.contains(denied), "{:?}: {answer}", api.key);
            }
        }
    }
    administrator.close();
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_acls_hold_on_connections_that_are_open() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path(), &[]).await;
    let administrator = admin(&address_of_admin(&broker)).await;
    let names = fill(&administrator, "topic", "group", "id").await;
    let write = async || {
        let request = produce(12, &names.topic, 0, -1, batch(&[b"value"]));
        let mut answer = broker.ask_at(&request, 12).await;
        answer.responses.remove(0).partition_responses.remove(0).error_code
    };
    assert_eq!(write().await, 29);
    allow(&administrator, &[(ResourceType::Topic, "topic", Operation::Write)]).await;
    assert_eq!(write().await, 0, "the answer to CreateAcls waits for the image");
    administrator.close();
    broker.stop().await;
}
