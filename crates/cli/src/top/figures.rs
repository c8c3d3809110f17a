//! The figures of a cluster, from a reading and the one before. Pure.
//!
//! A figure that is not known is none, never zero. A sum of which some parts are unknown is marked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thalweg_client::verdict::{Health, PartitionCounts, Verdict};
use thalweg_client::{GroupKind, GroupLag, TopicPartition};
use thalweg_record::Offset;
use tokio::time::Instant;

use super::notes;
use super::reading::{BrokerReading, GroupReading, PartitionReading, Reading, TopicReading};

/// A sum, of which parts may be missing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sum {
    pub value: f64,
    /// False if a part is unknown: the true sum may be larger.
    pub is_whole: bool,
}

/// The figures of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    /// The time between the two readings; none for the first.
    pub interval: Option<Duration>,
    /// Length of the reading.
    pub took: Duration,
    pub cluster: ClusterFigures,
    pub verdicts: Vec<Verdict>,
    pub brokers: Vec<BrokerFigures>,
    pub topics: Vec<TopicFigures>,
    /// None if the groups could not be listed.
    pub groups: Option<Vec<GroupFigures>>,
    /// Reasons for unknown figures.
    pub notes: Vec<String>,
}

/// The cluster as a whole.
#[derive(Clone, Debug)]
pub(super) struct ClusterFigures {
    pub id: Option<String>,
    pub health: Health,
    /// The active controller, if the quorum can be read.
    pub controller: Option<i32>,
    pub brokers: usize,
    /// Brokers that answer and are not fenced.
    pub brokers_up: usize,
    /// None if the login sees no topic.
    pub partitions: Option<PartitionCounts>,
    pub topics: Option<usize>,
    /// False if topics may be hidden from the login: all counts are those of visible ones.
    pub has_all_topics: bool,
    /// False if a broker did not list its groups, or the login may not describe all of them.
    pub has_all_groups: bool,
    pub messages_per_s: Option<Sum>,
    pub bytes_per_s: Option<Sum>,
}

/// The figures of a broker.
#[derive(Clone, Debug)]
pub(super) struct BrokerFigures {
    pub id: i32,
    pub address: Option<String>,
    pub rack: Option<String>,
    /// The words of `cluster status`.
    pub state: &'static str,
    pub is_up: bool,
    /// Partitions led; none if the login sees no topic.
    pub leaders: Option<usize>,
    /// Assigned replicas; none if the login sees no topic.
    pub replicas: Option<usize>,
    /// Assigned replicas that are not in sync, or whose broker does not answer.
    pub out_of_sync: Option<usize>,
    /// Bytes of its logs; a part without failed directories.
    pub log_bytes: Option<Sum>,
    /// Growth of the log directories that were read twice; negative if segments were deleted.
    pub log_bytes_per_s: Option<Sum>,
}

/// The figures of a topic.
#[derive(Clone, Debug)]
pub(super) struct TopicFigures {
    pub name: Arc<str>,
    pub partitions: usize,
    pub leaderless: usize,
    pub under_replicated: usize,
    /// Growth of the log ends.
    pub messages_per_s: Option<Sum>,
    /// Growth of the leaders' logs.
    pub bytes_per_s: Option<Sum>,
    /// Bytes of all replicas.
    pub log_bytes: Option<Sum>,
}

/// The figures of a group.
#[derive(Clone, Debug)]
pub(super) struct GroupFigures {
    pub name: String,
    pub kind: GroupKind,
    pub state: Option<String>,
    pub members: Option<usize>,
    /// Records between the committed offsets and the log ends.
    pub lag: Option<Sum>,
    pub lag_per_s: Option<f64>,
    /// Growth of the committed offsets, or of a share group's start offsets.
    pub consumed_per_s: Option<Sum>,
    /// The reason for an unknown lag.
    pub problem: Option<&'static str>,
}

pub(super) const NOT_READ: &str = "its offsets were not read";
pub(super) const NO_COMMIT: &str = "it has committed nothing, or nothing in a partition that it reads";
pub(super) const HIDDEN: &str = "its topics may be hidden from this login";
pub(super) const NO_ENDS: &str = "the ends of its partitions are unknown";

