//! Values of a topic's settings for which Rust has no type.

use thalweg_log::CleanupPolicy;
use thalweg_metadata::{BrokerId, PartitionIndex};
use thalweg_record::TimestampType;

/// `compression.type`; the levels are settings of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionType {
    /// As the producer sent them.
    Producer,
    /// Without compression.
    Uncompressed,
    /// By gzip.
    Gzip,
    /// By snappy.
    Snappy,
    /// By lz4.
    Lz4,
    /// By zstd.
    Zstd,
}

impl CompressionType {
    /// The key's check knows the names.
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

/// How batches are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopicCompression {
    /// As the producer sent them.
    Producer,
    /// Without compression.
    Uncompressed,
    /// By gzip at this level; -1 is the codec's default.
    Gzip(i32),
    /// By snappy.
    Snappy,
    /// By lz4 at this level.
    Lz4(i32),
    /// By zstd at this level.
    Zstd(i32),
}

/// The replicas of a topic whose copying is throttled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThrottledReplicas {
    /// Every one.
    All,
    /// These: partition and broker, sorted.
    Some(Vec<(PartitionIndex, BrokerId)>),
}

impl ThrottledReplicas {
    /// The key's check has read the entries.
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

    /// True if a broker's replica of a partition is among them.
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
