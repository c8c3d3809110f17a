//! Conversion of groups between the classic and the consumer protocol while members run.

use super::consumer::{Consumer, GROUP, with_topic};
use super::harness::{Harness, Join, REBALANCE_MS, error, subscription};
use crate::config::{GroupConfig, Migration};
use bytes::Bytes;
use thalweg_shard::{Ticket, WriteError};
use thalweg_wire::data::ConsumerProtocolAssignment;
use thalweg_wire::request::*;
use thalweg_wire::{Decoder, ErrorCode, Message};

/// A classic consumer's metadata: topics, and owned partitions of `t`.
fn metadata(topics: &[&str], owned: &[i32]) -> Vec<u8> {
    let mut subscription = thalweg_wire::data::ConsumerProtocolSubscription {
        topics: topics.iter().map(|&topic| topic.to_owned()).collect(),
        ..Default::default()
    };
    subscription.owned_partitions.push(thalweg_wire::data::consumer_protocol_subscription::TopicPartition {
        topic: "t".to_owned(),
        partitions: owned.to_vec(),
    });
    let mut bytes = 3i16.to_be_bytes().to_vec();
    bytes.extend(subscription.to_bytes(3).expect("version 3 has it all"));
    bytes
}

/// An assignment of partitions of `t`.
fn assignment(partitions: &[i32]) -> Bytes {
    let topic = thalweg_wire::data::consumer_protocol_assignment::TopicPartition {
        topic: "t".to_owned(),
        partitions: partitions.to_vec(),
    };
    let assignment = ConsumerProtocolAssignment { assigned_partitions: vec![topic], user_data: None };
    let mut bytes = 3i16.to_be_bytes().to_vec();
    bytes.extend(assignment.to_bytes(3).expect("version 3 has it all"));
    bytes.into()
}

fn partitions_of(assignment: &Bytes) -> Vec<i32> {
    let mut d = Decoder::new(assignment.clone());
    let version = d.i16().expect("a version");
    let assignment = ConsumerProtocolAssignment::decode(&mut d, version).expect("a consumer's");
    assignment.assigned_partitions.into_iter().flat_map(|topic| topic.partitions).collect()
}

fn join(h: &mut Harness, id: &str, owned: &[i32]) -> Ticket {
    h.send_join(Join { member_id: id, protocols: &[("range", &metadata(&["t"], owned))], ..Join::default() })
}

fn sync(h: &mut Harness, id: &str, generation: i32, given: &[(&str, &[i32])]) -> Result<Vec<i32>, ErrorCode> {
    let request = SyncGroupRequest {
        group_id: GROUP.to_owned(),
        generation_id: generation,
        member_id: id.to_owned(),
        ..SyncGroupRequest::default()
    };
    let given = given.iter().map(|(id, partitions)| ((*id).to_owned(), assignment(partitions))).collect();
    let ticket = h.turn(|shard, ticket, now| shard.sync_group(&request, &given, ticket, now));
    match h.answer(ticket) {
        Some(crate::answer::GroupAnswer::SyncGroup(response)) => match error(response.error_code) {
            ErrorCode::None => Ok(partitions_of(&response.assignment)),
            error => Err(error),
        },
        other => panic!("a sync was answered by {other:?}"),
    }
}

/// A stable classic group of one consumer with both partitions; the member's id and the generation.
fn classic_group(h: &mut Harness) -> (String, i32) {
    let protocols: &[(&str, &[u8])] = &[("range", &metadata(&["t"], &[]))];
    let first = h.send_join(Join { protocols, ..Join::default() });
    let id = h.join_answer(first).expect("an id").member_id;
    let second = h.send_join(Join { protocols, member_id: &id, ..Join::default() });
    h.advance(10_000);
    let generation = h.join_answer(second).expect("the delay is over").generation_id;
    assert_eq!(sync(h, &id, generation, &[(&id, &[0, 1])]), Ok(vec![0, 1]));
    (id, generation)
}

