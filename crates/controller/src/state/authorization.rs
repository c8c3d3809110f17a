//! Who may do what to the resources that a request names (Kafka's `ControllerApis`): what may not be done is answered here, and
//! the rest is decided as ever. Whether somebody may use an API that is about the cluster is in the table of `dispatch`.

use std::collections::BTreeSet;

use thalweg_hash::HashMap;
use thalweg_metadata::ConfigResourceKind;
use thalweg_security::acl::{CLUSTER_NAME, Logged, Operation, ResourceType};
use thalweg_security::quota::MutationQuota;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::alter_configs_response::AlterConfigsResourceResponse as LegacyResult;
use thalweg_wire::request::create_partitions_response::CreatePartitionsTopicResult;
use thalweg_wire::request::create_topics_response::CreatableTopicResult;
use thalweg_wire::request::delete_topics_response::DeletableTopicResult;
use thalweg_wire::request::incremental_alter_configs_response::AlterConfigsResourceResponse;
use thalweg_wire::request::{
    AlterConfigsRequest, AlterConfigsResponse, CreatePartitionsRequest, CreatePartitionsResponse,
    CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};

use super::{ApiError, CLUSTER_METADATA_TOPIC, Outcome, State};
use crate::asker::Asker;
use crate::requester::Requester;

impl State {
    /// Whether somebody may do something to the cluster.
    pub fn may_on_cluster(&self, by: &Asker, operation: Operation) -> bool {
        self.may(by, Logged::Both, operation, ResourceType::Cluster, CLUSTER_NAME)
    }

    pub(super) fn may(
        &self,
        by: &Asker,
        logged: Logged,
        operation: Operation,
        kind: ResourceType,
        name: &str,
    ) -> bool {
        match &self.authorizer {
            None => true,
            Some(authorizer) => by.may(authorizer, logged, operation, kind, name),
        }
    }

    /// Whether nothing needs to be checked.
    fn is_open_to(&self, by: &Asker) -> bool {
        self.authorizer.is_none() || *by.requester() == Requester::ThisProcess
    }

    /// As [`State::may_on_cluster`], where a denial leaves the question to the topics.
    fn may_on_all_topics(&self, by: &Asker, operation: Operation) -> bool {
        self.may(by, Logged::IfAllowed, operation, ResourceType::Cluster, CLUSTER_NAME)
    }

    fn may_on_topic(&self, by: &Asker, operation: Operation, name: &str) -> bool {
        self.may(by, Logged::Both, operation, ResourceType::Topic, name)
    }

