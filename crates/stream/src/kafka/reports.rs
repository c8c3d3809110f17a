//! Delivery reports: the number of messages in flight, the first failure, and the first undelivered message.
//!
//! Messages are registered in parts. A message's number maps the report of its batch to its part; this costs
//! one lock per batch. A part may have copies of its undelivered messages, from which a message is taken that
//! the cluster refuses for good.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_client::{Delivery, SentRun};
use thalweg_wire::ErrorCode;
use tokio::sync::Notify;

use super::copies::Copies;
use crate::message::Batch;

/// Errors that one record causes. Another attempt has the same outcome, and other records are accepted.
const OF_RECORD: [ErrorCode; 3] =
    [ErrorCode::MessageTooLarge, ErrorCode::InvalidRecord, ErrorCode::InvalidTimestamp];

/// A message that the cluster refuses for good. It counts as undelivered until [`Reports::settle`].
pub struct RefusedMessage {
    number: u64,
    /// A batch with this message alone.
    pub message: Batch,
    pub reason: String,
}

/// A failed delivery.
struct Failure {
    reason: String,
    /// The error is one of [`OF_RECORD`].
    is_of_record: bool,
}

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
    /// Undelivered parts, in order.
    parts: VecDeque<Part>,
    /// The size of all copies.
    copied: u64,
    /// Messages in flight.
    under_way: u64,
    next_number: u64,
    failed: Option<String>,
    refused: Vec<RefusedMessage>,
    /// Messages of refused batches, with their numbers, which wait to be sent again one by one.
    apart: VecDeque<(u64, Batch)>,
}

/// Messages registered together.
struct Part {
    /// The lowest sequence in the part.
    lowest_sequence: u64,
    /// The number of the part's first message.
    first: u64,
    /// The number after the part's last message.
    end: u64,
    /// Number of undelivered messages.
    left: u64,
    /// Copies of the messages, if a refused message is needed.
    copies: Option<Copies>,
}

impl Reports {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers messages in flight, with their lowest sequence, and returns the number of the first. Numbers
    /// of messages are consecutive; sequences need not be in order.
    pub fn begin(&self, lowest_sequence: u64, count: u64, copies: Option<Copies>) -> u64 {
        let mut state = self.state();
        let number = state.next_number;
        state.next_number += count;
        state.under_way += count;
        let end = state.next_number;
        state.copied += copies.as_ref().map_or(0, Copies::bytes);
        state.parts.push_back(Part { lowest_sequence, first: number, end, left: count, copies });
        number
    }

    /// Messages in flight.
    pub fn under_way(&self) -> u64 {
        self.state().under_way
    }

    /// The size of the copies of undelivered messages.
    pub fn copied(&self) -> u64 {
        self.state().copied
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
        let failure = delivery.result.as_ref().err().map(|error| Failure {
            reason: error.to_string(),
            is_of_record: error.error_code().is_some_and(|code| OF_RECORD.contains(&code)),
        });
        self.complete(delivery.sent, failure);
    }

    fn complete(&self, sent: &[SentRun], failure: Option<Failure>) {
        let count: u64 = sent.iter().map(|run| u64::from(run.records)).sum();
        if failure.is_none() {
            self.arrived.fetch_add(count, Ordering::AcqRel);
        }
        let mut state = self.state();
        state.under_way -= count;
        match failure {
            Some(failure) => {
                let numbers = sent.iter().flat_map(|run| run.number..run.number + u64::from(run.records));
                let copies: Option<Vec<_>> = match (failure.is_of_record, count) {
                    (false, _) => None,
                    (true, 1) => numbers.map(|number| state.take_copy(number)).collect(),
                    // The copies stay: a message that is sent again may be refused again.
                    (true, _) => numbers.map(|number| state.copy(number)).collect(),
                };
                match copies {
                    Some(copies) if count == 1 => {
                        let reason = failure.reason;
                        let refused = copies.into_iter().map(|(number, message)| RefusedMessage {
                            number,
                            message,
                            reason: reason.clone(),
                        });
                        state.refused.extend(refused);
                    }
                    // Some of several records are at fault; the others are refused with them.
                    Some(copies) => state.apart.extend(copies),
                    None => drop(state.failed.get_or_insert(failure.reason)),
                }
            }
            None => sent.iter().for_each(|run| state.arrive(run.number, u64::from(run.records))),
        }
        if state.under_way == 0 || state.failed.is_some() {
            self.changed.notify_waiters();
        }
    }

