//! The clock of sessions: real time, minus pauses of the controller.
//!
//! A paused controller (a stopped process, a swapping machine, a disk that stalls for seconds) receives no
//! heartbeats, which wait in its sockets. By real time all sessions would expire together. The time between
//! two readings therefore counts only up to a limit; a running task reads the clock more often than that.

use std::time::Duration;

use tokio::time::Instant;

/// Fraction of a session by which the clock advances at most between two readings.
const STEPS_OF_SESSION: u32 = 4;

#[derive(Debug)]
pub(super) struct SessionClock {
    elapsed: Duration,
    looked_at: Instant,
    step_max: Duration,
}

impl SessionClock {
    /// A clock at zero, for sessions of length `session_timeout`.
    pub fn new(session_timeout: Duration, now: Instant) -> SessionClock {
        let step_max = (session_timeout / STEPS_OF_SESSION).max(Duration::from_millis(1));
        SessionClock { elapsed: Duration::ZERO, looked_at: now, step_max }
    }

    /// Advances to `now`. Returns the length of the controller's pause, if there was one.
    pub fn look(&mut self, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.looked_at);
        self.looked_at = now;
        self.elapsed += passed.min(self.step_max);
        passed.checked_sub(self.step_max).filter(|stall| !stall.is_zero())
    }

    /// The time of the last reading, in milliseconds.
    pub fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.elapsed.as_millis()).unwrap_or(i64::MAX)
    }

    /// The instant of this time, unless the controller is paused before.
    pub fn instant_of(&self, elapsed_ms: i64) -> Instant {
        let at = Duration::from_millis(u64::try_from(elapsed_ms).unwrap_or(0));
        self.looked_at + at.saturating_sub(self.elapsed)
    }

    /// The latest time of the next reading, so that a long wait does not look like a pause.
    pub fn next_look(&self) -> Instant {
        self.looked_at + self.step_max / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: Duration = Duration::from_secs(8);

    #[test]
    fn time_without_a_look_counts_up_to_a_bound() {
        let after = |now: Instant, seconds| now + Duration::from_secs(seconds);
        let mut now = Instant::now();
        let mut clock = SessionClock::new(SESSION, now);
        for _ in 0..10 {
            now = after(now, 1);
            assert_eq!(clock.look(now), None);
        }
        assert_eq!(clock.elapsed_ms(), 10_000, "it looks often enough");
        now = after(now, 60);
        assert_eq!(clock.look(now), Some(Duration::from_secs(58)));
        assert_eq!(clock.elapsed_ms(), 12_000);
        assert_eq!(clock.instant_of(13_000), after(now, 1));
        assert_eq!(clock.instant_of(11_000), now, "it is past");
        assert_eq!(clock.next_look(), after(now, 1));
    }
}
