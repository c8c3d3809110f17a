//! The configuration of this broker: its file, the dynamic layers above it, and the resulting settings.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use thalweg_log::LogConfig;
use thalweg_security::acl::Rules;
use thalweg_security::sasl::scram::NewUser;

use super::connections::{self, ListenerConnectionLimits};
use super::error::{ConfigError, InvalidConfig, InvalidValue};
use super::http;
use super::key::UpdateMode;
use super::listener::{ListenerTexts, Listeners};
use super::properties::ServerProperties;
use super::removed;
use super::rules;
use super::sasl::{self, SaslListener};
use super::table::{
    self, AccessSettings, AuditSettings, CleanerSettings, ConsoleSettings, ConsumerGroupKeys,
    ControllerSettings, DelegationTokenSettings, DirectorySettings, EffectiveTopicConfig, GroupSettings,
    HttpSettings, ListenerSettings, LogLineSettings, LogSettings, MetadataLogSettings, MetricsSettings,
    NetworkSettings, NodeSettings, ReplicationSettings, ShareCoordinatorSettings, ShareGroupKeys,
    StandardAuthorizerSettings, StreamSettings, StreamsGroupKeys, TopicSettings, TransactionSettings,
};
use super::topic::TopicDefaults;
use super::value::Value;
use super::values::Values;

/// The layers of a broker's values above the defaults of the table, in ascending priority.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Layers {
    /// Values of the file and the command line.
    pub file: BTreeMap<String, String>,
    /// Values for all brokers, from the metadata image.
    pub cluster: BTreeMap<String, String>,
    /// Values for this broker, from the metadata image.
    pub broker: BTreeMap<String, String>,
}

/// Prints keys only: values may be secrets.
impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layers")
            .field("file", &self.file.keys())
            .field("cluster", &self.cluster.keys())
            .field("broker", &self.broker.keys())
            .finish()
    }
}

