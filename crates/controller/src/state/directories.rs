//! AssignReplicasToDirs: a broker reports the directories of its replicas.

use std::collections::BTreeMap;

use thalweg_metadata::{BrokerId, BrokerRegistration, PartitionIndex, PartitionRegistration};
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
                            if begins_again(&broker, registration) {
                                change.lost = Some((broker.id, ReplicaLog::Gone));
                            }
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

/// Whether a broker that reports a replica's directory has begun its log again. The directory that is known is none of its
/// online ones, so it did not move the log. No replica is taken into the ISR in such a directory: where this one is in sync or
/// eligible, it became so with the log that it had before.
fn begins_again(broker: &BrokerRegistration, partition: &PartitionRegistration) -> bool {
    let is_away = |known| !broker.has_online_directory(known);
    partition.replicas.len() > 1 && partition.directory(broker.id).is_some_and(is_away)
}
