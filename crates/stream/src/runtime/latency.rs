//! Message ages at the end of a stage, in a histogram of microseconds: a batch costs one addition, and the
//! figures of several stages or times can be added and subtracted.
//!
//! A histogram allocates only the octaves of recorded ages: most streams of a host are idle, and the age of a
//! message from a topic can be days.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Buckets per octave of ages: figures are at most 1 % too high.
const BUCKETS: usize = 1 << BUCKET_BITS;
const BUCKET_BITS: u32 = 7;
/// The maximum recorded age: 12 days.
const AGE_US_MAX: u64 = 1 << 40;

/// The counts of an octave, by bucket.
type Octave = Option<Box<[u64; BUCKETS]>>;

/// Growing counts. Octave 0 begins at 0, and octave n at `BUCKETS << (n - 1)`.
#[derive(Default)]
pub struct LatencyMeter(Mutex<Vec<Octave>>);

impl LatencyMeter {
    /// Records messages of this age.
    #[inline]
    pub fn count(&self, messages: usize, age: Duration) {
        let age_us = u64::try_from(age.as_micros()).unwrap_or(u64::MAX).min(AGE_US_MAX);
        let octave = (age_us >> BUCKET_BITS).checked_ilog2().map_or(0, |above| above as usize + 1);
        let bucket = age_us >> octave.saturating_sub(1);
        let mut octaves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if octaves.len() <= octave {
            octaves.resize_with(octave + 1, || None);
        }
        let counts = octaves[octave].get_or_insert_with(|| Box::new([0; BUCKETS]));
        counts[bucket as usize % BUCKETS] += messages as u64;
    }

    /// The current counts.
    pub fn read(&self) -> Latency {
        let octaves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known =
            octaves.iter().enumerate().filter_map(|(octave, counts)| Some((octave, counts.as_ref()?)));
        Latency::of(known.flat_map(|(octave, counts)| {
            let (first, shift) = if octave == 0 { (0, 0) } else { (BUCKETS, octave - 1) };
            let behind = move |bucket: usize| ((first + bucket + 1) as u64) << shift;
            counts.iter().enumerate().map(move |(bucket, count)| (behind(bucket) - 1, *count))
        }))
    }
}

/// Counts by the upper bound of each bucket, in microseconds.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Latency(BTreeMap<u64, u64>);

impl Latency {
    /// A distribution from counts by upper bound.
    pub fn of(steps: impl IntoIterator<Item = (u64, u64)>) -> Latency {
        Latency(steps.into_iter().filter(|(_, count)| *count > 0).collect())
    }

    /// The counts by upper bound in microseconds, for non-empty buckets.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(age_us, count)| (*age_us, *count))
    }

    /// The number of messages.
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// The number of messages up to this age.
    pub fn count_through(&self, age: Duration) -> u64 {
        let age_us = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
        self.0.range(..=age_us).map(|(_, count)| count).sum()
    }

    /// The sum of all ages, in seconds.
    pub fn sum_s(&self) -> f64 {
        self.0.iter().map(|(age_us, count)| *age_us as f64 * *count as f64).sum::<f64>() / 1e6
    }

    /// The sum of both distributions.
    pub fn plus(mut self, other: &Latency) -> Latency {
        for (age_us, count) in other.steps() {
            *self.0.entry(age_us).or_default() += count;
        }
        self
    }

    /// The difference to an earlier state.
    pub fn since(&self, before: &Latency) -> Latency {
        let count_before = |age_us: u64| before.0.get(&age_us).copied().unwrap_or(0);
        Latency::of(self.steps().map(|(age_us, count)| (age_us, count.saturating_sub(count_before(age_us)))))
    }

    /// A quantile in microseconds; `None` without messages.
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        let wanted = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.steps().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        found.map(|(age_us, _)| age_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(age_us: u64) -> Duration {
        Duration::from_micros(age_us)
    }

    #[test]
    fn quantiles_are_in_microseconds_with_two_digits() {
        let meter = LatencyMeter::default();
        assert_eq!(meter.read().quantile_us(0.5), None);
        meter.count(90, us(37));
        let before = meter.read();
        for (messages, age) in [(9, us(123_456)), (1, Duration::MAX), (0, us(5))] {
            meter.count(messages, age);
        }
        let now = meter.read();
        assert_eq!([0.5, 0.9].map(|share| now.quantile_us(share)), [Some(37); 2]);
        let p99 = now.quantile_us(0.99).expect("there are messages");
        assert!((123_456..=124_700).contains(&p99), "{p99}");
        assert!(now.quantile_us(1.0).is_some_and(|largest| largest >= AGE_US_MAX), "{now:?}");
        assert_eq!([us(36), us(37), us(1_000_000)].map(|age| now.count_through(age)), [0, 90, 99]);
        let since = now.since(&before);
        assert_eq!((since.quantile_us(0.5), since.count()), (Some(p99), 10));
        assert_eq!(since.plus(&before), now);
        assert_eq!(Latency::of(now.steps()), now);
        assert!((before.sum_s() - 0.003_33).abs() < 1e-9);
    }
}
