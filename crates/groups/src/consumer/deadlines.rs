//! Deadlines of a consumer group's members: the removal of members that missed one, and the deadlines after a
//! load.

use super::leave::Removal;
use super::member::{ConsumerGroupMember, MemberState};
use super::{ConsumerContext, ConsumerGroup};
use crate::deadlines::{DeadlineChange, DeadlineMember};
use crate::timers::{DeadlineKind, Timer, Timers};
use std::sync::Arc;

impl ConsumerGroup {
    /// Handles a member's deadline: the member is removed unless the deadline has moved.
    pub(in super::super) fn deadline_over(
        &mut self,
        cx: &mut ConsumerContext<'_>,
        timers: &mut Timers,
        timer: Timer,
    ) -> Option<Removal> {
        let now_ms = cx.now.monotonic_ms;
        let (member, kind) = self.deadlines.missed(timers, timer, now_ms, &self.modern.members)?;
        let failed_to = match kind {
            DeadlineKind::Session => "send a heartbeat",
            DeadlineKind::Revocation => "revoke partitions",
            DeadlineKind::Join => "join again",
            DeadlineKind::Sync => "sync",
        };
        tracing::info!(group = %self.modern.id, member = %member.id, epoch = member.epoch, failed_to, "Member failed");
        Some(self.remove_members(cx, &[member]))
    }

    /// Deadlines of the members of a newly loaded group. As in Kafka, a classic member has a revocation
    /// deadline only here: the deadlines of its next join and sync are lost with the earlier coordinator.
    pub(in super::super) fn deadlines_at_start(
        &self,
        session_timeout_ms: i32,
    ) -> Vec<(Arc<str>, DeadlineChange)> {
        DeadlineChange::at_start(&self.modern.members, session_timeout_ms)
    }
}

impl DeadlineMember for ConsumerGroupMember {
    fn epoch(&self) -> i32 {
        self.epoch
    }

    fn revocation_timeout_ms(&self) -> Option<i32> {
        (self.state == MemberState::UnrevokedPartitions).then_some(self.rebalance_timeout_ms)
    }
}
