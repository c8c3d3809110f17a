//! The groups of each topic, for lists of topics.
//!
//! Kafka's protocol answers for groups, not for topics. One reading in the background therefore requests the
//! ends of all partitions, and then the offsets and the assignments of all groups: in this order a lag is too
//! small by the records since, and never one that there was not. Readings take at most 1/20 of the time, but
//! no pause is longer than [`INTERVAL_MAX`]. A list waits for the first one only, and for [`FIRST_WAIT`] at
//! most. All logins together have [`READINGS_MAX`] readings at a time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use thalweg_client::{ClientError, GroupAssignment, GroupListing, GroupPosition, is_without_members};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::catalog::Catalog;
use super::groups::{GroupCatalog, GroupLine};
use super::{View, ends};
use crate::format;

/// Groups of a topic in a list: those with the largest lag.
pub const GROUPS_OF_TOPIC_MAX: usize = 10;
/// Groups with members that are described for their assignments.
const DESCRIBED_MAX: usize = 2_000;
/// Maximum bytes of the id of a group in lists of topics: a page has many of them.
const ID_BYTES_MAX: usize = 1024;
/// The shortest and the longest time between two readings, and their share of the time.
const INTERVAL: Duration = Duration::from_secs(5);
const INTERVAL_MAX: Duration = Duration::from_secs(300);
const SHARE: u32 = 20;
/// Readings of all logins at a time.
const READINGS_MAX: usize = 4;
static READINGS: Semaphore = Semaphore::const_new(READINGS_MAX);
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
    /// The pause after the last reading, by its duration.
    pause: Duration,
    /// Number of changes. A reading that began before one is outdated soon.
    changes: u64,
    known: Option<Result<Arc<ReadGroups>, String>>,
}

impl State {
    /// The pause after a change: short where readings are.
    fn after_change(&self) -> Duration {
        self.pause.min(INTERVAL)
    }
}

/// The groups of all topics.
pub struct ReadGroups {
    /// The topics at the time of the reading.
    catalog: Arc<Catalog>,
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
    #[schema(value_type = String)]
    #[serde(serialize_with = "as_text")]
    pub group: Arc<str>,
    /// Lag in records over all partitions of the topic; none if that of one is unknown, as without a
    /// committed offset. An offset beyond the end counts as 0.
    pub lag: Option<i64>,
    /// Number of partitions of the topic whose offset is beyond the end.
    pub beyond_end: usize,
    /// Number of members of the group; none if the group cannot be described.
    pub members: Option<usize>,
}

fn as_text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

impl ReadGroups {
    /// The groups of a topic; none if the topic was not there at the time of the reading.
    pub fn of(&self, topic: &str) -> Option<ReadTopic> {
        self.catalog.position(topic)?;
        Some(self.topics.get(topic).cloned().unwrap_or_default())
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
        // Another request tries again when others have taken all places.
        let Ok(place) = READINGS.try_acquire() else { return };
        state.is_reading = true;
        let (view, changes) = (Arc::clone(view), state.changes);
        tokio::spawn(async move {
            let _place = place;
            let began = Instant::now();
            let read = match tokio::time::timeout(READING_WAIT, read(&view)).await {
                Ok(read) => read.map(Arc::new).map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer within {} s", READING_WAIT.as_secs())),
            };
            view.groups_by_topic().end(began, changes, read);
        });
    }

    fn end(&self, began: Instant, changes: u64, read: Result<Arc<ReadGroups>, String>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.is_reading = false;
        // After a change during the reading, the next one comes soon.
        state.pause = ((now - began) * SHARE).min(INTERVAL_MAX);
        let is_outdated = state.changes != changes;
        state.due = Some(now + if is_outdated { state.after_change() } else { state.pause.max(INTERVAL) });
        // A failure does not hide what was read before, which has its time.
        if read.is_ok() || !matches!(state.known, Some(Ok(_))) {
            state.known = Some(read);
        }
        drop(state);
        self.ended.notify_waiters();
    }

    /// Notes a change: the next reading is due soon. The last one stays until then, with its time.
    pub fn note_change(&self) {
        let mut state = self.state.lock();
        state.changes += 1;
        let soon = Instant::now() + state.after_change();
        state.due = state.due.map(|due| due.min(soon));
    }
}

/// A partition that a group reads.
struct ReadPartition {
    /// The place of the group in the catalog of groups.
    group: usize,
    partition: i32,
    position: Option<GroupPosition>,
}

