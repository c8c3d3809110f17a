//! Reading a history: series with rates, and levels of figures.

use std::sync::Arc;

use crate::column::Column;
use crate::history::{
    BYTES_IN, BYTES_OUT, Figure, History, LEADER_CHANGES, MESSAGES_IN, RoundTime, TOPIC_MEASURES,
};
use crate::table::Series;

/// A round as a reader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The time of the sample, in milliseconds since 1970.
    pub at_ms: i64,
    /// Milliseconds since the sample before; none after a gap.
    pub span_ms: Option<u32>,
}

/// The traffic of a topic, of all, or of the others. A value for each interval; none before the series, and
/// after a gap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicSeries {
    /// The time from which on the series has values; none if that is not in the history yet.
    pub since_ms: Option<i64>,
    /// Records that producers sent, per second.
    pub messages_in: Vec<Option<f64>>,
    /// Bytes per second, as the next.
    pub bytes_in: Vec<Option<f64>>,
    pub bytes_out: Vec<Option<f64>>,
    /// Partitions with another leader than in the interval before.
    pub leader_changes: Vec<Option<u64>>,
}

/// The lag of a group, of all, or of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupSeries {
    /// The time from which on the series has values; none if that is not in the history yet.
    pub since_ms: Option<i64>,
    /// Records behind; none before the series, or if unknown.
    pub lag: Vec<Option<u64>>,
}

/// Sums of a topic over the whole history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSum {
    pub topic: Arc<str>,
    pub messages_in: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

/// Values of the rounds of a history.
type Values = Vec<Option<u64>>;

impl History {
    /// The rounds, oldest first: the times of all series.
    pub fn intervals(&self) -> Vec<Interval> {
        self.rounds().map(|(_, RoundTime { at_ms, span_ms })| Interval { at_ms, span_ms }).collect()
    }

    /// The series of a topic; none if it has no series.
    pub fn topic(&self, name: &str) -> Option<TopicSeries> {
        let series = self.topics.get(name)?;
        Some(self.topic_series(self.topic_values(series), series.since))
    }

    /// The sum over all topics.
    pub fn all_topics(&self) -> TopicSeries {
        self.topic_series(self.topics.totals().each_ref().map(|column| self.values(column, 0)), 0)
    }

    /// The sum over the topics that have no series, or none that is visible, and their number.
    pub fn other_topics(&self, is_visible: impl Fn(&str) -> bool) -> (TopicSeries, usize) {
        let mut values = self.topics.totals().each_ref().map(|column| self.values(column, 0));
        let mut count = self.topics.others_count();
        for (name, series) in self.topics.iter() {
            if !is_visible(name) {
                count += 1;
                continue;
            }
            subtract(&mut values, &self.topic_values(series));
        }
        (self.topic_series(values, 0), count)
    }

    /// The topics with a series, by their bytes in the whole history, largest first.
    pub fn largest_topics(&self) -> Vec<TopicSum> {
        let mut topics: Vec<TopicSum> =
            self.topics.iter().map(|(name, series)| self.sum(name, series)).collect();
        topics.sort_by(|one, other| {
            let bytes = |sum: &TopicSum| sum.bytes_in.saturating_add(sum.bytes_out);
            bytes(other).cmp(&bytes(one)).then_with(|| one.topic.cmp(&other.topic))
        });
        topics
    }

    fn sum(&self, name: &Arc<str>, series: &Series<TOPIC_MEASURES>) -> TopicSum {
        let [messages_in, bytes_in, bytes_out, _] =
            self.topic_values(series).map(|values| values.into_iter().flatten().sum());
        TopicSum { topic: Arc::clone(name), messages_in, bytes_in, bytes_out }
    }

    /// The lag of a group; none if it has no series.
    pub fn group(&self, name: &str) -> Option<GroupSeries> {
        let series = self.groups.get(name)?;
        let lag = self.values(&series.columns[0], series.since);
        Some(GroupSeries { since_ms: self.time_of(series.since), lag })
    }

    /// The sum over all groups whose lag is known.
    pub fn all_groups(&self) -> GroupSeries {
        GroupSeries { since_ms: self.time_of(0), lag: self.values(&self.groups.totals()[0], 0) }
    }

    /// The sum over the groups that have no series, or none that is visible, and their number.
    pub fn other_groups(&self, is_visible: impl Fn(&str) -> bool) -> (GroupSeries, usize) {
        let mut values = [self.values(&self.groups.totals()[0], 0)];
        let mut count = self.groups.others_count();
        for (name, series) in self.groups.iter() {
            if !is_visible(name) {
                count += 1;
                continue;
            }
            subtract(&mut values, &[self.values(&series.columns[0], series.since)]);
        }
        let [lag] = values;
        (GroupSeries { since_ms: self.time_of(0), lag }, count)
    }

    /// The groups with a series and their last known lag, largest first.
    pub fn largest_groups(&self) -> Vec<(Arc<str>, Option<u64>)> {
        let last = |(name, series): (&Arc<str>, &Series<1>)| {
            let lag = self.values(&series.columns[0], series.since).pop().flatten();
            (Arc::clone(name), lag)
        };
        let mut groups: Vec<_> = self.groups.iter().map(last).collect();
        groups.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        groups
    }

    /// The values of a figure.
    pub fn figure(&self, figure: Figure) -> Vec<Option<u64>> {
        self.values(self.figure_column(figure), 0)
    }

    fn values(&self, column: &Column, since: u64) -> Values {
        self.rounds().map(|(round, _)| column.get(round).filter(|_| round >= since)).collect()
    }

    fn topic_values(&self, series: &Series<TOPIC_MEASURES>) -> [Values; TOPIC_MEASURES] {
        series.columns.each_ref().map(|column| self.values(column, series.since))
    }

    /// The time of a round, or of the first that is kept.
    fn time_of(&self, round: u64) -> Option<i64> {
        self.rounds().find(|(number, _)| *number >= round).map(|(_, time)| time.at_ms)
    }

    fn topic_series(&self, values: [Values; TOPIC_MEASURES], since: u64) -> TopicSeries {
        let rates = |measure: usize| {
            let values = self.rounds().zip(&values[measure]);
            values.map(|((_, time), value)| rate((*value)?, time.span_ms?)).collect()
        };
        let changes = self.rounds().zip(&values[LEADER_CHANGES]);
        TopicSeries {
            since_ms: self.time_of(since),
            messages_in: rates(MESSAGES_IN),
            bytes_in: rates(BYTES_IN),
            bytes_out: rates(BYTES_OUT),
            leader_changes: changes
                .map(|((_, time), value)| value.filter(|_| time.span_ms.is_some()))
                .collect(),
        }
    }
}

/// Subtracts the known values of a series from sums that contain them.
fn subtract<const N: usize>(sums: &mut [Values; N], own: &[Values; N]) {
    for (sums, own) in sums.iter_mut().zip(own) {
        for (sum, own) in sums.iter_mut().zip(own) {
            *sum = sum.map(|sum| sum.saturating_sub(own.unwrap_or(0)));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of an interval are far below 2^53")]
fn rate(value: u64, span_ms: u32) -> Option<f64> {
    (span_ms > 0).then(|| value as f64 * 1000.0 / f64::from(span_ms))
}
