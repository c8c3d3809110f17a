//! Keys of groups (KIP-848, KIP-932, KIP-1071) with the broker keys on which they fall back, whose bounds
//! they have, and keys of client metrics subscriptions (KIP-714).
//!
//! Facts are compared with Kafka in `table::tests`.

use super::declare::settings;
use super::{ConsumerGroupKeys, ShareGroupKeys, StreamsGroupKeys};
use crate::check::{ANY, LIST, OFFSET_RESET, at_least, one_of};
use crate::group_value::{ShareOffsetReset, is_read_committed};
use crate::key::Support::Served;

settings! {
    /// Every setting of a group, resolved: the group's override, otherwise the broker's value.
    EffectiveGroupConfig, GROUP_KEYS "Group configuration";

    "consumer.session.timeout.ms": Int[Ms] = "45000", at_least(1), Medium, ClusterWide, Served => consumer_session_timeout_ms: i32,
        "The session timeout of a consumer group's members.",
        falls_back = &[(ConsumerGroupKeys::session_timeout_ms.name(), 1)];
    "consumer.heartbeat.interval.ms": Int[Ms] = "5000", at_least(1), Medium, ClusterWide, Served => consumer_heartbeat_interval_ms: i32,
        "The heartbeat interval of a consumer group's members.",
        falls_back = &[(ConsumerGroupKeys::heartbeat_interval_ms.name(), 1)];
    "consumer.assignment.interval.ms": Int[Ms] = "1000", at_least(0), Medium, ClusterWide, Served => consumer_assignment_interval_ms: i32,
        "The minimum interval between new assignments of a consumer group.",
        falls_back = &[(ConsumerGroupKeys::assignment_interval_ms.name(), 1)];
    "share.session.timeout.ms": Int[Ms] = "45000", at_least(1), Medium, ClusterWide, Served => share_session_timeout_ms: i32,
        "The session timeout of a share group's members.",
        falls_back = &[(ShareGroupKeys::session_timeout_ms.name(), 1)];
    "share.heartbeat.interval.ms": Int[Ms] = "5000", at_least(1), Medium, ClusterWide, Served => share_heartbeat_interval_ms: i32,
        "The heartbeat interval of a share group's members.",
        falls_back = &[(ShareGroupKeys::heartbeat_interval_ms.name(), 1)];
    "share.record.lock.duration.ms": Int[Ms] = "30000", at_least(1000), Medium, ClusterWide, Served => share_record_lock_duration_ms: i32,
        "How long a member of a share group keeps the lock on an acquired record.",
        falls_back = &[(ShareGroupKeys::record_lock_duration_ms.name(), 1)];
    "share.delivery.count.limit": Int = "5", at_least(2), Medium, ClusterWide, Served => share_delivery_count_limit: i16,
        "The maximum number of deliveries of a record to a share group.",
        falls_back = &[(ShareGroupKeys::delivery_count_limit.name(), 1)];
    "share.partition.max.record.locks": Int = "2000", at_least(100), Medium, ClusterWide, Served => share_partition_max_record_locks: usize,
        "The maximum number of locked records per partition of a share group.",
        falls_back = &[(ShareGroupKeys::partition_max_record_locks.name(), 1)];
    "share.auto.offset.reset": String = "latest", OFFSET_RESET, Medium, ClusterWide, Served => share_auto_offset_reset: ShareOffsetReset = ShareOffsetReset::of,
        "The start position of a new share group: `earliest`, `latest`, or a duration back from now.";
    "share.isolation.level": String = "read_uncommitted", one_of(&["read_committed", "read_uncommitted"]), Medium, ClusterWide, Served => share_is_read_committed: bool = is_read_committed,
        "Whether a share group gets uncommitted records of transactions.";
    "share.renew.acknowledge.enable": Boolean = "true", ANY, Medium, ClusterWide, Served => share_renew_acknowledge_enable: bool,
        "Whether members of a share group may renew their lock on a record.";
    "share.assignment.interval.ms": Int[Ms] = "1000", at_least(0), Medium, ClusterWide, Served => share_assignment_interval_ms: i32,
        "The minimum interval between new assignments of a share group.",
        falls_back = &[(ShareGroupKeys::assignment_interval_ms.name(), 1)];
    "streams.session.timeout.ms": Int[Ms] = "45000", at_least(1), Medium, ClusterWide, Served => streams_session_timeout_ms: i32,
        "The session timeout of a streams group's members.",
        falls_back = &[(StreamsGroupKeys::session_timeout_ms.name(), 1)];
    "streams.heartbeat.interval.ms": Int[Ms] = "5000", at_least(1), Medium, ClusterWide, Served => streams_heartbeat_interval_ms: i32,
        "The heartbeat interval of a streams group's members.",
        falls_back = &[(StreamsGroupKeys::heartbeat_interval_ms.name(), 1)];
    "streams.num.standby.replicas": Int = "0", at_least(0), Medium, ClusterWide, Served => streams_num_standby_replicas: usize,
        "How many standby replicas each task of a streams group has.",
        falls_back = &[(StreamsGroupKeys::num_standby_replicas.name(), 1)];
    "streams.initial.rebalance.delay.ms": Int[Ms] = "3000", at_least(0), Medium, ClusterWide, Served => streams_initial_rebalance_delay_ms: i32,
        "How long a new streams group waits for more members.",
        falls_back = &[(StreamsGroupKeys::initial_rebalance_delay_ms.name(), 1)];
    "streams.assignment.interval.ms": Int[Ms] = "1000", at_least(0), Medium, ClusterWide, Served => streams_assignment_interval_ms: i32,
        "The minimum interval between new assignments of a streams group.",
        falls_back = &[(StreamsGroupKeys::assignment_interval_ms.name(), 1)];
}

settings! {
    /// The settings of a client metrics subscription.
    ClientMetricsSettings, CLIENT_METRICS_KEYS "Subscriptions to clients' metrics";

    "interval.ms": Int[Ms] = "300000", ANY, Medium, ClusterWide, Served => interval_ms: i32,
        "How often clients send the metrics.";
    "match": List = "", LIST, Medium, ClusterWide, Served => matches: Vec<String>,
        "The clients that send them: pairs of a property and a pattern.";
    "metrics": List = "", LIST, Medium, ClusterWide, Served => metrics: Vec<String>,
        "The metrics, by prefixes of their names.";
}
