//! The leader's view of the other replicas of a partition: the high watermark, and changes of the in-sync
//! replicas (Kafka's `Partition`, `PartitionState` and `Replica`).
//!
//! Owns: the committed in-sync replicas, the pending change, and for each follower the log end, the time when
//! it was last caught up, and its broker epoch. Refuses: access to the log, the clock, the image and the
//! network; their values are arguments.
//!
//! The main invariant: a replica that the controller may elect has all records below the high watermark. The
//! outcome of a pending change is unknown. So the high watermark waits for the *maximal* in-sync replicas:
//! those before the change and those after it.

#[cfg(test)]
mod tests;

use std::time::Duration;
use thalweg_metadata::{BrokerId, PartitionEpoch, PartitionRegistration};
use thalweg_record::Offset;
use tokio::time::Instant;

/// The lag of a follower, from its leader's view.
#[derive(Clone, Copy, Debug)]
pub struct FollowerLag {
    /// The follower's broker id.
    pub id: BrokerId,
    /// Offsets between the follower's log end and the leader's; `None` before the first fetch in this leader
    /// epoch.
    pub lag: Option<i64>,
}

/// A replica of a proposed set of in-sync replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsrMember {
    /// The replica's broker id.
    pub id: BrokerId,
    /// The broker epoch of the replica's last fetch; -1 if unknown, as for the leader itself.
    pub broker_epoch: i64,
}

/// A proposed change of the in-sync replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrChange {
    /// The leader's epoch.
    pub leader_epoch: i32,
    /// The partition epoch of the registration that the change is based on.
    pub partition_epoch: PartitionEpoch,
    /// The proposed in-sync replicas.
    pub isr: Vec<IsrMember>,
    /// True if a follower joins; false if followers leave.
    pub grows: bool,
}

/// The controller's answer to a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// The controller made the change: the new registration.
    Made {
        /// The leader's epoch.
        leader_epoch: i32,
        /// The new partition epoch.
        partition_epoch: PartitionEpoch,
        /// The new in-sync replicas.
        isr: Vec<BrokerId>,
    },
    /// The controller refused the change; the registration is unchanged.
    Refused,
    /// The controller has another registration, which the image will show.
    Outdated,
}

/// Number of fetches of the same offset in a row before the records are checked.
pub(crate) const SENT_BEFORE_CHECK: u32 = 4;

/// A follower that fetches the same records again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StuckFollower {
    /// The follower's broker id.
    pub id: BrokerId,
    /// The follower's log end.
    pub offset: Offset,
    /// Bytes of records sent in the last answer.
    pub sent_bytes: usize,
    /// True on the first report of this offset.
    pub is_new: bool,
}

#[derive(Debug, Clone)]
struct Follower {
    id: BrokerId,
    /// The follower's log end, from its last fetch in this epoch.
    end: Option<Offset>,
    /// The follower's log start, from the same fetch.
    start: Option<Offset>,
    /// The last time when the follower was known to have all records.
    caught_up: Option<Instant>,
    /// Time of the follower's last fetch, and the leader's log end at that time.
    last_fetch: Option<(Instant, Offset)>,
    /// The last offset from which records were sent, and the number of times in a row.
    sent: Option<(Offset, u32)>,
    broker_epoch: Option<i64>,
}

impl Follower {
    fn is_caught_up(&self, leader_end: Offset, now: Instant, lag_max: Duration) -> bool {
        self.end == Some(leader_end)
            || self.caught_up.is_some_and(|at| now.saturating_duration_since(at) <= lag_max)
    }
}

/// The leader's view of a partition with several replicas, for one leader epoch.
#[derive(Debug, Clone)]
pub struct Followers {
    node_id: BrokerId,
    leader_epoch: i32,
    partition_epoch: PartitionEpoch,
    /// `replica.lag.time.max.ms`.
    lag_max: Duration,
    /// The start offset of the epoch.
    epoch_start: Offset,
    /// The in-sync replicas committed by the controller.
    isr: Vec<BrokerId>,
    pending: Option<IsrChange>,
    replicas: Vec<Follower>,
    /// The last stuck follower, until taken.
    stuck: Option<StuckFollower>,
}

impl Followers {
    /// Starts leading, in an epoch that starts at `epoch_start`. In-sync followers are trusted for `lag_max`;
    /// their log ends become known when they fetch.
    pub fn new(
        node_id: BrokerId,
        registration: &PartitionRegistration,
        epoch_start: Offset,
        lag_max: Duration,
        now: Instant,
    ) -> Self {
        let mut followers = Self {
            node_id,
            leader_epoch: registration.leader_epoch,
            partition_epoch: PartitionEpoch(-1),
            lag_max,
            epoch_start,
            isr: Vec::new(),
            pending: None,
            replicas: Vec::new(),
            stuck: None,
        };
        followers.on_registration(registration, now);
        followers
    }

