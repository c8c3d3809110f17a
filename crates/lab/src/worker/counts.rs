//! Counters of a worker: one [`Counts`] per thread, to avoid contention, summed once per second for an
//! interval and at the end for the report. For every driver.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hdrhistogram::Histogram as Recorded;

use super::{BatchCounts, Interval, NegativeLatencies, Order, Report, Span, StopWhen};
use crate::histogram::Histogram;

/// The measured interval, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Start of the work.
    pub(crate) start_us: u64,
    /// Start of the measurement.
    pub(crate) from_us: u64,
    /// End of the measurement; the maximum if unknown.
    pub(crate) to_us: u64,
    /// True if answers after the end are left out. At a fixed rate such answers belong to records of the end,
    /// as those at the beginning belong to records of the warm-up: without them, the rate is that of the
    /// accepted records. At the maximum rate the time until the last answer counts, too.
    pub(crate) closes: bool,
    /// True if records from before the start are a backlog, whose end and latency are measured.
    pub(crate) drains: bool,
}

/// Timestamps are in whole milliseconds, so a record of this much less than the start may be newer.
const TIMESTAMP_STEP_US: u64 = 1_000;

impl Window {
    /// The window of the lab's start command.
    pub(crate) fn new(at_us: u64, measure_from_us: u64, stop: StopWhen) -> Window {
        let to_us = match stop {
            StopWhen::Seconds(seconds) => measure_from_us.saturating_add((seconds.max(0.0) * 1e6) as u64),
            StopWhen::Records(_) | StopWhen::OnCommand => u64::MAX,
        };
        Window { start_us: at_us, from_us: measure_from_us, to_us, closes: false, drains: false }
    }

    /// The window for records at a fixed rate, if `is_paced`.
    pub(crate) fn paced(self, is_paced: bool) -> Window {
        Window { closes: is_paced && self.to_us != u64::MAX, ..self }
    }

    /// The window for a backlog, if there is one.
    pub(crate) fn draining(self, drains: bool) -> Window {
        Window { drains, ..self }
    }

    /// True if latencies of records intended at this time count.
    #[inline]
    pub(crate) fn holds(&self, intended_us: u64) -> bool {
        (self.from_us..self.to_us).contains(&intended_us)
    }
}

/// The counters of a thread.
#[derive(Debug)]
pub(crate) struct Counts {
    window: Window,
    acknowledged: u64,
    failed: u64,
    first_failure: Option<String>,
    measured: Span,
    latency: Recorded<u64>,
    interval: (u64, u64),
    interval_latency: Recorded<u64>,
    /// The consumed records of a backlog, without their bytes.
    drained: Span,
    drained_latency: Recorded<u64>,
    /// Those of the interval.
    interval_drained: u64,
    negative: NegativeLatencies,
    /// The acknowledged batches of the measurement.
    batches: BatchCounts,
}

/// The counters of a thread, shared with the reporting thread.
pub(crate) type SharedCounts = Arc<Mutex<Counts>>;

impl Counts {
    /// Empty counters. The lab's start command sets the window.
    pub(crate) fn shared() -> SharedCounts {
        let never =
            Window { start_us: u64::MAX, from_us: u64::MAX, to_us: u64::MAX, closes: false, drains: false };
        Arc::new(Mutex::new(Counts {
            window: never,
            acknowledged: 0,
            failed: 0,
            first_failure: None,
            measured: Span::default(),
            latency: Histogram::recorder(),
            interval: (0, 0),
            interval_latency: Histogram::recorder(),
            drained: Span::default(),
            drained_latency: Histogram::recorder(),
            interval_drained: 0,
            negative: NegativeLatencies::default(),
            batches: BatchCounts::default(),
        }))
    }

    /// Sets the window.
    pub(crate) fn measure(&mut self, window: Window) {
        self.window = window;
        self.measured.from_us = window.from_us;
        self.measured.to_us = window.from_us;
        (self.drained.from_us, self.drained.to_us) = (window.start_us, window.start_us);
    }

