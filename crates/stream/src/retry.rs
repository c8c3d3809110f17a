//! Retries with growing pauses, for a limited time.

use std::time::Duration;

use tokio::time::Instant;

/// Pause before the first retry, doubled for each further one.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The attempts of one operation, until it succeeds.
#[derive(Clone, Debug)]
pub struct Retry {
    limit: Duration,
    first_failure: Option<Instant>,
    tries: u32,
    pause: Duration,
}

impl Retry {
    /// Retries for this long after the first failure.
    pub fn within(limit: Duration) -> Retry {
        Retry { limit, first_failure: None, tries: 0, pause: PAUSE_MIN }
    }

    /// Records a failure. Returns the pause before the next attempt, or `None` if the time is over.
    pub fn failed(&mut self, now: Instant) -> Option<Duration> {
        let first = *self.first_failure.get_or_insert(now);
        self.tries += 1;
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        (now - first + pause <= self.limit).then_some(pause)
    }

    /// Retries for at most this long after the first failure.
    pub fn limit(&mut self, limit: Duration) {
        self.limit = self.limit.min(limit);
    }

    /// Records a success. Returns true if failures came before.
    pub fn succeeded(&mut self) -> bool {
        let had_failed = self.tries > 0;
        *self = Retry::within(self.limit);
        had_failed
    }

    /// Number of failed attempts.
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// Time since the first failure.
    pub fn elapsed(&self, now: Instant) -> Duration {
        self.first_failure.map_or(Duration::ZERO, |first| now - first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_time_is_over_and_restart_after_a_success() {
        let start = Instant::now();
        let mut retry = Retry::within(Duration::from_secs(1));
        let mut now = start;
        let mut pauses = Vec::new();
        while let Some(pause) = retry.failed(now) {
            pauses.push(pause.as_millis());
            now += pause;
        }
        assert_eq!(pauses, [100, 200, 400]);
        assert_eq!((retry.tries(), retry.elapsed(now)), (4, Duration::from_millis(700)));
        assert!(retry.succeeded() && !retry.succeeded());
        assert_eq!(retry.failed(now), Some(PAUSE_MIN));
        let mut patient = Retry::within(Duration::from_secs(3600));
        let longest = (0..100).filter_map(|_| patient.failed(start)).max();
        assert_eq!(longest, Some(PAUSE_MAX));
        assert_eq!(Retry::within(Duration::ZERO).failed(start), None);
    }
}
