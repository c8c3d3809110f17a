//! What has become of messages that were handed to a producer: how many are under way, what failed first, and up to where all
//! have arrived.
//!
//! Messages are taken in parts. Each message has a number, by which the report of its batch finds its part: that costs one lock
//! for a batch.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_client::{Delivery, SentRun};
use tokio::sync::Notify;

/// What has come of messages that were taken.
#[derive(Default)]
pub struct Reports {
    state: Mutex<State>,
    /// Acknowledged by the cluster.
    arrived: Arc<AtomicU64>,
    /// Told when none is under way, or one has failed.
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// In the order in which they were taken; those that have arrived up to the first that has not are gone.
    parts: VecDeque<Part>,
    /// Taken and not reported yet.
    under_way: u64,
    next_number: u64,
    failed: Option<String>,
}

/// Messages that were taken together.
struct Part {
    /// The sequence of the first of them.
    first_sequence: u64,
    /// The number after the last of them.
    end: u64,
    /// Those that have not arrived.
    left: u64,
}

impl Reports {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes messages: they are under way. The number of the first; those of the others follow.
    pub fn begin(&self, first_sequence: u64, count: u64) -> u64 {
        let mut state = self.state();
        let number = state.next_number;
        state.next_number += count;
        state.under_way += count;
        let end = state.next_number;
        state.parts.push_back(Part { first_sequence, end, left: count });
        number
    }

    /// How many are under way.
    pub fn under_way(&self) -> u64 {
        self.state().under_way
    }

    /// How many the cluster has acknowledged: counted before anybody can know that a message has arrived.
    pub fn arrived(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.arrived)
    }

    /// Why the first message that did not arrive did not.
    pub fn failure(&self) -> Option<String> {
        self.state().failed.clone()
    }

    /// What was taken, and what is to come, cannot be delivered.
    pub fn fail(&self, reason: String) {
        self.state().failed.get_or_insert(reason);
        self.changed.notify_waiters();
    }

    /// A batch came to its end.
    pub fn delivered(&self, delivery: &Delivery<'_>) {
        let failure = delivery.result.as_ref().err().map(ToString::to_string);
        self.settle(delivery.sent, failure);
    }

    fn settle(&self, sent: &[SentRun], failure: Option<String>) {
        let count: u64 = sent.iter().map(|run| u64::from(run.records)).sum();
        if failure.is_none() {
            self.arrived.fetch_add(count, Ordering::AcqRel);
        }
        let mut state = self.state();
        state.under_way -= count;
        match failure {
            Some(reason) => {
                state.failed.get_or_insert(reason);
            }
            None => sent.iter().for_each(|run| state.arrive(run.number, u64::from(run.records))),
        }
        if state.under_way == 0 || state.failed.is_some() {
            self.changed.notify_waiters();
        }
    }

    /// The first message of which it is not known that it has arrived, and with it all before.
    pub fn held_since(&self) -> Option<u64> {
        self.state().parts.front().map(|part| part.first_sequence)
    }

    /// Waits until none is under way, or one has failed.
    pub async fn all(&self) {
        loop {
            // Listen, then look.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let state = self.state();
                if state.under_way == 0 || state.failed.is_some() {
                    return;
                }
            }
            changed.await;
        }
    }
}

impl State {
    /// Messages whose numbers follow each other have arrived.
    fn arrive(&mut self, first: u64, count: u64) {
        let (mut number, end) = (first, first + count);
        let mut place = self.parts.partition_point(|part| part.end <= first);
        while number < end {
            let part = self.parts.get_mut(place).expect("what is under way is in a part");
            let of_part = end.min(part.end) - number;
            part.left -= of_part;
            number += of_part;
            place += 1;
        }
        while self.parts.front().is_some_and(|part| part.left == 0) {
            self.parts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    fn run(number: u64, records: u32) -> SentRun {
        SentRun { at: Instant::now(), number, records }
    }

    #[test]
    fn what_has_arrived_is_known_up_to_the_first_that_has_not() {
        let reports = Reports::default();
        assert_eq!((reports.begin(10, 2), reports.begin(20, 1), reports.begin(30, 3)), (0, 2, 3));
        assert_eq!((reports.held_since(), reports.under_way()), (Some(10), 6));
        reports.settle(&[run(2, 1)], None);
        assert_eq!(reports.held_since(), Some(10), "the second part was faster");
        // One of the first part, the other with the beginning of the third.
        reports.settle(&[run(0, 1)], None);
        reports.settle(&[run(1, 1), run(3, 2)], None);
        assert_eq!((reports.held_since(), reports.under_way()), (Some(30), 1));
        assert_eq!(reports.arrived().load(Ordering::Acquire), 5);
        reports.settle(&[run(5, 1)], Some("too large".to_owned()));
        assert_eq!((reports.held_since(), reports.under_way()), (Some(30), 0), "it has not arrived");
        assert_eq!(reports.failure().as_deref(), Some("too large"));
    }

    #[test]
    fn a_run_may_span_parts() {
        let reports = Reports::default();
        for sequence in [0, 5, 9] {
            reports.begin(sequence, 4);
        }
        reports.settle(&[run(2, 8)], None);
        assert_eq!(reports.held_since(), Some(0));
        reports.settle(&[run(0, 2)], None);
        assert_eq!(reports.held_since(), Some(9));
        reports.settle(&[run(10, 2)], None);
        assert_eq!((reports.held_since(), reports.under_way()), (None, 0));
    }
}
