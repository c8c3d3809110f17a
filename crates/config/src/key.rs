//! One configuration key: what Kafka knows about it, what Thalweg does with it, and how its values are parsed.

use super::check::Check;
use super::error::{ConfigError, InvalidValue};
use super::value::Value;

/// The type of a value, numbered as in DescribeConfigs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigType {
    /// A key that no table knows.
    Unknown = 0,
    /// `true` or `false`, in any case of letters.
    Boolean = 1,
    /// Text, without the blanks around it.
    String = 2,
    /// A number of 32 bits.
    Int = 3,
    /// A number of 16 bits.
    Short = 4,
    /// A number of 64 bits.
    Long = 5,
    /// A floating-point number.
    Double = 6,
    /// Texts separated by commas.
    List = 7,
    /// The name of a Java class.
    Class = 8,
    /// A secret, never shown.
    Password = 9,
}

impl ConfigType {
    /// The number of the type in DescribeConfigs.
    pub const fn code(self) -> i8 {
        self as i8
    }

    /// Kafka's name of the type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Boolean => "BOOLEAN",
            Self::String => "STRING",
            Self::Int => "INT",
            Self::Short => "SHORT",
            Self::Long => "LONG",
            Self::Double => "DOUBLE",
            Self::List => "LIST",
            Self::Class => "CLASS",
            Self::Password => "PASSWORD",
        }
    }
}

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things, or it is no number.
    None,
    /// Milliseconds.
    Ms,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
    /// Bytes.
    Bytes,
    /// Bytes in a second.
    BytesPerSecond,
}

impl Unit {
    /// The unit in words, where there is one.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Ms => Some("ms"),
            Self::Seconds => Some("seconds"),
            Self::Minutes => Some("minutes"),
            Self::Hours => Some("hours"),
            Self::Bytes => Some("bytes"),
            Self::BytesPerSecond => Some("bytes/s"),
        }
    }
}

/// How much a key matters to most users, by Kafka's judgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Importance {
    /// Worth a thought in every installation.
    High,
    /// Worth a thought in some.
    Medium,
    /// Rarely touched.
    Low,
}

/// When and where a key may change while the broker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateMode {
    /// Only in the file, by a restart.
    ReadOnly,
    /// For one broker at a time.
    PerBroker,
    /// For one broker or for all.
    ClusterWide,
}

impl UpdateMode {
    /// Kafka's name of the mode.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::PerBroker => "per-broker",
            Self::ClusterWide => "cluster-wide",
        }
    }
}

/// What Thalweg does with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It has the effect that it has in Kafka.
    Served,
    /// It has the effect that it has in Kafka, and cannot be changed while the broker runs.
    Startup,
    /// Accepted without effect: the reason.
    Accepted(&'static str),
    /// It applies to connections that the broker opens, and cannot be changed while it runs. On
    /// the broker's own listeners it is not supported.
    Opening,
    /// It applies to listeners and to connections that the broker opens. While the broker runs it can be changed for a
    /// single listener only, by `listener.name.NAME.` before the key.
    Listener,
    /// It has the effect that it has in Kafka, for each listener, which may also have its own value
    /// (`listener.name.NAME.` before the key).
    PerListener,
    /// Not supported: the reason.
    Unserved(&'static str),
}

/// A key with its facts. Made by the tables in `table/` only.
#[derive(Debug)]
pub struct ConfigKey {
    /// Kafka's name.
    pub name: &'static str,
    /// The type of its value.
    pub config_type: ConfigType,
    /// What its value counts.
    pub unit: Unit,
    /// The default as text; `None` is Kafka's null.
    pub default: Option<&'static str>,
    /// What a value must satisfy.
    pub check: Check,
    /// How much the key matters.
    pub importance: Importance,
    /// When it may change.
    pub update_mode: UpdateMode,
    /// What Thalweg does with it.
    pub support: Support,
    /// What it does, in one or two sentences.
    pub documentation: &'static str,
    /// Why default or update mode are not Kafka's, when they are not.
    pub differs: Option<&'static str>,
    /// The default of a broker that others may be beside, when it is another.
    pub default_in_quorum: Option<&'static str>,
    /// Kafka keeps it out of its documentation.
    pub internal: bool,
    /// For a topic's key: the broker's keys that it falls back to, in order, each with the factor to this key's unit.
    pub falls_back: &'static [(&'static str, i64)],
    /// The broker's keys of the least and of the largest value.
    pub within: (Option<&'static str>, Option<&'static str>),
    /// The consequence of more than 1 with a single broker.
    pub alone: Option<&'static str>,
}

impl ConfigKey {
    /// True if values of the key are secrets.
    pub fn is_sensitive(&self) -> bool {
        self.config_type == ConfigType::Password
    }

