//! Expiry of offsets, and deletion of groups.

use super::harness::{Commit, DELAY_MS, GROUP, Harness, Join, subscription};
use crate::config::GroupConfig;
use crate::topics::DeletedTopic;
use thalweg_shard::WriteError;
use thalweg_wire::request::offset_fetch_request::OffsetFetchRequestGroup;
use thalweg_wire::{ErrorCode, Uuid};

const MINUTE_MS: i64 = 60_000;

/// Offsets are kept for an hour, and checked every minute.
fn harness() -> Harness {
    let h = Harness::with(GroupConfig {
        offsets_retention_ms: 60 * MINUTE_MS,
        offsets_retention_check_interval_ms: MINUTE_MS,
        ..GroupConfig::default()
    });
    h.topics.set("t", 7, 2);
    h
}

/// A member of a stable group that reads these topics, with a session that does not expire.
fn member(h: &mut Harness, topics: &[&str]) -> String {
    let metadata = subscription(topics);
    let protocols: &[(&str, &[u8])] = &[("range", &metadata)];
    let session_ms = i32::MAX;
    let ticket = h.send_join(Join { version: 3, session_ms, protocols, ..Join::default() });
    h.advance(DELAY_MS);
    let id = h.join_answer(ticket).expect("the delay is over").member_id;
    h.sync_all(std::slice::from_ref(&id), 1);
    id
}

#[test]
fn offsets_without_a_group_expire_one_retention_after_their_commit() {
    let mut h = harness();
    h.commit(Commit { partition: 0, ..Commit::default() });
    h.advance(30 * MINUTE_MS);
    h.commit(Commit { partition: 1, ..Commit::default() });
    h.advance(31 * MINUTE_MS);
    assert_eq!((h.fetch(GROUP, 0), h.fetch(GROUP, 1)), (-1, 1));
    assert_eq!(h.state(GROUP), "Empty");
    h.advance(30 * MINUTE_MS);
    assert_eq!(
        (h.fetch(GROUP, 1), h.state(GROUP).as_str()),
        (-1, "Dead"),
        "the group goes with its last offset"
    );
    assert_eq!(h.reloaded().list_groups(&[], &[]), []);
}

#[test]
fn offsets_of_a_group_expire_one_retention_after_its_last_member_left() {
    let mut h = harness();
    let id = member(&mut h, &["t"]);
    assert_eq!(h.commit(Commit { member_id: &id, generation: 1, ..Commit::default() }), ErrorCode::None);
    h.advance(120 * MINUTE_MS);
    assert_eq!(h.fetch(GROUP, 0), 1, "a member reads the topic");
    h.leave(&[(&id, None)]);
    h.advance(59 * MINUTE_MS);
    assert_eq!(h.fetch(GROUP, 0), 1);
    h.advance(2 * MINUTE_MS);
    assert_eq!((h.fetch(GROUP, 0), h.state(GROUP).as_str()), (-1, "Dead"));
}

#[test]
fn offsets_of_topics_that_no_member_reads_expire_in_a_stable_group() {
    let mut h = harness();
    let id = member(&mut h, &["another"]);
    assert_eq!(h.commit(Commit { member_id: &id, generation: 1, ..Commit::default() }), ErrorCode::None);
    h.advance(61 * MINUTE_MS);
    assert_eq!((h.fetch(GROUP, 0), h.state(GROUP).as_str()), (-1, "Stable"));
}

#[test]
fn offsets_stay_where_the_topics_of_members_are_unknown() {
    let mut h = harness();
    let ticket = h.send_join(Join { version: 3, session_ms: i32::MAX, ..Join::default() });
    h.advance(DELAY_MS);
    let id = h.join_answer(ticket).expect("the delay is over").member_id;
    h.sync_all(std::slice::from_ref(&id), 1);
    h.commit(Commit { member_id: &id, generation: 1, ..Commit::default() });
    h.advance(120 * MINUTE_MS);
    assert_eq!(h.fetch(GROUP, 0), 1);
}

