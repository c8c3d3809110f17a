//! Topics that come into being because somebody asks for them: a client's, by `auto.create.topics.enable`, and the
//! coordinators' own.

use crate::api::{Call, forward};
use crate::broker::Broker;
use parking_lot::Mutex;
use std::time::Duration;
use thalweg_hash::{HashMap, HashSet};
use thalweg_metadata::topic_name::{self, OFFSETS, TRANSACTIONS};
use thalweg_wire::request::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use thalweg_wire::request::{CreateTopicsRequest, CreateTopicsResponse};
use thalweg_wire::{ApiKey, ErrorCode, Message};
use tokio::time::Instant;

/// How long a request waits for a topic that it has created to appear in the image. Beyond it the client hears that
/// there is no leader yet, and asks again.
const APPEARS_WITHIN: Duration = Duration::from_millis(500);
/// How often the same failure is logged: clients ask again a few times a second, for as long as it lasts.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// The topics that are being created, so that many requests for one create it once.
#[derive(Debug, Default)]
pub struct AutoTopics {
    in_creation: Mutex<HashSet<String>>,
    failures: Mutex<HashMap<&'static str, Failure>>,
}

/// Topics of a kind that could not be created when they were asked for last.
#[derive(Debug)]
struct Failure {
    logged_at: Instant,
    reason: String,
    /// How often it has failed since it was logged.
    omitted: u64,
}

/// Topics whose creation has begun. Who creates them may be dropped in the middle of it, with the connection that asked;
/// the next to ask must find them free then.
struct Creation<'a> {
    topics: &'a AutoTopics,
    names: Vec<String>,
}

impl AutoTopics {
    /// Begins to create those of the topics that are not being created already.
    fn begin(&self, names: &[String]) -> Creation<'_> {
        let mut in_creation = self.in_creation.lock();
        let names = names.iter().filter(|name| in_creation.insert((*name).clone())).cloned().collect();
        Creation { topics: self, names }
    }

    /// Takes note of a failure. It is logged if it is new, has another reason than before, or lasts: with how many were left
    /// out.
    fn failed(&self, kind: &'static str, reason: &str, now: Instant) -> Option<u64> {
        let mut failures = self.failures.lock();
        let before = failures.get_mut(kind);
        if let Some(before) = before
            && before.reason == reason
            && now.duration_since(before.logged_at) < LOGGED_EVERY
        {
            before.omitted += 1;
            return None;
        }
        let new = Failure { logged_at: now, reason: reason.to_owned(), omitted: 0 };
        let omitted = failures.insert(kind, new).map_or(0, |before| before.omitted);
        Some(omitted)
    }

    /// Takes note of a success. Says whether the ones before failed.
    fn succeeded(&self, kind: &'static str) -> bool {
        self.failures.lock().remove(kind).is_some()
    }
}

/// Topics that fail alike: each of the coordinators' own, and all of clients.
fn kind(name: &str) -> &'static str {
    match name {
        OFFSETS => OFFSETS,
        TRANSACTIONS => TRANSACTIONS,
        _ => "of clients",
    }
}

impl Drop for Creation<'_> {
    fn drop(&mut self) {
        let mut in_creation = self.topics.in_creation.lock();
        for name in &self.names {
            in_creation.remove(name);
        }
    }
}

/// Whether the topic is being created.
pub fn in_creation(broker: &Broker, name: &str) -> bool {
    broker.auto_topics.in_creation.lock().contains(name)
}

/// Creates the topics that are not being created already, and waits a little for them to have leaders. A client's are
/// created in its name, the coordinators' own in the broker's.
pub async fn create(broker: &Broker, names: Vec<String>, client: Option<&Call>) {
    let started = broker.auto_topics.begin(&names);
    if !started.names.is_empty() {
        let topics = started.names.iter().map(|name| creatable(broker, name)).collect();
        let request = CreateTopicsRequest { topics, timeout_ms: 30_000, validate_only: false };
        let (kind, now) = (kind(&started.names[0]), Instant::now());
        match send(broker, request, client).await {
            Ok(response) => {
                let is_failure = |code: i16| {
                    code != ErrorCode::None.code() && code != ErrorCode::TopicAlreadyExists.code()
                };
                let mut failed = response.topics.into_iter().filter(|topic| is_failure(topic.error_code));
                // One of them says what is wrong with all, mostly; a client must not fill the log with names.
                if let Some(topic) = failed.next() {
                    let code = topic.error_code;
                    let error =
                        ErrorCode::from_i16(code).map_or_else(|| code.to_string(), |error| error.to_string());
                    let (message, others) = (topic.error_message, failed.count());
                    if let Some(omitted) = broker.auto_topics.failed(kind, &error, now) {
                        tracing::warn!(
                            topic = topic.name,
                            error,
                            message,
                            others,
                            omitted,
                            "A topic could not be created"
                        );
                    }
                } else if topic_name::is_internal(kind) && broker.auto_topics.succeeded(kind) {
                    tracing::info!(topic = started.names[0], "Topics can be created again");
                }
            }
            Err(error) => {
                if let Some(omitted) = broker.auto_topics.failed(kind, &error, now) {
                    tracing::warn!(topic = started.names[0], error, omitted, "Topics could not be created");
                }
            }
        }
    }
    wait_for_leaders(broker, &names).await;
    drop(started);
}

async fn send(
    broker: &Broker,
    request: CreateTopicsRequest,
    client: Option<&Call>,
) -> Result<CreateTopicsResponse, String> {
    const NEWEST: i16 = CreateTopicsRequest::MAX_VERSION;
    let Some(call) = client else {
        return broker.registered.controller.send(request, NEWEST).await.map_err(|error| error.to_string());
    };
    let version =
        broker.registered.controller.served(ApiKey::CreateTopics).map_or(NEWEST, |(_, max)| max.min(NEWEST));
    forward::send_at(broker, call, &request, version).await.map_err(|error| error.to_string())
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
                    // Led here means served here: the partition must be open before a client is sent to it.
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

fn creatable(broker: &Broker, name: &str) -> CreatableTopic {
    let config = broker.config();
    let internal = match name {
        OFFSETS => Some(config.groups.offsets_topic()),
        TRANSACTIONS => Some(config.transactions.state_topic()),
        _ => None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_creation_that_is_dropped_leaves_its_topics_free() {
        let topics = AutoTopics::default();
        let names = [OFFSETS.to_owned(), "t".to_owned()];
        let first = topics.begin(&names[..1]);
        assert_eq!(topics.begin(&names).names, ["t"], "the other is being created");
        drop(first);
        assert_eq!(topics.begin(&names).names, names);
    }

    #[test]
    fn a_failure_that_lasts_is_logged_once_a_minute() {
        let (topics, began) = (AutoTopics::default(), Instant::now());
        let logged =
            |kind, reason, after_ms| topics.failed(kind, reason, began + Duration::from_millis(after_ms));
        assert_eq!(logged(OFFSETS, "too few brokers", 0), Some(0));
        assert_eq!(logged(TRANSACTIONS, "too few brokers", 0), Some(0), "another topic");
        let repeated = (1..120).filter_map(|half| logged(OFFSETS, "too few brokers", half * 500));
        assert_eq!(repeated.count(), 0);
        assert_eq!(logged(OFFSETS, "too few brokers", 60_000), Some(119));
        assert_eq!(logged(OFFSETS, "another reason", 60_500), Some(0));
        assert!(topics.succeeded(OFFSETS) && !topics.succeeded(OFFSETS));
        assert_eq!(logged(OFFSETS, "too few brokers", 61_000), Some(0), "it worked meanwhile");
    }
}
