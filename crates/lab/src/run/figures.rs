//! Calculates the figures of a repetition from its workers' reports and its processes' usage. Pure.

use crate::result::{Figures, Histogram, HistogramUnreadable, ProcessUse};
use crate::worker::{Report, Span};

const MB: f64 = 1_048_576.0;

/// The combined reports of a role's workers.
#[derive(Clone, Debug, Default)]
pub(super) struct CombinedReport {
    /// The interval that covers the intervals of all workers, with their totals.
    pub(super) span: Span,
    /// Records acknowledged or consumed, warm-up included.
    pub(super) acknowledged: u64,
    /// Number of failed records.
    pub(super) failed: u64,
    /// The first error.
    pub(super) first_failure: Option<String>,
    pub(super) acknowledge_latency: Option<Histogram>,
    pub(super) end_to_end_latency: Option<Histogram>,
    pub(super) notes: Vec<String>,
}

/// Combines reports; merges histograms.
pub(super) fn gather<'a>(
    reports: impl Iterator<Item = &'a Report> + Clone,
) -> Result<CombinedReport, HistogramUnreadable> {
    let mut all = CombinedReport {
        acknowledge_latency: Histogram::merged(
            reports.clone().filter_map(|report| report.acknowledge_latency.as_ref()),
        )?,
        end_to_end_latency: Histogram::merged(
            reports.clone().filter_map(|report| report.end_to_end_latency.as_ref()),
        )?,
        ..CombinedReport::default()
    };
    for report in reports {
        all.acknowledged += report.acknowledged;
        all.failed += report.failed;
        if all.first_failure.is_none() {
            all.first_failure.clone_from(&report.first_failure);
        }
        for note in &report.notes {
            if !all.notes.contains(note) {
                all.notes.push(note.clone());
            }
        }
        let span = report.measured;
        // A worker that did nothing has no interval.
        if span.records > 0 {
            all.span.from_us =
                if all.span.records == 0 { span.from_us } else { all.span.from_us.min(span.from_us) };
            all.span.to_us = all.span.to_us.max(span.to_us);
            all.span.records += span.records;
            all.span.bytes += span.bytes;
        }
    }
    Ok(all)
}

/// The length of an interval.
pub(super) fn seconds(span: &Span) -> f64 {
    span.to_us.saturating_sub(span.from_us) as f64 / 1e6
}

/// Figures of produced and consumed records.
pub(super) fn figures(
    produced: &CombinedReport,
    consumed: &CombinedReport,
    processes: &[ProcessUse],
    drain_s: Option<f64>,
) -> Figures {
    let rate = |of: &CombinedReport, amount: f64| {
        let seconds = seconds(&of.span);
        (of.span.records > 0 && seconds > 0.0).then(|| amount / seconds)
    };
    let cpu_us = |prefix: &str, records: u64| {
        let of_them = processes.iter().filter(|used| used.name.starts_with(prefix));
        let used_s: f64 = of_them.clone().map(|used| used.user_s + used.system_s).sum();
        (records > 0 && of_them.count() > 0).then(|| used_s * 1e6 / records as f64)
    };
    let moved = if produced.span.records > 0 { produced.span.records } else { consumed.span.records };
    let brokers = processes.iter().filter(|used| used.name.starts_with("broker"));
    let at = |histogram: &Option<Histogram>, figure: fn(&Histogram) -> u64| {
        histogram.as_ref().map(|histogram| figure(histogram) as f64)
    };
    let (acknowledge, end_to_end) = (&produced.acknowledge_latency, &consumed.end_to_end_latency);
    Figures {
        produced_records_per_s: rate(produced, produced.span.records as f64),
        produced_mb_per_s: rate(produced, produced.span.bytes as f64 / MB),
        consumed_records_per_s: rate(consumed, consumed.span.records as f64),
        consumed_mb_per_s: rate(consumed, consumed.span.bytes as f64 / MB),
        broker_cpu_us_per_record: cpu_us("broker", moved),
        producer_cpu_us_per_record: cpu_us("producer", produced.span.records),
        consumer_cpu_us_per_record: cpu_us("consumer", consumed.span.records),
        broker_memory_bytes_max: brokers.map(|used| used.memory_bytes_max).max(),
        drain_s,
        acknowledge_p50_us: at(acknowledge, |h| h.p50_us),
        acknowledge_p99_us: at(acknowledge, |h| h.p99_us),
        acknowledge_p999_us: at(acknowledge, |h| h.p999_us),
        acknowledge_max_us: at(acknowledge, |h| h.max_us),
        end_to_end_p50_us: at(end_to_end, |h| h.p50_us),
        end_to_end_p99_us: at(end_to_end, |h| h.p99_us),
        end_to_end_p999_us: at(end_to_end, |h| h.p999_us),
        end_to_end_max_us: at(end_to_end, |h| h.max_us),
        topics_ready_per_s: None,
        topic_ready_p50_us: None,
        topic_ready_p99_us: None,
        metadata_us: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(from_us: u64, to_us: u64, records: u64) -> Report {
        Report {
            measured: Span { from_us, to_us, records, bytes: records * 1_048_576 },
            acknowledged: records + 5,
            ..Report::default()
        }
    }

    #[test]
    fn rates_are_taken_over_the_stretch_of_all_workers() {
        let reports =
            [report(1_000_000, 3_000_000, 100), report(1_000_000, 5_000_000, 300), Report::default()];
        let produced = gather(reports.iter()).expect("readable");
        assert_eq!((seconds(&produced.span), produced.acknowledged), (4.0, 410));
        let used = |name: &str, user_s| ProcessUse {
            name: name.to_owned(),
            user_s,
            memory_bytes_max: 7,
            ..ProcessUse::default()
        };
        let processes = [used("broker-1", 0.001), used("broker-2", 0.003), used("producer-0", 0.002)];
        let figures = figures(&produced, &CombinedReport::default(), &processes, None);
        assert_eq!(figures.produced_records_per_s, Some(100.0));
        assert_eq!(figures.produced_mb_per_s, Some(100.0));
        assert_eq!(figures.broker_cpu_us_per_record, Some(10.0));
        assert_eq!(figures.producer_cpu_us_per_record, Some(5.0));
        assert_eq!(figures.broker_memory_bytes_max, Some(7));
        assert_eq!(figures.consumed_records_per_s, None);
        assert_eq!(figures.consumer_cpu_us_per_record, None);
    }
}
