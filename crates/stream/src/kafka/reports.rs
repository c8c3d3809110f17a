//! Delivery reports: the number of messages in flight, the first failure, and the first undelivered message.
//!
//! Messages are registered in parts. A message's number maps the report of its batch to its part; this costs
//! one lock per batch.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_client::{Delivery, SentRun};
use tokio::sync::Notify;

/// The delivery state of a producer's messages.
#[derive(Default)]
pub struct Reports {
    state: Mutex<State>,
    /// Number of messages acknowledged by the cluster.
    arrived: Arc<AtomicU64>,
    /// Notified when no message is in flight, or a message has failed.
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Parts in order. Delivered parts are removed up to the first undelivered one.
    parts: VecDeque<Part>,
    /// Messages in flight.
    under_way: u64,
    next_number: u64,
    failed: Option<String>,
}

/// Messages registered together.
struct Part {
    /// The lowest sequence in the part.
    lowest_sequence: u64,
    /// The number after the part's last message.
    end: u64,
    /// Number of undelivered messages.
    left: u64,
}

impl Reports {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers messages in flight, with their lowest sequence, and returns the number of the first. Numbers
    /// of messages are consecutive; sequences need not be in order.
    pub fn begin(&self, lowest_sequence: u64, count: u64) -> u64 {
        let mut state = self.state();
        let number = state.next_number;
        state.next_number += count;
        state.under_way += count;
        let end = state.next_number;
        state.parts.push_back(Part { lowest_sequence, end, left: count });
        number
    }

    /// Messages in flight.
    pub fn under_way(&self) -> u64 {
        self.state().under_way
    }

    /// Number of messages acknowledged by the cluster; increased before their delivery becomes visible.
    pub fn arrived(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.arrived)
    }

    /// The reason of the first failed delivery.
    pub fn failure(&self) -> Option<String> {
        self.state().failed.clone()
    }

    /// Fails all messages, present and future.
    pub fn fail(&self, reason: String) {
        self.state().failed.get_or_insert(reason);
        self.changed.notify_waiters();
    }

    /// Handles the report of a batch.
    pub fn delivered(&self, delivery: &Delivery<'_>) {
        let failure = delivery.result.as_ref().err().map(ToString::to_string);
        self.complete(delivery.sent, failure);
    }

    fn complete(&self, sent: &[SentRun], failure: Option<String>) {
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

    /// The lowest sequence not known to be delivered.
    pub fn held_since(&self) -> Option<u64> {
        self.state().parts.iter().filter(|part| part.left > 0).map(|part| part.lowest_sequence).min()
    }

    /// Waits until no message is in flight, or a message has failed.
    pub async fn all(&self) {
        loop {
            // Subscribe before the check.
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
    /// Marks messages with consecutive numbers as delivered.
    fn arrive(&mut self, first: u64, count: u64) {
        let (mut number, end) = (first, first + count);
        let mut place = self.parts.partition_point(|part| part.end <= first);
        while number < end {
            let part = self.parts.get_mut(place).expect("messages in flight are in a part");
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
    fn delivery_is_known_up_to_the_first_undelivered_message() {
        let reports = Reports::default();
        assert_eq!((reports.begin(10, 2), reports.begin(20, 1), reports.begin(30, 3)), (0, 2, 3));
        assert_eq!((reports.held_since(), reports.under_way()), (Some(10), 6));
        reports.complete(&[run(2, 1)], None);
        assert_eq!(reports.held_since(), Some(10), "the second part was faster");
        // A message of the first part, then another with the beginning of the third.
        reports.complete(&[run(0, 1)], None);
        reports.complete(&[run(1, 1), run(3, 2)], None);
        assert_eq!((reports.held_since(), reports.under_way()), (Some(30), 1));
        assert_eq!(reports.arrived().load(Ordering::Acquire), 5);
        reports.complete(&[run(5, 1)], Some("too large".to_owned()));
        assert_eq!((reports.held_since(), reports.under_way()), (Some(30), 0), "it was not delivered");
        assert_eq!(reports.failure().as_deref(), Some("too large"));
    }

    #[test]
    fn messages_out_of_order_are_held_from_the_lowest_on() {
        let reports = Reports::default();
        // Results of an aggregate, which are sorted by key.
        for lowest in [90, 3, 40] {
            reports.begin(lowest, 2);
        }
        assert_eq!(reports.held_since(), Some(3));
        reports.complete(&[run(2, 2)], None);
        assert_eq!(reports.held_since(), Some(40));
    }

    #[test]
    fn a_run_may_span_parts() {
        let reports = Reports::default();
        for sequence in [0, 5, 9] {
            reports.begin(sequence, 4);
        }
        reports.complete(&[run(2, 8)], None);
        assert_eq!(reports.held_since(), Some(0));
        reports.complete(&[run(0, 2)], None);
        assert_eq!(reports.held_since(), Some(9));
        reports.complete(&[run(10, 2)], None);
        assert_eq!((reports.held_since(), reports.under_way()), (None, 0));
    }
}
