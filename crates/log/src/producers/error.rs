//! Reasons to refuse an append of an idempotent or transactional producer.

use thalweg_record::{Offset, ProducerEpoch, ProducerId};

/// Why a batch with a producer id is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProducerError {
    /// `OUT_OF_ORDER_SEQUENCE_NUMBER`.
    #[error(transparent)]
    OutOfOrderSequence(#[from] OutOfOrderSequence),
    /// `INVALID_PRODUCER_EPOCH`.
    #[error(transparent)]
    InvalidProducerEpoch(#[from] InvalidProducerEpoch),
    /// `INVALID_TXN_STATE`.
    #[error(transparent)]
    InvalidTransactionState(#[from] InvalidTransactionState),
    /// `TRANSACTION_COORDINATOR_FENCED`.
    #[error(transparent)]
    TransactionCoordinatorFenced(#[from] TransactionCoordinatorFenced),
}

/// A batch does not follow the producer's last one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sequence {sequence} of producer {producer_id} at offset {offset} is out of order: {fault}")]
pub struct OutOfOrderSequence {
    pub producer_id: ProducerId,
    /// The first sequence of the batch.
    pub sequence: i32,
    /// The offset that the batch would have had.
    pub offset: Offset,
    /// The violated expectation.
    pub fault: SequenceFault,
}

/// The rule that a sequence violates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequenceFault {
    /// The sequence does not follow the last one.
    #[error("the last sequence is {last_sequence}")]
    NotNext {
        /// The last sequence in the log.
        last_sequence: i32,
    },
    /// A new epoch does not begin with sequence 0.
    #[error("epoch {epoch} is new, the current one is {current}, and a new epoch starts with sequence 0")]
    NewEpochNotZero {
        /// The batch's epoch.
        epoch: ProducerEpoch,
        /// The epoch in the log.
        current: ProducerEpoch,
    },
    /// The transaction of a producer without state does not begin with sequence 0 (transaction version 2).
    #[error("a transactional producer without state starts with sequence 0")]
    NoStateNotZero,
    /// A request with a lower sequence is still being verified.
    #[error("the lowest sequence seen while the transaction is verified is {lowest_sequence}")]
    OvertakesVerification {
        /// The lowest sequence seen.
        lowest_sequence: i32,
    },
}

/// A batch or marker of a fenced incarnation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("epoch {epoch} of producer {producer_id} at offset {offset} is stale: the current one is {current}")]
pub struct InvalidProducerEpoch {
    pub producer_id: ProducerId,
    /// The epoch of the batch.
    pub epoch: ProducerEpoch,
    /// The epoch in the log.
    pub current: ProducerEpoch,
    /// The offset that the batch would have had.
    pub offset: Offset,
}

/// A batch that does not fit the producer's transaction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTransactionState {
    /// A plain batch inside a transaction.
    #[error("producer {producer_id} has an open transaction and wrote outside it at offset {offset}")]
    NotTransactional {
        producer_id: ProducerId,
        /// The offset that the batch would have had.
        offset: Offset,
    },
    /// A transactional batch that the coordinator has not confirmed.
    #[error("the record of producer {producer_id} is not part of an ongoing transaction")]
    NotVerified { producer_id: ProducerId },
}

/// A marker from a replaced coordinator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the coordinator epoch {coordinator_epoch} for producer {producer_id} is stale: the current one is {current}"
)]
pub struct TransactionCoordinatorFenced {
    pub producer_id: ProducerId,
    /// The epoch in the marker.
    pub coordinator_epoch: i32,
    /// The epoch in the log.
    pub current: i32,
}
