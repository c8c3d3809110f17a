//! The values of all keys of a broker at one moment: every layer merged, parsed, and checked one by one.

use std::collections::BTreeMap;
use std::time::Duration;

use super::error::ConfigError;
use super::table;
use super::value::Value;

/// A value per key of the table. Getters expect keys of the table and of their type.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Values {
    /// In the order of `table::broker_keys`; `None` is Kafka's null.
    parsed: Vec<Option<Value>>,
}

impl Values {
    /// Parses `properties`, with defaults for what is missing or wrong, and says what is wrong.
    pub fn parse(properties: &BTreeMap<String, String>, in_quorum: bool) -> (Self, Vec<ConfigError>) {
        let mut errors = Vec::new();
        let parsed = table::broker_keys().iter().map(|key| {
            let given = properties.get(key.name).and_then(|text| match Value::parse(key, text) {
                Ok(value) => Some(value),
                Err(error) => {
                    errors.push(error);
                    None
                }
            });
            given.or_else(|| {
                let default = key.default_for(in_quorum)?;
                Some(Value::parse(key, default).expect("a test parses every default"))
            })
        });
        (Self { parsed: parsed.collect() }, errors)
    }

    /// The value of a key; `None` when it is null, or not in the table.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let at = table::broker_keys().binary_search_by(|key| key.name.cmp(name)).ok()?;
        self.parsed[at].as_ref()
    }

    pub fn boolean(&self, name: &str) -> bool {
        matches!(self.get(name), Some(Value::Boolean(true)))
    }

    pub fn integer_or_null(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            Some(Value::Integer(number)) => Some(*number),
            _ => None,
        }
    }

    pub fn long(&self, name: &str) -> i64 {
        self.integer_or_null(name).unwrap_or_else(|| panic!("{name} is a number with a default"))
    }

    pub fn int(&self, name: &str) -> i32 {
        i32::try_from(self.long(name)).unwrap_or_else(|_| panic!("{name} was parsed as INT"))
    }

    pub fn short(&self, name: &str) -> i16 {
        i16::try_from(self.long(name)).unwrap_or_else(|_| panic!("{name} was parsed as SHORT"))
    }

    pub fn double(&self, name: &str) -> f64 {
        match self.get(name) {
            Some(Value::Double(number)) => *number,
            _ => panic!("{name} is a number with a default"),
        }
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub fn list(&self, name: &str) -> Option<&[String]> {
        match self.get(name) {
            Some(Value::List(entries)) => Some(entries),
            _ => None,
        }
    }

    /// A number of bytes or of things; a negative one counts as none.
    pub fn size(&self, name: &str) -> usize {
        usize::try_from(self.long(name)).unwrap_or(0)
    }

    /// A duration from a key in milliseconds; a negative one counts as none.
    pub fn millis(&self, name: &str) -> Duration {
        Duration::from_millis(u64::try_from(self.long(name)).unwrap_or(0))
    }

    /// A duration from a key in seconds; a negative one counts as none.
    pub fn seconds(&self, name: &str) -> Duration {
        Duration::from_secs(u64::try_from(self.long(name)).unwrap_or(0))
    }
}
