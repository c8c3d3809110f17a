//! One partition's queue of batches and its sequence numbers. Pure: driven by events and `now`.
//!
//! With idempotence, up to five batches are in flight once the first is stored. If a batch is returned, all
//! batches behind it are returned too, as out of order. Returned batches go back to the queue in order, and
//! each is resent only when no earlier batch is in flight. If a gap can never close (the broker lacks a batch
//! that was given up, or has forgotten the producer), the partition waits until no batch is in flight and
//! restarts at sequence 0 with the next epoch (KIP-360). A transactional producer gets its epochs from the
//! coordinator alone: there, a gap fails the transaction, and the next identity restarts all partitions.
//!
//! A batch that the broker finds too large is replaced by its parts. The parts share the sequences of the
//! batch, so that no gap arises (`RecordAccumulator.splitAndReenqueue` of Kafka's producer).
//!
//! A batch that was given up may be stored nevertheless, and later batches with it. So later batches keep
//! their sequences: their answers show if there is a gap (`TransactionManager.maybeResolveSequences` of
//! Kafka's producer).

use std::collections::VecDeque;
use std::sync::Arc;

use thalweg_record::{ProducerEpoch, ProducerId, increment_sequence};
use thalweg_wire::Uuid;
use tokio::time::Instant;

use super::ProducerConfig;
use super::batch::Batch;
use crate::metadata::PartitionMetadata;

/// Number of batches of a producer that a broker remembers.
const BATCHES_REMEMBERED: usize = 5;

/// The state of a partition in the open transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InTransaction {
    No,
    /// The coordinator must register the partition first.
    Joining,
    Yes,
}

/// The producer's id, and the initial epoch of partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(super) id: ProducerId,
    pub(super) epoch: ProducerEpoch,
}

/// The readiness of a partition's first batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Readiness {
    Ready,
    /// Ready at this time, or after an event.
    At(Instant),
    /// Ready only after an event.
    Nothing,
}

#[derive(Debug)]
pub(crate) struct PartitionQueue {
    pub(super) topic: Arc<str>,
    pub(super) topic_id: Uuid,
    pub(super) partition: i32,
    pub(super) leader: Option<i32>,
    pub(super) queue: VecDeque<Box<Batch>>,
    pub(super) in_flight: usize,
    pub(super) in_transaction: InTransaction,
    retry_at: Option<Instant>,
    next_number: u64,
    sequences: Sequences,
}

#[derive(Debug)]
struct Sequences {
    /// The producer's last applied identity.
    identity: Identity,
    /// The epoch of that identity, or a later epoch of this partition alone.
    epoch: ProducerEpoch,
    next: i32,
    /// Batches from the oldest incomplete one on, in order.
    outstanding: VecDeque<OutstandingBatch>,
    /// True if the partition must restart sequences once no batch is in flight.
    restart: bool,
    /// True if a given-up batch may be stored, and later batches have no outcome yet: no other batch is sent.
    unresolved: bool,
    /// True if a batch of this id and epoch is stored.
    known: bool,
}

/// A batch with an assigned sequence.
#[derive(Clone, Copy, Debug)]
struct OutstandingBatch {
    base_sequence: i32,
    /// The outcome, if the batch completed before an older one.
    end: Option<BatchEnd>,
}

/// The outcome of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BatchEnd {
    Stored,
    /// Reported as failed. The records may be stored, if an answer was lost.
    GivenUp,
}

impl Sequences {
    /// True if the batch is the oldest without an outcome.
    fn is_oldest(&self, base_sequence: i32) -> bool {
        self.outstanding.front().is_some_and(|oldest| oldest.base_sequence == base_sequence)
    }
}

