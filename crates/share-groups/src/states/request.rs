//! Requests to the share coordinator for one share partition, and its answers, independent of API versions.

use super::error::StateError;
use super::runs::StateRun;
use thalweg_shard::{ShardAnswer, WriteError};
use thalweg_share::{StateSummary, StateUpdate};

/// A request for one share partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateRequest {
    /// Resets the state to an offset; -1 if the offset is not known yet.
    Initialize {
        /// Not below the current state epoch.
        state_epoch: i32,
        /// Start offset, or -1.
        start_offset: i64,
    },
    /// Reads the state for a new leader of the partition, and fences earlier leaders.
    Read {
        /// Leader epoch, or -1.
        leader_epoch: i32,
    },
    /// Changes the state.
    Write(StateWrite),
    /// Deletes the state.
    Delete,
    /// Reads the state without its runs.
    Summarize {
        /// Leader epoch; ignored.
        leader_epoch: i32,
    },
}

/// A change of a state; see [`StateUpdate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateWrite {
    /// State epoch, or -1.
    pub state_epoch: i32,
    /// Leader epoch, or -1.
    pub leader_epoch: i32,
    /// The first offset in flight, or -1.
    pub start_offset: i64,
    /// Completed deliveries from `start_offset` on, or -1.
    pub delivery_complete_count: i32,
    /// The changed runs.
    pub runs: Vec<StateRun>,
}

impl From<&StateUpdate> for StateWrite {
    fn from(update: &StateUpdate) -> StateWrite {
        StateWrite {
            state_epoch: update.state_epoch,
            leader_epoch: update.leader_epoch,
            start_offset: update.start_offset,
            delivery_complete_count: update.delivery_complete_count,
            runs: update.batches.iter().map(StateRun::from).collect(),
        }
    }
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateReply {
    /// The state has changed.
    Changed,
    State {
        state_epoch: i32,
        /// The first offset in flight, or -1.
        start_offset: i64,
        /// Runs of records with one state each.
        runs: Vec<StateRun>,
    },
    /// The state without its runs.
    Summary(StateSummary),
}

/// The outcomes for several share partitions, in the order of the request.
pub type StateOutcomes = Vec<Result<StateReply, StateError>>;

/// A shard's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareStateAnswer {
    /// The answer to a request for share partitions.
    Outcomes(StateOutcomes),
    /// The offset before which no record is needed; `None` if there are no such records.
    RedundantBefore(Option<i64>),
}

impl ShardAnswer for ShareStateAnswer {
    fn failed(self, error: WriteError) -> ShareStateAnswer {
        match self {
            // Refusals depend on the state as well, so they fail too.
            ShareStateAnswer::Outcomes(outcomes) => {
                ShareStateAnswer::Outcomes(vec![Err(error.into()); outcomes.len()])
            }
            ShareStateAnswer::RedundantBefore(_) => ShareStateAnswer::RedundantBefore(None),
        }
    }
}
