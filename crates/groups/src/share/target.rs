//! The target assignment of a share group: computed for a group epoch by the assignor `simple`.

use super::member::{ShareGroupMember, target_record};
use super::{ShareContext, ShareGroup, SharePartitions};
use crate::assignor::{Assignment, GroupSpec, MemberSpec, TopicSpec, assign_shared};
use crate::modern::Target;
use crate::record::CoordinatorRecord;
use crate::topics::TopicsView;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_wire::Uuid;

impl ShareGroup {
    /// The target of a member at this group epoch. A new assignment is computed if the last one is for an
    /// earlier epoch and `group.share.assignment.interval.ms` have passed since; until then members move
    /// towards the last one. `member` is the member after the change.
    pub(super) fn target(
        &self,
        cx: &ShareContext<'_>,
        epoch: i32,
        member: &ShareGroupMember,
        records: &mut Vec<CoordinatorRecord>,
    ) -> Target<Assignment> {
        let interval_ms = cx.times.assignment_interval_ms;
        let is_due = self.modern.is_target_due(interval_ms, cx.now.wall_ms);
        if self.modern.target_epoch >= epoch || !is_due {
            return self.modern.last_target(&member.id);
        }
        Target { epoch, of_member: self.compute(cx, epoch, member, records) }
    }

    fn compute(
        &self,
        cx: &ShareContext<'_>,
        epoch: i32,
        member: &ShareGroupMember,
        records: &mut Vec<CoordinatorRecord>,
    ) -> Arc<Assignment> {
        // Most members of a group have the same subscription and share one set.
        let mut known: BTreeMap<Arc<BTreeSet<String>>, Arc<BTreeSet<Uuid>>> = BTreeMap::new();
        let mut members: BTreeMap<Arc<str>, MemberSpec> = BTreeMap::new();
        let others = self.modern.members.values().filter(|other| other.id != member.id);
        for each in others.chain([member]) {
            let ids = || each.topics.iter().filter_map(|name| cx.topics.id(name)).collect();
            let topics = known.entry(each.topics.clone()).or_insert_with(|| Arc::new(ids())).clone();
            let assigned = Assignment::clone(&self.modern.target_of(&each.id));
            members.insert(each.id.clone(), MemberSpec { instance_id: None, topics, assigned });
        }
        let homogeneous = known.len() == 1 || {
            let first = &members[&member.id].topics;
            members.values().all(|spec| spec.topics == *first)
        };
        let ids: BTreeSet<Uuid> = known.values().flat_map(|ids| ids.iter().copied()).collect();
        let partitions = |id| Some((id, TopicSpec { partitions: cx.topics.partition_count(id)? }));
        let topics: BTreeMap<Uuid, TopicSpec> = ids.into_iter().filter_map(partitions).collect();
        let spec = GroupSpec { members: &members, homogeneous, topics: &topics };
        let mut assigned =
            assign_shared(&spec, |topic, partition| self.states.is_initialized(topic, partition));
        tracing::info!(group = %self.modern.id, epoch, members = members.len(), "Computed a target assignment");
        self.modern.push_target(&assigned, epoch, cx.now.wall_ms, target_record, records);
        Arc::new(assigned.remove(&member.id).unwrap_or_default())
    }

    /// True if a subscribed topic has an initialized partition without a member, or an assigned one that is
    /// not initialized. A deleted topic may still have partitions recorded as initialized; these are ignored.
    pub(super) fn lacks_assignment(&self, topics: &dyn TopicsView) -> bool {
        let is_assigned = self.is_assigned.get().unwrap_or_else(|| {
            let mut assigned = SharePartitions::new();
            for (topic, partitions) in self.modern.targets.values().flat_map(|target| target.iter()) {
                assigned.entry(*topic).or_default().extend(partitions);
            }
            self.states.initialized.iter().all(|(id, topic)| {
                !self.subscribers.contains_key(&topic.name)
                    || assigned.get(id) == Some(&topic.partitions)
                    || topics.id(&topic.name) != Some(*id)
            })
        });
        self.is_assigned.set(Some(is_assigned));
        !is_assigned
    }
}
