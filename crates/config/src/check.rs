//! Kafka's validators of values, with Kafka's error messages.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use thalweg_security::{ParsePrincipalError, Principal};

use super::error::{ConfigError, InvalidList, InvalidValue};
use super::group_value::ShareOffsetReset;
use super::value::Value;

/// A validator. Its `Display` is Kafka's text, which the documentation shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Check {
    /// Any value of the type.
    Any,
    /// A number not below this bound.
    AtLeast(i64),
    /// A number between these bounds, both included.
    Between(i64, i64),
    /// A floating-point number from 0 to this bound.
    Ratio(f64),
    /// A compression level of gzip, or -1.
    GzipLevel,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// One of these texts; case does not matter.
    OneOfAnyCase(&'static [&'static str]),
    /// A non-null text, where Kafka's tables allow null.
    NotNull,
    /// A text with at least one character.
    NotEmpty,
    /// A list without empty entries.
    List {
        /// True if the list must have an entry.
        filled: bool,
        /// True if Kafka allows null.
        nullable: bool,
        /// The allowed entries; empty for all.
        of: &'static [&'static str],
    },
    /// `partition:broker` pairs, or `*`.
    ThrottledReplicas,
    /// `address:limit` pairs.
    ConnectionOverrides,
    /// `id@host:port` entries.
    QuorumVoters,
    /// `host:port` entries.
    BootstrapServers,
    /// `host:port`; an empty host means all interfaces.
    ListenAddress,
    /// An URL of HTTP or HTTPS.
    HttpUrl,
    /// `name=value` pairs, separated by commas.
    HttpHeaders,
    /// Principals, as `User:alice`, separated by semicolons.
    SuperUsers,
    /// `latest`, `earliest`, or `by_duration:` with a duration of ISO 8601.
    OffsetReset,
}

pub(super) const ANY: Check = Check::Any;
pub(super) const GZIP_LEVEL: Check = Check::GzipLevel;
pub(super) const NOT_NULL: Check = Check::NotNull;
pub(super) const NOT_EMPTY: Check = Check::NotEmpty;
pub(super) const THROTTLED_REPLICAS: Check = Check::ThrottledReplicas;
pub(super) const CONNECTION_OVERRIDES: Check = Check::ConnectionOverrides;
pub(super) const QUORUM_VOTERS: Check = Check::QuorumVoters;
pub(super) const BOOTSTRAP_SERVERS: Check = Check::BootstrapServers;
pub(super) const LISTEN_ADDRESS: Check = Check::ListenAddress;
pub(super) const HTTP_URL: Check = Check::HttpUrl;
pub(super) const HTTP_HEADERS: Check = Check::HttpHeaders;
pub(super) const SUPER_USERS: Check = Check::SuperUsers;
pub(super) const OFFSET_RESET: Check = Check::OffsetReset;
pub(super) const LIST: Check = Check::List { filled: false, nullable: false, of: &[] };
pub(super) const LIST_OR_NULL: Check = Check::List { filled: false, nullable: true, of: &[] };
pub(super) const FILLED_LIST: Check = Check::List { filled: true, nullable: false, of: &[] };
pub(super) const FILLED_LIST_OR_NULL: Check = Check::List { filled: true, nullable: true, of: &[] };

pub(super) const fn at_least(low: i64) -> Check {
    Check::AtLeast(low)
}

pub(super) const fn between(low: i64, high: i64) -> Check {
    Check::Between(low, high)
}

pub(super) const fn ratio(high: f64) -> Check {
    Check::Ratio(high)
}

pub(super) const fn one_of(texts: &'static [&'static str]) -> Check {
    Check::OneOf(texts)
}

pub(super) const fn one_of_any_case(texts: &'static [&'static str]) -> Check {
    Check::OneOfAnyCase(texts)
}

pub(super) const fn list_of(of: &'static [&'static str]) -> Check {
    Check::List { filled: false, nullable: false, of }
}

