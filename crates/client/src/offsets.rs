//! Offsets by time, and committed offsets of groups: requested from the right brokers, several partitions at
//! once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thalweg_dial::{ClientError, Connection, RefusedRequest, RequestTimedOut, VersionMismatch};
use thalweg_record::{LeaderEpoch, Offset};
use thalweg_wire::list_offsets::{
    EARLIEST_LOCAL_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP, EARLIEST_TIMESTAMP, LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP, MAX_TIMESTAMP, record_from,
};
use thalweg_wire::request::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use thalweg_wire::request::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use thalweg_wire::request::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use thalweg_wire::request::{
    ListOffsetsRequest, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
};
use thalweg_wire::{ApiKey, ErrorCode, Uuid};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::metadata::Metadata;
use crate::parallel::in_parallel_with_patience;

/// The last versions of OffsetCommit and OffsetFetch with topic names.
pub(crate) const NAMES_UNTIL: i16 = 9;
/// The first version of OffsetFetch for several groups.
pub(crate) const FETCH_GROUPS_FROM: i16 = 8;

/// Maximum number of partitions per ListOffsets request. Kafka has no limit, but a large answer delays the
/// broker.
const PARTITIONS_PER_REQUEST: usize = 4000;

/// Leaders that do not answer delay the requests to others by this part of a time limit.
const PATIENCE_SHARE: u32 = 10;

/// A partition by topic id.
pub(crate) type TopicIdPartition = (Uuid, i32);

/// A partition of a topic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition's index.
    pub partition: i32,
}

impl TopicPartition {
    /// The partition of a topic.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.into(), partition }
    }

    /// The partitions of several topics, from names and indexes.
    pub(crate) fn of_topics(topics: impl Iterator<Item = (String, Vec<i32>)>) -> Vec<TopicPartition> {
        topics
            .flat_map(|(topic, partitions)| {
                let topic: Arc<str> = topic.into();
                partitions
                    .into_iter()
                    .map(move |partition| TopicPartition::new(Arc::clone(&topic), partition))
            })
            .collect()
    }
}

impl std::fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// The offset to request by ListOffsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffsetSpec {
    /// The end: the offset of the next record.
    Latest,
    /// The log start offset.
    Earliest,
    /// The record with the largest timestamp; from version 7 on.
    MaxTimestamp,
    /// The log start offset on local disk; from version 8 on. Without tiered storage, the same as `Earliest`.
    EarliestLocal,
    /// The end of tiered storage; from version 9 on.
    LatestTiered,
    /// The first offset not yet in tiered storage; from version 11 on.
    EarliestPendingUpload,
    /// The first record at or after this time, in milliseconds since 1970.
    At(i64),
    /// The first data record at or after this offset, for its timestamp; offset -1 if there is none. Thalweg
    /// alone serves it: other brokers, and an offset out of range, answer UNSUPPORTED_VERSION.
    RecordFrom(Offset),
}

impl OffsetSpec {
    fn timestamp(self) -> i64 {
        match self {
            OffsetSpec::Latest => LATEST_TIMESTAMP,
            OffsetSpec::Earliest => EARLIEST_TIMESTAMP,
            OffsetSpec::MaxTimestamp => MAX_TIMESTAMP,
            OffsetSpec::EarliestLocal => EARLIEST_LOCAL_TIMESTAMP,
            OffsetSpec::LatestTiered => LATEST_TIERED_TIMESTAMP,
            OffsetSpec::EarliestPendingUpload => EARLIEST_PENDING_UPLOAD_TIMESTAMP,
            OffsetSpec::At(ms) => ms,
            OffsetSpec::RecordFrom(offset) => record_from(offset.0).unwrap_or(i64::MIN),
        }
    }
}

/// An offset found by ListOffsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedOffset {
    /// The offset; -1 if no record is at or after the time.
    pub offset: Offset,
    /// The record's timestamp; -1 if none.
    pub timestamp: i64,
    /// The leader epoch of the record, if known.
    pub leader_epoch: LeaderEpoch,
}

impl ListedOffset {
    /// The age of the record in milliseconds: 0 without a record, `None` for a record without a timestamp.
    pub fn age_ms(&self, now_ms: i64) -> Option<i64> {
        thalweg_wire::list_offsets::age_ms(self.offset.0, self.timestamp, now_ms)
    }
}

