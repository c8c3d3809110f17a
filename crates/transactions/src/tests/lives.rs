//! The life of a transactional id: takeover, timeout, expiry.

use super::harness::{Harness, ID, TIMEOUT_MS, moment};
use crate::answer::Producer;
use crate::config::TransactionConfig;
use crate::shard::TransactionFilter;
use crate::state::TransactionState;
use thalweg_groups::TransactionOutcome;
use thalweg_shard::{Shard as _, WriteError};
use thalweg_wire::ErrorCode;

const BOTH: [i16; 2] = [0, 2];

#[test]
fn a_producer_that_comes_again_gets_the_next_epoch_and_the_one_before_is_fenced() {
    for level in BOTH {
        let mut h = Harness::at_level(level);
        let first = h.init();
        let second = h.init();
        assert_eq!(second, Producer { epoch: 1, ..first });
        assert_eq!(h.add(first, &[("t", 0)]), Err(ErrorCode::ProducerFenced));
        h.add(second, &[("t", 0)]).expect("added");
    }
}

#[test]
fn the_open_transaction_of_the_one_before_is_aborted_first() {
    for level in BOTH {
        let mut h = Harness::at_level(level);
        let first = h.init();
        h.add(first, &[("t", 0)]).expect("added");
        assert_eq!(h.init_as(None), Err(ErrorCode::ConcurrentTransactions), "it is to come again");
        assert_eq!(h.state(), TransactionState::CompleteAbort);
        let marker = &h.markers[0];
        assert_eq!((marker.outcome, marker.producer_epoch), (TransactionOutcome::Abort, 1), "level {level}");
        assert!(h.end(first, TransactionOutcome::Commit).is_err());
        let second = h.init();
        assert_eq!(second, Producer { epoch: 2, ..first });
    }
}

#[test]
fn a_producer_that_names_its_epoch_goes_on_in_the_next() {
    let mut h = Harness::at_level(0);
    let first = h.init();
    let second = h.init_as(Some(first)).expect("it is the last");
    assert_eq!(second, Producer { epoch: 1, ..first });
    assert_eq!(h.init_as(Some(first)), Ok(second), "the answer was lost");
    let third = h.init();
    assert_eq!(h.init_as(Some(second)), Err(ErrorCode::ProducerFenced), "another came in between");
    let stranger = Producer { id: third.id + 7, ..third };
    assert_eq!(h.init_as(Some(stranger)), Err(ErrorCode::ProducerFenced));
}

#[test]
fn a_producer_without_epochs_left_gets_a_new_id() {
    let mut h = Harness::at_level(0);
    h.init();
    let worn = h.wear_epochs_down(i16::MAX - 1);
    let fresh = h.init_as(Some(worn)).expect("it is the last");
    assert_eq!(fresh.epoch, 0);
    assert_ne!(fresh.id, worn.id);
    assert_eq!(h.init_as(Some(worn)), Ok(fresh), "the answer was lost");
}

#[test]
fn a_transaction_that_takes_too_long_is_aborted_in_the_next_epoch() {
    for level in BOTH {
        let mut h = Harness::at_level(level);
        let producer = h.init();
        h.add(producer, &[("t", 0)]).expect("added");
        h.advance(i64::from(TIMEOUT_MS));
        assert_eq!(h.state(), TransactionState::Ongoing);
        h.advance(10_000);
        assert_eq!(h.state(), TransactionState::CompleteAbort, "level {level}");
        assert_eq!((h.markers[0].outcome, h.markers[0].producer_epoch), (TransactionOutcome::Abort, 1));
        assert!(h.end(producer, TransactionOutcome::Commit).is_err());
        assert_eq!(h.add(producer, &[("t", 0)]), Err(ErrorCode::ProducerFenced));
    }
}

#[test]
fn a_late_transaction_without_epochs_left_is_aborted_under_a_new_id() {
    let mut h = Harness::new();
    h.init();
    let worn = h.wear_epochs_down(i16::MAX - 1);
    h.add(worn, &[("t", 0)]).expect("added");
    h.advance(i64::from(TIMEOUT_MS) + 10_000);
    assert_eq!(h.state(), TransactionState::CompleteAbort);
    assert_eq!((h.markers[0].producer_id, h.markers[0].producer_epoch), (worn.id, i16::MAX));
    assert_ne!(h.metadata().producer_id, worn.id);
}

#[test]
fn a_fence_that_could_not_be_written_is_not_raised_twice() {
    let mut h = Harness::at_level(0);
    let producer = h.init();
    h.add(producer, &[("t", 0)]).expect("added");
    h.refuses = Some(WriteError::TooFewReplicas);
    for _ in 0..3 {
        assert_eq!(h.init_as(None), Err(ErrorCode::CoordinatorNotAvailable));
    }
    h.refuses = None;
    assert_eq!(h.init_as(None), Err(ErrorCode::ConcurrentTransactions));
    assert_eq!(h.markers[0].producer_epoch, 1);
}

#[test]
fn a_transaction_of_another_systems_is_not_ended_by_time() {
    let mut h = Harness::new();
    let request = crate::shard::InitRequest {
        id: ID.to_owned(),
        timeout_ms: i32::MAX,
        expected: None,
        client_id: None,
    };
    let ticket = h.turn(|shard, ticket, turn| shard.init_producer_id(&request, Some(9), ticket, turn));
    let producer = h.producer(ticket).expect("nothing is in the way");
    h.add(producer, &[("t", 0)]).expect("added");
    h.advance(i64::from(i32::MAX) * 2);
    assert_eq!(h.state(), TransactionState::Ongoing);
}

