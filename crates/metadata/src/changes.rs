//! The difference between two images, and the resulting work of one broker.

use crate::{BrokerId, ConfigResource, Image, PartitionIndex, PartitionRegistration, Topic};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_wire::Uuid;

/// The changes between two images. A touched entry is listed even if its final state is equal.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Changes {
    /// Deleted topics of the base.
    pub deleted_topics: BTreeSet<Uuid>,
    pub created_topics: BTreeSet<Uuid>,
    /// Existing topics, including new ones, with the indexes of touched partitions.
    pub changed_topics: BTreeMap<Uuid, BTreeSet<PartitionIndex>>,
    /// Brokers with a new, changed or removed registration.
    pub brokers: BTreeSet<BrokerId>,
    /// Controllers with a new registration.
    pub controllers: BTreeSet<i32>,
    /// Resources with touched configurations, including deleted topics.
    pub configs: BTreeSet<ConfigResource>,
    /// True if a feature level was set.
    pub features: bool,
    /// True if a quota was set or removed.
    pub quotas: bool,
    /// Ids of added or removed access control entries.
    pub acls: BTreeSet<Uuid>,
    /// True if SCRAM credentials changed.
    pub scram: bool,
    /// True if delegation tokens changed.
    pub delegation_tokens: bool,
    /// True if a block of producer ids was allocated.
    pub producer_ids: bool,
}

impl Changes {
    /// True if nothing was touched.
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

/// A changed partition with a replica on the broker, before or after the change.
#[derive(Clone, PartialEq, Debug)]
pub struct LocalPartition {
    /// The topic after the change; before the change if deleted.
    pub topic: Arc<Topic>,
    /// The partition index.
    pub partition: PartitionIndex,
    /// The registration after the change; before the change if deleted.
    pub registration: Arc<PartitionRegistration>,
    /// True if the broker had no replica before the change.
    pub is_new: bool,
}

/// The work of a broker on its replicas (Kafka's `LocalReplicaChanges`), in the order of the fields.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LocalChanges {
    /// Replicas that the broker loses, by topic deletion or reassignment.
    pub deletes: Vec<LocalPartition>,
    /// Changed partitions that the broker leads.
    pub leaders: Vec<LocalPartition>,
    /// Changed partitions that the broker follows, or that have no leader.
    pub followers: Vec<LocalPartition>,
}

impl LocalChanges {
    /// True without any work.
    pub fn is_empty(&self) -> bool {
        self.deletes.is_empty() && self.leaders.is_empty() && self.followers.is_empty()
    }
}
