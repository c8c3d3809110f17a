//! Admission of members, their ids, and leaving.

use super::harness::{Harness, Join, SESSION_MS, error};
use crate::config::GroupConfig;
use thalweg_wire::ErrorCode;

fn join_error(h: &mut Harness, join: Join<'_>) -> ErrorCode {
    let ticket = h.send_join(join);
    error(h.join_answer(ticket).expect("it is refused at once").error_code)
}

#[test]
fn a_dynamic_member_is_given_its_id_before_it_joins() {
    let mut h = Harness::new();
    let first = h.send_join(Join { client: "app", ..Join::default() });
    let response = h.join_answer(first).expect("an id is given at once");
    assert_eq!(error(response.error_code), ErrorCode::MemberIdRequired);
    assert_eq!(response.member_id, "app-00000000-0000-0001-0000-000000000abc");
    let second = h.send_join(Join { client: "app", member_id: &response.member_id, ..Join::default() });
    assert_eq!(h.join_answer(second), None, "it waits for the rebalance");
    assert_eq!(h.state("g"), "PreparingRebalance");
}

#[test]
fn before_version_4_it_joins_without_an_id() {
    let mut h = Harness::new();
    let ticket = h.send_join(Join { version: 3, ..Join::default() });
    h.advance(3_000);
    let response = h.join_answer(ticket).expect("the initial delay is over");
    assert_eq!((error(response.error_code), response.generation_id), (ErrorCode::None, 1));
    assert_eq!(response.leader, response.member_id);
}

#[test]
fn an_id_that_was_not_given_out_is_unknown() {
    let mut h = Harness::new();
    let join = Join { member_id: "made-up", ..Join::default() };
    assert_eq!(join_error(&mut h, join), ErrorCode::UnknownMemberId);
    assert_eq!(h.log.len(), 0, "and makes no group");
    h.stable_group(&["a"]);
    assert_eq!(join_error(&mut h, join), ErrorCode::UnknownMemberId);
}

#[test]
fn an_id_that_does_not_come_back_is_forgotten() {
    let mut h = Harness::new();
    let ticket = h.send_join(Join::default());
    let id = h.join_answer(ticket).expect("given at once").member_id;
    h.advance(i64::from(SESSION_MS));
    assert_eq!(join_error(&mut h, Join { member_id: &id, ..Join::default() }), ErrorCode::UnknownMemberId);
}

#[test]
fn a_group_has_one_type_and_a_protocol_that_all_follow() {
    let mut h = Harness::new();
    let no_protocols = Join { protocols: &[], ..Join::default() };
    assert_eq!(join_error(&mut h, no_protocols), ErrorCode::InconsistentGroupProtocol);
    let no_type = Join { protocol_type: "", ..Join::default() };
    assert_eq!(join_error(&mut h, no_type), ErrorCode::InconsistentGroupProtocol);
    h.stable_group(&["a"]);
    let other_type = Join { protocol_type: "connect", ..Join::default() };
    assert_eq!(join_error(&mut h, other_type), ErrorCode::InconsistentGroupProtocol);
    let other_protocol = Join { protocols: &[("sticky", b"")], ..Join::default() };
    assert_eq!(join_error(&mut h, other_protocol), ErrorCode::InconsistentGroupProtocol);
}

#[test]
fn the_protocol_with_most_votes_is_chosen_among_those_that_all_follow() {
    let mut h = Harness::new();
    let protocols: [&[(&str, &[u8])]; 3] = [
        &[("own", b""), ("range", b""), ("sticky", b"")],
        &[("sticky", b""), ("range", b"")],
        &[("sticky", b""), ("range", b"")],
    ];
    let joins = protocols.map(|protocols| h.send_join(Join { version: 3, protocols, ..Join::default() }));
    h.advance(6_000);
    for ticket in joins {
        let response = h.join_answer(ticket).expect("all have joined");
        assert_eq!(response.protocol_name.as_deref(), Some("sticky"));
    }
}

#[test]
fn a_full_group_takes_no_more_members_and_keeps_those_it_has() {
    let mut h = Harness::with(GroupConfig { group_size_max: 2, ..GroupConfig::default() });
    let (ids, generation) = h.stable_group(&["a", "b"]);
    assert_eq!(join_error(&mut h, Join::default()), ErrorCode::GroupMaxSizeReached);
    // During a rebalance, existing members come first.
    let ticket = h.send_join(Join { member_id: &ids[0], ..Join::default() });
    assert_eq!(h.heartbeat(&ids[1], generation), ErrorCode::RebalanceInProgress);
    let other = h.send_join(Join { member_id: &ids[1], ..Join::default() });
    assert_eq!(h.join_answer(ticket).expect("both have joined").members.len(), 2);
    assert_eq!(h.join_answer(other).expect("both have joined").generation_id, generation + 1);
}

