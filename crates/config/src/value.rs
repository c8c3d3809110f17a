//! Values of configuration keys: parsed as Kafka parses them, printed as Kafka prints them.

use std::fmt;

use super::check::Check;
use super::error::{ConfigError, InvalidValue};
use super::key::{ConfigKey, ConfigType};

/// A parsed value. Its `Display` is Kafka's `ConfigDef.convertToString`.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// Of a BOOLEAN key.
    Boolean(bool),
    /// Of a SHORT, INT or LONG key, within its range.
    Integer(i64),
    /// Of a DOUBLE key, never NaN.
    Double(f64),
    /// Of a STRING or CLASS key.
    Text(String),
    /// Of a LIST key.
    List(Vec<String>),
    /// Of a PASSWORD key.
    Secret(String),
}

impl Value {
    /// Parses `text` as a value of `key` and checks it.
    pub fn parse(key: &ConfigKey, text: &str) -> Result<Self, ConfigError> {
        let value = Self::parse_type(key, text)?;
        key.check.check(key.name, &value)?;
        Ok(value)
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

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Double(value) => write!(f, "{}", java_double(*value)),
            Self::Text(value) => f.write_str(value),
            Self::List(entries) => f.write_str(&entries.join(",")),
            Self::Secret(_) => f.write_str("[hidden]"),
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A number as Java's `Double.toString` writes it: `0.5`, `1.0`, `1.0E7`.
fn java_double(value: f64) -> String {
    let size = value.abs();
    if value.is_infinite() {
        return if value > 0.0 { "Infinity".to_owned() } else { "-Infinity".to_owned() };
    }
    if size == 0.0 || (1e-3..1e7).contains(&size) {
        return format!("{value:?}");
    }
    let text = format!("{value:E}");
    let (mantissa, exponent) = text.split_once('E').expect("the format writes an exponent");
    let point = if mantissa.contains('.') { "" } else { ".0" };
    format!("{mantissa}{point}E{exponent}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn doubles_print_as_in_java() {
        let printed = [0.5, 1.0, 0.0, f64::MAX, 1e7, 0.0001, 9_999_999.5, -2.5].map(java_double);
        assert_eq!(
            printed,
            ["0.5", "1.0", "0.0", "1.7976931348623157E308", "1.0E7", "1.0E-4", "9999999.5", "-2.5"]
        );
    }

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

    #[test]
    fn secrets_never_print() {
        let key = table::broker_key("ssl.key.password").expect("a broker key");
        let value = Value::parse(key, "hunter2").expect("any text is a password");
        assert_eq!(format!("{value} {value:?}"), "[hidden] [hidden]");
    }
}
