//! Throttles of reassignments, as set by kafka-reassign-partitions, and the progress of reassignments.

use std::collections::BTreeMap;

use thalweg_dial::ClientError;

use super::placement::PlannedMoves;
use super::{Admin, ConfigChange, ConfigOperation, ConfigResource, PartitionReassignment};
use crate::offsets::TopicPartition;

const LEADER_RATE: &str = "leader.replication.throttled.rate";
const FOLLOWER_RATE: &str = "follower.replication.throttled.rate";
const LEADER_REPLICAS: &str = "leader.replication.throttled.replicas";
const FOLLOWER_REPLICAS: &str = "follower.replication.throttled.replicas";

/// Size of replicas in bytes, by partition and broker.
pub type ReplicaBytes = BTreeMap<(TopicPartition, i32), i64>;

impl Admin {
    /// Limits the copying of these replicas to `rate` bytes per second from and to each broker.
    pub async fn throttle_moves(&self, moves: &PlannedMoves, rate: u64) -> Result<(), ClientError> {
        let set = |name: &str, value: String| ConfigChange {
            name: name.to_owned(),
            operation: ConfigOperation::Set(value),
        };
        let mut changes: BTreeMap<ConfigResource, Vec<ConfigChange>> = BTreeMap::new();
        let mut replicas: BTreeMap<&str, (Vec<String>, Vec<String>)> = BTreeMap::new();
        for (at, one) in moves.iter().filter(|(_, one)| !one.adding().is_empty()) {
            let (leaders, followers) = replicas.entry(&at.topic).or_default();
            leaders.extend(one.from.iter().map(|id| format!("{}:{id}", at.partition)));
            followers.extend(one.adding().iter().map(|id| format!("{}:{id}", at.partition)));
            for id in one.from.iter().chain(&one.adding()) {
                let of_broker =
                    vec![set(LEADER_RATE, rate.to_string()), set(FOLLOWER_RATE, rate.to_string())];
                changes.insert(ConfigResource::Broker(*id), of_broker);
            }
        }
        for (topic, (leaders, followers)) in replicas {
            let of_topic =
                vec![set(LEADER_REPLICAS, leaders.join(",")), set(FOLLOWER_REPLICAS, followers.join(","))];
            changes.insert(ConfigResource::Topic(topic.to_owned()), of_topic);
        }
        self.alter_all(&changes).await
    }

    /// Removes the limits from all brokers, and from the topics of these partitions.
    pub async fn end_throttles<'a>(
        &self,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
    ) -> Result<(), ClientError> {
        let delete = |name: &str| ConfigChange { name: name.to_owned(), operation: ConfigOperation::Delete };
        let mut changes: BTreeMap<ConfigResource, Vec<ConfigChange>> = BTreeMap::new();
        for broker in self.describe_cluster().await?.brokers {
            let of_broker = vec![delete(LEADER_RATE), delete(FOLLOWER_RATE)];
            changes.insert(ConfigResource::Broker(broker.id), of_broker);
        }
        for at in partitions {
            let of_topic = || vec![delete(LEADER_REPLICAS), delete(FOLLOWER_REPLICAS)];
            changes.entry(ConfigResource::Topic(at.topic.to_string())).or_insert_with(of_topic);
        }
        self.alter_all(&changes).await
    }

    async fn alter_all(
        &self,
        changes: &BTreeMap<ConfigResource, Vec<ConfigChange>>,
    ) -> Result<(), ClientError> {
        self.alter_configs(changes, false).await?.into_values().collect()
    }

    /// The size of the replicas of partitions. Replicas of brokers that do not answer are missing.
    pub async fn replica_bytes(&self, partitions: &[TopicPartition]) -> Result<ReplicaBytes, ClientError> {
        let mut bytes = ReplicaBytes::new();
        if partitions.is_empty() {
            return Ok(bytes);
        }
        for (broker, dirs) in self.describe_log_dirs(None, Some(partitions)).await? {
            for dir in dirs.into_iter().flatten().filter_map(|(_, dir)| dir.ok()) {
                let present = dir.replicas.into_iter().filter(|(_, replica)| !replica.is_future);
                bytes.extend(present.map(|(at, replica)| ((at, broker), replica.bytes)));
            }
        }
        Ok(bytes)
    }
}

impl PartitionReassignment {
    /// Copied percentage of a partition: the minimum over its new replicas. `None` if a broker does not
    /// report a size.
    pub fn copied_percent(&self, at: &TopicPartition, bytes: &ReplicaBytes) -> Option<i64> {
        let of = |id: &i32| bytes.get(&(at.clone(), *id)).copied();
        let whole = self.replicas.iter().filter(|id| !self.adding.contains(id)).filter_map(of).max()?;
        let least = self.adding.iter().map(|id| of(id).unwrap_or(0)).min()?;
        Some(if whole == 0 { 100 } else { (least * 100 / whole).min(100) })
    }
}
