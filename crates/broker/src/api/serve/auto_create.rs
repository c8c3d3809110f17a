//! Automatic topic creation: for clients, by `auto.create.topics.enable`, for streams groups, and for the
//! coordinators.

use super::forward;
use crate::api::Call;
use crate::audit::record_auto_created;
use crate::auto_topics::kind;
use crate::broker::Broker;
use std::time::Duration;
use thalweg_config::BrokerConfig;
use thalweg_hash::HashMap;
use thalweg_membership::ControllerLink;
use thalweg_metadata::topic_name::{self, CoordinatorTopic, STREAM_DEFINITIONS};
use thalweg_wire::request::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use thalweg_wire::request::create_topics_response::CreatableTopicResult;
use thalweg_wire::request::{CreateTopicsRequest, CreateTopicsResponse};
use thalweg_wire::{ApiKey, ErrorCode, Message};
use tokio::time::Instant;

/// Maximum wait until the image shows a created topic. After that, FindCoordinator answers
/// COORDINATOR_NOT_AVAILABLE, and the client retries.
const APPEARS_WITHIN: Duration = Duration::from_millis(500);

/// Creates the topics that no other request is creating, and waits a little for their leaders. Topics for a
/// client are created in the client's name, topics of coordinators in the broker's name.
pub async fn create(broker: &Broker, mut names: Vec<String>, client: Option<&Call>) {
    let started = broker.auto_topics.begin(&names, client.map(Call::holder));
    if !started.names.is_empty() {
        let topics = started.names.iter().map(|name| creatable(&broker.config(), name)).collect();
        let request = CreateTopicsRequest { topics, timeout_ms: 30_000, validate_only: false };
        let (kind, now) = (kind(&started.names[0]), Instant::now());
        match send(&broker.registered.controller, request, client).await {
            Ok(response) => {
                let is_failure = |code: i16| {
                    code != ErrorCode::None.code() && code != ErrorCode::TopicAlreadyExists.code()
                };
                let failed = response.topics.into_iter().filter(|topic| is_failure(topic.error_code));
                let failed: HashMap<_, _> =
                    failed.map(|topic| (topic.name, (topic.error_code, topic.error_message))).collect();
                // There is no wait for failed topics.
                names.retain(|name| !failed.contains_key(name));
                let others = failed.len().saturating_sub(1);
                // All topics usually fail with the same error, and a client must not flood the log with
                // names.
                if let Some((topic, (code, message))) = failed.into_iter().next() {
                    let error =
                        ErrorCode::from_i16(code).map_or_else(|| code.to_string(), |error| error.to_string());
                    if let Some(omitted) = broker.auto_topics.failures.failed(kind, &error, now) {
                        tracing::warn!(topic, error, message, others, omitted, "Failed to create a topic");
                    }
                } else if topic_name::is_of_coordinators(kind) && broker.auto_topics.failures.succeeded(&kind)
                {
                    tracing::info!(topic = started.names[0], "Topics can be created again");
                }
            }
            Err(error) => {
                names.retain(|name| !started.names.contains(name));
                if let Some(omitted) = broker.auto_topics.failures.failed(kind, &error, now) {
                    tracing::warn!(topic = started.names[0], error, omitted, "Failed to create topics");
                }
            }
        }
    }
    wait_for_leaders(broker, &names).await;
    drop(started);
}

/// Creates a topic for this broker itself, with the cluster's defaults.
pub async fn create_own(broker: &Broker, name: &str) {
    create(broker, vec![name.to_owned()], None).await;
}

