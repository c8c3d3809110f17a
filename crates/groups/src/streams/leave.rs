//! Members of a streams group that leave or expire, and the end of a new group's initial delay.

use super::super::deadlines::Change;
use super::super::member_epoch::LEAVING;
use super::super::record::CoordinatorRecord;
use super::super::timers::Watch;
use super::super::timers::{Timer, Timers};
use super::error::StreamsGroupError;
use super::member::{Member, MemberState, member_tombstones};
use super::{StreamsGroup, StreamsScene};
use std::sync::Arc;
use thalweg_wire::request::{StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse};

impl StreamsGroup {
    /// Handles the heartbeat of a leaving member.
    pub(in super::super) fn leave(
        &self,
        request: &StreamsGroupHeartbeatRequest,
    ) -> Result<(Vec<CoordinatorRecord>, StreamsGroupHeartbeatResponse), StreamsGroupError> {
        if request.shutdown_application {
            let id = || request.member_id.as_str().into();
            self.shutdown.borrow_mut().get_or_insert_with(id);
        }
        let member = self.member(&request.member_id)?;
        tracing::info!(group = %self.modern.id, member = %member.id, "Member left the streams group");
        let response = StreamsGroupHeartbeatResponse {
            member_id: request.member_id.clone(),
            member_epoch: LEAVING,
            ..StreamsGroupHeartbeatResponse::default()
        };
        Ok((self.without(member), response))
    }

    fn without(&self, member: &Member) -> Vec<CoordinatorRecord> {
        let mut records = Vec::new();
        member_tombstones(&self.modern.id, std::iter::once(&*member.id), None, &mut records);
        let (hash, validated) = (self.modern.metadata_hash, self.validated_epoch);
        records.push(self.epoch_record(self.modern.next_epoch(), hash, validated, &self.assignment_configs));
        records
    }

    /// Handles a member's deadline: the member is removed unless the deadline has moved.
    pub(in super::super) fn deadline_over(
        &mut self,
        scene: &StreamsScene<'_>,
        timers: &mut Timers,
        timer: Timer,
    ) -> Option<Vec<CoordinatorRecord>> {
        let Timer::Member(_, id, watch) = &timer else { return None };
        let (id, watch) = (id.clone(), *watch);
        let epoch = self.modern.members.get(&id).map_or(0, |member| member.epoch);
        if !self.deadlines.is_over(timers, timer, scene.now.monotonic_ms, epoch) {
            return None;
        }
        let member = self.modern.members.get(&id)?;
        self.deadlines.retry(timers, scene.now.monotonic_ms, &id, watch);
        let failed_to = if watch == Watch::Revocation { "give up tasks" } else { "send a heartbeat" };
        tracing::info!(group = %self.modern.id, member = %id, epoch, failed_to, "Member of a streams group failed");
        Some(self.without(member))
    }

    /// Starts the initial delay, which ends at `at_ms`.
    pub(in super::super) fn begin_delay(&mut self, timers: &mut Timers, at_ms: i64) {
        let id = self.modern.id.clone();
        timers.set(&mut self.delay, at_ms, || Timer::Delay(id));
    }

    /// Ends the initial delay: the group gets its assignment.
    pub(in super::super) fn delay_over(
        &mut self,
        scene: &StreamsScene<'_>,
        timers: &mut Timers,
        timer: Timer,
    ) -> Vec<CoordinatorRecord> {
        let is_due = timers.is_due(&mut self.delay, timer, scene.now.monotonic_ms);
        let mut records = Vec::new();
        let configured =
            self.configured.borrow().clone().filter(|(hash, _)| *hash == self.modern.metadata_hash);
        // As in Kafka, the second heartbeat fits the topology of a new group to its topics. Before that, or
        // after a change of the topics that is not written, the next heartbeat computes the assignment.
        if let Some((_, configured)) = configured
            && is_due
            && !self.modern.members.is_empty()
            && self.modern.epoch > self.modern.target_epoch
            && self.is_target_due(scene)
        {
            let standbys = self.followed_standbys().unwrap_or(0);
            self.compute(scene, self.modern.epoch, &configured, standbys, None, &mut records);
        }
        records
    }

    /// Cancels all deadlines of a removed group.
    pub(in super::super) fn forget_deadlines(&mut self, timers: &mut Timers) {
        self.deadlines.clear(timers);
        timers.cancel(&mut self.delay);
    }

    /// Deadlines of the members of a newly loaded group. Members with tasks to revoke have the whole timeout.
    pub(in super::super) fn deadlines_at_start(&self, session_timeout_ms: i32) -> Vec<(Arc<str>, Change)> {
        let mut changes = Vec::new();
        for member in self.modern.members.values() {
            changes.push((member.id.clone(), Change::Session(session_timeout_ms)));
            if member.state == MemberState::UnrevokedTasks {
                let (epoch, timeout_ms) = (member.epoch, member.rebalance_timeout_ms);
                changes.push((member.id.clone(), Change::Revocation { epoch, timeout_ms }));
            }
        }
        changes
    }
}
