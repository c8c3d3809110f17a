//! A broker's own properties: the file, and the overrides of the command line.
//!
//! This module only reads properties; [`BrokerConfig`](super::BrokerConfig) checks values.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thalweg_dial::{UnresolvedSetting, is_provider_setting};
use thalweg_security::HIDDEN;
use thiserror::Error;

use super::error::{ConfigError, InvalidConfig, InvalidValue};
use super::java_properties::{self, MalformedEscape};
use super::key::{ConfigKey, Support};
use super::removed;
use super::rules;
use super::table::{self, LISTENER_PREFIX, SASL_FAMILY};
use super::values::Values;

/// Maximum size of a properties file; a larger file is something else, or an endless device.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The file cannot be read.
#[derive(Debug, Error)]
#[error("Cannot read {}: {source}", path.display())]
pub struct ReadFailed {
    /// Path of the file.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

/// A line with a malformed escape, the only syntax error of the format.
#[derive(Debug, Error)]
#[error("{}:{line}: Expected four hexadecimal digits after \\u", path.display())]
pub struct BadLine {
    /// Path of the file.
    pub path: PathBuf,
    /// Line number, from 1.
    pub line: usize,
}

/// Why a properties file is refused.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A read error; see [`ReadFailed`].
    #[error(transparent)]
    Read(#[from] ReadFailed),
    /// A malformed line; see [`BadLine`].
    #[error(transparent)]
    Line(#[from] BadLine),
}

/// A placeholder without a value, and its origin.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{error}", origin.iter().map(|origin| format!("{origin}: ")).collect::<String>())]
pub struct UnresolvedProperty {
    /// The file or argument with the placeholder.
    pub origin: Option<String>,
    pub error: UnresolvedSetting,
}

/// An override without an equals sign or without a key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("Invalid override {text}: expected key=value")]
pub struct BadAssignment {
    /// The override as given.
    pub text: String,
}

/// A refused configuration, with the origin of each error.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct RefusedConfig(pub Vec<PlacedError>);

/// An error and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedError {
    /// The file or argument; `None` for errors of unset properties.
    pub origin: Option<String>,
    pub error: ConfigError,
}

impl fmt::Display for PlacedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(origin) => write!(f, "{origin}: {}", self.error),
            None => self.error.fmt(f),
        }
    }
}

/// The properties of a broker by key, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerProperties {
    values: BTreeMap<String, String>,
    /// The origin of each value, if known.
    origins: BTreeMap<String, String>,
    /// Keys whose values come from config providers.
    resolved: BTreeSet<String>,
}

