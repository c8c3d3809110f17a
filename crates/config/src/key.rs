//! A configuration key: Kafka's facts about it, Thalweg's support for it, and the parsing of its values.

use super::check::Check;
use super::error::{ConfigError, InvalidValue};
use super::value::Value;

/// The type of a value, numbered as in DescribeConfigs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigType {
    /// An unknown key.
    Unknown = 0,
    /// `true` or `false`, in any case.
    Boolean = 1,
    /// Text, without surrounding blanks.
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
    /// A secret, which is never shown.
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

/// The unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A count, or not a number.
    None,
    Ms,
    Seconds,
    Minutes,
    Hours,
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
}

impl Unit {
    /// The name of the unit, if there is one.
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

/// Kafka's rating of a key's importance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Importance {
    /// Relevant for every installation.
    High,
    /// Relevant for some installations.
    Medium,
    /// Relevant for few installations.
    Low,
}

/// Scope of changes at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateMode {
    /// Only in the file, with a restart.
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

/// Thalweg's support for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// Same effect as in Kafka.
    Served,
    /// Same effect as in Kafka, but read only at startup.
    Startup,
    /// Same effect as in Kafka, but only by the value in the file. A value set at run time is stored without
    /// effect, for this reason.
    FromFile(&'static str),
    /// Accepted without effect, for this reason.
    Accepted(&'static str),
    /// Applies to connections that the broker opens, and is read only at startup. Not supported on the
    /// broker's own listeners.
    Opening,
    /// Applies to listeners and to connections that the broker opens. At run time it can be changed for a
    /// single listener only, by `listener.name.NAME.` before the key.
    Listener,
    /// Same effect as in Kafka, for each listener, which may have its own value (`listener.name.NAME.` before
    /// the key).
    PerListener,
    /// Not supported, for this reason.
    Unserved(&'static str),
}

/// A key with its facts. Created only by the tables in `table/`.
#[derive(Debug)]
pub struct ConfigKey {
    /// The key, such as `log.dirs`.
    pub name: &'static str,
    /// Type of the value.
    pub config_type: ConfigType,
    /// Unit of the value.
    pub unit: Unit,
    /// The default as text; `None` is Kafka's null.
    pub default: Option<&'static str>,
    /// Validator of the value.
    pub check: Check,
    /// Kafka's rating of the key.
    pub importance: Importance,
    /// Scope of changes at run time.
    pub update_mode: UpdateMode,
    /// Thalweg's support for the key.
    pub support: Support,
    /// The effect of the key, in one or two sentences.
    pub documentation: &'static str,
    /// Why the default or the update mode differs from Kafka's; `None` if neither does.
    pub differs: Option<&'static str>,
    /// The default of a broker in a cluster that other nodes may join, if it differs.
    pub default_in_quorum: Option<&'static str>,
    /// True if Kafka leaves the key out of its documentation.
    pub internal: bool,
    /// For a topic or group key: the broker keys on which it falls back, in order, each with the factor to
    /// this key's unit.
    pub falls_back: &'static [(&'static str, i64)],
    /// For a broker key: the keys with the minimum and the maximum of the value.
    pub within: (Option<&'static str>, Option<&'static str>),
    /// The consequence of a value above 1 with a single broker.
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

    /// The default of a broker in a cluster that other nodes may join, or of a broker alone with its
    /// controller.
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
        // Java's trim removes every character up to the blank.
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

/// Splits at commas. Kafka drops repeated entries of its checked lists.
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
