//! What a member may say of its records.

use super::*;
use thalweg_share::{AcknowledgeError, Acknowledgement, DeliveryState};

fn acknowledgement<'a>(first: i64, last: i64, types: &'a [i8]) -> [Acknowledgement<'a>; 1] {
    [Acknowledgement { first, last, types }]
}

fn with_ten_of_a() -> SharePartition {
    let mut partition = begun(0);
    acquire(&mut partition, "a", 10, &spans(0, 10, 1));
    partition
}

#[test]
fn each_record_may_have_a_type() {
    let mut partition = with_ten_of_a();
    let types = [1, 1, 2, 3, 0, 1, 1, 1, 1, 2];
    let batches =
        partition.acknowledge("a", &acknowledgement(0, 9, &types), &LIMITS, 0).expect("the member has them");
    let written: Vec<_> = batches.iter().map(|b| (b.first_offset, b.last_offset, b.state)).collect();
    let (accepted, available, archived) =
        (DeliveryState::Acknowledged, DeliveryState::Available, DeliveryState::Archived);
    assert_eq!(
        written,
        [(0, 1, accepted), (2, 2, available), (3, 4, archived), (5, 8, accepted), (9, 9, available)]
    );
    assert_eq!(partition.delivery_complete_count(), 8);
    assert!(acquire(&mut partition, "b", 10, &spans(0, 10, 1)).runs.is_empty(), "nothing is written yet");
    partition.written(&batches);
    assert_eq!(partition.start_offset(), 2);
    assert_eq!(partition.delivery_complete_count(), 6);
    assert_eq!(runs(&acquire(&mut partition, "b", 10, &spans(0, 10, 1))), [(2, 2, 2), (9, 9, 2)]);
}

#[test]
fn nothing_takes_effect_where_one_of_many_is_wrong() {
    let mut partition = with_ten_of_a();
    let before = partition.in_flight_runs().collect::<Vec<_>>();
    let good = Acknowledgement { first: 0, last: 4, types: &[1] };
    for (bad, error) in [
        (Acknowledgement { first: 4, last: 5, types: &[1] }, AcknowledgeError::NotAcquired),
        (Acknowledgement { first: 5, last: 10, types: &[1] }, AcknowledgeError::NeverDelivered),
        (Acknowledgement { first: 5, last: i64::MAX, types: &[1] }, AcknowledgeError::NeverDelivered),
        (Acknowledgement { first: 5, last: 9, types: &[5] }, AcknowledgeError::UnknownType(5)),
        (Acknowledgement { first: 5, last: 9, types: &[1, 1] }, AcknowledgeError::WrongTypes),
        (Acknowledgement { first: 5, last: 9, types: &[] }, AcknowledgeError::WrongTypes),
        (Acknowledgement { first: 9, last: 5, types: &[1] }, AcknowledgeError::WrongTypes),
    ] {
        assert_eq!(partition.acknowledge("a", &[good, bad], &LIMITS, 0), Err(error), "{bad:?}");
        assert_eq!(partition.in_flight_runs().collect::<Vec<_>>(), before);
    }
    assert_eq!(partition.acknowledge("b", &[good], &LIMITS, 0), Err(AcknowledgeError::NotAcquired));
}

#[test]
fn a_record_is_acknowledged_once() {
    let mut partition = with_ten_of_a();
    let batches =
        partition.acknowledge("a", &acknowledgement(0, 4, &[1]), &LIMITS, 0).expect("the member has them");
    let again = partition.acknowledge("a", &acknowledgement(4, 4, &[2]), &LIMITS, 0);
    assert_eq!(again, Err(AcknowledgeError::NotAcquired));
    partition.written(&batches);
    assert_eq!(partition.acknowledge("a", &acknowledgement(4, 4, &[1]), &LIMITS, 0), Ok(Vec::new()));
}

#[test]
fn a_change_that_is_not_written_is_undone() {
    let mut partition = with_ten_of_a();
    let batches =
        partition.acknowledge("a", &acknowledgement(0, 4, &[1]), &LIMITS, 0).expect("the member has them");
    partition.not_written(&batches, &LIMITS, 100);
    assert_eq!((partition.start_offset(), partition.delivery_complete_count()), (0, 0));
    let batches =
        partition.acknowledge("a", &acknowledgement(0, 4, &[1]), &LIMITS, 100).expect("it has them again");
    // Its time is over meanwhile.
    partition.not_written(&batches, &LIMITS, 30_000);
    let late = partition.acknowledge("a", &acknowledgement(0, 4, &[1]), &LIMITS, 30_000);
    assert_eq!(late, Err(AcknowledgeError::NotAcquired));
    assert_eq!(runs(&acquire(&mut partition, "b", 10, &spans(0, 10, 1))), [(0, 4, 2)]);
}

#[test]
fn a_lock_ends_although_its_end_falls_into_a_write() {
    let mut partition = with_ten_of_a();
    let batches =
        partition.acknowledge("a", &acknowledgement(0, 9, &[1]), &LIMITS, 0).expect("the member has them");
    assert_eq!(partition.expire(30_000, &LIMITS).records, 0);
    partition.written(&batches);
    assert_eq!(partition.start_offset(), 10);
}

#[test]
fn a_renewed_lock_lasts_longer_where_that_is_allowed() {
    let mut partition = with_ten_of_a();
    assert_eq!(partition.acknowledge("a", &acknowledgement(0, 4, &[4]), &LIMITS, 20_000), Ok(Vec::new()));
    assert_eq!(partition.expire(30_000, &LIMITS).records, 5);
    assert_eq!(partition.next_deadline_ms(), Some(50_000));
    let limits = ShareLimits { may_renew: false, ..LIMITS };
    let refused = partition.acknowledge("a", &acknowledgement(0, 4, &[4]), &limits, 20_000);
    assert_eq!(refused, Err(AcknowledgeError::RenewDisabled));
}

#[test]
fn a_member_that_leaves_gives_back_what_it_has_not_acknowledged() {
    let mut partition = with_ten_of_a();
    let accepted =
        partition.acknowledge("a", &acknowledgement(0, 4, &[1]), &LIMITS, 0).expect("the member has them");
    let released = partition.release_member("a", &LIMITS);
    assert_eq!(released.iter().map(|b| (b.first_offset, b.last_offset)).collect::<Vec<_>>(), [(5, 9)]);
    partition.written(&accepted);
    partition.written(&released);
    assert_eq!((partition.start_offset(), partition.members()), (5, 0));
}

#[test]
fn records_that_were_never_sent_are_taken_back_uncounted() {
    let mut partition = with_ten_of_a();
    partition.take_back("b", 0, 9);
    assert_eq!(partition.members(), 1, "another member cannot");
    partition.take_back("a", 0, 9);
    assert_eq!(partition.members(), 0);
    assert_eq!(runs(&acquire(&mut partition, "b", 10, &spans(0, 10, 1))), [(0, 9, 1)]);
}
