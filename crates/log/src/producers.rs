//! The state of a partition's idempotent and transactional producers (Kafka's `ProducerStateManager`).
//!
//! Owns: the last five batches of each producer, its epoch, its open transaction, the first unstable offset.
//! Refuses: files (see [`snapshot`]) and offsets of batches that are not in the log: an append is first
//! prepared ([`Producers::prepare`]), then written, then applied ([`Producers::apply`]).

use std::collections::BTreeMap;

use thalweg_hash::HashMap;
use thalweg_record::{BatchHeader, NO_SEQUENCE, ProducerEpoch, ProducerId};

mod append;
mod error;
pub mod snapshot;
mod verification;

pub use append::{AppendOrigin, CompletedTransaction, EndMarker, PreparedAppend, PreparedProducer};
pub use error::{
    InvalidProducerEpoch, InvalidTransactionState, OutOfOrderSequence, ProducerError, SequenceFault,
    TransactionCoordinatorFenced,
};
pub use verification::{VerificationGuard, Verifications};

/// The number of remembered batches per producer: its limit of requests in flight.
pub(crate) const BATCHES_REMEMBERED: usize = 5;

/// One batch of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchMetadata {
    /// Sequence of the last record.
    pub last_sequence: i32,
    /// Offset of the last record.
    pub last_offset: i64,
    /// Last offset minus first offset, which equals last sequence minus first sequence.
    pub offset_delta: i32,
    /// The batch's max timestamp.
    pub timestamp: i64,
}

impl BatchMetadata {
    fn of(header: &BatchHeader) -> BatchMetadata {
        BatchMetadata {
            last_sequence: header.last_sequence(),
            last_offset: header.last_offset().0,
            offset_delta: header.last_offset_delta,
            timestamp: header.max_timestamp,
        }
    }

    /// Sequence of the first record.
    pub fn first_sequence(&self) -> i32 {
        thalweg_record::decrement_sequence(self.last_sequence, self.offset_delta)
    }

    /// Offset of the first record.
    pub fn first_offset(&self) -> i64 {
        self.last_offset - i64::from(self.offset_delta)
    }
}

/// The state of one producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    /// The epoch of the producer's last batch or marker.
    pub epoch: ProducerEpoch,
    /// The epoch of the coordinator that wrote the last marker, -1 before the first.
    pub coordinator_epoch: i32,
    /// The max timestamp of the last batch, or the marker's.
    pub last_timestamp: i64,
    /// The first offset of the open transaction.
    pub transaction_start: Option<i64>,
    batches: Vec<BatchMetadata>,
}

impl ProducerEntry {
    fn new() -> ProducerEntry {
        ProducerEntry {
            epoch: ProducerEpoch::NONE,
            coordinator_epoch: -1,
            last_timestamp: thalweg_record::NO_TIMESTAMP,
            transaction_start: None,
            batches: Vec::new(),
        }
    }

    /// Sequence of the last record; -1 if no batch is remembered.
    pub fn last_sequence(&self) -> i32 {
        self.batches.last().map_or(NO_SEQUENCE, |batch| batch.last_sequence)
    }

    /// Offset of the last data record; -1 if no batch is remembered.
    pub fn last_data_offset(&self) -> i64 {
        self.batches.last().map_or(-1, |batch| batch.last_offset)
    }

    /// The remembered batches, oldest first.
    pub fn batches(&self) -> &[BatchMetadata] {
        &self.batches
    }

    fn add_batch(&mut self, epoch: ProducerEpoch, batch: BatchMetadata) {
        self.set_epoch(epoch);
        if self.batches.len() == BATCHES_REMEMBERED {
            self.batches.remove(0);
        }
        self.batches.push(batch);
        self.last_timestamp = batch.timestamp;
    }

    fn set_epoch(&mut self, epoch: ProducerEpoch) {
        if self.epoch != epoch {
            self.batches.clear();
            self.epoch = epoch;
        }
    }

