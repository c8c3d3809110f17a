//! AlterPartitionReassignments and ListPartitionReassignments.

use std::sync::Arc;

use thalweg_hash::HashSet;
use thalweg_metadata::{BrokerId, PartitionIndex, PartitionRegistration, Topic, VersionedRecord};
use thalweg_security::acl::Operation::{Alter, Describe};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::alter_partition_reassignments_request::ReassignablePartition;
use thalweg_wire::request::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use thalweg_wire::request::list_partition_reassignments_response::{
    OngoingPartitionReassignment, OngoingTopicReassignment,
};
use thalweg_wire::request::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use super::entry::Access::Cluster;
use super::entry::{Api, Call, Decide, ELEMENTS_MAX};
use super::partition_change::{Election, PartitionChange};
use super::{ApiError, MessageBudget, Moment, Outcome, RECORDS_PER_REQUEST_MAX, State};

pub(super) const APIS: &[Api] = &[
    Api::new::<AlterPartitionReassignmentsRequest>(Cluster(Alter)).anywhere(ELEMENTS_MAX).forwarded(),
    Api::new::<ListPartitionReassignmentsRequest>(Cluster(Describe)).anywhere(ELEMENTS_MAX).forwarded(),
];

impl Decide for AlterPartitionReassignmentsRequest {
    fn decide(&self, state: &mut State, _: &Call, _: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        state.alter_partition_reassignments(self)
    }
}

impl Decide for ListPartitionReassignmentsRequest {
    fn decide(&self, state: &mut State, _: &Call, _: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        Ok(Outcome::answer(state.list_partition_reassignments(self)))
    }
}

