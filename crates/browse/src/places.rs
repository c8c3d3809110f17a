//! Start and end offsets of a query, resolved by the cluster. The decision is pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_client::{ClientError, Cluster, ListedOffset, OffsetSpec, RefusedRequest, TopicPartition};
use thalweg_record::Offset;
use thalweg_wire::ErrorCode;

use crate::query::{End, Query, Start};

/// The reason why the offsets of a query are unknown.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PlaceError {
    /// A request to the cluster failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The topic lacks a requested partition.
    #[error(transparent)]
    NoSuchPlace(#[from] NoSuchPlace),
}

impl PlaceError {
    /// True if a retry may succeed.
    pub fn is_retriable(&self) -> bool {
        // An unknown topic is a final answer here, although a client would wait for the topic's creation.
        matches!(self, PlaceError::Client(error)
            if error.is_retriable() && error.error_code() != Some(ErrorCode::UnknownTopicOrPartition))
    }
}

/// A partition that the topic does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Topic {topic} has no partition {partition}: expected 0 to {}", partitions - 1)]
pub struct NoSuchPlace {
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
    /// Offsets of the start and end times, if records exist there.
    start: Option<Offset>,
    end: Option<Offset>,
}

/// Resolves the range of each partition.
pub async fn find(cluster: &Cluster, query: &Query) -> Result<BTreeMap<TopicPartition, Range>, PlaceError> {
    let metadata = cluster.refresh(std::slice::from_ref(&query.topic), false).await?;
    let what = || format!("Topic {}", query.topic);
    let topic = metadata.topics.get(&query.topic);
    let error = topic.and_then(|topic| topic.error).map_or(0, ErrorCode::code);
    RefusedRequest::check(error, None, what).map_err(ClientError::from)?;
    let count = topic.map_or(0, |topic| topic.partitions.len());
    if count == 0 {
        RefusedRequest::check(ErrorCode::UnknownTopicOrPartition.code(), None, what)
            .map_err(ClientError::from)?;
    }
    let all = topic.into_iter().flat_map(|topic| &topic.partitions).map(|partition| partition.index);
    let mut partitions: Vec<i32> = all.collect();
    if let Some(&partition) = query.partitions.iter().find(|partition| !partitions.contains(partition)) {
        return Err(NoSuchPlace { topic: query.topic.clone(), partition, partitions: count }.into());
    }
    partitions.retain(|partition| query.partitions.is_empty() || query.partitions.contains(partition));
    let name: Arc<str> = query.topic.as_str().into();
    let partitions: Vec<TopicPartition> =
        partitions.into_iter().map(|partition| TopicPartition::new(Arc::clone(&name), partition)).collect();
    let earliest = listed(cluster, &partitions, OffsetSpec::Earliest, query.read_committed).await?;
    let latest = listed(cluster, &partitions, OffsetSpec::Latest, query.read_committed).await?;
    let start = match query.start {
        Start::Time(ms) => listed(cluster, &partitions, OffsetSpec::At(ms), query.read_committed).await?,
        _ => BTreeMap::new(),
    };
    let end = match query.end {
        End::Time(ms) => listed(cluster, &partitions, OffsetSpec::At(ms), query.read_committed).await?,
        _ => BTreeMap::new(),
    };
    let some = |found: &BTreeMap<TopicPartition, Offset>, at: &TopicPartition| {
        found.get(at).copied().filter(|offset| offset.0 >= 0)
    };
    let ranges = partitions.into_iter().map(|at| {
        let listed = ListedOffsets {
            earliest: some(&earliest, &at).unwrap_or(Offset(0)),
            latest: some(&latest, &at).unwrap_or(Offset(0)),
            start: some(&start, &at),
            end: some(&end, &at),
        };
        let range = range(query, listed);
        (at, range)
    });
    Ok(ranges.collect())
}

async fn listed(
    cluster: &Cluster,
    partitions: &[TopicPartition],
    spec: OffsetSpec,
    read_committed: bool,
) -> Result<BTreeMap<TopicPartition, Offset>, ClientError> {
    let wanted: Vec<_> = partitions.iter().map(|at| (at.clone(), spec)).collect();
    let found = cluster.list_offsets(&wanted, read_committed).await;
    let offset = |(at, found): (TopicPartition, Result<ListedOffset, ClientError>)| Ok((at, found?.offset));
    found.into_iter().map(offset).collect()
}

fn range(query: &Query, listed: ListedOffsets) -> Range {
    let ListedOffsets { earliest, latest, .. } = listed;
    let start = match query.start {
        Start::Earliest => earliest,
        Start::Latest => latest,
        Start::At(offset) => offset,
        // No record at or after this time.
        Start::Time(_) => listed.start.unwrap_or(latest),
        Start::Last(count) => Offset(latest.0.saturating_sub(i64::try_from(count).unwrap_or(i64::MAX))),
    };
    let end = match query.end {
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
    fn ranges_stay_within_the_log() {
        let listed = |start, end| ListedOffsets { earliest: Offset(10), latest: Offset(100), start, end };
        let of = |start, end, listed| {
            let range = range(&Query { start, end, ..Query::new("t") }, listed);
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
    }
}
