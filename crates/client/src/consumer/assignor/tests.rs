use super::*;

fn member(id: &str, topics: &[&str]) -> Subscriber {
    let topics = topics.iter().map(|topic| (*topic).to_owned()).collect();
    Subscriber { id: id.to_owned(), topics, generation: -1, ..Subscriber::default() }
}

fn names(assigned: &Assignments, member: &str) -> Vec<String> {
    assigned[member].iter().map(ToString::to_string).collect()
}

fn partition(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(topic, partition)
}

/// Rebalances until the assignment is stable, as members of the cooperative protocol do. Returns the
/// assignment and the number of rebalances.
fn stabilise(mut members: Vec<Subscriber>, count: impl Fn(&str) -> usize) -> (Assignments, usize) {
    for round in 1..10 {
        let assigned = assign(AssignmentStrategy::CooperativeSticky, members.clone(), &count);
        let mut revoked = false;
        for member in &members {
            for at in assigned[&member.id].iter().filter(|at| !member.owned.contains(at)) {
                let holder = members.iter().find(|other| other.owned.contains(at));
                assert!(holder.is_none(), "{at} of {holder:?} is given to {}", member.id);
            }
        }
        for member in &mut members {
            let now = assigned[&member.id].clone();
            revoked |= member.owned.iter().any(|at| !now.contains(at));
            member.owned = now;
            member.generation = i32::try_from(round).expect("few rounds") + 100;
        }
        let mut held = BTreeSet::new();
        for at in members.iter().flat_map(|member| &member.owned) {
            assert!(held.insert(at.clone()), "{at} has two readers");
        }
        if !revoked {
            return (assigned, round);
        }
    }
    panic!("the assignment never becomes stable");
}

#[test]
fn by_range_members_get_neighbouring_partitions_and_the_first_get_one_more() {
    let members = vec![member("b", &["t"]), member("a", &["t", "u"]), member("c", &["t"])];
    let count = |topic: &str| if topic == "t" { 7 } else { 2 };
    let assigned = assign(AssignmentStrategy::Range, members, count);
    assert_eq!(names(&assigned, "a"), ["t-0", "t-1", "t-2", "u-0", "u-1"]);
    assert_eq!(names(&assigned, "b"), ["t-3", "t-4"]);
    assert_eq!(names(&assigned, "c"), ["t-5", "t-6"]);
}

#[test]
fn members_beyond_the_partitions_get_none() {
    for strategy in AssignmentStrategy::ALL {
        let assigned = assign(strategy, vec![member("a", &["t"]), member("b", &["t"])], |_| 1);
        assert_eq!(assigned["a"].len() + assigned["b"].len(), 1, "{strategy:?}");
        assert!(assign(strategy, vec![member("a", &["t"])], |_| 0)["a"].is_empty(), "{strategy:?}");
    }
}

#[test]
fn static_members_keep_their_place_whatever_their_ids() {
    let with_name =
        |id: &str, name: &str| Subscriber { instance_id: Some(name.to_owned()), ..member(id, &["t"]) };
    let members = vec![member("0", &["t"]), with_name("z", "first"), with_name("y", "second")];
    let assigned = assign(AssignmentStrategy::Range, members, |_| 3);
    assert_eq!(names(&assigned, "z"), ["t-0"]);
    assert_eq!(names(&assigned, "y"), ["t-1"]);
    assert_eq!(names(&assigned, "0"), ["t-2"]);
}

#[test]
fn in_turn_partitions_of_all_topics_are_dealt_out_to_those_who_subscribe() {
    let members = vec![member("a", &["t", "u"]), member("b", &["u"]), member("c", &["t", "u"])];
    let assigned = assign(AssignmentStrategy::RoundRobin, members, |_| 3);
    assert_eq!(names(&assigned, "a"), ["t-0", "t-2", "u-2"]);
    assert_eq!(names(&assigned, "b"), ["u-0"]);
    assert_eq!(names(&assigned, "c"), ["t-1", "u-1"]);
}

#[test]
fn a_sticky_member_releases_only_its_surplus_when_another_joins() {
    let all: Vec<TopicPartition> = (0..7).map(|index| partition("t", index)).collect();
    let first = Subscriber { owned: all, generation: 4, ..member("a", &["t"]) };
    let members = vec![first.clone(), member("b", &["t"])];
    let assigned = assign(AssignmentStrategy::CooperativeSticky, members.clone(), |_| 7);
    assert_eq!(assigned["a"].len(), 4);
    assert!(assigned["b"].is_empty(), "what moves is given up first");
    let (stable, rounds) = stabilise(members, |_| 7);
    assert_eq!(rounds, 2);
    assert_eq!((stable["a"].len(), stable["b"].len()), (4, 3));
    assert!(stable["a"].iter().all(|at| first.owned.contains(at)));
}

