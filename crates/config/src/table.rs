//! The table of all configuration keys of Kafka 4.3, each declared once in the format of `declare`.
//!
//! Everything else about configuration is derived from this table: parsing, checks, the typed settings,
//! DescribeConfigs, AlterConfigs, warnings, the documentation.

mod access;
mod cluster;
mod coordinators;
mod declare;
mod group;
mod log;
mod metrics;
mod network;
mod own;
mod reason;
mod sasl;
#[cfg(test)]
mod tests;
mod tls;
mod topic;
mod unserved;

use std::sync::LazyLock;

use super::key::ConfigKey;
pub use access::{
    AccessSettings, DelegationTokenSettings, STANDARD_AUTHORIZER_CLASS, StandardAuthorizerSettings,
};
pub(crate) use cluster::RACK_AWARE_SELECTOR;
pub use cluster::{ControllerSettings, MetadataLogSettings, NodeSettings, ReplicationSettings};
pub use coordinators::{
    ConsumerGroupKeys, GroupSettings, ShareCoordinatorSettings, ShareGroupKeys, StreamsGroupKeys,
    TransactionSettings,
};
pub use group::{ClientMetricsSettings, EffectiveGroupConfig};
pub use log::{CleanerSettings, LogSettings};
pub use metrics::{MetricsSettings, OtlpHeaders};
pub use network::{ListenerSettings, NetworkSettings, TopicSettings};
pub use own::{
    AuditKind, AuditSettings, ConsoleSettings, DirectorySettings, HttpSettings, LogLineSettings, ProduceKeys,
    RegistryUser, StreamSettings,
};
pub use sasl::SaslKeys;
pub use tls::TlsKeys;
pub use topic::EffectiveTopicConfig;
pub use unserved::TieredStorageKeys;

/// Related keys, under a title for the documentation.
#[derive(Debug)]
pub struct Family {
    /// Title in the documentation.
    pub title: &'static str,
    /// Keys in reading order.
    pub keys: &'static [ConfigKey],
}

/// The families of a broker's keys, in the order of the documentation.
pub const BROKER_FAMILIES: &[Family] = &[
    network::LISTENERS,
    network::NETWORK,
    network::TOPICS,
    log::LOG,
    log::CLEANER,
    cluster::NODE,
    cluster::PROVIDERS,
    cluster::CONTROLLERS,
    cluster::METADATA_LOG,
    cluster::REPLICATION_KEYS,
    coordinators::GROUPS,
    coordinators::TRANSACTION_KEYS,
    coordinators::CONSUMER_GROUP_KEYS,
    coordinators::SHARE_GROUPS,
    coordinators::SHARE_COORDINATOR,
    coordinators::STREAMS_GROUP_KEYS,
    access::ACCESS,
    access::STANDARD_AUTHORIZER,
    access::DELEGATION_TOKENS,
    unserved::QUOTA_KEYS,
    unserved::METRIC_KEYS,
    unserved::TIERED_STORAGE,
    tls::TLS_KEYS,
    own::REVOCATION,
    sasl::SASL_KEYS,
    own::HTTP,
    own::CONSOLE,
    own::STREAMS,
    own::PRODUCE,
    own::AUDIT,
    own::DIRECTORIES,
    own::LOG_LINES,
    metrics::METRICS,
];

/// The families of a topic's keys.
pub const TOPIC_FAMILIES: &[Family] = &[topic::TOPIC_KEYS];

/// The family of a group's keys.
pub const GROUP_FAMILY: &Family = &group::GROUP_KEYS;

/// The family of keys of a client metrics subscription.
pub const CLIENT_METRICS_FAMILY: &Family = &group::CLIENT_METRICS_KEYS;

/// The family of SASL keys.
pub const SASL_FAMILY: &Family = &sasl::SASL_KEYS;

/// The TLS keys that a listener may set for itself.
pub fn listener_tls_keys() -> impl Iterator<Item = &'static ConfigKey> {
    let families = [&tls::TLS_KEYS, &own::REVOCATION];
    families.into_iter().flat_map(|family| family.keys).filter(|key| key.is_of_listeners())
}

