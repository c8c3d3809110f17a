//! Figures of a partition, for metrics.

use super::Partition;
use super::role::Role;
use super::traffic::Traffic;
use crate::followers::FollowerLag;
use std::sync::Arc;
use thalweg_metadata::PartitionIndex;
use thalweg_record::Offset;

/// Figures of one partition.
pub struct PartitionFigures {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition's index in the topic.
    pub index: PartitionIndex,
    /// True if this broker leads the partition.
    pub is_leader: bool,
    /// Number of replicas without those that a reassignment adds, number in sync, and `min.insync.replicas`.
    pub replicas: usize,
    pub in_sync: usize,
    pub min_in_sync: usize,
    /// True if replicas are being added or removed.
    pub is_reassigned: bool,
    pub log_start: Offset,
    pub log_end: Offset,
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
    /// Timestamp of the last batch of the transaction that holds the last stable offset back; `None` without
    /// such a transaction.
    pub oldest_transaction_ms: Option<i64>,
    pub size_bytes: u64,
    pub segments: usize,
    /// The followers' lags, if this broker leads.
    pub followers: Vec<FollowerLag>,
    /// This replica's lag behind the leader's high watermark, if another broker leads.
    pub own_lag: Option<i64>,
    pub traffic: Traffic,
}

impl Partition {
    /// Counts bytes sent to a follower or a consumer.
    pub fn sent(&self, bytes: usize, to_follower: bool) {
        self.outgoing.count(bytes, to_follower);
    }

    /// The partition's traffic counters.
    pub fn traffic(&self) -> Traffic {
        self.outgoing.complete(self.state.lock().traffic)
    }

    /// The partition's current figures.
    pub fn figures(partition: &Partition) -> PartitionFigures {
        let state = partition.state.lock();
        let (log, registration) = (&state.log, &state.registration);
        let end = log.log_end_offset();
        let leader_high_watermark = match &state.role {
            Role::Follower(follower) => {
                Some(follower.leader_high_watermark).filter(|known| *known > Offset::NONE)
            }
            Role::Leader(_) | Role::Retired { .. } => None,
        };
        PartitionFigures {
            topic: Arc::clone(&partition.topic),
            index: partition.index,
            is_leader: state.leader().is_some(),
            replicas: registration.replication_factor(),
            in_sync: registration.isr.len(),
            min_in_sync: state.effective_min_isr(),
            is_reassigned: registration.is_reassigning(),
            log_start: log.log_start_offset(),
            log_end: end,
            high_watermark: log.high_watermark(),
            last_stable_offset: log.last_stable_offset(),
            oldest_transaction_ms: log.oldest_transaction_ms(),
            size_bytes: log.size_bytes(),
            segments: log.segment_count(),
            followers: state.followers().map_or_else(Vec::new, |followers| followers.lags(end)),
            own_lag: leader_high_watermark.map(|known| (known.0 - end.0).max(0)),
            traffic: partition.outgoing.complete(state.traffic),
        }
    }
}
