//! State shared by the shards of a broker.

use super::{MarkerQueue, TransactionShard};
use crate::config::TransactionConfig;
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_shard::Cell;

/// The coordinator's view of the cluster.
pub trait TransactionsView: Send + Sync + 'static {
    /// Partition count of `__transaction_state`, if the topic exists.
    fn state_partition_count(&self) -> Option<i32>;
    /// The finalised level of transaction.version.
    fn transaction_version(&self) -> i16;
}

/// An id that needs a producer id, and its shard.
type ProducerIdNeed = (Arc<Cell<TransactionShard>>, Arc<str>);

/// State shared by the shards.
pub struct SharedState {
    pub(in super::super) config: Arc<TransactionConfig>,
    pub(in super::super) cluster: Arc<dyn TransactionsView>,
    /// Ids whose transactions have to be aborted under a new producer id, with their shards.
    pub(in super::super) needing_ids: Mutex<Vec<ProducerIdNeed>>,
    pub(in super::super) markers: Arc<MarkerQueue>,
}
