//! How each request is told that it is refused as a whole.

use bytes::Bytes;
use std::collections::BTreeSet;
use thalweg_wire::data::DefaultPrincipalData;
use thalweg_wire::request::alter_client_quotas_response::{
    EntityData as QuotaEntity, EntryData as QuotaResult,
};
use thalweg_wire::request::alter_configs_response::AlterConfigsResourceResponse as LegacyConfigsResult;
use thalweg_wire::request::alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
use thalweg_wire::request::create_partitions_response::CreatePartitionsTopicResult;
use thalweg_wire::request::create_topics_response::CreatableTopicResult;
use thalweg_wire::request::delete_topics_response::DeletableTopicResult;
use thalweg_wire::request::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use thalweg_wire::request::incremental_alter_configs_response::AlterConfigsResourceResponse;
use thalweg_wire::request::{
    AddRaftVoterRequest, AddRaftVoterResponse, AllocateProducerIdsRequest, AllocateProducerIdsResponse,
    AlterClientQuotasRequest, AlterClientQuotasResponse, AlterConfigsRequest, AlterConfigsResponse,
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, AlterPartitionRequest,
    AlterPartitionResponse, AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse,
    ApiVersionsRequest, ApiVersionsResponse, AssignReplicasToDirsRequest, AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest, BrokerRegistrationResponse,
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, DescribeClusterRequest, DescribeClusterResponse,
    ElectLeadersRequest, ElectLeadersResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
    RemoveRaftVoterRequest, RemoveRaftVoterResponse, UnregisterBrokerRequest, UnregisterBrokerResponse,
    UpdateFeaturesRequest, UpdateFeaturesResponse,
};
use thalweg_wire::{Decoder, Message, Request};

use crate::state::ApiError;

/// The response that carries a refusal.
pub(super) trait Refuse: Request {
    fn refuse(&self, error: &ApiError) -> Self::Response;
}

/// Responses that have room for the code alone.
macro_rules! code_only {
    ($($request:ident => $response:ident),+ $(,)?) => {$(
        impl Refuse for $request {
            fn refuse(&self, error: &ApiError) -> $response {
                $response { error_code: error.code.code(), ..Default::default() }
            }
        }
    )+};
}

/// Responses that have room for the code and the words.
macro_rules! code_and_message {
    ($($request:ident => $response:ident),+ $(,)?) => {$(
        impl Refuse for $request {
            fn refuse(&self, error: &ApiError) -> $response {
                $response {
                    error_code: error.code.code(),
                    error_message: error.message.clone(),
                    ..Default::default()
                }
            }
        }
    )+};
}

code_only! {
    ApiVersionsRequest => ApiVersionsResponse,
    AlterPartitionRequest => AlterPartitionResponse,
    AllocateProducerIdsRequest => AllocateProducerIdsResponse,
    AssignReplicasToDirsRequest => AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest => BrokerHeartbeatResponse,
    BrokerRegistrationRequest => BrokerRegistrationResponse,
}

code_and_message! {
    AddRaftVoterRequest => AddRaftVoterResponse,
    RemoveRaftVoterRequest => RemoveRaftVoterResponse,
    AlterPartitionReassignmentsRequest => AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest => ListPartitionReassignmentsResponse,
    DescribeClusterRequest => DescribeClusterResponse,
    UnregisterBrokerRequest => UnregisterBrokerResponse,
    UpdateFeaturesRequest => UpdateFeaturesResponse,
}

impl Refuse for AlterUserScramCredentialsRequest {
    fn refuse(&self, error: &ApiError) -> AlterUserScramCredentialsResponse {
        let deleted = self.deletions.iter().map(|deletion| &deletion.name);
        let users: BTreeSet<&String> =
            deleted.chain(self.upsertions.iter().map(|upsertion| &upsertion.name)).collect();
        let results = users.into_iter().map(|user| AlterUserScramCredentialsResult {
            user: user.clone(),
            error_code: error.code.code(),
            error_message: error.message.clone(),
        });
        AlterUserScramCredentialsResponse { results: results.collect(), ..Default::default() }
    }
}

