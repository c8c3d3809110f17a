//! Successive coordinators: unreplicated writes of the first may be lost with the second, so no client may
//! act on a write before the replicas have it.

use super::harness::{Harness, ID, moment};
use crate::answer::Producer;
use crate::config::TransactionConfig;
use crate::shard::TransactionFilter;
use crate::state::TransactionState;
use thalweg_groups::TransactionOutcome;
use thalweg_shard::{Ticket, Unavailability, WriteError};
use thalweg_wire::ErrorCode;

const BOTH: [i16; 2] = [0, 2];

fn are_answered(h: &Harness, tickets: &[Ticket]) -> Vec<bool> {
    tickets.iter().map(|ticket| h.answers.contains_key(ticket)).collect()
}

#[test]
fn an_addition_that_may_be_lost_is_not_confirmed() {
    for level in BOTH {
        let mut h = Harness::at_level(level);
        let producer = h.init();
        h.holds = true;
        let first = h.send_add(producer, &[("t", 0)]);
        h.fail_over(1);
        let again = h.send_add(producer, &[("t", 0)]);
        let asked = h.send_verify(producer, &[("t", 0)]);
        let ended = h.send_end(Producer { epoch: 7, ..producer }, TransactionOutcome::Commit);
        assert_eq!(are_answered(&h, &[first, again, asked, ended]), [false; 4], "level {level}");
        // The third coordinator has none of the writes, and no client got an answer.
        h.fail_over(0);
        h.holds = false;
        assert_eq!(h.state(), TransactionState::Empty);
        h.add(producer, &[("t", 0)]).expect("added");
        h.end(producer, TransactionOutcome::Commit).expect("committed");
        assert_eq!(h.markers[0].partitions.len(), 1);
    }
}

#[test]
fn a_loaded_state_is_answered_when_the_replicas_have_it() {
    let mut h = Harness::new();
    let producer = h.init();
    h.holds = true;
    h.send_add(producer, &[("t", 0)]);
    h.fail_over(1);
    let again = h.send_add(producer, &[("t", 0)]);
    let asked = h.send_verify(producer, &[("t", 0), ("t", 1)]);
    let stranger = h.send_add(Producer { epoch: 7, ..producer }, &[("t", 0)]);
    let other = h.send_init("other", None);
    let list = |h: &Harness| h.shard.list(&TransactionFilter::default(), moment(h.now_ms)).into_inner();
    assert_eq!(h.shard.describe(ID).into_inner(), Err(Unavailability::Loading));
    assert_eq!(list(&h), Err(Unavailability::Loading));
    assert_eq!(are_answered(&h, &[again, asked, stranger, other]), [false; 4]);
    assert!(h.acknowledge());
    assert_eq!(h.added(again), Ok(()));
    assert_eq!(h.verified(asked), Ok(vec![ErrorCode::None, ErrorCode::TransactionAbortable]));
    assert_eq!(h.added(stranger), Err(ErrorCode::ProducerFenced));
    assert_eq!(list(&h).expect("all is acknowledged").len(), 1, "of the other there is no record yet");
    assert!(h.acknowledge());
    assert_eq!(are_answered(&h, &[other]), [true]);
    assert_eq!(list(&h).expect("all is acknowledged").len(), 2);
}

#[test]
fn an_answer_waits_for_the_record_of_its_own_id_only() {
    let mut h = Harness::new();
    let producer = h.init();
    h.add(producer, &[("t", 0)]).expect("added");
    h.holds = true;
    let other = h.send_init("other", None);
    assert_eq!(h.add(producer, &[("t", 0)]), Ok(()), "it is in the transaction");
    h.fail_over(1);
    assert_eq!(h.add(producer, &[("t", 0)]), Ok(()), "as before");
    assert_eq!(are_answered(&h, &[other]), [false]);
}

#[test]
fn an_id_whose_tombstone_may_be_lost_is_not_called_unknown() {
    let config = TransactionConfig {
        id_expiration_ms: 5_000,
        remove_expired_interval_ms: 1_000,
        ..TransactionConfig::default()
    };
    let mut h = Harness::with(config, 2);
    let producer = h.init();
    h.holds = true;
    h.advance(7_000);
    h.fail_over(1);
    assert!(h.shard.metadata(ID).is_none());
    let added = h.send_add(producer, &[("t", 0)]);
    assert_eq!(are_answered(&h, &[added]), [false]);
    h.fail_over(0);
    h.holds = false;
    assert_eq!(h.add(producer, &[("t", 0)]), Ok(()));
}

#[test]
fn an_answer_that_waits_in_vain_sends_the_client_to_try_again() {
    let mut h = Harness::new();
    let producer = h.init();
    h.holds = true;
    h.send_add(producer, &[("t", 0)]);
    h.fail_over(1);
    let asked = h.send_verify(producer, &[("t", 0)]);
    h.advance(30_000);
    assert_eq!(h.verified(asked), Err(ErrorCode::CoordinatorNotAvailable));
}

/// The whole known state of an id.
fn picture(h: &Harness, id: &str) -> String {
    format!("{:?} {:?}", h.shard.metadata(id), h.shard.describe(id).into_inner())
}

#[test]
fn a_refused_write_leaves_nothing_behind() {
    for level in BOTH {
        let mut h = Harness::at_level(level);
        let unknown = picture(&h, ID);
        h.refuses = Some(WriteError::TooFewReplicas);
        assert_eq!(h.init_as(None), Err(ErrorCode::CoordinatorNotAvailable));
        assert_eq!(picture(&h, ID), unknown);
        h.refuses = None;
        let producer = h.init();
        let empty = picture(&h, ID);
        h.refuses = Some(WriteError::Storage);
        assert_eq!(h.add(producer, &[("t", 0)]), Err(ErrorCode::NotCoordinator));
        assert_eq!(picture(&h, ID), empty);
        h.refuses = None;
        h.add(producer, &[("t", 0)]).expect("added");
        let open = picture(&h, ID);
        h.refuses = Some(WriteError::TooFewReplicas);
        assert_eq!(h.end(producer, TransactionOutcome::Commit), Err(ErrorCode::CoordinatorNotAvailable));
        assert_eq!(h.init_as(None), Err(ErrorCode::CoordinatorNotAvailable));
        assert_eq!(picture(&h, ID), open, "level {level}: no producer is fenced by what is not written");
        h.refuses = None;
        h.end(producer, TransactionOutcome::Commit).expect("committed");
    }
}

#[test]
fn an_id_that_cannot_be_written_is_not_kept() {
    let mut h = Harness::new();
    let long = "x".repeat(40_000);
    let ticket = h.send_init(&long, None);
    assert_eq!(h.producer(ticket), Err(ErrorCode::InvalidRequest));
    assert!(h.shard.metadata(&long).is_none());
}