/// A committed offset of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommittedOffset {
    /// The offset of the next record to read.
    pub offset: Offset,
    /// The leader epoch of the record before it, if known.
    pub leader_epoch: LeaderEpoch,
    /// The commit's metadata, a free text.
    pub metadata: String,
}

/// The committer of a group's offsets: a member, which must be of the current generation, or a non-member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMetadata {
    pub group: String,
    /// The member's generation; -1 for a non-member.
    pub generation: i32,
    /// The member's id; empty for a non-member.
    pub member_id: String,
    /// `group.instance.id` of a static member.
    pub group_instance_id: Option<String>,
}

impl GroupMetadata {
    /// The identity of a non-member. The coordinator accepts its commits while the group has no members.
    pub fn without_member(group: impl Into<String>) -> GroupMetadata {
        let group = group.into();
        GroupMetadata { group, generation: -1, member_id: String::new(), group_instance_id: None }
    }
}

impl CommittedOffset {
    /// An offset without leader epoch and metadata.
    pub fn new(offset: Offset) -> CommittedOffset {
        CommittedOffset { offset, leader_epoch: LeaderEpoch::NONE, metadata: String::new() }
    }
}

/// A request's answer of a leader, or its failure, for the offsets of partitions.
#[derive(Clone, Debug)]
pub struct LeaderAnswer {
    /// The leader; none for partitions without one.
    pub leader: Option<i32>,
    /// The time of the answer.
    pub at: Instant,
    pub found: BTreeMap<TopicPartition, Result<ListedOffset, ClientError>>,
}

/// The partitions of a request for offsets.
type WantedOffsets = Vec<(TopicPartition, OffsetSpec)>;

/// The requests for these partitions, each with its leader.
fn by_leader(
    metadata: &Metadata,
    partitions: &[(TopicPartition, OffsetSpec)],
) -> Vec<(Option<i32>, WantedOffsets)> {
    let mut open: BTreeMap<Option<i32>, WantedOffsets> = BTreeMap::new();
    let mut requests = Vec::new();
    for (at, spec) in partitions {
        let leader = metadata.leader(&at.topic, at.partition);
        let of_leader = open.entry(leader).or_default();
        of_leader.push((at.clone(), *spec));
        if of_leader.len() == PARTITIONS_PER_REQUEST {
            requests.push((leader, std::mem::take(of_leader)));
        }
    }
    requests.extend(open.into_iter().filter(|(_, of_leader)| !of_leader.is_empty()));
    requests
}

/// The outcome of partitions whose leader did not answer in time.
fn late(
    leader: Option<i32>,
    partitions: Vec<TopicPartition>,
    timeout: Duration,
) -> BTreeMap<TopicPartition, Result<ListedOffset, ClientError>> {
    let peer: Arc<str> = format!("broker {}", leader.unwrap_or(-1)).into();
    let error = |peer| RequestTimedOut { peer, api: ApiKey::ListOffsets, timeout }.into();
    partitions.into_iter().map(|at| (at, Err(error(Arc::clone(&peer))))).collect()
}

impl Cluster {
    /// Requests offsets from the leaders. The metadata must contain the partitions; errors are per partition.
    pub async fn list_offsets(
        &self,
        partitions: &[(TopicPartition, OffsetSpec)],
        read_committed: bool,
    ) -> BTreeMap<TopicPartition, Result<ListedOffset, ClientError>> {
        let limit = self.options().connect_timeout + self.options().request_timeout;
        self.list_offsets_within(partitions, read_committed, limit).await
    }

    /// Requests offsets like [`Cluster::list_offsets`], with a time limit for each answer, the connection to
    /// the leader included. Few leaders are asked at the same time, with a bounded number of partitions in a
    /// request.
    pub async fn list_offsets_within(
        &self,
        partitions: &[(TopicPartition, OffsetSpec)],
        read_committed: bool,
        limit: Duration,
    ) -> BTreeMap<TopicPartition, Result<ListedOffset, ClientError>> {
        let answers = self.answers_of_leaders(partitions, read_committed, |_| limit).await;
        answers.into_iter().flat_map(|answer| answer.found).collect()
    }

