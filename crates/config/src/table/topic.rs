//! Keys of topics, with the broker keys on which they fall back, in order, and the factors to their units.
//!
//! Facts are compared with Kafka in `table::tests`.

use thalweg_log::CleanupPolicy;
use thalweg_record::TimestampType;

use super::declare::settings;
use super::own::PRODUCE_VALIDATION;
use super::reason::TIERED;
use super::{CleanerSettings, LogSettings, ProduceKeys, TieredStorageKeys, TopicSettings};
use crate::check::{ANY, GZIP_LEVEL, THROTTLED_REPLICAS, at_least, between, list_of, one_of, ratio};
use crate::key::Support::{Accepted, Served, Unserved};
use crate::setting::unless_negative;
use crate::topic_value::{CompressionType, ThrottledReplicas, cleanup_policy, timestamp_type};

settings! {
    /// Every setting of a topic, resolved. Times are milliseconds as i64 for comparison with record
    /// timestamps; `i64::MAX` means never.
    EffectiveTopicConfig, TOPIC_KEYS "Topic configuration";

    "cleanup.policy": List = "delete", list_of(&["compact", "delete"]), Medium, ClusterWide, Served => cleanup_policy: CleanupPolicy = cleanup_policy,
        "How old segments are cleaned up: `delete` by age and size, `compact` to the newest record per key, both, or neither if empty.",
        falls_back = &[(LogSettings::cleanup_policy.name(), 1)];
    "compression.gzip.level": Int = "-1", GZIP_LEVEL, Medium, ClusterWide, Served => gzip_level: i32,
        "The level of gzip when the broker recompresses; -1 is the codec's own default.",
        falls_back = &[(TopicSettings::compression_gzip_level.name(), 1)];
    "compression.lz4.level": Int = "9", between(1, 17), Medium, ClusterWide, Served => lz4_level: i32,
        "The level of lz4 when the broker recompresses.",
        falls_back = &[(TopicSettings::compression_lz4_level.name(), 1)];
    "compression.type": String = "producer", one_of(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), Medium, ClusterWide, Served => compression_type: CompressionType = CompressionType::of,
        "How batches are stored: as compressed by the producer (`producer`), uncompressed, or recompressed with the given codec.",
        falls_back = &[(TopicSettings::compression_type.name(), 1)];
    "compression.zstd.level": Int = "3", between(-131072, 22), Medium, ClusterWide, Served => zstd_level: i32,
        "The level of zstd when the broker recompresses.",
        falls_back = &[(TopicSettings::compression_zstd_level.name(), 1)];
    "delete.retention.ms": Long[Ms] = "86400000", at_least(0), Medium, ClusterWide, Served => delete_retention_ms: i64,
        "How long a compacted topic keeps the markers of deleted keys.",
        falls_back = &[(CleanerSettings::delete_retention_ms.name(), 1)];
    "file.delete.delay.ms": Long[Ms] = "60000", at_least(0), Medium, ClusterWide, Served => file_delete_delay_ms: i64,
        "How long a deleted segment's files stay on disk under another name, for active readers.",
        falls_back = &[(LogSettings::segment_delete_delay_ms.name(), 1)];
    "flush.messages": Long = "9223372036854775807", at_least(1), Medium, ClusterWide, Served => flush_messages: i64,
        "The number of records after which a partition is flushed to disk before it answers; 1 flushes for every request, the default leaves it to the operating system.",
        falls_back = &[(LogSettings::flush_interval_messages.name(), 1)];
    "flush.ms": Long[Ms] = "9223372036854775807", at_least(0), Medium, ClusterWide, Served => flush_ms: i64,
        "How long a record may wait for a flush to disk.",
        falls_back = &[(LogSettings::flush_interval_ms.name(), 1), (LogSettings::flush_check_interval.name(), 1)];
    "follower.replication.throttled.replicas": List = "", THROTTLED_REPLICAS, Medium, ClusterWide, Served => follower_throttled: ThrottledReplicas = ThrottledReplicas::of,
        "The replicas whose fetching as followers is throttled: `partition:broker` pairs, or `*`.";
    "index.interval.bytes": Int[Bytes] = "4096", at_least(0), Medium, ClusterWide, Served => index_interval_bytes: u32,
        "The bytes of batches between two entries of the offset index.",
        falls_back = &[(LogSettings::index_interval_bytes.name(), 1)];
    "internal.segment.bytes": Int[Bytes] = null, ANY, Medium, ClusterWide, Served => internal_segment_bytes: Option<u32> = u32_or_none,
        "A segment size without a lower bound, for tests.", internal;
    "leader.replication.throttled.replicas": List = "", THROTTLED_REPLICAS, Medium, ClusterWide, Served => leader_throttled: ThrottledReplicas = ThrottledReplicas::of,
        "The replicas whose sending as leaders is throttled: `partition:broker` pairs, or `*`.";
    "local.retention.bytes": Long[Bytes] = "-2", at_least(-2), Medium, ClusterWide, Accepted(TIERED),
        "Size above which segments in tiered storage are deleted locally; -2 follows `retention.bytes`.",
        falls_back = &[(TieredStorageKeys::local_retention_bytes.name(), 1)];
    "local.retention.ms": Long[Ms] = "-2", at_least(-2), Medium, ClusterWide, Accepted(TIERED),
        "Age at which segments in tiered storage are deleted locally; -2 follows `retention.ms`.",
        falls_back = &[(TieredStorageKeys::local_retention_ms.name(), 1)];
    "max.compaction.lag.ms": Long[Ms] = "9223372036854775807", at_least(1), Medium, ClusterWide, Served => max_compaction_lag_ms: i64,
        "The maximum time before a record is compacted.",
        falls_back = &[(CleanerSettings::max_compaction_lag_ms.name(), 1)];
    "max.message.bytes": Int[Bytes] = "1048588", at_least(0), Medium, ClusterWide, Served => max_message_bytes: u32,
        "The maximum size of a record batch, in bytes as sent.",
        falls_back = &[(TopicSettings::message_max_bytes.name(), 1)];
    "message.timestamp.after.max.ms": Long[Ms] = "3600000", at_least(0), Medium, ClusterWide, Served => timestamp_after_max_ms: i64,
        "How far a record's timestamp may be ahead of the broker's clock before it is refused.",
        falls_back = &[(LogSettings::message_timestamp_after_max_ms.name(), 1)];
    "message.timestamp.before.max.ms": Long[Ms] = "9223372036854775807", at_least(0), Medium, ClusterWide, Served => timestamp_before_max_ms: i64,
        "How far a record's timestamp may be behind the broker's clock before it is refused.",
        falls_back = &[(LogSettings::message_timestamp_before_max_ms.name(), 1)];
    "message.timestamp.type": String = "CreateTime", one_of(&["CreateTime", "LogAppendTime"]), Medium, ClusterWide, Served => timestamp_type: TimestampType = timestamp_type,
        "Whether a record keeps its producer's timestamp (`CreateTime`) or gets the broker's (`LogAppendTime`).",
        falls_back = &[(LogSettings::message_timestamp_type.name(), 1)];
    "min.cleanable.dirty.ratio": Double = "0.5", ratio(1.0), Medium, ClusterWide, Served => min_cleanable_dirty_ratio: f64,
        "The share of a log that must be uncompacted before it is compacted again.",
        falls_back = &[(CleanerSettings::min_cleanable_ratio.name(), 1)];
    "min.compaction.lag.ms": Long[Ms] = "0", at_least(0), Medium, ClusterWide, Served => min_compaction_lag_ms: i64,
        "The minimum time before a record may be compacted away.",
        falls_back = &[(CleanerSettings::min_compaction_lag_ms.name(), 1)];
    "min.insync.replicas": Int = "1", at_least(1), Medium, ClusterWide, Served => min_insync_replicas: i32,
        "How many replicas must be in sync for a produce request with acks=all to be accepted.",
        falls_back = &[(TopicSettings::min_insync_replicas.name(), 1)];
    "preallocate": Boolean = "false", ANY, Medium, ClusterWide, Served => preallocate: bool,
        "Whether disk space for a whole segment is reserved at its start; otherwise incrementally.",
        falls_back = &[(LogSettings::preallocate.name(), 1)];
    "remote.log.copy.disable": Boolean = "false", ANY, Medium, ClusterWide, Unserved(TIERED),
        "Whether copying segments to tiered storage is disabled.";
    "remote.log.delete.on.disable": Boolean = "false", ANY, Medium, ClusterWide, Unserved(TIERED),
        "Whether remote segments are deleted when tiered storage is turned off.";
    "remote.storage.enable": Boolean = "false", ANY, Medium, ClusterWide, Unserved(TIERED) => remote_storage_enable: bool,
        "Whether segments are copied to tiered storage; `true` is refused.";
    "retention.bytes": Long[Bytes] = "-1", ANY, Medium, ClusterWide, Served => retention_bytes: Option<u64> = unless_negative,
        "Size of a partition above which its oldest segments are deleted; a negative value sets no limit.",
        falls_back = &[(LogSettings::retention_bytes.name(), 1)];
    "retention.ms": Long[Ms] = "604800000", at_least(-1), Medium, ClusterWide, Served => retention_ms: Option<i64> = unless_negative,
        "Age at which closed segments are deleted; -1 keeps them for ever.",
        falls_back = &[(LogSettings::retention_ms.name(), 1), (LogSettings::retention_minutes.name(), 60000), (LogSettings::retention_hours.name(), 3600000)];
    "segment.bytes": Int[Bytes] = "1073741824", at_least(1048576), Medium, ClusterWide, Served => segment_bytes: u32,
        "Size at which a segment is closed and the next begun.",
        falls_back = &[(LogSettings::segment_bytes.name(), 1)];
    "segment.index.bytes": Int[Bytes] = "10485760", at_least(4), Medium, ClusterWide, Served => segment_index_bytes: u32,
        "The largest offset index of a segment; a full index closes the segment.",
        falls_back = &[(LogSettings::index_size_max_bytes.name(), 1)];
    "segment.jitter.ms": Long[Ms] = "0", at_least(0), Medium, ClusterWide, Served => segment_jitter_ms: i64,
        "The maximum that is randomly subtracted from the age of a segment, so that partitions do not roll at the same time.",
        falls_back = &[(LogSettings::roll_jitter_ms.name(), 1), (LogSettings::roll_jitter_hours.name(), 3600000)];
    "segment.ms": Long[Ms] = "604800000", at_least(1), Medium, ClusterWide, Served => segment_ms: i64,
        "Age at which a segment is closed even when it is not full.",
        falls_back = &[(LogSettings::roll_ms.name(), 1), (LogSettings::roll_hours.name(), 3600000)];
    "unclean.leader.election.enable": Boolean = "false", ANY, Medium, ClusterWide, Served => unclean_leader_election_enable: bool,
        "Whether an out-of-sync replica may become leader if no other is left, which loses records.",
        falls_back = &[(TopicSettings::unclean_leader_election.name(), 1)];
    "thalweg.produce.validation": String = "records", PRODUCE_VALIDATION, Medium, ClusterWide, Served => validates_records: bool = wants_every_record,
        "How thoroughly a producer's batch is validated before it is stored: `records`, every record, or `header`, only the header unless another setting requires more. Apache Kafka's controllers do not support this topic key; with them, use the broker's key of the same name.",
        falls_back = &[(ProduceKeys::validation.name(), 1)];
}

fn wants_every_record(validation: String) -> bool {
    validation == "records"
}

/// A size that only tests set; invalid sizes count as unset.
fn u32_or_none(bytes: Option<i64>) -> Option<u32> {
    bytes.and_then(|bytes| u32::try_from(bytes).ok())
}