impl Layers {
    /// The effective text of each key. A key set in a higher layer hides its synonyms in other units below,
    /// even synonyms of higher priority.
    pub(super) fn merged(&self) -> BTreeMap<String, String> {
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

/// The whole configuration of this broker, typed and checked. A change of the dynamic layers makes a new
/// value.
#[derive(Debug, Clone, PartialEq)]
pub struct BrokerConfig {
    pub(super) layers: Layers,
    pub(super) values: Values,
    /// Node id and roles.
    pub node: NodeSettings,
    /// Listeners and advertised addresses.
    pub listeners: Listeners,
    /// Authentication of clients, by name of the listener; only listeners with SASL.
    pub sasl: BTreeMap<String, SaslListener>,
    /// Connections and requests.
    pub network: NetworkSettings,
    /// Connection limits by name of the listener.
    pub connections: BTreeMap<String, ListenerConnectionLimits>,
    /// The HTTP server.
    pub http: HttpSettings,
    pub console: ConsoleSettings,
    /// Streams that this broker hosts.
    pub streams: StreamSettings,
    /// Creation and deletion of topics.
    pub topics: TopicSettings,
    /// Data directories and logs.
    pub log: LogSettings,
    /// Compaction of logs.
    pub cleaner: CleanerSettings,
    /// Classic groups and committed offsets.
    pub groups: GroupSettings,
    /// Groups of the consumer protocol.
    pub consumer_groups: ConsumerGroupKeys,
    /// Share groups (KIP-932).
    pub share_groups: ShareGroupKeys,
    pub streams_groups: StreamsGroupKeys,
    /// Share coordinator and the state of share partitions.
    pub share_coordinator: ShareCoordinatorSettings,
    pub transactions: TransactionSettings,
    pub controller: ControllerSettings,
    /// The metadata log.
    pub metadata_log: MetadataLogSettings,
    /// Replication from other brokers.
    pub replication: ReplicationSettings,
    /// The class of the authorizer.
    pub access: AccessSettings,
    /// Rules of the authorizer besides the ACLs.
    pub authorizer: StandardAuthorizerSettings,
    /// The audit trail.
    pub audit: AuditSettings,
    /// Format of log lines.
    pub log_lines: LogLineSettings,
    /// Data directories, besides `log`.
    pub directories: DirectorySettings,
    pub metrics: MetricsSettings,
    pub delegation_tokens: DelegationTokenSettings,
    /// Defaults of topic settings.
    pub topic_defaults: TopicDefaults,
    /// Initial users of a new cluster. Not a property, because secrets are not kept in files.
    pub first_users: Vec<NewUser>,
}

impl Default for BrokerConfig {
    /// A broker with an empty properties file.
    fn default() -> Self {
        Self::new(&ServerProperties::default()).expect("a test makes the default")
    }
}

impl BrokerConfig {
    /// The configuration at startup. Reports all errors at once.
    pub fn new(properties: &ServerProperties) -> Result<Self, InvalidConfig> {
        let mut file = properties.values().clone();
        let (node_id, broker_id) = (NodeSettings::id.name(), NodeSettings::broker_id.name());
        match (file.get(node_id).cloned(), file.get(broker_id).cloned()) {
            (Some(id), None) => file.insert(broker_id.to_owned(), id),
            (None, Some(id)) => file.insert(node_id.to_owned(), id),
            _ => None,
        };
        removed::check_zookeeper(&file).map_err(|invalid| InvalidConfig(vec![invalid.into()]))?;
        let config = Self::build(Layers { file, ..Layers::default() })?;
        // Kafka checks these only at startup, so that a dynamic change of both may happen in any order.
        let EffectiveTopicConfig { min_compaction_lag_ms: min, max_compaction_lag_ms: max, .. } =
            config.topic(&BTreeMap::new());
        if min > max {
            return Err(InvalidConfig(vec![ConfigError::CompactionLags { min, max }]));
        }
        Ok(config)
    }

    /// The configuration with new dynamic layers, and the invalid entries of the layers. A controller rejects
    /// invalid entries, but one of another version may accept them; valid entries still take effect.
    pub fn with_dynamic(
        &self,
        cluster: &BTreeMap<String, String>,
        broker: &BTreeMap<String, String>,
    ) -> (Self, Vec<ConfigError>) {
        let mut errors = Vec::new();
        let mut layers = Layers {
            file: self.layers.file.clone(),
            cluster: usable(cluster, false, &mut errors),
            broker: usable(broker, true, &mut errors),
        };
        for layer in [&mut layers.cluster, &mut layers.broker] {
            self.keep_bounds(layer, &mut errors);
        }
        match Self::build(layers) {
            Ok(config) => (config, errors),
            Err(InvalidConfig(broken)) => {
                errors.extend(broken);
                (self.clone(), errors)
            }
        }
    }

    /// The configuration of a topic with these overrides. Invalid overrides count as not set;
    /// [`TopicDefaults::apply`] reports them.
    pub fn topic(&self, overrides: &BTreeMap<String, String>) -> EffectiveTopicConfig {
        self.topic_defaults.apply(overrides).0
    }

    /// The settings of a partition's log: its topic's settings, and the broker's settings for all logs.
    pub fn log_config(&self, topic: &EffectiveTopicConfig) -> LogConfig {
        let expiration = self.log.producer_id_expiration.as_millis();
        LogConfig {
            producer_id_expiration_ms: i64::try_from(expiration).unwrap_or(i64::MAX),
            ..topic.log_config()
        }
    }

    /// The directory of the metadata log: `metadata.log.dir`, or the first of the data directories.
    pub fn metadata_log_dir(&self) -> PathBuf {
        let dir = self.metadata_log.dir.as_ref().or_else(|| self.log.data_dirs().first());
        dir.cloned().unwrap_or_default()
    }

    /// The rules of the authorizer besides the ACLs; `None` without an authorizer.
    pub fn authorizer_rules(&self) -> Option<Rules> {
        let StandardAuthorizerSettings { super_users, allow_everyone_if_no_acl_found } =
            self.authorizer.clone();
        self.access.has_authorizer.then_some(Rules { super_users, allow_everyone_if_no_acl_found })
    }

    /// The value of a broker's key by name; `None` if the value is null or the key unknown.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.named(name)
    }

    pub(super) fn build(layers: Layers) -> Result<Self, InvalidConfig> {
        let merged = layers.merged();
        let is_alone = rules::is_alone(&Values::parse(table::broker_keys(), &merged, false).0);
        let (values, mut errors) = Values::parse(table::broker_keys(), &merged, !is_alone);
        // Rules between values that were replaced by defaults would report misleading errors.
        if errors.is_empty() {
            errors.extend(rules::broken(&values));
        }
        let listeners = listeners(&values, &merged).map_err(|error| errors.push(error));
        let (Ok(listeners), true) = (listeners, errors.is_empty()) else {
            return Err(InvalidConfig(errors));
        };
        let refused = |error| InvalidConfig(vec![error]);
        let mut sasl = sasl::of_listeners(&listeners, &layers.file).map_err(refused)?;
        let http = HttpSettings::from(&values);
        if let Some(listener) = http.as_listener() {
            sasl.extend(http::login(&listener, &listeners, &layers.file).map_err(refused)?);
        }
        let network = NetworkSettings::from(&values);
        let all = listeners.broker.iter().chain(&listeners.controller);
        let connections = connections::of_listeners(all, &network, &merged).map_err(refused)?;
        Ok(Self {
            node: NodeSettings::from(&values),
            listeners,
            sasl,
            network,
            connections,
            http,
            console: ConsoleSettings::from(&values),
            streams: StreamSettings::from(&values),
            topics: TopicSettings::from(&values),
            log: LogSettings::from(&values),
            cleaner: CleanerSettings::from(&values),
            groups: GroupSettings::from(&values),
            consumer_groups: ConsumerGroupKeys::from(&values),
            share_groups: ShareGroupKeys::from(&values),
            streams_groups: StreamsGroupKeys::from(&values),
            share_coordinator: ShareCoordinatorSettings::from(&values),
            transactions: TransactionSettings::from(&values),
            controller: ControllerSettings::from(&values),
            metadata_log: MetadataLogSettings::from(&values),
            replication: ReplicationSettings::from(&values),
            access: AccessSettings::from(&values),
            authorizer: StandardAuthorizerSettings::from(&values),
            audit: AuditSettings::from(&values),
            log_lines: LogLineSettings::from(&values),
            directories: DirectorySettings::from(&values),
            metrics: MetricsSettings::from(&values),
            delegation_tokens: DelegationTokenSettings::from(&values),
            topic_defaults: TopicDefaults::new(&values),
            first_users: Vec::new(),
            values,
            layers,
        })
    }
}

impl LogSettings {
    /// The data directories: `log.dirs`, or `log.dir`.
    pub fn data_dirs(&self) -> &[PathBuf] {
        self.dirs.as_ref().unwrap_or(&self.dir)
    }
}

fn listeners(values: &Values, merged: &BTreeMap<String, String>) -> Result<Listeners, ConfigError> {
    let names = values.get(ControllerSettings::listener_names);
    let controller_names: Vec<_> = names.iter().map(|name| name.to_uppercase()).collect();
    let written = ListenerSettings::from(values);
    let texts = ListenerTexts {
        listeners: &written.listeners,
        advertised: written.advertised.as_deref(),
        protocol_map: &written.protocol_map,
        protocol_map_given: merged.contains_key(ListenerSettings::protocol_map.name()),
        controller_names: &controller_names,
        inter_broker_name: written.inter_broker_name.as_deref(),
        inter_broker_protocol: &written.inter_broker_protocol,
        inter_broker_protocol_given: merged.contains_key(ListenerSettings::inter_broker_protocol.name()),
        roles: values.get(NodeSettings::roles),
    };
    Ok(Listeners::resolve(&texts)?)
}

/// The effective entries of a dynamic layer, and the entries of unknown keys, which DescribeConfigs shows.
pub(super) fn usable(
    layer: &BTreeMap<String, String>,
    per_broker: bool,
    errors: &mut Vec<ConfigError>,
) -> BTreeMap<String, String> {
    let mut usable = layer.clone();
    usable.retain(|name, text| {
        let Some(key) = table::settable_key(name) else { return true };
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
