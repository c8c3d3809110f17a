//! The assignor of share groups (Kafka's `SimpleAssignor`, named `simple`): a partition may have several
//! readers.
//!
//! With fewer partitions than members, each partition gets enough readers to occupy every member; otherwise
//! one reader. Members differ by one partition at most, and keep as many partitions as that allows. If
//! members subscribe to different topics, this balance holds per topic.
//!
//! Two differences from Kafka, which assigns nothing more once a single partition found no further reader,
//! and never takes away a topic that lost its last subscriber: here every assignable partition of a
//! subscribed topic has a reader, and no member keeps a topic outside its subscription.

use super::{Assignment, GroupSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_wire::Uuid;

/// The name of the only assignor of share groups.
pub const NAME: &str = "simple";

/// The new assignment of each member of a share group. `assignable` is true for partitions whose share state
/// is initialised; no other partition is assigned.
pub fn assign_shared(
    spec: &GroupSpec<'_>,
    assignable: impl Fn(Uuid, i32) -> bool,
) -> BTreeMap<Arc<str>, Assignment> {
    let mut assigned = vec![Assignment::new(); spec.members.len()];
    let subscribed: BTreeSet<Uuid> =
        spec.members.values().flat_map(|member| member.topics.iter().copied()).collect();
    let partitions = |(topic, count): (Uuid, i32)| (0..count).map(move |partition| (topic, partition));
    let pool =
        spec.existing(&subscribed).flat_map(partitions).filter(|(topic, index)| assignable(*topic, *index));
    let pool: Vec<(Uuid, i32)> = pool.collect();
    if spec.homogeneous {
        let members = (0..spec.members.len()).collect();
        Pool::new(&pool, members, spec).assign(&mut assigned);
    } else {
        let mut subscribers: BTreeMap<Uuid, Vec<usize>> = BTreeMap::new();
        for (index, member) in spec.members.values().enumerate() {
            member.topics.iter().for_each(|topic| subscribers.entry(*topic).or_default().push(index));
        }
        for partitions in pool.chunk_by(|(one, _), (other, _)| one == other) {
            let members = subscribers.remove(&partitions[0].0).unwrap_or_default();
            Pool::new(partitions, members, spec).assign(&mut assigned);
        }
    }
    spec.members.keys().cloned().zip(assigned).collect()
}

/// Partitions and the members among which they are shared. Partitions and members are numbered by their index
/// here.
struct Pool<'a> {
    partitions: &'a [(Uuid, i32)],
    /// Group-wide indexes of the pool's members.
    members: Vec<usize>,
    /// The readers of each partition.
    readers: Vec<BTreeSet<usize>>,
    /// Number of partitions of each member.
    sizes: Vec<usize>,
    /// Target number of readers per partition.
    sharing: usize,
}

impl<'a> Pool<'a> {
    /// Keeps the current assignment: each member's part of `partitions`, which are in order, up to its quota,
    /// and each partition's readers up to their quota.
    fn new(partitions: &'a [(Uuid, i32)], members: Vec<usize>, spec: &GroupSpec<'_>) -> Pool<'a> {
        let sharing = if partitions.is_empty() { 0 } else { members.len().div_ceil(partitions.len()) };
        let readers = vec![BTreeSet::new(); partitions.len()];
        let mut pool = Pool { partitions, sizes: vec![0; members.len()], members, readers, sharing };
        let current: Vec<&Assignment> = spec.members.values().map(|member| &member.assigned).collect();
        for member in 0..pool.members.len() {
            let owned = current[pool.members[member]].iter();
            let owned = owned.flat_map(|(topic, partitions)| partitions.iter().map(|index| (*topic, *index)));
            let places: Vec<usize> =
                owned.filter_map(|owned| partitions.binary_search(&owned).ok()).collect();
            for place in places.into_iter().take(pool.quota(member)) {
                pool.readers[place].insert(member);
            }
        }
        for readers in &mut pool.readers {
            while readers.len() > sharing {
                readers.pop_first();
            }
            readers.iter().for_each(|member| pool.sizes[*member] += 1);
        }
        pool
    }

    /// Target number of partitions of a member: all quotas add up to all partitions with all their readers.
    fn quota(&self, member: usize) -> usize {
        let up_to =
            |members: usize| (self.sharing * self.partitions.len() * members).div_ceil(self.members.len());
        up_to(member + 1) - up_to(member)
    }

    /// Gives each partition its missing readers, from the members below their quotas in turn, and writes down
    /// all readers. A partition that all these members read already stays with fewer readers.
    fn assign(mut self, assigned: &mut [Assignment]) {
        let wants_more = |member: &usize| self.sizes[*member] < self.quota(*member);
        let mut unfilled: Vec<usize> = (0..self.members.len()).filter(wants_more).collect();
        let mut turn = 0;
        for place in 0..self.partitions.len() {
            let mut passed = 0;
            while self.readers[place].len() < self.sharing && passed < unfilled.len() {
                turn = if turn < unfilled.len() { turn } else { 0 };
                let member = unfilled[turn];
                if !self.readers[place].insert(member) {
                    (turn, passed) = (turn + 1, passed + 1);
                    continue;
                }
                self.sizes[member] += 1;
                if self.sizes[member] < self.quota(member) {
                    turn += 1;
                } else {
                    unfilled.remove(turn);
                }
            }
            let (topic, index) = self.partitions[place];
            for member in &self.readers[place] {
                assigned[self.members[*member]].entry(topic).or_default().insert(index);
            }
        }
    }
}
