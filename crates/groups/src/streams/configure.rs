//! Fits a topology to the existing topics (`InternalTopicManager`): the number of tasks of its subtopologies,
//! the number of partitions of its internal topics, and missing or unsuitable topics.
//!
//! ```text
//! repartition topics   as many partitions as their writer reads, unless the topology sets the number
//! copartitioned topics all the same number; repartition topics adapt to the other topics
//! changelog topics     a partition for each task
//! ```

use super::error::StreamsGroupError;
use super::hash_order::HashOrder;
use super::topology::{Topology, sources};
use crate::assignor::SubtopologySpec;
use crate::topics::TopicsView;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_wire::group::streams_group_topology_value::{CopartitionGroup, Subtopology, TopicInfo};
use thalweg_wire::request::create_topics_request::{CreatableTopic, CreatableTopicConfig};

/// Maximum number of tasks of a group. Kafka has no such limit; here each task has an entry in an assignment.
const TASKS_MAX: i64 = 1_000_000;
/// Number of topics that a message names before it counts the rest.
const NAMED_MAX: usize = 3;

/// Status of a group or topology in an answer, by its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    StaleTopology = 0,
    MissingSourceTopics = 1,
    IncorrectlyPartitionedTopics = 2,
    MissingInternalTopics = 3,
    ShutdownApplication = 4,
    AssignmentDelayed = 5,
}

/// A topology fitted to the topics at one time.
#[derive(Debug, Default)]
pub(super) struct ConfiguredTopology {
    /// The tasks of each subtopology; empty if the topics do not fit.
    pub(super) subtopologies: BTreeMap<Arc<str>, SubtopologySpec>,
    /// The number of partitions of each internal topic.
    pub(super) partitions: HashMap<String, i32>,
    /// Why the group has no tasks yet.
    pub(super) problem: Option<(Status, String)>,
    /// Internal topics to create.
    pub(super) missing: Vec<CreatableTopic>,
}

impl ConfiguredTopology {
    /// True if the topology's tasks can be assigned.
    pub(super) fn is_ready(&self) -> bool {
        self.problem.is_none()
    }
}

/// Why a topology does not fit.
enum Misfit {
    /// The topology could fit other topics.
    Topics(Status, String),
    /// The topology cannot fit any topics.
    Topology(StreamsGroupError),
}

impl From<StreamsGroupError> for Misfit {
    fn from(error: StreamsGroupError) -> Misfit {
        Misfit::Topology(error)
    }
}

fn invalid(reason: String) -> Misfit {
    Misfit::Topology(StreamsGroupError::InvalidTopology(reason))
}

fn unexpected(reason: String) -> Misfit {
    Misfit::Topology(StreamsGroupError::Unexpected(reason))
}

/// Fits a topology to the topics.
pub(super) fn configure(
    topology: &Topology,
    topics: &dyn TopicsView,
) -> Result<ConfiguredTopology, StreamsGroupError> {
    match fit(topology, topics) {
        Ok(configured) => Ok(configured),
        Err(Misfit::Topics(status, detail)) => {
            Ok(ConfiguredTopology { problem: Some((status, detail)), ..ConfiguredTopology::default() })
        }
        Err(Misfit::Topology(error)) => Err(error),
    }
}

