//! Ranges of offsets of one partition, each with a value: for held records, and for acknowledgements. Pure.
//!
//! Records are delivered and acknowledged in runs of neighbours, so ranges are smaller than a set of offsets.

use std::collections::BTreeMap;

/// Ranges without overlaps; both ends are inclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ranges<T>(BTreeMap<i64, (i64, T)>);

impl<T> Default for Ranges<T> {
    fn default() -> Ranges<T> {
        Ranges(BTreeMap::new())
    }
}

impl<T: Copy + PartialEq> Ranges<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All ranges, in offset order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, i64, T)> + '_ {
        self.0.iter().map(|(&first, &(last, value))| (first, last, value))
    }

    /// Sets the value of these offsets, replacing earlier values.
    pub(super) fn insert(&mut self, first: i64, last: i64, value: T) {
        let mut first = first;
        // Usually the offsets follow the last range.
        if self.0.last_key_value().is_some_and(|(_, (end, _))| *end >= first) {
            self.remove(first, last);
        }
        let before = self.0.range(..first).next_back();
        if let Some((&start, &(end, of_before))) = before
            && end.checked_add(1) == Some(first)
            && of_before == value
        {
            first = start;
        }
        self.0.insert(first, (last, value));
    }

    pub(super) fn remove(&mut self, first: i64, last: i64) {
        if let Some((&start, &(end, value))) = self.0.range(..first).next_back()
            && end >= first
        {
            self.0.insert(start, (first - 1, value));
            if end > last {
                self.0.insert(last + 1, (end, value));
            }
        }
        while let Some((&start, &(end, value))) = self.0.range(first..=last).next() {
            self.0.remove(&start);
            if end > last {
                self.0.insert(last + 1, (end, value));
            }
        }
    }

    /// True if all these offsets have a value.
    pub(super) fn covers(&self, first: i64, last: i64) -> bool {
        let mut next = first;
        while next <= last {
            match self.0.range(..=next).next_back() {
                Some((_, &(end, _))) if end >= next => match end.checked_add(1) {
                    Some(after) => next = after,
                    None => return true,
                },
                _ => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ranges: &[(i64, i64, u8)]) -> Ranges<u8> {
        let mut all = Ranges::default();
        for &(first, last, value) in ranges {
            all.insert(first, last, value);
        }
        all
    }

    fn listed(ranges: &Ranges<u8>) -> Vec<(i64, i64, u8)> {
        ranges.iter().collect()
    }

    #[test]
    fn neighbours_of_one_value_are_one_range() {
        let ranges = of(&[(0, 3, 1), (4, 4, 1), (5, 9, 2), (20, 29, 2)]);
        assert_eq!(listed(&ranges), [(0, 4, 1), (5, 9, 2), (20, 29, 2)]);
        assert!(ranges.covers(0, 9) && ranges.covers(3, 7) && ranges.covers(20, 29));
        assert!(!ranges.covers(9, 10) && !ranges.covers(10, 10) && !ranges.covers(5, 20));
    }

    #[test]
    fn a_later_value_replaces_an_earlier_one() {
        let mut ranges = of(&[(0, 9, 1), (4, 5, 2)]);
        assert_eq!(listed(&ranges), [(0, 3, 1), (4, 5, 2), (6, 9, 1)]);
        ranges.insert(2, 7, 3);
        assert_eq!(listed(&ranges), [(0, 1, 1), (2, 7, 3), (8, 9, 1)]);
        ranges.remove(0, 0);
        ranges.remove(5, 100);
        assert_eq!(listed(&ranges), [(1, 1, 1), (2, 4, 3)]);
        ranges.remove(i64::MIN, i64::MAX);
        assert!(ranges.is_empty());
    }
}
