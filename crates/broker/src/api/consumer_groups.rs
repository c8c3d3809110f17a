//! The APIs of consumer groups (KIP-848): ConsumerGroupHeartbeat (68), ConsumerGroupDescribe (69), versions 0 and 1. From
//! version 1 on members make their own ids, and may subscribe by a regular expression.
//!
//! They are served where `group.version` is 1 and `group.coordinator.rebalance.protocols` has `consumer`; otherwise they
//! are not in ApiVersions, and get UNSUPPORTED_VERSION. Members need READ on the group, and DESCRIBE on each topic that
//! they name. A description needs DESCRIBE on the group, and on each topic that a member has: without it nothing of the
//! group is shown.
//!
//! The coordinator (`thalweg_coordinator::group`) does the work.

use super::Call;
use super::groups::{client, may_describe_topics, may_join};
use crate::broker::Broker;
use std::sync::Arc;
use thalweg_coordinator::group::TopicFilter;
use thalweg_metadata::feature::GROUP_VERSION;
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::request::consumer_group_describe_response::DescribedGroup;
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, ErrorCode};

/// The level of `group.version` from which on the protocol is served.
const SERVED_FROM: i16 = 1;

/// Whether an API is one of consumer groups.
pub(super) fn is_of_consumer_groups(key: ApiKey) -> bool {
    matches!(key, ApiKey::ConsumerGroupHeartbeat | ApiKey::ConsumerGroupDescribe)
}

/// Whether consumer groups are served.
pub(super) fn are_served(broker: &Broker) -> bool {
    let protocols = &broker.config().groups.rebalance_protocols;
    protocols.iter().any(|protocol| protocol == "consumer")
        && broker.image().features().level(GROUP_VERSION) >= SERVED_FROM
}

/// ConsumerGroupHeartbeat, versions 0 and 1.
pub async fn heartbeat(
    broker: Arc<Broker>,
    call: Arc<Call>,
    request: ConsumerGroupHeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse {
    let refused =
        |error: ErrorCode| ConsumerGroupHeartbeatResponse { error_code: error.code(), ..Default::default() };
    if !are_served(&broker) {
        return refused(ErrorCode::UnsupportedVersion);
    }
    if !may_join(&call, &request.group_id) {
        return refused(ErrorCode::GroupAuthorizationFailed);
    }
    let names = request.subscribed_topic_names.iter().flatten().map(String::as_str);
    if !may_describe_topics(&call, names) {
        return refused(ErrorCode::TopicAuthorizationFailed);
    }
    let asker = Arc::clone(&call);
    let filter = TopicFilter::new(move |topic, _| {
        asker.permissions.may_also(Operation::Describe, ResourceType::Topic, topic)
    });
    broker.groups.consumer_group_heartbeat(&client(&call), request, call.version, &filter).await
}

/// ConsumerGroupDescribe, versions 0 and 1.
pub async fn describe(
    broker: Arc<Broker>,
    call: Arc<Call>,
    mut request: ConsumerGroupDescribeRequest,
) -> ConsumerGroupDescribeResponse {
    let refused = |group_id: String, error: ErrorCode| DescribedGroup {
        group_id,
        error_code: error.code(),
        ..DescribedGroup::default()
    };
    if !are_served(&broker) {
        let groups = request.group_ids.into_iter().map(|id| refused(id, ErrorCode::UnsupportedVersion));
        return ConsumerGroupDescribeResponse { groups: groups.collect(), ..Default::default() };
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
    let mut response = broker.groups.consumer_group_describe(request, call.version).await;
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
    let assignments = group.members.iter().flat_map(|member| [&member.assignment, &member.target_assignment]);
    let topics = assignments.flat_map(|assignment| &assignment.topic_partitions);
    topics.map(|topic| topic.topic_name.as_str())
}
