//! Keys of groups and transactions.
//!
//! An entry per key; `table::declare` says what is in one.
//! Facts are compared with Kafka in `table::tests`.

use std::time::Duration;

use super::super::check::{ANY, FILLED_LIST, at_least, between, filled_list_of, one_of_any_case};
use super::super::key::Support::{Accepted, Served, Unserved};
use super::declare::{names, settings};
use super::reason::{CLASSIC, CONSUMER_GROUPS, LINGER, ONE_POOL, SHARE_GROUPS_LATER, STREAMS_GROUPS};

settings! {
    /// Classic groups and their committed offsets.
    GroupSettings, GROUPS "Groups";

    "group.min.session.timeout.ms": Int[Ms] = "6000", ANY, Medium, ReadOnly, Served => min_session_timeout_ms: i32,
        "The shortest session timeout that a member of a classic group may ask for.";
    "group.max.session.timeout.ms": Int[Ms] = "1800000", ANY, Medium, ReadOnly, Served => max_session_timeout_ms: i32,
        "The longest session timeout that a member of a classic group may ask for.";
    "group.initial.rebalance.delay.ms": Int[Ms] = "3000", ANY, Medium, ReadOnly, Served => initial_rebalance_delay: Duration,
        "How long an empty group waits for more members before its first rebalance.";
    "group.max.size": Int = "2147483647", at_least(1), Medium, ReadOnly, Served => max_size: usize,
        "How many members a classic group may have.";
    "group.coordinator.rebalance.protocols": List = "classic", filled_list_of(&["consumer", "classic", "share", "streams"]), Medium, ReadOnly, Accepted(CLASSIC) => rebalance_protocols: Vec<String>,
        "The group protocols offered; `classic` cannot be left out.",
        differs = "Kafka offers consumer and streams groups as well.";
    "group.coordinator.threads": Int = "4", at_least(1), High, ReadOnly, Accepted(ONE_POOL),
        "Size of Kafka's pool of coordinator threads.";
    "group.coordinator.background.threads": Int = "2", at_least(1), High, ReadOnly, Accepted(ONE_POOL),
        "Size of Kafka's pool of background threads of the coordinator.";
    "group.coordinator.append.linger.ms": Int[Ms] = "-1", at_least(-1), Medium, ReadOnly, Accepted(LINGER),
        "How long Kafka's coordinator collects records before it writes them.";
    "group.coordinator.cached.buffer.max.bytes": Int[Bytes] = "1048588", at_least(524288), Medium, ClusterWide, Accepted(LINGER),
        "How large a write buffer Kafka's coordinator keeps for the next write.";
    "offset.metadata.max.bytes": Int[Bytes] = "4096", ANY, High, ReadOnly, Served => offset_metadata_max_bytes: usize,
        "The longest metadata that a committed offset may carry.";
    "offsets.commit.timeout.ms": Int[Ms] = "5000", at_least(1), High, ReadOnly, Served => offsets_commit_timeout: Duration,
        "How long a commit waits for the replicas of the offsets topic.";
    "offsets.load.buffer.size": Int[Bytes] = "5242880", at_least(1), High, ReadOnly, Served => offsets_load_buffer_bytes: usize,
        "How many bytes of the offsets topic are read at once when a coordinator loads its groups.";
    "offsets.retention.minutes": Int[Minutes] = "10080", at_least(1), High, ReadOnly, Served => offsets_retention: Duration,
        "How long offsets outlive the last member of their group, or the last commit of a consumer without a group.";
    "offsets.retention.check.interval.ms": Long[Ms] = "600000", at_least(1), High, ReadOnly, Served => offsets_retention_check_interval: Duration,
        "How often expired offsets are looked for.";
    "offsets.topic.num.partitions": Int = "50", at_least(1), High, ReadOnly, Served => offsets_topic_partitions: i32,
        "Partitions of `__consumer_offsets`; not to be changed once the topic exists.";
    "offsets.topic.replication.factor": Short = "1", at_least(1), High, ReadOnly, Served => offsets_topic_replication_factor: i16,
        "Replicas of `__consumer_offsets`.",
        alone = "there is one broker: consumer groups get no coordinator, 1 would do",
        in_quorum = "3",
        differs = "Where other brokers can be it is 3, as in Kafka. A broker whose own controller has no listener is alone, and one replica is all there can be.";
    "offsets.topic.segment.bytes": Int[Bytes] = "104857600", at_least(1), High, ReadOnly, Served => offsets_topic_segment_bytes: i32,
        "Segment size of `__consumer_offsets`.";
    "offsets.topic.compression.codec": Int = "0", ANY, High, ReadOnly, Served => offsets_topic_codec: i32,
        "Codec of the records in `__consumer_offsets`, by number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.";
}

