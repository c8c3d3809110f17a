//! The machine's clock, as lab and workers tell it to each other: microseconds since the Unix epoch.
//!
//! A process looks at the wall clock once and counts on with the monotonic one, so that a step of the wall clock in the
//! middle of a run moves nothing.

use std::time::Duration;

use tokio::time::Instant;

/// Looks at both clocks; the one that took the least time is kept.
const LOOKS: usize = 16;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    at: Instant,
    us: u64,
}

impl Clock {
    /// Looks at the clocks.
    #[expect(clippy::disallowed_methods, reason = "the lab measures the world, whose clock this is")]
    pub(crate) fn now() -> Clock {
        let look = || {
            let before = Instant::now();
            let wall = std::time::SystemTime::now();
            let took = before.elapsed();
            let us = wall.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_micros();
            (took, Clock { at: before + took / 2, us: u64::try_from(us).unwrap_or(u64::MAX) })
        };
        let looks = (0..LOOKS).map(|_| look());
        looks.min_by_key(|(took, _)| *took).expect("there is more than one look").1
    }

    /// The wall clock at a moment.
    #[inline]
    pub(crate) fn us(&self, at: Instant) -> u64 {
        match at.checked_duration_since(self.at) {
            Some(after) => self.us.saturating_add(micros(after)),
            None => self.us.saturating_sub(micros(self.at.duration_since(at))),
        }
    }

    /// The moment when the wall clock shows this.
    pub(crate) fn instant(&self, us: u64) -> Instant {
        match us.checked_sub(self.us) {
            Some(after) => self.at + Duration::from_micros(after),
            None => self.at - Duration::from_micros(self.us - us),
        }
    }

    /// The wall clock now.
    pub(crate) fn now_us(&self) -> u64 {
        self.us(Instant::now())
    }
}

/// Whole microseconds.
#[inline]
pub(crate) fn micros(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(duration.subsec_micros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_before_and_after_are_told() {
        let clock = Clock::now();
        let now = clock.instant(clock.us);
        assert_eq!(clock.us(now), clock.us);
        for us in [clock.us - 5_000_000, clock.us + 1, clock.us + 3_600_000_000] {
            assert_eq!(clock.us(clock.instant(us)), us);
        }
        assert!(clock.us > 1_700_000_000_000_000, "{}", clock.us);
    }
}
