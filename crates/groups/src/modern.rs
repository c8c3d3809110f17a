//! The common part of consumer, share and streams groups, whose coordinator assigns (Kafka's `ModernGroup`):
//! epochs, members and their targets, as derived from records.

use std::collections::BTreeMap;
use std::sync::Arc;

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

    /// Applies the record of a member's target.
    pub(super) fn set_target(&mut self, id: String, target: T) {
        let id = match self.members.get_key_value(id.as_str()) {
            Some((id, _)) => id.clone(),
            None => id.into(),
        };
        self.targets.insert(id, Arc::new(target));
    }

    /// The member with this id, or a new one.
    pub(super) fn member_or_new(&self, id: String, new: impl FnOnce(Arc<str>) -> M) -> M {
        self.members.get(id.as_str()).cloned().unwrap_or_else(|| new(id.into()))
    }

    /// A member's part of the target assignment.
    pub(super) fn target_of(&self, id: &str) -> Arc<T> {
        self.targets.get(id).cloned().unwrap_or_default()
    }

    /// The next group epoch. It exceeds the target epoch, too: the log may lack the record of that group
    /// epoch, and members would wait for the target of an epoch that is never assigned.
    pub(super) fn next_epoch(&self) -> i32 {
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
}
