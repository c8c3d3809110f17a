//! IncrementalAlterConfigs and AlterConfigs (Kafka's `ConfigurationControlManager`).

use std::collections::BTreeMap;

use thalweg_hash::HashMap;
use thalweg_metadata::{BrokerId, ConfigMap, ConfigResource, ConfigResourceKind, VersionedRecord, edit_list};
use thalweg_security::acl::{CLUSTER_NAME, LoggedOutcomes, Operation, ResourceType};
use thalweg_wire::metadata::{ClearElrRecord, ConfigRecord, PartitionChangeRecord};
use thalweg_wire::request::alter_configs_response::AlterConfigsResourceResponse as LegacyResult;
use thalweg_wire::request::incremental_alter_configs_response::AlterConfigsResourceResponse;
use thalweg_wire::request::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};
use thalweg_wire::{ErrorCode, MetadataRecord};

use super::authorization::counted;
use super::entry::Access::ByResource;
use super::entry::{Api, Call, Decide, ELEMENTS_MAX};
use super::{ApiError, Claim, MIN_INSYNC_REPLICAS, Moment, Outcome, RECORDS_PER_REQUEST_MAX, State, names};
use crate::request_context::RequestContext;

pub(super) const APIS: &[Api] = &[
    Api::new::<AlterConfigsRequest>(ByResource).anywhere(ELEMENTS_MAX).claiming(Claim::Limited).forwarded(),
    Api::new::<IncrementalAlterConfigsRequest>(ByResource)
        .anywhere(ELEMENTS_MAX)
        .claiming(Claim::Limited)
        .forwarded(),
];

impl Decide for AlterConfigsRequest {
    fn decide(&self, state: &mut State, call: &Call, _: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        state.alter_configs_for(&call.by, self)
    }
}

impl Decide for IncrementalAlterConfigsRequest {
    fn decide(&self, state: &mut State, call: &Call, _: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        state.incremental_alter_configs_for(&call.by, self)
    }
}

/// Maximum length of a value in bytes: the maximum of a string in a record.
const VALUE_BYTES_MAX: usize = 32_767;

/// The change of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConfigEdit {
    Set(String),
    Delete,
    Append(String),
    Subtract(String),
}

/// The outcome for one resource of a request.
struct ResourceOutcome<'a> {
    kind: i8,
    name: &'a str,
    code: i16,
    message: Option<String>,
}

impl State {
    /// IncrementalAlterConfigs, with the right of [`State::may_alter`] on each resource.
    fn incremental_alter_configs_for(
        &self,
        by: &RequestContext,
        request: &IncrementalAlterConfigsRequest,
    ) -> Result<Outcome<IncrementalAlterConfigsResponse>, ApiError> {
        if self.is_open_to(by) {
            return self.incremental_alter_configs(request);
        }
        let (resources, refused) = self.divide(by, &request.resources, |resource| {
            (resource.resource_type, resource.resource_name.as_str())
        });
        let mut outcome =
            self.incremental_alter_configs(&IncrementalAlterConfigsRequest { resources, ..*request })?;
        outcome.response.responses.extend(refused.into_iter().map(|(resource, error)| {
            AlterConfigsResourceResponse {
                error_code: error.code.code(),
                error_message: error.message,
                resource_type: resource.resource_type,
                resource_name: resource.resource_name.clone(),
            }
        }));
        Ok(outcome)
    }

    /// AlterConfigs, with the right of [`State::may_alter`] on each resource.
    fn alter_configs_for(
        &self,
        by: &RequestContext,
        request: &AlterConfigsRequest,
    ) -> Result<Outcome<AlterConfigsResponse>, ApiError> {
        if self.is_open_to(by) {
            return self.alter_configs(request);
        }
        let (resources, refused) = self.divide(by, &request.resources, |resource| {
            (resource.resource_type, resource.resource_name.as_str())
        });
        let mut outcome = self.alter_configs(&AlterConfigsRequest { resources, ..*request })?;
        outcome.response.responses.extend(refused.into_iter().map(|(resource, error)| LegacyResult {
            error_code: error.code.code(),
            error_message: error.message,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.clone(),
        }));
        Ok(outcome)
    }

