//! The configuration of one topic: its own overrides over the broker's defaults.

use std::collections::BTreeMap;

use thalweg_log::{CleanupPolicy, LogConfig};
use thalweg_record::TimestampType;

use super::error::ConfigError;
use super::key::{ConfigKey, Support};
use super::table;
use super::value::Value;
use super::values::Values;

/// What the broker's configuration says about topics that say nothing themselves, by topic key.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicDefaults {
    /// In the order of `table::topic_keys`.
    values: Vec<Option<Value>>,
}

impl TopicDefaults {
    pub(super) fn new(broker: &Values) -> Self {
        let values = table::topic_keys().iter().map(|key| inherited(key, broker).or_else(|| default(key)));
        Self { values: values.collect() }
    }

    /// The value that a topic inherits for `name`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values[position(name)?].as_ref()
    }

    /// The configuration of a topic with these overrides, and those that cannot be used: unknown or invalid ones, which
    /// only a newer controller can have let through.
    pub fn apply(&self, overrides: &BTreeMap<String, String>) -> (EffectiveTopicConfig, Vec<ConfigError>) {
        let (merged, errors) = self.merge(overrides);
        (EffectiveTopicConfig::new(&merged), errors)
    }

    /// Checks the overrides of a topic as a controller does before it writes them, in Kafka's order.
    pub fn validate(&self, overrides: &BTreeMap<String, String>) -> Result<(), ConfigError> {
        if let Some(name) = overrides.keys().find(|name| table::topic_key(name).is_none()) {
            return Err(ConfigError::UnknownTopicKey { name: name.clone() });
        }
        let (merged, mut errors) = self.merge(overrides);
        if !errors.is_empty() {
            return Err(errors.swap_remove(0));
        }
        let effective = EffectiveTopicConfig::new(&merged);
        let (min, max) = (effective.min_compaction_lag_ms, effective.max_compaction_lag_ms);
        if min > max {
            return Err(ConfigError::CompactionLags { min, max });
        }
        if effective.remote_storage_enable {
            return Err(ConfigError::RemoteStorage);
        }
        Ok(())
    }

    /// Checks the overrides of a request, where a value may be missing.
    pub fn validate_request(&self, overrides: &BTreeMap<String, Option<String>>) -> Result<(), ConfigError> {
        let names: Vec<_> =
            overrides.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| name.clone()).collect();
        if !names.is_empty() {
            return Err(ConfigError::NullTopicValues { names });
        }
        let given = overrides.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
        self.validate(&given.collect())
    }

    fn merge(&self, overrides: &BTreeMap<String, String>) -> (Self, Vec<ConfigError>) {
        let mut merged = self.clone();
        let mut errors = Vec::new();
        for (name, text) in overrides {
            let parsed = match position(name) {
                Some(at) => Value::parse(table::topic_keys()[at], text).map(|value| (at, value)),
                None => Err(ConfigError::UnknownTopicKey { name: name.clone() }),
            };
            match parsed {
                Ok((at, value)) => merged.values[at] = Some(value),
                Err(error) => errors.push(error),
            }
        }
        (merged, errors)
    }

    fn integer(&self, name: &str) -> i64 {
        match self.get(name) {
            Some(Value::Integer(number)) => *number,
            _ => panic!("{name} is a number with a default"),
        }
    }

    /// A number that its key's check keeps within 32 bits and above zero.
    fn size(&self, name: &str) -> u32 {
        u32::try_from(self.integer(name)).unwrap_or_else(|_| panic!("{name} is checked to be no less than 0"))
    }

    fn boolean(&self, name: &str) -> bool {
        matches!(self.get(name), Some(Value::Boolean(true)))
    }

    fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Some(Value::Text(text)) => text,
            _ => panic!("{name} is a text with a default"),
        }
    }

    fn list(&self, name: &str) -> &[String] {
        match self.get(name) {
            Some(Value::List(entries)) => entries,
            _ => panic!("{name} is a list with a default"),
        }
    }
}

fn position(name: &str) -> Option<usize> {
    table::topic_keys().binary_search_by(|key| key.name.cmp(name)).ok()
}

fn default(key: &ConfigKey) -> Option<Value> {
    Some(Value::parse(key, key.default?).expect("a test parses every default"))
}

