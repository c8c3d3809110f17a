//! DescribeTopicPartitions (key 75), version 0: topics with their partitions, page by page (KIP-966). Topics
//! that the client may not describe are left out of a request for all topics, and refused at the end of the
//! answer if the request names them.

use super::Call;
use super::entry::{Api, ByResource, Cost, now};
use super::metadata::{OPERATIONS_OMITTED, visible_leader};
use crate::authorization::Permissions;
use thalweg_config::NetworkSettings;
use thalweg_metadata::topic_name;
use thalweg_metadata::{BrokerId, Image, PartitionIndex, PartitionRegistration};
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::request::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use thalweg_wire::request::{DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse};
use thalweg_wire::{ApiKey, ErrorCode, Uuid};

pub(super) const API: Api = Api::new(ApiKey::DescribeTopicPartitions, 0..=0, ByResource, |b, c, d| {
    now(b, c, d, |b, c, r| handle(&b.image(), &b.config().network, c, r))
})
.cost(Cost::ByTopics);

/// Answers from the image, from the cursor on, up to the limit of partitions.
pub fn handle(
    image: &Image,
    network: &NetworkSettings,
    call: &Call,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let is_among =
        |name: &str| request.topics.is_empty() || request.topics.iter().any(|topic| topic.name == name);
    if request.cursor.as_ref().is_some_and(|at| at.partition_index < 0 || !is_among(&at.topic_name)) {
        return refused(request);
    }
    let wants_all = request.topics.is_empty();
    let mut names: Vec<String> = if wants_all {
        image.topics().sorted().into_iter().map(|topic| topic.name.to_string()).collect()
    } else {
        request.topics.into_iter().map(|topic| topic.name).collect()
    };
    names.sort();
    names.dedup();
    let (from_topic, from_partition) =
        request.cursor.map_or((String::new(), 0), |cursor| (cursor.topic_name, cursor.partition_index));
    names.retain(|name| *name >= from_topic);
    let mut denied = Vec::new();
    names.retain(|name| {
        let may_describe = call.permissions.may(Operation::Describe, ResourceType::Topic, name);
        if !may_describe && !wants_all {
            denied.push(name.clone());
        }
        may_describe
    });
    let limit = usize::try_from(request.response_partition_limit).unwrap_or(1).max(1);
    let mut page = Page {
        image,
        listener: &call.peer.listener,
        permissions: &call.permissions,
        left: limit.min(network.describe_partitions_limit),
        response: DescribeTopicPartitionsResponse::default(),
    };
    for name in names {
        let first = PartitionIndex(if name == from_topic { from_partition } else { 0 });
        if !page.add(&name, first) {
            break;
        }
    }
    page.response.topics.extend(denied.into_iter().map(|name| DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode::TopicAuthorizationFailed.code(),
        name: Some(name),
        topic_authorized_operations: OPERATIONS_OMITTED,
        ..Default::default()
    }));
    page.response
}

/// The answer to a cursor that is at no partition of the named topics.
fn refused(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse {
    let topics = request.topics.into_iter().map(|topic| DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode::InvalidRequest.code(),
        name: Some(topic.name),
        topic_authorized_operations: OPERATIONS_OMITTED,
        ..Default::default()
    });
    DescribeTopicPartitionsResponse { topics: topics.collect(), ..Default::default() }
}

struct Page<'a> {
    image: &'a Image,
    listener: &'a str,
    permissions: &'a Permissions,
    left: usize,
    response: DescribeTopicPartitionsResponse,
}

impl Page<'_> {
    /// Adds a topic's partitions from `first` on. Returns true if the page has room for more.
    fn add(&mut self, name: &str, first: PartitionIndex) -> bool {
        if self.left == 0 {
            self.end_at(name, first);
            return false;
        }
        let Some(topic) = self.image.topic(name) else {
            let error = match topic_name::check(name) {
                Ok(()) => ErrorCode::UnknownTopicOrPartition,
                Err(_) => ErrorCode::InvalidTopicException,
            };
            self.response.topics.push(DescribeTopicPartitionsResponseTopic {
                error_code: error.code(),
                name: Some(name.to_owned()),
                topic_id: Uuid::ZERO,
                topic_authorized_operations: self.permissions.operations(ResourceType::Topic, name),
                ..Default::default()
            });
            return true;
        };
        let mut described = DescribeTopicPartitionsResponseTopic {
            name: Some(topic.name.to_string()),
            topic_id: topic.id,
            is_internal: topic_name::is_internal(&topic.name),
            topic_authorized_operations: self.permissions.operations(ResourceType::Topic, name),
            ..Default::default()
        };
        let mut next = None;
        for (index, partition) in topic.partitions.range(first..) {
            if self.left == 0 {
                next = Some(*index);
                break;
            }
            self.left -= 1;
            described.partitions.push(self.partition(*index, partition));
        }
        self.response.topics.push(described);
        if let Some(next) = next {
            self.end_at(name, next);
        }
        next.is_none()
    }

    fn end_at(&mut self, name: &str, index: PartitionIndex) {
        let topic_name = name.to_owned();
        self.response.next_cursor = Some(Cursor { topic_name, partition_index: index.0 });
    }

    fn partition(
        &self,
        index: PartitionIndex,
        partition: &PartitionRegistration,
    ) -> DescribeTopicPartitionsResponsePartition {
        let (error, leader_id) = visible_leader(self.image, self.listener, partition);
        DescribeTopicPartitionsResponsePartition {
            error_code: error.code(),
            partition_index: index.0,
            leader_id,
            leader_epoch: partition.leader_epoch,
            replica_nodes: BrokerId::numbers(&partition.replicas),
            isr_nodes: BrokerId::numbers(&partition.isr),
            eligible_leader_replicas: Some(BrokerId::numbers(&partition.eligible_leader_replicas)),
            last_known_elr: Some(BrokerId::numbers(&partition.last_known_elr)),
            offline_replicas: BrokerId::numbers(&self.image.offline_replicas(partition)),
        }
    }
}