    /// Counts records acknowledged or consumed at `at_us`. Latencies are recorded separately.
    #[inline]
    pub(crate) fn done(&mut self, records: u64, bytes: u64, at_us: u64) {
        self.acknowledged += records;
        self.interval.0 += records;
        self.interval.1 += bytes;
        if self.is_measured(at_us) {
            self.measured.records += records;
            self.measured.bytes += bytes;
            self.measured.to_us = match self.window.closes {
                true => self.window.to_us,
                false => self.measured.to_us.max(at_us),
            };
        }
    }

    /// True for an answer at this time that belongs to the measurement.
    #[inline]
    fn is_measured(&self, at_us: u64) -> bool {
        at_us >= self.window.from_us && !(self.window.closes && at_us >= self.window.to_us)
    }

    /// Counts the batches of records acknowledged at `at_us`, which are counted separately.
    #[inline]
    pub(crate) fn batches(&mut self, batches: BatchCounts, at_us: u64) {
        if self.is_measured(at_us) {
            self.batches = self.batches.plus(batches);
        }
    }

    /// Records the latencies of records that reached a consumer at `at_us`. The producers' clock may be ahead
    /// of the consumer's.
    #[inline]
    pub(crate) fn arrived(&mut self, records: u64, at_us: u64, intended_us: u64) {
        if intended_us > at_us {
            self.negative.add(NegativeLatencies { records, us_max: intended_us - at_us });
        }
        self.took(records, at_us.saturating_sub(intended_us), intended_us);
    }

    /// Records the latencies of records intended at this time. Those intended before the start are a backlog,
    /// or ignored.
    #[inline]
    pub(crate) fn took(&mut self, records: u64, latency_us: u64, intended_us: u64) {
        let latency_us = latency_us.max(1);
        if intended_us < self.window.start_us {
            if self.window.drains && intended_us + TIMESTAMP_STEP_US < self.window.start_us {
                self.drained.records += records;
                self.drained.to_us = self.drained.to_us.max(intended_us + latency_us);
                self.interval_drained += records;
                self.drained_latency.saturating_record_n(latency_us, records);
            }
            return;
        }
        self.interval_latency.saturating_record_n(latency_us, records);
        if self.window.holds(intended_us) {
            self.latency.saturating_record_n(latency_us, records);
        }
    }

    /// Counts failed records.
    pub(crate) fn failed(&mut self, records: u64, why: impl FnOnce() -> String) {
        self.failed += records;
        self.first_failure.get_or_insert_with(why);
    }
}

/// The counters, which stay correct even if a thread panicked.
pub(crate) fn lock(counts: &SharedCounts) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sum of all threads since the last call.
pub(crate) fn interval(all: &[SharedCounts], since_us: u64, at_us: u64) -> Interval {
    let mut latency = Histogram::recorder();
    let mut interval = Interval { at_us, length_us: at_us.saturating_sub(since_us), ..Interval::default() };
    for counts in all {
        let mut counts = lock(counts);
        let (records, bytes) = std::mem::take(&mut counts.interval);
        interval.records += records;
        interval.bytes += bytes;
        interval.backlog += std::mem::take(&mut counts.interval_drained);
        if !counts.interval_latency.is_empty() {
            latency.add(&counts.interval_latency).expect("all recorders have the same bounds");
            counts.interval_latency.reset();
        }
    }
    if !latency.is_empty() {
        let at = |quantile| Some(latency.value_at_quantile(quantile));
        (interval.p50_us, interval.p75_us, interval.p95_us) = (at(0.5), at(0.75), at(0.95));
        (interval.p99_us, interval.p999_us, interval.p9999_us) = (at(0.99), at(0.999), at(0.9999));
        interval.max_us = Some(latency.max());
        interval.mean_us = Some(latency.mean().round() as u64);
    }
    interval
}

