//! The clock that lab and workers share: microseconds since the Unix epoch.
//!
//! A process reads the wall clock once and continues with the monotonic clock, so that adjustments of the
//! wall clock during a run have no effect. The kernel's monotonic clock is one for all processes of a
//! machine: a process that starts workers passes the distance between both clocks to them
//! ([`Clock::ahead_us`], [`set`]), so that they have one clock. An agent adds the correction to the clock of
//! the lab.

use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// Number of readings of both clocks; the fastest one is used.
const LOOKS: usize = 16;

/// The clock of this process.
static CLOCK: OnceLock<Clock> = OnceLock::new();

/// Sets the clock of this process, by its microseconds ahead of the kernel's monotonic clock. Without effect
/// on a clock that was read before.
pub(super) fn set(ahead_us: i64) {
    let read = || Clock::read(|| monotonic_us().saturating_add_signed(ahead_us));
    CLOCK.get_or_init(read);
}

/// The wall clock.
#[expect(clippy::disallowed_methods, reason = "measurements need wall-clock time")]
fn wall_us() -> u64 {
    micros(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default())
}

/// The kernel's monotonic clock.
fn monotonic_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or_default().saturating_mul(1_000_000).saturating_add(nanos.unwrap_or_default() / 1000)
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    at: Instant,
    us: u64,
}

impl Clock {
    /// The clock of this process.
    pub(crate) fn of_process() -> Clock {
        *CLOCK.get_or_init(|| Clock::read(wall_us))
    }

    /// Microseconds of this clock ahead of the kernel's monotonic clock.
    pub(crate) fn ahead_us(&self) -> i64 {
        let monotonic = Clock::read(monotonic_us);
        let ahead_us = i128::from(self.us(monotonic.at)) - i128::from(monotonic.us);
        i64::try_from(ahead_us).unwrap_or(i64::MAX)
    }

    fn read(us: impl Fn() -> u64) -> Clock {
        let look = || {
            let before = Instant::now();
            let us = us();
            let took = before.elapsed();
            (took, Clock { at: before + took / 2, us })
        };
        let looks = (0..LOOKS).map(|_| look());
        looks.min_by_key(|(took, _)| *took).expect("there is more than one look").1
    }

    /// The time of an instant.
    #[inline]
    pub(crate) fn us(&self, at: Instant) -> u64 {
        match at.checked_duration_since(self.at) {
            Some(after) => self.us.saturating_add(micros(after)),
            None => self.us.saturating_sub(micros(self.at.duration_since(at))),
        }
    }

    /// The instant of a time.
    pub(crate) fn instant(&self, us: u64) -> Instant {
        match us.checked_sub(self.us) {
            Some(after) => self.at + Duration::from_micros(after),
            None => self.at - Duration::from_micros(self.us - us),
        }
    }

    /// The time now.
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
        let clock = Clock::of_process();
        let now = clock.instant(clock.us);
        assert_eq!(clock.us(now), clock.us);
        for us in [clock.us - 5_000_000, clock.us + 1, clock.us + 3_600_000_000] {
            assert_eq!(clock.us(clock.instant(us)), us);
        }
        assert!(clock.us > 1_700_000_000_000_000, "{}", clock.us);
    }

    #[test]
    fn a_worker_gets_the_clock_of_its_starter() {
        let starters = Clock { us: Clock::of_process().us + 7_000_000, ..Clock::of_process() };
        let ahead_us = starters.ahead_us();
        let workers = Clock::read(|| monotonic_us().saturating_add_signed(ahead_us));
        let now = Instant::now();
        assert!(starters.us(now).abs_diff(workers.us(now)) < 1_000, "{starters:?} {workers:?}");
    }
}
