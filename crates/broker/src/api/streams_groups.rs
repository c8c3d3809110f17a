//! The APIs of streams groups (KIP-1071): StreamsGroupHeartbeat (88), StreamsGroupDescribe (89), version 0.
//!
//! Both APIs are served if `streams.version` is 1 and `group.coordinator.rebalance.protocols` contains
//! `streams`. Otherwise the answer is UNSUPPORTED_VERSION. Members need READ on the group, and DESCRIBE on
//! each topic of their topology. Missing internal topics of a topology are created in the name of the member
//! that sends the heartbeat. The member needs CREATE on the topics or on the cluster; otherwise its status
//! reports the missing permission. A description needs DESCRIBE on the group, and on each topic of its
//! topology; otherwise the group is hidden.
//!
//! The coordinator (`thalweg_groups`) does the work.

use super::Call;
use super::entry::{Api, ByResource, later};
use super::groups::{client, may_join};
use super::serve::auto_create;
use super::serve::described_groups::{self, DescribableGroup};
use crate::broker::Broker;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use thalweg_groups::GroupCoordinator;
use thalweg_metadata::feature::STREAMS_VERSION;
use thalweg_metadata::topic_name;
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::streams_group_describe_response::DescribedGroup;
use thalweg_wire::request::streams_group_heartbeat_request::Topology;
use thalweg_wire::request::streams_group_heartbeat_response::Status;
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, ErrorCode};
use tokio::time::Instant;

pub(super) const HEARTBEAT: Api =
    Api::new(ApiKey::StreamsGroupHeartbeat, 0..=0, ByResource, |b, c, d| later(b, c, d, heartbeat));
pub(super) const DESCRIBE: Api = Api::new(ApiKey::StreamsGroupDescribe, 0..=0, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| describe(are_served(&b), &b.groups, &c, r).await)
});

/// The level of `streams.version` from which on streams groups are served.
const SERVED_FROM: i16 = 1;
/// The status of a group that lacks internal topics.
const MISSING_INTERNAL_TOPICS: i8 = 3;
/// Maximum number of failures listed in a status.
const FAILURES_NAMED: usize = 3;

/// True if streams groups are served.
fn are_served(broker: &Broker) -> bool {
    let protocols = &broker.config().groups.rebalance_protocols;
    protocols.iter().any(|protocol| protocol == "streams")
        && broker.image().features().level(STREAMS_VERSION) >= SERVED_FROM
}

/// StreamsGroupHeartbeat, version 0.
pub async fn heartbeat(
    broker: Arc<Broker>,
    call: Arc<Call>,
    request: StreamsGroupHeartbeatRequest,
) -> StreamsGroupHeartbeatResponse {
    let refused = |error: ErrorCode, error_message: Option<String>| StreamsGroupHeartbeatResponse {
        error_code: error.code(),
        error_message,
        ..Default::default()
    };
    if !are_served(&broker) {
        return refused(ErrorCode::UnsupportedVersion, None);
    }
    if !may_join(&call, &request.group_id) {
        return refused(ErrorCode::GroupAuthorizationFailed, None);
    }
    let topics = request.topology.as_ref().map(topics_of).unwrap_or_default();
    if let Some(reason) = prohibited(&topics) {
        return refused(ErrorCode::StreamsInvalidTopology, Some(reason));
    }
    if !call.permissions.may_describe_topics(topics.into_iter()) {
        return refused(ErrorCode::TopicAuthorizationFailed, None);
    }
    let (mut response, missing) = broker.groups.streams_group_heartbeat(&client(&call), &request).await;
    if !missing.is_empty() {
        create_missing(&broker, &call, missing, &mut response);
    }
    response
}

/// All topics of a topology.
fn topics_of(topology: &Topology) -> BTreeSet<&str> {
    let subtopologies = topology.subtopologies.iter();
    let names = subtopologies.flat_map(|subtopology| {
        let external = subtopology.source_topics.iter().chain(&subtopology.repartition_sink_topics);
        let own = subtopology.repartition_source_topics.iter().chain(&subtopology.state_changelog_topics);
        external.chain(own.map(|topic| &topic.name))
    });
    names.map(String::as_str).collect()
}

