//! Metadata (key 3), versions 0 to 13: the brokers, and topics with their leaders, from the image.
//!
//! A missing topic is created if the request allows it (version 4) and `auto.create.topics.enable` is on;
//! until the image has the topic, the answer is UNKNOWN_TOPIC_OR_PARTITION, as in Kafka. Version 10 adds
//! topic ids, version 12 adds lookup by id; version 13 reports when a client should bootstrap again
//! (KIP-1102).
//!
//! Topics that the client may not describe are left out of a request for all topics, and refused if the
//! request names them, whether or not they exist. Creating a topic needs CREATE, on the cluster or on the
//! topic.
//!
//! Versions 10 and 11 have a field for the topic id, but no lookup by id: as in Kafka, a request with an id
//! is refused for each topic.

use super::Call;
use super::entry::{Api, ByResource, Cost, later};
use super::serve::auto_create;
use crate::authorization::{Denials, Permissions};
use crate::broker::{Broker, some_broker};
use std::sync::Arc;
use thalweg_hash::HashSet;
use thalweg_metadata::topic_name;
use thalweg_metadata::{BrokerId, BrokerRegistration, Image, PartitionIndex, PartitionRegistration, Topic};
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::request::metadata_request::MetadataRequestTopic;
use thalweg_wire::request::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use thalweg_wire::request::{MetadataRequest, MetadataResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api =
    Api::new(ApiKey::Metadata, 0..=13, ByResource, |b, c, d| later(b, c, d, handle)).cost(Cost::ByTopics);

/// The value if the client did not ask for authorised operations.
pub const OPERATIONS_OMITTED: i32 = i32::MIN;

/// Maximum number of topics created for one request, equal to the controller's limit of partitions per
/// request.
const CREATED_AT_ONCE_MAX: usize = 10_000;
/// The first version with lookup by topic id.
const LOOKUP_BY_ID_FROM: i16 = 12;
/// The first version in which all topics are a null list; an empty list means all topics before.
const NULL_LIST_FROM: i16 = 1;
/// The first version in which the client may forbid automatic topic creation.
const AUTO_CREATION_FROM: i16 = 4;

/// Answers from the image, and starts automatic topic creation if it is allowed.
pub async fn handle(broker: Arc<Broker>, call: Arc<Call>, request: MetadataRequest) -> MetadataResponse {
    if call.version < LOOKUP_BY_ID_FROM
        && let Some(topics) = &request.topics
        && topics.iter().any(|topic| topic.name.is_none() || !topic.topic_id.is_zero())
    {
        return refused(topics);
    }
    let requested = match request.topics {
        Some(topics) if topics.is_empty() && call.version < NULL_LIST_FROM => None,
        topics => topics,
    };
    // As in Kafka, which collects the requested topics in a set: each topic is answered once.
    let requested = requested.map(|mut topics| {
        let mut seen = HashSet::default();
        topics.retain(|topic| seen.insert((topic.topic_id, topic.name.clone())));
        topics
    });
    let mut denied = Denials::default();
    let image = broker.image();
    if let Some(topics) = &requested {
        let may_create = call.version < AUTO_CREATION_FROM || request.allow_auto_topic_creation;
        let creates = may_create && broker.config().topics.auto_create;
        denied = Denials::among(topics, |topic| may_have(&call, &image, topic, creates));
        if creates {
            create_missing(&broker, &call, &image, topics, &denied);
        }
    }
    let detail = Detail {
        image: &image,
        listener: &call.peer.listener,
        permissions: &call.permissions,
        operations: request.include_topic_authorized_operations,
    };
    let topics = match requested {
        None => {
            let topics = image.topics().sorted().into_iter().filter(|topic| {
                call.permissions.may_also(Operation::Describe, ResourceType::Topic, &topic.name)
            });
            topics.map(|topic| detail.topic(topic)).collect()
        }
        Some(topics) => {
            let answer = |(place, topic)| match denied.contains(place) {
                true => without_permission(topic),
                false => detail.requested(topic),
            };
            topics.iter().enumerate().map(answer).collect()
        }
    };
    MetadataResponse {
        throttle_time_ms: 0,
        brokers: brokers(&image, broker.node_id, &call.peer.listener),
        cluster_id: Some(broker.cluster_id.clone()),
        controller_id: some_broker(broker.node_id, &image),
        topics,
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            call.permissions.operations_on_cluster()
        } else {
            OPERATIONS_OMITTED
        },
        error_code: 0,
    }
}

