//! ListOffsets (key 2), versions 1 to 11: offsets by time, and the ends of the log.
//!
//! A timestamp of -1 means the end visible to the reader (by its isolation level), -2 for the log start, -3
//! for the record with the largest timestamp (version 7), -4 for the log start on local disk (version 8), -5
//! for the end of tiered storage (version 9), -6 for the first offset that is not tiered yet (version 11).
//! Thalweg tiers nothing.
//!
//! Beyond Kafka, a timestamp of `thalweg_wire::list_offsets::record_from` names an offset: the answer is the
//! first data record at or after it, with its time, for the lag of groups in seconds. Kafka answers
//! UNSUPPORTED_VERSION.

use super::Call;
use super::entry::{Api, ByResource, now};
use super::serve::elsewhere::TopicRef;
use std::sync::Arc;
use thalweg_hash::{HashMap, HashSet};
use thalweg_metadata::{BrokerId, ImageCell, PartitionIndex};
use thalweg_net::answer_parts::merge;
use thalweg_record::LeaderEpoch;
use thalweg_replica::partition::{Isolation, OffsetsError, Partition, Partitions, Reader};
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::list_offsets::{
    EARLIEST_LOCAL_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP, LATEST_TIERED_TIMESTAMP, MAX_TIMESTAMP,
    record_offset,
};
use thalweg_wire::request::list_offsets_request::ListOffsetsPartition;
use thalweg_wire::request::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use thalweg_wire::request::{ListOffsetsRequest, ListOffsetsResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api = Api::new(ApiKey::ListOffsets, 1..=11, ByResource, |b, c, d| {
    now(b, c, d, |b, c, r| handle(&b.partitions, b.node_id, b.images(), c, r))
});

/// The first version with the leader epoch of the found record (KIP-320).
const LEADER_EPOCH_FROM: i16 = 4;

/// Looks each partition up.
pub fn handle(
    partitions: &Partitions,
    node_id: BrokerId,
    images: &ImageCell,
    call: &Call,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let reader = match request.replica_id {
        id if id >= 0 => Reader::Follower { id: BrokerId(id), broker_epoch: -1 },
        // Kafka's debugging consumer (-2) sees the same offsets as a replica.
        -2 => Reader::Internal,
        _ => Reader::Client,
    };
    let isolation = Isolation::of(request.isolation_level).ok_or(ErrorCode::InvalidRequest);
    // Occurrences of each partition, grouped by topic so that each name is hashed once.
    let mut named: HashMap<&str, HashMap<i32, usize>> = HashMap::default();
    for topic in &request.topics {
        let partitions = named.entry(topic.name.as_str()).or_default();
        for partition in &topic.partitions {
            *partitions.entry(partition.partition_index).or_default() += 1;
        }
    }
    let find = |topic: &str, index| {
        let found = partitions.get(topic, index);
        found.ok_or_else(|| TopicRef::Name(topic).missing(node_id, &images.get(), index))
    };
    let topics = request.topics.iter().map(|topic| {
        let named = &named[topic.name.as_str()];
        let may_describe = call.permissions.may(Operation::Describe, ResourceType::Topic, &topic.name);
        let found = topic.partitions.iter().map(|wanted| {
            let found = if !may_describe {
                Err(ErrorCode::TopicAuthorizationFailed)
            } else if named[&wanted.partition_index] > 1 {
                Err(ErrorCode::InvalidRequest)
            } else {
                isolation.and_then(|isolation| {
                    let find = |index| find(&topic.name, index);
                    lookup(find, call.version, wanted, reader, isolation)
                })
            };
            found.unwrap_or_else(|error| ListOffsetsPartitionResponse {
                partition_index: wanted.partition_index,
                error_code: error.code(),
                ..Default::default()
            })
        });
        ListOffsetsTopicResponse { partitions: found.collect(), name: topic.name.clone() }
    });
    let mut response = ListOffsetsResponse::default();
    let name = |topic: &ListOffsetsTopicResponse| topic.name.clone();
    merge(&mut response.topics, topics.collect(), name, |first, again| {
        first.partitions.extend(again.partitions)
    });
    // As in Kafka: repeated partitions get one error.
    for topic in &mut response.topics {
        let mut seen = HashSet::default();
        topic.partitions.retain(|partition| seen.insert(partition.partition_index));
    }
    response
}

fn lookup(
    find: impl FnOnce(PartitionIndex) -> Result<Arc<Partition>, ErrorCode>,
    version: i16,
    wanted: &ListOffsetsPartition,
    reader: Reader,
    isolation: Isolation,
) -> Result<ListOffsetsPartitionResponse, ErrorCode> {
    let needs = match wanted.timestamp {
        MAX_TIMESTAMP => 7,
        EARLIEST_LOCAL_TIMESTAMP => 8,
        LATEST_TIERED_TIMESTAMP => 9,
        EARLIEST_PENDING_UPLOAD_TIMESTAMP => 11,
        timestamp if record_offset(timestamp).is_some() => 0,
        timestamp if timestamp < EARLIEST_PENDING_UPLOAD_TIMESTAMP => i16::MAX,
        _ => 0,
    };
    if version < needs {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let index = PartitionIndex(wanted.partition_index);
    let partition = find(index)?;
    let epoch = (wanted.current_leader_epoch != -1).then_some(LeaderEpoch(wanted.current_leader_epoch));
    let found = partition.offset_for_timestamp(wanted.timestamp, reader, isolation, epoch);
    let found = found.map_err(OffsetsError::code)?;
    Ok(ListOffsetsPartitionResponse {
        partition_index: index.0,
        error_code: 0,
        timestamp: found.timestamp,
        offset: found.offset,
        leader_epoch: if version >= LEADER_EPOCH_FROM { found.leader_epoch } else { -1 },
    })
}
