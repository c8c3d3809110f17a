//! The leader's view of the other replicas of a partition: the high watermark, and changes of the in-sync replicas
//! (Kafka's `Partition`, `PartitionState` and `Replica`).
//!
//! Owns: the committed in-sync replicas, the pending change, and for each follower the log end, the time when it was
//! last caught up, and its broker epoch. Refuses: access to the log, the clock, the image and the network; their
//! values are arguments.
//!
//! The main invariant: a replica that the controller may elect has all records below the high watermark. While a
//! change is pending it is unknown whether the controller has made it. So the high watermark waits for the *maximal*
//! in-sync replicas: those before the change and those after it.

#[cfg(test)]
mod tests;

use std::time::Duration;
use thalweg_metadata::{BrokerId, PartitionEpoch, PartitionRegistration};
use thalweg_record::Offset;
use tokio::time::Instant;

/// The lag of a follower, from its leader's view.
#[derive(Clone, Copy, Debug)]
pub struct FollowerLag {
    /// The broker.
    pub id: BrokerId,
    /// How many offsets it is behind the log end; `None` before its first fetch in this leader epoch.
    pub lag: Option<i64>,
}

/// A replica of a proposed set of in-sync replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsrMember {
    /// The broker.
    pub id: BrokerId,
    /// The epoch with which it fetched last; -1 when that is not known, as for the leader itself.
    pub broker_epoch: i64,
}

/// A change of the in-sync replicas, to be proposed to the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrChange {
    /// The leader's epoch.
    pub leader_epoch: i32,
    /// The epoch of the registration that it changes.
    pub partition_epoch: PartitionEpoch,
    /// The in-sync replicas as they would be.
    pub isr: Vec<IsrMember>,
    /// Whether a follower joins; else some leave.
    pub grows: bool,
}

/// The controller's answer to a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// It is made: the registration as it is now.
    Made {
        /// The leader's epoch.
        leader_epoch: i32,
        /// The registration's epoch.
        partition_epoch: PartitionEpoch,
        /// The in-sync replicas.
        isr: Vec<BrokerId>,
    },
    /// It is not made, and the registration is as it was.
    Refused,
    /// The controller has another registration; the image will show it.
    Outdated,
}

/// How often a reader is sent records from the same offset before they are checked.
pub(crate) const SENT_BEFORE_CHECK: u32 = 4;

/// A follower that fetches the same records again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StuckFollower {
    /// The broker.
    pub id: BrokerId,
    /// Where its log ends.
    pub offset: Offset,
    /// How many bytes of records it was sent.
    pub sent_bytes: usize,
    /// Whether it is reported with this offset for the first time.
    pub is_new: bool,
}

#[derive(Debug, Clone)]
struct Follower {
    id: BrokerId,
    /// Its log end, by its last fetch in this epoch.
    end: Option<Offset>,
    /// Its log start, by the same fetch.
    start: Option<Offset>,
    /// When it was known to have everything for the last time.
    caught_up: Option<Instant>,
    /// Its last fetch, and where the leader's log ended then.
    last_fetch: Option<(Instant, Offset)>,
    /// The offset from which it was sent records last, and how often in a row.
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
pub struct Leadership {
    node_id: BrokerId,
    leader_epoch: i32,
    partition_epoch: PartitionEpoch,
    /// `replica.lag.time.max.ms`.
    lag_max: Duration,
    /// The start offset of the epoch.
    epoch_start: Offset,
    /// Committed by the controller.
    isr: Vec<BrokerId>,
    pending: Option<IsrChange>,
    followers: Vec<Follower>,
    /// The one that was found to be stuck last, until it is taken.
    stuck: Option<StuckFollower>,
}

impl Leadership {
    /// Starts leading, in an epoch that starts at `epoch_start`: in-sync followers are trusted for `lag_max`, and
    /// their log ends become known when they fetch.
    pub fn new(
        node_id: BrokerId,
        registration: &PartitionRegistration,
        epoch_start: Offset,
        lag_max: Duration,
        now: Instant,
    ) -> Self {
        let mut leadership = Self {
            node_id,
            leader_epoch: registration.leader_epoch,
            partition_epoch: PartitionEpoch(-1),
            lag_max,
            epoch_start,
            isr: Vec::new(),
            pending: None,
            followers: Vec::new(),
            stuck: None,
        };
        leadership.on_registration(registration, now);
        leadership
    }

