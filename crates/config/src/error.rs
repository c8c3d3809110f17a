//! Errors of configurations, with the messages that Kafka's clients show.

use thiserror::Error;

/// A value that its key does not allow.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("Invalid value {value} for configuration {name}: {reason}")]
pub struct InvalidValue {
    pub name: String,
    /// The value as given.
    pub value: String,
    /// The expected value.
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
    /// A list with an empty entry.
    #[error("Configuration '{name}' values must not be empty.")]
    EmptyEntry { name: String },
    /// The list is empty.
    #[error("Configuration '{name}' must not be empty. Valid values include: {valid}")]
    Empty {
        name: String,
        /// The allowed entries.
        valid: String,
    },
}

/// Why the configuration of a broker, topic or group is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// An invalid value; see [`InvalidValue`].
    #[error(transparent)]
    Value(#[from] InvalidValue),
    /// An invalid list; see [`InvalidList`].
    #[error(transparent)]
    List(#[from] InvalidList),
    /// An unknown topic key.
    #[error("Unknown topic config name: {name}")]
    UnknownTopicKey { name: String },
    /// An unknown group key.
    #[error("Unknown group config name: {name}")]
    UnknownGroupKey { name: String },
    /// A group's value beyond a bound of the broker's configuration or of another group value.
    #[error("{name} must be {relation} {bound}")]
    GroupBound {
        name: String,
        /// The required relation to the bound, such as `greater than`.
        relation: &'static str,
        /// Name of the key that sets the bound.
        bound: String,
    },
    /// An unknown key of a client metrics subscription.
    #[error("Unknown client metrics configuration: {name}")]
    UnknownClientMetricsKey { name: String },
    /// The push interval of client metrics is out of range.
    #[error("Invalid value {interval_ms} for interval.ms, interval must be between 100 and 3600000 (1 hour)")]
    ClientMetricsInterval {
        /// `interval.ms`, in milliseconds.
        interval_ms: i64,
    },
    /// An entry of `match` that is not a client property with a pattern.
    #[error("Illegal client matching pattern: {pattern}")]
    ClientMatch {
        /// The entry as given.
        pattern: String,
    },
    /// A client metrics subscription without a name.
    #[error("Subscription name can't be empty")]
    UnnamedSubscription,
    /// Topic keys without a value.
    #[error("Null value not supported for topic configs: {}", names.join(","))]
    NullTopicValues { names: Vec<String> },
    /// The minimum compaction lag exceeds the maximum.
    #[error("conflict topic config setting min.compaction.lag.ms ({min}) > max.compaction.lag.ms ({max})")]
    CompactionLags {
        /// `min.compaction.lag.ms`.
        min: i64,
        /// `max.compaction.lag.ms`.
        max: i64,
    },
    /// A topic with tiered storage, which is not supported.
    #[error(
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
    )]
    RemoteStorage,
}

impl ConfigError {
    /// The key with the invalid value, if the error is about one key.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Value(InvalidValue { name, .. })
            | Self::List(InvalidList::EmptyEntry { name } | InvalidList::Empty { name, .. }) => Some(name),
            _ => None,
        }
    }

    /// The same error for a key of this name, as for a setting of one listener.
    pub(super) fn named(mut self, name: &str) -> Self {
        if let Self::Value(value) = &mut self {
            name.clone_into(&mut value.name);
        }
        self
    }
}

/// All errors of a broker's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct InvalidConfig(pub Vec<ConfigError>);

/// Why a configuration change is refused; [`AlterError::code`] returns the wire code.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AlterError {
    /// A value is not allowed.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The broker's configuration after the change is not allowed.
    #[error(transparent)]
    Broker(#[from] InvalidConfig),
    /// APPEND or SUBTRACT on a topic key that is not a list.
    #[error("Can't {operation} to key {name} because its type is not LIST.")]
    NotAList {
        name: String,
        /// `APPEND` or `SUBTRACT`.
        operation: &'static str,
    },
    /// APPEND or SUBTRACT on a broker key that is not a list.
    #[error("Config value {operation} is not allowed for config key: {name}")]
    NotABrokerList {
        name: String,
        /// `append` or `subtract`.
        operation: &'static str,
    },
    /// An unknown key.
    #[error("Unknown config name: {name}")]
    UnknownKey { name: String },
    /// Keys whose change requires a restart.
    #[error("Cannot update these configs dynamically: [{}]", names.join(", "))]
    NotDynamic { names: Vec<String> },
    /// Keys of one broker, set for all brokers.
    #[error(
        "Cannot update these configs at default cluster level, broker id must be specified: [{}]", names.join(", ")
    )]
    PerBrokerOnly { names: Vec<String> },
    /// A key that cannot change at run time here, although it can in Kafka.
    #[error("Cannot set {name}: {reason}")]
    Unserved {
        name: String,
        /// The missing feature.
        reason: &'static str,
    },
    /// Keys set to null.
    #[error("Null value not supported for : {}", names.join(", "))]
    NullValues { names: Vec<String> },
    /// A key occurs twice in one request.
    #[error("Error due to duplicate config keys")]
    DuplicateKeys,
    /// An unknown operation number.
    #[error("Unknown operations type {code}")]
    UnknownOperation { code: i8 },
    /// A value beyond the limit of the metadata log.
    #[error(
        "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes."
    )]
    TooLong { name: String },
}

impl AlterError {
    /// Kafka's error code: INVALID_CONFIG, or INVALID_REQUEST where Kafka's broker uses it.
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