impl ServerProperties {
    /// Reads a Java properties file.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let bytes = read_bounded(path).map_err(|source| ReadFailed { path: path.to_owned(), source })?;
        Ok(Self::parse(path, &bytes)?)
    }

    /// Parses the contents of a Java properties file. `path` is for error messages.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, BadLine> {
        let read = java_properties::read(bytes);
        let values = read.map_err(|MalformedEscape { line }| BadLine { path: path.to_owned(), line })?;
        let values: BTreeMap<String, String> = values.into_iter().collect();
        let origin = path.display().to_string();
        let origins = values.keys().map(|key| (key.clone(), origin.clone())).collect();
        Ok(Self { values, origins, resolved: BTreeSet::new() })
    }

    /// Sets one property over the value of the file.
    pub fn set(&mut self, key: &str, value: &str) {
        self.values.insert(key.to_owned(), value.to_owned());
        self.origins.remove(key);
        self.resolved.remove(key);
    }

    /// Sets one property over the value of the file. `origin` is for error messages.
    pub fn set_from(&mut self, origin: &str, key: &str, value: &str) {
        self.set(key, value);
        self.origins.insert(key.to_owned(), origin.to_owned());
    }

    /// Sets one property from `key=value`. `origin` is for error messages.
    pub fn assign(&mut self, origin: &str, text: &str) -> Result<(), BadAssignment> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                self.set_from(origin, key.trim(), value.trim());
                Ok(())
            }
            _ => Err(BadAssignment { text: text.to_owned() }),
        }
    }

    /// Replaces placeholders by the values of config providers.
    pub fn resolve(mut self) -> Result<Self, UnresolvedProperty> {
        let resolved = thalweg_dial::resolve(&mut self.values).map_err(|error| UnresolvedProperty {
            origin: self.origins.get(&error.setting).cloned(),
            error,
        })?;
        self.resolved.extend(resolved);
        Ok(self)
    }

    /// Adds the origins to errors, and removes values of config providers, which Kafka's messages repeat:
    /// providers are for secrets.
    pub fn place(&self, invalid: InvalidConfig) -> RefusedConfig {
        let origin = |error: &ConfigError| error.key().and_then(|key| self.origins.get(key)).cloned();
        let placed = |error| {
            let origin = origin(&error);
            PlacedError { origin, error: self.with_hint(self.without_secret(error)) }
        };
        RefusedConfig(invalid.0.into_iter().map(placed).collect())
    }

    /// Adds a hint to the error of a value with a comment behind it, which is a part of the value.
    fn with_hint(&self, error: ConfigError) -> ConfigError {
        match error {
            ConfigError::Value(mut invalid) if invalid.value.contains(" #") => {
                invalid.reason +=
                    ". A # behind a value is a part of it: put the comment on a line of its own";
                ConfigError::Value(invalid)
            }
            error => error,
        }
    }

    fn without_secret(&self, error: ConfigError) -> ConfigError {
        match error {
            ConfigError::Value(invalid) if self.resolved.contains(&invalid.name) => {
                let resolved = self.values.get(&invalid.name).map_or("", |value| value.trim());
                // A shorter text would occur in any message by chance.
                let repeated = [invalid.value.as_str(), resolved].into_iter().filter(|text| text.len() > 3);
                let reason = repeated.fold(invalid.reason, |reason, text| reason.replace(text, HIDDEN));
                ConfigError::Value(InvalidValue { value: HIDDEN.to_owned(), reason, name: invalid.name })
            }
            error => error,
        }
    }

    /// The value of a property, if it is set.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// All set properties, by key.
    pub fn values(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    /// Set properties without the expected effect, by key.
    pub fn warnings(&self) -> Vec<Warning> {
        let is_alone = rules::is_alone(&Values::parse(table::broker_keys(), &self.values, false).0);
        let warn = |(name, value): (&String, &String)| match out_of_reach(name, value) {
            Some(reason) if is_alone => {
                Some(Warning { name: name.clone(), kind: WarningKind::Unserved(reason) })
            }
            _ => warning(name, value),
        };
        self.values.iter().filter_map(warn).collect()
    }
}

#[expect(clippy::disallowed_types, reason = "a file of the user, read once before there is a disk")]
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let reason = format!("It has more than {FILE_BYTES_MAX} bytes, too many for a properties file");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

/// Why a property has no effect on a broker that no other node can join.
fn out_of_reach(name: &str, value: &str) -> Option<&'static str> {
    let reason = table::broker_key(name)?.alone?;
    value.trim().parse::<i32>().is_ok_and(|wanted| wanted > 1).then_some(reason)
}

/// The warning about a value set at run time without the expected effect, if any.
pub(super) fn dynamic_warning(name: &str, value: &str) -> Option<Warning> {
    match table::broker_key(name).map(|key| key.support) {
        Some(Support::FromFile(reason)) => {
            Some(Warning { name: name.to_owned(), kind: WarningKind::WithoutEffect(reason) })
        }
        _ => warning(name, value),
    }
}

/// The warning about a property without the expected effect, if any.
fn warning(name: &str, value: &str) -> Option<Warning> {
    let kind = match table::broker_key(name) {
        // A key set to its default needs no warning.
        Some(key) if key.default == Some(value.trim()) => return None,
        Some(ConfigKey {
            support:
                Support::Served
                | Support::Startup
                | Support::FromFile(_)
                | Support::Opening
                | Support::Listener
                | Support::PerListener,
            ..
        }) => {
            return None;
        }
        Some(ConfigKey { support: Support::Accepted(reason), .. }) => WarningKind::WithoutEffect(reason),
        Some(ConfigKey { support: Support::Unserved(reason), .. }) => WarningKind::Unserved(reason),
        None if is_of_listener(name) || is_provider_setting(name) => return None,
        None if name.starts_with(LISTENER_PREFIX) => {
            WarningKind::Unserved("settings for a single listener are not served yet")
        }
        None => match removed::advice(name) {
            Some(advice) => WarningKind::Removed(advice),
            None => WarningKind::Unknown { similar: similar_key(name) },
        },
    };
    Some(Warning { name: name.to_owned(), kind })
}

/// True if a key is a setting of one listener that takes effect there, or on connections to such listeners. A
/// SASL setting may be for one mechanism.
fn is_of_listener(name: &str) -> bool {
    let Some((_, key)) = name.strip_prefix(LISTENER_PREFIX).and_then(|rest| rest.split_once('.')) else {
        return false;
    };
    let is_opening = |key| {
        matches!(
            table::broker_key(key),
            Some(ConfigKey { support: Support::Opening | Support::Listener | Support::PerListener, .. })
        )
    };
    let is_sasl = |name: &str| {
        SASL_FAMILY.keys.iter().any(|key| key.name == name && !matches!(key.support, Support::Unserved(_)))
    };
    is_opening(key) || is_sasl(key) || key.split_once('.').is_some_and(|(_, behind)| is_sasl(behind))
}

