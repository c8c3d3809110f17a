//! Rebalances: waiting times, and the answers to members.

use super::harness::{Commit, DELAY_MS, Harness, Join, REBALANCE_MS, SESSION_MS, error};
use thalweg_hash::HashMap;
use thalweg_shard::{Shard as _, WriteError};
use thalweg_wire::ErrorCode;

#[test]
fn an_empty_group_waits_until_nobody_new_comes() {
    let mut h = Harness::new();
    let (_, first) = h.send_new("a");
    h.advance(DELAY_MS - 1);
    let (_, second) = h.send_new("b");
    h.advance(1);
    assert_eq!(h.join_answer(first), None, "b came during the delay: it is prolonged");
    h.advance(DELAY_MS);
    let leader = h.join_answer(first).expect("nobody came during the second delay");
    let follower = h.join_answer(second).expect("the rebalance is over for all");
    assert_eq!((leader.members.len(), follower.members.len()), (2, 0), "only the leader is told who is in");
    assert_eq!((leader.generation_id, &leader.leader), (1, &leader.member_id));
    assert_eq!((follower.generation_id, &follower.leader), (1, &leader.member_id));
}

#[test]
fn the_initial_delay_ends_with_the_rebalance_timeout() {
    let mut h = Harness::new();
    let rebalance_ms = 7_000;
    let ticket = h.send_join(Join { version: 3, rebalance_ms, ..Join::default() });
    for _ in 0..7 {
        assert_eq!(h.join_answer(ticket), None);
        h.send_join(Join { version: 3, rebalance_ms, ..Join::default() });
        h.advance(1_000);
    }
    assert_eq!(h.join_answer(ticket).expect("7 s have passed").members.len(), 7 + 1);
}

#[test]
fn a_new_member_makes_a_stable_group_rebalance() {
    let mut h = Harness::new();
    let (ids, generation) = h.stable_group(&["a"]);
    let (_, joined) = h.send_new("b");
    assert_eq!(h.heartbeat(&ids[0], generation), ErrorCode::RebalanceInProgress);
    let rejoined = h.send_join(Join { member_id: &ids[0], ..Join::default() });
    let leader = h.join_answer(rejoined).expect("all have joined: there is nothing to wait for");
    assert_eq!((leader.generation_id, leader.leader.as_str()), (generation + 1, ids[0].as_str()));
    assert_eq!(leader.members.len(), 2);
    assert_eq!(h.join_answer(joined).expect("all have joined").leader, ids[0], "the leader keeps its place");
}

#[test]
fn a_rebalance_waits_for_whoever_was_given_an_id() {
    let mut h = Harness::new();
    let (ids, generation) = h.stable_group(&["a"]);
    let given = h.send_join(Join { client: "b", ..Join::default() });
    let id = h.join_answer(given).expect("an id is given at once").member_id;
    let waiting = h.send_join(Join { member_id: &ids[0], ..Join::default() });
    assert_eq!(h.join_answer(waiting), None, "b is about to join");
    h.send_join(Join { member_id: &id, ..Join::default() });
    assert_eq!(h.join_answer(waiting).expect("all have joined").members.len(), 2);
    // A member does not return with its generated id: the group waits until the id expires.
    h.send_join(Join { client: "c", ..Join::default() });
    let waiting = h.send_join(Join { member_id: &ids[0], protocols: &[("range", b"x")], ..Join::default() });
    h.send_join(Join { member_id: &id, ..Join::default() });
    h.advance(i64::from(SESSION_MS) - 1);
    assert_eq!(h.join_answer(waiting), None);
    h.advance(1);
    assert_eq!(h.join_answer(waiting).expect("c did not come").generation_id, generation + 2);
}

#[test]
fn who_does_not_join_in_time_is_out() {
    let mut h = Harness::new();
    let (ids, generation) = h.stable_group(&["a", "b"]);
    let rejoined = h.send_join(Join { member_id: &ids[0], ..Join::default() });
    for _ in 0..REBALANCE_MS / 5_000 {
        assert_eq!(h.join_answer(rejoined), None);
        assert_eq!(h.heartbeat(&ids[1], generation), ErrorCode::RebalanceInProgress);
        h.advance(5_000);
    }
    let answer = h.join_answer(rejoined).expect("the rebalance timeout has passed");
    assert_eq!((answer.members.len(), answer.generation_id), (1, generation + 1));
    assert_eq!(h.heartbeat(&ids[1], generation), ErrorCode::UnknownMemberId);
}

