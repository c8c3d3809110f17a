//! The APIs of share groups (KIP-932) at the leaders of partitions: ShareFetch (78) and ShareAcknowledge
//! (79), versions 1 and 2.
//!
//! A member fetches records of partitions that the group's coordinator has assigned to it, and gets a lock on
//! each acquired record. The member releases locks by acknowledgements, with its next fetch or alone. Version
//! 2 brings limits of records (KIP-1206) and renewed locks (KIP-1222).
//!
//! Both APIs need `share.version` 1. Members need READ on the group, and on each topic.

pub mod acknowledge;
mod acknowledgements;
pub mod fetch;
mod plan;
mod respond;

use super::Call;
use super::share_groups::are_served;
use thalweg_metadata::{Image, ImageCell, TopicIdPartition};
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_share_groups::ShareSessionKey;
use thalweg_wire::ErrorCode;

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
) -> Result<ShareSessionKey, ErrorCode> {
    if !are_served(&images.get()) {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let group = group.ok_or(ErrorCode::InvalidRequest)?;
    if !call.permissions.may(Operation::Read, ResourceType::Group, &group) {
        return Err(ErrorCode::GroupAuthorizationFailed);
    }
    let is_legal = |member: &String| !member.is_empty() && member.encode_utf16().count() <= MEMBER_ID_MAX;
    let member = member.filter(is_legal).ok_or(ErrorCode::InvalidRequest)?;
    Ok(ShareSessionKey { group: group.into(), member: member.into() })
}

/// Checks that the partition exists and the client may read its topic.
fn readable(call: &Call, image: &Image, id: TopicIdPartition) -> Result<(), ErrorCode> {
    let topic = image.topic_by_id(id.0).ok_or(ErrorCode::UnknownTopicId)?;
    if !call.permissions.may(Operation::Read, ResourceType::Topic, &topic.name) {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    topic.partition(id.1).map(|_| ()).ok_or(ErrorCode::UnknownTopicOrPartition)
}
