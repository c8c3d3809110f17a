//! Start and end of transactions, in both protocols.

use super::harness::{EPOCH, Harness, ID, named};
use crate::answer::Producer;
use crate::metadata::EPOCH_PER_TRANSACTION;
use crate::shard::EndRequest;
use crate::state::TransactionState;
use thalweg_groups::TransactionOutcome;
use thalweg_shard::WriteError;
use thalweg_wire::ErrorCode;

const BOTH: [i16; 2] = [0, 2];

#[test]
fn a_transaction_commits_in_all_its_partitions() {
    for level in BOTH {
        let mut h = Harness::at_level(level);
        let producer = h.init();
        assert_eq!(producer.epoch, 0);
        h.add(producer, &[("t", 0), ("t", 1)]).expect("added");
        h.add(producer, &[("u", 0), ("t", 1)]).expect("added");
        assert_eq!(h.state(), TransactionState::Ongoing);
        let after = h.end(producer, TransactionOutcome::Commit).expect("committed");
        assert_eq!(h.state(), TransactionState::CompleteCommit);
        let [marker] = &h.markers[..] else { panic!("{:?}", h.markers) };
        assert_eq!(marker.partitions, Vec::from_iter(named(&[("t", 0), ("t", 1), ("u", 0)])));
        assert_eq!((marker.outcome, marker.coordinator_epoch), (TransactionOutcome::Commit, EPOCH));
        assert_eq!(marker.transaction_version, level);
        if level == 2 {
            assert_eq!(after, Producer { epoch: 1, ..producer });
            assert_eq!(marker.producer_epoch, 1, "the marker has the epoch after the transaction's");
        } else {
            assert_eq!(after, Producer::NONE);
            assert_eq!(marker.producer_epoch, 0);
        }
    }
}

#[test]
fn a_level_without_a_record_for_the_epoch_ends_transactions_of_the_older_protocol_only() {
    let mut h = Harness::at_level(0);
    let producer = h.init();
    h.add(producer, &[("t", 0)]).expect("added");
    let request = EndRequest {
        id: ID.to_owned(),
        producer,
        outcome: TransactionOutcome::Commit,
        client_version: EPOCH_PER_TRANSACTION,
    };
    let written = h.log.len();
    let ticket = h.turn(|shard, ticket, turn| shard.end_transaction(&request, None, ticket, turn));
    assert_eq!(h.producer(ticket), Err(ErrorCode::UnsupportedVersion));
    assert_eq!((h.log.len(), h.state()), (written, TransactionState::Ongoing));
    h.end(producer, TransactionOutcome::Commit).expect("the older protocol ends it");
}

#[test]
fn the_next_transaction_waits_until_the_one_before_has_ended_everywhere() {
    let mut h = Harness::new();
    h.keeps_markers = true;
    let producer = h.init();
    h.add(producer, &[("t", 0)]).expect("added");
    let next = h.end(producer, TransactionOutcome::Commit).expect("decided");
    assert_eq!(h.state(), TransactionState::PrepareCommit);
    assert_eq!(h.add(next, &[("t", 0)]), Err(ErrorCode::ConcurrentTransactions));
    assert_eq!(h.init_as(None), Err(ErrorCode::ConcurrentTransactions));
    h.write_markers();
    assert_eq!(h.state(), TransactionState::CompleteCommit);
    h.add(next, &[("t", 0)]).expect("added");
}

#[test]
fn nothing_is_answered_or_sent_before_the_decision_is_acknowledged() {
    let mut h = Harness::new();
    let producer = h.init();
    h.add(producer, &[("t", 0)]).expect("added");
    h.holds = true;
    let ticket = h.send_end(producer, TransactionOutcome::Commit);
    assert!(!h.answers.contains_key(&ticket) && h.markers.is_empty());
    assert_eq!(h.state(), TransactionState::Ongoing);
    let again = h.send_end(producer, TransactionOutcome::Commit);
    assert_eq!(h.producer(again), Err(ErrorCode::ConcurrentTransactions));
    assert!(h.acknowledge());
    assert_eq!(h.producer(ticket), Ok(Producer { epoch: 1, ..producer }));
    assert_eq!(h.markers.len(), 1);
}

