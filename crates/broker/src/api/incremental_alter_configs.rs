//! IncrementalAlterConfigs (key 44), versions 0 and 1 (KIP-339; 1 is flexible): changes single keys of
//! resources: set, delete, append to lists, subtract from lists.
//!
//! Changes are checked and forwarded like those of AlterConfigs; the controller checks the client's
//! permissions. Levels of loggers (KIP-412) belong to this broker and are changed here. Departure: an unknown
//! operation fails only its resource; in Kafka it fails the whole request.

use super::Call;
use super::entry::{Api, ByResource, Forwarding, later};
use super::serve::loggers;
use super::serve::verdicts::{ConfigVerdict, alter, check_own, check_tls, is_id, note_changes, shown};
use crate::audit::{Changes, ClusterChange, listed};
use crate::authorization::Permissions;
use crate::broker::Broker;
use std::sync::Arc;
use thalweg_config::AlterError;
use thalweg_config::alter::{AlterOp, Alteration};
use thalweg_hash::HashSet;
use thalweg_metadata::ConfigResourceKind;
use thalweg_security::acl::Operation;
use thalweg_wire::request::incremental_alter_configs_request::AlterConfigsResource;
use thalweg_wire::request::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api =
    Api::new(ApiKey::IncrementalAlterConfigs, 0..=1, ByResource, |b, c, d| later(b, c, d, handle))
        .forwarded(Forwarding::Changes)
        .changing::<IncrementalAlterConfigsRequest>();

/// Checks the changes of this broker, and forwards the rest.
pub async fn handle(
    broker: Arc<Broker>,
    call: Arc<Call>,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let validate_only = request.validate_only;
    let check = |resource: &AlterConfigsResource| check(&broker, &call.permissions, resource, validate_only);
    alter(&broker.registered.controller, &call, request, check).await
}

/// The verdict on a resource; `None` leaves the resource to the controller.
fn check(
    broker: &Broker,
    permissions: &Permissions,
    resource: &AlterConfigsResource,
    validate_only: bool,
) -> Result<Option<ConfigVerdict>, ConfigVerdict> {
    let alterations = alterations(resource)?;
    let name = resource.resource_name.as_str();
    match ConfigResourceKind::from_id(resource.resource_type) {
        ConfigResourceKind::Broker => {
            check_own(broker.node_id, name)?;
            let config = broker.config().alter_broker(!name.is_empty(), &alterations)?;
            check_tls(broker, permissions, &config)?;
            Ok(None)
        }
        ConfigResourceKind::BrokerLogger => {
            // The controller never sees changes to loggers.
            if !permissions.may_on_cluster(Operation::AlterConfigs) {
                return Err(ConfigVerdict::bare(ErrorCode::ClusterAuthorizationFailed));
            }
            if !is_id(broker.node_id, name)? {
                let message = format!("Unexpected node id. Expected {}, but received {name}", broker.node_id);
                return Err(ConfigVerdict::invalid(message));
            }
            loggers::alter(broker.loggers.as_deref(), alterations, validate_only)?;
            Ok(Some(ConfigVerdict::FINE))
        }
        ConfigResourceKind::Topic | ConfigResourceKind::ClientMetrics | ConfigResourceKind::Group => Ok(None),
        ConfigResourceKind::Unknown(kind) => {
            Err(ConfigVerdict::invalid(format!("Unknown resource type {kind}")))
        }
    }
}

/// The changes to a resource, if they are well-formed.
fn alterations(resource: &AlterConfigsResource) -> Result<Vec<Alteration>, ConfigVerdict> {
    let mut names = HashSet::default();
    if !resource.configs.iter().all(|config| names.insert(config.name.as_str())) {
        return Err(AlterError::DuplicateKeys.into());
    }
    let mut alterations = Vec::with_capacity(resource.configs.len());
    let mut nulls = Vec::new();
    for config in &resource.configs {
        let op = AlterOp::from_code(config.config_operation)?;
        if op != AlterOp::Delete && config.value.is_none() {
            nulls.push(config.name.clone());
        }
        alterations.push(Alteration { name: config.name.clone(), op, value: config.value.clone() });
    }
    if nulls.is_empty() { Ok(alterations) } else { Err(AlterError::NullValues { names: nulls }.into()) }
}

impl ClusterChange for IncrementalAlterConfigsRequest {
    fn describe(&self, answer: &IncrementalAlterConfigsResponse, changes: &mut Changes<'_>) {
        if self.validate_only {
            return;
        }
        let resources = self.resources.iter().map(|resource| {
            let kind = ConfigResourceKind::from_id(resource.resource_type);
            let configs = resource.configs.iter().map(|config| {
                let value = shown(kind, &config.name, config.value.as_deref());
                let text = match config.config_operation {
                    0 => value,
                    1 => "deleted".to_owned(),
                    2 => format!("+{value}"),
                    3 => format!("-{value}"),
                    other => format!("{value} (operation {other})"),
                };
                (&*config.name, text)
            });
            (resource.resource_type, &*resource.resource_name, listed(configs))
        });
        let outcomes = answer.responses.iter().map(|result| {
            (result.resource_type, &*result.resource_name, result.error_code, result.error_message.as_deref())
        });
        note_changes(changes, resources, outcomes);
    }
}
