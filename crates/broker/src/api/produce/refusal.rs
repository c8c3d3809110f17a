//! Why a batch of a Produce request is refused, and what the producer learns of it.

use thalweg_record::{BatchError, RefusalReason, RefusedRecord};
use thalweg_replica::partition::{AppendError, Partition};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::produce_response::{BatchIndexAndErrorMessage, PartitionProduceResponse};

/// How many refused records the message beside the code shows, as Kafka's.
const SHOWN_MAX: usize = 3;

/// Why a batch was refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// By the request: its form, or what it is for.
    #[error("{0}")]
    Request(ErrorCode),
    /// By the partition.
    #[error(transparent)]
    Append(#[from] AppendError),
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
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Self {
        Self::Request(code)
    }
}

impl Refusal {
    /// Kafka's code for it.
    pub fn code(&self) -> ErrorCode {
        match self {
            Refusal::Request(code) => *code,
            Refusal::Append(error) => error.code(),
            // The one error that every client repeats without looking for another leader.
            Refusal::Unverified { .. } => ErrorCode::NotEnoughReplicas,
            Refusal::NotOfTransaction => ErrorCode::InvalidTxnState,
        }
    }

    /// The message for the client beside the code; `None` if the code suffices.
    pub fn message(&self) -> Option<String> {
        match self {
            Refusal::Request(_) => None,
            Refusal::Append(error) => error.message(),
            error => Some(error.to_string()),
        }
    }

    /// Whether it is known without the partition: from the request, or from the number and the format of its batches.
    fn is_of_the_request(&self) -> bool {
        use BatchError::{LegacyMagic, TrailingBytes, Truncated};
        match self {
            Refusal::Append(AppendError::Batch(error)) => {
                matches!(error, Truncated(_) | LegacyMagic(_) | TrailingBytes(_))
            }
            Refusal::Request(_) => true,
            _ => false,
        }
    }

    /// The records that violate the topic's rules.
    pub fn record_errors(&self) -> &[RefusedRecord] {
        match self {
            Refusal::Append(error) => error.record_errors(),
            _ => &[],
        }
    }
}

/// The entry of a batch that was refused before its partition saw it.
pub fn refused(index: i32, error: &Refusal) -> PartitionProduceResponse {
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
pub fn refused_by(partition: &Partition, error: &Refusal) -> PartitionProduceResponse {
    tracing::debug!(topic = %partition.topic, partition = %partition.index, %error, "Refused to append");
    let mut entry = refused(partition.index.0, error);
    entry.log_start_offset = match error.code() {
        // As in Kafka, which does not ask the partition for it, or for which these say nothing of the batch.
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

/// Why a record is refused, in Kafka's words.
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

/// Why a batch with such records is refused, in Kafka's words.
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
