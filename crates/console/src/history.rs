//! The last hour of the broker beside which the console runs, with the rights of the login.
//!
//! A broker samples its figures whether or not a page is open. A topic or a group is shown to logins that may
//! describe it. Sums over all of them, request times, disks and the events behind them take DESCRIBE on the
//! cluster, as the list of clients does: they contain the topics that the login may not see.

pub mod chart;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use serde::Serialize;
use thalweg_history::{Event, Figure, GroupSeries, History, NAME_BYTES_MAX, SharedHistory, TopicSeries};
use thalweg_security::acl::Operation;
use thalweg_wire::ErrorCode;
use utoipa::ToSchema;

use crate::cluster::View;
use crate::cluster::group::{Group, uncommitted};
use crate::format;
use crate::problem::Problem;

/// The history of a broker.
#[derive(Clone)]
pub struct HistorySource {
    /// The node id of the broker.
    pub broker: i32,
    pub history: SharedHistory,
}

impl HistorySource {
    /// The time that the samples cover, an hour by default, as words: "the last hour".
    pub fn span_words(&self) -> String {
        span_words(self.history.lock().interval() * thalweg_history::POINTS as u32)
    }
}

/// A time span in whole units, with "the last".
fn span_words(span: Duration) -> String {
    match (span.as_secs(), span.as_secs().div_ceil(60)) {
        (3600, _) => "the last hour".to_owned(),
        (..120, _) => format!("the last {}", format::counted(span.as_secs(), "second")),
        (_, minutes) if minutes % 60 == 0 => format!("the last {}", format::counted(minutes / 60, "hour")),
        (_, minutes) => format!("the last {}", format::counted(minutes, "minute")),
    }
}

/// The times of the samples.
#[derive(Debug, Serialize, ToSchema)]
pub struct SampleTimes {
    /// Milliseconds from sample to sample, at least.
    pub interval_ms: u64,
    /// Times of the samples in milliseconds since 1970, oldest first.
    pub at_ms: Vec<i64>,
    /// True for samples after a gap, or at the start: rates are unknown there.
    pub after_gap: Vec<bool>,
}

/// Samples of the last hour of the broker beside the console. Each array of a series has a value for each
/// time in `at_ms`.
#[derive(Debug, Serialize, ToSchema)]
pub struct BrokerHistory {
    /// The node id of the broker.
    pub broker: i32,
    #[serde(flatten)]
    pub times: SampleTimes,
    /// Microseconds that the last sample took.
    pub sample_us: u64,
    /// The traffic of all topics; none without DESCRIBE on the cluster.
    pub total: Option<TrafficSeries>,
    /// The sum of the topics that are not in `topics`; none without DESCRIBE on the cluster.
    pub other_topics: Option<OtherTopics>,
    /// Request times, disks, and partitions of the cluster; none without DESCRIBE on the cluster.
    pub figures: Option<FigureSeries>,
    /// The lag of all groups on the broker in partitions with a committed offset, without groups whose lag is
    /// unknown; none without DESCRIBE on the cluster.
    pub lag: Option<Vec<Option<u64>>>,
    /// The sum of the groups that are not in `groups`; none without DESCRIBE on the cluster.
    pub other_groups: Option<OtherGroups>,
    /// Topics that have a series, and that the login may describe, by their bytes, largest first.
    pub topics: Vec<TopicSumLine>,
    /// Groups that have a series, and that the login may describe, by their last lag, largest first; none
    /// unless the login may describe all topics, of which the lags count the records.
    pub groups: Vec<GroupLagLine>,
    /// Events, oldest first.
    pub events: Vec<HistoryEvent>,
}

/// Traffic over time. Values are null where they are not known.
#[derive(Debug, Serialize, ToSchema)]
pub struct TrafficSeries {
    /// The time from which on there are values, in milliseconds since 1970: before that, a topic was among
    /// the others, or not on the broker.
    pub since_ms: Option<i64>,
    /// Records that producers sent, per second.
    pub messages_in_per_second: Vec<Option<f64>>,
    /// Bytes that producers sent, per second.
    pub bytes_in_per_second: Vec<Option<f64>>,
    /// Bytes sent to consumers, per second.
    pub bytes_out_per_second: Vec<Option<f64>>,
    /// Partitions of the cluster with another leader than at the sample before.
    pub leader_changes: Vec<Option<u64>>,
}

/// Topics without a series that the login sees.
#[derive(Debug, Serialize, ToSchema)]
pub struct OtherTopics {
    /// Number of these topics at the last sample, and of those with a series that the login may not see.
    pub topics: usize,
    /// Total traffic of these topics.
    pub traffic: TrafficSeries,
}

