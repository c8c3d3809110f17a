//! Configuration of groups and of client metrics subscriptions.
//!
//! Checked, stored and described as in Kafka, so that Kafka's tools can manage it.

use std::collections::BTreeMap;

use super::broker::BrokerConfig;
use super::describe::{ConfigSource, DescribedConfig, DescribedSynonym, KeySelection, is_wanted};
use super::error::ConfigError;
use super::key::ConfigKey;
use super::table::{self, ClientMetricsSettings, EffectiveGroupConfig};
use super::value::Value;
use super::values::Values;

type Overrides = BTreeMap<String, String>;

/// Client properties that subscriptions can match.
const MATCHED: &[&str] = &[
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
];

/// A value beyond a bound.
struct BoundViolation {
    bound: i64,
    error: ConfigError,
}

impl BrokerConfig {
    /// Checks the configuration of a group: keys, values, and the broker's bounds.
    pub fn validate_group(&self, overrides: &Overrides) -> Result<(), ConfigError> {
        if let Some(name) = overrides.keys().find(|name| table::group_key(name).is_none()) {
            return Err(ConfigError::UnknownGroupKey { name: name.clone() });
        }
        let mut errors = Vec::new();
        let values = Values::new(table::group_keys(), |key| {
            let given = overrides.get(key.name).map(|text| Value::parse(key, text)).transpose();
            given.map_err(|error| errors.push(error)).ok().flatten().or_else(|| self.inherited(key))
        });
        if !errors.is_empty() {
            return Err(errors.swap_remove(0));
        }
        for key in table::group_keys() {
            if let Some(out) = values.named(key.name).and_then(|value| self.out_of_bounds(key, value)) {
                return Err(out.error);
            }
        }
        for (session, heartbeat) in [
            (
                EffectiveGroupConfig::consumer_session_timeout_ms,
                EffectiveGroupConfig::consumer_heartbeat_interval_ms,
            ),
            (
                EffectiveGroupConfig::share_session_timeout_ms,
                EffectiveGroupConfig::share_heartbeat_interval_ms,
            ),
            (
                EffectiveGroupConfig::streams_session_timeout_ms,
                EffectiveGroupConfig::streams_heartbeat_interval_ms,
            ),
        ] {
            if values.get(session) <= values.get(heartbeat) {
                let (name, bound) = (session.name().to_owned(), heartbeat.name().to_owned());
                return Err(ConfigError::GroupBound { name, relation: "greater than", bound });
            }
        }
        Ok(())
    }

    /// The settings of a group with these overrides, and errors for overrides that do not apply: an invalid
    /// value counts as not set, and a value beyond the broker's bounds is replaced by the bound, as in Kafka.
    /// A controller rejects both, but the broker's bounds may have changed since.
    pub fn group(&self, overrides: &Overrides) -> (EffectiveGroupConfig, Vec<ConfigError>) {
        let mut errors = Vec::new();
        let values = Values::new(table::group_keys(), |key| {
            let given = overrides.get(key.name).map(|text| Value::parse(key, text)).transpose();
            let given = given.map_err(|error| errors.push(error)).ok().flatten();
            let given = given.map(|value| match self.out_of_bounds(key, &value) {
                Some(out) => {
                    errors.push(out.error);
                    Value::Integer(out.bound)
                }
                None => value,
            });
            given.or_else(|| self.inherited(key))
        });
        (EffectiveGroupConfig::from(&values), errors)
    }

    /// Replaces values of a dynamic layer beyond the bounds of the broker's file by these bounds, as Kafka
    /// does: the values were checked when set, but the file may have changed since.
    pub(super) fn keep_bounds(&self, layer: &mut Overrides, errors: &mut Vec<ConfigError>) {
        for (name, text) in layer {
            let Some(key) = table::broker_key(name) else { continue };
            let Some(out) = Value::parse(key, text).ok().and_then(|value| self.out_of_bounds(key, &value))
            else {
                continue;
            };
            errors.push(out.error);
            *text = out.bound.to_string();
        }
    }

