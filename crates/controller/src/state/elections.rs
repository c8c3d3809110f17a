//! Who leads, as brokers come and go, and when asked (ElectLeaders).

use std::sync::Arc;

use thalweg_metadata::{PartitionRegistration, Topic, VersionedRecord};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use thalweg_wire::request::{ElectLeadersRequest, ElectLeadersResponse};

use super::partition_change::{Election, PartitionChange};
use super::{ApiError, Outcome, RECORDS_PER_REQUEST_MAX, State};

/// How many leaders one periodic pass elects.
const ELECTIONS_PER_PASS_MAX: usize = 1_000;

/// A broker that comes or goes while records are made, ahead of its registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moving {
    /// It leaves the ISRs and may not lead.
    Leaves(i32),
    /// It may lead although the image still has it fenced.
    Comes(i32),
    /// It was not stopped in order: what it acknowledged last may be lost, so that it is not eligible to lead either
    /// (KIP-966).
    LostData(i32),
}

/// What a periodic pass over partitions made.
#[derive(Debug)]
pub(crate) struct Pass {
    pub records: Vec<VersionedRecord>,
    /// There may be more to do, at once.
    pub more: bool,
}

type Placed = (Arc<Topic>, i32, Arc<PartitionRegistration>);

impl State {
    fn partitions_where(&self, wanted: impl Fn(&PartitionRegistration) -> bool) -> Vec<Placed> {
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

    /// Whether a broker leads something.
    pub(super) fn has_leaderships(&self, broker: i32) -> bool {
        self.image.topics().iter().any(|topic| topic.partitions.values().any(|p| p.leader == broker))
    }

    /// The records that take a broker out of the ISRs, or give partitions without a leader to it.
    pub(super) fn leader_and_isr_updates(&self, moving: Moving, records: &mut Vec<VersionedRecord>) {
        let partitions = match moving {
            Moving::Leaves(id) => self.partitions_where(|p| p.isr.contains(&id) || p.leader == id),
            Moving::LostData(id) => {
                self.partitions_where(|p| p.isr.contains(&id) || p.eligible_leader_replicas.contains(&id))
            }
            Moving::Comes(_) => self.partitions_where(|p| !p.has_leader()),
        };
        self.update_partitions(moving, &partitions, records);
    }

    /// As [`State::leader_and_isr_updates`], for the partitions whose replica lies in a directory of the broker.
    pub(super) fn updates_for_directory(
        &self,
        broker: i32,
        directory: thalweg_wire::Uuid,
        records: &mut Vec<VersionedRecord>,
    ) {
        let partitions = self.partitions_where(|p| p.directory(broker) == Some(directory));
        self.update_partitions(Moving::Leaves(broker), &partitions, records);
    }

    pub(super) fn update_partitions(
        &self,
        moving: Moving,
        partitions: &[Placed],
        records: &mut Vec<VersionedRecord>,
    ) {
        let may_lead = |id: i32| match moving {
            Moving::Leaves(gone) | Moving::LostData(gone) if gone == id => false,
            Moving::Comes(new) if new == id => true,
            _ => self.is_active(id),
        };
        for (topic, index, partition) in partitions {
            let mut change = PartitionChange::new(self, topic, *index, partition, &may_lead);
            if self.unclean_election_enabled(&topic.name) {
                change.election = Election::Unclean;
            }
            if let Moving::Leaves(gone) | Moving::LostData(gone) = moving {
                change.isr.retain(|id| *id != gone);
            }
            if let Moving::LostData(broker) = moving {
                change.lost_data = Some(broker);
            }
            records.extend(change.build());
        }
    }

    /// ElectLeaders.
    pub fn elect_leaders(
        &self,
        request: &ElectLeadersRequest,
    ) -> Result<Outcome<ElectLeadersResponse>, ApiError> {
        let unclean = match request.election_type {
            0 => false,
            1 => true,
            other => {
                return Err(ApiError::new(
                    ErrorCode::InvalidRequest,
                    format!("Unknown election type {other}"),
                ));
            }
        };
        let mut records = Vec::new();
        let mut results = Vec::new();
        match &request.topic_partitions {
            // All partitions; those that have their leader already are left out of the answer.
            None => {
                for topic in self.image.topics().sorted() {
                    let partitions = topic.partitions.keys().copied();
                    let mut result = self.elect_in(&topic.name, partitions, unclean, &mut records);
                    result.partition_result.retain(|r| r.error_code != ErrorCode::ElectionNotNeeded.code());
                    results.push(result);
                }
            }
            Some(topics) => {
                for topic in topics {
                    let partitions = topic.partitions.iter().copied();
                    results.push(self.elect_in(&topic.topic, partitions, unclean, &mut records));
                }
            }
        }
        if records.len() > RECORDS_PER_REQUEST_MAX {
            return Err(super::too_many_records());
        }
        let response = ElectLeadersResponse { replica_election_results: results, ..Default::default() };
        Ok(Outcome::new(records, response))
    }

    fn elect_in(
        &self,
        topic: &str,
        partitions: impl Iterator<Item = i32>,
        unclean: bool,
        records: &mut Vec<VersionedRecord>,
    ) -> ReplicaElectionResult {
        let mut partition_result = Vec::new();
        for partition_id in partitions {
            let (error_code, error_message) = match self.elect_leader(topic, partition_id, unclean) {
                Ok(record) => {
                    records.push(record);
                    (0, None)
                }
                Err(error) => (error.code.code(), error.message),
            };
            partition_result.push(PartitionResult { partition_id, error_code, error_message });
        }
        ReplicaElectionResult { topic: topic.to_owned(), partition_result }
    }

    fn elect_leader(&self, name: &str, index: i32, unclean: bool) -> Result<VersionedRecord, ApiError> {
        let unknown = |message| ApiError::new(ErrorCode::UnknownTopicOrPartition, message);
        let topic = self.image.topic(name).ok_or_else(|| unknown(format!("No such topic as {name}")))?;
        let partition = topic.partition(index);
        let partition = partition.ok_or_else(|| unknown(format!("No such partition as {name}-{index}")))?;
        if if unclean { partition.has_leader() } else { partition.has_preferred_leader() } {
            return Err(ApiError::plain(ErrorCode::ElectionNotNeeded));
        }
        let may_lead = |id: i32| self.is_active(id);
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

    /// Gives partitions back to their preferred leaders.
    pub fn balance_leaders(&self) -> Pass {
        let partitions = self.partitions_where(|p| !p.has_preferred_leader());
        self.pass(&partitions, |_| Some(Election::Preferred))
    }

    /// Elects leaders for partitions that have none and may have one at the price of lost records.
    pub fn elect_unclean_leaders(&self) -> Pass {
        let partitions = self.partitions_where(|p| !p.has_leader());
        self.pass(&partitions, |topic| {
            self.unclean_election_enabled(&topic.name).then_some(Election::Unclean)
        })
    }

    fn pass(&self, partitions: &[Placed], election: impl Fn(&Topic) -> Option<Election>) -> Pass {
        let may_lead = |id: i32| self.is_active(id);
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
