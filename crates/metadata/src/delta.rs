//! From one image to the next.

use crate::{Changes, Image, Provenance, ReplayError};
use std::sync::Arc;
use thalweg_wire::MetadataRecord;

/// Records replayed on top of an image. It copies what they touch and shares the rest with its base.
#[derive(Clone, Debug)]
pub struct Delta {
    base: Arc<Image>,
    pub(crate) image: Image,
    pub(crate) changes: Changes,
}

impl Delta {
    /// No change yet to an image.
    pub fn new(base: Arc<Image>) -> Delta {
        Delta { image: (*base).clone(), base, changes: Changes::default() }
    }

    /// Everything that is in an image and was not before: what a first publication has to tell.
    pub fn between(base: Arc<Image>, image: &Image) -> Delta {
        let changes = Changes::between(&base, image);
        Delta { base, image: image.clone(), changes }
    }

    /// The image that the records are replayed on.
    pub fn base(&self) -> &Arc<Image> {
        &self.base
    }

    /// The image so far.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// What the records have touched so far.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Whether no record has touched anything.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Replays one record. Records that bracket transactions are not for here but for the [`Loader`](crate::Loader).
    pub fn replay(&mut self, record: &MetadataRecord) -> Result<(), ReplayError> {
        self.replay_record(record)
    }

    /// Says which part of the log has been replayed, and gives the image.
    pub fn apply(&mut self, provenance: Provenance) -> Arc<Image> {
        self.image.provenance = provenance;
        Arc::new(self.image.clone())
    }
}

impl Changes {
    /// Finds what differs between two images.
    pub fn between(base: &Image, image: &Image) -> Changes {
        let mut changes = Changes {
            features: base.features != image.features,
            quotas: base.quotas != image.quotas,
            acls: base.acls != image.acls,
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
            let changed: std::collections::BTreeSet<i32> = changed.collect();
            if before.is_none() || !changed.is_empty() {
                self.changed_topics.insert(topic.id, changed);
            }
        }
        let gone = base.topics.iter().filter(|topic| image.topics.get_by_id(topic.id).is_none());
        self.deleted_topics.extend(gone.map(|topic| topic.id));
    }
}
