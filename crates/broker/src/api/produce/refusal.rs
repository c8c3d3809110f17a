//! Reasons to refuse a batch of a Produce request, with their codes and messages.

use thalweg_record::{BatchError, RefusalReason, RefusedRecord};
use thalweg_replica::partition::{LeaderAppendError, Partition};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::produce_response::{BatchIndexAndErrorMessage, PartitionProduceResponse};

/// Maximum number of refused records in a message, as in Kafka.
const SHOWN_MAX: usize = 3;

/// The reason to refuse a batch.
#[derive(Debug, thiserror::Error)]
pub enum BatchRefusal {
    /// An error of the request.
    #[error("{0}")]
    Request(ErrorCode),
    /// An error of the partition.
    #[error(transparent)]
    Append(#[from] LeaderAppendError),
    /// Verification of the partition with the transaction coordinator failed.
    #[error(
        "Unable to verify the partition has been added to the transaction. Underlying error: {underlying}"
    )]
    Unverified {
        /// The coordinator's answer.
        underlying: ErrorCode,
    },
    /// The partition does not belong to the transaction.
    #[error("Partition was not added to the transaction")]
    NotOfTransaction,
}

impl From<ErrorCode> for BatchRefusal {
    fn from(code: ErrorCode) -> Self {
        Self::Request(code)
    }
}

impl BatchRefusal {
    /// Kafka's error code.
    pub fn code(&self) -> ErrorCode {
        match self {
            BatchRefusal::Request(code) => *code,
            BatchRefusal::Append(error) => error.code(),
            // The only error that every client retries without looking up the leader.
            BatchRefusal::Unverified { .. } => ErrorCode::NotEnoughReplicas,
            BatchRefusal::NotOfTransaction => ErrorCode::InvalidTxnState,
        }
    }

    /// The message for the client; `None` if the code suffices.
    pub fn message(&self) -> Option<String> {
        match self {
            BatchRefusal::Request(_) => None,
            BatchRefusal::Append(error) => error.message(),
            error => Some(error.to_string()),
        }
    }

    /// True for errors found without the partition: in the request, in the number and the format of its
    /// batches, or by the coordinator of their transaction.
    fn is_of_the_request(&self) -> bool {
        use BatchError::{LegacyMagic, TrailingBytes, Truncated};
        match self {
            BatchRefusal::Append(LeaderAppendError::Batch(error)) => {
                matches!(error, Truncated(_) | LegacyMagic(_) | TrailingBytes(_))
            }
            BatchRefusal::Request(_) | BatchRefusal::Unverified { .. } | BatchRefusal::NotOfTransaction => {
                true
            }
            BatchRefusal::Append(_) => false,
        }
    }

    /// The records that violate the topic's rules.
    pub fn record_errors(&self) -> &[RefusedRecord] {
        match self {
            BatchRefusal::Append(error) => error.record_errors(),
            _ => &[],
        }
    }
}

/// The entry of a batch that was refused before it reached the partition.
pub fn refused(index: i32, error: &BatchRefusal) -> PartitionProduceResponse {
    PartitionProduceResponse {
        index,
        error_code: error.code().code(),
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: -1,
        error_message: error.message(),
        ..Default::default()
    }
}

/// The entry of a batch that its partition refused.
pub fn refused_by(partition: &Partition, error: &BatchRefusal) -> PartitionProduceResponse {
    tracing::debug!(topic = %partition.topic, partition = %partition.index, %error, "Refused to append");
    let mut entry = refused(partition.index.0, error);
    entry.log_start_offset = match error.code() {
        // As in Kafka, errors found without the partition, and the errors below, have no log start offset.
        _ if error.is_of_the_request() => -1,
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::UnknownTopicId
        | ErrorCode::NotLeaderOrFollower
        | ErrorCode::MessageTooLarge
        | ErrorCode::RecordListTooLarge
        | ErrorCode::CorruptMessage
        | ErrorCode::KafkaStorageError => -1,
        _ => partition.log_start_offset().0,
    };
    let records = error.record_errors();
    if !records.is_empty() {
        let words = |bad: &RefusedRecord| BatchIndexAndErrorMessage {
            batch_index: bad.index,
            batch_index_error_message: Some(of_record(partition, bad)),
        };
        entry.record_errors = records.iter().map(words).collect();
        entry.error_message = Some(of_records(error.code(), &entry.record_errors));
    }
    entry
}

/// The reason to refuse a record, in Kafka's words.
fn of_record(partition: &Partition, bad: &RefusedRecord) -> String {
    match bad.reason {
        RefusalReason::MissingKey => format!(
            "Compacted topic cannot accept message without key in topic partition {}-{}",
            partition.topic, partition.index
        ),
        RefusalReason::TimestampOutOfRange { timestamp, earliest, latest } => format!(
            "Timestamp {timestamp} of message with offset {} is out of range. The timestamp should be within \
             [{earliest}, {latest}]",
            bad.index
        ),
        reason => reason.to_string(),
    }
}

/// The reason to refuse a batch with invalid records, in Kafka's words.
fn of_records(code: ErrorCode, records: &[BatchIndexAndErrorMessage]) -> String {
    if code == ErrorCode::InvalidTimestamp {
        return "One or more records have been rejected due to invalid timestamp".to_owned();
    }
    let shown: Vec<String> = records
        .iter()
        .take(SHOWN_MAX)
        .map(|bad| {
            let words = bad.batch_index_error_message.as_deref().unwrap_or_default();
            format!("RecordError(batchIndex={}, message='{words}')", bad.batch_index)
        })
        .collect();
    format!(
        "One or more records have been rejected due to {} record errors in total, and only showing the first three \
         errors at most: [{}]",
        records.len(),
        shown.join(", ")
    )
}
