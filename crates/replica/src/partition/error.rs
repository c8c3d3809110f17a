//! Reasons why a partition refuses an operation, and their mapping to Kafka's codes.

use thalweg_log::{LogError, ProducerError, ReadError};
use thalweg_record::{BatchError, DecompressError, Offset, RecordError, RefusedRecord, ValidateRecordsError};
use thalweg_wire::ErrorCode;

/// Why this broker, in its role for a partition, does not serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoleError {
    /// Another broker leads, or the partition has no leader.
    #[error("This broker does not lead the partition")]
    NotLeader,
    /// The replica was removed from this broker.
    #[error("This broker has no replica of the partition any more")]
    NotReplica,
    /// The topic was deleted.
    #[error("The topic was deleted")]
    Deleted,
    /// The request has an earlier leader epoch.
    #[error("The leader epoch of the request is over")]
    FencedEpoch,
    /// The request has a leader epoch that this broker does not know yet.
    #[error("The leader epoch of the request is not known here yet")]
    UnknownEpoch,
}

impl RoleError {
    /// Kafka's code for a role error.
    pub fn code(self) -> ErrorCode {
        match self {
            RoleError::NotLeader | RoleError::NotReplica => ErrorCode::NotLeaderOrFollower,
            RoleError::Deleted => ErrorCode::UnknownTopicOrPartition,
            RoleError::FencedEpoch => ErrorCode::FencedLeaderEpoch,
            RoleError::UnknownEpoch => ErrorCode::UnknownLeaderEpoch,
        }
    }
}

