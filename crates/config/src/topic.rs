//! The configuration of one topic: its overrides over the broker's defaults.

use std::collections::BTreeMap;

use thalweg_log::LogConfig;

use super::error::ConfigError;
use super::key::{ConfigKey, Support};
use super::setting::Setting;
use super::table::{self, EffectiveTopicConfig};
use super::topic_value::{CompressionType, TopicCompression};
use super::value::Value;
use super::values::Values;

/// The broker's values for topics without overrides, by topic key.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicDefaults {
    values: Values,
}

impl TopicDefaults {
    pub(super) fn new(broker: &Values) -> Self {
        let inherited =
            |key: &&'static ConfigKey| inherited(key, broker).or_else(|| Value::default_of(key, false));
        Self { values: Values::new(table::topic_keys(), inherited) }
    }

    /// The value that a topic inherits for a key, by the key's name.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.named(name)
    }

    /// The configuration of a topic with these overrides, and errors for unknown or invalid overrides, which
    /// only a newer controller can have accepted.
    pub fn apply(&self, overrides: &BTreeMap<String, String>) -> (EffectiveTopicConfig, Vec<ConfigError>) {
        let (merged, errors) = self.merge(overrides);
        (EffectiveTopicConfig::of(&merged), errors)
    }

    /// Checks the overrides of a topic before they are written, in Kafka's order.
    pub fn validate(&self, overrides: &BTreeMap<String, String>) -> Result<(), ConfigError> {
        if let Some(name) = overrides.keys().find(|name| table::topic_key(name).is_none()) {
            return Err(ConfigError::UnknownTopicKey { name: name.clone() });
        }
        let (merged, mut errors) = self.merge(overrides);
        if !errors.is_empty() {
            return Err(errors.swap_remove(0));
        }
        let effective = EffectiveTopicConfig::of(&merged);
        let (min, max) = (effective.min_compaction_lag_ms, effective.max_compaction_lag_ms);
        if min > max {
            return Err(ConfigError::CompactionLags { min, max });
        }
        if effective.remote_storage_enable {
            return Err(ConfigError::RemoteStorage);
        }
        Ok(())
    }

    /// Checks the overrides of a request, in which a value may be missing.
    pub fn validate_request(&self, overrides: &BTreeMap<String, Option<String>>) -> Result<(), ConfigError> {
        let names: Vec<_> =
            overrides.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| name.clone()).collect();
        if !names.is_empty() {
            return Err(ConfigError::NullTopicValues { names });
        }
        let given = overrides.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
        self.validate(&given.collect())
    }

    fn merge(&self, overrides: &BTreeMap<String, String>) -> (Values, Vec<ConfigError>) {
        let mut merged = self.values.clone();
        let mut errors = Vec::new();
        for (name, text) in overrides {
            let set = match table::topic_key(name) {
                Some(key) => merged.set(key, text),
                None => Err(ConfigError::UnknownTopicKey { name: name.clone() }),
            };
            errors.extend(set.err());
        }
        (merged, errors)
    }
}

impl<T> Setting<T> {
    /// Parses a topic setting that was set at run time; `None` if the key's check refuses it.
    pub fn parse_for_topic(self, text: &str) -> Option<T> {
        let key = table::topic_key(self.name())?;
        Some(self.read(Some(&Value::parse(key, text).ok()?), key.unit))
    }
}

/// The value of the first set broker key, in the topic key's unit.
fn inherited(key: &ConfigKey, broker: &Values) -> Option<Value> {
    let (value, factor) =
        key.falls_back.iter().find_map(|(name, factor)| Some((broker.named(name)?, factor)))?;
    Some(match value {
        // Kafka reads every negative retention as unlimited.
        Value::Integer(number) if *number < 0 && key.name == EffectiveTopicConfig::retention_ms.name() => {
            Value::Integer(-1)
        }
        Value::Integer(number) => Value::Integer(number.saturating_mul(*factor)),
        other => other.clone(),
    })
}

impl EffectiveTopicConfig {
    fn of(values: &Values) -> Self {
        let mut config = Self::from(values);
        if let Some(bytes) = config.internal_segment_bytes {
            config.segment_bytes = bytes;
        }
        config
    }

    /// The topic's part of a partition's log settings. [`super::BrokerConfig::log_config`] adds the broker's
    /// part.
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

    /// `compression.type` with the level of the codec.
    pub fn compression(&self) -> TopicCompression {
        match self.compression_type {
            CompressionType::Producer => TopicCompression::Producer,
            CompressionType::Uncompressed => TopicCompression::Uncompressed,
            CompressionType::Gzip => TopicCompression::Gzip(self.gzip_level),
            CompressionType::Snappy => TopicCompression::Snappy,
            CompressionType::Lz4 => TopicCompression::Lz4(self.lz4_level),
            CompressionType::Zstd => TopicCompression::Zstd(self.zstd_level),
        }
    }

    /// The age at which a segment is closed. A compacted topic must not keep its newest records from
    /// compaction for longer than `max.compaction.lag.ms`.
    pub fn max_segment_ms(&self) -> i64 {
        match self.cleanup_policy.compact {
            true => self.segment_ms.min(self.max_compaction_lag_ms),
            false => self.segment_ms,
        }
    }
}

/// A topic's overrides without effect, for warnings in the log: key and reason.
pub fn without_effect(overrides: &BTreeMap<String, String>) -> Vec<(&'static str, &'static str)> {
    let keys = overrides.iter().filter_map(|(name, text)| {
        let key = table::topic_key(name)?;
        (key.default != Some(text.as_str())).then_some(key)
    });
    keys.filter_map(|key| match key.support {
        Support::Accepted(reason) | Support::Unserved(reason) => Some((key.name, reason)),
        _ => None,
    })
    .collect()
}
