//! Counts and latencies of a producer run, in the lines of Kafka's tool.
//!
//! Latencies are recorded in a histogram of microseconds; Kafka's tool has whole milliseconds and samples at
//! most 500,000 records. The lines have Kafka's precision.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Maximum recorded latency: an hour.
const LATENCY_US_MAX: u64 = 3_600_000_000;

/// The counts of a run, or of its steady part.
#[derive(Debug)]
pub(super) struct Stats {
    start: Instant,
    steady: bool,
    interval: Duration,
    latencies_us: Histogram<u64>,
    total: Sums,
    window: Sums,
    window_start: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: u64,
    bytes: u64,
    latency_us: u128,
    latency_us_max: u64,
}

impl Sums {
    fn add(&mut self, count: u64, bytes: u64, latency_us: u64) {
        self.count += count;
        self.bytes += bytes;
        self.latency_us += u128::from(latency_us) * u128::from(count);
        self.latency_us_max = self.latency_us_max.max(latency_us);
    }

    fn avg_ms(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.latency_us as f64 / self.count as f64 / 1000.0 }
    }
}

impl Stats {
    /// Counts from `start` on; `steady` if earlier records are excluded.
    pub(super) fn new(start: Instant, interval: Duration, steady: bool) -> Stats {
        Stats {
            start,
            steady,
            interval,
            latencies_us: Histogram::new_with_bounds(1, LATENCY_US_MAX, 3)
                .expect("bounds and digits are what the histogram allows"),
            total: Sums::default(),
            window: Sums::default(),
            window_start: start,
        }
    }

    pub(super) fn start(&self) -> Instant {
        self.start
    }

    /// Counts stored records with the same latency.
    pub(super) fn record(&mut self, records: u32, bytes: u64, latency: Duration) {
        let latency_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).min(LATENCY_US_MAX);
        self.latencies_us.saturating_record_n(latency_us, u64::from(records));
        self.total.add(u64::from(records), bytes, latency_us);
        self.window.add(u64::from(records), bytes, latency_us);
    }

    /// The line of a finished interval.
    pub(super) fn interval_line(&mut self, now: Instant) -> Option<String> {
        let elapsed = now.saturating_duration_since(self.window_start);
        if elapsed < self.interval {
            return None;
        }
        let (per_second, mb_per_second) = rates(self.window, elapsed);
        let line = format!(
            "{} records sent, {per_second:.1} records/sec ({mb_per_second:.2} MB/sec), {:.1} ms avg latency, {:.1} ms max latency.",
            self.window.count,
            self.window.avg_ms(),
            self.window.latency_us_max as f64 / 1000.0,
        );
        self.window = Sums::default();
        self.window_start = now;
        Some(line)
    }

    /// The last line.
    pub(super) fn total_line(&self, now: Instant) -> String {
        let (per_second, mb_per_second) = rates(self.total, now.saturating_duration_since(self.start));
        format!(
            "{}{} records sent, {per_second:.6} records/sec ({mb_per_second:.2} MB/sec), {:.2} ms avg latency, {:.2} ms max latency, {} ms 50th, {} ms 95th, {} ms 99th, {} ms 99.9th.",
            self.total.count,
            if self.steady { " steady state" } else { "" },
            self.total.avg_ms(),
            self.total.latency_us_max as f64 / 1000.0,
            self.percentile_us(0.5) / 1000,
            self.percentile_us(0.95) / 1000,
            self.percentile_us(0.99) / 1000,
            self.percentile_us(0.999) / 1000,
        )
    }

    fn percentile_us(&self, quantile: f64) -> u64 {
        self.latencies_us.value_at_quantile(quantile)
    }

    /// The result for programs.
    pub(super) fn json(&self, now: Instant) -> Value {
        let elapsed = now.saturating_duration_since(self.start);
        let (per_second, mb_per_second) = rates(self.total, elapsed);
        json!({
            "records": self.total.count,
            "bytes": self.total.bytes,
            "elapsed_s": elapsed.as_secs_f64(),
            "records_per_second": per_second,
            "mb_per_second": mb_per_second,
            "latency_us": {
                "avg": self.total.avg_ms() * 1000.0,
                "p50": self.percentile_us(0.5),
                "p95": self.percentile_us(0.95),
                "p99": self.percentile_us(0.99),
                "p99.9": self.percentile_us(0.999),
                "max": self.total.latency_us_max,
            },
        })
    }
}

fn rates(sums: Sums, elapsed: Duration) -> (f64, f64) {
    let seconds = elapsed.as_secs_f64().max(1e-6);
    (sums.count as f64 / seconds, sums.bytes as f64 / seconds / (1024.0 * 1024.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_kafkas_tool() {
        let start = Instant::now();
        let mut stats = Stats::new(start, Duration::from_secs(5), false);
        assert_eq!(stats.interval_line(start + Duration::from_secs(4)), None);
        stats.record(4000, 4000 * 128, Duration::from_micros(2500));
        stats.record(1000, 1000 * 128, Duration::from_micros(12_300));
        let end = start + Duration::from_secs(5);
        assert_eq!(
            stats.interval_line(end).expect("an interval is over"),
            "5000 records sent, 1000.0 records/sec (0.12 MB/sec), 4.5 ms avg latency, 12.3 ms max latency."
        );
        assert_eq!(
            stats.total_line(end),
            "5000 records sent, 1000.000000 records/sec (0.12 MB/sec), 4.46 ms avg latency, 12.30 ms max latency, \
             2 ms 50th, 12 ms 95th, 12 ms 99th, 12 ms 99.9th."
        );
        assert_eq!(stats.interval_line(end), None, "a new interval began");
        let steady = Stats::new(start, Duration::from_secs(5), true);
        assert!(steady.total_line(end).starts_with("0 steady state records sent, "));
    }
}