impl PartitionQueue {
    pub(super) fn new(topic: Arc<str>, topic_id: Uuid, partition: i32) -> PartitionQueue {
        PartitionQueue {
            topic,
            topic_id,
            partition,
            leader: None,
            queue: VecDeque::new(),
            in_flight: 0,
            in_transaction: InTransaction::No,
            retry_at: None,
            next_number: 0,
            sequences: Sequences {
                identity: Identity { id: ProducerId::NONE, epoch: ProducerEpoch::NONE },
                epoch: ProducerEpoch::NONE,
                next: 0,
                outstanding: VecDeque::new(),
                restart: false,
                unresolved: false,
                known: false,
            },
        }
    }

    /// Applies the leader.
    pub(super) fn apply(&mut self, topic_id: Uuid, known: &PartitionMetadata) {
        self.topic_id = topic_id;
        self.leader = known.leader;
    }

    /// Adds an empty batch at the end.
    pub(super) fn open(&mut self, mut batch: Box<Batch>) -> &mut Batch {
        batch.rank = (self.next_number, 0);
        self.next_number += 1;
        self.queue.push_back(batch);
        self.queue.back_mut().expect("it was just added")
    }

    /// The readiness of the first batch. `hurry` skips `linger.ms`: for a flush, or if memory is short.
    pub(super) fn readiness(
        &self,
        config: &ProducerConfig,
        identity: Option<Identity>,
        hurry: bool,
        now: Instant,
    ) -> Readiness {
        let Some(batch) = self.queue.front() else { return Readiness::Nothing };
        // The batch in flight may be at a former leader, and return: another would overtake it.
        if config.in_flight_max == 1 && self.in_flight > 0 {
            return Readiness::Nothing;
        }
        if config.idempotence && !self.may_send(batch, identity) {
            return Readiness::Nothing;
        }
        if let Some(retry_at) = self.retry_at
            && retry_at > now
        {
            return Readiness::At(retry_at);
        }
        if batch.sealed || hurry || batch.attempts > 0 {
            return Readiness::Ready;
        }
        let lingered = batch.created + config.linger;
        if lingered <= now { Readiness::Ready } else { Readiness::At(lingered) }
    }

    fn may_send(&self, batch: &Batch, identity: Option<Identity>) -> bool {
        let Some(identity) = identity else { return false };
        let sequences = &self.sequences;
        if sequences.restart {
            return self.in_flight == 0;
        }
        match batch.sequence {
            Some(sequence) => sequences.is_oldest(sequence),
            // A broker that does not know the producer accepts any sequence: until the first batch is stored,
            // a second batch could overtake it. A broker also remembers only this many batches: the oldest
            // may still be in flight to a former leader, and be resent when all later ones are stored.
            None => {
                if sequences.unresolved {
                    return false;
                }
                let room = sequences.known && sequences.outstanding.len() < BATCHES_REMEMBERED;
                sequences.outstanding.is_empty() || (room && sequences.identity == identity)
            }
        }
    }

    /// Takes the first batch for sending. [`PartitionQueue::readiness`] has just allowed it.
    pub(super) fn take(&mut self, identity: Option<Identity>) -> Box<Batch> {
        if let Some(identity) = identity {
            self.update_sequences(identity);
        }
        let mut batch = self.queue.pop_front().expect("a ready partition has a batch");
        if identity.is_some() && batch.sequence.is_none() {
            let sequences = &mut self.sequences;
            batch.identify(sequences.identity.id, sequences.epoch, sequences.next);
            sequences.outstanding.push_back(OutstandingBatch { base_sequence: sequences.next, end: None });
            sequences.next = increment_sequence(sequences.next, batch.record_count());
        }
        batch.sealed = true;
        batch.attempts += 1;
        self.in_flight += 1;
        self.retry_at = None;
        batch
    }

    /// Restarts sequences if due, or applies a new producer id.
    fn update_sequences(&mut self, identity: Identity) {
        let sequences = &mut self.sequences;
        let is_new = sequences.identity != identity;
        let takes_up = is_new && sequences.outstanding.is_empty();
        if !(sequences.restart || takes_up) {
            return;
        }
        if is_new {
            sequences.identity = identity;
            sequences.epoch = identity.epoch;
        } else {
            sequences.epoch = ProducerEpoch(sequences.epoch.0.saturating_add(1));
        }
        sequences.next = 0;
        sequences.outstanding.clear();
        sequences.restart = false;
        sequences.unresolved = false;
        sequences.known = false;
        for batch in &mut self.queue {
            batch.sequence = None;
        }
    }

