//! Verdicts on changes of configurations, for AlterConfigs and IncrementalAlterConfigs: a verdict of this
//! broker or of the controller for each resource of a request, in its order.

use super::forward;
use crate::api::Call;
use crate::audit::Changes;
use crate::authorization::Permissions;
use crate::broker::Broker;
use std::collections::BTreeMap;
use thalweg_audit::Action;
use thalweg_config::{AlterError, BrokerConfig, table};
use thalweg_hash::HashMap;
use thalweg_membership::ControllerLink;
use thalweg_metadata::{BrokerId, ConfigResourceKind};
use thalweg_security::acl::Operation;
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Request};

/// The answer for one resource: error code and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigVerdict {
    pub code: i16,
    pub message: Option<String>,
}

impl ConfigVerdict {
    /// Nothing is wrong.
    pub const FINE: ConfigVerdict = ConfigVerdict { code: 0, message: None };

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

impl From<AlterError> for ConfigVerdict {
    fn from(error: AlterError) -> Self {
        Self { code: error.code(), message: Some(error.to_string()) }
    }
}

/// A resource of a request: its kind and its name.
pub type ResourceKey = (i8, String);

/// A request that changes configurations.
pub trait AlterRequest: Request {
    type Resource;

    fn resources(&mut self) -> &mut Vec<Self::Resource>;
    fn key(resource: &Self::Resource) -> (i8, &str);
    /// The controller's verdicts.
    fn verdicts(response: Self::Response) -> HashMap<ResourceKey, ConfigVerdict>;
    fn response(verdicts: Vec<(ResourceKey, ConfigVerdict)>) -> Self::Response;
}

macro_rules! alter_request {
    ($request:ident, $requested:ident, $response:ident, $answered:ident) => {
        impl AlterRequest for $request {
            type Resource = $requested::AlterConfigsResource;

            fn resources(&mut self) -> &mut Vec<Self::Resource> {
                &mut self.resources
            }

            fn key(resource: &Self::Resource) -> (i8, &str) {
                (resource.resource_type, &resource.resource_name)
            }

            fn verdicts(response: $response) -> HashMap<ResourceKey, ConfigVerdict> {
                let verdict = |answer: $answered::AlterConfigsResourceResponse| {
                    let verdict = ConfigVerdict { code: answer.error_code, message: answer.error_message };
                    ((answer.resource_type, answer.resource_name), verdict)
                };
                response.responses.into_iter().map(verdict).collect()
            }

            fn response(verdicts: Vec<(ResourceKey, ConfigVerdict)>) -> $response {
                let answer = |((resource_type, resource_name), verdict): (ResourceKey, ConfigVerdict)| {
                    $answered::AlterConfigsResourceResponse {
                        error_code: verdict.code,
                        error_message: verdict.message,
                        resource_type,
                        resource_name,
                    }
                };
                let responses = verdicts.into_iter().map(answer).collect();
                $response { throttle_time_ms: 0, responses }
            }
        }
    };
}

alter_request!(AlterConfigsRequest, alter_configs_request, AlterConfigsResponse, alter_configs_response);
alter_request!(
    IncrementalAlterConfigsRequest,
    incremental_alter_configs_request,
    IncrementalAlterConfigsResponse,
    incremental_alter_configs_response
);

/// Answers a request. Resources for which `check` gives no verdict are forwarded to the controller.
pub async fn alter<R: AlterRequest>(
    controller: &ControllerLink,
    call: &Call,
    mut request: R,
    check: impl Fn(&R::Resource) -> Result<Option<ConfigVerdict>, ConfigVerdict>,
) -> R::Response {
    let resources = std::mem::take(request.resources());
    let verdicts = Verdicts::decide(&resources, R::key, check);
    *request.resources() = verdicts.rest(resources);
    let answers = if request.resources().is_empty() {
        Ok(HashMap::default())
    } else {
        forward::send(controller, call, &request).await.map(R::verdicts)
    };
    R::response(verdicts.complete(answers))
}

/// Answers for resources in the order of the request: this broker's verdicts, and the controller's for the
/// rest.
struct Verdicts {
    decided: Vec<(ResourceKey, Option<ConfigVerdict>)>,
}

impl Verdicts {
    /// Decides on each resource that this broker can decide on. A resource must appear once.
    fn decide<R>(
        resources: &[R],
        name: impl Fn(&R) -> (i8, &str),
        check: impl Fn(&R) -> Result<Option<ConfigVerdict>, ConfigVerdict>,
    ) -> Self {
        let mut counts: HashMap<(i8, &str), usize> = HashMap::default();
        for resource in resources {
            *counts.entry(name(resource)).or_insert(0) += 1;
        }
        let decided = resources.iter().map(|resource| {
            let (kind, text) = name(resource);
            let verdict = match counts[&(kind, text)] {
                1 => check(resource).unwrap_or_else(Some),
                _ => Some(ConfigVerdict::invalid("Each resource must appear at most once.")),
            };
            ((kind, text.to_owned()), verdict)
        });
        Self { decided: decided.collect() }
    }

