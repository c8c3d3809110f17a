//! Settings that Kafka 4 has removed, each with its replacement.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

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
