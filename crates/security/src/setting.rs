//! A TLS setting that is wrong, and how settings are taken out of what the user has set.

use crate::secrets::{HIDDEN, is_secret};

/// Replaces a missing value.
const NOT_SET: &str = "(not set)";

/// A setting has a value that it cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}={value} is invalid: expected {expected}")]
pub struct InvalidSetting {
    /// The setting.
    pub key: String,
    /// Its value.
    pub value: String,
    /// The expected format.
    pub expected: String,
}

impl InvalidSetting {
    /// A value that is wrong; that of a secret is not repeated.
    pub fn new(key: &str, value: &str, expected: impl Into<String>) -> InvalidSetting {
        let value = if is_secret(key) { HIDDEN } else { value };
        InvalidSetting { key: key.to_owned(), value: value.to_owned(), expected: expected.into() }
    }

    /// A setting that is missing.
    pub fn missing(key: &str, expected: impl Into<String>) -> InvalidSetting {
        InvalidSetting { key: key.to_owned(), value: NOT_SET.to_owned(), expected: expected.into() }
    }
}

/// Takes the value of a setting by its name, `None` if it is not set.
pub type Take<'a> = dyn FnMut(&str) -> Option<String> + 'a;

/// Takes the first of `names` that is set, and returns its name too. The others are removed as well.
pub fn take_first(take: &mut Take<'_>, names: &[&'static str]) -> Option<(&'static str, String)> {
    let mut found = None;
    for name in names {
        if let Some(value) = take(name).filter(|value| !value.trim().is_empty()) {
            found.get_or_insert((*name, value));
        }
    }
    found
}
