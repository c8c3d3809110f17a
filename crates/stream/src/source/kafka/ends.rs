//! Which partitions have not come to their ends: to the ends that they had when reading began, so that reading a topic which
//! others write comes to an end. Pure.

use std::collections::BTreeMap;

use thalweg_client::TopicPartition;
use thalweg_record::Offset;

/// The partitions that have not come to their ends, each with the offset behind its last record.
#[derive(Debug, Default)]
pub struct Ends(BTreeMap<TopicPartition, Offset>);

impl Ends {
    /// Reading goes from one offset to the end, if there is anything between.
    pub fn add(&mut self, at: &TopicPartition, from: Offset, end: Offset) {
        if from < end {
            self.0.insert(at.clone(), end);
        }
    }

    /// All before this offset was read, markers of transactions among it.
    pub fn read(&mut self, at: &TopicPartition, next: Offset) {
        if self.0.get(at).is_some_and(|end| next >= *end) {
            self.0.remove(at);
        }
    }

    /// Whether all have come to their ends.
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
