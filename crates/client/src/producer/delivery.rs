//! The outcome of a batch, and the reasons for failed records.

use std::sync::Arc;

use thalweg_dial::ClientError;
use thalweg_record::Offset;
use thalweg_wire::ErrorCode;
use tokio::time::Instant;

use super::ProducerConfig;
use super::batch::{Batch, SentRun};
use super::partition::PartitionQueue;

/// The outcome of a batch.
#[derive(Debug)]
pub struct Delivery<'a> {
    pub topic: &'a str,
    pub partition: i32,
    /// Number of records.
    pub records: u32,
    /// Total bytes of the values.
    pub value_bytes: u64,
    /// Size of the batch as sent: compressed, with its header. An estimate for a batch that was never sent.
    pub batch_bytes: u64,
    /// The runs of records, in order.
    pub sent: &'a [SentRun],
    /// Time at which the outcome was known.
    pub ended_at: Instant,
    /// The offset of the first record, or the error. [`Offset::NONE`] with `acks=0`, and for a batch stored
    /// earlier whose offset the broker has forgotten.
    pub result: Result<Offset, &'a DeliveryError>,
}

/// Reasons for failed records.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The broker refused the batch permanently.
    #[error(transparent)]
    Refused(#[from] BatchRefused),
    /// The delivery timeout expired.
    #[error(transparent)]
    TimedOut(#[from] DeliveryTimedOut),
    /// The producer was closed first.
    #[error(transparent)]
    Closed(#[from] ProducerClosed),
    /// The transaction of the records cannot be committed.
    #[error(transparent)]
    Aborted(#[from] TransactionAborted),
    /// The cluster refuses an idempotent producer its id.
    #[error(transparent)]
    NoProducerId(#[from] NoProducerId),
}

impl DeliveryError {
    /// The broker's error code, if there was one.
    pub fn error_code(&self) -> Option<ErrorCode> {
        match self {
            DeliveryError::Refused(refused) => Some(refused.error_code),
            DeliveryError::NoProducerId(refused) => refused.reason.error_code(),
            DeliveryError::TimedOut(_) | DeliveryError::Closed(_) | DeliveryError::Aborted(_) => None,
        }
    }
}

/// The broker refused a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{topic}-{partition}: {error_code}{}", message.as_ref().map(|m| format!(" ({m})")).unwrap_or_default())]
pub struct BatchRefused {
    pub topic: Arc<str>,
    pub partition: i32,
    /// The broker's error code.
    pub error_code: ErrorCode,
    /// The broker's error message.
    pub message: Option<String>,
}

/// A batch was not stored in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{topic}-{partition}: not stored within delivery.timeout.ms={timeout_ms}, sent {attempts} times{}",
    last.as_ref().map(|last| format!(", last: {last}")).unwrap_or_default())]
pub struct DeliveryTimedOut {
    pub topic: Arc<str>,
    pub partition: i32,
    /// `delivery.timeout.ms`.
    pub timeout_ms: u128,
    /// Number of times that the batch was sent.
    pub attempts: u32,
    /// The last failure, if the batch was sent.
    pub last: Option<String>,
}

/// The producer was closed before the records were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The producer was closed before the records were sent")]
pub struct ProducerClosed;

/// The cluster refuses this producer an id, without which no record can be sent.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct NoProducerId {
    /// The cluster's error.
    pub reason: ClientError,
}

/// Records were dropped before they were sent, because their transaction must be aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The transaction was aborted before the records were sent")]
pub struct TransactionAborted;

/// The error of a batch that was not stored in time.
pub(super) fn timed_out(
    config: &ProducerConfig,
    queue: &PartitionQueue,
    batch: &Batch,
    last: Option<String>,
) -> DeliveryError {
    DeliveryError::TimedOut(DeliveryTimedOut {
        topic: Arc::clone(&queue.topic),
        partition: queue.partition,
        timeout_ms: config.delivery_timeout.as_millis(),
        attempts: batch.attempts,
        last,
    })
}
