//! Validates the batches of one append against the state of their producers (Kafka's `ProducerAppendInfo` and
//! `UnifiedLog.analyzeAndValidateProducerState`).
//!
//! Owns: the rules for epochs, sequences, duplicates and transactions. Refuses: changes before the batches
//! are written; prepared changes are applied afterwards.

use std::collections::BTreeSet;

use thalweg_hash::{HashMap, HashSet};
use thalweg_record::{BatchHeader, NO_SEQUENCE, Offset, ProducerEpoch, ProducerId};

use super::error::{
    InvalidProducerEpoch, InvalidTransactionState, OutOfOrderSequence, ProducerError, SequenceFault,
    TransactionCoordinatorFenced,
};
use super::verification::VerificationGuard;
use super::{BatchMetadata, ProducerEntry, Producers};
use crate::segment::transactions::AbortedTransaction;

/// The source of an append's batches, which decides how strictly they are validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOrigin {
    /// A producer: everything is checked.
    Client,
    /// A group or transaction coordinator of this cluster: epochs are checked, sequences are not.
    Coordinator,
    /// The leader of this partition, or this log itself during recovery: the batches were accepted before.
    Replication,
}

/// The record in the control batch that ends a transaction (Kafka's `EndTransactionMarker`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndMarker {
    /// True if the transaction is aborted rather than committed.
    pub aborts: bool,
    /// The epoch of the coordinator that wrote the marker.
    pub coordinator_epoch: i32,
    /// The marker's timestamp.
    pub timestamp: i64,
}

/// A transaction that a marker has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTransaction {
    pub producer_id: ProducerId,
    /// Offset of the first record.
    pub first_offset: i64,
    /// Offset of the marker.
    pub last_offset: i64,
    /// True if the transaction was aborted.
    pub aborted: bool,
}

/// The next state of one producer, to be applied when its batches are in the log.
#[derive(Debug)]
pub struct PreparedProducer {
    pub producer_id: ProducerId,
    pub(super) updated: ProducerEntry,
    /// First offsets of started transactions.
    pub(super) started: Vec<i64>,
    /// The producer's state in the log before this append: epoch ([`ProducerEpoch::NONE`] for a new
    /// producer), last sequence, and true if no batch is remembered.
    current_epoch: ProducerEpoch,
    current_last_sequence: i32,
    current_is_empty: bool,
}

/// The changes an append will make.
#[derive(Debug, Default)]
pub struct PreparedAppend {
    /// The producers with their next states.
    pub producers: Vec<PreparedProducer>,
    /// The transactions that end.
    pub completed: Vec<CompletedTransaction>,
    /// The position of each producer in the list, once there are many.
    index: HashMap<ProducerId, usize>,
}

/// Maximum number of producers for a linear search.
const SEARCHED_PRODUCERS_MAX: usize = 8;

impl PreparedAppend {
    fn find(&self, producer_id: ProducerId) -> Option<usize> {
        if self.producers.len() > SEARCHED_PRODUCERS_MAX {
            return self.index.get(&producer_id).copied();
        }
        self.producers.iter().rposition(|known| known.producer_id == producer_id)
    }

    fn add(&mut self, producer: PreparedProducer) -> usize {
        let added = self.producers.len();
        self.producers.push(producer);
        if self.producers.len() == SEARCHED_PRODUCERS_MAX + 1 {
            self.index =
                self.producers.iter().enumerate().map(|(at, known)| (known.producer_id, at)).collect();
        } else if self.producers.len() > SEARCHED_PRODUCERS_MAX {
            self.index.insert(self.producers[added].producer_id, added);
        }
        added
    }
}

impl Producers {
    /// The transaction index entries for the transactions aborted by a prepared append, before it is applied.
    /// Each entry reflects the state at its own marker, regardless of the number of batches appended
    /// together: so the indexes of all replicas are the same.
    pub fn aborted_by(&self, prepared: &PreparedAppend) -> Vec<AbortedTransaction> {
        if !prepared.completed.iter().any(|completed| completed.aborted) {
            return Vec::new();
        }
        let mut ended = HashSet::default();
        let mut open_before = self.ongoing.keys().copied().peekable();
        let mut started: BTreeSet<i64> =
            prepared.producers.iter().flat_map(|producer| producer.started.iter().copied()).collect();
        let mut aborted = Vec::new();
        for completed in &prepared.completed {
            if !started.remove(&completed.first_offset) {
                ended.insert(completed.first_offset);
            }
            while open_before.next_if(|first| ended.contains(first)).is_some() {}
            if !completed.aborted {
                continue;
            }
            // A transaction that begins after the marker was not open at the marker.
            let begun = started.first().copied().filter(|&first| first < completed.last_offset);
            let first_open = open_before.peek().copied().into_iter().chain(begun).min();
            aborted.push(AbortedTransaction {
                producer_id: completed.producer_id,
                first_offset: Offset(completed.first_offset),
                last_offset: Offset(completed.last_offset),
                last_stable_offset: Offset(first_open.unwrap_or(completed.last_offset + 1)),
            });
        }
        aborted
    }

