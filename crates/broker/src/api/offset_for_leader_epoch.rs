//! OffsetForLeaderEpoch (key 23), versions 2 to 4: the end offset of a leader epoch, for clients that check for
//! truncation (KIP-320).

use super::Call;
use super::elsewhere::Named;
use crate::broker::Broker;
use thalweg_metadata::PartitionIndex;
use thalweg_record::LeaderEpoch;
use thalweg_replica::partition::OffsetsError;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use thalweg_wire::request::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use thalweg_wire::request::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

/// Looks each partition up.
pub fn handle(
    broker: &Broker,
    _: &Call,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.into_iter().map(|topic| OffsetForLeaderTopicResult {
        partitions: topic.partitions.iter().map(|wanted| lookup(broker, &topic.topic, wanted)).collect(),
        topic: topic.topic,
    });
    OffsetForLeaderEpochResponse { throttle_time_ms: 0, topics: topics.collect() }
}

fn lookup(broker: &Broker, topic: &str, wanted: &OffsetForLeaderPartition) -> EpochEndOffset {
    let index = PartitionIndex(wanted.partition);
    let current = (wanted.current_leader_epoch >= 0).then_some(LeaderEpoch(wanted.current_leader_epoch));
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
