//! Kafka's client settings: read from a file or a command line, and taken one by one with types and bounds.
//!
//! The file format is the part of `java.util.Properties` that settings use: `key=value`, `key: value` or `key
//! value`, comments with `#` or `!`, a backslash at the end of a continued line, and the escapes.

mod librdkafka;
mod providers;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use crate::address::bootstrap_servers;
use crate::error::BootstrapError;
use thalweg_security::{HIDDEN, is_secret};

pub use providers::{UnresolvedSetting, is_provider_setting, resolve};
pub use thalweg_security::InvalidSetting;

/// A line of a properties file or argument is not `key=value`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a setting: expected key=value")]
pub struct InvalidProperty {
    /// The text as given.
    pub text: String,
}

/// Settings by name. Taking a setting removes it, so that unused settings remain.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Properties {
    values: BTreeMap<String, String>,
    /// Settings whose values come from config providers. Error messages and logs hide these values, unlike
    /// Kafka's: providers are for secrets.
    resolved: BTreeSet<String>,
}

/// Hides the values of secrets.
impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_hidden = |key: &str| is_secret(key) || self.resolved.contains(key);
        let shown =
            |(key, value): (&String, &String)| if is_hidden(key) { HIDDEN.to_owned() } else { value.clone() };
        f.debug_map().entries(self.values.iter().map(|entry| (entry.0, shown(entry)))).finish()
    }
}

impl Properties {
    /// An empty set of settings.
    pub fn new() -> Properties {
        Properties::default()
    }

    /// Parses the text of a properties file. The last of repeated keys wins.
    pub fn parse(text: &str) -> Properties {
        let mut properties = Properties::default();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let mut logical = line.trim_start().to_owned();
            if logical.is_empty() || logical.starts_with(['#', '!']) {
                continue;
            }
            while ends_in_odd_backslashes(&logical) {
                logical.pop();
                match lines.next() {
                    Some(more) => logical.push_str(more.trim_start()),
                    None => break,
                }
            }
            let (key, value) = split_line(&logical);
            properties.values.insert(unescape(key), unescape(value));
        }
        properties
    }

    /// A line of a properties file for this setting; the value may have any characters.
    pub fn line(key: &str, value: &str) -> String {
        let value = value.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r");
        let before = if value.starts_with(char::is_whitespace) { "\\" } else { "" };
        format!("{key}={before}{value}\n")
    }

    /// Applies `text`, a `key=value`.
    pub fn set_text(&mut self, text: &str) -> Result<(), InvalidProperty> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                self.set(key.trim(), value);
                Ok(())
            }
            _ => Err(InvalidProperty { text: text.to_owned() }),
        }
    }

    /// Sets a setting.
    pub fn set(&mut self, key: &str, value: &str) {
        self.values.insert(key.to_owned(), value.to_owned());
        self.resolved.remove(key);
    }

    /// Sets a setting unless it is set.
    pub fn set_default(&mut self, key: &str, value: &str) {
        self.values.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }

    /// Changes the value of a setting, if it is set.
    pub(crate) fn change(&mut self, key: &str, change: impl FnOnce(&str) -> String) {
        if let Some(value) = self.values.get_mut(key) {
            *value = change(value);
        }
    }

    /// Sets a setting from the value of another one, unless it is set.
    pub(crate) fn set_default_from(&mut self, other: &str, key: &str, value: &str) {
        if !self.values.contains_key(key) {
            self.set_default(key, value);
            if self.resolved.contains(other) {
                self.resolved.insert(key.to_owned());
            }
        }
    }

    /// The value of a setting.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// The names of the remaining settings.
    pub fn rest(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Takes a setting as text.
    pub fn take(&mut self, key: &str) -> Option<String> {
        self.values.remove(key)
    }

    /// Takes a number between `min` and `max`, or `default`.
    pub fn take_number<N>(&mut self, key: &str, default: N, min: N, max: N) -> Result<N, InvalidSetting>
    where
        N: FromStr + PartialOrd + Display + Copy,
    {
        let Some(value) = self.values.remove(key) else { return Ok(default) };
        match value.trim().parse() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => Err(self.invalid(key, &value, format!("a number from {min} to {max}"))),
        }
    }

    /// Takes a number of milliseconds, or `default`.
    pub fn take_ms(&mut self, key: &str, default: u64) -> Result<Duration, InvalidSetting> {
        let ms = self.take_number(key, default, 0, i64::MAX.unsigned_abs())?;
        Ok(Duration::from_millis(ms))
    }

    /// Takes `true` or `false`, or `default`.
    pub fn take_bool(&mut self, key: &str, default: bool) -> Result<bool, InvalidSetting> {
        let Some(value) = self.values.remove(key) else { return Ok(default) };
        match value.trim().to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.invalid(key, &value, "true or false")),
        }
    }

    /// Takes one of several names, or `default`.
    pub fn take_choice<T: Copy>(
        &mut self,
        key: &str,
        default: T,
        choices: &[(&str, T)],
    ) -> Result<T, InvalidSetting> {
        let Some(value) = self.values.remove(key) else { return Ok(default) };
        match choices.iter().find(|(name, _)| value.trim() == *name) {
            Some((_, choice)) => Ok(*choice),
            None => {
                let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
                Err(self.invalid(key, &value, names.join(", ")))
            }
        }
    }

    /// The error for a taken setting with an invalid value.
    pub fn invalid(&self, key: &str, value: &str, expected: impl Into<String>) -> InvalidSetting {
        self.without_secret(InvalidSetting::new(key, value, expected))
    }

    /// The error without its value if the value comes from a config provider.
    pub(crate) fn without_secret(&self, invalid: InvalidSetting) -> InvalidSetting {
        match self.resolved.contains(&invalid.key) {
            true => InvalidSetting { value: HIDDEN.to_owned(), ..invalid },
            false => invalid,
        }
    }

    /// Removes `bootstrap.servers`, and returns its addresses.
    pub fn take_bootstrap_servers(&mut self) -> Result<Vec<String>, BootstrapError> {
        bootstrap_servers(&self.values.remove("bootstrap.servers").unwrap_or_default())
    }
}