    /// The earlier batch of a producer, if this one is a retry.
    pub fn duplicate_of(&self, header: &BatchHeader) -> Option<BatchMetadata> {
        if !header.producer_id.is_some() {
            return None;
        }
        self.get(header.producer_id).and_then(|entry| entry.find_duplicate(header))
    }

    /// Fails if a transactional batch needs verification by the coordinator, and `guard` does not prove it.
    pub fn check_transaction(
        &self,
        header: &BatchHeader,
        guard: Option<VerificationGuard>,
    ) -> Result<(), ProducerError> {
        let (producer_id, epoch) = (header.producer_id, header.producer_epoch);
        if !header.attributes.is_transactional() || self.has_ongoing_transaction(producer_id, epoch) {
            return Ok(());
        }
        if let Some(entry) = self.get(producer_id)
            && epoch < entry.epoch
        {
            let offset = header.base_offset;
            return Err(InvalidProducerEpoch { producer_id, epoch, current: entry.epoch, offset }.into());
        }
        match guard {
            Some(guard)
                if !header.attributes.is_control() && !self.verifications.holds(producer_id, guard) =>
            {
                Err(InvalidTransactionState::NotVerified { producer_id }.into())
            }
            _ => Ok(()),
        }
    }

    /// Validates one batch with its offsets assigned, and adds its changes to `prepared`. `marker` is the
    /// content of a control batch that ends a transaction.
    pub fn prepare(
        &mut self,
        prepared: &mut PreparedAppend,
        header: &BatchHeader,
        marker: Option<EndMarker>,
        origin: AppendOrigin,
        transaction_version: i16,
    ) -> Result<(), ProducerError> {
        let producer_id = header.producer_id;
        if !producer_id.is_some() {
            return Ok(());
        }
        let index = self.prepared_index(prepared, producer_id);
        let producer = &mut prepared.producers[index];
        if header.attributes.is_control() {
            if let Some(marker) = marker {
                let completed = producer.append_marker(header, marker, origin, transaction_version)?;
                prepared.completed.extend(completed);
            }
        } else {
            self.check_sequences(producer, header, origin)?;
            producer.append_data(header)?;
        }
        if header.attributes.is_transactional() {
            let next_has_begun = self.verifications.get(producer_id).is_some_and(|verification| {
                verification.supports_epoch_bump
                    && header.attributes.is_control()
                    && header.producer_epoch == verification.epoch
            });
            if !next_has_begun {
                self.verifications.clear(producer_id);
            }
        }
        Ok(())
    }

    fn prepared_index(&self, prepared: &mut PreparedAppend, producer_id: ProducerId) -> usize {
        if let Some(index) = prepared.find(producer_id) {
            return index;
        }
        let current = self.get(producer_id);
        let mut updated = ProducerEntry::new();
        if let Some(current) = current {
            updated.epoch = current.epoch;
            updated.coordinator_epoch = current.coordinator_epoch;
            updated.last_timestamp = current.last_timestamp;
            updated.transaction_start = current.transaction_start;
        }
        prepared.add(PreparedProducer {
            producer_id,
            current_epoch: updated.epoch,
            current_last_sequence: current.map_or(NO_SEQUENCE, ProducerEntry::last_sequence),
            current_is_empty: current.is_none_or(|entry| entry.batches.is_empty()),
            updated,
            started: Vec::new(),
        })
    }

