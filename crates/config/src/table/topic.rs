//! Keys of topics, with the broker keys that each falls back to, in order, and the factor to its unit.
//!
//! Facts are compared with Kafka in `table::tests`.

use super::super::check::{ANY, GZIP_LEVEL, THROTTLED_REPLICAS, at_least, between, list_of, one_of, ratio};
use super::super::key::Support::{Accepted, Served, Unserved};
use super::family;
use super::reason::TIERED;

family! { TOPIC_KEYS "Topic configuration";
    "cleanup.policy": List = "delete", list_of(&["compact", "delete"]), Medium, ClusterWide, Served,
        "What becomes of old segments: `delete` by age and size, `compact` to the newest record per key, both, or neither when empty.",
        falls_back = &[("log.cleanup.policy", 1)];
    "compression.gzip.level": Int = "-1", GZIP_LEVEL, Medium, ClusterWide, Served,
        "The level of gzip when the broker recompresses; -1 is the codec's own default.",
        falls_back = &[("compression.gzip.level", 1)];
    "compression.lz4.level": Int = "9", between(1, 17), Medium, ClusterWide, Served,
        "The level of lz4 when the broker recompresses.",
        falls_back = &[("compression.lz4.level", 1)];
    "compression.type": String = "producer", one_of(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), Medium, ClusterWide, Served,
        "How batches are stored: as the producer compressed them (`producer`), uncompressed, or recompressed with the codec named.",
        falls_back = &[("compression.type", 1)];
    "compression.zstd.level": Int = "3", between(-131072, 22), Medium, ClusterWide, Served,
        "The level of zstd when the broker recompresses.",
        falls_back = &[("compression.zstd.level", 1)];
    "delete.retention.ms": Long = "86400000", at_least(0), Medium, ClusterWide, Served,
        "How long a compacted topic keeps the markers of deleted keys.",
        falls_back = &[("log.cleaner.delete.retention.ms", 1)];
    "file.delete.delay.ms": Long = "60000", at_least(0), Medium, ClusterWide, Served,
        "How long a deleted segment's files stay on disk under another name, for readers that still hold them.",
        falls_back = &[("log.segment.delete.delay.ms", 1)];
    "flush.messages": Long = "9223372036854775807", at_least(1), Medium, ClusterWide, Served,
        "After how many records a partition is flushed to disk before it answers; 1 flushes for every request, the default leaves it to the operating system.",
        falls_back = &[("log.flush.interval.messages", 1)];
    "flush.ms": Long = "9223372036854775807", at_least(0), Medium, ClusterWide, Served,
        "How long a record may wait for a flush to disk.",
        falls_back = &[("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)];
    "follower.replication.throttled.replicas": List = "", THROTTLED_REPLICAS, Medium, ClusterWide, Served,
        "The replicas whose fetching as followers is throttled: `partition:broker` pairs, or `*`.";
    "index.interval.bytes": Int = "4096", at_least(0), Medium, ClusterWide, Served,
        "How many bytes of batches lie between two entries of the offset index.",
        falls_back = &[("log.index.interval.bytes", 1)];
    "internal.segment.bytes": Int = null, ANY, Medium, ClusterWide, Served,
        "A segment size without a lower bound, for tests.", internal;
    "leader.replication.throttled.replicas": List = "", THROTTLED_REPLICAS, Medium, ClusterWide, Served,
        "The replicas whose sending as leaders is throttled: `partition:broker` pairs, or `*`.";
    "local.retention.bytes": Long = "-2", at_least(-2), Medium, ClusterWide, Accepted(TIERED),
        "Size above which segments already stored elsewhere are deleted here; -2 follows `retention.bytes`.",
        falls_back = &[("log.local.retention.bytes", 1)];
    "local.retention.ms": Long = "-2", at_least(-2), Medium, ClusterWide, Accepted(TIERED),
        "Age at which segments already stored elsewhere are deleted here; -2 follows `retention.ms`.",
        falls_back = &[("log.local.retention.ms", 1)];
    "max.compaction.lag.ms": Long = "9223372036854775807", at_least(1), Medium, ClusterWide, Served,
        "After how long a record is certain to be looked at by compaction.",
        falls_back = &[("log.cleaner.max.compaction.lag.ms", 1)];
    "max.message.bytes": Int = "1048588", at_least(0), Medium, ClusterWide, Served,
        "The largest record batch accepted, in bytes as it is sent.",
        falls_back = &[("message.max.bytes", 1)];
    "message.timestamp.after.max.ms": Long = "3600000", at_least(0), Medium, ClusterWide, Served,
        "How far a record's timestamp may lie ahead of the broker's clock before it is refused.",
        falls_back = &[("log.message.timestamp.after.max.ms", 1)];
    "message.timestamp.before.max.ms": Long = "9223372036854775807", at_least(0), Medium, ClusterWide, Served,
        "How far a record's timestamp may lie behind the broker's clock before it is refused.",
        falls_back = &[("log.message.timestamp.before.max.ms", 1)];
    "message.timestamp.type": String = "CreateTime", one_of(&["CreateTime", "LogAppendTime"]), Medium, ClusterWide, Served,
        "Whether a record keeps its producer's timestamp (`CreateTime`) or gets the broker's (`LogAppendTime`).",
        falls_back = &[("log.message.timestamp.type", 1)];
    "min.cleanable.dirty.ratio": Double = "0.5", ratio(1.0), Medium, ClusterWide, Served,
        "The share of a log that must be uncompacted before it is compacted again.",
        falls_back = &[("log.cleaner.min.cleanable.ratio", 1)];
    "min.compaction.lag.ms": Long = "0", at_least(0), Medium, ClusterWide, Served,
        "For how long a record is certain not to be compacted away.",
        falls_back = &[("log.cleaner.min.compaction.lag.ms", 1)];
    "min.insync.replicas": Int = "1", at_least(1), Medium, ClusterWide, Served,
        "How many replicas must be in sync for a produce request with acks=all to be accepted.",
        falls_back = &[("min.insync.replicas", 1)];
    "preallocate": Boolean = "false", ANY, Medium, ClusterWide, Served,
        "Whether disk space for a whole segment is reserved when it is begun; otherwise it is reserved piece by piece.",
        falls_back = &[("log.preallocate", 1)];
    "remote.log.copy.disable": Boolean = "false", ANY, Medium, ClusterWide, Unserved(TIERED),
        "Whether no more segments are copied to tiered storage.";
    "remote.log.delete.on.disable": Boolean = "false", ANY, Medium, ClusterWide, Unserved(TIERED),
        "Whether remote segments are deleted when tiered storage is turned off.";
    "remote.storage.enable": Boolean = "false", ANY, Medium, ClusterWide, Unserved(TIERED),
        "Whether segments are copied to tiered storage; `true` is refused.";
    "retention.bytes": Long = "-1", ANY, Medium, ClusterWide, Served,
        "Size of a partition above which its oldest segments are deleted; a negative value sets no limit.",
        falls_back = &[("log.retention.bytes", 1)];
    "retention.ms": Long = "604800000", at_least(-1), Medium, ClusterWide, Served,
        "Age at which closed segments are deleted; -1 keeps them for ever.",
        falls_back = &[("log.retention.ms", 1), ("log.retention.minutes", 60000), ("log.retention.hours", 3600000)];
    "segment.bytes": Int = "1073741824", at_least(1048576), Medium, ClusterWide, Served,
        "Size at which a segment is closed and the next begun.",
        falls_back = &[("log.segment.bytes", 1)];
    "segment.index.bytes": Int = "10485760", at_least(4), Medium, ClusterWide, Served,
        "The largest offset index of a segment; a full index closes the segment.",
        falls_back = &[("log.index.size.max.bytes", 1)];
    "segment.jitter.ms": Long = "0", at_least(0), Medium, ClusterWide, Served,
        "The most that is taken off the age of a segment at random, so that partitions do not roll together.",
        falls_back = &[("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3600000)];
    "segment.ms": Long = "604800000", at_least(1), Medium, ClusterWide, Served,
        "Age at which a segment is closed even when it is not full.",
        falls_back = &[("log.roll.ms", 1), ("log.roll.hours", 3600000)];
    "unclean.leader.election.enable": Boolean = "false", ANY, Medium, ClusterWide, Served,
        "Whether a replica that is not in sync may become leader when no other is left, at the price of lost records.",
        falls_back = &[("unclean.leader.election.enable", 1)];
}
