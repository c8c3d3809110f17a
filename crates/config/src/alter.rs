//! Configuration changes at run time: IncrementalAlterConfigs and AlterConfigs, of topics and of this broker.
//!
//! Calculates the overrides after a change, or an error. Writing the result is left to the caller.

use std::collections::{BTreeMap, BTreeSet};

use super::broker::{BrokerConfig, Layers, usable};
use super::error::AlterError;
use super::key::{ConfigKey, ConfigType, Support, UpdateMode};
use super::properties::{self, Warning};
use super::table;
use super::value::Value;

/// Maximum length of a value in the metadata log, in UTF-16 units as in Kafka.
const LONGEST_VALUE: usize = 32_767;

/// An operation of IncrementalAlterConfigs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlterOp {
    /// Sets the value.
    Set,
    /// Resets the value to the inherited one.
    Delete,
    /// Adds entries to a list.
    Append,
    /// Removes entries from a list.
    Subtract,
}

impl AlterOp {
    /// The operation with this number on the wire.
    pub fn from_code(code: i8) -> Result<Self, AlterError> {
        match code {
            0 => Ok(Self::Set),
            1 => Ok(Self::Delete),
            2 => Ok(Self::Append),
            3 => Ok(Self::Subtract),
            _ => Err(AlterError::UnknownOperation { code }),
        }
    }
}

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alteration {
    pub name: String,
    pub op: AlterOp,
    /// Value; `None` for a deletion.
    pub value: Option<String>,
}

/// The table of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigScope {
    /// The keys of a topic.
    Topic,
    /// The keys of a broker.
    Broker,
}

impl ConfigScope {
    /// The key with this name.
    pub fn key(self, name: &str) -> Option<&'static ConfigKey> {
        match self {
            Self::Topic => table::topic_key(name),
            Self::Broker => table::settable_key(name),
        }
    }

    /// True if values of a key are secret; unknown keys count as secret.
    pub fn is_sensitive(self, name: &str) -> bool {
        self.key(name).is_none_or(ConfigKey::is_sensitive)
    }
}

/// Applies `alterations` to the overrides `current`, without checking values.
pub fn apply(
    scope: ConfigScope,
    current: &BTreeMap<String, String>,
    alterations: &[Alteration],
) -> Result<BTreeMap<String, String>, AlterError> {
    check_form(alterations)?;
    let mut changed = current.clone();
    for alteration in alterations {
        let name = &alteration.name;
        let value = match (alteration.op, &alteration.value) {
            (AlterOp::Set, Some(value)) => value.clone(),
            (AlterOp::Append | AlterOp::Subtract, Some(value)) => {
                edit_list(scope, current, name, value, alteration.op == AlterOp::Append)?
            }
            (AlterOp::Delete, _) | (_, None) => {
                changed.remove(name);
                continue;
            }
        };
        if value.encode_utf16().count() > LONGEST_VALUE {
            return Err(AlterError::TooLong { name: name.clone() });
        }
        changed.insert(name.clone(), value);
    }
    Ok(changed)
}

fn check_form(alterations: &[Alteration]) -> Result<(), AlterError> {
    let mut names = BTreeSet::new();
    if !alterations.iter().all(|alteration| names.insert(&alteration.name)) {
        return Err(AlterError::DuplicateKeys);
    }
    let without_value = alterations.iter().filter(|a| a.op != AlterOp::Delete && a.value.is_none());
    let names: Vec<_> = without_value.map(|alteration| alteration.name.clone()).collect();
    if names.is_empty() { Ok(()) } else { Err(AlterError::NullValues { names }) }
}

/// The list of `name` with the entries of `value` added or removed. An unset key starts from its default.
fn edit_list(
    scope: ConfigScope,
    current: &BTreeMap<String, String>,
    name: &str,
    value: &str,
    append: bool,
) -> Result<String, AlterError> {
    let key = scope.key(name);
    let Some(key) = key.filter(|key| key.config_type == ConfigType::List) else {
        let name = name.to_owned();
        return Err(match (scope, key) {
            (ConfigScope::Broker, None) => AlterError::UnknownKey { name },
            (ConfigScope::Broker, Some(_)) => {
                AlterError::NotABrokerList { name, operation: if append { "append" } else { "subtract" } }
            }
            (ConfigScope::Topic, _) => {
                AlterError::NotAList { name, operation: if append { "APPEND" } else { "SUBTRACT" } }
            }
        });
    };
    let before = current.get(name).map_or_else(|| key.default.unwrap_or_default(), String::as_str);
    Ok(thalweg_metadata::edit_list(before, value, append))
}