/// Why an append was refused.
#[derive(Debug, thiserror::Error)]
pub enum LeaderAppendError {
    /// This broker does not lead, or not in the expected epoch.
    #[error(transparent)]
    Role(#[from] RoleError),
    /// acks=all, and fewer replicas are in sync than `min.insync.replicas`.
    #[error("Too few replicas are in sync")]
    TooFewReplicas,
    /// The batch is malformed, or of a kind that producers may not send.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Records violate the topic's rules.
    #[error(transparent)]
    Records(#[from] ValidateRecordsError),
    /// The batch exceeds `max.message.bytes`.
    #[error("The record batch size of {size} bytes exceeds max.message.bytes={max}")]
    TooLarge {
        /// Size of the batch in bytes.
        size: usize,
        /// The topic's limit in bytes.
        max: usize,
    },
    /// The log refused the batch.
    #[error(transparent)]
    Log(#[from] thalweg_log::AppendError),
}

impl LeaderAppendError {
    /// Kafka's code for a refused append.
    pub fn code(&self) -> ErrorCode {
        match self {
            LeaderAppendError::Role(error) => error.code(),
            LeaderAppendError::TooFewReplicas => ErrorCode::NotEnoughReplicas,
            LeaderAppendError::Batch(error) => batch(error),
            LeaderAppendError::Records(ValidateRecordsError::Refused(refused)) if refused.for_timestamp => {
                ErrorCode::InvalidTimestamp
            }
            LeaderAppendError::Records(ValidateRecordsError::Refused(_)) => ErrorCode::InvalidRecord,
            LeaderAppendError::Records(ValidateRecordsError::Unreadable(error)) => unreadable(error),
            LeaderAppendError::TooLarge { .. } => ErrorCode::MessageTooLarge,
            LeaderAppendError::Log(error) => log(error),
        }
    }

    /// The message for the client beside the code; `None` if the code suffices.
    pub fn message(&self) -> Option<String> {
        match self {
            LeaderAppendError::Role(_) | LeaderAppendError::TooFewReplicas => None,
            LeaderAppendError::Log(thalweg_log::AppendError::Log(_)) => None,
            LeaderAppendError::Records(ValidateRecordsError::Refused(_)) => {
                Some("One or more records have been rejected".to_owned())
            }
            error => Some(error.to_string()),
        }
    }

    /// The records that violate the topic's rules.
    pub fn record_errors(&self) -> &[RefusedRecord] {
        match self {
            LeaderAppendError::Records(ValidateRecordsError::Refused(refused)) => &refused.records,
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
        // Kafka answers UNKNOWN_SERVER_ERROR if a codec fails. CORRUPT_MESSAGE would make clients send the
        // batch again.
        _ => ErrorCode::InvalidRecord,
    }
}

fn producer(error: &ProducerError) -> ErrorCode {
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

/// The log could not be synced. The reason is logged where the sync fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The log could not be flushed")]
pub struct FlushError;

/// Why appended records are not acknowledged. The records may be in the log and be committed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AckError {
    /// This broker no longer leads: the records may get lost.
    #[error(transparent)]
    Role(#[from] RoleError),
    /// Too few replicas are in sync since the append.
    #[error("Too few replicas are in sync since the append")]
    TooFewReplicas,
    /// The replicas did not have the records before the deadline.
    #[error("The replicas did not have the records in time")]
    TimedOut,
    /// The records could not be synced.
    #[error(transparent)]
    Flush(#[from] FlushError),
}

impl AckError {
    /// Kafka's code for an unacknowledged append.
    pub fn code(self) -> ErrorCode {
        match self {
            AckError::Role(error) => error.code(),
            AckError::TooFewReplicas => ErrorCode::NotEnoughReplicasAfterAppend,
            AckError::TimedOut => ErrorCode::RequestTimedOut,
            AckError::Flush(FlushError) => ErrorCode::KafkaStorageError,
        }
    }
}

/// Why a read failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// This broker does not serve the reader.
    #[error(transparent)]
    Role(#[from] RoleError),
    /// The reader is a broker without a replica, as far as this broker knows.
    #[error("The reader has no replica of the partition")]
    UnknownFollower {
        /// True if the reader has sent this leader's epoch.
        knows_leader: bool,
    },
    /// The offset is not in the log.
    #[error("The offset is not in the log")]
    OutOfRange {
        /// For a follower: the first lost record before the log start (missing, not deleted), if any.
        lost_from: Option<Offset>,
    },
    /// A batch in the log is damaged.
    #[error("The log is damaged")]
    Corrupt,
    /// The log could not be read.
    #[error("The log could not be read")]
    Storage,
}

impl FetchError {
    /// Kafka's code for a failed read.
    pub fn code(self) -> ErrorCode {
        match self {
            FetchError::Role(error) => error.code(),
            // The follower knows the current leader, so it may have learnt of its new replica first: it
            // retries.
            FetchError::UnknownFollower { knows_leader: true } => ErrorCode::UnknownLeaderEpoch,
            FetchError::UnknownFollower { knows_leader: false } => ErrorCode::NotLeaderOrFollower,
            FetchError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            FetchError::Corrupt => ErrorCode::CorruptMessage,
            FetchError::Storage => ErrorCode::KafkaStorageError,
        }
    }
}

impl From<ReadError> for FetchError {
    fn from(error: ReadError) -> FetchError {
        match error {
            ReadError::OutOfRange(_) => FetchError::OutOfRange { lost_from: None },
            // The log reports the batch itself, once: a retry is of no use.
            ReadError::Log(LogError::Corrupt { .. }) => FetchError::Corrupt,
            ReadError::Log(_) => FetchError::Storage,
        }
    }
}

/// Why an offset lookup failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OffsetsError {
    /// This broker does not serve the reader.
    #[error(transparent)]
    Role(#[from] RoleError),
    /// This broker does not know its predecessor's high watermark yet (KIP-207).
    #[error("The new leader does not know the high watermark yet")]
    NotAvailable,
    /// The log could not be searched.
    #[error(transparent)]
    Unreadable(#[from] UnreadableLog),
}

impl OffsetsError {
    /// Kafka's code for a failed lookup.
    pub fn code(self) -> ErrorCode {
        match self {
            OffsetsError::Role(error) => error.code(),
            OffsetsError::NotAvailable => ErrorCode::OffsetNotAvailable,
            OffsetsError::Unreadable(error) => error.code(),
        }
    }
}

/// Why records were not deleted, or not on every replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteError {
    /// This broker does not lead the partition, or no longer.
    #[error(transparent)]
    Role(#[from] RoleError),
    /// The topic is compacted, without deletion.
    #[error("Records of a compacted topic are not deleted by offset")]
    CompactedOnly,
    /// The offset is negative, or beyond the high watermark.
    #[error("The offset is not in the log")]
    OutOfRange,
    /// The log start could not be moved.
    #[error(transparent)]
    Unreadable(#[from] UnreadableLog),
    /// A live replica has not deleted the records in time.
    #[error("The replicas did not delete the records in time")]
    TimedOut,
}

impl DeleteError {
    /// Kafka's code for a failed deletion.
    pub fn code(self) -> ErrorCode {
        match self {
            DeleteError::Role(error) => error.code(),
            DeleteError::CompactedOnly => ErrorCode::PolicyViolation,
            DeleteError::OutOfRange => ErrorCode::OffsetOutOfRange,
            DeleteError::Unreadable(error) => error.code(),
            DeleteError::TimedOut => ErrorCode::RequestTimedOut,
        }
    }
}

/// Why a log could not be searched or cut. The reason is logged where the operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableLog {
    /// Malformed records. The disk is fine.
    #[error("Records in the log cannot be read")]
    Records,
    /// The log could not be read.
    #[error("The log could not be read")]
    Storage,
}

impl UnreadableLog {
    fn code(self) -> ErrorCode {
        match self {
            UnreadableLog::Records => ErrorCode::CorruptMessage,
            UnreadableLog::Storage => ErrorCode::KafkaStorageError,
        }
    }
}
