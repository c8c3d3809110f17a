//! The uniform assignor where members subscribe to different topics: members keep the partitions they
//! subscribe to, partitions without an owner go to the subscriber with the fewest, then partitions move from
//! the subscriber with the most to the subscriber with the fewest, topic by topic, until no move helps.
//!
//! As in Kafka, the subscribers of a topic end up at most one partition apart, as far as the larger members
//! have a partition of that topic to give. Ties are decided by the order of member ids, and may differ from
//! Kafka's.

use super::owners::{NOBODY, PartitionOwners};
use super::{Assignment, GroupSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_wire::Uuid;

/// Maximum number of rounds over all topics. One round suffices if the subscribers of a topic all have the
/// same subscriptions; a second round then finds nothing to move.
const ROUNDS_MAX: usize = 16;

/// A subscribed topic.
struct Topic {
    partitions: i32,
    /// Indexes of the subscribing members.
    subscribers: Vec<usize>,
}

pub(super) fn assign(spec: &GroupSpec<'_>) -> BTreeMap<Arc<str>, Assignment> {
    let mut topics: BTreeMap<Uuid, Topic> = BTreeMap::new();
    for (index, member) in spec.members.values().enumerate() {
        for (id, partitions) in spec.existing(&member.topics) {
            let unread = || Topic { partitions, subscribers: Vec::new() };
            topics.entry(id).or_insert_with(unread).subscribers.push(index);
        }
    }
    let counts = topics.iter().map(|(id, topic)| (*id, topic.partitions));
    let mut sharing =
        Distribution { owners: PartitionOwners::new(counts), sizes: vec![0; spec.members.len()] };
    for (index, member) in spec.members.values().enumerate() {
        let subscribed = member.assigned.iter().filter(|(topic, _)| member.topics.contains(topic));
        let subscribed = subscribed.map(|(topic, partitions)| (*topic, partitions.clone())).collect();
        sharing.sizes[index] = sharing.owners.claim(index, &subscribed).len();
    }
    // `topics` and the owners have the same order: all topics by id.
    let mut topics: Vec<(usize, Topic)> = topics.into_values().enumerate().collect();
    // Topics with the fewest subscribers first: the members of larger topics can balance the loads later.
    topics.sort_by_key(|(_, topic)| topic.subscribers.len());
    for (position, topic) in &topics {
        sharing.hand_out(*position, topic);
    }
    for _ in 0..ROUNDS_MAX {
        let moved = topics.iter().filter(|(position, topic)| sharing.balance(*position, topic)).count();
        if moved == 0 {
            break;
        }
    }
    sharing.owners.assignments(spec)
}

struct Distribution {
    owners: PartitionOwners,
    /// Number of partitions of each member.
    sizes: Vec<usize>,
}

impl Distribution {
    /// Members in the order of their partition counts.
    fn by_size(&self, members: impl Iterator<Item = usize>) -> BTreeSet<(usize, usize)> {
        members.map(|member| (self.sizes[member], member)).collect()
    }

    /// Gives each partition of a topic that has no owner to the subscriber with the fewest.
    fn hand_out(&mut self, position: usize, topic: &Topic) {
        let mut takers = self.by_size(topic.subscribers.iter().copied());
        for owner in self.owners.of(position).iter_mut().filter(|owner| **owner == NOBODY) {
            let (size, taker) = takers.pop_first().expect("a subscribed topic has a subscriber");
            *owner = taker;
            self.sizes[taker] = size + 1;
            takers.insert((size + 1, taker));
        }
    }

    /// Moves partitions of a topic from the subscriber with the most that has one to give to the subscriber
    /// with the fewest, until the two are at most one partition apart. Returns true if any partition moved.
    fn balance(&mut self, position: usize, topic: &Topic) -> bool {
        let mut held: HashMap<usize, Vec<usize>> = HashMap::default();
        for (partition, owner) in self.owners.of(position).iter().enumerate() {
            held.entry(*owner).or_default().push(partition);
        }
        let mut givers = self.by_size(held.keys().copied());
        let mut takers = self.by_size(topic.subscribers.iter().copied());
        let mut has_moved = false;
        while let (Some(&(most, giver)), Some(&(fewest, taker))) = (givers.last(), takers.first())
            && most > fewest + 1
        {
            let partitions = held.get_mut(&giver).expect("it holds some");
            let partition = partitions.pop().expect("it holds one at least");
            let can_give_more = !partitions.is_empty();
            self.owners.of(position)[partition] = taker;
            let had_some = held.get(&taker).is_some_and(|held| !held.is_empty());
            held.entry(taker).or_default().push(partition);
            self.sizes[giver] -= 1;
            self.sizes[taker] += 1;
            givers.remove(&(most, giver));
            takers.remove(&(most, giver));
            takers.insert((most - 1, giver));
            if can_give_more {
                givers.insert((most - 1, giver));
            }
            takers.remove(&(fewest, taker));
            takers.insert((fewest + 1, taker));
            if had_some {
                givers.remove(&(fewest, taker));
            }
            givers.insert((fewest + 1, taker));
            has_moved = true;
        }
        has_moved
    }
}
