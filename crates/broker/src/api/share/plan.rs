//! The plan of a ShareFetch: session, limits, and partitions with their outcomes.

use std::sync::Arc;
use std::time::Duration;
use thalweg_metadata::TopicIdPartition;
use thalweg_replica::partition::Partition;
use thalweg_share::AcquireMode;
use thalweg_share_groups::{
    AcquiredBatches, LedSharePartition, ShareSessionEnd, ShareSessionKey, ShareSettings,
};
use thalweg_wire::ErrorCode;

/// A partition of a fetch, with its outcome.
pub struct ShareFetchEntry {
    pub id: TopicIdPartition,
    /// True if the answer lists the partition even without records.
    pub is_new: bool,
    pub outcome: ShareFetchOutcome,
    /// The share partition, if it is led here.
    pub led: Option<(Arc<LedSharePartition>, Arc<Partition>)>,
}

/// The outcome of one partition.
pub enum ShareFetchOutcome {
    /// No records are available yet.
    Nothing,
    /// The state of the share partition is being loaded.
    Loading,
    Failed(ErrorCode),
    Acquired(AcquiredBatches),
}

/// A whole fetch.
pub struct ShareFetchPlan {
    pub key: ShareSessionKey,
    pub epoch: i32,
    pub settings: ShareSettings,
    pub entries: Vec<ShareFetchEntry>,
    pub session: ShareSessionEnd,
    pub mode: AcquireMode,
    pub records_max: i64,
    pub batch_size: i64,
    pub min_bytes: usize,
    pub max_bytes: usize,
    pub max_wait: Duration,
    /// Undeliverable records were skipped: answer now, and the member fetches again.
    pub has_skipped_records: bool,
}
