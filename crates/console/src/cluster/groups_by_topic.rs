//! The groups of each topic, for lists of topics.
//!
//! Kafka's protocol answers for groups, not for topics. One reading in the background therefore requests the
//! offsets and the assignments of all groups, and the ends of all partitions that they read. Readings take at
//! most 1/20 of the time, but no pause is longer than [`INTERVAL_MAX`]. A list waits for the first one only,
//! and for [`FIRST_WAIT`] at most.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use thalweg_client::{ClientError, GroupAssignment, GroupPosition, is_without_members};
use tokio::sync::Notify;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::catalog::{Catalog, TopicLine};
use super::groups::{GroupCatalog, GroupLine};
use super::{View, ends};
use crate::format;

/// Groups of a topic in a list: those with the largest lag.
pub const GROUPS_OF_TOPIC_MAX: usize = 10;
/// Groups with members that are described for their assignments.
const DESCRIBED_MAX: usize = 2_000;
/// The shortest and the longest time between two readings, and their share of the time.
const INTERVAL: Duration = Duration::from_secs(5);
const INTERVAL_MAX: Duration = Duration::from_secs(30);
const SHARE: u32 = 20;
/// Time limit of a reading.
const READING_WAIT: Duration = Duration::from_secs(40);
/// The time that a list waits for the first reading.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// The latest reading.
#[derive(Default)]
pub struct GroupsByTopic {
    state: Mutex<State>,
    ended: Notify,
}

#[derive(Default)]
struct State {
    is_reading: bool,
    due: Option<Instant>,
    /// Number of times that the reading was dropped. A reading that began before a drop is outdated.
    drops: u64,
    known: Option<Result<Arc<ReadGroups>, String>>,
}

/// The groups of all topics.
pub struct ReadGroups {
    topics: HashMap<Arc<str>, ReadTopic>,
    /// The reasons why groups may be missing; none if all were looked at.
    pub missing: Vec<String>,
    /// The time of the reading, in milliseconds since 1970.
    pub read_at_ms: i64,
}

/// The groups that read a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadTopic {
    /// Number of groups that were found.
    pub count: usize,
    /// Those with the largest lag.
    pub groups: Vec<TopicGroupRow>,
}

/// A group that reads a topic, in a list of topics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TopicGroupRow {
    /// The group id.
    pub group: String,
    /// Lag in records over all partitions of the topic; none if that of one is unknown, as without a
    /// committed offset.
    pub lag: Option<i64>,
    /// Number of members of the group; none if the group cannot be described.
    pub members: Option<usize>,
}

impl ReadGroups {
    /// The groups of a topic.
    pub fn of(&self, topic: &str) -> ReadTopic {
        self.topics.get(topic).cloned().unwrap_or_default()
    }
}

impl GroupsByTopic {
    /// The latest reading, or why it failed; none before the first. Starts another reading in the background
    /// if one is due.
    pub async fn latest(&self, view: &Arc<View>) -> Option<Result<Arc<ReadGroups>, String>> {
        let ended = self.ended.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        self.read_if_due(view);
        if self.state.lock().known.is_none() {
            let _ = tokio::time::timeout(FIRST_WAIT, ended).await;
        }
        self.state.lock().known.clone()
    }

    fn read_if_due(&self, view: &Arc<View>) {
        let mut state = self.state.lock();
        if state.is_reading || state.due.is_some_and(|due| Instant::now() < due) {
            return;
        }
        state.is_reading = true;
        let (view, drops) = (Arc::clone(view), state.drops);
        tokio::spawn(async move {
            let began = Instant::now();
            let read = match tokio::time::timeout(READING_WAIT, read(&view)).await {
                Ok(read) => read.map(Arc::new).map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer within {} s", READING_WAIT.as_secs())),
            };
            view.groups_by_topic().end(began, drops, read);
        });
    }

    fn end(&self, began: Instant, drops: u64, read: Result<Arc<ReadGroups>, String>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.is_reading = false;
        if state.drops == drops {
            state.due = Some(now + ((now - began) * SHARE).clamp(INTERVAL, INTERVAL_MAX));
            state.known = Some(read);
        }
        drop(state);
        self.ended.notify_waiters();
    }

    /// Drops the reading, and one that is under way.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        state.drops += 1;
        state.due = None;
        state.known = None;
    }
}

/// A partition that a group reads.
struct ReadPartition {
    /// The place of the group in the catalog of groups.
    group: usize,
    partition: i32,
    position: Option<GroupPosition>,
}

/// What all groups read, by the place of the topic in the catalog. Partitions that do not exist, or that the
/// login may not see, are left out.
#[derive(Default)]
struct Reads(BTreeMap<usize, Vec<ReadPartition>>);