/// The totals of all threads since the start: the report without the role's own parts, and the latency.
pub(crate) fn report(all: &[SharedCounts]) -> (Report, Option<Histogram>) {
    let mut latency = Histogram::recorder();
    let mut drained_latency = Histogram::recorder();
    let mut report = Report::default();
    for (at, counts) in all.iter().enumerate() {
        let counts = lock(counts);
        if counts.window.drains {
            let drained = report.drained.get_or_insert(counts.drained);
            if at > 0 {
                drained.records += counts.drained.records;
                drained.to_us = drained.to_us.max(counts.drained.to_us);
            }
            drained_latency.add(&counts.drained_latency).expect("all recorders have the same bounds");
        }
        report.acknowledged += counts.acknowledged;
        report.failed += counts.failed;
        report.negative.add(counts.negative);
        if report.first_failure.is_none() {
            report.first_failure.clone_from(&counts.first_failure);
        }
        let measured = &mut report.measured;
        measured.from_us = if at == 0 { counts.measured.from_us } else { measured.from_us };
        measured.to_us = measured.to_us.max(counts.measured.to_us);
        measured.records += counts.measured.records;
        measured.bytes += counts.measured.bytes;
        latency.add(&counts.latency).expect("all recorders have the same bounds");
    }
    report.drained_latency = Histogram::of(&drained_latency);
    (report, Histogram::of(&latency))
}

