//! The configuration of this broker: its file, the dynamic layers over it, and the settings that come of them.

use std::collections::BTreeMap;

use thalweg_log::LogConfig;

use super::error::{ConfigError, InvalidConfig, InvalidValue};
use super::key::UpdateMode;
use super::listener::{ListenerTexts, Listeners};
use super::properties::ServerProperties;
use super::rules::{self, Roles};
use super::settings::{
    ControllerSettings, GroupSettings, HttpSettings, LogSettings, NetworkSettings, ReplicationSettings,
    StreamSettings, TopicSettings, TransactionSettings,
};
use super::table;
use super::topic::{EffectiveTopicConfig, TopicDefaults};
use super::value::Value;
use super::values::Values;

/// The layers that a value of a broker comes from, weakest first; below them lie the defaults of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Layers {
    /// The file and the command line.
    pub file: BTreeMap<String, String>,
    /// Set for all brokers, from the metadata image.
    pub cluster: BTreeMap<String, String>,
    /// Set for this broker, from the metadata image.
    pub broker: BTreeMap<String, String>,
}

impl Layers {
    /// One text per key. A key set in a higher layer hides its equals in other units below, even better ones.
    fn merged(&self) -> BTreeMap<String, String> {
        let mut merged = self.file.clone();
        for layer in [&self.cluster, &self.broker] {
            for (name, value) in layer {
                for synonym in table::broker_synonyms(name) {
                    merged.remove(synonym);
                }
                merged.insert(name.clone(), value.clone());
            }
        }
        merged
    }
}

/// Everything that this broker is told, typed and checked. A change of the dynamic layers makes a new one.
#[derive(Debug, Clone, PartialEq)]
pub struct BrokerConfig {
    pub(super) layers: Layers,
    pub(super) values: Values,
    /// `node.id`.
    pub node_id: i32,
    /// `process.roles`.
    pub roles: Roles,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// Where the broker listens, and what it advertises.
    pub listeners: Listeners,
    /// Connections and requests.
    pub network: NetworkSettings,
    /// The HTTP server.
    pub http: HttpSettings,
    /// Streams that it hosts.
    pub streams: StreamSettings,
    /// How topics come and go.
    pub topics: TopicSettings,
    /// Data directories and logs.
    pub log: LogSettings,
    /// Groups and committed offsets.
    pub groups: GroupSettings,
    /// Transactions.
    pub transactions: TransactionSettings,
    /// Controllers and the metadata log.
    pub controller: ControllerSettings,
    /// Replication from other brokers.
    pub replication: ReplicationSettings,
    /// What topics inherit.
    pub topic_defaults: TopicDefaults,
}

impl BrokerConfig {
    /// The configuration at start. Says all that is wrong at once.
    pub fn new(properties: &ServerProperties) -> Result<Self, InvalidConfig> {
        let mut file = properties.values().clone();
        match (file.get("node.id").cloned(), file.get("broker.id").cloned()) {
            (Some(id), None) => file.insert("broker.id".to_owned(), id),
            (None, Some(id)) => file.insert("node.id".to_owned(), id),
            _ => None,
        };
        let config = Self::build(Layers { file, ..Layers::default() })?;
        // Kafka checks these at start only, so that a dynamic change of both can pass through any order.
        let EffectiveTopicConfig { min_compaction_lag_ms: min, max_compaction_lag_ms: max, .. } =
            config.topic(&BTreeMap::new());
        if min > max {
            return Err(InvalidConfig(vec![ConfigError::CompactionLags { min, max }]));
        }
        Ok(config)
    }

    /// The configuration with these dynamic layers instead of the present ones, and what of them cannot be used. A
    /// controller lets nothing unusable through, but one of another version may; the rest still takes effect.
    pub fn with_dynamic(
        &self,
        cluster: &BTreeMap<String, String>,
        broker: &BTreeMap<String, String>,
    ) -> (Self, Vec<ConfigError>) {
        let mut errors = Vec::new();
        let layers = Layers {
            file: self.layers.file.clone(),
            cluster: usable(cluster, false, &mut errors),
            broker: usable(broker, true, &mut errors),
        };
        match Self::build(layers) {
            Ok(config) => (config, errors),
            Err(InvalidConfig(broken)) => {
                errors.extend(broken);
                (self.clone(), errors)
            }
        }
    }

