//! The APIs of share groups (KIP-932): ShareGroupHeartbeat (76), ShareGroupDescribe (77), version 1.
//!
//! They are served where `share.version` is 1, and otherwise answered with UNSUPPORTED_VERSION. Members need READ on the
//! group, and DESCRIBE on each topic that they name. A description needs DESCRIBE on the group, and on each topic that a
//! member has: without it nothing of the group is shown.
//!
//! The coordinator (`thalweg_coordinator::share_groups`) does the work.

use super::Call;
use super::groups::{client, may_describe_topics, may_join};
use crate::broker::Broker;
use std::sync::Arc;
use thalweg_metadata::feature::SHARE_VERSION;
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::share_group_describe_response::DescribedGroup;
use thalweg_wire::request::*;

/// The level of `share.version` from which on share groups are served.
const SERVED_FROM: i16 = 1;
/// The longest id of a member, in UTF-16 units: that of a UUID as text.
const MEMBER_ID_MAX: usize = 36;

/// Whether share groups are served.
pub(super) fn are_served(broker: &Broker) -> bool {
    broker.image().features().level(SHARE_VERSION) >= SERVED_FROM
}

/// ShareGroupHeartbeat, version 1.
pub async fn heartbeat(
    broker: Arc<Broker>,
    call: Arc<Call>,
    request: ShareGroupHeartbeatRequest,
) -> ShareGroupHeartbeatResponse {
    let refused = |error: ErrorCode, message: Option<&str>| ShareGroupHeartbeatResponse {
        error_code: error.code(),
        error_message: message.map(str::to_owned),
        ..Default::default()
    };
    if !are_served(&broker) {
        return refused(ErrorCode::UnsupportedVersion, None);
    }
    if !may_join(&call, &request.group_id) {
        return refused(ErrorCode::GroupAuthorizationFailed, None);
    }
    let id = &request.member_id;
    if id.is_empty() || id.encode_utf16().count() > MEMBER_ID_MAX {
        return refused(ErrorCode::InvalidRequest, Some("Invalid member id in the request."));
    }
    let names = request.subscribed_topic_names.iter().flatten().map(String::as_str);
    if !may_describe_topics(&call, names) {
        return refused(ErrorCode::TopicAuthorizationFailed, None);
    }
    broker.share_groups.heartbeat(&client(&call), &request).await
}

/// ShareGroupDescribe, version 1.
pub async fn describe(
    broker: Arc<Broker>,
    call: Arc<Call>,
    mut request: ShareGroupDescribeRequest,
) -> ShareGroupDescribeResponse {
    let refused = |group_id: String, error: ErrorCode| DescribedGroup {
        group_id,
        error_code: error.code(),
        ..DescribedGroup::default()
    };
    if !are_served(&broker) {
        let groups = request.group_ids.into_iter().map(|id| refused(id, ErrorCode::UnsupportedVersion));
        return ShareGroupDescribeResponse { groups: groups.collect(), ..Default::default() };
    }
    let mut denied = Vec::new();
    request.group_ids.retain(|id| {
        let may_describe = call.permissions.may(Operation::Describe, ResourceType::Group, id);
        if !may_describe {
            denied.push(refused(id.clone(), ErrorCode::GroupAuthorizationFailed));
        }
        may_describe
    });
    let shows_operations = request.include_authorized_operations;
    let mut response = broker.groups.share_group_describe(request).await;
    for group in response.groups.iter_mut().filter(|group| group.error_code == 0) {
        if !may_describe_topics(&call, topics(group)) {
            let id = std::mem::take(&mut group.group_id);
            *group = DescribedGroup {
                error_message: Some("The client may not describe a topic that a member has".to_owned()),
                ..refused(id, ErrorCode::TopicAuthorizationFailed)
            };
        } else if shows_operations {
            group.authorized_operations = call.permissions.operations(ResourceType::Group, &group.group_id);
        }
    }
    response.groups.extend(denied);
    response
}

fn topics(group: &DescribedGroup) -> impl Iterator<Item = &str> {
    let topics = group.members.iter().flat_map(|member| &member.assignment.topic_partitions);
    topics.map(|topic| topic.topic_name.as_str())
}
