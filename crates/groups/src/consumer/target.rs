//! The target assignment: computed for a group epoch by one of the server's assignors
//! (`TargetAssignmentBuilder`).

use super::member::{ConsumerGroupMember, target_record};
use super::{ConsumerContext, ConsumerGroup};
use crate::assignor::{Assignment, GroupSpec, MemberSpec, ServerAssignor, TopicSpec};
use crate::modern::Target;
use crate::record::CoordinatorRecord;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_wire::Uuid;

impl ConsumerGroup {
    /// The target of a member at this group epoch. A new assignment is computed if the last one is for an
    /// earlier epoch and `group.consumer.assignment.interval.ms` have passed since; until then members move
    /// towards the last one. `member` is the member after the change; `replaces` is the previous member id of
    /// its instance id.
    pub(super) fn target(
        &self,
        cx: &ConsumerContext<'_>,
        epoch: i32,
        member: &ConsumerGroupMember,
        replaces: Option<&str>,
        records: &mut Vec<CoordinatorRecord>,
    ) -> Target<Assignment> {
        let interval_ms = cx.times.assignment_interval_ms;
        let is_due = self.modern.is_target_due(interval_ms, cx.now.wall_ms);
        if self.modern.target_epoch >= epoch || !is_due {
            return self.modern.last_target(replaces.unwrap_or(&member.id));
        }
        let of_member = self.compute(cx, epoch, member, replaces, records);
        Target { epoch, of_member }
    }

    fn compute(
        &self,
        cx: &ConsumerContext<'_>,
        epoch: i32,
        member: &ConsumerGroupMember,
        replaces: Option<&str>,
        records: &mut Vec<CoordinatorRecord>,
    ) -> Arc<Assignment> {
        let mut subscriptions = Subscriptions { group: self, cx, known: BTreeMap::new() };
        let mut members: BTreeMap<Arc<str>, MemberSpec> = BTreeMap::new();
        let others = self
            .modern
            .members
            .values()
            .filter(|other| *other.id != *member.id && Some(&*other.id) != replaces);
        for each in others.chain([member]) {
            let had = if each.id == member.id { replaces.unwrap_or(&each.id) } else { &each.id };
            members.insert(
                each.id.clone(),
                MemberSpec {
                    instance_id: each.instance_id.clone(),
                    topics: subscriptions.of(each),
                    assigned: Assignment::clone(&self.modern.target_of(had)),
                },
            );
        }
        let first = &members[&member.id].topics;
        let homogeneous =
            members.values().all(|spec| Arc::ptr_eq(&spec.topics, first) || spec.topics == *first);
        let ids: BTreeSet<Uuid> = subscriptions.known.values().flat_map(|ids| ids.iter().copied()).collect();
        let partitions = |id| Some((id, TopicSpec { partitions: cx.topics.partition_count(id)? }));
        let topics: BTreeMap<Uuid, TopicSpec> = ids.into_iter().filter_map(partitions).collect();
        let spec = GroupSpec { members: &members, homogeneous, topics: &topics };
        let assignor = self.assignor(cx, member);
        let mut assigned = assignor.assign(&spec);
        tracing::info!(group = %self.modern.id, epoch, assignor = assignor.name(), members = members.len(), "Computed a target assignment");
        self.modern.push_target(&assigned, epoch, cx.now.wall_ms, target_record, records);
        Arc::new(assigned.remove(&member.id).unwrap_or_default())
    }

    /// The assignor that most members request, or the broker's first. Between assignors with equal counts,
    /// the one that this member alone requests is chosen, and `uniform` otherwise: Apache Kafka takes the
    /// first entry of a hash map, to which a new name is added in front.
    fn assignor(&self, cx: &ConsumerContext<'_>, member: &ConsumerGroupMember) -> ServerAssignor {
        let mut counts: BTreeMap<&str, usize> =
            self.assignors.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        if let Some(before) =
            self.modern.members.get(&member.id).and_then(|before| before.assignor.as_deref())
            && let Some(count) = counts.get_mut(before)
        {
            *count -= 1;
        }
        if let Some(name) = member.assignor.as_deref() {
            *counts.entry(name).or_default() += 1;
        }
        let offered = &cx.config.consumer.assignors;
        let is_new = |name: &str, count| count == 1 && member.assignor.as_deref() == Some(name);
        let requested = counts.into_iter().filter(|(_, count)| *count > 0);
        let wanted = requested.max_by_key(|(name, count)| (*count, is_new(name, *count)));
        let wanted = wanted.and_then(|(name, _)| offered.iter().find(|assignor| assignor.name() == name));
        wanted.or(offered.first()).copied().unwrap_or(ServerAssignor::Uniform)
    }
}

/// A member's subscription: topics, and a regular expression.
type Names<'a> = (Arc<BTreeSet<String>>, Option<&'a str>);

/// Subscribed topic ids of members. Most members of a group have the same subscription and share one set.
struct Subscriptions<'a> {
    group: &'a ConsumerGroup,
    cx: &'a ConsumerContext<'a>,
    known: BTreeMap<Names<'a>, Arc<BTreeSet<Uuid>>>,
}

impl<'a> Subscriptions<'a> {
    fn of(&mut self, member: &'a ConsumerGroupMember) -> Arc<BTreeSet<Uuid>> {
        let key = (member.topics.clone(), member.regex());
        let (group, topics) = (self.group, self.cx.topics);
        let ids = self.known.entry(key).or_insert_with(|| Arc::new(group.topic_ids(member, topics)));
        ids.clone()
    }
}
