//! The settings of groups (Kafka's `GroupCoordinatorConfig`), in the units that groups use.

use super::assignor::ServerAssignor;
use std::time::Duration;
use thalweg_config::{BrokerConfig, ConsumerGroupKeys, ShareGroupKeys, StreamsGroupKeys};
use thalweg_record::Compression;

/// Settings of all groups. Each field names the property it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// `group.min.session.timeout.ms`.
    pub session_timeout_ms_min: i32,
    /// `group.max.session.timeout.ms`.
    pub session_timeout_ms_max: i32,
    /// `group.initial.rebalance.delay.ms`: time an empty group waits for more members before it rebalances.
    pub initial_rebalance_delay_ms: i32,
    /// `group.max.size`: members of one group.
    pub group_size_max: usize,
    /// Maximum wait of a new member for its first rebalance without heartbeats. A constant in Kafka too.
    pub new_member_join_timeout_ms: i32,
    /// `offset.metadata.max.bytes`, which Kafka compares with UTF-16 units.
    pub offset_metadata_len_max: usize,
    /// `offsets.retention.minutes`, in milliseconds.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`.
    pub offsets_retention_check_interval_ms: i64,
    /// `offsets.commit.timeout.ms`: maximum wait of a write for its acknowledgement.
    pub commit_timeout_ms: i64,
    /// `offsets.topic.num.partitions`: partitions of `__consumer_offsets` until the topic exists.
    pub offsets_topic_partitions: i32,
    /// `offsets.topic.compression.codec`.
    pub offsets_topic_compression: Compression,
    /// Settings of groups of the consumer protocol.
    pub consumer: ConsumerGroupConfig,
    /// Settings of share groups.
    pub share: ShareGroupConfig,
    /// Settings of streams groups.
    pub streams: StreamsGroupConfig,
}

/// Settings of streams groups. Each field names the property it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsGroupConfig {
    /// Settings that a group may override.
    pub times: StreamsGroupTimes,
    /// `group.streams.max.size`: members of one group.
    pub group_size_max: usize,
}

/// The timeouts, intervals and standbys of a streams group, which change while the broker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamsGroupTimes {
    /// `group.streams.session.timeout.ms`, or the group's `streams.session.timeout.ms`.
    pub session_timeout_ms: i32,
    /// `group.streams.heartbeat.interval.ms`, or the group's `streams.heartbeat.interval.ms`.
    pub heartbeat_interval_ms: i32,
    /// `group.streams.assignment.interval.ms`, or the group's `streams.assignment.interval.ms`: minimum time
    /// between two target assignments.
    pub assignment_interval_ms: i32,
    /// `group.streams.initial.rebalance.delay.ms`, or the group's `streams.initial.rebalance.delay.ms`: time
    /// a new group waits for more members.
    pub initial_rebalance_delay_ms: i32,
    /// `group.streams.num.standby.replicas`, or the group's `streams.num.standby.replicas`: standby tasks for
    /// each task with state.
    pub standby_replicas: usize,
}

/// Settings of share groups. Each field names the property it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareGroupConfig {
    /// Settings that a group may override.
    pub times: ShareGroupTimes,
    /// `group.share.max.size`: members of one group.
    pub group_size_max: usize,
    /// `group.share.initialize.retry.interval.ms`.
    pub initialize_retry_ms: i64,
}

/// The timeouts and intervals of a share group, which change while the broker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareGroupTimes {
    /// `group.share.session.timeout.ms`, or the group's `share.session.timeout.ms`.
    pub session_timeout_ms: i32,
    /// `group.share.heartbeat.interval.ms`, or the group's `share.heartbeat.interval.ms`.
    pub heartbeat_interval_ms: i32,
    /// `group.share.assignment.interval.ms`, or the group's `share.assignment.interval.ms`: minimum time
    /// between two target assignments.
    pub assignment_interval_ms: i32,
}