fn fit(topology: &Topology, topics: &dyn TopicsView) -> Result<ConfiguredTopology, Misfit> {
    let all = topology.subtopologies.values();
    let external: BTreeSet<&str> = all.flat_map(|each| &each.source_topics).map(String::as_str).collect();
    let missing: Vec<&str> = external.into_iter().filter(|topic| topics.id(topic).is_none()).collect();
    if !missing.is_empty() {
        let detail = format!("Source topics {} are missing.", summary(&missing));
        return Err(Misfit::Topics(Status::MissingSourceTopics, detail));
    }
    let mut counts = Counts { topics, decided: HashMap::default() };
    counts.decided = repartition_counts(topology, &counts)?;
    copartition(topology, &mut counts)?;
    let mut subtopologies = BTreeMap::new();
    let (mut changelogs, mut tasks_of_all) = (HashMap::default(), 0);
    for (id, subtopology) in topology.in_visiting_order() {
        let mut tasks = None;
        for topic in sources(subtopology) {
            tasks = tasks.max(Some(counts.known(topic)?));
        }
        let Some(tasks) = tasks else {
            return Err(invalid(format!("No source topics found for subtopology {id}")));
        };
        tasks_of_all += i64::from(tasks);
        for topic in &subtopology.state_changelog_topics {
            changelogs.insert(topic.name.clone(), tasks);
        }
        let is_stateful = !subtopology.state_changelog_topics.is_empty();
        subtopologies.insert(id.clone(), SubtopologySpec { tasks, is_stateful });
    }
    if tasks_of_all > TASKS_MAX {
        return Err(invalid(format!("The topology has {tasks_of_all} tasks, more than {TASKS_MAX}")));
    }
    counts.decided.extend(changelogs);
    let (partitions, missing) = internal_topics(topology, &counts)?;
    let names: Vec<&str> = missing.iter().map(|topic| topic.name.as_str()).collect();
    let problem = (!names.is_empty()).then(|| {
        (Status::MissingInternalTopics, format!("Internal topics are missing: {}", summary(&names)))
    });
    Ok(ConfiguredTopology { subtopologies, partitions, problem, missing })
}

/// Partition counts of topics, existing or decided.
struct Counts<'a> {
    topics: &'a dyn TopicsView,
    decided: HashMap<String, i32>,
}

impl Counts<'_> {
    fn existing(&self, topic: &str) -> Option<i32> {
        self.topics.partition_count(self.topics.id(topic)?)
    }

    fn known(&self, topic: &str) -> Result<i32, Misfit> {
        let count = self.existing(topic).or_else(|| self.decided.get(topic).copied());
        count.ok_or_else(|| unexpected(format!("Topic {topic} has no number of partitions")))
    }
}

/// Partition counts of the repartition topics, derived from the topics that their writers read.
///
/// Kafka visits all subtopologies in rounds. A visit gives the sinks without a count the largest count of
/// the sources that are known by then, even if other sources are not. Here each subtopology has one visit,
/// the one at which its first source is known, so that a long chain costs no more than its length.
fn repartition_counts(topology: &Topology, counts: &Counts<'_>) -> Result<HashMap<String, i32>, Misfit> {
    let all: Vec<&Subtopology> = topology.in_visiting_order().map(|(_, subtopology)| subtopology).collect();
    let repartition_sources = || all.iter().flat_map(|each| &each.repartition_source_topics);
    let fixed = repartition_sources().filter(|topic| topic.partitions != 0);
    let mut decided: HashMap<&str, i32> =
        fixed.map(|topic| (topic.name.as_str(), topic.partitions)).collect();
    let mut readers: HashMap<&str, Vec<usize>> = HashMap::default();
    for (place, subtopology) in all.iter().enumerate() {
        for topic in &subtopology.repartition_source_topics {
            readers.entry(&topic.name).or_default().push(place);
        }
    }
    let known_count = |place: usize, decided: &HashMap<&str, i32>| {
        let repartitioned = all[place].repartition_source_topics.iter();
        let repartitioned = repartitioned.filter_map(|topic| decided.get(topic.name.as_str()).copied());
        let external = all[place].source_topics.iter().filter_map(|topic| counts.existing(topic));
        repartitioned.chain(external).max()
    };
    // Visits by round and place, the earliest first.
    let mut visits: BinaryHeap<Reverse<(usize, usize)>> = (0..all.len())
        .filter(|place| known_count(*place, &decided).is_some())
        .map(|place| Reverse((0, place)))
        .collect();
    let mut done = vec![false; all.len()];
    while let Some(Reverse((round, place))) = visits.pop() {
        if std::mem::replace(&mut done[place], true) {
            continue;
        }
        let Some(count) = known_count(place, &decided) else { continue };
        for sink in &all[place].repartition_sink_topics {
            if decided.contains_key(sink.as_str()) {
                continue;
            }
            decided.insert(sink, count);
            for &reader in readers.get(sink.as_str()).into_iter().flatten() {
                // A reader at an earlier place has had its visit of this round.
                visits.push(Reverse((round + usize::from(reader <= place), reader)));
            }
        }
    }
    let mut sinks = all.iter().flat_map(|each| &each.repartition_sink_topics);
    if let Some(sink) = sinks.find(|sink| !decided.contains_key(sink.as_str())) {
        return Err(invalid(format!(
            "The number of partitions of repartition topic {sink} is not known: there may be loops in the topology"
        )));
    }
    if let Some(topic) = repartition_sources().find(|topic| !decided.contains_key(topic.name.as_str())) {
        let topic = &topic.name;
        return Err(invalid(format!("Repartition topic {topic} is read, and no subtopology writes it")));
    }
    Ok(decided.into_iter().map(|(topic, count)| (topic.to_owned(), count)).collect())
}

