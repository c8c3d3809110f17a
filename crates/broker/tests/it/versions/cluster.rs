//! What administrators ask about the cluster: access control, elections, reassignments, quotas, credentials,
//! the quorum, features, brokers.

use super::Trial;
use bytes::Bytes;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::alter_client_quotas_request::{EntityData, EntryData, OpData};
use thalweg_wire::request::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use thalweg_wire::request::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use thalweg_wire::request::create_acls_request::AclCreation;
use thalweg_wire::request::delete_acls_request::DeleteAclsFilter;
use thalweg_wire::request::describe_client_quotas_request::ComponentData;
use thalweg_wire::request::describe_quorum_request::{PartitionData, TopicData};
use thalweg_wire::request::describe_user_scram_credentials_request::UserName;
use thalweg_wire::request::elect_leaders_request::TopicPartitions;
use thalweg_wire::request::list_partition_reassignments_request::ListPartitionReassignmentsTopics;
use thalweg_wire::request::update_features_request::FeatureUpdateKey;
use thalweg_wire::request::*;

const NO_TOPIC: i16 = ErrorCode::UnknownTopicOrPartition as i16;

pub async fn ask(trial: &mut Trial) {
    acls(trial).await;
    elections(trial).await;
    reassignments(trial).await;
    quotas_and_credentials(trial).await;
    delegation_tokens(trial).await;
    quorum_and_features(trial).await;
    brokers(trial).await;
    refused(trial).await;
}

async fn acls(trial: &mut Trial) {
    // Any, literal, allow: whether an authorizer is there or not, it is answered.
    let make = |_| DescribeAclsRequest {
        resource_type_filter: 1,
        pattern_type_filter: 1,
        operation: 1,
        permission_type: 1,
        ..Default::default()
    };
    trial.each("any", make, |_, answer| answer.resources.is_empty()).await;
    let make = |_| {
        let creation = AclCreation {
            resource_type: 2,
            resource_name: "known".to_owned(),
            resource_pattern_type: 3,
            principal: "User:a".to_owned(),
            host: "*".to_owned(),
            operation: 3,
            permission_type: 3,
        };
        CreateAclsRequest { creations: vec![creation.clone(), creation] }
    };
    trial.each("two", make, |_, answer| answer.results.len() == 2).await;
    let make = |_| {
        let filter = DeleteAclsFilter {
            resource_type_filter: 2,
            resource_name_filter: Some("known".to_owned()),
            pattern_type_filter: 3,
            operation: 1,
            permission_type: 1,
            ..Default::default()
        };
        DeleteAclsRequest { filters: vec![filter] }
    };
    trial.each("one", make, |_, answer| answer.filter_results.len() == 1).await;
}

async fn elections(trial: &mut Trial) {
    let make = |version: i16, topic: Option<&str>| ElectLeadersRequest {
        election_type: 0,
        topic_partitions: topic
            .map(|topic| vec![TopicPartitions { topic: topic.to_owned(), partitions: vec![0] }]),
        timeout_ms: if version == 0 { 1000 } else { 2000 },
    };
    let code =
        |answer: &ElectLeadersResponse| answer.replica_election_results[0].partition_result[0].error_code;
    let needless = ErrorCode::ElectionNotNeeded.code();
    trial.each("a partition", |v| make(v, Some("known")), |_, answer| code(answer) == needless).await;
    trial.each("no partition", |v| make(v, Some("nowhere")), |_, answer| code(answer) == NO_TOPIC).await;
    trial.each("all", |v| make(v, None), |_, answer| answer.error_code == 0).await;
}