    fn check_sequences(
        &self,
        producer: &PreparedProducer,
        header: &BatchHeader,
        origin: AppendOrigin,
    ) -> Result<(), ProducerError> {
        producer.check_epoch(header.producer_epoch, header.base_offset, origin, 0)?;
        if origin != AppendOrigin::Client {
            return Ok(());
        }
        let sequence = header.base_sequence;
        let refuse = |fault| {
            let (producer_id, offset) = (header.producer_id, header.base_offset);
            Err(OutOfOrderSequence { producer_id, sequence, offset, fault }.into())
        };
        if let Some(verification) = self.verifications.get(header.producer_id) {
            if verification.supports_epoch_bump && sequence != 0 && producer.current_is_empty {
                return refuse(SequenceFault::NoStateNotZero);
            }
            if sequence > verification.lowest_sequence {
                let lowest_sequence = verification.lowest_sequence;
                return refuse(SequenceFault::OvertakesVerification { lowest_sequence });
            }
        }
        let (epoch, current) = (header.producer_epoch, producer.updated.epoch);
        if epoch != current {
            if sequence != 0 && current != ProducerEpoch::NONE {
                return refuse(SequenceFault::NewEpochNotZero { epoch, current });
            }
            return Ok(());
        }
        // Batches of earlier requests may be appended together with this one.
        let (epoch_before, last_sequence) = if !producer.updated.batches.is_empty() {
            (current, producer.updated.last_sequence())
        } else if epoch == producer.current_epoch {
            (epoch, producer.current_last_sequence)
        } else {
            (producer.current_epoch, NO_SEQUENCE)
        };
        if epoch_before == ProducerEpoch::NONE || follows(last_sequence, sequence) {
            Ok(())
        } else {
            refuse(SequenceFault::NotNext { last_sequence })
        }
    }
}

fn follows(last_sequence: i32, sequence: i32) -> bool {
    i64::from(sequence) == i64::from(last_sequence) + 1 || (sequence == 0 && last_sequence == i32::MAX)
}

impl PreparedProducer {
    fn check_epoch(
        &self,
        epoch: ProducerEpoch,
        offset: Offset,
        origin: AppendOrigin,
        transaction_version: i16,
    ) -> Result<(), ProducerError> {
        let current = self.updated.epoch;
        let stale = if transaction_version >= 2 { epoch <= current } else { epoch < current };
        if !stale {
            return Ok(());
        }
        let marker_again = transaction_version >= 2
            && epoch == current
            && (self.updated.transaction_start.is_none() || epoch.0 == i16::MAX);
        if marker_again {
            return Ok(());
        }
        let error = InvalidProducerEpoch { producer_id: self.producer_id, epoch, current, offset };
        if origin == AppendOrigin::Replication {
            tracing::warn!(%error, "Replicated batch has a stale producer epoch");
            return Ok(());
        }
        Err(error.into())
    }

    fn append_data(&mut self, header: &BatchHeader) -> Result<(), ProducerError> {
        self.updated.add_batch(header.producer_epoch, BatchMetadata::of(header));
        let transactional = header.attributes.is_transactional();
        match self.updated.transaction_start {
            Some(_) if !transactional => {
                let (producer_id, offset) = (self.producer_id, header.base_offset);
                return Err(InvalidTransactionState::NotTransactional { producer_id, offset }.into());
            }
            None if transactional => {
                self.updated.transaction_start = Some(header.base_offset.0);
                self.started.push(header.base_offset.0);
            }
            _ => {}
        }
        Ok(())
    }

    fn append_marker(
        &mut self,
        header: &BatchHeader,
        marker: EndMarker,
        origin: AppendOrigin,
        transaction_version: i16,
    ) -> Result<Option<CompletedTransaction>, ProducerError> {
        self.check_epoch(header.producer_epoch, header.base_offset, origin, transaction_version)?;
        if self.updated.coordinator_epoch > marker.coordinator_epoch {
            let error = TransactionCoordinatorFenced {
                producer_id: self.producer_id,
                coordinator_epoch: marker.coordinator_epoch,
                current: self.updated.coordinator_epoch,
            };
            if origin != AppendOrigin::Replication {
                return Err(error.into());
            }
            tracing::info!(%error, "Replicated marker has a stale coordinator epoch");
        }
        let completed = self.updated.transaction_start.take().map(|first_offset| CompletedTransaction {
            producer_id: self.producer_id,
            first_offset,
            last_offset: header.base_offset.0,
            aborted: marker.aborts,
        });
        self.updated.set_epoch(header.producer_epoch);
        self.updated.coordinator_epoch = marker.coordinator_epoch;
        self.updated.last_timestamp = marker.timestamp;
        Ok(completed)
    }
}
