//! The table of every configuration key of Kafka 4.3: a family of keys per group, a line or two per key.
//!
//! Everything else about configuration is derived from here: parsing, checks, DescribeConfigs, the documentation.

mod cluster;
mod coordinators;
mod group;
mod log;
mod network;
mod own;
mod reason;
#[cfg(test)]
mod tests;
mod topic;
mod unserved;

use std::sync::LazyLock;

use super::key::ConfigKey;

/// Keys that belong together, under a title for the documentation.
#[derive(Debug)]
pub struct Family {
    /// The title.
    pub title: &'static str,
    /// The keys, in the order in which they are best read.
    pub keys: &'static [ConfigKey],
}

/// `"name": Type = default, check, importance, update mode, support, documentation, extras;`
macro_rules! family {
    ($family:ident $title:literal; $(
        $name:literal : $type:ident = $default:tt, $check:expr, $importance:ident, $mode:ident, $support:expr,
        $documentation:literal $(, $extra:ident $(= $argument:expr)?)*;
    )*) => {
        pub(super) const $family: $crate::table::Family = $crate::table::Family {
            title: $title,
            keys: &[$($crate::key::ConfigKey {
                name: $name,
                config_type: $crate::key::ConfigType::$type,
                default: $crate::table::default!($default),
                check: $check,
                importance: $crate::key::Importance::$importance,
                update_mode: $crate::key::UpdateMode::$mode,
                support: $support,
                documentation: $documentation,
                differs: None,
                default_in_quorum: None,
                internal: false,
                falls_back: &[],
            }$(.$extra($($argument)?))*),*],
        };
    };
}

macro_rules! default {
    (null) => {
        None
    };
    ($text:literal) => {
        Some($text)
    };
}

use {default, family};

/// The families of a broker's keys, in the order of the documentation.
pub const BROKER_FAMILIES: &[Family] = &[
    network::LISTENERS,
    network::TOPICS,
    log::LOG,
    log::CLEANER,
    cluster::NODE,
    cluster::METADATA_LOG,
    cluster::REPLICATION_KEYS,
    coordinators::GROUPS,
    coordinators::TRANSACTION_KEYS,
    coordinators::CONSUMER_GROUP_KEYS,
    coordinators::SHARE_GROUPS,
    coordinators::STREAMS_GROUP_KEYS,
    unserved::ACCESS,
    unserved::METRIC_KEYS,
    unserved::TIERED_STORAGE,
    unserved::TLS_KEYS,
    unserved::SASL_KEYS,
    own::OWN_KEYS,
];

/// The families of a topic's keys.
pub const TOPIC_FAMILIES: &[Family] = &[topic::TOPIC_KEYS, own::OWN_TOPIC_KEYS];

/// The keys of a group.
pub const GROUP_FAMILY: &Family = &group::GROUP_KEYS;

/// The keys of a subscription to clients' metrics.
pub const CLIENT_METRICS_FAMILY: &Family = &group::CLIENT_METRICS_KEYS;

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

/// Every key of a subscription to clients' metrics, by name.
pub fn client_metrics_keys() -> &'static [&'static ConfigKey] {
    &CLIENT_METRICS_KEYS
}

/// The broker's key of this name.
pub fn broker_key(name: &str) -> Option<&'static ConfigKey> {
    find(broker_keys(), name)
}

/// The topic's key of this name.
pub fn topic_key(name: &str) -> Option<&'static ConfigKey> {
    find(topic_keys(), name)
}

/// The group's key of this name.
pub fn group_key(name: &str) -> Option<&'static ConfigKey> {
    find(group_keys(), name)
}

/// The key of a subscription to clients' metrics of this name.
pub fn client_metrics_key(name: &str) -> Option<&'static ConfigKey> {
    find(client_metrics_keys(), name)
}

fn find(keys: &[&'static ConfigKey], name: &str) -> Option<&'static ConfigKey> {
    keys.binary_search_by(|key| key.name.cmp(name)).ok().map(|at| keys[at])
}

/// The broker's keys of which the first that is set counts: `name` and its equals in other units, best first.
pub fn broker_synonyms(name: &str) -> Vec<&str> {
    const GROUPS: &[&[&str]] = &[
        &["log.roll.ms", "log.roll.hours"],
        &["log.roll.jitter.ms", "log.roll.jitter.hours"],
        &["log.retention.ms", "log.retention.minutes", "log.retention.hours"],
    ];
    if name == "log.flush.interval.ms" {
        return vec![name, "log.flush.scheduler.interval.ms"];
    }
    GROUPS.iter().find(|group| group.contains(&name)).map_or_else(|| vec![name], |group| group.to_vec())
}
