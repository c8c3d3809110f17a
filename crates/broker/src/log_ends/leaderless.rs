//! The partitions without a leader, tracked over images, and log lines about partitions that stay leaderless.
//!
//! Keeps the last leader and the complete replicas of such a partition, because the registration drops them
//! with the last complete log. Elections happen elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thalweg_controller::UndecidedPartition;
use thalweg_metadata::{BrokerId, Image, PartitionIndex, PartitionRegistration, Topic, TopicIdPartition};
use thalweg_wire::Uuid;
use tokio::time::Instant;

/// Time without a leader for the same reason before a log line. Brokers that start together, and imminent
/// elections, need no line.
const QUIET: Duration = Duration::from_secs(10);
/// Maximum number of partitions named in a log line.
const NAMED_MAX: usize = 10;
/// The last remedy.
const ACCEPT_LOSS: &str = "accept the loss of records, by `thalweg topic elect TOPIC --unclean` (kafka-leader-election \
                           --election-type unclean) or unclean.leader.election.enable=true";

/// Partitions of several replicas without a leader, by topics.
#[derive(Debug, Default)]
pub(super) struct Leaderless {
    topics: BTreeMap<Uuid, BTreeMap<PartitionIndex, Entry>>,
}

#[derive(Debug)]
struct Entry {
    /// `None` if the partition had no leader when this process started.
    last_leader: Option<BrokerId>,
    /// The replicas last known to be complete, or complete until an unclean stop.
    complete: Vec<BrokerId>,
    /// The reason for the missing leader, and the start of it.
    reason: Option<(Reason, Instant)>,
    is_logged: bool,
}

/// The reason why no leader is elected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// No replica is known to be complete, because the last complete log is lost.
    Lost,
    /// The complete replicas are not up.
    Awaits(Vec<BrokerId>),
}

/// Partitions with the same fate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fate {
    pub reason: Reason,
    pub last_leader: Option<BrokerId>,
    pub complete: Vec<BrokerId>,
}

impl Leaderless {
    /// Applies the next image. Only changed topics are visited.
    pub fn follow(&mut self, base: &Image, image: &Image, now: Instant) {
        self.topics.retain(|id, _| image.topic_by_id(*id).is_some());
        for topic in image.topics().changed_since(base.topics()) {
            let before = base.topic_by_id(topic.id);
            self.follow_topic(before, topic);
        }
        // Brokers start and stop without a change of the partition.
        for (topic, index, entry) in self.entries_mut() {
            let partition = image.topic_by_id(topic).and_then(|topic| topic.partition(index));
            let reason = partition.and_then(|partition| reason(image, partition));
            if entry.reason.as_ref().map(|(known, _)| known) != reason.as_ref() {
                entry.reason = reason.map(|reason| (reason, now));
                entry.is_logged = false;
            }
        }
    }

    fn follow_topic(&mut self, before: Option<&Arc<Topic>>, topic: &Topic) {
        let mut known = self.topics.remove(&topic.id).unwrap_or_default();
        known.retain(|index, _| topic.partition(*index).is_some_and(|partition| is_leaderless(partition)));
        for (index, partition) in topic.partitions.iter().filter(|(_, partition)| is_leaderless(partition)) {
            let earlier = before.and_then(|topic| topic.partition(*index));
            let entry = known.entry(*index).or_insert_with(|| Entry {
                last_leader: earlier.map(|earlier| earlier.leader).filter(|leader| *leader != BrokerId::NONE),
                complete: earlier.map(|earlier| complete(earlier)).unwrap_or_default(),
                reason: None,
                is_logged: false,
            });
            let complete = complete(partition);
            if !complete.is_empty() {
                entry.complete = complete;
            }
        }
        if !known.is_empty() {
            self.topics.insert(topic.id, known);
        }
    }

    fn entries_mut(&mut self) -> impl Iterator<Item = (Uuid, PartitionIndex, &mut Entry)> {
        let topics = self.topics.iter_mut();
        topics.flat_map(|(id, entries)| entries.iter_mut().map(|(index, entry)| (*id, *index, entry)))
    }

    /// True if every partition with several replicas has a leader.
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// The partitions of several replicas without a leader.
    pub fn partitions(&self) -> Vec<TopicIdPartition> {
        let of_topic = |(id, entries): (&Uuid, &BTreeMap<PartitionIndex, Entry>)| {
            let id = *id;
            entries.keys().map(move |index| (id, *index)).collect::<Vec<_>>()
        };
        self.topics.iter().flat_map(of_topic).collect()
    }

    /// Logs partitions that stay leaderless without help, once each. Undecided partitions are excluded,
    /// because their logs are compared.
    pub fn report(&mut self, image: &Image, undecided: &[UndecidedPartition], now: Instant) {
        for (fate, partitions) in self.unlogged(image, undecided, now) {
            log_fate(&fate, &partitions);
        }
    }

