//! Keeps large requests from delaying other requests: locks are held for a bounded time, and writes that
//! cannot succeed are not built.

use super::GroupCoordinator;
use thalweg_hash::HashSet;
use thalweg_net::answer_parts::merge;
use thalweg_record::Compression;
use thalweg_wire::request::offset_commit_request::OffsetCommitRequestTopic;
use thalweg_wire::request::offset_fetch_request::OffsetFetchRequestTopics;
use thalweg_wire::request::offset_fetch_response::OffsetFetchResponseTopics;
use thalweg_wire::request::txn_offset_commit_request::TxnOffsetCommitRequestTopic;

/// Entries of a request processed under one hold of a shard's lock.
pub(super) const ENTRIES_AT_ONCE: usize = 10_000;
/// Minimum size of a committed offset in a batch, without names and metadata.
const OFFSET_RECORD_BYTES: usize = 32;
/// Best compression ratio assumed for a batch of offsets; above it a write is not tried.
const COMPRESSED_AT_BEST: usize = 16;

/// Minimum bytes of an offset record for these names of group and topic and this metadata.
fn record_bytes(group: &str, topic: &str, metadata: Option<&str>, metadata_max: usize) -> usize {
    // Metadata that exceeds the limit is refused, so it is not written.
    let metadata = metadata.map_or(0, str::len);
    if metadata > metadata_max { 0 } else { OFFSET_RECORD_BYTES + group.len() + topic.len() + metadata }
}

impl GroupCoordinator {
    /// True if the offsets of a group exceed a batch of its partition even when compressed.
    pub(super) fn is_beyond_a_batch(&self, group: &str, topics: &[OffsetCommitRequestTopic]) -> bool {
        self.are_beyond_a_batch(group, topics, |topic| {
            (&topic.name, topic.partitions.iter().map(|partition| partition.committed_metadata.as_deref()))
        })
    }

    /// The same check for the offsets that a transaction commits.
    pub(super) fn is_beyond_a_transactional_batch(
        &self,
        group: &str,
        topics: &[TxnOffsetCommitRequestTopic],
    ) -> bool {
        self.are_beyond_a_batch(group, topics, |topic| {
            (&topic.name, topic.partitions.iter().map(|partition| partition.committed_metadata.as_deref()))
        })
    }

    /// The same check for any request. `offsets` returns a topic's name and the metadata of each of its
    /// offsets.
    fn are_beyond_a_batch<'a, T, M: Iterator<Item = Option<&'a str>>>(
        &self,
        group: &str,
        topics: &'a [T],
        offsets: impl Fn(&'a T) -> (&'a String, M),
    ) -> bool {
        let metadata_max = self.config().offset_metadata_len_max;
        let bytes = topics.iter().map(|topic| {
            let (name, metadata) = offsets(topic);
            metadata.map(|metadata| record_bytes(group, name, metadata, metadata_max)).sum::<usize>()
        });
        bytes.sum::<usize>() > self.batch_bytes_max(group)
    }

    fn batch_bytes_max(&self, group: &str) -> usize {
        let max = self.shards.batch_bytes_max(self.partition_for(group));
        match self.config().offsets_topic_compression {
            Compression::None => max,
            _ => max.saturating_mul(COMPRESSED_AT_BEST),
        }
    }
}

/// Merges repeated topics of an OffsetFetch, and their repeated partitions. Kafka repeats repeated topics and
/// partitions; clients do not notice the difference.
pub(super) fn merge_repeated(topics: &mut Vec<OffsetFetchRequestTopics>) {
    if let [only] = &topics[..]
        && only.partition_indexes.len() == 1
    {
        return;
    }
    let named = std::mem::take(topics);
    let key = |topic: &OffsetFetchRequestTopics| (topic.name.clone(), topic.topic_id);
    merge(topics, named, key, |first, again| first.partition_indexes.extend(again.partition_indexes));
    for topic in topics {
        let mut seen = HashSet::default();
        topic.partition_indexes.retain(|index| seen.insert(*index));
    }
}

