//! Refused writes: the state follows the log, and every waiting member has a deadline.

use super::consumer::{Consumer, with_topic};
use super::harness::{Commit, GROUP, Harness, Join, REBALANCE_MS, SESSION_MS, client, subscription};
use super::streams::{Member, word_count};
use crate::answer::GroupAnswer;
use crate::share::ShareAnswer;
use crate::topics::DeletedTopic;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::Ordering;
use thalweg_shard::{Ticket, WriteError};
use thalweg_wire::request::{
    ConsumerGroupHeartbeatRequest, ShareGroupHeartbeatRequest, StreamsGroupHeartbeatRequest,
};
use thalweg_wire::{ErrorCode, Uuid};

/// A member of a stable classic group that falls silent, and a join that waits for that member.
fn waiting_join(h: &mut Harness) -> Ticket {
    let metadata = subscription(&["t"]);
    let protocols: &[(&str, &[u8])] = &[("range", &metadata)];
    let silent = h.send_join(Join { version: 3, protocols, ..Join::default() });
    h.advance(6_000);
    let id = h.join_answer(silent).expect("the delay is over").member_id;
    let sync = h.send_sync(&id, 1, &[(&id, "")]);
    assert_eq!(h.sync_answer(sync), Some(Ok(String::new())));
    h.send_join(Join { version: 3, protocols, client: "b", ..Join::default() })
}

#[test]
fn a_refused_upgrade_leaves_a_classic_group_its_deadlines() {
    let mut h = with_topic(2);
    let joins = waiting_join(&mut h);
    h.refuses = Some(WriteError::TooLarge);
    let code = h.beat_error(&Consumer::new("m", &["t"]).request());
    assert_eq!(code, ErrorCode::UnknownServerError);
    h.refuses = None;
    assert_eq!(h.join_answer(joins), None, "it still waits for the silent member");
    h.advance(i64::from(SESSION_MS.max(REBALANCE_MS)));
    assert_eq!(h.join_answer(joins).expect("the silent member is gone").error_code, 0);
}

#[test]
fn an_upgrade_sends_waiting_members_to_join_again() {
    let mut h = with_topic(2);
    let joins = waiting_join(&mut h);
    h.holds = true;
    let beats = h.send_beat(&Consumer::new("m", &["t"]).request());
    assert_eq!(h.join_answer(joins), None, "the replicas do not have it");
    h.acknowledge();
    assert_eq!(h.beat_answer(beats).expect("acknowledged").error_code, 0);
    let answer = h.join_answer(joins).expect("acknowledged");
    assert_eq!(answer.error_code, ErrorCode::RebalanceInProgress.code());
    assert!(answer.member_id.starts_with("b-"), "it joins again by its id: {:?}", answer.member_id);
    h.check_replay();
}

#[test]
fn heartbeats_that_cannot_be_written_extend_the_session() {
    let mut h = with_topic(2);
    let mut one = Consumer::new("one", &["t"]);
    h.beat(&mut one);
    h.refuses = Some(WriteError::TooFewReplicas);
    (one.topics, one.is_full) = (vec!["t".to_owned(), "u".to_owned()], true);
    for _ in 0..4 {
        h.advance(super::consumer::SESSION_MS / 2);
        assert_eq!(h.beat_error(&one.request()), ErrorCode::CoordinatorNotAvailable);
    }
    h.refuses = None;
    h.advance(1_000);
    h.beat(&mut one);
    h.advance(super::consumer::SESSION_MS + 1);
    assert_eq!(h.beat_error(&one.request()), ErrorCode::UnknownMemberId);
}

/// The resolution fits into a batch by which the target assignment for the new topic is refused.
#[test]
fn a_heartbeat_that_cannot_be_written_has_regular_expressions_resolved() {
    let mut h = with_topic(1);
    let mut one = Consumer::new(&"one".repeat(20), &["t", "later"]);
    let join =
        ConsumerGroupHeartbeatRequest { subscribed_topic_regex: Some("u.*".to_owned()), ..one.request() };
    one.take(&h.request_beat(&join));
    h.resolve();
    h.beat(&mut one);
    let before = h.described();
    assert_eq!((before.group_state.as_str(), before.group_epoch), ("Stable", 2));
    h.topics.set("later", 8, 1);
    h.topics.version.store(1, Ordering::Relaxed);
    h.turn(|shard, _, _| shard.topics_changed(&["later".to_owned()], true));
    h.advance(10_001);
    h.batch_bytes_max = 250;
    h.beat_error(&one.request());
    h.resolve();
    let after = h.described();
    assert_eq!((after.group_state.as_str(), after.group_epoch, after.assignment_epoch), ("Assigning", 3, 2));
    assert_eq!(h.beat_error(&one.request()), ErrorCode::UnknownServerError);
    h.batch_bytes_max = usize::MAX;
    h.beat(&mut one);
    assert_eq!((one.epoch, one.owned.len()), (3, 2));
    h.check_replay();
}

/// Requests of all kinds to a few groups, some of which change their type; writes are refused at random.
struct History {
    h: Harness,
    rng: SmallRng,
    tickets: Vec<Ticket>,
    /// The groups' names, which other histories use as well.
    ids: Vec<String>,
    topic_id: u128,
    seed: u64,
}

