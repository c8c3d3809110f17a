//! The identity of an idempotent or transactional producer, and the arithmetic of its sequence numbers.

use std::fmt;

/// The sequence of a batch that belongs to no idempotent producer.
pub const NO_SEQUENCE: i32 = -1;

/// The id of an idempotent producer, assigned by the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProducerId(pub i64);

impl ProducerId {
    /// No producer id: the batch is not idempotent.
    pub const NONE: ProducerId = ProducerId(-1);

    /// True if the id names a producer (Kafka's `hasProducerId`).
    pub fn is_some(self) -> bool {
        self.0 > Self::NONE.0
    }
}

impl fmt::Display for ProducerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The incarnation of a producer id; a higher epoch fences lower epochs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProducerEpoch(pub i16);

impl ProducerEpoch {
    /// No epoch: the batch is not idempotent.
    pub const NONE: ProducerEpoch = ProducerEpoch(-1);
}

impl fmt::Display for ProducerEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `sequence + increment`, where 0 follows 2^31 - 1. Only for nonnegative numbers; the result for negative
/// numbers is arbitrary.
pub fn increment_sequence(sequence: i32, increment: i32) -> i32 {
    match sequence.checked_add(increment) {
        Some(sum) => sum,
        None => sequence.wrapping_add(increment) & i32::MAX,
    }
}

/// `sequence - decrement`, where 2^31 - 1 precedes 0. Only for nonnegative numbers.
pub fn decrement_sequence(sequence: i32, decrement: i32) -> i32 {
    if sequence >= decrement {
        sequence.wrapping_sub(decrement)
    } else {
        sequence.wrapping_sub(decrement) & i32::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_wrap_after_the_largest_i32() {
        assert_eq!(increment_sequence(5, 3), 8);
        assert_eq!(increment_sequence(i32::MAX, 0), i32::MAX);
        assert_eq!(increment_sequence(i32::MAX, 1), 0);
        assert_eq!(increment_sequence(i32::MAX - 1, 4), 2);
        assert_eq!(decrement_sequence(2, 4), i32::MAX - 1);
        assert_eq!(decrement_sequence(0, 1), i32::MAX);
        assert_eq!(decrement_sequence(8, 3), 5);
    }
}
