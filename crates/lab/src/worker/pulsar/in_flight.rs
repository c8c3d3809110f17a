//! The records of a producer that wait for their receipts, in order, and the task that counts these.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_pulsar::{MessageId, SendError, SendReceipt};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Place;
use crate::worker::clock::{Clock, micros};
use crate::worker::counts::{SharedCounts, lock};
use crate::worker::{AcknowledgedLedger, BatchCounts};

/// Failed numbers, as growing ranges.
pub(super) type GivenUp = Arc<Mutex<Vec<(u64, u64)>>>;

/// A record that waits for its receipt.
#[derive(Debug)]
pub(crate) struct SentRecord {
    pub(crate) receipt: SendReceipt,
    pub(crate) number: u64,
    /// The intended time.
    pub(crate) intended: Instant,
    pub(crate) bytes: u64,
}

/// The records of a producer of Pulsar in flight.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    records: Mutex<VecDeque<SentRecord>>,
    /// Notified when the first record is added, and at the end.
    added: Notify,
    ended: std::sync::atomic::AtomicBool,
}

impl InFlight {
    pub(crate) fn push(&self, record: SentRecord) {
        let mut records = self.records();
        records.push_back(record);
        if records.len() == 1 {
            self.added.notify_one();
        }
    }

    /// No further records are added.
    pub(crate) fn end(&self) {
        self.ended.store(true, std::sync::atomic::Ordering::Release);
        self.added.notify_one();
    }

    fn records(&self) -> MutexGuard<'_, VecDeque<SentRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest record; `None` at the end.
    pub(crate) async fn next(&self) -> Option<SentRecord> {
        loop {
            let first = self.records().pop_front();
            if first.is_some() {
                return first;
            }
            if self.ended.load(std::sync::atomic::Ordering::Acquire) {
                return None;
            }
            self.added.notified().await;
        }
    }

    /// The oldest record with its outcome, if that is known: the records of a batch have theirs at once.
    pub(crate) fn take_known(&self) -> Option<(SentRecord, Result<MessageId, SendError>)> {
        let mut records = self.records();
        let outcome = records.front()?.receipt.peek()?;
        records.pop_front().map(|record| (record, outcome))
    }
}

/// Counts the outcomes of the records of a partition to the end. Returns their entries.
pub(super) async fn count(
    in_flight: Arc<InFlight>,
    place: Place,
    clock: Clock,
    counts: SharedCounts,
    given_up: GivenUp,
) -> Vec<AcknowledgedLedger> {
    let mut ledgers = Ledgers { place, found: Vec::new() };
    while let Some(mut record) = in_flight.next().await {
        let mut outcome = (&mut record.receipt).await;
        let now = Instant::now();
        let now_us = clock.us(now);
        let mut counts = lock(&counts);
        let (mut stored, mut bytes) = (0, 0);
        let mut batches = BatchCounts::default();
        // Records with equal intended times are consecutive, and counted together.
        let (mut intended, mut of_time) = (record.intended, 0);
        loop {
            match outcome {
                Ok(id) => {
                    if record.intended != intended {
                        counts.took(
                            of_time,
                            micros(now.saturating_duration_since(intended)),
                            clock.us(intended),
                        );
                        (intended, of_time) = (record.intended, 0);
                    }
                    of_time += 1;
                    stored += 1;
                    bytes += record.bytes;
                    if ledgers.add(&id) {
                        batches.add(record.receipt.batch_bytes().unwrap_or_default());
                    }
                }
                Err(error) => failed(&error, record.number, &mut counts, &given_up),
            }
            let Some(next) = in_flight.take_known() else { break };
            (record, outcome) = next;
        }
        if of_time > 0 {
            counts.took(of_time, micros(now.saturating_duration_since(intended)), clock.us(intended));
        }
        if stored > 0 {
            counts.done(stored, bytes, now_us);
            counts.batches(batches, now_us);
        }
    }
    ledgers.found
}

fn failed(error: &SendError, number: u64, counts: &mut crate::worker::counts::Counts, given_up: &GivenUp) {
    counts.failed(1, || error.to_string());
    give_up(given_up, number);
}

/// Notes a number without an acknowledgement.
pub(super) fn give_up(given_up: &GivenUp, number: u64) {
    let mut ranges = given_up.lock().unwrap_or_else(PoisonError::into_inner);
    match ranges.last_mut() {
        Some(last) if last.1 == number => last.1 = number + 1,
        _ => ranges.push((number, number + 1)),
    }
}

/// The ledgers with a partition's acknowledged records.
struct Ledgers {
    place: Place,
    found: Vec<AcknowledgedLedger>,
}

impl Ledgers {
    /// Adds a record; true if it is the first of its entry. The ids of a producer grow.
    fn add(&mut self, id: &MessageId) -> bool {
        match self.found.last_mut() {
            Some(last) if last.ledger == id.ledger => {
                last.records += 1;
                let is_first = last.last_entry != id.entry;
                if is_first {
                    last.entries += 1;
                    last.last_entry = id.entry;
                }
                is_first
            }
            _ => {
                self.found.push(AcknowledgedLedger {
                    topic: self.place.topic.clone(),
                    partition: self.place.partition,
                    ledger: id.ledger,
                    entries: 1,
                    records: 1,
                    last_entry: id.entry,
                });
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_a_batch_are_one_entry() {
        let place = Place { topic: "t".to_owned(), partition: 2, name: String::new() };
        let mut ledgers = Ledgers { place, found: Vec::new() };
        for (ledger, entry, is_first) in [(5, 0, true), (5, 0, false), (5, 3, true), (6, 0, true)] {
            let id = MessageId { ledger, entry, batch_index: 0, batch_size: 2, partition: 2 };
            assert_eq!(ledgers.add(&id), is_first, "{id}");
        }
        let found: Vec<_> =
            ledgers.found.iter().map(|one| (one.ledger, one.entries, one.records, one.last_entry)).collect();
        assert_eq!(found, [(5, 2, 3, 3), (6, 1, 1, 0)]);
    }
}
