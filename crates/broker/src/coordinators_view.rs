//! The coordinators' view of the cluster: topics and features of the latest image.

use std::sync::Arc;
use thalweg_groups::{TopicPlacement, TopicsView};
use thalweg_metadata::feature::TRANSACTION_VERSION;
use thalweg_metadata::topic_name::{OFFSETS, SHARE_STATE, TRANSACTIONS};
use thalweg_metadata::{BrokerId, ImageCell, PartitionIndex, PartitionRegistration};
use thalweg_share_groups::ShareStatesView;
use thalweg_transactions::TransactionsView;
use thalweg_wire::Uuid;

/// The latest image, as the coordinators see it.
pub struct CoordinatorsView {
    image: Arc<ImageCell>,
}

impl CoordinatorsView {
    /// A view of the latest image in the cell.
    pub fn new(image: Arc<ImageCell>) -> Self {
        Self { image }
    }
}

impl TopicsView for CoordinatorsView {
    fn id(&self, name: &str) -> Option<Uuid> {
        self.image.get().topic(name).map(|topic| topic.id)
    }

    fn name(&self, id: Uuid) -> Option<String> {
        self.image.get().topic_by_id(id).map(|topic| topic.name.to_string())
    }

    fn offsets_partition_count(&self) -> Option<i32> {
        self.image.get().topic(OFFSETS).and_then(|topic| i32::try_from(topic.partitions.len()).ok())
    }

    fn names(&self) -> Vec<String> {
        self.image.get().topics().sorted().into_iter().map(|topic| topic.name.to_string()).collect()
    }

    fn version(&self) -> i64 {
        self.image.get().offset()
    }

    fn partition_count(&self, id: Uuid) -> Option<i32> {
        self.image.get().topic_by_id(id).and_then(|topic| i32::try_from(topic.partitions.len()).ok())
    }

    fn placement(&self, name: &str) -> Option<TopicPlacement> {
        let image = self.image.get();
        let topic = image.topic(name)?;
        let rack = |broker: &BrokerId| image.broker(*broker)?.rack.as_deref().map(Arc::from);
        let racks =
            |partition: &Arc<PartitionRegistration>| partition.replicas.iter().filter_map(rack).collect();
        Some(TopicPlacement { id: topic.id, racks: topic.partitions.values().map(racks).collect() })
    }

    fn has_partition(&self, name: &str, partition: PartitionIndex) -> bool {
        self.image.get().partition(name, partition).is_some()
    }
}

impl ShareStatesView for CoordinatorsView {
    fn share_partition_count(&self) -> Option<i32> {
        self.image.get().topic(SHARE_STATE).and_then(|topic| i32::try_from(topic.partitions.len()).ok())
    }

    fn has_partition(&self, topic: Uuid, partition: PartitionIndex) -> bool {
        self.image.get().topic_by_id(topic).is_some_and(|topic| topic.partition(partition).is_some())
    }
}

impl TransactionsView for CoordinatorsView {
    fn state_partition_count(&self) -> Option<i32> {
        self.image.get().topic(TRANSACTIONS).and_then(|topic| i32::try_from(topic.partitions.len()).ok())
    }

    fn transaction_version(&self) -> i16 {
        self.image.get().features().level(TRANSACTION_VERSION)
    }
}