names! {
    /// What consumer groups follow.
    ConsumerGroupKeys, CONSUMER_GROUP_KEYS "Consumer groups of the new protocol";

    "group.consumer.session.timeout.ms": Int[Ms] = "45000", at_least(1), Medium, ReadOnly, Unserved(CONSUMER_GROUPS) => session_timeout_ms,
        "Session timeout of a consumer group.";
    "group.consumer.min.session.timeout.ms": Int[Ms] = "45000", at_least(1), Medium, ReadOnly, Unserved(CONSUMER_GROUPS) => min_session_timeout_ms,
        "The shortest session timeout that a consumer group may be given.";
    "group.consumer.max.session.timeout.ms": Int[Ms] = "60000", at_least(1), Medium, ReadOnly, Unserved(CONSUMER_GROUPS) => max_session_timeout_ms,
        "The longest session timeout that a consumer group may be given.";
    "group.consumer.heartbeat.interval.ms": Int[Ms] = "5000", at_least(1), Medium, ReadOnly, Unserved(CONSUMER_GROUPS) => heartbeat_interval_ms,
        "Heartbeat interval of a consumer group.";
    "group.consumer.min.heartbeat.interval.ms": Int[Ms] = "5000", at_least(1), Medium, ReadOnly, Unserved(CONSUMER_GROUPS) => min_heartbeat_interval_ms,
        "The shortest heartbeat interval that a consumer group may be given.";
    "group.consumer.max.heartbeat.interval.ms": Int[Ms] = "15000", at_least(1), Medium, ReadOnly, Unserved(CONSUMER_GROUPS) => max_heartbeat_interval_ms,
        "The longest heartbeat interval that a consumer group may be given.";
    "group.consumer.max.size": Int = "2147483647", at_least(1), Medium, ReadOnly, Unserved(CONSUMER_GROUPS),
        "How many members a consumer group may have.";
    "group.consumer.assignors": List = "uniform,range", FILLED_LIST, Medium, ReadOnly, Unserved(CONSUMER_GROUPS),
        "Who assigns partitions in the coordinator; the first is the default.";
    "group.consumer.assignment.interval.ms": Int[Ms] = "1000", at_least(0), Medium, ClusterWide, Unserved(CONSUMER_GROUPS) => assignment_interval_ms,
        "How far apart two new assignments of a consumer group lie.";
    "group.consumer.min.assignment.interval.ms": Int[Ms] = "0", at_least(0), Medium, ReadOnly, Unserved(CONSUMER_GROUPS) => min_assignment_interval_ms,
        "The shortest such interval that a group may be given.";
    "group.consumer.max.assignment.interval.ms": Int[Ms] = "15000", at_least(0), Medium, ReadOnly, Unserved(CONSUMER_GROUPS) => max_assignment_interval_ms,
        "The longest such interval that a group may be given.";
    "group.consumer.migration.policy": String = "bidirectional", one_of_any_case(&["DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"]), Medium, ReadOnly, Unserved(CONSUMER_GROUPS),
        "Whether groups with members may change between the classic and the new protocol.";
    "group.consumer.regex.refresh.interval.ms": Int[Ms] = "600000", at_least(10000), Medium, ReadOnly, Unserved(CONSUMER_GROUPS),
        "How often subscriptions by regular expression are matched anew.", internal;
}

