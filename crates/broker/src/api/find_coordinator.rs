//! FindCoordinator (key 10), versions 0 to 6: the broker that coordinates a group.
//!
//! It is the leader of the partition of `__consumer_offsets` that the group's name falls on; the topic is created
//! when the first group is looked for. Version 4 asks for many at once (KIP-699). Transactions and share groups are
//! not served yet.

use super::Call;
use crate::auto_topics;
use crate::broker::Broker;
use crate::group::partition_for;
use std::sync::Arc;
use thalweg_metadata::topic_name::OFFSETS;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::find_coordinator_response::Coordinator;
use thalweg_wire::request::{FindCoordinatorRequest, FindCoordinatorResponse};

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

/// Finds the coordinator of each key.
pub async fn handle(
    broker: Arc<Broker>,
    call: Arc<Call>,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let batched = call.version >= 4;
    let keys = if batched { request.coordinator_keys } else { vec![request.key] };
    if request.key_type == GROUP && broker.image().topic(OFFSETS).is_none() {
        auto_topics::create(&broker, vec![OFFSETS.to_owned()], None).await;
    }
    let found = keys.into_iter().map(|key| find(&broker, &call.peer.listener, request.key_type, key));
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

fn find(broker: &Broker, listener: &str, key_type: i8, key: String) -> Coordinator {
    let refused = |key: String, error: ErrorCode, message: Option<&str>| Coordinator {
        key,
        node_id: -1,
        port: -1,
        error_code: error.code(),
        error_message: message.map(str::to_owned),
        ..Default::default()
    };
    match key_type {
        GROUP => {}
        TRANSACTION => {
            // With an error that clients repeat, a producer would wait a minute and not learn why.
            let message = "Transactions are not served by this broker yet";
            return refused(key, ErrorCode::UnsupportedVersion, Some(message));
        }
        _ => return refused(key, ErrorCode::InvalidRequest, Some("Only groups have a coordinator here")),
    }
    let image = broker.image();
    let partitions = image.topic(OFFSETS).map_or(0, |topic| topic.partitions.len());
    let Ok(count @ 1..) = i32::try_from(partitions) else {
        return refused(key, ErrorCode::CoordinatorNotAvailable, None);
    };
    let leader = image.partition(OFFSETS, partition_for(&key, count)).map(|partition| partition.leader);
    let endpoint =
        leader.and_then(|id| image.broker(id)).filter(|broker| !broker.fenced).and_then(|broker| {
            let endpoint = broker.endpoint(listener)?;
            Some((broker.id, endpoint.host.clone(), i32::from(endpoint.port)))
        });
    match endpoint {
        Some((node_id, host, port)) => Coordinator { key, node_id, host, port, ..Default::default() },
        None => refused(key, ErrorCode::CoordinatorNotAvailable, None),
    }
}
