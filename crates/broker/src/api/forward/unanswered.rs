//! What a client is told of a forwarded request that the controller did not answer: the request's own answer, with one
//! error for everything in it (`getErrorResponse` of Kafka's requests).

use std::collections::BTreeSet;

use thalweg_wire::request::alter_client_quotas_response::{EntityData, EntryData};
use thalweg_wire::request::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use thalweg_wire::request::alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
use thalweg_wire::request::create_partitions_response::CreatePartitionsTopicResult;
use thalweg_wire::request::create_topics_response::CreatableTopicResult;
use thalweg_wire::request::delete_topics_response::DeletableTopicResult;
use thalweg_wire::request::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use thalweg_wire::request::list_partition_reassignments_response::{
    OngoingPartitionReassignment, OngoingTopicReassignment,
};
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Request, Uuid};

/// A request whose failure can be told in its own answer.
pub trait Unanswered: Request {
    /// The answer that says so of all that was asked for.
    fn answer(self, error: ErrorCode, version: i16) -> Self::Response;
}

/// Kafka's words for an error, which it puts into some of the answers.
fn words(error: ErrorCode) -> Option<String> {
    let words = match error {
        ErrorCode::RequestTimedOut => "The request timed out.",
        _ => "The server experienced an unexpected error when processing the request.",
    };
    Some(words.to_owned())
}

impl Unanswered for CreateTopicsRequest {
    fn answer(self, error: ErrorCode, _: i16) -> CreateTopicsResponse {
        let topics = self.topics.into_iter().map(|topic| CreatableTopicResult {
            name: topic.name,
            error_code: error.code(),
            error_message: None,
            ..Default::default()
        });
        CreateTopicsResponse { throttle_time_ms: 0, topics: topics.collect() }
    }
}

impl Unanswered for DeleteTopicsRequest {
    fn answer(self, error: ErrorCode, _: i16) -> DeleteTopicsResponse {
        let named = self.topic_names.into_iter().map(|name| (Some(name), Uuid::default()));
        let topics = named.chain(self.topics.into_iter().map(|topic| (topic.name, topic.topic_id)));
        let responses = topics.map(|(name, topic_id)| DeletableTopicResult {
            name,
            topic_id,
            error_code: error.code(),
            error_message: None,
        });
        DeleteTopicsResponse { throttle_time_ms: 0, responses: responses.collect() }
    }
}

impl Unanswered for CreatePartitionsRequest {
    fn answer(self, error: ErrorCode, _: i16) -> CreatePartitionsResponse {
        let results = self.topics.into_iter().map(|topic| CreatePartitionsTopicResult {
            name: topic.name,
            error_code: error.code(),
            error_message: None,
        });
        CreatePartitionsResponse { throttle_time_ms: 0, results: results.collect() }
    }
}

impl Unanswered for ElectLeadersRequest {
    fn answer(self, error: ErrorCode, version: i16) -> ElectLeadersResponse {
        let partition =
            |partition_id| PartitionResult { partition_id, error_code: error.code(), error_message: None };
        let results = self.topic_partitions.into_iter().flatten().map(|topic| ReplicaElectionResult {
            topic: topic.topic,
            partition_result: topic.partitions.into_iter().map(partition).collect(),
        });
        ElectLeadersResponse {
            throttle_time_ms: 0,
            error_code: if version >= 1 { error.code() } else { 0 },
            replica_election_results: results.collect(),
        }
    }
}

impl Unanswered for AlterPartitionReassignmentsRequest {
    fn answer(self, error: ErrorCode, _: i16) -> AlterPartitionReassignmentsResponse {
        let partition = |partition_index| ReassignablePartitionResponse {
            partition_index,
            error_code: error.code(),
            error_message: None,
        };
        let responses = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.into_iter().map(|asked| partition(asked.partition_index));
            ReassignableTopicResponse { name: topic.name, partitions: partitions.collect() }
        });
        AlterPartitionReassignmentsResponse {
            error_code: error.code(),
            error_message: None,
            responses: responses.collect(),
            ..Default::default()
        }
    }
}

impl Unanswered for ListPartitionReassignmentsRequest {
    fn answer(self, error: ErrorCode, _: i16) -> ListPartitionReassignmentsResponse {
        let partition =
            |partition_index| OngoingPartitionReassignment { partition_index, ..Default::default() };
        let topics = self.topics.into_iter().flatten().map(|topic| OngoingTopicReassignment {
            name: topic.name,
            partitions: topic.partition_indexes.into_iter().map(partition).collect(),
        });
        ListPartitionReassignmentsResponse {
            throttle_time_ms: 0,
            error_code: error.code(),
            error_message: None,
            topics: topics.collect(),
        }
    }
}

impl Unanswered for AlterClientQuotasRequest {
    fn answer(self, error: ErrorCode, _: i16) -> AlterClientQuotasResponse {
        let entries = self.entries.into_iter().map(|entry| {
            let entity = entry.entity.into_iter().map(|entity| EntityData {
                entity_type: entity.entity_type,
                entity_name: entity.entity_name,
            });
            EntryData { error_code: error.code(), error_message: words(error), entity: entity.collect() }
        });
        AlterClientQuotasResponse { throttle_time_ms: 0, entries: entries.collect() }
    }
}