    /// The resources that are for the controller.
    fn rest<R>(&self, resources: Vec<R>) -> Vec<R> {
        let rest = resources.into_iter().zip(&self.decided).filter(|(_, (_, verdict))| verdict.is_none());
        rest.map(|(resource, _)| resource).collect()
    }

    /// Adds the controller's answers, and returns the answers for all.
    fn complete(
        self,
        answers: Result<HashMap<ResourceKey, ConfigVerdict>, ErrorCode>,
    ) -> Vec<(ResourceKey, ConfigVerdict)> {
        let of_controller = |named: &ResourceKey| match &answers {
            Ok(answers) => answers
                .get(named)
                .cloned()
                .unwrap_or_else(|| ConfigVerdict::bare(ErrorCode::UnknownServerError)),
            Err(error) => ConfigVerdict::bare(*error),
        };
        let complete = self.decided.into_iter().map(|(named, verdict)| {
            let verdict = verdict.unwrap_or_else(|| of_controller(&named));
            (named, verdict)
        });
        complete.collect()
    }
}

/// Checks the TLS settings of this broker in a changed configuration, which reads the files that they name.
/// For a principal that may not change them nothing is read: the controller refuses the change.
pub fn check_tls(
    broker: &Broker,
    permissions: &Permissions,
    config: &BrokerConfig,
) -> Result<(), ConfigVerdict> {
    if !permissions.may_also_on_cluster(Operation::AlterConfigs) {
        return Ok(());
    }
    let check = || broker.secured.check(config).map_err(|error| ConfigVerdict::invalid(error.to_string()));
    broker.log_dirs.disk().work_in_place(check)
}

/// Refuses a change to another broker's settings, and another spelling of this broker's id: settings are
/// stored under the name, and applied by the id. The empty name means all brokers.
pub fn check_own(node_id: BrokerId, name: &str) -> Result<(), ConfigVerdict> {
    if name.is_empty() || is_id(node_id, name)? {
        return Ok(());
    }
    Err(ConfigVerdict::invalid(format!("Unexpected broker id, expected {node_id}, but received {name}")))
}

/// Returns true if a name is the id of a broker.
pub fn is_id(node_id: BrokerId, name: &str) -> Result<bool, ConfigVerdict> {
    Ok(id_of(name)? == node_id.0 && node_id.to_string() == name)
}

pub fn id_of(name: &str) -> Result<i32, ConfigVerdict> {
    name.parse().map_err(|_| ConfigVerdict::invalid(format!("Node id must be an integer, but it is: {name}")))
}

/// Notes the change of each resource, described by its settings, with its outcome.
pub fn note_changes<'a>(
    changes: &mut Changes<'_>,
    resources: impl Iterator<Item = (i8, &'a str, String)>,
    outcomes: impl Iterator<Item = (i8, &'a str, i16, Option<&'a str>)>,
) {
    let outcomes: BTreeMap<_, _> =
        outcomes.map(|(kind, name, code, message)| ((kind, name), (code, message))).collect();
    for (kind, name, configs) in resources {
        let outcome = outcomes.get(&(kind, name)).copied().unwrap_or((0, None));
        let kind = in_words(ConfigResourceKind::from_id(kind));
        changes.note(Action::Update, kind, name, configs, outcome);
    }
}

/// A value for audit events, hidden if it is or may be a secret. Unknown broker keys may hold secrets.
pub fn shown(kind: ConfigResourceKind, name: &str, value: Option<&str>) -> String {
    let is_secret =
        kind == ConfigResourceKind::Broker && table::settable_key(name).is_none_or(|key| key.is_sensitive());
    match (is_secret, value) {
        (_, None) => "null".to_owned(),
        (true, Some(_)) => "[hidden]".to_owned(),
        (false, Some(value)) => value.to_owned(),
    }
}

fn in_words(kind: ConfigResourceKind) -> &'static str {
    match kind {
        ConfigResourceKind::Topic => "Topic",
        ConfigResourceKind::Broker => "Broker",
        ConfigResourceKind::BrokerLogger => "BrokerLogger",
        ConfigResourceKind::ClientMetrics => "ClientMetrics",
        ConfigResourceKind::Group => "Group",
        ConfigResourceKind::Unknown(_) => "Unknown",
    }
}
