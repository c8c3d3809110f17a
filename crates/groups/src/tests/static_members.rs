//! Static members (KIP-345): they restart without a rebalance, and cannot be impersonated.

use super::harness::{DELAY_MS, Harness, Join, REBALANCE_MS, SESSION_MS, error};
use crate::GroupAnswer;
use crate::config::GroupConfig;
use thalweg_shard::WriteError;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::{HeartbeatRequest, JoinGroupResponse};

fn join(instance_id: &str) -> Join<'_> {
    Join { instance_id: Some(instance_id), ..Join::default() }
}

/// Two static members in a stable group of generation 1; the first one leads.
fn stable(h: &mut Harness) -> [String; 2] {
    let tickets = ["one", "two"].map(|instance| h.send_join(join(instance)));
    h.advance(DELAY_MS * 2);
    let ids = tickets.map(|ticket| h.join_answer(ticket).expect("the delay is over").member_id);
    h.sync_all(&ids, 1);
    ids
}

fn rejoin(h: &mut Harness, join: Join<'_>) -> JoinGroupResponse {
    let ticket = h.send_join(join);
    h.join_answer(ticket).expect("nothing is to be waited for")
}

#[test]
fn a_static_member_joins_at_once_under_an_id_with_its_name() {
    let mut h = Harness::new();
    let ids = stable(&mut h);
    assert!(ids[0].starts_with("one-") && ids[1].starts_with("two-"), "{ids:?}");
}

#[test]
fn a_static_follower_restarts_without_a_rebalance() {
    let mut h = Harness::new();
    let ids = stable(&mut h);
    let answer = rejoin(&mut h, join("two"));
    assert_eq!((error(answer.error_code), answer.generation_id), (ErrorCode::None, 1));
    assert_ne!(answer.member_id, ids[1]);
    assert_eq!((answer.leader.as_str(), answer.members.len()), (ids[0].as_str(), 0));
    let sync = h.send_sync(&answer.member_id, 1, &[]);
    assert_eq!(h.sync_answer(sync), Some(Ok(ids[1].clone())), "it has the assignment of before");
    assert_eq!(h.heartbeat(&ids[0], 1), ErrorCode::None);
    assert_eq!(h.state("g"), "Stable");
    let written = h.reloaded().describe_group("g", 6);
    assert_eq!(written, h.shard.describe_group("g", 6), "and its new id is written");
}

#[test]
fn a_static_leader_that_restarts_skips_the_assignment() {
    let mut h = Harness::new();
    stable(&mut h);
    let answer = rejoin(&mut h, join("one"));
    assert_eq!(answer.leader, answer.member_id);
    assert_eq!((answer.skip_assignment, answer.members.len()), (true, 2));
}

#[test]
fn before_version_9_a_static_leader_does_not_learn_that_it_leads() {
    let mut h = Harness::new();
    let ids = stable(&mut h);
    let answer = rejoin(&mut h, Join { version: 8, ..join("one") });
    assert_eq!((answer.leader.as_str(), answer.members.len()), (ids[0].as_str(), 0));
    assert!(!answer.skip_assignment);
}