/// Groups without a series that the login sees.
#[derive(Debug, Serialize, ToSchema)]
pub struct OtherGroups {
    /// Number of these groups at the last sample, and of those with a series that the login may not see.
    pub groups: usize,
    /// The sum of their lags in records.
    pub lag: Vec<Option<u64>>,
}

/// Figures over time. Values are null where they are not known; times are null without requests.
#[derive(Debug, Serialize, ToSchema)]
pub struct FigureSeries {
    /// Median time of produce requests in microseconds, with the wait for replicas.
    pub produce_p50_us: Vec<Option<u64>>,
    /// The time within which 99 % of produce requests were answered.
    pub produce_p99_us: Vec<Option<u64>>,
    /// Median time of consumers' fetch requests in microseconds, with the wait for records.
    pub fetch_p50_us: Vec<Option<u64>>,
    /// The time within which 99 % of consumers' fetch requests were answered.
    pub fetch_p99_us: Vec<Option<u64>>,
    /// Median of the broker's work for a consumer's fetch request in microseconds, without the wait.
    pub fetch_work_p50_us: Vec<Option<u64>>,
    /// The work that 99 % of consumers' fetch requests did not exceed.
    pub fetch_work_p99_us: Vec<Option<u64>>,
    /// Partitions of the cluster with fewer replicas in sync than assigned, as the broker knew it.
    pub under_replicated: Vec<Option<u64>>,
    /// Partitions of the cluster without a leader, as the broker knew it.
    pub leaderless: Vec<Option<u64>>,
    /// Groups on the broker whose lag is unknown.
    pub unknown_lags: Vec<Option<u64>>,
    /// Bytes of all logs on the broker.
    pub log_bytes: Vec<Option<u64>>,
    /// Use of the fullest volume of the broker's log directories, in tenths of a percent.
    pub disk_use_per_mille: Vec<Option<u64>>,
}

/// A topic with a series.
#[derive(Debug, Serialize, ToSchema)]
pub struct TopicSumLine {
    /// The topic name.
    pub topic: String,
    /// Records in over the samples of its series.
    pub messages_in: u64,
    /// Bytes in over the samples of its series.
    pub bytes_in: u64,
    /// Bytes sent to consumers over the samples of its series.
    pub bytes_out: u64,
}

/// A group with a series.
#[derive(Debug, Serialize, ToSchema)]
pub struct GroupLagLine {
    /// The group id.
    pub group: String,
    /// The lag at the last sample, in records; none if unknown.
    pub lag: Option<u64>,
}

/// An event in the cluster or on the broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct HistoryEvent {
    /// The time of the sample that found it, in milliseconds since 1970.
    pub at_ms: i64,
    /// The name of the kind, such as `broker-down`.
    pub kind: &'static str,
    /// A sentence for people.
    pub text: String,
}

/// The last hour of a topic on the broker beside the console.
#[derive(Debug, Serialize, ToSchema)]
pub struct TopicHistory {
    /// The node id of the broker.
    pub broker: i32,
    /// The topic name.
    pub topic: String,
    /// Number of partitions that the broker leads now. Their traffic is in the series.
    pub led: usize,
    /// Number of partitions of the topic.
    pub partitions: usize,
    #[serde(flatten)]
    pub times: SampleTimes,
    /// The traffic; none if the topic has no series.
    pub traffic: Option<TrafficSeries>,
    /// The reason if the topic has no series.
    pub missing: Option<String>,
    /// Events, oldest first.
    pub events: Vec<HistoryEvent>,
}

/// The last hour of a group on the broker beside the console.
#[derive(Debug, Serialize, ToSchema)]
pub struct GroupHistory {
    /// The node id of the broker.
    pub broker: i32,
    /// The group id.
    pub group: String,
    #[serde(flatten)]
    pub times: SampleTimes,
    /// The time from which on there are values, in milliseconds since 1970.
    pub since_ms: Option<i64>,
    /// The lag in records over all partitions with a committed offset; null where it is not known. None if
    /// the group has no series, or if the login may not describe all topics.
    pub lag: Option<Vec<Option<u64>>>,
    /// Number of partitions that the group reads now without a committed offset: `lag` is partial without
    /// them.
    pub uncommitted_partitions: usize,
    /// The reason if there is no lag.
    pub missing: Option<String>,
    /// Events, oldest first.
    pub events: Vec<HistoryEvent>,
}

