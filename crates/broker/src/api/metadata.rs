//! Metadata (key 3), versions 0 to 13: the brokers, and topics with their leaders, from the image.
//!
//! A missing topic is created if the request allows it (version 4) and `auto.create.topics.enable` is on; the answer
//! is then LEADER_NOT_AVAILABLE, or the new topic when the image already has it. Version 10 adds topic ids, version
//! 12 asks by id; version 13 reports when a client should bootstrap again (KIP-1102).
//!
//! Versions 10 and 11 have a field for the id and cannot be asked by it: as in Kafka, such a request is refused as a
//! whole, topic by topic.

use super::Call;
use super::auto_create;
use crate::broker::Broker;
use std::sync::Arc;
use thalweg_hash::HashSet;
use thalweg_metadata::topic_name;
use thalweg_metadata::{BrokerId, Image, PartitionIndex, PartitionRegistration, Topic};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::metadata_request::MetadataRequestTopic;
use thalweg_wire::request::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use thalweg_wire::request::{MetadataRequest, MetadataResponse};

/// "The client did not ask" for authorised operations.
pub const OPERATIONS_OMITTED: i32 = i32::MIN;
/// Every operation on a topic: READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS.
pub const TOPIC_OPERATIONS: i32 = bits(&[3, 4, 5, 6, 7, 8, 10, 11]);
/// Every operation on the cluster.
pub const CLUSTER_OPERATIONS: i32 = bits(&[5, 7, 8, 9, 10, 11, 12]);

const fn bits(operations: &[u32]) -> i32 {
    let mut mask = 0;
    let mut index = 0;
    while index < operations.len() {
        mask |= 1 << operations[index];
        index += 1;
    }
    mask
}

/// The most topics that are created for one request: the controller makes no more partitions at once.
const CREATED_AT_ONCE_MAX: usize = 10_000;
/// The first version that asks by id.
const BY_ID: i16 = 12;

/// Answers from the image, after creating topics where that is wanted.
pub async fn handle(broker: Arc<Broker>, call: Arc<Call>, request: MetadataRequest) -> MetadataResponse {
    if call.version < BY_ID
        && let Some(topics) = &request.topics
        && topics.iter().any(|topic| topic.name.is_none() || !topic.topic_id.is_zero())
    {
        return refused(topics);
    }
    // Version 0 has no null: there an empty list asks for all topics.
    let asked = match request.topics {
        Some(topics) if topics.is_empty() && call.version == 0 => None,
        topics => topics,
    };
    // As in Kafka, which collects the requested topics in a set: each topic is answered once.
    let asked = asked.map(|mut topics| {
        let mut seen = HashSet::default();
        topics.retain(|topic| seen.insert((topic.topic_id, topic.name.clone())));
        topics
    });
    if let Some(topics) = &asked {
        let may_create = call.version < 4 || request.allow_auto_topic_creation;
        if may_create && broker.config().topics.auto_create {
            let image = broker.image();
            let missing = topics
                .iter()
                .filter_map(|topic| topic.name.as_deref())
                .filter(|name| image.topic(name).is_none() && topic_name::check(name).is_ok());
            let missing: Vec<String> = missing.map(str::to_owned).collect();
            // More would be refused by the controller, all of them.
            if (1..=CREATED_AT_ONCE_MAX).contains(&missing.len()) {
                auto_create::create(&broker, missing, Some(&call)).await;
            }
        }
    }
    let image = broker.image();
    let detail = Detail {
        image: &image,
        listener: &call.peer.listener,
        operations: request.include_topic_authorized_operations,
    };
    let topics = match asked {
        None => image.topics().sorted().into_iter().map(|topic| detail.topic(topic)).collect(),
        Some(topics) => topics.iter().map(|topic| detail.asked(&broker, topic)).collect(),
    };
    MetadataResponse {
        throttle_time_ms: 0,
        brokers: brokers(&image, &call.peer.listener),
        cluster_id: Some(broker.cluster_id.clone()),
        controller_id: broker.some_broker(&image),
        topics,
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            CLUSTER_OPERATIONS
        } else {
            OPERATIONS_OMITTED
        },
        error_code: 0,
    }
}

