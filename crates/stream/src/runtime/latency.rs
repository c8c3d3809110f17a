//! How old messages are when a stage is done with them: counted in an HDR histogram of microseconds, so that a batch costs one
//! addition whatever it holds, and figures of several stages or times can be added and subtracted.
//!
//! A stage that has seen nothing has no histogram: most streams of a host are idle.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

/// Significant digits: a figure is no more than 1 % above what was seen.
const DIGITS: u8 = 2;
/// Whatever is older counts as this old: 12 days.
const AGE_US_MAX: u64 = 1 << 40;

/// Counts, while they grow.
#[derive(Default)]
pub struct LatencyMeter(Mutex<Option<Histogram<u64>>>);

impl LatencyMeter {
    /// Messages that are this old.
    #[inline]
    pub fn count(&self, messages: usize, age: Duration) {
        let age_us = u64::try_from(age.as_micros()).unwrap_or(u64::MAX).min(AGE_US_MAX);
        let mut histogram = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let histogram = histogram
            .get_or_insert_with(|| Histogram::new(DIGITS).expect("two digits are possible, and it grows"));
        histogram.record_n(age_us, messages as u64).expect("it grows up to the largest age");
    }

    /// The counts of now.
    pub fn read(&self) -> Latency {
        let histogram = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(histogram) = &*histogram else { return Latency::default() };
        let steps = histogram.iter_recorded().map(|step| {
            (histogram.highest_equivalent(step.value_iterated_to()), step.count_since_last_iteration())
        });
        Latency::of(steps)
    }
}

/// How many messages were how old: by the upper end of each step of the histogram, in microseconds.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Latency(BTreeMap<u64, u64>);

impl Latency {
    /// From counts by the upper ends of their steps.
    pub fn of(steps: impl IntoIterator<Item = (u64, u64)>) -> Latency {
        Latency(steps.into_iter().filter(|(_, count)| *count > 0).collect())
    }

    /// The counts by the upper end of each step, in microseconds, of steps with any.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(age_us, count)| (*age_us, *count))
    }

    /// How many messages there were.
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// How many were no older than this.
    pub fn count_through(&self, age: Duration) -> u64 {
        let age_us = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
        self.0.range(..=age_us).map(|(_, count)| count).sum()
    }

    /// All ages together, in seconds.
    pub fn sum_s(&self) -> f64 {
        self.0.iter().map(|(age_us, count)| *age_us as f64 * *count as f64).sum::<f64>() / 1e6
    }

    /// Both together.
    pub fn plus(mut self, other: &Latency) -> Latency {
        for (age_us, count) in other.steps() {
            *self.0.entry(age_us).or_default() += count;
        }
        self
    }

    /// What has come since.
    pub fn since(&self, before: &Latency) -> Latency {
        let count_before = |age_us: u64| before.0.get(&age_us).copied().unwrap_or(0);
        Latency::of(self.steps().map(|(age_us, count)| (age_us, count.saturating_sub(count_before(age_us)))))
    }

    /// This share of the messages was no older than so many microseconds; none where there are no messages.
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
    fn shares_are_told_in_microseconds_with_two_digits() {
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
