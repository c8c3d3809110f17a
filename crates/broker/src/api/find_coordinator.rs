//! FindCoordinator (key 10), versions 0 to 6: the broker that coordinates a group, the transactions of an id,
//! or the state of a share partition.
//!
//! The coordinator is the leader of the partition of `__consumer_offsets`, `__transaction_state` or
//! `__share_group_state` that the name hashes to. The first request creates the topic. Version 4 takes
//! several keys (KIP-699). Version 6 finds coordinators of share partitions (KIP-932), for brokers only; a
//! share partition is named `group:topic id:partition`.

use super::Call;
use super::entry::{Api, ByResource, later, not_on_cluster};
use super::serve::auto_create;
use crate::authorization::{Denials, Permissions};
use crate::broker::Broker;
use std::sync::Arc;
use thalweg_metadata::Image;
use thalweg_metadata::topic_name::{OFFSETS, SHARE_STATE, TRANSACTIONS};
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_shard::partition_for;
use thalweg_share_groups::is_coordinator_key;
use thalweg_wire::request::find_coordinator_response::Coordinator;
use thalweg_wire::request::{FindCoordinatorRequest, FindCoordinatorResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api =
    Api::new(ApiKey::FindCoordinator, 0..=6, ByResource, |b, c, d| later(b, c, d, handle));

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;
/// The first version that finds coordinators of share partitions.
const SHARE_FROM: i16 = 6;
/// The first version with several keys (KIP-699).
const SEVERAL_KEYS_FROM: i16 = 4;
/// A type without coordinators.
const NO_TYPE: i8 = -1;

/// Finds the coordinator of each key.
pub async fn handle(
    broker: Arc<Broker>,
    call: Arc<Call>,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let batched = call.version >= SEVERAL_KEYS_FROM;
    let keys = if batched { request.coordinator_keys } else { vec![request.key] };
    let key_type = match request.key_type {
        SHARE if call.version < SHARE_FROM => NO_TYPE,
        key_type => key_type,
    };
    if key_type == SHARE && !call.permissions.may_on_cluster(Operation::ClusterAction) {
        let request = FindCoordinatorRequest { coordinator_keys: keys, key_type, ..Default::default() };
        return not_on_cluster(&request, call.version);
    }
    let denied = Denials::among(&keys, |key| may_find(&call.permissions, key_type, key));
    let is_found = |place: usize| !denied.contains(place) && is_name(key_type, &keys[place]);
    if let Some(topic) = topic(key_type)
        && (0..keys.len()).any(is_found)
        && broker.image().topic(topic).is_none()
    {
        auto_create::create(&broker, vec![topic.to_owned()], None).await;
    }
    let image = broker.image();
    let found = keys.into_iter().enumerate().map(|(place, key)| match denied.contains(place) {
        true => {
            let (error, words) = denial(key_type);
            refused(key, error, Some(if batched { "" } else { words }))
        }
        false => find(&image, &call.peer.listener, key_type, key),
    });
    let mut coordinators: Vec<Coordinator> = found.collect();
    if batched {
        return FindCoordinatorResponse { coordinators, ..Default::default() };
    }
    let one = coordinators.pop().expect("one key was asked for");
    FindCoordinatorResponse {
        error_code: one.error_code,
        error_message: one.error_message,
        node_id: one.node_id,
        host: one.host,
        port: one.port,
        ..Default::default()
    }
}

/// The topic whose leaders coordinate keys of this type.
fn topic(key_type: i8) -> Option<&'static str> {
    match key_type {
        GROUP => Some(OFFSETS),
        TRANSACTION => Some(TRANSACTIONS),
        SHARE => Some(SHARE_STATE),
        _ => None,
    }
}

/// True if the key is a well-formed name for this type.
fn is_name(key_type: i8, key: &str) -> bool {
    key_type != SHARE || is_coordinator_key(key)
}

fn may_find(permissions: &Permissions, key_type: i8, key: &str) -> bool {
    match key_type {
        GROUP => permissions.may(Operation::Describe, ResourceType::Group, key),
        TRANSACTION => permissions.may(Operation::Describe, ResourceType::TransactionalId, key),
        // A type without coordinators needs no permission: the answer is INVALID_REQUEST.
        _ => true,
    }
}

fn denial(key_type: i8) -> (ErrorCode, &'static str) {
    match key_type {
        TRANSACTION => {
            (ErrorCode::TransactionalIdAuthorizationFailed, "Transactional Id authorization failed.")
        }
        _ => (ErrorCode::GroupAuthorizationFailed, "Group authorization failed."),
    }
}

fn refused(key: String, error: ErrorCode, message: Option<&str>) -> Coordinator {
    Coordinator {
        key,
        node_id: -1,
        port: -1,
        error_code: error.code(),
        error_message: message.map(str::to_owned),
        ..Default::default()
    }
}

fn find(image: &Image, listener: &str, key_type: i8, key: String) -> Coordinator {
    let Some(topic) = topic(key_type) else {
        let message = "Only groups, transactions and, from version 6 on, share partitions have a coordinator";
        return refused(key, ErrorCode::InvalidRequest, Some(message));
    };
    if !is_name(key_type, &key) {
        let message = "Expected the name of a share partition: group:topic id:partition";
        return refused(key, ErrorCode::InvalidRequest, Some(message));
    }
    let partitions = image.topic(topic).map_or(0, |topic| topic.partitions.len());
    let Ok(count @ 1..) = i32::try_from(partitions) else {
        return refused(key, ErrorCode::CoordinatorNotAvailable, None);
    };
    let leader = image.partition(topic, partition_for(&key, count)).map(|partition| partition.leader);
    let endpoint =
        leader.and_then(|id| image.broker(id)).filter(|broker| !broker.fenced).and_then(|broker| {
            let endpoint = broker.endpoint(listener)?;
            Some((broker.id.0, endpoint.host.clone(), i32::from(endpoint.port)))
        });
    match endpoint {
        Some((node_id, host, port)) => Coordinator { key, node_id, host, port, ..Default::default() },
        None => refused(key, ErrorCode::CoordinatorNotAvailable, None),
    }
}
