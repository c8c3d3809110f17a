//! The drain of a backlog: from the consumers' start to its last record. Pure.
//!
//! The lab's client and stamps tell the records of the backlog from later ones, so that its last record is
//! known. Of Kafka's tools and of streams only the count of records is known: there the drain ends with as
//! many records as the backlog had, at a time between two of their reports. They also join their group only
//! after the start, so their first records are their start.

use crate::result::{Histogram, HistogramUnreadable};
use crate::worker::{Interval, Report, Span};

/// A drained backlog.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Drain {
    /// From the consumers' start to the last record, with the records of the backlog.
    pub(super) span: Span,
    /// Latency of these records, from their intended send time.
    pub(super) latency: Option<Histogram>,
    /// Time until the consumers had joined their group, in seconds.
    pub(super) group_start_s: f64,
}

impl Drain {
    /// By the consumers' reports of the backlog's records.
    pub(super) fn by_records<'a>(
        reports: impl Iterator<Item = &'a Report> + Clone,
        group_start_s: f64,
    ) -> Result<Option<Drain>, HistogramUnreadable> {
        let latency =
            Histogram::merged(reports.clone().filter_map(|report| report.drained_latency.as_ref()))?;
        let spans = reports.filter_map(|report| report.drained).filter(|span| span.records > 0);
        let span = spans.reduce(|all, one| Span {
            from_us: all.from_us.min(one.from_us),
            to_us: all.to_us.max(one.to_us),
            records: all.records + one.records,
            bytes: all.bytes + one.bytes,
        });
        Ok(span.map(|span| Drain { span, latency, group_start_s }))
    }

    /// By the count of `backlog` records in the intervals of all consumers, which were started at `start_us`.
    pub(super) fn by_count(intervals: &[Vec<Interval>], backlog: u64, start_us: u64) -> Option<Drain> {
        let all = || intervals.iter().flatten().filter(|interval| interval.records > 0);
        let began_us = |one: &Interval| one.at_us.saturating_sub(one.length_us);
        let from_us = all().map(began_us).min()?.max(start_us);
        // Between two of these times, records come evenly.
        let mut times: Vec<u64> = all().flat_map(|one| [began_us(one), one.at_us]).collect();
        times.sort_unstable();
        times.dedup();
        let until = |at_us: u64| -> f64 {
            let of = |one: &Interval| {
                let passed = at_us.saturating_sub(began_us(one)) as f64;
                one.records as f64 * (passed / one.length_us.max(1) as f64).min(1.0)
            };
            all().map(of).sum()
        };
        // A ten thousandth of a record is the error of the additions.
        let wanted = backlog as f64 - 1e-4;
        let place = times.iter().position(|at_us| until(*at_us) >= wanted)?;
        let end_us = times[place];
        let to_us = match place.checked_sub(1).map(|before| times[before]) {
            Some(before_us) => {
                let (before, after) = (until(before_us), until(end_us));
                let share = ((wanted - before) / (after - before)).clamp(0.0, 1.0);
                before_us + ((end_us - before_us) as f64 * share).round() as u64
            }
            None => end_us,
        };
        let span = Span { from_us, to_us: to_us.max(from_us), records: backlog, bytes: 0 };
        let group_start_s = from_us.saturating_sub(start_us) as f64 / 1e6;
        Some(Drain { span, latency: None, group_start_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(to_us: u64, records: u64) -> Report {
        let drained = Some(Span { from_us: 1_000_000, to_us, records, bytes: 0 });
        Report { drained, ..Report::default() }
    }

    #[test]
    fn a_drain_ends_with_the_last_record_of_any_consumer() {
        let reports = [report(1_020_000, 700), report(1_046_000, 300), report(1_000_000, 0)];
        let drain = Drain::by_records(reports.iter(), 0.2).expect("readable").expect("a drain");
        assert_eq!(drain.span, Span { from_us: 1_000_000, to_us: 1_046_000, records: 1000, bytes: 0 });
        assert_eq!(Drain::by_records([Report::default()].iter(), 0.2), Ok(None));
    }

    #[test]
    fn a_count_ends_within_an_interval_and_the_start_of_the_group_is_apart() {
        let interval =
            |at_us, records| Interval { at_us, length_us: 250_000, records, ..Interval::default() };
        // Two consumers, which begin 1 s and 1.25 s after the start.
        let intervals = [
            vec![
                interval(1_000_000, 0),
                interval(1_250_000, 0),
                interval(2_250_000, 500),
                interval(2_500_000, 500),
            ],
            vec![interval(2_500_000, 250), interval(2_750_000, 250), interval(3_000_000, 10)],
        ];
        let drain = |backlog| Drain::by_count(&intervals, backlog, 1_000_000).map(|drain| drain.span.to_us);
        let whole = Drain::by_count(&intervals, 1500, 1_000_000).expect("drained");
        assert_eq!((whole.span.from_us, whole.span.to_us, whole.group_start_s), (2_000_000, 2_750_000, 1.0));
        assert_eq!(drain(875), Some(2_375_000), "half of the second interval");
        assert_eq!(drain(1511), None, "never");
        assert_eq!(Drain::by_count(&[], 5, 0), None);
    }
}