#[test]
fn a_session_without_heartbeats_ends() {
    let mut h = Harness::new();
    let (ids, generation) = h.stable_group(&["a", "b"]);
    for _ in 0..3 {
        h.advance(i64::from(SESSION_MS) - 1);
        assert_eq!(h.heartbeat(&ids[0], generation), ErrorCode::None);
        if h.state("g") == "Stable" {
            h.heartbeat(&ids[1], generation);
        }
    }
    h.advance(i64::from(SESSION_MS) - 1);
    h.heartbeat(&ids[0], generation);
    h.advance(1);
    assert_eq!(h.state("g"), "PreparingRebalance", "b was not heard of");
    assert_eq!(h.heartbeat(&ids[0], generation), ErrorCode::RebalanceInProgress);
    assert_eq!(h.heartbeat(&ids[1], generation), ErrorCode::UnknownMemberId);
    let ticket = h.send_join(Join { member_id: &ids[0], ..Join::default() });
    assert_eq!(h.join_answer(ticket).expect("nobody else is waited for").members.len(), 1);
}

#[test]
fn heartbeats_leave_one_deadline_per_member() {
    let mut h = Harness::new();
    let clients = ["a"; 50];
    let (ids, generation) = h.stable_group(&clients);
    for _ in 0..40 {
        h.advance(1_000);
        for id in &ids {
            assert_eq!(h.heartbeat(id, generation), ErrorCode::None);
        }
    }
    assert_eq!(h.shard.deadline_count(), clients.len());
}

#[test]
fn a_commit_counts_as_a_sign_of_life() {
    let mut h = Harness::new();
    let (ids, generation) = h.stable_group(&["a"]);
    for offset in 0..5 {
        h.advance(i64::from(SESSION_MS) - 1);
        let commit = super::harness::Commit { member_id: &ids[0], generation, offset, ..Default::default() };
        assert_eq!(h.commit(commit), ErrorCode::None);
    }
    assert_eq!(h.state("g"), "Stable");
}

#[test]
fn members_leave_one_by_one_and_the_last_one_empties_the_group() {
    let mut h = Harness::new();
    let (ids, generation) = h.stable_group(&["a", "b"]);
    let left = h.leave(&[(&ids[1], None), ("unknown", None), ("", Some("nobody"))]);
    assert_eq!(left, [ErrorCode::None, ErrorCode::UnknownMemberId, ErrorCode::UnknownMemberId]);
    assert_eq!(h.heartbeat(&ids[0], generation), ErrorCode::RebalanceInProgress);
    assert_eq!(h.leave(&[(&ids[0], None)]), [ErrorCode::None]);
    assert_eq!(h.state("g"), "Empty");
    assert_eq!(h.heartbeat(&ids[0], generation), ErrorCode::UnknownMemberId);
    let reloaded = h.reloaded().describe_group("g", 5);
    assert_eq!((reloaded.group_state.as_str(), reloaded.protocol_type.as_str()), ("Empty", "consumer"));
}

#[test]
fn an_id_that_was_given_out_can_be_given_back() {
    let mut h = Harness::new();
    let ticket = h.send_join(Join::default());
    let id = h.join_answer(ticket).expect("given at once").member_id;
    assert_eq!(h.leave(&[(&id, None)]), [ErrorCode::None]);
    assert_eq!(join_error(&mut h, Join { member_id: &id, ..Join::default() }), ErrorCode::UnknownMemberId);
}

#[test]
fn requests_of_an_old_generation_are_fenced() {
    let mut h = Harness::new();
    let (ids, generation) = h.stable_group(&["a"]);
    assert_eq!(h.heartbeat(&ids[0], generation - 1), ErrorCode::IllegalGeneration);
    let ticket = h.send_sync(&ids[0], generation + 1, &[]);
    assert_eq!(h.sync_answer(ticket), Some(Err(ErrorCode::IllegalGeneration)));
    let commit = super::harness::Commit { member_id: &ids[0], generation: 7, ..Default::default() };
    assert_eq!(h.commit(commit), ErrorCode::IllegalGeneration);
}

#[test]
fn groups_that_do_not_exist_have_no_members() {
    let mut h = Harness::new();
    assert_eq!(h.heartbeat("m", 1), ErrorCode::UnknownMemberId);
    assert_eq!(h.leave(&[("m", None)]), [ErrorCode::UnknownMemberId]);
    let ticket = h.send_sync("m", 1, &[]);
    assert_eq!(h.sync_answer(ticket), Some(Err(ErrorCode::UnknownMemberId)));
}
