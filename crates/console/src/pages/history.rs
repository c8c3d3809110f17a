//! Sections about the last hour of this broker, for the pages of the cluster, a broker, a topic and a group.
//! Empty where no hour is kept.

use maud::{Markup, html};

use super::{group, topic};
use crate::cluster::group::Group;
use crate::format;
use crate::history::chart::{ChartTimes, Line, chart};
use crate::history::{
    self, BrokerHistory, FigureSeries, GroupHistory, HistoryEvent, HistorySource, SampleTimes, TopicHistory,
    TrafficSeries,
};
use crate::page::Shell;
use crate::problem::Problem;

/// Topics in the list.
const TOPICS_LISTED: usize = 10;
/// Events in the list.
const EVENTS_LISTED: usize = 20;
/// Samples of a history: the width of a chart.
const POINTS: i64 = thalweg_history::POINTS as i64;

/// The hour of the broker, for the overview.
pub async fn of_broker(shell: &Shell) -> Markup {
    let Some(source) = shell.history() else { return html! {} };
    let body = history::broker(Some(source), shell.view())
        .await
        .map(|hour| broker_body(&hour, &source.span_words()));
    section(&format!("{} of broker {}", title(source), source.broker), body)
}

/// The hour of a broker, for the page of one: that of another broker is at its own console.
pub async fn of_broker_with_id(shell: &Shell, id: &str) -> Markup {
    match (shell.history(), id.parse::<i32>()) {
        (Some(source), Ok(id)) if id == source.broker => of_broker(shell).await,
        (Some(_), Ok(_)) => {
            html! { p class="quiet" { "Broker " (id) " keeps its samples itself: its own console shows them." } }
        }
        _ => html! {},
    }
}

/// The hour of a topic.
pub async fn of_topic(shell: &Shell, name: &str) -> Markup {
    let Some(source) = shell.history() else { return html! {} };
    let body = history::topic(Some(source), shell.view(), name).await.map(|hour| topic_body(&hour));
    section(&title(source), body)
}

/// The hour of a group.
pub async fn of_group(shell: &Shell, group: &Group) -> Markup {
    let Some(source) = shell.history() else { return html! {} };
    let hour = history::group(source, shell.view(), group).await;
    let body = hour.map(|hour| group_body(&hour, &source.span_words()));
    section(&title(source), body)
}

/// A title that begins with the span.
fn title(source: &HistorySource) -> String {
    source.span_words().replacen('t', "T", 1)
}

fn section(title: &str, body: Result<Markup, Problem>) -> Markup {
    html! {
        section aria-label=(title) {
            h2 { (title) }
            @match body {
                Ok(body) => (body),
                Err(problem) => p class="note warn" { (problem.message) },
            }
        }
    }
}

/// The times and the marks of the charts of a section.
struct HourCharts<'a> {
    times: &'a SampleTimes,
    marks: Vec<(i64, String)>,
}

