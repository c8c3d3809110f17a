//! Partitions that have not reached the end offsets of the start, so that reading a growing topic terminates.
//! Pure.

use std::collections::BTreeMap;

use thalweg_client::TopicPartition;
use thalweg_record::Offset;

/// The unfinished partitions, each with its end offset.
#[derive(Debug, Default)]
pub struct Ends(BTreeMap<TopicPartition, Offset>);

impl Ends {
    /// Adds a partition, unless its range is empty.
    pub fn add(&mut self, at: &TopicPartition, from: Offset, end: Offset) {
        if from < end {
            self.0.insert(at.clone(), end);
        }
    }

    /// Marks everything before an offset as read, including transaction markers.
    pub fn read(&mut self, at: &TopicPartition, next: Offset) {
        if self.0.get(at).is_some_and(|end| next >= *end) {
            self.0.remove(at);
        }
    }

    /// True if a partition has not reached its end.
    pub fn has(&self, at: &TopicPartition) -> bool {
        self.0.contains_key(at)
    }

    /// True if all partitions have reached their ends.
    pub fn are_reached(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_grows_does_not_stand_for_others() {
        let mut ends = Ends::default();
        let at = |partition| TopicPartition::new("t", partition);
        for (partition, from, end) in [(0, 0, 5), (1, 0, 7), (2, 3, 3)] {
            ends.add(&at(partition), Offset(from), Offset(end));
        }
        ends.read(&at(0), Offset(9));
        assert!(!ends.are_reached());
        ends.read(&at(1), Offset(6));
        assert!(!ends.are_reached());
        ends.read(&at(1), Offset(7));
        assert!(ends.are_reached());
    }
}