#[test]
fn an_id_that_nobody_uses_is_forgotten() {
    let config = TransactionConfig {
        id_expiration_ms: 5_000,
        remove_expired_interval_ms: 1_000,
        ..Default::default()
    };
    let mut h = Harness::with(config, 2);
    let producer = h.init();
    h.advance(4_000);
    h.add(producer, &[("t", 0)]).expect("added");
    h.advance(6_000);
    assert_eq!(h.state(), TransactionState::Ongoing, "it is in use");
    let after = h.end(producer, TransactionOutcome::Commit).expect("committed");
    h.advance(4_000);
    assert!(h.shard.metadata(ID).is_some());
    h.advance(2_000);
    assert!(h.shard.metadata(ID).is_none());
    assert_eq!(h.reloaded(9).count(), 0, "the log has the tombstone");
    assert_eq!(h.add(after, &[("t", 0)]), Err(ErrorCode::InvalidProducerIdMapping));
}

#[test]
fn an_id_that_is_too_long_to_be_forgotten_keeps_no_other_one() {
    let config = TransactionConfig {
        id_expiration_ms: 5_000,
        remove_expired_interval_ms: 1_000,
        ..Default::default()
    };
    let mut h = Harness::with(config, 2);
    let long = "l".repeat(400);
    let ids: Vec<String> = (0..9).map(|number| format!("id-{number}")).collect();
    for id in ids.iter().chain([&long]) {
        let ticket = h.send_init(id, None);
        h.producer(ticket).expect("nothing is in the way");
    }
    h.batch_bytes_max = 300;
    h.advance(7_000);
    assert!(ids.iter().all(|id| h.shard.metadata(id).is_none()));
    assert!(h.shard.metadata(&long).is_some());
    // It goes as soon as the topic takes it.
    h.batch_bytes_max = usize::MAX;
    h.advance(2_000);
    assert!(h.shard.metadata(&long).is_none());
}

#[test]
fn an_id_that_is_being_forgotten_is_busy_until_that_counts() {
    let config = TransactionConfig {
        id_expiration_ms: 5_000,
        remove_expired_interval_ms: 1_000,
        ..Default::default()
    };
    let mut h = Harness::with(config, 2);
    h.init();
    h.holds = true;
    h.advance(7_000);
    assert_eq!(h.init_as(None), Err(ErrorCode::ConcurrentTransactions));
    h.lose(WriteError::TimedOut);
    h.holds = false;
    assert_eq!(h.init().epoch, 1, "it was not forgotten");
}

#[test]
fn who_waits_is_sent_elsewhere_when_the_shard_goes() {
    let mut h = Harness::new();
    let producer = h.init();
    h.holds = true;
    let ticket = h.send_add(producer, &[("t", 0)]);
    h.turn(|shard, _, _| shard.unload());
    assert_eq!(h.added(ticket), Err(ErrorCode::NotCoordinator));
}

#[test]
fn ids_are_listed_by_the_requested_filters() {
    let mut h = Harness::new();
    let producer = h.init();
    h.add(producer, &[("t", 1), ("t", 0)]).expect("added");
    let other = h.send_init("other", None);
    let other = h.producer(other).expect("nothing is in the way");
    h.advance(500);
    let list = |h: &Harness, filter: TransactionFilter| {
        let listed = h.shard.list(&filter, moment(h.now_ms)).into_inner().expect("all is acknowledged");
        listed.into_iter().map(|listed| listed.transactional_id).collect::<Vec<_>>()
    };
    assert_eq!(list(&h, TransactionFilter::default()), ["app", "other"]);
    let ongoing = Some(vec![TransactionState::Ongoing]);
    assert_eq!(list(&h, TransactionFilter { states: ongoing, ..Default::default() }), ["app"]);
    assert!(list(&h, TransactionFilter { states: Some(vec![]), ..Default::default() }).is_empty());
    let of_other = TransactionFilter { producer_ids: [other.id].into_iter().collect(), ..Default::default() };
    assert_eq!(list(&h, of_other), ["other"]);
    let pattern = regex::Regex::new("^(?:a.*)$").ok();
    assert_eq!(list(&h, TransactionFilter { pattern, ..Default::default() }), ["app"]);
    let states = Some(vec![TransactionState::Ongoing]);
    for (longer_than_ms, expected) in [(499, 1), (500, 0)] {
        let longer_than_ms = Some(longer_than_ms);
        let filter = TransactionFilter { states: states.clone(), longer_than_ms, ..Default::default() };
        assert_eq!(list(&h, filter).len(), expected);
    }
    let describe = |id: &str| h.shard.describe(id).into_inner().expect("all is acknowledged");
    let described = describe(ID);
    assert_eq!((described.transaction_state.as_str(), described.producer_id), ("Ongoing", producer.id));
    assert_eq!(described.topics[0].partitions, [0, 1]);
    let unknown = describe("nobody").error_code;
    assert_eq!(unknown, ErrorCode::TransactionalIdNotFound.code());
}
