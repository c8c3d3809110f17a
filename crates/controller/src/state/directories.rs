//! AssignReplicasToDirs: a broker reports the directories of its replicas.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_metadata::{
    BrokerId, BrokerRegistration, DIRECTORY_FULL, DIRECTORY_LOST, PartitionIndex, PartitionRegistration,
    Topic, TopicIdPartition, VersionedRecord,
};
use thalweg_security::acl::Operation::ClusterAction;
use thalweg_wire::request::assign_replicas_to_dirs_response::{
    DirectoryData, PartitionData, TopicData as TopicResult,
};
use thalweg_wire::request::{AssignReplicasToDirsRequest, AssignReplicasToDirsResponse};
use thalweg_wire::{ErrorCode, Uuid};

use super::elections::RegistrationChange;
use super::entry::Access::Cluster;
use super::entry::{Api, Call, Decide, ELEMENTS_OF_BROKERS_MAX};
use super::partition_change::{PartitionChange, ReplicaLog};
use super::{ApiError, Moment, Outcome, State};

pub(super) const APIS: &[Api] = &[Api::new::<AssignReplicasToDirsRequest>(Cluster(ClusterAction))
    .anywhere(ELEMENTS_OF_BROKERS_MAX)
    .in_batches()];

impl Decide for AssignReplicasToDirsRequest {
    fn decide(&self, state: &mut State, _: &Call, _: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        state.assign_replicas_to_dirs(self)
    }
}

impl State {
    pub fn assign_replicas_to_dirs(
        &mut self,
        request: &AssignReplicasToDirsRequest,
    ) -> Result<Outcome<AssignReplicasToDirsResponse>, ApiError> {
        if !self.metadata_version().has_directories() {
            let message = "Directory assignment is not supported yet.";
            return Err(ApiError::new(ErrorCode::UnsupportedVersion, message));
        }
        let broker = self.check_broker_epoch(BrokerId(request.broker_id), request.broker_epoch)?;
        let mut records = Vec::new();
        let mut offline: BTreeSet<TopicIdPartition> = BTreeSet::new();
        let mut assigned: BTreeSet<TopicIdPartition> = BTreeSet::new();
        let mut directories = Vec::with_capacity(request.directories.len());
        let mut online: BTreeMap<Uuid, bool> = BTreeMap::new();
        for directory in &request.directories {
            let is_online =
                *online.entry(directory.id).or_insert_with(|| broker.has_online_directory(directory.id));
            let mut topics = Vec::with_capacity(directory.topics.len());
            for requested in &directory.topics {
                let topic = self.image.topic_by_id(requested.topic_id);
                let mut partitions = Vec::with_capacity(requested.partitions.len());
                for partition in &requested.partitions {
                    let index = PartitionIndex(partition.partition_index);
                    let code = match topic.map(|topic| (topic, topic.partition(index))) {
                        None => ErrorCode::UnknownTopicId,
                        Some((_, None)) => ErrorCode::UnknownTopicOrPartition,
                        Some((_, Some(registration))) if !registration.is_replica(broker.id) => {
                            ErrorCode::NotLeaderOrFollower
                        }
                        // A replica cannot be in two directories.
                        Some(_) if !assigned.insert((requested.topic_id, index)) => ErrorCode::InvalidRequest,
                        Some((topic, Some(registration))) => {
                            records.extend(self.assign(&broker, topic, index, registration, directory.id));
                            if !is_online {
                                offline.insert((requested.topic_id, index));
                            }
                            ErrorCode::None
                        }
                    };
                    partitions.push(PartitionData { partition_index: index.0, error_code: code.code() });
                }
                topics.push(TopicResult { topic_id: requested.topic_id, partitions });
            }
            directories.push(DirectoryData { id: directory.id, topics });
        }
        let id = broker.id;
        // Records that do not fit are reported when they are prepared.
        let left = self.staged(&records, |state| state.leave_offline(id, &offline));
        records.extend(left.unwrap_or_default());
        Ok(Outcome::new(records, AssignReplicasToDirsResponse { directories, ..Default::default() }))
    }
}

impl State {
    /// The record that puts a replica into a directory.
    fn assign(
        &self,
        broker: &BrokerRegistration,
        topic: &Topic,
        index: PartitionIndex,
        partition: &PartitionRegistration,
        directory: Uuid,
    ) -> Option<VersionedRecord> {
        let may_lead = |id: BrokerId| self.is_active(id);
        let mut change = PartitionChange::new(self, topic, index, partition, &may_lead);
        change.set_directory(broker.id, directory);
        let log = log_of(broker, partition, directory);
        change.lost = (log != ReplicaLog::Kept).then_some((broker.id, log));
        change.build()
    }

    /// The records for partitions whose replica the broker has put into an offline directory.
    fn leave_offline(&self, broker: BrokerId, offline: &BTreeSet<TopicIdPartition>) -> Vec<VersionedRecord> {
        let placed = offline.iter().filter_map(|(topic, index)| {
            let topic = self.image.topic_by_id(*topic)?;
            Some((topic.clone(), *index, topic.partition(*index)?.clone()))
        });
        let (placed, mut records): (Vec<_>, _) = (placed.collect(), Vec::new());
        self.update_partitions(RegistrationChange::Leave(&[broker]), &placed, &mut records);
        records
    }
}

/// The state of a log whose directory is reported. If the known directory is not online, the log was not
/// moved from there, but created empty. A replica that is in sync or eligible became so with its earlier log,
/// because no replica joins the ISR in an offline directory. `DIRECTORY_LOST` reports a log that became
/// incomplete under its broker, `DIRECTORY_FULL` a complete log that was handed over for lack of room. A
/// broker also reports one of these two first if the known directory is missing and its log never moved
/// there.
fn log_of(broker: &BrokerRegistration, partition: &PartitionRegistration, reported: Uuid) -> ReplicaLog {
    let is_reported_later = reported == DIRECTORY_FULL || reported == DIRECTORY_LOST;
    match partition.directory(broker.id) {
        _ if partition.replicas.len() == 1 => ReplicaLog::Kept,
        // An earlier report of a full directory may arrive after the report of the loss.
        Some(known) if known == DIRECTORY_LOST && reported != DIRECTORY_LOST => ReplicaLog::Damaged,
        _ if is_reported_later => ReplicaLog::Kept,
        Some(known) if known == DIRECTORY_FULL => ReplicaLog::Kept,
        Some(known) if !broker.has_online_directory(known) => ReplicaLog::Gone,
        _ => ReplicaLog::Kept,
    }
}
