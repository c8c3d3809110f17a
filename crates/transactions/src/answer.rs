//! A shard's answers.

use super::error::TransactionError;
use thalweg_shard::{ShardAnswer, WriteError};

/// A producer id and the epoch in which it may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// Producer id; -1 if there is none to return.
    pub id: i64,
    /// Producer epoch; -1 if there is none to return.
    pub epoch: i16,
}

impl Producer {
    /// No producer to return.
    pub const NONE: Producer = Producer { id: -1, epoch: -1 };
}

/// The result of verification: one per partition, in the order of the request, or one for all.
pub type VerificationResult = Result<Vec<Result<(), TransactionError>>, TransactionError>;

/// A shard's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionAnswer {
    /// The answer to InitProducerId and EndTxn: the producer with which the client continues.
    Producer(Result<Producer, TransactionError>),
    /// The answer to AddPartitionsToTxn and AddOffsetsToTxn.
    Added(Result<(), TransactionError>),
    /// The answer to AddPartitionsToTxn that only verifies.
    Verified(VerificationResult),
    /// The request needs a new producer id: the caller repeats it with one.
    NeedsProducerId,
}

impl ShardAnswer for TransactionAnswer {
    fn failed(self, error: WriteError) -> TransactionAnswer {
        match self {
            TransactionAnswer::Producer(_) => TransactionAnswer::Producer(Err(error.into())),
            TransactionAnswer::Added(_) => TransactionAnswer::Added(Err(error.into())),
            TransactionAnswer::Verified(_) => TransactionAnswer::Verified(Err(error.into())),
            // The caller repeats the request, whose second answer then fails.
            TransactionAnswer::NeedsProducerId => TransactionAnswer::NeedsProducerId,
        }
    }
}
