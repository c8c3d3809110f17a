//! Brokers, by number.

use std::fmt;

/// The node id of a broker: of a replica, of a leader, of this node in its role as a broker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrokerId(pub i32);

impl BrokerId {
    /// No broker: the leader of a partition that has none.
    pub const NONE: BrokerId = BrokerId(-1);

    /// A list as messages and records have it.
    pub fn list(ids: &[i32]) -> Vec<BrokerId> {
        ids.iter().copied().map(BrokerId).collect()
    }

    /// A list for messages and records.
    pub fn numbers(ids: &[BrokerId]) -> Vec<i32> {
        ids.iter().map(|id| id.0).collect()
    }
}

impl fmt::Display for BrokerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number too: messages and log lines show lists of replicas.
impl fmt::Debug for BrokerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
