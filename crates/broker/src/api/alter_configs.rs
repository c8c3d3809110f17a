//! AlterConfigs (key 33), versions 0 to 2 (2 is flexible): replaces the whole configuration of resources. Deprecated since
//! KIP-339 for IncrementalAlterConfigs, whose checks are here as well, where both have them.
//!
//! Changes of this broker's settings, or of those of all brokers, are checked here against its own file before they
//! are forwarded (Kafka's `ConfigAdminManager`). The controller handles those that pass, and all others. The answer
//! combines both, in the order of the request.

use super::Call;
use super::entry::{Api, Controller, Forwarding, later};
use super::serve::forward;
use crate::audit::{Changes, ClusterChange, listed};
use crate::broker::Broker;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_audit::Action;
use thalweg_config::{AlterError, table};
use thalweg_hash::HashMap;
use thalweg_metadata::{BrokerId, ConfigResourceKind};
use thalweg_wire::request::alter_configs_request::AlterConfigsResource;
use thalweg_wire::request::alter_configs_response::AlterConfigsResourceResponse;
use thalweg_wire::request::{AlterConfigsRequest, AlterConfigsResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api =
    Api::new(ApiKey::AlterConfigs, 0..=2, Controller, |b, c, d| later(b, c, d, handle))
        .forwarded(Forwarding::Changes)
        .changing::<AlterConfigsRequest>();

/// The answer for one resource: the code, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub code: i16,
    pub message: Option<String>,
}

impl Verdict {
    /// Nothing is wrong.
    pub const FINE: Verdict = Verdict { code: 0, message: None };

    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code: code.code(), message: Some(message.into()) }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    pub fn bare(code: ErrorCode) -> Self {
        Self { code: code.code(), message: None }
    }
}

impl From<AlterError> for Verdict {
    fn from(error: AlterError) -> Self {
        Self { code: error.code(), message: Some(error.to_string()) }
    }
}

/// A resource of a request: its kind and its name.
pub(super) type Named = (i8, String);

/// Answers for resources in the order of the request: those that were decided here, the rest by the controller.
pub(super) struct Verdicts {
    decided: Vec<(Named, Option<Verdict>)>,
}

impl Verdicts {
    /// Decides about each resource, if it can be decided here. A resource must appear once.
    pub fn decide<R>(
        resources: &[R],
        name: impl Fn(&R) -> (i8, &str),
        check: impl Fn(&R) -> Result<Option<Verdict>, Verdict>,
    ) -> Self {
        let mut counts: HashMap<(i8, &str), usize> = HashMap::default();
        for resource in resources {
            *counts.entry(name(resource)).or_insert(0) += 1;
        }
        let decided = resources.iter().map(|resource| {
            let (kind, text) = name(resource);
            let verdict = match counts[&(kind, text)] {
                1 => check(resource).unwrap_or_else(Some),
                _ => Some(Verdict::invalid("Each resource must appear at most once.")),
            };
            ((kind, text.to_owned()), verdict)
        });
        Self { decided: decided.collect() }
    }

    /// The resources that are for the controller.
    pub fn rest<R>(&self, resources: Vec<R>) -> Vec<R> {
        let rest = resources.into_iter().zip(&self.decided).filter(|(_, (_, verdict))| verdict.is_none());
        rest.map(|(resource, _)| resource).collect()
    }

    /// Adds the controller's answers, and returns the answers for all.
    pub fn complete(self, answers: Result<HashMap<Named, Verdict>, ErrorCode>) -> Vec<(Named, Verdict)> {
        let of_controller = |named: &Named| match &answers {
            Ok(answers) => {
                answers.get(named).cloned().unwrap_or_else(|| Verdict::bare(ErrorCode::UnknownServerError))
            }
            Err(error) => Verdict::bare(*error),
        };
        let complete = self.decided.into_iter().map(|(named, verdict)| {
            let verdict = verdict.unwrap_or_else(|| of_controller(&named));
            (named, verdict)
        });
        complete.collect()
    }
}

/// A change of a broker must be one of this broker, or of all.
pub(super) fn check_own(node_id: BrokerId, name: &str) -> Result<(), Verdict> {
    if name.is_empty() || id_of(name)? == node_id.0 {
        return Ok(());
    }
    Err(Verdict::invalid(format!("Unexpected broker id, expected {node_id}, but received {name}")))
}

pub(super) fn id_of(name: &str) -> Result<i32, Verdict> {
    name.parse().map_err(|_| Verdict::invalid(format!("Node id must be an integer, but it is: {name}")))
}

