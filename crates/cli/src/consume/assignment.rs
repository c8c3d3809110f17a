//! The partitions to read, with their start and end offsets.

use std::collections::BTreeMap;
use std::time::Duration;

use regex::Regex;
use thalweg_client::{
    Cluster, Consumer, ListedOffset, Metadata, NO_LEADER, OffsetSpec, RefusedRequest, StartAt, TopicPartition,
};
use thalweg_record::Offset;
use thalweg_wire::ErrorCode;
use tokio::time::Instant;

use super::{Consume, Usage};
use crate::failure::NotFound;
use crate::moment;
use crate::notice::print_notice;

/// Time limit for the first offsets of all partitions. Those without one are retried while others are read.
const AVAILABLE_MAX: Duration = Duration::from_secs(1);
/// Backoff before the only retry of offsets that `--until-end` needs.
const UNAVAILABLE_RETRY: Duration = Duration::from_millis(200);

/// The start position in each partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    At(StartAt),
    /// An offset relative to the end; negative.
    BeforeEnd(i64),
}

impl Consume {
    /// The start by the options, if any. Without one, a group continues at its committed offsets.
    pub(super) fn start(&self) -> Result<Option<Start>, Usage> {
        let spec = |spec| Ok(Some(Start::At(StartAt::Spec(spec))));
        if let Some(time) = &self.from_time {
            let ms = moment::time_ms(time).map_err(|wrong| Usage(format!("--from-time: {wrong}")))?;
            return spec(OffsetSpec::At(ms));
        }
        match self.offset.as_deref() {
            None => Ok(None),
            Some("end") => spec(OffsetSpec::Latest),
            Some("beginning") => spec(OffsetSpec::Earliest),
            Some(text) => match text.parse::<i64>() {
                Ok(offset) if offset < 0 => Ok(Some(Start::BeforeEnd(offset))),
                Ok(offset) => Ok(Some(Start::At(StartAt::Offset(Offset(offset))))),
                Err(_) => {
                    Err(Usage(format!("--offset {text:?} is invalid: expected a number, beginning or end")))
                }
            },
        }
    }

    /// Joins the group for the topics.
    pub(super) async fn subscribe(&self, consumer: &mut Consumer) -> anyhow::Result<()> {
        // Check the names first: a member would wait forever for a misspelled topic.
        let cluster = consumer.cluster().clone();
        let topics = self.names(&cluster).await?;
        match self.patterns()?.is_empty() {
            true => consumer.subscribe(topics)?,
            false => {
                let literal = |topic: &String| match topic.starts_with('^') {
                    // A group matches its expression against whole names.
                    true => format!("(?:{topic}).*"),
                    false => regex::escape(topic),
                };
                let all: Vec<String> = self.topics.iter().map(literal).collect();
                consumer.subscribe_pattern(&all.join("|"))?;
            }
        }
        Ok(())
    }

    /// Begins to read newly assigned partitions, at the start by the options, if any. Partitions without a
    /// needed offset are not read; those that only lack a leader are read once they have one.
    pub(super) async fn assigned(
        &self,
        consumer: &mut Consumer,
        mut partitions: Vec<TopicPartition>,
        progress: &mut super::ReadProgress,
    ) -> anyhow::Result<()> {
        let start = self.start()?;
        let is_before_end = matches!(start, Some(Start::BeforeEnd(_)));
        let assigned = partitions.clone();
        let cluster = consumer.cluster().clone();
        let firsts =
            self.listed(&cluster, &mut partitions, OffsetSpec::Earliest, is_before_end, progress).await?;
        let is_end_needed = self.until_end || is_before_end;
        let ends =
            self.listed(&cluster, &mut partitions, OffsetSpec::Latest, is_end_needed, progress).await?;
        for at in &partitions {
            if let Some(start) = start
                && progress.started.insert(at.clone())
            {
                consumer.seek_to(at, resolved(start, firsts.get(at), ends.get(at)));
            }
        }
        // A broker may assign partitions one after the other, as other members revoke them.
        if self.until_end && assigned.is_empty() && consumer.is_assigned_by_broker() {
            progress.idle_since.get_or_insert_with(Instant::now);
        } else if self.until_end {
            progress.idle_since = None;
            let ends = ends.into_iter().map(|(at, end)| (at, end.offset));
            progress.ends.get_or_insert_default().extend(ends);
        }
        let left_out: Vec<TopicPartition> =
            assigned.iter().filter(|at| progress.unreadable.contains_key(at)).cloned().collect();
        consumer.pause(&left_out);
        self.name_unreadable(consumer, progress, |at| assigned.contains(at));
        Ok(())
    }

