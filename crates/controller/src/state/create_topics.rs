//! CreateTopics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thalweg_hash::HashMap;
use thalweg_metadata::{
    BrokerId, ConfigMap, ConfigResource, LeaderRecoveryState, PartitionEpoch, PartitionIndex,
    PartitionRegistration, VersionedRecord,
};
use thalweg_security::acl::{LoggedOutcomes, Operation, ResourceType};
use thalweg_security::quota::MutationQuota;
use thalweg_wire::metadata::TopicRecord;
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use thalweg_wire::request::{CreateTopicsRequest, CreateTopicsResponse};
use thalweg_wire::{ErrorCode, MetadataRecord, Uuid};

use super::authorization::counted;
use super::configs::ConfigEdit;
use super::entry::Access::ByResource;
use super::entry::{Api, Call, ELEMENTS_MAX, Mutate};
use super::names;
use super::partition_change::default_directory;
use super::{ApiError, CLUSTER_METADATA_TOPIC, Outcome, RECORDS_PER_REQUEST_MAX, State};
use crate::request_context::RequestContext;

pub(super) const APIS: &[Api] =
    &[Api::mutating::<CreateTopicsRequest>(ByResource).anywhere(ELEMENTS_MAX).forwarded()];

impl Mutate for CreateTopicsRequest {
    fn decide(
        &self,
        state: &mut State,
        call: &Call,
        quota: &mut MutationQuota,
    ) -> Result<Outcome<Self::Response>, ApiError> {
        state.create_topics_for(&call.by, self, quota)
    }
}

/// Maximum number of partitions created by one request (Kafka's `MAX_PARTITIONS_PER_BATCH`).
const PARTITIONS_PER_REQUEST_MAX: i64 = 10_000;

/// Topics by their names in metrics, to find collisions.
type Collisions = HashMap<String, Arc<str>>;

impl State {
    /// CreateTopics: CREATE on the cluster or on each topic; DESCRIBE_CONFIGS to get the new topic's
    /// settings.
    fn create_topics_for(
        &mut self,
        by: &RequestContext,
        request: &CreateTopicsRequest,
        quota: &mut MutationQuota,
    ) -> Result<Outcome<CreateTopicsResponse>, ApiError> {
        if self.is_open_to(by) {
            return self.create_topics(request, quota);
        }
        let seen = counted(request.topics.iter().map(|topic| topic.name.as_str()));
        // Repeated names and the metadata topic are refused by the decision, with or without a right.
        let is_requested = |name: &str| name != CLUSTER_METADATA_TOPIC && seen[name] == 1;
        let mut allowed = request.clone();
        if !self.may_on_all_topics(by, Operation::Create) {
            allowed.topics.retain(|topic| {
                !is_requested(&topic.name) || self.may_on_topic(by, Operation::Create, &topic.name)
            });
        }
        let (topics, describe) = (ResourceType::Topic, Operation::DescribeConfigs);
        let may_describe = |name: &str| self.may(by, LoggedOutcomes::IfAllowed, describe, topics, name);
        let requested =
            request.topics.iter().map(|topic| topic.name.as_str()).filter(|name| is_requested(name));
        let describable: BTreeSet<&str> = requested.filter(|name| may_describe(name)).collect();
        let kept: BTreeSet<&str> = allowed.topics.iter().map(|topic| topic.name.as_str()).collect();
        let refused: Vec<_> = request.topics.iter().filter(|t| !kept.contains(t.name.as_str())).collect();
        let mut outcome = self.create_topics(&allowed, quota)?;
        for topic in outcome.response.topics.iter_mut().filter(|topic| topic.error_code == 0) {
            if !describable.contains(topic.name.as_str()) {
                topic.topic_config_error_code = ErrorCode::TopicAuthorizationFailed.code();
                topic.num_partitions = -1;
                topic.replication_factor = -1;
                topic.configs = Some(Vec::new());
            }
        }
        outcome.response.topics.extend(refused.into_iter().map(|topic| CreatableTopicResult {
            name: topic.name.clone(),
            error_code: ErrorCode::TopicAuthorizationFailed.code(),
            error_message: Some("Authorization failed.".to_owned()),
            ..Default::default()
        }));
        Ok(outcome)
    }