impl<'a> HourCharts<'a> {
    fn new(times: &'a SampleTimes, events: &[HistoryEvent]) -> HourCharts<'a> {
        HourCharts { times, marks: events.iter().map(|event| (event.at_ms, event.text.clone())).collect() }
    }

    /// The time of the whole width: an hour of samples, or more if they were late.
    fn span_ms(&self) -> i64 {
        let SampleTimes { interval_ms, at_ms, .. } = self.times;
        let hour_ms = i64::try_from(*interval_ms).unwrap_or(i64::MAX).saturating_mul(POINTS).max(1);
        let kept_ms = at_ms.first().zip(at_ms.last()).map_or(0, |(first, last)| last - first);
        hour_ms.max(kept_ms)
    }

    fn chart(&self, id: &str, name: &str, lines: &[Line], shown: impl Fn(f64) -> String) -> Markup {
        let SampleTimes { at_ms, after_gap, .. } = self.times;
        let times = ChartTimes { at_ms, after_gap, span_ms: self.span_ms(), marks: &self.marks };
        chart(id, name, &times, lines, shown)
    }

    fn traffic(&self, traffic: &TrafficSeries) -> Markup {
        let line = |name, values: &[Option<f64>]| Line { name, values: values.to_vec() };
        let bytes = [line("in", &traffic.bytes_in_per_second), line("out", &traffic.bytes_out_per_second)];
        html! {
            (self.chart("hour-messages", "Records in", &[line("", &traffic.messages_in_per_second)], format::rate))
            (self.chart("hour-bytes", "Bytes", &bytes, format::bytes_rate))
        }
    }

    fn figures(&self, figures: &FigureSeries) -> Markup {
        let times = |p50: &[Option<u64>], p99: &[Option<u64>]| {
            [Line::of_counts("99 %", p99), Line::of_counts("median", p50)]
        };
        let produce = times(&figures.produce_p50_us, &figures.produce_p99_us);
        let fetch = times(&figures.fetch_work_p50_us, &figures.fetch_work_p99_us);
        let partitions = [
            Line::of_counts("under-replicated", &figures.under_replicated),
            Line::of_counts("without a leader", &figures.leaderless),
        ];
        let whole = |value: f64| format::count(value as u64);
        html! {
            (self.chart("hour-produce", "Produce requests", &produce, microseconds))
            (self.chart("hour-fetch", "Fetch requests, without the wait for records", &fetch, microseconds))
            (self.chart("hour-partitions", "Partitions of the cluster", &partitions, whole))
            (self.chart("hour-logs", "Logs", &[Line::of_counts("", &figures.log_bytes)], |bytes| format::bytes(bytes as u64)))
            (self.chart("hour-disk", "Fullest disk in use", &[Line::of_counts("", &figures.disk_use_per_mille)], percent))
        }
    }

    fn lag(&self, name: &str, lag: &[Option<u64>]) -> Markup {
        let shown = |lag: f64| format::counted(lag as u64, "record");
        self.chart("hour-lag", name, &[Line::of_counts("", lag)], shown)
    }
}

/// A time in microseconds: 850 µs, 7.5 ms, 1.2 s.
fn microseconds(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.0} µs"),
        us if us < 100_000.0 => format!("{:.1} ms", us / 1_000.0),
        us => format::millis((us / 1_000.0) as i64),
    }
}

fn percent(per_mille: f64) -> String {
    format!("{:.1} %", per_mille / 10.0)
}

fn broker_body(hour: &BrokerHistory, span: &str) -> Markup {
    let charts = HourCharts::new(&hour.times, &hour.events);
    let unknown = hour.figures.as_ref().and_then(|figures| figures.unknown_lags.last().copied().flatten());
    html! {
        p class="quiet" {
            "Samples that broker " (hour.broker) " takes every " (format::millis(i64::try_from(hour.times.interval_ms).unwrap_or(i64::MAX)))
            ", whether or not a page is open: of the partitions that it leads, its requests, its disks and the groups that it coordinates. "
            "Other brokers keep theirs."
        }
        @if let (Some(total), Some(figures), Some(lag)) = (&hour.total, &hour.figures, &hour.lag) {
            div class="charts" {
                (charts.traffic(total))
                (charts.figures(figures))
                @let is_partial = unknown.is_some_and(|unknown| unknown > 0);
                (charts.lag(if is_partial { "Partial lag of its groups" } else { "Lag of its groups" }, lag))
            }
            p class="quiet" { "Partitions without a committed offset are not in the lag." }
            @if let Some(unknown) = unknown.filter(|unknown| *unknown > 0) {
                p class="quiet" { "The lag of " (format::counted(unknown, "group")) " is not known, and not in the sum." }
            }
        } @else {
            p class="quiet" { "Sums over all topics and groups, request times and disks need the operation DESCRIBE on the resource Cluster:kafka-cluster." }
        }
        div id="hour-series" data-live {
            (events(&hour.events))
            (topics(hour, span))
            (groups(hour))
        }
    }
}

