//! Keys of groups and transactions.
//!
//! An entry per key; `table::declare` documents the format.
//! Facts are compared with Kafka in `table::tests`.

use std::time::Duration;

use super::declare::settings;
use super::reason::{LINGER, NO_JAVA, ONE_POOL, PURGATORY};
use crate::check::{ANY, FILLED_LIST, at_least, between, filled_list_of, one_of_any_case};
use crate::group_value::assignors;
use crate::key::Support::{Accepted, Served};

settings! {
    /// Classic groups and their committed offsets.
    GroupSettings, GROUPS "Groups";

    "group.min.session.timeout.ms": Int[Ms] = "6000", ANY, Medium, ReadOnly, Served => min_session_timeout_ms: i32,
        "The minimum session timeout of a member of a classic group.";
    "group.max.session.timeout.ms": Int[Ms] = "1800000", ANY, Medium, ReadOnly, Served => max_session_timeout_ms: i32,
        "The maximum session timeout of a member of a classic group.";
    "group.initial.rebalance.delay.ms": Int[Ms] = "3000", ANY, Medium, ReadOnly, Served => initial_rebalance_delay: Duration,
        "How long an empty group waits for more members before its first rebalance.";
    "group.max.size": Int = "2147483647", at_least(1), Medium, ReadOnly, Served => max_size: usize,
        "The maximum number of members in a classic group.";
    "group.coordinator.rebalance.protocols": List = "classic,consumer,streams", filled_list_of(&["consumer", "classic", "share", "streams"]), Medium, ReadOnly, Served => rebalance_protocols: Vec<String>,
        "The supported group protocols; must include `classic`. Consumer groups also need `group.version` 1, and streams groups `streams.version` 1.";
    "group.coordinator.threads": Int = "4", at_least(1), High, ReadOnly, Accepted(ONE_POOL),
        "Size of Kafka's pool of coordinator threads.";
    "group.coordinator.background.threads": Int = "2", at_least(1), High, ReadOnly, Accepted(ONE_POOL),
        "Size of Kafka's pool of background threads of the coordinator.";
    "group.coordinator.append.linger.ms": Int[Ms] = "-1", at_least(-1), Medium, ReadOnly, Accepted(LINGER),
        "How long Kafka's coordinator collects records before it writes them.";
    "group.coordinator.cached.buffer.max.bytes": Int[Bytes] = "1048588", at_least(524288), Medium, ClusterWide, Accepted(LINGER),
        "The size of the write buffer that Kafka's coordinator keeps.";
    "offset.metadata.max.bytes": Int[Bytes] = "4096", ANY, High, ReadOnly, Served => offset_metadata_max_bytes: usize,
        "The maximum size of a committed offset's metadata.";
    "offsets.commit.timeout.ms": Int[Ms] = "5000", at_least(1), High, ReadOnly, Served => offsets_commit_timeout: Duration,
        "How long a commit waits for the replicas of the offsets topic.";
    "offsets.load.buffer.size": Int[Bytes] = "5242880", at_least(1), High, ReadOnly, Served => offsets_load_buffer_bytes: usize,
        "The size of reads from the offsets topic while a coordinator loads its groups.";
    "offsets.retention.minutes": Int[Minutes] = "10080", at_least(1), High, ReadOnly, Served => offsets_retention: Duration,
        "How long offsets are kept after the last member has left their group, or after the last commit of a consumer without a group.";
    "offsets.retention.check.interval.ms": Long[Ms] = "600000", at_least(1), High, ReadOnly, Served => offsets_retention_check_interval: Duration,
        "How often expired offsets are removed.";
    "offsets.topic.num.partitions": Int = "50", at_least(1), High, ReadOnly, Served => offsets_topic_partitions: i32,
        "Partitions of `__consumer_offsets`; do not change it once the topic exists.";
    "offsets.topic.replication.factor": Short = "1", at_least(1), High, ReadOnly, Served => offsets_topic_replication_factor: i16,
        "Replicas of `__consumer_offsets`.",
        alone = "there is only one broker: consumer groups get no coordinator; use 1",
        in_quorum = "3",
        differs = "3 as in Kafka, unless the broker is alone because its controller has no listener: then only one replica is possible.";
    "offsets.topic.segment.bytes": Int[Bytes] = "104857600", at_least(1), High, ReadOnly, Served => offsets_topic_segment_bytes: i32,
        "Segment size of `__consumer_offsets`.";
    "offsets.topic.compression.codec": Int = "0", ANY, High, ReadOnly, Served => offsets_topic_codec: i32,
        "Codec of the records in `__consumer_offsets`, by number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.";
}