impl BrokerConfig {
    /// Applies IncrementalAlterConfigs to a topic's overrides, and checks the result.
    pub fn alter_topic(
        &self,
        current: &BTreeMap<String, String>,
        alterations: &[Alteration],
    ) -> Result<BTreeMap<String, String>, AlterError> {
        let changed = apply(ConfigScope::Topic, current, alterations)?;
        self.topic_defaults.validate(&changed)?;
        Ok(changed)
    }

    /// Applies IncrementalAlterConfigs to this broker (or to all brokers), and checks the result.
    pub fn alter_broker(
        &self,
        per_broker: bool,
        alterations: &[Alteration],
    ) -> Result<BrokerConfig, AlterError> {
        let current = if per_broker { &self.layers.broker } else { &self.layers.cluster };
        let changed = apply(ConfigScope::Broker, current, alterations)?;
        self.validate_dynamic(per_broker, &changed)
    }

    /// The properties set at run time that have no effect here, and the reasons. Clients may set every
    /// property of Kafka.
    pub fn dynamic_warnings(&self) -> Vec<Warning> {
        let layers = [&self.layers.cluster, &self.layers.broker];
        let set: BTreeMap<_, _> = layers.into_iter().flatten().collect();
        set.into_iter().filter_map(|(name, value)| properties::dynamic_warning(name, value)).collect()
    }

    /// Checks a complete new dynamic layer from AlterConfigs, of this broker or of all brokers, and returns
    /// the configuration with it.
    pub fn validate_dynamic(
        &self,
        per_broker: bool,
        proposed: &BTreeMap<String, String>,
    ) -> Result<BrokerConfig, AlterError> {
        let current = if per_broker { &self.layers.broker } else { &self.layers.cluster };
        validate_keys(per_broker, proposed, current)?;
        let mut layers: Layers = self.layers.clone();
        *if per_broker { &mut layers.broker } else { &mut layers.cluster } =
            usable(proposed, per_broker, &mut Vec::new());
        Ok(Self::build(layers)?)
    }
}

/// Checks the new values in a dynamic layer key by key, without rules between keys.
pub fn validate_keys(
    per_broker: bool,
    proposed: &BTreeMap<String, String>,
    current: &BTreeMap<String, String>,
) -> Result<(), AlterError> {
    // Existing values were accepted by a controller, and must not block other changes.
    let news: BTreeMap<_, _> =
        proposed.iter().filter(|(name, value)| current.get(*name) != Some(value)).collect();
    let names_of = |wrong: &dyn Fn(&ConfigKey) -> bool| -> Vec<String> {
        let is_wrong = |name: &str| ConfigScope::Broker.key(name).is_some_and(wrong);
        news.keys().filter(|name| is_wrong(name)).map(|name| (**name).clone()).collect()
    };
    let names = names_of(&|key| !key.is_dynamic());
    if !names.is_empty() {
        return Err(AlterError::NotDynamic { names });
    }
    let names = names_of(&|key| key.update_mode == UpdateMode::PerBroker && !per_broker);
    if !names.is_empty() {
        return Err(AlterError::PerBrokerOnly { names });
    }
    for (name, text) in &news {
        let key =
            ConfigScope::Broker.key(name).ok_or_else(|| AlterError::UnknownKey { name: (*name).clone() })?;
        let reason = match key.support {
            Support::Startup | Support::Opening => Some("it is read when the broker starts"),
            Support::Listener if table::listener_key(name).is_none() => {
                Some("it can be changed for a single listener only, by listener.name.NAME. before it")
            }
            // No effect; `BrokerConfig::dynamic_warnings` reports these keys.
            Support::Unserved(_) | Support::Accepted(_) | Support::FromFile(_) => None,
            Support::Listener | Support::PerListener | Support::Served => None,
        };
        if let Some(reason) = reason {
            return Err(AlterError::Unserved { name: (*name).clone(), reason });
        }
        if key.support == Support::PerListener && text.trim() == "0" {
            let error = super::error::InvalidValue::new(name, text, "At run time, it must be at least 1");
            return Err(super::error::InvalidConfig(vec![error.into()]).into());
        }
        // Kafka's error code for an invalid value of a broker's key differs from that of a topic's key.
        Value::parse(key, text).map_err(|error| super::error::InvalidConfig(vec![error]))?;
    }
    Ok(())
}
