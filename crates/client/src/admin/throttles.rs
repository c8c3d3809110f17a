//! Throttles of reassignments, as set by kafka-reassign-partitions, and the progress of reassignments.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_dial::ClientError;

use super::placement::PlannedMoves;
use super::{
    Admin, ConfigChange, ConfigEntry, ConfigOperation, ConfigResource, DescribeConfigs, LogDir, Outcomes,
    PartitionReassignment,
};
use crate::offsets::TopicPartition;
use crate::parallel::in_parallel;

const LEADER_RATE: &str = "leader.replication.throttled.rate";
const FOLLOWER_RATE: &str = "follower.replication.throttled.rate";
const LEADER_REPLICAS: &str = "leader.replication.throttled.replicas";
const FOLLOWER_REPLICAS: &str = "follower.replication.throttled.replicas";

/// The settings of a broker that limit its replication, in bytes per second.
pub fn throttle_rates() -> Vec<String> {
    vec![LEADER_RATE.to_owned(), FOLLOWER_RATE.to_owned()]
}

/// Size of replicas in bytes, by partition and broker.
pub type ReplicaBytes = BTreeMap<(TopicPartition, i32), i64>;

impl Admin {
    /// Limits the copying of these replicas to `rate` bytes per second from and to each running broker. A
    /// stopped broker copies nothing, and takes no configuration.
    pub async fn throttle_moves(&self, moves: &PlannedMoves, rate: u64) -> Result<(), ClientError> {
        let running: BTreeSet<i32> =
            self.describe_cluster().await?.running().map(|broker| broker.id).collect();
        self.alter_all(&throttles(moves, rate, &running)).await
    }

    /// Removes the limits from all running brokers, and from the topics of these partitions. Returns the
    /// brokers that did not answer, which keep their limit if they have one. Such a limit has no effect
    /// without throttled replicas.
    pub async fn end_throttles<'a>(
        &self,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
    ) -> Result<Vec<i32>, ClientError> {
        let mut of_topics: BTreeMap<ConfigResource, Vec<ConfigChange>> = BTreeMap::new();
        for at in partitions {
            let of_topic = || vec![delete(LEADER_REPLICAS), delete(FOLLOWER_REPLICAS)];
            of_topics.entry(ConfigResource::Topic(at.topic.to_string())).or_insert_with(of_topic);
        }
        self.alter_all(&of_topics).await?;
        let cluster = self.describe_cluster().await?;
        let running: Vec<i32> = cluster.running().map(|broker| broker.id).collect();
        let ending = running.into_iter().map(|id| {
            let admin = self.clone();
            async move { (id, admin.end_throttle_of(id).await) }
        });
        let mut kept: Vec<i32> = cluster.fenced.iter().copied().collect();
        for (id, outcome) in in_parallel(ending.collect()).await {
            match outcome {
                Err(error) if is_absent(&error) => kept.push(id),
                other => other?,
            }
        }
        kept.sort_unstable();
        Ok(kept)
    }

    async fn end_throttle_of(&self, broker: i32) -> Result<(), ClientError> {
        let of_broker = vec![delete(LEADER_RATE), delete(FOLLOWER_RATE)];
        self.alter_all(&BTreeMap::from([(ConfigResource::Broker(broker), of_broker)])).await
    }

    /// The limits of the brokers that answer, in bytes per second.
    pub async fn list_throttles(&self) -> Result<BTreeMap<i32, u64>, ClientError> {
        let described = self.describe_throttles().await?.into_iter();
        Ok(described.filter_map(|(id, rate)| Some((id, rate.ok()??))).collect())
    }

    /// The limit of each running broker in bytes per second, if the broker has one.
    pub async fn describe_throttles(&self) -> Result<Outcomes<i32, Option<u64>>, ClientError> {
        let cluster = self.describe_cluster().await?;
        let brokers: Vec<ConfigResource> =
            cluster.running().map(|broker| ConfigResource::Broker(broker.id)).collect();
        let names = Some(throttle_rates());
        let wanted = DescribeConfigs { names, ..DescribeConfigs::default() };
        let described = self.describe_configs_with(&brokers, &wanted).await?;
        let limits = described.into_iter().filter_map(|(resource, entries)| {
            let ConfigResource::Broker(id) = resource else { return None };
            let rate = entries.map(|entries| {
                let set = entries.into_values().filter(|entry| !entry.is_default);
                set.filter_map(|entry| entry.value?.parse::<u64>().ok()).min()
            });
            Some((id, rate))
        });
        Ok(limits.collect())
    }

    /// True if replicas of a topic are throttled.
    pub async fn is_topic_throttled(&self, topic: &str) -> Result<bool, ClientError> {
        let topic = ConfigResource::Topic(topic.to_owned());
        let names = Some(vec![LEADER_REPLICAS.to_owned(), FOLLOWER_REPLICAS.to_owned()]);
        let wanted = DescribeConfigs { names, ..DescribeConfigs::default() };
        let described = self.describe_configs_with(std::slice::from_ref(&topic), &wanted).await?;
        let entries: Vec<_> = described.into_values().collect::<Result<_, _>>()?;
        Ok(entries.iter().flat_map(BTreeMap::values).any(is_set))
    }

    async fn alter_all(
        &self,
        changes: &BTreeMap<ConfigResource, Vec<ConfigChange>>,
    ) -> Result<(), ClientError> {
        self.alter_configs(changes, false).await?.into_values().collect()
    }

    /// The size of the replicas of these partitions, or of all. Replicas of brokers that do not answer are
    /// missing.
    pub async fn replica_bytes(
        &self,
        partitions: Option<&[TopicPartition]>,
    ) -> Result<ReplicaBytes, ClientError> {
        if partitions.is_some_and(<[TopicPartition]>::is_empty) {
            return Ok(ReplicaBytes::new());
        }
        Ok(replica_bytes(&self.describe_log_dirs(None, partitions).await?))
    }
}