impl Reads {
    fn add(&mut self, catalog: &Catalog, topic: &str, read: ReadPartition) {
        let Some(at) = catalog.position(topic) else { return };
        let exists = usize::try_from(read.partition).is_ok_and(|it| it < catalog.topics[at].leaders.len());
        if exists {
            self.0.entry(at).or_default().push(read);
        }
    }

    /// Sorts the partitions by group and index, and removes assigned ones that have a position too.
    fn sort(&mut self) {
        for read in self.0.values_mut() {
            read.sort_by_key(|one| (one.group, one.partition, one.position.is_none()));
            read.dedup_by_key(|one| (one.group, one.partition));
        }
    }
}

async fn read(view: &View) -> Result<ReadGroups, ClientError> {
    let (catalog, groups) = (view.catalog().await?, view.groups().await?);
    let places: HashMap<&str, usize> =
        groups.groups.iter().enumerate().map(|(at, group)| (group.group.as_str(), at)).collect();
    let listed = groups.listings();
    let mut reads = Reads::default();
    let omitted = view.admin().positions_of_groups(&listed, |group, found| {
        let group = places[group.group.as_str()];
        for (at, position) in found {
            let read = ReadPartition { group, partition: at.partition, position: Some(position) };
            reads.add(&catalog, &at.topic, read);
        }
    });
    let mut omitted = omitted.await;
    let active: Vec<&GroupLine> =
        groups.groups.iter().filter(|group| !is_without_members(&group.state)).collect();
    let described = &active[..active.len().min(DESCRIBED_MAX)];
    let assignments = view.group_members().of(view, described).await;
    omitted
        .extend(active.iter().map(|group| &*group.group).filter(|group| !assignments.contains_key(*group)));
    for (group, assignment) in &assignments {
        let group = places[group.as_str()];
        for at in &assignment.partitions {
            let read = ReadPartition { group, partition: at.partition, position: None };
            reads.add(&catalog, &at.topic, read);
        }
    }
    reads.sort();
    let mut wanted: HashMap<&str, Vec<i32>> = HashMap::new();
    for (topic, read) in &reads.0 {
        let mut partitions: Vec<i32> = read.iter().map(|one| one.partition).collect();
        partitions.sort_unstable();
        wanted.insert(&catalog.topics[*topic].name, partitions);
    }
    let is_wanted = |topic: &TopicLine, index| {
        wanted.get(&*topic.name).is_some_and(|partitions| partitions.binary_search(&index).is_ok())
    };
    let mut found: HashMap<(usize, i32), i64> = HashMap::new();
    let take = |topic: &str, partition, end| {
        found.extend(catalog.position(topic).map(|at| ((at, partition), end)));
    };
    ends::read(view, &catalog, is_wanted, take).await;
    let mut missing = groups.missing.clone();
    if !omitted.is_empty() {
        missing.push(format!(
            "{} could not be read completely: the login may not describe them, their coordinators do not answer, or there are too many",
            format::counted(omitted.len(), "group")
        ));
    }
    let topics = of_topics(&catalog, &groups, &reads, &assignments, &found);
    Ok(ReadGroups { topics, missing, read_at_ms: groups.read_at_ms.min(catalog.read_at_ms) })
}

fn of_topics(
    catalog: &Catalog,
    groups: &GroupCatalog,
    reads: &Reads,
    assignments: &BTreeMap<String, Arc<GroupAssignment>>,
    ends: &HashMap<(usize, i32), i64>,
) -> HashMap<Arc<str>, ReadTopic> {
    let mut topics = HashMap::new();
    for (at, read) in &reads.0 {
        let of_each = read.chunk_by(|a, b| a.group == b.group);
        let mut rows: Vec<TopicGroupRow> = of_each
            .map(|read| {
                let group = &groups.groups[read[0].group];
                let assignment = assignments.get(&group.group);
                let is_empty = is_without_members(&group.state);
                // What a group reads that could not be described is unknown.
                let is_known = is_empty || assignment.is_some();
                let lag = |one| lag(group, one, ends.get(&(*at, one.partition)).copied());
                let lags = read.iter().map(lag).sum::<Option<i64>>();
                TopicGroupRow {
                    group: group.group.clone(),
                    lag: lags.filter(|_| is_known),
                    members: if is_empty { Some(0) } else { assignment.map(|found| found.members) },
                }
            })
            .collect();
        let count = rows.len();
        // The groups are sorted by name, and the sort is stable: unknown lags come last.
        rows.sort_by_key(|row| Reverse(row.lag));
        rows.truncate(GROUPS_OF_TOPIC_MAX);
        topics.insert(Arc::clone(&catalog.topics[*at].name), ReadTopic { count, groups: rows });
    }
    topics
}

