//! Broker properties of a cluster started by the lab: the workload's, the lab's own, and the lab's defaults.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::PropertyOwned;

/// Properties set by the lab per broker; others would break the cluster.
const OWNED: [&str; 13] = [
    "advertised.listeners",
    "broker.id",
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "metadata.log.dir",
    "node.id",
    "process.roles",
    "security.inter.broker.protocol",
];

/// The data directories: the workload's `log.dirs` may name several.
pub(super) const LOG_DIRS: &str = "log.dirs";

/// True if the lab sets a property itself.
pub(super) fn is_owned(key: &str) -> bool {
    OWNED.contains(&key)
}

/// Merges the workload's properties with the lab's defaults for this number of brokers.
pub(super) fn merged(
    requested: &BTreeMap<String, String>,
    brokers: u32,
) -> Result<BTreeMap<String, String>, PropertyOwned> {
    if let Some(key) = requested.keys().find(|key| is_owned(key)) {
        return Err(PropertyOwned { table: "cluster.properties", key: key.clone() });
    }
    let mut merged: BTreeMap<String, String> =
        defaults(brokers).into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    merged.extend(requested.clone());
    merged.remove(LOG_DIRS);
    Ok(merged)
}

/// The lab's defaults: internal topics as durable as the brokers allow, groups that start at once, and files
/// of deleted topics removed soon, so that they do not disturb the next repetition.
fn defaults(brokers: u32) -> [(&'static str, String); 7] {
    let replicas = brokers.min(3);
    let in_sync = if replicas >= 3 { 2 } else { 1 };
    [
        ("group.initial.rebalance.delay.ms", "0".to_owned()),
        ("log.segment.delete.delay.ms", "500".to_owned()),
        ("offsets.topic.replication.factor", replicas.to_string()),
        ("share.coordinator.state.topic.min.isr", in_sync.to_string()),
        ("share.coordinator.state.topic.replication.factor", replicas.to_string()),
        ("transaction.state.log.min.isr", in_sync.to_string()),
        ("transaction.state.log.replication.factor", replicas.to_string()),
    ]
}

/// The data directories of a broker whose directory is `broker_dir`: by default one inside it. Relative paths
/// of the workload's `log.dirs` are inside it, too; absolute paths get a subdirectory for the cluster and
/// broker.
pub(super) fn log_dirs(requested: &BTreeMap<String, String>, broker_dir: &Path) -> Vec<PathBuf> {
    let listed: Vec<&str> = requested
        .get(LOG_DIRS)
        .map(|dirs| dirs.split(',').map(str::trim).filter(|dir| !dir.is_empty()).collect())
        .unwrap_or_default();
    if listed.is_empty() {
        return vec![broker_dir.join("data")];
    }
    let own = |path: Option<&Path>| path.and_then(Path::file_name).map(PathBuf::from).unwrap_or_default();
    let (cluster, broker) = (own(broker_dir.parent()), own(Some(broker_dir)));
    listed
        .into_iter()
        .map(|dir| match Path::new(dir) {
            dir if dir.is_absolute() => dir.join(&cluster).join(&broker),
            dir => broker_dir.join(dir),
        })
        .collect()
}

/// The `log.dirs` outside of the cluster's directory, which must be removed with the cluster.
pub(super) fn dirs_elsewhere(requested: &BTreeMap<String, String>, cluster_dir: &Path) -> Vec<PathBuf> {
    log_dirs(requested, &cluster_dir.join("broker"))
        .into_iter()
        .filter(|dir| !dir.starts_with(cluster_dir))
        .filter_map(|dir| dir.parent().map(Path::to_owned))
        .collect()
}

/// The text of a properties file.
pub(super) fn text(properties: &BTreeMap<String, String>) -> String {
    properties.iter().map(|(key, value)| format!("{key}={}\n", value.replace('\\', "\\\\"))).collect()
}

/// Notes for the result about the settings.
pub(super) fn notes(requested: &BTreeMap<String, String>, merged: &BTreeMap<String, String>) -> Vec<String> {
    let listed = |by_lab: bool| {
        let list: Vec<String> = merged
            .iter()
            .filter(|(key, _)| requested.contains_key(*key) != by_lab)
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        list.join(" ")
    };
    let mut notes = Vec::new();
    if !requested.is_empty() {
        let dirs = requested.get(LOG_DIRS).map(|dirs| format!(" {LOG_DIRS}={dirs}")).unwrap_or_default();
        notes.push(format!("Broker settings from the workload: {}{dirs}", listed(false)));
    }
    notes.push(format!("Broker settings from the lab, for this number of brokers: {}", listed(true)));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_property_that_is_the_labs_is_refused_by_name() {
        let error = merged(&map(&[("listeners", "PLAINTEXT://:9092")]), 1).expect_err("a refusal");
        assert_eq!(
            error.to_string(),
            "cluster.properties: listeners is set by the lab for each broker; remove it"
        );
    }

    #[test]
    fn internal_topics_have_as_many_replicas_as_brokers_allow() {
        for (brokers, replicas, in_sync) in [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (9, "3", "2")] {
            let merged = merged(&BTreeMap::new(), brokers).expect("nothing to refuse");
            assert_eq!(merged["offsets.topic.replication.factor"], replicas);
            assert_eq!(merged["transaction.state.log.min.isr"], in_sync);
        }
    }

    #[test]
    fn the_workloads_properties_win() {
        let requested = map(&[("offsets.topic.replication.factor", "2"), ("num.io.threads", "24")]);
        let merged = merged(&requested, 3).expect("nothing to refuse");
        assert_eq!(merged["offsets.topic.replication.factor"], "2");
        let notes = notes(&requested, &merged);
        assert_eq!(
            notes[0],
            "Broker settings from the workload: num.io.threads=24 offsets.topic.replication.factor=2"
        );
        assert!(notes[1].contains("transaction.state.log.replication.factor=3"), "{notes:?}");
    }

    #[test]
    fn log_dirs_lie_with_the_broker_or_get_a_place_of_their_own() {
        let broker = Path::new("/lab/kafka-1234/broker-2");
        assert_eq!(log_dirs(&BTreeMap::new(), broker), [broker.join("data")]);
        let requested = map(&[("log.dirs", "first, /disk/second")]);
        let expected = [broker.join("first"), PathBuf::from("/disk/second/kafka-1234/broker-2")];
        assert_eq!(log_dirs(&requested, broker), expected);
        assert_eq!(
            dirs_elsewhere(&requested, Path::new("/lab/kafka-1234")),
            [PathBuf::from("/disk/second/kafka-1234")]
        );
    }
}
