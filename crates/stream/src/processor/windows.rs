//! Open windows, and when windows close. Pure: driven by a watermark.
//!
//! A partition that joins later, as with a rebalance, may be behind the others: the watermark goes back for
//! it. Windows that were closed for the other partitions stay closed for them, by the floor of each.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, TryGetError};

use super::quantiles::Quantiles;
use crate::message::RevocablePartition;

/// Window length and interval, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowShape {
    pub length_ms: i64,
    /// Interval between window starts; equal to the length if windows do not overlap.
    pub slide_ms: i64,
    /// Time for which a window stays open for late messages.
    pub lateness_ms: i64,
}

impl WindowShape {
    /// The starts of the windows that contain a time, oldest first.
    pub fn starts(self, time_ms: i64) -> impl Iterator<Item = i64> {
        let last = time_ms.div_euclid(self.slide_ms).saturating_mul(self.slide_ms);
        let count = (self.length_ms + self.slide_ms - 1) / self.slide_ms;
        let starts = (0..count).rev().map(move |back| last.saturating_sub(back * self.slide_ms));
        starts.filter(move |start| start.saturating_add(self.length_ms) > time_ms)
    }
}

/// The aggregate of a key in a window.
#[derive(Clone, Debug)]
pub struct Sums {
    /// Number of messages.
    pub count: u64,
    /// Sum of the numbers.
    pub sum: f64,
    pub min: f64,
    pub max: f64,
    /// Quantiles, if requested.
    pub quantiles: Option<Quantiles>,
    /// The lowest sequence of the messages.
    pub first_sequence: u64,
    /// True if the aggregate has changed since the last transaction.
    is_changed: bool,
    /// True if the aggregate is an entry of the state.
    is_stored: bool,
}

impl Sums {
    fn new(with_quantiles: bool, sequence: u64) -> Sums {
        Sums {
            count: 0,
            sum: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            quantiles: with_quantiles.then(Quantiles::default),
            first_sequence: sequence,
            is_changed: false,
            is_stored: false,
        }
    }

    /// Writes the aggregate: count, sum, minimum and maximum in eight bytes each, and the quantiles, if any.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.put_u64(self.count);
        [self.sum, self.min, self.max].into_iter().for_each(|number| out.put_f64(number));
        self.quantiles.iter().for_each(|quantiles| quantiles.write(out));
    }

    /// Reads an aggregate of the state as written by [`Sums::write`].
    pub fn read(bytes: &mut impl Buf) -> Result<Sums, TryGetError> {
        let count = bytes.try_get_u64()?;
        let (sum, min, max) = (bytes.try_get_f64()?, bytes.try_get_f64()?, bytes.try_get_f64()?);
        let quantiles = bytes.has_remaining().then(|| Quantiles::read(bytes)).transpose()?;
        Ok(Sums { count, sum, min, max, quantiles, is_stored: true, ..Sums::new(false, u64::MAX) })
    }

    fn merge(&mut self, other: Sums) {
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.first_sequence = self.first_sequence.min(other.first_sequence);
        if let (Some(quantiles), Some(others)) = (&mut self.quantiles, &other.quantiles) {
            quantiles.merge(others);
        }
    }

    /// A quantile, clamped to the exact minimum and maximum.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        self.quantiles.as_ref()?.at(share).map(|value| value.max(self.min).min(self.max))
    }
}

/// A closed window, for one key.
#[derive(Clone, Debug)]
pub struct ClosedWindow {
    /// Start of the window.
    pub start_ms: i64,
    /// Key of the aggregate.
    pub key: Option<Box<[u8]>>,
    /// The key's aggregate in the window.
    pub sums: Sums,
}

/// The reason why a message was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowRejection {
    /// All windows of the message have closed.
    Late,
    /// There are too many keys.
    TooManyKeys,
}

/// The aggregates of one window, by key, and by partition if the source can lose partitions.
type Window = BTreeMap<(Key, Option<RevocablePartition>), Sums>;

/// The key of an aggregate, if it has one.
pub type Key = Option<Box<[u8]>>;

/// An aggregate of a partition in the window with this start.
pub type WindowEntry = (i64, Key, RevocablePartition);

