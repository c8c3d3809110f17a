//! AssignReplicasToDirs: a broker reports the directories of its replicas.

use std::collections::BTreeMap;

use thalweg_metadata::{BrokerId, BrokerRegistration, DIRECTORY_LOST, PartitionIndex, PartitionRegistration};
use thalweg_wire::request::assign_replicas_to_dirs_response::{
    DirectoryData, PartitionData, TopicData as TopicResult,
};
use thalweg_wire::request::{AssignReplicasToDirsRequest, AssignReplicasToDirsResponse};
use thalweg_wire::{ErrorCode, Uuid};

use super::elections::Moving;
use super::partition_change::{PartitionChange, ReplicaLog};
use super::{ApiError, Outcome, State};

impl State {
    /// AssignReplicasToDirs.
    pub fn assign_replicas_to_dirs(
        &self,
        request: &AssignReplicasToDirsRequest,
    ) -> Result<Outcome<AssignReplicasToDirsResponse>, ApiError> {
        if !self.metadata_version().has_directories() {
            let message = "Directory assignment is not supported yet.";
            return Err(ApiError::new(ErrorCode::UnsupportedVersion, message));
        }
        let broker = self.check_broker_epoch(BrokerId(request.broker_id), request.broker_epoch)?;
        let may_lead = |id: BrokerId| self.is_active(id);
        let mut records = Vec::new();
        let mut offline = Vec::new();
        let mut directories = Vec::with_capacity(request.directories.len());
        let mut online: BTreeMap<Uuid, bool> = BTreeMap::new();
        for directory in &request.directories {
            let is_online =
                *online.entry(directory.id).or_insert_with(|| broker.has_online_directory(directory.id));
            let mut topics = Vec::with_capacity(directory.topics.len());
            for asked in &directory.topics {
                let topic = self.image.topic_by_id(asked.topic_id);
                let mut partitions = Vec::with_capacity(asked.partitions.len());
                for partition in &asked.partitions {
                    let index = PartitionIndex(partition.partition_index);
                    let code = match topic.map(|topic| (topic, topic.partition(index))) {
                        None => ErrorCode::UnknownTopicId,
                        Some((_, None)) => ErrorCode::UnknownTopicOrPartition,
                        Some((_, Some(registration))) if !registration.is_replica(broker.id) => {
                            ErrorCode::NotLeaderOrFollower
                        }
                        Some((topic, Some(registration))) => {
                            let mut change =
                                PartitionChange::new(self, topic, index, registration, &may_lead);
                            change.set_directory(broker.id, directory.id);
                            let log = log_of(&broker, registration);
                            change.lost = (log != ReplicaLog::Kept).then_some((broker.id, log));
                            records.extend(change.build());
                            if !is_online {
                                offline.push((topic.clone(), index, registration.clone()));
                            }
                            ErrorCode::None
                        }
                    };
                    partitions.push(PartitionData { partition_index: index.0, error_code: code.code() });
                }
                topics.push(TopicResult { topic_id: asked.topic_id, partitions });
            }
            directories.push(DirectoryData { id: directory.id, topics });
        }
        self.update_partitions(Moving::Leave(&[broker.id]), &offline, &mut records);
        Ok(Outcome::new(records, AssignReplicasToDirsResponse { directories, ..Default::default() }))
    }
}

/// The log of a replica whose directory is reported. If the directory that is known is none of the broker's online ones, the
/// log did not move from it: it begins again. No replica is taken into the ISR in such a directory: where this one is in sync
/// or eligible, it became so with the log that it had before. In a lost directory is a log that has become incomplete under its
/// broker, which says so by that.
fn log_of(broker: &BrokerRegistration, partition: &PartitionRegistration) -> ReplicaLog {
    match partition.directory(broker.id) {
        _ if partition.replicas.len() == 1 => ReplicaLog::Kept,
        Some(known) if known == DIRECTORY_LOST => ReplicaLog::Damaged,
        Some(known) if !broker.has_online_directory(known) => ReplicaLog::Gone,
        _ => ReplicaLog::Kept,
    }
}
