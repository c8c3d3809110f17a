//! Topics and their partitions.

use crate::cow_map::CowMap;
use crate::{PartitionIndex, PartitionRegistration, topic_name};
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_wire::Uuid;

/// A topic with its partitions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topic {
    /// The topic name.
    pub name: Arc<str>,
    /// The topic id.
    pub id: Uuid,
    /// The partitions by index.
    pub partitions: BTreeMap<PartitionIndex, Arc<PartitionRegistration>>,
}

impl Topic {
    /// The partition with this index.
    pub fn partition(&self, index: PartitionIndex) -> Option<&Arc<PartitionRegistration>> {
        self.partitions.get(&index)
    }
}

/// All topics, by id and by name. A clone shares them, and a change copies a small part of the maps.
#[derive(Clone, Debug, Default)]
pub struct Topics {
    by_id: CowMap<Uuid, Arc<Topic>>,
    by_name: CowMap<Arc<str>, Uuid>,
}

impl PartialEq for Topics {
    fn eq(&self, other: &Topics) -> bool {
        self.by_id == other.by_id
    }
}

impl Topics {
    /// The topic with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Topic>> {
        // A longer name matches no topic, and hashing a long name for each partition of a request is
        // expensive.
        if name.len() > topic_name::LENGTH_MAX {
            return None;
        }
        self.by_id.get(self.by_name.get(name)?)
    }

    /// The topic with this id.
    pub fn get_by_id(&self, id: Uuid) -> Option<&Arc<Topic>> {
        self.by_id.get(&id)
    }

    /// The number of topics.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// True without topics.
    pub fn is_empty(&self) -> bool {
        self.by_id.len() == 0
    }

    /// All topics, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.by_id.iter().map(|(_, topic)| topic)
    }

    /// All topics, sorted by name.
    pub fn sorted(&self) -> Vec<&Arc<Topic>> {
        let mut topics: Vec<_> = self.iter().collect();
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        topics
    }

    /// Topics that differ from `base`, in no particular order. Shared parts of the map are skipped.
    pub fn changed_since(&self, base: &Topics) -> impl Iterator<Item = &Arc<Topic>> {
        let is_same = |topic: &Arc<Topic>| base.get_by_id(topic.id).is_some_and(|b| Arc::ptr_eq(b, topic));
        self.by_id.since(&base.by_id).map(|(_, topic)| topic).filter(move |topic| !is_same(topic))
    }

    /// The number of partitions of all topics.
    pub fn partition_count(&self) -> usize {
        self.iter().map(|topic| topic.partitions.len()).sum()
    }

    pub(crate) fn insert(&mut self, topic: Topic) {
        self.by_name.insert(topic.name.clone(), topic.id);
        self.by_id.insert(topic.id, Arc::new(topic));
    }

    pub(crate) fn remove(&mut self, id: Uuid) -> Option<Arc<Topic>> {
        let topic = self.by_id.remove(&id)?;
        if self.by_name.get(&topic.name) == Some(&id) {
            self.by_name.remove(&topic.name);
        }
        Some(topic)
    }

    pub(crate) fn get_mut(&mut self, id: Uuid) -> Option<&mut Topic> {
        self.by_id.get_mut(&id).map(Arc::make_mut)
    }
}
