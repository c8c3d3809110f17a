//! Leading: what followers have, how far records are replicated, who is in sync.

use super::{FetchFrom, FetchRead, Partition, State};
use crate::replication::{ChangeOutcome, IsrChange, Leadership, ReplicaContext};
use thalweg_metadata::LeaderRecoveryState;
use thalweg_record::{LeaderEpoch, Offset};
use thalweg_wire::ErrorCode;
use tokio::time::Instant;

impl Partition {
    /// Whether a change of the in-sync replicas is still under way, and not decided by the image.
    pub fn awaits(&self, change: &IsrChange) -> bool {
        let state = self.state.lock();
        state.leadership.as_ref().and_then(|leadership| leadership.pending()) == Some(change)
    }

    /// The controller has answered a proposal.
    pub fn on_isr_change(&self, change: &IsrChange, outcome: &ChangeOutcome) {
        let mut state = self.state.lock();
        let State { leadership: Some(leadership), registration, .. } = &mut *state else { return };
        if !leadership.on_outcome(change, outcome) {
            return;
        }
        registration.isr = leadership.isr().to_vec();
        registration.partition_epoch = leadership.partition_epoch();
        state.raise_high_watermark(&self.context);
    }

    /// Proposes to drop followers that lag. To be called again and again.
    pub fn shrink_isr(&self) {
        let mut state = self.state.lock();
        let end = state.log.log_end_offset();
        let Some(leadership) = &mut state.leadership else { return };
        let change = leadership.shrink(end, Instant::now());
        // One who had caught up, and was waited for, may have fallen behind.
        state.raise_high_watermark(&self.context);
        if let Some(change) = change {
            self.propose(change);
        }
    }

    /// Sends a consumer to a follower in its rack, if there is one in sync that has what it wants (KIP-392).
    pub fn prefer_other(&self, from: &FetchFrom, rack: &str) -> Option<FetchRead> {
        let state = self.state.lock();
        state.check_leader(self.node_id, from.current_leader_epoch).ok()?;
        let leadership = state.leadership.as_ref()?;
        let image = self.context.image.get();
        let is_near = |id: i32| {
            image.broker(id).is_some_and(|broker| !broker.fenced && broker.rack.as_deref() == Some(rack))
        };
        let preferred = leadership.preferred_read_replica(from.offset, is_near)?;
        Some(FetchRead { preferred_read_replica: Some(preferred), ..state.nothing_read() })
    }

    /// Returns when every replica that is alive has dropped what lies before `offset`, with the lowest log start, or when
    /// that takes too long.
    pub async fn dropped_before(
        &self,
        offset: Offset,
        epoch: LeaderEpoch,
        deadline: Instant,
    ) -> Result<Offset, ErrorCode> {
        loop {
            let progress = {
                let mut state = self.state.lock();
                state.check_leader(self.node_id, None)?;
                if state.leader_epoch() != epoch {
                    return Err(ErrorCode::NotLeaderOrFollower);
                }
                match state.low_watermark(&self.context).filter(|low| *low >= offset) {
                    Some(low) => return Ok(low),
                    None => state.deletions.wait(offset),
                }
            };
            if tokio::time::timeout_at(deadline, progress).await.is_err() {
                return Err(ErrorCode::RequestTimedOut);
            }
        }
    }

    fn propose(&self, change: IsrChange) {
        tracing::debug!(partition = ?self, isr = ?change.isr, epoch = change.leader_epoch, "In-sync replicas should change");
        self.context.isr_changes.submit(self.topic_id, self.index, change);
    }

    /// Whether the partition lacks in-sync replicas, as far as its leader knows.
    pub fn is_under_replicated(&self) -> bool {
        let state = self.state.lock();
        state.leads(self.node_id) && state.registration.isr.len() < state.registration.replicas.len()
    }
}

impl State {
    /// A new epoch of this broker as the leader begins. Nothing is known of followers.
    pub(super) fn begin_to_lead(&mut self) {
        let epoch = self.leader_epoch();
        self.log.assign_leader_epoch_start(epoch);
        self.epoch_start = self.log.log_end_offset();
        self.leadership = None;
        self.unreplicated_bytes = 0;
        if self.registration.leader_recovery_state == LeaderRecoveryState::Recovering {
            tracing::warn!(
                partition = %self.log.name(), epoch = epoch.0,
                "Leads after an unclean election: records that only others had are lost"
            );
        }
    }

