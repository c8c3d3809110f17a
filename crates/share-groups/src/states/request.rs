//! What the share coordinator is asked about one share partition, and its answers, independent of the APIs' versions.

use super::error::StateError;
use super::runs::Run;
use thalweg_shard::{Failing, WriteError};
use thalweg_share::{StateSummary, StateUpdate};

/// A request for one share partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The state begins again at an offset; -1 if it is not known yet.
    Initialize {
        /// Not below the current one.
        state_epoch: i32,
        /// The offset.
        start_offset: i64,
    },
    /// The state, for a new leader of the partition; others are fenced from then on.
    Read {
        /// The leader's epoch, or -1.
        leader_epoch: i32,
    },
    /// A change.
    Write(Write),
    /// The state is forgotten.
    Delete,
    /// The state without its runs.
    Summarize {
        /// The leader's epoch. It does not matter.
        leader_epoch: i32,
    },
}

/// A change of a state; see [`StateUpdate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The epoch of the state, or -1.
    pub state_epoch: i32,
    /// The epoch of the leader, or -1.
    pub leader_epoch: i32,
    /// The first offset in flight, or -1.
    pub start_offset: i64,
    /// Completed deliveries from there on, or -1.
    pub delivery_complete_count: i32,
    /// The runs that have changed.
    pub runs: Vec<Run>,
}

impl From<&StateUpdate> for Write {
    fn from(update: &StateUpdate) -> Write {
        Write {
            state_epoch: update.state_epoch,
            leader_epoch: update.leader_epoch,
            start_offset: update.start_offset,
            delivery_complete_count: update.delivery_complete_count,
            runs: update.batches.iter().map(Run::from).collect(),
        }
    }
}

/// A request that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The state has changed.
    Changed,
    /// The state.
    State {
        /// Its epoch.
        state_epoch: i32,
        /// The first offset in flight, or -1.
        start_offset: i64,
        /// The runs.
        runs: Vec<Run>,
    },
    /// The state without its runs.
    Summary(StateSummary),
}

/// The outcomes for several share partitions, in the order of the request.
pub type Outcomes = Vec<Result<Done, StateError>>;

/// A shard's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a request for share partitions.
    Outcomes(Outcomes),
    /// The offset before which no record is needed, if there are such records.
    RedundantBefore(Option<i64>),
}

impl Failing for Answer {
    fn failed(self, error: WriteError) -> Answer {
        match self {
            // A refusal rests on the state as well.
            Answer::Outcomes(outcomes) => Answer::Outcomes(vec![Err(error.into()); outcomes.len()]),
            Answer::RedundantBefore(_) => Answer::RedundantBefore(None),
        }
    }
}