impl Sum {
    /// The sum of these parts; none if no part is known.
    fn of(parts: impl IntoIterator<Item = Option<f64>>) -> Option<Sum> {
        let (mut value, mut known, mut unknown) = (0.0, 0usize, 0usize);
        for part in parts {
            match part {
                Some(part) => {
                    value += part;
                    known += 1;
                }
                None => unknown += 1,
            }
        }
        (known > 0).then_some(Sum { value, is_whole: unknown == 0 })
    }

    /// The sum of whole numbers; none if no part is known.
    fn of_counts(parts: impl IntoIterator<Item = Option<i64>>) -> Option<Sum> {
        Sum::of(parts.into_iter().map(|part| part.map(|part| part as f64)))
    }

    /// The sum as one that may be larger.
    fn partial_if(self, is_partial: bool) -> Sum {
        Sum { is_whole: self.is_whole && !is_partial, ..self }
    }
}

/// The growth of a counter a second; none if it is unknown, or has fallen.
fn growth(before: Option<(i64, Instant)>, now: Option<(i64, Instant)>) -> Option<f64> {
    change(before, now).filter(|growth| *growth >= 0.0)
}

/// The change of a number a second, between the times of the two answers.
fn change(before: Option<(i64, Instant)>, now: Option<(i64, Instant)>) -> Option<f64> {
    let ((before, then), (now, at)) = before.zip(now)?;
    Some(now.saturating_sub(before) as f64 / seconds(then, at))
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64().max(1e-3)
}

impl Figures {
    /// The figures of a reading. `before` is the reading before, if there is one.
    pub(super) fn of(before: Option<&Reading>, now: &Reading) -> Figures {
        let interval = before.map(|before| now.at.saturating_duration_since(before.at));
        let topics: Vec<TopicFigures> =
            now.topics.iter().map(|(name, topic)| topic_figures(before, now, name, topic)).collect();
        let verdicts = now.verdicts();
        let is_blind = now.is_blind();
        // A cluster without topics has no messages.
        let is_empty = topics.is_empty() && !is_blind && interval.is_some();
        let nothing = is_empty.then_some(Sum { value: 0.0, is_whole: true });
        let has_all_topics = now.has_all_topics();
        // Messages of a topic that was deleted since the reading before are unknown.
        let is_kept = |(name, topic): (&Arc<str>, &TopicReading)| {
            now.topics.get(name).is_some_and(|now| now.id == topic.id)
        };
        let is_part = !has_all_topics || !before.is_none_or(|before| before.topics.iter().all(is_kept));
        let all = |rate: fn(&TopicFigures) -> Option<Sum>| {
            total(&topics, rate).or(nothing).map(|sum| sum.partial_if(is_part))
        };
        let (messages_per_s, bytes_per_s) =
            (all(|topic| topic.messages_per_s), all(|topic| topic.bytes_per_s));
        let groups = now.groups.as_ref().ok();
        let groups = groups.map(|read| {
            let before = before.and_then(|before| Some((before, before.groups.as_ref().ok()?)));
            let earlier: BTreeMap<&str, &GroupReading> = before
                .iter()
                .flat_map(|(_, groups)| &groups.groups)
                .map(|group| (group.name.as_str(), group))
                .collect();
            let earlier = |group: &GroupReading| {
                Some((before?.0, *earlier.get(group.name.as_str())?))
                    .filter(|(_, one)| one.kind == group.kind)
            };
            read.groups.iter().map(|group| group_figures(earlier(group), now, group)).collect()
        });
        let mut figures = Figures {
            interval,
            took: now.took,
            cluster: ClusterFigures {
                id: now.cluster_id.clone(),
                health: Health::of(&verdicts),
                controller: now.facts.quorum.as_ref().ok().and_then(|quorum| quorum.leader),
                brokers: now.brokers.len(),
                brokers_up: now.brokers.values().filter(|one| one.answers() && !one.is_fenced).count(),
                partitions: (!is_blind).then(|| now.counts()),
                topics: (!is_blind).then_some(now.topics.len()),
                has_all_topics,
                has_all_groups: now.has_all_groups(),
                messages_per_s,
                bytes_per_s,
            },
            verdicts,
            brokers: broker_figures(before, now),
            topics,
            groups,
            notes: Vec::new(),
        };
        figures.notes = notes::of(now, &figures);
        figures
    }
}

