//! Leader elections, when brokers start and stop, and on request (ElectLeaders).

use std::collections::BTreeSet;
use std::sync::Arc;

use thalweg_metadata::{
    BrokerId, DIRECTORY_FULL, DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, PartitionIndex,
    PartitionRegistration, Topic, VersionedRecord,
};
use thalweg_security::acl::Operation::Alter;
use thalweg_wire::request::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use thalweg_wire::request::{ElectLeadersRequest, ElectLeadersResponse};
use thalweg_wire::{ErrorCode, Uuid};

use super::entry::Access::Cluster;
use super::entry::{Api, Call, Decide, ELEMENTS_MAX};
use super::partition_change::{Election, PartitionChange, ReplicaLog};
use super::{ApiError, MessageBudget, Moment, Outcome, RECORDS_PER_REQUEST_MAX, State};

pub(super) const APIS: &[Api] =
    &[Api::new::<ElectLeadersRequest>(Cluster(Alter)).anywhere(ELEMENTS_MAX).forwarded()];

impl Decide for ElectLeadersRequest {
    fn decide(&self, state: &mut State, _: &Call, _: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        state.elect_leaders(self)
    }
}

/// Maximum number of leaders elected in one periodic pass.
const ELECTIONS_PER_PASS_MAX: usize = 1_000;

/// The brokers whose registration is about to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegistrationChange<'a> {
    /// The brokers leave the ISRs and may not lead.
    Leave(&'a [BrokerId]),
    /// The broker may lead although the image still has it fenced.
    Comes(BrokerId),
    /// A new process registers.
    Returns(&'a ReturningBroker),
}

/// A new process of a registered broker. The broker leaves the ISRs and may not lead yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReturningBroker {
    pub broker: BrokerId,
    /// True after an unclean stop: the last acknowledged records may be lost, so the broker is not eligible
    /// to lead (KIP-966), or leads only after other replicas.
    pub unclean: bool,
    /// The directories of the new process.
    pub directories: Vec<Uuid>,
    /// True if a directory of the earlier process is missing.
    pub lacks_directory: bool,
}

impl ReturningBroker {
    /// The state of the broker's replica of a partition.
    pub fn log(&self, partition: &PartitionRegistration) -> ReplicaLog {
        let Some(directory) = partition.directory(self.broker) else { return ReplicaLog::Kept };
        if self.directories.is_empty() || partition.replicas.len() == 1 {
            // Directories are not tracked, or there is no other replica that an election could prefer.
            return ReplicaLog::Kept;
        }
        match directory {
            // The broker had not reported the directory, so the log may have been in any of them.
            DIRECTORY_MIGRATING | DIRECTORY_UNASSIGNED if self.lacks_directory => ReplicaLog::Gone,
            // The log was handed over for lack of room, and may have been in the missing directory.
            DIRECTORY_FULL if self.lacks_directory => ReplicaLog::Away,
            known if known == DIRECTORY_LOST => ReplicaLog::Away,
            known if !known.is_reserved() && !self.directories.contains(&known) => ReplicaLog::Away,
            _ => ReplicaLog::Kept,
        }
    }
}

/// The outcome of a periodic pass over partitions.
#[derive(Debug)]
pub(crate) struct Pass {
    pub records: Vec<VersionedRecord>,
    /// True if another pass should follow immediately.
    pub more: bool,
}

type PlacedPartition = (Arc<Topic>, PartitionIndex, Arc<PartitionRegistration>);

impl State {
    pub(super) fn partitions_where(
        &self,
        wanted: impl Fn(&PartitionRegistration) -> bool,
    ) -> Vec<PlacedPartition> {
        let mut placed = Vec::new();
        for topic in self.image.topics().sorted() {
            for (index, partition) in &topic.partitions {
                if wanted(partition) {
                    placed.push((topic.clone(), *index, partition.clone()));
                }
            }
        }
        placed
    }

    /// Notes the return of a broker, after a clean or an unclean stop.
    pub(super) fn note_suspect(&mut self, returning: &ReturningBroker) {
        self.forget_suspects();
        if returning.unclean {
            self.suspects.insert(returning.broker);
        } else {
            self.suspects.remove(&returning.broker);
        }
    }

    /// Drops suspects that are active again, unless a leaderless partition has the suspect in its ISR.
    pub(super) fn forget_suspects(&mut self) {
        if self.suspects.is_empty() {
            return;
        }
        let waiting: BTreeSet<BrokerId> =
            self.partitions_where(|p| !p.has_leader()).iter().flat_map(|(_, _, p)| p.isr.clone()).collect();
        let mut suspects = std::mem::take(&mut self.suspects);
        suspects.retain(|id| waiting.contains(id) || !self.is_active(*id));
        self.suspects = suspects;
    }

