//! The classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, of classic groups and of classic
//! members in consumer groups.

use super::GroupShard;
use crate::answer::{GroupAnswer, join_error, sync_error};
use crate::classic::{ClassicGroup, Completion, PendingJoin};
use crate::client::ClientInfo;
use crate::error::MembershipError;
use crate::kind::Group;
use bytes::Bytes;
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_shard::{Moment, Ticket};
use thalweg_wire::request::leave_group_request::MemberIdentity;
use thalweg_wire::request::leave_group_response::MemberResponse;
use thalweg_wire::request::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, LeaveGroupRequest, LeaveGroupResponse,
    SyncGroupRequest,
};
use thalweg_wire::{ErrorCode, Uuid};

impl GroupShard {
    /// Handles JoinGroup. `unique` becomes part of a generated member id. The answer may take a whole
    /// rebalance.
    pub fn join_group(
        &mut self,
        client: &ClientInfo,
        request: &JoinGroupRequest,
        version: i16,
        unique: Uuid,
        ticket: Ticket,
        now: Moment,
    ) {
        let id = request.group_id.as_str();
        let joining = PendingJoin { client, request, version, ticket, unique };
        let is_new = match self.group(id) {
            Some(Group::Classic(_)) => false,
            Some(Group::Consumer(group)) if group.size() > 0 => {
                return self.join_consumer_group(&joining, now);
            }
            Some(group) if group.share().is_some() || !group.is_empty() => {
                let refusal = join_error("", MembershipError::InconsistentProtocol);
                return self.release_after_writes(vec![(ticket, GroupAnswer::JoinGroup(refusal))]);
            }
            // A group of another type without members is replaced by the classic group.
            Some(_) | None => true,
        };
        // Kafka forgets a consumer or streams group here, in memory alone: until the coordinator loads the
        // log again, its offsets neither expire nor can be deleted.
        if is_new && !request.member_id.is_empty() {
            let refusal = join_error(&request.member_id, MembershipError::UnknownMember);
            return self.release_after_writes(vec![(ticket, GroupAnswer::JoinGroup(refusal))]);
        }
        let mut replaced = None;
        if is_new {
            let id: Arc<str> = id.into();
            let group = ClassicGroup::new(id.clone(), now.wall_ms);
            replaced = self.groups.entry(id).or_default().set(Some(group.into()));
        }
        let mut tombstones = Vec::new();
        if let Some(group) = &replaced {
            group.push_tombstones(id, &mut tombstones);
        }
        let decided = self.with_classic_group(id, now, |group, cx| {
            group.join(cx, &joining);
            if is_new && cx.effects.write.is_none() {
                let completion = Completion::NewGroup { group: id.into(), ticket };
                cx.effects.write = Some((group.to_empty_record(), completion));
            }
        });
        let ((), effects) = decided.expect("the group exists, or was just made");
        self.apply_effects(effects);
        if replaced.is_some()
            && let Some(write) = self.writes.back_mut()
        {
            // One batch, so that the group is always of exactly one type.
            tombstones.append(&mut write.records);
            (write.records, write.replaced) = (tombstones, replaced);
        }
    }

    /// Handles SyncGroup with its assignments by member. The answer follows the acknowledgement of the
    /// leader's assignment.
    pub fn sync_group(
        &mut self,
        request: &SyncGroupRequest,
        given: &HashMap<String, Bytes>,
        ticket: Ticket,
        now: Moment,
    ) {
        if self.is_consumer_group(&request.group_id) {
            return self.sync_consumer_group(request, ticket, now);
        }
        let synced = self
            .with_classic_group(&request.group_id, now, |group, cx| group.sync(cx, request, given, ticket));
        match synced {
            Some(((), effects)) => self.apply_effects(effects),
            None => {
                let refusal = GroupAnswer::SyncGroup(sync_error(MembershipError::UnknownMember));
                self.release_after_writes(vec![(ticket, refusal)]);
            }
        }
    }

    pub fn heartbeat(&mut self, request: &HeartbeatRequest, ticket: Ticket, now: Moment) {
        if self.is_consumer_group(&request.group_id) {
            return self.heartbeat_consumer_group(request, ticket, now);
        }
        let beat = self.with_classic_group(&request.group_id, now, |group, cx| group.heartbeat(cx, request));
        let result = beat.map_or(Err(MembershipError::UnknownMember), |(result, _)| result);
        let error_code = result.err().map_or(ErrorCode::None, MembershipError::code).code();
        let response = HeartbeatResponse { error_code, ..HeartbeatResponse::default() };
        self.release_after_writes(vec![(ticket, GroupAnswer::Heartbeat(response))]);
    }

    /// Handles LeaveGroup, in the form of version 3 and later.
    pub fn leave_group(&mut self, request: &LeaveGroupRequest, ticket: Ticket, now: Moment) {
        if self.is_consumer_group(&request.group_id) {
            return self.leave_consumer_group(request, ticket, now);
        }
        let left =
            self.with_classic_group(&request.group_id, now, |group, cx| group.leave(cx, &request.members));
        let Some((members, mut effects)) = left else {
            let refuse = |member: &MemberIdentity| MemberResponse {
                member_id: member.member_id.clone(),
                group_instance_id: member.group_instance_id.clone(),
                error_code: MembershipError::UnknownMember.code().code(),
            };
            let members = request.members.iter().map(refuse).collect();
            let response = LeaveGroupResponse { members, ..LeaveGroupResponse::default() };
            return self.release_after_writes(vec![(ticket, GroupAnswer::LeaveGroup(response))]);
        };
        let response = LeaveGroupResponse { members, ..LeaveGroupResponse::default() };
        effects.answers.push((ticket, GroupAnswer::LeaveGroup(response)));
        self.apply_effects(effects);
    }
}