    /// Requests offsets like [`Cluster::list_offsets_within`], with a time limit for each leader. Returns the
    /// answers with their times.
    pub async fn answers_of_leaders(
        &self,
        partitions: &[(TopicPartition, OffsetSpec)],
        read_committed: bool,
        limit: impl Fn(i32) -> Duration,
    ) -> Vec<LeaderAnswer> {
        let mut patience = Duration::ZERO;
        let asked = by_leader(&self.metadata(), partitions).into_iter().map(|(leader, wanted)| {
            let (cluster, limit) = (self.clone(), limit(leader.unwrap_or(-1)));
            patience = patience.max(limit / PATIENCE_SHARE);
            async move {
                let partitions: Vec<TopicPartition> = wanted.iter().map(|(at, _)| at.clone()).collect();
                let answer = cluster.list_offsets_of(leader, wanted, read_committed);
                let found = tokio::time::timeout(limit, answer).await;
                let found = found.unwrap_or_else(|_| late(leader, partitions, limit));
                LeaderAnswer { leader, at: Instant::now(), found }
            }
        });
        let asked = asked.collect();
        in_parallel_with_patience(asked, patience).await
    }

    /// Requests offsets from one leader. Errors are per partition, also without a leader or its answer.
    pub(crate) async fn list_offsets_of(
        &self,
        leader: Option<i32>,
        wanted: Vec<(TopicPartition, OffsetSpec)>,
        read_committed: bool,
    ) -> BTreeMap<TopicPartition, Result<ListedOffset, ClientError>> {
        let Some(leader) = leader else {
            let refused = |at: TopicPartition| {
                let (what, error_code) = (format!("Offsets of {at}"), ErrorCode::LeaderNotAvailable);
                let refused = RefusedRequest { what, error_code, message: None };
                (at, Err(refused.into()))
            };
            return wanted.into_iter().map(|(at, _)| refused(at)).collect();
        };
        match self.request_offsets(leader, &wanted, read_committed).await {
            Ok(found) => found,
            Err(error) => wanted.into_iter().map(|(at, _)| (at, Err(error.clone()))).collect(),
        }
    }

    /// The first data records at or after these offsets, whose age is the lag of a reader in time. Partitions
    /// without an answer are omitted, as are those led by brokers other than Thalweg's.
    pub async fn first_records(
        &self,
        offsets: impl IntoIterator<Item = (TopicPartition, Offset)>,
    ) -> BTreeMap<TopicPartition, ListedOffset> {
        let offsets: BTreeMap<TopicPartition, Offset> = offsets.into_iter().collect();
        let wanted = offsets.iter().map(|(at, offset)| (at.clone(), OffsetSpec::RecordFrom(*offset)));
        let found = self.list_offsets(&wanted.collect::<Vec<_>>(), false).await;
        // Old brokers of Apache Kafka do not refuse such a request, and answer with their oldest record.
        let is_unread = |at: &TopicPartition, found: &ListedOffset| {
            found.offset.0 < 0 || offsets.get(at).is_some_and(|offset| found.offset >= *offset)
        };
        let found = found.into_iter().filter_map(|(at, found)| Some((at, found.ok()?)));
        found.filter(|(at, found)| is_unread(at, found)).collect()
    }

    async fn request_offsets(
        &self,
        leader: i32,
        wanted: &[(TopicPartition, OffsetSpec)],
        read_committed: bool,
    ) -> Result<BTreeMap<TopicPartition, Result<ListedOffset, ClientError>>, ClientError> {
        let mut topics: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
        for (at, spec) in wanted {
            topics.entry(&at.topic).or_default().push(ListOffsetsPartition {
                partition_index: at.partition,
                timestamp: spec.timestamp(),
                ..ListOffsetsPartition::default()
            });
        }
        let request = ListOffsetsRequest {
            replica_id: -1,
            isolation_level: i8::from(read_committed),
            topics: topics
                .into_iter()
                .map(|(name, partitions)| ListOffsetsTopic { name: name.to_owned(), partitions })
                .collect(),
            ..ListOffsetsRequest::default()
        };
        let response = self.broker(leader).await?.send(&request).await?;
        let mut found = BTreeMap::new();
        for topic in response.topics {
            let name: Arc<str> = topic.name.into();
            for partition in topic.partitions {
                let at = TopicPartition::new(Arc::clone(&name), partition.partition_index);
                let offset = RefusedRequest::check(partition.error_code, None, || format!("Offsets of {at}"))
                    .map(|()| ListedOffset {
                        offset: Offset(partition.offset),
                        timestamp: partition.timestamp,
                        leader_epoch: LeaderEpoch(partition.leader_epoch),
                    })
                    .map_err(ClientError::from);
                found.insert(at, offset);
            }
        }
        Ok(found)
    }
}

