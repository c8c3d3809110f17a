//! Waits until appended records satisfy their acks.

use super::{AckError, AppendOutcome, Partition};
use std::sync::Arc;
use thalweg_record::{LeaderEpoch, Offset};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Records that were appended and may not be acknowledged yet.
#[derive(Debug)]
pub struct PendingAppend {
    partition: Arc<Partition>,
    end: Offset,
    /// The offset that the high watermark must reach; `None` unless acks=all.
    required_high_watermark: Option<Offset>,
    /// The offset up to which records must be synced; `None` unless the flush policy requires a sync.
    required_flush: Option<Offset>,
    epoch: LeaderEpoch,
}

impl Partition {
    /// The future to await before acknowledging an append; `None` if the append can be acknowledged now.
    pub fn ack_wait(
        partition: &Arc<Partition>,
        acks: i16,
        appended: &AppendOutcome,
    ) -> Option<PendingAppend> {
        if acks == 0 {
            // No waiter; periodic flushing applies the policy.
            return None;
        }
        let is_replicated = acks != -1 || appended.is_replicated;
        if is_replicated && !appended.flush_due {
            return None;
        }
        let (end, epoch) = (appended.next_offset, appended.leader_epoch);
        Some(PendingAppend::new(partition, end, epoch, is_replicated, !appended.flush_due))
    }
}

impl PendingAppend {
    /// Records of a leader epoch up to an offset, to be replicated and synced as required.
    pub fn new(
        partition: &Arc<Partition>,
        end: Offset,
        epoch: LeaderEpoch,
        is_replicated: bool,
        is_flushed: bool,
    ) -> PendingAppend {
        PendingAppend {
            partition: Arc::clone(partition),
            end,
            required_high_watermark: (!is_replicated).then_some(end),
            required_flush: (!is_flushed).then_some(end),
            epoch,
        }
    }

    /// Waits until the records are durable: for a sync as long as it takes, which no timeout of a request
    /// bounds in Kafka either, and then for replicas until `deadline`.
    pub async fn wait_until_acked(self, deadline: Instant) -> Result<(), AckError> {
        self.flush().await?;
        let outcome = tokio::time::timeout_at(deadline, self.wait_for_replicas()).await;
        outcome.unwrap_or(Err(AckError::TimedOut)).map(drop)
    }

    /// Waits until the records are durable, as long as this broker leads the partition. Returns the high
    /// watermark at completion.
    pub async fn wait_replicated(self) -> Result<Offset, AckError> {
        self.flush().await?;
        self.wait_for_replicas().await
    }

    async fn flush(&self) -> Result<(), AckError> {
        if let Some(offset) = self.required_flush {
            Partition::flush_to(&self.partition, offset).await?;
        }
        Ok(())
    }

    async fn wait_for_replicas(&self) -> Result<Offset, AckError> {
        let Some(offset) = self.required_high_watermark else { return Ok(self.end) };
        loop {
            match self.verdict(offset) {
                Ok(verdict) => return verdict,
                // A dropped sender also requires another check.
                Err(progress) => drop(progress.await),
            }
        }
    }

    /// The result, with the high watermark; or, while undecided, a notification to check again.
    fn verdict(&self, offset: Offset) -> Result<Result<Offset, AckError>, oneshot::Receiver<()>> {
        let mut state = self.partition.state.lock();
        // A leader that was elected again still has its appends.
        let high_watermark = state.high_watermark();
        match state.leader_mut().filter(|leader| self.epoch >= leader.led_since) {
            None => return Ok(Err(state.not_led().into())),
            Some(leader) if high_watermark < offset => return Err(leader.acks.wait(offset)),
            Some(_) => {}
        }
        let enough = state.has_maximal_min_isr();
        Ok(if enough { Ok(high_watermark) } else { Err(AckError::TooFewReplicas) })
    }
}
