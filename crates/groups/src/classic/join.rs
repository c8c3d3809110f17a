//! Joining: admission, member ids, and the effect on the group.

use super::effects::{ClassicContext, Completion, StaticMember};
use super::member::{ClassicGroupMember, Terms};
use super::{ClassicGroup, GroupState, PENDING_MEMBERS_MAX};
use crate::client::ClientInfo;
use crate::config::GroupConfig;
use crate::error::MembershipError;
use crate::timers::{Deadline, Timer};
use bytes::Bytes;
use std::sync::Arc;
use thalweg_hash::{HashMap, HashSet};
use thalweg_shard::{Ticket, WriteError};
use thalweg_wire::Uuid;
use thalweg_wire::request::join_group_response::JoinGroupResponseMember;
use thalweg_wire::request::{JoinGroupRequest, JoinGroupResponse};

/// A JoinGroup request on its way into a group.
pub(in super::super) struct PendingJoin<'a> {
    pub(in super::super) client: &'a ClientInfo,
    pub(in super::super) request: &'a JoinGroupRequest,
    pub(in super::super) version: i16,
    pub(in super::super) ticket: Ticket,
    /// The unique part of a generated member id.
    pub(in super::super) unique: Uuid,
}

impl PendingJoin<'_> {
    /// From version 4 a dynamic member gets its id before it joins (KIP-394).
    fn requires_known_member_id(&self) -> bool {
        self.version >= 4
    }

    fn new_member_id(&self) -> String {
        let name = self.request.group_instance_id.as_deref().unwrap_or(&self.client.client_id);
        let h = format!("{:032x}", self.unique.0);
        format!("{name}-{}-{}-{}-{}-{}", &h[..8], &h[8..12], &h[12..16], &h[16..20], &h[20..])
    }
}

impl ClassicGroup {
    /// Handles a JoinGroup request.
    pub(in super::super) fn join(&mut self, cx: &mut ClassicContext<'_>, joining: &PendingJoin<'_>) {
        let member_id = joining.request.member_id.as_str();
        if !self.accepts(member_id, cx.config) {
            self.remove(cx, member_id);
            cx.refuse_join(joining.ticket, "", MembershipError::GroupFull);
        } else if !self.supports(joining.request) {
            cx.refuse_join(joining.ticket, member_id, MembershipError::InconsistentProtocol);
        } else if member_id.is_empty() {
            self.join_new(cx, joining);
        } else {
            self.join_known(cx, joining);
        }
    }

    /// True if the group has room. During a rebalance, slots are assigned in order of arrival.
    fn accepts(&self, member_id: &str, config: &GroupConfig) -> bool {
        match self.state {
            GroupState::Empty => true,
            GroupState::PreparingRebalance => {
                self.awaiting_join < config.group_size_max
                    || self.members.get(member_id).is_some_and(|m| m.awaiting_join.is_some())
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                self.members.len() < config.group_size_max || self.members.contains_key(member_id)
            }
        }
    }

