//! A pause in reading from a connection whose client has exceeded a quota and got the throttle time in an
//! answer (KIP-219).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The pause of one connection.
#[derive(Debug)]
pub struct Mute {
    opened_at: Instant,
    /// End of the last pause, in microseconds since the opening; 0 without one.
    until_us: AtomicU64,
}

impl Default for Mute {
    fn default() -> Mute {
        Mute { opened_at: Instant::now(), until_us: AtomicU64::new(0) }
    }
}

impl Mute {
    /// Pauses the requests after the current one for this long. Pauses do not add up: the longest wins.
    pub fn pause(&self, length: Duration) {
        let until = self.opened_at.elapsed().saturating_add(length);
        let until_us = u64::try_from(until.as_micros()).unwrap_or(u64::MAX);
        self.until_us.fetch_max(until_us, Ordering::Relaxed);
    }

    /// Remaining length of the pause.
    pub fn left(&self) -> Duration {
        self.until().map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// End of the pause; `None` without a current pause.
    pub(super) fn until(&self) -> Option<Instant> {
        match self.until_us.load(Ordering::Relaxed) {
            0 => None,
            until_us => self
                .opened_at
                .checked_add(Duration::from_micros(until_us))
                .filter(|until| *until > Instant::now()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_longest_pause_counts() {
        let mute = Mute::default();
        assert_eq!(mute.until(), None);
        mute.pause(Duration::from_secs(3));
        mute.pause(Duration::from_secs(1));
        assert_eq!(mute.until(), Some(Instant::now() + Duration::from_secs(3)));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(mute.until(), None);
    }
}
