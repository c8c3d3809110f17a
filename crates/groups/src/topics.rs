//! The cluster's topics, as groups need them.

use std::sync::Arc;
use thalweg_metadata::PartitionIndex;
use thalweg_wire::Uuid;

/// A view of the topics that exist, from the broker's image of the metadata.
pub trait Topics: Send + Sync + 'static {
    /// The id of a topic, if it exists.
    fn id(&self, name: &str) -> Option<Uuid>;
    /// The name of a topic, if it exists.
    fn name(&self, id: Uuid) -> Option<String>;
    /// How many partitions `__consumer_offsets` has, if it exists.
    fn offsets_partition_count(&self) -> Option<i32>;
    /// The names of all topics.
    fn names(&self) -> Vec<String>;
    /// The version of the metadata.
    fn version(&self) -> i64;
    /// How many partitions a topic has, if it exists.
    fn partition_count(&self, id: Uuid) -> Option<i32>;
    /// Where a topic's partitions are, if it exists.
    fn placement(&self, name: &str) -> Option<TopicPlacement>;
    /// Whether the topic has this partition.
    fn has_partition(&self, name: &str, partition: PartitionIndex) -> bool;
}

/// A topic's partitions, as far as they matter for an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPlacement {
    /// The topic's id.
    pub id: Uuid,
    /// For each partition, the racks of its replicas, as far as they are known.
    pub racks: Vec<Vec<Arc<str>>>,
}

/// A topic that is gone: committed offsets of it go too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedTopic {
    /// Its name, which may be in use again.
    pub name: String,
    /// Its id, which never is.
    pub id: Uuid,
}