/// The partitions that all groups read, by the place of the topic in the catalog. Partitions that do not
/// exist, or that the login may not see, are left out.
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
    let mut found: HashMap<(usize, i32), i64> = HashMap::new();
    let take = |topic: &str, partition, end| {
        found.extend(catalog.position(topic).map(|at| ((at, partition), end)));
    };
    ends::read(view, &catalog, |_, _| true, take).await;
    let places: HashMap<&str, usize> =
        groups.groups.iter().enumerate().map(|(at, group)| (group.group.as_str(), at)).collect();
    let (listed, long): (Vec<GroupListing>, Vec<GroupListing>) =
        groups.listings().into_iter().partition(|group| group.group.len() <= ID_BYTES_MAX);
    let mut reads = Reads::default();
    let omitted = view.admin().positions_of_groups(&listed, |group, found| {
        let group = places[group.group.as_str()];
        for (at, position) in found {
            let read = ReadPartition { group, partition: at.partition, position: Some(position) };
            reads.add(&catalog, &at.topic, read);
        }
    });
    let mut omitted = omitted.await;
    omitted.extend(long.iter().map(|group| group.group.as_str()));
    let is_active =
        |group: &&GroupLine| !is_without_members(&group.state) && group.group.len() <= ID_BYTES_MAX;
    let active: Vec<&GroupLine> = groups.groups.iter().filter(is_active).collect();
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
    let mut missing = groups.missing.clone();
    if !omitted.is_empty() {
        missing.push(format!(
            "{} could not be read completely: the login may not describe them, their coordinators do not answer, their ids are long, or there are too many",
            format::counted(omitted.len(), "group")
        ));
    }
    let topics = of_topics(&catalog, &groups, &reads, &assignments, &found);
    let read_at_ms = groups.read_at_ms.min(catalog.read_at_ms);
    Ok(ReadGroups { catalog, topics, missing, read_at_ms })
}

fn of_topics(
    catalog: &Catalog,
    groups: &GroupCatalog,
    reads: &Reads,
    assignments: &BTreeMap<String, Arc<GroupAssignment>>,
    ends: &HashMap<(usize, i32), i64>,
) -> HashMap<Arc<str>, ReadTopic> {
    let mut topics = HashMap::new();
    let mut ids: HashMap<usize, Arc<str>> = HashMap::new();
    for (at, read) in &reads.0 {
        let of_each = read.chunk_by(|a, b| a.group == b.group);
        let mut rows: Vec<TopicGroupRow> = of_each
            .map(|read| {
                let group = &groups.groups[read[0].group];
                let id = ids.entry(read[0].group).or_insert_with(|| group.group.as_str().into());
                let assignment = assignments.get(&group.group);
                let is_empty = is_without_members(&group.state);
                // The partitions of a group without a description are unknown.
                let is_known = is_empty || assignment.is_some();
                let lag = |one| lag(group, one, ends.get(&(*at, one.partition)).copied());
                let lags = read.iter().map(lag).map(|lag| Some(lag?.max(0))).sum::<Option<i64>>();
                let beyond_end = read.iter().map(lag).filter(|lag| lag.is_some_and(|lag| lag < 0)).count();
                TopicGroupRow {
                    group: Arc::clone(id),
                    lag: lags.filter(|_| is_known),
                    beyond_end,
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

/// The lag of a group in a partition, negative for an offset beyond the end. A partition that never had a
/// record needs no committed offset.
fn lag(group: &GroupLine, read: &ReadPartition, end: Option<i64>) -> Option<i64> {
    match read.position {
        Some(position) if group.kind == "share" => position.share_lag,
        Some(position) => Some(end? - position.offset.0),
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
            read.groups.iter().map(|row| (row.group.to_string(), row.lag, row.members)).collect()
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
    async fn a_change_makes_the_next_reading_due_soon_and_a_failure_hides_nothing() {
        let readings = GroupsByTopic::default();
        let read = |read_at_ms| {
            let catalog = Arc::new(catalog());
            Ok(Arc::new(ReadGroups { catalog, topics: HashMap::new(), missing: Vec::new(), read_at_ms }))
        };
        let began = Instant::now();
        tokio::time::advance(Duration::from_secs(10)).await;
        readings.end(began, 0, read(7));
        let due_in = || readings.state.lock().due.map(|due| due - Instant::now());
        assert_eq!(due_in(), Some(Duration::from_secs(200)), "a twentieth of the time");
        readings.note_change();
        assert_eq!(due_in(), Some(INTERVAL));
        readings.end(began, 0, read(8));
        assert_eq!(due_in(), Some(INTERVAL), "the reading began before the change");
        readings.end(began, 1, Err("no answer".to_owned()));
        let state = readings.state.lock();
        let known = state.known.as_ref().and_then(|known| known.as_ref().ok());
        assert_eq!(known.map(|read| read.read_at_ms), Some(8));
        let known = known.expect("read");
        assert!(known.of("orders").is_some_and(|topic| topic.count == 0), "nobody reads it");
        assert!(known.of("newer").is_none(), "it was not looked at");
    }
}
