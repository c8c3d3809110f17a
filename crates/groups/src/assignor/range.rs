//! The range assignor (Kafka's `RangeAssignor`): each topic's partitions in contiguous ranges, in the order
//! of its subscribers. Topics with equally many partitions and subscribers are assigned alike, so that
//! members can join them.
//!
//! The current assignment does not matter. Static members come first, by instance id, and so keep their
//! partitions.

use super::{Assignment, GroupSpec, MemberSpec};
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_wire::Uuid;

/// Progress through one topic's partitions.
struct Ranges {
    partitions: i32,
    subscribers: i32,
    next: i32,
    /// Number of next subscribers that get one partition more.
    extras: Option<i32>,
}

impl Ranges {
    fn next(&mut self) -> std::ops::Range<i32> {
        let extras = self.extras.get_or_insert(self.partitions % self.subscribers);
        let quota = self.partitions / self.subscribers + i32::from(*extras > 0);
        *extras -= 1;
        let start = self.next;
        self.next = (start + quota).min(self.partitions);
        start..self.next
    }
}

pub(super) fn assign(spec: &GroupSpec<'_>) -> BTreeMap<Arc<str>, Assignment> {
    let mut topics: BTreeMap<Uuid, Ranges> = BTreeMap::new();
    for member in spec.members.values() {
        for (id, partitions) in spec.existing(&member.topics) {
            let unused = Ranges { partitions, subscribers: 0, next: 0, extras: None };
            topics.entry(id).or_insert(unused).subscribers += 1;
        }
    }
    let mut members: Vec<(&Arc<str>, &MemberSpec)> = spec.members.iter().collect();
    // Stable: members without an instance id stay in the order of their ids.
    members.sort_by_key(|(_, member)| (member.instance_id.is_none(), member.instance_id.clone()));
    let assigned = members.into_iter().map(|(id, member)| {
        let ranges = member.topics.iter().filter_map(|topic| {
            let range = topics.get_mut(topic)?.next();
            (!range.is_empty()).then(|| (*topic, range.collect()))
        });
        (id.clone(), ranges.collect())
    });
    assigned.collect()
}
