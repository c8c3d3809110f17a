//! Elections by log ends, if no replica is known to be complete (the recovery of KIP-966).
//!
//! After an unclean stop a replica may lack acknowledged records, and the last leader's log may be an older
//! copy. Returning replicas are therefore compared before one leads: the log with the highest leader epoch
//! has the latest acknowledged records, and among several logs with that epoch the longest. The election
//! waits for remembered replicas.
//!
//! The state selects the partitions and the replicas to ask, and makes the records of the election. The
//! caller of [`crate::Controller::undecided`] sends the requests and limits the wait.

use std::collections::BTreeSet;
use std::sync::Arc;

use thalweg_metadata::{
    BrokerId, PartitionEpoch, PartitionIndex, PartitionRegistration, Topic, TopicIdPartition, VersionedRecord,
};
use thalweg_wire::Uuid;

use super::partition_change::{Election, PartitionChange};
use super::{Moment, RECORDS_PER_REQUEST_MAX, State};

/// A partition without a leader and without a replica known to be complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndecidedPartition {
    /// The topic of the partition.
    pub topic: Arc<str>,
    /// The topic's id, under which the election is made.
    pub topic_id: Uuid,
    /// The index of the partition in the topic.
    pub partition: PartitionIndex,
    /// The partition epoch of the registration. An election for another epoch is void.
    pub partition_epoch: PartitionEpoch,
    /// The leader epoch of the registration. The epoch began when the last leader went away, so no log has a
    /// batch of this epoch, unless this controller's log is an older copy.
    pub leader_epoch: i32,
    /// The available replicas that may lead.
    pub candidates: Vec<BrokerId>,
    /// Remembered replicas that are not up. They were complete.
    pub awaited: Vec<BrokerId>,
    /// Other replicas that are not up but whose brokers are alive, for example while starting.
    pub starting: Vec<BrokerId>,
    /// The last leader, if it is up; if its broker is unregistered, the next complete replica. This replica
    /// leads after the wait.
    pub last_leader: Option<BrokerId>,
}

/// An election decided by comparing logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedElection {
    /// The topic of the partition.
    pub topic_id: Uuid,
    /// The index of the partition in the topic.
    pub partition: PartitionIndex,
    /// As in [`UndecidedPartition`].
    pub partition_epoch: PartitionEpoch,
    /// The new leader.
    pub leader: BrokerId,
}

/// Upper bound of plausible leader epochs. An election raises the epoch by one.
const EPOCH_MAX: i32 = i32::MAX / 2;
/// Distance of a raised leader epoch from the one in a log. The log of another replica may be some elections
/// further. If that log had batches of the new epoch, its difference from the next leader's log would be
/// invisible. Not a power of two, because log recovery takes a difference of one bit for a bit flip.
const EPOCH_JUMP: i32 = 1000;

impl State {
    /// True if log ends are compared for this partition.
    pub fn compares_log_ends(&self, partition: &PartitionRegistration) -> bool {
        self.compares_log_ends && partition.replicas.len() > 1
    }

    /// The partitions that need an election by log ends.
    pub fn undecided(&self, leaderless: &[TopicIdPartition], now: Moment) -> Vec<UndecidedPartition> {
        let placed = leaderless.iter().filter_map(|(id, index)| {
            let topic = self.image.topic_by_id(*id)?;
            let partition = topic.partition(*index)?;
            self.is_undecided(partition).then_some((topic, *index, partition))
        });
        let undecided = placed.map(|(topic, index, partition)| {
            let is_up = |id: BrokerId| self.is_up(topic, index, partition, id);
            let remembered = match partition.isr.is_empty() {
                true => &partition.last_known_elr,
                false => &partition.isr,
            };
            let is_starting = |id: BrokerId| {
                let broker = self.image.broker(id);
                broker.is_some_and(|broker| self.heartbeats.has_valid_session(id, broker.epoch, now))
            };
            let (candidates, others): (Vec<_>, Vec<_>) =
                partition.replicas.iter().copied().partition(|id| is_up(*id));
            // The election waits for an unregistered broker only if no complete replica is available.
            let is_one_back = remembered.iter().any(|id| candidates.contains(id));
            let is_registered = |id: &BrokerId| self.image.broker(*id).is_some();
            let may_come = |id: &BrokerId| remembered.contains(id) && (!is_one_back || is_registered(id));
            // Only eligible leader replicas identify the last leader. Members of the ISR all had the
            // acknowledged records, so the election does not wait without limit for a member that stays down.
            let is_passed =
                |id: &BrokerId| !is_registered(id) || (!self.has_elr() && !candidates.contains(id));
            let last_leader =
                remembered.iter().copied().find(|id| partition.is_replica(*id) && !is_passed(id));
            UndecidedPartition {
                topic: Arc::clone(&topic.name),
                topic_id: topic.id,
                partition: index,
                partition_epoch: partition.partition_epoch,
                leader_epoch: partition.leader_epoch,
                awaited: others.iter().copied().filter(may_come).collect(),
                starting: others
                    .into_iter()
                    .filter(|id| !remembered.contains(id) && is_starting(*id))
                    .collect(),
                last_leader: last_leader.filter(|id| candidates.contains(id)),
                candidates,
            }
        });
        undecided.collect()
    }