/// The sizes of the replicas in these directories of brokers.
pub fn replica_bytes(directories: &Outcomes<i32, Outcomes<String, LogDir>>) -> ReplicaBytes {
    let mut bytes = ReplicaBytes::new();
    for (broker, dirs) in directories {
        for dir in dirs.iter().flatten().filter_map(|(_, dir)| dir.as_ref().ok()) {
            let present = dir.replicas.iter().filter(|(_, replica)| !replica.is_future);
            bytes.extend(present.map(|(at, replica)| ((at.clone(), *broker), replica.bytes)));
        }
    }
    bytes
}

/// True if a broker does not run, as far as the connection attempt shows.
fn is_absent(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::BrokerUnknown(_) | ClientError::ConnectFailed(_) | ClientError::ConnectTimedOut(_)
    )
}

fn is_set(entry: &ConfigEntry) -> bool {
    !entry.is_default && entry.value.as_ref().is_some_and(|value| !value.is_empty())
}

fn delete(name: &str) -> ConfigChange {
    ConfigChange { name: name.to_owned(), operation: ConfigOperation::Delete }
}

/// The settings that limit the copying of these replicas: rates of running brokers, and replicas of topics.
fn throttles(
    moves: &PlannedMoves,
    rate: u64,
    running: &BTreeSet<i32>,
) -> BTreeMap<ConfigResource, Vec<ConfigChange>> {
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
        for id in one.from.iter().chain(&one.adding()).filter(|id| running.contains(id)) {
            let of_broker = vec![set(LEADER_RATE, rate.to_string()), set(FOLLOWER_RATE, rate.to_string())];
            changes.insert(ConfigResource::Broker(*id), of_broker);
        }
    }
    for (topic, (leaders, followers)) in replicas {
        let of_topic =
            vec![set(LEADER_REPLICAS, leaders.join(",")), set(FOLLOWER_REPLICAS, followers.join(","))];
        changes.insert(ConfigResource::Topic(topic.to_owned()), of_topic);
    }
    changes
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::{ConfigSource, PlannedMove};

    #[test]
    fn a_stopped_broker_gets_no_limit() {
        let one = PlannedMove { from: vec![3, 1], to: vec![1, 2] };
        let moves = PlannedMoves::from([(TopicPartition::new("t", 0), one)]);
        let changes = throttles(&moves, 5, &BTreeSet::from([1, 2]));
        let resources: Vec<&ConfigResource> = changes.keys().collect();
        let expected =
            [ConfigResource::Topic("t".to_owned()), ConfigResource::Broker(1), ConfigResource::Broker(2)];
        assert_eq!(resources, expected.iter().collect::<Vec<_>>());
    }

    #[test]
    fn default_and_empty_values_are_no_throttle() {
        let entry = |value: Option<&str>, is_default| ConfigEntry {
            value: value.map(str::to_owned),
            source: ConfigSource::Topic,
            is_default,
            read_only: false,
            is_sensitive: false,
            value_type: None,
            documentation: None,
            synonyms: Vec::new(),
        };
        assert!(is_set(&entry(Some("0:1,0:2"), false)) && is_set(&entry(Some("*"), false)));
        assert!(!is_set(&entry(Some(""), true)) && !is_set(&entry(Some(""), false)));
        assert!(!is_set(&entry(Some("*"), true)) && !is_set(&entry(None, false)));
    }
}
