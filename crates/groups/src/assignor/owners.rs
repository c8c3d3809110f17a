//! The owner of each partition while an assignor computes an assignment with one owner per partition.

use super::{Assignment, GroupSpec};
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_wire::Uuid;

/// Marks a partition without an owner. Members are numbered in the order of their ids.
pub(super) const NOBODY: usize = usize::MAX;

/// The owners of all partitions of some topics.
pub(super) struct PartitionOwners {
    /// The topics in the order of their ids, each with the owner of each partition.
    topics: Vec<(Uuid, Vec<usize>)>,
}

impl PartitionOwners {
    /// Owners of these topics, sorted by id; no partition has an owner yet.
    pub(super) fn new(topics: impl Iterator<Item = (Uuid, i32)>) -> PartitionOwners {
        let unowned = |count: i32| vec![NOBODY; usize::try_from(count).unwrap_or(0)];
        PartitionOwners { topics: topics.map(|(id, count)| (id, unowned(count))).collect() }
    }

    /// The number of partitions.
    pub(super) fn partitions(&self) -> usize {
        self.topics.iter().map(|(_, owners)| owners.len()).sum()
    }

    /// Index of a topic, if it is known.
    pub(super) fn position(&self, topic: Uuid) -> Option<usize> {
        self.topics.binary_search_by_key(&topic, |(id, _)| *id).ok()
    }

    /// The owners of a topic's partitions, by its position.
    pub(super) fn of(&mut self, topic: usize) -> &mut [usize] {
        &mut self.topics[topic].1
    }

    /// Takes over a member's assignment as far as its partitions exist and have no owner. Returns the
    /// partitions taken, by the position of their topic.
    pub(super) fn claim(&mut self, member: usize, assigned: &Assignment) -> Vec<(usize, i32)> {
        let mut claimed = Vec::new();
        for (id, partitions) in assigned {
            let Some(topic) = self.position(*id) else { continue };
            for partition in partitions {
                let place = usize::try_from(*partition).ok().and_then(|index| self.of(topic).get_mut(index));
                if let Some(owner) = place.filter(|owner| **owner == NOBODY) {
                    *owner = member;
                    claimed.push((topic, *partition));
                }
            }
        }
        claimed
    }

    /// The partitions without an owner, in the order of topics and numbers.
    pub(super) fn unowned(&self) -> Vec<(usize, i32)> {
        let mut unowned = Vec::new();
        for (topic, (_, owners)) in self.topics.iter().enumerate() {
            let partitions = (0..).zip(owners);
            unowned
                .extend(partitions.filter(|(_, owner)| **owner == NOBODY).map(|(index, _)| (topic, index)));
        }
        unowned
    }

    /// The assignment of each member of the group.
    pub(super) fn assignments(&self, spec: &GroupSpec<'_>) -> BTreeMap<Arc<str>, Assignment> {
        let mut assigned = vec![Vec::<(Uuid, Vec<i32>)>::new(); spec.members.len()];
        for (id, owners) in &self.topics {
            for (partition, owner) in (0..).zip(owners).filter(|(_, owner)| **owner != NOBODY) {
                let topics = &mut assigned[*owner];
                match topics.last_mut() {
                    Some((last, partitions)) if last == id => partitions.push(partition),
                    _ => topics.push((*id, vec![partition])),
                }
            }
        }
        let sets = |topics: Vec<(Uuid, Vec<i32>)>| {
            topics.into_iter().map(|(id, partitions)| (id, partitions.into_iter().collect())).collect()
        };
        spec.members.keys().cloned().zip(assigned.into_iter().map(sets)).collect()
    }
}
