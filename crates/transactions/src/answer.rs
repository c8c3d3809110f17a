//! A shard's answers.

use super::error::TransactionError;
use thalweg_shard::{Failing, WriteError};

/// A producer id and the epoch in which it may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// The id; -1 if there is none to return.
    pub id: i64,
    /// The epoch; -1 if there is none to return.
    pub epoch: i16,
}

impl Producer {
    /// No producer to return.
    pub const NONE: Producer = Producer { id: -1, epoch: -1 };
}

/// What is known of partitions that were asked about: a result for each, in their order, or one for all.
pub type Verified = Result<Vec<Result<(), TransactionError>>, TransactionError>;

/// A shard's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To InitProducerId and EndTxn: the producer that the client continues with.
    Producer(Result<Producer, TransactionError>),
    /// To AddPartitionsToTxn and AddOffsetsToTxn.
    Added(Result<(), TransactionError>),
    /// To AddPartitionsToTxn that only asks.
    Verified(Verified),
    /// The request needs a new producer id: repeat it with one.
    NeedsProducerId,
}

impl Failing for Answer {
    fn failed(self, error: WriteError) -> Answer {
        match self {
            Answer::Producer(_) => Answer::Producer(Err(error.into())),
            Answer::Added(_) => Answer::Added(Err(error.into())),
            Answer::Verified(_) => Answer::Verified(Err(error.into())),
            // The request is repeated, and answered then.
            Answer::NeedsProducerId => Answer::NeedsProducerId,
        }
    }
}
