//! Checks verified records: tracks the records a consumer has seen, and compares them with the sent ones.
//!
//! Sequences are bits in pages, and a full page takes a single word, so that a billion records in any order
//! fit into memory. The common case, the next sequence of the same producer, costs a few instructions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use thalweg_client::TopicPartition;

use super::SeenRecords;
use super::stamp::{Damage, ExpectedValues, Stamp};

/// Sequences in a page.
const PAGE: u64 = 1 << 16;
const WORDS: usize = (PAGE / 64) as usize;
/// Maximum sequence; larger ones count as damage, because their page table would not fit.
const SEQUENCE_MAX: u64 = 1 << 38;
/// Maximum producer number; larger ones count as damage.
const PRODUCERS_MAX: u32 = 1 << 16;
/// The producer number for records without a stamp of this run.
pub(crate) const FOREIGN: u32 = u32::MAX;

/// A set of sequences.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    pages: Vec<Page>,
}

#[derive(Clone, Debug, Default)]
enum Page {
    #[default]
    Empty,
    Some {
        bits: Box<[u64; WORDS]>,
        count: u32,
    },
    Full,
}

impl Sequences {
    /// Adds a sequence; false if it was present.
    #[inline]
    pub(crate) fn insert(&mut self, sequence: u64) -> bool {
        let (at, bit) = ((sequence / PAGE) as usize, sequence % PAGE);
        if at >= self.pages.len() {
            self.pages.resize_with(at + 1, Page::default);
        }
        let page = &mut self.pages[at];
        if matches!(page, Page::Empty) {
            *page = Page::Some { bits: Box::new([0; WORDS]), count: 0 };
        }
        let Page::Some { bits, count } = page else { return false };
        let (word, mask) = (&mut bits[(bit / 64) as usize], 1 << (bit % 64));
        if *word & mask != 0 {
            return false;
        }
        *word |= mask;
        *count += 1;
        if u64::from(*count) == PAGE {
            *page = Page::Full;
        }
        true
    }

    /// Adds another set; returns the size of the intersection.
    pub(crate) fn merge(&mut self, other: &Sequences) -> u64 {
        if self.pages.len() < other.pages.len() {
            self.pages.resize_with(other.pages.len(), Page::default);
        }
        self.pages.iter_mut().zip(&other.pages).map(|(page, other)| page.merge(other)).sum()
    }

    /// The set's ranges with exclusive ends, sorted and disjoint.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let mut add = |begin: u64, end: u64| match ranges.last_mut() {
            Some(last) if last.1 == begin => last.1 = end,
            _ => ranges.push((begin, end)),
        };
        for (at, page) in self.pages.iter().enumerate() {
            let base = at as u64 * PAGE;
            match page {
                Page::Empty => {}
                Page::Full => add(base, base + PAGE),
                Page::Some { bits, .. } => {
                    for (word_at, &word) in bits.iter().enumerate() {
                        let (mut word, mut base) = (word, base + word_at as u64 * 64);
                        while word != 0 {
                            let skip = word.trailing_zeros();
                            word >>= skip;
                            base += u64::from(skip);
                            let run = word.trailing_ones();
                            add(base, base + u64::from(run));
                            word = word.checked_shr(run).unwrap_or(0);
                            base += u64::from(run);
                        }
                    }
                }
            }
        }
        ranges
    }
}

impl Page {
    fn count(&self) -> u64 {
        match self {
            Page::Empty => 0,
            Page::Some { count, .. } => u64::from(*count),
            Page::Full => PAGE,
        }
    }

    /// Adds another page; returns the size of the intersection.
    fn merge(&mut self, other: &Page) -> u64 {
        match (&mut *self, other) {
            (_, Page::Empty) => 0,
            (Page::Empty, other) => {
                *self = other.clone();
                0
            }
            (Page::Full, other) => other.count(),
            (mine, Page::Full) => {
                let twice = mine.count();
                *self = Page::Full;
                twice
            }
            (Page::Some { bits, count }, Page::Some { bits: others, .. }) => {
                let mut twice = 0;
                for (word, other) in bits.iter_mut().zip(others.iter()) {
                    twice += (*word & other).count_ones();
                    *count += (other & !*word).count_ones();
                    *word |= other;
                }
                if u64::from(*count) == PAGE {
                    *self = Page::Full;
                }
                u64::from(twice)
            }
        }
    }
}

/// Checks records, and remembers them.
#[derive(Debug)]
pub(crate) struct Checker {
    stamped: Arc<ExpectedValues>,
    producers: HashMap<u32, usize>,
    seen: Vec<OfProducer>,
    /// The producer of the last record, and the index of that producer.
    last: Option<(u32, usize)>,
    partitions: HashMap<TopicPartition, usize>,
    partition: usize,
    foreign: u64,
    read: u64,
}

