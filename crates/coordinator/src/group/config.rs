//! The settings that groups obey (Kafka's `GroupCoordinatorConfig`), in the units in which groups count.

use std::time::Duration;
use thalweg_config::{BrokerConfig, GroupSettings};
use thalweg_record::Compression;

/// How groups behave. Each field names the property it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// `group.min.session.timeout.ms`.
    pub session_timeout_ms_min: i32,
    /// `group.max.session.timeout.ms`.
    pub session_timeout_ms_max: i32,
    /// `group.initial.rebalance.delay.ms`: how long an empty group waits for more members before it rebalances.
    pub initial_rebalance_delay_ms: i32,
    /// `group.max.size`: members of one group.
    pub group_size_max: usize,
    /// How long a new member may wait for its first rebalance without heartbeats. Not a property in Kafka either.
    pub new_member_join_timeout_ms: i32,
    /// `offset.metadata.max.bytes`, which Kafka compares with UTF-16 units.
    pub offset_metadata_len_max: usize,
    /// `offsets.retention.minutes`, in milliseconds.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`.
    pub offsets_retention_check_interval_ms: i64,
    /// `offsets.commit.timeout.ms`: how long a write waits for its acknowledgement.
    pub commit_timeout_ms: i64,
    /// `offsets.topic.num.partitions`: partitions of `__consumer_offsets` until the topic exists.
    pub offsets_topic_partitions: i32,
    /// `offsets.topic.compression.codec`.
    pub offsets_topic_compression: Compression,
}

/// Kafka's coordinator has it as a constant.
const NEW_MEMBER_JOIN_TIMEOUT_MS: i32 = 5 * 60 * 1_000;

impl From<&GroupSettings> for GroupConfig {
    fn from(groups: &GroupSettings) -> GroupConfig {
        let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let delay = groups.initial_rebalance_delay.as_millis();
        let codec = u8::try_from(groups.offsets_topic_codec).ok().and_then(Compression::from_id);
        GroupConfig {
            session_timeout_ms_min: groups.min_session_timeout_ms,
            session_timeout_ms_max: groups.max_session_timeout_ms,
            initial_rebalance_delay_ms: i32::try_from(delay).unwrap_or(i32::MAX),
            group_size_max: groups.max_size,
            new_member_join_timeout_ms: NEW_MEMBER_JOIN_TIMEOUT_MS,
            offset_metadata_len_max: groups.offset_metadata_max_bytes,
            offsets_retention_ms: ms(groups.offsets_retention),
            offsets_retention_check_interval_ms: ms(groups.offsets_retention_check_interval),
            commit_timeout_ms: ms(groups.offsets_commit_timeout),
            offsets_topic_partitions: groups.offsets_topic_partitions,
            offsets_topic_compression: codec.unwrap_or(Compression::None),
        }
    }
}

impl Default for GroupConfig {
    fn default() -> GroupConfig {
        GroupConfig::from(&BrokerConfig::default().groups)
    }
}