    fn unlogged(
        &mut self,
        image: &Image,
        undecided: &[UndecidedPartition],
        now: Instant,
    ) -> BTreeMap<Fate, Vec<String>> {
        let undecided: BTreeSet<_> = undecided.iter().map(|one| (one.topic_id, one.partition)).collect();
        let mut fates: BTreeMap<Fate, Vec<String>> = BTreeMap::new();
        for (topic, index, entry) in self.entries_mut() {
            let Some((reason, since)) = &entry.reason else { continue };
            let is_due = now.saturating_duration_since(*since) >= QUIET;
            if entry.is_logged || !is_due || undecided.contains(&(topic, index)) {
                continue;
            }
            entry.is_logged = true;
            let (reason, last_leader) = (reason.clone(), entry.last_leader);
            let fate = Fate { reason, last_leader, complete: entry.complete.clone() };
            let name = image.topic_by_id(topic).map(|topic| format!("{}-{index}", topic.name));
            fates.entry(fate).or_default().extend(name);
        }
        fates
    }
}

fn is_leaderless(partition: &PartitionRegistration) -> bool {
    !partition.has_leader() && partition.replicas.len() > 1
}

/// The replicas that are complete, or were until an unclean stop.
fn complete(partition: &PartitionRegistration) -> Vec<BrokerId> {
    let mut complete = partition.isr.clone();
    for id in partition.eligible_leader_replicas.iter().chain(&partition.last_known_elr) {
        if !complete.contains(id) {
            complete.push(*id);
        }
    }
    complete
}

/// The reason why a partition stays leaderless. `None` while no replica is up, as the cluster is then down
/// and not stuck, and while a complete replica is up, as its election or a comparison of logs follows.
fn reason(image: &Image, partition: &PartitionRegistration) -> Option<Reason> {
    let is_up = |id: &BrokerId| {
        image.broker(*id).is_some_and(|broker| broker.is_active() && broker.has_online_replica(partition))
    };
    if !partition.replicas.iter().any(is_up) {
        return None;
    }
    let (up, down): (Vec<BrokerId>, Vec<BrokerId>) = complete(partition).into_iter().partition(is_up);
    match (up.is_empty(), down.is_empty()) {
        (true, true) => Some(Reason::Lost),
        (_, false) => Some(Reason::Awaits(down)),
        (false, true) => None,
    }
}

fn log_fate(fate: &Fate, partitions: &[String]) {
    let last_leader = fate.last_leader.map_or_else(|| "unknown".to_owned(), |id| id.to_string());
    let (count, names) = (partitions.len(), named(partitions));
    match &fate.reason {
        Reason::Lost => tracing::warn!(
            partitions = count, named = names, last_leader, last_complete = ?BrokerId::numbers(&fate.complete),
            "Partitions have no leader, and get none: the last log that had all acknowledged records is gone, and other \
             replicas may lack some. Bring its directory back; or {ACCEPT_LOSS}"
        ),
        Reason::Awaits(replicas) => tracing::warn!(
            partitions = count, named = names, last_leader, awaited = ?BrokerId::numbers(replicas),
            "Partitions have no leader until a replica that has all acknowledged records is up: others may lack some. Start its \
             broker, with its directories. If it is gone for good, unregister it (`thalweg broker unregister ID`); if that does \
             not help, {ACCEPT_LOSS}"
        ),
    }
}

fn named(partitions: &[String]) -> String {
    let named = partitions.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match partitions.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Logs the partitions that wait for more replicas before their logs are compared.
pub(super) fn log_waiting(waiting: &[UndecidedPartition], patience: Duration) {
    let (bounded, open): (Vec<&UndecidedPartition>, Vec<&UndecidedPartition>) =
        waiting.iter().partition(|one| one.awaited.is_empty() || one.last_leader.is_some());
    let of = |first: &UndecidedPartition| format!("{}-{}", first.topic, first.partition);
    if let Some(first) = bounded.first() {
        tracing::warn!(
            partitions = bounded.len(),
            first = of(first),
            candidates = ?BrokerId::numbers(&first.candidates),
            awaited = ?BrokerId::numbers(&first.awaited),
            starting = ?BrokerId::numbers(&first.starting),
            last_leader = ?first.last_leader.map(|id| id.0),
            patience_ms = patience.as_millis(),
            "No replica is known to have all acknowledged records: waiting for others, to compare their logs. To go on without \
             brokers that are gone for good, unregister them (`thalweg broker unregister ID`); otherwise the last leader, or a \
             better one, leads after unclean.leader.election.interval.ms"
        );
    }
    if let Some(first) = open.first() {
        tracing::warn!(
            partitions = open.len(),
            first = of(first),
            candidates = ?BrokerId::numbers(&first.candidates),
            awaited = ?BrokerId::numbers(&first.awaited),
            "No replica is known to have all acknowledged records, and no leader is elected before those that led last are back, \
             with their directories. If their brokers are gone for good, unregister them (`thalweg broker unregister ID`); if \
             that does not help, {ACCEPT_LOSS}"
        );
    }
}

#[cfg(test)]
mod tests;