#[test]
fn a_decision_that_is_not_acknowledged_is_not_made() {
    let mut h = Harness::new();
    let producer = h.init();
    h.add(producer, &[("t", 0)]).expect("added");
    h.holds = true;
    let ticket = h.send_end(producer, TransactionOutcome::Commit);
    h.lose(WriteError::TimedOut);
    assert_eq!(h.producer(ticket), Err(ErrorCode::CoordinatorNotAvailable));
    assert!(h.markers.is_empty());
    h.holds = false;
    h.end(producer, TransactionOutcome::Commit).expect("the client comes again");
    assert_eq!(h.state(), TransactionState::CompleteCommit);
}

#[test]
fn a_completion_that_is_not_acknowledged_is_written_again() {
    let mut h = Harness::new();
    let producer = h.init();
    h.add(producer, &[("t", 0)]).expect("added");
    h.keeps_markers = true;
    h.end(producer, TransactionOutcome::Abort).expect("decided");
    h.refuses = Some(WriteError::TooFewReplicas);
    h.write_markers();
    assert_eq!(h.state(), TransactionState::PrepareAbort);
    h.refuses = None;
    h.advance(100);
    assert_eq!(h.state(), TransactionState::CompleteAbort);
    assert_eq!(h.markers.len(), 1);
}

#[test]
fn a_new_coordinator_finishes_what_was_decided() {
    for (outcome, after) in [
        (TransactionOutcome::Commit, TransactionState::CompleteCommit),
        (TransactionOutcome::Abort, TransactionState::CompleteAbort),
    ] {
        let mut h = Harness::new();
        let producer = h.init();
        h.add(producer, &[("t", 0), ("t", 1)]).expect("added");
        h.keeps_markers = true;
        h.end(producer, outcome).expect("decided");
        let before = h.orders.clone();
        h.restart();
        let [order] = &h.orders[..] else { panic!("{:?}", h.orders) };
        assert_eq!(order.coordinator_epoch, EPOCH + 1);
        assert_eq!((order.producer_epoch, &order.partitions), (1, &before[0].partitions));
        h.write_markers();
        assert_eq!(h.state(), after);
    }
}

#[test]
fn a_new_coordinator_finishes_what_was_decided_once_the_replicas_have_the_decision() {
    let mut h = Harness::new();
    let producer = h.init();
    h.add(producer, &[("t", 0)]).expect("added");
    h.keeps_markers = true;
    h.end(producer, TransactionOutcome::Commit).expect("decided");
    h.restart_behind();
    assert_eq!(h.orders, [], "another coordinator may not know of the decision");
    assert!(h.acknowledge());
    assert_eq!(h.orders.len(), 1);
    h.write_markers();
    while h.acknowledge() {}
    assert_eq!(h.state(), TransactionState::CompleteCommit);
}

#[test]
fn a_write_that_is_not_acknowledged_in_time_fails() {
    let mut h = Harness::new();
    let producer = h.init();
    h.holds = true;
    let adding = h.send_add(producer, &[("t", 0)]);
    h.advance(29_999);
    assert!(!h.answers.contains_key(&adding));
    h.advance(1);
    assert_eq!(h.added(adding), Err(ErrorCode::CoordinatorNotAvailable));
}

#[test]
fn an_older_client_that_repeats_its_end_is_answered_again() {
    let mut h = Harness::at_level(0);
    let producer = h.init();
    h.add(producer, &[("t", 0)]).expect("added");
    for _ in 0..2 {
        assert_eq!(h.end(producer, TransactionOutcome::Commit), Ok(Producer::NONE));
    }
    assert_eq!(h.end(producer, TransactionOutcome::Abort), Err(ErrorCode::InvalidTxnState));
    assert_eq!(h.markers.len(), 1);
}

#[test]
fn an_older_client_cannot_end_what_it_has_not_begun() {
    let mut h = Harness::at_level(0);
    let producer = h.init();
    assert_eq!(h.end(producer, TransactionOutcome::Commit), Err(ErrorCode::InvalidTxnState));
    assert_eq!(h.end(producer, TransactionOutcome::Abort), Err(ErrorCode::InvalidTxnState));
}

