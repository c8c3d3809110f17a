//! Reasons for a refused append, and their mapping to Kafka's codes.

use super::Partition;
use thalweg_log::ProducerError;
use thalweg_record::{BatchError, DecompressError, RecordError, RefusedRecord, ValidateRecordsError};
use thalweg_wire::ErrorCode;

/// Why an append was refused.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Refused by the partition, the request or the replicas.
    #[error("{0}")]
    Code(ErrorCode),
    /// The batch is not one that a producer may send.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Its records violate the topic's rules.
    #[error(transparent)]
    Records(#[from] ValidateRecordsError),
    /// The batch exceeds the topic's limit.
    #[error("The record batch size of {size} bytes exceeds max.message.bytes={max}")]
    TooLarge {
        /// The batch.
        size: usize,
        /// The topic's limit.
        max: usize,
    },
    /// Whether its partition belongs to the transaction could not be learned.
    #[error(
        "Unable to verify the partition has been added to the transaction. Underlying error: {underlying}"
    )]
    Unverified {
        /// The answer of the transaction's coordinator.
        underlying: ErrorCode,
    },
    /// Its partition does not belong to the transaction.
    #[error("Partition was not added to the transaction")]
    NotOfTransaction,
    /// The log refuses it.
    #[error(transparent)]
    Log(#[from] thalweg_log::AppendError),
}

impl From<ErrorCode> for AppendError {
    fn from(code: ErrorCode) -> Self {
        Self::Code(code)
    }
}

impl AppendError {
    /// Kafka's code for it.
    pub fn code(&self) -> ErrorCode {
        match self {
            AppendError::Code(code) => *code,
            AppendError::Batch(error) => batch(error),
            AppendError::Records(ValidateRecordsError::Refused(refused)) if refused.for_timestamp => {
                ErrorCode::InvalidTimestamp
            }
            AppendError::Records(ValidateRecordsError::Refused(_)) => ErrorCode::InvalidRecord,
            AppendError::Records(ValidateRecordsError::Unreadable(error)) => unreadable(error),
            AppendError::TooLarge { .. } => ErrorCode::MessageTooLarge,
            // The one error that every client repeats without looking for another leader.
            AppendError::Unverified { .. } => ErrorCode::NotEnoughReplicas,
            AppendError::NotOfTransaction => ErrorCode::InvalidTxnState,
            AppendError::Log(error) => log(error),
        }
    }

    /// The message for the client beside the code; `None` if the code suffices.
    pub fn message(&self) -> Option<String> {
        match self {
            AppendError::Code(_) => None,
            AppendError::Log(thalweg_log::AppendError::Log(_)) => None,
            AppendError::Records(ValidateRecordsError::Refused(_)) => {
                Some("One or more records have been rejected".to_owned())
            }
            error => Some(error.to_string()),
        }
    }

    /// The records that violate the topic's rules.
    pub fn record_errors(&self) -> &[RefusedRecord] {
        match self {
            AppendError::Records(ValidateRecordsError::Refused(refused)) => &refused.records,
            _ => &[],
        }
    }
}

fn batch(error: &BatchError) -> ErrorCode {
    match error {
        BatchError::LengthTooSmall(_) | BatchError::UnknownMagic(_) | BatchError::CrcMismatch(_) => {
            ErrorCode::CorruptMessage
        }
        BatchError::UnknownCompression(_) => ErrorCode::UnsupportedCompressionType,
        BatchError::ClientLogAppendTime(_) => ErrorCode::InvalidTimestamp,
        BatchError::Truncated(_)
        | BatchError::LegacyMagic(_)
        | BatchError::TrailingBytes(_)
        | BatchError::NonZeroBaseOffset(_)
        | BatchError::InvalidOffsetRange(_)
        | BatchError::InvalidRecordCount(_)
        | BatchError::InconsistentRecordCount(_)
        | BatchError::ClientControlBatch(_)
        | BatchError::InvalidBaseSequence(_) => ErrorCode::InvalidRecord,
    }
}

fn unreadable(error: &RecordError) -> ErrorCode {
    match error {
        RecordError::Decompress(DecompressError::TooLarge(_)) => ErrorCode::RecordListTooLarge,
        // Kafka answers UNKNOWN_SERVER_ERROR where a codec fails. CORRUPT_MESSAGE would have clients send it again.
        _ => ErrorCode::InvalidRecord,
    }
}

/// Why a producer may not write.
pub(super) fn producer(error: &ProducerError) -> ErrorCode {
    match error {
        ProducerError::OutOfOrderSequence(_) => ErrorCode::OutOfOrderSequenceNumber,
        ProducerError::InvalidProducerEpoch(_) => ErrorCode::InvalidProducerEpoch,
        ProducerError::InvalidTransactionState(_) => ErrorCode::InvalidTxnState,
        ProducerError::TransactionCoordinatorFenced(_) => ErrorCode::TransactionCoordinatorFenced,
    }
}

fn log(error: &thalweg_log::AppendError) -> ErrorCode {
    use thalweg_log::AppendError;
    match error {
        AppendError::Malformed(error) => batch(error),
        AppendError::Producer(error) => producer(error),
        AppendError::TooLarge(_) => ErrorCode::RecordListTooLarge,
        AppendError::OffsetsOutOfOrder(_)
        | AppendError::UnexpectedOffset(_)
        | AppendError::OffsetsMissing(_)
        | AppendError::UnexpectedEpoch(_) => ErrorCode::UnknownServerError,
        AppendError::DiskFull(_)
        | AppendError::TooManyOpenFiles(_)
        | AppendError::Poisoned { .. }
        | AppendError::Log(_) => ErrorCode::KafkaStorageError,
    }
}

/// The error that a coordinator returns to its clients when it cannot write (Kafka's `convertToApiException`).
pub fn coordinator_error(partition: &Partition, error: &AppendError) -> ErrorCode {
    match error.code() {
        code @ (ErrorCode::NotEnoughReplicas | ErrorCode::RequestTimedOut) => {
            tracing::debug!(?partition, ?code, "Coordinator write waits for replicas");
            ErrorCode::CoordinatorNotAvailable
        }
        ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch | ErrorCode::KafkaStorageError => {
            tracing::warn!(?partition, %error, "Coordinator write failed");
            ErrorCode::NotCoordinator
        }
        code @ (ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge) => {
            tracing::warn!(?partition, %error, "Coordinator write failed");
            code
        }
        _ => {
            tracing::error!(?partition, %error, "Coordinator write failed");
            ErrorCode::UnknownServerError
        }
    }
}