/// The sum over topics.
fn total(topics: &[TopicFigures], rate: impl Fn(&TopicFigures) -> Option<Sum>) -> Option<Sum> {
    let known: Vec<Sum> = topics.iter().filter_map(&rate).collect();
    let is_whole = known.len() == topics.len() && known.iter().all(|sum| sum.is_whole);
    let value = known.iter().map(|sum| sum.value).sum();
    (!known.is_empty()).then_some(Sum { value, is_whole })
}

fn topic_figures(
    before: Option<&Reading>,
    now: &Reading,
    name: &Arc<str>,
    topic: &TopicReading,
) -> TopicFigures {
    let earlier = before.and_then(|before| before.topics.get(name)).filter(|earlier| earlier.id == topic.id);
    let mut figures = TopicFigures {
        name: Arc::clone(name),
        partitions: topic.partitions.len(),
        leaderless: 0,
        under_replicated: 0,
        messages_per_s: None,
        bytes_per_s: None,
        log_bytes: None,
    };
    let (mut messages, mut bytes) = (Vec::new(), Vec::new());
    let (mut replicas, mut has_deleted) = (0, false);
    for partition in &topic.partitions {
        let state = now.state(name, partition);
        figures.leaderless += usize::from(!state.has_leader);
        figures.under_replicated += usize::from(state.is_under_replicated());
        replicas += partition.replicas.len();
        let same = earlier.and_then(|earlier| earlier.partition(partition.index));
        let end = |one: &PartitionReading| one.end.zip(one.end_at);
        messages.push(growth(same.and_then(end), end(partition)));
        // Replicas of different leaders have different sizes.
        let same = same.filter(|same| same.leader == partition.leader);
        let size = |reading: &Reading, one: &PartitionReading| {
            one.leader_bytes.zip(reading.brokers.get(&one.leader?)?.sized_at)
        };
        bytes.push(growth(
            before.zip(same).and_then(|(before, same)| size(before, same)),
            size(now, partition),
        ));
        // Deleted segments hide as many new bytes.
        has_deleted |= same.is_some_and(|same| same.start.is_none() || same.start != partition.start);
    }
    if before.is_some() {
        figures.messages_per_s = Sum::of(messages);
        figures.bytes_per_s = Sum::of(bytes).map(|sum| sum.partial_if(has_deleted));
    }
    let is_whole = topic.sized_replicas >= replicas;
    let is_known = topic.sized_replicas > 0;
    figures.log_bytes = is_known.then_some(Sum { value: topic.log_bytes as f64, is_whole });
    figures
}

fn broker_figures(before: Option<&Reading>, now: &Reading) -> Vec<BrokerFigures> {
    // Leaders, replicas and replicas out of sync.
    let mut held: BTreeMap<i32, [usize; 3]> = BTreeMap::new();
    for (_, partition) in now.partitions() {
        if let Some(leader) = partition.leader {
            held.entry(leader).or_default()[0] += 1;
        }
        for id in &partition.replicas {
            let counts = held.entry(*id).or_default();
            counts[1] += 1;
            counts[2] += usize::from(!partition.isr.contains(id) || !now.answers(*id));
        }
    }
    let is_blind = now.is_blind();
    let figures = now.brokers.iter().map(|(id, broker)| {
        let counts = held.get(id).copied().unwrap_or_default();
        let seen = |index: usize| (!is_blind).then_some(counts[index]);
        let earlier = before.and_then(|before| before.brokers.get(id));
        BrokerFigures {
            id: *id,
            address: broker.address.clone(),
            rack: broker.rack.clone(),
            state: broker.reach.state(broker.is_fenced),
            is_up: broker.answers() && !broker.is_fenced,
            leaders: seen(0),
            replicas: seen(1),
            out_of_sync: seen(2),
            log_bytes: broker.logs.as_ref().and_then(|logs| Sum::of_counts(logs.values().copied())),
            log_bytes_per_s: earlier.and_then(|earlier| growth_of_logs(earlier, broker)),
        }
    });
    figures.collect()
}

