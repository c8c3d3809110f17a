//! A rate over a sliding window (Kafka's `Rate` over `WindowedSum`).
//!
//! Use is summed in samples. The rate is the sum of all samples within the window, divided by the time since
//! the oldest of those samples began. Missing samples count as empty, so that a new client may use a whole
//! window's worth at once.

use super::samples::Samples;
use super::{Window, count, round};

/// The rate of one client.
#[derive(Clone, Debug)]
pub struct Rate {
    samples: Samples,
}

impl Rate {
    /// Creates a rate without use.
    pub fn new(window: Window) -> Rate {
        Rate { samples: Samples::new(window) }
    }

    /// Records use. A negative value reverts use recorded at the same time.
    pub fn record(&mut self, value: f64, now_ms: i64) {
        self.samples.record(value, now_ms);
    }

    /// The current rate in units per second.
    #[expect(clippy::cast_precision_loss, reason = "windows are short")]
    pub fn per_second(&mut self, now_ms: i64) -> f64 {
        let (sum, _) = self.samples.sum(now_ms);
        sum / (self.elapsed_ms(now_ms) as f64 / 1000.0)
    }

    /// The time until the rate falls to `limit` without further use; `None` within the limit
    /// (`QuotaUtils.throttleTime`).
    #[expect(clippy::cast_precision_loss, reason = "windows are short")]
    pub fn throttle_ms(&mut self, limit: f64, now_ms: i64) -> Option<i64> {
        let rate = self.per_second(now_ms);
        (rate > limit).then(|| round((rate - limit) / limit * self.elapsed_ms(now_ms) as f64))
    }

    /// The window of the samples.
    pub(super) fn window(&self) -> Window {
        self.samples.window
    }

    /// The use within the window, and the start of its oldest sample.
    pub(super) fn sum(&mut self, now_ms: i64) -> (f64, i64) {
        let (sum, _) = self.samples.sum(now_ms);
        (sum, self.samples.began_ms().unwrap_or(now_ms))
    }

    /// True if no recorded use counts any more: a new rate would give the same results.
    pub fn is_idle(&self, now_ms: i64) -> bool {
        self.samples.is_idle(now_ms)
    }

    /// The time of the last record, if any.
    pub fn last_ms(&self) -> Option<i64> {
        self.samples.last_ms()
    }

    /// The time that the samples cover, including missing samples before the oldest.
    fn elapsed_ms(&self, now_ms: i64) -> i64 {
        let Window { samples, sample_ms } = self.samples.window;
        let elapsed_ms = now_ms - self.samples.began_ms().unwrap_or(now_ms);
        let missing = (count(samples) - 1 - elapsed_ms / sample_ms).max(0);
        (elapsed_ms + missing * sample_ms).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { samples: 11, sample_ms: 1000 };

    #[test]
    fn a_client_may_use_a_window_at_once_and_pauses_for_the_rest() {
        let mut rate = Rate::new(WINDOW);
        rate.record(10_000.0, 5);
        assert_eq!(rate.throttle_ms(1000.0, 5), None, "10 seconds' worth");
        rate.record(5_000.0, 5);
        assert_eq!(rate.throttle_ms(1000.0, 5), Some(5000));
        rate.record(-5_000.0, 5);
        assert_eq!(rate.throttle_ms(1000.0, 5), None);
    }

    #[test]
    fn an_idle_client_starts_over() {
        let (mut old, mut new) = (Rate::new(WINDOW), Rate::new(WINDOW));
        for second in 0..20 {
            old.record(f64::from(second), i64::from(second) * 700);
        }
        let now_ms = 19 * 700 + 11_000;
        assert!(!old.is_idle(now_ms - 1) && old.is_idle(now_ms));
        for at_ms in [0, 10, 900, 1800, 5000, 11_000] {
            old.record(3.0, now_ms + at_ms);
            new.record(3.0, now_ms + at_ms);
            let (old, new) = (old.per_second(now_ms + at_ms), new.per_second(now_ms + at_ms));
            assert!((old - new).abs() < 1e-9, "{old} {new}");
        }
    }

    #[test]
    fn a_rate_holds_a_bounded_number_of_samples() {
        let mut rate = Rate::new(WINDOW);
        for at_ms in 0..100_000 {
            rate.record(1.0, at_ms);
        }
        assert_eq!(rate.samples.len(), 12);
    }
}