/// The topics of an OffsetFetch in pieces of at most [`ENTRIES_AT_ONCE`] partitions. A topic may span several
/// pieces.
pub(super) fn pieces(topics: Vec<OffsetFetchRequestTopics>) -> Vec<Vec<OffsetFetchRequestTopics>> {
    let count: usize = topics.iter().map(|topic| 1 + topic.partition_indexes.len()).sum();
    if count <= ENTRIES_AT_ONCE {
        return vec![topics];
    }
    let (mut pieces, mut piece, mut left) = (Vec::new(), Vec::new(), ENTRIES_AT_ONCE);
    for mut topic in topics {
        loop {
            let rest =
                topic.partition_indexes.split_off(topic.partition_indexes.len().min(left.saturating_sub(1)));
            let (name, topic_id) = (topic.name.clone(), topic.topic_id);
            left = left.saturating_sub(1 + topic.partition_indexes.len());
            piece.push(topic);
            if left <= 1 {
                pieces.push(std::mem::take(&mut piece));
                left = ENTRIES_AT_ONCE;
            }
            if rest.is_empty() {
                break;
            }
            topic = OffsetFetchRequestTopics { name, topic_id, partition_indexes: rest };
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// Appends the answer of a piece to the answers of earlier pieces.
pub(super) fn join_pieces(
    answered: &mut Vec<OffsetFetchResponseTopics>,
    mut more: Vec<OffsetFetchResponseTopics>,
) {
    if let (Some(last), Some(first)) = (answered.last_mut(), more.first_mut())
        && last.name == first.name
        && last.topic_id == first.topic_id
    {
        last.partitions.append(&mut first.partitions);
        more.remove(0);
    }
    answered.append(&mut more);
}

/// Size of topics and their offsets in an answer.
pub(super) fn answer_bytes(topics: &[OffsetFetchResponseTopics]) -> usize {
    let partition = |metadata: Option<&str>| 24 + metadata.map_or(0, str::len);
    let topic = |topic: &OffsetFetchResponseTopics| {
        let partitions = topic.partitions.iter().map(|p| partition(p.metadata.as_deref()));
        24 + topic.name.len() + partitions.sum::<usize>()
    };
    topics.iter().map(topic).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str, partitions: std::ops::Range<i32>) -> OffsetFetchRequestTopics {
        OffsetFetchRequestTopics {
            name: name.to_owned(),
            partition_indexes: partitions.collect(),
            ..Default::default()
        }
    }

    #[test]
    fn pieces_are_bounded_and_hold_everything_in_order() {
        let long = i32::try_from(ENTRIES_AT_ONCE).expect("a small number");
        let topics = vec![topic("a", 0..3), topic("b", 0..3 * long + 1), topic("c", 0..0), topic("d", 0..1)];
        let mut joined: Vec<OffsetFetchResponseTopics> = Vec::new();
        for piece in pieces(topics.clone()) {
            assert!(piece.iter().map(|t| 1 + t.partition_indexes.len()).sum::<usize>() <= ENTRIES_AT_ONCE);
            let answer = |topic: OffsetFetchRequestTopics| OffsetFetchResponseTopics {
                name: topic.name,
                topic_id: topic.topic_id,
                partitions: topic
                    .partition_indexes
                    .into_iter()
                    .map(|partition_index| {
                        thalweg_wire::request::offset_fetch_response::OffsetFetchResponsePartitions {
                            partition_index,
                            ..Default::default()
                        }
                    })
                    .collect(),
            };
            join_pieces(&mut joined, piece.into_iter().map(answer).collect());
        }
        assert_eq!(joined.len(), topics.len());
        for (answered, requested) in joined.iter().zip(&topics) {
            assert_eq!(answered.name, requested.name);
            let indexes: Vec<i32> = answered.partitions.iter().map(|p| p.partition_index).collect();
            assert_eq!(indexes, requested.partition_indexes, "{}", requested.name);
        }
    }

    #[test]
    fn what_is_named_again_is_answered_once_and_whole() {
        let mut topics = vec![topic("a", 0..3), topic("b", 0..1), topic("a", 2..5)];
        topics[0].partition_indexes.push(1);
        merge_repeated(&mut topics);
        let indexes: Vec<_> = topics.iter().map(|topic| topic.partition_indexes.clone()).collect();
        assert_eq!(indexes, [vec![0, 1, 2, 3, 4], vec![0]]);
    }
}
