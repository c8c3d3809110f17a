//! Keys of the log on disk and of its cleaner.
//!
//! One entry per key: name, type = default, check, importance, update mode, support, what it does.
//! Facts are compared with Kafka in `table::tests`.

use super::super::check::{
    ANY, FILLED_LIST, FILLED_LIST_OR_NULL, LIST_OR_NULL, at_least, list_of, one_of, ratio,
};
use super::super::key::Support::{Accepted, Served, Unserved};
use super::family;
use super::reason::{CLEANER_BUFFERS, CLEANER_LOAD, CORDON, DIRS};

family! { LOG "Log";
    "log.dirs": List = null, FILLED_LIST_OR_NULL, High, ReadOnly, Served,
        "The data directories, separated by commas; `log.dir` is used when this is not set.";
    "log.dir": List = "./thalweg-data", FILLED_LIST, High, ReadOnly, Served,
        "The data directory, when `log.dirs` is not set.",
        differs = "Kafka's default lies in /tmp, which a reboot may empty.";
    "cordoned.log.dirs": List = "", LIST_OR_NULL, Medium, PerBroker, Unserved(CORDON),
        "Data directories that take no new partitions.";
    "log.dir.failure.timeout.ms": Long = "30000", at_least(1), Low, ReadOnly, Accepted(DIRS),
        "How long a broker waits to tell the controller of a failed data directory before it stops.";
    "log.segment.bytes": Int = "1073741824", at_least(1048576), High, ClusterWide, Served,
        "Size at which a segment is closed and the next begun; topics override it with `segment.bytes`.";
    "log.roll.ms": Long = null, ANY, High, ClusterWide, Served,
        "Age at which a segment is closed even when it is not full.";
    "log.roll.hours": Int = "168", at_least(1), High, ReadOnly, Served,
        "The same in hours, when `log.roll.ms` is not set.";
    "log.roll.jitter.ms": Long = null, ANY, High, ClusterWide, Served,
        "The most that is taken off that age at random, so that partitions do not roll together.";
    "log.roll.jitter.hours": Int = "0", at_least(0), High, ReadOnly, Served,
        "The same in hours, when `log.roll.jitter.ms` is not set.";
    "log.retention.ms": Long = null, ANY, High, ClusterWide, Served,
        "Age at which closed segments are deleted; -1 keeps them for ever.";
    "log.retention.minutes": Int = null, ANY, High, ReadOnly, Served,
        "The same in minutes, when `log.retention.ms` is not set.";
    "log.retention.hours": Int = "168", ANY, High, ReadOnly, Served,
        "The same in hours, when neither of the others is set.";
    "log.retention.bytes": Long = "-1", ANY, High, ClusterWide, Served,
        "Size of a partition above which its oldest segments are deleted; a negative value sets no limit.";
    "log.retention.check.interval.ms": Long = "300000", at_least(1), Medium, ReadOnly, Served,
        "How often segments are looked over for deletion.";
    "log.cleanup.policy": List = "delete", list_of(&["compact", "delete"]), Medium, ClusterWide, Served,
        "What becomes of old segments: `delete` by age and size, `compact` to the newest record per key, both, or neither when empty.";
    "log.index.size.max.bytes": Int = "10485760", at_least(4), Medium, ClusterWide, Served,
        "The largest offset index of a segment; a full index closes the segment.";
    "log.index.interval.bytes": Int = "4096", at_least(0), Medium, ClusterWide, Served,
        "How many bytes of batches lie between two entries of the offset index.";
    "log.flush.interval.messages": Long = "9223372036854775807", at_least(1), High, ClusterWide, Served,
        "After how many records a partition is flushed to disk before it answers; the default leaves flushing to the operating system.";
    "log.flush.interval.ms": Long = null, ANY, High, ClusterWide, Served,
        "How long a record may wait for a flush to disk; without it, `log.flush.scheduler.interval.ms`.";
    "log.flush.scheduler.interval.ms": Long = "9223372036854775807", ANY, High, ReadOnly, Served,
        "How often partitions are looked over for a flush that is due.";
    "log.flush.offset.checkpoint.interval.ms": Int = "60000", at_least(0), High, ReadOnly, Served,
        "How often the recovery points are written to disk.";
    "log.flush.start.offset.checkpoint.interval.ms": Int = "60000", at_least(0), High, ReadOnly, Served,
        "How often the log start offsets are written to disk.";
    "log.segment.delete.delay.ms": Long = "60000", at_least(0), High, ClusterWide, Served,
        "How long a deleted segment's files stay on disk under another name, for readers that still hold them.";
    "log.preallocate": Boolean = "false", ANY, Medium, ClusterWide, Served,
        "Whether disk space for a whole segment is reserved when it is begun; otherwise it is reserved piece by piece.";
    "log.initial.task.delay.ms": Long = "30000", at_least(0), Low, ReadOnly, Served,
        "How long after the start retention, flushing and checkpoints first run.", internal;
    "log.message.timestamp.type": String = "CreateTime", one_of(&["CreateTime", "LogAppendTime"]), Medium, ClusterWide, Served,
        "Whether a record keeps its producer's timestamp (`CreateTime`) or gets the broker's (`LogAppendTime`).";
    "log.message.timestamp.before.max.ms": Long = "9223372036854775807", at_least(0), Medium, ClusterWide, Served,
        "How far a record's timestamp may lie behind the broker's clock before it is refused.";
    "log.message.timestamp.after.max.ms": Long = "3600000", at_least(0), Medium, ClusterWide, Served,
        "How far a record's timestamp may lie ahead of the broker's clock before it is refused.";
    "num.recovery.threads.per.data.dir": Int = "2", at_least(1), High, ClusterWide, Served,
        "How many threads per data directory check the logs at start and flush them at shutdown.";
    "num.replica.alter.log.dirs.threads": Int = null, ANY, High, ReadOnly, Served,
        "How many partitions are copied from one data directory to another at a time; by default as many as there are directories.";
    "producer.id.expiration.ms": Int = "86400000", at_least(1), Low, ClusterWide, Served,
        "How long a partition remembers an idempotent producer that has fallen silent.";
    "producer.id.expiration.check.interval.ms": Int = "600000", at_least(1), Low, ReadOnly, Served,
        "How often silent producers are looked for.", internal;
}

