//! The uniform assignor where all members subscribe to the same topics (Kafka's
//! `UniformHomogeneousAssignmentBuilder`): the sizes of any two assignments differ by one at most, and as
//! many partitions as possible stay.

use super::owners::{NOBODY, PartitionOwners};
use super::{Assignment, GroupSpec};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Quota of the remaining members: `minimum` partitions, and one more for `extras` of the members.
struct Quotas {
    minimum: usize,
    extras: usize,
}

pub(super) fn assign(spec: &GroupSpec<'_>) -> BTreeMap<Arc<str>, Assignment> {
    let Some(first) = spec.members.values().next() else { return BTreeMap::new() };
    let mut owners = PartitionOwners::new(spec.existing(&first.topics));
    let claimed: Vec<_> = spec
        .members
        .values()
        .enumerate()
        .map(|(index, member)| owners.claim(index, &member.assigned))
        .collect();
    let mut unassigned = owners.unowned();
    let count = spec.members.len();
    let mut quotas = Quotas { minimum: owners.partitions() / count, extras: owners.partitions() % count };
    let mut wanting = Vec::new();
    for (member, claimed) in claimed.into_iter().enumerate() {
        let (kept, missing) = quotas.take(claimed.len(), count - member);
        for (topic, partition) in claimed.into_iter().skip(kept) {
            owners.of(topic)[partition as usize] = NOBODY;
            unassigned.push((topic, partition));
        }
        wanting.push((member, missing));
    }
    let seats = wanting.into_iter().flat_map(|(member, missing)| std::iter::repeat_n(member, missing));
    for (member, (topic, partition)) in seats.zip(unassigned) {
        owners.of(topic)[partition as usize] = member;
    }
    owners.assignments(spec)
}

impl Quotas {
    /// Number of partitions that the next member keeps, and number that it still gets. `members_left`
    /// includes it.
    fn take(&mut self, owned: usize, members_left: usize) -> (usize, usize) {
        let may_have_extra = self.extras > 0;
        let quota = self.minimum + usize::from(may_have_extra);
        let kept = owned.min(quota);
        // The extra partition is reserved for a member that already has it, unless every remaining member
        // must take one.
        if may_have_extra && kept < quota && members_left > self.extras {
            return (kept, quota - 1 - kept);
        }
        self.extras -= usize::from(may_have_extra);
        (kept, quota - kept)
    }
}