    /// Divides resources into those that are decided, and those whose settings the requester may not alter,
    /// with the refusals. Repeated resources are decided, which refuses them.
    fn divide<'a, R: Clone>(
        &self,
        by: &RequestContext,
        resources: &'a [R],
        key: fn(&R) -> (i8, &str),
    ) -> (Vec<R>, Vec<(&'a R, ApiError)>) {
        let seen = counted(resources.iter().map(key));
        let (mut decided, mut refused) = (Vec::new(), Vec::new());
        for resource in resources {
            let (kind, name) = key(resource);
            let is_unique = seen[&(kind, name)] == 1;
            match is_unique.then(|| self.may_alter(by, kind, name)).and_then(Result::err) {
                Some(error) => refused.push((resource, error)),
                None => decided.push(resource.clone()),
            }
        }
        (decided, refused)
    }

    /// Checks the right to alter the settings of a resource. The decision refuses unknown kinds.
    fn may_alter(&self, by: &RequestContext, kind: i8, name: &str) -> Result<(), ApiError> {
        const BROKER: i8 = 4;
        const BROKER_LOGGER: i8 = 8;
        const CLIENT_METRICS: i8 = 16;
        const GROUP: i8 = 32;
        const TOPIC: i8 = 2;
        debug_assert_eq!(ConfigResourceKind::Topic.id(), TOPIC);
        let (operation, kind, name, code) = match kind {
            TOPIC => {
                (Operation::AlterConfigs, ResourceType::Topic, name, ErrorCode::TopicAuthorizationFailed)
            }
            GROUP => {
                (Operation::AlterConfigs, ResourceType::Group, name, ErrorCode::GroupAuthorizationFailed)
            }
            BROKER | CLIENT_METRICS => (
                Operation::AlterConfigs,
                ResourceType::Cluster,
                CLUSTER_NAME,
                ErrorCode::ClusterAuthorizationFailed,
            ),
            BROKER_LOGGER => (
                Operation::ClusterAction,
                ResourceType::Cluster,
                CLUSTER_NAME,
                ErrorCode::ClusterAuthorizationFailed,
            ),
            _ => return Ok(()),
        };
        if self.may(by, LoggedOutcomes::Both, operation, kind, name) {
            Ok(())
        } else {
            Err(ApiError::plain(code))
        }
    }

    pub fn incremental_alter_configs(
        &self,
        request: &IncrementalAlterConfigsRequest,
    ) -> Result<Outcome<IncrementalAlterConfigsResponse>, ApiError> {
        let (records, altered) = self.alter_each(
            &request.resources,
            request.validate_only,
            |r| (r.resource_type, r.resource_name.as_str()),
            |_, r| {
                r.configs.iter().map(|c| operation(c.config_operation, &c.name, c.value.clone())).collect()
            },
        )?;
        let responses = altered.into_iter().map(|altered| AlterConfigsResourceResponse {
            error_code: altered.code,
            error_message: altered.message,
            resource_type: altered.kind,
            resource_name: altered.name.to_owned(),
        });
        let responses = responses.collect();
        Ok(Outcome::new(records, IncrementalAlterConfigsResponse { responses, ..Default::default() }))
    }

    /// AlterConfigs: settings that are not listed are removed.
    pub fn alter_configs(
        &self,
        request: &AlterConfigsRequest,
    ) -> Result<Outcome<AlterConfigsResponse>, ApiError> {
        let (records, altered) = self.alter_each(
            &request.resources,
            request.validate_only,
            |r| (r.resource_type, r.resource_name.as_str()),
            |existing, r| {
                let mut operations: BTreeMap<String, ConfigEdit> =
                    existing.keys().map(|name| (name.clone(), ConfigEdit::Delete)).collect();
                for config in &r.configs {
                    let Some(value) = config.value.clone() else {
                        let message = format!("Null value not supported for configs: {}", config.name);
                        return Err(ApiError::new(ErrorCode::InvalidConfig, message));
                    };
                    operations.insert(config.name.clone(), ConfigEdit::Set(value));
                }
                Ok(operations)
            },
        )?;
        let responses = altered.into_iter().map(|altered| LegacyResult {
            error_code: altered.code,
            error_message: altered.message,
            resource_type: altered.kind,
            resource_name: altered.name.to_owned(),
        });
        let responses = responses.collect();
        Ok(Outcome::new(records, AlterConfigsResponse { responses, ..Default::default() }))
    }

    /// Alters each resource of a request separately: an error in one does not affect the others. Repeated
    /// resources get one error. `operations` returns the changes of a resource, given its current settings.
    fn alter_each<'a, R>(
        &self,
        resources: &'a [R],
        validate_only: bool,
        name: impl Fn(&'a R) -> (i8, &'a str),
        operations: impl Fn(&ConfigMap, &'a R) -> Result<BTreeMap<String, ConfigEdit>, ApiError>,
    ) -> Result<(Vec<VersionedRecord>, Vec<ResourceOutcome<'a>>), ApiError> {
        let mut left: HashMap<(i8, &str), usize> = HashMap::default();
        for resource in resources {
            *left.entry(name(resource)).or_insert(0) += 1;
        }
        let mut records = Vec::new();
        let mut altered = Vec::new();
        for requested in resources {
            let (kind, name) = name(requested);
            let outcome = match left.remove(&(kind, name)) {
                // The first occurrence of the resource was refused.
                None => continue,
                Some(1) => resource(kind, name).and_then(|resource| {
                    let operations = operations(&self.config_map(&resource), requested)?;
                    self.alter_resource(&resource, &operations, false)
                }),
                Some(_) => Err(ApiError::new(ErrorCode::InvalidRequest, "Duplicate resource.")),
            };
            let (code, message) = super::add_records(&mut records, outcome)?;
            altered.push(ResourceOutcome { kind, name, code, message });
        }
        self.clear_eligible(&mut records);
        if records.len() > RECORDS_PER_REQUEST_MAX {
            return Err(super::too_many_records());
        }
        if validate_only {
            records.clear();
        }
        Ok((records, altered))
    }

    /// Eligibility depends on `min.insync.replicas`: after a change, no replica is eligible until the next
    /// change of the partition (KIP-966). While a partition has no leader, nothing is committed, and its
    /// eligible replicas are kept: Kafka drops the eligible replicas, and the partition stays leaderless
    /// forever.
    fn clear_eligible(&self, records: &mut Vec<VersionedRecord>) {
        if !self.has_elr() {
            return;
        }
        let mut clear = Vec::new();
        for record in &*records {
            if let MetadataRecord::Config(config) = &record.record
                && config.name == MIN_INSYNC_REPLICAS
            {
                let is_topic = config.resource_type == ConfigResourceKind::Topic.id();
                // A broker setting or the default of all brokers affects all topics.
                let topic_name = if is_topic { config.resource_name.clone() } else { String::new() };
                let keep = self.eligible_without_leader(&topic_name);
                let record = MetadataRecord::ClearElr(ClearElrRecord { topic_name });
                clear.push(VersionedRecord::new(record, 0));
                clear.extend(keep);
            }
        }
        records.extend(clear);
    }

    /// The records that preserve the eligible replicas of leaderless partitions, in one topic or in all.
    fn eligible_without_leader(&self, topic_name: &str) -> Vec<VersionedRecord> {
        let mut records = Vec::new();
        let topics = self.image.topics().sorted().into_iter();
        for topic in topics.filter(|topic| topic_name.is_empty() || *topic.name == *topic_name) {
            for (index, partition) in topic.partitions.iter().filter(|(_, partition)| !partition.has_leader())
            {
                let some = |list: &[BrokerId]| (!list.is_empty()).then(|| BrokerId::numbers(list));
                let record = PartitionChangeRecord {
                    partition_id: index.0,
                    topic_id: topic.id,
                    eligible_leader_replicas: some(&partition.eligible_leader_replicas),
                    last_known_elr: some(&partition.last_known_elr),
                    ..Default::default()
                };
                if record.eligible_leader_replicas.is_some() || record.last_known_elr.is_some() {
                    let version = self.metadata_version().partition_record();
                    records.push(VersionedRecord::new(MetadataRecord::PartitionChange(record), version));
                }
            }
        }
        records
    }

    /// With eligible leader replicas, all brokers must agree on `min.insync.replicas`: the cluster has a
    /// value, and no single broker has one.
    fn check_min_isr(&self, resource: &ConfigResource, value: Option<&String>) -> Result<(), ApiError> {
        if resource.kind != ConfigResourceKind::Broker || !self.has_elr() {
            return Ok(());
        }
        let refuse = |message: &str| Err(ApiError::new(ErrorCode::InvalidConfig, message));
        if !resource.name.is_empty() {
            return refuse("Broker-level min.insync.replicas cannot be altered while ELR is enabled.");
        }
        if value.is_none() {
            return refuse("Cluster-level min.insync.replicas cannot be removed while ELR is enabled.");
        }
        Ok(())
    }

    /// The records that make it safe to keep eligible leader replicas: see [`State::check_min_isr`].
    pub(super) fn elr_safety_records(&self) -> Vec<VersionedRecord> {
        let record = |broker: &str, value: Option<String>| {
            let record = ConfigRecord {
                resource_type: ConfigResourceKind::Broker.id(),
                resource_name: broker.to_owned(),
                name: MIN_INSYNC_REPLICAS.to_owned(),
                value,
            };
            VersionedRecord::new(MetadataRecord::Config(record), 0)
        };
        let mut records = Vec::new();
        let configs = self.image.configs();
        if configs.value(&ConfigResource::brokers(), MIN_INSYNC_REPLICAS).is_none() {
            let default = self.rules.default_value(ConfigResourceKind::Topic, MIN_INSYNC_REPLICAS);
            records.push(record("", Some(default.unwrap_or_else(|| "1".to_owned()))));
        }
        for (resource, set) in configs.iter() {
            let is_broker = resource.kind == ConfigResourceKind::Broker && !resource.name.is_empty();
            if is_broker && set.contains_key(MIN_INSYNC_REPLICAS) {
                records.push(record(&resource.name, None));
            }
        }
        records
    }

    /// The records that apply operations to a resource, if the resulting configuration is valid.
    pub(super) fn alter_resource(
        &self,
        resource: &ConfigResource,
        operations: &BTreeMap<String, ConfigEdit>,
        is_new: bool,
    ) -> Result<Vec<VersionedRecord>, ApiError> {
        let existing = if is_new { Default::default() } else { self.config_map(resource) };
        let mut configs: ConfigMap = (*existing).clone();
        let mut records = Vec::new();
        for (name, operation) in operations {
            let current = existing.get(name);
            let value = self.operate(resource.kind, name, current, operation)?;
            if value.as_ref().is_some_and(|value| value.len() > VALUE_BYTES_MAX) {
                let message = format!(
                    "The configuration value cannot be added because it exceeds the maximum value size of \
                     {VALUE_BYTES_MAX} bytes."
                );
                return Err(ApiError::new(ErrorCode::InvalidConfig, message));
            }
            if name == MIN_INSYNC_REPLICAS {
                self.check_min_isr(resource, value.as_ref())?;
            }
            // For brokers a record is written even without a change, so that Apache Kafka's brokers
            // read their files again (KAFKA-14136). This project's watch the files.
            if value.as_ref() != current || resource.kind == ConfigResourceKind::Broker {
                let record = ConfigRecord {
                    resource_type: resource.kind.id(),
                    resource_name: resource.name.clone(),
                    name: name.clone(),
                    value: value.clone(),
                };
                records.push(VersionedRecord::new(MetadataRecord::Config(record), 0));
            }
            match value {
                Some(value) => configs.insert(name.clone(), value),
                None => configs.remove(name),
            };
        }
        self.check_resource(resource, is_new)?;
        let checked = self.rules.validate(resource, &configs, &existing);
        checked.map_err(|refusal| ApiError::new(refusal.code, refusal.message))?;
        Ok(records)
    }

    fn operate(
        &self,
        kind: ConfigResourceKind,
        name: &str,
        current: Option<&String>,
        operation: &ConfigEdit,
    ) -> Result<Option<String>, ApiError> {
        let (verb, text, append) = match operation {
            ConfigEdit::Set(value) => return Ok(Some(value.clone())),
            ConfigEdit::Delete => return Ok(None),
            ConfigEdit::Append(text) => ("APPEND", text, true),
            ConfigEdit::Subtract(text) => ("SUBTRACT", text, false),
        };
        if !self.rules.is_list(kind, name) {
            let message = format!("Can't {verb} to key {name} because its type is not LIST.");
            return Err(ApiError::new(ErrorCode::InvalidConfig, message));
        }
        let list = current.cloned().or_else(|| self.rules.default_value(kind, name)).unwrap_or_default();
        Ok(Some(edit_list(&list, text, append)))
    }

    fn check_resource(&self, resource: &ConfigResource, is_new: bool) -> Result<(), ApiError> {
        let invalid = |message: &str| Err(ApiError::new(ErrorCode::InvalidRequest, message));
        let name = resource.name.as_str();
        match resource.kind {
            ConfigResourceKind::Topic => {
                if name.is_empty() {
                    return invalid("Default topic resources are not allowed.");
                }
                if let Some(message) = names::refusal(name) {
                    return Err(ApiError::new(ErrorCode::InvalidTopicException, message));
                }
                if !is_new && self.image.topic(name).is_none() {
                    let message = format!("The topic '{name}' does not exist.");
                    return Err(ApiError::new(ErrorCode::UnknownTopicOrPartition, message));
                }
                Ok(())
            }
            ConfigResourceKind::Broker if name.is_empty() => Ok(()),
            ConfigResourceKind::Broker => match name.parse::<i32>() {
                Err(_) => invalid("Unable to parse broker name as a base 10 number."),
                Ok(id) if id < 0 => invalid("Invalid negative broker ID."),
                Ok(id) if self.image.broker(BrokerId(id)).is_none() && id != self.node_id => {
                    let message = format!("No node with id {id} found.");
                    Err(ApiError::new(ErrorCode::BrokerIdNotRegistered, message))
                }
                Ok(_) => Ok(()),
            },
            ConfigResourceKind::Group if name.is_empty() => {
                invalid("Default group resources are not allowed.")
            }
            ConfigResourceKind::Group | ConfigResourceKind::ClientMetrics => Ok(()),
            ConfigResourceKind::BrokerLogger => invalid("Unexpected resource type BROKER_LOGGER."),
            ConfigResourceKind::Unknown(_) => invalid("Unexpected resource type UNKNOWN."),
        }
    }
}

fn resource(kind: i8, name: &str) -> Result<ConfigResource, ApiError> {
    match ConfigResourceKind::from_id(kind) {
        ConfigResourceKind::Unknown(_) => {
            let message = format!("Unknown resource type {kind}.");
            Err(ApiError::new(ErrorCode::UnsupportedVersion, message))
        }
        kind => Ok(ConfigResource { kind, name: name.to_owned() }),
    }
}

/// An operation of IncrementalAlterConfigs, with the name of its setting.
fn operation(id: i8, name: &str, value: Option<String>) -> Result<(String, ConfigEdit), ApiError> {
    let operation = match (id, value) {
        (1, _) => ConfigEdit::Delete,
        (_, None) => {
            let message = format!("Null value not supported for : {name}");
            return Err(ApiError::new(ErrorCode::InvalidConfig, message));
        }
        (0, Some(value)) => ConfigEdit::Set(value),
        (2, Some(value)) => ConfigEdit::Append(value),
        (3, Some(value)) => ConfigEdit::Subtract(value),
        (other, Some(_)) => {
            let message = format!("Unknown operation type {other} for {name}.");
            return Err(ApiError::new(ErrorCode::InvalidRequest, message));
        }
    };
    Ok((name.to_owned(), operation))
}