impl From<TopicSeries> for TrafficSeries {
    fn from(series: TopicSeries) -> TrafficSeries {
        TrafficSeries {
            since_ms: series.since_ms,
            messages_in_per_second: series.messages_in,
            bytes_in_per_second: series.bytes_in,
            bytes_out_per_second: series.bytes_out,
            leader_changes: series.leader_changes,
        }
    }
}

impl FigureSeries {
    fn of(history: &History) -> FigureSeries {
        FigureSeries {
            produce_p50_us: history.figure(Figure::ProduceP50Us),
            produce_p99_us: history.figure(Figure::ProduceP99Us),
            fetch_p50_us: history.figure(Figure::FetchP50Us),
            fetch_p99_us: history.figure(Figure::FetchP99Us),
            fetch_work_p50_us: history.figure(Figure::FetchWorkP50Us),
            fetch_work_p99_us: history.figure(Figure::FetchWorkP99Us),
            under_replicated: history.figure(Figure::UnderReplicated),
            leaderless: history.figure(Figure::Leaderless),
            unknown_lags: history.figure(Figure::UnknownLags),
            log_bytes: history.figure(Figure::LogBytes),
            disk_use_per_mille: history.figure(Figure::DiskUsePerMille),
        }
    }
}

impl SampleTimes {
    fn of(history: &History) -> SampleTimes {
        let intervals = history.intervals();
        SampleTimes {
            interval_ms: u64::try_from(history.interval().as_millis()).unwrap_or(u64::MAX),
            at_ms: intervals.iter().map(|interval| interval.at_ms).collect(),
            after_gap: intervals.iter().map(|interval| interval.span_ms.is_none()).collect(),
        }
    }
}

/// The events that a login may see.
fn events(history: &History, sees_all: bool) -> Vec<HistoryEvent> {
    let seen = history.events().filter(|event| sees_all || event.kind.is_public());
    let event = |Event { at_ms, kind }: &Event| HistoryEvent {
        at_ms: *at_ms,
        kind: kind.name(),
        text: kind.to_string(),
    };
    seen.map(event).collect()
}

/// The history, or the reason why there is none.
pub fn known(source: Option<&HistorySource>) -> Result<&HistorySource, Problem> {
    source.ok_or_else(|| {
        Problem::missing(
            "There is no last hour here: it is kept by brokers of Thalweg with a console, unless \
             thalweg.console.history.interval.ms is 0",
        )
    })
}

/// Reads the history of the broker, as far as the login may see it.
pub async fn broker(source: Option<&HistorySource>, view: &View) -> Result<BrokerHistory, Problem> {
    let source = known(source)?;
    let sees_all = view.may(Operation::Describe).await?;
    let (topics, listed) = (view.catalog().await?, view.groups().await?);
    let listed: BTreeSet<&str> = listed.groups.iter().map(|group| &*group.group).collect();
    // The lag of a group counts the records of all topics.
    let groups = match view.partial_view().await {
        Some(_) => Arc::default(),
        None => {
            let series = source.history.lock().largest_groups();
            let series = series.iter().map(|(group, _)| group.to_string());
            view.describable_groups(series.filter(|group| listed.contains(&**group)).collect()).await
        }
    };
    let (sees_topic, sees_group) =
        (|name: &str| topics.topic(name).is_some(), |name: &str| groups.contains(name));
    Ok(visible(source, sees_all, sees_topic, sees_group))
}

/// The history as seen by a login.
fn visible(
    source: &HistorySource,
    sees_all: bool,
    sees_topic: impl Fn(&str) -> bool,
    sees_group: impl Fn(&str) -> bool,
) -> BrokerHistory {
    let history = source.history.lock();
    let other_topics = sees_all.then(|| {
        let (traffic, topics) = history.other_topics(&sees_topic);
        OtherTopics { topics, traffic: traffic.into() }
    });
    let other_groups = sees_all.then(|| {
        let (series, groups) = history.other_groups(&sees_group);
        OtherGroups { groups, lag: series.lag }
    });
    let topics = history.largest_topics().into_iter().filter(|sum| sees_topic(&sum.topic));
    let groups = history.largest_groups().into_iter().filter(|(group, _)| sees_group(group));
    BrokerHistory {
        broker: source.broker,
        times: SampleTimes::of(&history),
        sample_us: u64::try_from(history.cost().as_micros()).unwrap_or(u64::MAX),
        total: sees_all.then(|| history.all_topics().into()),
        other_topics,
        figures: sees_all.then(|| FigureSeries::of(&history)),
        lag: sees_all.then(|| history.all_groups().lag),
        other_groups,
        topics: topics
            .map(|sum| TopicSumLine {
                topic: sum.topic.to_string(),
                messages_in: sum.messages_in,
                bytes_in: sum.bytes_in,
                bytes_out: sum.bytes_out,
            })
            .collect(),
        groups: groups.map(|(group, lag)| GroupLagLine { group: group.to_string(), lag }).collect(),
        events: events(&history, sees_all),
    }
}

