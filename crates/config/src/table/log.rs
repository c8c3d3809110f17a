//! Keys of the log on disk and of its cleaner.
//!
//! An entry per key; `table::declare` documents the format.
//! Facts are compared with Kafka in `table::tests`.

use std::path::PathBuf;
use std::time::Duration;

use super::declare::settings;
use super::reason::{BEFORE_IMAGE, CLEANER_BUFFERS, CLEANER_LOAD, CORDON, DIRS};
use crate::check::{ANY, FILLED_LIST, FILLED_LIST_OR_NULL, LIST_OR_NULL, at_least, list_of, one_of, ratio};
use crate::key::Support::{Accepted, FromFile, Served, Unserved};
use crate::setting::millis_unless_max;

settings! {
    /// Data directories, and broker-wide work on logs.
    LogSettings, LOG "Log";

    "log.dirs": List = null, FILLED_LIST_OR_NULL, High, ReadOnly, Served => dirs: Option<Vec<PathBuf>>,
        "The data directories, separated by commas; `log.dir` is used if this is not set.";
    "log.dir": List = "./thalweg-data", FILLED_LIST, High, ReadOnly, Served => dir: Vec<PathBuf>,
        "The data directory, if `log.dirs` is not set.",
        differs = "Kafka's default is in /tmp, which a reboot may empty.";
    "cordoned.log.dirs": List = "", LIST_OR_NULL, Medium, PerBroker, Unserved(CORDON),
        "Data directories that get no new partitions.";
    "log.dir.failure.timeout.ms": Long[Ms] = "30000", at_least(1), Low, ReadOnly, Accepted(DIRS),
        "How long a broker tries to report a failed data directory to the controller before it stops.";
    "log.segment.bytes": Int[Bytes] = "1073741824", at_least(1048576), High, ClusterWide, Served => segment_bytes,
        "Size at which a segment is closed and the next begun; topics override it with `segment.bytes`.";
    "log.roll.ms": Long[Ms] = null, ANY, High, ClusterWide, Served => roll_ms,
        "Age at which a segment is closed even when it is not full.";
    "log.roll.hours": Int[Hours] = "168", at_least(1), High, ReadOnly, Served => roll_hours,
        "The same in hours, when `log.roll.ms` is not set.";
    "log.roll.jitter.ms": Long[Ms] = null, ANY, High, ClusterWide, Served => roll_jitter_ms,
        "The maximum that is randomly subtracted from that age, so that partitions do not roll at the same time.";
    "log.roll.jitter.hours": Int[Hours] = "0", at_least(0), High, ReadOnly, Served => roll_jitter_hours,
        "The same in hours, when `log.roll.jitter.ms` is not set.";
    "log.retention.ms": Long[Ms] = null, ANY, High, ClusterWide, Served => retention_ms,
        "Age at which closed segments are deleted; -1 keeps them for ever.";
    "log.retention.minutes": Int[Minutes] = null, ANY, High, ReadOnly, Served => retention_minutes,
        "The same in minutes, when `log.retention.ms` is not set.";
    "log.retention.hours": Int[Hours] = "168", ANY, High, ReadOnly, Served => retention_hours,
        "The same in hours, when neither of the others is set.";
    "log.retention.bytes": Long[Bytes] = "-1", ANY, High, ClusterWide, Served => retention_bytes,
        "Size of a partition above which its oldest segments are deleted; a negative value sets no limit.";
    "log.retention.check.interval.ms": Long[Ms] = "300000", at_least(1), Medium, ReadOnly, Served => retention_check_interval: Duration,
        "How often segments are checked for deletion.";
    "log.cleanup.policy": List = "delete", list_of(&["compact", "delete"]), Medium, ClusterWide, Served => cleanup_policy,
        "How old segments are cleaned up: `delete` by age and size, `compact` to the newest record per key, both, or neither if empty.";
    "log.index.size.max.bytes": Int[Bytes] = "10485760", at_least(4), Medium, ClusterWide, Served => index_size_max_bytes,
        "The largest offset index of a segment; a full index closes the segment.";
    "log.index.interval.bytes": Int[Bytes] = "4096", at_least(0), Medium, ClusterWide, Served => index_interval_bytes,
        "The bytes of batches between two entries of the offset index.";
    "log.flush.interval.messages": Long = "9223372036854775807", at_least(1), High, ClusterWide, Served => flush_interval_messages,
        "The number of records after which a partition is flushed to disk before it answers; the default leaves flushing to the operating system.";
    "log.flush.interval.ms": Long[Ms] = null, ANY, High, ClusterWide, Served => flush_interval_ms,
        "How long a record may wait for a flush to disk; by default `log.flush.scheduler.interval.ms`.";
    "log.flush.scheduler.interval.ms": Long[Ms] = "9223372036854775807", ANY, High, ReadOnly, Served => flush_check_interval: Option<Duration> = millis_unless_max,
        "How often partitions are checked for a due flush.";
    "log.flush.offset.checkpoint.interval.ms": Int[Ms] = "60000", at_least(0), High, ReadOnly, Served => recovery_point_checkpoint_interval: Duration,
        "How often the recovery points are written to disk.";
    "log.flush.start.offset.checkpoint.interval.ms": Int[Ms] = "60000", at_least(0), High, ReadOnly, Served => start_offset_checkpoint_interval: Duration,
        "How often the log start offsets are written to disk.";
    "log.segment.delete.delay.ms": Long[Ms] = "60000", at_least(0), High, ClusterWide, Served => segment_delete_delay_ms,
        "How long a deleted segment's files stay on disk under another name, for active readers.";
    "log.preallocate": Boolean = "false", ANY, Medium, ClusterWide, Served => preallocate,
        "Whether disk space for a whole segment is reserved at its start; otherwise incrementally.";
    "log.initial.task.delay.ms": Long[Ms] = "30000", at_least(0), Low, ReadOnly, Served => initial_task_delay: Duration,
        "The delay after the start before retention, flushing and checkpoints first run.", internal;
    "log.message.timestamp.type": String = "CreateTime", one_of(&["CreateTime", "LogAppendTime"]), Medium, ClusterWide, Served => message_timestamp_type,
        "Whether a record keeps its producer's timestamp (`CreateTime`) or gets the broker's (`LogAppendTime`).";
    "log.message.timestamp.before.max.ms": Long[Ms] = "9223372036854775807", at_least(0), Medium, ClusterWide, Served => message_timestamp_before_max_ms,
        "How far a record's timestamp may be behind the broker's clock before it is refused.";
    "log.message.timestamp.after.max.ms": Long[Ms] = "3600000", at_least(0), Medium, ClusterWide, Served => message_timestamp_after_max_ms,
        "How far a record's timestamp may be ahead of the broker's clock before it is refused.";
    "num.recovery.threads.per.data.dir": Int = "2", at_least(1), High, ClusterWide, FromFile(BEFORE_IMAGE) => recovery_threads_per_dir: usize,
        "How many threads per data directory open and check the logs at start.";
    "num.replica.alter.log.dirs.threads": Int = null, ANY, High, ReadOnly, Served => move_threads: Option<usize> = move_threads,
        "How many partitions are copied between data directories at a time; by default the number of directories.";
    "producer.id.expiration.ms": Int[Ms] = "86400000", at_least(1), Low, ClusterWide, Served => producer_id_expiration: Duration,
        "How long a partition remembers an inactive idempotent producer.";
    "producer.id.expiration.check.interval.ms": Int[Ms] = "600000", at_least(1), Low, ReadOnly, Served => producer_id_expiration_check_interval: Duration,
        "How often inactive producers are removed.", internal;
}

