//! The clock: the only place where the log reads the time.
//!
//! Owns: milliseconds since the epoch, and elapsed milliseconds for delays, from the system or set by hand.
//! Refuses: timers and sleeping.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};

/// A time by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since 1970, for comparison with timestamps in records.
    pub wall_ms: i64,
    /// Milliseconds since a start, for timeouts. Never jumps, so that a clock correction does not end every
    /// session at once.
    pub monotonic_ms: i64,
}

/// A source of wall clock time in milliseconds since 1970, cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Manual(Arc<ManualTime>),
}

#[derive(Debug)]
struct ManualTime {
    now_ms: AtomicI64,
    elapsed_ms: AtomicI64,
}

impl Clock {
    /// The time of the operating system.
    pub fn system() -> Clock {
        Clock(Source::System)
    }

    /// A clock that only [`Clock::advance_ms`] moves; clones share it.
    pub fn manual(start_ms: i64) -> Clock {
        let [now_ms, elapsed_ms] = [AtomicI64::new(start_ms), AtomicI64::new(start_ms)];
        Clock(Source::Manual(Arc::new(ManualTime { now_ms, elapsed_ms })))
    }

    /// The present time in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        match &self.0 {
            Source::System => system_now_ms(),
            Source::Manual(manual) => manual.now_ms.load(Ordering::SeqCst),
        }
    }

    /// Milliseconds since an arbitrary moment, unaffected by changes of the wall clock. A manual clock's
    /// elapsed time begins at its start time and never goes back.
    pub fn elapsed_ms(&self) -> i64 {
        match &self.0 {
            Source::System => system_elapsed_ms(),
            Source::Manual(manual) => manual.elapsed_ms.load(Ordering::SeqCst),
        }
    }

    /// Sets a manual clock, also back. Panics on a system clock, which cannot be set.
    pub fn set_ms(&self, to_ms: i64) {
        match &self.0 {
            Source::System => panic!("only a manual clock can be set"),
            Source::Manual(manual) => {
                let before = manual.now_ms.swap(to_ms, Ordering::SeqCst);
                manual.elapsed_ms.fetch_add(to_ms.saturating_sub(before).max(0), Ordering::SeqCst);
            }
        }
    }

    /// Moves a manual clock forward. Panics on a system clock, which cannot be moved.
    pub fn advance_ms(&self, by_ms: i64) {
        match &self.0 {
            Source::System => panic!("only a manual clock can be moved"),
            Source::Manual(manual) => {
                manual.now_ms.fetch_add(by_ms, Ordering::SeqCst);
                manual.elapsed_ms.fetch_add(by_ms, Ordering::SeqCst);
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the seam through which time enters")]
fn system_elapsed_ms() -> i64 {
    static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    i64::try_from(START.elapsed().as_millis()).unwrap_or(i64::MAX)
}

#[expect(clippy::disallowed_methods, reason = "this is the seam through which the wall clock enters")]
fn system_now_ms() -> i64 {
    match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        // A time before 1970 counts as 1970: nothing stored can be older.
        Err(_) => 0,
    }
}
