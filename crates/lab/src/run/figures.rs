//! Calculates the figures of a repetition from its workers' reports and its processes' usage. Pure.

use super::drain::Drain;
use crate::result::{Figures, Histogram, HistogramUnreadable, ProcessUse};
use crate::worker::{BatchCounts, NegativeLatencies, Report, Span, ToolPercentiles};

const MB: f64 = 1_048_576.0;
/// Bytes of a Mbit.
const MBIT: f64 = 125_000.0;

/// The combined reports of a role's workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct CombinedReport {
    /// The interval that covers the intervals of all workers, with their totals.
    pub(crate) span: Span,
    /// Records acknowledged or consumed, warm-up included.
    pub(crate) acknowledged: u64,
    /// Number of failed records.
    pub(crate) failed: u64,
    /// The first error.
    pub(crate) first_failure: Option<String>,
    pub(crate) acknowledge_latency: Option<Histogram>,
    pub(crate) end_to_end_latency: Option<Histogram>,
    /// The percentiles until acknowledged of tools without histograms.
    pub(crate) tool_percentiles: Option<ToolPercentiles>,
    /// The batches of producers, if the driver reports them.
    pub(crate) batches: Option<BatchCounts>,
    pub(crate) negative: NegativeLatencies,
    /// The largest delay of a start.
    pub(crate) late_us: u64,
    pub(crate) notes: Vec<String>,
}

impl CombinedReport {
    /// Replaces the span of consumers by that of a drained backlog, with its part of the bytes.
    pub(super) fn drain(&mut self, backlog: &Span) {
        let each = self.span.bytes as f64 / self.span.records.max(1) as f64;
        self.span = Span { bytes: (each * backlog.records as f64).round() as u64, ..*backlog };
    }
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
        all.negative.add(report.negative);
        all.batches = match (all.batches, report.batches) {
            (Some(known), Some(other)) => Some(known.plus(other)),
            (known, other) => known.or(other),
        };
        all.late_us = all.late_us.max(report.late_us);
        all.tool_percentiles = match (all.tool_percentiles, report.tool_percentiles) {
            (Some(known), Some(other)) => Some(known.slower(other)),
            (known, other) => known.or(other),
        };
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

/// Figures of produced and consumed records. The usage of the processes is that of the measurement: of the
/// producers' span, or, without producers or with a drained backlog, of the consumers'.
pub(super) fn figures(
    produced: &CombinedReport,
    consumed: &CombinedReport,
    processes: &[ProcessUse],
    drain: Option<&Drain>,
) -> Figures {
    let rate = |of: &CombinedReport, amount: f64| {
        let seconds = seconds(&of.span);
        (of.span.records > 0 && seconds > 0.0).then(|| amount / seconds)
    };
    let main = if produced.span.records > 0 && drain.is_none() { produced } else { consumed };
    // The spans of producers and consumers differ: consumers that lag need longer. Usage is of one span.
    let cpu_us = |prefix: &str, of: &CombinedReport| {
        let of_them = processes.iter().filter(|used| used.name.starts_with(prefix));
        let used_s: f64 = of_them.clone().map(|used| used.user_s + used.system_s).sum();
        let records = rate(of, of.span.records as f64)? * seconds(&main.span);
        (records > 0.0 && of_them.count() > 0).then(|| used_s * 1e6 / records)
    };
    let brokers = processes.iter().filter(|used| used.name.starts_with("broker"));
    let at = |histogram: &Option<Histogram>, figure: fn(&Histogram) -> u64| {
        histogram.as_ref().map(|histogram| figure(histogram) as f64)
    };
    let mean = |histogram: &Option<Histogram>| histogram.as_ref().map(|histogram| histogram.mean_us);
    let (acknowledge, end_to_end) = (&produced.acknowledge_latency, &consumed.end_to_end_latency);
    let tool = |figure: fn(&ToolPercentiles) -> u64| {
        produced.tool_percentiles.as_ref().map(|percentiles| figure(percentiles) as f64)
    };
    let drained = drain.map_or(&None, |drain| &drain.latency);
    Figures {
        produced_records_per_s: rate(produced, produced.span.records as f64),
        produced_mb_per_s: rate(produced, produced.span.bytes as f64 / MB),
        produced_mbit_per_s: rate(produced, produced.span.bytes as f64 / MBIT),
        consumed_records_per_s: rate(consumed, consumed.span.records as f64),
        consumed_mb_per_s: rate(consumed, consumed.span.bytes as f64 / MB),
        consumed_mbit_per_s: rate(consumed, consumed.span.bytes as f64 / MBIT),
        broker_cpu_us_per_record: cpu_us("broker", main),
        producer_cpu_us_per_record: cpu_us("producer", produced),
        consumer_cpu_us_per_record: cpu_us("consumer", consumed),
        records_per_batch: per_batch(produced, |_| produced.span.records),
        bytes_per_batch: per_batch(produced, |batches| batches.bytes),
        broker_memory_bytes_max: brokers.map(|used| used.memory_bytes_max).max(),
        drain_s: drain.map(|drain| seconds(&drain.span)),
        group_start_s: drain.map(|drain| drain.group_start_s),
        acknowledge_p50_us: at(acknowledge, |h| h.p50_us).or(tool(|of| of.p50_us)),
        acknowledge_mean_us: mean(acknowledge),
        acknowledge_p95_us: at(acknowledge, |h| h.p95_us),
        acknowledge_p99_us: at(acknowledge, |h| h.p99_us).or(tool(|of| of.p99_us)),
        acknowledge_p999_us: at(acknowledge, |h| h.p999_us).or(tool(|of| of.p999_us)),
        acknowledge_p9999_us: at(acknowledge, |h| h.p9999_us),
        acknowledge_max_us: at(acknowledge, |h| h.max_us).or(tool(|of| of.max_us)),
        end_to_end_p50_us: at(end_to_end, |h| h.p50_us),
        end_to_end_mean_us: mean(end_to_end),
        end_to_end_p95_us: at(end_to_end, |h| h.p95_us),
        end_to_end_p99_us: at(end_to_end, |h| h.p99_us),
        end_to_end_p999_us: at(end_to_end, |h| h.p999_us),
        end_to_end_p9999_us: at(end_to_end, |h| h.p9999_us),
        end_to_end_max_us: at(end_to_end, |h| h.max_us),
        drained_p50_us: at(drained, |h| h.p50_us),
        drained_mean_us: mean(drained),
        drained_p95_us: at(drained, |h| h.p95_us),
        drained_p99_us: at(drained, |h| h.p99_us),
        drained_p999_us: at(drained, |h| h.p999_us),
        drained_p9999_us: at(drained, |h| h.p9999_us),
        drained_max_us: at(drained, |h| h.max_us),
        // Those of carried records, and of topics and metadata, are added by their measurements.
        ..Figures::default()
    }
}

/// The mean of an amount over the batches of producers; `None` if the driver does not report them.
fn per_batch(produced: &CombinedReport, amount: impl Fn(&BatchCounts) -> u64) -> Option<f64> {
    let batches = produced.batches.filter(|batches| batches.batches > 0)?;
    Some(amount(&batches) as f64 / batches.batches as f64)
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
        assert_eq!(figures.produced_mbit_per_s, Some(838.860_8));
        assert_eq!(figures.broker_cpu_us_per_record, Some(10.0));
        assert_eq!(figures.producer_cpu_us_per_record, Some(5.0));
        assert_eq!(figures.broker_memory_bytes_max, Some(7));
        assert_eq!(figures.consumed_records_per_s, None);
        assert_eq!(figures.consumer_cpu_us_per_record, None);
    }