pub(super) const fn list_or_null_of(of: &'static [&'static str]) -> Check {
    Check::List { filled: false, nullable: true, of }
}

pub(super) const fn filled_list_of(of: &'static [&'static str]) -> Check {
    Check::List { filled: true, nullable: false, of }
}

impl Check {
    /// Checks a value of the key `name`.
    pub fn check(&self, name: &str, value: &Value) -> Result<(), ConfigError> {
        let fails = |reason: String| Err(InvalidValue::new(name, value, reason).into());
        match (self, value) {
            (Self::AtLeast(low) | Self::Between(low, _), Value::Integer(number)) if number < low => {
                fails(format!("Value must be at least {low}"))
            }
            (Self::Between(_, high), Value::Integer(number)) if number > high => {
                fails(format!("Value must be no more than {high}"))
            }
            (Self::Ratio(_), Value::Double(number)) if *number < 0.0 => {
                fails("Value must be at least 0".to_owned())
            }
            (Self::Ratio(high), Value::Double(number)) if number > high => {
                fails(format!("Value must be no more than {high}"))
            }
            (Self::GzipLevel, Value::Integer(level)) if !(1..=9).contains(level) && *level != -1 => {
                fails("Value must be between 1 and 9 or equal to -1".to_owned())
            }
            (Self::OneOf(texts), Value::Text(text)) if !texts.contains(&text.as_str()) => {
                fails(format!("String must be one of: {}", texts.join(", ")))
            }
            (Self::OneOfAnyCase(texts), Value::Text(text))
                if !texts.iter().any(|known| known.eq_ignore_ascii_case(text)) =>
            {
                fails(format!("String must be one of (case insensitive): {}", texts.join(", ")))
            }
            (Self::NotEmpty, Value::Text(text)) if text.is_empty() => {
                fails("String must be non-empty".to_owned())
            }
            (Self::List { filled, of, .. }, Value::List(entries)) => check_list(name, entries, *filled, of),
            (Self::ThrottledReplicas, Value::List(entries)) => check_throttled(name, entries),
            (Self::ConnectionOverrides, Value::Text(text)) if connection_overrides(text).is_none() => {
                fails("Expected {address}:{limit}, separated by commas".to_owned())
            }
            (Self::QuorumVoters, Value::List(entries)) => {
                each(name, entries, "Expected {id}@{host}:{port}", |entry| {
                    let (id, server) = entry.split_once('@')?;
                    id.parse::<u32>().ok().filter(|id| i32::try_from(*id).is_ok()).and(host_and_port(server))
                })
            }
            (Self::BootstrapServers, Value::List(entries)) => {
                each(name, entries, "Expected {host}:{port}", host_and_port)
            }
            (Self::ListenAddress, Value::Text(text)) if listen_address(text).is_none() => fails(
                "Expected HOST:PORT, such as localhost:9090; an empty host means every interface, port 0 a free port"
                    .to_owned(),
            ),
            (Self::HttpUrl, Value::Text(text)) if !text.is_empty() && !is_http_url(text) => {
                fails("Expected http://HOST:PORT or https://HOST:PORT, with or without a path".to_owned())
            }
            (Self::HttpHeaders, Value::Secret(text)) if http_headers(text).is_none() => {
                fails("Expected NAME=VALUE, separated by commas".to_owned())
            }
            (Self::SuperUsers, Value::Text(text)) => match super_users(text) {
                Ok(_) => Ok(()),
                Err(error) => fails(error.to_string()),
            },
            (Self::OffsetReset, Value::Text(text)) if ShareOffsetReset::parse(text).is_none() => fails(format!(
                "Invalid value `{text}` for configuration {name}. The value must be either 'earliest', 'latest' or of the \
                 format 'by_duration:<PnDTnHnMn.nS>'."
            )),
            _ => Ok(()),
        }
    }
}