#[test]
fn the_earlier_holder_of_the_name_is_fenced() {
    let mut h = Harness::new();
    let ids = stable(&mut h);
    let answer = rejoin(&mut h, join("two"));
    let heartbeat = |id: &str| HeartbeatRequest {
        group_id: "g".to_owned(),
        generation_id: 1,
        member_id: id.to_owned(),
        group_instance_id: Some("two".to_owned()),
    };
    let mut beat = |id: &str| {
        let ticket = h.turn(|shard, ticket, now| shard.heartbeat(&heartbeat(id), ticket, now));
        match h.answer(ticket) {
            Some(GroupAnswer::Heartbeat(response)) => error(response.error_code),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(beat(&ids[1]), ErrorCode::FencedInstanceId);
    assert_eq!(beat(&answer.member_id), ErrorCode::None);
    let old = Join { member_id: &ids[1], ..join("two") };
    assert_eq!(error(rejoin(&mut h, old).error_code), ErrorCode::FencedInstanceId);
}

#[test]
fn a_request_that_waits_under_the_earlier_id_is_fenced() {
    let mut h = Harness::new();
    let ids = stable(&mut h);
    let waiting = h.send_join(Join { member_id: &ids[0], ..join("one") });
    assert_eq!(h.join_answer(waiting), None);
    let again = h.send_join(join("one"));
    let fenced = h.join_answer(waiting).expect("another holds the name");
    assert_eq!(error(fenced.error_code), ErrorCode::FencedInstanceId);
    let two = h.send_join(Join { member_id: &ids[1], ..join("two") });
    assert_eq!(h.join_answer(again).expect("both are in").generation_id, 2);
    assert_eq!(h.join_answer(two).expect("both are in").generation_id, 2);
}

#[test]
fn a_return_with_another_protocol_rebalances_the_group() {
    let mut h = Harness::new();
    let ids = stable(&mut h);
    let ticket = h.send_join(Join { protocols: &[("roundrobin", b"")], ..join("two") });
    assert_eq!(h.join_answer(ticket), None);
    assert_eq!(h.heartbeat(&ids[0], 1), ErrorCode::RebalanceInProgress);
}

#[test]
fn a_return_during_the_sync_phase_rebalances_the_group() {
    let mut h = Harness::new();
    let tickets = ["one", "two"].map(|instance| h.send_join(join(instance)));
    h.advance(DELAY_MS * 2);
    let ids = tickets.map(|ticket| h.join_answer(ticket).expect("the delay is over").member_id);
    let waiting = h.send_sync(&ids[1], 1, &[]);
    h.send_join(join("one"));
    assert_eq!(h.sync_answer(waiting), Some(Err(ErrorCode::RebalanceInProgress)));
    assert_eq!(h.state("g"), "PreparingRebalance");
}

#[test]
fn a_return_that_cannot_be_written_leaves_the_earlier_id_in_place() {
    let mut h = Harness::new();
    let ids = stable(&mut h);
    h.refuses = Some(WriteError::TooFewReplicas);
    let answer = rejoin(&mut h, join("two"));
    assert_eq!(error(answer.error_code), ErrorCode::CoordinatorNotAvailable);
    assert_eq!(h.heartbeat(&ids[1], 1), ErrorCode::None);
    h.refuses = None;
    assert_eq!(error(rejoin(&mut h, join("two")).error_code), ErrorCode::None);
}

#[test]
fn a_return_is_answered_when_its_record_is_acknowledged() {
    let mut h = Harness::new();
    stable(&mut h);
    h.holds = true;
    let ticket = h.send_join(join("two"));
    assert_eq!(h.join_answer(ticket), None);
    assert!(h.acknowledge());
    assert_eq!(h.join_answer(ticket).expect("it is written").generation_id, 1);
}

#[test]
fn a_member_whose_return_was_acknowledged_late_still_has_a_session() {
    let session_ms = i64::from(SESSION_MS);
    for late_ms in [session_ms - 1, session_ms, session_ms + 1] {
        let mut h =
            Harness::with(GroupConfig { commit_timeout_ms: 3 * session_ms, ..GroupConfig::default() });
        let ids = stable(&mut h);
        h.holds = true;
        let ticket = h.send_join(join("two"));
        // The other member is heard of all the time; its heartbeats are answered after the write.
        let beat = |h: &mut Harness| {
            let request = HeartbeatRequest {
                group_id: "g".to_owned(),
                generation_id: 1,
                member_id: ids[0].clone(),
                group_instance_id: None,
            };
            h.turn(|shard, ticket, now| shard.heartbeat(&request, ticket, now))
        };
        h.advance(late_ms / 2);
        beat(&mut h);
        h.advance(late_ms - late_ms / 2);
        beat(&mut h);
        assert!(h.acknowledge());
        assert_eq!(error(h.join_answer(ticket).expect("it is written").error_code), ErrorCode::None);
        h.holds = false;
        h.advance(session_ms - 1);
        assert_eq!(h.heartbeat(&ids[0], 1), ErrorCode::None, "the session began with the answer");
        h.advance(1);
        assert_eq!(h.heartbeat(&ids[0], 1), ErrorCode::RebalanceInProgress, "the member is not heard of");
    }
}

#[test]
fn a_return_before_a_rebalance_joins_it() {
    let mut h = Harness::new();
    let ids = stable(&mut h);
    h.holds = true;
    let ticket = h.send_join(join("two"));
    let leader = h.send_join(Join { member_id: &ids[0], ..join("one") });
    while h.acknowledge() {}
    let (two, one) = (h.join_answer(ticket).expect("both in"), h.join_answer(leader).expect("both in"));
    assert_eq!((two.generation_id, one.generation_id, one.members.len()), (2, 2, 2));
}

#[test]
fn a_static_member_keeps_its_place_for_its_session() {
    let mut h = Harness::new();
    let ids = stable(&mut h);
    h.advance(i64::from(SESSION_MS) - 1);
    h.heartbeat(&ids[0], 1);
    assert_eq!(h.heartbeat(&ids[0], 1), ErrorCode::None, "two is away and not missed yet");
    h.advance(1);
    assert_eq!(h.heartbeat(&ids[0], 1), ErrorCode::RebalanceInProgress);
}

#[test]
fn a_rebalance_does_not_drop_static_members_who_are_away() {
    let mut h = Harness::new();
    let session_ms = 10 * REBALANCE_MS;
    let tickets = ["one", "two"].map(|instance| h.send_join(Join { session_ms, ..join(instance) }));
    h.advance(DELAY_MS * 2);
    let ids = tickets.map(|ticket| h.join_answer(ticket).expect("the delay is over").member_id);
    h.sync_all(&ids, 1);
    let rejoined = h.send_join(Join { member_id: &ids[0], session_ms, ..join("one") });
    h.advance(i64::from(REBALANCE_MS));
    let answer = h.join_answer(rejoined).expect("the rebalance timeout has passed");
    assert_eq!((answer.generation_id, answer.members.len()), (2, 2));
}

#[test]
fn an_administrator_removes_static_members_by_name() {
    let mut h = Harness::new();
    let ids = stable(&mut h);
    let left = h.leave(&[("", Some("two")), (&ids[1], Some("one"))]);
    assert_eq!(left, [ErrorCode::None, ErrorCode::FencedInstanceId]);
    assert_eq!(h.heartbeat(&ids[0], 1), ErrorCode::RebalanceInProgress);
}
