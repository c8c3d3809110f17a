//! AlterConfigs (key 33), versions 0 to 2 (2 is flexible): replaces the whole configuration of resources.
//! Deprecated since KIP-339 for IncrementalAlterConfigs, with which it shares its verdicts
//! (`serve/verdicts.rs`).
//!
//! Changes to the settings of this broker or of all brokers are checked here against this broker's own file
//! before they are forwarded (Kafka's `ConfigAdminManager`). The controller handles the changes that pass,
//! and all other resources. The answer combines both, in the order of the request.

use super::Call;
use super::entry::{Api, Controller, Forwarding, later};
use super::serve::verdicts::{ConfigVerdict, alter, check_own, check_tls, note_changes, shown};
use crate::audit::{Changes, ClusterChange, listed};
use crate::authorization::Permissions;
use crate::broker::Broker;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_config::AlterError;
use thalweg_metadata::ConfigResourceKind;
use thalweg_wire::ApiKey;
use thalweg_wire::request::alter_configs_request::AlterConfigsResource;
use thalweg_wire::request::{AlterConfigsRequest, AlterConfigsResponse};

pub(super) const API: Api =
    Api::new(ApiKey::AlterConfigs, 0..=2, Controller, |b, c, d| later(b, c, d, handle))
        .forwarded(Forwarding::Changes)
        .changing::<AlterConfigsRequest>();

/// Checks the changes to this broker's settings, and forwards the rest.
pub async fn handle(
    broker: Arc<Broker>,
    call: Arc<Call>,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let check = |resource: &AlterConfigsResource| check(&broker, &call.permissions, resource).map(|()| None);
    alter(&broker.registered.controller, &call, request, check).await
}

fn check(
    broker: &Broker,
    permissions: &Permissions,
    resource: &AlterConfigsResource,
) -> Result<(), ConfigVerdict> {
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
            check_tls(broker, permissions, &config)
        }
        ConfigResourceKind::Topic | ConfigResourceKind::ClientMetrics | ConfigResourceKind::Group => Ok(()),
        ConfigResourceKind::BrokerLogger | ConfigResourceKind::Unknown(_) => {
            Err(ConfigVerdict::invalid(format!("Unknown resource type {}", resource.resource_type)))
        }
    }
}

impl ClusterChange for AlterConfigsRequest {
    fn describe(&self, answer: &AlterConfigsResponse, changes: &mut Changes<'_>) {
        if self.validate_only {
            return;
        }
        let resources = self.resources.iter().map(|resource| {
            let kind = ConfigResourceKind::from_id(resource.resource_type);
            let configs =
                resource.configs.iter().map(|c| (&*c.name, shown(kind, &c.name, c.value.as_deref())));
            (resource.resource_type, &*resource.resource_name, listed(configs))
        });
        let outcomes = answer.responses.iter().map(|result| {
            (result.resource_type, &*result.resource_name, result.error_code, result.error_message.as_deref())
        });
        note_changes(changes, resources, outcomes);
    }
}
