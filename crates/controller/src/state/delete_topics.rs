//! DeleteTopics, by name and by id.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_metadata::VersionedRecord;
use thalweg_security::acl::Operation;
use thalweg_security::quota::MutationQuota;
use thalweg_wire::metadata::RemoveTopicRecord;
use thalweg_wire::request::delete_topics_response::DeletableTopicResult;
use thalweg_wire::request::{DeleteTopicsRequest, DeleteTopicsResponse};
use thalweg_wire::{ErrorCode, MetadataRecord, Uuid};

use super::authorization::counted;
use super::entry::Access::ByResource;
use super::entry::{Api, Call, ELEMENTS_MAX, Mutate};
use super::{ApiError, Claim, Outcome, RECORDS_PER_REQUEST_MAX, State};
use crate::request_context::RequestContext;

pub(super) const APIS: &[Api] = &[Api::mutating::<DeleteTopicsRequest>(ByResource)
    .anywhere(ELEMENTS_MAX)
    .claiming(Claim::Urgent)
    .forwarded()];

impl Mutate for DeleteTopicsRequest {
    fn decide(
        &self,
        state: &mut State,
        call: &Call,
        quota: &mut MutationQuota,
    ) -> Result<Outcome<Self::Response>, ApiError> {
        state.delete_topics_for(&call.by, self, call.version, quota)
    }
}

/// Topics requested once, and repeatedly.
#[derive(Default)]
struct RequestedTopics<T: Ord> {
    once: BTreeSet<T>,
    twice: BTreeSet<T>,
}

impl<T: Ord + Clone> RequestedTopics<T> {
    fn add(&mut self, wanted: T) {
        if self.twice.contains(&wanted) {
            return;
        }
        if !self.once.insert(wanted.clone()) {
            self.once.remove(&wanted);
            self.twice.insert(wanted);
        }
    }
}

impl State {
    /// DeleteTopics: DELETE on the cluster or on each topic. Without DESCRIBE, the answer does not reveal if
    /// a topic exists.
    pub fn delete_topics_for(
        &self,
        by: &RequestContext,
        request: &DeleteTopicsRequest,
        version: i16,
        quota: &mut MutationQuota,
    ) -> Result<Outcome<DeleteTopicsResponse>, ApiError> {
        if self.is_open_to(by) || self.may_on_all_topics(by, Operation::Delete) {
            return self.delete_topics(request, version, quota);
        }
        // An entry with a name and an id is refused for that, and does not count as a repetition.
        let by_name = request.topics.iter().filter(|topic| topic.topic_id.is_zero());
        let by_name = by_name.filter_map(|topic| topic.name.as_ref());
        let names = counted(request.topic_names.iter().chain(by_name).map(String::as_str));
        let ids = counted(request.topics.iter().filter(|topic| topic.name.is_none()).map(|t| t.topic_id));
        let once = names.iter().filter(|(_, count)| **count == 1).map(|(name, _)| *name);
        let by_id = ids.iter().filter(|(_, count)| **count == 1);
        let by_id = by_id.filter_map(|(id, _)| self.image.topic_by_id(*id)).map(|topic| &*topic.name);
        let requested: BTreeSet<&str> = once.chain(by_id).collect();
        let those = |operation| {
            let may = |name: &&str| self.may_on_topic(by, operation, name);
            requested.iter().copied().filter(may).collect::<BTreeSet<&str>>()
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

    pub fn delete_topics(
        &self,
        request: &DeleteTopicsRequest,
        version: i16,
        quota: &mut MutationQuota,
    ) -> Result<Outcome<DeleteTopicsResponse>, ApiError> {
        if !self.delete_topics {
            return Err(match version {
                ..3 => {
                    ApiError::new(ErrorCode::InvalidRequest, "This version does not support topic deletion.")
                }
                _ => ApiError::plain(ErrorCode::TopicDeletionDisabled),
            });
        }
        let mut responses = Vec::new();
        let (mut names, mut ids) = (RequestedTopics::<String>::default(), RequestedTopics::<Uuid>::default());
        request.topic_names.iter().for_each(|name| names.add(name.clone()));
        for topic in &request.topics {
            match (&topic.name, topic.topic_id) {
                (None, id) if id.is_zero() => {
                    let error = invalid("Neither topic name nor id were specified.");
                    responses.push(result(None, id, Err(error)));
                }
                (None, id) => ids.add(id),
                (Some(name), id) if id.is_zero() => names.add(name.clone()),
                (Some(name), id) => {
                    let error = invalid("You may not specify both topic name and topic id.");
                    responses.push(result(Some(name), id, Err(error)));
                }
            }
        }
        for name in &names.twice {
            responses.push(result(Some(name), Uuid::ZERO, Err(invalid("Duplicate topic name."))));
        }
        for id in &ids.twice {
            responses.push(result(None, *id, Err(invalid("Duplicate topic id."))));
        }
        let found = self.find_topics(&names, &ids, &mut responses);
        if found.len() > RECORDS_PER_REQUEST_MAX {
            return Err(super::too_many_records());
        }
        let mut records = Vec::with_capacity(found.len());
        for (id, name) in &found {
            let partitions = self.image.topic_by_id(*id).map_or(0, |topic| topic.partitions.len());
            let outcome = quota.take(partitions).map_err(ApiError::from);
            if outcome.is_ok() {
                let record = RemoveTopicRecord { topic_id: *id };
                records.push(VersionedRecord::new(MetadataRecord::RemoveTopic(record), 0));
            }
            responses.push(result(Some(name), *id, outcome));
        }
        Ok(Outcome::new(records, DeleteTopicsResponse { responses, ..Default::default() }))
    }

    fn find_topics(
        &self,
        names: &RequestedTopics<String>,
        ids: &RequestedTopics<Uuid>,
        responses: &mut Vec<DeletableTopicResult>,
    ) -> BTreeMap<Uuid, String> {
        let mut found = BTreeMap::new();
        for id in &ids.once {
            match self.image.topic_by_id(*id) {
                Some(topic) => {
                    found.insert(*id, topic.name.to_string());
                }
                None => {
                    responses.push(result(None, *id, Err(ApiError::plain(ErrorCode::UnknownTopicId))));
                }
            }
        }
        for name in &names.once {
            let Some(topic) = self.image.topic(name) else {
                let error = ApiError::plain(ErrorCode::UnknownTopicOrPartition);
                responses.push(result(Some(name), Uuid::ZERO, Err(error)));
                continue;
            };
            if ids.twice.contains(&topic.id) || found.insert(topic.id, name.clone()).is_some() {
                found.remove(&topic.id);
                let error = invalid("The provided topic name maps to an ID that was already supplied.");
                responses.push(result(Some(name), topic.id, Err(error)));
            }
        }
        found
    }
}

fn invalid(message: &str) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, message)
}

fn result(name: Option<&str>, topic_id: Uuid, outcome: Result<(), ApiError>) -> DeletableTopicResult {
    let (error_code, error_message) = match outcome {
        Ok(()) => (0, None),
        Err(error) => (error.code.code(), error.message),
    };
    DeletableTopicResult { name: name.map(str::to_owned), topic_id, error_code, error_message }
}

fn unauthorized_deletion(name: Option<String>, topic_id: Uuid) -> DeletableTopicResult {
    let error = ApiError::plain(ErrorCode::TopicAuthorizationFailed);
    DeletableTopicResult { name, topic_id, error_code: error.code.code(), error_message: error.message }
}