fn check_list(name: &str, entries: &[String], filled: bool, of: &[&str]) -> Result<(), ConfigError> {
    if filled && entries.is_empty() {
        let valid =
            if of.is_empty() { "any non-empty value".to_owned() } else { format!("[{}]", of.join(", ")) };
        return Err(InvalidList::Empty { name: name.to_owned(), valid }.into());
    }
    for entry in entries {
        if entry.is_empty() {
            return Err(InvalidList::EmptyEntry { name: name.to_owned() }.into());
        }
        if !of.is_empty() && !of.contains(&entry.as_str()) {
            let reason = format!("String must be one of: {}", of.join(", "));
            return Err(InvalidValue::new(name, entry, reason).into());
        }
    }
    Ok(())
}

fn check_throttled(name: &str, entries: &[String]) -> Result<(), ConfigError> {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let pair = |entry: &String| {
        entry.is_empty() || entry.split_once(':').is_some_and(|(part, broker)| number(part) && number(broker))
    };
    if entries.concat() == "*" || entries.iter().all(pair) {
        return Ok(());
    }
    let reason = format!(
        "{name} must be the literal '*' or a list of replicas in the following format: \
         [partitionId]:[brokerId],[partitionId]:[brokerId],..."
    );
    Err(InvalidValue::new(name, format!("[{}]", entries.join(", ")), reason).into())
}

fn each<T>(
    name: &str,
    entries: &[String],
    reason: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<(), ConfigError> {
    match entries.iter().find(|entry| parse(entry).is_none()) {
        Some(entry) => Err(InvalidValue::new(name, entry, reason).into()),
        None => Ok(()),
    }
}

/// Splits `host:port`, and removes the brackets of an IPv6 address.
pub(super) fn host_and_port(text: &str) -> Option<(String, u16)> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some((address.ip().to_string(), address.port()));
    }
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty() && host.chars().all(is_host_character)).then_some(())?;
    Some((host.to_owned(), port.parse().ok()?))
}

fn is_http_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let authority = rest.map(|rest| rest.split('/').next().unwrap_or_default());
    authority.is_some_and(|authority| {
        host_and_port(authority).is_some()
            || (!authority.is_empty() && authority.chars().all(|c| c != ':' && is_host_character(c)))
    }) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Splits `name=value` pairs that are valid headers.
pub(super) fn http_headers(text: &str) -> Option<Vec<(String, String)>> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let split = pairs.map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        let is_header = !name.is_empty()
            && name.chars().all(is_token)
            && value.chars().all(|c| c == ' ' || c.is_ascii_graphic());
        is_header.then(|| (name.to_ascii_lowercase(), value.to_owned()))
    });
    split.collect()
}

/// Splits `host:port` of a listener; an empty host means all interfaces.
pub(super) fn listen_address(text: &str) -> Option<(String, u16)> {
    match text.strip_prefix(':') {
        Some(port) => Some((String::new(), port.parse().ok()?)),
        None => host_and_port(text),
    }
}

/// Parses `max.connections.per.ip.overrides`. The limit follows the last colon, because an address may
/// contain colons.
pub(super) fn connection_overrides(text: &str) -> Option<BTreeMap<String, usize>> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let parsed = pairs.map(|pair| {
        let (address, limit) = pair.rsplit_once(':')?;
        let address = address.trim();
        let valid = !address.is_empty() && address.chars().all(is_host_character);
        valid.then_some(()).and(Some((address.to_owned(), limit.trim().parse().ok()?)))
    });
    parsed.collect()
}

/// Parses `super.users`. The separator is a semicolon, because the names of certificates contain commas.
pub(super) fn super_users(text: &str) -> Result<Vec<Principal>, ParsePrincipalError> {
    text.split(';').map(str::trim).filter(|user| !user.is_empty()).map(str::parse).collect()
}