    /// Applies a registration of the same leader epoch. A newer registration ends the pending change. A
    /// registration already known from the controller's answer may still change the assigned replicas, but
    /// neither the in-sync replicas nor a later pending change.
    pub fn on_registration(&mut self, registration: &PartitionRegistration, now: Instant) {
        if registration.partition_epoch < self.partition_epoch {
            return;
        }
        if registration.partition_epoch > self.partition_epoch {
            self.partition_epoch = registration.partition_epoch;
            self.isr.clone_from(&registration.isr);
            self.pending = None;
        }
        let known = std::mem::take(&mut self.replicas);
        let others = registration.replicas.iter().filter(|id| **id != self.node_id);
        self.replicas = others
            .map(|id| {
                let begin = || Follower {
                    id: *id,
                    end: None,
                    start: None,
                    caught_up: registration.isr.contains(id).then_some(now),
                    last_fetch: None,
                    sent: None,
                    broker_epoch: None,
                };
                known.iter().find(|follower| follower.id == *id).cloned().unwrap_or_else(begin)
            })
            .collect();
    }

    /// The partition epoch of the current registration.
    pub fn partition_epoch(&self) -> PartitionEpoch {
        self.partition_epoch
    }

    /// The start offset of the leader's epoch.
    pub fn epoch_start(&self) -> Offset {
        self.epoch_start
    }

    /// The in-sync replicas, as committed by the controller.
    pub fn isr(&self) -> &[BrokerId] {
        &self.isr
    }

    /// The pending change.
    pub fn pending(&self) -> Option<&IsrChange> {
        self.pending.as_ref()
    }

    /// True if the broker holds one of the other replicas.
    pub fn is_follower(&self, id: BrokerId) -> bool {
        self.replicas.iter().any(|follower| follower.id == id)
    }

    /// True if no other replica is in sync or about to join, so that only the leader's log end counts.
    pub fn is_alone(&self) -> bool {
        self.pending.is_none() && self.isr.iter().all(|id| *id == self.node_id)
    }

    /// Number of replicas in sync, including those about to join.
    pub fn maximal_isr_len(&self) -> usize {
        let joining = self.pending.iter().flat_map(|change| &change.isr);
        self.isr.len() + joining.filter(|member| !self.isr.contains(&member.id)).count()
    }

    fn is_in_maximal_isr(&self, id: BrokerId) -> bool {
        let in_pending = |change: &IsrChange| change.isr.iter().any(|member| member.id == id);
        self.isr.contains(&id) || self.pending.as_ref().is_some_and(in_pending)
    }

    /// Handles a follower's fetch from `offset` while the leader's log ends at `leader_end`.
    pub fn on_fetch(
        &mut self,
        id: BrokerId,
        broker_epoch: i64,
        offset: Offset,
        leader_end: Offset,
        now: Instant,
    ) {
        let Some(follower) = self.replicas.iter_mut().find(|follower| follower.id == id) else { return };
        // A fetch of an earlier broker process: the present process may lack some of its records.
        if broker_epoch != -1 && follower.broker_epoch.is_some_and(|present| present > broker_epoch) {
            return;
        }
        let caught_up = if offset >= leader_end {
            Some(now)
        } else {
            // The follower now has all records up to the leader's log end at its previous fetch.
            follower.last_fetch.filter(|(_, end)| offset >= *end).map(|(at, _)| at)
        };
        follower.caught_up = follower.caught_up.max(caught_up);
        follower.end = Some(offset);
        follower.last_fetch = Some((now, leader_end));
        follower.broker_epoch = Some(broker_epoch);
    }

    /// Notes records sent to a follower from `offset` on. Returns true if the follower seems stuck there:
    /// after a few times in a row, then at each doubling, so that a check without a finding is repeated.
    pub fn on_records_sent(&mut self, id: BrokerId, offset: Offset, sent_bytes: usize) -> bool {
        let Some(follower) = self.replicas.iter_mut().find(|follower| follower.id == id) else {
            return false;
        };
        let times = match follower.sent {
            Some((before, times)) if before == offset => times.saturating_add(1),
            _ => 1,
        };
        follower.sent = Some((offset, times));
        let is_stuck = times >= SENT_BEFORE_CHECK && times.is_power_of_two();
        if is_stuck {
            let is_new = times == SENT_BEFORE_CHECK;
            self.stuck = Some(StuckFollower { id, offset, sent_bytes, is_new });
        }
        is_stuck
    }

    /// Takes the last stuck follower.
    pub fn take_stuck(&mut self) -> Option<StuckFollower> {
        self.stuck.take()
    }

    /// Sets the start offset of a follower's log.
    pub fn on_log_start(&mut self, id: BrokerId, start: Offset) {
        if let Some(follower) = self.replicas.iter_mut().find(|follower| follower.id == id) {
            follower.start = Some(start);
        }
    }

    /// The lowest log start of all live replicas; `None` while one of them is unknown (Kafka's
    /// `lowWatermarkIfLeader`).
    pub fn low_watermark(&self, own_start: Offset, is_alive: impl Fn(BrokerId) -> bool) -> Option<Offset> {
        let mut alive = self.replicas.iter().filter(|follower| is_alive(follower.id));
        alive.try_fold(own_start, |lowest, follower| Some(lowest.min(follower.start?)))
    }

