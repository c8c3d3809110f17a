//! The partitions to read, with their start and end offsets.

use std::collections::BTreeMap;

use regex::Regex;
use thalweg_client::{
    Cluster, Consumer, ListedOffset, Metadata, OffsetSpec, RefusedRequest, StartAt, TopicPartition,
};
use thalweg_record::Offset;
use thalweg_wire::ErrorCode;
use tokio::time::Instant;

use super::{Consume, Usage};
use crate::failure::NotFound;
use crate::moment;

/// The start position in each partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
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

    /// Begins to read newly assigned partitions, at the start by the options, if any.
    pub(super) async fn assigned(
        &self,
        consumer: &mut Consumer,
        partitions: Vec<TopicPartition>,
        rest: &mut super::Rest,
    ) -> anyhow::Result<()> {
        let start = self.start()?;
        let is_before_end = matches!(start, Some(Start::BeforeEnd(_)));
        let listed = async |spec, is_needed| match is_needed {
            true => {
                let wanted: Vec<_> = partitions.iter().map(|at| (at.clone(), spec)).collect();
                consumer.list_offsets(&wanted).await
            }
            false => Ok(BTreeMap::new()),
        };
        let firsts = listed(OffsetSpec::Earliest, is_before_end).await?;
        let ends = listed(OffsetSpec::Latest, self.until_end || is_before_end).await?;
        for at in &partitions {
            if let Some(start) = start
                && rest.started.insert(at.clone())
            {
                consumer.seek_to(at, resolved(start, firsts.get(at), ends.get(at)));
            }
        }
        // A broker may assign partitions one after the other, as other members revoke them.
        if self.until_end && partitions.is_empty() && consumer.is_assigned_by_broker() {
            rest.idle_since.get_or_insert_with(Instant::now);
        } else if self.until_end {
            rest.idle_since = None;
            let ends = ends.into_iter().map(|(at, end)| (at, end.offset));
            rest.ends.get_or_insert_default().extend(ends);
        }
        Ok(())
    }

    /// Reads the chosen partitions without assignment by a group. Returns their end offsets with
    /// `--until-end`.
    pub(super) async fn assign(
        &self,
        consumer: &mut Consumer,
        start: Option<Start>,
    ) -> anyhow::Result<Option<BTreeMap<TopicPartition, Offset>>> {
        let cluster = consumer.cluster().clone();
        let partitions = self.partitions(&cluster).await?;
        let start = start.unwrap_or(Start::At(match (&self.group, self.from_beginning) {
            (Some(_), _) => StartAt::Committed,
            (None, true) => StartAt::Spec(OffsetSpec::Earliest),
            (None, false) => StartAt::Spec(OffsetSpec::Latest),
        }));
        let is_before_end = matches!(start, Start::BeforeEnd(_));
        let listed = async |spec, is_needed| match is_needed {
            true => found(&cluster, &partitions, spec, self.read_committed).await,
            false => Ok(BTreeMap::new()),
        };
        let firsts = listed(OffsetSpec::Earliest, is_before_end).await?;
        let ends = listed(OffsetSpec::Latest, self.until_end || is_before_end).await?;
        let starts = partitions.into_iter().map(|at| {
            let start = resolved(start, firsts.get(&at), ends.get(&at));
            (at, start)
        });
        consumer.assign(starts.collect()).await?;
        let ends = ends.into_iter().map(|(at, end)| (at, end.offset));
        Ok(self.until_end.then(|| ends.collect()))
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
            if names.len() == before && self.group.is_none() {
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

async fn found(
    cluster: &Cluster,
    partitions: &[TopicPartition],
    spec: OffsetSpec,
    read_committed: bool,
) -> anyhow::Result<BTreeMap<TopicPartition, ListedOffset>> {
    let wanted: Vec<_> = partitions.iter().map(|at| (at.clone(), spec)).collect();
    let found = cluster.list_offsets(&wanted, read_committed).await;
    Ok(found.into_iter().map(|(at, offset)| offset.map(|offset| (at, offset))).collect::<Result<_, _>>()?)
}
