//! The only place in this crate that reads the wall clock.

use std::time::SystemTime;

use tokio::time::Instant;

/// A moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    pub at: Instant,
    /// Milliseconds since 1970.
    pub time_ms: i64,
}

/// Milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "messages carry wall-clock time; streams read it only here")]
pub fn time_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