    /// True if batches of this epoch may exist before the oldest remembered one.
    fn may_miss_batches(&self) -> bool {
        self.batches.len() < BATCHES_REMEMBERED
            && self.batches.first().is_some_and(|oldest| oldest.first_sequence() != 0)
    }

    /// Applies the state prepared by an append.
    fn merge(&mut self, next: ProducerEntry) {
        self.set_epoch(next.epoch);
        for batch in next.batches {
            self.add_batch(next.epoch, batch);
        }
        self.coordinator_epoch = next.coordinator_epoch;
        self.transaction_start = next.transaction_start;
        self.last_timestamp = next.last_timestamp;
    }

    fn find_duplicate(&self, header: &BatchHeader) -> Option<BatchMetadata> {
        if header.producer_epoch != self.epoch {
            return None;
        }
        let (first, last) = (header.base_sequence, header.last_sequence());
        self.batches
            .iter()
            .copied()
            .find(|batch| batch.first_sequence() == first && batch.last_sequence == last)
    }
}

#[derive(Clone, Copy, Debug)]
struct Transaction {
    producer_id: ProducerId,
    /// Offset of the marker that ended the transaction.
    last_offset: Option<i64>,
}

/// The producers of a partition.
#[derive(Debug, Default)]
pub struct Producers {
    entries: HashMap<ProducerId, ProducerEntry>,
    /// Open transactions by their first offset.
    ongoing: BTreeMap<i64, Transaction>,
    /// Transactions whose marker is above the high watermark, by their first offset.
    unreplicated: BTreeMap<i64, Transaction>,
    /// The guards of transactional appends that await the coordinator's confirmation.
    pub verifications: Verifications,
    /// The offset after the last processed batch.
    map_end: i64,
    /// The offset of the last snapshot.
    snapshot_offset: i64,
}

impl Producers {
    /// No producers, in a log whose end is `offset`.
    pub fn starting_at(offset: i64) -> Producers {
        Producers { map_end: offset, snapshot_offset: offset, ..Producers::default() }
    }

    /// The state of a producer.
    pub fn get(&self, producer_id: ProducerId) -> Option<&ProducerEntry> {
        self.entries.get(&producer_id)
    }

    /// True if batches of the producer are remembered.
    pub fn has_batches(&self, producer_id: ProducerId) -> bool {
        self.get(producer_id).is_some_and(|entry| !entry.batches.is_empty())
    }

    pub fn iter(&self) -> impl Iterator<Item = (ProducerId, &ProducerEntry)> {
        self.entries.iter().map(|(&id, entry)| (id, entry))
    }

    /// The number of producers.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if no producer is remembered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a producer as a snapshot describes it.
    fn load(&mut self, producer_id: ProducerId, entry: ProducerEntry) {
        if let Some(first_offset) = entry.transaction_start {
            self.ongoing.insert(first_offset, Transaction { producer_id, last_offset: None });
        }
        self.entries.insert(producer_id, entry);
    }

    /// True if a producer may lack batches that are in the log, except for producers silent for `silent_ms`
    /// before the newest batch of all.
    pub fn may_miss_batches(&self, silent_ms: i64) -> bool {
        let newest = self.entries.values().map(|entry| entry.last_timestamp).max().unwrap_or(0);
        self.entries
            .values()
            .any(|entry| entry.may_miss_batches() && newest.saturating_sub(entry.last_timestamp) < silent_ms)
    }

    /// A stored batch that its producer should remember and does not.
    pub fn missed(&self, header: &BatchHeader) -> Option<BatchMetadata> {
        if !header.producer_id.is_some() || header.attributes.is_control() {
            return None;
        }
        let entry = self.get(header.producer_id)?;
        let oldest = entry.batches.first()?;
        let is_missed = entry.may_miss_batches()
            && header.producer_epoch == entry.epoch
            && header.last_offset().0 < oldest.first_offset();
        is_missed.then(|| BatchMetadata::of(header))
    }

