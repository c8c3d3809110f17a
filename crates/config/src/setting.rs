//! A setting in the code, and the conversion of its value to a Rust type.
//!
//! [`Setting`]s are created only by the declarations in `table/`, and values are read only through them. A
//! misspelled key does not compile.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::key::Unit;
use super::value::Value;

/// The key of a setting, and the Rust type of its value. `()` means that no code reads the value: topics or
/// groups inherit it, or it is passed on as text.
pub struct Setting<T> {
    name: &'static str,
    read: fn(Option<&Value>, Unit) -> Option<T>,
}

impl<T> Setting<T> {
    pub(super) const fn new(name: &'static str, read: fn(Option<&Value>, Unit) -> Option<T>) -> Self {
        Self { name, read }
    }

    /// Kafka's name of the key.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Reads `value`, which may be null. A test reads every setting.
    pub(super) fn read(self, value: Option<&Value>, unit: Unit) -> T {
        (self.read)(value, unit)
            .unwrap_or_else(|| panic!("{} is declared with a type that it has", self.name))
    }
}

impl<T> Clone for Setting<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Setting<T> {}

impl<T> fmt::Debug for Setting<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A Rust type of setting values.
pub(super) trait SettingType: Sized {
    /// Converts a value; `None` if its type differs or it is null. Numbers are clamped to the range of the
    /// Rust type.
    fn typed(value: Option<&Value>, unit: Unit) -> Option<Self>;
}

fn integer(value: Option<&Value>) -> Option<i64> {
    match value {
        Some(Value::Integer(number)) => Some(*number),
        _ => None,
    }
}

macro_rules! typed_integers {
    ($($integer:ty)*) => {
        $(impl SettingType for $integer {
            fn typed(value: Option<&Value>, _: Unit) -> Option<Self> {
                let number = integer(value)?;
                Some(Self::try_from(number).unwrap_or(if number < 0 { Self::MIN } else { Self::MAX }))
            }
        })*
    };
}

typed_integers! { i16 i32 i64 u32 u64 usize }

impl SettingType for bool {
    fn typed(value: Option<&Value>, _: Unit) -> Option<Self> {
        match value {
            Some(Value::Boolean(value)) => Some(*value),
            _ => None,
        }
    }
}

impl SettingType for f64 {
    fn typed(value: Option<&Value>, _: Unit) -> Option<Self> {
        match value {
            Some(Value::Double(number)) => Some(*number),
            _ => None,
        }
    }
}

impl SettingType for String {
    fn typed(value: Option<&Value>, _: Unit) -> Option<Self> {
        match value {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }
}

/// The text of a password.
pub(super) struct SecretText(pub String);

impl SettingType for SecretText {
    fn typed(value: Option<&Value>, _: Unit) -> Option<Self> {
        match value {
            Some(Value::Secret(text)) => Some(Self(text.clone())),
            _ => None,
        }
    }
}

impl SettingType for PathBuf {
    fn typed(value: Option<&Value>, unit: Unit) -> Option<Self> {
        String::typed(value, unit).map(Self::from)
    }
}

impl SettingType for Vec<String> {
    fn typed(value: Option<&Value>, _: Unit) -> Option<Self> {
        match value {
            Some(Value::List(entries)) => Some(entries.clone()),
            _ => None,
        }
    }
}

impl SettingType for Vec<PathBuf> {
    fn typed(value: Option<&Value>, unit: Unit) -> Option<Self> {
        Some(Vec::<String>::typed(value, unit)?.into_iter().map(PathBuf::from).collect())
    }
}

/// Durations in the unit of the key. Negative values count as zero.
impl SettingType for Duration {
    fn typed(value: Option<&Value>, unit: Unit) -> Option<Self> {
        let number = u64::typed(value, unit)?;
        match unit {
            Unit::Ms => Some(Self::from_millis(number)),
            Unit::Seconds => Some(Self::from_secs(number)),
            Unit::Minutes => Some(Self::from_secs(number.saturating_mul(60))),
            Unit::Hours | Unit::Bytes | Unit::BytesPerSecond | Unit::None => None,
        }
    }
}

/// `None` is Kafka's null.
impl<T: SettingType> SettingType for Option<T> {
    fn typed(value: Option<&Value>, unit: Unit) -> Option<Self> {
        match value {
            None => Some(None),
            Some(_) => T::typed(value, unit).map(Some),
        }
    }
}

// Conversions of values that mean "no limit" or "never".

pub(super) fn if_positive(size: usize) -> Option<usize> {
    Some(size).filter(|size| *size > 0)
}

pub(super) fn unless_negative<N: TryFrom<i64>>(number: i64) -> Option<N> {
    if number < 0 { None } else { N::try_from(number).ok() }
}

pub(super) fn millis_unless_negative(ms: i64) -> Option<Duration> {
    unless_negative(ms).map(Duration::from_millis)
}

/// `None` for the maximum value, which means never.
pub(super) fn millis_unless_max(ms: i64) -> Option<Duration> {
    Some(ms).filter(|ms| *ms < i64::MAX).map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}

pub(super) fn unless_zero(duration: Duration) -> Option<Duration> {
    Some(duration).filter(|duration| !duration.is_zero())
}

pub(super) fn unless_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}
