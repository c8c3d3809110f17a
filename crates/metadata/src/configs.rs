//! Configurations that were set at run time, for each resource.

use crate::BrokerId;
use crate::shards::Shards;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use thalweg_hash::HashMap;

/// The kind of resource of a configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConfigResourceKind {
    /// A topic.
    Topic,
    /// A broker; the empty name means all of them.
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

/// The resource of a configuration, by kind and name.
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
    pub fn broker(id: BrokerId) -> ConfigResource {
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

/// A list with entries added that it does not have, or with entries taken from it: each one that is named takes the
/// first that is left. Entries are between commas, and the list's own empty ones are left out.
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

/// All configurations. A copy shares them, and a change copies a small part of the map.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Configs {
    resources: Shards<ConfigResource, Arc<ConfigMap>>,
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