#[test]
fn a_classic_group_becomes_a_consumer_group_and_back_while_members_run() {
    let mut h = with_topic(2);
    let (classic, generation) = classic_group(&mut h);
    let mut new = Consumer::new("new", &["t"]);
    h.advance(1_000);
    h.beat(&mut new);
    let group = h.described();
    assert_eq!((group.error_code, group.group_state.as_str(), group.members.len()), (0, "Reconciling", 2));
    assert_eq!(new.owned.len(), 0, "the classic member has all");
    h.check_replay();
    // The classic member has to join again, revokes, and joins a second time to continue.
    assert_eq!(h.heartbeat(&classic, generation), ErrorCode::RebalanceInProgress);
    let joined = join(&mut h, &classic, &[0, 1]);
    let joined = h.join_answer(joined).expect("at once");
    assert_eq!((error(joined.error_code), joined.generation_id), (ErrorCode::None, generation));
    let kept = sync(&mut h, &classic, joined.generation_id, &[]).expect("its partitions");
    assert_eq!(kept.len(), 1);
    h.beat(&mut new);
    assert_eq!(new.owned.len(), 0);
    assert_eq!(h.heartbeat(&classic, joined.generation_id), ErrorCode::RebalanceInProgress);
    let joined = join(&mut h, &classic, &kept);
    let joined = h.join_answer(joined).expect("at once");
    assert!(joined.generation_id > generation);
    assert_eq!(sync(&mut h, &classic, joined.generation_id, &[]), Ok(kept.clone()));
    assert_eq!(h.heartbeat(&classic, joined.generation_id), ErrorCode::None);
    h.beat(&mut new);
    assert_eq!(new.owned.len(), 1);
    assert_eq!(h.described().group_state, "Stable");
    h.check_replay();
    // The last member of the consumer protocol leaves.
    h.request_beat(&ConsumerGroupHeartbeatRequest { member_epoch: -1, ..new.request() });
    let group = h.shard.describe_group(GROUP, 6);
    assert_eq!((group.group_state.as_str(), group.members.len()), ("PreparingRebalance", 1));
    assert_eq!(h.described().error_code, ErrorCode::GroupIdNotFound.code());
    assert_eq!(h.heartbeat(&classic, h_generation(&h)), ErrorCode::RebalanceInProgress);
    let rejoined = join(&mut h, &classic, &kept);
    let rejoined = h.join_answer(rejoined).expect("all have joined");
    assert_eq!((error(rejoined.error_code), rejoined.leader.as_str()), (ErrorCode::None, classic.as_str()));
    assert_eq!(sync(&mut h, &classic, rejoined.generation_id, &[(&classic, &[0, 1])]), Ok(vec![0, 1]));
    let loaded = h.reloaded();
    assert_eq!(loaded.describe_group(GROUP, 6), h.shard.describe_group(GROUP, 6));
}

/// The generation of the classic group, from its record.
fn h_generation(h: &Harness) -> i32 {
    use crate::record::CoordinatorRecord;
    let records = h.records();
    let last = records.iter().rev().find_map(|record| match record {
        CoordinatorRecord::GroupMetadata(_, Some(value)) => Some(value.generation),
        _ => None,
    });
    last.expect("the group was written")
}

#[test]
fn policies_keep_groups_as_they_are() {
    let mut config = GroupConfig::default();
    config.consumer.migration = Migration { upgrades: false, downgrades: false };
    let mut h = Harness::with(config);
    h.topics.set("t", 7, 2);
    classic_group(&mut h);
    assert_eq!(h.beat_error(&Consumer::new("new", &["t"]).request()), ErrorCode::GroupIdNotFound);

    let mut h = Harness::with(GroupConfig {
        consumer: crate::config::ConsumerGroupConfig {
            migration: Migration { upgrades: false, downgrades: false },
            ..GroupConfig::default().consumer
        },
        ..GroupConfig::default()
    });
    h.topics.set("t", 7, 2);
    h.beat(&mut Consumer::new("a", &["t"]));
    let refused = join(&mut h, "", &[]);
    let refused = h.join_answer(refused).expect("at once");
    assert_eq!(error(refused.error_code), ErrorCode::InconsistentGroupProtocol);
}