    /// The broker's bound that a value violates, if any.
    fn out_of_bounds(&self, key: &ConfigKey, value: &Value) -> Option<BoundViolation> {
        let Value::Integer(value) = value else { return None };
        let bound = |name: Option<&'static str>| match self.values.named(name?) {
            Some(Value::Integer(number)) => Some((*number, name?)),
            _ => None,
        };
        let fails = |relation, (bound, bound_key): (i64, &str)| {
            let (name, bound_key) = (key.name.to_owned(), bound_key.to_owned());
            Some(BoundViolation {
                bound,
                error: ConfigError::GroupBound { name, relation, bound: bound_key },
            })
        };
        let (least, largest) = table::bounds(key);
        match (bound(least), bound(largest)) {
            (Some(min), _) if *value < min.0 => fails("greater than or equal to", min),
            (_, Some(max)) if *value > max.0 => fails("less than or equal to", max),
            _ => None,
        }
    }

    /// The configuration of a group with these overrides.
    pub fn describe_group(&self, overrides: &Overrides, wanted: KeySelection<'_>) -> Vec<DescribedConfig> {
        let keys = table::group_keys().iter().filter(|key| is_wanted(wanted, key.name));
        keys.map(|key| self.describe_group_key(key, overrides)).collect()
    }

    fn describe_group_key(&self, key: &ConfigKey, overrides: &Overrides) -> DescribedConfig {
        let given = overrides.get(key.name).and_then(|text| Value::parse(key, text).ok());
        let mut synonyms: Vec<_> =
            given.iter().map(|value| synonym(key, value, ConfigSource::Group)).collect();
        match key.falls_back.first() {
            Some((broker_key, _)) => synonyms.extend(self.synonyms(broker_key)),
            None => {
                synonyms.extend(self.inherited(key).map(|value| synonym(key, &value, ConfigSource::Default)))
            }
        }
        let value = given.or_else(|| self.inherited(key));
        described(key, value.as_ref(), synonyms)
    }

    /// The value of a group without an override.
    fn inherited(&self, key: &ConfigKey) -> Option<Value> {
        let of_broker = key.falls_back.iter().find_map(|(name, _)| self.values.named(name).cloned());
        of_broker.or_else(|| Value::default_of(key, false))
    }
}

/// Checks a client metrics subscription. Patterns are not checked further, because only clients match them.
pub fn validate_client_metrics(name: &str, overrides: &Overrides) -> Result<(), ConfigError> {
    if name.is_empty() {
        return Err(ConfigError::UnnamedSubscription);
    }
    if let Some(name) = overrides.keys().find(|name| table::client_metrics_key(name).is_none()) {
        return Err(ConfigError::UnknownClientMetricsKey { name: name.clone() });
    }
    for key in table::client_metrics_keys() {
        let Some(text) = overrides.get(key.name) else { continue };
        match Value::parse(key, text)? {
            Value::Integer(interval_ms)
                if key.name == ClientMetricsSettings::interval_ms.name()
                    && !(100..=3_600_000).contains(&interval_ms) =>
            {
                return Err(ConfigError::ClientMetricsInterval { interval_ms });
            }
            Value::List(entries) if key.name == ClientMetricsSettings::matches.name() => {
                let legal = |entry: &str| {
                    let pair = entry.split_once('=');
                    pair.is_some_and(|(name, pattern)| {
                        MATCHED.contains(&name.trim()) && !pattern.trim().is_empty()
                    })
                };
                if let Some(wrong) = entries.into_iter().find(|entry| !legal(entry)) {
                    return Err(ConfigError::ClientMatch { pattern: wrong });
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The settings of a client metrics subscription. Invalid values count as not set.
pub fn client_metrics(overrides: &Overrides) -> ClientMetricsSettings {
    ClientMetricsSettings::from(&Values::parse(table::client_metrics_keys(), overrides, false).0)
}

/// Describes a client metrics subscription.
pub fn describe_client_metrics(overrides: &Overrides, wanted: KeySelection<'_>) -> Vec<DescribedConfig> {
    let keys = table::client_metrics_keys().iter().filter(|key| is_wanted(wanted, key.name));
    keys.map(|key| {
        let given = overrides.get(key.name).and_then(|text| Value::parse(key, text).ok());
        let synonyms = given.iter().map(|value| synonym(key, value, ConfigSource::ClientMetrics)).collect();
        described(key, given.or_else(|| Value::default_of(key, false)).as_ref(), synonyms)
    })
    .collect()
}

fn synonym(key: &ConfigKey, value: &Value, source: ConfigSource) -> DescribedSynonym {
    DescribedSynonym { name: key.name.to_owned(), value: Some(value.to_string()), source }
}

fn described(key: &ConfigKey, value: Option<&Value>, synonyms: Vec<DescribedSynonym>) -> DescribedConfig {
    DescribedConfig {
        name: key.name.to_owned(),
        value: value.map(ToString::to_string),
        source: synonyms.first().map_or(ConfigSource::Default, |synonym| synonym.source),
        config_type: key.config_type,
        is_sensitive: false,
        read_only: false,
        synonyms,
        documentation: Some(key.documentation),
    }
}
