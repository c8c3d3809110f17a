//! ShareAcknowledge: acknowledges records without a fetch.

use super::acknowledgements::{Acknowledgements, CountedAcknowledgement};
use super::{RENEWS_FROM, respond, session_key};
use crate::api::Call;
use crate::api::entry::{Api, ByResource, later};
use crate::broker::Broker;
use std::sync::Arc;
use thalweg_metadata::{PartitionIndex, TopicIdPartition};
use thalweg_share_groups::FINAL_EPOCH;
use thalweg_wire::request::{ShareAcknowledgeRequest, ShareAcknowledgeResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(in crate::api) const API: Api =
    Api::new(ApiKey::ShareAcknowledge, 1..=2, ByResource, |b, c, d| later(b, c, d, handle));

/// Serves the request.
pub async fn handle(
    broker: Arc<Broker>,
    call: Arc<Call>,
    request: ShareAcknowledgeRequest,
) -> ShareAcknowledgeResponse {
    let refused =
        |error: ErrorCode| ShareAcknowledgeResponse { error_code: error.code(), ..Default::default() };
    let epoch = request.share_session_epoch;
    let key = match session_key(broker.images(), &call, request.group_id, request.member_id) {
        Ok(key) => key,
        Err(error) => return refused(error),
    };
    let session = match broker.share_partitions.sessions.acknowledges(&key, epoch) {
        Ok(session) => session,
        Err(error) => return refused(error.code()),
    };
    let acknowledgements = Acknowledgements {
        key: &key,
        may_renew: call.version >= RENEWS_FROM,
        is_renewal: request.is_renew_ack,
    };
    let topics = request.topics.iter().flat_map(|topic| {
        let partitions = topic.partitions.iter();
        partitions.map(move |partition| {
            let batches = partition.acknowledgement_batches.iter();
            let batches =
                batches.map(|batch| (batch.first_offset, batch.last_offset, &*batch.acknowledge_types));
            ((topic.topic_id, PartitionIndex(partition.partition_index)), batches.collect())
        })
    });
    let pending: Vec<(TopicIdPartition, CountedAcknowledgement)> =
        acknowledgements.take(broker.images(), &broker.share_partitions, &call, topics);
    let mut outcomes = Vec::with_capacity(pending.len());
    for (id, pending) in pending {
        outcomes.push((id, pending.outcome(&broker.share_partitions).await));
    }
    if epoch == FINAL_EPOCH {
        broker.share_partitions.end_session(&key, &session);
    }
    respond::acknowledged(&broker, &call, &key.group, outcomes)
}
