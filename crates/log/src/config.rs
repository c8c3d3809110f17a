//! The settings of one log, with Kafka's names and defaults.
//!
//! Owns: the settings that affect how a partition is stored. Refuses: parsing and validation, which the
//! broker does; limits for producers, which the broker checks before an append.

use thalweg_record::TimestampType;

/// The treatment of old records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// `cleanup.policy` contains `delete`: old segments are deleted by age and size.
    pub delete: bool,
    /// `cleanup.policy` contains `compact`: only the last record of each key is kept.
    pub compact: bool,
}

impl CleanupPolicy {
    /// Old segments are deleted: Kafka's default.
    pub const DELETE: CleanupPolicy = CleanupPolicy { delete: true, compact: false };
    /// The log is compacted and never deleted.
    pub const COMPACT: CleanupPolicy = CleanupPolicy { delete: false, compact: true };
}

/// The settings of one log. Times are in milliseconds and sizes in bytes, as in Kafka; a negative retention
/// means "no limit".
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// `segment.bytes`: a segment is rolled before it grows past this.
    pub segment_bytes: u32,
    /// `segment.ms`: a segment is rolled when its records span more than this.
    pub segment_ms: i64,
    /// `segment.jitter.ms`: maximum reduction of `segment.ms`, random for each segment.
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`: a segment is rolled when one of its indexes would grow past this.
    pub segment_index_bytes: u32,
    /// `index.interval.bytes`: bytes written between two index entries.
    pub index_interval_bytes: u32,
    /// `retention.bytes`.
    pub retention_bytes: i64,
    /// `retention.ms`.
    pub retention_ms: i64,
    /// `file.delete.delay.ms`: time that a deleted segment keeps its `.deleted` name.
    pub file_delete_delay_ms: i64,
    /// `flush.messages`: sync after this many records; the default never does.
    pub flush_messages: i64,
    /// `flush.ms`: sync records older than this; the default never does.
    pub flush_ms: i64,
    /// `cleanup.policy`.
    pub cleanup_policy: CleanupPolicy,
    /// `delete.retention.ms`: time that a tombstone is kept after its key was compacted.
    pub delete_retention_ms: i64,
    /// `min.compaction.lag.ms`: records younger than this are not compacted.
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`: records older than this are compacted regardless of the dirty ratio.
    pub max_compaction_lag_ms: i64,
    /// `min.cleanable.dirty.ratio`: minimum dirty share of the log for a compaction.
    pub min_cleanable_dirty_ratio: f64,
    /// `message.timestamp.type`.
    pub message_timestamp_type: TimestampType,
    /// `producer.id.expiration.ms`, a setting of the broker: producers silent for longer are not loaded from
    /// a snapshot.
    pub producer_id_expiration_ms: i64,
    /// Bytes reserved ahead of the end of a growing segment; 0 disables reservation. Thalweg's own setting:
    /// it affects the cost of writes, and nothing that a reader of the file can see.
    pub preallocate_bytes: u32,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            segment_bytes: 1024 * 1024 * 1024,
            segment_ms: 7 * 24 * 60 * 60 * 1000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 * 1024 * 1024,
            index_interval_bytes: 4096,
            retention_bytes: -1,
            retention_ms: 7 * 24 * 60 * 60 * 1000,
            file_delete_delay_ms: 60_000,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            cleanup_policy: CleanupPolicy::DELETE,
            delete_retention_ms: 24 * 60 * 60 * 1000,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            min_cleanable_dirty_ratio: 0.5,
            message_timestamp_type: TimestampType::CreateTime,
            producer_id_expiration_ms: 24 * 60 * 60 * 1000,
            preallocate_bytes: 64 * 1024 * 1024,
        }
    }
}