/// The number of keys in a window.
fn keys_of(window: &Window) -> usize {
    let mut last = None;
    window.keys().filter(|(key, _)| last.replace(key) != Some(key)).count()
}

/// The open windows.
#[derive(Debug)]
pub struct Windows {
    shape: WindowShape,
    with_quantiles: bool,
    keys_max: usize,
    open: BTreeMap<i64, Window>,
    keys: usize,
    /// The watermark minus the lateness: windows that end before are closed.
    watermark_ms: i64,
    /// For partitions that joined with the state of their windows: the time up to which their windows are
    /// closed, if the watermark is lower.
    floors: BTreeMap<RevocablePartition, i64>,
    /// Aggregates that have changed or closed since the last transaction, if the state is durable.
    changed: Option<Vec<WindowEntry>>,
}

impl Windows {
    /// An empty set of windows.
    pub fn new(shape: WindowShape, with_quantiles: bool, keys_max: usize, is_durable: bool) -> Windows {
        Windows {
            shape,
            with_quantiles,
            keys_max,
            open: BTreeMap::new(),
            keys: 0,
            watermark_ms: i64::MIN,
            floors: BTreeMap::new(),
            changed: is_durable.then(Vec::new),
        }
    }

    /// True if the state is durable.
    pub fn is_durable(&self) -> bool {
        self.changed.is_some()
    }

    /// The time up to which windows are closed for a partition.
    pub fn closed_ms(&self, from: Option<RevocablePartition>) -> i64 {
        let floor = from.and_then(|from| self.floors.get(&from)).copied().unwrap_or(i64::MIN);
        self.watermark_ms.max(floor)
    }

    /// Adds a partition whose windows are closed up to a time. The watermark begins again.
    pub fn join(&mut self, partition: RevocablePartition, closed_ms: i64) {
        self.floors.values_mut().for_each(|floor| *floor = self.watermark_ms.max(*floor));
        self.floors.insert(partition, closed_ms);
        self.watermark_ms = i64::MIN;
    }

    /// Adds an aggregate of the state, even if there are too many keys.
    pub fn restore(&mut self, (start_ms, key, of): WindowEntry, sums: Sums) {
        if !self.has_key(start_ms, &key) {
            self.keys += 1;
        }
        self.open.entry(start_ms).or_default().insert((key, Some(of)), sums);
    }

    /// True if aggregates have changed since the last call of [`Windows::take_changed`].
    pub fn has_changed(&self) -> bool {
        self.changed.as_ref().is_some_and(|changed| !changed.is_empty())
    }

    /// Takes the aggregates that have changed since the last call; without their sums if they have closed.
    pub fn take_changed(&mut self) -> Vec<(WindowEntry, Option<&Sums>)> {
        let changed = self.changed.as_mut().map(std::mem::take).unwrap_or_default();
        for (start_ms, key, of) in &changed {
            let sums =
                self.open.get_mut(start_ms).and_then(|window| window.get_mut(&(key.clone(), Some(*of))));
            if let Some(sums) = sums {
                (sums.is_changed, sums.is_stored) = (false, true);
            }
        }
        let sums = |(start_ms, key, of): WindowEntry| {
            let sums = self.open.get(&start_ms).and_then(|window| window.get(&(key.clone(), Some(of))));
            ((start_ms, key, of), sums)
        };
        changed.into_iter().map(sums).collect()
    }

