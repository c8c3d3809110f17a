//! Requests that involve a share group and its offsets at the share coordinator (Kafka's share half of
//! `GroupCoordinatorService`).
//!
//! Owns: the order of steps. The group records the intended change, the share coordinator makes the change,
//! and the group records the outcome. If a step or the broker fails, the group's record lets the next
//! heartbeat or request continue.

mod ends;
mod offsets;

use crate::states::{PersistError, Persister};
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::sync::Arc;
use thalweg_groups::{ClientInfo, GroupCoordinator, Initialization, SharePartitions};
use thalweg_membership::Peers;
use thalweg_metadata::{BrokerId, ImageCell, PartitionIndex};
use thalweg_replica::partition::Partitions;
use thalweg_shard::RequestError;
use thalweg_share::SharePartitionKey;
use thalweg_wire::request::delete_groups_response::DeletableGroupResult;
use thalweg_wire::request::{
    DeleteGroupsRequest, DeleteGroupsResponse, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse,
};
use thalweg_wire::{ErrorCode, Uuid};
use tokio::runtime::Handle;

/// Maximum number of concurrent requests to the share coordinator per group.
const AT_ONCE: usize = 1_000;

/// Dependencies of share group requests.
#[derive(Debug)]
pub struct ShareGroupParts {
    pub node_id: BrokerId,
    /// The groups coordinated here.
    pub groups: Arc<GroupCoordinator>,
    /// Access to the share coordinators.
    pub persister: Arc<Persister>,
    /// The partitions of this broker.
    pub partitions: Arc<Partitions>,
    /// The current image of the cluster.
    pub image: Arc<ImageCell>,
    /// Connections to other brokers.
    pub peers: Arc<Peers>,
}

/// Serves share group requests: orders the steps of the group and of its states at the share coordinator.
#[derive(Debug)]
pub struct ShareGroupService {
    parts: Arc<ShareGroupParts>,
    runtime: Handle,
}

impl ShareGroupService {
    /// Must be called within a tokio runtime.
    pub fn new(parts: ShareGroupParts) -> ShareGroupService {
        ShareGroupService { parts: Arc::new(parts), runtime: Handle::current() }
    }

    /// ShareGroupHeartbeat, version 1. States are initialized after the answer.
    pub async fn heartbeat(
        &self,
        client: &ClientInfo,
        request: &ShareGroupHeartbeatRequest,
    ) -> ShareGroupHeartbeatResponse {
        let (response, initialization) = self.parts.groups.share_heartbeat(client, request).await;
        if let Some(initialization) = initialization {
            let parts = Arc::clone(&self.parts);
            self.runtime.spawn(async move { parts.initialize_and_note(&initialization).await });
        }
        response
    }

    /// DeleteGroups, versions 0 to 2, for groups of all types: share groups lose their offsets first.
    pub async fn delete(&self, mut request: DeleteGroupsRequest) -> DeleteGroupsResponse {
        let parts = &self.parts;
        let mut refused = Vec::new();
        let ids: BTreeSet<String> = request.groups_names.iter().cloned().collect();
        for id in ids {
            let states_are_gone = match parts.groups.is_share_group(&id) {
                Ok(true) => parts.delete_states(&id).await,
                Ok(false) => Ok(()),
                // A share group that is loaded a moment later would be deleted without its states.
                Err(error) => Err(error.code()),
            };
            if let Err(error) = states_are_gone {
                request.groups_names.retain(|name| *name != id);
                refused.push(DeletableGroupResult { group_id: id, error_code: error.code() });
            }
        }
        let mut response = match request.groups_names.is_empty() {
            true => DeleteGroupsResponse::default(),
            false => parts.groups.delete_groups(request).await,
        };
        response.results.extend(refused);
        response
    }
}

impl ShareGroupParts {
    /// Initializes states, and records the outcome in the group: success if all were initialized, otherwise
    /// failure.
    async fn initialize_and_note(&self, initialization: &Initialization) {
        let failure = self.initialize(initialization).await.into_iter().find_map(|(_, result)| result.err());
        let group = &*initialization.group;
        if let Some(error) = failure {
            tracing::warn!(group, %error, "Failed to initialize share partitions");
        }
        if let Err(error) = self.note(initialization, failure.is_none()).await {
            tracing::warn!(group, %error, "Failed to write down the outcome of initializing share partitions");
        }
    }

    async fn note(&self, initialization: &Initialization, succeeded: bool) -> Result<(), RequestError> {
        let topics = initialization.offsets.iter();
        let partitions: SharePartitions =
            topics.map(|(topic, offsets)| (*topic, offsets.keys().copied().collect())).collect();
        let group = &initialization.group;
        let noted = self.groups.share_states_answered(group, &partitions, succeeded).await;
        match noted {
            // Like Kafka: if success cannot be recorded, the initialization is recorded as failed.
            Err(_) if succeeded => self.groups.share_states_answered(group, &partitions, false).await,
            other => other,
        }
    }

    /// Initializes states. Returns an outcome for each.
    async fn initialize(
        &self,
        initialization: &Initialization,
    ) -> Vec<((Uuid, i32), Result<(), PersistError>)> {
        let offsets = initialization.offsets.iter();
        let each: Vec<(Uuid, i32, i64)> = offsets
            .flat_map(|(topic, offsets)| offsets.iter().map(|(index, offset)| (*topic, *index, *offset)))
            .collect();
        let mut outcomes = Vec::with_capacity(each.len());
        for some in each.chunks(AT_ONCE) {
            let initialized = some.iter().map(|(topic, partition, offset)| {
                let key = key(&initialization.group, *topic, *partition);
                async move {
                    let epoch = initialization.state_epoch;
                    ((*topic, *partition), self.persister.initialize(&key, epoch, *offset).await)
                }
            });
            outcomes.extend(join_all(initialized).await);
        }
        outcomes
    }

    /// Deletes the states of a group that is about to be deleted.
    async fn delete_states(&self, id: &str) -> Result<(), ErrorCode> {
        let states = self.groups.delete_share_states(id).await.map_err(|error| error.code())?;
        let outcomes = self.delete(id, &states).await;
        match outcomes.into_iter().find_map(|(_, result)| result.err()) {
            Some(error) => {
                tracing::warn!(group = id, %error, "Failed to delete the states of a share group");
                Err(error.code())
            }
            None => Ok(()),
        }
    }

    /// Deletes states. Returns an outcome for each.
    async fn delete(
        &self,
        id: &str,
        states: &SharePartitions,
    ) -> Vec<((Uuid, i32), Result<(), PersistError>)> {
        let group: Arc<str> = id.into();
        let each: Vec<(Uuid, i32)> =
            states.iter().flat_map(|(topic, some)| some.iter().map(|index| (*topic, *index))).collect();
        let mut outcomes = Vec::with_capacity(each.len());
        for some in each.chunks(AT_ONCE) {
            let deleted = some.iter().map(|(topic, partition)| {
                let key = key(&group, *topic, *partition);
                async move { ((*topic, *partition), self.persister.delete(&key).await) }
            });
            outcomes.extend(join_all(deleted).await);
        }
        outcomes
    }
}

fn key(group: &Arc<str>, topic: Uuid, partition: i32) -> SharePartitionKey {
    SharePartitionKey { group: Arc::clone(group), topic, partition: PartitionIndex(partition) }
}