/// The reason why a topology must not have these topics; `None` if it may.
fn prohibited(topics: &BTreeSet<&str>) -> Option<String> {
    let those = |wrong: &dyn Fn(&str) -> bool| -> Vec<&str> {
        topics.iter().copied().filter(|topic| wrong(topic)).collect()
    };
    let internal = those(&topic_name::is_internal);
    if !internal.is_empty() {
        let names = internal.join(",");
        return Some(format!(
            "Use of Kafka internal topics {names} in a Kafka Streams topology is prohibited."
        ));
    }
    let invalid = those(&|topic| topic_name::check(topic).is_err());
    (!invalid.is_empty()).then(|| format!("Topic names {} are not valid topic names.", invalid.join(",")))
}

/// Starts to create internal topics. The answer does not wait; its status reports missing permissions and
/// recent failures.
fn create_missing(
    broker: &Arc<Broker>,
    call: &Arc<Call>,
    missing: Vec<CreatableTopic>,
    response: &mut StreamsGroupHeartbeatResponse,
) {
    let permissions = &call.permissions;
    if !permissions.may_also_on_cluster(Operation::Create) {
        let may = |name: &str| permissions.may(Operation::Create, ResourceType::Topic, name);
        let denied: Vec<&str> =
            missing.iter().map(|topic| topic.name.as_str()).filter(|name| !may(name)).collect();
        if !denied.is_empty() {
            return add_detail(response, &format!("Unauthorized to CREATE on topics {}.", denied.join(", ")));
        }
    }
    let now = Instant::now();
    let (mut failed, mut wanted) = (Vec::new(), Vec::new());
    for topic in missing {
        match broker.auto_topics.refusal(&topic.name, now) {
            Some(reason) => failed.push(format!("{} ({reason})", topic.name)),
            None => wanted.push(topic),
        }
    }
    if !failed.is_empty() {
        let named = failed[..failed.len().min(FAILURES_NAMED)].join(", ");
        let others = match failed.len().saturating_sub(FAILURES_NAMED) {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        add_detail(response, &format!("Creation failed: {named}{others}."));
    }
    if !wanted.is_empty() {
        // A failure is reported for two heartbeats, then the creation is retried.
        let interval_ms = u64::try_from(response.heartbeat_interval_ms).unwrap_or(0);
        let kept = Duration::from_millis(2 * interval_ms);
        let (broker, call) = (Arc::clone(broker), Arc::clone(call));
        tokio::spawn(async move { auto_create::create_internal(&broker, wanted, &call, kept).await });
    }
}

/// Extends the status that lists the missing topics.
fn add_detail(response: &mut StreamsGroupHeartbeatResponse, detail: &str) {
    let statuses = response.status.get_or_insert_default();
    match statuses.iter_mut().find(|status| status.status_code == MISSING_INTERNAL_TOPICS) {
        Some(status) => {
            status.status_detail.push_str("; ");
            status.status_detail.push_str(detail);
        }
        None => {
            statuses.push(Status { status_code: MISSING_INTERNAL_TOPICS, status_detail: detail.to_owned() })
        }
    }
}

/// StreamsGroupDescribe, version 0.
pub async fn describe(
    is_served: bool,
    groups: &GroupCoordinator,
    call: &Call,
    request: StreamsGroupDescribeRequest,
) -> StreamsGroupDescribeResponse {
    let read = |request| groups.streams_group_describe(request);
    described_groups::describe(call, is_served, request, read).await
}

impl DescribableGroup for DescribedGroup {
    const HIDDEN: &'static str = "The client may not describe a topic of the group's topology";

    fn topics(&self) -> impl Iterator<Item = &str> {
        let subtopologies = self.topology.iter().flat_map(|topology| topology.subtopologies.iter().flatten());
        subtopologies.flat_map(|subtopology| {
            let external = subtopology.source_topics.iter().chain(&subtopology.repartition_sink_topics);
            let own = subtopology.repartition_source_topics.iter().chain(&subtopology.state_changelog_topics);
            external.map(String::as_str).chain(own.map(|topic| topic.name.as_str()))
        })
    }
}
