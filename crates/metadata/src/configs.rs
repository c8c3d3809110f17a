//! Dynamic configurations by resource.

use crate::BrokerId;
use crate::cow_map::CowMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use thalweg_hash::HashMap;

/// The type of a configuration resource.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConfigResourceKind {
    /// A topic, by name.
    Topic,
    /// A broker; the empty name means all brokers.
    Broker,
    /// The loggers of a broker, which are never in the metadata log.
    BrokerLogger,
    /// Subscriptions to client metrics.
    ClientMetrics,
    /// A group of any type, by id.
    Group,
    /// A type of a later Kafka.
    Unknown(i8),
}

impl ConfigResourceKind {
    /// Kafka's code in records and requests.
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

    /// The type of a code.
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

/// The resource of a configuration.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConfigResource {
    /// The resource type.
    pub kind: ConfigResourceKind,
    /// The resource name; empty for the default of all brokers.
    pub name: String,
}

impl ConfigResource {
    /// The resource of a topic.
    pub fn topic(name: &str) -> ConfigResource {
        ConfigResource { kind: ConfigResourceKind::Topic, name: name.to_owned() }
    }

    /// The resource of one broker.
    pub fn broker(id: BrokerId) -> ConfigResource {
        ConfigResource { kind: ConfigResourceKind::Broker, name: id.to_string() }
    }

    /// The resource for the defaults of all brokers.
    pub fn brokers() -> ConfigResource {
        ConfigResource { kind: ConfigResourceKind::Broker, name: String::new() }
    }

    /// The resource of a group.
    pub fn group(name: &str) -> ConfigResource {
        ConfigResource { kind: ConfigResourceKind::Group, name: name.to_owned() }
    }
}

/// The settings of one resource, by Kafka's property names.
pub type ConfigMap = BTreeMap<String, String>;

/// Adds missing entries to a comma-separated list, or removes entries. Each named entry removes its first
/// remaining occurrence. Empty entries of the list are dropped.
pub fn edit_list(list: &str, named: &str, add: bool) -> String {
    let mut entries: Vec<Option<&str>> = Vec::new();
    let mut places: HashMap<&str, VecDeque<usize>> = HashMap::default();
    for entry in list.split(',').filter(|entry| !entry.is_empty()) {
        places.entry(entry).or_default().push_back(entries.len());
        entries.push(Some(entry));
    }
    for entry in named.split(',') {
        let places = places.entry(entry).or_default();
        if add && places.is_empty() {
            places.push_back(entries.len());
            entries.push(Some(entry));
        } else if !add && let Some(place) = places.pop_front() {
            entries[place] = None;
        }
    }
    let left: Vec<&str> = entries.into_iter().flatten().collect();
    left.join(",")
}

/// All configurations. A clone shares them, and a change copies a small part of the map.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Configs {
    resources: CowMap<ConfigResource, Arc<ConfigMap>>,
}

impl Configs {
    /// The settings of a resource, if any.
    pub fn get(&self, resource: &ConfigResource) -> Option<&Arc<ConfigMap>> {
        self.resources.get(resource)
    }

    /// The value of one setting.
    pub fn value(&self, resource: &ConfigResource, name: &str) -> Option<&str> {
        self.resources.get(resource)?.get(name).map(String::as_str)
    }

    /// All resources with settings, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&ConfigResource, &Arc<ConfigMap>)> {
        self.resources.iter()
    }

    /// True without settings.
    pub fn is_empty(&self) -> bool {
        self.resources.len() == 0
    }

    pub(crate) fn set(&mut self, resource: &ConfigResource, name: &str, value: Option<&str>) {
        match value {
            Some(value) => {
                if self.resources.get(resource).is_none() {
                    self.resources.insert(resource.clone(), Arc::default());
                }
                let map = self.resources.get_mut(resource).expect("it was just put there");
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

#[cfg(test)]
mod tests {
    use super::edit_list;

    #[test]
    fn lists_are_edited_entry_by_entry() {
        assert_eq!(edit_list("a,b,,c", "b,d,d,e", true), "a,b,c,d,e");
        assert_eq!(edit_list("", "a", true), "a");
        assert_eq!(edit_list("a,b,a,c,a", "a,a,x", false), "b,c,a");
        assert_eq!(edit_list("a", "a", false), "");
        assert_eq!(edit_list("a", "", true), "a,");
    }

    #[test]
    fn the_longest_lists_are_edited_soon() {
        let list = |from: u32| (from..from + 6_000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let both = edit_list(&list(0), &list(6_000), true);
        assert_eq!(both.split(',').count(), 12_000);
        assert_eq!(edit_list(&both, &list(0), false), list(6_000));
    }
}
