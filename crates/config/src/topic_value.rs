//! Types of topic settings.

use thalweg_log::CleanupPolicy;
use thalweg_metadata::{BrokerId, PartitionIndex};
use thalweg_record::TimestampType;

/// `compression.type`; the levels are separate settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionType {
    /// The producer's codec, unchanged.
    Producer,
    Uncompressed,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl CompressionType {
    /// Parses a name that the key's check has accepted.
    pub(super) fn of(name: String) -> Self {
        match name.as_str() {
            "uncompressed" => Self::Uncompressed,
            "gzip" => Self::Gzip,
            "snappy" => Self::Snappy,
            "lz4" => Self::Lz4,
            "zstd" => Self::Zstd,
            _ => Self::Producer,
        }
    }
}

/// Compression of stored batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopicCompression {
    /// The producer's codec, unchanged.
    Producer,
    Uncompressed,
    /// gzip at this level; -1 is the codec's default.
    Gzip(i32),
    /// snappy, which has no levels.
    Snappy,
    /// lz4 at this level.
    Lz4(i32),
    /// zstd at this level.
    Zstd(i32),
}

/// The throttled replicas of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThrottledReplicas {
    All,
    /// These replicas by partition and broker, sorted.
    Some(Vec<(PartitionIndex, BrokerId)>),
}

impl ThrottledReplicas {
    /// Parses entries that the key's check has accepted.
    pub(super) fn of(entries: Vec<String>) -> Self {
        if entries.concat() == "*" {
            return Self::All;
        }
        let pair = |entry: &String| {
            let (partition, broker) = entry.split_once(':')?;
            Some((PartitionIndex(partition.parse().ok()?), BrokerId(broker.parse().ok()?)))
        };
        let mut replicas: Vec<_> = entries.iter().filter_map(pair).collect();
        replicas.sort_unstable();
        Self::Some(replicas)
    }

    /// True if a broker's replica of a partition is throttled.
    pub fn contains(&self, partition: PartitionIndex, broker: BrokerId) -> bool {
        match self {
            Self::All => true,
            Self::Some(replicas) => replicas.binary_search(&(partition, broker)).is_ok(),
        }
    }
}

pub(super) fn cleanup_policy(entries: Vec<String>) -> CleanupPolicy {
    let has = |name: &str| entries.iter().any(|entry| entry == name);
    CleanupPolicy { delete: has("delete"), compact: has("compact") }
}

pub(super) fn timestamp_type(name: String) -> TimestampType {
    match name.as_str() {
        "LogAppendTime" => TimestampType::LogAppendTime,
        _ => TimestampType::CreateTime,
    }
}