names! {
    /// What share groups follow.
    ShareGroupKeys, SHARE_GROUPS "Share groups";

    "group.share.session.timeout.ms": Int[Ms] = "45000", at_least(1), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER) => session_timeout_ms,
        "Session timeout of a share group.";
    "group.share.min.session.timeout.ms": Int[Ms] = "45000", at_least(1), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER) => min_session_timeout_ms,
        "The shortest session timeout that a share group may be given.";
    "group.share.max.session.timeout.ms": Int[Ms] = "60000", at_least(1), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER) => max_session_timeout_ms,
        "The longest session timeout that a share group may be given.";
    "group.share.heartbeat.interval.ms": Int[Ms] = "5000", at_least(1), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER) => heartbeat_interval_ms,
        "Heartbeat interval of a share group.";
    "group.share.min.heartbeat.interval.ms": Int[Ms] = "5000", at_least(1), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER) => min_heartbeat_interval_ms,
        "The shortest heartbeat interval that a share group may be given.";
    "group.share.max.heartbeat.interval.ms": Int[Ms] = "15000", at_least(1), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER) => max_heartbeat_interval_ms,
        "The longest heartbeat interval that a share group may be given.";
    "group.share.max.size": Int = "200", between(1, 1000), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER),
        "How many members a share group may have.";
    "group.share.max.share.sessions": Int = "2000", at_least(1), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER),
        "How many share sessions a broker keeps.";
    "group.share.assignors": List = "simple", FILLED_LIST, Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER),
        "Who assigns partitions in a share group.";
    "group.share.assignment.interval.ms": Int[Ms] = "1000", at_least(0), Medium, ClusterWide, Unserved(SHARE_GROUPS_LATER) => assignment_interval_ms,
        "How far apart two new assignments of a share group lie.";
    "group.share.min.assignment.interval.ms": Int[Ms] = "0", at_least(0), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER) => min_assignment_interval_ms,
        "The shortest such interval that a group may be given.";
    "group.share.max.assignment.interval.ms": Int[Ms] = "15000", at_least(0), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER) => max_assignment_interval_ms,
        "The longest such interval that a group may be given.";
    "group.share.delivery.count.limit": Int = "5", between(2, 10), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER) => delivery_count_limit,
        "How often a record is delivered before it is set aside.";
    "group.share.min.delivery.count.limit": Int = "2", between(2, 5), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER) => min_delivery_count_limit,
        "The lowest such limit that a group may be given.";
    "group.share.max.delivery.count.limit": Int = "10", between(5, 25), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER) => max_delivery_count_limit,
        "The highest such limit that a group may be given.";
    "group.share.record.lock.duration.ms": Int[Ms] = "30000", between(1000, 3600000), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER) => record_lock_duration_ms,
        "How long a consumer holds a record that it has acquired.";
    "group.share.min.record.lock.duration.ms": Int[Ms] = "15000", between(1000, 30000), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER) => min_record_lock_duration_ms,
        "The shortest such hold that a group may be given.";
    "group.share.max.record.lock.duration.ms": Int[Ms] = "60000", between(30000, 3600000), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER) => max_record_lock_duration_ms,
        "The longest such hold that a group may be given.";
    "group.share.partition.max.record.locks": Int = "2000", between(100, 10000), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER) => partition_max_record_locks,
        "How many records of a partition may be held at once.";
    "group.share.min.partition.max.record.locks": Int = "100", between(100, 2000), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER) => min_partition_max_record_locks,
        "The lowest such count that a group may be given.";
    "group.share.max.partition.max.record.locks": Int = "4000", between(2000, 10000), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER) => max_partition_max_record_locks,
        "The highest such count that a group may be given.";
    "group.share.initialize.retry.interval.ms": Int[Ms] = "30000", at_least(1), Low, ReadOnly, Unserved(SHARE_GROUPS_LATER),
        "How often the initialisation of a share partition is repeated.", internal;
    "group.share.persister.class.name": String = "org.apache.kafka.server.share.persister.DefaultStatePersister", ANY, Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER),
        "A Java class that stores the state of share groups.", internal;
    "share.coordinator.append.linger.ms": Int[Ms] = "-1", at_least(-1), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER),
        "How long the share coordinator collects records before it writes them.";
    "share.coordinator.cached.buffer.max.bytes": Int[Bytes] = "1048588", at_least(524288), Medium, ClusterWide, Unserved(SHARE_GROUPS_LATER),
        "How large a write buffer the share coordinator keeps.";
    "share.coordinator.cold.partition.snapshot.interval.ms": Int[Ms] = "300000", at_least(1), Low, ReadOnly, Unserved(SHARE_GROUPS_LATER),
        "How often quiet share partitions are written as a snapshot.", internal;
    "share.coordinator.load.buffer.size": Int[Bytes] = "5242880", at_least(1), High, ReadOnly, Unserved(SHARE_GROUPS_LATER),
        "How many bytes are read at once when a share coordinator loads.";
    "share.coordinator.snapshot.update.records.per.snapshot": Int = "500", between(0, 500), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER),
        "How many updates lie between two snapshots of a share partition.";
    "share.coordinator.state.topic.compression.codec": Int = "0", ANY, High, ReadOnly, Unserved(SHARE_GROUPS_LATER),
        "Codec of the share state topic, by number.";
    "share.coordinator.state.topic.min.isr": Short = "2", at_least(1), High, ReadOnly, Unserved(SHARE_GROUPS_LATER),
        "How many replicas of the share state topic must be in sync for a write.";
    "share.coordinator.state.topic.num.partitions": Int = "50", at_least(1), High, ReadOnly, Unserved(SHARE_GROUPS_LATER),
        "Partitions of the share state topic.";
    "share.coordinator.state.topic.prune.interval.ms": Int[Ms] = "300000", at_least(1), Low, ReadOnly, Unserved(SHARE_GROUPS_LATER),
        "How often the share state topic is pruned.", internal;
    "share.coordinator.state.topic.replication.factor": Short = "3", at_least(1), High, ReadOnly, Unserved(SHARE_GROUPS_LATER),
        "Replicas of the share state topic.";
    "share.coordinator.state.topic.segment.bytes": Int[Bytes] = "104857600", at_least(1), High, ReadOnly, Unserved(SHARE_GROUPS_LATER),
        "Segment size of the share state topic.";
    "share.coordinator.threads": Int = "1", at_least(1), Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER),
        "Threads of the share coordinator.";
    "share.coordinator.write.timeout.ms": Int[Ms] = "5000", at_least(1), High, ReadOnly, Unserved(SHARE_GROUPS_LATER),
        "How long a write of the share coordinator may take.";
    "share.fetch.purgatory.purge.interval.requests": Int = "1000", ANY, Medium, ReadOnly, Unserved(SHARE_GROUPS_LATER),
        "How often Kafka sweeps answered requests out of its share purgatory.";
}

