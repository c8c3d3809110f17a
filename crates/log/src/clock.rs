//! The clock: the one place where the log reads the time.
//!
//! Owns: milliseconds since the epoch, from the system or set by hand. Refuses: timers and sleeping.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// A source of wall clock time in milliseconds since 1970, cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// The time of the operating system.
    pub fn system() -> Clock {
        Clock(Source::System)
    }

    /// A clock that only [`Clock::advance_ms`] moves; clones share it.
    pub fn manual(start_ms: i64) -> Clock {
        Clock(Source::Manual(Arc::new(AtomicI64::new(start_ms))))
    }

    /// The present time in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        match &self.0 {
            Source::System => system_now_ms(),
            Source::Manual(now_ms) => now_ms.load(Ordering::SeqCst),
        }
    }

    /// Sets a manual clock, also back; a system clock cannot be set, so this panics there.
    pub fn set_ms(&self, to_ms: i64) {
        match &self.0 {
            Source::System => panic!("only a manual clock can be set"),
            Source::Manual(now_ms) => now_ms.store(to_ms, Ordering::SeqCst),
        }
    }

    /// Moves a manual clock forward; a system clock cannot be moved, so this panics there.
    pub fn advance_ms(&self, by_ms: i64) {
        match &self.0 {
            Source::System => panic!("only a manual clock can be moved"),
            Source::Manual(now_ms) => {
                now_ms.fetch_add(by_ms, Ordering::SeqCst);
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the seam through which the wall clock enters")]
fn system_now_ms() -> i64 {
    match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        // A clock set before 1970 is as good as one at 1970: nothing stored can be older.
        Err(_) => 0,
    }
}
