//! The clock that lab and workers share: microseconds since the Unix epoch.
//!
//! A process reads the wall clock once and continues with the monotonic clock, so that adjustments of the
//! wall clock during a run have no effect. On a machine with an agent, the worker adds the correction that
//! the lab has measured ([`correct`]), so that all times are those of the lab's machine.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Number of readings of both clocks; the fastest one is used.
const LOOKS: usize = 16;

/// Microseconds from this machine's wall clock to the lab's: a property of the process, as its clock is.
static CORRECTION_US: AtomicI64 = AtomicI64::new(0);

/// Corrects all clocks of this process that are read from now on, by microseconds to add.
pub(super) fn correct(by_us: i64) {
    CORRECTION_US.store(by_us, Ordering::Relaxed);
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    at: Instant,
    us: u64,
}

impl Clock {
    /// Reads the clocks.
    #[expect(clippy::disallowed_methods, reason = "measurements need wall-clock time")]
    pub(crate) fn now() -> Clock {
        let correction_us = CORRECTION_US.load(Ordering::Relaxed);
        let look = || {
            let before = Instant::now();
            let wall = std::time::SystemTime::now();
            let took = before.elapsed();
            let us = wall.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_micros();
            let us = u64::try_from(us).unwrap_or(u64::MAX).saturating_add_signed(correction_us);
            (took, Clock { at: before + took / 2, us })
        };
        let looks = (0..LOOKS).map(|_| look());
        looks.min_by_key(|(took, _)| *took).expect("there is more than one look").1
    }

    /// The wall clock time of an instant.
    #[inline]
    pub(crate) fn us(&self, at: Instant) -> u64 {
        match at.checked_duration_since(self.at) {
            Some(after) => self.us.saturating_add(micros(after)),
            None => self.us.saturating_sub(micros(self.at.duration_since(at))),
        }
    }

    /// The instant of a wall clock time.
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

/// A duration in microseconds, rounded down.
#[inline]
pub(crate) fn micros(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(duration.subsec_micros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_are_converted() {
        let clock = Clock::now();
        let now = clock.instant(clock.us);
        assert_eq!(clock.us(now), clock.us);
        for us in [clock.us - 5_000_000, clock.us + 1, clock.us + 3_600_000_000] {
            assert_eq!(clock.us(clock.instant(us)), us);
        }
        assert!(clock.us > 1_700_000_000_000_000, "{}", clock.us);
    }
}