#[derive(Debug, Default)]
struct OfProducer {
    number: u32,
    sequences: Sequences,
    duplicates: u64,
    reordered: u64,
    damaged: u64,
    /// The highest sequence plus one, by partition.
    next: Vec<u64>,
}

impl Checker {
    /// An empty checker.
    pub(crate) fn new(stamped: Arc<ExpectedValues>) -> Checker {
        Checker {
            stamped,
            producers: HashMap::new(),
            seen: Vec::new(),
            last: None,
            partitions: HashMap::new(),
            partition: 0,
            foreign: 0,
            read: 0,
        }
    }

    /// Sets the partition of the following values.
    pub(crate) fn enter(&mut self, at: &TopicPartition) {
        let next = self.partitions.len();
        self.partition = match self.partitions.get(at) {
            Some(&known) => known,
            None => {
                self.partitions.insert(at.clone(), next);
                next
            }
        };
    }

    /// Checks a value. Returns its intended time, if known.
    #[inline]
    pub(crate) fn see(&mut self, value: &[u8]) -> Option<u64> {
        self.read += 1;
        match self.stamped.check(value) {
            Ok(stamp) if possible(&stamp) => {
                self.count(&stamp, false);
                Some(stamp.intended_us)
            }
            Err(Damage::Content(stamp)) if possible(&stamp) => {
                self.count(&stamp, true);
                None
            }
            Ok(_) | Err(_) => {
                self.foreign += 1;
                None
            }
        }
    }

    #[inline]
    fn count(&mut self, stamp: &Stamp, damaged: bool) {
        let at = match self.last {
            Some((producer, at)) if producer == stamp.producer => at,
            _ => self.find(stamp.producer),
        };
        let of = &mut self.seen[at];
        of.damaged += u64::from(damaged);
        if of.next.len() <= self.partition {
            of.next.resize(self.partition + 1, 0);
        }
        let next = &mut of.next[self.partition];
        if !of.sequences.insert(stamp.sequence) {
            of.duplicates += 1;
        } else if stamp.sequence < *next {
            of.reordered += 1;
        }
        *next = (*next).max(stamp.sequence + 1);
    }

    #[cold]
    fn find(&mut self, producer: u32) -> usize {
        let next = self.seen.len();
        let at = *self.producers.entry(producer).or_insert(next);
        if at == next {
            self.seen.push(OfProducer { number: producer, ..OfProducer::default() });
        }
        self.last = Some((producer, at));
        at
    }

    /// Number of checked records.
    pub(crate) fn read(&self) -> u64 {
        self.read
    }

    /// Combines all checkers; records seen by two of them are duplicates.
    pub(crate) fn seen(all: Vec<Checker>) -> Vec<SeenRecords> {
        let mut together: BTreeMap<u32, OfProducer> = BTreeMap::new();
        let mut foreign = 0;
        for checker in all {
            foreign += checker.foreign;
            for of in checker.seen {
                match together.entry(of.number) {
                    std::collections::btree_map::Entry::Vacant(entry) => {
                        entry.insert(of);
                    }
                    std::collections::btree_map::Entry::Occupied(entry) => {
                        let sum = entry.into_mut();
                        sum.duplicates += of.duplicates + sum.sequences.merge(&of.sequences);
                        sum.reordered += of.reordered;
                        sum.damaged += of.damaged;
                    }
                }
            }
        }
        let mut seen: Vec<SeenRecords> = together
            .into_values()
            .map(|of| SeenRecords {
                producer: of.number,
                ranges: of.sequences.ranges(),
                duplicates: of.duplicates,
                reordered: of.reordered,
                damaged: of.damaged,
            })
            .collect();
        if foreign > 0 {
            seen.push(SeenRecords { producer: FOREIGN, damaged: foreign, ..SeenRecords::default() });
        }
        seen
    }
}