/// Gives copartitioned topics the same number of partitions.
fn copartition(topology: &Topology, counts: &mut Counts<'_>) -> Result<(), Misfit> {
    let all = topology.in_visiting_order().map(|(_, subtopology)| subtopology);
    let repartition = all.clone().flat_map(|each| &each.repartition_source_topics);
    let names = |is_fixed: bool| -> BTreeSet<&str> {
        let topics = repartition.clone().filter(|topic| (topic.partitions != 0) == is_fixed);
        topics.map(|topic| topic.name.as_str()).collect()
    };
    let (fixed, flexible) = (names(true), names(false));
    // Fixed topics keep their partition counts.
    let mut of_fixed = BTreeSet::new();
    for topic in &fixed {
        of_fixed.insert(counts.known(topic)?);
    }
    for subtopology in all {
        for group in &subtopology.copartition_groups {
            let topics = copartitioned(subtopology, group)?;
            let is_repartition = |topic: &str| fixed.contains(topic) || flexible.contains(topic);
            let (own, others): (Vec<&str>, Vec<&str>) =
                topics.into_iter().partition(|topic| is_repartition(topic));
            let count = match (others.is_empty(), of_fixed.first()) {
                (false, _) => same_count(&others, counts)?,
                (true, _) if own.is_empty() => continue,
                (true, Some(count)) if of_fixed.len() == 1 => *count,
                (true, Some(_)) => return Err(different(&own, counts)?),
                (true, None) => largest_count(&own, counts)?,
            };
            for topic in own.into_iter().collect::<HashOrder<&str>>() {
                let actual = counts.known(topic)?;
                if fixed.contains(topic) && actual != count {
                    let detail = format!(
                        "Number of partitions [{actual}] of repartition topic [{topic}] doesn't match number of partitions [{count}] of the source topic."
                    );
                    return Err(Misfit::Topics(Status::IncorrectlyPartitionedTopics, detail));
                }
                counts.decided.insert(topic.to_owned(), count);
            }
        }
    }
    Ok(())
}

/// The topics of a copartition group, which the topology stores by position.
fn copartitioned<'a>(
    subtopology: &'a Subtopology,
    group: &CopartitionGroup,
) -> Result<HashOrder<&'a str>, Misfit> {
    let at = |index: &i16| usize::try_from(*index).ok();
    let external = group.source_topics.iter().map(|index| subtopology.source_topics.get(at(index)?));
    let repartition = group.repartition_source_topics.iter();
    let repartition = repartition
        .map(|index| subtopology.repartition_source_topics.get(at(index)?).map(|topic| &topic.name));
    let names: Option<HashOrder<&str>> =
        external.chain(repartition).map(|name| name.map(String::as_str)).collect();
    names.ok_or_else(|| {
        let id = &subtopology.subtopology_id;
        unexpected(format!("A copartition group of subtopology {id} names a topic that it does not have"))
    })
}

