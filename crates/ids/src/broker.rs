//! Broker ids.

use std::fmt;

/// The node id of a broker, also as a replica or leader.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrokerId(pub i32);

impl BrokerId {
    /// No broker, as the leader of a partition without a leader.
    pub const NONE: BrokerId = BrokerId(-1);

    /// Ids from the numbers in messages and records.
    pub fn list(ids: &[i32]) -> Vec<BrokerId> {
        ids.iter().copied().map(BrokerId).collect()
    }

    /// Numbers for messages and records.
    pub fn numbers(ids: &[BrokerId]) -> Vec<i32> {
        ids.iter().map(|id| id.0).collect()
    }
}

impl fmt::Display for BrokerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Formats as a plain number, because messages and log lines show lists of replicas.
impl fmt::Debug for BrokerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