    /// Takes over which other replicas there are.
    pub(super) fn know_followers(&mut self, context: &ReplicaContext) {
        let (node_id, registration) = (context.node_id, &self.registration);
        if registration.replicas.iter().all(|id| *id == node_id) {
            self.leadership = None;
            return;
        }
        match &mut self.leadership {
            Some(leadership) => leadership.on_registration(registration, Instant::now()),
            None => {
                let (start, lag) = (self.epoch_start, context.lag_time_max);
                let leadership = Leadership::new(node_id, registration, start, lag, Instant::now());
                self.leadership = Some(Box::new(leadership));
            }
        }
    }

    /// Refuses who holds no replica.
    pub(super) fn check_follower(&self, id: i32, broker_epoch: i64) -> Result<(), ErrorCode> {
        if self.leadership.as_ref().is_some_and(|leadership| leadership.is_follower(id)) {
            return Ok(());
        }
        // Who tells its epoch knows this answer: its image may be ahead of the one here, and it comes again.
        Err(if broker_epoch == -1 { ErrorCode::NotLeaderOrFollower } else { ErrorCode::UnknownLeaderEpoch })
    }

    /// A follower has everything below `offset`.
    pub(super) fn follower_has(
        &mut self,
        partition: &Partition,
        id: i32,
        broker_epoch: i64,
        from: &FetchFrom,
    ) {
        let offset = from.offset;
        let context = &partition.context;
        let (end, high_watermark) = (self.log.log_end_offset(), self.log.high_watermark());
        let Some(leadership) = &mut self.leadership else { return };
        leadership.on_fetch(id, broker_epoch, offset, end, Instant::now());
        leadership.on_log_start(id, from.reader_start);
        let change = leadership.expand(id, high_watermark, |member| context.is_eligible(member));
        if let Some(change) = change {
            partition.propose(change);
        }
        if offset > high_watermark {
            self.raise_high_watermark(context);
        }
        if !self.deletions.is_empty()
            && let Some(low) = self.low_watermark(context)
        {
            self.deletions.reach(low);
        }
    }

    /// The lowest log start of the replicas that are alive.
    fn low_watermark(&self, context: &ReplicaContext) -> Option<Offset> {
        let own = self.log.log_start_offset();
        match &self.leadership {
            None => Some(own),
            Some(leadership) => {
                let image = context.image.get();
                leadership.low_watermark(own, |id| image.is_alive(id))
            }
        }
    }

    /// Whether the leader's own log end is all that the high watermark depends on.
    pub(super) fn replicates_alone(&self) -> bool {
        self.leadership.as_ref().is_none_or(|leadership| leadership.is_alone())
    }

    /// Raises the high watermark to what all replicas have that count, and tells who waits for it.
    pub(super) fn raise_high_watermark(&mut self, context: &ReplicaContext) {
        if !self.leads(context.node_id) {
            return;
        }
        let (end, min_isr) = (self.log.log_end_offset(), self.effective_min_isr());
        let replicated = match &self.leadership {
            None => self.has_min_isr().then_some(end),
            Some(leadership) => {
                leadership.high_watermark(end, min_isr, Instant::now(), |member| context.is_eligible(member))
            }
        };
        // Kafka syncs before an append counts. Here it is under way, and nobody may read what a power failure would take back.
        let replicated = replicated.map(|offset| offset.min(self.log.flushed_end()));
        let before = self.log.high_watermark();
        let Some(replicated) = replicated.filter(|offset| *offset > before) else { return };
        let stable_before = self.log.last_stable_offset();
        let now = self.log.set_high_watermark(replicated);
        let bytes = self.replicated_bytes(before, now, end);
        // The end of a transaction makes more readable than what was appended with it.
        let is_more_stable = stable_before < before && self.log.last_stable_offset() > stable_before;
        self.consumers.count(if is_more_stable { usize::MAX } else { bytes });
        self.acks.reach(now);
    }

    /// How many bytes of those that were appended lie below the high watermark now: by their share of the offsets.
    fn replicated_bytes(&mut self, before: Offset, now: Offset, end: Offset) -> usize {
        let bytes = if now >= end {
            self.unreplicated_bytes
        } else {
            let (moved, behind) = (now.0.abs_diff(before.0), end.0.abs_diff(before.0).max(1));
            u64::try_from(u128::from(self.unreplicated_bytes) * u128::from(moved) / u128::from(behind))
                .unwrap_or(u64::MAX)
        };
        self.unreplicated_bytes -= bytes;
        // What was there before this leader is not counted, and yet becomes readable.
        usize::try_from(bytes.max(1)).unwrap_or(usize::MAX)
    }
}