/// The growth of the log directories that both readings have. Failed ones have none.
fn growth_of_logs(before: &BrokerReading, now: &BrokerReading) -> Option<Sum> {
    let (logs_before, logs) = (before.logs.as_ref()?, now.logs.as_ref()?);
    let (then, at) = (before.sized_at?, now.sized_at?);
    let change_of = |path: &String| {
        let [before, now] = [logs_before, logs].map(|logs| logs.get(path).copied().flatten());
        change(before.map(|bytes| (bytes, then)), now.map(|bytes| (bytes, at)))
    };
    let all: BTreeSet<&String> = logs_before.keys().chain(logs.keys()).collect();
    Sum::of(all.into_iter().map(change_of))
}

fn group_figures(
    before: Option<(&Reading, &GroupReading)>,
    now: &Reading,
    group: &GroupReading,
) -> GroupFigures {
    let (lag, problem) = match lag(now, group) {
        Ok(lag) => (Some(lag), None),
        Err(problem) => (None, Some(problem)),
    };
    let lag_before = before.and_then(|(before, group)| self::lag(before, group).ok());
    let whole = |lag: Option<Sum>| lag.filter(|lag| lag.is_whole).map(|lag| lag.value);
    let lag_per_s = whole(lag).zip(whole(lag_before)).zip(before).map(|((lag, lag_before), (_, earlier))| {
        (lag - lag_before) / seconds(earlier.positions_at, group.positions_at)
    });
    let consumed = before.and_then(|(_, earlier)| consumed(earlier, group));
    GroupFigures {
        name: group.name.clone(),
        kind: group.kind,
        state: Some(group.state.clone()).filter(|state| !state.is_empty()),
        members: group.members.as_ref().map(|(members, _)| *members),
        lag,
        lag_per_s,
        consumed_per_s: consumed,
        problem,
    }
}

/// The records that a group has consumed. A first commit in a partition, and a reset to an earlier offset,
/// tell nothing.
fn consumed(before: &GroupReading, now: &GroupReading) -> Option<Sum> {
    let (earlier, positions) = (before.positions.as_ref()?, now.positions.as_ref()?);
    let earlier = |at: &TopicPartition| Some((earlier.get(at)?.offset.0, before.positions_at));
    let now_at = now.positions_at;
    Sum::of(positions.iter().map(|(at, position)| growth(earlier(at), Some((position.offset.0, now_at)))))
}

/// The lag of a group, or the reason why it is unknown.
fn lag(reading: &Reading, group: &GroupReading) -> Result<Sum, &'static str> {
    let positions = group.positions.as_ref().ok_or(NOT_READ)?;
    if group.kind == GroupKind::Share {
        return Sum::of_counts(positions.values().map(|position| position.share_lag)).ok_or(match positions
            .is_empty()
        {
            true => NO_COMMIT,
            false => NO_ENDS,
        });
    }
    let mut offsets: BTreeMap<TopicPartition, Offset> =
        positions.iter().map(|(at, position)| (at.clone(), position.offset)).collect();
    let read = || group.members.iter().flat_map(|(_, read)| read);
    // Tasks of a streams group may name more partitions than a topic has.
    let read = || {
        read()
            .filter(|at| reading.topics.get(&at.topic).is_none_or(|it| it.partition(at.partition).is_some()))
    };
    // Brokers leave hidden topics out of a group's offsets silently.
    let sees_all = reading.has_all_topics();
    let of = |offsets: &BTreeMap<_, _>, is_whole| match GroupLag::of(offsets, read(), |at| reading.end(at)) {
        Some(GroupLag::Records { lag, .. }) => Some(Ok(Sum { value: lag as f64, is_whole })),
        Some(GroupLag::Uncommitted) => Some(Err(if sees_all { NO_COMMIT } else { HIDDEN })),
        None => None,
    };
    // Members that were not described may read more partitions than the committed ones.
    if let Some(known) = of(&offsets, group.members.is_some() && sees_all) {
        return known;
    }
    offsets.retain(|at, _| reading.end(at).is_some());
    let known = offsets.iter().filter_map(|(at, offset)| Some((reading.end(at)? - offset.0).max(0)));
    Sum::of_counts(known.map(Some)).map(|sum| Sum { is_whole: false, ..sum }).ok_or(NO_ENDS)
}

#[cfg(test)]
mod tests;
