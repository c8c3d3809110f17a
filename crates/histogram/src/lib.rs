//! Histograms with fixed bounds. Values are counted by relaxed atomics at the event, and read in place for
//! exposition.
//!
//! A value costs two additions. Bounds are fixed, so that a histogram has a known size, and the histograms of
//! several brokers can be added. Names, units and labels belong to the user of this crate.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Limit of the bounds of a histogram.
pub const BOUNDS_MAX: usize = 16;

/// Bounds of times, in microseconds: from 100 µs to 30 s.
pub const TIMES_US: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    5_000_000, 10_000_000, 30_000_000,
];

/// Bounds of sizes in bytes: powers of four from 64 B to 64 MiB.
pub const SIZES: &[u64] =
    &[64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26];

/// Counts of values by bucket. A bucket includes its upper bound.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// The bucket behind the last bound counts the larger values.
    buckets: [AtomicU64; BOUNDS_MAX + 1],
    sum: AtomicU64,
}

/// A histogram at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The upper bounds, in the unit of the values.
    pub bounds: &'static [u64],
    /// Number of values per bucket. The bucket behind the last bound counts larger values; further buckets
    /// are empty.
    pub counts: [u64; BOUNDS_MAX + 1],
    /// The sum of all values.
    pub sum: u64,
}

impl Histogram {
    /// An empty histogram. Panics if the bounds do not ascend, or are more than [`BOUNDS_MAX`].
    pub const fn new(bounds: &'static [u64]) -> Histogram {
        assert!(bounds.len() <= BOUNDS_MAX, "a histogram has a fixed size");
        let mut at = 1;
        while at < bounds.len() {
            assert!(bounds[at - 1] < bounds[at], "bounds ascend");
            at += 1;
        }
        Histogram { bounds, buckets: [const { AtomicU64::new(0) }; BOUNDS_MAX + 1], sum: AtomicU64::new(0) }
    }

    /// An empty histogram of times, with [`TIMES_US`] as bounds.
    pub const fn of_times() -> Histogram {
        Histogram::new(TIMES_US)
    }

    /// An empty histogram of sizes, with [`SIZES`] as bounds.
    pub const fn of_sizes() -> Histogram {
        Histogram::new(SIZES)
    }

    /// Counts a value, and returns the index of its bucket.
    pub fn record(&self, value: u64) -> usize {
        self.record_many(value, 1)
    }

    /// Counts `count` equal values, and returns the index of their bucket.
    pub fn record_many(&self, value: u64, count: u64) -> usize {
        // Most values are small: a scan from the front beats a binary search.
        let bucket = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.buckets[bucket].fetch_add(count, Ordering::Relaxed);
        self.sum.fetch_add(value.saturating_mul(count), Ordering::Relaxed);
        bucket
    }

    /// Counts a time in microseconds, and returns the index of its bucket.
    pub fn record_time(&self, time: Duration) -> usize {
        self.record(microseconds(time))
    }

    /// The current state. A value counted during this call may be in `counts` but not in `sum`, or the
    /// reverse.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            bounds: self.bounds,
            counts: std::array::from_fn(|bucket| self.buckets[bucket].load(Ordering::Relaxed)),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

/// A time in microseconds, at most `u64::MAX`.
pub fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Snapshot {
    /// Number of all values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::new(&[10, 20]);
        for value in [0, 10, 11, 20, 21, 1000] {
            histogram.record(value);
        }
        histogram.record_many(15, 3);
        let read = histogram.snapshot();
        assert_eq!(read.counts[..3], [2, 5, 2]);
        assert_eq!((read.count(), read.sum), (9, 1107));
    }

    #[test]
    fn times_are_counted_in_microseconds() {
        let histogram = Histogram::of_times();
        assert_eq!(TIMES_US[histogram.record_time(Duration::from_millis(3))], 5_000);
        assert_eq!(histogram.record_time(Duration::from_secs(3600)), TIMES_US.len());
        assert_eq!(histogram.snapshot().sum, 3_000 + 3_600_000_000);
    }
}
