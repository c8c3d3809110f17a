//! A million records in flight.

use super::*;
use thalweg_share::{Acknowledgement, DeliveryState};

const MILLION: i64 = 1_000_000;
/// As the head of the crate states.
const BYTES_OF_A_RUN: u64 = 112;

#[test]
fn a_million_records_in_flight_keep_to_the_stated_memory() {
    let limits = ShareLimits { in_flight: MILLION, ..LIMITS };
    // The worst case: no two neighbours are alike.
    let state = ShareState {
        state_epoch: 0,
        start_offset: 0,
        batches: (0..MILLION)
            .map(|offset| StateBatch {
                first_offset: offset,
                last_offset: offset,
                state: DeliveryState::Available,
                delivery_count: 1,
            })
            .collect(),
    };
    let mut held = None;
    let used = allocation_counter::measure(|| {
        let mut partition = SharePartition::load(&state).expect("the state is sound");
        let wanted = AcquireRequest {
            member: "m",
            mode: AcquireMode::BatchOptimised,
            records: MILLION,
            batch_size: 500,
        };
        let log = spans(0, 1000, MILLION / 1000);
        assert_eq!(partition.acquire(&wanted, &limits, 0, 0, log).records, MILLION);
        assert_eq!(partition.runs(), usize::try_from(MILLION).expect("it fits"));
        held = Some(partition);
    });
    let bound = BYTES_OF_A_RUN * MILLION.unsigned_abs();
    assert!(used.bytes_current.unsigned_abs() <= bound, "{} bytes", used.bytes_current);
    let partition = held.as_mut().expect("it was made");

    // One acknowledgement completes all of them, and nothing is left.
    let all = Acknowledgement { first: 0, last: MILLION - 1, types: &[1] };
    let batches = partition.acknowledge("m", &[all], &limits, 0).expect("the member has them");
    assert_eq!(batches.len(), 1);
    partition.written(&batches);
    assert_eq!((partition.start_offset(), partition.in_flight(), partition.runs()), (MILLION, 0, 0));
}