/// Reads the history of a topic that the login may describe.
pub async fn topic(source: Option<&HistorySource>, view: &View, name: &str) -> Result<TopicHistory, Problem> {
    let source = known(source)?;
    let catalog = view.catalog().await?;
    let unknown = || {
        let message = format!("There is no topic {name} that this login may describe");
        Problem::refused(ErrorCode::UnknownTopicOrPartition, message)
    };
    let (leaders, is_here) = match catalog.topic(name) {
        Some(line) => (line.leaders.to_vec(), catalog.is_on_any(line, &BTreeSet::from([source.broker]))),
        // The topic may be newer than the catalog.
        None => {
            let found = view.topic_metadata(name).await;
            let found = found.map_err(|problem| match problem.status {
                StatusCode::NOT_FOUND => unknown(),
                _ => problem,
            })?;
            let leaders = found.partitions.iter().map(|partition| partition.leader.unwrap_or(-1));
            let leaders: Vec<i32> = leaders.collect();
            (leaders, found.partitions.iter().any(|partition| partition.replicas.contains(&source.broker)))
        }
    };
    let sees_all = view.may(Operation::Describe).await?;
    let history = source.history.lock();
    let traffic: Option<TrafficSeries> = history.topic(name).map(Into::into);
    let others = history.other_topics(|_| true).1;
    let span = span_words(history.interval() * thalweg_history::POINTS as u32);
    let missing = traffic.is_none().then(|| without_series(source.broker, is_here, others, &span));
    Ok(TopicHistory {
        broker: source.broker,
        topic: name.to_owned(),
        led: leaders.iter().filter(|leader| **leader == source.broker).count(),
        partitions: leaders.len(),
        times: SampleTimes::of(&history),
        traffic,
        missing,
        events: events(&history, sees_all),
    })
}

/// The reason why a topic has no series. `others` is the number of topics without one at the last sample.
fn without_series(broker: i32, is_here: bool, others: usize, span: &str) -> String {
    match (is_here, others) {
        (false, 0) => format!("Broker {broker} had no partition of this topic in {span}"),
        (true, 0) => format!("The topic is new here: broker {broker} has not taken a sample of it yet"),
        (false, _) => format!(
            "Broker {broker} has no partition of this topic, and adds up the smallest topics of which it had one in {span}"
        ),
        (true, _) => format!(
            "The topic is not among those with a series: broker {broker} adds its smallest topics up, or has not taken a sample of it yet"
        ),
    }
}

/// Reads the history of a group that was described to the login: the list of groups does not tell whether it
/// may be, for with DESCRIBE on the cluster it has all of them. Samples count the records of all topics, and
/// are withheld from a login that may not describe one.
pub async fn group(source: &HistorySource, view: &View, group: &Group) -> Result<GroupHistory, Problem> {
    let id = group.group.as_str();
    let sees_all = view.may(Operation::Describe).await?;
    let history = source.history.lock();
    let (since_ms, lag) = match history.group(id) {
        Some(GroupSeries { since_ms, lag }) if group.partial.is_none() => (since_ms, Some(lag)),
        _ => (None, None),
    };
    let others = history.other_groups(|_| true).1;
    let missing = lag.is_none().then(|| match (&group.partial, others) {
        (Some(partial), _) => {
            format!("The lag is not shown, because it counts the records of all topics: {partial}")
        }
        _ if id.len() > NAME_BYTES_MAX => {
            format!("Groups with an id of more than {NAME_BYTES_MAX} bytes have no series, but are in the sum")
        }
        (None, 0) => format!(
            "Broker {} did not coordinate this group with committed offsets in {}",
            source.broker,
            span_words(history.interval() * thalweg_history::POINTS as u32)
        ),
        _ => format!(
            "The group is not among those with a series: broker {} adds its groups with the smallest lags up, or another \
             broker coordinates the group",
            source.broker
        ),
    });
    Ok(GroupHistory {
        broker: source.broker,
        group: id.to_owned(),
        times: SampleTimes::of(&history),
        since_ms,
        lag,
        uncommitted_partitions: uncommitted(&group.offsets),
        missing,
        events: events(&history, sees_all),
    })
}

#[cfg(test)]
mod tests;
