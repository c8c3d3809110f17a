//! The shape of a producer's transactions. Owns: size, partition and outcome. Refuses: producing.

use crate::chance::Chance;

/// The kind of a producer's transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Several batches in any partitions; one transaction in four is aborted.
    Usual,
    /// One batch in the first partition; two transactions in three are aborted. A follower that was away for
    /// a second fetches many of them at once, some of them overlapping.
    Hasty,
}

impl Pace {
    /// Number of batches of a transaction.
    pub(crate) fn batches(self, chance: &mut Chance) -> u64 {
        match self {
            Pace::Usual => chance.between(1, 4),
            Pace::Hasty => 1,
        }
    }

    /// The partition of a batch.
    pub(crate) fn partition(self, partitions: i32, chance: &mut Chance) -> i32 {
        match self {
            Pace::Usual => i32::try_from(chance.below(partitions.unsigned_abs().into())).unwrap_or(0),
            Pace::Hasty => 0,
        }
    }

    /// True if a transaction is committed.
    pub(crate) fn commits(self, chance: &mut Chance) -> bool {
        match self {
            Pace::Usual => !chance.one_in(4),
            Pace::Hasty => chance.one_in(3),
        }
    }
}