names! {
    /// What streams groups follow.
    StreamsGroupKeys, STREAMS_GROUP_KEYS "Streams groups";

    "group.streams.session.timeout.ms": Int[Ms] = "45000", at_least(1), Medium, ReadOnly, Unserved(STREAMS_GROUPS) => session_timeout_ms,
        "Session timeout of a streams group.";
    "group.streams.min.session.timeout.ms": Int[Ms] = "45000", at_least(1), Medium, ReadOnly, Unserved(STREAMS_GROUPS) => min_session_timeout_ms,
        "The shortest session timeout that a streams group may be given.";
    "group.streams.max.session.timeout.ms": Int[Ms] = "60000", at_least(1), Medium, ReadOnly, Unserved(STREAMS_GROUPS) => max_session_timeout_ms,
        "The longest session timeout that a streams group may be given.";
    "group.streams.heartbeat.interval.ms": Int[Ms] = "5000", at_least(1), Medium, ReadOnly, Unserved(STREAMS_GROUPS) => heartbeat_interval_ms,
        "Heartbeat interval of a streams group.";
    "group.streams.min.heartbeat.interval.ms": Int[Ms] = "5000", at_least(1), Medium, ReadOnly, Unserved(STREAMS_GROUPS) => min_heartbeat_interval_ms,
        "The shortest heartbeat interval that a streams group may be given.";
    "group.streams.max.heartbeat.interval.ms": Int[Ms] = "15000", at_least(1), Medium, ReadOnly, Unserved(STREAMS_GROUPS) => max_heartbeat_interval_ms,
        "The longest heartbeat interval that a streams group may be given.";
    "group.streams.max.size": Int = "2147483647", at_least(1), Medium, ReadOnly, Unserved(STREAMS_GROUPS),
        "How many members a streams group may have.";
    "group.streams.num.standby.replicas": Int = "0", at_least(0), Medium, ReadOnly, Unserved(STREAMS_GROUPS) => num_standby_replicas,
        "How many standby replicas each task gets.";
    "group.streams.max.standby.replicas": Int = "2", at_least(0), Medium, ReadOnly, Unserved(STREAMS_GROUPS) => max_standby_replicas,
        "The most standby replicas that a group may be given.";
    "group.streams.initial.rebalance.delay.ms": Int[Ms] = "3000", at_least(0), Medium, ReadOnly, Unserved(STREAMS_GROUPS) => initial_rebalance_delay_ms,
        "How long an empty streams group waits for more members.";
    "group.streams.assignment.interval.ms": Int[Ms] = "1000", at_least(0), Medium, ClusterWide, Unserved(STREAMS_GROUPS) => assignment_interval_ms,
        "How far apart two new assignments of a streams group lie.";
    "group.streams.min.assignment.interval.ms": Int[Ms] = "0", at_least(0), Medium, ReadOnly, Unserved(STREAMS_GROUPS) => min_assignment_interval_ms,
        "The shortest such interval that a group may be given.";
    "group.streams.max.assignment.interval.ms": Int[Ms] = "15000", at_least(0), Medium, ReadOnly, Unserved(STREAMS_GROUPS) => max_assignment_interval_ms,
        "The longest such interval that a group may be given.";
}

