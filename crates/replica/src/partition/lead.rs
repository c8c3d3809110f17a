//! Leading: log ends of followers, the high watermark, the in-sync replicas.

use super::role::{Leader, Role};
use super::{DeleteError, FetchError, FetchParameters, FetchRead, Partition, RoleError, State};
use crate::context::ReplicaContext;
use crate::followers::{ChangeOutcome, Followers, IsrChange};
use std::time::Duration;
use thalweg_metadata::{BrokerId, LeaderRecoveryState, PartitionRegistration};
use thalweg_record::{LeaderEpoch, Offset};
use tokio::time::Instant;

/// Maximum time that appends wait for a leader epoch above that of the last batch.
const EPOCH_WAIT_MAX: Duration = Duration::from_secs(30);

impl Partition {
    /// The last leader epoch in the log and the registration, if the registration is older than the log.
    pub fn stale_epoch(&self) -> Option<(LeaderEpoch, PartitionRegistration)> {
        let state = self.state.lock();
        state.stale_epoch().map(|epoch| (epoch, state.registration.clone()))
    }

    /// True if a change of the in-sync replicas is still pending, and not decided by the image.
    pub fn awaits(&self, change: &IsrChange) -> bool {
        let state = self.state.lock();
        state.followers().and_then(Followers::pending) == Some(change)
    }

    /// Handles the controller's answer to a proposal.
    pub fn on_isr_change(&self, change: &IsrChange, outcome: &ChangeOutcome) {
        let mut state = self.state.lock();
        let State { role: Role::Leader(Leader { followers: Some(followers), .. }), registration, .. } =
            &mut *state
        else {
            return;
        };
        if !followers.on_outcome(change, outcome) {
            return;
        }
        registration.isr = followers.isr().to_vec();
        registration.partition_epoch = followers.partition_epoch();
        state.raise_high_watermark(&self.context);
    }

    /// Proposes to drop lagging followers. Call periodically.
    pub fn shrink_isr(&self) {
        let mut state = self.state.lock();
        let end = state.log.log_end_offset();
        let Some(followers) = state.leader_mut().and_then(|leader| leader.followers.as_mut()) else { return };
        let change = followers.shrink(end, Instant::now());
        // A caught-up follower, which the high watermark waited for, may have fallen behind.
        state.raise_high_watermark(&self.context);
        if let Some(change) = change {
            self.propose(change);
        }
    }

    /// Redirects a consumer to an in-sync follower in its rack that has the requested offset (KIP-392).
    pub fn prefer_other(&self, parameters: &FetchParameters, rack: &str) -> Option<FetchRead> {
        let state = self.state.lock();
        let followers = state.check_leader(parameters.current_leader_epoch).ok()?.followers.as_ref()?;
        let image = self.context.image.get();
        let is_near = |id: BrokerId| {
            image.broker(id).is_some_and(|broker| !broker.fenced && broker.rack.as_deref() == Some(rack))
        };
        let preferred = followers.preferred_read_replica(parameters.offset, is_near)?;
        Some(FetchRead { preferred_read_replica: Some(preferred), ..state.nothing_read() })
    }

    /// Returns when every live replica has deleted the records before `offset`, with the lowest log start, or
    /// after a timeout.
    pub async fn dropped_before(
        &self,
        offset: Offset,
        epoch: LeaderEpoch,
        deadline: Instant,
    ) -> Result<Offset, DeleteError> {
        loop {
            let progress = {
                let mut state = self.state.lock();
                if let Some(low) = state.low_watermark(&self.context).filter(|low| *low >= offset) {
                    let is_epoch = state.leader_epoch() == epoch;
                    return if is_epoch { Ok(low) } else { Err(state.not_led().into()) };
                }
                let is_epoch = state.leader_epoch() == epoch;
                match state.leader_mut() {
                    Some(leader) if is_epoch => leader.deletions.wait(offset),
                    _ => return Err(state.not_led().into()),
                }
            };
            if tokio::time::timeout_at(deadline, progress).await.is_err() {
                return Err(DeleteError::TimedOut);
            }
        }
    }

    fn propose(&self, change: IsrChange) {
        tracing::debug!(partition = ?self, isr = ?change.isr, epoch = change.leader_epoch, "Proposing new in-sync replicas");
        self.context.isr_changes.submit(self.topic_id, self.index, change);
    }

    /// True if replicas are out of sync, from the leader's view.
    pub fn is_under_replicated(&self) -> bool {
        let state = self.state.lock();
        state.leader().is_some() && state.registration.isr.len() < state.registration.replicas.len()
    }
}