settings! {
    /// Settings of consumer groups.
    ConsumerGroupKeys, CONSUMER_GROUP_KEYS "Consumer groups of the new protocol";

    "group.consumer.session.timeout.ms": Int[Ms] = "45000", at_least(1), Medium, ReadOnly, Served => session_timeout_ms: i32,
        "Session timeout of a consumer group.",
        within = (Some(ConsumerGroupKeys::min_session_timeout_ms.name()), Some(ConsumerGroupKeys::max_session_timeout_ms.name()));
    "group.consumer.min.session.timeout.ms": Int[Ms] = "45000", at_least(1), Medium, ReadOnly, Served => min_session_timeout_ms: i32,
        "The minimum session timeout of a consumer group.";
    "group.consumer.max.session.timeout.ms": Int[Ms] = "60000", at_least(1), Medium, ReadOnly, Served => max_session_timeout_ms: i32,
        "The maximum session timeout of a consumer group.";
    "group.consumer.heartbeat.interval.ms": Int[Ms] = "5000", at_least(1), Medium, ReadOnly, Served => heartbeat_interval_ms: i32,
        "Heartbeat interval of a consumer group.",
        within = (Some(ConsumerGroupKeys::min_heartbeat_interval_ms.name()), Some(ConsumerGroupKeys::max_heartbeat_interval_ms.name()));
    "group.consumer.min.heartbeat.interval.ms": Int[Ms] = "5000", at_least(1), Medium, ReadOnly, Served => min_heartbeat_interval_ms: i32,
        "The minimum heartbeat interval of a consumer group.";
    "group.consumer.max.heartbeat.interval.ms": Int[Ms] = "15000", at_least(1), Medium, ReadOnly, Served => max_heartbeat_interval_ms: i32,
        "The maximum heartbeat interval of a consumer group.";
    "group.consumer.max.size": Int = "2147483647", at_least(1), Medium, ReadOnly, Served => max_size: usize,
        "The maximum number of members in a consumer group.";
    "group.consumer.assignors": List = "uniform,range", FILLED_LIST, Medium, ReadOnly, Served => assignors: Vec<String> = assignors,
        "The assignors that members may ask for, `uniform` and `range`; the first is the default.";
    "group.consumer.assignment.interval.ms": Int[Ms] = "1000", at_least(0), Medium, ClusterWide, Served => assignment_interval_ms: i32,
        "The minimum interval between new assignments of a consumer group.",
        within = (Some(ConsumerGroupKeys::min_assignment_interval_ms.name()), Some(ConsumerGroupKeys::max_assignment_interval_ms.name()));
    "group.consumer.min.assignment.interval.ms": Int[Ms] = "0", at_least(0), Medium, ReadOnly, Served => min_assignment_interval_ms: i32,
        "The minimum of that interval.";
    "group.consumer.max.assignment.interval.ms": Int[Ms] = "15000", at_least(0), Medium, ReadOnly, Served => max_assignment_interval_ms: i32,
        "The maximum of that interval.";
    "group.consumer.migration.policy": String = "bidirectional", one_of_any_case(&["DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"]), Medium, ReadOnly, Served => migration_policy: String,
        "Whether groups with members may switch between the classic and the new protocol.";
    "group.consumer.regex.refresh.interval.ms": Int[Ms] = "600000", at_least(10000), Medium, ReadOnly, Served => regex_refresh_interval_ms: i32,
        "How often subscriptions by regular expression are refreshed.", internal;
}

