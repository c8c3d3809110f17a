//! Start and end offsets of a query, resolved by the cluster. The decision is pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thalweg_client::{
    ClientError, Cluster, ListedOffset, NO_LEADER, OffsetSpec, PartitionMetadata, RefusedRequest,
    TopicPartition,
};
use thalweg_record::Offset;
use thalweg_wire::ErrorCode;
use tokio::task::JoinSet;

use crate::query::{End, Query, Start};

/// Time limit for a leader to list the offsets of its partitions.
const LEADER_MAX: Duration = Duration::from_secs(2);

/// The reason why the offsets of a query are unknown.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RangeError {
    /// A request to the cluster failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The topic lacks a requested partition.
    #[error(transparent)]
    NoSuchPartition(#[from] NoSuchPartition),
}

impl RangeError {
    /// True if a retry may succeed.
    pub fn is_retriable(&self) -> bool {
        // An unknown topic is a final answer here, although a client would wait for the topic's creation.
        matches!(self, RangeError::Client(error)
            if error.is_retriable() && error.error_code() != Some(ErrorCode::UnknownTopicOrPartition))
    }
}

/// A partition that the topic does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Topic {topic} has no partition {partition}: expected 0 to {}", partitions - 1)]
pub struct NoSuchPartition {
    /// The topic name.
    pub topic: String,
    /// The requested partition.
    pub partition: i32,
    /// The number of partitions.
    pub partitions: usize,
}

/// The range of offsets to read in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first offset to read.
    pub start: Offset,
    /// The end offset, exclusive; none for a live tail.
    pub end: Option<Offset>,
    /// The log start offset.
    pub earliest: Offset,
    /// The end offset of the partition at the start of the search.
    pub latest: Offset,
}

/// Offsets of a partition, as reported by the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListedOffsets {
    earliest: Offset,
    latest: Offset,
    /// The high watermark, if `latest` is the last stable offset.
    written: Option<Offset>,
    /// Offsets of the start and end times, if records exist there.
    start: Option<Offset>,
    end: Option<Offset>,
}

/// The ranges of a query, and the partitions without one.
#[derive(Clone, Debug, Default)]
pub struct FoundRanges {
    /// The readable partitions.
    pub ranges: BTreeMap<TopicPartition, Range>,
    /// The unreadable partitions, with the reason: no leader, or no answer of it.
    pub unreadable: BTreeMap<TopicPartition, String>,
    /// Number of offsets that the ranges lack because a transaction is open: a search for committed records
    /// ends at the last stable offset.
    pub open_offsets: u64,
}

/// Resolves the range of each partition, with a concurrent request to each leader.
pub async fn find(cluster: &Cluster, query: &Query) -> Result<FoundRanges, RangeError> {
    let mut found = FoundRanges::default();
    let mut by_leader: BTreeMap<i32, Vec<TopicPartition>> = BTreeMap::new();
    for (at, leader) in partitions(cluster, query).await? {
        match leader {
            Some(leader) => by_leader.entry(leader).or_default().push(at),
            None => drop(found.unreadable.insert(at, NO_LEADER.to_owned())),
        }
    }
    let mut leaders = JoinSet::new();
    for (leader, partitions) in by_leader {
        let listing =
            listed(cluster.clone(), partitions.clone(), query.start, query.end, query.read_committed);
        leaders.spawn(async move {
            let late =
                || format!("its leader, broker {leader}, did not answer within {} s", LEADER_MAX.as_secs());
            match tokio::time::timeout(LEADER_MAX, listing).await {
                Ok(listed) => listed,
                Err(_) => partitions.into_iter().map(|at| (at, Err(ListFailure::Late(late())))).collect(),
            }
        });
    }
    while let Some(listed) = leaders.join_next().await {
        // The task neither panics nor is aborted.
        for (at, listed) in listed.unwrap_or_default() {
            match listed {
                Ok(listed) => {
                    let range = range(query, at.partition, listed);
                    found.open_offsets += open_offsets(&range, &listed);
                    found.ranges.insert(at, range);
                }
                Err(ListFailure::Late(reason)) => drop(found.unreadable.insert(at, reason)),
                Err(ListFailure::Refused(error)) if error.is_retriable() => {
                    found.unreadable.insert(at, error.to_string());
                }
                Err(ListFailure::Refused(error)) => return Err(error.into()),
            }
        }
    }
    Ok(found)
}

