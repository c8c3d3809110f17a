//! What a shard answers.

use thalweg_wire::ErrorCode;

/// A producer id and the epoch in which it may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// The id; -1 where nothing is to be said.
    pub id: i64,
    /// The epoch; -1 where nothing is to be said.
    pub epoch: i16,
}

impl Producer {
    /// Nothing is to be said.
    pub const NONE: Producer = Producer { id: -1, epoch: -1 };
}

/// What a shard answers to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To InitProducerId and EndTxn: the producer with which the client goes on.
    Producer(Result<Producer, ErrorCode>),
    /// To AddPartitionsToTxn and AddOffsetsToTxn.
    Added(Result<(), ErrorCode>),
    /// The request needs a producer id that nobody had before: it is to come again with one.
    NeedsProducerId,
}

impl Answer {
    /// The answer to the same request when what it waited for failed.
    pub fn failed(self, error: ErrorCode) -> Answer {
        match self {
            Answer::Producer(_) => Answer::Producer(Err(error)),
            Answer::Added(_) => Answer::Added(Err(error)),
            Answer::NeedsProducerId => Answer::NeedsProducerId,
        }
    }
}
