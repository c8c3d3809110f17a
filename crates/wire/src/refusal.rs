//! The response that refuses a whole request, with the same error for each of its parts (Kafka's
//! `getErrorResponse`).
//!
//! Responses that carry a single error at their top level are generated, from `schema/refusals.txt`.

mod of_brokers;

use std::collections::BTreeSet;

use crate::request::alter_client_quotas_response::{EntityData as QuotaEntity, EntryData as QuotaResult};
use crate::request::alter_configs_response::AlterConfigsResourceResponse as LegacyConfigsResult;
use crate::request::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use crate::request::alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
use crate::request::create_acls_response::AclCreationResult;
use crate::request::create_partitions_response::CreatePartitionsTopicResult;
use crate::request::create_topics_response::CreatableTopicResult;
use crate::request::delete_acls_response::DeleteAclsFilterResult;
use crate::request::delete_topics_response::DeletableTopicResult;
use crate::request::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use crate::request::incremental_alter_configs_response::AlterConfigsResourceResponse;
use crate::request::list_partition_reassignments_response::{
    OngoingPartitionReassignment, OngoingTopicReassignment,
};
use crate::request::*;
use crate::{ErrorCode, Request};

/// A request whose response can carry a refusal.
#[diagnostic::on_unimplemented(
    message = "there is no refusal of `{Self}`",
    note = "name its API in crates/wire/schema/refusals.txt if one error at the top level of the response is \
            enough, and run `cargo xtask codegen`; else write it in crates/wire/src/refusal.rs"
)]
pub trait Refuse: Request {
    /// The response of this version that rejects the whole request.
    fn refuse(&self, code: ErrorCode, message: Option<&str>, version: i16) -> Self::Response;
}

/// Like Kafka, names `User:ANONYMOUS` as owner and requester.
impl Refuse for CreateDelegationTokenRequest {
    fn refuse(&self, code: ErrorCode, _: Option<&str>, version: i16) -> CreateDelegationTokenResponse {
        let of_requester = |text: &str| if version >= 3 { text.to_owned() } else { String::new() };
        CreateDelegationTokenResponse {
            error_code: code.code(),
            principal_type: "User".to_owned(),
            principal_name: "ANONYMOUS".to_owned(),
            token_requester_principal_type: of_requester("User"),
            token_requester_principal_name: of_requester("ANONYMOUS"),
            issue_timestamp_ms: -1,
            expiry_timestamp_ms: -1,
            max_timestamp_ms: -1,
            ..Default::default()
        }
    }
}

impl Refuse for CreateAclsRequest {
    fn refuse(&self, code: ErrorCode, message: Option<&str>, _: i16) -> CreateAclsResponse {
        let result = AclCreationResult { error_code: code.code(), error_message: message.map(str::to_owned) };
        CreateAclsResponse { throttle_time_ms: 0, results: vec![result; self.creations.len()] }
    }
}

impl Refuse for DeleteAclsRequest {
    fn refuse(&self, code: ErrorCode, message: Option<&str>, _: i16) -> DeleteAclsResponse {
        let error_message = message.map(str::to_owned);
        let result = DeleteAclsFilterResult { error_code: code.code(), error_message, ..Default::default() };
        DeleteAclsResponse { throttle_time_ms: 0, filter_results: vec![result; self.filters.len()] }
    }
}

impl Refuse for AlterUserScramCredentialsRequest {
    fn refuse(&self, code: ErrorCode, message: Option<&str>, _: i16) -> AlterUserScramCredentialsResponse {
        let deleted = self.deletions.iter().map(|deletion| &deletion.name);
        let users: BTreeSet<&String> =
            deleted.chain(self.upsertions.iter().map(|upsertion| &upsertion.name)).collect();
        let results = users.into_iter().map(|user| AlterUserScramCredentialsResult {
            user: user.clone(),
            error_code: code.code(),
            error_message: message.map(str::to_owned),
        });
        AlterUserScramCredentialsResponse { results: results.collect(), ..Default::default() }
    }
}