    pub fn create_topics(
        &mut self,
        request: &CreateTopicsRequest,
        quota: &mut MutationQuota,
    ) -> Result<Outcome<CreateTopicsResponse>, ApiError> {
        let mut seen: HashMap<&str, usize> = HashMap::default();
        for topic in &request.topics {
            *seen.entry(&topic.name).or_insert(0) += 1;
        }
        let wanted: Vec<&CreatableTopic> = request
            .topics
            .iter()
            .filter(|t| seen[t.name.as_str()] == 1 && t.name != CLUSTER_METADATA_TOPIC)
            .collect();
        self.check_partition_total(&wanted)?;
        let collisions = self.collisions(&wanted);
        let mut records = Vec::new();
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in wanted {
            if records.len() > RECORDS_PER_REQUEST_MAX {
                return Err(super::too_many_records());
            }
            match self.create_topic(topic, &collisions, quota, &mut records) {
                Ok(result) => topics.push(result),
                Err(error) => topics.push(refused(&topic.name, error)),
            }
        }
        let mut answered: BTreeSet<&str> = BTreeSet::new();
        for topic in &request.topics {
            let name = topic.name.as_str();
            if seen[name] > 1 && answered.insert(name) {
                topics.push(refused(name, ApiError::new(ErrorCode::InvalidRequest, "Duplicate topic name.")));
            } else if name == CLUSTER_METADATA_TOPIC && answered.insert(name) {
                let message = format!("Creation of internal topic {name} is prohibited.");
                topics.push(refused(name, ApiError::new(ErrorCode::InvalidRequest, message)));
            }
        }
        if records.len() > RECORDS_PER_REQUEST_MAX {
            return Err(super::too_many_records());
        }
        if request.validate_only {
            records.clear();
        }
        Ok(Outcome::new(records, CreateTopicsResponse { topics, ..Default::default() }))
    }

    fn check_partition_total(&self, topics: &[&CreatableTopic]) -> Result<(), ApiError> {
        let count = |topic: &CreatableTopic| match topic.num_partitions {
            _ if !topic.assignments.is_empty() => i64::try_from(topic.assignments.len()).unwrap_or(i64::MAX),
            -1 => i64::from(self.default_num_partitions),
            count => i64::from(count.max(0)),
        };
        if topics.iter().map(|topic| count(topic)).fold(0, i64::saturating_add) > PARTITIONS_PER_REQUEST_MAX {
            let message = "Excessively large number of partitions per request.";
            return Err(ApiError::new(ErrorCode::PolicyViolation, message));
        }
        Ok(())
    }

    /// The existing topics by their names in metrics, if a requested name may collide.
    fn collisions(&self, wanted: &[&CreatableTopic]) -> Collisions {
        if !wanted.iter().any(|topic| names::has_collision_characters(&topic.name)) {
            return Collisions::default();
        }
        let topics = self.image.topics().iter();
        let named = topics.filter(|topic| names::has_collision_characters(&topic.name));
        named.map(|topic| (names::unify_collision_characters(&topic.name), topic.name.clone())).collect()
    }

    /// Checks a name against the existing topics. As in Kafka, two new topics of the same request may
    /// collide.
    fn check_new_name(&self, name: &str, collisions: &Collisions) -> Result<(), ApiError> {
        // An existing name gets TOPIC_ALREADY_EXISTS, even if the name is no longer valid.
        if self.image.topic(name).is_some() {
            let message = format!("Topic '{name}' already exists.");
            return Err(ApiError::new(ErrorCode::TopicAlreadyExists, message));
        }
        if let Some(message) = names::refusal(name) {
            return Err(ApiError::new(ErrorCode::InvalidTopicException, message));
        }
        if names::has_collision_characters(name)
            && let Some(other) = collisions.get(&names::unify_collision_characters(name))
        {
            let message = format!("Topic '{name}' collides with existing topic: {other}");
            return Err(ApiError::new(ErrorCode::InvalidTopicException, message));
        }
        Ok(())
    }

