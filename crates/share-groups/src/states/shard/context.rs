//! State shared by the shards of a broker.

use crate::states::config::ShareCoordinatorConfig;
use std::fmt;
use std::sync::Arc;
use thalweg_metadata::PartitionIndex;
use thalweg_wire::Uuid;

/// The coordinator's view of the cluster.
pub trait ShareStatesView: Send + Sync + 'static {
    /// Partition count of `__share_group_state`, if the topic exists.
    fn share_partition_count(&self) -> Option<i32>;
    /// True if a topic has this partition.
    fn has_partition(&self, topic: Uuid, partition: PartitionIndex) -> bool;
}

/// State shared by the shards.
pub struct SharedState {
    pub(in super::super) config: ShareCoordinatorConfig,
    pub(in super::super) cluster: Arc<dyn ShareStatesView>,
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedState").field("config", &self.config).finish_non_exhaustive()
    }
}