fn ends_in_odd_backslashes(line: &str) -> bool {
    line.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1
}

/// A line's key and value, split at the first unescaped separator.
fn split_line(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.find(|c: char| {
        let separates = !escaped && (c == '=' || c == ':' || c.is_ascii_whitespace());
        escaped = c == '\\' && !escaped;
        separates
    });
    let Some(end) = end else { return (line, "") };
    let rest = line[end..].trim_start();
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (&line[..end], value.trim_start())
}

/// `U+FFFD`, which replaces an invalid escape.
const REPLACEMENT: u16 = 0xfffd;

/// The text without escapes. Character escapes are UTF-16 units, as in Java: two of them may form one
/// character.
fn unescape(text: &str) -> String {
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let escaped = if c == '\\' { chars.next() } else { None };
        let c = match (c, escaped) {
            ('\\', None) => continue,
            ('\\', Some('u')) => {
                let code: String = chars.by_ref().take(4).collect();
                units.push(u16::from_str_radix(&code, 16).unwrap_or(REPLACEMENT));
                continue;
            }
            ('\\', Some('t')) => '\t',
            ('\\', Some('n')) => '\n',
            ('\\', Some('r')) => '\r',
            ('\\', Some('f')) => '\u{c}',
            ('\\', Some(other)) => other,
            (c, _) => c,
        };
        units.extend_from_slice(c.encode_utf16(&mut [0; 2]));
    }
    String::from_utf16_lossy(&units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_properties_file_is_read_as_java_reads_it() {
        let text = "# comment\n! another\n\nacks=all\n  linger.ms : 5\nkey value with words\nlong=one,\\\n   two\nempty\n\
                    path=c\\:\\\\x\nunicode=\\u00e4\nacks=1\npair=a\\uD83D\\uDE00 \u{1f600}\nhalf=\\uD83Dx\n";
        let mut properties = Properties::parse(text);
        assert_eq!(properties.take("acks").as_deref(), Some("1"));
        assert_eq!(properties.take("linger.ms").as_deref(), Some("5"));
        assert_eq!(properties.take("key").as_deref(), Some("value with words"));
        assert_eq!(properties.take("long").as_deref(), Some("one,two"));
        assert_eq!(properties.take("empty").as_deref(), Some(""));
        assert_eq!(properties.take("path").as_deref(), Some("c:\\x"));
        assert_eq!(properties.take("unicode").as_deref(), Some("ä"));
        assert_eq!(properties.take("pair").as_deref(), Some("a\u{1f600} \u{1f600}"));
        assert_eq!(properties.take("half").as_deref(), Some("\u{fffd}x"));
        assert_eq!(properties.rest().count(), 0);
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for value in ["plain", "", " two words ", "c:\\x", "-----BEGIN\nAA==\r\n-----END", "a=b:c#d"] {
            let line = Properties::line("key", value);
            assert_eq!(line.lines().count(), 1, "{line}");
            assert_eq!(Properties::parse(&line).get("key"), Some(value), "{line}");
        }
    }

    #[test]
    fn a_wrong_value_is_named_with_what_would_be_right() {
        let mut properties = Properties::new();
        properties.set("batch.size", "-1");
        let error = properties.take_number("batch.size", 16384, 0, i32::MAX).expect_err("a refusal");
        assert_eq!(error.to_string(), "batch.size=-1 is invalid: expected a number from 0 to 2147483647");
    }
}
