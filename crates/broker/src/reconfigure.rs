//! Settings that change while the broker runs: from the image's configurations to the broker and its
//! partitions.
//!
//! A value of this broker or of all brokers leads to a new [`BrokerConfig`], and to new settings of every
//! partition, because topics inherit. A value of a topic leads to new settings of that topic's partitions.
//! Values were checked before they were written. Unusable values, for example from a newer controller, are
//! logged and ignored, and all other values take effect.

use crate::broker::Broker;
use crate::connection_limits;
use std::sync::Arc;
use thalweg_config::{BrokerConfig, EffectiveTopicConfig};
use thalweg_groups::{ConsumerGroupTimes, ShareGroupTimes, StreamsGroupTimes};
use thalweg_hash::HashMap;
use thalweg_log::LogConfig;
use thalweg_metadata::{ConfigResource, ConfigResourceKind, Image};
use thalweg_replica::partition::LocalTopic;
use thalweg_share_groups::SettingsOfGroups;

/// The settings of a topic, and the settings of its logs.
pub fn topic_config(
    broker: &Broker,
    image: &Image,
    topic: &str,
) -> (Arc<EffectiveTopicConfig>, Arc<LogConfig>) {
    resolve(&broker.config(), image, topic)
}

/// Applies the changes.
pub fn apply<'a>(broker: &Broker, image: &Image, changed: impl Iterator<Item = &'a ConfigResource>) {
    let (own, all) = (ConfigResource::broker(broker.node_id), ConfigResource::brokers());
    let (mut of_broker, mut of_groups, mut of_clients, mut topics) = (false, false, false, Vec::new());
    for resource in changed {
        match resource.kind {
            ConfigResourceKind::Topic => topics.push(resource.name.as_str()),
            ConfigResourceKind::Broker => of_broker |= *resource == own || *resource == all,
            ConfigResourceKind::Group => of_groups = true,
            ConfigResourceKind::ClientMetrics => of_clients = true,
            // Loggers are not in the image.
            ConfigResourceKind::BrokerLogger | ConfigResourceKind::Unknown(_) => {}
        }
    }
    if of_clients {
        broker.telemetry.subscribe(image);
    }
    if of_broker {
        let config = reconfigured(&broker.config(), &image.config(&all), &image.config(&own));
        let before = broker.config();
        if config.network != before.network || config.connections != before.connections {
            broker.connections.set_limits(connection_limits::limits(&config, &config.listeners.broker));
        }
        broker.secured.apply(&config);
        broker.set_config(Arc::new(config));
        configure_groups(broker, image);
        for topic in broker.partitions.topics() {
            configure(broker, image, &topic);
        }
        return;
    }
    if of_groups {
        configure_groups(broker, image);
    }
    for topic in topics.into_iter().filter_map(|name| broker.partitions.topic_by_name(name)) {
        configure(broker, image, &topic);
    }
}

/// Applies the broker's group settings, and the settings of single groups.
fn configure_groups(broker: &Broker, image: &Image) {
    let config = broker.config();
    broker.share_partitions.configure(SettingsOfGroups::new(&config, image));
    let times = |overrides: &thalweg_metadata::ConfigMap| {
        let (group, _) = config.group(overrides);
        let consumer = ConsumerGroupTimes {
            session_timeout_ms: group.consumer_session_timeout_ms,
            heartbeat_interval_ms: group.consumer_heartbeat_interval_ms,
            assignment_interval_ms: group.consumer_assignment_interval_ms,
        };
        let share = ShareGroupTimes {
            session_timeout_ms: group.share_session_timeout_ms,
            heartbeat_interval_ms: group.share_heartbeat_interval_ms,
            assignment_interval_ms: group.share_assignment_interval_ms,
        };
        let streams = StreamsGroupTimes {
            session_timeout_ms: group.streams_session_timeout_ms,
            heartbeat_interval_ms: group.streams_heartbeat_interval_ms,
            assignment_interval_ms: group.streams_assignment_interval_ms,
            initial_rebalance_delay_ms: group.streams_initial_rebalance_delay_ms,
            standby_replicas: group.streams_num_standby_replicas,
        };
        (consumer, share, streams)
    };
    let groups = image.configs().iter().filter(|(resource, _)| resource.kind == ConfigResourceKind::Group);
    let of_each = groups.map(|(resource, overrides)| (resource.name.clone(), times(overrides)));
    let (mut consumer_groups, mut share_groups, mut streams_groups) =
        (HashMap::default(), HashMap::default(), HashMap::default());
    for (name, (consumer, share, streams)) in of_each {
        consumer_groups.insert(name.clone(), consumer);
        share_groups.insert(name.clone(), share);
        streams_groups.insert(name, streams);
    }
    let (consumer, share, streams) = times(&thalweg_metadata::ConfigMap::default());
    broker.groups.set_consumer_group_times(consumer, consumer_groups);
    broker.groups.set_share_group_times(share, share_groups);
    broker.groups.set_streams_group_times(streams, streams_groups);
}

