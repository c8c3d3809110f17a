//! A rate over a sliding window (Kafka's `Rate` over `WindowedSum`).
//!
//! Use is summed in samples. The rate is the sum of all samples that the window touches, over the time since the
//! oldest of them began; samples that do not exist yet count as empty ones, so a client that starts may use a whole
//! window's worth at once.

use super::{Window, count, round};

/// The use of one client.
#[derive(Clone, Debug)]
pub struct Rate {
    window: Window,
    /// In the order of Kafka's list: sums of floating-point numbers depend on it. At most one more than the window has.
    samples: Vec<Sample>,
    current: usize,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    began_ms: i64,
    /// When something was last recorded.
    last_ms: i64,
    sum: f64,
}

impl Sample {
    fn new(now_ms: i64) -> Sample {
        Sample { began_ms: now_ms, last_ms: now_ms, sum: 0.0 }
    }
}

impl Rate {
    /// A rate without use so far.
    pub fn new(window: Window) -> Rate {
        Rate { window, samples: Vec::new(), current: 0 }
    }

    /// Records use. A negative value takes back what was recorded at the same time.
    pub fn record(&mut self, value: f64, now_ms: i64) {
        let Window { samples: kept, sample_ms } = self.window;
        if self.samples.is_empty() {
            self.samples.push(Sample::new(now_ms));
        }
        if now_ms - self.samples[self.current].began_ms >= sample_ms {
            // One more than the window has: the oldest is still partly in it.
            self.current = (self.current + 1) % (kept + 1);
            match self.samples.get_mut(self.current) {
                Some(oldest) => *oldest = Sample::new(now_ms),
                None => self.samples.push(Sample::new(now_ms)),
            }
        }
        let sample = &mut self.samples[self.current];
        sample.sum += value;
        sample.last_ms = now_ms;
    }

    /// Units per second.
    #[expect(clippy::cast_precision_loss, reason = "windows are short")]
    pub fn per_second(&mut self, now_ms: i64) -> f64 {
        self.forget(now_ms);
        // Asking begins the first sample, as in Kafka.
        if self.samples.is_empty() {
            self.samples.push(Sample::new(now_ms));
        }
        let sum: f64 = self.samples.iter().fold(0.0, |sum, sample| sum + sample.sum);
        sum / (self.elapsed_ms(now_ms) as f64 / 1000.0)
    }

    /// How long the client has to pause until its rate is down to `limit`, if it uses nothing meanwhile; `None` within
    /// the limit (`QuotaUtils.throttleTime`).
    #[expect(clippy::cast_precision_loss, reason = "windows are short")]
    pub fn throttle_ms(&mut self, limit: f64, now_ms: i64) -> Option<i64> {
        let rate = self.per_second(now_ms);
        (rate > limit).then(|| round((rate - limit) / limit * self.elapsed_ms(now_ms) as f64))
    }

    /// Whether nothing is recorded that still counts: a new rate would give the same results.
    pub fn is_idle(&self, now_ms: i64) -> bool {
        let length_ms = self.window.length_ms();
        self.samples.iter().all(|sample| now_ms - sample.last_ms >= length_ms)
    }

    /// When something was last recorded; `None` if nothing was.
    pub fn last_ms(&self) -> Option<i64> {
        self.samples.iter().map(|sample| sample.last_ms).max()
    }

    /// Empties samples that the window no longer touches.
    fn forget(&mut self, now_ms: i64) {
        let length_ms = self.window.length_ms();
        for sample in &mut self.samples {
            if now_ms - sample.last_ms >= length_ms {
                *sample = Sample::new(now_ms);
            }
        }
    }

    /// The time that the samples stand for: since the oldest began, and that of samples missing before it.
    fn elapsed_ms(&self, now_ms: i64) -> i64 {
        let Window { samples, sample_ms } = self.window;
        let began_ms = self.samples.iter().map(|sample| sample.began_ms).min().unwrap_or(now_ms);
        let elapsed_ms = now_ms - began_ms;
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
