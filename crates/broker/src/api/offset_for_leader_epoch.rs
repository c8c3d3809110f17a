//! OffsetForLeaderEpoch (key 23), versions 2 to 4: the end offset of a leader epoch, for clients that check for
//! truncation (KIP-320). Brokers may ask about every topic.

use super::Call;
use super::entry::{Api, ByResource, now};
use super::serve::elsewhere::Named;
use crate::broker::Broker;
use thalweg_metadata::PartitionIndex;
use thalweg_record::LeaderEpoch;
use thalweg_replica::partition::OffsetsError;
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::request::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use thalweg_wire::request::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use thalweg_wire::request::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api = Api::new(ApiKey::OffsetForLeaderEpoch, 2..=4, ByResource, |b, c, d| {
    now::<OffsetForLeaderEpochRequest>(b, c, d, handle)
});

/// Looks each partition up.
pub fn handle(
    broker: &Broker,
    call: &Call,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let permissions = &call.permissions;
    let is_broker = permissions.may_also_on_cluster(Operation::ClusterAction);
    let topics = request.topics.into_iter().map(|topic| {
        let may_describe =
            is_broker || permissions.may(Operation::Describe, ResourceType::Topic, &topic.topic);
        let answer = |wanted: &OffsetForLeaderPartition| match may_describe {
            true => lookup(broker, &topic.topic, wanted),
            false => EpochEndOffset {
                partition: wanted.partition,
                error_code: ErrorCode::TopicAuthorizationFailed.code(),
                ..Default::default()
            },
        };
        let partitions = topic.partitions.iter().map(answer).collect();
        OffsetForLeaderTopicResult { partitions, topic: topic.topic }
    });
    OffsetForLeaderEpochResponse { throttle_time_ms: 0, topics: topics.collect() }
}

fn lookup(broker: &Broker, topic: &str, wanted: &OffsetForLeaderPartition) -> EpochEndOffset {
    let index = PartitionIndex(wanted.partition);
    let current = (wanted.current_leader_epoch != -1).then_some(LeaderEpoch(wanted.current_leader_epoch));
    let found = match broker.partitions.get(topic, index) {
        Some(found) => {
            found.end_of_epoch(LeaderEpoch(wanted.leader_epoch), current).map_err(OffsetsError::code)
        }
        None => Err(Named::Name(topic).missing(broker, index)),
    };
    let answer = EpochEndOffset { partition: wanted.partition, ..Default::default() };
    match found {
        Ok(Some((epoch, end))) => EpochEndOffset { leader_epoch: epoch.0, end_offset: end.0, ..answer },
        Ok(None) => answer,
        Err(error) => EpochEndOffset { error_code: ErrorCode::code(error), ..answer },
    }
}
