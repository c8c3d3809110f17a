//! Topics and their partitions.

use crate::shards::Shards;
use crate::{PartitionIndex, PartitionRegistration, topic_name};
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_wire::Uuid;

/// A topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topic {
    /// Its name.
    pub name: Arc<str>,
    /// Its id.
    pub id: Uuid,
    /// Its partitions by their index.
    pub partitions: BTreeMap<PartitionIndex, Arc<PartitionRegistration>>,
}

impl Topic {
    /// A partition by its index.
    pub fn partition(&self, index: PartitionIndex) -> Option<&Arc<PartitionRegistration>> {
        self.partitions.get(&index)
    }
}

/// All topics, by id and by name. A copy shares them, and a change copies a small part of the maps.
#[derive(Clone, Debug, Default)]
pub struct Topics {
    by_id: Shards<Uuid, Arc<Topic>>,
    by_name: Shards<Arc<str>, Uuid>,
}

impl PartialEq for Topics {
    fn eq(&self, other: &Topics) -> bool {
        self.by_id == other.by_id
    }
}

impl Topics {
    /// A topic by its name.
    pub fn get(&self, name: &str) -> Option<&Arc<Topic>> {
        // A name beyond that is no topic's, and may be long to hash, once for each of its partitions.
        if name.len() > topic_name::LENGTH_MAX {
            return None;
        }
        self.by_id.get(self.by_name.get(name)?)
    }

    /// A topic by its id.
    pub fn get_by_id(&self, id: Uuid) -> Option<&Arc<Topic>> {
        self.by_id.get(&id)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_id.len() == 0
    }

    /// All topics, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.by_id.iter().map(|(_, topic)| topic)
    }

    /// All topics in the order of their names.
    pub fn sorted(&self) -> Vec<&Arc<Topic>> {
        let mut topics: Vec<_> = self.iter().collect();
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        topics
    }

    /// The topics that are not as in an earlier copy, in no order. What has not changed is hardly looked at.
    pub fn changed_since(&self, base: &Topics) -> impl Iterator<Item = &Arc<Topic>> {
        let is_same = |topic: &Arc<Topic>| base.get_by_id(topic.id).is_some_and(|b| Arc::ptr_eq(b, topic));
        self.by_id.since(&base.by_id).map(|(_, topic)| topic).filter(move |topic| !is_same(topic))
    }

    /// How many partitions all topics have.
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