    /// Refuses the message with this number, which is not handed over.
    pub fn refuse(&self, number: u64, message: Batch, reason: String) {
        let mut state = self.state();
        state.under_way -= 1;
        drop(state.take_copy(number));
        state.refused.push(RefusedMessage { number, message, reason });
        if state.under_way == 0 {
            self.changed.notify_waiters();
        }
    }

    /// True if there are refused messages.
    pub fn has_refused(&self) -> bool {
        !self.state().refused.is_empty()
    }

    /// Takes the refused messages.
    pub fn take_refused(&self) -> Vec<RefusedMessage> {
        std::mem::take(&mut self.state().refused)
    }

    /// True if messages wait to be sent again.
    pub fn has_apart(&self) -> bool {
        !self.state().apart.is_empty()
    }

    /// Takes a message that has to be sent again, in a batch without others. It is in flight from now on.
    pub fn take_apart(&self) -> Option<(u64, Batch)> {
        let mut state = self.state();
        let message = state.apart.pop_front()?;
        state.under_way += 1;
        Some(message)
    }

    /// A refused message is dealt with: it no longer counts as undelivered.
    pub fn settle(&self, refused: &RefusedMessage) {
        self.state().arrive(refused.number, 1);
    }

    /// The lowest sequence not known to be delivered.
    pub fn held_since(&self) -> Option<u64> {
        self.state().parts.iter().map(|part| part.lowest_sequence).min()
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
    /// The place of the part with a message in flight.
    fn place_of(&self, number: u64) -> usize {
        self.parts.partition_point(|part| part.end <= number)
    }

    /// The copy of a message, with its number.
    fn copy(&self, number: u64) -> Option<(u64, Batch)> {
        let part = self.parts.get(self.place_of(number))?;
        Some((number, part.copies.as_ref()?.get(number - part.first)?))
    }

    /// Takes the copy of a message, with its number.
    fn take_copy(&mut self, number: u64) -> Option<(u64, Batch)> {
        let message = self.copy(number)?;
        self.drop_copies(self.place_of(number), number..number + 1);
        Some(message)
    }

    /// Drops copies of the part at a place, by the numbers of the messages.
    fn drop_copies(&mut self, place: usize, numbers: Range<u64>) {
        let part = &mut self.parts[place];
        let Some(copies) = &mut part.copies else { return };
        let before = copies.bytes();
        copies.drop_some(numbers.start - part.first..numbers.end - part.first);
        self.copied = self.copied - before + copies.bytes();
    }

    /// Marks messages with consecutive numbers as delivered.
    fn arrive(&mut self, first: u64, count: u64) {
        let (mut number, end) = (first, first + count);
        let mut place = self.place_of(first);
        while number < end {
            let part = self.parts.get_mut(place).expect("messages in flight are in a part");
            let until = end.min(part.end);
            part.left -= until - number;
            let is_delivered = part.left == 0;
            if is_delivered {
                let bytes = part.copies.as_ref().map_or(0, Copies::bytes);
                self.copied -= bytes;
                self.parts.remove(place);
            } else {
                self.drop_copies(place, number..until);
                place += 1;
            }
            number = until;
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

    fn too_large() -> Failure {
        Failure { reason: "too large".to_owned(), is_of_record: true }
    }

    #[test]
    fn a_refused_message_is_held_until_it_is_dealt_with() {
        let reports = Reports::default();
        let mut copies = Batch::new();
        for sequence in [7, 8, 9] {
            copies.push(vec![sequence as u8].into(), None, 0, sequence);
        }
        let first = reports.begin(1, 1, None);
        let number = reports.begin(7, 3, Some(Copies::of(&copies)));
        reports.complete(&[run(first, 1), run(number, 1)], None);
        reports.complete(&[run(number + 1, 1)], Some(too_large()));
        reports.complete(&[run(number + 2, 1)], None);
        assert_eq!((reports.under_way(), reports.held_since(), reports.failure()), (0, Some(7), None));
        let refused = reports.take_refused();
        assert_eq!((refused.len(), refused[0].reason.as_str()), (1, "too large"));
        let message = refused[0].message.messages().next().expect("it is there");
        assert_eq!((refused[0].message.len(), message.sequence, message.value), (1, 8, &[8][..]));
        reports.settle(&refused[0]);
        assert_eq!((reports.held_since(), reports.has_refused()), (None, false));
    }

    #[test]
    fn copies_behind_an_undelivered_message_are_dropped() {
        let reports = Reports::default();
        let batch = |sequence: u64| {
            let mut batch = Batch::new();
            (sequence..sequence + 4).for_each(|sequence| batch.push(vec![0; 1000].into(), None, 0, sequence));
            Some(Copies::of(&batch))
        };
        let first = reports.begin(0, 4, batch(0));
        let all = reports.copied();
        for sequence in 1..100 {
            let number = reports.begin(sequence * 4, 4, batch(sequence * 4));
            reports.complete(&[run(number, 4)], None);
        }
        assert_eq!((reports.held_since(), reports.copied()), (Some(0), all));
        // The last message of the first part stays.
        reports.complete(&[run(first, 3)], None);
        assert_eq!((reports.held_since(), reports.copied() < all / 2), (Some(0), true));
        reports.complete(&[run(first + 3, 1)], Some(too_large()));
        assert_eq!(
            (reports.held_since(), reports.copied()),
            (Some(0), 0),
            "the refused message is elsewhere"
        );
        let refused = reports.take_refused();
        assert_eq!(refused[0].message.messages().next().map(|message| message.sequence), Some(3));
        reports.settle(&refused[0]);
        assert_eq!(reports.held_since(), None);
    }

    #[test]
    fn messages_of_a_refused_batch_are_sent_again_one_by_one() {
        let reports = Reports::default();
        let mut copies = Batch::new();
        for sequence in [7, 8, 9] {
            copies.push(vec![sequence as u8].into(), None, 0, sequence);
        }
        let number = reports.begin(7, 3, Some(Copies::of(&copies)));
        reports.complete(&[run(number, 3)], Some(too_large()));
        assert_eq!((reports.failure(), reports.has_refused(), reports.under_way()), (None, false, 0));
        for sequence in [7, 8, 9] {
            let (number, message) = reports.take_apart().expect("it is to be sent again");
            assert_eq!((message.len(), message.last_sequence()), (1, Some(sequence)));
            assert_eq!((reports.under_way(), reports.held_since()), (1, Some(7)));
            reports.complete(&[run(number, 1)], (sequence == 8).then(too_large));
        }
        assert!(reports.take_apart().is_none());
        let refused = reports.take_refused();
        assert_eq!((refused.len(), refused[0].message.last_sequence()), (1, Some(8)));
        reports.settle(&refused[0]);
        assert_eq!(reports.held_since(), None);
    }

    #[test]
    fn delivery_is_known_up_to_the_first_undelivered_message() {
        let reports = Reports::default();
        assert_eq!(
            (reports.begin(10, 2, None), reports.begin(20, 1, None), reports.begin(30, 3, None)),
            (0, 2, 3)
        );
        assert_eq!((reports.held_since(), reports.under_way()), (Some(10), 6));
        reports.complete(&[run(2, 1)], None);
        assert_eq!(reports.held_since(), Some(10), "the second part was faster");
        // A message of the first part, then another with the beginning of the third.
        reports.complete(&[run(0, 1)], None);
        reports.complete(&[run(1, 1), run(3, 2)], None);
        assert_eq!((reports.held_since(), reports.under_way()), (Some(30), 1));
        assert_eq!(reports.arrived().load(Ordering::Acquire), 5);
        reports.complete(&[run(5, 1)], Some(too_large()));
        assert_eq!((reports.held_since(), reports.under_way()), (Some(30), 0), "it was not delivered");
        assert_eq!(reports.failure().as_deref(), Some("too large"));
    }

    #[test]
    fn messages_out_of_order_are_held_from_the_lowest_on() {
        let reports = Reports::default();
        // Results of an aggregate, which are sorted by key.
        for lowest in [90, 3, 40] {
            reports.begin(lowest, 2, None);
        }
        assert_eq!(reports.held_since(), Some(3));
        reports.complete(&[run(2, 2)], None);
        assert_eq!(reports.held_since(), Some(40));
    }

    #[test]
    fn a_run_may_span_parts() {
        let reports = Reports::default();
        for sequence in [0, 5, 9] {
            reports.begin(sequence, 4, None);
        }
        reports.complete(&[run(2, 8)], None);
        assert_eq!(reports.held_since(), Some(0));
        reports.complete(&[run(0, 2)], None);
        assert_eq!(reports.held_since(), Some(9));
        reports.complete(&[run(10, 2)], None);
        assert_eq!((reports.held_since(), reports.under_way()), (None, 0));
    }
}