/// Starts to create the missing topics that are not denied. As in Kafka, the answer does not wait: it reports
/// the topics as unknown, so that a client notices the deletion of a topic even if the same request creates
/// the topic again.
fn create_missing(
    broker: &Arc<Broker>,
    call: &Arc<Call>,
    image: &Image,
    topics: &[MetadataRequestTopic],
    denied: &Denials,
) {
    let allowed = topics.iter().enumerate().filter(|(place, _)| !denied.contains(*place));
    let missing = allowed
        .filter_map(|(_, topic)| topic.name.as_deref())
        .filter(|name| image.topic(name).is_none() && topic_name::check(name).is_ok());
    let missing: Vec<String> = missing.map(str::to_owned).collect();
    // The controller would refuse a larger request as a whole. Topics that another request is creating need
    // no second request.
    if missing.len() <= CREATED_AT_ONCE_MAX && broker.auto_topics.takes_any(&missing, &call.holder()) {
        let (broker, call) = (Arc::clone(broker), Arc::clone(call));
        tokio::spawn(async move { auto_create::create(&broker, missing, Some(&call)).await });
    }
}

/// True if the client may describe the topic, and create the topic if it is missing.
fn may_have(call: &Call, image: &Image, requested: &MetadataRequestTopic, creates: bool) -> bool {
    let Some(name) = requested.name.as_ref().filter(|_| requested.topic_id.is_zero()) else { return true };
    let may = |operation| call.permissions.may(operation, ResourceType::Topic, name);
    let exists = || image.topic(name).is_some();
    let may_create = || call.permissions.may_also_on_cluster(Operation::Create) || may(Operation::Create);
    may(Operation::Describe) && (!creates || exists() || may_create())
}

/// The refusal of a topic, the same whether or not the topic exists. A topic id is not secret.
fn without_permission(requested: &MetadataRequestTopic) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code: ErrorCode::TopicAuthorizationFailed.code(),
        name: requested.name.clone().filter(|_| requested.topic_id.is_zero()),
        topic_id: requested.topic_id,
        topic_authorized_operations: OPERATIONS_OMITTED,
        ..Default::default()
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

/// The brokers that are reachable on the client's listener. If no broker is alive, for example while a single
/// node stops, this broker is listed: librdkafka drops a broker that no answer lists, and finds no other.
fn brokers(image: &Image, own: BrokerId, listener: &str) -> Vec<MetadataResponseBroker> {
    let described = |broker: &BrokerRegistration| {
        let endpoint = broker.endpoint(listener)?;
        Some(MetadataResponseBroker {
            node_id: broker.id.0,
            host: endpoint.host.clone(),
            port: i32::from(endpoint.port),
            rack: broker.rack.clone(),
        })
    };
    let alive: Vec<_> = image.alive_brokers().filter_map(|broker| described(broker)).collect();
    if alive.is_empty() {
        image.broker(own).and_then(|own| described(own)).into_iter().collect()
    } else {
        alive
    }
}

/// The leader as visible to clients of a listener: a leader without this listener is reported as missing,
/// with an error.
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
    permissions: &'a Permissions,
    operations: bool,
}

impl Detail<'_> {
    fn requested(&self, requested: &MetadataRequestTopic) -> MetadataResponseTopic {
        let (found, error) = match &requested.name {
            Some(name) if requested.topic_id.is_zero() => {
                let error = match topic_name::check(name) {
                    Ok(()) => ErrorCode::UnknownTopicOrPartition,
                    Err(_) => ErrorCode::InvalidTopicException,
                };
                (self.image.topic(name), error)
            }
            _ => (self.image.topic_by_id(requested.topic_id), ErrorCode::UnknownTopicId),
        };
        let is_by_id = requested.name.is_none() || !requested.topic_id.is_zero();
        match found {
            Some(topic) if is_by_id && !self.may_describe(topic) => without_permission(requested),
            Some(topic) => self.topic(topic),
            None => MetadataResponseTopic {
                error_code: error.code(),
                // Requested by id, an unknown topic has no name.
                name: requested.name.clone().filter(|_| requested.topic_id.is_zero()),
                topic_id: requested.topic_id,
                // The allowed operations of a name do not depend on its existence; an unknown id has no name.
                topic_authorized_operations: match &requested.name {
                    Some(name) if requested.topic_id.is_zero() => self.operations(name),
                    _ => OPERATIONS_OMITTED,
                },
                ..Default::default()
            },
        }
    }

    fn may_describe(&self, topic: &Topic) -> bool {
        self.permissions.may(Operation::Describe, ResourceType::Topic, &topic.name)
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
            topic_authorized_operations: self.operations(&topic.name),
        }
    }

    fn operations(&self, name: &str) -> i32 {
        match self.operations {
            true => self.permissions.operations(ResourceType::Topic, name),
            false => OPERATIONS_OMITTED,
        }
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
