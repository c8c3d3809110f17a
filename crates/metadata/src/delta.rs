//! The step from one image to the next.

use crate::{
    BrokerId, Changes, Image, LocalChanges, LocalPartition, PartitionIndex, PartitionRegistration,
    Provenance, ReplayError, Topic,
};
use std::sync::Arc;
use thalweg_wire::MetadataRecord;

/// Records replayed on top of an image. A delta copies only touched parts, and shares the rest with its base.
#[derive(Clone, Debug)]
pub struct Delta {
    base: Arc<Image>,
    pub(crate) image: Image,
    pub(crate) changes: Changes,
}

impl Delta {
    /// Creates a delta without changes.
    pub fn new(base: Arc<Image>) -> Delta {
        Delta { image: (*base).clone(), base, changes: Changes::default() }
    }

    /// A delta with all differences between two images, for a first publication.
    pub fn between(base: Arc<Image>, image: &Image) -> Delta {
        let changes = Changes::between(&base, image);
        Delta { base, image: image.clone(), changes }
    }

    /// The base image of the delta.
    pub fn base(&self) -> &Arc<Image> {
        &self.base
    }

    /// The image after the records replayed so far.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The changes made by the records so far.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// True if no record has touched anything.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Replays one record. Records that begin or end metadata transactions belong to the
    /// [`Loader`](crate::Loader).
    pub fn replay(&mut self, record: &MetadataRecord) -> Result<(), ReplayError> {
        self.replay_record(record)
    }

    /// Sets the provenance, and returns the image.
    pub fn apply(&mut self, provenance: Provenance) -> Arc<Image> {
        self.image.provenance = provenance;
        Arc::new(self.image.clone())
    }

    /// Deleted topics of the base.
    pub fn deleted_topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        let base = &self.base().topics;
        self.changes().deleted_topics.iter().filter_map(|id| base.get_by_id(*id))
    }

    pub fn created_topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        let topics = &self.image().topics;
        self.changes().created_topics.iter().filter_map(|id| topics.get_by_id(*id))
    }

    /// The changes to the replicas of a broker.
    pub fn local_changes(&self, broker: BrokerId) -> LocalChanges {
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
        broker: BrokerId,
        topic: &Arc<Topic>,
        partition: PartitionIndex,
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