settings! {
    /// Broker-wide settings of compaction.
    CleanerSettings, CLEANER "Log cleaner";

    "log.cleaner.enable": Boolean = "true", ANY, Medium, ReadOnly, Served => enable: bool,
        "Whether compaction runs at all.";
    "log.cleaner.threads": Int = "1", at_least(0), Medium, ClusterWide, Served => threads: usize,
        "The number of compaction threads.";
    "log.cleaner.io.max.bytes.per.second": Double[BytesPerSecond] = "1.7976931348623157E308", ANY, Medium, ClusterWide, Served => io_bytes_per_second: f64,
        "The bytes per second that all cleaner threads together may read and write.";
    "log.cleaner.dedupe.buffer.size": Long[Bytes] = "134217728", ANY, Medium, ClusterWide, Served => dedupe_buffer_bytes: usize,
        "Memory for the map from keys to offsets, for all cleaner threads.";
    "log.cleaner.io.buffer.size": Int[Bytes] = "524288", at_least(0), Medium, ClusterWide, Accepted(CLEANER_BUFFERS),
        "Memory for reading and writing, for all cleaner threads.";
    "log.cleaner.io.buffer.load.factor": Double = "0.9", ANY, Medium, ClusterWide, Accepted(CLEANER_LOAD),
        "How full the map of keys may become before a pass ends.";
    "log.cleaner.backoff.ms": Long[Ms] = "15000", at_least(0), Medium, ClusterWide, Served => backoff: Duration,
        "How long a cleaner thread sleeps when no log needs it.";
    "log.cleaner.min.cleanable.ratio": Double = "0.5", ratio(1.0), Medium, ClusterWide, Served => min_cleanable_ratio,
        "The share of a log that must be uncompacted before it is compacted again.";
    "log.cleaner.delete.retention.ms": Long[Ms] = "86400000", at_least(0), Medium, ClusterWide, Served => delete_retention_ms,
        "How long a compacted topic keeps the markers of deleted keys.";
    "log.cleaner.min.compaction.lag.ms": Long[Ms] = "0", at_least(0), Medium, ClusterWide, Served => min_compaction_lag_ms,
        "The minimum time before a record may be compacted away.";
    "log.cleaner.max.compaction.lag.ms": Long[Ms] = "9223372036854775807", at_least(1), Medium, ClusterWide, Served => max_compaction_lag_ms,
        "The maximum time before a record is compacted.";
}

/// Negative values count as 1. Zero is raised to 1 where the setting is used.
fn move_threads(threads: Option<i64>) -> Option<usize> {
    threads.map(|threads| usize::try_from(threads).unwrap_or(1))
}
