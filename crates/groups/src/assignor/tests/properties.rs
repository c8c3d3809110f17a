//! Properties of every assignment, checked on random groups.

use super::random::{Group, Life};
use crate::assignor::*;
use std::time::Duration;

const SEEDS: u64 = 150;
const STEPS: usize = 12;

fn sizes(assigned: &BTreeMap<Arc<str>, Assignment>) -> Vec<usize> {
    assigned.values().map(|of| of.values().map(BTreeSet::len).sum()).collect()
}

/// Number of partitions that stayed with their member.
pub(super) fn kept(group: &Group, assigned: &BTreeMap<Arc<str>, Assignment>) -> usize {
    let of = |(id, member): (&Arc<str>, &MemberSpec)| -> usize {
        let both = member
            .assigned
            .iter()
            .filter_map(|(topic, before)| Some(assigned.get(id)?.get(topic)?.intersection(before).count()));
        both.sum()
    };
    group.members.iter().map(of).sum()
}

/// Every member has an entry, no member reads a topic outside its subscription, and no set is empty.
pub(super) fn check_subscriptions(group: &Group, assigned: &BTreeMap<Arc<str>, Assignment>) {
    assert!(assigned.keys().eq(group.members.keys()));
    for (id, of) in assigned {
        for (topic, partitions) in of {
            assert!(group.members[id].topics.contains(topic) && !partitions.is_empty(), "{id} {topic}");
            let exists = 0..group.topics[topic].partitions;
            assert!(
                partitions.iter().all(|partition| exists.contains(partition)),
                "{id} {topic} {partitions:?}"
            );
        }
    }
}

/// Number of readers of each partition of a subscribed topic.
fn readers(group: &Group, assigned: &BTreeMap<Arc<str>, Assignment>) -> BTreeMap<(Uuid, i32), usize> {
    let mut readers = BTreeMap::new();
    for (id, topic) in &group.topics {
        if group.members.values().any(|member| member.topics.contains(id)) {
            readers.extend((0..topic.partitions).map(|partition| ((*id, partition), 0)));
        }
    }
    for (topic, partitions) in assigned.values().flatten() {
        for partition in partitions {
            *readers.get_mut(&(*topic, *partition)).expect("it has subscribers") += 1;
        }
    }
    readers
}

/// The largest difference of sizes among the subscribers of one topic.
pub(super) fn imbalance(group: &Group, assigned: &BTreeMap<Arc<str>, Assignment>) -> usize {
    let sizes: BTreeMap<&Arc<str>, usize> = assigned.keys().zip(sizes(assigned)).collect();
    let of = |topic: &Uuid| {
        let subscribers = group.members.iter().filter(|(_, member)| member.topics.contains(topic));
        let sizes: Vec<usize> = subscribers.map(|(id, _)| sizes[id]).collect();
        Some(sizes.iter().max()? - sizes.iter().min()?)
    };
    group.topics.keys().filter_map(of).max().unwrap_or(0)
}

#[test]
fn every_partition_has_one_owner() {
    for seed in 0..SEEDS {
        for assignor in ServerAssignor::ALL {
            let mut life = Life::new(seed);
            for step in 0..STEPS {
                life.step();
                let assigned = assignor.assign(&life.group.spec());
                check_subscriptions(&life.group, &assigned);
                let readers = readers(&life.group, &assigned);
                assert!(readers.values().all(|count| *count == 1), "{assignor:?} seed {seed} step {step}");
                life.group.take(assigned);
            }
        }
    }
}

#[test]
fn uniform_assignments_are_balanced_and_stay_when_nothing_changes() {
    for seed in 0..SEEDS {
        let mut life = Life::new(seed);
        for step in 0..STEPS {
            life.step();
            let assigned = ServerAssignor::Uniform.assign(&life.group.spec());
            // Overlapping subscriptions may need more rounds than the limit.
            let bound = if life.group.spec().homogeneous { 1 } else { usize::MAX };
            assert!(imbalance(&life.group, &assigned) <= bound, "seed {seed} step {step}");
            life.group.take(assigned);
            let again = ServerAssignor::Uniform.assign(&life.group.spec());
            let moved =
                life.group.members.iter().filter(|(id, member)| again[*id] != member.assigned).count();
            assert!(moved == 0 || bound > 1, "seed {seed} step {step}: {moved} members");
        }
    }
}

#[test]
fn every_shared_partition_has_a_reader_and_members_are_balanced() {
    for seed in 0..SEEDS {
        let mut life = Life::new(seed);
        for step in 0..STEPS {
            life.step();
            let assigned = assign_shared(&life.group.spec(), |_, _| true);
            check_subscriptions(&life.group, &assigned);
            let readers = readers(&life.group, &assigned);
            assert!(readers.values().all(|count| *count > 0), "seed {seed} step {step}: {readers:?}");
            if life.group.spec().homogeneous && !life.group.members.is_empty() {
                let sizes = sizes(&assigned);
                let sharing = sizes.len().div_ceil(readers.len().max(1));
                let per_member = (readers.len() * sharing).div_ceil(sizes.len());
                assert!(sizes.iter().all(|size| *size <= per_member), "seed {seed} step {step}: {sizes:?}");
            }
            life.group.take(assigned);
            let again = assign_shared(&life.group.spec(), |_, _| true);
            assert_eq!(
                kept(&life.group, &again),
                sizes(&again).iter().sum::<usize>(),
                "seed {seed} step {step}"
            );
        }
    }
}

/// Not a measurement, but a guard against wrong complexity, with limits that suit an unoptimised build.
#[test]
#[expect(clippy::disallowed_methods, reason = "how long a decision takes is what is asked")]
fn large_groups_are_assigned_in_time() {
    for (members, partitions) in [(1000, 1000), (500, 10_000)] {
        let mut group = Group::of(members, 10, partitions / 10);
        for homogeneous in [true, false] {
            for assignor in ServerAssignor::ALL {
                let spec = GroupSpec { homogeneous, ..group.spec() };
                let start = std::time::Instant::now();
                let assigned = assignor.assign(&spec);
                let took = start.elapsed();
                assert_eq!(sizes(&assigned).iter().sum::<usize>(), partitions as usize);
                assert!(took < Duration::from_secs(1), "{assignor:?} {members} {partitions}: {took:?}");
            }
            group.assign(&ServerAssignor::Uniform);
        }
    }
}
