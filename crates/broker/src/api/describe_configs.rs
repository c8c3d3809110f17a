//! DescribeConfigs (key 32), versions 1 to 4: the value of every key of a resource, its source and its
//! synonyms.
//!
//! Topics, this broker, the defaults of all brokers (the empty name), groups (KIP-848) and subscriptions to
//! clients' metrics (KIP-714) are described from the tables of [`thalweg_config`] and the image. Version 1
//! adds sources and synonyms, version 3 types and documentation. Only a broker itself describes its
//! configuration.
//!
//! Departures: a resource that is named again with the same keys is described once (Kafka repeats it); a
//! broker's keys that are not served appear only when they are set; the documentation is Thalweg's.

use super::Call;
use super::entry::{Api, ByResource, Cost, now};
use super::serve::loggers;
use crate::authorization::Permissions;
use crate::broker::Broker;
use thalweg_config::describe::{DescribedConfig, WantedKeys};
use thalweg_config::describe_client_metrics;
use thalweg_hash::HashSet;
use thalweg_metadata::topic_name;
use thalweg_metadata::{BrokerId, ConfigResource, ConfigResourceKind, Image};
use thalweg_net::answer_parts::AnswerRoom;
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;
use thalweg_wire::request::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use thalweg_wire::request::{DescribeConfigsRequest, DescribeConfigsResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api = Api::new(ApiKey::DescribeConfigs, 1..=4, ByResource, |b, c, d| {
    now::<DescribeConfigsRequest>(b, c, d, handle)
})
.cost(Cost::ByTopics);

/// Kafka's generic message for INVALID_REQUEST.
const MALFORMED: &str = "This most likely occurs because of a request being malformed by the client library or the \
                         message was sent to an incompatible broker. See the broker logs for more details.";

/// The message for resources that no longer fit into the answer.
const TOO_MUCH: &str = "The configurations do not fit into one answer: describe fewer resources at once.";

/// A resource that cannot be described.
type Refusal = (ErrorCode, String);

/// Describes each resource.
pub fn handle(broker: &Broker, call: &Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse {
    let image = broker.image();
    let unknown = |resource: &DescribeConfigsResource| {
        matches!(ConfigResourceKind::from_id(resource.resource_type), ConfigResourceKind::Unknown(_))
    };
    // As in Kafka, one unknown kind fails the whole request, because the kind cannot be authorised.
    let malformed = request.resources.iter().any(unknown);
    let show = Show { synonyms: request.include_synonyms, documentation: request.include_documentation };
    let (mut room, mut seen) = (AnswerRoom::default(), HashSet::default());
    let mut is_new = |resource: &DescribeConfigsResource| {
        let DescribeConfigsResource { resource_type, resource_name, configuration_keys } = resource;
        seen.insert((*resource_type, resource_name.clone(), configuration_keys.clone()))
    };
    let results = request.resources.into_iter().filter(|resource| is_new(resource)).map(|resource| {
        let described = if malformed {
            Err((ErrorCode::InvalidRequest, MALFORMED.to_owned()))
        } else {
            authorize(&call.permissions, &resource).and_then(|()| describe(broker, &image, &resource))
        };
        let described = described.and_then(|configs| match room.take(show.answer_bytes(&configs)) {
            true => Ok(configs),
            false => Err((ErrorCode::InvalidRequest, TOO_MUCH.to_owned())),
        });
        let (error, message, configs) = match described {
            Ok(configs) => (ErrorCode::None, String::new(), configs),
            Err((error, message)) => (error, message, Vec::new()),
        };
        DescribeConfigsResult {
            error_code: error.code(),
            error_message: Some(message),
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
            configs: configs.into_iter().map(|config| show.result(config)).collect(),
        }
    });
    DescribeConfigsResponse { throttle_time_ms: 0, results: results.collect() }
}

/// Configurations of topics and groups need DESCRIBE_CONFIGS on that resource, all others on the cluster.
fn authorize(permissions: &Permissions, resource: &DescribeConfigsResource) -> Result<(), Refusal> {
    let name = resource.resource_name.as_str();
    let may = |resource_type| permissions.may(Operation::DescribeConfigs, resource_type, name);
    let (is_allowed, error, words) = match ConfigResourceKind::from_id(resource.resource_type) {
        ConfigResourceKind::Topic => {
            (may(ResourceType::Topic), ErrorCode::TopicAuthorizationFailed, "Topic authorization failed.")
        }
        ConfigResourceKind::Group => {
            (may(ResourceType::Group), ErrorCode::GroupAuthorizationFailed, "Group authorization failed.")
        }
        _ => (
            permissions.may_on_cluster(Operation::DescribeConfigs),
            ErrorCode::ClusterAuthorizationFailed,
            "Cluster authorization failed.",
        ),
    };
    if is_allowed { Ok(()) } else { Err((error, words.to_owned())) }
}

fn describe(
    broker: &Broker,
    image: &Image,
    resource: &DescribeConfigsResource,
) -> Result<Vec<DescribedConfig>, Refusal> {
    let name = resource.resource_name.as_str();
    let wanted = resource.configuration_keys.as_deref().filter(|keys| !keys.is_empty());
    let wanted: Option<WantedKeys<'_>> = wanted.map(|keys| keys.iter().map(String::as_str).collect());
    let wanted = wanted.as_ref();
    let kind = ConfigResourceKind::from_id(resource.resource_type);
    let overrides = || image.config(&ConfigResource { kind, name: name.to_owned() });
    let invalid = |message: &str| Err((ErrorCode::InvalidRequest, message.to_owned()));
    match kind {
        ConfigResourceKind::Topic => {
            topic_name::check(name).map_err(|error| (ErrorCode::InvalidTopicException, error.to_string()))?;
            if image.topic(name).is_none() {
                return Err((ErrorCode::UnknownTopicOrPartition, String::new()));
            }
            Ok(broker.config().describe_topic(&overrides(), wanted))
        }
        ConfigResourceKind::Broker if name.is_empty() => {
            Ok(broker.config().describe_cluster_defaults(wanted))
        }
        ConfigResourceKind::Broker => {
            check_broker(broker.node_id, name, " or empty string,")?;
            Ok(broker.config().describe_broker(wanted))
        }
        ConfigResourceKind::BrokerLogger if name.is_empty() => invalid("Broker id must not be empty"),
        ConfigResourceKind::BrokerLogger => {
            check_broker(broker.node_id, name, "")?;
            Ok(loggers::describe(broker.loggers.as_deref(), wanted))
        }
        ConfigResourceKind::ClientMetrics if name.is_empty() => {
            invalid("Client metrics subscription name must not be empty")
        }
        ConfigResourceKind::ClientMetrics => Ok(describe_client_metrics(&overrides(), wanted)),
        ConfigResourceKind::Group if name.is_empty() => invalid("Group name must not be empty"),
        ConfigResourceKind::Group => Ok(broker.config().describe_group(&overrides(), wanted)),
        ConfigResourceKind::Unknown(_) => invalid(MALFORMED),
    }
}

/// Only this broker can be described here.
fn check_broker(node_id: BrokerId, name: &str, or: &str) -> Result<(), Refusal> {
    let message = match name.parse::<i32>() {
        Ok(id) if BrokerId(id) == node_id => return Ok(()),
        Ok(_) => format!("Unexpected broker id, expected {node_id}{or} but received {name}"),
        Err(_) => format!("Broker id must be an integer, but it is: {name}"),
    };
    Err((ErrorCode::InvalidRequest, message))
}

/// The fields of each key that the client requested.
struct Show {
    synonyms: bool,
    documentation: bool,
}

impl Show {
    /// Size of the configurations in an answer.
    fn answer_bytes(&self, configs: &[DescribedConfig]) -> usize {
        let text = |text: Option<&str>| text.map_or(0, str::len);
        let config = |config: &DescribedConfig| {
            let synonyms = config.synonyms.iter().filter(|_| self.synonyms);
            let synonyms = synonyms.map(|synonym| 8 + synonym.name.len() + text(synonym.value.as_deref()));
            let documentation = config.documentation.filter(|_| self.documentation);
            16 + config.name.len()
                + text(config.value.as_deref())
                + synonyms.sum::<usize>()
                + text(documentation)
        };
        configs.iter().map(config).sum()
    }

    fn result(&self, config: DescribedConfig) -> DescribeConfigsResourceResult {
        let synonyms = config.synonyms.into_iter().filter(|_| self.synonyms).map(|synonym| {
            DescribeConfigsSynonym { name: synonym.name, value: synonym.value, source: synonym.source.code() }
        });
        DescribeConfigsResourceResult {
            name: config.name,
            value: config.value,
            read_only: config.read_only,
            config_source: config.source.code(),
            is_sensitive: config.is_sensitive,
            synonyms: synonyms.collect(),
            config_type: config.config_type.code(),
            documentation: config.documentation.filter(|_| self.documentation).map(str::to_owned),
        }
    }
}