    /// True if the next restart needs another producer id, because the epochs are used up.
    pub(super) fn epochs_used_up(&self, identity: Identity) -> bool {
        let sequences = &self.sequences;
        sequences.restart && sequences.identity == identity && sequences.epoch.0 == i16::MAX
    }

    /// True if the batch is the oldest without an outcome: an out-of-order answer to it means that an earlier
    /// batch was lost.
    pub(super) fn is_oldest(&self, batch: &Batch) -> bool {
        batch.sequence.is_some_and(|sequence| self.sequences.is_oldest(sequence))
    }

    /// Notes the outcome of a batch in flight.
    pub(super) fn ended(&mut self, batch: &Batch, end: BatchEnd) {
        self.in_flight -= 1;
        self.note_end(batch, end);
    }

    /// Notes the failure of a waiting batch.
    pub(super) fn gave_up(&mut self, batch: &Batch) {
        self.note_end(batch, BatchEnd::GivenUp);
    }

    fn note_end(&mut self, batch: &Batch, end: BatchEnd) {
        let Some(sequence) = batch.sequence else { return };
        let sequences = &mut self.sequences;
        if let Some(known) = sequences.outstanding.iter_mut().find(|known| known.base_sequence == sequence) {
            known.end = Some(end);
        }
        sequences.known |= end == BatchEnd::Stored;
        sequences.unresolved |= end == BatchEnd::GivenUp;
        let mut last = None;
        while let Some(end) = sequences.outstanding.front().and_then(|oldest| oldest.end) {
            last = Some(end);
            sequences.outstanding.pop_front();
        }
        if sequences.unresolved && sequences.outstanding.is_empty() {
            // A broker that stored the last batch has stored all earlier ones.
            sequences.unresolved = false;
            sequences.restart |= last != Some(BatchEnd::Stored);
        }
    }

    /// Handles missing earlier batches at the broker: restarts sequences once no batch is in flight. Returns
    /// true if a given-up batch explains the gap.
    pub(super) fn sequence_lost(&mut self) -> bool {
        self.sequences.restart = true;
        self.sequences.unresolved
    }

    /// Returns a batch to its place in the queue for a retry.
    pub(super) fn retry(&mut self, batch: Box<Batch>, at: Instant) {
        self.in_flight -= 1;
        self.retry_at = Some(at);
        insert(&mut self.queue, batch);
    }

    /// Replaces a batch in flight by its parts, which have its place in the queue and share its sequences.
    pub(super) fn split(&mut self, whole: &Batch, parts: impl IntoIterator<Item = Box<Batch>>) {
        self.in_flight -= 1;
        let sequences = &mut self.sequences;
        let is_whole = |known: &OutstandingBatch| Some(known.base_sequence) == whole.sequence;
        let mut place = sequences.outstanding.iter().position(is_whole);
        if let Some(place) = place {
            sequences.outstanding.remove(place);
        }
        let mut next = whole.sequence.unwrap_or_default();
        for mut part in parts {
            if let Some(place) = &mut place {
                part.identify(sequences.identity.id, sequences.epoch, next);
                let outstanding = OutstandingBatch { base_sequence: next, end: None };
                sequences.outstanding.insert(*place, outstanding);
                next = increment_sequence(next, part.record_count());
                *place += 1;
            }
            insert(&mut self.queue, part);
        }
    }
}

