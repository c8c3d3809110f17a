//! Settings that Kafka 4 has removed, each with its replacement.

use std::collections::BTreeMap;

use super::error::InvalidValue;
use super::table::{ControllerSettings, NodeSettings};

/// Names, or prefixes that end with a dot, with the advice.
const REMOVED: &[(&str, &str)] = &[
    (
        "zookeeper.connect",
        "there is no ZooKeeper any more; leave it out for a controller in this process, or name the controllers in \
         controller.quorum.bootstrap.servers",
    ),
    ("zookeeper.metadata.migration.enable", "migrate to KRaft with Kafka 3.9 first, and then leave it out"),
    ("zookeeper.", "there is no ZooKeeper any more; leave it out"),
    ("broker.id.generation.enable", "ids are not given by ZooKeeper any more; set node.id"),
    ("reserved.broker.max.id", "ids are not given by ZooKeeper any more; set node.id"),
    ("host.name", "set listeners, such as PLAINTEXT://host:9092"),
    ("port", "set listeners, such as PLAINTEXT://host:9092"),
    ("advertised.host.name", "set advertised.listeners, such as PLAINTEXT://host:9092"),
    ("advertised.port", "set advertised.listeners, such as PLAINTEXT://host:9092"),
    (
        "inter.broker.protocol.version",
        "brokers agree on their versions; the cluster's level is metadata.version, see `thalweg feature list`",
    ),
    ("log.message.format.version", "there is one format of records; leave it out"),
    ("message.format.version", "there is one format of records; leave it out"),
    (
        "log.message.timestamp.difference.max.ms",
        "set log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms",
    ),
    ("control.plane.listener.name", "brokers take no requests of a controller any more; leave it out"),
    ("delegation.token.master.key", "set delegation.token.secret.key"),
    ("quota.producer.default", "use `thalweg quota set --default client-id producer_byte_rate=NUMBER`"),
    ("quota.consumer.default", "use `thalweg quota set --default client-id consumer_byte_rate=NUMBER`"),
    (
        "password.encoder.",
        "passwords that are set at run time are not encoded by the broker any more; leave it out",
    ),
    ("offsets.commit.required.acks", "commits always wait for all in-sync replicas; leave it out"),
    ("group.coordinator.new.enable", "use group.coordinator.rebalance.protocols"),
    ("controlled.shutdown.max.retries", "the controller decides when a broker may stop; leave it out"),
    ("controlled.shutdown.retry.backoff.ms", "the controller decides when a broker may stop; leave it out"),
];

/// The replacement of a removed setting; `None` for any other name.
pub(crate) fn advice(name: &str) -> Option<&'static str> {
    let is_it = |known: &str| name == known || (known.ends_with('.') && name.starts_with(known));
    REMOVED.iter().find(|(known, _)| is_it(known)).map(|(_, advice)| *advice)
}

const ZOOKEEPER: &str = "zookeeper.connect";
/// Refuses a node whose cluster was in ZooKeeper, unless its file names the controllers: it would be a
/// cluster alone, and several such nodes would be as many clusters.
pub(crate) fn check_zookeeper(properties: &BTreeMap<String, String>) -> Result<(), InvalidValue> {
    let is_set = |name: &str| properties.get(name).is_some_and(|value| !value.trim().is_empty());
    let controllers = [
        ControllerSettings::bootstrap_servers.name(),
        ControllerSettings::voters.name(),
        NodeSettings::roles.name(),
    ];
    if !is_set(ZOOKEEPER) || controllers.into_iter().any(is_set) {
        return Ok(());
    }
    let value = &properties[ZOOKEEPER];
    let reason = "there is no ZooKeeper any more. For a cluster of this node alone, set process.roles=broker,controller. \
                  To join a cluster, set process.roles=broker, and name its controllers in \
                  controller.quorum.bootstrap.servers";
    Err(InvalidValue::new(ZOOKEEPER, value, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn a_node_of_zookeeper_needs_controllers() {
        let check = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            check_zookeeper(&pairs.collect())
        };
        let connect = ("zookeeper.connect", "kz1:2181,kz2:2181,kz3:2181");
        let refused = check(&[connect, ("broker.id", "1")]).expect_err("refused").to_string();
        assert!(
            refused
                .starts_with("Invalid value kz1:2181,kz2:2181,kz3:2181 for configuration zookeeper.connect")
        );
        assert!(refused.contains("process.roles=broker,controller"), "{refused}");
        for controllers in [
            ("process.roles", "broker,controller"),
            ("controller.quorum.bootstrap.servers", "c:9093"),
            ("controller.quorum.voters", "1@c:9093"),
        ] {
            assert_eq!(check(&[connect, controllers]), Ok(()));
        }
        assert_eq!(check(&[("zookeeper.connect", " ")]), Ok(()));
        assert_eq!(check(&[]), Ok(()));
    }

    #[test]
    fn a_removed_setting_has_advice_and_is_no_setting_of_today() {
        assert!(advice("zookeeper.connect").is_some_and(|text| text.contains("controller.quorum")));
        assert_eq!(advice("zookeeper.ssl.client.enable"), advice("zookeeper.session.timeout.ms"));
        assert_eq!(advice("zookeeperx"), None);
        for (name, _) in REMOVED {
            assert!(table::broker_key(name).is_none(), "{name} is a setting of Kafka 4");
        }
    }
}
