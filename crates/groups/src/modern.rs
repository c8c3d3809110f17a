//! The common part of consumer, share and streams groups, whose coordinator assigns (Kafka's `ModernGroup`):
//! epochs, members and their targets, as derived from records, and the records of targets and tombstones.

use super::record::{CoordinatorRecord, ModernRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_wire::request::list_groups_response::ListedGroup;

/// The epoch of a group, and of its target assignment, before the first member joins.
const FIRST_EPOCH: i32 = 1;

/// A group of one of these types. `M` is a member, `T` a member's part of the target assignment.
#[derive(Debug)]
pub(super) struct ModernGroup<M, T> {
    pub(super) id: Arc<str>,
    pub(super) epoch: i32,
    /// The hash of the subscribed topics, or of the topology's topics.
    pub(super) metadata_hash: i64,
    /// The epoch of the target assignment.
    pub(super) target_epoch: i32,
    /// Wall-clock time of the target assignment; 0 before the first.
    pub(super) target_made_ms: i64,
    pub(super) members: BTreeMap<Arc<str>, M>,
    pub(super) targets: BTreeMap<Arc<str>, Arc<T>>,
}

/// A member's target, and the epoch of the assignment.
pub(super) struct Target<T> {
    pub(super) epoch: i32,
    pub(super) of_member: Arc<T>,
}

impl<M: Clone, T: Default> ModernGroup<M, T> {
    /// A group without members or history.
    pub(super) fn new(id: Arc<str>) -> Self {
        ModernGroup {
            id,
            epoch: FIRST_EPOCH,
            metadata_hash: 0,
            target_epoch: FIRST_EPOCH,
            target_made_ms: 0,
            members: BTreeMap::new(),
            targets: BTreeMap::new(),
        }
    }

    /// Applies the record of the target assignment's epoch and time, or its tombstone.
    pub(super) fn follow_target(&mut self, value: Option<(i32, i64)>) {
        (self.target_epoch, self.target_made_ms) = value.unwrap_or((FIRST_EPOCH, 0));
    }

    /// Applies the record of a member's target, or its tombstone.
    pub(super) fn set_target(&mut self, id: String, target: Option<T>) {
        let Some(target) = target else {
            self.targets.remove(id.as_str());
            return;
        };
        let id = match self.members.get_key_value(id.as_str()) {
            Some((id, _)) => id.clone(),
            None => id.into(),
        };
        self.targets.insert(id, Arc::new(target));
    }

    /// True if the group has this member, or fewer than `max` members.
    pub(super) fn has_room_for(&self, id: &str, max: usize) -> bool {
        self.members.len() < max || self.members.contains_key(id)
    }

    /// The member with this id, or a new one.
    pub(super) fn member_or_new(&self, id: String, new: impl FnOnce(Arc<str>) -> M) -> M {
        self.members.get(id.as_str()).cloned().unwrap_or_else(|| new(id.into()))
    }

    /// A member's part of the target assignment.
    pub(super) fn target_of(&self, id: &str) -> Arc<T> {
        self.targets.get(id).cloned().unwrap_or_default()
    }

    /// A member's part of the target assignment, with its epoch.
    pub(super) fn last_target(&self, id: &str) -> Target<T> {
        Target { epoch: self.target_epoch, of_member: self.target_of(id) }
    }

    /// Raises the group epoch, and returns it. `record` makes the record of an epoch.
    pub(super) fn raise_epoch(
        &self,
        record: impl FnOnce(i32) -> CoordinatorRecord,
        records: &mut Vec<CoordinatorRecord>,
    ) -> i32 {
        let epoch = self.next_epoch();
        records.push(record(epoch));
        tracing::info!(group = %self.id, epoch, "Raised the group epoch");
        epoch
    }

    /// The next group epoch. It exceeds the target epoch, too: the log may lack the record of that group
    /// epoch, and members would wait for the target of an epoch that is never assigned.
    fn next_epoch(&self) -> i32 {
        self.epoch.max(self.target_epoch) + 1
    }

    /// True if a new target may be computed, by the time of the last one and the minimum interval.
    pub(super) fn is_target_due(&self, interval_ms: i32, now_ms: i64) -> bool {
        let made_ms = self.target_made_ms;
        made_ms == 0
            || interval_ms == 0
            || now_ms >= made_ms.saturating_add(i64::from(interval_ms))
            // The clock was set back.
            || now_ms < made_ms
    }

    /// Members whose own records are lost, but not their targets: the partitions or tasks of these targets
    /// would seem assigned.
    pub(super) fn lost_members(&self) -> impl Iterator<Item = &str> + Clone {
        self.targets.keys().filter(|id| !self.members.contains_key(*id)).map(|id| &**id)
    }

    /// Pushes the records of a target assignment of this epoch: the targets that differ from the last ones,
    /// then epoch and time. `record` makes the record of a member's target from the ids of group and member.
    pub(super) fn push_target<R: ModernRecord>(
        &self,
        assigned: &BTreeMap<Arc<str>, T>,
        epoch: i32,
        now_ms: i64,
        record: impl Fn(&str, &str, &T) -> R,
        records: &mut Vec<CoordinatorRecord>,
    ) where
        T: PartialEq,
    {
        for (id, target) in assigned {
            if self.targets.get(id).is_none_or(|before| **before != *target) {
                records.push(record(&self.id, id, target).into());
            }
        }
        records.push(R::target(&self.id, Some((epoch, now_ms))).into());
    }

    /// Pushes the tombstones of members.
    pub(super) fn push_member_tombstones<'a, R: ModernRecord>(
        &self,
        ids: impl Iterator<Item = &'a str> + Clone,
        records: &mut Vec<CoordinatorRecord>,
    ) {
        self.push_in_order::<R>(ids, None, records);
    }

    /// Pushes the tombstones of members and of the target assignment.
    pub(super) fn push_tombstones<'a, R: ModernRecord>(
        &self,
        ids: impl Iterator<Item = &'a str> + Clone,
        records: &mut Vec<CoordinatorRecord>,
    ) {
        self.push_in_order(ids, Some(R::target(&self.id, None)), records);
    }

    /// Pushes tombstones in Kafka's order: Kafka rejects any other order on replay.
    fn push_in_order<'a, R: ModernRecord>(
        &self,
        ids: impl Iterator<Item = &'a str> + Clone,
        target: Option<R>,
        records: &mut Vec<CoordinatorRecord>,
    ) {
        records.extend(ids.clone().map(|id| R::current(&self.id, id, None).into()));
        records.extend(ids.clone().map(|id| R::member_target(&self.id, id, None).into()));
        records.extend(target.map(Into::into));
        records.extend(ids.map(|id| R::description(&self.id, id, None).into()));
    }

    /// Kafka's name of the state of a group with members. `is_reconciled` is true for a member that has
    /// reached its target at an epoch.
    pub(super) fn progress(&self, is_reconciled: impl Fn(&M, i32) -> bool) -> &'static str {
        if self.epoch > self.target_epoch {
            // A new target assignment is due.
            "Assigning"
        } else if self.members.values().all(|member| is_reconciled(member, self.target_epoch)) {
            "Stable"
        } else {
            "Reconciling"
        }
    }

    /// The group's entry in ListGroups. `kind` is Kafka's name of the group type.
    pub(super) fn list(&self, kind: &str, state: &str) -> ListedGroup {
        ListedGroup {
            group_id: self.id.to_string(),
            protocol_type: kind.to_owned(),
            group_state: state.to_owned(),
            group_type: kind.to_owned(),
        }
    }
}

/// The subscribed topics in a heartbeat, if they differ from the member's.
pub(super) fn changed_topics(
    names: Option<&Vec<String>>,
    before: &BTreeSet<String>,
) -> Option<Arc<BTreeSet<String>>> {
    let names = names?;
    let distinct: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let is_same = distinct.iter().copied().eq(before.iter().map(String::as_str));
    (!is_same).then(|| Arc::new(names.iter().cloned().collect()))
}