/// The committed offsets of a group, from its coordinator: of these partitions, or of all. Partitions without
/// one are omitted.
pub async fn committed(
    coordinator: &Connection,
    group: &str,
    partitions: Option<&[TopicPartition]>,
    require_stable: bool,
) -> Result<BTreeMap<TopicPartition, CommittedOffset>, ClientError> {
    let (request, version) = committed_request(coordinator, group, partitions, require_stable)?;
    read_committed_offsets(coordinator.send_at(&request, version).await?, group)
}

/// The request for committed offsets, and its version.
pub(crate) fn committed_request(
    coordinator: &Connection,
    group: &str,
    partitions: Option<&[TopicPartition]>,
    require_stable: bool,
) -> Result<(OffsetFetchRequest, i16), ClientError> {
    let version = version_by_name(coordinator, ApiKey::OffsetFetch)?;
    let topics: Option<BTreeMap<&str, Vec<i32>>> = partitions.map(|partitions| {
        let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for at in partitions {
            topics.entry(&at.topic).or_default().push(at.partition);
        }
        topics
    });
    let mut request =
        OffsetFetchRequest { require_stable: require_stable && version >= 7, ..Default::default() };
    if version >= FETCH_GROUPS_FROM {
        let topics = topics.map(|topics| {
            let topics = topics.into_iter().map(|(name, partition_indexes)| OffsetFetchRequestTopics {
                name: name.to_owned(),
                partition_indexes,
                ..OffsetFetchRequestTopics::default()
            });
            topics.collect()
        });
        request.groups =
            vec![OffsetFetchRequestGroup { group_id: group.to_owned(), topics, ..Default::default() }];
    } else {
        request.group_id = group.to_owned();
        request.topics = topics.map(|topics| {
            let topics = topics.into_iter().map(|(name, partition_indexes)| OffsetFetchRequestTopic {
                name: name.to_owned(),
                partition_indexes,
            });
            topics.collect()
        });
    }
    Ok((request, version))
}

pub(crate) fn read_committed_offsets(
    response: OffsetFetchResponse,
    group: &str,
) -> Result<BTreeMap<TopicPartition, CommittedOffset>, ClientError> {
    let what = || format!("Offsets of group {group}");
    RefusedRequest::check(response.error_code, None, what)?;
    let mut found = BTreeMap::new();
    let mut add = |name: &Arc<str>, partition, code, offset, leader_epoch, metadata: Option<String>| {
        let at = TopicPartition::new(Arc::clone(name), partition);
        RefusedRequest::check(code, None, || format!("Offset of group {group} in {at}"))?;
        if offset >= 0 {
            let (offset, leader_epoch) = (Offset(offset), LeaderEpoch(leader_epoch));
            let metadata = metadata.unwrap_or_default();
            found.insert(at, CommittedOffset { offset, leader_epoch, metadata });
        }
        Ok::<(), RefusedRequest>(())
    };
    for topic in response.topics {
        let name: Arc<str> = topic.name.into();
        for p in topic.partitions {
            let epoch = p.committed_leader_epoch;
            add(&name, p.partition_index, p.error_code, p.committed_offset, epoch, p.metadata)?;
        }
    }
    for of_group in response.groups {
        RefusedRequest::check(of_group.error_code, None, what)?;
        for topic in of_group.topics {
            let name: Arc<str> = topic.name.into();
            for p in topic.partitions {
                let epoch = p.committed_leader_epoch;
                add(&name, p.partition_index, p.error_code, p.committed_offset, epoch, p.metadata)?;
            }
        }
    }
    Ok(found)
}