/// The reason why the offsets of a partition are unknown.
enum ListFailure {
    Late(String),
    Refused(ClientError),
}

/// The partitions of a query, with their leaders.
async fn partitions(
    cluster: &Cluster,
    query: &Query,
) -> Result<Vec<(TopicPartition, Option<i32>)>, RangeError> {
    let metadata = cluster.refresh(std::slice::from_ref(&query.topic), false).await?;
    let what = || format!("Topic {}", query.topic);
    let topic = metadata.topics.get(&query.topic);
    let error = topic.and_then(|topic| topic.error).map_or(0, ErrorCode::code);
    RefusedRequest::check(error, None, what).map_err(ClientError::from)?;
    let all = topic.map(|topic| &topic.partitions[..]).unwrap_or_default();
    if all.is_empty() {
        RefusedRequest::check(ErrorCode::UnknownTopicOrPartition.code(), None, what)
            .map_err(ClientError::from)?;
    }
    let is_there = |&wanted: &i32| all.iter().any(|partition| partition.index == wanted);
    if let Some(&partition) = query.partitions.iter().find(|partition| !is_there(partition)) {
        let (topic, partitions) = (query.topic.clone(), all.len());
        return Err(NoSuchPartition { topic, partition, partitions }.into());
    }
    let name: Arc<str> = query.topic.as_str().into();
    let is_wanted = |index: i32| query.partitions.is_empty() || query.partitions.contains(&index);
    let wanted = all.iter().filter(|partition| is_wanted(partition.index));
    let with_leader = |partition: &PartitionMetadata| {
        (TopicPartition::new(Arc::clone(&name), partition.index), partition.leader)
    };
    Ok(wanted.map(with_leader).collect())
}

/// The offsets of partitions with one leader.
async fn listed(
    cluster: Cluster,
    partitions: Vec<TopicPartition>,
    start: Start,
    end: End,
    read_committed: bool,
) -> BTreeMap<TopicPartition, Result<ListedOffsets, ListFailure>> {
    let earliest = list_spec(&cluster, &partitions, Some(OffsetSpec::Earliest), read_committed).await;
    let latest = list_spec(&cluster, &partitions, Some(OffsetSpec::Latest), read_committed).await;
    let written = read_committed.then_some(OffsetSpec::Latest);
    let written = list_spec(&cluster, &partitions, written, false).await;
    let start = if let Start::Time(ms) = start { Some(OffsetSpec::At(ms)) } else { None };
    let start = list_spec(&cluster, &partitions, start, read_committed).await;
    let end = if let End::Time(ms) = end { Some(OffsetSpec::At(ms)) } else { None };
    let end = list_spec(&cluster, &partitions, end, read_committed).await;
    let all = |at: &TopicPartition| -> Result<ListedOffsets, ListFailure> {
        Ok(ListedOffsets {
            earliest: offset(&earliest, at)?.unwrap_or(Offset(0)),
            latest: offset(&latest, at)?.unwrap_or(Offset(0)),
            written: offset(&written, at)?,
            start: offset(&start, at)?,
            end: offset(&end, at)?,
        })
    };
    partitions.iter().map(|at| (at.clone(), all(at))).collect()
}

type OffsetAnswers = BTreeMap<TopicPartition, Result<ListedOffset, ClientError>>;

async fn list_spec(
    cluster: &Cluster,
    partitions: &[TopicPartition],
    spec: Option<OffsetSpec>,
    read_committed: bool,
) -> OffsetAnswers {
    let Some(spec) = spec else { return OffsetAnswers::new() };
    let wanted: Vec<_> = partitions.iter().map(|at| (at.clone(), spec)).collect();
    cluster.list_offsets(&wanted, read_committed).await
}

