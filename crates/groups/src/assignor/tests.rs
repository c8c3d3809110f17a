//! Assignments of small groups, and properties of assignments of random groups.

mod kafka;
mod properties;
mod random;
mod tasks;

use super::*;
use random::Group;

fn topic(id: u128) -> Uuid {
    Uuid(id)
}

fn partitions(assignment: &Assignment) -> Vec<(u128, Vec<i32>)> {
    assignment.iter().map(|(topic, partitions)| (topic.0, partitions.iter().copied().collect())).collect()
}

/// A group of members with their topics, over topics with their partition counts.
fn group(members: &[(&str, &[u128])], topics: &[(u128, i32)]) -> Group {
    let subscribe = |(id, topics): &(&str, &[u128])| {
        let topics = Arc::new(topics.iter().map(|id| topic(*id)).collect());
        (Arc::from(*id), MemberSpec { topics, ..Default::default() })
    };
    let topics = topics.iter().map(|(id, partitions)| (topic(*id), TopicSpec { partitions: *partitions }));
    Group { members: members.iter().map(subscribe).collect(), topics: topics.collect() }
}

#[test]
fn names_are_kafkas() {
    assert_eq!(ServerAssignor::ALL.map(ServerAssignor::name), ["uniform", "range"]);
    for assignor in ServerAssignor::ALL {
        assert_eq!(ServerAssignor::by_name(assignor.name()), Some(assignor));
    }
    assert_eq!(ServerAssignor::by_name("Range"), None);
}

#[test]
fn a_group_without_members_has_no_assignments() {
    let group = group(&[], &[(1, 3)]);
    for assignor in ServerAssignor::ALL {
        assert!(assignor.assign(&group.spec()).is_empty());
    }
    assert!(assign_shared(&group.spec(), |_, _| true).is_empty());
}

#[test]
fn members_without_existing_topics_get_nothing() {
    let group = group(&[("a", &[7]), ("b", &[7])], &[(1, 3)]);
    for assignor in ServerAssignor::ALL {
        assert!(assignor.assign(&group.spec()).values().all(BTreeMap::is_empty));
    }
    assert!(assign_shared(&group.spec(), |_, _| true).values().all(BTreeMap::is_empty));
}

#[test]
fn ranges_of_equal_topics_fall_together_and_static_members_come_first() {
    let mut group = group(&[("a", &[1, 2]), ("b", &[1, 2]), ("c", &[1, 2])], &[(1, 4), (2, 4)]);
    group.members.get_mut("c").expect("it is there").instance_id = Some("z".into());
    let assigned = ServerAssignor::Range.assign(&group.spec());
    assert_eq!(partitions(&assigned["c"]), [(1, vec![0, 1]), (2, vec![0, 1])]);
    assert_eq!(partitions(&assigned["a"]), [(1, vec![2]), (2, vec![2])]);
    assert_eq!(partitions(&assigned["b"]), [(1, vec![3]), (2, vec![3])]);
}

#[test]
fn a_new_member_takes_only_its_share() {
    let mut group = group(&[("a", &[1]), ("b", &[1])], &[(1, 7)]);
    group.assign(&ServerAssignor::Uniform);
    group
        .members
        .insert("c".into(), MemberSpec { assigned: Assignment::new(), ..group.members["a"].clone() });
    let before = group.clone();
    let assigned = ServerAssignor::Uniform.assign(&group.spec());
    assert_eq!(assigned.values().map(|of| of[&topic(1)].len()).sum::<usize>(), 7);
    for member in ["a", "b"] {
        let kept = &assigned[member][&topic(1)];
        assert!(kept.is_subset(&before.members[member].assigned[&topic(1)]), "{kept:?}");
    }
}

#[test]
fn partitions_with_two_owners_or_none_in_existence_are_given_once() {
    let mut group = group(&[("a", &[1]), ("b", &[1])], &[(1, 2)]);
    for member in group.members.values_mut() {
        member.assigned = [(topic(1), [-1, 0, 1, 9].into()), (topic(5), [0].into())].into();
    }
    for assignor in ServerAssignor::ALL {
        let assigned = assignor.assign(&group.spec());
        assert_eq!(partitions(&assigned["a"]), [(1, vec![0])], "{assignor:?}");
        assert_eq!(partitions(&assigned["b"]), [(1, vec![1])], "{assignor:?}");
    }
}

#[test]
fn a_single_shared_partition_is_read_by_all() {
    let group = group(&[("a", &[1]), ("b", &[1]), ("c", &[1])], &[(1, 1)]);
    let assigned = assign_shared(&group.spec(), |_, _| true);
    assert!(assigned.values().all(|of| partitions(of) == [(1, vec![0])]), "{assigned:?}");
    let assigned = assign_shared(&group.spec(), |_, _| false);
    assert!(assigned.values().all(BTreeMap::is_empty), "{assigned:?}");
}