async fn reassignments(trial: &mut Trial) {
    let make = |name: &str, replicas: Option<Vec<i32>>| {
        let partitions = vec![ReassignablePartition { partition_index: 0, replicas }];
        let topics = vec![ReassignableTopic { name: name.to_owned(), partitions }];
        AlterPartitionReassignmentsRequest { timeout_ms: 1000, topics, ..Default::default() }
    };
    let code = |answer: &AlterPartitionReassignmentsResponse| answer.responses[0].partitions[0].error_code;
    trial.each("where it is", |_| make("known", Some(vec![1])), |_, answer| code(answer) == 0).await;
    let invalid = ErrorCode::InvalidReplicaAssignment.code();
    trial.each("to nobody", |_| make("known", Some(vec![7])), |_, answer| code(answer) == invalid).await;
    let none = ErrorCode::NoReassignmentInProgress.code();
    trial.each("ended", |_| make("known", None), |_, answer| code(answer) == none).await;
    trial.each("no topic", |_| make("nowhere", Some(vec![1])), |_, answer| code(answer) == NO_TOPIC).await;
    for name in ["known", "nowhere"] {
        let make = |_| ListPartitionReassignmentsRequest {
            timeout_ms: 1000,
            topics: Some(vec![ListPartitionReassignmentsTopics {
                name: name.to_owned(),
                partition_indexes: vec![0],
            }]),
        };
        trial.each(name, make, |_, answer| answer.error_code == 0 && answer.topics.is_empty()).await;
    }
}

async fn quotas_and_credentials(trial: &mut Trial) {
    let make = |key: &str| {
        let entity =
            vec![EntityData { entity_type: "client-id".to_owned(), entity_name: Some("c".to_owned()) }];
        let ops = vec![OpData { key: key.to_owned(), value: 1000.0, remove: false }];
        AlterClientQuotasRequest { entries: vec![EntryData { entity, ops }], validate_only: false }
    };
    trial
        .each("a quota", |_| make("producer_byte_rate"), |_, answer| answer.entries[0].error_code == 0)
        .await;
    trial.each("no key", |_| make("no_such_rate"), |_, answer| answer.entries[0].error_code != 0).await;
    let make = |entity_type: &str, name: &str| {
        let component = ComponentData {
            entity_type: entity_type.to_owned(),
            match_type: 0,
            r#match: Some(name.to_owned()),
        };
        DescribeClientQuotasRequest { components: vec![component], strict: false }
    };
    let count = |answer: &DescribeClientQuotasResponse| answer.entries.as_ref().map_or(0, Vec::len);
    trial.each("a client", |_| make("client-id", "c"), |_, a| a.error_code == 0 && count(a) == 1).await;
    trial.each("no client", |_| make("client-id", "x"), |_, a| a.error_code == 0 && count(a) == 0).await;
    trial.each("no entity", |_| make("planet", "x"), |_, a| a.error_code != 0).await;
    let make =
        |_| DescribeUserScramCredentialsRequest { users: Some(vec![UserName { name: "nobody".to_owned() }]) };
    let missing = ErrorCode::ResourceNotFound.code();
    trial.each("nobody", make, |_, answer| answer.results[0].error_code == missing).await;
    let make = |_| {
        let deletion = ScramCredentialDeletion { name: "nobody".to_owned(), mechanism: 1 };
        AlterUserScramCredentialsRequest { deletions: vec![deletion], ..Default::default() }
    };
    trial.each("nobody's", make, |_, answer| answer.results[0].error_code == missing).await;
    let credential = ScramCredentialUpsertion {
        name: "user".to_owned(),
        mechanism: 1,
        iterations: 4096,
        salt: Bytes::from_static(b"salt"),
        salted_password: Bytes::from_static(b"salted password"),
    };
    let make =
        |_| AlterUserScramCredentialsRequest { upsertions: vec![credential.clone()], ..Default::default() };
    trial.each("a user's", make, |_, answer| answer.results[0].error_code == 0).await;
    let make = |_| DescribeUserScramCredentialsRequest { users: None };
    let good = |_, answer: &DescribeUserScramCredentialsResponse| {
        let [user] = &answer.results[..] else { return false };
        user.user == "user" && user.credential_infos[0].iterations == 4096
    };
    trial.each("all users", make, good).await;
}

/// Who has not logged in gets no token, and does nothing with one.
async fn delegation_tokens(trial: &mut Trial) {
    let refused = ErrorCode::DelegationTokenRequestNotAllowed.code();
    let make = |_| CreateDelegationTokenRequest::default();
    trial.each("no login", make, |_, answer| answer.error_code == refused).await;
    let make =
        |_| RenewDelegationTokenRequest { hmac: Bytes::from_static(b"no token"), renew_period_ms: 1000 };
    trial.each("no login", make, |_, answer| answer.error_code == refused).await;
    let make =
        |_| ExpireDelegationTokenRequest { hmac: Bytes::from_static(b"no token"), expiry_time_period_ms: -1 };
    trial.each("no login", make, |_, answer| answer.error_code == refused).await;
    let make = |_| DescribeDelegationTokenRequest { owners: None };
    trial.each("no login", make, |_, answer| answer.error_code == refused).await;
}

