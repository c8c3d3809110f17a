//! Configuration: Kafka's keys with Kafka's names, defaults and checks, of the broker and of topics.
//!
//! Owns the tables of keys and everything derived from them: reading `server.properties`, the typed settings
//! of the broker and of a topic, the answers of DescribeConfigs, the checks of AlterConfigs and CreateTopics,
//! and `docs/configuration.md`. Pure apart from reading the file: dynamic values come from the metadata image
//! as maps, and changes are returned as maps for the controller to write.

pub mod alter;
mod broker;
mod check;
mod connections;
pub mod describe;
pub mod document;
mod error;
mod group;
mod group_value;
mod http;
mod incoming;
mod internal_topic;
mod java_properties;
mod key;
mod listener;
mod loggers;
mod node;
mod outgoing;
mod properties;
mod removed;
mod rules;
mod sasl;
mod setting;
pub mod table;
#[cfg(test)]
mod tests;
mod topic;
mod topic_value;
mod value;
mod values;

pub use broker::BrokerConfig;
pub use check::Check;
pub use connections::ListenerConnectionLimits;
pub use error::{AlterError, ConfigError, InvalidConfig, InvalidList, InvalidValue};
pub use group::{client_metrics, describe_client_metrics, validate_client_metrics};
pub use group_value::ShareOffsetReset;
pub use http::HTTP_LISTENER;
pub use internal_topic::InternalTopic;
pub use key::{ConfigKey, ConfigType, Importance, Support, Unit, UpdateMode};
pub use listener::{Listener, Listeners, SecurityProtocol};
pub use loggers::{LOGGERS, LogLevel, LogLevels, Logger, LoggerChange, LoggerError, Loggers, ROOT_LOGGER};
pub use node::{Roles, Voter};
pub use properties::{
    BadAssignment, BadLine, LoadError, PlacedError, ReadFailed, RefusedConfig, ServerProperties, Warning,
    WarningKind,
};
pub use sasl::{SaslListener, TokenSettings};
pub use setting::Setting;
pub use table::{
    AccessSettings, AuditKind, AuditSettings, CleanerSettings, ClientMetricsSettings, ConsoleSettings,
    ConsumerGroupKeys, ControllerSettings, DelegationTokenSettings, DirectorySettings, EffectiveGroupConfig,
    EffectiveTopicConfig, GroupSettings, HttpSettings, ListenerSettings, LogLineSettings, LogSettings,
    MetadataLogSettings, MetricsSettings, NetworkSettings, NodeSettings, OtlpHeaders, RegistryUser,
    ReplicationSettings, STANDARD_AUTHORIZER_CLASS, SaslKeys, ShareCoordinatorSettings, ShareGroupKeys,
    StandardAuthorizerSettings, StreamSettings, StreamsGroupKeys, TlsKeys, TopicSettings,
    TransactionSettings,
};
pub use thalweg_log::CleanupPolicy;
pub use thalweg_record::TimestampType;
pub use topic::{TopicDefaults, without_effect};
pub use topic_value::{CompressionType, ThrottledReplicas, TopicCompression};
pub use value::Value;

#[cfg(test)]
#[path = "../../wire/tests/support/page.rs"]
mod page;
