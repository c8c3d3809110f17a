//! Values of configuration keys, printed as in Kafka.

use std::fmt;

/// A parsed value. Its `Display` is Kafka's `ConfigDef.convertToString`.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// Value of a BOOLEAN key.
    Boolean(bool),
    /// Value of a SHORT, INT or LONG key, within its range.
    Integer(i64),
    /// Value of a DOUBLE key, never NaN.
    Double(f64),
    /// Value of a STRING or CLASS key.
    Text(String),
    /// Value of a LIST key.
    List(Vec<String>),
    /// Value of a PASSWORD key.
    Secret(String),
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

/// A number in the format of Java's `Double.toString`: `0.5`, `1.0`, `1.0E7`.
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
    fn secrets_never_print() {
        let key = table::broker_key("ssl.key.password").expect("a broker key");
        let value = Value::parse(key, "hunter2").expect("any text is a password");
        assert_eq!(format!("{value} {value:?}"), "[hidden] [hidden]");
    }
}