    /// Adds a message to its open windows, or to none.
    pub fn add(
        &mut self,
        time_ms: i64,
        key: Option<&[u8]>,
        value: f64,
        sequence: u64,
        from: Option<RevocablePartition>,
    ) -> Result<(), WindowRejection> {
        let (shape, closed_ms) = (self.shape, self.closed_ms(from));
        let is_open = move |start: &i64| start.saturating_add(shape.length_ms) > closed_ms;
        let starts = || shape.starts(time_ms).filter(is_open);
        let count = starts().count();
        if count == 0 {
            return Err(WindowRejection::Late);
        }
        let key: Key = key.map(Into::into);
        if self.keys + count > self.keys_max {
            let added = starts().filter(|start| !self.has_key(*start, &key)).count();
            if self.keys + added > self.keys_max {
                return Err(WindowRejection::TooManyKeys);
            }
        }
        for start in starts() {
            let at = (key.clone(), from);
            let is_known = self.open.get(&start).is_some_and(|window| window.contains_key(&at));
            if !is_known && !self.has_key(start, &key) {
                self.keys += 1;
            }
            let new = || Sums::new(self.with_quantiles, sequence);
            let sums = self.open.entry(start).or_default().entry(at).or_insert_with(new);
            if let (Some(changed), Some(of), false) = (&mut self.changed, from, sums.is_changed) {
                changed.push((start, key.clone(), of));
                sums.is_changed = true;
            }
            sums.count += 1;
            sums.first_sequence = sums.first_sequence.min(sequence);
            sums.sum += value;
            sums.min = sums.min.min(value);
            sums.max = sums.max.max(value);
            sums.quantiles.iter_mut().for_each(|quantiles| quantiles.add(value));
        }
        Ok(())
    }

    fn has_key(&self, start: i64, key: &Key) -> bool {
        let Some(window) = self.open.get(&start) else { return false };
        window.range((key.clone(), None)..).next().is_some_and(|((first, _), _)| first == key)
    }

    /// Drops the sums of partitions whose messages come again.
    pub fn forget(&mut self, is_revoked: impl Fn(RevocablePartition) -> bool) {
        self.floors.retain(|partition, _| !is_revoked(*partition));
        self.changed.iter_mut().for_each(|changed| changed.retain(|(_, _, of)| !is_revoked(*of)));
        self.open.retain(|_, window| {
            window.retain(|(_, from), _| !from.is_some_and(&is_revoked));
            !window.is_empty()
        });
        self.keys = self.open.values().map(keys_of).sum();
    }

    /// Advances the watermark.
    pub fn advance(&mut self, watermark_ms: i64) {
        self.watermark_ms = self.watermark_ms.max(watermark_ms.saturating_sub(self.shape.lateness_ms));
    }

    /// Closes windows, oldest first.
    pub fn close(&mut self) -> Vec<ClosedWindow> {
        let mut closed: Vec<ClosedWindow> = Vec::new();
        while let Some(first) = self.open.first_entry() {
            if first.key().saturating_add(self.shape.length_ms) > self.watermark_ms {
                break;
            }
            let (start_ms, window) = first.remove_entry();
            self.keys -= keys_of(&window);
            for ((key, from), sums) in window {
                if let (Some(changed), Some(of), true) =
                    (&mut self.changed, from, sums.is_stored && !sums.is_changed)
                {
                    changed.push((start_ms, key.clone(), of));
                }
                match closed.last_mut().filter(|last| last.start_ms == start_ms && last.key == key) {
                    Some(last) => last.sums.merge(sums),
                    None => closed.push(ClosedWindow { start_ms, key, sums }),
                }
            }
        }
        closed
    }

    /// Closes all windows at the end of the stream.
    pub fn close_all(&mut self) -> Vec<ClosedWindow> {
        self.watermark_ms = i64::MAX;
        self.close()
    }

