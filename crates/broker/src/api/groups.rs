//! The APIs of classic consumer groups: JoinGroup (11), SyncGroup (14), Heartbeat (12), LeaveGroup (13), OffsetCommit
//! (8), OffsetFetch (9), OffsetDelete (47), ListGroups (16), DescribeGroups (15), DeleteGroups (42).
//!
//! The coordinator (`thalweg_coordinator::group`) does the work; requests are passed to it with their client.

use super::Call;
use crate::broker::Broker;
use std::sync::Arc;
use thalweg_coordinator::group::ClientInfo;
use thalweg_wire::request::*;

fn client(call: &Call) -> ClientInfo {
    ClientInfo::new(call.client_id.as_deref(), call.peer.address.ip())
}

/// JoinGroup, versions 0 to 9.
pub async fn join(broker: Arc<Broker>, call: Arc<Call>, request: JoinGroupRequest) -> JoinGroupResponse {
    broker.groups.join_group(&client(&call), request, call.version).await
}

/// SyncGroup, versions 0 to 5.
pub async fn sync(broker: Arc<Broker>, call: Arc<Call>, request: SyncGroupRequest) -> SyncGroupResponse {
    broker.groups.sync_group(request, call.version).await
}

/// Heartbeat, versions 0 to 4.
pub async fn heartbeat(broker: Arc<Broker>, call: Arc<Call>, request: HeartbeatRequest) -> HeartbeatResponse {
    broker.groups.heartbeat(request, call.version).await
}

/// LeaveGroup, versions 0 to 5.
pub async fn leave(broker: Arc<Broker>, call: Arc<Call>, request: LeaveGroupRequest) -> LeaveGroupResponse {
    broker.groups.leave_group(request, call.version).await
}

/// OffsetCommit, versions 2 to 10.
pub async fn commit(
    broker: Arc<Broker>,
    call: Arc<Call>,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    broker.groups.offset_commit(&client(&call), request, call.version).await
}

/// OffsetFetch, versions 1 to 10.
pub async fn fetch(broker: Arc<Broker>, call: Arc<Call>, request: OffsetFetchRequest) -> OffsetFetchResponse {
    broker.groups.offset_fetch(request, call.version).await
}

/// OffsetDelete, version 0.
pub async fn delete_offsets(
    broker: Arc<Broker>,
    call: Arc<Call>,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    broker.groups.offset_delete(request, call.version).await
}

/// ListGroups, versions 0 to 5.
pub async fn list(broker: Arc<Broker>, call: Arc<Call>, request: ListGroupsRequest) -> ListGroupsResponse {
    broker.groups.list_groups(request, call.version).await
}

/// DescribeGroups, versions 0 to 6.
pub async fn describe(
    broker: Arc<Broker>,
    call: Arc<Call>,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    broker.groups.describe_groups(request, call.version).await
}

/// DeleteGroups, versions 0 to 2.
pub async fn delete(
    broker: Arc<Broker>,
    call: Arc<Call>,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    broker.groups.delete_groups(request, call.version).await
}
