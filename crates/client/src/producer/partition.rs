//! One partition's queue of batches and its sequence numbers. Pure: events and a `now` come in.
//!
//! With idempotence, up to five batches are under way at a time. When one comes back, those behind it come back too, as
//! out of order; all return to the queue in their order, and each is sent again only when none before it is under way.
//! When a gap can never close (a batch was given up, or the broker has forgotten the producer), the partition waits until
//! nothing is under way and starts again at sequence 0 with the next epoch (KIP-360).

use std::collections::VecDeque;
use std::sync::Arc;

use thalweg_record::{ProducerEpoch, ProducerId, increment_sequence};
use thalweg_wire::Uuid;
use tokio::time::Instant;

use super::ProducerConfig;
use super::batch::Batch;

/// The producer's id, and the epoch that partitions begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(super) id: ProducerId,
    pub(super) epoch: ProducerEpoch,
}

/// Whether a partition has a batch to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Readiness {
    Ready,
    /// Not before this time, unless something happens.
    At(Instant),
    /// Not until something happens.
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
    retry_at: Option<Instant>,
    next_number: u64,
    sequences: Sequences,
}

#[derive(Debug)]
struct Sequences {
    id: ProducerId,
    epoch: ProducerEpoch,
    next: i32,
    /// Base sequences that were given out and whose end is not known, in order.
    outstanding: VecDeque<i32>,
    /// Whether the partition must start again once nothing is under way.
    restart: bool,
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
            retry_at: None,
            next_number: 0,
            sequences: Sequences {
                id: ProducerId::NONE,
                epoch: ProducerEpoch::NONE,
                next: 0,
                outstanding: VecDeque::new(),
                restart: false,
            },
        }
    }

    /// Adds an empty batch at the end.
    pub(super) fn open(&mut self, mut batch: Box<Batch>) -> &mut Batch {
        batch.number = self.next_number;
        self.next_number += 1;
        self.queue.push_back(batch);
        self.queue.back_mut().expect("it was just added")
    }

    /// Whether the first batch may be sent. `hurry` passes over `linger.ms`: a flush, or too little memory.
    pub(super) fn readiness(
        &self,
        config: &ProducerConfig,
        identity: Option<Identity>,
        hurry: bool,
        now: Instant,
    ) -> Readiness {
        let Some(batch) = self.queue.front() else { return Readiness::Nothing };
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
            Some(sequence) => sequences.outstanding.front() == Some(&sequence),
            None => sequences.id == identity.id || sequences.outstanding.is_empty(),
        }
    }

    /// Takes the first batch to send it. [`PartitionQueue::readiness`] has just said that it may be.
    pub(super) fn take(&mut self, identity: Option<Identity>) -> Box<Batch> {
        if let Some(identity) = identity {
            self.settle_sequences(identity);
        }
        let mut batch = self.queue.pop_front().expect("a ready partition has a batch");
        if identity.is_some() && batch.sequence.is_none() {
            let sequences = &mut self.sequences;
            batch.identify(sequences.id, sequences.epoch, sequences.next);
            sequences.outstanding.push_back(sequences.next);
            sequences.next = increment_sequence(sequences.next, batch.record_count());
        }
        batch.sealed = true;
        batch.attempts += 1;
        self.in_flight += 1;
        self.retry_at = None;
        batch
    }

    /// Starts again when that is due, or takes up the producer's id when it is new.
    fn settle_sequences(&mut self, identity: Identity) {
        let sequences = &mut self.sequences;
        let is_new = sequences.id != identity.id;
        let takes_up = is_new && sequences.outstanding.is_empty();
        if !(sequences.restart || takes_up) {
            return;
        }
        if is_new {
            sequences.id = identity.id;
            sequences.epoch = identity.epoch;
        } else {
            sequences.epoch = ProducerEpoch(sequences.epoch.0.saturating_add(1));
        }
        sequences.next = 0;
        sequences.outstanding.clear();
        sequences.restart = false;
        for batch in &mut self.queue {
            batch.sequence = None;
        }
    }

    /// Whether the next restart needs another producer id, because the epochs are used up.
    pub(super) fn epochs_used_up(&self, identity: Identity) -> bool {
        self.sequences.restart && self.sequences.id == identity.id && self.sequences.epoch.0 == i16::MAX
    }

    /// Whether the batch is the oldest whose end is not known: an out-of-order answer to it means a lost one before.
    pub(super) fn is_oldest(&self, batch: &Batch) -> bool {
        batch.sequence.is_some() && self.sequences.outstanding.front() == batch.sequence.as_ref()
    }

    /// A batch came to its end, stored or given up.
    pub(super) fn ended(&mut self, batch: &Batch, stored: bool) {
        self.in_flight -= 1;
        self.forget(batch, stored);
    }

    /// A batch is given up while it waits.
    pub(super) fn gave_up(&mut self, batch: &Batch) {
        self.forget(batch, false);
    }

    fn forget(&mut self, batch: &Batch, stored: bool) {
        let Some(sequence) = batch.sequence else { return };
        self.sequences.outstanding.retain(|&other| other != sequence);
        self.sequences.restart |= !stored;
    }

    /// The broker knows nothing of what came before: sequences start again when nothing is under way.
    pub(super) fn sequence_lost(&mut self) {
        self.sequences.restart = true;
    }

    /// A batch came back and is to be sent again: to its place in the queue.
    pub(super) fn retry(&mut self, batch: Box<Batch>, at: Instant) {
        self.in_flight -= 1;
        self.retry_at = Some(at);
        let place = self.queue.partition_point(|waiting| waiting.number < batch.number);
        self.queue.insert(place, batch);
    }
}
