//! The embedded controller's rules for configurations, from [`thalweg_config`].
//!
//! The controller has no table of keys. These rules check changes, and provide list types and the settings of
//! a new topic. The receiving broker has already checked changes of brokers against its own file; here each
//! key is checked alone, because the controller lacks the other brokers' files.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_config::alter::ConfigScope;
use thalweg_config::{AlterError, BrokerConfig, ConfigError, ConfigType, table};
use thalweg_controller::{ConfigRefusal, ConfigRules, EffectiveConfig};
use thalweg_metadata::{ConfigMap, ConfigResource, ConfigResourceKind};
use thalweg_wire::ErrorCode;

/// The rules of the broker in the controller's process.
pub struct BrokerConfigRules {
    /// The configuration at the start. Dynamic values of brokers are passed with each call; those of topics
    /// and groups are checked against the defaults of the start.
    config: Arc<BrokerConfig>,
    last: Mutex<Option<LayeredConfig>>,
}

/// The configuration with dynamic layers, cached with the layers as key.
struct LayeredConfig {
    broker: ConfigMap,
    brokers: ConfigMap,
    config: Arc<BrokerConfig>,
}

impl BrokerConfigRules {
    /// Rules over the defaults that this configuration sets.
    pub fn new(config: Arc<BrokerConfig>) -> Self {
        Self { config, last: Mutex::default() }
    }

    /// The configuration with these layers. All topics of a request, and usually of the next request, have
    /// the same layers.
    fn with_dynamic(&self, broker: &ConfigMap, brokers: &ConfigMap) -> Arc<BrokerConfig> {
        let mut last = self.last.lock();
        if let Some(last) = &*last
            && last.broker == *broker
            && last.brokers == *brokers
        {
            return Arc::clone(&last.config);
        }
        let config = Arc::new(self.config.with_dynamic(brokers, broker).0);
        let (broker, brokers) = (broker.clone(), brokers.clone());
        *last = Some(LayeredConfig { broker, brokers, config: Arc::clone(&config) });
        config
    }

    fn validate_broker(
        &self,
        name: &str,
        configs: &ConfigMap,
        existing: &ConfigMap,
    ) -> Result<(), AlterError> {
        let (per_broker, nothing) = (!name.is_empty(), BTreeMap::new());
        let (all, own) = if per_broker { (&nothing, existing) } else { (existing, &nothing) };
        if per_broker && name.parse() != Ok(self.config.node.id) {
            return thalweg_config::alter::validate_keys(per_broker, configs, existing);
        }
        self.config.with_dynamic(all, own).0.validate_dynamic(per_broker, configs).map(|_| ())
    }
}

impl ConfigRules for BrokerConfigRules {
    fn validate(
        &self,
        resource: &ConfigResource,
        configs: &ConfigMap,
        existing: &ConfigMap,
    ) -> Result<(), ConfigRefusal> {
        let checked = match resource.kind {
            ConfigResourceKind::Topic => self.config.topic_defaults.validate(configs),
            ConfigResourceKind::Group => self.config.validate_group(configs),
            ConfigResourceKind::ClientMetrics => {
                thalweg_config::validate_client_metrics(&resource.name, configs)
            }
            ConfigResourceKind::Broker => {
                return self.validate_broker(&resource.name, configs, existing).map_err(|error| {
                    ConfigRefusal {
                        code: ErrorCode::from_i16(error.code()).unwrap_or(ErrorCode::InvalidConfig),
                        message: error.to_string(),
                    }
                });
            }
            // The controller refuses these kinds earlier.
            ConfigResourceKind::BrokerLogger | ConfigResourceKind::Unknown(_) => Ok(()),
        };
        checked.map_err(|error| ConfigRefusal { code: code(&error), message: error.to_string() })
    }

    fn is_list(&self, kind: ConfigResourceKind, name: &str) -> bool {
        key(kind, name).is_some_and(|key| key.config_type == ConfigType::List)
    }

    fn default_value(&self, kind: ConfigResourceKind, name: &str) -> Option<String> {
        match kind {
            ConfigResourceKind::Topic => self.config.topic_defaults.value(name).map(ToString::to_string),
            ConfigResourceKind::Broker => self.config.value(name).map(ToString::to_string),
            _ => key(kind, name)?.default.map(str::to_owned),
        }
    }

    fn effective_topic_configs(
        &self,
        overrides: &ConfigMap,
        broker: &ConfigMap,
        brokers: &ConfigMap,
    ) -> Vec<EffectiveConfig> {
        let config = self.with_dynamic(broker, brokers);
        let described = config.describe_topic(overrides, None).into_iter().map(|described| EffectiveConfig {
            name: described.name,
            value: described.value,
            read_only: described.read_only,
            source: described.source.code(),
            sensitive: described.is_sensitive,
        });
        described.collect()
    }
}

fn key(kind: ConfigResourceKind, name: &str) -> Option<&'static thalweg_config::ConfigKey> {
    match kind {
        ConfigResourceKind::Topic => ConfigScope::Topic.key(name),
        ConfigResourceKind::Broker => ConfigScope::Broker.key(name),
        ConfigResourceKind::Group => table::group_key(name),
        ConfigResourceKind::ClientMetrics => table::client_metrics_key(name),
        ConfigResourceKind::BrokerLogger | ConfigResourceKind::Unknown(_) => None,
    }
}

/// Kafka has a separate code for some invalid client metrics subscriptions.
fn code(error: &ConfigError) -> ErrorCode {
    match error {
        ConfigError::UnknownClientMetricsKey { .. }
        | ConfigError::ClientMetricsInterval { .. }
        | ConfigError::UnnamedSubscription => ErrorCode::InvalidRequest,
        _ => ErrorCode::InvalidConfig,
    }
}
