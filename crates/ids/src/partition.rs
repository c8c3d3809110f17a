//! Partitions of a topic, by index.

use crate::Uuid;
use std::fmt;

/// The index of a partition within its topic, from 0. Numbers from requests may be negative or name no
/// partition; a lookup then finds none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionIndex(pub i32);

impl fmt::Display for PartitionIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Formats as a plain number, because messages and log lines show lists of partitions.
impl fmt::Debug for PartitionIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A partition, independent of its topic's name: the topic's id, and the index.
pub type TopicIdPartition = (Uuid, PartitionIndex);
