//! The lag of groups: the distance between committed offsets of the groups coordinated here and the high
//! watermarks of their partitions.
//!
//! The high watermark is known for partitions with a replica here. Leaders of other partitions are asked by
//! ListOffsets, in the background, while metrics are read: at most every [`INTERVAL`], [`PARTITIONS_MAX`]
//! partitions in all, [`BATCH`] in a request. Partitions without a recent answer have no sample.

use crate::broker::Broker;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use thalweg_groups::GroupFigures;
use thalweg_hash::{HashMap, HashSet};
use thalweg_membership::PeerError;
use thalweg_metadata::{BrokerId, Image, PartitionIndex};
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
/// `ListOffsetsRequest.LATEST_TIMESTAMP`: for clients, the high watermark.
const LATEST: i64 = -1;

/// The lag of a group's committed offsets, in their order; `None` if the end of the log is unknown.
pub(super) type GroupLag = Vec<Option<i64>>;

type Ends = HashMap<String, HashMap<PartitionIndex, (i64, Instant)>>;

/// The high watermarks of partitions that have no replica here.
#[derive(Debug, Default)]
pub(crate) struct LogEnds {
    ends: Mutex<Ends>,
    wanted: Notify,
}

/// The lag of groups.
pub(super) fn of(
    broker: &Broker,
    log_ends: &LogEnds,
    image: &Image,
    groups: &[GroupFigures],
) -> Vec<GroupLag> {
    let (ends, now) = (log_ends.ends.lock(), Instant::now());
    let mut is_unknown = false;
    let mut lag = |topic: &String, partition: PartitionIndex, committed: i64| {
        let end = match broker.partitions.get(topic, partition) {
            Some(replica) => Some(replica.published_offsets().high_watermark().0),
            None => {
                is_unknown |= image.partition(topic, partition).is_some();
                let known = ends.get(topic).and_then(|partitions| partitions.get(&partition));
                known.filter(|(_, at)| now.saturating_duration_since(*at) < FRESH).map(|(end, _)| *end)
            }
        };
        end.map(|end| (end - committed).max(0))
    };
    let of_group = |group: &GroupFigures| -> GroupLag {
        group.committed.iter().map(|(topic, partition, offset)| lag(topic, *partition, *offset)).collect()
    };
    let lags = groups.iter().map(of_group).collect();
    if is_unknown {
        log_ends.wanted.notify_one();
    }
    lags
}

impl LogEnds {
    /// Asks leaders for high watermarks, as long as metrics are read.
    pub(crate) async fn run(self: Arc<Self>, broker: Arc<Broker>) {
        loop {
            self.wanted.notified().await;
            for (leader, partitions) in wanted(&broker) {
                match ask(&broker, leader, &partitions).await {
                    Ok(answers) => answers.iter().for_each(|answer| self.note(answer)),
                    Err(error) => {
                        tracing::debug!(%leader, %error, "Failed to ask for the ends of logs, for the lag of groups");
                    }
                }
            }
            self.forget_old();
            tokio::time::sleep(INTERVAL).await;
        }
    }

    fn note(&self, response: &ListOffsetsResponse) {
        let (mut ends, now) = (self.ends.lock(), Instant::now());
        for topic in &response.topics {
            for partition in topic.partitions.iter().filter(|partition| partition.error_code == 0) {
                let place = ends.entry(topic.name.clone()).or_default();
                place.insert(PartitionIndex(partition.partition_index), (partition.offset, now));
            }
        }
    }

    fn forget_old(&self) {
        let (mut ends, now) = (self.ends.lock(), Instant::now());
        ends.retain(|_, partitions| {
            partitions.retain(|_, (_, at)| now.saturating_duration_since(*at) < FRESH);
            !partitions.is_empty()
        });
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

async fn ask(
    broker: &Broker,
    leader: BrokerId,
    partitions: &[(String, PartitionIndex)],
) -> Result<Vec<ListOffsetsResponse>, PeerError> {
    let connection = broker.peers.connect(leader, "group-lag", PATIENCE).await?;
    let mut answers = Vec::new();
    for batch in partitions.chunks(BATCH) {
        let mut topics: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
        for (topic, partition) in batch {
            let partition = ListOffsetsPartition {
                partition_index: partition.0,
                timestamp: LATEST,
                ..ListOffsetsPartition::default()
            };
            topics.entry(topic).or_default().push(partition);
        }
        let topics = topics
            .into_iter()
            .map(|(name, partitions)| ListOffsetsTopic { name: name.to_owned(), partitions })
            .collect();
        let request = ListOffsetsRequest { replica_id: -1, topics, ..ListOffsetsRequest::default() };
        answers.push(connection.send(&request).await?);
    }
    Ok(answers)
}
