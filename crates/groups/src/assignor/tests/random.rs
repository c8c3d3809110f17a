//! Random groups that change step by step, from a seed.

use crate::assignor::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A group with its topics.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) members: BTreeMap<Arc<str>, MemberSpec>,
    pub(super) topics: BTreeMap<Uuid, TopicSpec>,
}

impl Group {
    pub(super) fn spec(&self) -> GroupSpec<'_> {
        let mut members = self.members.values();
        let first = members.next();
        let homogeneous = members.all(|member| first.is_some_and(|first| first.topics == member.topics));
        GroupSpec { members: &self.members, homogeneous, topics: &self.topics }
    }

    /// Gives the members their new assignments.
    pub(super) fn assign(&mut self, assignor: &ServerAssignor) {
        let assigned = assignor.assign(&self.spec());
        self.take(assigned);
    }

    pub(super) fn take(&mut self, assigned: BTreeMap<Arc<str>, Assignment>) {
        for (member, assigned) in assigned {
            self.members.get_mut(&member).expect("an assignor adds no members").assigned = assigned;
        }
    }

    /// A member that subscribes to all topics.
    pub(super) fn member(&self) -> MemberSpec {
        MemberSpec { topics: Arc::new(self.topics.keys().copied().collect()), ..Default::default() }
    }

    /// A group of this size.
    pub(super) fn of(members: usize, topics: u128, partitions: i32) -> Group {
        let mut group = Group::default();
        group.topics.extend((1..=topics).map(|id| (Uuid(id), TopicSpec { partitions })));
        let member = group.member();
        group.members.extend((0..members).map(|index| (format!("member-{index:05}").into(), member.clone())));
        group
    }
}

/// The random history of a group.
pub(super) struct Life {
    rng: StdRng,
    pub(super) group: Group,
    joined: usize,
    max_topics: usize,
    heterogeneous: bool,
}

impl Life {
    pub(super) fn new(seed: u64) -> Life {
        let mut rng = StdRng::seed_from_u64(seed);
        let max_topics = if rng.random_bool(0.4) { 1 } else { rng.random_range(2..8) };
        let heterogeneous = max_topics > 1 && rng.random_bool(0.6);
        Life { rng, group: Group::default(), joined: 0, max_topics, heterogeneous }
    }

    /// A few changes: members join, leave and change their subscriptions; topics are created, grow and are
    /// deleted.
    pub(super) fn step(&mut self) {
        for _ in 0..self.rng.random_range(1..6) {
            self.change();
        }
        self.group.topics.retain(|_, topic| topic.partitions > 0);
        if !self.heterogeneous {
            let all = self.group.member().topics;
            self.group.members.values_mut().for_each(|member| member.topics = all.clone());
        }
        let existing = self.group.topics.clone();
        for member in self.group.members.values_mut() {
            member.topics =
                Arc::new(member.topics.iter().filter(|id| existing.contains_key(id)).copied().collect());
            member.assigned.retain(|id, _| existing.contains_key(id));
        }
    }

    fn change(&mut self) {
        let topics: Vec<Uuid> = self.group.topics.keys().copied().collect();
        let members: Vec<Arc<str>> = self.group.members.keys().cloned().collect();
        let any = self.rng.random_range(0..usize::MAX);
        match self.rng.random_range(0..10) {
            0 | 1 if topics.len() < self.max_topics => {
                let partitions = self.rng.random_range(1..40);
                self.group.topics.insert(Uuid(self.rng.random()), TopicSpec { partitions });
            }
            2 if !topics.is_empty() => {
                let topic = self.group.topics.get_mut(&topics[any % topics.len()]).expect("it exists");
                topic.partitions += self.rng.random_range(1..8);
            }
            3 if topics.len() > 1 && self.rng.random_bool(0.3) => {
                self.group.topics.remove(&topics[any % topics.len()]);
            }
            4 if !members.is_empty() => {
                self.group.members.remove(&members[any % members.len()]);
            }
            5 | 6 if !members.is_empty() && self.heterogeneous => {
                let chosen = topics.iter().filter(|_| self.rng.random_bool(0.6)).copied().collect();
                let member = self.group.members.get_mut(&members[any % members.len()]).expect("it exists");
                member.topics = Arc::new(chosen);
            }
            _ => {
                self.joined += 1;
                let instance_id =
                    self.rng.random_bool(0.3).then(|| format!("i{}", any % 1000 + self.joined * 1000).into());
                let member = MemberSpec { instance_id, ..self.group.member() };
                self.group.members.insert(format!("m{any:020}").into(), member);
            }
        }
    }
}
