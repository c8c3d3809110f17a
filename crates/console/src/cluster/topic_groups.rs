//! The groups that read a topic, with their lag.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use thalweg_client::{TopicGroup, TopicGroupPartition, TopicGroups};
use utoipa::ToSchema;

use super::fresh::CachedReading;
use super::group::PartitionReader;
use super::{View, now_ms};
use crate::problem::Problem;

/// Maximum age of a reading.
const AGE: Duration = Duration::from_secs(5);
/// Maximum number of topics with a reading; then all are dropped.
const TOPICS_MAX: usize = 50;

/// Readings by topic. A reading asks for the offsets of all groups.
#[derive(Default)]
pub struct TopicGroupReadings(Mutex<HashMap<String, Arc<CachedReading<TopicReaders>>>>);

impl TopicGroupReadings {
    fn of(&self, topic: &str) -> Arc<CachedReading<TopicReaders>> {
        let mut readings = self.0.lock();
        if readings.len() >= TOPICS_MAX && !readings.contains_key(topic) {
            readings.clear();
        }
        Arc::clone(readings.entry(topic.to_owned()).or_default())
    }

    /// Drops all readings.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

/// The groups that read a topic.
#[derive(Debug, Serialize, ToSchema)]
pub struct TopicReaders {
    /// Groups with a committed offset in the topic, or with a member that reads it.
    pub groups: Vec<TopicReader>,
    /// Number of groups that may read the topic and could not be read completely: the login may not describe
    /// them, their coordinators do not answer, or there are too many.
    pub omitted: usize,
    /// The reasons why further groups may be missing, such as a broker that does not answer, or a login
    /// without DESCRIBE; none if all groups were looked at.
    pub missing: Vec<String>,
    /// The time of the reading, in milliseconds since 1970. It is kept for some seconds.
    pub read_at_ms: i64,
}

impl TopicReader {
    /// Number of partitions whose offset is beyond the end, which count as 0 in the lag.
    pub fn beyond_end(&self) -> usize {
        self.partitions.iter().filter(|found| found.lag.is_some_and(|lag| lag < 0)).count()
    }
}

impl TopicReaders {
    /// True if a group that reads the topic cannot be missing.
    pub fn is_whole(&self) -> bool {
        self.omitted == 0 && self.missing.is_empty()
    }
}

/// A group that reads a topic.
#[derive(Debug, Serialize, ToSchema)]
pub struct TopicReader {
    /// The group id.
    pub group: String,
    /// The group type: `classic`, `consumer`, `share` or `streams`.
    pub kind: String,
    /// The group state, such as `Stable` or `Empty`.
    pub state: String,
    /// Number of members that read the topic.
    pub members: usize,
    /// Lag in records over all partitions; none if the lag of one is unknown, as without a committed offset.
    pub lag: Option<i64>,
    /// The age of the oldest unread record of all partitions, in milliseconds; 0 without a lag, and none if
    /// that of a partition is unknown.
    pub lag_ms: Option<i64>,
    /// The partitions that the group reads.
    pub partitions: Vec<ReadPartition>,
}

/// A partition that a group reads.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReadPartition {
    /// The partition index.
    pub partition: i32,
    /// The committed offset, or the share group's start offset; none in a partition that is read without.
    pub offset: Option<i64>,
    /// Records between the offset and the end; negative if the offset is beyond the end.
    pub lag: Option<i64>,
    /// The age of the first unread record in milliseconds; 0 without a lag.
    pub lag_ms: Option<i64>,
    /// The member that reads the partition, if any; in a share group the first of them.
    pub reader: Option<PartitionReader>,
    /// Number of members that read the partition.
    pub readers: usize,
}

/// Reads the groups of a topic.
pub async fn read(view: &Arc<View>, topic: &str) -> Result<Arc<TopicReaders>, Problem> {
    let reading = view.topic_groups().of(topic);
    // A coordinator that does not answer makes a reading slow, and its groups are to come back soon.
    reading.get_within(AGE, || read_now(view, topic)).await
}

async fn read_now(view: &Arc<View>, topic: &str) -> Result<TopicReaders, Problem> {
    let catalog = view.groups().await?;
    let read_at_ms = catalog.read_at_ms;
    let listed = catalog.listings();
    let TopicGroups { groups, omitted } = view.admin().groups_of_topic(topic, &listed, now_ms).await?;
    let groups = groups.into_iter().map(reader).collect();
    Ok(TopicReaders { groups, omitted, missing: catalog.missing.clone(), read_at_ms })
}

fn reader(group: TopicGroup) -> TopicReader {
    let (lag, lag_ms) = (group.lag(), group.lag_ms());
    let partition = |found: &TopicGroupPartition| ReadPartition {
        partition: found.partition,
        offset: found.offset.map(|offset| offset.0),
        lag: found.lag,
        lag_ms: found.lag_ms,
        reader: found.readers.first().map(|reader| PartitionReader::of(&group.members[*reader])),
        readers: found.readers.len(),
    };
    TopicReader {
        kind: group.kind.name().to_owned(),
        members: group.members.len(),
        lag,
        lag_ms,
        partitions: group.partitions.iter().map(partition).collect(),
        group: group.group,
        state: group.state,
    }
}
