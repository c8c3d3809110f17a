//! Failures that clients repeat several times a second: each is logged once a minute.

use parking_lot::Mutex;
use std::hash::Hash;
use std::time::Duration;
use thalweg_hash::HashMap;
use tokio::time::Instant;

const LOGGED_EVERY: Duration = Duration::from_secs(60);
/// Maximum number of remembered failures. Beyond it, all are dropped, and logged again if they continue.
const KEPT_MAX: usize = 10_000;

/// The last failure per key.
#[derive(Debug)]
pub struct RepeatedFailures<K>(Mutex<HashMap<K, Failure>>);

#[derive(Debug)]
struct Failure {
    logged_at: Instant,
    reason: String,
    /// Number of failures since the last log line.
    omitted: u64,
}

impl<K> Default for RepeatedFailures<K> {
    fn default() -> Self {
        RepeatedFailures(Mutex::default())
    }
}

impl<K: Hash + Eq> RepeatedFailures<K> {
    /// Records a failure. Returns the number of omitted failures if this one has to be logged, because it is
    /// new, has another reason, or persists.
    pub fn failed(&self, key: K, reason: &str, now: Instant) -> Option<u64> {
        let mut failures = self.0.lock();
        if let Some(before) = failures.get_mut(&key)
            && before.reason == reason
            && now.duration_since(before.logged_at) < LOGGED_EVERY
        {
            before.omitted += 1;
            return None;
        }
        if failures.len() >= KEPT_MAX && !failures.contains_key(&key) {
            failures.clear();
        }
        let new = Failure { logged_at: now, reason: reason.to_owned(), omitted: 0 };
        let omitted = failures.insert(key, new).map_or(0, |before| before.omitted);
        Some(omitted)
    }

    /// Records a success. Returns true if the previous attempt failed.
    pub fn succeeded(&self, key: &K) -> bool {
        self.0.lock().remove(key).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_lasts_is_logged_once_a_minute() {
        let (failures, began) = (RepeatedFailures::default(), Instant::now());
        let logged =
            |key, reason, after_ms| failures.failed(key, reason, began + Duration::from_millis(after_ms));
        assert_eq!(logged("offsets", "too few brokers", 0), Some(0));
        assert_eq!(logged("transactions", "too few brokers", 0), Some(0), "another topic");
        let repeated = (1..120).filter_map(|half| logged("offsets", "too few brokers", half * 500));
        assert_eq!(repeated.count(), 0);
        assert_eq!(logged("offsets", "too few brokers", 60_000), Some(119));
        assert_eq!(logged("offsets", "another reason", 60_500), Some(0));
        assert!(failures.succeeded(&"offsets") && !failures.succeeded(&"offsets"));
        assert_eq!(logged("offsets", "too few brokers", 61_000), Some(0), "it worked meanwhile");
    }

    #[test]
    fn the_number_of_failures_is_bounded() {
        let (failures, now) = (RepeatedFailures::default(), Instant::now());
        for key in 0..3 * KEPT_MAX {
            assert_eq!(failures.failed(key, "no state", now), Some(0));
        }
        assert!(failures.0.lock().len() <= KEPT_MAX);
    }
}
