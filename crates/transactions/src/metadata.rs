//! The state of one transactional id, and all transitions (Kafka's `TransactionMetadata`).
//!
//! Owns: the change of producer id, epoch, partitions and times from one state to the next. Refuses: the
//! decision whether a request may make the change, which belongs to the shard.

use super::error::TransactionError;
use super::state::TransactionState;
use std::collections::BTreeSet;
use std::sync::Arc;
use thalweg_groups::TransactionOutcome;
use thalweg_metadata::PartitionIndex;

pub const NO_PRODUCER_ID: i64 = -1;
pub const NO_PRODUCER_EPOCH: i16 = -1;
/// From this level of transaction.version on, each transaction has its own epoch (KIP-890).
pub const EPOCH_PER_TRANSACTION: i16 = 2;
/// The level of transaction.version at which records are flexible, and hold the producer's level and its next
/// id.
pub const FLEXIBLE_RECORDS: i16 = 1;

/// Partitions by topic and number.
pub type TransactionPartitions = BTreeSet<(Arc<str>, PartitionIndex)>;

/// The state of a transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionMetadata {
    /// Id of the producer that may write.
    pub producer_id: i64,
    /// Producer id before the last change.
    pub previous_producer_id: i64,
    /// Producer id after the end of the transaction, if the epochs of the current id are used up.
    pub next_producer_id: i64,
    /// Epoch in which the producer may write.
    pub producer_epoch: i16,
    /// Previous epoch, which identifies a repeated request. Not in the log.
    pub last_producer_epoch: i16,
    /// The transaction timeout.
    pub timeout_ms: i32,
    pub state: TransactionState,
    /// Partitions of the transaction without a marker yet.
    pub partitions: TransactionPartitions,
    /// Start of the transaction; -1 without one.
    pub start_ms: i64,
    /// Time of the last write.
    pub last_update_ms: i64,
    /// The client's level of transaction.version.
    pub client_version: i16,
}

impl TransactionMetadata {
    /// An id without transactions.
    pub fn new(producer_id: i64, timeout_ms: i32, now_ms: i64) -> TransactionMetadata {
        TransactionMetadata {
            producer_id,
            previous_producer_id: NO_PRODUCER_ID,
            next_producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            last_producer_epoch: NO_PRODUCER_EPOCH,
            timeout_ms,
            state: TransactionState::Empty,
            partitions: TransactionPartitions::new(),
            start_ms: -1,
            last_update_ms: now_ms,
            client_version: 0,
        }
    }

    /// True if the producer has no epoch left for another transaction.
    pub fn is_epoch_exhausted(&self) -> bool {
        is_exhausted(self.producer_epoch)
    }

    /// True if an external system ends the transactions, without a time limit (KIP-939).
    pub fn is_two_phase_commit(&self) -> bool {
        self.timeout_ms == i32::MAX
    }

    /// The time at which the transaction times out.
    pub fn deadline_ms(&self) -> i64 {
        self.start_ms.saturating_add(i64::from(self.timeout_ms))
    }

    /// The producer with which the client continues after the transaction.
    pub fn producer_after_end(&self) -> (i64, i16) {
        if self.client_version >= EPOCH_PER_TRANSACTION && self.next_producer_id != NO_PRODUCER_ID {
            (self.next_producer_id, 0)
        } else {
            (self.producer_id, self.producer_epoch)
        }
    }

    fn to(&self, state: TransactionState) -> TransactionMetadata {
        TransactionMetadata { state, previous_producer_id: self.producer_id, ..self.clone() }
    }

    /// Starts a producer in the next epoch. A producer that names its current epoch continues; a repeated
    /// request gets the same answer (KIP-360); a producer that names another epoch is fenced.
    pub fn initialised(
        &self,
        timeout_ms: i32,
        expected_epoch: Option<i16>,
        now_ms: i64,
    ) -> Result<TransactionMetadata, TransactionError> {
        let current = self.producer_epoch;
        let bumped = current.saturating_add(1);
        let (producer_epoch, last_producer_epoch) = match expected_epoch {
            None => (bumped, NO_PRODUCER_EPOCH),
            Some(expected) if current == NO_PRODUCER_EPOCH || expected == current => (bumped, current),
            Some(expected) if expected == self.last_producer_epoch => (current, self.last_producer_epoch),
            Some(_) => return Err(TransactionError::Fenced),
        };
        Ok(TransactionMetadata {
            producer_epoch,
            last_producer_epoch,
            timeout_ms,
            partitions: TransactionPartitions::new(),
            start_ms: -1,
            last_update_ms: now_ms,
            ..self.to(TransactionState::Empty)
        })
    }

    /// Starts a producer under a new id, because the epochs of the old one are used up.
    pub fn rotated(
        &self,
        producer_id: i64,
        timeout_ms: i32,
        remembers_epoch: bool,
        now_ms: i64,
    ) -> TransactionMetadata {
        TransactionMetadata {
            producer_id,
            producer_epoch: 0,
            last_producer_epoch: if remembers_epoch { self.producer_epoch } else { NO_PRODUCER_EPOCH },
            timeout_ms,
            partitions: TransactionPartitions::new(),
            start_ms: -1,
            last_update_ms: now_ms,
            ..self.to(TransactionState::Empty)
        }
    }

    /// Adds partitions to the transaction; the first partitions start it.
    pub fn with_partitions(
        &self,
        added: &TransactionPartitions,
        client_version: i16,
        now_ms: i64,
    ) -> TransactionMetadata {
        TransactionMetadata {
            partitions: self.partitions.union(added).cloned().collect(),
            start_ms: if self.state.is_idle() { now_ms } else { self.start_ms },
            last_update_ms: now_ms,
            client_version,
            ..self.to(TransactionState::Ongoing)
        }
    }

    /// Decides the end of the transaction. `is_empty` is true if none has started: an abort still raises the
    /// epoch.
    pub fn decided(
        &self,
        outcome: TransactionOutcome,
        client_version: i16,
        next_producer_id: i64,
        is_empty: bool,
        now_ms: i64,
    ) -> TransactionMetadata {
        let has_own_epoch = client_version >= EPOCH_PER_TRANSACTION;
        TransactionMetadata {
            producer_epoch: self.producer_epoch.saturating_add(i16::from(has_own_epoch)),
            last_producer_epoch: if has_own_epoch { self.producer_epoch } else { self.last_producer_epoch },
            start_ms: if is_empty { now_ms } else { self.start_ms },
            next_producer_id,
            last_update_ms: now_ms,
            client_version,
            ..self.to(TransactionState::prepared(outcome))
        }
    }

    /// The same state in the next epoch. The producer does not know that epoch, so it can no longer write.
    pub fn fenced(self) -> TransactionMetadata {
        TransactionMetadata {
            producer_epoch: self.producer_epoch.saturating_add(1),
            last_producer_epoch: NO_PRODUCER_EPOCH,
            ..self
        }
    }

    /// The state once all markers are written.
    pub fn completed(&self, now_ms: i64) -> TransactionMetadata {
        let (producer_id, producer_epoch) = self.producer_after_end();
        let state = match self.state {
            TransactionState::PrepareCommit => TransactionState::CompleteCommit,
            _ => TransactionState::CompleteAbort,
        };
        TransactionMetadata {
            producer_id,
            producer_epoch,
            next_producer_id: NO_PRODUCER_ID,
            partitions: TransactionPartitions::new(),
            last_update_ms: now_ms,
            ..self.to(state)
        }
    }
}

/// True if an epoch is the last one for a producer: the next one is reserved for fencing.
pub fn is_exhausted(epoch: i16) -> bool {
    epoch >= i16::MAX - 1
}
