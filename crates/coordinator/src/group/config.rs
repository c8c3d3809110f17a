//! The settings that groups obey, with Kafka's defaults (`GroupCoordinatorConfig`).

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

impl Default for GroupConfig {
    fn default() -> GroupConfig {
        GroupConfig {
            session_timeout_ms_min: 6_000,
            session_timeout_ms_max: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            group_size_max: i32::MAX.unsigned_abs() as usize,
            new_member_join_timeout_ms: 5 * 60 * 1_000,
            offset_metadata_len_max: 4_096,
            offsets_retention_ms: 7 * 24 * 60 * 60 * 1_000,
            offsets_retention_check_interval_ms: 600_000,
            commit_timeout_ms: 5_000,
            offsets_topic_partitions: 50,
            offsets_topic_compression: Compression::None,
        }
    }
}
