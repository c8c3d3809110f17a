//! The APIs of classic consumer groups: JoinGroup (11), SyncGroup (14), Heartbeat (12), LeaveGroup (13),
//! ListGroups (16), DescribeGroups (15), DeleteGroups (42). Members need READ on the group.
//!
//! The coordinator (`thalweg_groups`) does the work; requests are passed to it with their client.

use super::Call;
use super::entry::{Api, ByResource, Cost, later};
use crate::audit::{Changes, ClusterChange};
use std::collections::BTreeSet;
use thalweg_audit::Action;
use thalweg_groups::{ClientInfo, GroupCoordinator};
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_share_groups::ShareGroupService;
use thalweg_wire::request::delete_groups_response::DeletableGroupResult;
use thalweg_wire::request::describe_groups_response::DescribedGroup;
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const JOIN: Api = Api::new(ApiKey::JoinGroup, 0..=9, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| join(&b.groups, &c, r).await)
})
.waits();
pub(super) const HEARTBEAT: Api = Api::new(ApiKey::Heartbeat, 0..=4, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| heartbeat(&b.groups, &c, r).await)
});
pub(super) const LEAVE: Api = Api::new(ApiKey::LeaveGroup, 0..=5, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| leave(&b.groups, &c, r).await)
});
pub(super) const SYNC: Api = Api::new(ApiKey::SyncGroup, 0..=5, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| sync(&b.groups, &c, r).await)
})
.waits();
pub(super) const DESCRIBE: Api = Api::new(ApiKey::DescribeGroups, 0..=6, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| describe(&b.groups, &c, r).await)
});
pub(super) const LIST: Api = Api::new(ApiKey::ListGroups, 0..=5, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| list(&b.groups, &c, r).await)
})
.cost(Cost::Always);
pub(super) const DELETE: Api = Api::new(ApiKey::DeleteGroups, 0..=2, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| delete(&b.share_groups, &c, r).await)
})
.changing::<DeleteGroupsRequest>();

const DENIED: i16 = ErrorCode::GroupAuthorizationFailed as i16;
/// The first version of JoinGroup whose answer may lack a protocol name.
const NULL_PROTOCOL_NAME_FROM: i16 = 7;
/// The first version of SyncGroup with protocol type and name (KIP-559).
const PROTOCOL_FROM: i16 = 5;
/// The first version of DescribeGroups with authorized operations (KIP-430).
const OPERATIONS_FROM: i16 = 3;

pub(super) fn client(call: &Call) -> ClientInfo {
    ClientInfo::new(call.client_id.as_deref(), call.peer.address.ip())
}

/// True if the client may join the group.
pub(super) fn may_join(call: &Call, group: &str) -> bool {
    call.permissions.may(Operation::Read, ResourceType::Group, group)
}

/// JoinGroup, versions 0 to 9.
pub async fn join(groups: &GroupCoordinator, call: &Call, request: JoinGroupRequest) -> JoinGroupResponse {
    if !may_join(call, &request.group_id) {
        return JoinGroupResponse {
            error_code: DENIED,
            generation_id: -1,
            protocol_name: (call.version < NULL_PROTOCOL_NAME_FROM).then(String::new),
            ..Default::default()
        };
    }
    groups.join_group(&client(call), request, call.version).await
}

/// SyncGroup, versions 0 to 5.
pub async fn sync(groups: &GroupCoordinator, call: &Call, request: SyncGroupRequest) -> SyncGroupResponse {
    // As in Kafka, before any other check.
    if call.version >= PROTOCOL_FROM && (request.protocol_type.is_none() || request.protocol_name.is_none()) {
        let error_code = ErrorCode::InconsistentGroupProtocol.code();
        return SyncGroupResponse { error_code, ..Default::default() };
    }
    if !may_join(call, &request.group_id) {
        return SyncGroupResponse { error_code: DENIED, ..Default::default() };
    }
    groups.sync_group(request, call.version).await
}

/// Heartbeat, versions 0 to 4.
pub async fn heartbeat(
    groups: &GroupCoordinator,
    call: &Call,
    request: HeartbeatRequest,
) -> HeartbeatResponse {
    if !may_join(call, &request.group_id) {
        return HeartbeatResponse { error_code: DENIED, ..Default::default() };
    }
    groups.heartbeat(request).await
}

/// LeaveGroup, versions 0 to 5.
pub async fn leave(groups: &GroupCoordinator, call: &Call, request: LeaveGroupRequest) -> LeaveGroupResponse {
    if !may_join(call, &request.group_id) {
        return LeaveGroupResponse { error_code: DENIED, ..Default::default() };
    }
    groups.leave_group(request, call.version).await
}

/// ListGroups, versions 0 to 5: all groups for clients with DESCRIBE on the cluster, otherwise the groups
/// that the client may describe.
pub async fn list(groups: &GroupCoordinator, call: &Call, request: ListGroupsRequest) -> ListGroupsResponse {
    let permissions = &call.permissions;
    let may_all = permissions.may_also_on_cluster(Operation::Describe);
    let mut response = groups.list_groups(request).await;
    if !may_all {
        let may_describe = |id: &str| permissions.may_also(Operation::Describe, ResourceType::Group, id);
        response.groups.retain(|group| may_describe(&group.group_id));
    }
    response
}

/// DescribeGroups, versions 0 to 6.
pub async fn describe(
    groups: &GroupCoordinator,
    call: &Call,
    mut request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let permissions = &call.permissions;
    let mut denied = Vec::new();
    request.groups.retain(|id| {
        let may_describe = permissions.may(Operation::Describe, ResourceType::Group, id);
        if !may_describe {
            denied.push(DescribedGroup {
                group_id: id.clone(),
                error_code: DENIED,
                ..DescribedGroup::default()
            });
        }
        may_describe
    });
    let shows_operations = call.version >= OPERATIONS_FROM && request.include_authorized_operations;
    let mut response = groups.describe_groups(request, call.version).await;
    for group in response.groups.iter_mut().filter(|group| shows_operations && group.error_code == 0) {
        group.authorized_operations = permissions.operations(ResourceType::Group, &group.group_id);
    }
    response.groups.extend(denied);
    response
}

/// DeleteGroups, versions 0 to 2.
pub async fn delete(
    share_groups: &ShareGroupService,
    call: &Call,
    mut request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let mut denied = BTreeSet::new();
    request.groups_names.retain(|id| {
        let may_delete = call.permissions.may(Operation::Delete, ResourceType::Group, id);
        if !may_delete {
            denied.insert(id.clone());
        }
        may_delete
    });
    let mut response = share_groups.delete(request).await;
    let refused = |group_id| DeletableGroupResult { group_id, error_code: DENIED };
    response.results.extend(denied.into_iter().map(refused));
    response
}

impl ClusterChange for DeleteGroupsRequest {
    fn describe(&self, answer: &DeleteGroupsResponse, changes: &mut Changes<'_>) {
        for group in &answer.results {
            changes.note(Action::Delete, "Group", &group.group_id, String::new(), (group.error_code, None));
        }
    }
}
