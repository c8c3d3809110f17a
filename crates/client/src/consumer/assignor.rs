//! Kafka's partition assignors: `range`, `roundrobin` and `cooperative-sticky`. Pure.

mod sticky;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::offsets::TopicPartition;

/// The assignor of a group's leader: an entry of `partition.assignment.strategy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AssignmentStrategy {
    /// `range`: every member gets a run of neighbouring partitions of each topic.
    Range,
    /// `roundrobin`: the partitions of all topics are distributed in rotation.
    RoundRobin,
    /// `cooperative-sticky`: as even as possible, and members keep their partitions; only moved partitions
    /// are revoked (KIP-429).
    CooperativeSticky,
}

impl AssignmentStrategy {
    pub const ALL: [AssignmentStrategy; 3] =
        [AssignmentStrategy::Range, AssignmentStrategy::RoundRobin, AssignmentStrategy::CooperativeSticky];

    /// The strategy's name in JoinGroup.
    pub fn name(self) -> &'static str {
        match self {
            AssignmentStrategy::Range => "range",
            AssignmentStrategy::RoundRobin => "roundrobin",
            AssignmentStrategy::CooperativeSticky => "cooperative-sticky",
        }
    }

    /// The strategy with this name or Kafka class name.
    pub fn from_name(name: &str) -> Option<AssignmentStrategy> {
        let class = |strategy| match strategy {
            AssignmentStrategy::Range => "RangeAssignor",
            AssignmentStrategy::RoundRobin => "RoundRobinAssignor",
            AssignmentStrategy::CooperativeSticky => "CooperativeStickyAssignor",
        };
        let of_class = name.strip_prefix("org.apache.kafka.clients.consumer.");
        let is_it =
            |strategy: &AssignmentStrategy| strategy.name() == name || of_class == Some(class(*strategy));
        AssignmentStrategy::ALL.into_iter().find(is_it)
    }

    /// True if members keep their partitions while the group rebalances.
    pub fn is_cooperative(self) -> bool {
        self == AssignmentStrategy::CooperativeSticky
    }
}

/// The leader's information about a member.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Subscriber {
    pub(super) id: String,
    /// `group.instance.id` of a static member.
    pub(super) instance_id: Option<String>,
    pub(super) topics: BTreeSet<String>,
    /// The member's partitions when it joined, and the generation of that assignment.
    pub(super) owned: Vec<TopicPartition>,
    pub(super) generation: i32,
}

/// The partitions of each member, by member id.
pub(super) type Assignments = BTreeMap<String, Vec<TopicPartition>>;

/// Assigns the partitions of all subscribed topics. `partition_count` gives the number of partitions of a
/// topic.
pub(super) fn assign(
    strategy: AssignmentStrategy,
    mut members: Vec<Subscriber>,
    partition_count: impl Fn(&str) -> usize,
) -> Assignments {
    // Static members first, by their instance ids, which survive a restart.
    members.sort_by(|a, b| {
        let order = |member: &Subscriber| (member.instance_id.is_none(), member.instance_id.clone());
        order(a).cmp(&order(b)).then_with(|| a.id.cmp(&b.id))
    });
    let topics: BTreeSet<&str> =
        members.iter().flat_map(|member| &member.topics).map(String::as_str).collect();
    let topics: Vec<(Arc<str>, i32)> = topics
        .into_iter()
        .map(|topic| (topic.into(), i32::try_from(partition_count(topic)).unwrap_or(i32::MAX)))
        .collect();
    let mut assigned: Assignments = members.iter().map(|member| (member.id.clone(), Vec::new())).collect();
    match strategy {
        AssignmentStrategy::Range => range(&members, &topics, &mut assigned),
        AssignmentStrategy::RoundRobin => round_robin(&members, &topics, &mut assigned),
        AssignmentStrategy::CooperativeSticky => sticky::assign(&members, &topics, &mut assigned),
    }
    assigned
}

fn give(assigned: &mut Assignments, member: &Subscriber, at: TopicPartition) {
    assigned.get_mut(&member.id).expect("every member has an entry").push(at);
}

/// If the division has a remainder, the first members get one more partition.
fn range(members: &[Subscriber], topics: &[(Arc<str>, i32)], assigned: &mut Assignments) {
    for (topic, count) in topics {
        let readers: Vec<&Subscriber> =
            members.iter().filter(|member| member.topics.contains(&**topic)).collect();
        let mut partitions = 0..*count;
        let (count, among) = (usize::try_from(*count).unwrap_or(0), readers.len());
        for (place, member) in readers.iter().enumerate() {
            let share = count / among + usize::from(place < count % among);
            for partition in partitions.by_ref().take(share) {
                give(assigned, member, TopicPartition::new(Arc::clone(topic), partition));
            }
        }
    }
}

/// Members not subscribed to a topic are skipped for its partitions.
fn round_robin(members: &[Subscriber], topics: &[(Arc<str>, i32)], assigned: &mut Assignments) {
    let mut turn = 0;
    for (topic, count) in topics {
        for partition in 0..*count {
            while !members[turn % members.len()].topics.contains(&**topic) {
                turn += 1;
            }
            let member = &members[turn % members.len()];
            give(assigned, member, TopicPartition::new(Arc::clone(topic), partition));
            turn += 1;
        }
    }
}

#[cfg(test)]
mod tests;