    /// True if the joining member has the group's protocol type and a protocol that every member follows.
    fn supports(&self, request: &JoinGroupRequest) -> bool {
        if self.state == GroupState::Empty {
            return !request.protocol_type.is_empty() && !request.protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(request.protocol_type.as_str())
            && request.protocols.iter().any(|protocol| {
                self.supported_protocols.get(&protocol.name).copied().unwrap_or(0) == self.members.len()
            })
    }

    fn join_new(&mut self, cx: &mut ClassicContext<'_>, joining: &PendingJoin<'_>) {
        let id: Arc<str> = joining.new_member_id().into();
        if let Some(instance_id) = &joining.request.group_instance_id {
            match self.static_members.get(instance_id).cloned() {
                Some(old_id) => self.return_static(cx, joining, instance_id, old_id, id),
                None => self.add(cx, joining, id),
            }
        } else if !joining.requires_known_member_id() {
            self.add(cx, joining, id);
        } else if self.pending_members.len() >= PENDING_MEMBERS_MAX {
            cx.refuse_join(joining.ticket, "", MembershipError::GroupFull);
        } else {
            let mut deadline = Deadline::default();
            let at_ms = cx.after(joining.request.session_timeout_ms);
            cx.timers.set(&mut deadline, at_ms, || Timer::ClassicSession(self.id.clone(), id.clone()));
            cx.refuse_join(joining.ticket, &id, MembershipError::MemberIdRequired);
            self.pending_members.insert(id, deadline);
        }
    }

    fn join_known(&mut self, cx: &mut ClassicContext<'_>, joining: &PendingJoin<'_>) {
        let PendingJoin { request, ticket, .. } = *joining;
        let id = request.member_id.as_str();
        if let Some((pending, _)) = self.pending_members.get_key_value(id) {
            // Only dynamic members get generated ids.
            match request.group_instance_id {
                Some(_) => cx.refuse_join(ticket, id, MembershipError::UnexpectedInstance),
                None => self.add(cx, joining, pending.clone()),
            }
            return;
        }
        if let Err(error) = self.validate_member(id, request.group_instance_id.as_deref()) {
            return cx.refuse_join(ticket, id, error);
        }
        let terms = Terms::of(request);
        let is_unchanged = self.members[id].terms.protocols == terms.protocols;
        match self.state {
            // The member missed the answer: send the answer again. Only the leader gets the list of members.
            GroupState::CompletingRebalance if is_unchanged => {
                cx.answer_join(ticket, self.join_response(id, self.is_leader(id)));
            }
            GroupState::Stable if is_unchanged && !self.is_leader(id) => {
                cx.answer_join(ticket, self.join_response(id, false));
            }
            // A leader that rejoins requests a new assignment.
            GroupState::PreparingRebalance | GroupState::CompletingRebalance | GroupState::Stable => {
                self.update(cx, id, terms, ticket);
                self.rebalance_or_complete_join(cx);
            }
            // An empty group knows no member id.
            GroupState::Empty => cx.refuse_join(ticket, id, MembershipError::UnknownMember),
        }
    }

    /// Adds a new member, which waits for the rebalance.
    fn add(&mut self, cx: &mut ClassicContext<'_>, joining: &PendingJoin<'_>, id: Arc<str>) {
        let PendingJoin { request, client, ticket, .. } = *joining;
        let mut session = self.pending_members.remove(&id).unwrap_or_default();
        let at_ms = cx.after(cx.config.new_member_join_timeout_ms);
        cx.timers.set(&mut session, at_ms, || Timer::ClassicSession(self.id.clone(), id.clone()));
        if self.state == GroupState::PreparingRebalance && self.was_empty {
            self.new_member_added = true;
        }
        if self.members.is_empty() {
            self.protocol_type = Some(request.protocol_type.clone());
        }
        self.insert(ClassicGroupMember {
            id,
            instance_id: request.group_instance_id.clone(),
            client: client.clone(),
            terms: Terms::of(request),
            assignment: Bytes::new(),
            place: self.next_place,
            is_new: true,
            awaiting_join: Some(ticket),
            awaiting_sync: None,
            session,
        });
        self.rebalance_or_complete_join(cx);
    }

    /// Handles a rejoin. If an earlier request of the member still waits, its connection was lost: it gets a
    /// retriable error.
    fn update(&mut self, cx: &mut ClassicContext<'_>, id: &str, terms: Terms, ticket: Ticket) {
        if let Some(earlier) = self.take_join_ticket(id) {
            cx.refuse_join(earlier, id, MembershipError::RebalanceInProgress);
        }
        self.set_terms(id, terms);
        let member = self.members.get_mut(id).expect("whoever joins again was validated");
        member.awaiting_join = Some(ticket);
        self.awaiting_join += 1;
    }

    fn set_terms(&mut self, id: &str, terms: Terms) {
        let Some(member) = self.members.get_mut(id) else { return };
        let after = terms.protocols.clone();
        let before = std::mem::replace(&mut member.terms, terms);
        self.count_protocols(&before.protocols, false);
        self.count_protocols(&after, true);
    }

    /// Handles the return of a static member under a new id: the new id replaces the old one, which is
    /// fenced. A stable group whose protocol does not change stays stable (KIP-345).
    fn return_static(
        &mut self,
        cx: &mut ClassicContext<'_>,
        joining: &PendingJoin<'_>,
        instance_id: &str,
        old_id: Arc<str>,
        new_id: Arc<str>,
    ) {
        let PendingJoin { request, ticket, version, .. } = *joining;
        let leader = self.leader.clone();
        self.rename_static(cx, instance_id, &old_id, &new_id);
        self.restart_session(cx.timers, cx.now.monotonic_ms, &new_id);
        let before = self.members[&new_id].terms.clone();
        self.update(cx, &new_id, Terms::of(request), ticket);
        match self.state {
            GroupState::Stable if self.select_protocol() == self.protocol_name => {
                let member = StaticMember {
                    group: self.id.clone(),
                    ticket,
                    version,
                    instance_id: instance_id.to_owned(),
                    old_id,
                    new_id,
                    leader,
                    terms: before,
                };
                cx.effects.write = Some((self.snapshot(), Completion::StaticMember(Box::new(member))));
            }
            GroupState::Stable => self.rebalance_or_complete_join(cx),
            GroupState::CompletingRebalance => self.prepare_rebalance(cx),
            GroupState::PreparingRebalance => self.complete_join_if_all_joined(cx),
            GroupState::Empty => unreachable!("a group with a static member is not empty"),
        }
    }

    /// Completes the return of a static member after the write of its new id, or its failure.
    pub(in super::super) fn static_member_returned(
        &mut self,
        cx: &mut ClassicContext<'_>,
        returned: StaticMember,
        result: Result<(), WriteError>,
    ) {
        let StaticMember { ticket, version, instance_id, old_id, new_id, leader, terms, .. } = returned;
        let is_waiting = self.members.get(&new_id).is_some_and(|m| m.awaiting_join == Some(ticket));
        if !is_waiting {
            return;
        }
        match result {
            Err(error) => {
                self.take_join_ticket(&new_id);
                self.set_terms(&new_id, terms);
                self.rename_static(cx, &instance_id, &new_id, &old_id);
                self.restart_session(cx.timers, cx.now.monotonic_ms, &old_id);
                cx.refuse_join(ticket, "", error.into());
            }
            // If a rebalance started meanwhile, the member waits like the others.
            Ok(()) if self.state != GroupState::Stable => {}
            Ok(()) => {
                self.take_join_ticket(&new_id);
                self.restart_session(cx.timers, cx.now.monotonic_ms, &new_id);
                let is_leader = self.is_leader(&new_id);
                let response = if version >= 9 {
                    let skip_assignment = is_leader;
                    JoinGroupResponse { skip_assignment, ..self.join_response(&new_id, is_leader) }
                } else {
                    // A former leader must not learn that it leads: it would assign, and wait for all to
                    // join.
                    let leader = leader.as_deref().unwrap_or_default().to_owned();
                    JoinGroupResponse { leader, ..self.join_response(&new_id, false) }
                };
                cx.answer_join(ticket, response);
            }
        }
    }

    /// Renames a static member. Requests that wait under the old id are fenced.
    fn rename_static(
        &mut self,
        cx: &mut ClassicContext<'_>,
        instance_id: &str,
        old_id: &Arc<str>,
        new_id: &Arc<str>,
    ) {
        let mut member = self.members.remove(old_id).expect("a static member's id is a member's");
        cx.timers.cancel(&mut member.session);
        self.pending_sync.remove(old_id);
        if let Some(ticket) = member.awaiting_join.take() {
            self.awaiting_join -= 1;
            cx.refuse_join(ticket, old_id, MembershipError::FencedInstance);
        }
        if let Some(ticket) = member.awaiting_sync.take() {
            cx.refuse_sync(ticket, MembershipError::FencedInstance);
        }
        member.id = new_id.clone();
        member.is_new = false;
        if self.is_leader(old_id) {
            self.leader = Some(new_id.clone());
        }
        self.static_members.insert(instance_id.to_owned(), new_id.clone());
        self.members.insert(new_id.clone(), member);
    }

    /// Fails a join because the group could not be written.
    pub(in super::super) fn fail_join(
        &mut self,
        cx: &mut ClassicContext<'_>,
        ticket: Ticket,
        error: WriteError,
    ) {
        let waiting = self.members.values().find(|m| m.awaiting_join == Some(ticket)).map(|m| m.id.clone());
        if let Some(id) = waiting {
            self.take_join_ticket(&id);
            cx.refuse_join(ticket, "", error.into());
        }
    }

    /// Takes the ticket of a member's waiting join.
    pub(super) fn take_join_ticket(&mut self, id: &str) -> Option<Ticket> {
        let ticket = self.members.get_mut(id)?.awaiting_join.take()?;
        self.awaiting_join -= 1;
        Some(ticket)
    }

    /// The answer to a member that has joined this generation.
    pub(super) fn join_response(&self, id: &str, with_members: bool) -> JoinGroupResponse {
        let protocol = self.protocol_name.as_deref();
        let members = if with_members {
            let describe = |m: &ClassicGroupMember| JoinGroupResponseMember {
                member_id: m.id.to_string(),
                group_instance_id: m.instance_id.clone(),
                metadata: m.metadata(protocol),
            };
            self.in_order().into_iter().map(describe).collect()
        } else {
            Vec::new()
        };
        JoinGroupResponse {
            generation_id: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            leader: self.leader.as_deref().unwrap_or_default().to_owned(),
            member_id: id.to_owned(),
            members,
            ..JoinGroupResponse::default()
        }
    }

    /// The protocol that most members prefer among the protocols that all follow; in a tie, the earliest
    /// member's choice.
    pub(super) fn select_protocol(&self) -> Option<String> {
        let size = self.members.len();
        let candidates: HashSet<&str> = self
            .supported_protocols
            .iter()
            .filter(|&(_, &count)| count == size)
            .map(|(name, _)| name.as_str())
            .collect();
        let mut votes: Vec<(&str, usize)> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::default();
        for name in self.in_order().into_iter().filter_map(|member| member.vote(&candidates)) {
            let place = *places.entry(name).or_insert(votes.len());
            if place == votes.len() {
                votes.push((name, 0));
            }
            votes[place].1 += 1;
        }
        let most = votes.iter().map(|&(_, count)| count).max()?;
        votes.into_iter().find(|&(_, count)| count == most).map(|(name, _)| name.to_owned())
    }
}
