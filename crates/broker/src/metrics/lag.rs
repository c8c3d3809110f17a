//! The lag of groups: the distance between committed offsets of the groups coordinated here and the high
//! watermarks of their partitions, and the age of the first unread record.
//!
//! Both are known for partitions with a replica here. Leaders of other partitions are queried by ListOffsets,
//! in the background, while lags are read: at most every [`INTERVAL`], [`PARTITIONS_MAX`] partitions in
//! all, [`BATCH`] in a request. Partitions without a recent answer have no sample.

use super::unread::LocalTimes;
use crate::broker::Broker;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thalweg_dial::{ClientError, Connection};
use thalweg_groups::GroupFigures;
use thalweg_hash::{HashMap, HashSet};
use thalweg_membership::PeerError;
use thalweg_metadata::{BrokerId, Image, PartitionIndex};
use thalweg_wire::list_offsets::{LATEST_TIMESTAMP, age_ms, record_from};
use thalweg_wire::request::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use thalweg_wire::request::{ListOffsetsRequest, ListOffsetsResponse};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Minimum time between two rounds of requests.
const INTERVAL: Duration = Duration::from_secs(10);
/// Validity of an answer.
const FRESH: Duration = Duration::from_secs(45);
/// Timeout for a leader to accept a connection, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of partitions without a replica here in one round.
const PARTITIONS_MAX: usize = 10_000;
/// Maximum number of partitions in a request.
const BATCH: usize = 1_000;

/// Maximum number of different committed offsets of a partition whose records are requested in one round: a
/// request has each partition once.
const OFFSETS_OF_PARTITION_MAX: usize = 100;

/// The lag of one committed offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lag {
    /// Offsets up to the high watermark. Negative for an offset beyond the end of a partition that this
    /// broker leads, as in Kafka's tools. Other high watermarks may be older than the commit: then 0.
    pub records: i64,
    /// The age of the first unread record in milliseconds; 0 without one, `None` if unknown.
    pub age_ms: Option<i64>,
}

/// The lag of a group's committed offsets, in their order; `None` if the end of the log is unknown.
pub(super) type GroupLag = Vec<Option<Lag>>;

type Ends = HashMap<String, HashMap<PartitionIndex, (i64, Instant)>>;

/// Ages by group, topic and partition.
type Ages = HashMap<String, HashMap<String, HashMap<PartitionIndex, Age>>>;

/// The answer about the first unread record of a group in a partition that has no replica here.
#[derive(Clone, Copy, Debug)]
struct Age {
    committed: i64,
    /// The offset and the timestamp of the record; -1 if there is none.
    record: (i64, i64),
    answered_ms: i64,
    at: Instant,
}

/// The high watermarks and first unread records of partitions that have no replica here, and the times of
/// first unread records in logs that are here.
#[derive(Debug, Default)]
pub(crate) struct LagSources {
    ends: Mutex<Ends>,
    ages: Mutex<Ages>,
    local: LocalTimes,
    wanted: Notify,
    /// True if metrics were read, which have the age of unread records. A history has no ages.
    are_ages_wanted: AtomicBool,
}

/// A committed offset with unread records in a partition that has no replica here.
#[derive(Debug)]
struct Unread {
    group: String,
    topic: String,
    partition: PartitionIndex,
    committed: i64,
}

/// The lag of groups. Blocks for searches in logs.
pub(super) fn of(
    broker: &Broker,
    sources: &LagSources,
    image: &Image,
    groups: &[GroupFigures],
) -> Vec<GroupLag> {
    let (now, now_ms) = (Instant::now(), broker.clock.now_ms());
    let (mut local, mut is_unknown) = (sources.local.begin(), false);
    let mut lag = |group: &str, topic: &String, partition: PartitionIndex, committed: i64| {
        let Some(replica) = broker.partitions.get(topic, partition) else {
            is_unknown |= image.partition(topic, partition).is_some();
            let end = sources.end_elsewhere(image, topic, partition, now)?;
            return Some(sources.lag_elsewhere(group, (topic, partition), committed, end, (now, now_ms)));
        };
        let mut records = replica.published_offsets().high_watermark().0.saturating_sub(committed);
        if records < 0 && replica.leadership().is_none() {
            records = 0;
        }
        let age_ms = match records {
            ..=0 => Some(0),
            _ => local.age_ms(&replica, (topic.as_str(), partition), committed, now_ms),
        };
        Some(Lag { records, age_ms })
    };
    let of_group = |group: &GroupFigures| -> GroupLag {
        let committed = group.committed.iter();
        committed.map(|(topic, partition, offset)| lag(&group.id, topic, *partition, *offset)).collect()
    };
    let lags = groups.iter().map(of_group).collect();
    local.end();
    if is_unknown {
        sources.are_ages_wanted.store(true, Ordering::Relaxed);
        sources.wanted.notify_one();
    }
    lags
}