/// The offset of a partition, if a record is there.
fn offset(answers: &OffsetAnswers, at: &TopicPartition) -> Result<Option<Offset>, ListFailure> {
    match answers.get(at) {
        Some(Ok(listed)) => Ok(Some(listed.offset).filter(|offset| offset.0 >= 0)),
        Some(Err(error)) => Err(ListFailure::Refused(error.clone())),
        None => Ok(None),
    }
}

/// The number of offsets between the end of a range and the high watermark, if a transaction ends the range.
fn open_offsets(range: &Range, listed: &ListedOffsets) -> u64 {
    let Some(written) = listed.written.filter(|_| range.end == Some(listed.latest)) else { return 0 };
    u64::try_from(written.0 - listed.latest.0).unwrap_or(0)
}

fn range(query: &Query, partition: i32, listed: ListedOffsets) -> Range {
    let ListedOffsets { earliest, latest, .. } = listed;
    let start = query.starts.get(&partition).copied().unwrap_or(match query.start {
        Start::Earliest => earliest,
        Start::Latest => latest,
        Start::At(offset) => offset,
        // No record at or after this time.
        Start::Time(_) => listed.start.unwrap_or(latest),
        Start::Last(count) => Offset(latest.0.saturating_sub(i64::try_from(count).unwrap_or(i64::MAX))),
    });
    let end = query.ends.get(&partition).map_or(query.end, |offset| End::Before(*offset));
    let end = match end {
        End::Now => Some(latest),
        End::Never => None,
        End::Before(offset) => Some(offset.min(latest)),
        End::Time(_) => Some(listed.end.unwrap_or(latest)),
    };
    // A start beyond the end would wait for records that may never arrive.
    Range { start: start.max(earliest).min(latest), end, earliest, latest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_behind_an_open_transaction_are_counted() {
        let listed = |written| ListedOffsets {
            earliest: Offset(10),
            latest: Offset(100),
            written: Some(Offset(written)),
            start: None,
            end: None,
        };
        let open = |end, written| {
            let listed = listed(written);
            open_offsets(&range(&Query { end, ..Query::new("t") }, 0, listed), &listed)
        };
        assert_eq!((open(End::Now, 100), open(End::Now, 103)), (0, 3));
        assert_eq!(open(End::Before(Offset(50)), 103), 0, "the range ends before the transaction");
        assert_eq!(open(End::Before(Offset(102)), 103), 3);
        assert_eq!(open(End::Never, 103), 0, "a live tail waits for the end of the transaction");
    }

    #[test]
    fn ranges_stay_within_the_log() {
        let listed = |start, end| ListedOffsets {
            earliest: Offset(10),
            latest: Offset(100),
            written: None,
            start,
            end,
        };
        let of = |start, end, listed| {
            let range = range(&Query { start, end, ..Query::new("t") }, 0, listed);
            (range.start.0, range.end.map(|end| end.0))
        };
        let plain = listed(None, None);
        assert_eq!(of(Start::Earliest, End::Now, plain), (10, Some(100)));
        assert_eq!(of(Start::Latest, End::Never, plain), (100, None));
        assert_eq!(of(Start::At(Offset(5)), End::Before(Offset(500)), plain), (10, Some(100)));
        assert_eq!(of(Start::At(Offset(500)), End::Before(Offset(50)), plain), (100, Some(50)));
        assert_eq!(of(Start::Last(20), End::Now, plain), (80, Some(100)));
        assert_eq!(of(Start::Last(u64::MAX), End::Now, plain), (10, Some(100)));
        let timed = listed(Some(Offset(30)), Some(Offset(40)));
        assert_eq!(of(Start::Time(1), End::Time(2), timed), (30, Some(40)));
        assert_eq!(of(Start::Time(1), End::Time(2), plain), (100, Some(100)));

        // Positions of single partitions come first, and stay within the log, too.
        let query = Query {
            starts: [(0, Offset(20)), (1, Offset(3))].into(),
            ends: [(0, Offset(30)), (1, Offset(300))].into(),
            ..Query::new("t")
        };
        let of = |partition| {
            let range = range(&query, partition, plain);
            (range.start.0, range.end.map(|end| end.0))
        };
        assert_eq!((of(0), of(1), of(2)), ((20, Some(30)), (10, Some(100)), (10, Some(100))));
    }
}