    fn create_topic(
        &mut self,
        topic: &CreatableTopic,
        collisions: &Collisions,
        quota: &mut MutationQuota,
        records: &mut Vec<VersionedRecord>,
    ) -> Result<CreatableTopicResult, ApiError> {
        let name = topic.name.as_str();
        self.check_new_name(name, collisions)?;
        let (overrides, config_records) = self.new_topic_configs(topic)?;
        let partitions = self.new_topic_partitions(topic)?;
        quota.take(partitions.len())?;
        let topic_id = Uuid::random();
        let mut result = CreatableTopicResult {
            name: topic.name.clone(),
            topic_id,
            num_partitions: i32::try_from(partitions.len()).expect("the number of partitions was checked"),
            replication_factor: i16::try_from(partitions[0].replicas.len()).unwrap_or(i16::MAX),
            error_message: None,
            ..Default::default()
        };
        result.configs = Some(self.described_configs(&overrides));
        let record = TopicRecord { name: topic.name.clone(), topic_id };
        records.push(VersionedRecord::new(MetadataRecord::Topic(record), 0));
        records.extend(config_records);
        let version = self.metadata_version();
        for (index, partition) in (0..).map(PartitionIndex).zip(&partitions) {
            records.push(partition.to_record(topic_id, index, version));
        }
        Ok(result)
    }

    fn new_topic_configs(
        &self,
        topic: &CreatableTopic,
    ) -> Result<(ConfigMap, Vec<VersionedRecord>), ApiError> {
        let null: Vec<&str> =
            topic.configs.iter().filter(|c| c.value.is_none()).map(|c| c.name.as_str()).collect();
        if !null.is_empty() {
            let message = format!("Null value not supported for topic configs: {}", null.join(","));
            return Err(ApiError::new(ErrorCode::InvalidConfig, message));
        }
        if topic.configs.is_empty() {
            return Ok((ConfigMap::new(), Vec::new()));
        }
        let operations: BTreeMap<String, ConfigEdit> = topic
            .configs
            .iter()
            .map(|c| (c.name.clone(), ConfigEdit::Set(c.value.clone().unwrap_or_default())))
            .collect();
        let overrides = topic
            .configs
            .iter()
            .map(|c| (c.name.clone(), c.value.clone().unwrap_or_default()))
            .collect::<ConfigMap>();
        let resource = ConfigResource::topic(&topic.name);
        let records = self.alter_resource(&resource, &operations, true)?;
        Ok((overrides, records))
    }

    fn new_topic_partitions(
        &mut self,
        topic: &CreatableTopic,
    ) -> Result<Vec<PartitionRegistration>, ApiError> {
        if !topic.assignments.is_empty() {
            return self.assigned_partitions(topic);
        }
        if topic.replication_factor < -1 || topic.replication_factor == 0 {
            let message = "Replication factor must be larger than 0, or -1 to use the default value.";
            return Err(ApiError::new(ErrorCode::InvalidReplicationFactor, message));
        }
        if topic.num_partitions < -1 || topic.num_partitions == 0 {
            let message = "Number of partitions was set to an invalid non-positive value.";
            return Err(ApiError::new(ErrorCode::InvalidPartitions, message));
        }
        let or = |value: i32, default: i32| if value == -1 { default } else { value };
        let partitions = or(topic.num_partitions, self.default_num_partitions);
        let factor = match topic.replication_factor {
            -1 => self.default_replication_factor,
            factor => factor,
        };
        let unable = |why: &str| {
            let message = format!("Unable to replicate the partition {factor} time(s): {why}");
            ApiError::new(ErrorCode::InvalidReplicationFactor, message)
        };
        let placed = self.place(partitions, factor);
        let placed = placed.map_err(|error| unable(error.message.as_deref().unwrap_or_default()))?;
        let mut registrations = Vec::with_capacity(placed.len());
        for replicas in placed {
            let registration = self.new_partition(replicas);
            let fenced = "All brokers are currently fenced or in controlled shutdown.";
            registrations.push(registration.ok_or_else(|| unable(fenced))?);
        }
        Ok(registrations)
    }

