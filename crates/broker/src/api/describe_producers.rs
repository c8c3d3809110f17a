//! DescribeProducers (key 61), version 0 (KIP-664): the idempotent and transactional producers that a
//! partition remembers, to find transactions that hang. Answered by every replica.

use super::Call;
use super::entry::{Api, ByResource, now};
use super::serve::elsewhere::TopicRef;
use thalweg_hash::{HashMap, HashSet};
use thalweg_metadata::topic_name;
use thalweg_metadata::{BrokerId, Image, PartitionIndex};
use thalweg_net::answer_parts::AnswerRoom;
use thalweg_replica::partition::{Partition, Partitions};
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::request::describe_producers_response::{PartitionResponse, ProducerState, TopicResponse};
use thalweg_wire::request::{DescribeProducersRequest, DescribeProducersResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api = Api::new(ApiKey::DescribeProducers, 0..=0, ByResource, |b, c, d| {
    now(b, c, d, |b, c, r| handle(&b.partitions, b.node_id, &b.image(), c, r))
});

/// Size of a producer in an answer.
const PRODUCER_BYTES: usize = 40;
/// "No transaction is open."
const NO_TRANSACTION: i64 = -1;

/// Describes each partition.
pub fn handle(
    partitions: &Partitions,
    node_id: BrokerId,
    image: &Image,
    call: &Call,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let mut room = AnswerRoom::default();
    let mut seen: HashMap<String, HashSet<i32>> = HashMap::default();
    let topics = request.topics.into_iter().map(|topic| {
        let refusal = match topic_name::check(&topic.name) {
            Err(error) => Some((ErrorCode::InvalidTopicException, error.to_string())),
            Ok(()) if !call.permissions.may(Operation::Read, ResourceType::Topic, &topic.name) => {
                let message = "Topic authorization failed.".to_owned();
                Some((ErrorCode::TopicAuthorizationFailed, message))
            }
            Ok(()) if image.topic(&topic.name).is_none() => {
                let message = "This server does not host this topic-partition.".to_owned();
                Some((ErrorCode::UnknownTopicOrPartition, message))
            }
            Ok(()) => None,
        };
        // Kafka repeats repeated partitions; clients do not notice the difference.
        let seen = seen.entry(topic.name.clone()).or_default();
        let indexes = topic.partition_indexes.iter().filter(|index| seen.insert(**index));
        let described = indexes.map(|&partition_index| match &refusal {
            Some((error, message)) => PartitionResponse {
                partition_index,
                error_code: error.code(),
                error_message: room.take(message.len()).then(|| message.clone()),
                ..Default::default()
            },
            None => {
                let index = PartitionIndex(partition_index);
                match partitions.get(&topic.name, index) {
                    Some(partition) => describe(&partition, index, &mut room),
                    None => {
                        let error = TopicRef::Name(&topic.name).missing(node_id, image, index);
                        PartitionResponse { partition_index, error_code: error.code(), ..Default::default() }
                    }
                }
            }
        });
        TopicResponse { partitions: described.collect(), name: topic.name.clone() }
    });
    DescribeProducersResponse { throttle_time_ms: 0, topics: topics.collect() }
}

fn describe(partition: &Partition, index: PartitionIndex, room: &mut AnswerRoom) -> PartitionResponse {
    let partition_index = index.0;
    let mut active_producers: Vec<_> = partition.with_log(|log| {
        let states = log.producers().map(|(id, entry)| ProducerState {
            producer_id: id.0,
            producer_epoch: i32::from(entry.epoch.0),
            last_sequence: entry.last_sequence(),
            last_timestamp: entry.last_timestamp,
            coordinator_epoch: entry.coordinator_epoch,
            current_txn_start_offset: entry.transaction_start.unwrap_or(NO_TRANSACTION),
        });
        states.collect()
    });
    if !room.take(active_producers.len() * PRODUCER_BYTES) {
        return PartitionResponse {
            partition_index,
            error_code: ErrorCode::InvalidRequest.code(),
            error_message: Some("Too many producers for one answer: ask for fewer partitions.".to_owned()),
            ..Default::default()
        };
    }
    active_producers.sort_unstable_by_key(|producer| producer.producer_id);
    PartitionResponse { partition_index, active_producers, ..Default::default() }
}
