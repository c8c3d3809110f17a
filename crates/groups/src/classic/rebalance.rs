//! Rebalances: start, end, and result.

use super::effects::{ClassicContext, Completion};
use super::{ClassicGroup, GroupState, JoinPhase};
use crate::error::MembershipError;
use crate::timers::Timer;
use std::sync::Arc;

impl ClassicGroup {
    /// Starts a rebalance after a member joined, changed or left, or checks whether the current one is
    /// complete.
    pub(super) fn rebalance_or_complete_join(&mut self, cx: &mut ClassicContext<'_>) {
        match self.state {
            GroupState::PreparingRebalance => self.complete_join_if_all_joined(cx),
            GroupState::Empty | GroupState::CompletingRebalance | GroupState::Stable => {
                self.prepare_rebalance(cx);
            }
        }
    }

    /// Starts a rebalance. An empty group waits a while for more members, so that a starting fleet does not
    /// rebalance once per member; a group with members waits until all have rejoined.
    pub(in super::super) fn prepare_rebalance(&mut self, cx: &mut ClassicContext<'_>) {
        if self.state == GroupState::CompletingRebalance {
            self.reset_assignment(cx, MembershipError::RebalanceInProgress);
        }
        self.pending_sync.clear();
        cx.timers.cancel(&mut self.sync_deadline);
        let was_empty = self.state == GroupState::Empty;
        self.transition_to(GroupState::PreparingRebalance, cx.now.wall_ms);
        tracing::info!(group = %self.id, generation = self.generation, "Preparing to rebalance group");
        if was_empty {
            let delay_ms = cx.config.initial_rebalance_delay_ms;
            let remaining_ms = self.rebalance_timeout_ms().saturating_sub(delay_ms).max(0);
            self.wait_for_joins(cx, delay_ms, JoinPhase::Initial { delay_ms, remaining_ms });
        } else if self.all_joined() {
            self.complete_join(cx);
        } else {
            self.wait_for_joins(cx, self.rebalance_timeout_ms(), JoinPhase::Rebalance);
        }
    }

    /// Ends the join phase if all members have joined. The initial phase ends only by its deadline.
    pub(super) fn complete_join_if_all_joined(&mut self, cx: &mut ClassicContext<'_>) {
        if self.state == GroupState::PreparingRebalance && !self.was_empty && self.all_joined() {
            self.complete_join(cx);
        }
    }

    /// Ends the join phase if all members have joined, including the initial phase.
    pub(super) fn complete_join_after_removal(&mut self, cx: &mut ClassicContext<'_>) {
        if self.state == GroupState::PreparingRebalance && self.all_joined() {
            self.complete_join(cx);
        }
    }

    /// Handles the deadline of the join phase.
    pub(in super::super) fn join_phase_over(&mut self, cx: &mut ClassicContext<'_>, timer: Timer) {
        if !cx.timers.is_due(&mut self.join_deadline, timer, cx.now.monotonic_ms)
            || self.state != GroupState::PreparingRebalance
        {
            return;
        }
        match self.join_phase {
            JoinPhase::Initial { delay_ms, remaining_ms } if self.new_member_added && remaining_ms > 0 => {
                self.new_member_added = false;
                let next_ms = cx.config.initial_rebalance_delay_ms.min(remaining_ms);
                let remaining_ms = (remaining_ms - delay_ms).max(0);
                self.wait_for_joins(cx, next_ms, JoinPhase::Initial { delay_ms: next_ms, remaining_ms });
            }
            JoinPhase::Initial { .. } | JoinPhase::Rebalance => self.complete_join(cx),
        }
    }

    /// Ends the join phase: members that did not join are removed, the others form the next generation.
    fn complete_join(&mut self, cx: &mut ClassicContext<'_>) {
        cx.timers.cancel(&mut self.join_deadline);
        let missing: Vec<Arc<str>> = self
            .in_order()
            .into_iter()
            .filter(|m| m.awaiting_join.is_none() && m.instance_id.is_none())
            .map(|m| m.id.clone())
            .collect();
        for id in missing {
            tracing::info!(group = %self.id, member = %id, "Removing a member that did not join in time");
            self.remove(cx, &id);
        }
        if !self.has_joined_leader() && !self.members.is_empty() {
            // Static members stay until their sessions end, but none of them has joined and can lead.
            tracing::info!(group = %self.id, "Group could not rebalance because no member joined");
            self.wait_for_joins(cx, self.rebalance_timeout_ms(), JoinPhase::Rebalance);
            return;
        }
        self.start_generation(cx);
        if self.state == GroupState::Empty {
            tracing::info!(group = %self.id, generation = self.generation, "Group is now empty");
            cx.effects.write = Some((self.snapshot(), Completion::EmptyGroup { group: self.id.clone() }));
            return;
        }
        tracing::info!(group = %self.id, generation = self.generation, members = self.size(), "Stabilized group");
        for id in self.ids_in_order() {
            if let Some(ticket) = self.take_join_ticket(&id) {
                cx.answer_join(ticket, self.join_response(&id, self.is_leader(&id)));
            }
            self.members.get_mut(&id).expect("it was just listed").is_new = false;
            self.restart_session(cx.timers, cx.now.monotonic_ms, &id);
            self.pending_sync.insert(id);
        }
        let at_ms = cx.after(self.rebalance_timeout_ms());
        cx.timers.set(&mut self.sync_deadline, at_ms, || Timer::ClassicSync(self.id.clone()));
    }

    /// True if the leader has joined. Otherwise the first joined member becomes the leader; without a joined
    /// member the group has no leader.
    fn has_joined_leader(&mut self) -> bool {
        let has_joined =
            |id: &Arc<str>| self.members.get(id).is_some_and(|member| member.awaiting_join.is_some());
        if self.leader.as_ref().is_some_and(has_joined) {
            return true;
        }
        match self.in_order().into_iter().find(|m| m.awaiting_join.is_some()).map(|m| m.id.clone()) {
            Some(id) => {
                tracing::info!(group = %self.id, leader = %id, "Leader did not join in time, electing another");
                self.leader = Some(id);
                true
            }
            None => false,
        }
    }

    fn start_generation(&mut self, cx: &ClassicContext<'_>) {
        // Generations wrap to 0 after the largest one: clients reject negative generations.
        self.generation = self.generation.checked_add(1).unwrap_or(0);
        self.protocol_name = if self.members.is_empty() { None } else { self.select_protocol() };
        self.subscribed_topics = self.topics_of_members();
        let next = if self.members.is_empty() { GroupState::Empty } else { GroupState::CompletingRebalance };
        self.transition_to(next, cx.now.wall_ms);
        self.pending_sync.clear();
        self.is_assigned = false;
    }

    fn all_joined(&self) -> bool {
        self.members.len() == self.awaiting_join && self.pending_members.is_empty()
    }

    /// The longest rebalance timeout of the members.
    fn rebalance_timeout_ms(&self) -> i32 {
        self.members.values().map(|member| member.terms.rebalance_timeout_ms).max().unwrap_or(0).max(0)
    }

    fn wait_for_joins(&mut self, cx: &mut ClassicContext<'_>, timeout_ms: i32, phase: JoinPhase) {
        self.join_phase = phase;
        let at_ms = cx.after(timeout_ms);
        cx.timers.set(&mut self.join_deadline, at_ms, || Timer::ClassicJoin(self.id.clone()));
    }
}