/// Tests the table at the head of `shard/end.rs`.
#[test]
fn a_delayed_end_does_not_end_the_next_transaction() {
    let mut h = Harness::new();
    let first = h.init();
    h.add(first, &[("t", 0)]).expect("added");
    let second = h.end(first, TransactionOutcome::Commit).expect("committed");
    // Rows of state CompleteCommit.
    assert_eq!(h.end(first, TransactionOutcome::Commit), Ok(second), "a repetition");
    assert_eq!(h.end(first, TransactionOutcome::Abort), Err(ErrorCode::InvalidTxnState));
    assert_eq!(h.end(second, TransactionOutcome::Commit), Err(ErrorCode::InvalidTxnState));
    // The delayed end of the first transaction arrives during the second.
    h.add(second, &[("t", 0)]).expect("added");
    assert_eq!(h.end(first, TransactionOutcome::Commit), Err(ErrorCode::ProducerFenced));
    let third = h.end(second, TransactionOutcome::Abort).expect("aborted");
    // Rows of state CompleteAbort.
    assert_eq!(h.end(second, TransactionOutcome::Abort), Ok(third));
    assert_eq!(h.end(second, TransactionOutcome::Commit), Err(ErrorCode::InvalidTxnState));
    assert_eq!(h.end(third, TransactionOutcome::Commit), Err(ErrorCode::InvalidTxnState));
    let outcomes: Vec<_> = h.markers.iter().map(|marker| marker.outcome).collect();
    assert_eq!(outcomes, [TransactionOutcome::Commit, TransactionOutcome::Abort]);
}

#[test]
fn aborting_without_a_transaction_raises_the_epoch() {
    let mut h = Harness::new();
    let first = h.init();
    assert_eq!(h.end(first, TransactionOutcome::Commit), Err(ErrorCode::InvalidTxnState));
    let second = h.end(first, TransactionOutcome::Abort).expect("nothing to abort");
    assert_eq!(second, Producer { epoch: 1, ..first });
    let third = h.end(second, TransactionOutcome::Abort).expect("nothing to abort");
    assert_eq!((third.epoch, h.state()), (2, TransactionState::CompleteAbort));
    assert!(h.markers.is_empty());
}

#[test]
fn the_last_epoch_is_followed_by_a_new_producer_id() {
    let mut h = Harness::new();
    h.init();
    let worn = h.wear_epochs_down(i16::MAX - 1);
    h.add(worn, &[("t", 0)]).expect("added");
    let next = h.end(worn, TransactionOutcome::Commit).expect("committed");
    assert_eq!(next.epoch, 0);
    assert_ne!(next.id, worn.id);
    assert_eq!((h.markers[0].producer_id, h.markers[0].producer_epoch), (worn.id, i16::MAX));
    assert_eq!(h.end(worn, TransactionOutcome::Commit), Ok(next), "a repetition under the old id");
    h.add(next, &[("t", 0)]).expect("the new id goes on");
    assert_eq!(h.add(worn, &[("t", 0)]), Err(ErrorCode::InvalidProducerIdMapping));
}

#[test]
fn a_partition_is_of_the_transaction_that_it_was_added_to() {
    let mut h = Harness::new();
    let producer = h.init();
    let verify = |h: &mut Harness, producer, partitions: &[(&str, i32)]| {
        let ticket = h.send_verify(producer, partitions);
        h.verified(ticket)
    };
    assert_eq!(verify(&mut h, producer, &[("t", 0)]), Ok(vec![ErrorCode::TransactionAbortable]));
    h.add(producer, &[("t", 0)]).expect("added");
    let both = verify(&mut h, producer, &[("t", 0), ("t", 1)]);
    assert_eq!(both, Ok(vec![ErrorCode::None, ErrorCode::TransactionAbortable]));
    let stranger = Producer { id: producer.id + 1, ..producer };
    assert_eq!(verify(&mut h, stranger, &[("t", 0)]), Err(ErrorCode::InvalidProducerIdMapping));
    let of_the_past = Producer { epoch: producer.epoch - 1, ..producer };
    assert_eq!(verify(&mut h, of_the_past, &[("t", 0)]), Err(ErrorCode::ProducerFenced));
    h.keeps_markers = true;
    let after = h.end(producer, TransactionOutcome::Commit).expect("decided");
    assert_eq!(verify(&mut h, after, &[("t", 0)]), Err(ErrorCode::ConcurrentTransactions));
}