    fn assigned_partitions(&self, topic: &CreatableTopic) -> Result<Vec<PartitionRegistration>, ApiError> {
        if topic.replication_factor != -1 {
            let message =
                "A manual partition assignment was specified, but replication factor was not set to -1.";
            return Err(ApiError::new(ErrorCode::InvalidRequest, message));
        }
        if topic.num_partitions != -1 {
            let message = "A manual partition assignment was specified, but numPartitions was not set to -1.";
            return Err(ApiError::new(ErrorCode::InvalidRequest, message));
        }
        let refuse = |message: String| Err(ApiError::new(ErrorCode::InvalidReplicaAssignment, message));
        let mut partitions = BTreeMap::new();
        let mut replication_factor = None;
        for assignment in &topic.assignments {
            let index = assignment.partition_index;
            if partitions.contains_key(&index) {
                return refuse(format!("Found multiple manual partition assignments for partition {index}"));
            }
            let replicas = BrokerId::list(&assignment.broker_ids);
            self.check_assignment(&replicas, replication_factor)?;
            replication_factor = Some(replicas.len());
            let Some(registration) = self.new_partition(replicas) else {
                return refuse(format!(
                    "All brokers specified in the manual partition assignment for partition {index} are fenced or in \
                     controlled shutdown."
                ));
            };
            partitions.insert(index, registration);
        }
        if (0..).zip(partitions.keys()).any(|(expected, index)| expected != *index) {
            return refuse("partitions should be a consecutive 0-based integer sequence".to_owned());
        }
        Ok(partitions.into_values().collect())
    }

    /// Checks a manual assignment.
    pub(super) fn check_assignment(
        &self,
        replicas: &[BrokerId],
        replication_factor: Option<usize>,
    ) -> Result<(), ApiError> {
        let refuse = |message: String| Err(ApiError::new(ErrorCode::InvalidReplicaAssignment, message));
        if replicas.is_empty() {
            return refuse("The manual partition assignment includes an empty replica list.".to_owned());
        }
        let mut sorted = replicas.to_vec();
        sorted.sort_unstable();
        for (index, id) in sorted.iter().enumerate() {
            if self.image.broker(*id).is_none() {
                return refuse(format!(
                    "The manual partition assignment includes broker {id}, but no such broker is registered."
                ));
            }
            if index > 0 && sorted[index - 1] == *id {
                return refuse(format!(
                    "The manual partition assignment includes the broker {id} more than once."
                ));
            }
        }
        match replication_factor {
            Some(factor) if factor != replicas.len() => refuse(format!(
                "The manual partition assignment includes a partition with {} replica(s), but this is not consistent \
                 with previous partitions, which have {factor} replica(s).",
                replicas.len()
            )),
            _ => Ok(()),
        }
    }

    /// A new partition on these replicas; `None` if none of their brokers is active.
    pub(super) fn new_partition(&self, replicas: Vec<BrokerId>) -> Option<PartitionRegistration> {
        let isr: Vec<BrokerId> = replicas.iter().copied().filter(|id| self.is_active(*id)).collect();
        let leader = *isr.first()?;
        Some(PartitionRegistration {
            directories: replicas.iter().map(|id| default_directory(&self.image, *id)).collect(),
            replicas,
            isr,
            removing_replicas: Vec::new(),
            adding_replicas: Vec::new(),
            eligible_leader_replicas: Vec::new(),
            last_known_elr: Vec::new(),
            leader,
            leader_recovery_state: LeaderRecoveryState::Recovered,
            leader_epoch: 0,
            partition_epoch: PartitionEpoch(0),
        })
    }

    fn described_configs(&self, overrides: &ConfigMap) -> Vec<CreatableTopicConfigs> {
        let broker = self.config_map(&ConfigResource::broker(BrokerId(self.node_id)));
        let brokers = self.config_map(&ConfigResource::brokers());
        let configs = self.rules.effective_topic_configs(overrides, &broker, &brokers);
        configs
            .into_iter()
            .map(|config| CreatableTopicConfigs {
                name: config.name,
                value: config.value,
                read_only: config.read_only,
                config_source: config.source,
                is_sensitive: config.sensitive,
            })
            .collect()
    }
}

fn refused(name: &str, error: ApiError) -> CreatableTopicResult {
    CreatableTopicResult {
        name: name.to_owned(),
        error_code: error.code.code(),
        error_message: error.message,
        ..Default::default()
    }
}
