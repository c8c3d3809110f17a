//! I/O throttle of compaction (Kafka's `Throttler` of the cleaner): one rate for all concurrent compactions.
//!
//! Moved bytes are a debt, which is paid off at the rate. Owns the debt. Neither sleeps nor knows the
//! settings: the caller waits, and passes the rate each time, so that a change applies at once.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum single wait, so that a changed rate is noticed (Kafka's interval of the throttler).
const WAIT_MAX: Duration = Duration::from_millis(300);

/// The debt of all compactions in progress.
#[derive(Debug)]
pub(super) struct IoThrottle(Mutex<Debt>);

#[derive(Debug)]
struct Debt {
    bytes: f64,
    counted: Instant,
}

impl IoThrottle {
    pub(super) fn new(now: Instant) -> Self {
        Self(Mutex::new(Debt { bytes: 0.0, counted: now }))
    }

    /// Records bytes that were read or written.
    pub(super) fn record(&self, bytes: u64) {
        self.0.lock().bytes += bytes as f64;
    }

    /// The time to wait before the next check; `None` if work may continue. A rate of 0 pauses all work.
    pub(super) fn wait(&self, bytes_per_second: f64, now: Instant) -> Option<Duration> {
        let mut debt = self.0.lock();
        let elapsed = now.saturating_duration_since(debt.counted).as_secs_f64();
        debt.counted = now;
        debt.bytes = (debt.bytes - elapsed * bytes_per_second.max(0.0)).max(0.0);
        let seconds = debt.bytes / bytes_per_second.max(0.0);
        // At a rate of 0 without debt, the quotient is not a number.
        let wait = Duration::try_from_secs_f64(seconds).unwrap_or(WAIT_MAX).min(WAIT_MAX);
        (bytes_per_second <= 0.0 || wait >= Duration::from_millis(1)).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves chunks of a megabyte as the rate allows, for this many seconds. Returns the number of bytes.
    fn moved(throttle: &IoThrottle, start: Instant, seconds: u64, rate: impl Fn(Duration) -> f64) -> u64 {
        let (mut now, mut moved) = (start, 0);
        while now < start + Duration::from_secs(seconds) {
            match throttle.wait(rate(now - start), now) {
                Some(wait) => now += wait.max(Duration::from_millis(1)),
                None => {
                    throttle.record(1_000_000);
                    moved += 1_000_000;
                    now += Duration::from_millis(2);
                }
            }
        }
        moved
    }

    #[test]
    fn moved_bytes_keep_to_the_rate() {
        for rate in [100_000.0, 5e6, 50e6] {
            let start = Instant::now();
            let bytes = moved(&IoThrottle::new(start), start, 60, |_| rate) as f64 / 60.0;
            assert!(bytes < rate * 1.02 + 1e6 / 60.0 && bytes > rate * 0.95, "{bytes} at {rate}");
        }
    }

    #[test]
    fn another_rate_applies_at_once() {
        let start = Instant::now();
        let throttle = IoThrottle::new(start);
        let raised = |at: Duration| if at < Duration::from_secs(10) { 1.0 } else { 10e6 };
        let bytes = moved(&throttle, start, 20, raised);
        assert!((90_000_000..=103_000_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn no_limit_never_waits_and_a_rate_of_zero_always_does() {
        let start = Instant::now();
        let throttle = IoThrottle::new(start);
        throttle.record(u64::MAX);
        assert_eq!(throttle.wait(f64::MAX, start), None);
        for second in 0..100 {
            assert_eq!(throttle.wait(0.0, start + Duration::from_secs(second)), Some(WAIT_MAX));
        }
    }
}