#[test]
fn groups_without_members_change_their_kind_at_once() {
    let mut h = with_topic(2);
    let (classic, _) = classic_group(&mut h);
    h.leave(&[(&classic, None)]);
    assert_eq!(h.state(GROUP), "Empty");
    let mut new = Consumer::new("new", &["t"]);
    h.beat(&mut new);
    assert_eq!(new.owned.len(), 2);
    h.check_replay();
    h.request_beat(&ConsumerGroupHeartbeatRequest { member_epoch: -1, ..new.request() });
    let (classic, generation) = classic_group(&mut h);
    assert_eq!(h.heartbeat(&classic, generation), ErrorCode::None);
    let (loaded, live) = (h.reloaded(), &h.shard);
    assert_eq!(loaded.list_groups(&[], &[]), live.list_groups(&[], &[]));
    assert_eq!(loaded.describe_group(GROUP, 6), live.describe_group(GROUP, 6));
    assert_eq!(loaded.list_groups(&[], &[]).len(), 1);
}

#[test]
fn a_refused_join_leaves_a_consumer_group_without_members_as_it_was() {
    let mut h = with_topic(2);
    let mut one = Consumer::new("one", &["t"]);
    h.beat(&mut one);
    h.request_beat(&ConsumerGroupHeartbeatRequest { member_epoch: -1, ..one.request() });
    let (before, records) = (h.described(), h.log.len());
    assert_eq!((before.group_state.as_str(), before.group_epoch), ("Empty", 3));
    let refused = join(&mut h, "stranger", &[]);
    let refused = h.join_answer(refused).expect("a refusal");
    assert_eq!(error(refused.error_code), ErrorCode::UnknownMemberId);
    assert_eq!((h.described(), h.log.len()), (before, records));
    h.advance(1_000);
    let mut two = Consumer::new("two", &["t"]);
    h.beat(&mut two);
    assert_eq!(two.epoch, 4);
    h.check_replay();
}

#[test]
fn a_refused_join_leaves_a_classic_member_its_session() {
    let mut h = with_topic(2);
    let (classic, generation) = classic_group(&mut h);
    let mut new = Consumer::new("new", &["t"]);
    h.beat(&mut new);
    h.refuses = Some(WriteError::TooFewReplicas);
    let protocols: &[(&str, &[u8])] = &[("range", &metadata(&["t", "u"], &[0, 1]))];
    let join = Join { member_id: &classic, protocols, session_ms: 1_000, ..Join::default() };
    let ticket = h.send_join(join);
    let refused = h.join_answer(ticket).expect("at once");
    assert_eq!(error(refused.error_code), ErrorCode::CoordinatorNotAvailable);
    h.refuses = None;
    h.advance(2_000);
    assert_ne!(h.heartbeat(&classic, generation), ErrorCode::UnknownMemberId);
}

#[test]
fn a_group_that_is_no_consumers_stays_classic() {
    let mut h = with_topic(2);
    let join =
        Join { protocol_type: "connect", protocols: &[("default", b"x")], version: 3, ..Join::default() };
    h.send_join(join);
    h.advance(10_000);
    assert_eq!(h.beat_error(&Consumer::new("new", &["t"]).request()), ErrorCode::GroupIdNotFound);
}

#[test]
fn classic_members_that_do_not_join_again_or_do_not_sync_are_removed() {
    let mut h = with_topic(2);
    let (classic, generation) = classic_group(&mut h);
    let mut new = Consumer::new("new", &["t"]);
    h.advance(1_000);
    h.beat(&mut new);
    for _ in 0..70 {
        // The member is alive, but does not revoke its partitions.
        if h.heartbeat(&classic, generation) == ErrorCode::UnknownMemberId {
            break;
        }
        h.beat(&mut new);
        h.advance(1_000);
    }
    assert_eq!(h.heartbeat(&classic, generation), ErrorCode::UnknownMemberId);
    h.settle_consumers(&mut [&mut new]);
    assert_eq!(new.owned.len(), 2);
    h.check_replay();
}