    /// Puts batches before the remembered ones of a producer, newest first.
    pub fn recall(
        &mut self,
        producer_id: ProducerId,
        missed: impl IntoIterator<Item = BatchMetadata, IntoIter: DoubleEndedIterator>,
    ) {
        let Some(entry) = self.entries.get_mut(&producer_id) else { return };
        let room = BATCHES_REMEMBERED - entry.batches.len();
        for batch in missed.into_iter().rev().take(room) {
            entry.batches.insert(0, batch);
        }
    }

    /// True if this incarnation of the producer has an open transaction here.
    pub fn has_ongoing_transaction(&self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool {
        self.get(producer_id).is_some_and(|entry| entry.transaction_start.is_some() && entry.epoch == epoch)
    }

    /// The offset below which every transaction has ended, with its end below the high watermark.
    pub fn first_unstable_offset(&self) -> Option<i64> {
        let first = |transactions: &BTreeMap<i64, Transaction>| transactions.keys().next().copied();
        match (first(&self.unreplicated), first(&self.ongoing)) {
            (Some(unreplicated), Some(ongoing)) => Some(unreplicated.min(ongoing)),
            (unreplicated, ongoing) => unreplicated.or(ongoing),
        }
    }

    /// Applies a new high watermark: all records below it are replicated.
    pub fn on_high_watermark(&mut self, high_watermark: i64) {
        if !self.unreplicated.is_empty() {
            self.unreplicated
                .retain(|_, transaction| transaction.last_offset.is_none_or(|last| last >= high_watermark));
        }
    }

    /// Drops state below `log_start`.
    pub fn on_log_start(&mut self, log_start: i64) {
        self.on_high_watermark(log_start);
        self.map_end = self.map_end.max(log_start);
    }

    /// Applies a prepared append once its batches are in the log. The completed transactions are applied one
    /// by one with [`Producers::complete`].
    pub fn apply(&mut self, prepared: Vec<PreparedProducer>) {
        for producer in prepared {
            for first_offset in &producer.started {
                let transaction = Transaction { producer_id: producer.producer_id, last_offset: None };
                self.ongoing.insert(*first_offset, transaction);
            }
            match self.entries.entry(producer.producer_id) {
                std::collections::hash_map::Entry::Occupied(mut entry) => {
                    entry.get_mut().merge(producer.updated)
                }
                std::collections::hash_map::Entry::Vacant(entry) => {
                    entry.insert(producer.updated);
                }
            }
        }
    }

    /// Ends a transaction: it stays unstable until the high watermark has passed its marker.
    pub fn complete(&mut self, completed: &CompletedTransaction) {
        if let Some(mut transaction) = self.ongoing.remove(&completed.first_offset) {
            transaction.last_offset = Some(completed.last_offset);
            self.unreplicated.insert(completed.first_offset, transaction);
        }
    }

    /// The offset after the last processed batch.
    pub fn map_end(&self) -> i64 {
        self.map_end
    }

    /// Sets the offset below which all batches are processed.
    pub fn set_map_end(&mut self, offset: i64) {
        self.map_end = offset;
    }

    /// The offset of the last snapshot taken or loaded.
    pub fn snapshot_offset(&self) -> i64 {
        self.snapshot_offset
    }

    /// Notes that a snapshot at `offset` is on disk.
    pub fn set_snapshot_offset(&mut self, offset: i64) {
        self.snapshot_offset = offset;
    }

    /// Forgets producers silent for `expiration_ms` without an open transaction.
    pub fn remove_expired(&mut self, now_ms: i64, expiration_ms: i64) {
        self.entries.retain(|_, entry| !is_expired(entry, now_ms, expiration_ms));
        self.verifications.remove_expired(now_ms, expiration_ms);
    }

    /// The time of the last batch of the producer whose transaction has been open the longest.
    pub fn oldest_transaction_timestamp(&self) -> Option<i64> {
        let (_, transaction) = self.ongoing.iter().next()?;
        self.get(transaction.producer_id).map(|entry| entry.last_timestamp)
    }
}

fn is_expired(entry: &ProducerEntry, now_ms: i64, expiration_ms: i64) -> bool {
    entry.transaction_start.is_none() && now_ms.saturating_sub(entry.last_timestamp) >= expiration_ms
}
