//! AlterPartition: a leader proposes in-sync replicas.

use std::collections::BTreeSet;
use std::sync::Arc;

use thalweg_metadata::{
    BrokerId, LeaderRecoveryState, NO_LEADER_CHANGE, PartitionIndex, PartitionRegistration, Topic,
    VersionedRecord,
};
use thalweg_security::acl::Operation::ClusterAction;
use thalweg_wire::request::alter_partition_request::{BrokerState, PartitionData};
use thalweg_wire::request::alter_partition_response::{
    PartitionData as PartitionResult, TopicData as TopicResult,
};
use thalweg_wire::request::{AlterPartitionRequest, AlterPartitionResponse};
use thalweg_wire::{ErrorCode, MetadataRecord, Uuid};

use super::entry::Access::Cluster;
use super::entry::{Api, Call, Decide, ELEMENTS_OF_BROKERS_MAX};
use super::partition_change::{Election, PartitionChange};
use super::{ApiError, Moment, Outcome, State};

pub(super) const APIS: &[Api] = &[Api::new::<AlterPartitionRequest>(Cluster(ClusterAction))
    .anywhere(ELEMENTS_OF_BROKERS_MAX)
    .in_batches()];

impl Decide for AlterPartitionRequest {
    fn decide(&self, state: &mut State, call: &Call, _: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        state.alter_partition(self, call.version)
    }
}

impl State {
    pub fn alter_partition(
        &self,
        request: &AlterPartitionRequest,
        version: i16,
    ) -> Result<Outcome<AlterPartitionResponse>, ApiError> {
        let broker = BrokerId(request.broker_id);
        self.check_broker_epoch(broker, request.broker_epoch)?;
        let mut records = Vec::new();
        let mut topics = Vec::with_capacity(request.topics.len());
        let mut decided: BTreeSet<(Uuid, i32)> = BTreeSet::new();
        for topic_data in &request.topics {
            let topic = self.image.topic_by_id(topic_data.topic_id);
            let mut partitions = Vec::with_capacity(topic_data.partitions.len());
            for data in &topic_data.partitions {
                let outcome = match topic {
                    None => Err(ErrorCode::UnknownTopicId),
                    // The previous proposal has changed the partition's epoch.
                    Some(_) if !decided.insert((topic_data.topic_id, data.partition_index)) => {
                        Err(ErrorCode::InvalidUpdateVersion)
                    }
                    Some(topic) => self.propose(broker, topic, data, version, &mut records),
                };
                partitions.push(outcome.unwrap_or_else(|code| PartitionResult {
                    partition_index: data.partition_index,
                    error_code: code.code(),
                    ..Default::default()
                }));
            }
            topics.push(TopicResult { topic_id: topic_data.topic_id, partitions });
        }
        log_raised_epochs(broker, &records);
        Ok(Outcome::new(records, AlterPartitionResponse { topics, ..Default::default() }))
    }

