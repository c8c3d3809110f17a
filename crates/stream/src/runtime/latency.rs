//! How old messages are when a stage is done with them: counted in powers of two of milliseconds, so that a batch costs one
//! addition, and figures of several stages or times can be added and subtracted.

use std::sync::atomic::{AtomicU64, Ordering};

/// Below 1 ms, 2 ms, 4 ms and so on; the last is for all above 17 minutes.
const STEPS: usize = 22;

/// Counts, while they grow.
#[derive(Default)]
pub struct LatencyMeter([AtomicU64; STEPS]);

impl LatencyMeter {
    /// Messages that are this old.
    #[inline]
    pub fn count(&self, messages: usize, age_ms: i64) {
        let age_ms = u64::try_from(age_ms).unwrap_or(0);
        let step = ((u64::BITS - age_ms.leading_zeros()) as usize).min(STEPS - 1);
        self.0[step].fetch_add(messages as u64, Ordering::Relaxed);
    }

    /// The counts of now.
    pub fn read(&self) -> Latency {
        Latency(std::array::from_fn(|step| self.0[step].load(Ordering::Relaxed)))
    }
}

/// How many messages were how old.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Latency([u64; STEPS]);

impl Latency {
    /// From counts by step; what is not there is 0.
    pub fn of(counts: impl IntoIterator<Item = u64>) -> Latency {
        let mut latency = Latency::default();
        for (step, count) in latency.0.iter_mut().zip(counts) {
            *step = count;
        }
        latency
    }

    /// The counts by step: messages below 1 ms, below 2 ms, below 4 ms, and so on. Steps at the end without any are left out.
    pub fn counts(&self) -> &[u64] {
        let last = self.0.iter().rposition(|count| *count > 0);
        &self.0[..last.map_or(0, |last| last + 1)]
    }

    /// With the upper bound of each step in milliseconds, none for the last.
    pub fn steps(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        self.0.iter().enumerate().map(|(step, count)| ((step + 1 < STEPS).then(|| 1 << step), *count))
    }

    /// Both together.
    pub fn plus(&self, other: &Latency) -> Latency {
        Latency(std::array::from_fn(|step| self.0[step] + other.0[step]))
    }

    /// What has come since.
    pub fn since(&self, before: &Latency) -> Latency {
        Latency(std::array::from_fn(|step| self.0[step].saturating_sub(before.0[step])))
    }

    /// Below how many milliseconds this share of the messages was; none where there are no messages.
    pub fn below_ms(&self, share: f64) -> Option<u64> {
        let all: u64 = self.0.iter().sum();
        let wanted = ((all as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.0.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map(|step| 1 << step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_told_by_the_step_they_fall_in() {
        let meter = LatencyMeter::default();
        assert_eq!(meter.read().below_ms(0.5), None);
        meter.count(90, 0);
        let before = meter.read();
        assert_eq!(before.counts(), [90]);
        for (messages, age_ms) in [(9, 5), (1, i64::MAX), (0, -7)] {
            meter.count(messages, age_ms);
        }
        let now = meter.read();
        assert_eq!(
            [0.5, 0.9, 0.95, 0.99, 1.0].map(|share| now.below_ms(share)),
            [1, 1, 8, 8, 1 << 21].map(Some)
        );
        let since = now.since(&before);
        assert_eq!((since.below_ms(0.5), since.plus(&before)), (Some(8), now));
        assert_eq!(Latency::of(now.counts().iter().copied()), now);
    }
}
