//! Epochs of the registrations of brokers and partitions.

use std::fmt;

/// The epoch of a broker's registration: the offset in the metadata log at which it registered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BrokerEpoch(pub i64);

impl BrokerEpoch {
    /// An unknown epoch, which disables checks in requests that allow it.
    pub const UNKNOWN: BrokerEpoch = BrokerEpoch(-1);
}

impl fmt::Display for BrokerEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The epoch of a partition's registration, incremented by each change of the registration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartitionEpoch(pub i32);

impl fmt::Display for PartitionEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
