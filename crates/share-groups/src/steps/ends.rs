//! End offsets of partitions, for the lag of share groups: from the local replica if it leads, otherwise from
//! the leader by ListOffsets (Kafka's `NetworkPartitionMetadataClient`).

use super::ShareGroupParts;
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use thalweg_hash::HashMap;
use thalweg_membership::PeerError;
use thalweg_metadata::{BrokerId, PartitionIndex};
use thalweg_wire::ErrorCode;
use thalweg_wire::list_offsets::LATEST_TIMESTAMP;
use thalweg_wire::request::ListOffsetsRequest;
use thalweg_wire::request::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};

type Ends = HashMap<(String, i32), Result<i64, ErrorCode>>;

/// The high watermarks of partitions.
pub(super) async fn latest(parts: &ShareGroupParts, partitions: BTreeSet<(String, i32)>) -> Ends {
    let mut ends = Ends::default();
    let mut elsewhere: BTreeMap<BrokerId, Vec<(String, i32)>> = BTreeMap::new();
    let image = parts.image.get();
    for (topic, index) in partitions {
        let Some(registration) = image.partition(&topic, PartitionIndex(index)) else {
            ends.insert((topic, index), Err(ErrorCode::UnknownTopicOrPartition));
            continue;
        };
        let leader = registration.leader;
        if leader == parts.node_id {
            let replica = parts.partitions.get(&topic, PartitionIndex(index));
            let end = replica.map(|replica| replica.published_offsets().high_watermark().0);
            ends.insert((topic, index), end.ok_or(ErrorCode::NotLeaderOrFollower));
        } else if image.is_alive(leader) {
            elsewhere.entry(leader).or_default().push((topic, index));
        } else {
            ends.insert((topic, index), Err(ErrorCode::LeaderNotAvailable));
        }
    }
    let requests = elsewhere.into_iter().map(|(leader, partitions)| async move {
        match list_offsets(parts, leader, &partitions).await {
            Ok(ends) => ends,
            Err(error) => {
                tracing::info!(%leader, %error, "Failed to ask for the ends of partitions");
                partitions.into_iter().map(|place| (place, Err(ErrorCode::NetworkException))).collect()
            }
        }
    });
    for more in join_all(requests).await {
        ends.extend(more);
    }
    ends
}

async fn list_offsets(
    parts: &ShareGroupParts,
    leader: BrokerId,
    partitions: &[(String, i32)],
) -> Result<Ends, PeerError> {
    let timeout = parts.peers.request_timeout();
    let connection = parts.peers.connect(leader, "share-lag", timeout).await?;
    let mut topics: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
    for (topic, partition_index) in partitions {
        let (partition_index, timestamp) = (*partition_index, LATEST_TIMESTAMP);
        let partition = ListOffsetsPartition { partition_index, timestamp, ..Default::default() };
        topics.entry(topic).or_default().push(partition);
    }
    let topics = topics.into_iter();
    let topics = topics.map(|(name, partitions)| ListOffsetsTopic { name: name.to_owned(), partitions });
    let request = ListOffsetsRequest { replica_id: -1, topics: topics.collect(), ..Default::default() };
    let response = connection.send(&request).await?;
    let mut ends = Ends::default();
    for topic in response.topics {
        for partition in topic.partitions {
            let end = match ErrorCode::from_i16(partition.error_code) {
                Some(ErrorCode::None) => Ok(partition.offset),
                Some(error) => Err(error),
                None => Err(ErrorCode::UnknownServerError),
            };
            ends.insert((topic.name.clone(), partition.partition_index), end);
        }
    }
    Ok(ends)
}