impl Refuse for AlterClientQuotasRequest {
    fn refuse(&self, code: ErrorCode, message: Option<&str>, _: i16) -> AlterClientQuotasResponse {
        let entries = self.entries.iter().map(|entry| QuotaResult {
            error_code: code.code(),
            error_message: message.map(str::to_owned),
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

impl Refuse for AlterPartitionReassignmentsRequest {
    fn refuse(&self, code: ErrorCode, message: Option<&str>, _: i16) -> AlterPartitionReassignmentsResponse {
        let responses = self.topics.iter().map(|topic| ReassignableTopicResponse {
            name: topic.name.clone(),
            partitions: topic
                .partitions
                .iter()
                .map(|partition| ReassignablePartitionResponse {
                    partition_index: partition.partition_index,
                    error_code: code.code(),
                    error_message: message.map(str::to_owned),
                })
                .collect(),
        });
        AlterPartitionReassignmentsResponse {
            error_code: code.code(),
            error_message: message.map(str::to_owned),
            responses: responses.collect(),
            ..Default::default()
        }
    }
}

impl Refuse for ListPartitionReassignmentsRequest {
    fn refuse(&self, code: ErrorCode, message: Option<&str>, _: i16) -> ListPartitionReassignmentsResponse {
        let topics = self.topics.iter().flatten().map(|topic| OngoingTopicReassignment {
            name: topic.name.clone(),
            partitions: topic
                .partition_indexes
                .iter()
                .map(|index| OngoingPartitionReassignment { partition_index: *index, ..Default::default() })
                .collect(),
        });
        ListPartitionReassignmentsResponse {
            error_code: code.code(),
            error_message: message.map(str::to_owned),
            topics: topics.collect(),
            ..Default::default()
        }
    }
}

impl Refuse for ElectLeadersRequest {
    fn refuse(&self, code: ErrorCode, message: Option<&str>, version: i16) -> ElectLeadersResponse {
        let topics = self.topic_partitions.iter().flatten();
        let results = topics.map(|topic| ReplicaElectionResult {
            topic: topic.topic.clone(),
            partition_result: topic
                .partitions
                .iter()
                .map(|partition_id| PartitionResult {
                    partition_id: *partition_id,
                    error_code: code.code(),
                    error_message: message.map(str::to_owned),
                })
                .collect(),
        });
        ElectLeadersResponse {
            error_code: if version >= 1 { code.code() } else { 0 },
            replica_election_results: results.collect(),
            ..Default::default()
        }
    }
}

impl Refuse for CreateTopicsRequest {
    fn refuse(&self, code: ErrorCode, message: Option<&str>, _: i16) -> CreateTopicsResponse {
        let topics = self.topics.iter().map(|topic| CreatableTopicResult {
            name: topic.name.clone(),
            error_code: code.code(),
            error_message: message.map(str::to_owned),
            ..Default::default()
        });
        CreateTopicsResponse { topics: topics.collect(), ..Default::default() }
    }
}

impl Refuse for DeleteTopicsRequest {
    fn refuse(&self, code: ErrorCode, message: Option<&str>, _: i16) -> DeleteTopicsResponse {
        let by_name = self.topic_names.iter().map(|name| (Some(name.clone()), Default::default()));
        let by_state = self.topics.iter().map(|topic| (topic.name.clone(), topic.topic_id));
        let responses = by_name.chain(by_state).map(|(name, topic_id)| DeletableTopicResult {
            name,
            topic_id,
            error_code: code.code(),
            error_message: message.map(str::to_owned),
        });
        DeleteTopicsResponse { responses: responses.collect(), ..Default::default() }
    }
}

impl Refuse for CreatePartitionsRequest {
    fn refuse(&self, code: ErrorCode, message: Option<&str>, _: i16) -> CreatePartitionsResponse {
        let results = self.topics.iter().map(|topic| CreatePartitionsTopicResult {
            name: topic.name.clone(),
            error_code: code.code(),
            error_message: message.map(str::to_owned),
        });
        CreatePartitionsResponse { results: results.collect(), ..Default::default() }
    }
}

impl Refuse for IncrementalAlterConfigsRequest {
    fn refuse(&self, code: ErrorCode, message: Option<&str>, _: i16) -> IncrementalAlterConfigsResponse {
        let responses = self.resources.iter().map(|resource| AlterConfigsResourceResponse {
            error_code: code.code(),
            error_message: message.map(str::to_owned),
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.clone(),
        });
        IncrementalAlterConfigsResponse { responses: responses.collect(), ..Default::default() }
    }
}

impl Refuse for AlterConfigsRequest {
    fn refuse(&self, code: ErrorCode, message: Option<&str>, _: i16) -> AlterConfigsResponse {
        let responses = self.resources.iter().map(|resource| LegacyConfigsResult {
            error_code: code.code(),
            error_message: message.map(str::to_owned),
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.clone(),
        });
        AlterConfigsResponse { responses: responses.collect(), ..Default::default() }
    }
}