fn reconfigured(
    before: &BrokerConfig,
    all: &thalweg_metadata::ConfigMap,
    own: &thalweg_metadata::ConfigMap,
) -> BrokerConfig {
    let (mut config, refused) = before.with_dynamic(all, own);
    for error in refused {
        tracing::warn!(%error, "Ignored an invalid broker setting");
    }
    connection_limits::keep_unless_known(&mut config.network, &before.network);
    let known = before.dynamic_warnings();
    for setting in config.dynamic_warnings().into_iter().filter(|setting| !known.contains(setting)) {
        tracing::warn!(%setting, "Broker setting is stored without the expected effect");
    }
    tracing::info!(cluster_wide = all.len(), per_broker = own.len(), "Reconfigured the broker");
    config
}

fn configure(broker: &Broker, image: &Image, topic: &LocalTopic) {
    let (settings, log) = resolve(&broker.config(), image, &topic.name);
    for partition in topic.partitions() {
        partition.configure(&settings, Arc::clone(&log));
    }
}

fn resolve(config: &BrokerConfig, image: &Image, topic: &str) -> (Arc<EffectiveTopicConfig>, Arc<LogConfig>) {
    let overrides = image.config(&ConfigResource::topic(topic));
    let (settings, refused) = config.topic_defaults.apply(&overrides);
    for error in refused {
        tracing::warn!(topic, %error, "Ignored an invalid topic setting");
    }
    let log = Arc::new(config.log_config(&settings));
    (Arc::new(settings), log)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use thalweg_config::{ServerProperties, Support, UpdateMode, Value, table};

    /// A listener with TLS, whose settings can be changed for a single listener only.
    const FILE: [(&str, &str); 4] = [
        ("listeners", "SECURED://127.0.0.1:0"),
        ("listener.security.protocol.map", "SECURED:SSL,CONTROLLER:PLAINTEXT"),
        ("inter.broker.listener.name", "SECURED"),
        ("ssl.keystore.location", "/broker.pem"),
    ];

    /// Values of all types, of which one differs from the default of any key.
    const CANDIDATES: [&str; 12] = [
        "true",
        "false",
        "2",
        "7",
        "1048577",
        "0.25",
        "gzip",
        "LogAppendTime",
        "compact",
        "header",
        "required",
        "127.0.0.1:5",
    ];

    /// What a running broker reads of a configuration that [`apply`] has replaced.
    fn in_force(config: &BrokerConfig) -> String {
        let topic = config.topic(&BTreeMap::new());
        let of_partitions = (config.log_config(&topic), topic);
        let of_groups = config.group(&BTreeMap::new()).0;
        let limits = connection_limits::limits(config, &config.listeners.broker);
        let tls: Vec<_> = config.listeners.broker.iter().map(|listener| config.tls_of(listener)).collect();
        let of_replication = &config.replication;
        let of_upkeep = (&config.cleaner, config.log.producer_id_expiration);
        let of_transactions = config.transactions.verifies_partitions;
        let all = (of_partitions, of_groups, limits, tls, of_replication, of_upkeep, of_transactions);
        format!("{all:?} {:?}", config.metrics)
    }

    /// The configuration with another value of a key, set at run time.
    fn changed(config: &BrokerConfig, name: &str, mode: UpdateMode) -> Option<BrokerConfig> {
        CANDIDATES.iter().find_map(|text| {
            let set = BTreeMap::from([(name.to_owned(), (*text).to_owned())]);
            let altered = config.validate_dynamic(mode == UpdateMode::PerBroker, &set).ok()?;
            let key = table::settable_key(name)?;
            let before = key.default.and_then(|text| Value::parse(key, text).ok());
            (Value::parse(key, text).ok() != before).then_some(altered)
        })
    }

    #[test]
    fn every_dynamic_setting_is_read_by_a_part_of_the_running_broker() {
        let mut properties = ServerProperties::default();
        FILE.into_iter().for_each(|(name, value)| properties.set(name, value));
        let config = BrokerConfig::new(&properties).expect("a configuration");
        let before = in_force(&config);
        for key in table::broker_keys().iter().filter(|key| key.is_dynamic()) {
            let name = match key.support {
                Support::Served | Support::PerListener => key.name.to_owned(),
                Support::Listener => format!("listener.name.secured.{}", key.name),
                // Refused at run time, or stored with a warning.
                Support::Startup
                | Support::Opening
                | Support::FromFile(_)
                | Support::Accepted(_)
                | Support::Unserved(_) => continue,
            };
            let altered = changed(&config, &name, key.update_mode);
            let altered = altered.unwrap_or_else(|| panic!("{name}: no candidate is another value"));
            assert_ne!(in_force(&altered), before, "{name}: name its reader in `in_force`, or its support");
        }
    }
}