fn possible(stamp: &Stamp) -> bool {
    stamp.sequence < SEQUENCE_MAX && stamp.producer < PRODUCERS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Pool;
    use crate::worker::stamp::magic;
    use crate::workload::{Payload, RecordSpec};
    use rand::rngs::SmallRng;
    use rand::seq::SliceRandom;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeSet;

    const SPEC: RecordSpec = RecordSpec { size_bytes: 40, payload: Payload::Random, keys: None };

    #[test]
    fn sequences_in_any_order_become_ranges() {
        let seed = 11;
        let mut random = SmallRng::seed_from_u64(seed);
        let mut model: BTreeSet<u64> = (PAGE - 70..PAGE + 70).collect();
        model.extend((0..2000).map(|_| random.random_range(0..3 * PAGE)));
        model.extend(4 * PAGE..5 * PAGE);
        let mut order: Vec<u64> = model.iter().copied().collect();
        order.shuffle(&mut random);
        let mut sequences = Sequences::default();
        assert!(order.iter().all(|&sequence| sequences.insert(sequence)), "seed {seed}");
        assert!(order.iter().all(|&sequence| !sequences.insert(sequence)), "seed {seed}");
        assert!(matches!(sequences.pages[4], Page::Full));
        let ranges = sequences.ranges();
        let all: Vec<u64> = ranges.iter().flat_map(|&(begin, end)| begin..end).collect();
        assert_eq!(all, model.iter().copied().collect::<Vec<u64>>(), "seed {seed}");
        assert!(ranges.windows(2).all(|two| two[0].1 < two[1].0), "seed {seed}: apart from each other");
        let mut other = Sequences::default();
        assert_eq!(other.merge(&sequences), 0);
        assert_eq!(other.merge(&sequences), model.len() as u64);
        let halves: [Sequences; 2] = std::array::from_fn(|half| {
            let mut part = Sequences::default();
            model.iter().filter(|&&at| at < 100 || at % 2 == half as u64).for_each(|&at| {
                part.insert(at);
            });
            part
        });
        let [mut even, odd] = halves;
        let both = model.iter().filter(|&&at| at < 100).count() as u64;
        assert_eq!(even.merge(&odd), both, "seed {seed}");
        assert_eq!(even.ranges(), ranges, "seed {seed}");
        assert!(matches!(even.pages[4], Page::Full));
    }

    fn see(checker: &mut Checker, producer: u32, sequence: u64) -> Option<u64> {
        let mut value = Pool::new(&SPEC, 9).expect("made").value(sequence).to_vec();
        Stamp { magic: magic(9), producer, sequence, intended_us: 1000 + sequence }.write(&mut value);
        checker.see(&value)
    }

    #[test]
    fn duplicates_order_and_damage_are_distinguished() {
        let stamped = Arc::new(ExpectedValues::new(&SPEC, 9).expect("made"));
        let mut checker = Checker::new(Arc::clone(&stamped));
        let (zero, one) = (TopicPartition::new("t", 0), TopicPartition::new("t", 1));
        checker.enter(&zero);
        for sequence in [0, 2, 4] {
            assert_eq!(see(&mut checker, 7, sequence), Some(1000 + sequence));
        }
        // Partitions are ordered independently.
        checker.enter(&one);
        for sequence in [1, 5] {
            see(&mut checker, 7, sequence);
        }
        checker.enter(&zero);
        see(&mut checker, 7, 3); // behind 4
        see(&mut checker, 7, 2); // again
        see(&mut checker, 8, 0);
        let mut damaged = Pool::new(&SPEC, 9).expect("made").value(6).to_vec();
        Stamp { magic: magic(9), producer: 7, sequence: 6, intended_us: 0 }.write(&mut damaged);
        damaged[30] ^= 1;
        assert_eq!(checker.see(&damaged), None);
        assert_eq!(checker.see(b"not of this run"), None);
        assert_eq!(see(&mut checker, PRODUCERS_MAX, 0), None);
        assert_eq!(checker.read(), 11);
        let seen = Checker::seen(vec![checker]);
        let of_seven =
            SeenRecords { producer: 7, ranges: vec![(0, 7)], duplicates: 1, reordered: 1, damaged: 1 };
        let of_eight = SeenRecords { producer: 8, ranges: vec![(0, 1)], ..SeenRecords::default() };
        let foreign = SeenRecords { producer: FOREIGN, damaged: 2, ..SeenRecords::default() };
        assert_eq!(seen, [of_seven, of_eight, foreign]);
    }

    #[test]
    fn records_seen_by_two_consumers_are_duplicates() {
        let stamped = Arc::new(ExpectedValues::new(&SPEC, 9).expect("made"));
        let checkers = [0..6, 4..9].map(|range| {
            let mut checker = Checker::new(Arc::clone(&stamped));
            checker.enter(&TopicPartition::new("t", 0));
            for sequence in range {
                see(&mut checker, 1, sequence);
            }
            checker
        });
        let seen = Checker::seen(checkers.into());
        assert_eq!(
            seen,
            [SeenRecords { producer: 1, ranges: vec![(0, 9)], duplicates: 2, ..SeenRecords::default() }]
        );
    }
}