/// The lag of a group in a partition. An offset beyond the end counts as 0. A partition that never had a
/// record needs no committed offset.
fn lag(group: &GroupLine, read: &ReadPartition, end: Option<i64>) -> Option<i64> {
    match read.position {
        Some(position) if group.kind == "share" => position.share_lag,
        Some(position) => Some((end? - position.offset.0).max(0)),
        None => end.filter(|end| *end == 0 && group.kind != "share"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use thalweg_record::Offset;
    use thalweg_wire::request::metadata_response::{
        MetadataResponse, MetadataResponsePartition, MetadataResponseTopic,
    };

    use super::*;

    fn catalog() -> Catalog {
        let partition = |partition_index| MetadataResponsePartition {
            partition_index,
            leader_id: 1,
            ..MetadataResponsePartition::default()
        };
        let topic = |name: &str| MetadataResponseTopic {
            name: Some(name.to_owned()),
            partitions: (0..2).map(partition).collect(),
            ..MetadataResponseTopic::default()
        };
        let topics = vec![topic("orders"), topic("clicks")];
        Catalog::of(MetadataResponse { topics, ..MetadataResponse::default() }, BTreeMap::new())
    }

    fn line(group: &str, kind: &str, state: &str) -> GroupLine {
        let [group, kind, state] = [group, kind, state].map(str::to_owned);
        GroupLine { group, kind, state, protocol: "consumer".to_owned() }
    }

    #[test]
    fn the_groups_of_a_topic_come_with_what_is_known_of_their_lag() {
        let catalog = catalog();
        let groups = GroupCatalog {
            groups: vec![
                line("billing", "classic", "Stable"),
                line("dark", "classic", "Stable"),
                line("idle", "consumer", "Empty"),
                line("pool", "share", "Empty"),
            ],
            read_at_ms: 0,
            missing: Vec::new(),
        };
        let mut reads = Reads::default();
        let mut add = |group, topic: &str, partition, offset: Option<i64>, share_lag| {
            let position = offset.map(|offset| GroupPosition { offset: Offset(offset), share_lag });
            reads.add(&catalog, topic, ReadPartition { group, partition, position });
        };
        add(0, "orders", 1, None, None);
        add(0, "orders", 0, None, None);
        add(0, "orders", 0, Some(70), None);
        add(1, "orders", 0, Some(1), None);
        add(2, "orders", 0, Some(40), None);
        add(2, "orders", 1, Some(9), None);
        add(3, "orders", 0, Some(5), Some(3));
        add(2, "hidden", 0, Some(1), None);
        add(2, "clicks", 7, Some(1), None);
        reads.sort();
        let assignment = GroupAssignment { members: 2, partitions: BTreeSet::new() };
        let assignments = BTreeMap::from([("billing".to_owned(), Arc::new(assignment))]);
        let orders = catalog.position("orders").expect("a topic");
        let mut ends = HashMap::from([((orders, 0), 100), ((orders, 1), 0)]);
        let rows = |ends: &HashMap<_, _>| of_topics(&catalog, &groups, &reads, &assignments, ends);
        let found = rows(&ends);
        assert_eq!(found.keys().map(|name| &**name).collect::<Vec<_>>(), ["orders"], "what exists");
        let read = &found["orders"];
        let of = |read: &ReadTopic| -> Vec<(String, Option<i64>, Option<usize>)> {
            read.groups.iter().map(|row| (row.group.clone(), row.lag, row.members)).collect()
        };
        let row = |group: &str, lag, members| (group.to_owned(), lag, members);
        let expected = [
            row("idle", Some(60), Some(0)),
            row("billing", Some(30), Some(2)),
            row("pool", Some(3), Some(0)),
            row("dark", None, None),
        ];
        assert_eq!((read.count, of(read)), (4, expected.to_vec()));
        ends.insert((orders, 1), 8);
        assert_eq!(
            of(&rows(&ends)["orders"])[1],
            row("pool", Some(3), Some(0)),
            "billing has committed nothing in 1"
        );
        ends.remove(&(orders, 0));
        assert_eq!(of(&rows(&ends)["orders"])[1], row("billing", None, Some(2)), "the leader is silent");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_that_a_change_has_outdated_is_not_shown() {
        let readings = GroupsByTopic::default();
        let read = || Ok(Arc::new(ReadGroups { topics: HashMap::new(), missing: Vec::new(), read_at_ms: 7 }));
        let began = Instant::now();
        readings.end(began, 0, read());
        assert!(readings.state.lock().known.is_some());
        readings.clear();
        readings.end(began, 0, read());
        let state = readings.state.lock();
        assert!(state.known.is_none() && state.due.is_none(), "the next list begins another one");
    }
}