impl State {
    pub fn alter_partition_reassignments(
        &self,
        request: &AlterPartitionReassignmentsRequest,
    ) -> Result<Outcome<AlterPartitionReassignmentsResponse>, ApiError> {
        let mut records = Vec::new();
        let mut responses = Vec::with_capacity(request.topics.len());
        let mut messages = MessageBudget::default();
        let repeated = repeated(request);
        for topic in &request.topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for target in &topic.partitions {
                let outcome = match repeated.contains(&(&*topic.name, target.partition_index)) {
                    true => Err(ApiError::new(ErrorCode::InvalidRequest, "Duplicate partition.")),
                    false => self.reassign(&topic.name, target, request.allow_replication_factor_change),
                };
                let (error_code, error_message) = match outcome {
                    Ok(record) => {
                        records.extend(record);
                        if records.len() > RECORDS_PER_REQUEST_MAX {
                            return Err(super::too_many_records());
                        }
                        (0, None)
                    }
                    Err(error) => (error.code.code(), messages.keep(error.message)),
                };
                let partition_index = target.partition_index;
                partitions.push(ReassignablePartitionResponse { partition_index, error_code, error_message });
            }
            responses.push(ReassignableTopicResponse { name: topic.name.clone(), partitions });
        }
        let response = AlterPartitionReassignmentsResponse {
            allow_replication_factor_change: request.allow_replication_factor_change
                || request.topics.is_empty(),
            responses,
            // As in Kafka, only a request without topics gets a message.
            error_message: request.topics.is_empty().then(String::new),
            ..Default::default()
        };
        Ok(Outcome::new(records, response))
    }

    fn reassign(
        &self,
        name: &str,
        target: &ReassignablePartition,
        allow_factor_change: bool,
    ) -> Result<Option<VersionedRecord>, ApiError> {
        let unknown = |message| ApiError::new(ErrorCode::UnknownTopicOrPartition, message);
        let index = PartitionIndex(target.partition_index);
        let topic = self.image.topic(name);
        let topic = topic.ok_or_else(|| unknown(format!("Unable to find a topic named {name}.")))?;
        let partition = topic.partition(index);
        let partition =
            partition.ok_or_else(|| unknown(format!("Unable to find partition {name}:{index}.")))?;
        match &target.replicas {
            None => self.cancel_reassignment(topic, index, partition),
            Some(replicas) => {
                let target = BrokerId::list(replicas);
                self.begin_reassignment(topic, index, partition, &target, allow_factor_change)
            }
        }
    }

    fn cancel_reassignment(
        &self,
        topic: &Topic,
        index: PartitionIndex,
        partition: &Arc<PartitionRegistration>,
    ) -> Result<Option<VersionedRecord>, ApiError> {
        if !partition.is_reassigning() {
            return Err(ApiError::plain(ErrorCode::NoReassignmentInProgress));
        }
        let without_added = |list: &[BrokerId]| -> Vec<BrokerId> {
            list.iter().copied().filter(|id| !partition.adding_replicas.contains(id)).collect()
        };
        let replicas = without_added(&partition.replicas);
        let mut isr = without_added(&partition.isr);
        let unclean = self.unclean_election_enabled(&topic.name);
        if isr.is_empty() {
            if !unclean {
                let message = format!(
                    "Unable to revert partition assignment for {}:{index} because it would require an unclean leader \
                     election.",
                    topic.name
                );
                return Err(ApiError::new(ErrorCode::InvalidReplicaAssignment, message));
            }
            isr = replicas.first().copied().into_iter().collect();
        }
        let may_lead = |id: BrokerId| self.is_active(id);
        let mut change = PartitionChange::new(self, topic, index, partition, &may_lead);
        if unclean {
            change.election = Election::Unclean;
        }
        (change.isr, change.replicas) = (isr, replicas);
        change.removing.clear();
        change.adding.clear();
        Ok(change.build())
    }

    fn begin_reassignment(
        &self,
        topic: &Topic,
        index: PartitionIndex,
        partition: &Arc<PartitionRegistration>,
        target: &[BrokerId],
        allow_factor_change: bool,
    ) -> Result<Option<VersionedRecord>, ApiError> {
        self.check_assignment(target, None)?;
        if !allow_factor_change {
            let present = partition.replicas.iter().chain(&partition.adding_replicas);
            let present: std::collections::BTreeSet<BrokerId> =
                present.copied().filter(|id| !partition.removing_replicas.contains(id)).collect();
            if present.len() != target.len() {
                let message =
                    format!("The replication factor is changed from {} to {}", present.len(), target.len());
                return Err(ApiError::new(ErrorCode::InvalidReplicationFactor, message));
            }
        }
        let missing_in = |from: &[BrokerId], of: &[BrokerId]| -> Vec<BrokerId> {
            let mut missing: Vec<BrokerId> = from.iter().copied().filter(|id| !of.contains(id)).collect();
            missing.sort_unstable();
            missing
        };
        let removing = missing_in(&partition.replicas, target);
        let adding = missing_in(target, &partition.replicas);
        let may_lead = |id: BrokerId| self.is_active(id);
        let mut change = PartitionChange::new(self, topic, index, partition, &may_lead);
        change.replicas = target.iter().chain(&removing).copied().collect();
        if !removing.is_empty() {
            change.removing = removing;
        }
        if !adding.is_empty() {
            change.adding = adding;
        }
        Ok(change.build())
    }

    pub fn list_partition_reassignments(
        &self,
        request: &ListPartitionReassignmentsRequest,
    ) -> ListPartitionReassignmentsResponse {
        let mut topics = Vec::new();
        match &request.topics {
            None => {
                for topic in self.image.topics().sorted() {
                    topics.extend(ongoing(topic, topic.partitions.keys().copied()));
                }
            }
            Some(requested_topics) => {
                for requested in requested_topics {
                    if let Some(topic) = self.image.topic(&requested.name) {
                        topics.extend(ongoing(
                            topic,
                            requested.partition_indexes.iter().copied().map(PartitionIndex),
                        ));
                    }
                }
            }
        }
        ListPartitionReassignmentsResponse { topics, error_message: None, ..Default::default() }
    }
}

/// Repeated partitions of a request, which are all refused, because each target would be decided on the same
/// assignment. Kafka's controller stops.
fn repeated(request: &AlterPartitionReassignmentsRequest) -> HashSet<(&str, i32)> {
    let (mut seen, mut repeated) = (HashSet::default(), HashSet::default());
    for topic in &request.topics {
        for partition in &topic.partitions {
            let named = (&*topic.name, partition.partition_index);
            if !seen.insert(named) {
                repeated.insert(named);
            }
        }
    }
    repeated
}

fn ongoing(
    topic: &Topic,
    partitions: impl Iterator<Item = PartitionIndex>,
) -> Option<OngoingTopicReassignment> {
    let mut found = Vec::new();
    for index in partitions {
        if let Some(partition) = topic.partition(index).filter(|partition| partition.is_reassigning()) {
            found.push(OngoingPartitionReassignment {
                partition_index: index.0,
                replicas: BrokerId::numbers(&partition.replicas),
                adding_replicas: BrokerId::numbers(&partition.adding_replicas),
                removing_replicas: BrokerId::numbers(&partition.removing_replicas),
            });
        }
    }
    let name = topic.name.to_string();
    (!found.is_empty()).then_some(OngoingTopicReassignment { name, partitions: found })
}