settings! {
    /// Settings of share groups.
    ShareGroupKeys, SHARE_GROUPS "Share groups";

    "group.share.session.timeout.ms": Int[Ms] = "45000", at_least(1), Medium, ReadOnly, Served => session_timeout_ms: i32,
        "Session timeout of a share group.",
        within = (Some(ShareGroupKeys::min_session_timeout_ms.name()), Some(ShareGroupKeys::max_session_timeout_ms.name()));
    "group.share.min.session.timeout.ms": Int[Ms] = "45000", at_least(1), Medium, ReadOnly, Served => min_session_timeout_ms: i32,
        "The minimum session timeout of a share group.";
    "group.share.max.session.timeout.ms": Int[Ms] = "60000", at_least(1), Medium, ReadOnly, Served => max_session_timeout_ms: i32,
        "The maximum session timeout of a share group.";
    "group.share.heartbeat.interval.ms": Int[Ms] = "5000", at_least(1), Medium, ReadOnly, Served => heartbeat_interval_ms: i32,
        "Heartbeat interval of a share group.",
        within = (Some(ShareGroupKeys::min_heartbeat_interval_ms.name()), Some(ShareGroupKeys::max_heartbeat_interval_ms.name()));
    "group.share.min.heartbeat.interval.ms": Int[Ms] = "5000", at_least(1), Medium, ReadOnly, Served => min_heartbeat_interval_ms: i32,
        "The minimum heartbeat interval of a share group.";
    "group.share.max.heartbeat.interval.ms": Int[Ms] = "15000", at_least(1), Medium, ReadOnly, Served => max_heartbeat_interval_ms: i32,
        "The maximum heartbeat interval of a share group.";
    "group.share.max.size": Int = "200", between(1, 1000), Medium, ReadOnly, Served => max_size: usize,
        "The maximum number of members in a share group.";
    "group.share.max.share.sessions": Int = "2000", at_least(1), Medium, ReadOnly, Served => max_share_sessions: usize,
        "The maximum number of share sessions on a broker.";
    "group.share.assignors": List = "simple", FILLED_LIST, Medium, ReadOnly, Served => assignors: Vec<String>,
        "The assignor of share groups: `simple`.";
    "group.share.assignment.interval.ms": Int[Ms] = "1000", at_least(0), Medium, ClusterWide, Served => assignment_interval_ms: i32,
        "The minimum interval between new assignments of a share group.",
        within = (Some(ShareGroupKeys::min_assignment_interval_ms.name()), Some(ShareGroupKeys::max_assignment_interval_ms.name()));
    "group.share.min.assignment.interval.ms": Int[Ms] = "0", at_least(0), Medium, ReadOnly, Served => min_assignment_interval_ms: i32,
        "The minimum of that interval.";
    "group.share.max.assignment.interval.ms": Int[Ms] = "15000", at_least(0), Medium, ReadOnly, Served => max_assignment_interval_ms: i32,
        "The maximum of that interval.";
    "group.share.delivery.count.limit": Int = "5", between(2, 10), Medium, ReadOnly, Served => delivery_count_limit: i16,
        "The maximum number of deliveries of a record.",
        within = (Some(ShareGroupKeys::min_delivery_count_limit.name()), Some(ShareGroupKeys::max_delivery_count_limit.name()));
    "group.share.min.delivery.count.limit": Int = "2", between(2, 5), Medium, ReadOnly, Served => min_delivery_count_limit: i16,
        "The minimum of that limit.";
    "group.share.max.delivery.count.limit": Int = "10", between(5, 25), Medium, ReadOnly, Served => max_delivery_count_limit: i16,
        "The maximum of that limit.";
    "group.share.record.lock.duration.ms": Int[Ms] = "30000", between(1000, 3600000), Medium, ReadOnly, Served => record_lock_duration_ms: i32,
        "How long a consumer keeps the lock on an acquired record.",
        within = (Some(ShareGroupKeys::min_record_lock_duration_ms.name()), Some(ShareGroupKeys::max_record_lock_duration_ms.name()));
    "group.share.min.record.lock.duration.ms": Int[Ms] = "15000", between(1000, 30000), Medium, ReadOnly, Served => min_record_lock_duration_ms: i32,
        "The minimum of that duration.";
    "group.share.max.record.lock.duration.ms": Int[Ms] = "60000", between(30000, 3600000), Medium, ReadOnly, Served => max_record_lock_duration_ms: i32,
        "The maximum of that duration.";
    "group.share.partition.max.record.locks": Int = "2000", between(100, 10000), Medium, ReadOnly, Served => partition_max_record_locks: usize,
        "The maximum number of locked records per partition.",
        within = (Some(ShareGroupKeys::min_partition_max_record_locks.name()), Some(ShareGroupKeys::max_partition_max_record_locks.name()));
    "group.share.min.partition.max.record.locks": Int = "100", between(100, 2000), Medium, ReadOnly, Served => min_partition_max_record_locks: usize,
        "The minimum of that count.";
    "group.share.max.partition.max.record.locks": Int = "4000", between(2000, 10000), Medium, ReadOnly, Served => max_partition_max_record_locks: usize,
        "The maximum of that count.";
    "group.share.initialize.retry.interval.ms": Int[Ms] = "30000", at_least(1), Low, ReadOnly, Served => initialize_retry_interval_ms: i32,
        "How often the initialisation of a share partition is repeated.", internal;
    "group.share.persister.class.name": String = "org.apache.kafka.server.share.persister.DefaultStatePersister", ANY, Medium, ReadOnly, Accepted(NO_JAVA),
        "A Java class that stores the state of share groups.", internal;
    "share.fetch.purgatory.purge.interval.requests": Int = "1000", ANY, Medium, ReadOnly, Accepted(PURGATORY),
        "How often Kafka sweeps answered requests out of its share purgatory.";
}

