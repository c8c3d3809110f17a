//! The difference between two images, and its meaning for one broker.

use crate::{BrokerId, ConfigResource, Image, PartitionIndex, PartitionRegistration, Topic};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_wire::Uuid;

/// The changes between two images. An entry is listed if a record touched it, even if it is equal afterwards.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Changes {
    /// Topics of the base that are gone.
    pub deleted_topics: BTreeSet<Uuid>,
    /// Topics that are new.
    pub created_topics: BTreeSet<Uuid>,
    /// Topics that are there afterwards and were touched, new ones too, with the indexes of their touched partitions.
    pub changed_topics: BTreeMap<Uuid, BTreeSet<PartitionIndex>>,
    /// Brokers that were registered, changed or removed.
    pub brokers: BTreeSet<BrokerId>,
    /// Controllers that registered.
    pub controllers: BTreeSet<i32>,
    /// Resources whose configuration was touched, those of deleted topics too.
    pub configs: BTreeSet<ConfigResource>,
    /// Whether a feature's level was set.
    pub features: bool,
    /// Whether a quota was set or removed.
    pub quotas: bool,
    /// Access control entries that were added or removed.
    pub acls: BTreeSet<Uuid>,
    /// Whether SCRAM credentials changed.
    pub scram: bool,
    /// Whether delegation tokens changed.
    pub delegation_tokens: bool,
    /// Whether a block of producer ids was allocated.
    pub producer_ids: bool,
}

impl Changes {
    /// Whether nothing was touched.
    pub fn is_empty(&self) -> bool {
        *self == Changes::default()
    }

    /// Compares two images.
    pub fn between(base: &Image, image: &Image) -> Changes {
        let mut changes = Changes {
            features: base.features != image.features,
            quotas: base.quotas != image.quotas,
            acls: image.acls.changed_since(&base.acls),
            scram: base.scram != image.scram,
            delegation_tokens: base.delegation_tokens != image.delegation_tokens,
            producer_ids: base.next_producer_id != image.next_producer_id,
            ..Changes::default()
        };
        changes.compare_cluster(base, image);
        changes.compare_topics(base, image);
        for (resource, map) in image.configs.iter() {
            if base.configs.get(resource) != Some(map) {
                changes.configs.insert(resource.clone());
            }
        }
        for (resource, _) in base.configs.iter() {
            if image.configs.get(resource).is_none() {
                changes.configs.insert(resource.clone());
            }
        }
        changes
    }

    fn compare_cluster(&mut self, base: &Image, image: &Image) {
        for (id, broker) in &image.cluster.brokers {
            if base.cluster.brokers.get(id) != Some(broker) {
                self.brokers.insert(*id);
            }
        }
        self.brokers.extend(base.cluster.brokers.keys().filter(|id| image.broker(**id).is_none()));
        for (id, controller) in &image.cluster.controllers {
            if base.cluster.controllers.get(id) != Some(controller) {
                self.controllers.insert(*id);
            }
        }
    }

    fn compare_topics(&mut self, base: &Image, image: &Image) {
        for topic in image.topics.iter() {
            let before = base.topics.get_by_id(topic.id);
            if before.is_none() {
                self.created_topics.insert(topic.id);
            }
            let changed = topic
                .partitions
                .iter()
                .filter(|(index, partition)| before.and_then(|t| t.partition(**index)) != Some(*partition))
                .map(|(index, _)| *index);
            let changed: BTreeSet<PartitionIndex> = changed.collect();
            if before.is_none() || !changed.is_empty() {
                self.changed_topics.insert(topic.id, changed);
            }
        }
        let gone = base.topics.iter().filter(|topic| image.topics.get_by_id(topic.id).is_none());
        self.deleted_topics.extend(gone.map(|topic| topic.id));
    }
}

/// A partition that a broker has to look at.
#[derive(Clone, PartialEq, Debug)]
pub struct LocalPartition {
    /// Its topic, as it is afterwards; as it was, for one that is gone.
    pub topic: Arc<Topic>,
    /// Its index.
    pub partition: PartitionIndex,
    /// Its registration, afterwards; as it was, for one that is gone.
    pub registration: Arc<PartitionRegistration>,
    /// Whether the broker had no replica of it before.
    pub is_new: bool,
}

/// A broker's work on its replicas (Kafka's `LocalReplicaChanges`), in the order of the fields.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LocalChanges {
    /// Replicas that are no longer the broker's: their topic is deleted, or they were reassigned.
    pub deletes: Vec<LocalPartition>,
    /// Partitions that the broker leads and whose registration changed.
    pub leaders: Vec<LocalPartition>,
    /// Partitions that the broker follows (or that have no leader) and whose registration changed.
    pub followers: Vec<LocalPartition>,
}

impl LocalChanges {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.deletes.is_empty() && self.leaders.is_empty() && self.followers.is_empty()
    }
}