/// Inserts a batch by its rank.
fn insert(queue: &mut VecDeque<Box<Batch>>, batch: Box<Batch>) {
    let place = queue.partition_point(|waiting| waiting.rank < batch.rank);
    queue.insert(place, batch);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::producer::{ProducerRecord, TopicRef};

    const IDENTITY: Identity = Identity { id: ProducerId(7), epoch: ProducerEpoch(0) };

    /// A partition with this many full batches of one record each.
    fn queue(batches: usize, config: &ProducerConfig, now: Instant) -> PartitionQueue {
        let mut queue = PartitionQueue::new("t".into(), Uuid(1), 0);
        for _ in 0..batches {
            let batch = queue.open(Batch::new(config, now));
            batch.push(&ProducerRecord {
                topic: TopicRef(0),
                partition: None,
                timestamp: 0,
                key: None,
                value: None,
                headers: &[],
                sent_at: now,
                number: 0,
            });
            batch.sealed = true;
        }
        queue
    }

    #[tokio::test]
    async fn no_batch_overtakes_the_first() {
        let (config, now) = (ProducerConfig::default(), Instant::now());
        let mut queue = queue(4, &config, now);
        let readiness = |queue: &PartitionQueue| queue.readiness(&config, Some(IDENTITY), false, now);
        assert_eq!(readiness(&queue), Readiness::Ready);
        let first = queue.take(Some(IDENTITY));
        assert_eq!(readiness(&queue), Readiness::Nothing, "no broker knows the producer yet");
        queue.retry(first, now);
        let first = queue.take(Some(IDENTITY));
        queue.ended(&first, BatchEnd::Stored);
        let (second, third) = (queue.take(Some(IDENTITY)), queue.take(Some(IDENTITY)));
        assert_eq!((second.sequence, third.sequence), (Some(1), Some(2)));
        // No batch overtakes the first batch of the next epoch.
        queue.ended(&second, BatchEnd::GivenUp);
        queue.retry(third, now);
        let third = queue.take(Some(IDENTITY));
        assert_eq!(
            (third.sequence, readiness(&queue)),
            (Some(2), Readiness::Nothing),
            "is the second stored?"
        );
        assert!(queue.sequence_lost());
        queue.retry(third, now);
        let third = queue.take(Some(IDENTITY));
        assert_eq!((third.sequence, readiness(&queue)), (Some(0), Readiness::Nothing));
    }

    #[tokio::test]
    async fn with_one_request_in_flight_no_batch_overtakes_that_of_a_former_leader() {
        for idempotence in [false, true] {
            let config = ProducerConfig { in_flight_max: 1, idempotence, ..ProducerConfig::default() };
            let identity = Some(IDENTITY).filter(|_| idempotence);
            let now = Instant::now();
            let mut queue = queue(2, &config, now);
            let readiness = |queue: &PartitionQueue| queue.readiness(&config, identity, false, now);
            let first = queue.take(identity);
            assert_eq!(readiness(&queue), Readiness::Nothing, "its answer is to come");
            queue.retry(first, now);
            assert_eq!(readiness(&queue), Readiness::Ready);
            let first = queue.take(identity);
            assert_eq!((first.rank, readiness(&queue)), ((0, 0), Readiness::Nothing));
            queue.ended(&first, BatchEnd::Stored);
            assert_eq!(readiness(&queue), Readiness::Ready);
        }
    }

    #[tokio::test]
    async fn no_more_is_under_way_than_brokers_remember() {
        let (config, now) = (ProducerConfig::default(), Instant::now());
        let mut queue = queue(9, &config, now);
        let readiness = |queue: &PartitionQueue| queue.readiness(&config, Some(IDENTITY), false, now);
        let first = queue.take(Some(IDENTITY));
        queue.ended(&first, BatchEnd::Stored);
        let mut taken: VecDeque<_> = (0..5).map(|_| queue.take(Some(IDENTITY))).collect();
        assert_eq!(readiness(&queue), Readiness::Nothing);
        // Although all later batches are stored, perhaps by another broker, the oldest may have to be resent.
        let oldest = taken.pop_front().expect("there are five");
        for later in taken {
            queue.ended(&later, BatchEnd::Stored);
        }
        assert_eq!(readiness(&queue), Readiness::Nothing);
        queue.ended(&oldest, BatchEnd::Stored);
        assert_eq!(readiness(&queue), Readiness::Ready);
    }
}