    /// Reads the chosen partitions without assignment by a group. Finds their end offsets with `--until-end`,
    /// and leaves out those without one. Without an end, unavailable partitions are read once they are
    /// available.
    pub(super) async fn assign(
        &self,
        consumer: &mut Consumer,
        start: Option<Start>,
        progress: &mut super::ReadProgress,
    ) -> anyhow::Result<()> {
        let cluster = consumer.cluster().clone();
        let mut partitions = self.partitions(&cluster).await?;
        let start = start.unwrap_or(Start::At(match (&self.group, self.from_beginning) {
            (Some(_), _) => StartAt::Committed,
            (None, true) => StartAt::Spec(OffsetSpec::Earliest),
            (None, false) => StartAt::Spec(OffsetSpec::Latest),
        }));
        let is_before_end = matches!(start, Start::BeforeEnd(_));
        let firsts =
            self.listed(&cluster, &mut partitions, OffsetSpec::Earliest, is_before_end, progress).await?;
        let is_end_needed = self.until_end || is_before_end;
        let ends =
            self.listed(&cluster, &mut partitions, OffsetSpec::Latest, is_end_needed, progress).await?;
        let starts = partitions.into_iter().map(|at| {
            let start = resolved(start, firsts.get(&at), ends.get(&at));
            (at, start)
        });
        consumer.assign_within(starts.collect(), AVAILABLE_MAX).await?;
        progress.ends =
            self.until_end.then(|| ends.iter().map(|(at, end)| (at.clone(), end.offset)).collect());
        self.name_unreadable(consumer, progress, |_| true);
        Ok(())
    }

    /// Names new partitions that are not read: with an end only those that lack a leader, because the others
    /// are named at the end.
    fn name_unreadable(
        &self,
        consumer: &Consumer,
        progress: &super::ReadProgress,
        is_new: impl Fn(&TopicPartition) -> bool,
    ) {
        let is_named = |at: &TopicPartition| is_new(at) && !self.until_end;
        for (at, reason) in progress.unreadable.iter().filter(|(at, _)| is_named(at)) {
            print_notice(&format!("Partition {at} cannot be read: {reason}"));
        }
        let metadata = consumer.cluster().metadata();
        let lacks_leader = |at: &TopicPartition| metadata.leader(&at.topic, at.partition).is_none();
        let is_waiting = |at: &TopicPartition| is_new(at) && !progress.unreadable.contains_key(at);
        for at in consumer.unavailable().iter().filter(|at| is_waiting(at) && lacks_leader(at)) {
            print_notice(&format!("Partition {at} cannot be read: {NO_LEADER}; trying again"));
        }
    }