    /// The suspects of an earlier controller that the image reveals: available in-sync replicas that were not
    /// elected in leaderless partitions. Fenced brokers, which may have been starting, are unknown.
    pub(super) fn passed_over(&self) -> BTreeSet<BrokerId> {
        let mut passed_over = BTreeSet::new();
        if self.has_elr() {
            return passed_over;
        }
        for (topic, index, partition) in self.partitions_where(|p| !p.has_leader()) {
            let is_up = |id: &BrokerId| self.is_up(&topic, index, &partition, *id);
            passed_over.extend(partition.isr.iter().copied().filter(is_up));
        }
        passed_over
    }

    /// True if an in-sync replica must not lead yet. If the sessions of several brokers end together, there
    /// is no leader, and the ISR stays unchanged. A member that stopped uncleanly meanwhile may lack
    /// acknowledged records of other members. Such a member leads only if no other member may still be alive,
    /// or if its log is the best (`log_ends`). With eligible leader replicas, the member has left the ISR.
    pub(super) fn waits_for_others(&self, replica: BrokerId, partition: &PartitionRegistration) -> bool {
        let may_return =
            |id: &BrokerId| *id != replica && !self.is_suspect(*id) && self.image.broker(*id).is_some();
        !self.has_elr()
            && !partition.has_leader()
            && self.is_suspect(replica)
            && (self.compares_log_ends(partition) || partition.isr.iter().any(may_return))
    }

    /// True if a broker has returned after an unclean stop and is still a suspect.
    pub(super) fn is_suspect(&self, broker: BrokerId) -> bool {
        self.suspects.contains(&broker)
    }

    /// True if a broker leads any partition.
    pub(super) fn has_leaderships(&self, broker: BrokerId) -> bool {
        self.image.topics().iter().any(|topic| topic.partitions.values().any(|p| p.leader == broker))
    }

    /// The records that remove brokers from ISRs, or give leaderless partitions a leader.
    pub(super) fn leader_and_isr_updates(
        &self,
        moving: RegistrationChange<'_>,
        records: &mut Vec<VersionedRecord>,
    ) {
        let partitions = match moving {
            RegistrationChange::Leave(gone) => {
                self.partitions_where(|p| gone.iter().any(|id| p.isr.contains(id) || p.leader == *id))
            }
            RegistrationChange::Returns(returning) => self.partitions_where(|p| {
                let id = returning.broker;
                let in_sync = p.isr.contains(&id) || p.leader == id;
                let is_gone = returning.log(p) != ReplicaLog::Kept;
                let eligible = p.eligible_leader_replicas.contains(&id);
                in_sync
                    || (eligible && (is_gone || returning.unclean))
                    || (is_gone && p.last_known_elr.contains(&id))
            }),
            RegistrationChange::Comes(_) => self.partitions_where(|p| !p.has_leader()),
        };
        self.update_partitions(moving, &partitions, records);
    }

    /// As [`State::leader_and_isr_updates`], for partitions whose replica is in a directory of the broker.
    pub(super) fn updates_for_directory(
        &self,
        broker: BrokerId,
        directory: Uuid,
        records: &mut Vec<VersionedRecord>,
    ) {
        let partitions = self.partitions_where(|p| p.directory(broker) == Some(directory));
        self.update_partitions(RegistrationChange::Leave(&[broker]), &partitions, records);
    }

    pub(super) fn update_partitions(
        &self,
        moving: RegistrationChange<'_>,
        partitions: &[PlacedPartition],
        records: &mut Vec<VersionedRecord>,
    ) {
        let leaves = |id: BrokerId| match moving {
            RegistrationChange::Leave(gone) => gone.contains(&id),
            RegistrationChange::Returns(returning) => returning.broker == id,
            RegistrationChange::Comes(_) => false,
        };
        let may_lead =
            |id: BrokerId| !leaves(id) && (moving == RegistrationChange::Comes(id) || self.is_active(id));
        for (topic, index, partition) in partitions {
            let mut change = PartitionChange::new(self, topic, *index, partition, &may_lead);
            if self.unclean_election_enabled(&topic.name) {
                change.election = Election::Unclean;
            }
            change.isr.retain(|id| !leaves(*id));
            if let RegistrationChange::Returns(returning) = moving {
                let unclean = if returning.unclean { ReplicaLog::Suspect } else { ReplicaLog::Kept };
                let log = returning.log(partition).max(unclean);
                change.lost = (log != ReplicaLog::Kept).then_some((returning.broker, log));
            }
            records.extend(change.build());
        }
    }

