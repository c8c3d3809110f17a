//! A shard's answers.

use super::error::TransactionError;
use crate::driver::WriteError;

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

/// A shard's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To InitProducerId and EndTxn: the producer that the client continues with.
    Producer(Result<Producer, TransactionError>),
    /// To AddPartitionsToTxn and AddOffsetsToTxn.
    Added(Result<(), TransactionError>),
    /// The request needs a new producer id: repeat it with one.
    NeedsProducerId,
}

impl Answer {
    /// The answer to the same request when its write failed.
    pub fn failed(self, error: WriteError) -> Answer {
        match self {
            Answer::Producer(_) => Answer::Producer(Err(error.into())),
            Answer::Added(_) => Answer::Added(Err(error.into())),
            Answer::NeedsProducerId => Answer::NeedsProducerId,
        }
    }
}