/// The report of producers without notes: totals, and the records sent by each client.
pub(crate) fn produced(all: &[SharedCounts], orders: Vec<Vec<Order>>) -> Report {
    let (mut report, latency) = report(all);
    report.acknowledge_latency = latency;
    report.unacknowledged = orders.into_iter().flatten().collect();
    report.unacknowledged.sort_unstable_by_key(|order| order.producer);
    report.sent = report.unacknowledged.iter().map(|order| order.sent).sum();
    let batches =
        all.iter().map(|counts| lock(counts).batches).fold(BatchCounts::default(), BatchCounts::plus);
    report.batches = (batches.batches > 0).then_some(batches);
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_counts_for_the_total_and_for_nothing_else() {
        let all = [Counts::shared(), Counts::shared()];
        let window = Window::new(1_000_000, 2_000_000, StopWhen::Seconds(1.0));
        for counts in &all {
            lock(counts).measure(window);
        }
        lock(&all[0]).took(10, 500, 1_900_000);
        lock(&all[0]).done(10, 1000, 1_900_500);
        // Intended in the warm-up and acknowledged in the measurement: counts for the rate, not for latency.
        lock(&all[1]).took(5, 200_000, 1_950_000);
        lock(&all[1]).done(5, 500, 2_150_000);
        lock(&all[1]).took(3, 700, 2_500_000);
        lock(&all[1]).done(3, 300, 2_500_700);
        // Left over from an earlier run.
        lock(&all[1]).took(1, 9_000_000, 999_999);
        lock(&all[1]).failed(2, || "why".to_owned());
        let first = interval(&all, 1_000_000, 3_000_000);
        assert_eq!((first.records, first.bytes, first.length_us), (18, 1800, 2_000_000));
        assert!(first.max_us.is_some_and(|max| max.abs_diff(200_000) < 200), "{first:?}");
        // Ten records took 0.5 ms, five 200 ms, three 0.7 ms.
        assert_eq!((first.p50_us, first.p75_us), (Some(500), first.p9999_us), "{first:?}");
        assert!(first.mean_us.is_some_and(|mean| mean.abs_diff(55_950) < 100), "{first:?}");
        assert_eq!(interval(&all, 3_000_000, 4_000_000).p50_us, None);
        let (report, latency) = report(&all);
        assert_eq!((report.acknowledged, report.failed), (18, 2));
        assert_eq!(report.first_failure.as_deref(), Some("why"));
        let span = Span { from_us: 2_000_000, to_us: 2_500_700, records: 8, bytes: 800 };
        assert_eq!(report.measured, span);
        let latency = latency.expect("some");
        assert_eq!((latency.count, latency.p50_us), (3, 700));
    }

    #[test]
    fn a_fixed_rate_is_reached_although_the_last_answers_come_late() {
        let all = [Counts::shared()];
        let window = Window::new(0, 1_000_000, StopWhen::Seconds(1.0)).paced(true);
        lock(&all[0]).measure(window);
        // A record every 100 ms, acknowledged 250 ms later.
        for record in 0..20 {
            lock(&all[0]).done(1, 10, record * 100_000 + 250_000);
        }
        let (report, _) = report(&all);
        let span = Span { from_us: 1_000_000, to_us: 2_000_000, records: 10, bytes: 100 };
        assert_eq!((report.measured, report.acknowledged), (span, 20));
        assert!(!Window::new(0, 10, StopWhen::OnCommand).paced(true).closes, "its end is unknown");
    }

    #[test]
    fn batches_are_counted_within_the_measurement() {
        let all = [Counts::shared(), Counts::shared()];
        let window = Window::new(0, 1_000_000, StopWhen::Seconds(1.0)).paced(true);
        all.iter().for_each(|counts| lock(counts).measure(window));
        let done = |counts: &SharedCounts, records, at_us| {
            let mut counts = lock(counts);
            counts.done(records, 10 * records, at_us);
            counts.batches(BatchCounts { batches: 1, bytes: 70 + 10 * records }, at_us);
        };
        assert_eq!(produced(&all, Vec::new()).batches, None, "a driver that does not report them");
        done(&all[0], 5, 999_999);
        done(&all[0], 20, 1_000_000);
        done(&all[1], 10, 1_500_000);
        done(&all[1], 40, 2_000_000);
        let report = produced(&all, Vec::new());
        assert_eq!(report.batches, Some(BatchCounts { batches: 2, bytes: 440 }));
        assert_eq!(report.measured.records, 30);
    }

    #[test]
    fn a_backlog_ends_with_its_last_record_not_with_later_ones() {
        let all = [Counts::shared(), Counts::shared()];
        let window = Window::new(5_000_000, 5_000_000, StopWhen::OnCommand).draining(true);
        all.iter().for_each(|counts| lock(counts).measure(window));
        lock(&all[0]).took(700, 4_100_000, 1_000_000);
        lock(&all[1]).took(300, 4_321_000, 1_000_000);
        // A record sent since, which is read with them, and one whose timestamp was rounded down.
        lock(&all[0]).took(1, 20_000, 6_000_000);
        lock(&all[0]).took(1, 3_000_000, 4_999_500);
        let first = interval(&all, 5_000_000, 6_000_000);
        assert_eq!(first.backlog, 1000);
        let (report, latency) = report(&all);
        let span = Span { from_us: 5_000_000, to_us: 5_321_000, records: 1000, bytes: 0 };
        assert_eq!(report.drained, Some(span));
        assert_eq!(report.drained_latency.map(|latency| latency.count), Some(1000));
        assert_eq!(latency.map(|latency| latency.count), Some(1), "that of later records is apart");
    }

    #[test]
    fn records_that_arrive_before_they_are_sent_are_counted() {
        let all = [Counts::shared(), Counts::shared()];
        all.iter().for_each(|counts| lock(counts).measure(Window::new(0, 0, StopWhen::OnCommand)));
        lock(&all[0]).arrived(3, 5_000, 4_000);
        lock(&all[0]).arrived(2, 5_000, 5_700);
        lock(&all[1]).arrived(1, 5_000, 5_000);
        lock(&all[1]).arrived(1, 5_000, 5_200);
        let (report, latency) = report(&all);
        assert_eq!(report.negative, NegativeLatencies { records: 3, us_max: 700 });
        assert_eq!(latency.map(|latency| latency.count), Some(7));
    }

    #[test]
    fn a_window_ends_where_the_lab_knows_it() {
        assert!(Window::new(0, 10, StopWhen::OnCommand).holds(u64::MAX - 1));
        let second = Window::new(0, 10, StopWhen::Seconds(1.0));
        assert!(second.holds(1_000_009) && !second.holds(1_000_010) && !second.holds(9));
    }
}