fn same_count(topics: &[&str], counts: &Counts<'_>) -> Result<i32, Misfit> {
    let first = counts.known(topics[0])?;
    for topic in topics {
        if counts.known(topic)? != first {
            return Err(different(topics, counts)?);
        }
    }
    Ok(first)
}

fn largest_count(topics: &[&str], counts: &Counts<'_>) -> Result<i32, Misfit> {
    let mut largest = 0;
    for topic in topics {
        largest = largest.max(counts.known(topic)?);
    }
    if largest == 0 {
        return Err(invalid(format!("No topic of a copartition group has partitions: {}", summary(topics))));
    }
    Ok(largest)
}

fn different(topics: &[&str], counts: &Counts<'_>) -> Result<Misfit, Misfit> {
    let sorted: BTreeSet<&str> = topics.iter().copied().collect();
    let mut each = Vec::with_capacity(sorted.len());
    for topic in sorted {
        each.push(format!("{topic}={}", counts.known(topic)?));
    }
    let detail =
        format!("Following topics do not have the same number of partitions: [{{{}}}]", each.join(", "));
    Ok(Misfit::Topics(Status::IncorrectlyPartitionedTopics, detail))
}

/// Partition counts of the internal topics, and the internal topics that do not exist, in the order in which
/// Kafka names them.
fn internal_topics(
    topology: &Topology,
    counts: &Counts<'_>,
) -> Result<(HashMap<String, i32>, Vec<CreatableTopic>), Misfit> {
    let mut partitions = HashMap::default();
    let mut expected: HashMap<&str, CreatableTopic> = HashMap::default();
    let mut names = Vec::new();
    for subtopology in topology.subtopologies.values() {
        for topics in [&subtopology.repartition_source_topics, &subtopology.state_changelog_topics] {
            for topic in topics {
                let count = match topic.partitions {
                    0 => counts.decided.get(&topic.name).copied().unwrap_or(0),
                    fixed => fixed,
                };
                if count < 1 {
                    return Err(unexpected(format!("Topic {} is to have {count} partitions", topic.name)));
                }
                partitions.insert(topic.name.clone(), count);
                expected.insert(&topic.name, creatable(topic, count));
            }
            names.extend(topics.iter().map(|topic| topic.name.as_str()).collect::<HashOrder<&str>>());
        }
    }
    for topic in topology.required_in_visiting_order() {
        if let (Some(actual), Some(expected)) = (counts.existing(topic), expected.get(topic))
            && actual != expected.num_partitions
        {
            let detail = format!(
                "Existing topic {topic} has different number of partitions: expected {}, found {actual}",
                expected.num_partitions
            );
            return Err(Misfit::Topics(Status::IncorrectlyPartitionedTopics, detail));
        }
    }
    let names = names.into_iter().collect::<HashOrder<&str>>().into_iter();
    let missing = names.filter(|topic| counts.existing(topic).is_none());
    let missing = missing.filter_map(|topic| expected.remove(topic)).collect();
    Ok((partitions, missing))
}

fn creatable(topic: &TopicInfo, num_partitions: i32) -> CreatableTopic {
    // Repeated configuration names are sent once, with the last value.
    let configs: BTreeMap<&str, &str> =
        topic.topic_configs.iter().map(|config| (config.key.as_str(), config.value.as_str())).collect();
    let config = |(name, value): (&str, &str)| CreatableTopicConfig {
        name: name.to_owned(),
        value: Some(value.to_owned()),
    };
    CreatableTopic {
        name: topic.name.clone(),
        num_partitions,
        replication_factor: if topic.replication_factor == 0 { -1 } else { topic.replication_factor },
        assignments: Vec::new(),
        configs: configs.into_iter().map(config).collect(),
    }
}

/// The first topics of a list, and the number of further topics.
fn summary(topics: &[&str]) -> String {
    let named = topics[..topics.len().min(NAMED_MAX)].join(", ");
    match topics.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} additional topics"),
    }
}