/// The first of the broker's keys that has a value, in the topic key's unit.
fn inherited(key: &ConfigKey, broker: &Values) -> Option<Value> {
    let (value, factor) =
        key.falls_back.iter().find_map(|(name, factor)| Some((broker.get(name)?, factor)))?;
    Some(match value {
        // Kafka reads every negative retention as unlimited.
        Value::Integer(number) if *number < 0 && key.name == "retention.ms" => Value::Integer(-1),
        Value::Integer(number) => Value::Integer(number.saturating_mul(*factor)),
        other => other.clone(),
    })
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
    Some(Vec<(i32, i32)>),
}

impl ThrottledReplicas {
    /// The key's check has read the entries.
    fn of(entries: &[String]) -> Self {
        if entries.concat() == "*" {
            return Self::All;
        }
        let pair = |entry: &String| {
            let (partition, broker) = entry.split_once(':')?;
            Some((partition.parse().ok()?, broker.parse().ok()?))
        };
        let mut replicas: Vec<_> = entries.iter().filter_map(pair).collect();
        replicas.sort_unstable();
        Self::Some(replicas)
    }

    /// Whether a broker's replica of a partition is among them.
    pub fn contains(&self, partition: i32, broker: i32) -> bool {
        match self {
            Self::All => true,
            Self::Some(replicas) => replicas.binary_search(&(partition, broker)).is_ok(),
        }
    }
}

