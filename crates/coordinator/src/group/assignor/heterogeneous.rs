//! The uniform assignor where members subscribe to different topics (Kafka's
//! `UniformHeterogeneousAssignmentBuilder`): members keep what they subscribe to, the rest goes to the members with the
//! fewest partitions, then partitions move from the most to the least loaded subscribers of a topic, topic by topic.
//!
//! The sizes of the subscribers of any one topic end up at most one apart, unless overlapping subscriptions need more
//! rounds than [`ROUNDS_MAX`].

use super::owners::{NOBODY, Owners};
use super::{Assignment, GroupSpec};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_wire::Uuid;

/// How often all topics are balanced, at the most. One round suffices where the subscribers of a topic all have the same
/// subscriptions, and another finds that nothing is left to do.
const ROUNDS_MAX: usize = 16;

/// A subscribed topic.
struct Topic {
    id: Uuid,
    partitions: usize,
    /// The indexes of its subscribers, ascending.
    subscribers: Vec<usize>,
}

pub(super) fn assign(spec: &GroupSpec<'_>) -> BTreeMap<Arc<str>, Assignment> {
    let mut topics: BTreeMap<Uuid, Topic> = BTreeMap::new();
    for (index, member) in spec.members.values().enumerate() {
        for (id, partitions) in spec.existing(&member.topics) {
            let partitions = usize::try_from(partitions).unwrap_or(0);
            let unread = || Topic { id, partitions, subscribers: Vec::new() };
            topics.entry(id).or_insert_with(unread).subscribers.push(index);
        }
    }
    let counts = topics.iter().map(|(id, topic)| (*id, topic.partitions as i32));
    let mut builder = Builder { owners: Owners::new(counts), sizes: vec![0; spec.members.len()] };
    for (index, member) in spec.members.values().enumerate() {
        let subscribed = member.assigned.iter().filter(|(topic, _)| member.topics.contains(topic));
        let subscribed = subscribed.map(|(topic, partitions)| (*topic, partitions.clone())).collect();
        builder.sizes[index] = builder.owners.claim(index, &subscribed).len();
    }
    let mut topics: Vec<Topic> = topics.into_values().collect();
    topics.sort_by(most_loaded_first);
    for topic in &topics {
        builder.assign_unowned(topic);
    }
    topics.retain(|topic| topic.subscribers.len() > 1);
    builder.balance(&topics);
    builder.owners.assignments(spec)
}

/// Orders topics by partitions per subscriber, descending, then by subscribers, ascending, then by id as Kafka does.
fn most_loaded_first(one: &Topic, other: &Topic) -> Ordering {
    // a/b > c/d, in whole numbers.
    let load =
        |topic: &Topic, divided_by: &Topic| topic.partitions as u64 * divided_by.subscribers.len() as u64;
    let by_load = load(other, one).cmp(&load(one, other));
    let signed = |topic: &Topic| ((topic.id.0 >> 64) as i64, topic.id.0 as i64);
    by_load
        .then_with(|| one.subscribers.len().cmp(&other.subscribers.len()))
        .then_with(|| signed(one).cmp(&signed(other)))
}

struct Builder {
    owners: Owners,
    /// How many partitions each member owns.
    sizes: Vec<usize>,
}

impl Builder {
    fn position(&self, topic: &Topic) -> usize {
        self.owners.position(topic.id).expect("every subscribed topic has owners")
    }

    /// Gives the topic's partitions without an owner to its least loaded subscribers.
    fn assign_unowned(&mut self, topic: &Topic) {
        let position = self.position(topic);
        let owners = self.owners.of(position);
        let mut loads = Loads::new(&topic.subscribers, &self.sizes);
        for owner in owners.iter_mut().filter(|owner| **owner == NOBODY) {
            *owner = loads.next_least(&self.sizes);
            self.sizes[*owner] += 1;
        }
    }

    /// Balances topic after topic until a whole round moved nothing.
    fn balance(&mut self, topics: &[Topic]) {
        let mut last_moved = None;
        for _ in 0..ROUNDS_MAX {
            for (index, topic) in topics.iter().enumerate() {
                if last_moved == Some(index) {
                    return;
                }
                if self.balance_topic(topic) || last_moved.is_none() {
                    last_moved = Some(index);
                }
            }
        }
    }

