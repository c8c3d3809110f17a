//! Positions in a partition's log: the offset of a record and the epoch of the leader that wrote it.
//!
//! Newtypes, so that an offset or epoch is not swapped with another number of the protocol.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// The position of a record in a partition's log. Offsets of stored records are not negative; requests give
/// negative numbers special meanings (latest -1, earliest -2), which this type does not know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Offset(pub i64);

impl Offset {
    /// The offset of a log's first record.
    pub const ZERO: Offset = Offset(0);
    /// No offset: the base offset of a refused partition in a Produce response.
    pub const NONE: Offset = Offset(-1);
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Add<i64> for Offset {
    type Output = Offset;

    fn add(self, records: i64) -> Offset {
        Offset(self.0 + records)
    }
}

impl AddAssign<i64> for Offset {
    fn add_assign(&mut self, records: i64) {
        self.0 += records;
    }
}

impl Sub<Offset> for Offset {
    type Output = i64;

    fn sub(self, other: Offset) -> i64 {
        self.0 - other.0
    }
}

impl Sub<i64> for Offset {
    type Output = Offset;

    fn sub(self, records: i64) -> Offset {
        Offset(self.0 - records)
    }
}

/// The term of a partition's leader, written into every batch that this leader appends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LeaderEpoch(pub i32);

impl LeaderEpoch {
    /// Unknown epoch: written by producers, and sent by clients without epochs.
    pub const NONE: LeaderEpoch = LeaderEpoch(-1);
}

impl fmt::Display for LeaderEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
