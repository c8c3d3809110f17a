//! Why a batch of a Produce request is refused, and what the producer learns of it.

use thalweg_record::RefusedRecord;
use thalweg_replica::partition::AppendError;
use thalweg_wire::ErrorCode;

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

    /// The records that violate the topic's rules.
    pub fn record_errors(&self) -> &[RefusedRecord] {
        match self {
            Refusal::Append(error) => error.record_errors(),
            _ => &[],
        }
    }
}
