//! Deadlines of a streams group: those of members, which are removed after a missed one, and the initial
//! delay of a new group.

use super::member::{MemberState, StreamsGroupMember};
use super::{StreamsContext, StreamsGroup};
use crate::deadlines::{DeadlineChange, DeadlineMember};
use crate::record::CoordinatorRecord;
use crate::timers::{DeadlineKind, Timer, Timers};
use std::sync::Arc;

impl StreamsGroup {
    /// Handles a member's deadline: the member is removed unless the deadline has moved.
    pub(in super::super) fn deadline_over(
        &mut self,
        cx: &StreamsContext<'_>,
        timers: &mut Timers,
        timer: Timer,
    ) -> Option<Vec<CoordinatorRecord>> {
        let now_ms = cx.now.monotonic_ms;
        let (member, kind) = self.deadlines.missed(timers, timer, now_ms, &self.modern.members)?;
        let failed_to = if kind == DeadlineKind::Revocation { "give up tasks" } else { "send a heartbeat" };
        tracing::info!(group = %self.modern.id, member = %member.id, epoch = member.epoch, failed_to, "Member of a streams group failed");
        Some(self.without(member))
    }

    /// Deadlines of the members of a newly loaded group.
    pub(in super::super) fn deadlines_at_start(
        &self,
        session_timeout_ms: i32,
    ) -> Vec<(Arc<str>, DeadlineChange)> {
        DeadlineChange::at_start(&self.modern.members, session_timeout_ms)
    }

    /// Starts the initial delay, which ends at `at_ms`.
    pub(in super::super) fn begin_delay(&mut self, timers: &mut Timers, at_ms: i64) {
        let id = self.modern.id.clone();
        timers.set(&mut self.delay, at_ms, || Timer::StreamsDelay(id));
    }

    /// Ends the initial delay: the group gets its assignment.
    pub(in super::super) fn delay_over(
        &mut self,
        cx: &StreamsContext<'_>,
        timers: &mut Timers,
        timer: Timer,
    ) -> Vec<CoordinatorRecord> {
        let is_due = timers.is_due(&mut self.delay, timer, cx.now.monotonic_ms);
        let mut records = Vec::new();
        let configured =
            self.configured.borrow().clone().filter(|(hash, _)| *hash == self.modern.metadata_hash);
        // As in Kafka, the second heartbeat fits the topology of a new group to its topics. Before that, or
        // after a change of the topics that is not written, the next heartbeat computes the assignment.
        if let Some((_, configured)) = configured
            && is_due
            && !self.modern.members.is_empty()
            && self.modern.epoch > self.modern.target_epoch
            && self.is_target_due(cx)
        {
            let standbys = self.followed_standbys().unwrap_or(0);
            self.compute(cx, self.modern.epoch, &configured, standbys, None, &mut records);
        }
        records
    }

    /// Cancels all deadlines of a removed group.
    pub(in super::super) fn cancel_deadlines(&mut self, timers: &mut Timers) {
        self.deadlines.clear(timers);
        timers.cancel(&mut self.delay);
    }
}

impl DeadlineMember for StreamsGroupMember {
    fn epoch(&self) -> i32 {
        self.epoch
    }

    fn revocation_timeout_ms(&self) -> Option<i32> {
        (self.state == MemberState::UnrevokedTasks).then_some(self.rebalance_timeout_ms)
    }
}