impl LagSources {
    /// The high watermark of a partition that has no replica here; `None` without a recent answer, or without
    /// a leader that is alive: its log may grow, and its next leader's may be shorter.
    pub(crate) fn end_elsewhere(
        &self,
        image: &Image,
        topic: &str,
        partition: PartitionIndex,
        now: Instant,
    ) -> Option<i64> {
        let is_led = image.partition(topic, partition).is_some_and(|known| image.is_alive(known.leader));
        if is_led { self.known_end(topic, partition, now) } else { None }
    }

    fn known_end(&self, topic: &str, partition: PartitionIndex, now: Instant) -> Option<i64> {
        let (end, at) = *self.ends.lock().get(topic)?.get(&partition)?;
        (now.saturating_duration_since(at) < FRESH).then_some(end)
    }

    /// Requests the high watermarks of partitions that have no replica here, in the background.
    pub(crate) fn want_ends(&self) {
        self.wanted.notify_one();
    }

    /// The lag in a partition that has no replica here.
    fn lag_elsewhere(
        &self,
        group: &str,
        (topic, partition): (&str, PartitionIndex),
        committed: i64,
        end: i64,
        (now, now_ms): (Instant, i64),
    ) -> Lag {
        let records = (end - committed).max(0);
        if records == 0 {
            return Lag { records, age_ms: Some(0) };
        }
        let ages = self.ages.lock();
        let age = ages.get(group).and_then(|topics| topics.get(topic)?.get(&partition));
        let age = age.filter(|age| now.saturating_duration_since(age.at) < FRESH);
        Lag { records, age_ms: age.and_then(|age| age.ms(committed, now_ms)) }
    }