settings! {
    /// The coordinator of the state of share partitions.
    ShareCoordinatorSettings, SHARE_COORDINATOR "Share coordinator";

    "share.coordinator.append.linger.ms": Int[Ms] = "-1", at_least(-1), Medium, ReadOnly, Accepted(LINGER),
        "How long the share coordinator collects records before it writes them.";
    "share.coordinator.cached.buffer.max.bytes": Int[Bytes] = "1048588", at_least(524288), Medium, ClusterWide, Accepted(LINGER),
        "The size of the write buffer that the share coordinator keeps.";
    "share.coordinator.cold.partition.snapshot.interval.ms": Int[Ms] = "300000", at_least(1), Low, ReadOnly, Served => cold_snapshot_interval: Duration,
        "How often idle share partitions are written as a snapshot.", internal;
    "share.coordinator.load.buffer.size": Int[Bytes] = "5242880", at_least(1), High, ReadOnly, Served => load_buffer_bytes: usize,
        "The size of reads while a share coordinator loads.";
    "share.coordinator.snapshot.update.records.per.snapshot": Int = "500", between(0, 500), Medium, ReadOnly, Served => updates_per_snapshot: usize,
        "The number of updates between two snapshots of a share partition.";
    "share.coordinator.state.topic.compression.codec": Int = "0", ANY, High, ReadOnly, Served => state_topic_codec: i32,
        "Codec of the records in `__share_group_state`, by number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.";
    "share.coordinator.state.topic.min.isr": Short = "1", at_least(1), High, ReadOnly, Served => state_topic_min_isr: i16,
        "How many replicas of `__share_group_state` must be in sync for a write.",
        in_quorum = "2",
        differs = "2 as in Kafka, unless the broker is alone because its controller has no listener.";
    "share.coordinator.state.topic.num.partitions": Int = "50", at_least(1), High, ReadOnly, Served => state_topic_partitions: i32,
        "Partitions of `__share_group_state`; do not change it once the topic exists.";
    "share.coordinator.state.topic.prune.interval.ms": Int[Ms] = "300000", at_least(1), Low, ReadOnly, Served => prune_interval: Duration,
        "How often `__share_group_state` is pruned of records that are no longer needed.", internal;
    "share.coordinator.state.topic.replication.factor": Short = "1", at_least(1), High, ReadOnly, Served => state_topic_replication_factor: i16,
        "Replicas of `__share_group_state`.",
        alone = "there is only one broker: share partitions get no coordinator; use 1",
        in_quorum = "3",
        differs = "3 as in Kafka, unless the broker is alone because its controller has no listener.";
    "share.coordinator.state.topic.segment.bytes": Int[Bytes] = "104857600", at_least(1), High, ReadOnly, Served => state_topic_segment_bytes: i32,
        "Segment size of `__share_group_state`.";
    "share.coordinator.threads": Int = "1", at_least(1), Medium, ReadOnly, Accepted(ONE_POOL),
        "Threads of Kafka's share coordinator.";
    "share.coordinator.write.timeout.ms": Int[Ms] = "5000", at_least(1), High, ReadOnly, Served => write_timeout: Duration,
        "How long a write of the share coordinator waits for the replicas.";
}

