//! Leaving: by request, or by session expiry.

use super::effects::ClassicContext;
use super::{ClassicGroup, GroupState};
use crate::error::MembershipError;
use crate::timers::Timer;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::leave_group_request::MemberIdentity;
use thalweg_wire::request::leave_group_response::MemberResponse;

impl ClassicGroup {
    /// Handles a LeaveGroup request: each member gets its own result, and the group rebalances once.
    pub(in super::super) fn leave(
        &mut self,
        cx: &mut ClassicContext<'_>,
        members: &[MemberIdentity],
    ) -> Vec<MemberResponse> {
        let mut has_left = false;
        let mut responses = Vec::with_capacity(members.len());
        for member in members {
            let result = self.leave_one(cx, member);
            has_left |= result.is_ok();
            responses.push(MemberResponse {
                member_id: member.member_id.clone(),
                group_instance_id: member.group_instance_id.clone(),
                error_code: result.err().map_or(ErrorCode::None, MembershipError::code).code(),
            });
        }
        if has_left {
            match self.state {
                GroupState::CompletingRebalance | GroupState::Stable => self.rebalance_or_complete_join(cx),
                GroupState::PreparingRebalance => self.complete_join_if_all_joined(cx),
                GroupState::Empty => {}
            }
        }
        responses
    }

    fn leave_one(
        &mut self,
        cx: &mut ClassicContext<'_>,
        member: &MemberIdentity,
    ) -> Result<(), MembershipError> {
        let instance_id = member.group_instance_id.as_deref();
        let reason = member.reason.as_deref().unwrap_or("not provided");
        let id = if member.member_id.is_empty() {
            // An administrator removes a static member by its instance id.
            let known = instance_id.and_then(|instance_id| self.static_members.get(instance_id));
            known.cloned().ok_or(MembershipError::UnknownMember)?
        } else {
            if !self.pending_members.contains_key(member.member_id.as_str()) {
                self.validate_member(&member.member_id, instance_id)?;
            }
            member.member_id.as_str().into()
        };
        tracing::info!(group = %self.id, member = %id, reason, "Member left");
        self.remove(cx, &id);
        Ok(())
    }

    /// Handles the expiry of a member's session or of a generated id.
    pub(in super::super) fn session_over(&mut self, cx: &mut ClassicContext<'_>, id: &str, timer: Timer) {
        let now_ms = cx.now.monotonic_ms;
        if let Some(deadline) = self.pending_members.get_mut(id) {
            if cx.timers.is_due(deadline, timer, now_ms) {
                tracing::info!(group = %self.id, member = id, "Pending member did not join in time");
                self.remove(cx, id);
                self.complete_join_after_removal(cx);
            }
            return;
        }
        let Some(member) = self.members.get_mut(id) else { return };
        if !cx.timers.is_due(&mut member.session, timer, now_ms) {
            return;
        }
        // A member that waits for the coordinator is alive. Its session restarts here too, in case that the
        // request ends in an error.
        if member.is_alive_by_waiting() {
            self.restart_session(cx.timers, now_ms, id);
            return;
        }
        tracing::info!(group = %self.id, member = id, "Member failed: session expired");
        self.remove(cx, id);
        match self.state {
            GroupState::CompletingRebalance | GroupState::Stable => self.rebalance_or_complete_join(cx),
            GroupState::PreparingRebalance | GroupState::Empty => self.complete_join_after_removal(cx),
        }
    }
}
