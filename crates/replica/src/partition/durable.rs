//! Waiting until appended records satisfy their acks.

use super::{AckError, Appended, Partition};
use std::sync::Arc;
use thalweg_record::{LeaderEpoch, Offset};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Records that were appended and may not be acknowledged yet.
#[derive(Debug)]
pub struct Durable {
    partition: Arc<Partition>,
    end: Offset,
    /// The offset that the high watermark must reach; `None` where acks does not ask for it.
    replicated: Option<Offset>,
    /// The offset below which all must be on the medium; `None` where the flush policy does not ask for it.
    flushed: Option<Offset>,
    epoch: LeaderEpoch,
}

impl Partition {
    /// The future that an append must wait for before it is acknowledged; `None` if there is none.
    pub fn durable(partition: &Arc<Partition>, acks: i16, appended: &Appended) -> Option<Durable> {
        if acks == 0 {
            // No waiter; periodic flushing applies the policy.
            return None;
        }
        let is_replicated = acks != -1 || appended.replicated;
        if is_replicated && !appended.flush_due {
            return None;
        }
        let (end, epoch) = (appended.next_offset, appended.leader_epoch);
        Some(Durable::new(partition, end, epoch, is_replicated, !appended.flush_due))
    }
}

impl Durable {
    /// Records of a leader epoch that end before an offset. The replicas may have them, and the medium, or it is not asked for.
    pub fn new(
        partition: &Arc<Partition>,
        end: Offset,
        epoch: LeaderEpoch,
        is_replicated: bool,
        is_flushed: bool,
    ) -> Durable {
        let (replicated, flushed) = ((!is_replicated).then_some(end), (!is_flushed).then_some(end));
        Durable { partition: Arc::clone(partition), end, replicated, flushed, epoch }
    }

    /// Waits, at the longest until `deadline`.
    pub async fn until(self, deadline: Instant) -> Result<(), AckError> {
        self.flushed().await?;
        let replicated = tokio::time::timeout_at(deadline, self.replicated()).await;
        replicated.unwrap_or(Err(AckError::TimedOut)).map(drop)
    }

    /// Waits as long as the partition is led here. Returns the offset before which the replicas have all, by then.
    pub async fn done(self) -> Result<Offset, AckError> {
        self.flushed().await?;
        self.replicated().await
    }

    async fn flushed(&self) -> Result<(), AckError> {
        if let Some(offset) = self.flushed {
            Partition::flush_to(&self.partition, offset).await?;
        }
        Ok(())
    }

    async fn replicated(&self) -> Result<Offset, AckError> {
        let Some(offset) = self.replicated else { return Ok(self.end) };
        loop {
            match self.verdict(offset) {
                Ok(verdict) => return verdict,
                // Woken or forgotten: either way there is something to look at.
                Err(progress) => drop(progress.await),
            }
        }
    }

    /// The answer, with the high watermark; or, while it is unknown, a notification to check again.
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