#[test]
fn another_leads_when_the_leader_does_not_come_back() {
    let mut h = Harness::new();
    let (ids, generation) = h.stable_group(&["a", "b", "c"]);
    let joins: Vec<_> = ids[1..]
        .iter()
        .map(|id| h.send_join(Join { member_id: id, protocols: &[("range", b"new")], ..Join::default() }))
        .collect();
    for _ in 0..REBALANCE_MS / 5_000 {
        h.heartbeat(&ids[0], generation);
        h.advance(5_000);
    }
    let leader = h.join_answer(joins[0]).expect("the rebalance timeout has passed");
    assert_eq!((leader.leader.as_str(), leader.members.len()), (ids[1].as_str(), 2));
    assert_eq!(h.join_answer(joins[1]).expect("it too").leader, ids[1]);
}

#[test]
fn a_leader_that_joins_again_rebalances_the_group_and_a_follower_does_not() {
    let mut h = Harness::new();
    let (ids, generation) = h.stable_group(&["a", "b"]);
    let follower = h.send_join(Join { member_id: &ids[1], ..Join::default() });
    let answer = h.join_answer(follower).expect("it is told of the generation that it is in");
    assert_eq!((answer.generation_id, answer.members.len()), (generation, 0));
    assert_eq!(h.state("g"), "Stable");
    let leader = h.send_join(Join { member_id: &ids[0], ..Join::default() });
    assert_eq!(h.join_answer(leader), None);
    assert_eq!(h.state("g"), "PreparingRebalance");
}

#[test]
fn a_follower_with_another_subscription_rebalances_the_group() {
    let mut h = Harness::new();
    let (ids, _) = h.stable_group(&["a", "b"]);
    h.send_join(Join { member_id: &ids[1], protocols: &[("range", b"other")], ..Join::default() });
    assert_eq!(h.state("g"), "PreparingRebalance");
}

#[test]
fn a_member_that_missed_the_answer_gets_it_again_until_all_have_synced() {
    let mut h = Harness::new();
    let (id, first) = h.send_new("a");
    h.advance(DELAY_MS);
    let answer = h.join_answer(first).expect("the delay is over");
    let again = h.send_join(Join { member_id: &id, ..Join::default() });
    assert_eq!(h.join_answer(again), Some(answer));
}

#[test]
fn a_waiting_join_is_answered_when_the_member_repeats_it() {
    let mut h = Harness::new();
    let (id, first) = h.send_new("a");
    let second = h.send_join(Join { member_id: &id, ..Join::default() });
    let answer = h.join_answer(first).expect("its sender has gone");
    assert_eq!(error(answer.error_code), ErrorCode::RebalanceInProgress);
    h.advance(DELAY_MS * 2);
    assert_eq!(error(h.join_answer(second).expect("the delay is over").error_code), ErrorCode::None);
}

#[test]
fn followers_wait_for_the_leaders_assignment() {
    let mut h = Harness::new();
    let (a, b) = (h.send_new("a").0, h.send_new("b").0);
    h.advance(DELAY_MS * 2);
    let follower = h.send_sync(&b, 1, &[]);
    assert_eq!(h.sync_answer(follower), None);
    assert_eq!(
        h.commit(Commit { member_id: &b, generation: 1, ..Commit::default() }),
        ErrorCode::RebalanceInProgress
    );
    let leader = h.send_sync(&a, 1, &[(&b, "all"), ("a stranger", "nothing")]);
    assert_eq!(h.sync_answer(follower), Some(Ok("all".to_owned())));
    assert_eq!(h.sync_answer(leader), Some(Ok(String::new())), "who is left out has nothing");
    assert_eq!(h.state("g"), "Stable");
    let late = h.send_sync(&b, 1, &[]);
    assert_eq!(h.sync_answer(late), Some(Ok("all".to_owned())), "asking again does no harm");
}

#[test]
fn a_sync_with_another_protocol_is_inconsistent() {
    let mut h = Harness::new();
    let (ids, generation) = h.stable_group(&["a"]);
    let request = thalweg_wire::request::SyncGroupRequest {
        group_id: "g".to_owned(),
        generation_id: generation,
        member_id: ids[0].clone(),
        protocol_type: Some("consumer".to_owned()),
        protocol_name: Some("sticky".to_owned()),
        ..Default::default()
    };
    let ticket = h.turn(|shard, ticket, now| shard.sync_group(&request, &HashMap::default(), ticket, now));
    assert_eq!(h.sync_answer(ticket), Some(Err(ErrorCode::InconsistentGroupProtocol)));
}

