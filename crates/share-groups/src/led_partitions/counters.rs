//! Counts of share groups since the start, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thalweg_histogram::{Histogram, Snapshot};

/// Metric names of the acknowledgement types, by type code.
pub const TYPES: [&str; 5] = ["gap", "accept", "release", "reject", "renew"];

/// Counters of all share groups.
#[derive(Debug)]
pub struct ShareCounters {
    acknowledged: [AtomicU64; TYPES.len()],
    expired: AtomicU64,
    loads: Histogram,
}

impl Default for ShareCounters {
    fn default() -> Self {
        ShareCounters {
            acknowledged: Default::default(),
            expired: AtomicU64::new(0),
            loads: Histogram::of_times(),
        }
    }
}

impl ShareCounters {
    /// Counts records with an acknowledgement that took effect.
    pub fn count_acknowledged(&self, code: i8, records: u64) {
        if let Some(counter) = usize::try_from(code).ok().and_then(|code| self.acknowledged.get(code)) {
            counter.fetch_add(records, Ordering::Relaxed);
        }
    }

    /// Records by type of acknowledgement.
    pub fn acknowledged(&self) -> impl Iterator<Item = (&'static str, u64)> {
        TYPES.into_iter().zip(self.acknowledged.iter().map(|counter| counter.load(Ordering::Relaxed)))
    }

    pub(super) fn count_expired(&self, records: i64) {
        self.expired.fetch_add(records.unsigned_abs(), Ordering::Relaxed);
    }

    /// Records whose acquisition lock expired without an acknowledgement.
    pub fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    pub(super) fn count_load(&self, time: Duration) {
        self.loads.record_time(time);
    }

    /// Load times of share partitions, in microseconds.
    pub fn loads(&self) -> Snapshot {
        self.loads.snapshot()
    }
}
