//! Errors of configurations, with the messages that Kafka's clients show.

use thiserror::Error;

/// A value that its key does not allow.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("Invalid value {value} for configuration {name}: {reason}")]
pub struct InvalidValue {
    /// The key.
    pub name: String,
    /// The value as it was given.
    pub value: String,
    /// What is expected.
    pub reason: String,
}

impl InvalidValue {
    pub(super) fn new(name: &str, value: impl ToString, reason: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.to_string(), reason: reason.into() }
    }
}

/// A list that its key does not allow.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidList {
    /// An entry between two commas is missing.
    #[error("Configuration '{name}' values must not be empty.")]
    EmptyEntry {
        /// The key.
        name: String,
    },
    /// The list is empty.
    #[error("Configuration '{name}' must not be empty. Valid values include: {valid}")]
    Empty {
        /// The key.
        name: String,
        /// What it may hold.
        valid: String,
    },
}

/// Why a configuration of a broker or topic is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// See [`InvalidValue`].
    #[error(transparent)]
    Value(#[from] InvalidValue),
    /// See [`InvalidList`].
    #[error(transparent)]
    List(#[from] InvalidList),
    /// A topic's key that does not exist.
    #[error("Unknown topic config name: {name}")]
    UnknownTopicKey {
        /// The key.
        name: String,
    },
    /// A group's key that does not exist.
    #[error("Unknown group config name: {name}")]
    UnknownGroupKey {
        /// The key.
        name: String,
    },
    /// A value of a group beyond what the broker's configuration, or another of its values, allows.
    #[error("{name} must be {relation} {bound}")]
    GroupBound {
        /// The key.
        name: String,
        /// How it must relate to the bound, such as `greater than`.
        relation: &'static str,
        /// The key that sets the bound.
        bound: String,
    },
    /// A key of a subscription to clients' metrics that does not exist.
    #[error("Unknown client metrics configuration: {name}")]
    UnknownClientMetricsKey {
        /// The key.
        name: String,
    },
    /// Clients would send metrics too often, or too rarely.
    #[error("Invalid value {interval_ms} for interval.ms, interval must be between 100 and 3600000 (1 hour)")]
    ClientMetricsInterval {
        /// `interval.ms`.
        interval_ms: i64,
    },
    /// Not a property of clients and a pattern for it.
    #[error("Illegal client matching pattern: {pattern}")]
    ClientMatch {
        /// The entry of `match`.
        pattern: String,
    },
    /// A subscription to clients' metrics must have a name.
    #[error("Subscription name can't be empty")]
    UnnamedSubscription,
    /// Keys of a topic given without a value.
    #[error("Null value not supported for topic configs: {}", names.join(","))]
    NullTopicValues {
        /// The keys.
        names: Vec<String>,
    },
    /// A record would have to be compacted before it may be.
    #[error("conflict topic config setting min.compaction.lag.ms ({min}) > max.compaction.lag.ms ({max})")]
    CompactionLags {
        /// `min.compaction.lag.ms`.
        min: i64,
        /// `max.compaction.lag.ms`.
        max: i64,
    },
    /// A topic with tiered storage.
    #[error(
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
    )]
    RemoteStorage,
}

impl ConfigError {
    /// The key whose value is wrong, where it is the value of one key.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Value(InvalidValue { name, .. })
            | Self::List(InvalidList::EmptyEntry { name } | InvalidList::Empty { name, .. }) => Some(name),
            _ => None,
        }
    }

    /// The same error, of a key with this name: one of a listener's own.
    pub(super) fn named(mut self, name: &str) -> Self {
        if let Self::Value(value) = &mut self {
            name.clone_into(&mut value.name);
        }
        self
    }
}

/// All that is wrong with a broker's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct InvalidConfig(pub Vec<ConfigError>);

/// Why a change of configuration is refused; the wire code is [`AlterError::code`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AlterError {
    /// The values are not allowed.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The new configuration of the broker as a whole is not allowed.
    #[error(transparent)]
    Broker(#[from] InvalidConfig),
    /// APPEND or SUBTRACT on a key that is no list.
    #[error("Can't {operation} to key {name} because its type is not LIST.")]
    NotAList {
        /// The key.
        name: String,
        /// `APPEND` or `SUBTRACT`.
        operation: &'static str,
    },
    /// APPEND or SUBTRACT on a key of a broker that is no list.
    #[error("Config value {operation} is not allowed for config key: {name}")]
    NotABrokerList {
        /// The key.
        name: String,
        /// `append` or `subtract`.
        operation: &'static str,
    },
    /// A key that no table knows.
    #[error("Unknown config name: {name}")]
    UnknownKey {
        /// The key.
        name: String,
    },
    /// A key that only a restart changes.
    #[error("Cannot update these configs dynamically: [{}]", names.join(", "))]
    NotDynamic {
        /// The keys.
        names: Vec<String>,
    },
    /// A key of one broker, given for all.
    #[error(
        "Cannot update these configs at default cluster level, broker id must be specified: [{}]", names.join(", ")
    )]
    PerBrokerOnly {
        /// The keys.
        names: Vec<String>,
    },
    /// A key that cannot change while the broker runs, although Kafka's can.
    #[error("Cannot set {name}: {reason}")]
    Unserved {
        /// The key.
        name: String,
        /// What is missing.
        reason: &'static str,
    },
    /// Keys to set without a value.
    #[error("Null value not supported for : {}", names.join(", "))]
    NullValues {
        /// The keys.
        names: Vec<String>,
    },
    /// The same key twice in one request.
    #[error("Error due to duplicate config keys")]
    DuplicateKeys,
    /// A number that is no operation.
    #[error("Unknown operations type {code}")]
    UnknownOperation {
        /// The number.
        code: i8,
    },
    /// A value longer than the metadata log takes.
    #[error(
        "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes."
    )]
    TooLong {
        /// The key.
        name: String,
    },
}

impl AlterError {
    /// Kafka's error code: INVALID_CONFIG, or INVALID_REQUEST where Kafka's broker answers so.
    pub fn code(&self) -> i16 {
        const INVALID_CONFIG: i16 = 40;
        const INVALID_REQUEST: i16 = 42;
        match self {
            Self::Config(_)
            | Self::NotAList { .. }
            | Self::NotABrokerList { .. }
            | Self::UnknownKey { .. }
            | Self::TooLong { .. } => INVALID_CONFIG,
            Self::Broker(_)
            | Self::NotDynamic { .. }
            | Self::PerBrokerOnly { .. }
            | Self::Unserved { .. }
            | Self::NullValues { .. }
            | Self::DuplicateKeys
            | Self::UnknownOperation { .. } => INVALID_REQUEST,
        }
    }
}
