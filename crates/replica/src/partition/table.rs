//! The partitions that this broker holds, by topic.

use super::Partition;
use super::traffic::Traffic;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_metadata::{PartitionIndex, topic_name};
use thalweg_wire::Uuid;

/// A topic with the partitions of it that are here.
#[derive(Debug, Clone)]
pub struct Topic {
    /// Its name.
    pub name: Arc<str>,
    /// Its id.
    pub id: Uuid,
    /// Traffic of its partitions that have left.
    pub departed: Traffic,
    partitions: BTreeMap<PartitionIndex, Arc<Partition>>,
}

impl Topic {
    /// A partition, when it is here.
    pub fn partition(&self, index: PartitionIndex) -> Option<Arc<Partition>> {
        self.partitions.get(&index).cloned()
    }

    /// The partitions that are here.
    pub fn partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.partitions.values()
    }
}

/// All partitions that are here. A change makes a new [`Topic`]; readers keep the one they found.
#[derive(Debug, Default)]
pub struct Partitions {
    topics: RwLock<Index>,
}

#[derive(Debug, Default)]
struct Index {
    by_id: HashMap<Uuid, Arc<Topic>>,
    by_name: HashMap<Arc<str>, Arc<Topic>>,
    /// Traffic of topics that have left.
    departed: Traffic,
}

impl Partitions {
    /// The topic with this id.
    pub fn topic_by_id(&self, id: Uuid) -> Option<Arc<Topic>> {
        self.topics.read().by_id.get(&id).cloned()
    }

    /// The topic with this name.
    pub fn topic_by_name(&self, name: &str) -> Option<Arc<Topic>> {
        // A name beyond that is no topic's, and may be long to hash, once for each of its partitions.
        if name.len() > topic_name::LENGTH_MAX {
            return None;
        }
        self.topics.read().by_name.get(name).cloned()
    }

    /// A partition by its topic's name.
    pub fn get(&self, topic: &str, index: PartitionIndex) -> Option<Arc<Partition>> {
        self.topic_by_name(topic)?.partition(index)
    }

    /// Every topic.
    pub fn topics(&self) -> Vec<Arc<Topic>> {
        self.topics.read().by_id.values().cloned().collect()
    }

    /// Every partition.
    pub fn all(&self) -> Vec<Arc<Partition>> {
        let topics = self.topics.read();
        topics.by_id.values().flat_map(|topic| topic.partitions.values().cloned()).collect()
    }

    /// Traffic of topics without a partition here.
    pub fn departed(&self) -> Traffic {
        self.topics.read().departed
    }

    /// Adds a partition.
    pub fn insert(&self, partition: Arc<Partition>) {
        let mut index = self.topics.write();
        let mut topic = match index.by_id.get(&partition.topic_id) {
            Some(topic) => Topic::clone(topic),
            None => Topic {
                name: Arc::clone(&partition.topic),
                id: partition.topic_id,
                departed: Traffic::default(),
                partitions: BTreeMap::new(),
            },
        };
        topic.partitions.insert(partition.index, partition);
        index.put(topic);
    }

    /// Removes a partition, and the topic with its last one.
    pub fn remove(&self, topic_id: Uuid, partition: PartitionIndex) -> Option<Arc<Partition>> {
        let mut index = self.topics.write();
        let mut topic = Topic::clone(index.by_id.get(&topic_id)?);
        let removed = topic.partitions.remove(&partition);
        topic.departed += removed.as_ref().map(|partition| partition.traffic()).unwrap_or_default();
        if topic.partitions.is_empty() {
            index.by_id.remove(&topic_id);
            index.departed += topic.departed;
            // The name may belong to a recreated topic.
            if index.by_name.get(&topic.name).is_some_and(|named| named.id == topic_id) {
                index.by_name.remove(&topic.name);
            }
        } else {
            index.put(topic);
        }
        removed
    }
}

impl Index {
    fn put(&mut self, topic: Topic) {
        let topic = Arc::new(topic);
        self.by_id.insert(topic.id, Arc::clone(&topic));
        self.by_name.insert(Arc::clone(&topic.name), topic);
    }
}