/// Settings of consumer groups. Each field names the property it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerGroupConfig {
    /// Settings that a group may override.
    pub times: ConsumerGroupTimes,
    /// `group.consumer.max.size`: members of one group.
    pub group_size_max: usize,
    /// `group.consumer.assignors`, the default first.
    pub assignors: Vec<ServerAssignor>,
    /// `group.consumer.migration.policy`.
    pub migration: Migration,
    /// `group.consumer.regex.refresh.interval.ms`.
    pub regex_refresh_interval_ms: i64,
}

/// The timeouts and intervals of a consumer group, which change while the broker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerGroupTimes {
    /// `group.consumer.session.timeout.ms`, or the group's `consumer.session.timeout.ms`.
    pub session_timeout_ms: i32,
    /// `group.consumer.heartbeat.interval.ms`, or the group's `consumer.heartbeat.interval.ms`.
    pub heartbeat_interval_ms: i32,
    /// `group.consumer.assignment.interval.ms`, or the group's `consumer.assignment.interval.ms`: minimum
    /// time between two target assignments.
    pub assignment_interval_ms: i32,
}

/// The directions in which a group with members may change its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// From classic to consumer.
    pub upgrades: bool,
    /// From consumer to classic.
    pub downgrades: bool,
}

impl Migration {
    /// True if groups keep their protocol as long as they have members.
    pub fn is_off(self) -> bool {
        !self.upgrades && !self.downgrades
    }

    /// Parses a value of the property. Case does not matter.
    fn of_policy(policy: &str) -> Migration {
        let is = |name: &str| policy.eq_ignore_ascii_case(name);
        let both = is("bidirectional");
        Migration { upgrades: both || is("upgrade"), downgrades: both || is("downgrade") }
    }
}

/// A constant of Kafka's coordinator.
const NEW_MEMBER_JOIN_TIMEOUT_MS: i32 = 5 * 60 * 1_000;

impl From<&BrokerConfig> for GroupConfig {
    fn from(config: &BrokerConfig) -> GroupConfig {
        let groups = &config.groups;
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
            consumer: ConsumerGroupConfig::from(&config.consumer_groups),
            share: ShareGroupConfig::from(&config.share_groups),
            streams: StreamsGroupConfig::from(&config.streams_groups),
        }
    }
}

impl From<&ConsumerGroupKeys> for ConsumerGroupConfig {
    fn from(groups: &ConsumerGroupKeys) -> ConsumerGroupConfig {
        let known = groups.assignors.iter().filter_map(|name| ServerAssignor::by_name(name)).collect();
        ConsumerGroupConfig {
            times: ConsumerGroupTimes {
                session_timeout_ms: groups.session_timeout_ms,
                heartbeat_interval_ms: groups.heartbeat_interval_ms,
                assignment_interval_ms: groups.assignment_interval_ms,
            },
            group_size_max: groups.max_size,
            assignors: known,
            migration: Migration::of_policy(&groups.migration_policy),
            regex_refresh_interval_ms: i64::from(groups.regex_refresh_interval_ms),
        }
    }
}

impl From<&ShareGroupKeys> for ShareGroupConfig {
    fn from(groups: &ShareGroupKeys) -> ShareGroupConfig {
        ShareGroupConfig {
            times: ShareGroupTimes {
                session_timeout_ms: groups.session_timeout_ms,
                heartbeat_interval_ms: groups.heartbeat_interval_ms,
                assignment_interval_ms: groups.assignment_interval_ms,
            },
            group_size_max: groups.max_size,
            initialize_retry_ms: i64::from(groups.initialize_retry_interval_ms),
        }
    }
}

impl From<&StreamsGroupKeys> for StreamsGroupConfig {
    fn from(groups: &StreamsGroupKeys) -> StreamsGroupConfig {
        StreamsGroupConfig {
            times: StreamsGroupTimes {
                session_timeout_ms: groups.session_timeout_ms,
                heartbeat_interval_ms: groups.heartbeat_interval_ms,
                assignment_interval_ms: groups.assignment_interval_ms,
                initial_rebalance_delay_ms: groups.initial_rebalance_delay_ms,
                standby_replicas: groups.num_standby_replicas,
            },
            group_size_max: groups.max_size,
        }
    }
}

impl Default for GroupConfig {
    fn default() -> GroupConfig {
        GroupConfig::from(&BrokerConfig::default())
    }
}
