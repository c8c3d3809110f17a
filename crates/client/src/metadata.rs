//! A client's view of a cluster: its brokers, and its topics with the leaders of their partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_dial::host_and_port;
use thalweg_record::LeaderEpoch;
use thalweg_wire::request::MetadataResponse;
use thalweg_wire::request::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use thalweg_wire::{ErrorCode, Uuid};

/// The cluster as described by the last Metadata response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The cluster id.
    pub cluster_id: Option<String>,
    /// The broker for administrative requests.
    pub controller_id: Option<i32>,
    /// The brokers, by id.
    pub brokers: BTreeMap<i32, BrokerAddress>,
    /// The topics requested so far, by name.
    pub topics: BTreeMap<String, TopicMetadata>,
}

/// The address of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerAddress {
    /// The broker's id.
    pub id: i32,
    /// The advertised host.
    pub host: String,
    /// The advertised port.
    pub port: i32,
    /// The broker's rack.
    pub rack: Option<String>,
}

/// The metadata of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicMetadata {
    /// The topic's name.
    pub name: Arc<str>,
    /// The topic id; zero if the broker does not return it.
    pub id: Uuid,
    /// True for Kafka's internal topics.
    pub internal: bool,
    /// The reason for missing metadata.
    pub error: Option<ErrorCode>,
    /// The partitions, sorted by index.
    pub partitions: Vec<PartitionMetadata>,
}

/// The reason why a partition without a leader can be neither read nor written, after the partition's name.
pub const NO_LEADER: &str = "it has no leader";

/// The metadata of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionMetadata {
    /// The index in the topic.
    pub index: i32,
    /// The reason why the partition cannot be used, or not fully.
    pub error: Option<ErrorCode>,
    /// The leader's broker id.
    pub leader: Option<i32>,
    /// The leader's epoch.
    pub leader_epoch: LeaderEpoch,
    /// The broker ids of all replicas, the preferred leader first.
    pub replicas: Vec<i32>,
    /// The in-sync replicas.
    pub isr: Vec<i32>,
    /// The offline replicas.
    pub offline: Vec<i32>,
}

/// The topics of all responses so far, each as described by the newest response.
#[derive(Debug, Default)]
pub(crate) struct LastSeen(BTreeMap<String, TopicMetadata>);

impl Metadata {
    /// The metadata in a response.
    pub fn from_response(response: MetadataResponse) -> Metadata {
        let brokers = response.brokers.into_iter().map(|broker| {
            let address =
                BrokerAddress { id: broker.node_id, host: broker.host, port: broker.port, rack: broker.rack };
            (broker.node_id, address)
        });
        // A topic requested by an id unknown to the broker has no name.
        let topics = response.topics.into_iter().filter(|topic| topic.name.is_some());
        let topics = topics.map(TopicMetadata::from_response);
        Metadata {
            cluster_id: response.cluster_id,
            controller_id: (response.controller_id >= 0).then_some(response.controller_id),
            brokers: brokers.collect(),
            topics: topics.map(|topic| (topic.name.to_string(), topic)).collect(),
        }
    }

    /// Keeps earlier partition metadata with a newer leader epoch. Brokers learn of leaders at different
    /// times, and a broker cut off from the controller has stale metadata: records sent to the old leader
    /// would be lost, and reads would miss later records.
    pub(crate) fn prefer_newer(&mut self, seen: &mut LastSeen) {
        for (name, topic) in self.topics.iter_mut().filter(|(_, topic)| topic.error.is_none()) {
            if let Some(before) = seen.0.get(name).filter(|before| before.id == topic.id) {
                for partition in &mut topic.partitions {
                    let newer = before.partition(partition.index);
                    if let Some(newer) = newer.filter(|newer| newer.leader_epoch > partition.leader_epoch) {
                        partition.clone_from(newer);
                    }
                }
            }
            seen.0.insert(name.clone(), topic.clone());
        }
    }

    /// Applies an answer about some of the topics.
    pub(crate) fn update(&mut self, answer: &Metadata) {
        self.cluster_id.clone_from(&answer.cluster_id);
        self.controller_id = answer.controller_id;
        self.brokers.clone_from(&answer.brokers);
        self.topics.extend(answer.topics.iter().map(|(name, topic)| (name.clone(), topic.clone())));
    }

    /// The leader of a partition, if topic, partition and leader are known.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<i32> {
        self.topics.get(topic)?.partition(partition)?.leader
    }
}

impl BrokerAddress {
    /// `host:port`, with brackets around an IPv6 address.
    pub fn address(&self) -> String {
        host_and_port(&self.host, self.port)
    }
}

impl TopicMetadata {
    fn from_response(topic: MetadataResponseTopic) -> TopicMetadata {
        let mut partitions: Vec<PartitionMetadata> =
            topic.partitions.into_iter().map(PartitionMetadata::from_response).collect();
        partitions.sort_by_key(|partition| partition.index);
        TopicMetadata {
            name: topic.name.unwrap_or_default().into(),
            id: topic.topic_id,
            internal: topic.is_internal,
            error: error(topic.error_code),
            partitions,
        }
    }

    /// The partition with this index.
    pub fn partition(&self, index: i32) -> Option<&PartitionMetadata> {
        let at = self.partitions.binary_search_by_key(&index, |partition| partition.index).ok()?;
        self.partitions.get(at)
    }
}

impl PartitionMetadata {
    fn from_response(partition: MetadataResponsePartition) -> PartitionMetadata {
        PartitionMetadata {
            index: partition.partition_index,
            error: error(partition.error_code),
            leader: (partition.leader_id >= 0).then_some(partition.leader_id),
            leader_epoch: LeaderEpoch(partition.leader_epoch),
            replicas: partition.replica_nodes,
            isr: partition.isr_nodes,
            offline: partition.offline_replicas,
        }
    }
}

fn error(code: i16) -> Option<ErrorCode> {
    (code != 0).then(|| ErrorCode::from_i16(code).unwrap_or(ErrorCode::UnknownServerError))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_is_behind_changes_no_leader() {
        let mut seen = LastSeen::default();
        let mut learned = |id, leader, epoch| {
            let partition = MetadataResponsePartition {
                leader_id: leader,
                leader_epoch: epoch,
                ..MetadataResponsePartition::default()
            };
            let topic = MetadataResponseTopic {
                name: Some("t".to_owned()),
                topic_id: Uuid(id),
                partitions: vec![partition],
                ..MetadataResponseTopic::default()
            };
            let response = MetadataResponse { topics: vec![topic], ..MetadataResponse::default() };
            let mut metadata = Metadata::from_response(response);
            metadata.prefer_newer(&mut seen);
            metadata.leader("t", 0)
        };
        assert_eq!(learned(1, 1, 4), Some(1));
        assert_eq!(learned(1, 2, 5), Some(2));
        assert_eq!(learned(1, 1, 4), Some(2), "it does not know yet");
        assert_eq!(learned(1, 1, 4), Some(2), "it does not know yet");
        assert_eq!(learned(1, -1, 5), None, "nobody leads at the moment");
        assert_eq!(learned(2, 3, 0), Some(3), "another topic of that name");
    }
}
