//! Members that leave or expire.

use super::super::deadlines::Change;
use super::super::heartbeat_error::HeartbeatError;
use super::super::member_epoch::LEAVING_FOR_A_WHILE;
use super::super::record::CoordinatorRecord;
use super::super::timers::Watch;
use super::super::timers::{Timer, Timers};
use super::member::{Member, MemberState, PartitionEpochs, member_tombstones};
use super::migration::Downgrade;
use super::{ConsumerGroup, Scene};
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_wire::request::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};

/// The outcome of the removal of members.
pub(in super::super) struct Removal {
    pub(in super::super) records: Vec<CoordinatorRecord>,
    /// The remaining group, if it becomes a classic one.
    pub(in super::super) downgrade: Option<Downgrade>,
}

impl ConsumerGroup {
    /// Handles the heartbeat of a leaving member: for good, or as a static member for a while.
    pub(in super::super) fn leave(
        &self,
        scene: &mut Scene<'_>,
        request: &ConsumerGroupHeartbeatRequest,
    ) -> Result<(Removal, ConsumerGroupHeartbeatResponse), HeartbeatError> {
        let member = match request.instance_id.as_deref() {
            None => self.member(&request.member_id)?,
            Some(instance_id) => {
                let instance = instance_id.to_owned();
                let member = self.static_member(instance_id);
                let member = member.ok_or_else(|| HeartbeatError::UnknownInstance(instance.clone()))?;
                if *member.id != *request.member_id {
                    return Err(HeartbeatError::FencedInstance { instance, owner: member.id.to_string() });
                }
                member
            }
        };
        let response = ConsumerGroupHeartbeatResponse {
            member_id: Some(request.member_id.clone()),
            member_epoch: request.member_epoch,
            ..ConsumerGroupHeartbeatResponse::default()
        };
        let epoch = request.member_epoch;
        tracing::info!(group = %self.modern.id, member = %member.id, epoch, "Member left");
        if request.member_epoch == LEAVING_FOR_A_WHILE && request.instance_id.is_some() {
            let record = away(member).to_current_record(&self.modern.id);
            return Ok((Removal { records: vec![record], downgrade: None }, response));
        }
        Ok((self.remove_members(scene, &[member]), response))
    }

    /// Handles a member's deadline: the member is removed unless the deadline has moved.
    pub(in super::super) fn deadline_over(
        &mut self,
        scene: &mut Scene<'_>,
        timers: &mut Timers,
        timer: Timer,
    ) -> Option<Removal> {
        let Timer::Member(_, id, watch) = &timer else { return None };
        let (id, watch) = (id.clone(), *watch);
        let epoch = self.modern.members.get(&id).map_or(0, |member| member.epoch);
        if !self.deadlines.is_over(timers, timer, scene.now.monotonic_ms, epoch) {
            return None;
        }
        let member = self.modern.members.get(&id)?;
        self.deadlines.retry(timers, scene.now.monotonic_ms, &id, watch);
        let failed_to = match watch {
            Watch::Session => "send a heartbeat",
            Watch::Revocation => "revoke partitions",
            Watch::Join => "join again",
            Watch::Sync => "sync",
        };
        tracing::info!(group = %self.modern.id, member = %id, epoch, failed_to, "Member failed");
        Some(self.remove_members(scene, &[member]))
    }

    /// Deadlines of the members of a newly loaded group, as if all had just sent a heartbeat.
    pub(in super::super) fn deadlines_at_start(&self, session_timeout_ms: i32) -> Vec<(Arc<str>, Change)> {
        let mut changes = Vec::new();
        for member in self.modern.members.values() {
            changes.push((member.id.clone(), Change::Session(session_timeout_ms)));
            if member.state == MemberState::UnrevokedPartitions && member.classic.is_none() {
                let timeout_ms = member.rebalance_timeout_ms;
                changes.push((member.id.clone(), Change::Revocation { epoch: member.epoch, timeout_ms }));
            }
        }
        changes
    }

    /// Removes members. The other members get their partitions, and the group may become a classic one if all
    /// remaining members use the classic protocol.
    pub(super) fn remove_members(&self, scene: &mut Scene<'_>, members: &[&Member]) -> Removal {
        if members.is_empty() {
            return Removal { records: Vec::new(), downgrade: None };
        }
        if self.is_classic_without(scene, members) {
            return self.downgrade_without(scene, members);
        }
        let mut records = Vec::new();
        let mut regexes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in members {
            member_tombstones(&self.modern.id, &member.id, &mut records);
            if let Some(regex) = member.regex() {
                *regexes.entry(regex).or_default() += 1;
            }
        }
        for (regex, count) in regexes {
            if self.regexes.get(regex) == Some(&count) {
                records.push(self.regex_record(regex, None));
            }
        }
        let hash = scene.hashes.of_group(self.topics_with(members, None).into_iter(), scene.topics);
        self.raise_epoch(hash, &mut records);
        Removal { records, downgrade: None }
    }
}

/// An absent static member. It keeps its partitions, and may commit them with any epoch.
fn away(member: &Member) -> Member {
    let mut assigned = PartitionEpochs::clone(&member.assigned);
    for epoch in assigned.values_mut().flat_map(|partitions| partitions.values_mut()) {
        *epoch = 0;
    }
    Member {
        epoch: LEAVING_FOR_A_WHILE,
        assigned: Arc::new(assigned),
        revoking: Arc::default(),
        ..member.clone()
    }
}