#[test]
fn classic_member_that_does_not_revoke_after_a_load_is_removed() {
    let mut h = with_topic(2);
    let (classic, generation) = classic_group(&mut h);
    let mut new = Consumer::new("new", &["t"]);
    h.advance(1_000);
    h.beat(&mut new);
    let joined = join(&mut h, &classic, &[0, 1]);
    let joined = h.join_answer(joined).expect("at once");
    assert_eq!((error(joined.error_code), joined.generation_id), (ErrorCode::None, generation));
    h.restart();
    // The member never learns from a heartbeat that it has to join again, and so has no deadline for that.
    let mut alive_ms = 0;
    while sync(&mut h, &classic, generation, &[]).is_ok() {
        h.beat(&mut new);
        h.advance(1_000);
        alive_ms += 1_000;
        assert!(alive_ms <= REBALANCE_MS, "the member is still there");
    }
    assert_eq!(alive_ms, REBALANCE_MS);
    h.settle_consumers(&mut [&mut new]);
    assert_eq!(new.owned.len(), 2);
    h.check_replay();
}

#[test]
fn refused_joins_are_answered_without_a_member_id() {
    let mut config = GroupConfig::default();
    config.consumer.group_size_max = 1;
    let mut h = Harness::with(config);
    h.topics.set("t", 7, 2);
    h.beat(&mut Consumer::with_instance("a", "i"));
    let refused = |h: &mut Harness, join: Join<'_>| {
        let ticket = h.send_join(join);
        let response = h.join_answer(ticket).expect("at once");
        assert_eq!(response.member_id, "", "{response:?}");
        error(response.error_code)
    };
    let protocols: &[(&str, &[u8])] = &[("range", &metadata(&["t"], &[]))];
    let member = Join { member_id: "a", protocols, ..Join::default() };
    let other_type = Join { protocol_type: "connect", ..member };
    assert_eq!(refused(&mut h, other_type), ErrorCode::InconsistentGroupProtocol);
    assert_eq!(refused(&mut h, Join { member_id: "b", ..member }), ErrorCode::GroupMaxSizeReached);
    let no_instance = Join { instance_id: Some("x"), ..member };
    assert_eq!(refused(&mut h, no_instance), ErrorCode::UnknownMemberId);
}

#[test]
fn a_static_member_restarts_with_the_other_protocol() {
    let mut h = with_topic(2);
    let mut a = Consumer::with_instance("a", "i");
    h.beat(&mut a);
    let protocols: &[(&str, &[u8])] = &[("range", &metadata(&["t"], &[]))];
    // The only member of the consumer protocol is replaced by a classic one: the group becomes a classic one.
    let joined = h.send_join(Join { instance_id: Some("i"), protocols, ..Join::default() });
    let joined = h.join_answer(joined).expect("at once");
    assert_eq!(error(joined.error_code), ErrorCode::None);
    let group = h.shard.describe_group(GROUP, 6);
    assert_eq!((group.group_state.as_str(), group.members.len()), ("Stable", 1));
    assert_eq!(sync(&mut h, &joined.member_id, joined.generation_id, &[]), Ok(vec![0, 1]));
    assert_eq!(h.reloaded().describe_group(GROUP, 6), h.shard.describe_group(GROUP, 6));
    // The reverse conversion.
    let mut again = Consumer::with_instance("b", "i");
    h.beat(&mut again);
    assert_eq!(again.owned.len(), 2);
    assert_eq!(h.described().members.len(), 1);
    h.check_replay();
}

#[test]
fn metadata_that_is_no_consumers_is_refused() {
    let mut h = with_topic(2);
    h.beat(&mut Consumer::new("a", &["t"]));
    let refused = h.send_join(Join { protocols: &[("range", b"nonsense")], version: 3, ..Join::default() });
    let refused = h.join_answer(refused).expect("at once");
    assert_eq!(error(refused.error_code), ErrorCode::InconsistentGroupProtocol);
    let ok =
        h.send_join(Join { protocols: &[("range", &subscription(&["t"]))], version: 3, ..Join::default() });
    assert_eq!(error(h.join_answer(ok).expect("at once").error_code), ErrorCode::None);
}