settings! {
    /// Transactions and idempotent producers.
    TransactionSettings, TRANSACTION_KEYS "Transactions";

    "transaction.max.timeout.ms": Int[Ms] = "900000", at_least(1), High, ReadOnly, Served => max_timeout_ms: i32,
        "The longest transaction timeout that a producer may ask for.";
    "transactional.id.expiration.ms": Int[Ms] = "604800000", at_least(1), High, ReadOnly, Served => id_expiration: Duration,
        "How long a transactional id is remembered after its last transaction.";
    "transaction.state.log.num.partitions": Int = "50", at_least(1), High, ReadOnly, Served => state_topic_partitions: i32,
        "Partitions of `__transaction_state`; not to be changed once the topic exists.";
    "transaction.state.log.replication.factor": Short = "1", at_least(1), High, ReadOnly, Served => state_topic_replication_factor: i16,
        "Replicas of `__transaction_state`.",
        in_quorum = "3",
        differs = "Where other brokers can be it is 3, as in Kafka. A broker whose own controller has no listener is alone.";
    "transaction.state.log.min.isr": Int = "1", at_least(1), High, ReadOnly, Served => state_topic_min_isr: i32,
        "How many replicas of `__transaction_state` must be in sync for a write.",
        in_quorum = "2",
        differs = "Where other brokers can be it is 2, as in Kafka. A broker whose own controller has no listener is alone.";
    "transaction.state.log.segment.bytes": Int[Bytes] = "104857600", at_least(1), High, ReadOnly, Served => state_topic_segment_bytes: i32,
        "Segment size of `__transaction_state`.";
    "transaction.state.log.load.buffer.size": Int[Bytes] = "5242880", at_least(1), High, ReadOnly, Served => load_buffer_bytes: usize,
        "How many bytes of `__transaction_state` are read at once when a coordinator loads.";
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": Int[Ms] = "10000", at_least(1), Low, ReadOnly, Served => abort_timed_out_interval: Duration,
        "How often transactions past their timeout are looked for.";
    "transaction.remove.expired.transaction.cleanup.interval.ms": Int[Ms] = "3600000", at_least(1), Low, ReadOnly, Served => remove_expired_interval: Duration,
        "How often expired transactional ids are looked for.";
    "transaction.partition.verification.enable": Boolean = "true", ANY, Low, ClusterWide, Served => verifies_partitions: bool,
        "Whether a leader asks the coordinator that a partition belongs to the transaction before it appends.";
    "transaction.two.phase.commit.enable": Boolean = "false", ANY, Low, ReadOnly, Served => two_phase_commit: bool,
        "Whether producers may take part in two-phase commits led by another system; they ask for it by a version that `unstable.api.versions.enable` offers.";
    "add.partitions.to.txn.retry.backoff.ms": Int[Ms] = "20", at_least(1), High, ReadOnly, Served => add_retry_backoff: Duration,
        "The pause before a leader asks again for its partition to be added, while the transaction before is ending.";
    "add.partitions.to.txn.retry.backoff.max.ms": Int[Ms] = "100", at_least(0), High, ReadOnly, Served => add_retry_max: Duration,
        "How long a leader goes on asking, before the producer is told to come again.";
}