    #[test]
    fn the_cost_of_consumers_that_lag_is_that_of_what_they_read_meanwhile() {
        // Produced in 4 s, of which the usage is, and consumed in 16 s.
        let produced = gather([report(1_000_000, 5_000_000, 400)].iter()).expect("readable");
        let consumed = gather([report(1_000_000, 17_000_000, 400)].iter()).expect("readable");
        let used = ProcessUse { name: "consumer-0".to_owned(), user_s: 0.001, ..ProcessUse::default() };
        let figures = figures(&produced, &consumed, &[used], None);
        assert_eq!(figures.consumer_cpu_us_per_record, Some(10.0));
    }

    #[test]
    fn batches_of_all_producers_have_one_mean() {
        let of = |records, batches, bytes| Report {
            batches: Some(BatchCounts { batches, bytes }),
            ..report(0, 1_000_000, records)
        };
        let mean = |reports: &[Report]| {
            let produced = gather(reports.iter()).expect("readable");
            let figures = figures(&produced, &CombinedReport::default(), &[], None);
            (figures.records_per_batch, figures.bytes_per_batch)
        };
        assert_eq!(mean(&[of(100, 1, 2000), of(20, 5, 1000), Report::default()]), (Some(20.0), Some(500.0)));
        assert_eq!(mean(&[report(0, 1_000_000, 5)]), (None, None));
    }

    #[test]
    fn the_figures_of_a_drain_are_of_its_backlog() {
        let span = Span { from_us: 1_000_000, to_us: 1_500_000, records: 100_000, bytes: 1 << 20 };
        let mut latency = Histogram::recorder();
        latency.record_n(1_000_000, 9_990).expect("within the bounds");
        latency.record_n(1_500_000, 10).expect("within the bounds");
        let drain = Drain { span, latency: Histogram::of(&latency), group_start_s: 0.25 };
        // The producers went on at their rate, until the lab noticed.
        let produced = gather([report(1_000_000, 2_000_000, 30_000)].iter()).expect("readable");
        let consumed = CombinedReport { span, ..CombinedReport::default() };
        let used = ProcessUse { name: "broker-1".to_owned(), user_s: 0.1, ..ProcessUse::default() };
        let figures = figures(&produced, &consumed, &[used], Some(&drain));
        assert_eq!((figures.drain_s, figures.group_start_s), (Some(0.5), Some(0.25)));
        assert_eq!((figures.consumed_records_per_s, figures.consumed_mb_per_s), (Some(200_000.0), Some(2.0)));
        assert_eq!(figures.broker_cpu_us_per_record, Some(1.0));
        let is_about = |figure: Option<f64>, us: f64| {
            assert!(figure.is_some_and(|found| (found / us - 1.0).abs() < 0.001), "{figure:?} {us}");
        };
        is_about(figures.drained_p95_us, 1_000_000.0);
        is_about(figures.drained_p9999_us, 1_500_000.0);
        is_about(figures.drained_mean_us, 1_000_500.0);
    }

    #[test]
    fn percentiles_of_tools_take_the_place_of_a_histogram() {
        let tool = |p99_us| {
            let tool_percentiles =
                Some(ToolPercentiles { p50_us: 1_000, p99_us, p999_us: 9_000, max_us: 20_000 });
            Report { tool_percentiles, ..report(0, 1_000_000, 5) }
        };
        let produced = gather([tool(7_000), tool(8_000)].iter()).expect("readable");
        let figures = figures(&produced, &CombinedReport::default(), &[], None);
        assert_eq!(figures.acknowledge_p50_us, Some(1_000.0));
        assert_eq!(figures.acknowledge_p99_us, Some(8_000.0), "that of the slowest");
        assert_eq!(
            (figures.acknowledge_p999_us, figures.acknowledge_max_us),
            (Some(9_000.0), Some(20_000.0))
        );
    }
}
