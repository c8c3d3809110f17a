//! Parses the tools' output.
//!
//! A producer prints intervals as `N records sent, R records/sec (X MB/sec), A ms avg latency, M ms max
//! latency.`, and the total in the same format followed by percentiles. A consumer with detailed statistics
//! prints, per interval, time, thread, total MB and total records, each with its rate.

use crate::worker::ToolPercentiles;

/// An interval of a producer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ProducerInterval {
    pub(super) records: u64,
    pub(super) latency_max_us: u64,
    /// The total duration and the percentiles, in the final lines: of all records, then without a warm-up.
    pub(super) summary: Option<ProducerSummary>,
}

/// What only a final line of a producer has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ProducerSummary {
    pub(super) elapsed_us: u64,
    /// Percentiles and maximum of the latency, in whole milliseconds.
    pub(super) percentiles: ToolPercentiles,
    /// True if the warm-up is left out.
    pub(super) is_steady_state: bool,
}

/// Parses a line of ProducerPerformance; `None` for any other.
pub(super) fn produced(line: &str) -> Option<ProducerInterval> {
    let (records, rest) = line.split_once(" records sent, ")?;
    let (records, is_steady_state) = match records.trim().strip_suffix(" steady state") {
        Some(records) => (records, true),
        None => (records.trim(), false),
    };
    let records = records.parse().ok()?;
    let (before, after) = rest.split_once(" ms max latency")?;
    let latency_max_ms: f64 = before.rsplit(' ').next()?.parse().ok()?;
    let per_s: f64 = rest.split_once(" records/sec")?.0.trim().parse().ok()?;
    let latency_max_us = (latency_max_ms * 1000.0) as u64;
    let summary = percentiles(after, latency_max_us).map(|percentiles| ProducerSummary {
        elapsed_us: elapsed_us(records, per_s),
        percentiles,
        is_steady_state,
    });
    Some(ProducerInterval { records, latency_max_us, summary })
}

/// The percentiles in the rest of a line, such as `, 0 ms 50th, 0 ms 95th, 7 ms 99th, 16 ms 99.9th.`
fn percentiles(rest: &str, max_us: u64) -> Option<ToolPercentiles> {
    let at = |name: &str| {
        let mut parts = rest.trim_end_matches('.').split(", ");
        let ms = parts.find_map(|part| part.strip_suffix(name)?.strip_suffix(" ms "));
        ms.and_then(|ms| ms.trim().parse::<u64>().ok()).map(|ms| ms.saturating_mul(1000))
    };
    Some(ToolPercentiles { p50_us: at("50th")?, p99_us: at("99th")?, p999_us: at("99.9th")?, max_us })
}

/// A consumer's totals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ConsumerTotals {
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// The total duration, in the final line, which has a start and an end instead of a time and a thread.
    pub(super) elapsed_us: Option<u64>,
}

/// Parses a line of ConsumerPerformance without header; `None` for any other.
pub(super) fn consumed(line: &str) -> Option<ConsumerTotals> {
    let fields: Vec<&str> = line.split(", ").collect();
    let [time, thread, mb, _mb_per_s, records, per_s, ..] = fields[..] else { return None };
    if fields.len() != 10 || !time.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let mb: f64 = mb.trim().parse().ok()?;
    let (records, per_s) = (records.trim().parse().ok()?, per_s.trim().parse().ok()?);
    let elapsed_us = thread.trim().parse::<u64>().is_err().then(|| elapsed_us(records, per_s));
    Some(ConsumerTotals { records, bytes: (mb * f64::from(1 << 20)) as u64, elapsed_us })
}

fn elapsed_us(records: u64, per_s: f64) -> u64 {
    if per_s > 0.0 { (records as f64 / per_s * 1e6) as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_and_last_lines_are_distinguished() {
        let interval =
            "59286 records sent, 11856.1 records/sec (1.45 MB/sec), 0.5 ms avg latency, 18.0 ms max latency.";
        let expected = ProducerInterval { records: 59_286, latency_max_us: 18_000, summary: None };
        assert_eq!(produced(interval), Some(expected));
        let last = "60000 records sent, 11861.366579 records/sec (1.45 MB/sec), 0.45 ms avg latency, 18.00 ms max latency, \
                    0 ms 50th, 0 ms 95th, 7 ms 99th, 16 ms 99.9th.";
        let percentiles = ToolPercentiles { p50_us: 0, p99_us: 7_000, p999_us: 16_000, max_us: 18_000 };
        let summary = ProducerSummary { elapsed_us: 5_058_439, percentiles, is_steady_state: false };
        let expected = ProducerInterval { records: 60_000, latency_max_us: 18_000, summary: Some(summary) };
        assert_eq!(produced(last), Some(expected));
        let steady = last.replace("60000 records", "50000 steady state records");
        let read = produced(&steady).expect("a summary");
        assert_eq!((read.records, read.summary.map(|one| one.is_steady_state)), (50_000, Some(true)));
        for other in ["", "WARN Error while fetching metadata", "x records sent, y"] {
            assert_eq!(produced(other), None, "{other}");
        }
    }

    #[test]
    fn a_consumer_reports_totals() {
        let line = "2026-11-22 04:00:00:123, 0, 95.3674, 95.2722, 781250, 780469.5305, 0, 1001, 95.2722, 780469.5305";
        assert_eq!(
            consumed(line),
            Some(ConsumerTotals { records: 781_250, bytes: 99_999_966, elapsed_us: None })
        );
        let last = line.replacen(", 0, ", ", 2026-11-22 04:00:01:123, ", 1);
        assert_eq!(consumed(&last).and_then(|last| last.elapsed_us), Some(1_000_999));
        assert_eq!(consumed("time, threadId, data.consumed.in.MB, MB.sec, a, b, c, d, e, f"), None);
        assert_eq!(consumed("WARNING: Exiting before consuming the expected number of records"), None);
    }
}