fn events(events: &[HistoryEvent]) -> Markup {
    html! {
        @if !events.is_empty() {
            h3 { "Events" }
            ul {
                @for event in events.iter().rev().take(EVENTS_LISTED) { li { (format::of_day(event.at_ms)) " " (event.text) } }
            }
            @if events.len() > EVENTS_LISTED { p class="quiet" { "And " (events.len() - EVENTS_LISTED) " earlier ones, in the API." } }
        }
    }
}

fn topics(hour: &BrokerHistory, span: &str) -> Markup {
    let (shown, more) = hour.topics.split_at(hour.topics.len().min(TOPICS_LISTED));
    html! {
        @if !shown.is_empty() {
            h3 { "Topics" }
            div class="table" tabindex="0" role="region" aria-label={ "Topics of " (span) } {
                table {
                    thead { tr {
                        th scope="col" { "Topic" } th scope="col" class="number" { "Records in" }
                        th scope="col" class="number" { "Bytes in" } th scope="col" class="number" { "Bytes out" }
                    } }
                    tbody {
                        @for sum in shown {
                            tr {
                                th scope="row" { a href=(topic::path(&sum.topic)) { (sum.topic) } }
                                td class="number" { (format::count(sum.messages_in)) }
                                td class="number" { (format::bytes(sum.bytes_in)) }
                                td class="number" { (format::bytes(sum.bytes_out)) }
                            }
                        }
                    }
                }
            }
            @if !more.is_empty() { p class="quiet" { (format::counted(more.len(), "more topic")) " with a series, on their pages." } }
        }
        @if let Some(others) = hour.other_topics.as_ref().filter(|others| others.topics > 0) {
            p class="quiet" { (format::counted(others.topics, "other topic")) " in the sums, without a series that this login sees." }
        }
    }
}

fn groups(hour: &BrokerHistory) -> Markup {
    let behind = hour.groups.iter().filter_map(|line| Some((line, line.lag.filter(|lag| *lag > 0)?)));
    let behind: Vec<_> = behind.take(TOPICS_LISTED).collect();
    let unknown = hour.groups.iter().filter(|line| line.lag.is_none()).take(TOPICS_LISTED);
    let unknown: Vec<_> = unknown.collect();
    let link = |id: &str| html! { a href=(group::path(id)) { (format::id(id)) } };
    html! {
        @if !behind.is_empty() {
            h3 { "Groups that are behind" }
            ul { @for (line, lag) in behind { li { (link(&line.group)) ": " (format::counted(lag, "record")) } } }
        }
        @if !unknown.is_empty() {
            h3 { "Groups whose lag is not known" }
            ul { @for line in unknown { li { (link(&line.group)) } } }
        }
        @if let Some(others) = hour.other_groups.as_ref().filter(|others| others.groups > 0) {
            p class="quiet" { (format::counted(others.groups, "other group")) " in the sum, without a series that this login sees. Ids of more than " (thalweg_history::NAME_BYTES_MAX) " bytes have none." }
        }
    }
}

fn topic_body(hour: &TopicHistory) -> Markup {
    let mut charts = HourCharts::new(&hour.times, &hour.events);
    // The changes of this topic say more than those of all topics.
    charts.marks.clear();
    let others = hour.events.iter().filter(|event| event.kind != "leaders-changed");
    charts.marks.extend(others.map(|event| (event.at_ms, event.text.clone())));
    if let Some(traffic) = &hour.traffic {
        let changes = hour.times.at_ms.iter().zip(&traffic.leader_changes);
        let changes =
            changes.filter_map(|(at_ms, changes)| Some((*at_ms, changes.filter(|count| *count > 0)?)));
        let text = |count| format!("{} got another leader or lost it", format::counted(count, "partition"));
        charts.marks.extend(changes.map(|(at_ms, count)| (at_ms, text(count))));
        charts.marks.sort();
    }
    html! {
        p class="quiet" {
            "Samples of broker " (hour.broker) ", which leads " (format::count(hour.led)) " of " (format::counted(hour.partitions, "partition")) "."
            @if hour.led < hour.partitions { " The others are not in the charts: their leaders' consoles show them." }
        }
        @match (&hour.traffic, &hour.missing) {
            (Some(traffic), _) => {
                @if let Some(since_ms) = traffic.since_ms.filter(|since_ms| Some(since_ms) > hour.times.at_ms.first()) {
                    p class="quiet" { "Since " (format::of_day(since_ms)) ": before, the topic was not here, or among the smaller ones, which are added up." }
                }
                div class="charts" { (charts.traffic(traffic)) }
            },
            (None, missing) => p class="quiet" { (missing.as_deref().unwrap_or("Nothing is known yet")) "." },
        }
    }
}