    /// True if there are open windows.
    pub fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The lowest sequence in all open windows.
    pub fn first_sequence(&self) -> Option<u64> {
        self.open.values().flat_map(BTreeMap::values).map(|sums| sums.first_sequence).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::SourceId;

    fn listed(closed: Vec<ClosedWindow>) -> Vec<(i64, String, u64, f64)> {
        let key =
            |key: Option<Box<[u8]>>| key.map_or(String::new(), |k| String::from_utf8_lossy(&k).into_owned());
        closed.into_iter().map(|c| (c.start_ms, key(c.key), c.sums.count, c.sums.sum)).collect()
    }

    fn windows(length_ms: i64, slide_ms: i64, lateness_ms: i64) -> Windows {
        Windows::new(WindowShape { length_ms, slide_ms, lateness_ms }, true, 4, false)
    }

    /// Adds a message of a single partition in order.
    fn add(
        windows: &mut Windows,
        time_ms: i64,
        key: Option<&[u8]>,
        value: f64,
        sequence: u64,
    ) -> Result<(), WindowRejection> {
        let added = windows.add(time_ms, key, value, sequence, None);
        windows.advance(time_ms);
        added
    }

    #[test]
    fn a_later_message_closes_a_window_and_each_key_has_its_own_sums() {
        let mut windows = windows(10, 10, 0);
        for (time, key, value) in [(0, "a", 1.0), (9, "b", 2.0), (5, "a", 3.0)] {
            add(&mut windows, time, Some(key.as_bytes()), value, time as u64).expect("it is taken");
        }
        assert_eq!(listed(windows.close()), []);
        assert_eq!((windows.is_open(), windows.first_sequence()), (true, Some(0)));
        add(&mut windows, 10, None, 5.0, 10).expect("it is taken");
        assert_eq!(listed(windows.close()), [(0, "a".to_owned(), 2, 4.0), (0, "b".to_owned(), 1, 2.0)]);
        assert_eq!(listed(windows.close_all()), [(10, String::new(), 1, 5.0)]);
    }

    #[test]
    fn late_messages_are_taken_as_long_as_lateness_allows() {
        let mut windows = windows(10, 10, 5);
        add(&mut windows, 3, None, 1.0, 0).expect("it is taken");
        add(&mut windows, 14, None, 1.0, 1).expect("it is taken");
        add(&mut windows, 4, None, 1.0, 2).expect("the window waits for what is late");
        add(&mut windows, 15, None, 1.0, 3).expect("it is taken");
        assert_eq!(listed(windows.close()), [(0, String::new(), 2, 2.0)]);
        assert_eq!(add(&mut windows, 5, None, 1.0, 4), Err(WindowRejection::Late));
    }

    #[test]
    fn no_quantile_lies_outside_of_what_was_seen() {
        let mut windows = windows(10, 10, 0);
        for (sequence, value) in [230.0, 231.0].into_iter().enumerate() {
            add(&mut windows, 0, None, value, sequence as u64).expect("it is taken");
        }
        let closed = windows.close_all();
        let quantiles =
            [0.0, 0.5, 0.99, 1.0].map(|share| closed[0].sums.quantile(share).expect("two were seen"));
        assert!(quantiles.iter().all(|value| (230.0..=231.0).contains(value)), "{quantiles:?}");
    }

    #[test]
    fn sliding_windows_overlap() {
        let shape = WindowShape { length_ms: 10, slide_ms: 5, lateness_ms: 0 };
        assert_eq!(shape.starts(12).collect::<Vec<_>>(), [5, 10]);
        assert_eq!(shape.starts(-1).collect::<Vec<_>>(), [-10, -5]);
        let uneven = WindowShape { length_ms: 10, slide_ms: 4, lateness_ms: 0 };
        assert_eq!(uneven.starts(12).collect::<Vec<_>>(), [4, 8, 12]);
        let apart = WindowShape { length_ms: 2, slide_ms: 5, lateness_ms: 0 };
        assert_eq!(apart.starts(3).collect::<Vec<_>>(), [] as [i64; 0]);
    }

    #[test]
    fn keys_have_a_bound() {
        let mut windows = windows(10, 10, 0);
        for key in 0..4u8 {
            add(&mut windows, 0, Some(&[key]), 1.0, 0).expect("it is taken");
        }
        assert_eq!(add(&mut windows, 0, Some(b"x"), 1.0, 0), Err(WindowRejection::TooManyKeys));
        add(&mut windows, 0, Some(&[0]), 1.0, 0).expect("a key that is known is taken");
        windows.advance(10);
        assert_eq!(windows.close().len(), 4);
        add(&mut windows, 10, Some(b"x"), 1.0, 0).expect("there is room again");
    }

    #[test]
    fn windows_remember_their_lowest_sequence() {
        let mut windows = windows(10, 10, 0);
        for (key, sequence) in [("b", 7), ("a", 9), ("a", 3)] {
            windows.add(0, Some(key.as_bytes()), 1.0, sequence, None).expect("it is taken");
        }
        assert_eq!(windows.first_sequence(), Some(3));
        let closed = windows.close_all();
        assert_eq!(closed.iter().map(|closed| closed.sums.first_sequence).collect::<Vec<_>>(), [3, 7]);
    }

    #[test]
    fn the_sums_of_revoked_partitions_are_dropped() {
        let mut windows = windows(10, 10, 0);
        let source = SourceId::unique();
        for (partition, key, value) in [(0, "a", 1.0), (1, "a", 2.0), (0, "b", 4.0), (1, "c", 8.0)] {
            let from = Some((source, partition));
            windows.add(0, Some(key.as_bytes()), value, u64::from(partition), from).expect("it is taken");
        }
        assert_eq!((windows.first_sequence(), windows.keys), (Some(0), 3));
        windows.forget(|(of, partition)| of == source && partition == 0);
        assert_eq!((windows.first_sequence(), windows.keys), (Some(1), 2));
        windows.add(0, Some(b"a"), 16.0, 7, Some((source, 2))).expect("it is taken");
        let expected = [(0, "a".to_owned(), 2, 18.0), (0, "c".to_owned(), 1, 8.0)];
        assert_eq!(listed(windows.close_all()), expected);
        assert_eq!(windows.keys, 0);
    }

    #[test]
    fn a_partition_that_joins_brings_its_windows_and_opens_no_closed_ones() {
        let shape = WindowShape { length_ms: 10, slide_ms: 10, lateness_ms: 0 };
        let (source, mut windows) = (SourceId::unique(), Windows::new(shape, true, 9, true));
        let at = |partition| (source, partition);
        windows.join(at(0), i64::MIN);
        for time_ms in [1, 12] {
            windows.add(time_ms, None, 1.0, 0, Some(at(0))).expect("it is taken");
        }
        let mut stored = BTreeMap::new();
        let mut store = |windows: &mut Windows| {
            for (entry, sums) in windows.take_changed() {
                let mut value = Vec::new();
                match sums {
                    Some(sums) => {
                        sums.write(&mut value);
                        stored.insert(entry, value);
                    }
                    None => drop(stored.remove(&entry)),
                }
            }
            stored.clone()
        };
        assert_eq!(store(&mut windows).len(), 2);
        windows.advance(10);
        assert_eq!(listed(windows.close()), [(0, String::new(), 1, 1.0)]);
        windows.add(13, None, 2.0, 1, Some(at(0))).expect("it is taken");
        assert!(windows.has_changed());
        let (kept, closed_ms) = (store(&mut windows), windows.closed_ms(Some(at(0))));
        assert_eq!((kept.len(), closed_ms), (1, 10));
        // Another instance is further, or behind.
        for other_ms in [5, 50] {
            let mut other = Windows::new(shape, true, 9, true);
            other.join(at(1), i64::MIN);
            other.advance(other_ms);
            other.join(at(0), closed_ms);
            for (entry, value) in &kept {
                let sums = Sums::read(&mut &value[..]).expect("it was written");
                other.restore(entry.clone(), sums);
            }
            assert_eq!(other.add(9, None, 1.0, 2, Some(at(0))), Err(WindowRejection::Late));
            assert_eq!(other.add(14, None, 4.0, 2, Some(at(0))), Ok(()));
            let is_late = other.add(14, None, 8.0, 2, Some(at(1))).is_err();
            assert_eq!(is_late, other_ms == 50, "{other_ms}");
            let expected = if is_late { (3, 7.0) } else { (4, 15.0) };
            other.advance(20);
            let closed = other.close();
            let quantile = closed[0].sums.quantile(0.0);
            assert_eq!(quantile, Some(1.0));
            assert_eq!(listed(closed), [(10, String::new(), expected.0, expected.1)]);
        }
        windows.forget(|_| true);
        assert!(!windows.has_changed() && !windows.is_open());
    }

    #[test]
    fn rejected_messages_leave_nothing_behind() {
        let mut windows = windows(10, 5, 0);
        for key in 0..2u8 {
            add(&mut windows, 7, Some(&[key]), 1.0, 0).expect("it is taken");
        }
        for time_ms in 8..100 {
            let added = windows.add(time_ms, Some(b"x"), 1.0, 0, None);
            assert_eq!(added, Err(WindowRejection::TooManyKeys));
        }
        assert_eq!((windows.open.len(), windows.keys), (2, 4));
        assert_eq!(windows.close_all().len(), 4);
    }
}