/// A set property without the expected effect. Its `Display` has key and reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub name: String,
    /// Kind of warning.
    pub kind: WarningKind,
}

/// Kinds of warnings; only the last one is harmless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WarningKind {
    /// Neither Kafka nor Thalweg knows the key.
    Unknown {
        /// A known key with similar spelling.
        similar: Option<&'static str>,
    },
    /// A setting of older Kafka versions, with its replacement.
    Removed(&'static str),
    /// Not supported, for this reason.
    Unserved(&'static str),
    /// No effect, for this reason.
    WithoutEffect(&'static str),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match self.kind {
            WarningKind::Unknown { similar: Some(similar) } => {
                write!(f, "{name}: unknown key; did you mean {similar}?")
            }
            WarningKind::Unknown { similar: None } => write!(f, "{name}: unknown key"),
            WarningKind::Removed(advice) => write!(f, "{name} is a setting of older Kafka: {advice}"),
            WarningKind::Unserved(reason) => write!(f, "{name}: {reason}"),
            WarningKind::WithoutEffect(reason) => write!(f, "{name} has no effect: {reason}"),
        }
    }
}

/// The key at a distance of two letters at most, if there is one.
fn similar_key(name: &str) -> Option<&'static str> {
    let distances = table::broker_keys().iter().map(|key| (letters_apart(name, key.name), key.name));
    distances.min().filter(|(distance, _)| *distance <= 2).map(|(_, name)| name)
}

