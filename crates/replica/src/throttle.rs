//! Replication throttles: rate limits for copying replicas that are being moved (KIP-73, Kafka's
//! `ReplicationQuotaManager`).
//!
//! A throttle has a rate for the whole broker: one for the leading side and one for the following side. The
//! throttle applies to the replicas that a topic lists, and only while they are not in sync: throttling an
//! in-sync replica would remove it from the ISR. Copied bytes are counted in samples of a second; while the
//! rate over the last samples is above the limit, copying stops. Owns the samples. Knows neither partitions
//! nor the network.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The default rate, without a limit.
const UNLIMITED: u64 = i64::MAX as u64;

/// The throttle of one side of a broker.
#[derive(Debug)]
pub struct ReplicationThrottle {
    /// The limit in bytes per second.
    limit: AtomicU64,
    /// Bytes copied under the throttle since the start.
    copied: AtomicU64,
    window: Mutex<Window>,
}

impl ReplicationThrottle {
    /// A throttle with this number of samples of this length.
    pub fn new(limit: u64, samples: usize, sample: Duration) -> Self {
        let window = Window { length: sample, kept: samples.max(1), samples: VecDeque::new() };
        Self { limit: AtomicU64::new(limit), copied: AtomicU64::new(0), window: Mutex::new(window) }
    }

    /// Changes the limit.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// The limit in bytes per second; `None` without one.
    pub fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit < UNLIMITED)
    }

    /// True if the rate is above the limit, so that throttled replicas must wait.
    pub fn is_exceeded(&self, now: Instant) -> bool {
        let Some(limit) = self.limit() else { return false };
        self.window.lock().rate(now) > limit
    }

    /// Counts copied bytes of a throttled replica.
    pub fn record(&self, bytes: u64, now: Instant) {
        if bytes > 0 {
            self.copied.fetch_add(bytes, Ordering::Relaxed);
            self.window.lock().record(bytes, now);
        }
    }

    /// Bytes copied under the throttle since the start.
    pub fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }
}

/// The last samples, oldest first: start time and bytes.
#[derive(Debug)]
struct Window {
    length: Duration,
    kept: usize,
    samples: VecDeque<(Instant, u64)>,
}

impl Window {
    fn record(&mut self, bytes: u64, now: Instant) {
        self.forget(now);
        match self.samples.back_mut() {
            Some((began, counted)) if now.saturating_duration_since(*began) < self.length => {
                *counted += bytes
            }
            _ => self.samples.push_back((now, bytes)),
        }
    }

    /// Drops samples before the window.
    fn forget(&mut self, now: Instant) {
        let window = self.length.saturating_mul(u32::try_from(self.kept).unwrap_or(u32::MAX));
        while self.samples.front().is_some_and(|(began, _)| now.saturating_duration_since(*began) >= window) {
            self.samples.pop_front();
        }
    }

    /// Bytes per second since the first sample started, over at least one sample (Kafka's `SimpleRate`).
    fn rate(&mut self, now: Instant) -> u64 {
        self.forget(now);
        let Some((began, _)) = self.samples.front() else { return 0 };
        let elapsed = now.saturating_duration_since(*began).max(self.length).as_millis().max(1);
        let bytes: u128 = self.samples.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
        u64::try_from(bytes * 1000 / elapsed).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttle(limit: u64) -> ReplicationThrottle {
        ReplicationThrottle::new(limit, 11, Duration::from_secs(1))
    }

    #[test]
    fn what_is_copied_under_a_limit_keeps_to_it() {
        let (throttle, start) = (throttle(1_000_000), Instant::now());
        // A fetch of 300 kB is sent at once whenever the limit allows.
        for round in 0..6_000 {
            let now = start + round * Duration::from_millis(10);
            if !throttle.is_exceeded(now) {
                throttle.record(300_000, now);
            }
        }
        let rate = throttle.copied() / 60;
        assert!((950_000..1_060_000).contains(&rate), "{rate} bytes per second");
    }

    #[test]
    fn a_burst_is_forgotten_after_the_window() {
        let (throttle, start) = (throttle(1_000), Instant::now());
        throttle.record(100_000, start);
        let exceeded = |seconds| throttle.is_exceeded(start + Duration::from_secs(seconds));
        assert_eq!((exceeded(0), exceeded(10), exceeded(11)), (true, true, false));
    }

    #[test]
    fn a_limit_can_change_and_go() {
        let (throttle, now) = (throttle(UNLIMITED), Instant::now());
        throttle.record(100_000, now);
        assert_eq!((throttle.limit(), throttle.is_exceeded(now)), (None, false));
        throttle.set_limit(1_000);
        assert_eq!((throttle.limit(), throttle.is_exceeded(now)), (Some(1_000), true));
        throttle.set_limit(200_000);
        assert!(!throttle.is_exceeded(now));
    }
}
