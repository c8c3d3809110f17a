//! The APIs of consumer groups (KIP-848): ConsumerGroupHeartbeat (68), ConsumerGroupDescribe (69), versions 0
//! and 1. From version 1 on, members generate their own ids, and may subscribe by a regular expression.
//!
//! Both APIs are served if `group.version` is 1 and `group.coordinator.rebalance.protocols` contains
//! `consumer`. Otherwise the answer is UNSUPPORTED_VERSION. Members need READ on the group, and DESCRIBE on
//! each topic that they name. A description needs DESCRIBE on the group, and on each assigned topic;
//! otherwise the group is hidden.
//!
//! The coordinator (`thalweg_groups`) does the work.

use super::Call;
use super::entry::{Api, ByResource, later};
use super::groups::{client, may_join};
use super::serve::described_groups::{self, DescribableGroup};
use crate::broker::Broker;
use std::sync::Arc;
use thalweg_config::BrokerConfig;
use thalweg_groups::{GroupCoordinator, TopicFilter};
use thalweg_metadata::Image;
use thalweg_metadata::feature::GROUP_VERSION;
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::request::consumer_group_describe_response::DescribedGroup;
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const HEARTBEAT: Api = Api::new(ApiKey::ConsumerGroupHeartbeat, 0..=1, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| heartbeat(is_served(&b), &b.groups, &c, r).await)
});
pub(super) const DESCRIBE: Api = Api::new(ApiKey::ConsumerGroupDescribe, 0..=1, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| describe(is_served(&b), &b.groups, &c, r).await)
});

/// The level of `group.version` from which on the protocol is served.
const SERVED_FROM: i16 = 1;

/// True if this configuration and this image allow consumer groups.
fn are_served(config: &BrokerConfig, image: &Image) -> bool {
    config.groups.rebalance_protocols.iter().any(|protocol| protocol == "consumer")
        && image.features().level(GROUP_VERSION) >= SERVED_FROM
}

/// True if this broker serves consumer groups now. The image is released before the heartbeat waits.
fn is_served(broker: &Broker) -> bool {
    are_served(&broker.config(), &broker.image())
}

/// ConsumerGroupHeartbeat, versions 0 and 1.
pub async fn heartbeat(
    is_served: bool,
    groups: &GroupCoordinator,
    call: &Arc<Call>,
    request: ConsumerGroupHeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse {
    let refused =
        |error: ErrorCode| ConsumerGroupHeartbeatResponse { error_code: error.code(), ..Default::default() };
    if !is_served {
        return refused(ErrorCode::UnsupportedVersion);
    }
    if !may_join(call, &request.group_id) {
        return refused(ErrorCode::GroupAuthorizationFailed);
    }
    let names = request.subscribed_topic_names.iter().flatten().map(String::as_str);
    if !call.permissions.may_describe_topics(names) {
        return refused(ErrorCode::TopicAuthorizationFailed);
    }
    let caller = Arc::clone(call);
    let filter = TopicFilter::new(move |topic, _| {
        caller.permissions.may_also(Operation::Describe, ResourceType::Topic, topic)
    });
    groups.consumer_group_heartbeat(&client(call), request, call.version, &filter).await
}

/// ConsumerGroupDescribe, versions 0 and 1.
pub async fn describe(
    is_served: bool,
    groups: &GroupCoordinator,
    call: &Call,
    request: ConsumerGroupDescribeRequest,
) -> ConsumerGroupDescribeResponse {
    let read = |request| groups.consumer_group_describe(request);
    described_groups::describe(call, is_served, request, read).await
}

impl DescribableGroup for DescribedGroup {
    const HIDDEN: &'static str = "The client may not describe a topic that a member has";

    fn topics(&self) -> impl Iterator<Item = &str> {
        let assignments =
            self.members.iter().flat_map(|member| [&member.assignment, &member.target_assignment]);
        let topics = assignments.flat_map(|assignment| &assignment.topic_partitions);
        topics.map(|topic| topic.topic_name.as_str())
    }
}
