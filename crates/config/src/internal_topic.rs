//! Settings for the creation of internal topics.

use std::collections::BTreeMap;

use super::table::{
    EffectiveTopicConfig, GroupSettings, ShareCoordinatorSettings, TopicSettings, TransactionSettings,
};

/// An internal topic to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InternalTopic {
    pub partitions: i32,
    /// Replicas of each partition.
    pub replication_factor: i16,
    /// Topic overrides by key.
    pub configs: BTreeMap<String, String>,
}

impl GroupSettings {
    /// `__consumer_offsets`.
    pub fn offsets_topic(&self) -> InternalTopic {
        InternalTopic {
            partitions: self.offsets_topic_partitions,
            replication_factor: self.offsets_topic_replication_factor,
            configs: configs(&[
                (EffectiveTopicConfig::cleanup_policy.name(), "compact"),
                (EffectiveTopicConfig::segment_bytes.name(), &self.offsets_topic_segment_bytes.to_string()),
                (EffectiveTopicConfig::compression_type.name(), "producer"),
            ]),
        }
    }
}

impl TransactionSettings {
    /// `__transaction_state`, as Kafka creates it.
    pub fn state_topic(&self) -> InternalTopic {
        InternalTopic {
            partitions: self.state_topic_partitions,
            replication_factor: self.state_topic_replication_factor,
            configs: configs(&[
                (EffectiveTopicConfig::cleanup_policy.name(), "compact"),
                (EffectiveTopicConfig::segment_bytes.name(), &self.state_topic_segment_bytes.to_string()),
                (EffectiveTopicConfig::compression_type.name(), "uncompressed"),
                (EffectiveTopicConfig::min_insync_replicas.name(), &self.state_topic_min_isr.to_string()),
                (EffectiveTopicConfig::unclean_leader_election_enable.name(), "false"),
            ]),
        }
    }
}

impl ShareCoordinatorSettings {
    /// `__share_group_state`, as Kafka creates it. Its records are deleted when the coordinator no longer
    /// needs them, not by age.
    pub fn state_topic(&self) -> InternalTopic {
        InternalTopic {
            partitions: self.state_topic_partitions,
            replication_factor: self.state_topic_replication_factor,
            configs: configs(&[
                (EffectiveTopicConfig::cleanup_policy.name(), "delete"),
                (EffectiveTopicConfig::compression_type.name(), "producer"),
                (EffectiveTopicConfig::segment_bytes.name(), &self.state_topic_segment_bytes.to_string()),
                (EffectiveTopicConfig::min_insync_replicas.name(), &self.state_topic_min_isr.to_string()),
                (EffectiveTopicConfig::retention_ms.name(), "-1"),
            ]),
        }
    }
}

impl TopicSettings {
    /// `__stream_definitions`, created by the hosts of streams. A client that names the topic first gets the
    /// same settings.
    pub fn stream_definitions(&self) -> InternalTopic {
        InternalTopic {
            partitions: 1,
            replication_factor: self.default_replication_factor,
            configs: configs(&[(EffectiveTopicConfig::cleanup_policy.name(), "compact")]),
        }
    }
}

fn configs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
