//! The groups' view of the cluster's topics.

use std::sync::Arc;
use thalweg_metadata::PartitionIndex;
use thalweg_wire::Uuid;

/// A view of the existing topics, from the broker's metadata image.
pub trait TopicsView: Send + Sync + 'static {
    /// The id of a topic, if it exists.
    fn id(&self, name: &str) -> Option<Uuid>;
    /// The name of a topic, if it exists.
    fn name(&self, id: Uuid) -> Option<String>;
    /// Partition count of `__consumer_offsets`, if the topic exists.
    fn offsets_partition_count(&self) -> Option<i32>;
    /// Names of all topics.
    fn names(&self) -> Vec<String>;
    /// Version of the metadata: the offset of the image.
    fn version(&self) -> i64;
    /// Partition count of a topic, if it exists.
    fn partition_count(&self, id: Uuid) -> Option<i32>;
    /// Racks of a topic's partitions, if the topic exists.
    fn placement(&self, name: &str) -> Option<TopicPlacement>;
    /// True if the topic has this partition.
    fn has_partition(&self, name: &str, partition: PartitionIndex) -> bool;
}

/// The part of a topic that matters for an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPlacement {
    pub id: Uuid,
    /// For each partition, the known racks of its replicas.
    pub racks: Vec<Vec<Arc<str>>>,
}

/// A deleted topic, whose committed offsets are deleted too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedTopic {
    /// The topic's name, which may be in use again.
    pub name: String,
    /// The topic's id, which is never used again.
    pub id: Uuid,
}
