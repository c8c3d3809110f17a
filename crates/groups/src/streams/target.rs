//! The target assignment of a streams group: computed for a group epoch by the assignor `sticky`.

use super::super::assignor::{TaskAssignment, TaskGroupSpec, TaskMemberSpec, assign_tasks};
use super::super::record::CoordinatorRecord;
use super::configure::ConfiguredTopology;
use super::member::{Member, target_record};
use super::tasks::Target;
use super::{StreamsGroup, StreamsGroupRecord, StreamsScene};
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_wire::group::{
    StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue,
};

/// The targets of members.
pub(super) type Targets = BTreeMap<Arc<str>, Arc<Target>>;

impl StreamsGroup {
    /// True if `streams.assignment.interval.ms` have passed since the last assignment.
    pub(super) fn is_target_due(&self, scene: &StreamsScene<'_>) -> bool {
        self.modern.is_target_due(scene.times.assignment_interval_ms, scene.now.wall_ms)
    }

    /// Computes the target assignment of this epoch. `member` is a member after its change. Without a
    /// topology that fits its topics, members get no tasks.
    pub(super) fn compute(
        &self,
        scene: &StreamsScene<'_>,
        epoch: i32,
        configured: &ConfiguredTopology,
        standby_replicas: usize,
        member: Option<&Member>,
        records: &mut Vec<CoordinatorRecord>,
    ) -> Targets {
        let others =
            self.modern.members.values().filter(|other| member.is_none_or(|member| member.id != other.id));
        let members: BTreeMap<Arc<str>, TaskMemberSpec> = others
            .chain(member)
            .map(|each| {
                let target = self.modern.targets.get(&each.id).cloned().unwrap_or_default();
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
        let mut targets = Targets::new();
        for (id, TaskAssignment { active, standby }) in assigned {
            let target = Arc::new(Target { active, standby, warmup: BTreeMap::new() });
            if self.modern.targets.get(&id).is_none_or(|before| *before != target) {
                records.push(target_record(&self.modern.id, &id, &target));
            }
            targets.insert(id, target);
        }
        let key = StreamsGroupTargetAssignmentMetadataKey { group_id: self.modern.id.to_string() };
        let value = StreamsGroupTargetAssignmentMetadataValue {
            assignment_epoch: epoch,
            assignment_timestamp: scene.now.wall_ms,
        };
        records.push(StreamsGroupRecord::Target(key, Some(value)).into());
        targets
    }
}