    /// Offsets of the partitions, if needed. Partitions without an answer are left out after a retry.
    async fn listed(
        &self,
        cluster: &Cluster,
        partitions: &mut Vec<TopicPartition>,
        spec: OffsetSpec,
        is_needed: bool,
        progress: &mut super::ReadProgress,
    ) -> anyhow::Result<BTreeMap<TopicPartition, ListedOffset>> {
        let mut known = BTreeMap::new();
        for is_retry in [false, true] {
            let missing = partitions.iter().filter(|at| is_needed && !known.contains_key(*at));
            let wanted: Vec<_> = missing.map(|at| (at.clone(), spec)).collect();
            if wanted.is_empty() {
                break;
            }
            if is_retry {
                tokio::time::sleep(UNAVAILABLE_RETRY).await;
                cluster.refresh(&self.names(cluster).await?, false).await?;
            }
            for (at, answer) in cluster.list_offsets(&wanted, self.read_committed).await {
                match answer {
                    Ok(offset) => drop(known.insert(at, offset)),
                    Err(error) if error.is_retriable() && !is_retry => {}
                    Err(error) if error.is_retriable() => {
                        let reason = match cluster.metadata().leader(&at.topic, at.partition) {
                            Some(_) => error.to_string(),
                            None => NO_LEADER.to_owned(),
                        };
                        progress.unreadable.insert(at, reason);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        partitions.retain(|at| !progress.unreadable.contains_key(at));
        Ok(known)
    }

    fn patterns(&self) -> Result<Vec<Regex>, Usage> {
        let patterns = self.topics.iter().filter(|topic| topic.starts_with('^'));
        let compiled = patterns.map(|pattern| {
            // Each alternative must match from the beginning of a name.
            let anchored = Regex::new(pattern).and_then(|_| Regex::new(&format!("^(?:{pattern})")));
            anchored.map_err(|error| {
                let text = error.to_string();
                let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                Usage(format!("{pattern:?} is no regular expression: {reason}"))
            })
        });
        compiled.collect()
    }

    /// The names of the topics. Expressions match topics that exist now.
    pub(super) async fn names(&self, cluster: &Cluster) -> anyhow::Result<Vec<String>> {
        let patterns = self.patterns()?;
        let mut names: Vec<String> =
            self.topics.iter().filter(|topic| !topic.starts_with('^')).cloned().collect();
        if !names.is_empty() {
            let metadata = cluster.refresh(&names, false).await?;
            for name in &names {
                check(&metadata, name)?;
            }
        }
        if !patterns.is_empty() {
            let metadata = cluster.refresh_all().await?;
            let topics = metadata.topics.values().filter(|topic| !topic.internal);
            let matching =
                topics.filter(|topic| patterns.iter().any(|pattern| pattern.is_match(&topic.name)));
            let before = names.len();
            names.extend(matching.map(|topic| topic.name.to_string()));
            // A member without --until-end waits for a topic that matches.
            if names.len() == before && (self.group.is_none() || self.until_end) {
                let why = format!("No topic matches {}", self.topics.join(" "));
                return Err(NotFound(why).into());
            }
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    async fn partitions(&self, cluster: &Cluster) -> anyhow::Result<Vec<TopicPartition>> {
        let names = self.names(cluster).await?;
        let metadata = cluster.refresh(&names, false).await?;
        let mut partitions = Vec::new();
        for name in names {
            check(&metadata, &name)?;
            let topic = metadata.topics.get(&name);
            let all: Vec<i32> = topic
                .into_iter()
                .flat_map(|topic| &topic.partitions)
                .map(|partition| partition.index)
                .collect();
            for index in &self.partition {
                if !all.contains(index) {
                    let last = all.iter().max().copied().unwrap_or(0);
                    let why = format!("Topic {name} has no partition {index}: expected 0 to {last}");
                    return Err(NotFound(why).into());
                }
            }
            let chosen = if self.partition.is_empty() { &all } else { &self.partition };
            partitions.extend(chosen.iter().map(|&index| TopicPartition::new(name.as_str(), index)));
        }
        Ok(partitions)
    }
}

/// The reason why a consumer does not read a partition.
pub(super) fn why_unavailable(cluster: &Cluster, at: &TopicPartition) -> String {
    match cluster.metadata().leader(&at.topic, at.partition) {
        None => NO_LEADER.to_owned(),
        Some(leader) => format!("its leader, broker {leader}, does not answer"),
    }
}

fn check(metadata: &Metadata, name: &str) -> Result<(), RefusedRequest> {
    let error = metadata.topics.get(name).and_then(|topic| topic.error);
    RefusedRequest::check(error.map_or(0, ErrorCode::code), None, || format!("Topic {name}"))
}

/// The start in a partition. A start before the first record becomes the first record, because old records
/// may have been deleted.
fn resolved(start: Start, first: Option<&ListedOffset>, end: Option<&ListedOffset>) -> StartAt {
    let offset = |listed: Option<&ListedOffset>| listed.map_or(0, |listed| listed.offset.0);
    match start {
        Start::At(start) => start,
        Start::BeforeEnd(before) => {
            StartAt::Offset(Offset(offset(end).saturating_add(before).max(offset(first))))
        }
    }
}