impl State {
    /// Starts a new epoch of this broker as the leader. Followers' log ends are unknown. `led_since` is the
    /// first of the preceding consecutive epochs that this broker has led.
    pub(super) fn begin_to_lead(&mut self, led_since: Option<LeaderEpoch>) {
        let epoch = self.leader_epoch();
        let mut leader = Leader::new(self.log.log_end_offset(), led_since.unwrap_or(epoch));
        match self.stale_epoch() {
            None => self.log.assign_leader_epoch_start(epoch),
            Some(_) => leader.awaits_epoch = Some(Instant::now() + EPOCH_WAIT_MAX),
        }
        self.role = Role::Leader(leader);
        let registration = &self.registration;
        // After an unclean stop the controller also elects an only replica in recovery; no other replica
        // could have more records.
        let alone = registration.replicas.len() == 1;
        if registration.leader_recovery_state == LeaderRecoveryState::Recovering && !alone {
            tracing::warn!(
                partition = %self.log.name(), epoch = epoch.0,
                "Became leader without being known to be complete: records that only absent replicas had are lost"
            );
        }
    }

    /// The epoch of the last batch, if the cluster's metadata is older than the log: the registration has a
    /// lower epoch, or has that epoch without a leader, although only a leader could have written such a
    /// batch. Batches with lower epochs must not follow, or no follower could append them.
    pub(super) fn stale_epoch(&self) -> Option<LeaderEpoch> {
        let (known, has_leader) = (self.leader_epoch(), self.registration.has_leader());
        self.log.latest_epoch().filter(|latest| *latest > known || (*latest == known && !has_leader))
    }

    /// Rejects appends if this broker does not lead, if the leader epoch differs, or while a higher epoch is
    /// expected.
    pub(super) fn check_appends(&mut self, current: Option<LeaderEpoch>) -> Result<(), RoleError> {
        let Some(until) = self.check_leader(current)?.awaits_epoch else { return Ok(()) };
        if Instant::now() < until {
            return Err(RoleError::NotLeader);
        }
        let epoch = self.leader_epoch();
        tracing::error!(partition = %self.log.name(), epoch = epoch.0, "Appending in a leader epoch below that of the last batch");
        self.log.assign_leader_epoch_start(epoch);
        if let Some(leader) = self.leader_mut() {
            leader.awaits_epoch = None;
        }
        Ok(())
    }

    /// Applies the set of other replicas.
    pub(super) fn know_followers(&mut self, context: &ReplicaContext) {
        let State { role: Role::Leader(leader), registration, .. } = self else { return };
        let node_id = context.node_id;
        if registration.replicas.iter().all(|id| *id == node_id) {
            leader.followers = None;
            return;
        }
        match &mut leader.followers {
            Some(followers) => followers.on_registration(registration, Instant::now()),
            None => {
                let (start, lag) = (leader.epoch_start, context.lag_time_max);
                let followers = Followers::new(node_id, registration, start, lag, Instant::now());
                leader.followers = Some(Box::new(followers));
            }
        }
    }

    /// Rejects a fetch of a broker without a replica.
    pub(super) fn check_follower(&self, id: BrokerId, epoch: Option<LeaderEpoch>) -> Result<(), FetchError> {
        if self.followers().is_some_and(|followers| followers.is_follower(id)) {
            return Ok(());
        }
        Err(FetchError::UnknownFollower { knows_leader: epoch.is_some() })
    }

    /// Applies a follower's fetch: the follower has all records below `offset`.
    pub(super) fn follower_has(
        &mut self,
        partition: &Partition,
        id: BrokerId,
        broker_epoch: i64,
        parameters: &FetchParameters,
    ) {
        let offset = parameters.offset;
        let context = &partition.context;
        let (end, high_watermark) = (self.log.log_end_offset(), self.log.high_watermark());
        let State { role: Role::Leader(Leader { followers: Some(followers), .. }), registration, .. } = self
        else {
            return;
        };
        followers.on_fetch(id, broker_epoch, offset, end, Instant::now());
        followers.on_log_start(id, parameters.reader_start);
        let change = followers.expand(id, high_watermark, |member| context.is_eligible(registration, member));
        if let Some(change) = change {
            partition.propose(change);
        }
        if offset > high_watermark {
            self.raise_high_watermark(context);
        }
        if self.leader().is_some_and(|leader| !leader.deletions.is_empty())
            && let Some(low) = self.low_watermark(context)
            && let State { role: Role::Leader(leader), woken, .. } = self
        {
            leader.deletions.reach(low, woken);
        }
    }

    /// The lowest log start of the live replicas, from the leader's view.
    fn low_watermark(&self, context: &ReplicaContext) -> Option<Offset> {
        let own = self.log.log_start_offset();
        match &self.leader()?.followers {
            None => Some(own),
            Some(followers) => {
                let image = context.image.get();
                followers.low_watermark(own, |id| image.is_alive(id))
            }
        }
    }