#[test]
fn when_a_sticky_member_leaves_only_its_partitions_move() {
    let members = ["a", "b", "c"].map(|id| member(id, &["t"])).to_vec();
    let (before, _) = stabilise(members.clone(), |_| 9);
    let left: Vec<Subscriber> = members[..2]
        .iter()
        .map(|member| Subscriber { owned: before[&member.id].clone(), generation: 9, ..member.clone() })
        .collect();
    let (after, rounds) = stabilise(left, |_| 9);
    assert_eq!(rounds, 1, "nothing has to be given up");
    for id in ["a", "b"] {
        assert!(before[id].iter().all(|at| after[id].contains(at)), "{id} keeps its partitions");
    }
    assert_eq!(after["a"].len() + after["b"].len(), 9);
}

#[test]
fn thousands_of_topics_are_shared_evenly_among_many_members() {
    let topics: Vec<String> = (0..2000).map(|number| format!("t{number:04}")).collect();
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    let mut members: Vec<Subscriber> = (0..50).map(|id| member(&format!("m{id:02}"), &names)).collect();
    members[0].owned = topics.iter().map(|topic| partition(topic, 0)).collect();
    members[0].generation = 1;
    let (assigned, _) = stabilise(members, |_| 1);
    assert!(assigned.values().all(|partitions| partitions.len() == 40));
}

#[test]
fn of_two_claims_the_later_generation_holds_and_equal_ones_are_void() {
    let claims = |id: &str, generation| Subscriber {
        owned: vec![partition("t", 0)],
        generation,
        ..member(id, &["t"])
    };
    let assigned = assign(AssignmentStrategy::CooperativeSticky, vec![claims("a", 3), claims("b", 4)], |_| 1);
    assert_eq!((assigned["a"].len(), assigned["b"].len()), (0, 1));
    let equal = vec![claims("a", 3), claims("b", 3), claims("c", 2)];
    let assigned = assign(AssignmentStrategy::CooperativeSticky, equal.clone(), |_| 1);
    assert_eq!(assigned.values().map(Vec::len).sum::<usize>(), 0, "both give it up first");
    let (stable, rounds) = stabilise(equal, |_| 1);
    assert_eq!((stable.values().map(Vec::len).sum::<usize>(), rounds), (1, 2));
}

#[test]
fn a_partition_waits_for_an_owner_that_has_unsubscribed() {
    let owned = vec![partition("t", 0), partition("u", 0)];
    let first = Subscriber { owned, generation: 4, ..member("a", &["u"]) };
    let members = vec![first, member("b", &["t"])];
    let assigned = assign(AssignmentStrategy::CooperativeSticky, members.clone(), |_| 1);
    assert_eq!((names(&assigned, "a"), names(&assigned, "b")), (vec!["u-0".to_owned()], Vec::new()));
    let (stable, rounds) = stabilise(members, |_| 1);
    assert_eq!((names(&stable, "b"), rounds), (vec!["t-0".to_owned()], 2));
}

#[test]
fn partitions_and_topics_that_are_gone_are_not_kept() {
    let owned = vec![partition("t", 5), partition("gone", 0), partition("u", 0)];
    let members = vec![Subscriber { owned, generation: 1, ..member("a", &["t"]) }];
    let assigned = assign(AssignmentStrategy::CooperativeSticky, members, |_| 2);
    assert_eq!(names(&assigned, "a"), ["t-0", "t-1"]);
}

#[test]
fn any_subscriptions_are_shared_wholly_and_evenly() {
    let topics = ["t", "u", "v", "w"];
    let mut state = 12_345_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for case in 0..300 {
        let counts: Vec<usize> = topics.iter().map(|_| usize::try_from(random(9)).expect("small")).collect();
        let count = |topic: &str| counts[topics.iter().position(|name| *name == topic).expect("known")];
        let mut members = Vec::new();
        for id in 0..=random(6) {
            let chosen: Vec<&str> = topics.into_iter().filter(|_| random(3) > 0).collect();
            let mut member = member(&format!("m{id}"), &chosen);
            // A member may have unsubscribed from some of its topics.
            for topic in &topics {
                let all = i32::try_from(count(topic)).expect("small");
                member.owned.extend((0..all).filter(|_| random(4) == 0).map(|at| partition(topic, at)));
            }
            member.generation = i32::try_from(random(3)).expect("small");
            members.push(member);
        }
        let (assigned, _) = stabilise(members.clone(), count);
        let subscribed = |topic: &str| members.iter().any(|member| member.topics.contains(topic));
        let due: usize = topics.iter().filter(|topic| subscribed(topic)).map(|topic| count(topic)).sum();
        assert_eq!(assigned.values().map(Vec::len).sum::<usize>(), due, "case {case}");
        for from in &members {
            for at in &assigned[&from.id] {
                assert!(from.topics.contains(&*at.topic), "case {case}");
                let better = members.iter().find(|to| {
                    to.topics.contains(&*at.topic) && assigned[&to.id].len() + 2 <= assigned[&from.id].len()
                });
                assert!(better.is_none(), "case {case}: {at} of {} is due to {better:?}", from.id);
            }
        }
    }
}