impl Refuse for AlterClientQuotasRequest {
    fn refuse(&self, error: &ApiError) -> AlterClientQuotasResponse {
        let entries = self.entries.iter().map(|entry| QuotaResult {
            error_code: error.code.code(),
            error_message: error.message.clone(),
            entity: entry
                .entity
                .iter()
                .map(|part| QuotaEntity {
                    entity_type: part.entity_type.clone(),
                    entity_name: part.entity_name.clone(),
                })
                .collect(),
        });
        AlterClientQuotasResponse { entries: entries.collect(), ..Default::default() }
    }
}

impl Refuse for ElectLeadersRequest {
    fn refuse(&self, error: &ApiError) -> ElectLeadersResponse {
        let topics = self.topic_partitions.iter().flatten();
        let results = topics.map(|topic| ReplicaElectionResult {
            topic: topic.topic.clone(),
            partition_result: topic
                .partitions
                .iter()
                .map(|partition_id| PartitionResult {
                    partition_id: *partition_id,
                    error_code: error.code.code(),
                    error_message: error.message.clone(),
                })
                .collect(),
        });
        ElectLeadersResponse {
            error_code: error.code.code(),
            replica_election_results: results.collect(),
            ..Default::default()
        }
    }
}

impl Refuse for CreateTopicsRequest {
    fn refuse(&self, error: &ApiError) -> CreateTopicsResponse {
        let topics = self.topics.iter().map(|topic| CreatableTopicResult {
            name: topic.name.clone(),
            error_code: error.code.code(),
            error_message: error.message.clone(),
            ..Default::default()
        });
        CreateTopicsResponse { topics: topics.collect(), ..Default::default() }
    }
}

impl Refuse for DeleteTopicsRequest {
    fn refuse(&self, error: &ApiError) -> DeleteTopicsResponse {
        let by_name = self.topic_names.iter().map(|name| (Some(name.clone()), Default::default()));
        let by_state = self.topics.iter().map(|topic| (topic.name.clone(), topic.topic_id));
        let responses = by_name.chain(by_state).map(|(name, topic_id)| DeletableTopicResult {
            name,
            topic_id,
            error_code: error.code.code(),
            error_message: error.message.clone(),
        });
        DeleteTopicsResponse { responses: responses.collect(), ..Default::default() }
    }
}

impl Refuse for CreatePartitionsRequest {
    fn refuse(&self, error: &ApiError) -> CreatePartitionsResponse {
        let results = self.topics.iter().map(|topic| CreatePartitionsTopicResult {
            name: topic.name.clone(),
            error_code: error.code.code(),
            error_message: error.message.clone(),
        });
        CreatePartitionsResponse { results: results.collect(), ..Default::default() }
    }
}

impl Refuse for IncrementalAlterConfigsRequest {
    fn refuse(&self, error: &ApiError) -> IncrementalAlterConfigsResponse {
        let responses = self.resources.iter().map(|resource| AlterConfigsResourceResponse {
            error_code: error.code.code(),
            error_message: error.message.clone(),
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.clone(),
        });
        IncrementalAlterConfigsResponse { responses: responses.collect(), ..Default::default() }
    }
}

impl Refuse for AlterConfigsRequest {
    fn refuse(&self, error: &ApiError) -> AlterConfigsResponse {
        let responses = self.resources.iter().map(|resource| LegacyConfigsResult {
            error_code: error.code.code(),
            error_message: error.message.clone(),
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.clone(),
        });
        AlterConfigsResponse { responses: responses.collect(), ..Default::default() }
    }
}

/// Whether bytes are a principal as Kafka's brokers serialize it: a version, then `DefaultPrincipalData`.
pub(super) fn is_principal(bytes: &Bytes) -> bool {
    let mut d = Decoder::new(bytes.clone());
    match d.i16() {
        Ok(version)
            if (DefaultPrincipalData::MIN_VERSION..=DefaultPrincipalData::MAX_VERSION).contains(&version) =>
        {
            DefaultPrincipalData::decode(&mut d, version).is_ok()
        }
        _ => false,
    }
}