    /// Raises the high watermark to the lowest log end of all counting replicas, and notifies waiters.
    pub(super) fn raise_high_watermark(&mut self, context: &ReplicaContext) {
        let (min_isr, has_min_isr) = (self.effective_min_isr(), self.has_min_isr());
        let State { log, role: Role::Leader(leader), woken, registration, .. } = self else { return };
        let end = log.log_end_offset();
        let reached = match &leader.followers {
            None => has_min_isr.then_some(end),
            Some(followers) => {
                let is_eligible = |member| context.is_eligible(registration, member);
                followers.high_watermark(end, min_isr, Instant::now(), is_eligible)
            }
        };
        // Kafka syncs before an append counts. Here the sync may be in progress: records that a power failure
        // could remove must not be readable.
        let reached = reached.map(|offset| offset.min(log.flushed_end()));
        let before = log.high_watermark();
        let Some(reached) = reached.filter(|offset| *offset > before) else { return };
        let stable_before = log.last_stable_offset();
        let now = log.set_high_watermark(reached);
        let bytes = leader.replicated_bytes(before, now, end);
        // The end of a transaction makes earlier records readable too.
        let is_more_stable = stable_before < before && log.last_stable_offset() > stable_before;
        leader.acks.reach(now, woken);
        self.notify_consumers(if is_more_stable { usize::MAX } else { bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::testing::{self, HangingDisk};
    use crate::partition::{DecompressionBudget, Isolation, LeaderAppendError, OffsetsError, Reader};
    use thalweg_metadata::PartitionEpoch;
    use thalweg_record::{BatchBuilder, BatchOptions};
    use thalweg_wire::list_offsets::LATEST_TIMESTAMP;

    #[tokio::test(start_paused = true)]
    async fn appends_wait_for_an_epoch_above_that_of_the_last_batch() {
        let bench = HangingDisk::new();
        let partition = &bench.partition;
        let append = || {
            let mut builder = BatchBuilder::new(BatchOptions::default());
            builder.append(1, Some(b"key"), Some(b"value"), &[]).expect("fits");
            let batch = builder.build();
            partition.append_from_client(&batch, 1, None, 1, &mut DecompressionBudget::inline())
        };
        partition.apply(&testing::registration(testing::NODE, 7));
        append().expect("it leads");
        // The metadata goes back to an earlier epoch.
        partition.state.lock().registration.leader_epoch = 2;
        partition.apply(&PartitionRegistration {
            partition_epoch: PartitionEpoch(8),
            ..testing::registration(testing::NODE, 3)
        });
        assert_eq!(partition.stale_epoch().map(|(epoch, _)| epoch), Some(LeaderEpoch(7)));
        assert!(matches!(append(), Err(LeaderAppendError::Role(RoleError::NotLeader))));
        partition.apply(&PartitionRegistration {
            partition_epoch: PartitionEpoch(9),
            ..testing::registration(testing::NODE, 8)
        });
        assert_eq!(partition.stale_epoch(), None);
        append().expect("the epoch is above all others");
        // A controller that never raises the epoch.
        partition.state.lock().registration.leader_epoch = 2;
        partition.apply(&PartitionRegistration {
            partition_epoch: PartitionEpoch(10),
            ..testing::registration(testing::NODE, 3)
        });
        assert!(append().is_err());
        tokio::time::advance(EPOCH_WAIT_MAX).await;
        append().expect("as before");
    }

    /// No log should have the epoch of a registration without a leader. A controller restored from an older
    /// copy does not know the leader of that epoch.
    #[tokio::test(start_paused = true)]
    async fn epoch_of_a_registration_without_a_leader_is_stale_in_a_log() {
        let bench = HangingDisk::new();
        let partition = &bench.partition;
        partition.apply(&testing::registration(testing::NODE, 7));
        let leaderless = |leader_epoch, partition_epoch| PartitionRegistration {
            partition_epoch: PartitionEpoch(partition_epoch),
            ..testing::registration(BrokerId::NONE, leader_epoch)
        };
        let end = |epoch: Option<i32>| {
            let found = partition.offset_for_timestamp(
                LATEST_TIMESTAMP,
                Reader::Internal,
                Isolation::ReadUncommitted,
                epoch.map(LeaderEpoch),
            );
            found.map(|found| found.leader_epoch)
        };
        partition.state.lock().registration.leader_epoch = 2;
        partition.apply(&leaderless(7, 8));
        assert_eq!(partition.stale_epoch().map(|(epoch, _)| epoch), Some(LeaderEpoch(7)));
        let reported = partition.context.stale_epochs.next();
        tokio::time::timeout(Duration::from_secs(1), reported).await.expect("it is reported");
        assert_eq!(
            end(Some(7)),
            Err(OffsetsError::Role(RoleError::FencedEpoch)),
            "it would look like Kafka's answer"
        );
        assert_eq!(end(None), Ok(7));
        partition.apply(&leaderless(8, 9));
        assert_eq!((partition.stale_epoch().is_none(), end(Some(8))), (true, Ok(7)));
        partition.apply(&PartitionRegistration {
            partition_epoch: PartitionEpoch(10),
            ..testing::registration(testing::NODE, 9)
        });
        assert_eq!((partition.stale_epoch().is_none(), end(Some(9))), (true, Ok(9)), "its own epoch");
    }
}
