//! The merge of an ordered search: the first matches of all partitions, newest or oldest first. Pure.
//!
//! Messages of a partition keep the order of their offsets. Across partitions, timestamps decide: the rank of
//! a message is its timestamp, and at least the rank of the message before it in the answer's direction. A
//! partition is read on while its next record may rank before the last message of the answer, so that a
//! partition without matches is read only as far as the time of the answer reaches.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use thalweg_record::Offset;

use crate::message::Message;
use crate::query::Limits;

/// The matches of an ordered search. Messages that are last in the order give way to earlier ones.
#[derive(Debug)]
pub struct Merge {
    is_newest_first: bool,
    limit: usize,
    bytes_max: u64,
    count: usize,
    bytes: u64,
    /// True if a limit dropped matches.
    has_dropped: bool,
    /// The lowest rank that the byte limit dropped. Later ranks are not in the answer.
    cut: Option<i64>,
    partitions: BTreeMap<i32, MergedPartition>,
    /// The rank of the last kept message of each partition.
    last: BTreeSet<(i64, i32)>,
}

#[derive(Debug)]
struct MergedPartition {
    /// Kept messages with their ranks, in the order of the answer.
    kept: VecDeque<(i64, Message)>,
    /// The greatest rank of the scanned records.
    rank: i64,
    /// True if messages of the partition were dropped: the rest of the partition is not in the answer.
    is_closed: bool,
    /// The offset of the dropped message that comes first in the order, if it is known.
    dropped: Option<Offset>,
}

/// The place where the answer ends in a partition with dropped messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerEnd {
    /// The offset of the first message behind the answer.
    FirstBehind(Offset),
    /// The offset of the last message in the answer.
    LastWithin(Offset),
    /// No message of the partition is in the answer, and the first match is unknown.
    Nothing,
}

impl Merge {
    /// An empty merge.
    pub fn new(is_newest_first: bool, limits: &Limits) -> Merge {
        Merge {
            is_newest_first,
            limit: limits.matches.unwrap_or(usize::MAX),
            bytes_max: limits.bytes.unwrap_or(u64::MAX),
            count: 0,
            bytes: 0,
            has_dropped: false,
            cut: None,
            partitions: BTreeMap::new(),
            last: BTreeSet::new(),
        }
    }

    /// Adds the next matches of a partition, in the order of the answer, and the timestamp of the last
    /// scanned record in that order. With `is_cut`, bytes limited the matches: later ones were dropped.
    pub fn add(
        &mut self,
        partition: i32,
        matches: impl IntoIterator<Item = Message>,
        scanned: Option<i64>,
        is_cut: bool,
    ) {
        let is_newest_first = self.is_newest_first;
        let rank_of = |timestamp: i64| if is_newest_first { timestamp.saturating_neg() } else { timestamp };
        let merged = self.partitions.entry(partition).or_insert(MergedPartition {
            kept: VecDeque::new(),
            rank: i64::MIN,
            is_closed: false,
            dropped: None,
        });
        if let Some((rank, _)) = merged.kept.back() {
            self.last.remove(&(*rank, partition));
        }
        for message in matches {
            merged.rank = merged.rank.max(rank_of(message.timestamp));
            merged.is_closed |= self.cut.is_some_and(|cut| merged.rank >= cut);
            if merged.is_closed {
                merged.dropped = merged.dropped.or(Some(message.offset));
                self.has_dropped = true;
                break;
            }
            self.count += 1;
            self.bytes += message.size_bytes();
            merged.kept.push_back((merged.rank, message));
        }
        if is_cut {
            (merged.is_closed, self.has_dropped) = (true, true);
            self.cut = Some(self.cut.map_or(merged.rank, |cut| cut.min(merged.rank)));
        }
        if let Some(timestamp) = scanned {
            merged.rank = merged.rank.max(rank_of(timestamp));
        }
        if let Some((rank, _)) = merged.kept.back() {
            self.last.insert((*rank, partition));
        }
        self.prune();
    }

    /// Notes that matches of a partition were dropped before the merge: those behind the matches of the last
    /// [`Merge::add`], which fill the answer.
    pub fn note_dropped(&mut self, partition: i32) {
        self.has_dropped = true;
        if let Some(merged) = self.partitions.get_mut(&partition) {
            merged.is_closed = true;
        }
    }