fn refused(topics: &[MetadataRequestTopic]) -> MetadataResponse {
    let topics = topics.iter().map(|topic| MetadataResponseTopic {
        error_code: ErrorCode::InvalidRequest.code(),
        // In these versions every topic has a name.
        name: Some(topic.name.clone().unwrap_or_default()),
        topic_id: topic.topic_id,
        topic_authorized_operations: OPERATIONS_OMITTED,
        ..Default::default()
    });
    MetadataResponse {
        topics: topics.collect(),
        controller_id: -1,
        cluster_authorized_operations: OPERATIONS_OMITTED,
        ..Default::default()
    }
}

/// The brokers that can be reached by the listener that the client used.
fn brokers(image: &Image, listener: &str) -> Vec<MetadataResponseBroker> {
    image
        .alive_brokers()
        .filter_map(|broker| {
            let endpoint = broker.endpoint(listener)?;
            Some(MetadataResponseBroker {
                node_id: broker.id.0,
                host: endpoint.host.clone(),
                port: i32::from(endpoint.port),
                rack: broker.rack.clone(),
            })
        })
        .collect()
}

/// The leader as visible to clients of a listener: a leader without this listener is reported as missing, with an
/// error.
pub fn visible_leader(image: &Image, listener: &str, partition: &PartitionRegistration) -> (ErrorCode, i32) {
    let leader = image.broker(partition.leader);
    if leader.is_some_and(|broker| !broker.fenced && broker.endpoint(listener).is_some()) {
        (ErrorCode::None, partition.leader.0)
    } else {
        (ErrorCode::LeaderNotAvailable, -1)
    }
}

struct Detail<'a> {
    image: &'a Image,
    listener: &'a str,
    operations: bool,
}

impl Detail<'_> {
    fn asked(&self, broker: &Broker, asked: &MetadataRequestTopic) -> MetadataResponseTopic {
        let (found, error) = match &asked.name {
            Some(name) if asked.topic_id.is_zero() => {
                let error = if topic_name::check(name).is_err() {
                    ErrorCode::InvalidTopicException
                } else if broker.auto_topics.contains(name) {
                    ErrorCode::LeaderNotAvailable
                } else {
                    ErrorCode::UnknownTopicOrPartition
                };
                (self.image.topic(name), error)
            }
            _ => (self.image.topic_by_id(asked.topic_id), ErrorCode::UnknownTopicId),
        };
        match found {
            Some(topic) => self.topic(topic),
            None => MetadataResponseTopic {
                error_code: error.code(),
                // Requested by id, an unknown topic has no name.
                name: asked.name.clone().filter(|_| asked.topic_id.is_zero()),
                topic_id: asked.topic_id,
                // The allowed operations of a name do not depend on its existence; an unknown id has no name.
                topic_authorized_operations: match error {
                    ErrorCode::UnknownTopicId => OPERATIONS_OMITTED,
                    _ => self.operations(),
                },
                ..Default::default()
            },
        }
    }

    fn topic(&self, topic: &Topic) -> MetadataResponseTopic {
        MetadataResponseTopic {
            error_code: 0,
            name: Some(topic.name.to_string()),
            topic_id: topic.id,
            is_internal: topic_name::is_internal(&topic.name),
            partitions: topic
                .partitions
                .iter()
                .map(|(index, partition)| self.partition(*index, partition))
                .collect(),
            topic_authorized_operations: self.operations(),
        }
    }

    fn operations(&self) -> i32 {
        if self.operations { TOPIC_OPERATIONS } else { OPERATIONS_OMITTED }
    }

    fn partition(
        &self,
        index: PartitionIndex,
        partition: &PartitionRegistration,
    ) -> MetadataResponsePartition {
        let (error, leader_id) = visible_leader(self.image, self.listener, partition);
        MetadataResponsePartition {
            error_code: error.code(),
            partition_index: index.0,
            leader_id,
            leader_epoch: partition.leader_epoch,
            replica_nodes: BrokerId::numbers(&partition.replicas),
            isr_nodes: BrokerId::numbers(&partition.isr),
            offline_replicas: BrokerId::numbers(&self.image.offline_replicas(partition)),
        }
    }
}