impl History {
    fn new(seed: u64) -> History {
        let h = with_topic(3);
        let ids = vec![String::new()];
        History { h, rng: SmallRng::seed_from_u64(seed), tickets: Vec::new(), ids, topic_id: 7, seed }
    }

    fn step(&mut self) {
        let member = format!("m{}", self.rng.random_range(0..3));
        let epoch = self.rng.random_range(-1..4);
        match self.rng.random_range(0..14) {
            0..3 => {
                let metadata = subscription(&["t"]);
                let (version, protocols) = (self.rng.random_range(3..5), &[("range", &metadata[..])]);
                let member_id = &self.ids[self.rng.random_range(0..self.ids.len())];
                let ticket = self.h.send_join(Join { member_id, version, protocols, ..Join::default() });
                self.tickets.push(ticket);
            }
            3..6 => {
                let id = self.ids[self.rng.random_range(0..self.ids.len())].clone();
                let ticket = self.h.send_sync(&id, self.rng.random_range(1..6), &[(&id, "")]);
                self.tickets.push(ticket);
            }
            6..9 => {
                let mut consumer = Consumer::new(&member, &["t"]);
                if self.rng.random_bool(0.3) {
                    consumer.topics.push("u".to_owned());
                }
                (consumer.epoch, consumer.is_full) = (epoch, self.rng.random_bool(0.5));
                let ticket = self.h.send_beat(&consumer.request());
                self.tickets.push(ticket);
            }
            9 => {
                let request = ShareGroupHeartbeatRequest {
                    group_id: "shares".to_owned(),
                    member_id: member,
                    member_epoch: epoch,
                    subscribed_topic_names: Some(vec!["t".to_owned()]),
                    ..ShareGroupHeartbeatRequest::default()
                };
                let ticket = self.h.turn(|shard, ticket, now| {
                    shard.share_heartbeat(&client("c"), &request, ticket, now);
                });
                if let Some(GroupAnswer::Share(ShareAnswer::Heartbeat(_, Some(work)))) = self.h.answer(ticket)
                {
                    let topics = work.offsets.iter();
                    let done = topics.map(|(t, of)| (*t, of.keys().copied().collect())).collect();
                    self.h.turn(|shard, ticket, now| {
                        shard.share_states_answered("shares", &done, true, ticket, now);
                    });
                }
            }
            10 => {
                let mut streams = Member::new(&member, word_count());
                streams.epoch = epoch;
                let request =
                    StreamsGroupHeartbeatRequest { group_id: "streams".to_owned(), ..streams.request() };
                self.h.turn(|shard, ticket, now| {
                    shard.streams_heartbeat(&client("c"), &request, ticket, now);
                });
            }
            11 => {
                let group = ["streams", "offsets"][self.rng.random_range(0..2)];
                self.tickets.push(self.h.send_commit(Commit { group, ..Commit::default() }));
            }
            12 if self.rng.random_bool(0.3) => {
                let deleted = [DeletedTopic { name: "t".to_owned(), id: Uuid(self.topic_id) }];
                self.topic_id += 10;
                self.h.topics.set("t", self.topic_id, self.rng.random_range(1..4));
                self.h.turn(|shard, _, _| shard.topics_deleted(&deleted));
                self.h.turn(|shard, _, _| shard.topics_changed(&["t".to_owned()], true));
            }
            _ => self.h.advance(self.rng.random_range(0..8_000)),
        }
        for (_, answer) in &self.h.answered {
            if let GroupAnswer::JoinGroup(response) = answer
                && !response.member_id.is_empty()
                && !self.ids.contains(&response.member_id)
            {
                self.ids.push(response.member_id.clone());
            }
        }
    }

    fn check(&mut self) {
        let (loaded, seed) = (self.h.reloaded(), self.seed);
        assert_eq!(self.h.shard.kinds(), loaded.kinds(), "seed {seed}");
        assert_eq!(self.h.shard.consumer_picture(GROUP), loaded.consumer_picture(GROUP), "seed {seed}");
        assert_eq!(self.h.shard.share_picture("shares"), loaded.share_picture("shares"), "seed {seed}");
        assert_eq!(self.h.shard.streams_picture("streams"), loaded.streams_picture("streams"), "seed {seed}");
        for group in ["streams", "offsets"] {
            let request = super::harness::fetch_request(group, 0);
            assert_eq!(self.h.shard.fetch_offsets(&request), loaded.fetch_offsets(&request), "seed {seed}");
        }
        assert_eq!(self.h.shard.without_deadline(), [], "seed {seed}");
    }
}

#[test]
fn refused_writes_leave_the_state_of_the_log_and_every_member_a_deadline() {
    for seed in 0..40 {
        let mut history = History::new(seed);
        for _ in 0..150 {
            history.h.refuses = match history.rng.random_range(0..10) {
                0..2 => Some(WriteError::TooFewReplicas),
                2 => Some(WriteError::TooLarge),
                _ => None,
            };
            history.step();
            if history.h.refuses.is_some() {
                history.check();
            }
        }
        history.h.refuses = None;
        history.h.advance(60 * 60 * 1_000);
        for ticket in &history.tickets {
            assert!(history.h.answer(*ticket).is_some(), "seed {seed}: {ticket:?} waits for ever");
        }
        assert_eq!(history.h.shard.deadline_count(), 0, "seed {seed}: a deadline is no member's");
    }
}