    fn is_undecided(&self, partition: &PartitionRegistration) -> bool {
        let (isr, is_suspect) = (&partition.isr, |id: &BrokerId| !self.has_elr() && self.is_suspect(*id));
        let is_gone = |id: &BrokerId| self.image.broker(*id).is_none();
        self.compares_log_ends(partition)
            && !partition.has_leader()
            && partition.eligible_leader_replicas.is_empty()
            && isr.iter().all(|id| is_suspect(id) || (is_gone(id) && isr.iter().any(is_suspect)))
            // Without any remembered replica, the last complete log is lost, and an operator decides.
            && !(partition.isr.is_empty() && partition.last_known_elr.is_empty())
    }

    pub(super) fn is_up(
        &self,
        topic: &Topic,
        index: PartitionIndex,
        partition: &PartitionRegistration,
        id: BrokerId,
    ) -> bool {
        let may_lead = |id: BrokerId| self.is_active(id);
        PartitionChange::new(self, topic, index, partition, &may_lead).is_up(id)
    }

    /// True if a leader epoch in a log proves that this controller's log is an older copy. Only a leader
    /// writes batches of an epoch.
    pub fn is_passed_by(partition: &PartitionRegistration, seen: i32) -> bool {
        seen > partition.leader_epoch || (seen == partition.leader_epoch && !partition.has_leader())
    }

    /// The partition with a leader epoch far above the one in a replica's log: this controller's log is an
    /// older copy. The remembered replicas are outdated as well, so the best log leads. A replica that is
    /// neither in sync nor eligible only raises the epoch: the leader's records may have been acknowledged
    /// since, and the records of this replica are truncated.
    pub fn raised(
        &self,
        topic: &Topic,
        index: PartitionIndex,
        partition: &PartitionRegistration,
        by: BrokerId,
        seen: i32,
    ) -> Option<VersionedRecord> {
        let epoch = seen.checked_add(EPOCH_JUMP).filter(|epoch| *epoch < EPOCH_MAX)?;
        let mut raised = partition.clone();
        raised.leader_epoch = epoch;
        raised.partition_epoch = PartitionEpoch(partition.partition_epoch.0.wrapping_add(1));
        if self.compares_log_ends(partition)
            && self.has_elr()
            && (partition.may_lead_cleanly(by) || !partition.has_leader())
        {
            let mut known = vec![partition.leader];
            known.extend(partition.isr.iter().chain(&partition.eligible_leader_replicas).copied());
            known.extend(partition.last_known_elr.iter().copied());
            raised.last_known_elr.clear();
            for id in known.into_iter().filter(|id| partition.is_replica(*id)) {
                if !raised.last_known_elr.contains(&id) {
                    raised.last_known_elr.push(id);
                }
            }
            raised.leader = BrokerId::NONE;
            raised.isr.clear();
            raised.eligible_leader_replicas.clear();
        }
        Some(raised.to_record(topic.id, index, self.metadata_version()))
    }

    /// The elections that are still valid, with their records.
    pub fn elect_compared(
        &self,
        elections: &[ComparedElection],
    ) -> (Vec<VersionedRecord>, Vec<ComparedElection>) {
        let may_lead = |id: BrokerId| self.is_active(id);
        let (mut records, mut made) = (Vec::new(), Vec::new());
        let mut seen = BTreeSet::new();
        for election in elections.iter().take(RECORDS_PER_REQUEST_MAX) {
            let Some(topic) = self.image.topic_by_id(election.topic_id) else { continue };
            let Some(partition) = topic.partition(election.partition) else { continue };
            let is_first = seen.insert((election.topic_id, election.partition));
            if !is_first
                || partition.partition_epoch != election.partition_epoch
                || !self.is_undecided(partition)
            {
                continue;
            }
            let mut change = PartitionChange::new(self, topic, election.partition, partition, &may_lead);
            change.election = Election::Compared(election.leader);
            if let Some(record) = change.build() {
                records.push(record);
                made.push(election.clone());
            }
        }
        (records, made)
    }
}
