//! What the records of a delta changed, and what that means for one broker.

use crate::{ConfigResource, Delta, PartitionRegistration, Topic};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_wire::Uuid;

/// What changed between two images. A thing is listed when a record touched it, even if it is the same afterwards.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Changes {
    /// Topics of the base that are gone.
    pub deleted_topics: BTreeSet<Uuid>,
    /// Topics that are new.
    pub created_topics: BTreeSet<Uuid>,
    /// Topics that are there afterwards and were touched, new ones too, with the indexes of their touched partitions.
    pub changed_topics: BTreeMap<Uuid, BTreeSet<i32>>,
    /// Brokers that were registered, changed or removed.
    pub brokers: BTreeSet<i32>,
    /// Controllers that registered.
    pub controllers: BTreeSet<i32>,
    /// Resources whose configuration was touched, those of deleted topics too.
    pub configs: BTreeSet<ConfigResource>,
    /// Whether a feature's level was set.
    pub features: bool,
    /// Whether a quota was set or removed.
    pub quotas: bool,
    /// Whether access control entries changed.
    pub acls: bool,
    /// Whether SCRAM credentials changed.
    pub scram: bool,
    /// Whether delegation tokens changed.
    pub delegation_tokens: bool,
    /// Whether a block of producer ids was given out.
    pub producer_ids: bool,
}

impl Changes {
    /// Whether nothing was touched.
    pub fn is_empty(&self) -> bool {
        *self == Changes::default()
    }
}

/// A partition that a broker has to look at.
#[derive(Clone, PartialEq, Debug)]
pub struct LocalPartition {
    /// Its topic, as it is afterwards; as it was, for one that is gone.
    pub topic: Arc<Topic>,
    /// Its index.
    pub partition: i32,
    /// Its registration, afterwards; as it was, for one that is gone.
    pub registration: Arc<PartitionRegistration>,
    /// Whether the broker had no replica of it before.
    pub is_new: bool,
}

/// What a broker has to do about its replicas (Kafka's `LocalReplicaChanges`), to be done in the order of the fields.
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

impl Delta {
    /// Topics of the base that are gone, as they were.
    pub fn deleted_topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        let base = &self.base().topics;
        self.changes().deleted_topics.iter().filter_map(|id| base.get_by_id(*id))
    }

    /// Topics that are new.
    pub fn created_topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        let topics = &self.image().topics;
        self.changes().created_topics.iter().filter_map(|id| topics.get_by_id(*id))
    }

    /// What the delta means for the replicas of a broker.
    pub fn local_changes(&self, broker: i32) -> LocalChanges {
        let mut local = LocalChanges::default();
        for topic in self.deleted_topics() {
            for (index, registration) in &topic.partitions {
                if registration.is_replica(broker) {
                    local.deletes.push(LocalPartition {
                        topic: topic.clone(),
                        partition: *index,
                        registration: registration.clone(),
                        is_new: false,
                    });
                }
            }
        }
        for (id, partitions) in &self.changes().changed_topics {
            let Some(topic) = self.image().topics.get_by_id(*id) else { continue };
            let before = self.base().topics.get_by_id(*id);
            for index in partitions {
                let before = before.and_then(|topic| topic.partition(*index));
                let Some(registration) = topic.partition(*index) else { continue };
                self.place(&mut local, broker, topic, *index, registration, before);
            }
        }
        local
    }

    fn place(
        &self,
        local: &mut LocalChanges,
        broker: i32,
        topic: &Arc<Topic>,
        partition: i32,
        registration: &Arc<PartitionRegistration>,
        before: Option<&Arc<PartitionRegistration>>,
    ) {
        let had = before.is_some_and(|before| before.is_replica(broker));
        let has = registration.is_replica(broker);
        let (topic, registration) = (topic.clone(), registration.clone());
        let change = LocalPartition { topic, partition, is_new: has && !had, registration };
        if !has {
            if had {
                local.deletes.push(change);
            }
        } else if change.registration.leader == broker {
            local.leaders.push(change);
        } else {
            local.followers.push(change);
        }
    }
}
