//! Configurations that were set at run time, for each resource.

use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_hash::HashMap;

/// What a configuration belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConfigResourceKind {
    /// A topic.
    Topic,
    /// A broker; the empty name stands for all of them.
    Broker,
    /// The loggers of a broker, which are never in the log.
    BrokerLogger,
    /// Subscriptions to clients' metrics.
    ClientMetrics,
    /// A consumer group.
    Group,
    /// A kind of a later Kafka.
    Unknown(i8),
}

impl ConfigResourceKind {
    /// The value in records and requests.
    pub fn id(self) -> i8 {
        match self {
            ConfigResourceKind::Topic => 2,
            ConfigResourceKind::Broker => 4,
            ConfigResourceKind::BrokerLogger => 8,
            ConfigResourceKind::ClientMetrics => 16,
            ConfigResourceKind::Group => 32,
            ConfigResourceKind::Unknown(id) => id,
        }
    }

    /// The kind with this value.
    pub fn from_id(id: i8) -> ConfigResourceKind {
        match id {
            2 => ConfigResourceKind::Topic,
            4 => ConfigResourceKind::Broker,
            8 => ConfigResourceKind::BrokerLogger,
            16 => ConfigResourceKind::ClientMetrics,
            32 => ConfigResourceKind::Group,
            id => ConfigResourceKind::Unknown(id),
        }
    }
}

/// What a configuration belongs to, by kind and name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConfigResource {
    /// The kind.
    pub kind: ConfigResourceKind,
    /// The name; empty for the default of all brokers.
    pub name: String,
}

impl ConfigResource {
    /// A topic.
    pub fn topic(name: &str) -> ConfigResource {
        ConfigResource { kind: ConfigResourceKind::Topic, name: name.to_owned() }
    }

    /// A broker.
    pub fn broker(id: i32) -> ConfigResource {
        ConfigResource { kind: ConfigResourceKind::Broker, name: id.to_string() }
    }

    /// The default of all brokers.
    pub fn brokers() -> ConfigResource {
        ConfigResource { kind: ConfigResourceKind::Broker, name: String::new() }
    }

    /// A group.
    pub fn group(name: &str) -> ConfigResource {
        ConfigResource { kind: ConfigResourceKind::Group, name: name.to_owned() }
    }
}

/// The settings of one resource, by Kafka's property names.
pub type ConfigMap = BTreeMap<String, String>;

/// All configurations. A copy shares the maps of the resources.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Configs {
    resources: HashMap<ConfigResource, Arc<ConfigMap>>,
}

impl Configs {
    /// The settings of a resource, when it has some.
    pub fn get(&self, resource: &ConfigResource) -> Option<&Arc<ConfigMap>> {
        self.resources.get(resource)
    }

    /// One setting of a resource.
    pub fn value(&self, resource: &ConfigResource, name: &str) -> Option<&str> {
        self.resources.get(resource)?.get(name).map(String::as_str)
    }

    /// All resources that have settings, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&ConfigResource, &Arc<ConfigMap>)> {
        self.resources.iter()
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    pub(crate) fn set(&mut self, resource: &ConfigResource, name: &str, value: Option<&str>) {
        match value {
            Some(value) => {
                let map = self.resources.entry(resource.clone()).or_default();
                Arc::make_mut(map).insert(name.to_owned(), value.to_owned());
            }
            None => {
                if let Some(map) = self.resources.get_mut(resource) {
                    Arc::make_mut(map).remove(name);
                    if map.is_empty() {
                        self.resources.remove(resource);
                    }
                }
            }
        }
    }

    pub(crate) fn remove(&mut self, resource: &ConfigResource) -> bool {
        self.resources.remove(resource).is_some()
    }
}
