//! Keys of groups (KIP-848, KIP-932, KIP-1071) with the broker keys that they fall back to, and of subscriptions to
//! clients' metrics (KIP-714).
//!
//! Facts are compared with Kafka in `table::tests`.

use super::super::check::{ANY, LIST, OFFSET_RESET, at_least, one_of};
use super::super::key::Support::Accepted;
use super::family;
use super::reason::{CONSUMER_GROUPS, SHARE_GROUPS_LATER, STREAMS_GROUPS, TELEMETRY};

family! { GROUP_KEYS "Group configuration";
    "consumer.session.timeout.ms": Int = "45000", at_least(1), Medium, ClusterWide, Accepted(CONSUMER_GROUPS),
        "How long a member of a consumer group may stay silent.",
        falls_back = &[("group.consumer.session.timeout.ms", 1)];
    "consumer.heartbeat.interval.ms": Int = "5000", at_least(1), Medium, ClusterWide, Accepted(CONSUMER_GROUPS),
        "How often members of a consumer group report.",
        falls_back = &[("group.consumer.heartbeat.interval.ms", 1)];
    "consumer.assignment.interval.ms": Int = "1000", at_least(0), Medium, ClusterWide, Accepted(CONSUMER_GROUPS),
        "How far apart two new assignments of a consumer group lie.",
        falls_back = &[("group.consumer.assignment.interval.ms", 1)];
    "share.session.timeout.ms": Int = "45000", at_least(1), Medium, ClusterWide, Accepted(SHARE_GROUPS_LATER),
        "How long a member of a share group may stay silent.",
        falls_back = &[("group.share.session.timeout.ms", 1)];
    "share.heartbeat.interval.ms": Int = "5000", at_least(1), Medium, ClusterWide, Accepted(SHARE_GROUPS_LATER),
        "How often members of a share group report.",
        falls_back = &[("group.share.heartbeat.interval.ms", 1)];
    "share.record.lock.duration.ms": Int = "30000", at_least(1000), Medium, ClusterWide, Accepted(SHARE_GROUPS_LATER),
        "How long a member of a share group holds a record that it has acquired.",
        falls_back = &[("group.share.record.lock.duration.ms", 1)];
    "share.delivery.count.limit": Int = "5", at_least(2), Medium, ClusterWide, Accepted(SHARE_GROUPS_LATER),
        "How often a share group is given a record before it is set aside.",
        falls_back = &[("group.share.delivery.count.limit", 1)];
    "share.partition.max.record.locks": Int = "2000", at_least(100), Medium, ClusterWide, Accepted(SHARE_GROUPS_LATER),
        "How many records of a partition a share group may hold at once.",
        falls_back = &[("group.share.partition.max.record.locks", 1)];
    "share.auto.offset.reset": String = "latest", OFFSET_RESET, Medium, ClusterWide, Accepted(SHARE_GROUPS_LATER),
        "Where a new share group begins: `earliest`, `latest`, or so far back from now.";
    "share.isolation.level": String = "read_uncommitted", one_of(&["read_committed", "read_uncommitted"]), Medium, ClusterWide, Accepted(SHARE_GROUPS_LATER),
        "Whether a share group gets records of transactions that are not committed.";
    "share.renew.acknowledge.enable": Boolean = "true", ANY, Medium, ClusterWide, Accepted(SHARE_GROUPS_LATER),
        "Whether members of a share group may renew their hold on a record.";
    "share.assignment.interval.ms": Int = "1000", at_least(0), Medium, ClusterWide, Accepted(SHARE_GROUPS_LATER),
        "How far apart two new assignments of a share group lie.",
        falls_back = &[("group.share.assignment.interval.ms", 1)];
    "streams.session.timeout.ms": Int = "45000", at_least(1), Medium, ClusterWide, Accepted(STREAMS_GROUPS),
        "How long a member of a streams group may stay silent.",
        falls_back = &[("group.streams.session.timeout.ms", 1)];
    "streams.heartbeat.interval.ms": Int = "5000", at_least(1), Medium, ClusterWide, Accepted(STREAMS_GROUPS),
        "How often members of a streams group report.",
        falls_back = &[("group.streams.heartbeat.interval.ms", 1)];
    "streams.num.standby.replicas": Int = "0", at_least(0), Medium, ClusterWide, Accepted(STREAMS_GROUPS),
        "How many standby replicas each task of a streams group has.",
        falls_back = &[("group.streams.num.standby.replicas", 1)];
    "streams.initial.rebalance.delay.ms": Int = "3000", at_least(0), Medium, ClusterWide, Accepted(STREAMS_GROUPS),
        "How long a new streams group waits for more members.",
        falls_back = &[("group.streams.initial.rebalance.delay.ms", 1)];
    "streams.assignment.interval.ms": Int = "1000", at_least(0), Medium, ClusterWide, Accepted(STREAMS_GROUPS),
        "How far apart two new assignments of a streams group lie.",
        falls_back = &[("group.streams.assignment.interval.ms", 1)];
}

family! { CLIENT_METRICS_KEYS "Subscriptions to clients' metrics";
    "interval.ms": Int = "300000", ANY, Medium, ClusterWide, Accepted(TELEMETRY),
        "How often clients send the metrics.";
    "match": List = "", LIST, Medium, ClusterWide, Accepted(TELEMETRY),
        "Which clients send them: pairs of a property and a pattern.";
    "metrics": List = "", LIST, Medium, ClusterWide, Accepted(TELEMETRY),
        "Which metrics, by the beginnings of their names.";
}