/// Commits offsets for a group. Fails with the first refused partition.
pub async fn commit(
    coordinator: &Connection,
    by: &GroupMetadata,
    offsets: &BTreeMap<TopicPartition, CommittedOffset>,
) -> Result<(), ClientError> {
    let (request, version) = commit_request(coordinator, by, offsets)?;
    check_commit(coordinator.send_at(&request, version).await?, &by.group)
}

/// The commit request, and its version.
pub(crate) fn commit_request(
    coordinator: &Connection,
    by: &GroupMetadata,
    offsets: &BTreeMap<TopicPartition, CommittedOffset>,
) -> Result<(OffsetCommitRequest, i16), ClientError> {
    let version = version_by_name(coordinator, ApiKey::OffsetCommit)?;
    let mut topics: BTreeMap<&str, Vec<OffsetCommitRequestPartition>> = BTreeMap::new();
    for (at, committed) in offsets {
        topics.entry(&at.topic).or_default().push(OffsetCommitRequestPartition {
            partition_index: at.partition,
            committed_offset: committed.offset.0,
            committed_leader_epoch: if version >= 6 { committed.leader_epoch.0 } else { -1 },
            committed_metadata: Some(committed.metadata.clone()),
        });
    }
    let topics = topics.into_iter().map(|(name, partitions)| OffsetCommitRequestTopic {
        name: name.to_owned(),
        partitions,
        ..OffsetCommitRequestTopic::default()
    });
    let request = OffsetCommitRequest {
        group_id: by.group.clone(),
        generation_id_or_member_epoch: by.generation,
        member_id: by.member_id.clone(),
        group_instance_id: by.group_instance_id.clone().filter(|_| version >= 7),
        topics: topics.collect(),
        ..OffsetCommitRequest::default()
    };
    Ok((request, version))
}

pub(crate) fn check_commit(response: OffsetCommitResponse, group: &str) -> Result<(), ClientError> {
    for topic in &response.topics {
        for partition in &topic.partitions {
            RefusedRequest::check(partition.error_code, None, || {
                format!("Commit of group {group} in {}-{}", topic.name, partition.partition_index)
            })?;
        }
    }
    Ok(())
}

fn version_by_name(connection: &Connection, api: ApiKey) -> Result<i16, VersionMismatch> {
    let versions = connection.versions();
    let ours = (api.versions().0, NAMES_UNTIL);
    versions.newest(api, NAMES_UNTIL).ok_or_else(|| versions.mismatch(connection.peer(), api, ours))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{PartitionMetadata, TopicMetadata};

    #[test]
    fn a_request_for_offsets_has_a_bounded_number_of_partitions() {
        let partition = |index: i32| PartitionMetadata {
            index,
            error: None,
            leader: (index > 0).then_some(index % 2),
            leader_epoch: LeaderEpoch(0),
            replicas: Vec::new(),
            isr: Vec::new(),
            offline: Vec::new(),
        };
        let count = 3 * PARTITIONS_PER_REQUEST as i32;
        let topic = TopicMetadata {
            name: "t".into(),
            id: Uuid(1),
            internal: false,
            error: None,
            partitions: (0..count).map(partition).collect(),
        };
        let topics = BTreeMap::from([("t".to_owned(), topic)]);
        let metadata = Metadata { topics, ..Metadata::default() };
        let wanted = (0..count).map(|index| (TopicPartition::new("t", index), OffsetSpec::Latest));
        let wanted: Vec<_> = wanted.collect();
        let requests = by_leader(&metadata, &wanted);
        let sizes: Vec<_> = requests.iter().map(|(leader, partitions)| (*leader, partitions.len())).collect();
        let (whole, half) = (PARTITIONS_PER_REQUEST, PARTITIONS_PER_REQUEST / 2);
        let expected = [(Some(1), whole), (Some(0), whole), (None, 1), (Some(0), half - 1), (Some(1), half)];
        assert_eq!(sizes, expected);
        let all: std::collections::BTreeSet<_> =
            requests.iter().flat_map(|(_, partitions)| partitions).map(|(at, _)| at).collect();
        assert_eq!(all.len(), wanted.len(), "each partition is in one request");
    }
}