async fn quorum_and_features(trial: &mut Trial) {
    let make = |name: &str| DescribeQuorumRequest {
        topics: vec![TopicData {
            topic_name: name.to_owned(),
            partitions: vec![PartitionData { partition_index: 0 }],
        }],
    };
    let good = |version, answer: &DescribeQuorumResponse| {
        let partition = &answer.topics[0].partitions[0];
        answer.error_code == 0 && partition.leader_id == 1 && (version >= 2) != answer.nodes.is_empty()
    };
    trial.each("the metadata", |_| make("__cluster_metadata"), good).await;
    let missing = |_, answer: &DescribeQuorumResponse| {
        answer.error_code != 0 || answer.topics.iter().flat_map(|t| &t.partitions).all(|p| p.error_code != 0)
    };
    trial.each("no such log", |_| make("nowhere"), missing).await;
    let make = |version: i16, feature: &str, level: i16| {
        let update = FeatureUpdateKey {
            feature: feature.to_owned(),
            max_version_level: level,
            upgrade_type: 1,
            ..Default::default()
        };
        UpdateFeaturesRequest { timeout_ms: 1000, feature_updates: vec![update], validate_only: version >= 1 }
    };
    let refused = |version, answer: &UpdateFeaturesResponse| {
        let results = answer.results.iter().any(|result| result.error_code != 0);
        answer.error_code != 0 || (version < 2 && results)
    };
    trial.each("no feature", |version| make(version, "no.such.feature", 1), refused).await;
    trial.each("no level", |version| make(version, "metadata.version", 999), refused).await;
}

async fn brokers(trial: &mut Trial) {
    let make = |version, endpoint_type| DescribeClusterRequest {
        include_cluster_authorized_operations: true,
        endpoint_type: if version >= 1 { endpoint_type } else { 1 },
        include_fenced_brokers: version >= 2,
    };
    let good = |_, answer: &DescribeClusterResponse| {
        answer.error_code == 0
            && answer.brokers.len() == 1
            && answer.cluster_authorized_operations != i32::MIN
    };
    trial.each("brokers", |version| make(version, 1), good).await;
    let refused = |version, answer: &DescribeClusterResponse| (version == 0) == (answer.error_code == 0);
    trial.each("controllers", |version| make(version, 2), refused).await;
    trial.each("nothing", |version| make(version, 9), refused).await;
    let make = |_| UnregisterBrokerRequest { broker_id: 77 };
    let missing = ErrorCode::BrokerIdNotRegistered.code();
    trial.each("nobody", make, |_, answer| answer.error_code == missing).await;
    let make = |version| ListConfigResourcesRequest {
        resource_types: if version == 0 { Vec::new() } else { vec![2, 4] },
    };
    let good = |version, answer: &ListConfigResourcesResponse| {
        let topics = answer.config_resources.iter().any(|resource| resource.resource_name == "known");
        answer.error_code == 0 && (version == 0 || topics)
    };
    trial.each("topics and brokers", make, good).await;
    let make = |version| ListConfigResourcesRequest {
        resource_types: if version == 0 { Vec::new() } else { vec![99] },
    };
    trial.each("no kind", make, |version, answer| (version == 0) == (answer.error_code == 0)).await;
}

/// The errors of a quorum of one voter, with messages.
async fn refused(trial: &mut Trial) {
    let unsupported = ErrorCode::UnsupportedVersion.code();
    let is_refused = |code: i16, message: &Option<String>| {
        code == unsupported && message.as_ref().is_some_and(|m| !m.is_empty())
    };
    let make = |_| AddRaftVoterRequest { cluster_id: None, voter_id: 2, ..Default::default() };
    trial.each("a voter", make, |_, answer| is_refused(answer.error_code, &answer.error_message)).await;
    let make = |_| RemoveRaftVoterRequest { cluster_id: None, voter_id: 1, ..Default::default() };
    trial.each("the voter", make, |_, answer| is_refused(answer.error_code, &answer.error_message)).await;
}