    /// The lag of each follower behind the log end.
    pub fn lags(&self, leader_end: Offset) -> Vec<FollowerLag> {
        let lag = |end: Offset| (leader_end.0 - end.0).max(0);
        self.replicas
            .iter()
            .map(|follower| FollowerLag { id: follower.id, lag: follower.end.map(lag) })
            .collect()
    }

    /// The in-sync follower in the consumer's rack that has the most records at or beyond `offset` (KIP-392).
    pub fn preferred_read_replica(
        &self,
        offset: Offset,
        is_near: impl Fn(BrokerId) -> bool,
    ) -> Option<BrokerId> {
        let has = |follower: &&Follower| {
            follower.end.is_some_and(|end| end >= offset)
                && follower.start.is_some_and(|start| start <= offset)
        };
        let in_sync = self.replicas.iter().filter(|follower| self.isr.contains(&follower.id));
        let near = in_sync.filter(has).filter(|follower| is_near(follower.id));
        near.max_by_key(|follower| (follower.end, follower.caught_up, follower.id))
            .map(|follower| follower.id)
    }

    /// The offset below which every replica that may be elected has all records; `None` while too few
    /// replicas are in sync.
    ///
    /// Replicas that have caught up and may join count too: a high watermark ahead of them would keep them
    /// out of the ISR forever.
    pub fn high_watermark(
        &self,
        own_end: Offset,
        min_isr: usize,
        now: Instant,
        is_eligible: impl Fn(IsrMember) -> bool,
    ) -> Option<Offset> {
        if self.isr.len() < min_isr {
            return None;
        }
        let mut reached = own_end;
        for follower in &self.replicas {
            let end = follower.end.unwrap_or(Offset::NONE);
            if end >= reached {
                continue;
            }
            let waits_for = || {
                follower.is_caught_up(own_end, now, self.lag_max)
                    && self.member(follower).is_some_and(&is_eligible)
            };
            if self.is_in_maximal_isr(follower.id) || waits_for() {
                reached = end;
            }
        }
        (reached > Offset::NONE).then_some(reached)
    }

    fn member(&self, follower: &Follower) -> Option<IsrMember> {
        Some(IsrMember { id: follower.id, broker_epoch: follower.broker_epoch? })
    }

    /// The change that adds a follower, if it is eligible.
    pub fn expand(
        &mut self,
        id: BrokerId,
        high_watermark: Offset,
        is_eligible: impl Fn(IsrMember) -> bool,
    ) -> Option<IsrChange> {
        if self.pending.is_some() || self.isr.contains(&id) {
            return None;
        }
        let follower = self.replicas.iter().find(|follower| follower.id == id)?;
        let end = follower.end?;
        let joins = end >= high_watermark && end >= self.epoch_start;
        if !joins || !is_eligible(self.member(follower)?) {
            return None;
        }
        let mut isr = self.isr.clone();
        isr.push(id);
        Some(self.propose(&isr, true))
    }

    /// The change that drops followers whose last caught-up time is too old.
    pub fn shrink(&mut self, leader_end: Offset, now: Instant) -> Option<IsrChange> {
        if self.pending.is_some() {
            return None;
        }
        let lags = |id: BrokerId| {
            let follower = self.replicas.iter().find(|follower| follower.id == id);
            follower.is_some_and(|follower| !follower.is_caught_up(leader_end, now, self.lag_max))
        };
        let isr: Vec<BrokerId> = self.isr.iter().copied().filter(|id| !lags(*id)).collect();
        (isr.len() < self.isr.len()).then(|| self.propose(&isr, false))
    }

    fn propose(&mut self, isr: &[BrokerId], grows: bool) -> IsrChange {
        let epoch = |id: BrokerId| {
            let follower = self.replicas.iter().find(|follower| follower.id == id);
            follower.and_then(|follower| follower.broker_epoch).unwrap_or(-1)
        };
        let change = IsrChange {
            leader_epoch: self.leader_epoch,
            partition_epoch: self.partition_epoch,
            isr: isr.iter().map(|id| IsrMember { id: *id, broker_epoch: epoch(*id) }).collect(),
            grows,
        };
        self.pending = Some(change.clone());
        change
    }

    /// Applies the controller's answer. Returns true if the in-sync replicas, committed or maximal, have
    /// changed.
    pub fn on_outcome(&mut self, change: &IsrChange, outcome: &ChangeOutcome) -> bool {
        if self.pending.as_ref() != Some(change) {
            // The image arrived before this answer and has ended the pending change.
            return false;
        }
        match outcome {
            ChangeOutcome::Made { leader_epoch, partition_epoch, isr } => {
                if *leader_epoch != self.leader_epoch || *partition_epoch < self.partition_epoch {
                    return false;
                }
                self.isr.clone_from(isr);
                self.partition_epoch = *partition_epoch;
                self.pending = None;
                true
            }
            ChangeOutcome::Refused => {
                self.pending = None;
                true
            }
            ChangeOutcome::Outdated => false,
        }
    }
}
