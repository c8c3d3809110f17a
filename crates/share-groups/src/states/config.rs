//! The settings of the share coordinator (Kafka's `ShareCoordinatorConfig`), in the units that it uses.

use std::time::Duration;
use thalweg_config::{BrokerConfig, ShareCoordinatorSettings};
use thalweg_record::Compression;

/// Settings of the share coordinator. Each field names the property it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareCoordinatorConfig {
    /// `share.coordinator.state.topic.num.partitions`: partitions of `__share_group_state` until the topic
    /// exists.
    pub state_topic_partitions: i32,
    /// `share.coordinator.state.topic.compression.codec`.
    pub state_topic_compression: Compression,
    /// `share.coordinator.write.timeout.ms`: maximum wait of an answer for the replicas.
    pub write_timeout_ms: i64,
    /// `share.coordinator.snapshot.update.records.per.snapshot`.
    pub updates_per_snapshot: usize,
    /// `share.coordinator.cold.partition.snapshot.interval.ms`.
    pub cold_snapshot_interval_ms: i64,
    /// `share.coordinator.state.topic.prune.interval.ms`.
    pub prune_interval: Duration,
}

impl From<&ShareCoordinatorSettings> for ShareCoordinatorConfig {
    fn from(settings: &ShareCoordinatorSettings) -> ShareCoordinatorConfig {
        let codec = u8::try_from(settings.state_topic_codec).ok().and_then(Compression::from_id);
        let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        ShareCoordinatorConfig {
            state_topic_partitions: settings.state_topic_partitions,
            state_topic_compression: codec.unwrap_or(Compression::None),
            write_timeout_ms: ms(settings.write_timeout),
            updates_per_snapshot: settings.updates_per_snapshot,
            cold_snapshot_interval_ms: ms(settings.cold_snapshot_interval),
            prune_interval: settings.prune_interval,
        }
    }
}

impl Default for ShareCoordinatorConfig {
    fn default() -> ShareCoordinatorConfig {
        ShareCoordinatorConfig::from(&BrokerConfig::default().share_coordinator)
    }
}
