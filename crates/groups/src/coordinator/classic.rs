//! The classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, in the form of each version.

use super::GroupCoordinator;
use crate::answer::{GroupAnswer, join_error, sync_error};
use crate::client::ClientInfo;
use crate::error::MembershipError;
use bytes::Bytes;
use thalweg_hash::HashMap;
use thalweg_shard::{RequestError, Unavailability};
use thalweg_wire::request::leave_group_request::MemberIdentity;
use thalweg_wire::request::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use thalweg_wire::{ErrorCode, Uuid};

/// Maximum number of protocols of a member. Kafka has no such limit; clients offer one per configured
/// assignor.
const PROTOCOLS_MAX: usize = 1_000;
/// Members removed under one hold of a shard's lock.
const LEAVING_AT_ONCE: usize = 1_000;

impl GroupCoordinator {
    /// JoinGroup, versions 0 to 9. The answer may take up to the group's rebalance timeout.
    pub async fn join_group(
        &self,
        client: &ClientInfo,
        mut request: JoinGroupRequest,
        version: i16,
    ) -> JoinGroupResponse {
        if version == 0 {
            request.rebalance_timeout_ms = request.session_timeout_ms;
        }
        let config = self.config();
        let mut response = if request.group_id.is_empty() {
            join_error(&request.member_id, MembershipError::InvalidGroupId)
        } else if !(config.session_timeout_ms_min..=config.session_timeout_ms_max)
            .contains(&request.session_timeout_ms)
        {
            join_error(&request.member_id, MembershipError::InvalidSessionTimeout)
        } else if request.protocols.len() > PROTOCOLS_MAX {
            join_error(&request.member_id, MembershipError::InconsistentProtocol)
        } else {
            let unique = Uuid::random();
            let answer = self.request(&request.group_id, |shard, ticket, now| {
                shard.join_group(client, &request, version, unique, ticket, now);
            });
            match answer.await {
                Ok(GroupAnswer::JoinGroup(response)) => response,
                Ok(_) => join_error("", RequestError::WrongAnswer.into()),
                Err(error) => join_error("", error.into()),
            }
        };
        // "No protocol" is encoded differently since version 7.
        if version >= 7 {
            response.protocol_name = response.protocol_name.filter(|name| !name.is_empty());
        } else {
            response.protocol_name.get_or_insert_default();
            response.protocol_type = None;
        }
        response
    }

    /// SyncGroup, versions 0 to 5.
    pub async fn sync_group(&self, mut request: SyncGroupRequest, version: i16) -> SyncGroupResponse {
        // The assignments are processed under a lock, so keep one entry per member: the last one.
        let given = std::mem::take(&mut request.assignments);
        let given: HashMap<String, Bytes> =
            given.into_iter().map(|given| (given.member_id, given.assignment)).collect();
        let mut response = if request.group_id.is_empty() {
            sync_error(MembershipError::InvalidGroupId)
        } else {
            let answer = self.request(&request.group_id, |shard, ticket, now| {
                shard.sync_group(&request, &given, ticket, now)
            });
            match answer.await {
                Ok(GroupAnswer::SyncGroup(response)) => response,
                Ok(_) => sync_error(RequestError::WrongAnswer.into()),
                Err(error) => sync_error(error.into()),
            }
        };
        if version < 5 {
            response.protocol_type = None;
            response.protocol_name = None;
        }
        response
    }

    /// Heartbeat, versions 0 to 4. While the group is being loaded every heartbeat succeeds, because members
    /// must not conclude that they were removed.
    pub async fn heartbeat(&self, request: HeartbeatRequest) -> HeartbeatResponse {
        let error = if request.group_id.is_empty() {
            MembershipError::InvalidGroupId
        } else {
            let answer =
                self.request(&request.group_id, |shard, ticket, now| shard.heartbeat(&request, ticket, now));
            match answer.await {
                Ok(GroupAnswer::Heartbeat(response)) => return response,
                Ok(_) => RequestError::WrongAnswer.into(),
                Err(Unavailability::Loading) => return HeartbeatResponse::default(),
                Err(error) => error.into(),
            }
        };
        HeartbeatResponse { error_code: error.code().code(), ..HeartbeatResponse::default() }
    }

    /// LeaveGroup, versions 0 to 5. Before version 3 one member leaves, and the member's error is the error
    /// of the response.
    pub async fn leave_group(&self, mut request: LeaveGroupRequest, version: i16) -> LeaveGroupResponse {
        if version < 3 {
            let member_id = std::mem::take(&mut request.member_id);
            request.members = vec![MemberIdentity { member_id, ..MemberIdentity::default() }];
        }
        let failed = |error: MembershipError| LeaveGroupResponse {
            error_code: error.code().code(),
            ..Default::default()
        };
        if request.group_id.is_empty() {
            return failed(MembershipError::InvalidGroupId);
        }
        let mut response = LeaveGroupResponse::default();
        let members = std::mem::take(&mut request.members);
        let mut rest = members.as_slice();
        loop {
            let (now_leaving, later) = rest.split_at(rest.len().min(LEAVING_AT_ONCE));
            request.members = now_leaving.to_vec();
            let answer = self
                .request(&request.group_id, |shard, ticket, now| shard.leave_group(&request, ticket, now));
            match answer.await {
                Ok(GroupAnswer::LeaveGroup(left)) if left.error_code == ErrorCode::None.code() => {
                    response.members.extend(left.members);
                }
                Ok(GroupAnswer::LeaveGroup(left)) => response = left,
                Ok(_) => response = failed(RequestError::WrongAnswer.into()),
                Err(error) => response = failed(error.into()),
            }
            rest = later;
            if rest.is_empty() || response.error_code != ErrorCode::None.code() {
                break;
            }
        }
        if version < 3 {
            if let [member] = response.members.as_slice() {
                response.error_code = member.error_code;
            }
            response.members.clear();
        }
        response
    }
}
