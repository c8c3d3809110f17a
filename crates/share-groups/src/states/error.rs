//! Errors of the share coordinator and of leaders that cannot reach a state, and the mapping to Kafka's
//! codes.

use super::runs::OVERLAPPING_MAX;
use thalweg_shard::{RequestError, Unavailability, WriteError};
use thalweg_wire::ErrorCode;

/// Why the share coordinator refuses a request for one share partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The index of the partition is negative.
    #[error("The partition id cannot be a negative number.")]
    NegativePartition,
    /// The state is read before it is initialized.
    #[error("Read operation on uninitialized share partition not allowed.")]
    UninitializedRead,
    /// The state is written before it is initialized.
    #[error("Write operation on uninitialized share partition not allowed.")]
    UninitializedWrite,
    /// A newer leader has used the state.
    #[error("A newer leader of the partition has used its state")]
    FencedLeaderEpoch,
    /// The state was reset since.
    #[error("The state has a newer epoch")]
    FencedStateEpoch,
    /// The topic or its partition does not exist.
    #[error("The topic has no such partition")]
    UnknownPartition,
    /// The runs are invalid.
    #[error("A state batch ends before it begins, or more than {OVERLAPPING_MAX} state batches overlap")]
    InvalidRuns,
    /// The shard did not get the request, or could not be written.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl StateError {
    /// Kafka's error code.
    pub fn code(self) -> ErrorCode {
        match self {
            StateError::NegativePartition
            | StateError::UninitializedRead
            | StateError::UninitializedWrite
            | StateError::InvalidRuns => ErrorCode::InvalidRequest,
            StateError::FencedLeaderEpoch => ErrorCode::FencedLeaderEpoch,
            StateError::FencedStateEpoch => ErrorCode::FencedStateEpoch,
            StateError::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
            StateError::Request(error) => error.code(),
        }
    }
}

impl From<WriteError> for StateError {
    fn from(error: WriteError) -> StateError {
        StateError::Request(error.into())
    }
}

impl From<Unavailability> for StateError {
    fn from(error: Unavailability) -> StateError {
        StateError::Request(error.into())
    }
}

/// Why a persisted state could not be read or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PersistError {
    /// No coordinator answered in time: none is elected, or it is loading or unreachable. A change may or may
    /// not have happened.
    #[error("The share coordinator did not answer in time")]
    Unavailable,
    /// A newer leader of the partition has used the state.
    #[error("A newer leader of the partition has used its state")]
    FencedLeaderEpoch,
    /// The state was reset since it was read.
    #[error("The state has a newer epoch")]
    FencedStateEpoch,
    /// The coordinator does not know the partition, because its topic is deleted.
    #[error("The share coordinator does not know the partition")]
    UnknownPartition,
    /// The state was never initialized or is deleted, or the request is invalid.
    #[error("The state is not initialized")]
    Invalid,
    /// The coordinator refuses for another reason.
    #[error("The share coordinator refused: {0}")]
    Refused(ErrorCode),
}

impl PersistError {
    /// The error with this code.
    pub(super) fn of(code: ErrorCode) -> PersistError {
        match code {
            ErrorCode::CoordinatorNotAvailable
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::NotCoordinator
            | ErrorCode::NetworkException
            | ErrorCode::RequestTimedOut => PersistError::Unavailable,
            ErrorCode::FencedLeaderEpoch => PersistError::FencedLeaderEpoch,
            ErrorCode::FencedStateEpoch => PersistError::FencedStateEpoch,
            ErrorCode::UnknownTopicOrPartition => PersistError::UnknownPartition,
            ErrorCode::InvalidRequest => PersistError::Invalid,
            other => PersistError::Refused(other),
        }
    }

    /// Kafka's error code.
    pub fn code(self) -> ErrorCode {
        match self {
            PersistError::Unavailable => ErrorCode::CoordinatorNotAvailable,
            PersistError::FencedLeaderEpoch => ErrorCode::FencedLeaderEpoch,
            PersistError::FencedStateEpoch => ErrorCode::FencedStateEpoch,
            PersistError::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
            PersistError::Invalid => ErrorCode::InvalidRequest,
            PersistError::Refused(code) => code,
        }
    }

    /// True if another attempt may succeed. As in Kafka, an unknown partition may merely be new.
    pub(super) fn is_worth_retrying(self) -> bool {
        matches!(self, PersistError::Unavailable | PersistError::UnknownPartition)
    }
}