/// The Levenshtein distance of two names.
fn letters_apart(left: &str, right: &str) -> usize {
    if left.len().abs_diff(right.len()) > 2 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, a) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, b) in right.bytes().enumerate() {
            let substituted = diagonal + usize::from(a != b);
            diagonal = row[column + 1];
            row[column + 1] = substituted.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ServerProperties {
        ServerProperties::parse(Path::new("server.properties"), text.as_bytes()).expect("a properties file")
    }

    #[test]
    fn values_of_providers_are_read_and_a_placeholder_without_one_names_its_place() {
        let text = "log.dirs=/data/${env:CARGO_PKG_NAME}\nconfig.providers=env\nconfig.providers.env.class=\
                    org.apache.kafka.common.config.provider.EnvVarConfigProvider\n";
        let resolved = parse(text).resolve().expect("Cargo sets the variable");
        assert_eq!(resolved.get("log.dirs"), Some("/data/thalweg-config"));
        assert_eq!(resolved.warnings(), []);
        let mut wrong = parse(&format!("{text}num.io.threads=${{env:CARGO_PKG_NAME}}\nnum.partitions=x\n"));
        wrong = wrong.resolve().expect("Cargo sets the variable");
        let refused = crate::BrokerConfig::new(&wrong).expect_err("no numbers");
        let refused = wrong.place(refused).to_string();
        assert!(refused.contains("num.io.threads") && refused.contains("value x"), "{refused}");
        assert!(!refused.contains("thalweg-config"), "a value of a provider may be a secret: {refused}");
        let mut unknown = parse(text);
        unknown.set_from("--set", "broker.rack", "${vault:rack}");
        assert_eq!(
            unknown.resolve().expect_err("no such provider").to_string(),
            "--set: broker.rack: ${vault:rack} has no value: config.providers does not name vault"
        );
    }

    #[test]
    fn a_java_properties_file_is_read_as_java_reads_it() {
        let properties = parse(
            "# comment\n! comment\nnode.id = 7\nlog.dirs:/a,\\\n   /b\nbroker.rack r\\u00e4ck\nempty=\nnode.id=8\n",
        );
        assert_eq!(properties.get("node.id"), Some("8"), "the last one counts");
        assert_eq!(properties.get("log.dirs"), Some("/a,/b"));
        assert_eq!(properties.get("broker.rack"), Some("r\u{e4}ck"));
        assert_eq!(properties.get("empty"), Some(""));
        assert_eq!(properties.values().len(), 4);
    }

    #[test]
    fn a_broken_line_is_named() {
        let error =
            ServerProperties::parse(Path::new("x.properties"), b"a=1\nb=\\u12").expect_err("half an escape");
        assert_eq!(error.line, 2);
        assert_eq!(error.to_string(), "x.properties:2: Expected four hexadecimal digits after \\u");
        let missing =
            ServerProperties::load(Path::new("/nowhere/server.properties")).expect_err("no such file");
        assert!(missing.to_string().starts_with("Cannot read /nowhere/server.properties: "), "{missing}");
    }

    #[test]
    fn no_file_is_a_panic() {
        use rand::{Rng, SeedableRng, rngs::SmallRng};
        let mut random = SmallRng::seed_from_u64(4);
        let alphabet = b"ab=: \t\n\r\\u0123fF#!,\xe4\xff\0";
        for _ in 0..5_000 {
            let bytes: Vec<u8> = (0..random.random_range(0..40))
                .map(|_| alphabet[random.random_range(0..alphabet.len())])
                .collect();
            if let Ok(properties) = ServerProperties::parse(Path::new("x"), &bytes) {
                properties.warnings();
                drop(crate::BrokerConfig::new(&properties));
            }
        }
    }

    #[test]
    fn replicas_that_one_broker_cannot_have_are_named() {
        let text =
            "default.replication.factor=3\nmin.insync.replicas=2\noffsets.topic.replication.factor=1\n";
        let names = |properties: ServerProperties| -> Vec<String> {
            properties.warnings().into_iter().map(|warning| warning.name).collect()
        };
        let both = ["default.replication.factor", "min.insync.replicas"];
        assert_eq!(names(parse(text)), both);
        assert_eq!(names(parse(&format!("process.roles=broker,controller\n{text}"))), both);
        assert!(names(parse(&format!("process.roles=broker\n{text}"))).is_empty());
        let joined = "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n";
        assert!(names(parse(&format!("{joined}{text}"))).is_empty(), "others can join its controller");
    }

    #[test]
    fn errors_have_the_line_of_the_setting() {
        let mut properties = parse("num.partitions=many\nlog.segment.bytes=1\n");
        properties.set_from("--listen", "listeners", "PLAINTEXT://nowhere");
        properties.assign("--set", "log.segment.bytes=2").expect("an assignment");
        properties.set("broker.rack", "r");
        let invalid = crate::BrokerConfig::new(&properties).expect_err("three are wrong");
        let told = properties.place(invalid).to_string();
        for start in [
            "server.properties: Invalid value many for configuration num.partitions",
            "--set: Invalid value 2 for configuration log.segment.bytes",
            "--listen: Invalid value PLAINTEXT://nowhere for configuration listeners",
        ] {
            assert!(told.lines().any(|line| line.starts_with(start)), "{start} in {told}");
        }
    }

    #[test]
    fn a_comment_behind_a_value_gets_a_hint() {
        let properties =
            parse("group.initial.rebalance.delay.ms=0 #for quick response\nnum.partitions=many\n");
        let invalid = crate::BrokerConfig::new(&properties).expect_err("both are wrong");
        let told = properties.place(invalid).to_string();
        let hinted: Vec<&str> = told.lines().filter(|line| line.contains("on a line of its own")).collect();
        assert!(hinted.len() == 1 && hinted[0].contains("group.initial.rebalance.delay.ms"), "{told}");
    }

    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = ServerProperties::load(Path::new("/dev/zero")).expect_err("no properties");
        assert!(error.to_string().starts_with("Cannot read /dev/zero: It has more than"), "{error}");
    }

    #[test]
    fn an_override_needs_a_key_and_a_value() {
        let mut properties = ServerProperties::default();
        assert_eq!(properties.assign("--set", "log.dirs = /a=b"), Ok(()));
        assert_eq!(properties.get("log.dirs"), Some("/a=b"));
        for text in ["node.id", "=1", ""] {
            assert_eq!(properties.assign("--set", text), Err(BadAssignment { text: text.to_owned() }));
        }
    }

    #[test]
    fn warnings_name_key_and_reason() {
        let warnings = parse(
            "ssl.keystore.location=/k\nnode.id=1\nlog.retenton.ms=5\nmine=1\nnum.io.threads=16\n\
             transaction.state.log.min.isr=1\nlistener.name.external.num.network.threads=3\n\
             listener.name.controller.ssl.truststore.location=/t\n\
             listener.name.controller.plain.sasl.jaas.config=x\n",
        )
        .warnings();
        let texts: Vec<_> = warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "listener.name.external.num.network.threads: settings for a single listener are not served yet",
                "log.retenton.ms: unknown key; did you mean log.retention.ms?",
                "mine: unknown key",
                "num.io.threads has no effect: one worker thread per core replaces all of Kafka's thread pools",
            ]
        );
    }
}
