//! The states of a transactional id, with the numbers and names that Kafka gives them.

/// The state of a transactional id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TransactionState {
    /// It has a producer, and no transaction since.
    Empty,
    /// Partitions were added to a transaction.
    Ongoing,
    /// It is decided that the transaction commits.
    PrepareCommit,
    /// It is decided that the transaction aborts.
    PrepareAbort,
    /// All partitions have the commit.
    CompleteCommit,
    /// All partitions have the abort.
    CompleteAbort,
    /// The id is about to be forgotten.
    Dead,
    /// Another producer takes over the id, and the transaction of the previous one will be aborted.
    PrepareEpochFence,
}

impl TransactionState {
    /// All of them, by their numbers.
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

    /// The number in the log.
    pub fn id(self) -> i8 {
        self as i8
    }

    /// The state with this number.
    pub fn from_id(id: i8) -> Option<TransactionState> {
        TransactionState::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// Its name for users.
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

    /// The state that users call so.
    pub fn from_name(name: &str) -> Option<TransactionState> {
        TransactionState::ALL.into_iter().find(|state| state.name() == name)
    }

    /// True if a transaction is decided and has not ended everywhere.
    pub fn is_prepared(self) -> bool {
        matches!(self, TransactionState::PrepareCommit | TransactionState::PrepareAbort)
    }

    /// True if there is no transaction, so that the id may expire.
    pub fn is_idle(self) -> bool {
        matches!(
            self,
            TransactionState::Empty | TransactionState::CompleteCommit | TransactionState::CompleteAbort
        )
    }
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its writes count.
    Commit,
    /// Its writes are discarded.
    Abort,
}

impl Outcome {
    /// The state in which it is decided.
    pub fn prepared(self) -> TransactionState {
        match self {
            Outcome::Commit => TransactionState::PrepareCommit,
            Outcome::Abort => TransactionState::PrepareAbort,
        }
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