    /// Requests high watermarks from leaders, as long as lags are read, and first unread records, as long as
    /// metrics are read.
    pub(crate) async fn run(self: Arc<Self>, broker: Arc<Broker>) {
        loop {
            self.wanted.notified().await;
            let mut connections = BTreeMap::new();
            for (leader, partitions) in wanted(&broker) {
                match self.request_ends(&broker, leader, &partitions).await {
                    Ok(connection) => drop(connections.insert(leader, connection)),
                    Err(error) => {
                        tracing::debug!(%leader, %error, "Failed to ask for the ends of logs, for the lag of groups");
                        self.forget_ends(&partitions);
                    }
                }
            }
            let are_ages_wanted = self.are_ages_wanted.swap(false, Ordering::Relaxed);
            let unread = if are_ages_wanted { self.unread(&broker) } else { BTreeMap::new() };
            for (leader, rounds) in unread {
                let Some(connection) = connections.get(&leader) else { continue };
                let records = rounds.iter().flat_map(|round| round.chunks(BATCH));
                for unread in records {
                    if let Err(error) = self.request_records(&broker, connection, unread).await {
                        tracing::debug!(%leader, %error, "Failed to ask for unread records, for the lag of groups");
                        break;
                    }
                }
            }
            self.forget_old();
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Requests high watermarks. Returns the connection to the leader.
    async fn request_ends(
        &self,
        broker: &Broker,
        leader: BrokerId,
        partitions: &[(String, PartitionIndex)],
    ) -> Result<Connection, PeerError> {
        let connection = broker.peers.connect(leader, "group-lag", PATIENCE).await?;
        for batch in partitions.chunks(BATCH) {
            let batch = batch.iter().map(|(topic, partition)| (topic.as_str(), *partition, LATEST_TIMESTAMP));
            self.note_ends(&connection.send(&list_offsets(batch)).await?);
        }
        Ok(connection)
    }

    /// Requests first unread records, of each partition once.
    async fn request_records(
        &self,
        broker: &Broker,
        connection: &Connection,
        unread: &[Unread],
    ) -> Result<(), ClientError> {
        let wanted = unread.iter();
        let wanted =
            wanted.filter_map(|at| Some((at.topic.as_str(), at.partition, record_from(at.committed)?)));
        let answer = connection.send(&list_offsets(wanted)).await?;
        self.note_records(unread, &answer, broker.clock.now_ms());
        Ok(())
    }

    fn note_ends(&self, response: &ListOffsetsResponse) {
        let (mut ends, now) = (self.ends.lock(), Instant::now());
        for topic in &response.topics {
            for partition in topic.partitions.iter().filter(|partition| partition.error_code == 0) {
                let place = ends.entry(topic.name.clone()).or_default();
                place.insert(PartitionIndex(partition.partition_index), (partition.offset, now));
            }
        }
    }

    /// Drops the ends of partitions whose leader did not answer.
    fn forget_ends(&self, partitions: &[(String, PartitionIndex)]) {
        let mut ends = self.ends.lock();
        for (topic, partition) in partitions {
            ends.get_mut(topic).and_then(|of_topic| of_topic.remove(partition));
        }
    }

    /// Notes the answer of a leader. Apache Kafka's brokers refuse such a request.
    fn note_records(&self, unread: &[Unread], response: &ListOffsetsResponse, answered_ms: i64) {
        let mut found: HashMap<(&str, PartitionIndex), (i64, i64)> = HashMap::default();
        for topic in &response.topics {
            for partition in topic.partitions.iter().filter(|partition| partition.error_code == 0) {
                let at = (topic.name.as_str(), PartitionIndex(partition.partition_index));
                found.insert(at, (partition.offset, partition.timestamp));
            }
        }
        let (mut ages, at) = (self.ages.lock(), Instant::now());
        for Unread { group, topic, partition, committed } in unread {
            let Some(record) = found.get(&(topic.as_str(), *partition)) else { continue };
            let age = Age { committed: *committed, record: *record, answered_ms, at };
            let topics = ages.entry(group.clone()).or_default();
            topics.entry(topic.clone()).or_default().insert(*partition, age);
        }
    }

    fn forget_old(&self) {
        let now = Instant::now();
        self.ends.lock().retain(|_, partitions| {
            partitions.retain(|_, (_, at)| now.saturating_duration_since(*at) < FRESH);
            !partitions.is_empty()
        });
        self.ages.lock().retain(|_, topics| {
            topics.retain(|_, ages| {
                ages.retain(|_, age| now.saturating_duration_since(age.at) < FRESH);
                !ages.is_empty()
            });
            !topics.is_empty()
        });
    }

    /// Committed offsets with unread records in partitions that have no replica here, by leader. A leader is
    /// asked in rounds with each partition once.
    fn unread(&self, broker: &Broker) -> BTreeMap<BrokerId, Vec<Vec<Unread>>> {
        let (image, ends) = (broker.image(), self.ends.lock());
        let mut offsets: HashMap<(String, PartitionIndex), usize> = HashMap::default();
        let mut leaders: BTreeMap<BrokerId, Vec<Vec<Unread>>> = BTreeMap::new();
        let mut left = PARTITIONS_MAX;
        for group in broker.groups.figures() {
            for (topic, partition, committed) in group.committed {
                let end = ends.get(&topic).and_then(|partitions| partitions.get(&partition));
                let has_unread = end.is_some_and(|(end, _)| *end > committed);
                let Some(registration) = image.partition(&topic, partition).filter(|_| has_unread) else {
                    continue;
                };
                let round = offsets.entry((topic.clone(), partition)).or_default();
                if left == 0 || *round >= OFFSETS_OF_PARTITION_MAX {
                    continue;
                }
                let rounds = leaders.entry(registration.leader).or_default();
                rounds.resize_with(rounds.len().max(*round + 1), Vec::new);
                rounds[*round].push(Unread { group: group.id.clone(), topic, partition, committed });
                (*round, left) = (*round + 1, left - 1);
            }
        }
        leaders
    }
}

impl Age {
    /// The age for an offset committed now. After a later commit, the age at the answer is the best estimate.
    fn ms(&self, committed: i64, now_ms: i64) -> Option<i64> {
        let (offset, timestamp) = self.record;
        let at_ms = if self.committed == committed { now_ms } else { self.answered_ms };
        age_ms(offset, timestamp, at_ms)
    }
}

/// The partitions of a round by their leader.
fn wanted(broker: &Broker) -> BTreeMap<BrokerId, Vec<(String, PartitionIndex)>> {
    let (image, mut seen) = (broker.image(), HashSet::default());
    let mut wanted: BTreeMap<BrokerId, Vec<_>> = BTreeMap::new();
    for (topic, partition, _) in broker.groups.figures().into_iter().flat_map(|group| group.committed) {
        if seen.len() >= PARTITIONS_MAX {
            break;
        }
        let Some(registration) = image.partition(&topic, partition) else { continue };
        let leader = registration.leader;
        let is_elsewhere = image.is_alive(leader) && broker.partitions.get(&topic, partition).is_none();
        if is_elsewhere && seen.insert((topic.clone(), partition)) {
            wanted.entry(leader).or_default().push((topic, partition));
        }
    }
    wanted
}

/// A request for partitions by topic, partition and timestamp.
fn list_offsets<'a>(wanted: impl Iterator<Item = (&'a str, PartitionIndex, i64)>) -> ListOffsetsRequest {
    let mut topics: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
    for (topic, partition, timestamp) in wanted {
        topics.entry(topic).or_default().push(ListOffsetsPartition {
            partition_index: partition.0,
            timestamp,
            ..ListOffsetsPartition::default()
        });
    }
    let topics = topics.into_iter();
    let topics = topics.map(|(name, partitions)| ListOffsetsTopic { name: name.to_owned(), partitions });
    ListOffsetsRequest { replica_id: -1, topics: topics.collect(), ..ListOffsetsRequest::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(topic: &str, partitions: &[(i32, i16, i64, i64)]) -> ListOffsetsResponse {
        use thalweg_wire::request::list_offsets_response::{
            ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
        };
        let partitions =
            partitions.iter().map(|(index, error_code, offset, timestamp)| ListOffsetsPartitionResponse {
                partition_index: *index,
                error_code: *error_code,
                offset: *offset,
                timestamp: *timestamp,
                ..Default::default()
            });
        let topic = ListOffsetsTopicResponse { name: topic.to_owned(), partitions: partitions.collect() };
        ListOffsetsResponse { topics: vec![topic], ..Default::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn the_age_of_records_on_other_brokers_is_their_leaders_answer_for_a_while() {
        let sources = LagSources::default();
        let unread = |partition, committed| Unread {
            group: "billing".to_owned(),
            topic: "t".to_owned(),
            partition: PartitionIndex(partition),
            committed,
        };
        let lag = |partition, committed, now_ms| {
            let (at, now) = (PartitionIndex(partition), Instant::now());
            let end = sources.known_end("t", at, now)?;
            Some(sources.lag_elsewhere("billing", ("t", at), committed, end, (now, now_ms)))
        };
        assert_eq!(lag(0, 5, 10_000), None, "the end is unknown");
        sources.note_ends(&answer("t", &[(0, 0, 9, -1), (1, 0, 9, -1), (2, 0, 9, -1), (3, 6, 9, -1)]));
        assert_eq!(lag(0, 5, 10_000), Some(Lag { records: 4, age_ms: None }));
        assert_eq!(lag(0, 9, 10_000), Some(Lag { records: 0, age_ms: Some(0) }));
        assert_eq!(lag(3, 5, 10_000), None, "an error is no answer");
        let asked = [unread(0, 5), unread(1, 5), unread(2, 5)];
        // Partition 1 has only markers behind the offset; Apache Kafka leads partition 2.
        sources.note_records(
            &asked,
            &answer("t", &[(0, 0, 5, 7_000), (1, 0, -1, -1), (2, 35, -1, -1)]),
            10_000,
        );
        assert_eq!(lag(0, 5, 12_000), Some(Lag { records: 4, age_ms: Some(5_000) }), "it grows");
        assert_eq!(
            lag(0, 6, 12_000),
            Some(Lag { records: 3, age_ms: Some(3_000) }),
            "of the time of the answer"
        );
        assert_eq!(lag(1, 5, 12_000), Some(Lag { records: 4, age_ms: Some(0) }));
        assert_eq!(lag(2, 5, 12_000), Some(Lag { records: 4, age_ms: None }));
        sources.forget_ends(&[("t".to_owned(), PartitionIndex(2)), ("other".to_owned(), PartitionIndex(0))]);
        assert_eq!(lag(2, 5, 12_000), None, "its leader did not answer the next request");
        tokio::time::advance(FRESH).await;
        assert_eq!(lag(0, 5, 12_000), None);
        sources.forget_old();
        assert!(sources.ends.lock().is_empty() && sources.ages.lock().is_empty());
    }
}