settings! {
    /// Settings of streams groups.
    StreamsGroupKeys, STREAMS_GROUP_KEYS "Streams groups";

    "group.streams.session.timeout.ms": Int[Ms] = "45000", at_least(1), Medium, ReadOnly, Served => session_timeout_ms: i32,
        "Session timeout of a streams group.",
        within = (Some(StreamsGroupKeys::min_session_timeout_ms.name()), Some(StreamsGroupKeys::max_session_timeout_ms.name()));
    "group.streams.min.session.timeout.ms": Int[Ms] = "45000", at_least(1), Medium, ReadOnly, Served => min_session_timeout_ms: i32,
        "The minimum session timeout of a streams group.";
    "group.streams.max.session.timeout.ms": Int[Ms] = "60000", at_least(1), Medium, ReadOnly, Served => max_session_timeout_ms: i32,
        "The maximum session timeout of a streams group.";
    "group.streams.heartbeat.interval.ms": Int[Ms] = "5000", at_least(1), Medium, ReadOnly, Served => heartbeat_interval_ms: i32,
        "Heartbeat interval of a streams group.",
        within = (Some(StreamsGroupKeys::min_heartbeat_interval_ms.name()), Some(StreamsGroupKeys::max_heartbeat_interval_ms.name()));
    "group.streams.min.heartbeat.interval.ms": Int[Ms] = "5000", at_least(1), Medium, ReadOnly, Served => min_heartbeat_interval_ms: i32,
        "The minimum heartbeat interval of a streams group.";
    "group.streams.max.heartbeat.interval.ms": Int[Ms] = "15000", at_least(1), Medium, ReadOnly, Served => max_heartbeat_interval_ms: i32,
        "The maximum heartbeat interval of a streams group.";
    "group.streams.max.size": Int = "2147483647", at_least(1), Medium, ReadOnly, Served => max_size: usize,
        "The maximum number of members in a streams group.";
    "group.streams.num.standby.replicas": Int = "0", at_least(0), Medium, ReadOnly, Served => num_standby_replicas: usize,
        "The number of standby replicas per task.",
        within = (None, Some(StreamsGroupKeys::max_standby_replicas.name()));
    "group.streams.max.standby.replicas": Int = "2", at_least(0), Medium, ReadOnly, Served => max_standby_replicas: usize,
        "The maximum number of standby replicas.";
    "group.streams.initial.rebalance.delay.ms": Int[Ms] = "3000", at_least(0), Medium, ReadOnly, Served => initial_rebalance_delay_ms: i32,
        "How long an empty streams group waits for more members.";
    "group.streams.assignment.interval.ms": Int[Ms] = "1000", at_least(0), Medium, ClusterWide, Served => assignment_interval_ms: i32,
        "The minimum interval between new assignments of a streams group.",
        within = (Some(StreamsGroupKeys::min_assignment_interval_ms.name()), Some(StreamsGroupKeys::max_assignment_interval_ms.name()));
    "group.streams.min.assignment.interval.ms": Int[Ms] = "0", at_least(0), Medium, ReadOnly, Served => min_assignment_interval_ms: i32,
        "The minimum of that interval.";
    "group.streams.max.assignment.interval.ms": Int[Ms] = "15000", at_least(0), Medium, ReadOnly, Served => max_assignment_interval_ms: i32,
        "The maximum of that interval.";
}

