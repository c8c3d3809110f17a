//! Option values: parsed by their declaration, and read by name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Uri;
use axum::http::uri::Authority;
use chrono::format::{Item, StrftimeItems};
use regex::Regex;
use thalweg_client::bootstrap_servers;

use super::{Module, OptionDefault, OptionSpec, OptionType};
use crate::expression::Expression;
use crate::figures::figures;
use crate::topics::{self, StartPosition};

/// A parsed option value.
#[derive(Clone, Debug)]
pub enum Value {
    /// Text, a name or a choice.
    Text(String),
    /// true or false.
    Flag(bool),
    /// A whole number, or bytes.
    Integer(u64),
    Number(f64),
    Duration(Duration),
    /// A compiled expression.
    Expression(Arc<Expression>),
}

/// A value that an option does not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongValue {
    /// A specific message, if the generic message is not enough.
    pub message: Option<String>,
    /// The remedy, for the message.
    pub right: String,
    /// The offset of the mistake in the value, if known.
    pub at: Option<usize>,
}

/// The options of one stage with their given or default values; an option with neither is absent.
#[derive(Clone, Debug)]
pub struct Settings(BTreeMap<&'static str, Value>);

impl Settings {
    /// Parses given option texts by their declarations.
    pub fn read<'a>(
        module: &'static Module,
        given: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Settings, Vec<(&'static OptionSpec, WrongValue)>> {
        let mut settings = BTreeMap::new();
        let mut wrong = Vec::new();
        for option in module.options {
            let text = match (given(option.name), option.default) {
                (Some(text), _) => text,
                (None, OptionDefault::Value(text)) => text,
                (None, OptionDefault::None | OptionDefault::Required) => continue,
            };
            match option.takes.read(text) {
                Ok(value) => drop(settings.insert(option.name, value)),
                Err(value) => wrong.push((option, value)),
            }
        }
        if wrong.is_empty() { Ok(Settings(settings)) } else { Err(wrong) }
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// A text option with a default, or required.
    pub fn text(&self, name: &str) -> &str {
        self.optional_text(name).unwrap_or_else(|| missing(name))
    }

    /// An optional text option.
    pub fn optional_text(&self, name: &str) -> Option<&str> {
        match self.value(name)? {
            Value::Text(text) => Some(text),
            other => mistaken(name, other),
        }
    }

    /// A boolean option.
    pub fn flag(&self, name: &str) -> bool {
        match self.value(name) {
            Some(Value::Flag(flag)) => *flag,
            Some(other) => mistaken(name, other),
            None => missing(name),
        }
    }

    /// A whole number or size with a default, or required.
    pub fn integer(&self, name: &str) -> u64 {
        self.optional_integer(name).unwrap_or_else(|| missing(name))
    }

    /// An optional whole number or size.
    pub fn optional_integer(&self, name: &str) -> Option<u64> {
        match self.value(name)? {
            Value::Integer(value) => Some(*value),
            other => mistaken(name, other),
        }
    }

    /// An optional number.
    pub fn optional_number(&self, name: &str) -> Option<f64> {
        match self.value(name)? {
            Value::Number(value) => Some(*value),
            other => mistaken(name, other),
        }
    }

    /// A duration with a default, or required.
    pub fn duration(&self, name: &str) -> Duration {
        self.optional_duration(name).unwrap_or_else(|| missing(name))
    }

    /// An optional duration.
    pub fn optional_duration(&self, name: &str) -> Option<Duration> {
        match self.value(name)? {
            Value::Duration(value) => Some(*value),
            other => mistaken(name, other),
        }
    }

    /// An expression with a default, or required.
    pub fn expression(&self, name: &str) -> Arc<Expression> {
        self.optional_expression(name).unwrap_or_else(|| missing(name))
    }

    /// The text of an expression; empty without one.
    pub fn expression_text(&self, name: &str) -> String {
        self.optional_expression(name).map_or_else(String::new, |expression| expression.text().to_owned())
    }

    /// An optional expression.
    pub fn optional_expression(&self, name: &str) -> Option<Arc<Expression>> {
        match self.value(name)? {
            Value::Expression(expression) => Some(expression.clone()),
            other => mistaken(name, other),
        }
    }
}

fn missing(name: &str) -> ! {
    panic!("the option {name} is required or has a default, so it has a value")
}

fn mistaken(name: &str, value: &Value) -> ! {
    panic!("the option {name} is read as a type other than the declared one: {value:?}")
}

impl OptionType {
    /// Parses a value.
    pub fn read(self, text: &str) -> Result<Value, WrongValue> {
        let value = match self {
            OptionType::Text => Some(Value::Text(text.to_owned())),
            OptionType::Name => (!text.is_empty()).then(|| Value::Text(text.to_owned())),
            OptionType::Flag => text.parse().ok().map(Value::Flag),
            OptionType::Integer(min, max) => {
                let value: Option<u64> = text.replace('_', "").parse().ok();
                value.filter(|value| (min..=max).contains(value)).map(Value::Integer)
            }
            OptionType::Number(min, max) => {
                let value: Option<f64> = text.parse().ok();
                value.filter(|value| (min..=max).contains(value)).map(Value::Number)
            }
            OptionType::Duration => duration(text, "ms").map(Value::Duration),
            OptionType::Seconds => duration(text, "s").map(Value::Duration),
            OptionType::Size => size(text).map(Value::Integer),
            OptionType::Choice(words) => words.contains(&text).then(|| Value::Text(text.to_owned())),
            OptionType::Url => {
                let uri: Option<Uri> = text.parse().ok();
                let is_whole = uri.is_some_and(|uri| {
                    matches!(uri.scheme_str(), Some("http" | "https"))
                        && uri.authority().is_some_and(has_port)
                        && !is_ambiguous(&uri)
                });
                is_whole.then(|| Value::Text(text.to_owned()))
            }
            OptionType::Brokers => bootstrap_servers(text).is_ok().then(|| Value::Text(text.to_owned())),
            OptionType::Topic => topics::is_topic(text).then(|| Value::Text(text.to_owned())),
            OptionType::Topics => {
                let names = text.split(',').all(|name| topics::is_topic(name.trim()));
                let is_pattern = topics::pattern(text).is_some_and(|pattern| Regex::new(&pattern).is_ok());
                (names || is_pattern).then(|| Value::Text(text.to_owned()))
            }
            OptionType::TimeFormat => {
                let is_read = StrftimeItems::new(text).all(|item| !matches!(item, Item::Error));
                (is_read && !text.is_empty()).then(|| Value::Text(text.to_owned()))
            }
            OptionType::Begin => StartPosition::read(text).map(|_begin| Value::Text(text.to_owned())),
            OptionType::Partitions => {
                topics::partitions(text).map(|_partitions| Value::Text(text.to_owned()))
            }
            OptionType::Figures => figures(text).map(|_figures| Value::Text(text.to_owned())),
            OptionType::Expression => {
                let compiled = Expression::compile(text).map_err(|error| WrongValue {
                    message: Some(format!("This is not a valid expression: {error}")),
                    right: "Expressions are CEL, such as `payload.amount > 100 && key.startsWith('a')`."
                        .to_owned(),
                    at: error.at,
                })?;
                Some(Value::Expression(Arc::new(compiled)))
            }
        };
        value.ok_or_else(|| WrongValue { message: None, right: self.advice(), at: None })
    }

    fn advice(self) -> String {
        let described = self.describe();
        match described.split_at_checked(1) {
            Some((first, rest)) if !rest.starts_with(char::is_uppercase) => {
                format!("Use {}{rest}.", first.to_lowercase())
            }
            _ => format!("Use {described}."),
        }
    }

    /// The accepted values, for people.
    pub fn describe(self) -> String {
        match self {
            OptionType::Text => "Text".to_owned(),
            OptionType::Name => "Non-empty text".to_owned(),
            OptionType::Flag => "true or false".to_owned(),
            OptionType::Integer(0, u64::MAX) => "A whole number".to_owned(),
            OptionType::Integer(min, u64::MAX) => format!("A whole number, at least {min}"),
            OptionType::Integer(min, max) => format!("A whole number from {min} to {max}"),
            OptionType::Number(min, f64::MAX) => format!("A number, at least {min}"),
            OptionType::Number(min, max) => format!("A number from {min} to {max}"),
            OptionType::Duration => {
                "A time such as 500ms, 10s, 5m or 1h (a bare number is milliseconds)".to_owned()
            }
            OptionType::Seconds => {
                "A time such as 500ms, 10s, 5m or 1h (a bare number is seconds)".to_owned()
            }
            OptionType::Size => "A size such as 1000, 64KiB or 10MB".to_owned(),
            OptionType::Choice(words) => match words {
                [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
                words => words.join(""),
            },
            OptionType::Expression => "An expression in CEL".to_owned(),
            OptionType::Topic => {
                "The name of a topic (letters, digits, `.`, `_` and `-`, up to 249 of them)".to_owned()
            }
            OptionType::Brokers => "HOST:PORT of one or more brokers, separated by commas".to_owned(),
            OptionType::Topics => {
                "Topic names, separated by commas, or ^ and a regular expression".to_owned()
            }
            OptionType::TimeFormat => "A strftime format, such as %H:%M:%S".to_owned(),
            OptionType::Begin => {
                "earliest, latest, offset:N, offset:PARTITION=N,... or timestamp:MS".to_owned()
            }
            OptionType::Partitions => "Partition numbers, separated by commas".to_owned(),
            OptionType::Url => "http://HOST:PORT/PATH or https://HOST/PATH, with / and @ of a login, and @ of a path, written as %2F and %40"
                    .to_owned(),
            OptionType::Figures => {
                "Any of count, sum, min, max, avg and quantiles such as p99.9, separated by commas".to_owned()
            }
        }
    }
}

/// True if the port of a URL is a number, or the default. A password that is not percent-encoded may look
/// like a port.
fn has_port(authority: &Authority) -> bool {
    let text = authority.as_str();
    let server = text.rsplit_once('@').map_or(text, |(_, server)| server);
    let (host, port) = server.rsplit_once(':').unwrap_or((server, "80"));
    let is_in_brackets = host.starts_with('[') && server.ends_with(']');
    is_in_brackets || port.parse::<u16>().is_ok()
}

/// True if a URL such as `http://ann:12/x@h` may be meant as a login with the password `12/x`, or as the path
/// `/x@h` of the server `ann`.
fn is_ambiguous(uri: &Uri) -> bool {
    let has_login = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    let has_more = uri.path_and_query().is_some_and(|more| more.as_str().contains('@'));
    uri.port().is_some() && !has_login && has_more
}

fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

fn duration(text: &str, bare: &str) -> Option<Duration> {
    let (number, unit) = split_unit(text);
    let ms = match if unit.is_empty() { bare } else { unit } {
        "ms" => 1.0,
        "us" => 0.001,
        "s" => 1000.0,
        "m" | "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    Duration::try_from_secs_f64(number * ms / 1000.0).ok().filter(|time| time.as_secs() < 100 * 365 * 86_400)
}

fn size(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text);
    let factor: u64 = match unit {
        "" | "B" => 1,
        "KB" | "kB" => 1000,
        "MB" => 1000 * 1000,
        "GB" => 1000 * 1000 * 1000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_a_url_is_a_number() {
        for url in [
            "http://h/",
            "http://h:1/a%40b",
            "http://ann:12@h/@me",
            "https://h:1/a:b",
            "http://ann:p%40ss@h:65535",
            "http://[::1]/",
            "http://[::1]:9/",
        ] {
            assert!(OptionType::Url.read(url).is_ok(), "{url}");
        }
        for url in [
            "http://ann:pa/ss@h/",
            "http://ann:pa?ss@h/",
            "http://ann:pa#ss@h/",
            "http://ann:12/x@h",
            "http://ann:12?x@h",
            "http://h:65536/",
            "http://h:/",
        ] {
            assert!(OptionType::Url.read(url).is_err(), "{url}");
        }
    }
}
