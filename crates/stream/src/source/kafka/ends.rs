//! Which partitions have not come to their ends: to the ends that they had when reading began, so that reading a topic which
//! others write comes to an end. Pure.

use std::collections::BTreeMap;

/// The partitions that have not come to their ends.
#[derive(Debug, Default)]
pub struct Ends {
    /// By partition and topic, the offset behind the last record.
    open: BTreeMap<(i32, String), i64>,
    /// Words of librdkafka that the end of a partition of this number was reached, whatever its topic.
    told: BTreeMap<i32, usize>,
}

impl Ends {
    /// Reading goes from one offset to the end, if there is anything between.
    pub fn add(&mut self, topic: &str, partition: i32, from: i64, end: i64) {
        if from < end {
            self.open.insert((partition, topic.to_owned()), end);
        }
    }

    /// All before this offset was read.
    pub fn read(&mut self, topic: &str, partition: i32, next: i64) {
        let key = (partition, topic.to_owned());
        if self.open.get(&key).is_some_and(|end| next >= *end) {
            self.open.remove(&key);
        }
    }

    /// librdkafka says that the end of a partition of this number was reached. That is asked of partitions whose last offsets
    /// are no records but markers of transactions; it does not say of which topic.
    pub fn told(&mut self, partition: i32) {
        let told = self.told.entry(partition).or_default();
        *told += 1;
        let open = self.open.keys().filter(|(open, _)| *open == partition).count();
        if *told >= open {
            self.open.retain(|(open, _), _| *open != partition);
            *told = 0;
        }
    }

    /// Whether all have come to their ends.
    pub fn are_reached(&self) -> bool {
        self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_grows_does_not_stand_for_others() {
        let mut ends = Ends::default();
        for (topic, partition, from, end) in [("t", 0, 0, 5), ("t", 1, 0, 7), ("t", 2, 3, 3)] {
            ends.add(topic, partition, from, end);
        }
        ends.read("t", 0, 9);
        // It was written meanwhile, and has come to its end three times.
        for _ in 0..3 {
            ends.told(0);
        }
        assert!(!ends.are_reached());
        ends.read("t", 1, 6);
        assert!(!ends.are_reached());
        ends.read("t", 1, 7);
        assert!(ends.are_reached());
    }

    #[test]
    fn markers_at_the_end_are_no_records() {
        let mut ends = Ends::default();
        ends.add("t", 0, 0, 5);
        ends.add("u", 0, 0, 5);
        ends.read("t", 0, 4);
        ends.told(0);
        assert!(!ends.are_reached(), "it may be the end of either");
        ends.told(0);
        assert!(ends.are_reached());
    }
}
