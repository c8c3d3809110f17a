//! Reasons why the transaction coordinator refuses a request or a marker is not written, and their mapping to
//! Kafka's codes.

use thalweg_replica::partition::{AckError, LeaderAppendError};
use thalweg_shard::{RequestError, Unavailability, WriteError};
use thalweg_wire::ErrorCode;

/// Why a producer's request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    /// The transactional id is empty.
    #[error("The transactional id is empty")]
    EmptyId,
    /// The timeout exceeds `transaction.max.timeout.ms` or is not positive.
    #[error("The transaction timeout is out of bounds")]
    InvalidTimeout,
    /// The broker does not allow two-phase commits (KIP-939).
    #[error("Two-phase commits are not enabled")]
    TwoPhaseCommitDisabled,
    /// Prepared transactions cannot be continued here (KIP-939).
    #[error("Prepared transactions cannot be continued")]
    KeepsPrepared,
    /// The transactional id is not known, or belongs to another producer id.
    #[error("The producer id does not belong to the transactional id")]
    UnknownProducer,
    /// Another producer has taken over the transactional id.
    #[error("Another producer uses the transactional id")]
    Fenced,
    /// The last change of the transaction is not complete. The producer retries.
    #[error("The last change of the transaction is not complete")]
    Busy,
    /// The cluster's level of transaction.version has no record for an epoch of each transaction.
    #[error("The cluster's level of transaction.version is too low for this version of the request")]
    LevelTooLow,
    /// The state of the transaction does not allow this end.
    #[error("The transaction is in another state")]
    InvalidState,
    /// The partition does not belong to the transaction.
    #[error("The partition was not added to the transaction")]
    PartitionNotAdded,
    /// The request needs a producer id, and none is available.
    #[error(transparent)]
    NoProducerIds(#[from] NoProducerIds),
    /// The shard did not get the request, or could not be written.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl From<Unavailability> for TransactionError {
    fn from(error: Unavailability) -> TransactionError {
        TransactionError::Request(error.into())
    }
}

impl From<WriteError> for TransactionError {
    fn from(error: WriteError) -> TransactionError {
        TransactionError::Request(error.into())
    }
}

impl TransactionError {
    /// Kafka's error code.
    pub fn code(self) -> ErrorCode {
        match self {
            TransactionError::EmptyId => ErrorCode::InvalidRequest,
            TransactionError::InvalidTimeout => ErrorCode::InvalidTransactionTimeout,
            TransactionError::TwoPhaseCommitDisabled => ErrorCode::TransactionalIdAuthorizationFailed,
            TransactionError::KeepsPrepared | TransactionError::LevelTooLow => ErrorCode::UnsupportedVersion,
            TransactionError::UnknownProducer => ErrorCode::InvalidProducerIdMapping,
            TransactionError::Fenced => ErrorCode::ProducerFenced,
            TransactionError::Busy => ErrorCode::ConcurrentTransactions,
            TransactionError::InvalidState => ErrorCode::InvalidTxnState,
            TransactionError::PartitionNotAdded => ErrorCode::TransactionAbortable,
            TransactionError::NoProducerIds(error) => error.code(),
            TransactionError::Request(error) => error.code(),
        }
    }
}

/// The controller has not given this broker producer ids. The cause is logged where it occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The controller gave no producer ids")]
pub struct NoProducerIds;

impl NoProducerIds {
    /// Kafka's error code, which makes the client retry.
    pub fn code(self) -> ErrorCode {
        ErrorCode::CoordinatorLoadInProgress
    }
}

/// Why a partition has no guard for a transactional batch.
#[derive(Debug, thiserror::Error)]
pub enum VerificationError {
    /// The partition would refuse the batch.
    #[error(transparent)]
    Append(#[from] LeaderAppendError),
    /// The transaction coordinator's error, as returned to this client.
    #[error("{0}")]
    Coordinator(ErrorCode),
}

impl VerificationError {
    /// Kafka's error code.
    pub fn code(&self) -> ErrorCode {
        match self {
            VerificationError::Append(error) => error.code(),
            VerificationError::Coordinator(code) => *code,
        }
    }
}

/// Why a marker is not written, or not known to be replicated.
#[derive(Debug, thiserror::Error)]
pub enum MarkerError {
    /// This broker has no replica of the partition.
    #[error("The partition is not here")]
    UnknownPartition,
    /// Producer ids in a log are never negative.
    #[error("A producer has no negative id")]
    NegativeProducerId,
    /// The partition of the group coordinator refuses the marker.
    #[error(transparent)]
    Groups(#[from] RequestError),
    /// The group coordinator did not answer in time.
    #[error("The groups did not answer in time")]
    TimedOut,
    /// The partition refuses the marker.
    #[error(transparent)]
    Append(#[from] LeaderAppendError),
    /// The marker was not replicated.
    #[error(transparent)]
    Ack(#[from] AckError),
}

impl MarkerError {
    /// Kafka's error code.
    pub fn code(&self) -> ErrorCode {
        match self {
            MarkerError::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
            MarkerError::NegativeProducerId => ErrorCode::InvalidProducerIdMapping,
            MarkerError::Groups(error) => match error.code() {
                ErrorCode::CoordinatorNotAvailable
                | ErrorCode::CoordinatorLoadInProgress
                | ErrorCode::NotCoordinator => ErrorCode::NotLeaderOrFollower,
                other => other,
            },
            MarkerError::TimedOut => ErrorCode::RequestTimedOut,
            MarkerError::Append(error) => error.code(),
            MarkerError::Ack(error) => error.code(),
        }
    }
}