settings! {
    /// Transactions and idempotent producers.
    TransactionSettings, TRANSACTION_KEYS "Transactions";

    "transaction.max.timeout.ms": Int[Ms] = "900000", at_least(1), High, ReadOnly, Served => max_timeout_ms: i32,
        "The maximum transaction timeout of a producer.";
    "transactional.id.expiration.ms": Int[Ms] = "604800000", at_least(1), High, ReadOnly, Served => id_expiration: Duration,
        "How long a transactional id is remembered after its last transaction.";
    "transaction.state.log.num.partitions": Int = "50", at_least(1), High, ReadOnly, Served => state_topic_partitions: i32,
        "Partitions of `__transaction_state`; do not change it once the topic exists.";
    "transaction.state.log.replication.factor": Short = "1", at_least(1), High, ReadOnly, Served => state_topic_replication_factor: i16,
        "Replicas of `__transaction_state`.",
        in_quorum = "3",
        differs = "3 as in Kafka, unless the broker is alone because its controller has no listener.";
    "transaction.state.log.min.isr": Int = "1", at_least(1), High, ReadOnly, Served => state_topic_min_isr: i32,
        "How many replicas of `__transaction_state` must be in sync for a write.",
        in_quorum = "2",
        differs = "2 as in Kafka, unless the broker is alone because its controller has no listener.";
    "transaction.state.log.segment.bytes": Int[Bytes] = "104857600", at_least(1), High, ReadOnly, Served => state_topic_segment_bytes: i32,
        "Segment size of `__transaction_state`.";
    "transaction.state.log.load.buffer.size": Int[Bytes] = "5242880", at_least(1), High, ReadOnly, Served => load_buffer_bytes: usize,
        "The size of reads from `__transaction_state` while a coordinator loads.";
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": Int[Ms] = "10000", at_least(1), Low, ReadOnly, Served => abort_timed_out_interval: Duration,
        "How often transactions past their timeout are aborted.";
    "transaction.remove.expired.transaction.cleanup.interval.ms": Int[Ms] = "3600000", at_least(1), Low, ReadOnly, Served => remove_expired_interval: Duration,
        "How often expired transactional ids are removed.";
    "transaction.partition.verification.enable": Boolean = "true", ANY, Low, ClusterWide, Served => verifies_partitions: bool,
        "Whether a leader verifies with the coordinator that its partition is part of the transaction before it appends.";
    "transaction.two.phase.commit.enable": Boolean = "false", ANY, Low, ReadOnly, Served => two_phase_commit: bool,
        "Whether producers may take part in two-phase commits led by another system; this also needs `unstable.api.versions.enable`.";
    "add.partitions.to.txn.retry.backoff.ms": Int[Ms] = "20", at_least(1), High, ReadOnly, Served => add_retry_backoff: Duration,
        "The pause before a leader retries to add its partition, while the previous transaction is ending.";
    "add.partitions.to.txn.retry.backoff.max.ms": Int[Ms] = "100", at_least(0), High, ReadOnly, Served => add_retry_max: Duration,
        "How long a leader retries before the producer must.";
}