    pub fn elect_leaders(
        &self,
        request: &ElectLeadersRequest,
    ) -> Result<Outcome<ElectLeadersResponse>, ApiError> {
        let unclean = match request.election_type {
            0 => false,
            1 => true,
            // Kafka checks the type only for the first partition.
            _ if request.topic_partitions.as_ref().is_some_and(Vec::is_empty) => false,
            other => {
                return Err(ApiError::new(
                    ErrorCode::InvalidRequest,
                    format!("Unknown election type {other}"),
                ));
            }
        };
        let mut records = Vec::new();
        let mut results = Vec::new();
        let mut messages = MessageBudget::default();
        let mut elected: BTreeSet<(&str, PartitionIndex)> = BTreeSet::new();
        match &request.topic_partitions {
            // All partitions. Partitions that already have that leader are left out of the answer.
            None => {
                for topic in self.image.topics().sorted() {
                    let partitions = topic.partitions.keys().copied();
                    let mut result =
                        self.elect_in(&topic.name, partitions, unclean, &mut records, &mut messages)?;
                    result.partition_result.retain(|r| r.error_code != ErrorCode::ElectionNotNeeded.code());
                    results.push(result);
                }
            }
            Some(topics) => {
                for topic in topics {
                    let partitions = topic.partitions.iter().copied().map(PartitionIndex);
                    // A repeated partition already has its leader, or fails for the same reason.
                    let partitions =
                        partitions.filter(|index| elected.insert((topic.topic.as_str(), *index)));
                    let result =
                        self.elect_in(&topic.topic, partitions, unclean, &mut records, &mut messages)?;
                    results.push(result);
                }
            }
        }
        let response = ElectLeadersResponse { replica_election_results: results, ..Default::default() };
        Ok(Outcome::new(records, response))
    }

    fn elect_in(
        &self,
        topic: &str,
        partitions: impl Iterator<Item = PartitionIndex>,
        unclean: bool,
        records: &mut Vec<VersionedRecord>,
        messages: &mut MessageBudget,
    ) -> Result<ReplicaElectionResult, ApiError> {
        let mut partition_result = Vec::new();
        for index in partitions {
            let (error_code, error_message) = match self.elect_leader(topic, index, unclean) {
                Ok(record) => {
                    records.push(record);
                    if records.len() > RECORDS_PER_REQUEST_MAX {
                        return Err(super::too_many_records());
                    }
                    (0, None)
                }
                Err(error) => (error.code.code(), messages.keep(error.message)),
            };
            partition_result.push(PartitionResult { partition_id: index.0, error_code, error_message });
        }
        Ok(ReplicaElectionResult { topic: topic.to_owned(), partition_result })
    }

    fn elect_leader(
        &self,
        name: &str,
        index: PartitionIndex,
        unclean: bool,
    ) -> Result<VersionedRecord, ApiError> {
        let unknown = |message| ApiError::new(ErrorCode::UnknownTopicOrPartition, message);
        let topic = self.image.topic(name).ok_or_else(|| unknown(format!("No such topic as {name}")))?;
        let partition = topic.partition(index);
        let partition = partition.ok_or_else(|| unknown(format!("No such partition as {name}-{index}")))?;
        if if unclean { partition.has_leader() } else { partition.has_preferred_leader() } {
            return Err(ApiError::plain(ErrorCode::ElectionNotNeeded));
        }
        let may_lead = |id: BrokerId| self.is_active(id);
        let mut change = PartitionChange::new(self, topic, index, partition, &may_lead);
        change.election = if unclean { Election::Unclean } else { Election::Preferred };
        change.build().ok_or_else(|| {
            ApiError::plain(if unclean {
                ErrorCode::EligibleLeadersNotAvailable
            } else {
                ErrorCode::PreferredLeaderNotAvailable
            })
        })
    }

    /// Moves leadership back to preferred leaders.
    pub fn balance_leaders(&self) -> Pass {
        let partitions = self.partitions_where(|p| !p.has_preferred_leader());
        self.pass(&partitions, |_| Some(Election::Preferred))
    }

    /// Elects leaders for leaderless partitions that allow unclean elections.
    pub fn elect_unclean_leaders(&self) -> Pass {
        let partitions = self.partitions_where(|p| !p.has_leader());
        self.pass(&partitions, |topic| {
            self.unclean_election_enabled(&topic.name).then_some(Election::Unclean)
        })
    }

    fn pass(&self, partitions: &[PlacedPartition], election: impl Fn(&Topic) -> Option<Election>) -> Pass {
        let may_lead = |id: BrokerId| self.is_active(id);
        let mut records = Vec::new();
        for (topic, index, partition) in partitions {
            let Some(election) = election(topic) else { continue };
            if records.len() >= ELECTIONS_PER_PASS_MAX {
                return Pass { records, more: true };
            }
            let mut change = PartitionChange::new(self, topic, *index, partition, &may_lead);
            change.election = election;
            records.extend(change.build());
        }
        Pass { records, more: false }
    }
}
