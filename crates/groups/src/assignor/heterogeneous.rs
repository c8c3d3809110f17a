//! The uniform assignor where members subscribe to different topics: members keep what they subscribe to, partitions
//! without an owner go to the subscriber with the fewest, then partitions move from the subscriber with the most to the
//! one with the fewest, topic by topic, until no move helps.
//!
//! As with Kafka's, the subscribers of any one topic end up at most one partition apart, as far as those with more have
//! a partition of that topic to give. Ties are decided by the order of member ids, and so may differ from Kafka's.

use super::owners::{NOBODY, Owners};
use super::{Assignment, GroupSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_wire::Uuid;

/// How often all topics are balanced, at the most. One round suffices where the subscribers of a topic all have the same
/// subscriptions, and another finds that nothing is left to do.
const ROUNDS_MAX: usize = 16;

/// A subscribed topic.
struct Topic {
    partitions: i32,
    /// The indexes of its subscribers.
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
    let mut sharing = Sharing { owners: Owners::new(counts), sizes: vec![0; spec.members.len()] };
    for (index, member) in spec.members.values().enumerate() {
        let subscribed = member.assigned.iter().filter(|(topic, _)| member.topics.contains(topic));
        let subscribed = subscribed.map(|(topic, partitions)| (*topic, partitions.clone())).collect();
        sharing.sizes[index] = sharing.owners.claim(index, &subscribed).len();
    }
    // The position of a topic among the owners is that among all topics by id.
    let mut topics: Vec<(usize, Topic)> = topics.into_values().enumerate().collect();
    // Those with the fewest subscribers first: the others can make up for their loads.
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

struct Sharing {
    owners: Owners,
    /// How many partitions each member owns.
    sizes: Vec<usize>,
}

impl Sharing {
    /// Members by how many partitions they own.
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

    /// Moves partitions of a topic to the subscriber with the fewest, from the one with the most that has one to give, until
    /// they are at most one apart. Returns whether any moved.
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