static BROKER_KEYS: LazyLock<Vec<&'static ConfigKey>> = LazyLock::new(|| sorted(BROKER_FAMILIES));
static TOPIC_KEYS: LazyLock<Vec<&'static ConfigKey>> = LazyLock::new(|| sorted(TOPIC_FAMILIES));
static GROUP_KEYS: LazyLock<Vec<&'static ConfigKey>> =
    LazyLock::new(|| sorted(std::slice::from_ref(GROUP_FAMILY)));
static CLIENT_METRICS_KEYS: LazyLock<Vec<&'static ConfigKey>> =
    LazyLock::new(|| sorted(std::slice::from_ref(CLIENT_METRICS_FAMILY)));

fn sorted(families: &'static [Family]) -> Vec<&'static ConfigKey> {
    let mut keys: Vec<_> = families.iter().flat_map(|family| family.keys).collect();
    keys.sort_unstable_by_key(|key| key.name);
    keys
}

/// Every key of a broker, by name.
pub fn broker_keys() -> &'static [&'static ConfigKey] {
    &BROKER_KEYS
}

/// Every key of a topic, by name.
pub fn topic_keys() -> &'static [&'static ConfigKey] {
    &TOPIC_KEYS
}

/// Every key of a group, by name.
pub fn group_keys() -> &'static [&'static ConfigKey] {
    &GROUP_KEYS
}

/// Every key of a client metrics subscription, by name.
pub fn client_metrics_keys() -> &'static [&'static ConfigKey] {
    &CLIENT_METRICS_KEYS
}

/// The broker key with this name.
pub fn broker_key(name: &str) -> Option<&'static ConfigKey> {
    find(broker_keys(), name)
}

/// The topic key with this name.
pub fn topic_key(name: &str) -> Option<&'static ConfigKey> {
    find(topic_keys(), name)
}

/// The group key with this name.
pub fn group_key(name: &str) -> Option<&'static ConfigKey> {
    find(group_keys(), name)
}

/// The key with this name of a client metrics subscription.
pub fn client_metrics_key(name: &str) -> Option<&'static ConfigKey> {
    find(client_metrics_keys(), name)
}

fn find(keys: &[&'static ConfigKey], name: &str) -> Option<&'static ConfigKey> {
    keys.binary_search_by(|key| key.name.cmp(name)).ok().map(|at| keys[at])
}

/// Prefix of a setting for one listener.
pub(crate) const LISTENER_PREFIX: &str = "listener.name.";

/// The listener and the key of a setting for one listener: `listener.name.NAME.KEY`, with the name in lower
/// case.
pub fn listener_key(name: &str) -> Option<(&str, &'static ConfigKey)> {
    let (listener, key) = name.strip_prefix(LISTENER_PREFIX)?.split_once('.')?;
    Some((listener, broker_key(key).filter(|key| key.is_of_listeners())?))
}

/// The key of a broker setting, for all listeners or for a single one.
pub fn settable_key(name: &str) -> Option<&'static ConfigKey> {
    broker_key(name).or_else(|| Some(listener_key(name)?.1))
}

/// The broker keys with the minimum and the maximum of a value. A group key has the bounds of the broker key
/// on which it falls back.
pub(crate) fn bounds(key: &ConfigKey) -> (Option<&'static str>, Option<&'static str>) {
    let of_broker = key.falls_back.first().and_then(|(name, _)| broker_key(name));
    of_broker.unwrap_or(key).within
}

/// The broker keys of which the first set one applies: `name` and its synonyms in other units, by descending
/// priority. A topic key falls back on exactly these keys.
pub fn broker_synonyms(name: &str) -> Vec<&str> {
    let followed = topic_keys().iter().map(|key| key.falls_back);
    let mut followed = followed.filter(|keys| keys.iter().any(|(known, _)| *known == name));
    match followed.next() {
        Some(keys) => keys.iter().map(|(known, _)| *known).collect(),
        None => vec![name],
    }
}