    /// True if a listener may have its own value (`listener.name.NAME.` before the key).
    pub fn is_of_listeners(&self) -> bool {
        matches!(self.support, Support::Listener | Support::PerListener)
    }

    /// True if the key may change while the broker runs.
    pub fn is_dynamic(&self) -> bool {
        self.update_mode != UpdateMode::ReadOnly
    }

    /// The default of a broker that others may be beside, or of one that is alone with its controller.
    pub fn default_for(&self, in_quorum: bool) -> Option<&'static str> {
        if in_quorum { self.default_in_quorum.or(self.default) } else { self.default }
    }

    pub(super) const fn differs(mut self, why: &'static str) -> Self {
        self.differs = Some(why);
        self
    }

    pub(super) const fn in_quorum(mut self, default: &'static str) -> Self {
        self.default_in_quorum = Some(default);
        self
    }

    pub(super) const fn internal(mut self) -> Self {
        self.internal = true;
        self
    }

    pub(super) const fn falls_back(mut self, keys: &'static [(&'static str, i64)]) -> Self {
        self.falls_back = keys;
        self
    }

    pub(super) const fn within(mut self, keys: (Option<&'static str>, Option<&'static str>)) -> Self {
        self.within = keys;
        self
    }

    pub(super) const fn alone(mut self, what_comes: &'static str) -> Self {
        self.alone = Some(what_comes);
        self
    }
}

impl Value {
    /// Parses `text` as a value of `key` and checks it.
    pub fn parse(key: &ConfigKey, text: &str) -> Result<Self, ConfigError> {
        let value = Self::parse_type(key, text)?;
        key.check.check(key.name, &value)?;
        Ok(value)
    }

    /// The default of `key`; `None` is Kafka's null.
    pub(super) fn default_of(key: &ConfigKey, in_quorum: bool) -> Option<Self> {
        Some(Self::parse(key, key.default_for(in_quorum)?).expect("a test parses every default"))
    }

    fn parse_type(key: &ConfigKey, text: &str) -> Result<Self, InvalidValue> {
        // Java's trim: every character up to the blank.
        let trimmed = text.trim_matches(|c| c <= ' ');
        let integer = |low: i64, high: i64| match trimmed.parse::<i64>() {
            Ok(number) if (low..=high).contains(&number) => Ok(Self::Integer(number)),
            _ => Err(not_a_number(key, text)),
        };
        Ok(match key.config_type {
            ConfigType::Boolean if trimmed.eq_ignore_ascii_case("true") => Self::Boolean(true),
            ConfigType::Boolean if trimmed.eq_ignore_ascii_case("false") => Self::Boolean(false),
            ConfigType::Boolean => {
                return Err(InvalidValue::new(key.name, text, "Expected value to be either true or false"));
            }
            ConfigType::Short => integer(i16::MIN.into(), i16::MAX.into())?,
            ConfigType::Int => integer(i32::MIN.into(), i32::MAX.into())?,
            ConfigType::Long => integer(i64::MIN, i64::MAX)?,
            ConfigType::Double => match trimmed.parse::<f64>() {
                Ok(number) if !number.is_nan() => Self::Double(number),
                _ => return Err(not_a_number(key, text)),
            },
            ConfigType::List => Self::List(split(trimmed, matches!(key.check, Check::List { .. }))),
            ConfigType::Password => Self::Secret(trimmed.to_owned()),
            ConfigType::String | ConfigType::Class | ConfigType::Unknown => Self::Text(trimmed.to_owned()),
        })
    }
}

fn not_a_number(key: &ConfigKey, text: &str) -> InvalidValue {
    InvalidValue::new(key.name, text, format!("Not a number of type {}", key.config_type.name()))
}

/// Splits at commas. Kafka drops the second of two equal entries of its checked lists.
fn split(trimmed: &str, distinct: bool) -> Vec<String> {
    if trimmed.is_empty() {
        return Vec::new();
    }
    let mut entries: Vec<String> = Vec::new();
    for entry in trimmed.split(',').map(str::trim) {
        if !distinct || !entries.iter().any(|known| known == entry) {
            entries.push(entry.to_owned());
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn numbers_outside_their_type_are_refused() {
        let bytes = table::topic_key("segment.bytes").expect("a topic key");
        let error = Value::parse(bytes, "99999999999").expect_err("more than 32 bits");
        assert_eq!(
            error.to_string(),
            "Invalid value 99999999999 for configuration segment.bytes: Not a number of type INT"
        );
        assert_eq!(Value::parse(bytes, " +1048576\t"), Ok(Value::Integer(1_048_576)));
        let share = table::broker_key("log.cleaner.min.cleanable.ratio").expect("a broker key");
        assert!(Value::parse(share, "NaN").is_err());
    }
}