    /// Applies a registration of the same leader epoch. A newer one ends the pending change. One already known from
    /// the controller's answer may still change the assigned replicas, but not the in-sync ones, and a later pending
    /// change stays.
    pub fn on_registration(&mut self, registration: &PartitionRegistration, now: Instant) {
        if registration.partition_epoch < self.partition_epoch {
            return;
        }
        if registration.partition_epoch > self.partition_epoch {
            self.partition_epoch = registration.partition_epoch;
            self.isr.clone_from(&registration.isr);
            self.pending = None;
        }
        let known = std::mem::take(&mut self.followers);
        let others = registration.replicas.iter().filter(|id| **id != self.node_id);
        self.followers = others
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

    /// The epoch of the registration that is in force.
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

    /// Whether the broker holds one of the other replicas.
    pub fn is_follower(&self, id: BrokerId) -> bool {
        self.followers.iter().any(|follower| follower.id == id)
    }

    /// Whether no other replica is in sync or about to join: only the leader's own log end counts.
    pub fn is_alone(&self) -> bool {
        self.pending.is_none() && self.isr.iter().all(|id| *id == self.node_id)
    }

    /// How many replicas are in sync, those that are about to be counted.
    pub fn maximal_isr_len(&self) -> usize {
        let joining = self.pending.iter().flat_map(|change| &change.isr);
        self.isr.len() + joining.filter(|member| !self.isr.contains(&member.id)).count()
    }

    fn is_in_maximal_isr(&self, id: BrokerId) -> bool {
        let in_pending = |change: &IsrChange| change.isr.iter().any(|member| member.id == id);
        self.isr.contains(&id) || self.pending.as_ref().is_some_and(in_pending)
    }

    /// A follower fetches from `offset`, while the leader's log ends at `leader_end`.
    pub fn on_fetch(
        &mut self,
        id: BrokerId,
        broker_epoch: i64,
        offset: Offset,
        leader_end: Offset,
        now: Instant,
    ) {
        let Some(follower) = self.followers.iter_mut().find(|follower| follower.id == id) else { return };
        // Of an earlier process of the broker, which the present one may not have all records of.
        if broker_epoch != -1 && follower.broker_epoch.is_some_and(|present| present > broker_epoch) {
            return;
        }
        let caught_up = if offset >= leader_end {
            Some(now)
        } else {
            // It now has all that there was when it fetched before.
            follower.last_fetch.filter(|(_, end)| offset >= *end).map(|(at, _)| at)
        };
        follower.caught_up = follower.caught_up.max(caught_up);
        follower.end = Some(offset);
        follower.last_fetch = Some((now, leader_end));
        follower.broker_epoch = Some(broker_epoch);
    }

    /// A follower is sent records from `offset` on. Returns whether it seems to be stuck there: a few times in a row, and then
    /// each time that the number has doubled, so that a check that comes to nothing is repeated.
    pub fn on_records_sent(&mut self, id: BrokerId, offset: Offset, sent_bytes: usize) -> bool {
        let Some(follower) = self.followers.iter_mut().find(|follower| follower.id == id) else {
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

    /// The follower that was found to be stuck last, once.
    pub fn take_stuck(&mut self) -> Option<StuckFollower> {
        self.stuck.take()
    }

    /// Sets the start offset of a follower's log.
    pub fn on_log_start(&mut self, id: BrokerId, start: Offset) {
        if let Some(follower) = self.followers.iter_mut().find(|follower| follower.id == id) {
            follower.start = Some(start);
        }
    }

    /// The lowest log start of all live replicas; `None` while one of them is unknown (Kafka's
    /// `lowWatermarkIfLeader`).
    pub fn low_watermark(&self, own_start: Offset, is_alive: impl Fn(BrokerId) -> bool) -> Option<Offset> {
        let mut alive = self.followers.iter().filter(|follower| is_alive(follower.id));
        alive.try_fold(own_start, |lowest, follower| Some(lowest.min(follower.start?)))
    }

    /// How far each follower is behind the log end.
    pub fn lags(&self, leader_end: Offset) -> Vec<FollowerLag> {
        let lag = |end: Offset| (leader_end.0 - end.0).max(0);
        self.followers
            .iter()
            .map(|follower| FollowerLag { id: follower.id, lag: follower.end.map(lag) })
            .collect()
    }

    /// The in-sync follower that consumers of a rack read best from `offset`: the one with most records (KIP-392).
    pub fn preferred_read_replica(
        &self,
        offset: Offset,
        is_near: impl Fn(BrokerId) -> bool,
    ) -> Option<BrokerId> {
        let has = |follower: &&Follower| {
            follower.end.is_some_and(|end| end >= offset)
                && follower.start.is_some_and(|start| start <= offset)
        };
        let in_sync = self.followers.iter().filter(|follower| self.isr.contains(&follower.id));
        let near = in_sync.filter(has).filter(|follower| is_near(follower.id));
        near.max_by_key(|follower| (follower.end, follower.caught_up, follower.id))
            .map(|follower| follower.id)
    }

    /// The offset below which every replica that may be elected has all records; `None` while too few are in sync for
    /// any record to count as replicated.
    ///
    /// Replicas that have caught up and may join count too, so that they can: a high watermark that runs ahead of them would
    /// keep them out for ever.
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
        let mut replicated = own_end;
        for follower in &self.followers {
            let end = follower.end.unwrap_or(Offset::NONE);
            if end >= replicated {
                continue;
            }
            let waits_for = || {
                follower.is_caught_up(own_end, now, self.lag_max)
                    && self.member(follower).is_some_and(&is_eligible)
            };
            if self.is_in_maximal_isr(follower.id) || waits_for() {
                replicated = end;
            }
        }
        (replicated > Offset::NONE).then_some(replicated)
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
        let follower = self.followers.iter().find(|follower| follower.id == id)?;
        let end = follower.end?;
        let joins = end >= high_watermark && end >= self.epoch_start;
        if !joins || !is_eligible(self.member(follower)?) {
            return None;
        }
        let mut isr = self.isr.clone();
        isr.push(id);
        Some(self.propose(&isr, true))
    }

    /// The change that drops the followers that have not been caught up for too long.
    pub fn shrink(&mut self, leader_end: Offset, now: Instant) -> Option<IsrChange> {
        if self.pending.is_some() {
            return None;
        }
        let lags = |id: BrokerId| {
            let follower = self.followers.iter().find(|follower| follower.id == id);
            follower.is_some_and(|follower| !follower.is_caught_up(leader_end, now, self.lag_max))
        };
        let isr: Vec<BrokerId> = self.isr.iter().copied().filter(|id| !lags(*id)).collect();
        (isr.len() < self.isr.len()).then(|| self.propose(&isr, false))
    }

    fn propose(&mut self, isr: &[BrokerId], grows: bool) -> IsrChange {
        let epoch = |id: BrokerId| {
            let follower = self.followers.iter().find(|follower| follower.id == id);
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

    /// Applies the controller's answer. Returns whether the in-sync replicas, or those that count as such, have
    /// changed.
    pub fn on_outcome(&mut self, change: &IsrChange, outcome: &ChangeOutcome) -> bool {
        if self.pending.as_ref() != Some(change) {
            // The image was faster, and has decided.
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