/// Every setting of a topic, resolved. Times are milliseconds as i64, because they are compared with timestamps of
/// records; `i64::MAX` stands for never.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectiveTopicConfig {
    /// `segment.bytes`, or `internal.segment.bytes`.
    pub segment_bytes: u32,
    /// `segment.ms`.
    pub segment_ms: i64,
    /// `segment.jitter.ms`.
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`.
    pub segment_index_bytes: u32,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u32,
    /// `flush.messages`.
    pub flush_messages: i64,
    /// `flush.ms`.
    pub flush_ms: i64,
    /// `retention.bytes`; None keeps everything.
    pub retention_bytes: Option<u64>,
    /// `retention.ms`; None keeps everything.
    pub retention_ms: Option<i64>,
    /// `cleanup.policy`.
    pub cleanup_policy: CleanupPolicy,
    /// `max.message.bytes`.
    pub max_message_bytes: u32,
    /// `min.insync.replicas`.
    pub min_insync_replicas: i32,
    /// `unclean.leader.election.enable`.
    pub unclean_leader_election_enable: bool,
    /// `compression.type` and its level.
    pub compression: TopicCompression,
    /// Whether `thalweg.produce.validation` wants every record of a producer's batch walked over.
    pub validates_records: bool,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// `min.cleanable.dirty.ratio`.
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`.
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`.
    pub max_compaction_lag_ms: i64,
    /// `file.delete.delay.ms`.
    pub file_delete_delay_ms: i64,
    /// `preallocate`.
    pub preallocate: bool,
    /// `leader.replication.throttled.replicas`.
    pub leader_throttled: ThrottledReplicas,
    /// `follower.replication.throttled.replicas`.
    pub follower_throttled: ThrottledReplicas,
    /// `remote.storage.enable`, which is refused.
    remote_storage_enable: bool,
}

impl EffectiveTopicConfig {
    fn new(values: &TopicDefaults) -> Self {
        let policy = values.list("cleanup.policy");
        let has = |name: &str| policy.iter().any(|entry| entry == name);
        let internal_segment_bytes = match values.get("internal.segment.bytes") {
            Some(Value::Integer(bytes)) => u32::try_from(*bytes).ok(),
            _ => None,
        };
        Self {
            segment_bytes: internal_segment_bytes.unwrap_or_else(|| values.size("segment.bytes")),
            segment_ms: values.integer("segment.ms"),
            segment_jitter_ms: values.integer("segment.jitter.ms"),
            segment_index_bytes: values.size("segment.index.bytes"),
            index_interval_bytes: values.size("index.interval.bytes"),
            flush_messages: values.integer("flush.messages"),
            flush_ms: values.integer("flush.ms"),
            retention_bytes: u64::try_from(values.integer("retention.bytes")).ok(),
            retention_ms: Some(values.integer("retention.ms")).filter(|ms| *ms >= 0),
            cleanup_policy: CleanupPolicy { delete: has("delete"), compact: has("compact") },
            max_message_bytes: values.size("max.message.bytes"),
            min_insync_replicas: i32::try_from(values.integer("min.insync.replicas")).unwrap_or(i32::MAX),
            unclean_leader_election_enable: values.boolean("unclean.leader.election.enable"),
            compression: compression(values),
            validates_records: values.text("thalweg.produce.validation") == "records",
            timestamp_type: match values.text("message.timestamp.type") {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            timestamp_before_max_ms: values.integer("message.timestamp.before.max.ms"),
            timestamp_after_max_ms: values.integer("message.timestamp.after.max.ms"),
            delete_retention_ms: values.integer("delete.retention.ms"),
            min_cleanable_dirty_ratio: match values.get("min.cleanable.dirty.ratio") {
                Some(Value::Double(ratio)) => *ratio,
                _ => panic!("min.cleanable.dirty.ratio is a DOUBLE with a default"),
            },
            min_compaction_lag_ms: values.integer("min.compaction.lag.ms"),
            max_compaction_lag_ms: values.integer("max.compaction.lag.ms"),
            file_delete_delay_ms: values.integer("file.delete.delay.ms"),
            preallocate: values.boolean("preallocate"),
            leader_throttled: ThrottledReplicas::of(values.list("leader.replication.throttled.replicas")),
            follower_throttled: ThrottledReplicas::of(values.list("follower.replication.throttled.replicas")),
            remote_storage_enable: values.boolean("remote.storage.enable"),
        }
    }

    /// What of this the partition's log needs. What the broker adds of its own is in [`super::BrokerConfig::log_config`].
    pub(super) fn log_config(&self) -> LogConfig {
        let by_default = LogConfig::default();
        LogConfig {
            segment_bytes: self.segment_bytes,
            segment_ms: self.max_segment_ms(),
            segment_jitter_ms: self.segment_jitter_ms,
            segment_index_bytes: self.segment_index_bytes,
            index_interval_bytes: self.index_interval_bytes,
            retention_bytes: self
                .retention_bytes
                .map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
            retention_ms: self.retention_ms.unwrap_or(-1),
            file_delete_delay_ms: self.file_delete_delay_ms,
            flush_messages: self.flush_messages,
            flush_ms: self.flush_ms,
            cleanup_policy: self.cleanup_policy,
            delete_retention_ms: self.delete_retention_ms,
            min_compaction_lag_ms: self.min_compaction_lag_ms,
            max_compaction_lag_ms: self.max_compaction_lag_ms,
            min_cleanable_dirty_ratio: self.min_cleanable_dirty_ratio,
            message_timestamp_type: self.timestamp_type,
            producer_id_expiration_ms: by_default.producer_id_expiration_ms,
            preallocate_bytes: if self.preallocate {
                self.segment_bytes
            } else {
                by_default.preallocate_bytes
            },
        }
    }

    /// The age at which a segment is closed: a compacted topic may not keep its newest records from compaction for
    /// longer than `max.compaction.lag.ms`.
    pub fn max_segment_ms(&self) -> i64 {
        match self.cleanup_policy.compact {
            true => self.segment_ms.min(self.max_compaction_lag_ms),
            false => self.segment_ms,
        }
    }
}

fn compression(values: &TopicDefaults) -> TopicCompression {
    let level = |codec: &str| {
        let level = values.integer(&format!("compression.{codec}.level"));
        i32::try_from(level).expect("the key's check keeps the level small")
    };
    match values.text("compression.type") {
        "uncompressed" => TopicCompression::Uncompressed,
        "gzip" => TopicCompression::Gzip(level("gzip")),
        "snappy" => TopicCompression::Snappy,
        "lz4" => TopicCompression::Lz4(level("lz4")),
        "zstd" => TopicCompression::Zstd(level("zstd")),
        _ => TopicCompression::Producer,
    }
}

/// What a topic's overrides ask for in vain, for a warning in the log: key and reason.
pub fn without_effect(overrides: &BTreeMap<String, String>) -> Vec<(&'static str, &'static str)> {
    let keys = overrides.iter().filter_map(|(name, text)| {
        let key = table::topic_key(name)?;
        (key.default != Some(text.as_str())).then_some(key)
    });
    keys.filter_map(|key| match key.support {
        Support::Served | Support::Opening => None,
        Support::Accepted(reason) | Support::Unserved(reason) => Some((key.name, reason)),
    })
    .collect()
}
