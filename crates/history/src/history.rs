//! The rounds of a history: recording.

use std::collections::VecDeque;
use std::time::Duration;

use crate::column::Column;
use crate::event::{Event, EventKind};
use crate::table::{NamedValues, SeriesTable};
use crate::{GROUPS_MAX, NAME_BYTES_MAX, POINTS, TOPICS_MAX};

/// Events that are kept: the oldest give way.
const EVENTS_MAX: usize = 200;
/// Measures of a topic.
pub(crate) const TOPIC_MEASURES: usize = 4;
pub(crate) const MESSAGES_IN: usize = 0;
pub(crate) const BYTES_IN: usize = 1;
pub(crate) const BYTES_OUT: usize = 2;
pub(crate) const LEADER_CHANGES: usize = 3;

/// A figure of the broker, or of the cluster as the broker knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Median time of produce requests in microseconds, with the wait for replicas. Unknown without requests,
    /// as the other times.
    ProduceP50Us,
    ProduceP99Us,
    /// Median time of consumers' fetch requests in microseconds, with the wait for records.
    FetchP50Us,
    FetchP99Us,
    /// The same without the wait: the work of the broker.
    FetchWorkP50Us,
    FetchWorkP99Us,
    /// Partitions of the cluster with fewer replicas in sync than assigned.
    UnderReplicated,
    /// Partitions of the cluster without a leader.
    Leaderless,
    /// Groups on the broker whose lag is unknown.
    UnknownLags,
    /// Bytes of all logs on the broker.
    LogBytes,
    /// Use of the fullest volume of the broker's log directories, in tenths of a percent.
    DiskUsePerMille,
}

impl Figure {
    pub const ALL: [Figure; 11] = [
        Figure::ProduceP50Us,
        Figure::ProduceP99Us,
        Figure::FetchP50Us,
        Figure::FetchP99Us,
        Figure::FetchWorkP50Us,
        Figure::FetchWorkP99Us,
        Figure::UnderReplicated,
        Figure::Leaderless,
        Figure::UnknownLags,
        Figure::LogBytes,
        Figure::DiskUsePerMille,
    ];
}

/// The figures of a round; unknown ones are missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures([Option<u64>; Figure::ALL.len()]);

impl Figures {
    pub fn set(&mut self, figure: Figure, value: Option<u64>) {
        self.0[figure as usize] = value;
    }
}

/// The traffic of a topic since the round before.
#[derive(Clone, Debug, Default)]
pub struct TopicSample<'a> {
    pub topic: &'a str,
    pub messages_in: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Partitions with another leader.
    pub leader_changes: u64,
}

/// The lag of a group.
#[derive(Clone, Debug)]
pub struct GroupSample<'a> {
    /// The group id; none for an id of more than [`NAME_BYTES_MAX`] bytes, which gets no series.
    pub group: Option<&'a str>,
    /// Records over all partitions; unknown if it is unknown of one.
    pub lag: Option<u64>,
}

impl<'a> TopicSample<'a> {
    /// Traffic since a gap has no known time, and counts nowhere.
    fn values(&self, is_after_gap: bool) -> NamedValues<'a, TOPIC_MEASURES> {
        let mut values = [0; TOPIC_MEASURES];
        if !is_after_gap {
            values[MESSAGES_IN] = self.messages_in;
            values[BYTES_IN] = self.bytes_in;
            values[BYTES_OUT] = self.bytes_out;
            values[LEADER_CHANGES] = self.leader_changes;
        }
        let weight = values[BYTES_IN].saturating_add(values[BYTES_OUT]);
        NamedValues { name: Some(self.topic), values: values.map(Some), weight }
    }
}

impl<'a> GroupSample<'a> {
    fn values(&self) -> NamedValues<'a, 1> {
        let name = self.group.filter(|id| id.len() <= NAME_BYTES_MAX);
        NamedValues { name, values: [self.lag], weight: self.lag.unwrap_or(0) }
    }
}