    /// Moves partitions of a topic from the most to the least loaded of its subscribers. Returns whether any moved.
    fn balance_topic(&mut self, topic: &Topic) -> bool {
        let mut loads = Loads::new(&topic.subscribers, &self.sizes);
        if loads.imbalance(&self.sizes) <= 1 {
            return false;
        }
        let position = self.position(topic);
        let owners = self.owners.of(position);
        let mut by_owner: Vec<usize> = (0..owners.len()).collect();
        by_owner.sort_by_key(|partition| owners[*partition]);
        // The range of each member's partitions in `by_owner`; the last is given away first.
        let mut ranges = thalweg_hash::HashMap::<usize, (usize, usize)>::default();
        for (place, partition) in by_owner.iter().enumerate() {
            ranges.entry(owners[*partition]).or_insert((place, place)).1 = place + 1;
        }
        let mut moved = false;
        while !loads.is_balanced() {
            let Some((from, place)) = loads.next_most(&self.sizes) else { break };
            let Some((_, end)) = ranges.get_mut(&from).filter(|(start, end)| start < end) else {
                loads.exclude(place);
                continue;
            };
            *end -= 1;
            let partition = by_owner[*end];
            let to = loads.next_least(&self.sizes);
            if loads.is_balanced() {
                break;
            }
            owners[partition] = to;
            self.sizes[from] -= 1;
            self.sizes[to] += 1;
            moved = true;
        }
        moved
    }
}

/// The subscribers of a topic in the order of their loads, with a range at either end whose members are equally loaded.
///
/// ```text
///           least              most loaded range
/// partition loaded         [##<-  ]##
/// count     range      ##  [######]##
///           [...->  ]##    [######]##
///           [#######]##    [######]##  the last have no partition of the topic to give
/// ```
///
/// Members of the left range get one partition each, then its level rises and it takes in members of that level; the
/// right range gives likewise. The members are balanced when the levels differ by one at most.
struct Loads {
    members: Vec<usize>,
    least_end: usize,
    least_level: isize,
    next_least: usize,
    most_start: usize,
    most_end: usize,
    most_level: isize,
    /// The place of the next member to give, plus one.
    next_most: usize,
}

impl Loads {
    /// `subscribers` is not empty.
    fn new(subscribers: &[usize], sizes: &[usize]) -> Loads {
        let mut members = subscribers.to_vec();
        members.sort_by_key(|member| sizes[*member]);
        let (first, last) = (members[0], members[members.len() - 1]);
        Loads {
            least_end: 0,
            least_level: sizes[first] as isize - 1,
            next_least: 0,
            most_start: members.len(),
            most_end: members.len(),
            most_level: sizes[last] as isize + 1,
            next_most: members.len(),
            members,
        }
    }

    fn imbalance(&self, sizes: &[usize]) -> usize {
        sizes[self.members[self.members.len() - 1]] - sizes[self.members[0]]
    }

    fn is_balanced(&self) -> bool {
        self.most_level - self.least_level <= 1
    }

    /// The next member to get a partition.
    fn next_least(&mut self, sizes: &[usize]) -> usize {
        if self.next_least >= self.least_end {
            self.least_level += 1;
            let is_level = |member: &&usize| sizes[**member] as isize == self.least_level;
            self.least_end += self.members[self.least_end..].iter().take_while(is_level).count();
            self.next_least = 0;
        }
        self.next_least += 1;
        self.members[self.next_least - 1]
    }

    /// The next member to give a partition and its place, unless none is left that has one.
    fn next_most(&mut self, sizes: &[usize]) -> Option<(usize, usize)> {
        if self.next_most <= self.most_start {
            if self.most_end <= self.most_start && self.most_start > 0 {
                // All members of the range were excluded: the next range starts with the next member.
                self.most_level = sizes[self.members[self.most_start - 1]] as isize;
            } else {
                self.most_level -= 1;
            }
            let is_level = |member: &&usize| sizes[**member] as isize == self.most_level;
            self.most_start -= self.members[..self.most_start].iter().rev().take_while(is_level).count();
            self.next_most = self.most_end;
        }
        self.next_most = self.next_most.checked_sub(1)?;
        Some((self.members[self.next_most], self.next_most))
    }

    /// Takes the member at `place` out of the most loaded range: it has nothing to give.
    fn exclude(&mut self, place: usize) {
        self.most_end -= 1;
        self.members.swap(place, self.most_end);
    }
}