    fn propose(
        &self,
        broker: BrokerId,
        topic: &Topic,
        data: &PartitionData,
        version: i16,
        records: &mut Vec<VersionedRecord>,
    ) -> Result<PartitionResult, ErrorCode> {
        let index = PartitionIndex(data.partition_index);
        let partition = topic.partition(index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let isr = proposed_isr(data, version);
        if State::is_passed_by(partition, data.leader_epoch) && partition.is_replica(broker) {
            records.extend(self.raised(topic, index, partition, broker, data.leader_epoch));
            return Err(ErrorCode::NotController);
        }
        self.check_proposal(broker, partition, data, &isr)?;
        let may_lead = |id: BrokerId| self.is_active(id);
        let mut change = PartitionChange::new(self, topic, index, partition, &may_lead);
        if self.unclean_election_enabled(&topic.name) {
            change.election = Election::Unclean;
        }
        change.isr = isr.iter().map(|state| BrokerId(state.broker_id)).collect();
        if let Some(state) = LeaderRecoveryState::from_id(data.leader_recovery_state) {
            change.recovery = state;
        }
        let mut changed: Arc<PartitionRegistration> = partition.clone();
        if let Some(record) = change.build() {
            let MetadataRecord::PartitionChange(change) = &record.record else {
                unreachable!("a partition is changed by a PartitionChangeRecord")
            };
            let merged = partition.merge(change).map_err(|_| ErrorCode::UnknownServerError)?;
            changed = Arc::new(merged);
            let new_leader = change.leader != NO_LEADER_CHANGE && change.leader != broker.0;
            records.push(record);
            if new_leader {
                // The change completed a reassignment that moves leadership away: both a record and an error.
                return Err(ErrorCode::NewLeaderElected);
            }
        }
        Ok(PartitionResult {
            partition_index: index.0,
            error_code: 0,
            leader_id: changed.leader.0,
            leader_epoch: changed.leader_epoch,
            isr: BrokerId::numbers(&changed.isr),
            leader_recovery_state: changed.leader_recovery_state.id(),
            partition_epoch: changed.partition_epoch.0,
        })
    }

    fn check_proposal(
        &self,
        broker: BrokerId,
        partition: &PartitionRegistration,
        data: &PartitionData,
        isr: &[BrokerState],
    ) -> Result<(), ErrorCode> {
        if data.leader_epoch > partition.leader_epoch || data.partition_epoch > partition.partition_epoch.0 {
            // The leader has a newer epoch than this controller, so another controller must have taken over.
            return Err(ErrorCode::NotController);
        }
        if data.leader_epoch < partition.leader_epoch {
            return Err(ErrorCode::FencedLeaderEpoch);
        }
        if broker != partition.leader {
            return Err(ErrorCode::InvalidRequest);
        }
        if data.partition_epoch < partition.partition_epoch.0 {
            return Err(ErrorCode::InvalidUpdateVersion);
        }
        let ids: Vec<BrokerId> = isr.iter().map(|state| BrokerId(state.broker_id)).collect();
        let foreign = ids.iter().any(|id| !partition.is_replica(*id));
        let distinct: BTreeSet<BrokerId> = ids.iter().copied().collect();
        let twice = distinct.len() < ids.len();
        if ids.is_empty() || twice || foreign || !ids.contains(&partition.leader) {
            return Err(ErrorCode::InvalidRequest);
        }
        let recovery =
            LeaderRecoveryState::from_id(data.leader_recovery_state).ok_or(ErrorCode::InvalidRequest)?;
        if recovery == LeaderRecoveryState::Recovering
            && (ids.len() > 1 || partition.leader_recovery_state == LeaderRecoveryState::Recovered)
        {
            return Err(ErrorCode::InvalidRequest);
        }
        let eligible = |state: &BrokerState| {
            let id = BrokerId(state.broker_id);
            self.image.broker(id).is_some_and(|registration| {
                // A log in an unknown directory cannot be distinguished from the lost one.
                let is_known = partition.isr.contains(&id)
                    || partition
                        .directory(id)
                        .is_some_and(|directory| registration.has_online_directory(directory));
                registration.is_active()
                    && is_known
                    && (state.broker_epoch == -1 || state.broker_epoch == registration.epoch.0)
            })
        };
        if isr.iter().all(eligible) { Ok(()) } else { Err(ErrorCode::IneligibleReplica) }
    }
}

/// Logs the partitions whose leader epochs this decision raises.
fn log_raised_epochs(broker: BrokerId, records: &[VersionedRecord]) {
    let raised =
        records.iter().filter(|record| matches!(record.record, MetadataRecord::Partition(_))).count();
    if raised > 0 {
        tracing::warn!(
            %broker, partitions = raised,
            "A broker has later leader epochs in its logs than this controller, whose metadata log must be an older copy: raised \
             them. All other changes since that copy are lost"
        );
    }
}

/// The proposed ISR. Before version 3 it has no broker epochs.
fn proposed_isr(data: &PartitionData, version: i16) -> Vec<BrokerState> {
    if version >= 3 {
        return data.new_isr_with_epochs.clone();
    }
    data.new_isr.iter().map(|id| BrokerState { broker_id: *id, broker_epoch: -1 }).collect()
}
