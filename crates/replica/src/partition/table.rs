//! The partitions that this broker holds, by topic.

use super::Partition;
use super::file_work::FileWorkList;
use super::traffic::Traffic;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_metadata::{PartitionIndex, topic_name};
use thalweg_wire::Uuid;

/// A topic and its partitions on this broker.
#[derive(Debug, Clone)]
pub struct LocalTopic {
    /// The topic's name.
    pub name: Arc<str>,
    /// The topic's id.
    pub id: Uuid,
    /// Traffic of removed partitions.
    pub departed: Traffic,
    partitions: BTreeMap<PartitionIndex, Arc<Partition>>,
}

impl LocalTopic {
    /// A partition of the topic; `None` if not on this broker.
    pub fn partition(&self, index: PartitionIndex) -> Option<Arc<Partition>> {
        self.partitions.get(&index).cloned()
    }

    /// The topic's partitions on this broker.
    pub fn partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.partitions.values()
    }
}

/// All partitions on this broker. A reader keeps the [`LocalTopic`] that it found: a change copies the topic
/// only while such a reader exists. So thousands of changes of one topic, as at its creation, make few
/// copies.
#[derive(Debug, Default)]
pub struct Partitions {
    topics: RwLock<Index>,
    file_work: Arc<FileWorkList>,
}

#[derive(Debug, Default)]
struct Index {
    by_id: HashMap<Uuid, Arc<LocalTopic>>,
    by_name: HashMap<Arc<str>, Uuid>,
    /// Traffic of removed topics.
    departed: Traffic,
}

impl Partitions {
    /// The topic with this id.
    pub fn topic_by_id(&self, id: Uuid) -> Option<Arc<LocalTopic>> {
        self.topics.read().by_id.get(&id).cloned()
    }

    /// The topic with this name.
    pub fn topic_by_name(&self, name: &str) -> Option<Arc<LocalTopic>> {
        // A longer name is not a topic's, and may be expensive to hash, once for each partition in a request.
        if name.len() > topic_name::LENGTH_MAX {
            return None;
        }
        let topics = self.topics.read();
        topics.by_id.get(topics.by_name.get(name)?).cloned()
    }

    /// A partition by its topic's name.
    pub fn get(&self, topic: &str, index: PartitionIndex) -> Option<Arc<Partition>> {
        self.topic_by_name(topic)?.partition(index)
    }

    /// All topics with a partition here.
    pub fn topics(&self) -> Vec<Arc<LocalTopic>> {
        self.topics.read().by_id.values().cloned().collect()
    }

    pub fn all(&self) -> Vec<Arc<Partition>> {
        let topics = self.topics.read();
        topics.by_id.values().flat_map(|topic| topic.partitions.values().cloned()).collect()
    }

    /// Traffic of topics without a partition here.
    pub fn departed(&self) -> Traffic {
        self.topics.read().departed
    }

    /// Adds a partition, and its topic with the first one.
    pub fn insert(&self, partition: Arc<Partition>) {
        let mut index = self.topics.write();
        let Index { by_id, by_name, .. } = &mut *index;
        let topic = by_id.entry(partition.topic_id).or_insert_with(|| {
            by_name.insert(Arc::clone(&partition.topic), partition.topic_id);
            Arc::new(LocalTopic {
                name: Arc::clone(&partition.topic),
                id: partition.topic_id,
                departed: Traffic::default(),
                partitions: BTreeMap::new(),
            })
        });
        Arc::make_mut(topic).partitions.insert(partition.index, Arc::clone(&partition));
        drop(index);
        partition.belongs_to(&self.file_work);
    }

    pub(super) fn file_work_list(&self) -> &Arc<FileWorkList> {
        &self.file_work
    }

    /// Removes a partition, and the topic with the last one.
    pub fn remove(&self, topic_id: Uuid, partition: PartitionIndex) -> Option<Arc<Partition>> {
        let mut index = self.topics.write();
        let topic = Arc::make_mut(index.by_id.get_mut(&topic_id)?);
        let removed = topic.partitions.remove(&partition);
        topic.departed += removed.as_ref().map(|partition| partition.traffic()).unwrap_or_default();
        if topic.partitions.is_empty() {
            let gone = index.by_id.remove(&topic_id)?;
            index.departed += gone.departed;
            // The name may belong to a recreated topic.
            if index.by_name.get(&gone.name) == Some(&topic_id) {
                index.by_name.remove(&gone.name);
            }
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::testing::partition;
    use thalweg_log::disk::Disk;
    use thalweg_log::{Clock, Home, LogConfig, PartitionLog, TopicPartition};

    /// A partition of the topic `t`.
    fn numbered(dir: &tempfile::TempDir, index: i32) -> Arc<Partition> {
        let home = Home::new(Disk::real(), dir.path().join(format!("t-{index}")));
        let name = TopicPartition::new("t", index);
        let log = PartitionLog::create(home, name, None, Arc::new(LogConfig::default()), Clock::manual(0));
        let mut partition = partition(log.expect("creates"), 0);
        partition.index = PartitionIndex(index);
        Arc::new(partition)
    }

    #[test]
    fn a_topic_is_copied_only_for_its_readers() {
        let (dir, partitions) = (tempfile::tempdir().expect("a temporary directory"), Partitions::default());
        let first = numbered(&dir, 0);
        let id = first.topic_id;
        partitions.insert(first);
        let address = || Arc::as_ptr(&partitions.topic_by_id(id).expect("a topic"));
        let before = address();
        for index in 1..20 {
            partitions.insert(numbered(&dir, index));
            assert_eq!(address(), before, "a change that no reader sees makes no copy");
        }
        partitions.remove(id, PartitionIndex(7)).expect("it is there");
        assert_eq!(address(), before, "nor does a removal");
        let kept = partitions.topic_by_name("t").expect("a topic");
        partitions.insert(numbered(&dir, 20));
        partitions.remove(id, PartitionIndex(0)).expect("it is there");
        assert!(kept.partition(PartitionIndex(20)).is_none() && kept.partition(PartitionIndex(0)).is_some());
        assert!(partitions.get("t", PartitionIndex(20)).is_some());
        assert!(partitions.get("t", PartitionIndex(0)).is_none());
        for index in (1..=20).filter(|index| *index != 7) {
            partitions.remove(id, PartitionIndex(index)).expect("it is there");
        }
        assert!(partitions.topic_by_id(id).is_none() && partitions.topic_by_name("t").is_none());
    }
}