    /// The place where the answer ends in a partition; none if no message of the partition was dropped, so
    /// that the answer has all scanned matches.
    pub fn end(&self, partition: i32) -> Option<AnswerEnd> {
        let merged = self.partitions.get(&partition).filter(|merged| merged.is_closed)?;
        Some(match (merged.dropped, merged.kept.back()) {
            (Some(offset), _) => AnswerEnd::FirstBehind(offset),
            (None, Some((_, message))) => AnswerEnd::LastWithin(message.offset),
            (None, None) => AnswerEnd::Nothing,
        })
    }

    fn prune(&mut self) {
        let is_behind_cut = |merge: &Merge| {
            let last = merge.last.last().zip(merge.cut);
            last.is_some_and(|((rank, _), cut)| *rank > cut)
        };
        while self.count > self.limit
            || (self.count > 1 && (self.bytes > self.bytes_max || is_behind_cut(self)))
        {
            let Some((rank, partition)) = self.last.pop_last() else { return };
            let Some(merged) = self.partitions.get_mut(&partition) else { return };
            let Some((_, message)) = merged.kept.pop_back() else { return };
            if self.count <= self.limit {
                self.cut = Some(self.cut.map_or(rank, |cut| cut.min(rank)));
            }
            self.count -= 1;
            self.bytes -= message.size_bytes();
            merged.dropped = Some(message.offset);
            (merged.is_closed, self.has_dropped) = (true, true);
            if let Some((rank, _)) = merged.kept.back() {
                self.last.insert((*rank, partition));
            }
        }
    }

    /// The rank that a partition has reached, if its next records may be in the answer.
    pub fn wanted(&self, partition: i32) -> Option<i64> {
        let Some(merged) = self.partitions.get(&partition) else { return Some(i64::MIN) };
        let last = self.last.last().filter(|_| self.count >= self.limit).map(|(rank, _)| *rank);
        let end = [last, self.cut].into_iter().flatten().min();
        (!merged.is_closed && end.is_none_or(|end| merged.rank < end)).then_some(merged.rank)
    }

    /// True if the byte limit dropped matches.
    pub fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// True if a limit dropped matches.
    pub fn has_dropped(&self) -> bool {
        self.has_dropped
    }

    /// Takes the messages, in order.
    pub fn take(&mut self) -> Vec<Message> {
        let mut first: BTreeSet<(i64, i32)> = BTreeSet::new();
        let front = |merged: &MergedPartition| merged.kept.front().map(|(rank, _)| *rank);
        for (partition, merged) in &self.partitions {
            first.extend(front(merged).map(|rank| (rank, *partition)));
        }
        let mut messages = Vec::with_capacity(self.count);
        while let Some((_, partition)) = first.pop_first() {
            let Some(merged) = self.partitions.get_mut(&partition) else { continue };
            messages.extend(merged.kept.pop_front().map(|(_, message)| message));
            first.extend(front(merged).map(|rank| (rank, partition)));
        }
        (self.count, self.bytes) = (0, 0);
        self.last.clear();
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Content;
    use crate::message::tests::message;

    fn limits(matches: usize, bytes: u64) -> Limits {
        Limits { matches: Some(matches), bytes: Some(bytes), ..Limits::default() }
    }

    /// Bytes of each message.
    const SIZE: usize = 10;

    fn at(partition: i32, offset: i64, timestamp: i64) -> Message {
        let value = Some(Content::copy(&[b'v'; SIZE], SIZE));
        Message { partition, timestamp, value, ..message(offset) }
    }

    fn places(merge: &mut Merge) -> Vec<(i32, i64)> {
        merge.take().iter().map(|message| (message.partition, message.offset.0)).collect()
    }

    #[test]
    fn partitions_are_merged_by_timestamp_in_both_directions() {
        for is_newest_first in [false, true] {
            let mut merge = Merge::new(is_newest_first, &limits(5, 1 << 20));
            for partition in 0..3 {
                let messages = (0..4).map(|offset| at(partition, offset, offset * 10 + i64::from(partition)));
                match is_newest_first {
                    true => merge.add(partition, messages.rev(), None, false),
                    false => merge.add(partition, messages, None, false),
                }
            }
            let expected = match is_newest_first {
                true => [(2, 3), (1, 3), (0, 3), (2, 2), (1, 2)],
                false => [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)],
            };
            assert!(merge.has_dropped() && !merge.is_cut());
            let ends = [0, 1, 2].map(|partition| merge.end(partition));
            let first_behind = if is_newest_first { [2, 1, 1] } else { [2, 2, 1] };
            assert_eq!(ends, first_behind.map(|offset| Some(AnswerEnd::FirstBehind(Offset(offset)))));
            assert_eq!(places(&mut merge), expected);
        }
    }

