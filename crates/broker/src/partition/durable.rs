//! Waiting until appended records are as safe as their acks ask for.

use super::{Appended, Partition};
use std::sync::Arc;
use thalweg_record::{LeaderEpoch, Offset};
use thalweg_wire::ErrorCode;
use tokio::time::Instant;

/// Records that were appended and may not be acknowledged yet.
#[derive(Debug)]
pub struct Durable {
    partition: Arc<Partition>,
    /// The offset that the high watermark must reach; `None` where acks does not ask for it.
    replicated: Option<Offset>,
    /// The offset below which all must be on the medium; `None` where the flush policy does not ask for it.
    flushed: Option<Offset>,
    epoch: LeaderEpoch,
}

impl Partition {
    /// What an append must wait for before it is acknowledged; `None` when it may be at once.
    pub fn durable(partition: &Arc<Partition>, acks: i16, appended: &Appended) -> Option<Durable> {
        if acks == 0 {
            // Nobody waits; the housekeeping flushes what the policy wants flushed.
            return None;
        }
        let behind = acks == -1 && partition.state.lock().high_watermark() < appended.next_offset;
        let (replicated, flushed) =
            (behind.then_some(appended.next_offset), appended.flush_due.then_some(appended.next_offset));
        if replicated.is_none() && flushed.is_none() {
            return None;
        }
        let epoch = appended.leader_epoch;
        Some(Durable { partition: Arc::clone(partition), replicated, flushed, epoch })
    }
}

impl Durable {
    /// Waits, at the longest until `deadline`.
    pub async fn until(self, deadline: Instant) -> Result<(), ErrorCode> {
        if let Some(offset) = self.flushed {
            Partition::flush_to(&self.partition, offset).await?;
        }
        let Some(offset) = self.replicated else { return Ok(()) };
        loop {
            let progress = self.partition.progress.notified();
            tokio::pin!(progress);
            // Listens before it looks, so that nothing is missed in between.
            progress.as_mut().enable();
            if let Some(verdict) = self.verdict(offset) {
                return verdict;
            }
            if tokio::time::timeout_at(deadline, progress).await.is_err() {
                return Err(ErrorCode::RequestTimedOut);
            }
        }
    }

    fn verdict(&self, offset: Offset) -> Option<Result<(), ErrorCode>> {
        let state = self.partition.state.lock();
        if !state.leads(self.partition.node_id) || state.leader_epoch() != self.epoch {
            return Some(Err(ErrorCode::NotLeaderOrFollower));
        }
        if state.high_watermark() < offset {
            return None;
        }
        Some(if state.has_min_isr() { Ok(()) } else { Err(ErrorCode::NotEnoughReplicasAfterAppend) })
    }
}