fn group_body(hour: &GroupHistory, span: &str) -> Markup {
    let charts = HourCharts::new(&hour.times, &hour.events);
    html! {
        @match (&hour.lag, &hour.missing) {
            (Some(lag), _) => {
                p class="quiet" { "Samples of broker " (hour.broker) ", taken whether or not a page is open." }
                @let partial = if hour.uncommitted_partitions > 0 { "Partial lag" } else { "Lag" };
                (charts.lag(&format!("{partial} in {span}"), lag))
                @if hour.uncommitted_partitions > 0 {
                    p class="quiet" { "Without " (format::counted(hour.uncommitted_partitions, "partition")) " that the group reads without a committed offset." }
                }
            },
            (None, missing) => p class="quiet" { (missing.as_deref().unwrap_or("Nothing is known yet")) "." },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use parking_lot::Mutex;
    use thalweg_history::History;

    use super::*;
    use crate::history::GroupLagLine;

    #[test]
    fn the_chart_of_a_group_is_named_by_its_span_and_by_what_it_lacks() {
        let hour = |uncommitted_partitions| GroupHistory {
            broker: 1,
            group: "billing".to_owned(),
            times: SampleTimes { interval_ms: 2_000, at_ms: vec![0, 2_000], after_gap: vec![true, false] },
            since_ms: Some(0),
            lag: Some(vec![Some(3), Some(4)]),
            uncommitted_partitions,
            missing: None,
            events: Vec::new(),
        };
        let page = |uncommitted| group_body(&hour(uncommitted), "the last 12 minutes").0;
        assert!(page(0).contains("<figcaption>Lag in the last 12 minutes: 4 records"), "{}", page(0));
        assert!(!page(0).contains("artial") && !page(0).contains("Without"), "{}", page(0));
        assert!(page(2).contains("<figcaption>Partial lag in the last 12 minutes: "), "{}", page(2));
        assert!(page(2).contains("Without 2 partitions that the group reads without a committed offset."));
    }

    #[test]
    fn a_group_of_unknown_lag_is_not_among_those_behind() {
        let line = |group: &str, lag| GroupLagLine { group: group.to_owned(), lag };
        let hour = BrokerHistory {
            broker: 1,
            times: SampleTimes { interval_ms: 2_000, at_ms: Vec::new(), after_gap: Vec::new() },
            sample_us: 1,
            total: None,
            other_topics: None,
            figures: None,
            lag: None,
            other_groups: None,
            topics: Vec::new(),
            groups: vec![line("late", Some(3)), line("quiet", Some(0)), line("away", None)],
            events: Vec::new(),
        };
        let page = groups(&hour).0;
        let (behind, unknown) = page.split_once("Groups whose lag is not known").expect("two lists");
        assert!(behind.contains(">late</a>: 3 records") && !behind.contains("away"), "{page}");
        assert!(unknown.contains(">away</a>") && !page.contains("quiet"), "{page}");
    }

    #[test]
    fn a_title_begins_with_the_span() {
        let history = Arc::new(Mutex::new(History::new(Duration::from_secs(2))));
        assert_eq!(title(&HistorySource { broker: 1, history }), "The last 12 minutes");
    }

    #[test]
    fn times_have_the_unit_of_their_size() {
        let shown = [0.0, 850.0, 7_500.0, 99_900.0, 250_000.0, 1_200_000.0].map(microseconds);
        assert_eq!(shown, ["0 µs", "850 µs", "7.5 ms", "99.9 ms", "250 ms", "1.2 s"]);
        assert_eq!(percent(437.0), "43.7 %");
    }
}
