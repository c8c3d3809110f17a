//! OffsetForLeaderEpoch (key 23), versions 2 to 4: the end offset of a leader epoch, for clients that check
//! for truncation (KIP-320). A client with CLUSTER_ACTION may ask about every topic.

use super::Call;
use super::entry::{Api, ByResource, now};
use super::serve::elsewhere::TopicRef;
use std::sync::Arc;
use thalweg_metadata::{BrokerId, ImageCell, PartitionIndex};
use thalweg_record::LeaderEpoch;
use thalweg_replica::partition::{OffsetsError, Partition, Partitions};
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::request::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use thalweg_wire::request::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use thalweg_wire::request::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api = Api::new(ApiKey::OffsetForLeaderEpoch, 2..=4, ByResource, |b, c, d| {
    now(b, c, d, |b, c, r| handle(&b.partitions, b.node_id, b.images(), c, r))
});

/// Looks each partition up.
pub fn handle(
    partitions: &Partitions,
    node_id: BrokerId,
    images: &ImageCell,
    call: &Call,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let permissions = &call.permissions;
    let is_broker = permissions.may_also_on_cluster(Operation::ClusterAction);
    let topics = request.topics.into_iter().map(|topic| {
        let may_describe =
            is_broker || permissions.may(Operation::Describe, ResourceType::Topic, &topic.topic);
        let answer = |wanted: &OffsetForLeaderPartition| match may_describe {
            true => {
                let index = PartitionIndex(wanted.partition);
                let found = partitions.get(&topic.topic, index);
                let missing = || TopicRef::Name(&topic.topic).missing(node_id, &images.get(), index);
                lookup(found.ok_or_else(missing), wanted)
            }
            false => EpochEndOffset {
                partition: wanted.partition,
                error_code: ErrorCode::TopicAuthorizationFailed.code(),
                ..Default::default()
            },
        };
        let answers = topic.partitions.iter().map(answer).collect();
        OffsetForLeaderTopicResult { partitions: answers, topic: topic.topic }
    });
    OffsetForLeaderEpochResponse { throttle_time_ms: 0, topics: topics.collect() }
}

fn lookup(found: Result<Arc<Partition>, ErrorCode>, wanted: &OffsetForLeaderPartition) -> EpochEndOffset {
    let current = (wanted.current_leader_epoch != -1).then_some(LeaderEpoch(wanted.current_leader_epoch));
    let found = found.and_then(|partition| {
        partition.end_of_epoch(LeaderEpoch(wanted.leader_epoch), current).map_err(OffsetsError::code)
    });
    let answer = EpochEndOffset { partition: wanted.partition, ..Default::default() };
    match found {
        Ok(Some((epoch, end))) => EpochEndOffset { leader_epoch: epoch.0, end_offset: end.0, ..answer },
        Ok(None) => answer,
        Err(error) => EpochEndOffset { error_code: ErrorCode::code(error), ..answer },
    }
}
