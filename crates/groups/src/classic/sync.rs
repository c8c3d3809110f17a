//! SyncGroup and Heartbeat: the leader sends the assignment of a generation, and the other members wait for
//! their parts.

use super::effects::{ClassicContext, Completion};
use super::{ClassicGroup, GroupState};
use crate::error::MembershipError;
use crate::timers::Timer;
use bytes::Bytes;
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_shard::{Ticket, WriteError};
use thalweg_wire::request::{HeartbeatRequest, SyncGroupRequest, SyncGroupResponse};

impl ClassicGroup {
    /// Handles a SyncGroup request.
    pub(in super::super) fn sync(
        &mut self,
        cx: &mut ClassicContext<'_>,
        request: &SyncGroupRequest,
        given: &HashMap<String, Bytes>,
        ticket: Ticket,
    ) {
        if let Err(error) = self.validate_sync(request) {
            return cx.refuse_sync(ticket, error);
        }
        let id = request.member_id.as_str();
        match self.state {
            GroupState::Empty => cx.refuse_sync(ticket, MembershipError::UnknownMember),
            GroupState::PreparingRebalance => cx.refuse_sync(ticket, MembershipError::RebalanceInProgress),
            GroupState::Stable => {
                self.has_synced(cx, id);
                let assignment = self.members[id].assignment.clone();
                cx.answer_sync(ticket, self.sync_response(assignment));
            }
            GroupState::CompletingRebalance => {
                let member = self.members.get_mut(id).expect("whoever syncs was validated");
                if let Some(earlier) = member.awaiting_sync.replace(ticket) {
                    // A second request of the member means that the connection of the first is lost.
                    cx.refuse_sync(earlier, MembershipError::RebalanceInProgress);
                }
                self.has_synced(cx, id);
                if self.is_leader(id) && !self.is_assigned {
                    self.write_assignment(cx, given);
                }
            }
        }
    }

    fn validate_sync(&self, request: &SyncGroupRequest) -> Result<(), MembershipError> {
        self.validate_member(&request.member_id, request.group_instance_id.as_deref())?;
        if request.generation_id != self.generation {
            return Err(MembershipError::IllegalGeneration);
        }
        // Before version 5 a request has neither field.
        let differs = |theirs: &Option<String>, ours: &Option<String>| {
            theirs.is_some() && ours.is_some() && theirs != ours
        };
        if differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol_name, &self.protocol_name)
        {
            return Err(MembershipError::InconsistentProtocol);
        }
        Ok(())
    }

    /// Writes the leader's assignment; members get it when it is acknowledged. Members without an entry get
    /// an empty assignment; entries of non-members are ignored.
    fn write_assignment(&mut self, cx: &mut ClassicContext<'_>, given: &HashMap<String, Bytes>) {
        let mut assignment = HashMap::default();
        for id in self.members.keys() {
            if let Some(given) = given.get(&**id) {
                // Copied: a slice would keep the whole frame in memory.
                assignment.insert(id.to_string(), Bytes::copy_from_slice(given));
            }
        }
        let record = self.to_record(|member| assignment.get(&*member.id).cloned().unwrap_or_default());
        let leader = self.leader.clone().expect("the leader has just synced");
        let (group, generation) = (self.id.clone(), self.generation);
        self.is_assigned = true;
        cx.effects.write = Some((record, Completion::Assignment { group, generation, leader, assignment }));
    }

    /// Handles the acknowledgement or failure of an assignment. The result is ignored if another rebalance
    /// has begun.
    pub(in super::super) fn assignment_written(
        &mut self,
        cx: &mut ClassicContext<'_>,
        generation: i32,
        leader: &str,
        mut assignment: HashMap<String, Bytes>,
        result: Result<(), WriteError>,
    ) {
        if self.state != GroupState::CompletingRebalance || self.generation != generation {
            return;
        }
        match result {
            Ok(()) => {
                for member in self.members.values_mut() {
                    member.assignment = assignment.remove(&*member.id).unwrap_or_default();
                }
                self.propagate(cx, Ok(()));
                self.transition_to(GroupState::Stable, cx.now.wall_ms);
            }
            Err(error) => {
                tracing::warn!(group = %self.id, generation, leader, %error, "Failed to store an assignment");
                self.reset_assignment(cx, error.into());
                self.rebalance_or_complete_join(cx);
            }
        }
    }

    /// Clears all assignments, and answers waiting syncs with the error.
    pub(super) fn reset_assignment(&mut self, cx: &mut ClassicContext<'_>, error: MembershipError) {
        for member in self.members.values_mut() {
            member.assignment = Bytes::new();
        }
        self.propagate(cx, Err(error));
    }

    /// Answers all waiting syncs. Their members sent no heartbeats while waiting, so their sessions restart.
    fn propagate(&mut self, cx: &mut ClassicContext<'_>, result: Result<(), MembershipError>) {
        for id in self.ids_in_order() {
            let member = self.members.get_mut(&id).expect("it was just listed");
            let Some(ticket) = member.awaiting_sync.take() else { continue };
            let assignment = member.assignment.clone();
            match result {
                Ok(()) => cx.answer_sync(ticket, self.sync_response(assignment)),
                Err(error) => cx.refuse_sync(ticket, error),
            }
            self.restart_session(cx.timers, cx.now.monotonic_ms, &id);
        }
    }

    fn sync_response(&self, assignment: Bytes) -> SyncGroupResponse {
        SyncGroupResponse {
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            assignment,
            ..SyncGroupResponse::default()
        }
    }

    fn has_synced(&mut self, cx: &mut ClassicContext<'_>, id: &str) {
        self.pending_sync.remove(id);
        if self.pending_sync.is_empty() {
            cx.timers.cancel(&mut self.sync_deadline);
        }
    }

    /// Ends the sync phase: members that did not sync are removed, and the others rebalance.
    pub(in super::super) fn sync_phase_over(&mut self, cx: &mut ClassicContext<'_>, timer: Timer) {
        if !cx.timers.is_due(&mut self.sync_deadline, timer, cx.now.monotonic_ms) {
            return;
        }
        let is_synced_in = matches!(self.state, GroupState::CompletingRebalance | GroupState::Stable);
        if !is_synced_in || self.pending_sync.is_empty() {
            return;
        }
        let late: Vec<Arc<str>> =
            self.ids_in_order().into_iter().filter(|id| self.pending_sync.contains(id)).collect();
        for id in late {
            tracing::info!(group = %self.id, member = %id, "Removing a member that did not sync in time");
            self.remove(cx, &id);
        }
        self.prepare_rebalance(cx);
    }

    /// Handles a Heartbeat request.
    pub(in super::super) fn heartbeat(
        &mut self,
        cx: &mut ClassicContext<'_>,
        request: &HeartbeatRequest,
    ) -> Result<(), MembershipError> {
        self.validate_member(&request.member_id, request.group_instance_id.as_deref())?;
        if request.generation_id != self.generation {
            return Err(MembershipError::IllegalGeneration);
        }
        self.restart_session(cx.timers, cx.now.monotonic_ms, &request.member_id);
        match self.state {
            GroupState::Empty => Err(MembershipError::UnknownMember),
            GroupState::PreparingRebalance => Err(MembershipError::RebalanceInProgress),
            GroupState::CompletingRebalance | GroupState::Stable => Ok(()),
        }
    }
}
