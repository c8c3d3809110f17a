//! Who may do what to the resources that a request names (Kafka's `ControllerApis`): what may not be done is answered here, and
//! the rest is decided as ever. Whether somebody may use an API that is about the cluster is in the table of `dispatch`.

use std::collections::BTreeSet;

use thalweg_hash::HashMap;
use thalweg_metadata::ConfigResourceKind;
use thalweg_security::acl::{CLUSTER_NAME, Operation, ResourceType};
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
use crate::requester::Requester;

impl State {
    /// Whether somebody may do something to the cluster.
    pub fn may_on_cluster(&self, requester: &Requester, operation: Operation) -> bool {
        self.may(requester, operation, ResourceType::Cluster, CLUSTER_NAME)
    }

    pub(super) fn may(
        &self,
        requester: &Requester,
        operation: Operation,
        kind: ResourceType,
        name: &str,
    ) -> bool {
        match (&self.authorizer, requester) {
            (None, _) | (_, Requester::ThisProcess) => true,
            (Some(authorizer), Requester::Peer { principal, host }) => {
                authorizer.authorize(principal, host, operation, kind, name).is_allowed
            }
        }
    }

    /// Whether nothing needs to be checked.
    fn is_open_to(&self, requester: &Requester) -> bool {
        self.authorizer.is_none() || *requester == Requester::ThisProcess
    }

    fn may_on_topic(&self, requester: &Requester, operation: Operation, name: &str) -> bool {
        self.may(requester, operation, ResourceType::Topic, name)
    }

    /// CreateTopics: CREATE on the cluster or on each topic; DESCRIBE_CONFIGS to learn the new topic's settings.
    pub fn create_topics_for(
        &mut self,
        requester: &Requester,
        request: &CreateTopicsRequest,
        quota: &mut MutationQuota,
    ) -> Result<Outcome<CreateTopicsResponse>, ApiError> {
        if self.is_open_to(requester) {
            return self.create_topics(request, quota);
        }
        let mut allowed = request.clone();
        if !self.may_on_cluster(requester, Operation::Create) {
            let seen = counted(request.topics.iter().map(|topic| topic.name.as_str()));
            // Repeated names and the metadata topic are refused as such, whoever asks.
            allowed.topics.retain(|topic| {
                topic.name == CLUSTER_METADATA_TOPIC
                    || seen[topic.name.as_str()] > 1
                    || self.may_on_topic(requester, Operation::Create, &topic.name)
            });
        }
        let kept: BTreeSet<&str> = allowed.topics.iter().map(|topic| topic.name.as_str()).collect();
        let refused: Vec<_> = request.topics.iter().filter(|t| !kept.contains(t.name.as_str())).collect();
        let mut outcome = self.create_topics(&allowed, quota)?;
        for topic in outcome.response.topics.iter_mut().filter(|topic| topic.error_code == 0) {
            if !self.may_on_topic(requester, Operation::DescribeConfigs, &topic.name) {
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
        requester: &Requester,
        request: &DeleteTopicsRequest,
        version: i16,
        quota: &mut MutationQuota,
    ) -> Result<Outcome<DeleteTopicsResponse>, ApiError> {
        if self.is_open_to(requester) || self.may_on_cluster(requester, Operation::Delete) {
            return self.delete_topics(request, version, quota);
        }
        // An entry with a name and an id is refused as such, and repeats nothing.
        let by_name = request.topics.iter().filter(|topic| topic.topic_id.is_zero());
        let by_name = by_name.filter_map(|topic| topic.name.as_ref());
        let names = counted(request.topic_names.iter().chain(by_name).map(String::as_str));
        let ids = counted(request.topics.iter().filter(|topic| topic.name.is_none()).map(|t| t.topic_id));
        let may_describe = |name: &str| self.may_on_topic(requester, Operation::Describe, name);
        let may_delete = |name: &str| self.may_on_topic(requester, Operation::Delete, name);
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
        requester: &Requester,
        request: &CreatePartitionsRequest,
        quota: &mut MutationQuota,
    ) -> Result<Outcome<CreatePartitionsResponse>, ApiError> {
        if self.is_open_to(requester) {
            return self.create_partitions(request, quota);
        }
        let seen = counted(request.topics.iter().map(|topic| topic.name.as_str()));
        let (mut allowed, mut refused) = (request.clone(), Vec::new());
        allowed.topics.retain(|topic| {
            let is_allowed =
                seen[topic.name.as_str()] > 1 || self.may_on_topic(requester, Operation::Alter, &topic.name);
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
        requester: &Requester,
        request: &IncrementalAlterConfigsRequest,
    ) -> Result<Outcome<IncrementalAlterConfigsResponse>, ApiError> {
        if self.is_open_to(requester) {
            return self.incremental_alter_configs(request);
        }
        let seen = counted(request.resources.iter().map(|r| (r.resource_type, r.resource_name.as_str())));
        let (mut allowed, mut refused) = (request.clone(), Vec::new());
        allowed.resources.retain(|resource| {
            let (kind, name) = (resource.resource_type, resource.resource_name.as_str());
            let refusal = self.may_alter(requester, kind, name).err().filter(|_| seen[&(kind, name)] == 1);
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
        requester: &Requester,
        request: &AlterConfigsRequest,
    ) -> Result<Outcome<AlterConfigsResponse>, ApiError> {
        if self.is_open_to(requester) {
            return self.alter_configs(request);
        }
        let seen = counted(request.resources.iter().map(|r| (r.resource_type, r.resource_name.as_str())));
        let (mut allowed, mut refused) = (request.clone(), Vec::new());
        allowed.resources.retain(|resource| {
            let (kind, name) = (resource.resource_type, resource.resource_name.as_str());
            let refusal = self.may_alter(requester, kind, name).err().filter(|_| seen[&(kind, name)] == 1);
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
    fn may_alter(&self, requester: &Requester, kind: i8, name: &str) -> Result<(), ApiError> {
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
        if self.may(requester, operation, kind, name) { Ok(()) } else { Err(ApiError::plain(code)) }
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