    /// The configuration of a topic with these overrides. Overrides that cannot be used count as not set; see
    /// [`TopicDefaults::apply`] to learn of them.
    pub fn topic(&self, overrides: &BTreeMap<String, String>) -> EffectiveTopicConfig {
        self.topic_defaults.apply(overrides).0
    }

    /// What the log of a partition needs: the settings of its topic, and the broker's own that bear on every log.
    pub fn log_config(&self, topic: &EffectiveTopicConfig) -> LogConfig {
        let expiration = self.log.producer_id_expiration.as_millis();
        LogConfig {
            producer_id_expiration_ms: i64::try_from(expiration).unwrap_or(i64::MAX),
            ..topic.log_config()
        }
    }

    /// The value of a broker's key; `None` when it is null, or no key.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    pub(super) fn build(layers: Layers) -> Result<Self, InvalidConfig> {
        let merged = layers.merged();
        let is_alone = rules::is_alone(&Values::parse(&merged, false).0);
        let (values, mut errors) = Values::parse(&merged, !is_alone);
        let roles = Roles::of(&values);
        // Rules between values that were replaced by defaults would only confuse.
        if errors.is_empty() {
            errors.extend(rules::broken(&values));
        }
        let listeners = listeners(&values, &merged, roles).map_err(|error| errors.push(error));
        let (Ok(listeners), true) = (listeners, errors.is_empty()) else {
            return Err(InvalidConfig(errors));
        };
        let overrides = rules::connection_overrides(&values).expect("the rules parsed it");
        let log = LogSettings::new(&values);
        Ok(Self {
            node_id: values.int("node.id"),
            roles,
            rack: values.text("broker.rack").map(str::to_owned),
            listeners,
            network: NetworkSettings::new(&values, overrides),
            http: HttpSettings::new(&values),
            streams: StreamSettings::new(&values),
            topics: TopicSettings::new(&values),
            groups: GroupSettings::new(&values),
            transactions: TransactionSettings::new(&values),
            controller: ControllerSettings::new(&values, &log),
            replication: ReplicationSettings::new(&values),
            topic_defaults: TopicDefaults::new(&values),
            log,
            values,
            layers,
        })
    }
}

fn listeners(
    values: &Values,
    merged: &BTreeMap<String, String>,
    roles: Roles,
) -> Result<Listeners, ConfigError> {
    let controller_names: Vec<_> = values
        .list("controller.listener.names")
        .unwrap_or_default()
        .iter()
        .map(|name| name.to_uppercase())
        .collect();
    let texts = ListenerTexts {
        listeners: values.list("listeners").unwrap_or_default(),
        advertised: values.list("advertised.listeners"),
        protocol_map: values.text("listener.security.protocol.map").unwrap_or_default(),
        protocol_map_given: merged.contains_key("listener.security.protocol.map"),
        controller_names: &controller_names,
        inter_broker_name: values.text("inter.broker.listener.name"),
        inter_broker_protocol: values.text("security.inter.broker.protocol").unwrap_or_default(),
        inter_broker_protocol_given: merged.contains_key("security.inter.broker.protocol"),
        roles,
    };
    Ok(Listeners::resolve(&texts)?)
}

/// The entries of a dynamic layer that can take effect, and those of unknown keys, which DescribeConfigs shows.
pub(super) fn usable(
    layer: &BTreeMap<String, String>,
    per_broker: bool,
    errors: &mut Vec<ConfigError>,
) -> BTreeMap<String, String> {
    let mut usable = layer.clone();
    usable.retain(|name, text| {
        let Some(key) = table::broker_key(name) else { return true };
        let refusal = match Value::parse(key, text) {
            Err(error) => error,
            Ok(value) if !key.is_dynamic() => {
                InvalidValue::new(name, value, "Cannot be updated dynamically").into()
            }
            Ok(value) if key.update_mode == UpdateMode::PerBroker && !per_broker => {
                InvalidValue::new(name, value, "Cannot be set at default cluster level").into()
            }
            Ok(_) => return true,
        };
        errors.push(refusal);
        false
    });
    usable
}
