//! The target assignment of a streams group: computed for a group epoch by the assignor `sticky`.

use super::configure::ConfiguredTopology;
use super::member::{StreamsGroupMember, target_record};
use super::tasks::TargetTasks;
use super::{StreamsContext, StreamsGroup};
use crate::assignor::{TaskAssignment, TaskGroupSpec, TaskMemberSpec, assign_tasks};
use crate::record::CoordinatorRecord;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The targets of members.
pub(super) type Targets = BTreeMap<Arc<str>, TargetTasks>;

impl StreamsGroup {
    /// True if `streams.assignment.interval.ms` have passed since the last assignment.
    pub(super) fn is_target_due(&self, cx: &StreamsContext<'_>) -> bool {
        self.modern.is_target_due(cx.times.assignment_interval_ms, cx.now.wall_ms)
    }

    /// Computes the target assignment of this epoch. `member` is a member after its change. Without a
    /// topology that fits its topics, members get no tasks.
    pub(super) fn compute(
        &self,
        cx: &StreamsContext<'_>,
        epoch: i32,
        configured: &ConfiguredTopology,
        standby_replicas: usize,
        member: Option<&StreamsGroupMember>,
        records: &mut Vec<CoordinatorRecord>,
    ) -> Targets {
        let others =
            self.modern.members.values().filter(|other| member.is_none_or(|member| member.id != other.id));
        let members: BTreeMap<Arc<str>, TaskMemberSpec> = others
            .chain(member)
            .map(|each| {
                let target = self.modern.target_of(&each.id);
                let (active, standby) = (target.active.clone(), target.standby.clone());
                (each.id.clone(), TaskMemberSpec { process_id: each.process_id.clone(), active, standby })
            })
            .collect();
        let assigned = if configured.is_ready() {
            let subtopologies = &configured.subtopologies;
            assign_tasks(&TaskGroupSpec { members: &members, subtopologies, standby_replicas })
        } else {
            members.keys().map(|id| (id.clone(), TaskAssignment::default())).collect()
        };
        tracing::info!(group = %self.modern.id, epoch, members = members.len(), "Computed a target assignment");
        let target =
            |TaskAssignment { active, standby }| TargetTasks { active, standby, warmup: BTreeMap::new() };
        let targets = assigned.into_iter().map(|(id, assigned)| (id, target(assigned))).collect();
        self.modern.push_target(&targets, epoch, cx.now.wall_ms, target_record, records);
        targets
    }
}