/// Checks the changes of this broker, and forwards the rest.
pub async fn handle(
    broker: Arc<Broker>,
    call: Arc<Call>,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let verdicts = Verdicts::decide(
        &request.resources,
        |resource| (resource.resource_type, resource.resource_name.as_str()),
        |resource| check(&broker, resource).map(|()| None),
    );
    let rest = AlterConfigsRequest { resources: verdicts.rest(request.resources), ..request };
    let answers = if rest.resources.is_empty() {
        Ok(HashMap::default())
    } else {
        let verdict = |answer: AlterConfigsResourceResponse| {
            let verdict = Verdict { code: answer.error_code, message: answer.error_message };
            ((answer.resource_type, answer.resource_name), verdict)
        };
        let sent = forward::send(&broker.registered.controller, &call, &rest).await;
        sent.map(|response: AlterConfigsResponse| response.responses.into_iter().map(verdict).collect())
    };
    let responses =
        verdicts.complete(answers).into_iter().map(|((resource_type, resource_name), verdict)| {
            AlterConfigsResourceResponse {
                error_code: verdict.code,
                error_message: verdict.message,
                resource_type,
                resource_name,
            }
        });
    AlterConfigsResponse { throttle_time_ms: 0, responses: responses.collect() }
}

fn check(broker: &Broker, resource: &AlterConfigsResource) -> Result<(), Verdict> {
    let mut values = BTreeMap::new();
    let mut nulls = Vec::new();
    for config in &resource.configs {
        match &config.value {
            Some(value) => values.insert(config.name.clone(), value.clone()),
            None => {
                nulls.push(config.name.clone());
                None
            }
        };
    }
    if values.len() + nulls.len() < resource.configs.len() {
        return Err(AlterError::DuplicateKeys.into());
    }
    if !nulls.is_empty() {
        return Err(AlterError::NullValues { names: nulls }.into());
    }
    let name = resource.resource_name.as_str();
    match ConfigResourceKind::from_id(resource.resource_type) {
        ConfigResourceKind::Broker => {
            check_own(broker.node_id, name)?;
            let config = broker.config().validate_dynamic(!name.is_empty(), &values)?;
            broker.secured.check(&config).map_err(|error| Verdict::invalid(error.to_string()))
        }
        ConfigResourceKind::Topic | ConfigResourceKind::ClientMetrics | ConfigResourceKind::Group => Ok(()),
        ConfigResourceKind::BrokerLogger | ConfigResourceKind::Unknown(_) => {
            Err(Verdict::invalid(format!("Unknown resource type {}", resource.resource_type)))
        }
    }
}

impl ClusterChange for AlterConfigsRequest {
    fn describe(&self, answer: &AlterConfigsResponse, changes: &mut Changes<'_>) {
        if self.validate_only {
            return;
        }
        let endings: BTreeMap<_, _> = answer
            .responses
            .iter()
            .map(|r| ((r.resource_type, &*r.resource_name), (r.error_code, r.error_message.as_deref())))
            .collect();
        for resource in &self.resources {
            let kind = ConfigResourceKind::from_id(resource.resource_type);
            let configs =
                resource.configs.iter().map(|c| (&*c.name, shown(kind, &c.name, c.value.as_deref())));
            let ending = endings.get(&(resource.resource_type, &*resource.resource_name)).copied();
            let name = &resource.resource_name;
            changes.note(Action::Update, in_words(kind), name, listed(configs), ending.unwrap_or((0, None)));
        }
    }
}

/// A value, unless it is a secret or may be one: keys of brokers that are not known here may be anything.
pub(super) fn shown(kind: ConfigResourceKind, name: &str, value: Option<&str>) -> String {
    let is_secret =
        kind == ConfigResourceKind::Broker && table::settable_key(name).is_none_or(|key| key.is_sensitive());
    match (is_secret, value) {
        (_, None) => "null".to_owned(),
        (true, Some(_)) => "[hidden]".to_owned(),
        (false, Some(value)) => value.to_owned(),
    }
}

pub(super) fn in_words(kind: ConfigResourceKind) -> &'static str {
    match kind {
        ConfigResourceKind::Topic => "Topic",
        ConfigResourceKind::Broker => "Broker",
        ConfigResourceKind::BrokerLogger => "BrokerLogger",
        ConfigResourceKind::ClientMetrics => "ClientMetrics",
        ConfigResourceKind::Group => "Group",
        ConfigResourceKind::Unknown(_) => "Unknown",
    }
}
