//! The APIs of share groups (KIP-932) at the leaders of partitions: ShareFetch (78) and ShareAcknowledge
//! (79), versions 1 and 2.
//!
//! A member fetches records of partitions that the group's coordinator has assigned to it, and gets a lock on
//! each acquired record. The member releases locks by acknowledgements, with its next fetch or alone. Version
//! 2 brings limits of records (KIP-1206) and renewed locks (KIP-1222).
//!
//! Both APIs need `share.version` 1. Members need READ on the group, and on each topic.

mod acknowledging;
pub mod fetch;
mod respond;

use super::Call;
use super::entry::{Api, ByResource, later};
use super::serve::elsewhere::TopicRef;
use super::share_groups::are_served;
use crate::broker::Broker;
use acknowledging::{Acknowledgements, Settling};
use std::sync::Arc;
use thalweg_metadata::{Image, ImageCell, PartitionIndex};
use thalweg_replica::partition::Partition;
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_share_groups::{FINAL_EPOCH, SessionKey, TopicPartitionId};
use thalweg_wire::request::{ShareAcknowledgeRequest, ShareAcknowledgeResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api =
    Api::new(ApiKey::ShareAcknowledge, 1..=2, ByResource, |b, c, d| later(b, c, d, acknowledge));

/// Maximum length of a member id in UTF-16 units.
const MEMBER_ID_MAX: usize = 36;
/// The version that brings renewed locks.
const RENEWS_FROM: i16 = 2;

/// The session of a request, if share groups are served and the client may use the group.
fn session_key(
    images: &ImageCell,
    call: &Call,
    group: Option<String>,
    member: Option<String>,
) -> Result<SessionKey, ErrorCode> {
    if !are_served(&images.get()) {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let group = group.ok_or(ErrorCode::InvalidRequest)?;
    if !call.permissions.may(Operation::Read, ResourceType::Group, &group) {
        return Err(ErrorCode::GroupAuthorizationFailed);
    }
    let is_legal = |member: &String| !member.is_empty() && member.encode_utf16().count() <= MEMBER_ID_MAX;
    let member = member.filter(is_legal).ok_or(ErrorCode::InvalidRequest)?;
    Ok(SessionKey { group: group.into(), member: member.into() })
}

/// Checks that the partition exists and the client may read its topic.
fn readable(call: &Call, image: &Image, id: TopicPartitionId) -> Result<(), ErrorCode> {
    let topic = image.topic_by_id(id.0).ok_or(ErrorCode::UnknownTopicId)?;
    if !call.permissions.may(Operation::Read, ResourceType::Topic, &topic.name) {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    topic.partition(id.1).map(|_| ()).ok_or(ErrorCode::UnknownTopicOrPartition)
}

/// The replica of a partition here, or the error for the client.
fn here(broker: &Broker, id: TopicPartitionId) -> Result<Arc<Partition>, ErrorCode> {
    let topic = broker.partitions.topic_by_id(id.0);
    let partition = topic.and_then(|topic| topic.partition(id.1));
    partition.ok_or_else(|| TopicRef::Id(id.0).missing(broker.node_id, &broker.image(), id.1))
}

/// ShareAcknowledge.
pub async fn acknowledge(
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
    let session = match broker.shares.sessions.acknowledges(&key, epoch) {
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
    let settling: Vec<(TopicPartitionId, Settling)> =
        acknowledgements.take(broker.images(), &broker.shares, &call, topics);
    let mut settled = Vec::with_capacity(settling.len());
    for (id, settling) in settling {
        settled.push((id, settling.settled(&broker.shares).await));
    }
    if epoch == FINAL_EPOCH {
        broker.shares.end_session(&key, &session);
    }
    respond::acknowledged(&broker, &call, &key.group, settled)
}