/// Creates the internal topics of a streams group that no other request is creating, in the member's name.
/// The reason for a failure is kept for the next heartbeats.
pub async fn create_internal(broker: &Broker, topics: Vec<CreatableTopic>, client: &Call, kept: Duration) {
    let names: Vec<String> = topics.iter().map(|topic| topic.name.clone()).collect();
    let started = broker.auto_topics.begin(&names, Some(client.holder()));
    let topics: Vec<CreatableTopic> =
        topics.into_iter().filter(|topic| started.names.contains(&topic.name)).collect();
    if topics.is_empty() {
        return;
    }
    let request = CreateTopicsRequest { topics, timeout_ms: 30_000, validate_only: false };
    let failed: Vec<(String, String)> = match send(&broker.registered.controller, request, Some(client)).await
    {
        Ok(response) => response.topics.into_iter().filter_map(failure).collect(),
        Err(error) => started.names.iter().map(|name| (name.clone(), error.clone())).collect(),
    };
    let now = Instant::now();
    if let Some((topic, error)) = failed.first() {
        let others = failed.len() - 1;
        if let Some(omitted) = broker.auto_topics.failures.failed("of streams groups", error, now) {
            tracing::warn!(
                topic,
                error,
                others,
                omitted,
                "Failed to create internal topics of a streams group"
            );
        }
    }
    for (topic, error) in failed {
        broker.auto_topics.refuse(client.holder(), topic, error, now, now + kept);
    }
    // An existing topic is no failure, and is soon in the image.
    wait_for_leaders(broker, &started.names).await;
    drop(started);
}

/// The name of a topic that was not created, and the reason; `None` if the topic exists.
fn failure(topic: CreatableTopicResult) -> Option<(String, String)> {
    let code = topic.error_code;
    if code == ErrorCode::None.code() || code == ErrorCode::TopicAlreadyExists.code() {
        return None;
    }
    let named = || ErrorCode::from_i16(code).map_or_else(|| code.to_string(), |error| error.to_string());
    let reason = topic.error_message.filter(|message| !message.is_empty()).unwrap_or_else(named);
    Some((topic.name, reason))
}

async fn send(
    controller: &ControllerLink,
    request: CreateTopicsRequest,
    client: Option<&Call>,
) -> Result<CreateTopicsResponse, String> {
    const NEWEST: i16 = CreateTopicsRequest::MAX_VERSION;
    let Some(call) = client else {
        return controller.send(request, NEWEST).await.map_err(|error| error.to_string());
    };
    let version = controller.served(ApiKey::CreateTopics).map_or(NEWEST, |(_, max)| max.min(NEWEST));
    let answer =
        forward::send_at(controller, call, &request, version).await.map_err(|error| error.to_string())?;
    record_auto_created(call.permissions.audited(), call.key, &request, &answer);
    Ok(answer)
}

async fn wait_for_leaders(broker: &Broker, names: &[String]) {
    let deadline = Instant::now() + APPEARS_WITHIN;
    let mut changes = broker.registered.controller.image_changes();
    loop {
        let image = broker.image();
        let ready = |name: &String| {
            let topic = image.topic(name);
            topic.is_some_and(|topic| {
                topic.partitions.iter().all(|(index, registration)| {
                    // A partition led by this broker must be open before a client is sent here.
                    registration.has_leader()
                        && (registration.leader != broker.node_id
                            || broker.partitions.get(name, *index).is_some())
                })
            })
        };
        if names.iter().all(ready) || tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
            return;
        }
    }
}

fn creatable(config: &BrokerConfig, name: &str) -> CreatableTopic {
    let internal = match CoordinatorTopic::of(name) {
        Some(CoordinatorTopic::Offsets) => Some(config.groups.offsets_topic()),
        Some(CoordinatorTopic::Transactions) => Some(config.transactions.state_topic()),
        Some(CoordinatorTopic::ShareState) => Some(config.share_coordinator.state_topic()),
        None => (name == STREAM_DEFINITIONS).then(|| config.topics.stream_definitions()),
    };
    let (num_partitions, replication_factor) = match &internal {
        Some(topic) => (topic.partitions, topic.replication_factor),
        None => (config.topics.num_partitions, config.topics.default_replication_factor),
    };
    let configs = internal.as_ref().map(|topic| &topic.configs).into_iter().flatten();
    debug_assert!(internal.is_some() || !topic_name::is_internal(name) || num_partitions > 0);
    CreatableTopic {
        name: name.to_owned(),
        num_partitions,
        replication_factor,
        assignments: Vec::new(),
        configs: configs
            .map(|(name, value)| CreatableTopicConfig { name: name.clone(), value: Some(value.clone()) })
            .collect(),
    }
}