/// Everything that is sampled at one time. The names of topics are distinct, and those of groups.
#[derive(Clone, Debug)]
pub struct Round<'a> {
    /// Milliseconds since 1970.
    pub at_ms: i64,
    /// Milliseconds since the round before, to which the traffic belongs; none after a gap, when the traffic
    /// has no known time.
    pub span_ms: Option<u32>,
    /// The time that the sample took.
    pub cost: Duration,
    pub topics: &'a [TopicSample<'a>],
    pub groups: &'a [GroupSample<'a>],
    pub figures: Figures,
}

/// The time of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTime {
    pub at_ms: i64,
    pub span_ms: Option<u32>,
}

/// The last rounds of a broker.
#[derive(Debug)]
pub struct History {
    interval: Duration,
    /// The number of the next round.
    next: u64,
    pub(crate) times: VecDeque<RoundTime>,
    pub(crate) topics: SeriesTable<TOPIC_MEASURES>,
    pub(crate) groups: SeriesTable<1>,
    figures: [Column; Figure::ALL.len()],
    events: VecDeque<Event>,
    cost: Duration,
}

impl History {
    /// An empty history with this time between rounds.
    pub fn new(interval: Duration) -> History {
        History {
            interval,
            next: 0,
            times: VecDeque::with_capacity(POINTS),
            topics: SeriesTable::new(TOPICS_MAX),
            groups: SeriesTable::new(GROUPS_MAX),
            figures: Default::default(),
            events: VecDeque::new(),
            cost: Duration::ZERO,
        }
    }

    /// Records a round.
    pub fn record(&mut self, round: &Round<'_>) {
        self.keep_order(round);
        let (number, is_after_gap) = (self.next, round.span_ms.is_none());
        self.next += 1;
        self.cost = round.cost;
        if self.times.len() >= POINTS {
            self.times.pop_front();
        }
        self.times.push_back(RoundTime { at_ms: round.at_ms, span_ms: round.span_ms });
        self.topics.record(number, round.topics.iter().map(|topic| topic.values(is_after_gap)));
        self.groups.record(number, round.groups.iter().map(GroupSample::values));
        for (column, value) in self.figures.iter_mut().zip(round.figures.0) {
            column.begin(number);
            column.add(number, value);
        }
        let oldest_ms = self.times.front().map_or(i64::MIN, |time| time.at_ms);
        self.events.retain(|event| event.at_ms >= oldest_ms);
    }

    /// Notes an event.
    pub fn note(&mut self, at_ms: i64, kind: EventKind) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(Event { at_ms, kind });
    }

    /// Moves earlier rounds and events to the time of a clock that was set back, so that times ascend.
    fn keep_order(&mut self, round: &Round<'_>) {
        let Some(last) = self.times.back().filter(|last| last.at_ms >= round.at_ms) else { return };
        let span = round.span_ms.map_or(self.interval.as_millis().try_into().unwrap_or(i64::MAX), i64::from);
        let back_ms = last.at_ms.saturating_sub(round.at_ms).saturating_add(span.max(1));
        self.times.iter_mut().for_each(|time| time.at_ms -= back_ms);
        self.events.iter_mut().for_each(|event| event.at_ms -= back_ms);
        self.note(round.at_ms, EventKind::ClockSetBack(back_ms.unsigned_abs()));
    }

    /// The time between rounds. It may be longer on a broker whose samples take long.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// The time that the last sample took.
    pub fn cost(&self) -> Duration {
        self.cost
    }

    /// Events, oldest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// The rounds that are kept, oldest first.
    pub(crate) fn rounds(&self) -> impl Iterator<Item = (u64, RoundTime)> {
        let first = self.next - self.times.len() as u64;
        (first..).zip(self.times.iter().copied())
    }

    pub(crate) fn figure_column(&self, figure: Figure) -> &Column {
        &self.figures[figure as usize]
    }

    /// Memory of the history in bytes.
    pub fn allocated(&self) -> usize {
        let columns = self.figures.iter().map(Column::allocated).sum::<usize>();
        let names = self.events.iter().map(|event| match &event.kind {
            EventKind::CertificatesReloaded(name) | EventKind::FeatureLevel(name, _) => name.len(),
            _ => 0,
        });
        size_of::<History>()
            + self.topics.allocated()
            + self.groups.allocated()
            + columns
            + self.times.capacity() * size_of::<RoundTime>()
            + self.events.capacity() * size_of::<Event>()
            + names.sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
