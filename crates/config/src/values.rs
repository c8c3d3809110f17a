//! A snapshot of the values of all keys of a table: layers merged, values parsed and checked one by one.

use std::collections::BTreeMap;

use super::error::ConfigError;
use super::key::ConfigKey;
use super::setting::Setting;
use super::value::Value;

/// A table of keys, by name.
pub(super) type Keys = &'static [&'static ConfigKey];

/// A value per key of a table.
#[derive(Debug, Clone)]
pub(super) struct Values {
    keys: Keys,
    /// In the order of the keys; `None` is Kafka's null.
    parsed: Vec<Option<Value>>,
}

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        self.parsed == other.parsed
    }
}

impl Values {
    /// The values that `value` returns for each key.
    pub fn new(keys: Keys, value: impl FnMut(&&'static ConfigKey) -> Option<Value>) -> Self {
        Self { keys, parsed: keys.iter().map(value).collect() }
    }

    /// Parses `properties`, uses defaults for missing or invalid values, and returns the errors.
    pub fn parse(
        keys: Keys,
        properties: &BTreeMap<String, String>,
        in_quorum: bool,
    ) -> (Self, Vec<ConfigError>) {
        let mut errors = Vec::new();
        let values = Self::new(keys, |key| {
            let given = properties.get(key.name).and_then(|text| match Value::parse(key, text) {
                Ok(value) => Some(value),
                Err(error) => {
                    errors.push(error);
                    None
                }
            });
            given.or_else(|| Value::default_of(key, in_quorum))
        });
        (values, errors)
    }

    /// The value of a setting in its Rust type.
    pub fn get<T>(&self, setting: Setting<T>) -> T {
        let at = self.position(setting.name()).expect("settings are read from the values of their table");
        setting.read(self.parsed[at].as_ref(), self.keys[at].unit)
    }

    /// The value of a setting in its key's type; `None` for null.
    pub fn raw<T>(&self, setting: Setting<T>) -> Option<&Value> {
        self.named(setting.name())
    }

    /// The value of a key by name; `None` if it is null or the key is not in the table.
    pub fn named(&self, name: &str) -> Option<&Value> {
        self.parsed[self.position(name)?].as_ref()
    }

    /// Sets the value of a key of the table from text.
    pub fn set(&mut self, key: &ConfigKey, text: &str) -> Result<(), ConfigError> {
        let value = Value::parse(key, text)?;
        let at = self.position(key.name).expect("the key is of this table");
        self.parsed[at] = Some(value);
        Ok(())
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.keys.binary_search_by(|key| key.name.cmp(name)).ok()
    }
}