impl Unanswered for AlterUserScramCredentialsRequest {
    fn answer(self, error: ErrorCode, _: i16) -> AlterUserScramCredentialsResponse {
        let deleted = self.deletions.into_iter().map(|deletion| deletion.name);
        let users: BTreeSet<String> =
            deleted.chain(self.upsertions.into_iter().map(|upsertion| upsertion.name)).collect();
        let results = users.into_iter().map(|user| AlterUserScramCredentialsResult {
            user,
            error_code: error.code(),
            error_message: None,
        });
        AlterUserScramCredentialsResponse { throttle_time_ms: 0, results: results.collect() }
    }
}

impl Unanswered for DescribeQuorumRequest {
    fn answer(self, error: ErrorCode, version: i16) -> DescribeQuorumResponse {
        DescribeQuorumResponse {
            error_code: error.code(),
            // The field came with version 2.
            error_message: if version >= 2 { words(error) } else { Some(String::new()) },
            ..Default::default()
        }
    }
}

impl Unanswered for UpdateFeaturesRequest {
    fn answer(self, error: ErrorCode, _: i16) -> UpdateFeaturesResponse {
        UpdateFeaturesResponse { error_code: error.code(), error_message: None, ..Default::default() }
    }
}

impl Unanswered for UnregisterBrokerRequest {
    fn answer(self, error: ErrorCode, _: i16) -> UnregisterBrokerResponse {
        // The words of the exception itself: Kafka throws its time-out without any.
        let error_message = if error == ErrorCode::RequestTimedOut { None } else { words(error) };
        UnregisterBrokerResponse { throttle_time_ms: 0, error_code: error.code(), error_message }
    }
}

impl Unanswered for AddRaftVoterRequest {
    fn answer(self, error: ErrorCode, _: i16) -> AddRaftVoterResponse {
        AddRaftVoterResponse { throttle_time_ms: 0, error_code: error.code(), error_message: words(error) }
    }
}

impl Unanswered for RemoveRaftVoterRequest {
    fn answer(self, error: ErrorCode, _: i16) -> RemoveRaftVoterResponse {
        RemoveRaftVoterResponse { throttle_time_ms: 0, error_code: error.code(), error_message: words(error) }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use thalweg_wire::{ApiKey, Decoder, Encoder, Message};

    use super::*;

    /// The answers of Kafka 4.3.1 (`tests/golden/UnansweredRequestsWriter.java`).
    const GOLDEN: &str = include_str!("../../../tests/golden/unanswered-requests.txt");

    fn bytes(hex: &str) -> Bytes {
        let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
        (0..hex.len()).step_by(2).map(digits).collect()
    }

    fn check<R: Unanswered>(error: ErrorCode, version: i16, request: &str, expected: &str) {
        let request = R::decode(&mut Decoder::new(bytes(request)), version).expect("Kafka's own request");
        let answer = request.answer(error, version);
        let mut e = Encoder::with_capacity(64);
        answer.encode(&mut e, version).unwrap_or_else(|error| panic!("{:?} {version}: {error}", R::KEY));
        assert_eq!(e.into_bytes(), bytes(expected), "{:?} {version}: {answer:?}", R::KEY);
    }

    #[test]
    fn each_version_of_each_request_is_answered_as_kafka_does() {
        let mut seen = BTreeSet::new();
        for line in GOLDEN.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [api, version, error, request, expected] = fields[..] else { panic!("{line}") };
            let error = ErrorCode::from_i16(error.parse().expect("a code")).expect("a known one");
            let api = ApiKey::from_i16(api.parse().expect("a key")).expect("a known one");
            let version: i16 = version.parse().expect("a version");
            seen.insert((api as i16, version));
            let check = match api {
                ApiKey::CreateTopics => check::<CreateTopicsRequest>,
                ApiKey::DeleteTopics => check::<DeleteTopicsRequest>,
                ApiKey::CreatePartitions => check::<CreatePartitionsRequest>,
                ApiKey::ElectLeaders => check::<ElectLeadersRequest>,
                ApiKey::AlterPartitionReassignments => check::<AlterPartitionReassignmentsRequest>,
                ApiKey::ListPartitionReassignments => check::<ListPartitionReassignmentsRequest>,
                ApiKey::AlterClientQuotas => check::<AlterClientQuotasRequest>,
                ApiKey::AlterUserScramCredentials => check::<AlterUserScramCredentialsRequest>,
                ApiKey::DescribeQuorum => check::<DescribeQuorumRequest>,
                ApiKey::UpdateFeatures => check::<UpdateFeaturesRequest>,
                ApiKey::UnregisterBroker => check::<UnregisterBrokerRequest>,
                ApiKey::AddRaftVoter => check::<AddRaftVoterRequest>,
                ApiKey::RemoveRaftVoter => check::<RemoveRaftVoterRequest>,
                other => panic!("{other:?} is not forwarded as a whole"),
            };
            check(error, version, request, expected);
        }
        let partly = [ApiKey::AlterConfigs, ApiKey::IncrementalAlterConfigs];
        let forwarded = super::super::FORWARDED.iter().filter(|api| !partly.contains(api));
        for api in crate::api::SERVED.iter().filter(|api| forwarded.clone().any(|key| *key == api.key)) {
            for version in api.min..=api.max {
                assert!(seen.contains(&(api.key as i16, version)), "{:?} {version}", api.key);
            }
        }
    }
}
