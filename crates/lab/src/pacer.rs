//! Paces records at a rate.

use std::time::Duration;

use thalweg_timer::Timer;
use tokio::time::Instant;

/// The minimum pause with a precise timer: records due within it are sent together.
pub(crate) const PAUSE_MIN: Duration = Duration::from_micros(50);

/// An open loop: record `n` is due at the start plus `n / rate`, however late earlier records were. Records
/// after a pause catch up, so the average rate holds and no delay is hidden.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacer {
    start: Instant,
    /// Seconds between records; `None` if unlimited.
    interval_s: Option<f64>,
}

impl Pacer {
    /// Paces `rate` records per second from `start`; unlimited if the rate is not positive.
    pub(crate) fn new(rate: f64, start: Instant) -> Pacer {
        Pacer { start, interval_s: (rate > 0.0).then(|| 1.0 / rate) }
    }

    pub(crate) fn is_unlimited(&self) -> bool {
        self.interval_s.is_none()
    }

    /// The time when record `n` is due.
    pub(crate) fn due(&self, n: u64) -> Instant {
        match self.interval_s {
            Some(interval) => self.start + Duration::from_secs_f64(interval * n as f64),
            None => self.start,
        }
    }

    /// Moves the start, so that record `n` and those behind it are late by `most` at `now`.
    pub(crate) fn limit_delay(&mut self, n: u64, now: Instant, most: Duration) {
        self.start += now.saturating_duration_since(self.due(n)).saturating_sub(most);
    }

    /// Waits until record `n` is due, by a precise timer, and returns the time. Records of some microseconds
    /// are sent together.
    pub(crate) async fn wait_precisely(&self, n: u64, timer: &mut Timer) -> Instant {
        let due = self.due(n);
        loop {
            let now = Instant::now();
            if due <= now {
                return now;
            }
            timer.wait(due.max(now + PAUSE_MIN)).await;
        }
    }

    /// Waits until record `n` is due, and returns the time. Timers tick once per millisecond; the records of
    /// a millisecond are sent together.
    pub(crate) async fn wait(&self, n: u64) -> Instant {
        let due = self.due(n);
        loop {
            let now = Instant::now();
            if due <= now {
                return now;
            }
            tokio::time::sleep_until(due).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_due_by_the_start_and_not_by_one_another() {
        let start = Instant::now();
        let pacer = Pacer::new(4.0, start);
        assert_eq!(pacer.due(0), start);
        assert_eq!(pacer.due(10), start + Duration::from_millis(2500));
        assert!(Pacer::new(-1.0, start).is_unlimited());
    }

    #[test]
    fn a_limited_delay_drops_the_rest_of_a_pause() {
        let start = Instant::now();
        let mut pacer = Pacer::new(4.0, start);
        let second = Duration::from_secs(1);
        pacer.limit_delay(8, start + 3 * second, second);
        assert_eq!(pacer.due(8), start + 2 * second, "within the limit");
        pacer.limit_delay(8, start + 10 * second, second);
        assert_eq!(pacer.due(8), start + 9 * second);
        assert_eq!(pacer.due(12), start + 10 * second, "the records of a second are sent at once");
    }
}
