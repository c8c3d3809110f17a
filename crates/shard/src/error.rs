//! Errors of shards and of their writes, and the mapping to Kafka's codes.

use thalweg_replica::partition::{AckError, LeaderAppendError, RoleError};
use thalweg_wire::ErrorCode;

/// Why no shard of this broker serves a request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailability {
    /// The shard is being loaded. The client retries.
    #[error("The coordinator is being loaded")]
    Loading,
    /// Another broker coordinates, or none. The client looks up the coordinator again.
    #[error("This broker is not the coordinator")]
    NotCoordinator,
}

impl Unavailability {
    /// Kafka's error code.
    pub fn code(self) -> ErrorCode {
        match self {
            Unavailability::Loading => ErrorCode::CoordinatorLoadInProgress,
            Unavailability::NotCoordinator => ErrorCode::NotCoordinator,
        }
    }
}

/// Why a coordinator's write is not in the log, or not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Too few replicas are in sync.
    #[error("Too few replicas are in sync")]
    TooFewReplicas,
    /// The replicas did not have the write in time.
    #[error("The replicas did not have it in time")]
    TimedOut,
    /// Too many earlier writes wait for the replicas.
    #[error("Too many earlier writes wait for the replicas")]
    TooManyWait,
    /// This broker no longer leads the partition.
    #[error("This broker no longer leads the partition")]
    NotLeader,
    /// The log could not be written.
    #[error("The log could not be written")]
    Storage,
    /// The write exceeds the maximum size of a batch.
    #[error("It is larger than a batch of the coordinator's topic may be (max.message.bytes)")]
    TooLarge,
    /// A name in the write is too long for the record's format.
    #[error("A name is too long for the record's format")]
    Unencodable,
    /// The log refuses the write for another reason, such as its producer.
    #[error("The log refused it: {0}")]
    Refused(ErrorCode),
}

impl WriteError {
    /// True if the size or the form of a single record may be the cause, so that the other records can be
    /// written without it.
    pub(crate) fn is_of_one_record(self) -> bool {
        matches!(self, WriteError::TooLarge | WriteError::Unencodable | WriteError::Refused(_))
    }

    /// Kafka's error code (`CoordinatorOperationExceptionHelper`).
    pub fn code(self) -> ErrorCode {
        match self {
            WriteError::TooFewReplicas | WriteError::TimedOut | WriteError::TooManyWait => {
                ErrorCode::CoordinatorNotAvailable
            }
            WriteError::NotLeader | WriteError::Storage => ErrorCode::NotCoordinator,
            WriteError::TooLarge => ErrorCode::UnknownServerError,
            WriteError::Unencodable => ErrorCode::InvalidRequest,
            WriteError::Refused(code) => code,
        }
    }
}

/// Why a request got no answer from its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No shard serves the request now.
    #[error(transparent)]
    Unavailable(#[from] Unavailability),
    /// The write of the request failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The shard gave the answer to another request, which is a bug.
    #[error("The shard gave the answer of another request")]
    WrongAnswer,
}

impl RequestError {
    /// Kafka's error code.
    pub fn code(self) -> ErrorCode {
        match self {
            RequestError::Unavailable(error) => error.code(),
            RequestError::Write(error) => error.code(),
            RequestError::WrongAnswer => ErrorCode::UnknownServerError,
        }
    }
}

impl From<&LeaderAppendError> for WriteError {
    fn from(error: &LeaderAppendError) -> WriteError {
        use thalweg_log::AppendError as Log;
        match error {
            LeaderAppendError::TooFewReplicas => WriteError::TooFewReplicas,
            // A coordinator is elected after its partition, so this is a bug.
            LeaderAppendError::Role(RoleError::UnknownEpoch) => {
                WriteError::Refused(ErrorCode::UnknownServerError)
            }
            LeaderAppendError::Role(_) => WriteError::NotLeader,
            LeaderAppendError::Log(
                Log::DiskFull(_) | Log::TooManyOpenFiles(_) | Log::Poisoned { .. } | Log::Log(_),
            ) => WriteError::Storage,
            LeaderAppendError::TooLarge { .. } | LeaderAppendError::Log(Log::TooLarge(_)) => {
                WriteError::TooLarge
            }
            LeaderAppendError::Batch(_) | LeaderAppendError::Records(_) | LeaderAppendError::Log(_) => {
                WriteError::Refused(error.code())
            }
        }
    }
}

impl From<AckError> for WriteError {
    fn from(error: AckError) -> WriteError {
        match error {
            AckError::TooFewReplicas => WriteError::TooFewReplicas,
            AckError::TimedOut => WriteError::TimedOut,
            AckError::Role(_) => WriteError::NotLeader,
            AckError::Flush(_) => WriteError::Storage,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Like Kafka's `CoordinatorOperationExceptionHelper` and its transaction coordinator, which pass on
    /// errors that they do not translate.
    #[test]
    fn refusals_for_the_producers_reasons_reach_the_client() {
        use thalweg_log::{
            InvalidProducerEpoch, InvalidTransactionState, ProducerError, TransactionCoordinatorFenced,
        };
        use thalweg_record::{Offset, ProducerEpoch, ProducerId};
        let code = |error: ProducerError| {
            WriteError::from(&LeaderAppendError::from(thalweg_log::AppendError::from(error))).code()
        };
        let producer_id = ProducerId(7);
        let (epoch, current, offset) = (ProducerEpoch(1), ProducerEpoch(2), Offset(9));
        let stale = InvalidProducerEpoch { producer_id, epoch, current, offset };
        assert_eq!(code(stale.into()), ErrorCode::InvalidProducerEpoch);
        let not_verified = InvalidTransactionState::NotVerified { producer_id };
        assert_eq!(code(not_verified.into()), ErrorCode::InvalidTxnState);
        let fenced = TransactionCoordinatorFenced { producer_id, coordinator_epoch: 1, current: 2 };
        assert_eq!(code(fenced.into()), ErrorCode::TransactionCoordinatorFenced);
    }

    #[test]
    fn clients_retry_here_or_look_for_another_coordinator() {
        let code = |error: LeaderAppendError| WriteError::from(&error).code();
        assert_eq!(code(LeaderAppendError::TooFewReplicas), ErrorCode::CoordinatorNotAvailable);
        for role in [RoleError::NotLeader, RoleError::NotReplica, RoleError::Deleted, RoleError::FencedEpoch]
        {
            assert_eq!(code(role.into()), ErrorCode::NotCoordinator);
        }
        assert_eq!(code(RoleError::UnknownEpoch.into()), ErrorCode::UnknownServerError);
        let poisoned = thalweg_log::AppendError::Poisoned { reason: "a failed write".into() };
        assert_eq!(code(poisoned.into()), ErrorCode::NotCoordinator);
        assert_eq!(code(LeaderAppendError::TooLarge { size: 2, max: 1 }), ErrorCode::UnknownServerError);
        let late = [AckError::TimedOut, AckError::TooFewReplicas].map(|error| WriteError::from(error).code());
        assert_eq!(late, [ErrorCode::CoordinatorNotAvailable; 2]);
        assert_eq!(WriteError::from(AckError::Role(RoleError::NotLeader)).code(), ErrorCode::NotCoordinator);
    }
}