/// The characters that Kafka allows in a host name.
pub(super) fn is_host_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '%' | '.' | '_' | ':')
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Kafka parses these values elsewhere.
            Self::Any | Self::ConnectionOverrides => f.write_str("-"),
            Self::AtLeast(low) => write!(f, "[{low},...]"),
            Self::Between(low, high) => write!(f, "[{low},...,{high}]"),
            Self::Ratio(high) => write!(f, "[0,...,{high}]"),
            Self::GzipLevel => f.write_str("[1,...,9] or -1"),
            Self::OneOf(texts) => write!(f, "[{}]", texts.join(", ")),
            Self::OneOfAnyCase(texts) => write!(f, "(case insensitive) [{}]", texts.join(", ")),
            Self::NotNull => f.write_str("non-null string"),
            Self::NotEmpty => f.write_str("non-empty string"),
            Self::List { filled, nullable, of } => {
                f.write_str("list")?;
                if *filled {
                    f.write_str(" non-empty")?;
                }
                if !*nullable {
                    f.write_str(" non-null")?;
                }
                if of.is_empty() { Ok(()) } else { write!(f, " [{}]", of.join(", ")) }
            }
            Self::OffsetReset => f.write_str("[latest, earliest, by_duration:PnDTnHnMn.nS]"),
            Self::ListenAddress => f.write_str("host:port"),
            Self::HttpUrl => f.write_str("URL of http or https"),
            Self::HttpHeaders => f.write_str("name=value,..."),
            Self::SuperUsers => f.write_str("type:name; ..."),
            Self::ThrottledReplicas => f.write_str("ThrottledReplicaListValidator"),
            Self::QuorumVoters => f.write_str("ControllerQuorumVotersValidator"),
            Self::BootstrapServers => f.write_str("ControllerQuorumBootstrapServersValidator"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_come_with_ports() {
        assert_eq!(host_and_port("one:9092"), Some(("one".to_owned(), 9092)));
        assert_eq!(host_and_port("[::1]:9092"), Some(("::1".to_owned(), 9092)));
        for text in ["one", "one:", ":1", "one:70000", "a b:1", ""] {
            assert_eq!(host_and_port(text), None, "{text}");
        }
    }

    #[test]
    fn an_address_to_listen_on_may_lack_its_host() {
        assert_eq!(listen_address(":9090"), Some((String::new(), 9090)));
        assert_eq!(listen_address("[::1]:0"), Some(("::1".to_owned(), 0)));
        for text in ["9090", "localhost", "localhost:http", ":", ""] {
            let error = LISTEN_ADDRESS.check("http.listener", &Value::Text(text.to_owned()));
            assert!(
                error.expect_err(text).to_string().contains("http.listener: Expected HOST:PORT"),
                "{text}"
            );
        }
    }

    #[test]
    fn urls_and_headers_of_http_are_checked() {
        let check = |check: Check, value: Value| check.check("thalweg.otlp", &value);
        for url in ["http://localhost:4318", "https://otel.example", "http://[::1]:4318/v1/metrics", ""] {
            assert_eq!(
                check(HTTP_URL, Value::Text(url.to_owned())).err().map(|e| e.to_string()),
                None,
                "{url}"
            );
        }
        for url in ["localhost:4318", "http://", "ftp://host", "http://host:port", "http://host/a b"] {
            assert!(check(HTTP_URL, Value::Text(url.to_owned())).is_err(), "{url}");
        }
        let headers = http_headers("Authorization=Basic YQ==, x-id=7").expect("headers");
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(headers, [of("authorization", "Basic YQ=="), of("x-id", "7")]);
        let error = check(HTTP_HEADERS, Value::Secret("s3cret".to_owned())).expect_err("no name");
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }

    #[test]
    fn voters_are_id_host_and_port() {
        let check =
            |text: &str| QUORUM_VOTERS.check("controller.quorum.voters", &Value::List(vec![text.to_owned()]));
        assert_eq!(check("1@one:9093"), Ok(()));
        assert_eq!(
            check("one:9093").expect_err("no id").to_string(),
            "Invalid value one:9093 for configuration controller.quorum.voters: Expected {id}@{host}:{port}"
        );
        assert!(check("-1@one:9093").is_err());
    }
}