#[test]
fn a_rebalance_that_begins_meanwhile_ends_the_wait_for_an_assignment() {
    let mut h = Harness::new();
    let (_, b) = (h.send_new("a").0, h.send_new("b").0);
    h.advance(DELAY_MS * 2);
    let waiting = h.send_sync(&b, 1, &[]);
    h.send_new("c");
    assert_eq!(h.sync_answer(waiting), Some(Err(ErrorCode::RebalanceInProgress)));
    let refused = h.send_sync(&b, 1, &[]);
    assert_eq!(h.sync_answer(refused), Some(Err(ErrorCode::RebalanceInProgress)));
}

#[test]
fn who_does_not_sync_in_time_is_out() {
    let mut h = Harness::new();
    let (a, b) = (h.send_new("a").0, h.send_new("b").0);
    h.advance(DELAY_MS * 2);
    let leader = h.send_sync(&a, 1, &[(&a, "all")]);
    assert_eq!(h.sync_answer(leader), Some(Ok("all".to_owned())));
    for _ in 0..REBALANCE_MS / 5_000 {
        assert_eq!(h.heartbeat(&a, 1), ErrorCode::None);
        assert_eq!(h.heartbeat(&b, 1), ErrorCode::None);
        h.advance(5_000);
    }
    assert_eq!(h.heartbeat(&a, 1), ErrorCode::RebalanceInProgress);
    assert_eq!(h.heartbeat(&b, 1), ErrorCode::UnknownMemberId);
}

#[test]
fn who_waits_for_the_coordinator_needs_no_heartbeat() {
    let mut h = Harness::new();
    let (ids, _) = h.stable_group(&["a", "b"]);
    let waiting = h.send_join(Join { member_id: &ids[0], session_ms: SESSION_MS, ..Join::default() });
    // Member b is silent for its session; a waits for longer than its own.
    h.advance(i64::from(SESSION_MS) + 1);
    assert_eq!(h.join_answer(waiting).expect("b is out").members.len(), 1);
    let sync = h.send_sync(&ids[0], 2, &[]);
    assert!(h.sync_answer(sync).expect("it is alone").is_ok());
}

#[test]
fn a_storm_of_joins_ends_in_one_generation_without_an_unknown_member() {
    let mut h = Harness::new();
    let joins: Vec<_> = (0..1_000).map(|_| h.send_new("storm")).collect();
    h.advance(DELAY_MS * 2);
    for (id, ticket) in &joins {
        let answer = h.join_answer(*ticket).expect("the initial rebalance is over");
        assert_eq!((error(answer.error_code), answer.generation_id), (ErrorCode::None, 1));
        assert_eq!(answer.member_id, *id);
    }
    let ids: Vec<String> = joins.into_iter().map(|(id, _)| id).collect();
    h.sync_all(&ids, 1);
    // A second time, all at once, with the group running.
    let more: Vec<_> = (0..200).map(|_| h.send_new("late")).collect();
    let rejoins: Vec<_> =
        ids.iter().map(|id| h.send_join(Join { member_id: id, ..Join::default() })).collect();
    for ticket in more.iter().map(|(_, ticket)| ticket).chain(&rejoins) {
        let answer = h.join_answer(*ticket).expect("all have joined");
        assert_eq!((error(answer.error_code), answer.generation_id), (ErrorCode::None, 2));
    }
}

#[test]
fn no_member_gets_an_assignment_before_it_is_acknowledged() {
    let mut h = Harness::new();
    let (a, b) = (h.send_new("a").0, h.send_new("b").0);
    h.advance(DELAY_MS * 2);
    h.holds = true;
    let leader = h.send_sync(&a, 1, &[(&a, "x"), (&b, "y")]);
    let follower = h.send_sync(&b, 1, &[]);
    assert_eq!((h.sync_answer(leader), h.sync_answer(follower)), (None, None));
    assert_eq!(h.state("g"), "CompletingRebalance");
    assert!(h.acknowledge());
    assert_eq!(h.sync_answer(leader), Some(Ok("x".to_owned())));
    assert_eq!(h.sync_answer(follower), Some(Ok("y".to_owned())));
    assert_eq!(h.state("g"), "Stable");
}

#[test]
fn a_generation_has_one_assignment_however_often_its_leader_brings_one() {
    let mut h = Harness::new();
    let a = h.send_new("a").0;
    h.advance(DELAY_MS);
    h.holds = true;
    let first = h.send_sync(&a, 1, &[(&a, "x")]);
    let second = h.send_sync(&a, 1, &[(&a, "z")]);
    assert_eq!(h.sync_answer(first), None, "everything waits for what was written before");
    while h.acknowledge() {}
    assert_eq!(h.sync_answer(first), Some(Err(ErrorCode::RebalanceInProgress)));
    assert_eq!(h.sync_answer(second), Some(Ok("x".to_owned())));
    let written = h.reloaded().describe_group("g", 6);
    assert_eq!(*written.members[0].member_assignment, *b"x", "and the log knows no other");
}