family! { CLEANER "Log cleaner";
    "log.cleaner.enable": Boolean = "true", ANY, Medium, ReadOnly, Served,
        "Whether compaction runs at all.";
    "log.cleaner.threads": Int = "1", at_least(0), Medium, ClusterWide, Served,
        "How many threads compact.";
    "log.cleaner.io.max.bytes.per.second": Double = "1.7976931348623157E308", ANY, Medium, ClusterWide, Served,
        "How many bytes all cleaner threads together may read and write in a second.";
    "log.cleaner.dedupe.buffer.size": Long = "134217728", ANY, Medium, ClusterWide, Served,
        "Memory for the map from keys to offsets, over all cleaner threads.";
    "log.cleaner.io.buffer.size": Int = "524288", at_least(0), Medium, ClusterWide, Accepted(CLEANER_BUFFERS),
        "Memory for reading and writing, over all cleaner threads.";
    "log.cleaner.io.buffer.load.factor": Double = "0.9", ANY, Medium, ClusterWide, Accepted(CLEANER_LOAD),
        "How full the map of keys may become before a pass ends.";
    "log.cleaner.backoff.ms": Long = "15000", at_least(0), Medium, ClusterWide, Served,
        "How long a cleaner thread sleeps when no log needs it.";
    "log.cleaner.min.cleanable.ratio": Double = "0.5", ratio(1.0), Medium, ClusterWide, Served,
        "The share of a log that must be uncompacted before it is compacted again.";
    "log.cleaner.delete.retention.ms": Long = "86400000", at_least(0), Medium, ClusterWide, Served,
        "How long a compacted topic keeps the markers of deleted keys.";
    "log.cleaner.min.compaction.lag.ms": Long = "0", at_least(0), Medium, ClusterWide, Served,
        "For how long a record is certain not to be compacted away.";
    "log.cleaner.max.compaction.lag.ms": Long = "9223372036854775807", at_least(1), Medium, ClusterWide, Served,
        "After how long a record is certain to be looked at by compaction.";
}
