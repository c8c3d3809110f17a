//! The ends of partitions behind their last message: markers of transactions and aborted records are read,
//! but no message acknowledges them. Without a commit behind them, the lag of the group would never reach 0.
//! Pure.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_client::{CommittedOffset, TopicPartition};
use thalweg_record::Offset;

use super::runs::Offsets;

/// The position in a partition.
#[derive(Clone, Copy)]
struct Tail {
    /// The offset behind the last message, or the start if there was none.
    messages_end: i64,
    /// The offset from which the partition is read on.
    next: i64,
    /// The committed offset; that of the start counts.
    committed: i64,
}

/// The tails, as the reader and the stream share them.
#[derive(Clone, Default)]
pub struct SharedSkippedRecords(Arc<Mutex<SkippedRecords>>);

impl SharedSkippedRecords {
    pub fn lock(&self) -> MutexGuard<'_, SkippedRecords> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tails of the assigned partitions.
#[derive(Default)]
pub struct SkippedRecords {
    tails: BTreeMap<TopicPartition, Tail>,
    /// True if a commit can move behind skipped records.
    is_due: bool,
}

impl SkippedRecords {
    /// Adds records that were read: from `start` to `next`, with the last message, if any, at an offset.
    pub fn read(&mut self, at: &TopicPartition, start: Offset, last: Option<i64>, next: Offset) {
        let begin = Tail { messages_end: start.0, next: start.0, committed: start.0 };
        let tail = self.tails.entry(at.clone()).or_insert(begin);
        // The records are read again, or others: the topic was made again, or its end was lost.
        if start.0 < tail.next {
            *tail = begin;
        }
        if let Some(last) = last {
            tail.messages_end = last + 1;
        }
        tail.next = next.0;
        self.is_due |= tail.is_due();
    }

    /// Changes the offsets of a commit: all messages of a partition are behind the skipped records, too.
    pub fn commit(&mut self, offsets: &mut Offsets) {
        for (at, offset) in offsets {
            let Some(tail) = self.tails.get_mut(at) else { continue };
            // The offset is of an earlier reading.
            if offset.offset.0 > tail.next {
                continue;
            }
            if offset.offset.0 == tail.messages_end {
                *offset = CommittedOffset::new(Offset(tail.next));
            }
            tail.committed = offset.offset.0;
        }
    }

    /// True if [`SkippedRecords::take`] has offsets.
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    /// The offsets of a commit behind skipped records of partitions whose messages are all committed.
    pub fn take(&mut self) -> Offsets {
        self.is_due = false;
        let due = self.tails.iter_mut().filter(|(_, tail)| tail.is_due());
        due.map(|(at, tail)| {
            tail.committed = tail.next;
            (at.clone(), CommittedOffset::new(Offset(tail.next)))
        })
        .collect()
    }

    /// Forgets all partitions, which are read again from their committed offsets.
    pub fn forget_all(&mut self) {
        *self = SkippedRecords::default();
    }

    /// Forgets partitions that other members read.
    pub fn forget(&mut self, partitions: &[TopicPartition]) {
        self.tails.retain(|at, _| !partitions.contains(at));
    }
}

impl Tail {
    fn is_due(&self) -> bool {
        self.messages_end <= self.committed && self.committed < self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(at: &TopicPartition, offset: i64) -> Offsets {
        [(at.clone(), CommittedOffset::new(Offset(offset)))].into()
    }

    #[test]
    fn a_marker_is_committed_with_the_message_before_it_or_later() {
        let at = TopicPartition::new("t", 0);
        let mut skipped = SkippedRecords::default();
        // Messages 5 to 8, and a marker.
        skipped.read(&at, Offset(5), Some(8), Offset(10));
        assert!(!skipped.is_due(), "the messages are not acknowledged");
        let mut some = offsets(&at, 7);
        skipped.commit(&mut some);
        assert_eq!(some, offsets(&at, 7));
        let mut all = offsets(&at, 9);
        skipped.commit(&mut all);
        assert_eq!((all, skipped.is_due()), (offsets(&at, 10), false));
        // A marker alone, then a message that is not acknowledged before its marker comes.
        skipped.read(&at, Offset(10), None, Offset(11));
        assert!(skipped.is_due());
        assert_eq!((skipped.take(), skipped.take()), (offsets(&at, 11), Offsets::new()));
        skipped.read(&at, Offset(11), Some(11), Offset(12));
        skipped.read(&at, Offset(12), None, Offset(13));
        assert!(!skipped.is_due() && skipped.take().is_empty());
        let mut all = offsets(&at, 12);
        skipped.commit(&mut all);
        assert_eq!(all, offsets(&at, 13));
    }

    #[test]
    fn records_that_are_read_again_are_not_acknowledged_yet() {
        let at = TopicPartition::new("t", 0);
        let mut skipped = SkippedRecords::default();
        skipped.read(&at, Offset(0), Some(99), Offset(100));
        skipped.commit(&mut offsets(&at, 100));
        // The topic was made again, and no message is acknowledged.
        skipped.read(&at, Offset(0), Some(99), Offset(100));
        skipped.read(&at, Offset(100), None, Offset(101));
        assert!(!skipped.is_due() && skipped.take().is_empty());
        let mut all = offsets(&at, 100);
        skipped.commit(&mut all);
        assert_eq!(all, offsets(&at, 101));
    }

    #[test]
    fn aborted_records_at_the_beginning_are_skipped_and_lost_partitions_forgotten() {
        let (one, other) = (TopicPartition::new("t", 0), TopicPartition::new("t", 1));
        let mut skipped = SkippedRecords::default();
        for at in [&one, &other] {
            skipped.read(at, Offset(0), None, Offset(4));
        }
        skipped.forget(std::slice::from_ref(&one));
        assert_eq!(skipped.take(), offsets(&other, 4));
    }
}