#[test]
fn an_assignment_that_is_acknowledged_after_its_generation_is_given_to_nobody() {
    let mut h = Harness::new();
    let a = h.send_new("a").0;
    h.advance(DELAY_MS);
    h.holds = true;
    let first = h.send_sync(&a, 1, &[(&a, "of one")]);
    let rejoined = h.send_join(Join { member_id: &a, protocols: &[("range", b"x")], ..Join::default() });
    let second = h.send_sync(&a, 2, &[(&a, "of two")]);
    assert!(h.acknowledge());
    assert_eq!(h.sync_answer(first), Some(Err(ErrorCode::RebalanceInProgress)));
    assert_eq!(h.join_answer(rejoined).expect("it was the only member").generation_id, 2);
    assert_eq!((h.sync_answer(second), h.state("g").as_str()), (None, "CompletingRebalance"));
    assert!(h.acknowledge());
    assert_eq!(h.sync_answer(second), Some(Ok("of two".to_owned())));
}

#[test]
fn an_assignment_that_cannot_be_stored_makes_the_group_rebalance() {
    let mut h = Harness::new();
    let (a, b) = (h.send_new("a").0, h.send_new("b").0);
    h.advance(DELAY_MS * 2);
    let follower = h.send_sync(&b, 1, &[]);
    h.refuses = Some(WriteError::TooFewReplicas);
    let leader = h.send_sync(&a, 1, &[(&a, "x"), (&b, "y")]);
    assert_eq!(h.sync_answer(leader), Some(Err(ErrorCode::CoordinatorNotAvailable)));
    assert_eq!(h.sync_answer(follower), Some(Err(ErrorCode::CoordinatorNotAvailable)));
    assert_eq!(h.state("g"), "PreparingRebalance");
}

#[test]
fn an_assignment_that_is_not_acknowledged_in_time_makes_the_group_rebalance() {
    let mut h = Harness::new();
    let a = h.send_new("a").0;
    h.advance(DELAY_MS);
    h.holds = true;
    let leader = h.send_sync(&a, 1, &[(&a, "x")]);
    h.advance(4_999);
    assert_eq!(h.sync_answer(leader), None);
    h.advance(1);
    assert_eq!(h.sync_answer(leader), Some(Err(ErrorCode::CoordinatorNotAvailable)));
    assert_eq!(h.state("g"), "PreparingRebalance");
    assert!(h.acknowledge(), "it comes too late, and changes nothing");
    assert_eq!(h.state("g"), "PreparingRebalance");
}

#[test]
fn a_group_that_cannot_be_written_was_never_there() {
    let mut h = Harness::new();
    h.refuses = Some(WriteError::NotLeader);
    for version in [3, 9] {
        let ticket = h.send_join(Join { version, ..Join::default() });
        let answer = h.join_answer(ticket).expect("it is refused");
        assert_eq!(error(answer.error_code), ErrorCode::NotCoordinator);
        assert_eq!(h.state("g"), "Dead");
    }
}

#[test]
fn who_waits_when_the_coordinator_moves_is_sent_after_it() {
    let mut h = Harness::new();
    let (ids, generation) = h.stable_group(&["a", "b"]);
    let join = h.send_join(Join { member_id: &ids[0], ..Join::default() });
    h.holds = true;
    let commit = h.send_commit(Commit { member_id: &ids[1], generation, ..Commit::default() });
    h.turn(|shard, _, _| shard.unload());
    for ticket in [join, commit] {
        let code = match h.answer(ticket).expect("it does not wait for the log") {
            crate::GroupAnswer::JoinGroup(response) => response.error_code,
            crate::GroupAnswer::OffsetCommit(response) => response.topics[0].partitions[0].error_code,
            other => panic!("{other:?} was not asked for"),
        };
        assert_eq!(error(code), ErrorCode::NotCoordinator);
    }
}

#[test]
fn a_stable_group_survives_a_restart_and_its_members_do_not_notice() {
    let mut h = Harness::new();
    let (ids, generation) = h.stable_group(&["a", "b"]);
    let before = h.shard.describe_group("g", 6);
    h.restart();
    assert_eq!(h.shard.describe_group("g", 6), before);
    for id in &ids {
        assert_eq!(h.heartbeat(id, generation), ErrorCode::None);
        let sync = h.send_sync(id, generation, &[]);
        assert_eq!(h.sync_answer(sync), Some(Ok(id.clone())));
    }
    h.advance(i64::from(SESSION_MS));
    assert_eq!(h.heartbeat(&ids[0], generation), ErrorCode::UnknownMemberId, "sessions run after a restart");
}
