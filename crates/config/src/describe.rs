//! DescribeConfigs: the value of every key, its source, and the other values set for it.

use std::collections::{BTreeMap, BTreeSet};

use super::broker::BrokerConfig;
use super::key::{ConfigKey, ConfigType, Support};
use super::rules;
use super::table;

/// The source of a value, numbered as in DescribeConfigs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigSource {
    /// Set for the topic.
    DynamicTopic = 1,
    /// Set for this broker at run time.
    DynamicBroker = 2,
    /// Set for all brokers at run time.
    DynamicDefaultBroker = 3,
    /// Set in the broker's file.
    StaticBroker = 4,
    /// Not set: the default applies.
    Default = 5,
    /// The level of a logger.
    BrokerLogger = 6,
    /// Set for a client metrics subscription.
    ClientMetrics = 7,
    /// Set for the group.
    Group = 8,
}

impl ConfigSource {
    /// The number of the source in DescribeConfigs.
    pub const fn code(self) -> i8 {
        self as i8
    }
}

/// A value set for a key or for a key on which it falls back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedSynonym {
    /// Name of the key that is set.
    pub name: String,
    /// The value as text; `None` for a secret.
    pub value: Option<String>,
    /// The source of the value.
    pub source: ConfigSource,
}

/// A key in an answer of DescribeConfigs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedConfig {
    pub name: String,
    /// The effective value; `None` for null and for a secret.
    pub value: Option<String>,
    /// The source of the effective value.
    pub source: ConfigSource,
    /// Type of the key.
    pub config_type: ConfigType,
    /// True if the value is hidden.
    pub is_sensitive: bool,
    /// True if a change requires a restart.
    pub read_only: bool,
    /// Every value that is set, by descending priority.
    pub synonyms: Vec<DescribedSynonym>,
    /// The key's documentation; `None` for an unknown key.
    pub documentation: Option<&'static str>,
}

/// The requested key names.
pub type WantedKeys<'a> = BTreeSet<&'a str>;
/// The requested key names; `None` for all.
pub type KeySelection<'a> = Option<&'a WantedKeys<'a>>;

pub(super) fn is_wanted(wanted: KeySelection<'_>, name: &str) -> bool {
    wanted.is_none_or(|names| names.contains(name))
}

impl BrokerConfig {
    /// The configuration of a topic with these overrides.
    pub fn describe_topic(
        &self,
        overrides: &BTreeMap<String, String>,
        wanted: KeySelection<'_>,
    ) -> Vec<DescribedConfig> {
        let keys = table::topic_keys().iter().filter(|key| is_wanted(wanted, key.name));
        let keys = keys.filter(|key| !key.internal || overrides.contains_key(key.name));
        keys.map(|key| self.describe_topic_key(key, overrides)).collect()
    }

    fn describe_topic_key(&self, key: &ConfigKey, overrides: &BTreeMap<String, String>) -> DescribedConfig {
        let parsed = overrides.get(key.name).and_then(|text| super::value::Value::parse(key, text).ok());
        let value = parsed.as_ref().or_else(|| self.topic_defaults.value(key.name)).map(ToString::to_string);
        let mut synonyms = Vec::new();
        if parsed.is_some() {
            let name = key.name.to_owned();
            synonyms.push(DescribedSynonym {
                name,
                value: value.clone(),
                source: ConfigSource::DynamicTopic,
            });
        }
        if let Some((broker_name, _)) = key.falls_back.first() {
            synonyms.extend(self.synonyms(broker_name));
        }
        DescribedConfig {
            name: key.name.to_owned(),
            value,
            source: synonyms.first().map_or(ConfigSource::Default, |synonym| synonym.source),
            config_type: key.config_type,
            is_sensitive: false,
            read_only: false,
            synonyms,
            documentation: Some(key.documentation),
        }
    }

    /// The configuration of this broker. Unserved keys appear only if they are set.
    pub fn describe_broker(&self, wanted: KeySelection<'_>) -> Vec<DescribedConfig> {
        let layers = [&self.layers.file, &self.layers.cluster, &self.layers.broker];
        let is_set = |name: &str| layers.iter().any(|layer| layer.contains_key(name));
        let is_shown = |key: &ConfigKey| {
            !key.internal
                && !matches!(key.support, Support::Unserved(_) | Support::Startup | Support::Opening)
        };
        let known =
            table::broker_keys().iter().filter(|key| is_shown(key) || is_set(key.name)).map(|key| key.name);
        let unknown = layers.into_iter().flat_map(BTreeMap::keys).map(String::as_str);
        let unknown = unknown.filter(|name| table::broker_key(name).is_none());
        let mut names: Vec<&str> = known.chain(unknown).filter(|name| is_wanted(wanted, name)).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| self.describe_broker_key(name)).collect()
    }

    /// The values set for all brokers at run time.
    pub fn describe_cluster_defaults(&self, wanted: KeySelection<'_>) -> Vec<DescribedConfig> {
        let names = self.layers.cluster.keys().filter(|name| is_wanted(wanted, name));
        let described = names.map(|name| {
            let mut described = self.describe_broker_key(name);
            described.synonyms.retain(|synonym| synonym.source == ConfigSource::DynamicDefaultBroker);
            described.value = described.synonyms.first().and_then(|synonym| synonym.value.clone());
            described.source = ConfigSource::DynamicDefaultBroker;
            described
        });
        described.collect()
    }

    fn describe_broker_key(&self, name: &str) -> DescribedConfig {
        let key = table::settable_key(name);
        let synonyms = self.synonyms(name);
        let is_sensitive = key.is_none_or(ConfigKey::is_sensitive);
        let value = self.values.named(name).filter(|_| !is_sensitive).map(ToString::to_string);
        // A value of a single listener is shown as given.
        let value = value.or_else(|| {
            table::listener_key(name)?;
            synonyms.first()?.value.clone()
        });
        DescribedConfig {
            name: name.to_owned(),
            value,
            source: synonyms.first().map_or(ConfigSource::Default, |synonym| synonym.source),
            config_type: key.map_or(ConfigType::Unknown, |key| key.config_type),
            is_sensitive,
            read_only: key.is_none_or(|key| !key.is_dynamic()),
            synonyms,
            documentation: key.map(|key| key.documentation),
        }
    }

    /// Every value set for a broker's key and for its synonyms in other units. As in Kafka, values before the
    /// first value of the key itself are left out, so a key of which only a synonym is set appears as a
    /// default.
    pub(super) fn synonyms(&self, name: &str) -> Vec<DescribedSynonym> {
        let names = table::broker_synonyms(name);
        let is_sensitive = table::settable_key(name).is_none_or(ConfigKey::is_sensitive);
        let synonym = |name: &str, value: &str, source| DescribedSynonym {
            name: name.to_owned(),
            value: (!is_sensitive).then(|| value.to_owned()),
            source,
        };
        let layers = [
            (&self.layers.broker, ConfigSource::DynamicBroker),
            (&self.layers.cluster, ConfigSource::DynamicDefaultBroker),
            (&self.layers.file, ConfigSource::StaticBroker),
        ];
        let mut found = Vec::new();
        for (layer, source) in layers {
            found.extend(names.iter().filter_map(|name| Some(synonym(name, layer.get(*name)?, source))));
        }
        let in_quorum = !rules::is_alone(&self.values);
        let defaults = names.iter().filter_map(|name| {
            let default = table::broker_key(name)?.default_for(in_quorum)?;
            Some(synonym(name, default, ConfigSource::Default))
        });
        found.extend(defaults);
        let first = found.iter().position(|synonym| synonym.name == name).unwrap_or(found.len());
        found.split_off(first)
    }
}
