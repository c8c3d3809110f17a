//! Invalid TLS settings, and functions that take settings from the user's properties.

use crate::secrets::{HIDDEN, is_secret};

/// The shown value of a missing setting.
const NOT_SET: &str = "(not set)";

/// A setting with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}={value} is invalid: expected {expected}")]
pub struct InvalidSetting {
    /// The name of the setting.
    pub key: String,
    /// The value, or a placeholder if secret.
    pub value: String,
    /// The expected format, for the error message.
    pub expected: String,
}

impl InvalidSetting {
    /// An invalid value. Secret values are replaced.
    pub fn new(key: &str, value: &str, expected: impl Into<String>) -> InvalidSetting {
        let value = if is_secret(key) { HIDDEN } else { value };
        InvalidSetting { key: key.to_owned(), value: value.to_owned(), expected: expected.into() }
    }

    /// A missing setting.
    pub fn missing(key: &str, expected: impl Into<String>) -> InvalidSetting {
        InvalidSetting { key: key.to_owned(), value: NOT_SET.to_owned(), expected: expected.into() }
    }
}

/// Takes the value of a setting by name; `None` if not set.
pub type SettingSource<'a> = dyn FnMut(&str) -> Option<String> + 'a;

/// Takes the first non-empty setting of `names`, with its name. The other settings are removed too.
pub fn take_first(take: &mut SettingSource<'_>, names: &[&'static str]) -> Option<(&'static str, String)> {
    let mut found = None;
    for name in names {
        if let Some(value) = take(name).filter(|value| !value.trim().is_empty()) {
            found.get_or_insert((*name, value));
        }
    }
    found
}