    /// CreateTopics: CREATE on the cluster or on each topic; DESCRIBE_CONFIGS to learn the new topic's settings.
    pub fn create_topics_for(
        &mut self,
        by: &Asker,
        request: &CreateTopicsRequest,
        quota: &mut MutationQuota,
    ) -> Result<Outcome<CreateTopicsResponse>, ApiError> {
        if self.is_open_to(by) {
            return self.create_topics(request, quota);
        }
        let seen = counted(request.topics.iter().map(|topic| topic.name.as_str()));
        // Repeated names and the metadata topic are refused as such, with or without a right.
        let is_asked = |name: &str| name != CLUSTER_METADATA_TOPIC && seen[name] == 1;
        let mut allowed = request.clone();
        if !self.may_on_all_topics(by, Operation::Create) {
            allowed.topics.retain(|topic| {
                !is_asked(&topic.name) || self.may_on_topic(by, Operation::Create, &topic.name)
            });
        }
        let (topics, describe) = (ResourceType::Topic, Operation::DescribeConfigs);
        let may_describe = |name: &str| self.may(by, Logged::IfAllowed, describe, topics, name);
        let asked = request.topics.iter().map(|topic| topic.name.as_str()).filter(|name| is_asked(name));
        let describable: BTreeSet<&str> = asked.filter(|name| may_describe(name)).collect();
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

    /// DeleteTopics: DELETE on the cluster or on each topic. Without DESCRIBE nobody learns which topics there are.
    pub fn delete_topics_for(
        &self,
        by: &Asker,
        request: &DeleteTopicsRequest,
        version: i16,
        quota: &mut MutationQuota,
    ) -> Result<Outcome<DeleteTopicsResponse>, ApiError> {
        if self.is_open_to(by) || self.may_on_all_topics(by, Operation::Delete) {
            return self.delete_topics(request, version, quota);
        }
        // An entry with a name and an id is refused as such, and repeats nothing.
        let by_name = request.topics.iter().filter(|topic| topic.topic_id.is_zero());
        let by_name = by_name.filter_map(|topic| topic.name.as_ref());
        let names = counted(request.topic_names.iter().chain(by_name).map(String::as_str));
        let ids = counted(request.topics.iter().filter(|topic| topic.name.is_none()).map(|t| t.topic_id));
        let once = names.iter().filter(|(_, count)| **count == 1).map(|(name, _)| *name);
        let by_id = ids.iter().filter(|(_, count)| **count == 1);
        let by_id = by_id.filter_map(|(id, _)| self.image.topic_by_id(*id)).map(|topic| &*topic.name);
        let asked: BTreeSet<&str> = once.chain(by_id).collect();
        let those = |operation| {
            let may = |name: &&str| self.may_on_topic(by, operation, name);
            asked.iter().copied().filter(may).collect::<BTreeSet<&str>>()
        };
        let (describable, deletable) = (those(Operation::Describe), those(Operation::Delete));
        let may_describe = |name: &str| describable.contains(name);
        let may_delete = |name: &str| deletable.contains(name);
        let mut refused = Vec::new();
        let mut is_allowed_name = |name: &String| {
            let is_unknown = self.image.topic(name).is_none();
            let is_allowed =
                names[name.as_str()] > 1 || may_describe(name) && (is_unknown || may_delete(name));
            if !is_allowed {
                refused.push(unauthorized_deletion(Some(name.clone()), Default::default()));
            }
            is_allowed
        };
        let mut allowed = request.clone();
        allowed.topic_names.retain(&mut is_allowed_name);
        allowed.topics.retain(|topic| match &topic.name {
            Some(name) => !topic.topic_id.is_zero() || is_allowed_name(name),
            None => true,
        });
        allowed.topics.retain(|topic| {
            let known = self.image.topic_by_id(topic.topic_id).filter(|_| topic.name.is_none());
            let Some(known) = known.filter(|known| ids[&topic.topic_id] == 1 && !may_delete(&known.name))
            else {
                return true;
            };
            let name = may_describe(&known.name).then(|| known.name.to_string());
            refused.push(unauthorized_deletion(name, topic.topic_id));
            false
        });
        let mut outcome = self.delete_topics(&allowed, version, quota)?;
        outcome.response.responses.extend(refused);
        Ok(outcome)
    }

    /// CreatePartitions: ALTER on each topic.
    pub fn create_partitions_for(
        &mut self,
        by: &Asker,
        request: &CreatePartitionsRequest,
        quota: &mut MutationQuota,
    ) -> Result<Outcome<CreatePartitionsResponse>, ApiError> {
        if self.is_open_to(by) {
            return self.create_partitions(request, quota);
        }
        let seen = counted(request.topics.iter().map(|topic| topic.name.as_str()));
        let (mut allowed, mut refused) = (request.clone(), Vec::new());
        allowed.topics.retain(|topic| {
            let is_allowed =
                seen[topic.name.as_str()] > 1 || self.may_on_topic(by, Operation::Alter, &topic.name);
            if !is_allowed {
                refused.push(CreatePartitionsTopicResult {
                    name: topic.name.clone(),
                    error_code: ErrorCode::TopicAuthorizationFailed.code(),
                    error_message: None,
                });
            }
            is_allowed
        });
        let mut outcome = self.create_partitions(&allowed, quota)?;
        outcome.response.results.extend(refused);
        Ok(outcome)
    }

    /// IncrementalAlterConfigs: as [`State::may_alter`] says, for each resource.
    pub fn incremental_alter_configs_for(
        &self,
        by: &Asker,
        request: &IncrementalAlterConfigsRequest,
    ) -> Result<Outcome<IncrementalAlterConfigsResponse>, ApiError> {
        if self.is_open_to(by) {
            return self.incremental_alter_configs(request);
        }
        let seen = counted(request.resources.iter().map(|r| (r.resource_type, r.resource_name.as_str())));
        let (mut allowed, mut refused) = (request.clone(), Vec::new());
        allowed.resources.retain(|resource| {
            let (kind, name) = (resource.resource_type, resource.resource_name.as_str());
            // Repeated ones are refused as such.
            let is_asked = seen[&(kind, name)] == 1;
            let refusal = is_asked.then(|| self.may_alter(by, kind, name).err()).flatten();
            let is_allowed = refusal.is_none();
            refused.extend(refusal.map(|error| AlterConfigsResourceResponse {
                error_code: error.code.code(),
                error_message: error.message,
                resource_type: kind,
                resource_name: name.to_owned(),
            }));
            is_allowed
        });
        let mut outcome = self.incremental_alter_configs(&allowed)?;
        outcome.response.responses.extend(refused);
        Ok(outcome)
    }

    /// AlterConfigs: as [`State::may_alter`] says, for each resource.
    pub fn alter_configs_for(
        &self,
        by: &Asker,
        request: &AlterConfigsRequest,
    ) -> Result<Outcome<AlterConfigsResponse>, ApiError> {
        if self.is_open_to(by) {
            return self.alter_configs(request);
        }
        let seen = counted(request.resources.iter().map(|r| (r.resource_type, r.resource_name.as_str())));
        let (mut allowed, mut refused) = (request.clone(), Vec::new());
        allowed.resources.retain(|resource| {
            let (kind, name) = (resource.resource_type, resource.resource_name.as_str());
            // Repeated ones are refused as such.
            let is_asked = seen[&(kind, name)] == 1;
            let refusal = is_asked.then(|| self.may_alter(by, kind, name).err()).flatten();
            let is_allowed = refusal.is_none();
            refused.extend(refusal.map(|error| LegacyResult {
                error_code: error.code.code(),
                error_message: error.message,
                resource_type: kind,
                resource_name: name.to_owned(),
            }));
            is_allowed
        });
        let mut outcome = self.alter_configs(&allowed)?;
        outcome.response.responses.extend(refused);
        Ok(outcome)
    }

    /// Whether somebody may alter the settings of a resource. One of an unknown kind is refused as such, by the decision.
    fn may_alter(&self, by: &Asker, kind: i8, name: &str) -> Result<(), ApiError> {
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
        if self.may(by, Logged::Both, operation, kind, name) { Ok(()) } else { Err(ApiError::plain(code)) }
    }
}

fn counted<T: std::hash::Hash + Eq>(names: impl Iterator<Item = T>) -> HashMap<T, usize> {
    let mut counts = HashMap::default();
    for name in names {
        *counts.entry(name).or_insert(0) += 1;
    }
    counts
}

fn unauthorized_deletion(name: Option<String>, topic_id: thalweg_wire::Uuid) -> DeletableTopicResult {
    let error = ApiError::plain(ErrorCode::TopicAuthorizationFailed);
    DeletableTopicResult { name, topic_id, error_code: error.code.code(), error_message: error.message }
}
