//! The lines of Pulsar's tool, as its log prints them.

use std::time::Duration;

use chrono::{DateTime, Local};
use hdrhistogram::Histogram;

/// Longest latency of a producer that is counted as such.
pub(super) const PRODUCED_MAX: Duration = Duration::from_secs(3600);
/// That of a consumer, which may read old messages: Pulsar's limit.
pub(super) const CONSUMED_MAX: Duration = Duration::from_secs(10 * 24 * 3600);

/// Latencies in microseconds.
pub(super) fn recorder(longest: Duration) -> Histogram<u64> {
    let longest_us = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    Histogram::new_with_bounds(1, longest_us, 5).expect("the bounds are valid")
}

/// Bits per second, in the tool's units of 2^20.
pub(super) fn mbit_per_s(bytes: u64, elapsed_s: f64) -> f64 {
    bytes as f64 * 8.0 / 1024.0 / 1024.0 / elapsed_s.max(f64::MIN_POSITIVE)
}

/// A line of the log.
pub(super) fn logged(at: DateTime<Local>, thread: &str, class: &str, text: &str) -> String {
    let at = at.format("%Y-%m-%dT%H:%M:%S,%3f%z");
    format!("{at} [{thread}] INFO  org.apache.pulsar.testclient.{class} - {text}")
}

/// The quantiles of a line, with their names.
const QUANTILES: [(&str, f64); 6] = [
    ("med", 0.5),
    ("95pct", 0.95),
    ("99pct", 0.99),
    ("99.9pct", 0.999),
    ("99.99pct", 0.9999),
    ("99.999pct", 0.99999),
];
/// Those of a line of an interval.
const OF_INTERVAL: usize = 5;

/// How a tool prints latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Milliseconds with three decimals.
    Fractions,
    /// Whole milliseconds, except for the mean.
    Whole,
}

/// The part of a line with latencies, which are in microseconds.
fn latency(latencies: &Histogram<u64>, count: usize, unit: Unit) -> String {
    let ms = |us: f64| format!("{:>7}", format!("{:.3}", us / 1000.0));
    let shown = |us: u64| match unit {
        Unit::Fractions => ms(us as f64),
        Unit::Whole => (us / 1000).to_string(),
    };
    let mut text = format!("Latency: mean: {} ms", ms(latencies.mean()));
    for (name, quantile) in &QUANTILES[..count] {
        text += &format!(" - {name}: {}", shown(latencies.value_at_quantile(*quantile)));
    }
    text + &format!(" - Max: {}", shown(latencies.max()))
}

/// The interval of a producer.
pub(super) fn produced(
    total: u64,
    (sent, bytes, failed): (u64, u64, u64),
    elapsed_s: f64,
    latencies: &Histogram<u64>,
) -> String {
    let rate = |number: f64| format!("{number:>8.1}");
    format!(
        "Throughput produced: {total:>7} msg --- {} msg/s --- {} Mbit/s  --- failure {} msg/s --- {}",
        rate(sent as f64 / elapsed_s),
        rate(mbit_per_s(bytes, elapsed_s)),
        rate(failed as f64 / elapsed_s),
        latency(latencies, OF_INTERVAL, Unit::Fractions)
    )
}

/// The interval of a consumer.
pub(super) fn received(
    total: u64,
    (read, bytes): (u64, u64),
    elapsed_s: f64,
    latencies: &Histogram<u64>,
) -> String {
    let rate = |number: f64| format!("{:>7}", format!("{number:.3}"));
    format!(
        "Throughput received: {total:>7} msg --- {}  msg/s --- {} Mbit/s  --- {}",
        rate(read as f64 / elapsed_s),
        rate(mbit_per_s(bytes, elapsed_s)),
        latency(latencies, OF_INTERVAL, Unit::Whole)
    )
}

/// The rates of a whole test of a producer.
pub(super) fn all_produced(total: u64, bytes: u64, elapsed_s: f64) -> String {
    let (rate, mbit) = (total as f64 / elapsed_s, mbit_per_s(bytes, elapsed_s));
    format!("Aggregated throughput stats --- {total} records sent --- {rate:.3} msg/s --- {mbit:.3} Mbit/s ")
}

/// The rates of a whole test of a consumer.
pub(super) fn all_received(total: u64, bytes: u64, acknowledged: u64, elapsed_s: f64) -> String {
    let rate = |number: f64| format!("{:>7}", format!("{number:.3}"));
    format!(
        "Aggregated throughput stats --- {total} records received --- {} msg/s --- {} Mbit/s --- AckRate: {}  msg/s --- ack \
         failed 0 msg",
        rate(total as f64 / elapsed_s),
        rate(mbit_per_s(bytes, elapsed_s)),
        acknowledged as f64 / elapsed_s
    )
}

/// The latencies of a whole test.
pub(super) fn all_latencies(latencies: &Histogram<u64>, unit: Unit) -> String {
    format!("Aggregated latency stats --- {}", latency(latencies, QUANTILES.len(), unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::TimeZone;

    fn latencies() -> Histogram<u64> {
        let mut latencies = recorder(PRODUCED_MAX);
        latencies.record_n(1_500, 99).expect("in the bounds");
        latencies.record(1_132_043).expect("in the bounds");
        latencies
    }

    #[test]
    fn a_producers_lines_are_those_of_pulsars_tool() {
        let line = produced(68_138, (49_755, 50_949_120, 0), 10.0, &latencies());
        assert_eq!(
            line,
            "Throughput produced:   68138 msg ---   4975.5 msg/s ---     38.9 Mbit/s  --- failure      0.0 msg/s --- \
             Latency: mean:  12.805 ms - med:   1.500 - 95pct:   1.500 - 99pct:   1.500 - 99.9pct: 1132.047 - \
             99.99pct: 1132.047 - Max: 1132.047"
        );
        assert_eq!(
            all_produced(1_314_258, 1_345_800_192, 63.0),
            "Aggregated throughput stats --- 1314258 records sent --- 20861.238 msg/s --- 162.978 Mbit/s "
        );
        assert!(
            all_latencies(&latencies(), Unit::Fractions)
                .ends_with(" - 99.99pct: 1132.047 - 99.999pct: 1132.047 - Max: 1132.047")
        );
    }

    #[test]
    fn a_consumers_lines_have_whole_milliseconds() {
        assert_eq!(
            received(5000, (4995, 5_114_880), 10.0, &latencies()),
            "Throughput received:    5000 msg --- 499.500  msg/s ---   3.902 Mbit/s  --- Latency: mean:  12.805 ms - med: 1 - \
             95pct: 1 - 99pct: 1 - 99.9pct: 1132 - 99.99pct: 1132 - Max: 1132"
        );
        assert!(all_received(10, 0, 10, 4.0).ends_with("AckRate: 2.5  msg/s --- ack failed 0 msg"));
    }

    #[test]
    fn a_line_has_time_thread_and_class() {
        let at = Local.with_ymd_and_hms(2026, 11, 30, 11, 37, 6).single().expect("a time");
        let line = logged(at, "main", "PerformanceProducer", "x");
        assert!(line.starts_with("2026-11-30T11:37:06,000"), "{line}");
        assert!(
            line.ends_with(" [main] INFO  org.apache.pulsar.testclient.PerformanceProducer - x"),
            "{line}"
        );
    }
}