    #[test]
    fn a_partition_is_read_until_its_time_is_beyond_the_answer() {
        let mut merge = Merge::new(true, &limits(2, 1 << 20));
        assert_eq!(merge.wanted(0), Some(i64::MIN));
        merge.add(0, [at(0, 9, 90)], Some(85), false);
        merge.add(1, [], Some(70), false);
        // One of two messages: both go on, the newer one first.
        assert_eq!((merge.wanted(0), merge.wanted(1)), (Some(-85), Some(-70)));
        merge.add(0, [at(0, 7, 60)], Some(60), false);
        // The second message is older than records of partition 1 that were not read.
        assert_eq!((merge.wanted(0), merge.wanted(1)), (None, Some(-70)));
        merge.add(1, [], Some(60), false);
        assert_eq!(merge.wanted(1), None, "it has no newer message");
        assert_eq!(places(&mut merge), [(0, 9), (0, 7)]);
    }

    #[test]
    fn messages_of_a_partition_keep_their_order_whatever_their_timestamps() {
        let mut merge = Merge::new(true, &limits(4, 1 << 20));
        merge.add(0, [at(0, 3, 10), at(0, 2, 500), at(0, 1, 20), at(0, 0, 5)], None, false);
        merge.add(1, [at(1, 0, 15)], None, false);
        assert_eq!(places(&mut merge), [(1, 0), (0, 3), (0, 2), (0, 1)]);
    }

    #[test]
    fn an_answer_ends_behind_its_last_message_or_before_the_first_dropped_one() {
        let behind = |offset| Some(AnswerEnd::FirstBehind(Offset(offset)));
        let mut merge = Merge::new(true, &limits(2, 1 << 20));
        merge.add(0, [at(0, 9, 90), at(0, 8, 80)], Some(70), false);
        assert_eq!((merge.end(0), merge.end(1)), (None, None), "nothing was dropped");
        // The scan has dropped matches behind these two.
        merge.note_dropped(0);
        assert_eq!(merge.end(0), Some(AnswerEnd::LastWithin(Offset(8))));
        merge.add(1, [at(1, 5, 85)], Some(85), false);
        assert_eq!((merge.end(0), merge.end(1)), (behind(8), None));
        merge.add(1, [at(1, 4, 84), at(1, 3, 83)], Some(83), false);
        // Later matches of a closed partition do not move its end.
        merge.add(1, [at(1, 2, 99)], None, false);
        assert_eq!(merge.end(1), behind(4));
        merge.add(2, [], None, true);
        assert_eq!(merge.end(2), Some(AnswerEnd::Nothing));
    }

    #[test]
    fn a_cut_of_one_partition_removes_later_messages_of_the_others() {
        let mut merge = Merge::new(true, &limits(100, 1 << 20));
        merge.add(1, [at(1, 9, 95), at(1, 8, 10)], Some(10), false);
        // Matches of partition 0 before timestamp 80 were dropped.
        merge.add(0, [at(0, 9, 90), at(0, 8, 80)], Some(20), true);
        assert_eq!(merge.end(1), Some(AnswerEnd::FirstBehind(Offset(8))));
        assert!(merge.is_cut() && merge.wanted(1).is_none());
        assert_eq!(places(&mut merge), [(1, 9), (0, 9), (0, 8)]);
    }

    #[test]
    fn bytes_cut_the_answer_at_one_place() {
        let mut merge = Merge::new(true, &limits(100, 3 * SIZE as u64));
        merge.add(0, (0..5).rev().map(|offset| at(0, offset, offset * 10)), None, false);
        assert!(merge.is_cut());
        // The answer ends at timestamp 20: older messages of other partitions are not in it.
        merge.add(1, [at(1, 9, 35), at(1, 8, 15)], Some(15), false);
        assert_eq!((merge.wanted(0), merge.wanted(1)), (None, None));
        let behind = |offset| Some(AnswerEnd::FirstBehind(Offset(offset)));
        assert_eq!((merge.end(0), merge.end(1)), (behind(2), behind(8)));
        assert_eq!(places(&mut merge), [(0, 4), (1, 9), (0, 3)]);
    }
}