#[test]
fn a_committer_may_set_the_expiry_of_its_offset() {
    let mut h = harness();
    let commit = Commit { version: 4, retention_ms: 5 * MINUTE_MS, ..Commit::default() };
    assert_eq!(h.commit(commit), ErrorCode::None);
    h.restart();
    h.advance(4 * MINUTE_MS);
    assert_eq!(h.fetch(GROUP, 0), 1);
    h.advance(2 * MINUTE_MS);
    assert_eq!(h.fetch(GROUP, 0), -1);
}

#[test]
fn a_group_without_offsets_goes_unless_someone_is_about_to_join() {
    let mut h = harness();
    let ticket = h.send_join(Join { session_ms: i32::MAX, ..Join::default() });
    let id = h.join_answer(ticket).expect("given at once").member_id;
    h.advance(2 * MINUTE_MS);
    assert_eq!(h.state(GROUP), "Empty");
    assert_eq!(h.leave(&[(&id, None)]), [ErrorCode::None]);
    h.advance(2 * MINUTE_MS);
    assert_eq!(h.state(GROUP), "Dead");
}

#[test]
fn thousands_of_offsets_expire_in_batches_of_bounded_size() {
    let mut h = harness();
    for partition in 0..2_500 {
        h.commit(Commit { partition, ..Commit::default() });
    }
    let before = h.log.len();
    h.advance(61 * MINUTE_MS);
    assert_eq!(h.state(GROUP), "Dead");
    assert_eq!(h.log.len() - before, 4, "three of offsets, and the group's");
}

#[test]
fn long_names_do_not_keep_offsets_of_other_groups() {
    let mut h = harness();
    h.commit(Commit::default());
    let long: Vec<String> = (0..40).map(|index| format!("{index:02}{}", "n".repeat(3_000))).collect();
    for group in &long {
        h.commit(Commit { group, ..Commit::default() });
    }
    let longest = "x".repeat(30_000);
    h.commit(Commit { group: &longest, ..Commit::default() });
    h.batch_bytes_max = 20_000;
    h.advance(62 * MINUTE_MS);
    assert_eq!((h.fetch(GROUP, 0), h.state(GROUP).as_str()), (-1, "Dead"));
    assert!(long.iter().all(|group| h.state(group) == "Dead"));
    assert_eq!((h.fetch(&longest, 0), h.state(&longest).as_str()), (1, "Empty"), "it fits no batch");
    h.batch_bytes_max = 100_000;
    h.advance(MINUTE_MS);
    assert_eq!(h.state(&longest), "Dead", "it is tried again");
}

#[test]
fn a_group_stays_with_an_offset_whose_removal_is_refused() {
    let mut h = harness();
    h.commit(Commit::default());
    h.refuses = Some(WriteError::TooFewReplicas);
    h.advance(62 * MINUTE_MS);
    assert_eq!((h.fetch(GROUP, 0), h.state(GROUP).as_str()), (1, "Empty"));
    h.refuses = None;
    h.advance(MINUTE_MS);
    assert_eq!((h.fetch(GROUP, 0), h.state(GROUP).as_str()), (-1, "Dead"));
}

#[test]
fn an_offset_is_never_that_of_a_later_topic_of_the_name() {
    let mut h = harness();
    h.commit(Commit { offset: 777, ..Commit::default() });
    let deleted = [DeletedTopic { name: "t".to_owned(), id: Uuid(7) }];
    h.topics.delete("t");
    h.refuses = Some(WriteError::TooFewReplicas);
    h.turn(|shard, _, _| shard.topics_deleted(&deleted));
    assert_eq!(h.fetch(GROUP, 0), 777, "its removal was refused");
    h.topics.set("t", 8, 2);
    assert_eq!(h.fetch(GROUP, 0), -1);
    let all = OffsetFetchRequestGroup { group_id: GROUP.to_owned(), topics: None, ..Default::default() };
    assert_eq!(h.shard.fetch_offsets(&all).topics, []);
    assert_eq!(h.reloaded().fetch_offsets(&all).topics, []);
    h.topics.set("t", 7, 2);
    assert_eq!(h.fetch(GROUP, 0), 777);
    h.topics.set("t", 8, 2);
    h.refuses = None;
    let before = h.log.len();
    h.advance(2 * MINUTE_MS);
    assert!(h.log.len() > before, "the removal is tried again");
    h.topics.set("t", 7, 2);
    assert_eq!(h.fetch(GROUP, 0), -1);
}