#[test]
fn an_upgrade_that_is_too_large_is_not_made_at_every_heartbeat() {
    let mut h = with_topic(2);
    let (classic, generation) = classic_group(&mut h);
    h.batch_bytes_max = 300;
    let mut new = Consumer::new("new", &["t"]);
    for _ in 0..300 {
        assert_eq!(h.beat_error(&new.request()), ErrorCode::UnknownServerError);
        h.advance(1);
    }
    assert_eq!(h.refused, 1);
    assert_eq!(h.heartbeat(&classic, generation), ErrorCode::None, "the classic group works on");
    for _ in 0..12 {
        h.advance(5_000);
        assert_eq!(h.heartbeat(&classic, generation), ErrorCode::None);
    }
    assert_eq!(h.beat_error(&new.request()), ErrorCode::UnknownServerError);
    assert_eq!(h.refused, 2, "the limit may be another one after a while");
    h.batch_bytes_max = usize::MAX;
    for _ in 0..12 {
        h.advance(5_000);
        assert_eq!(h.heartbeat(&classic, generation), ErrorCode::None);
    }
    h.beat(&mut new);
    assert_eq!(h.described().members.len(), 2);
    h.check_replay();
}

#[test]
fn a_member_with_a_large_subscription_does_not_keep_others_from_upgrading_their_group() {
    let mut h = with_topic(2);
    classic_group(&mut h);
    h.batch_bytes_max = 2_000;
    let topics: Vec<String> = (0..100).map(|topic| format!("a-topic-with-a-long-name-{topic}")).collect();
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    let large = Consumer::new("large", &topics);
    for _ in 0..300 {
        assert_eq!(h.beat_error(&large.request()), ErrorCode::UnknownServerError, "as in Kafka");
        h.advance(1);
    }
    assert_eq!(h.refused, 1, "the conversion is not made at every heartbeat");
    h.beat(&mut Consumer::new("new", &["t"]));
    assert_eq!(h.described().members.len(), 2);
    h.check_replay();
}

#[test]
fn large_subscriptions_by_ever_new_members_do_not_convert_a_group_again_and_again() {
    let mut h = with_topic(2);
    let (classic, generation) = classic_group(&mut h);
    h.batch_bytes_max = 2_000;
    let topics: Vec<String> = (0..100).map(|topic| format!("a-topic-with-a-long-name-{topic}")).collect();
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    for member in 0..100 {
        let large = Consumer::new(&format!("large-{member}"), &topics);
        assert_eq!(h.beat_error(&large.request()), ErrorCode::UnknownServerError);
    }
    assert_eq!(h.refused, 17, "then the conversion is put off for all");
    for _ in 0..12 {
        h.advance(5_000);
        assert_eq!(h.heartbeat(&classic, generation), ErrorCode::None);
    }
    h.beat(&mut Consumer::new("new", &["t"]));
    assert_eq!(h.described().members.len(), 2);
    h.check_replay();
}

#[test]
fn a_downgrade_that_is_too_large_is_made_once_and_the_dead_member_removed() {
    let mut h = with_topic(2);
    let (classic, _) = classic_group(&mut h);
    let mut new = Consumer::new("new", &["t"]);
    h.beat(&mut new);
    assert_eq!(h.described().members.len(), 2);
    let joined = join(&mut h, &classic, &[0, 1]);
    let joined = h.join_answer(joined).expect("at once");
    sync(&mut h, &classic, joined.generation_id, &[]).expect("its partitions");
    // The last member of the consumer protocol is silent from here on; the classic member is not.
    h.batch_bytes_max = 300;
    for _ in 0..10 {
        h.advance(5_000);
        h.heartbeat(&classic, joined.generation_id);
    }
    let group = h.described();
    assert_eq!((group.error_code, group.members.len()), (0, 1), "it stays a consumer group");
    assert_eq!(h.refused, 1);
    h.check_replay();
}
