//! Maps messages to records, as runs of messages with consecutive records of a partition. A run gives the
//! offset of each message, and the exact offsets of a commit. Pure.

use std::collections::{BTreeMap, VecDeque};

use thalweg_client::{CommittedOffset, TopicPartition};
use thalweg_record::Offset;

/// The next offset of each partition.
pub type Offsets = BTreeMap<TopicPartition, CommittedOffset>;

/// Messages with consecutive records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub at: TopicPartition,
    /// The source's generation when the records were read.
    pub generation: u64,
    /// The sequence of the first message.
    pub sequence: u64,
    /// The offset of the first message's record.
    offset: i64,
    count: u64,
}

impl Run {
    /// The sequence of the last message.
    pub fn last_sequence(&self) -> u64 {
        self.sequence + self.count - 1
    }

    /// The offset after the record of a message.
    fn behind(&self, sequence: u64) -> i64 {
        self.offset + (sequence - self.sequence) as i64 + 1
    }
}

/// Runs in message order.
#[derive(Debug, Default)]
pub struct Runs(VecDeque<Run>);

impl Runs {
    /// Adds the next message.
    pub fn add(&mut self, at: &TopicPartition, offset: i64, generation: u64, sequence: u64) {
        if let Some(last) = self.0.back_mut()
            && last.at == *at
            && last.generation == generation
            && last.behind(last.last_sequence()) == offset
        {
            last.count += 1;
            return;
        }
        self.0.push_back(Run { at: at.clone(), generation, sequence, offset, count: 1 });
    }

    /// Appends later runs.
    pub fn append(&mut self, mut others: Runs) {
        self.0.append(&mut others.0);
    }

    /// Keeps the runs for which `keep` is true; returns the others.
    pub fn split_off(&mut self, mut keep: impl FnMut(&Run) -> bool) -> Vec<Run> {
        let (kept, left) = std::mem::take(&mut self.0).into_iter().partition(|run| keep(run));
        self.0 = kept;
        Vec::from(left)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Run> {
        self.0.iter()
    }

    /// True if there are no runs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes and returns the newest messages.
    pub fn take_since(&mut self, sequence: u64) -> Runs {
        let from = self.0.partition_point(|run| run.sequence < sequence);
        Runs(self.0.split_off(from))
    }

    /// Removes and returns messages up to a sequence.
    pub fn take_through(&mut self, through: u64) -> Runs {
        let mut taken = VecDeque::new();
        while let Some(first) = self.0.front_mut().filter(|first| first.sequence <= through) {
            if first.last_sequence() <= through {
                taken.extend(self.0.pop_front());
                continue;
            }
            let count = through - first.sequence + 1;
            let part = Run { count, ..first.clone() };
            (first.offset, first.sequence) = (part.behind(through), through + 1);
            first.count -= count;
            taken.push_back(part);
        }
        Runs(taken)
    }

    /// The next offset of each partition. If records were read twice, the later reading counts.
    pub fn offsets(&self) -> Offsets {
        let next = |run: &Run| CommittedOffset::new(Offset(run.behind(run.last_sequence())));
        self.0.iter().map(|run| (run.at.clone(), next(run))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(records: &[(&str, i32, i64)]) -> Runs {
        let mut runs = Runs::default();
        for (sequence, (topic, partition, offset)) in (0..).zip(records) {
            runs.add(&TopicPartition::new(*topic, *partition), *offset, 0, sequence);
        }
        runs
    }

    fn listed(offsets: &Offsets) -> Vec<(&str, i32, i64)> {
        offsets.iter().map(|(at, next)| (&*at.topic, at.partition, next.offset.0)).collect()
    }

    #[test]
    fn what_has_arrived_is_known_to_the_message() {
        // Offset 12 is a transaction marker.
        let mut runs = runs(&[("a", 0, 10), ("a", 0, 11), ("a", 0, 13), ("b", 0, 4), ("a", 0, 14)]);
        assert_eq!(runs.iter().count(), 4);
        assert_eq!(listed(&runs.take_through(0).offsets()), [("a", 0, 11)]);
        assert_eq!(listed(&runs.take_through(0).offsets()), []);
        assert_eq!(listed(&runs.take_through(3).offsets()), [("a", 0, 14), ("b", 0, 5)]);
        assert_eq!(listed(&runs.take_through(u64::MAX).offsets()), [("a", 0, 15)]);
        assert!(runs.is_empty());
    }

    #[test]
    fn generations_are_kept_apart() {
        let mut runs = Runs::default();
        let at = TopicPartition::new("a", 0);
        runs.add(&at, 5, 0, 0);
        runs.add(&at, 6, 0, 1);
        runs.add(&at, 7, 1, 2);
        assert_eq!(runs.iter().count(), 2);
        let void = runs.split_off(|run| run.generation == 1);
        assert_eq!(void.iter().map(Run::last_sequence).collect::<Vec<_>>(), [1]);
        assert_eq!(listed(&runs.offsets()), [("a", 0, 8)]);
        let mut more = Runs::default();
        more.add(&at, 8, 1, 3);
        runs.append(more);
        assert_eq!(listed(&runs.take_since(3).offsets()), [("a", 0, 9)]);
        assert_eq!(listed(&runs.offsets()), [("a", 0, 8)]);
    }
}
