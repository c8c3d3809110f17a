//! The states of a transactional id, with Kafka's numbers and names.

use thalweg_groups::TransactionOutcome;

/// The state of a transactional id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TransactionState {
    /// The id has a producer without a transaction since.
    Empty,
    /// Partitions were added to a transaction.
    Ongoing,
    /// The commit of the transaction is decided.
    PrepareCommit,
    /// The abort of the transaction is decided.
    PrepareAbort,
    /// All partitions have the commit marker.
    CompleteCommit,
    /// All partitions have the abort marker.
    CompleteAbort,
    /// The id is about to be deleted.
    Dead,
    /// Another producer takes over the id, and the previous producer's transaction will be aborted.
    PrepareEpochFence,
}

impl TransactionState {
    /// All states, in the order of their numbers.
    pub const ALL: [TransactionState; 8] = [
        TransactionState::Empty,
        TransactionState::Ongoing,
        TransactionState::PrepareCommit,
        TransactionState::PrepareAbort,
        TransactionState::CompleteCommit,
        TransactionState::CompleteAbort,
        TransactionState::Dead,
        TransactionState::PrepareEpochFence,
    ];

    /// The state after the decision.
    pub fn prepared(outcome: TransactionOutcome) -> TransactionState {
        match outcome {
            TransactionOutcome::Commit => TransactionState::PrepareCommit,
            TransactionOutcome::Abort => TransactionState::PrepareAbort,
        }
    }

    /// The number in the log.
    pub fn id(self) -> i8 {
        self as i8
    }

    /// The state with this number.
    pub fn from_id(id: i8) -> Option<TransactionState> {
        TransactionState::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// Kafka's name of the state.
    pub fn name(self) -> &'static str {
        match self {
            TransactionState::Empty => "Empty",
            TransactionState::Ongoing => "Ongoing",
            TransactionState::PrepareCommit => "PrepareCommit",
            TransactionState::PrepareAbort => "PrepareAbort",
            TransactionState::CompleteCommit => "CompleteCommit",
            TransactionState::CompleteAbort => "CompleteAbort",
            TransactionState::Dead => "Dead",
            TransactionState::PrepareEpochFence => "PrepareEpochFence",
        }
    }

    /// The state with this name.
    pub fn from_name(name: &str) -> Option<TransactionState> {
        TransactionState::ALL.into_iter().find(|state| state.name() == name)
    }

    /// True if a transaction is decided and not yet complete.
    pub fn is_prepared(self) -> bool {
        matches!(self, TransactionState::PrepareCommit | TransactionState::PrepareAbort)
    }

    /// True if the id has no transaction and may expire.
    pub fn is_idle(self) -> bool {
        matches!(
            self,
            TransactionState::Empty | TransactionState::CompleteCommit | TransactionState::CompleteAbort
        )
    }
}

#[cfg(test)]
mod tests {
    use super::TransactionState;

    #[test]
    fn numbers_and_names_go_both_ways() {
        for (number, state) in (0..).zip(TransactionState::ALL) {
            assert_eq!(state.id(), number);
            assert_eq!(TransactionState::from_id(number), Some(state));
            assert_eq!(TransactionState::from_name(state.name()), Some(state));
        }
        assert_eq!(TransactionState::from_id(8), None);
        assert_eq!(TransactionState::from_id(-1), None);
        assert_eq!(TransactionState::from_name("ongoing"), None);
    }
}
