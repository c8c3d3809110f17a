//! CreatePartitions.

use thalweg_hash::{HashMap, HashSet};
use thalweg_metadata::{BrokerId, PartitionIndex, VersionedRecord};
use thalweg_security::acl::Operation;
use thalweg_security::quota::MutationQuota;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::create_partitions_request::CreatePartitionsTopic;
use thalweg_wire::request::create_partitions_response::CreatePartitionsTopicResult;
use thalweg_wire::request::{CreatePartitionsRequest, CreatePartitionsResponse};

use super::authorization::counted;
use super::entry::Access::ByResource;
use super::entry::{Api, Call, ELEMENTS_MAX, Mutate};
use super::{ApiError, Outcome, RECORDS_PER_REQUEST_MAX, State};
use crate::request_context::RequestContext;

pub(super) const APIS: &[Api] =
    &[Api::mutating::<CreatePartitionsRequest>(ByResource).anywhere(ELEMENTS_MAX).forwarded()];

impl Mutate for CreatePartitionsRequest {
    fn decide(
        &self,
        state: &mut State,
        call: &Call,
        quota: &mut MutationQuota,
    ) -> Result<Outcome<Self::Response>, ApiError> {
        state.create_partitions_for(&call.by, self, quota)
    }
}

impl State {
    /// CreatePartitions: ALTER on each topic.
    fn create_partitions_for(
        &mut self,
        by: &RequestContext,
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

    pub fn create_partitions(
        &mut self,
        request: &CreatePartitionsRequest,
        quota: &mut MutationQuota,
    ) -> Result<Outcome<CreatePartitionsResponse>, ApiError> {
        let mut seen: HashMap<&str, usize> = HashMap::default();
        for topic in &request.topics {
            *seen.entry(&topic.name).or_insert(0) += 1;
        }
        let mut records = Vec::new();
        let mut results: Vec<CreatePartitionsTopicResult> = Vec::new();
        let mut refused: HashSet<&str> = HashSet::default();
        for topic in &request.topics {
            let outcome = if seen[topic.name.as_str()] > 1 {
                if !refused.insert(&topic.name) {
                    continue;
                }
                Err(ApiError::new(ErrorCode::InvalidRequest, "Duplicate topic name."))
            } else {
                self.add_partitions(topic, quota)
            };
            let (error_code, error_message) = match outcome {
                Ok(added) => {
                    records.extend(added);
                    if records.len() > RECORDS_PER_REQUEST_MAX {
                        return Err(super::too_many_records());
                    }
                    (0, None)
                }
                Err(error) => (error.code.code(), error.message),
            };
            results.push(CreatePartitionsTopicResult { name: topic.name.clone(), error_code, error_message });
        }
        if request.validate_only {
            records.clear();
        }
        Ok(Outcome::new(records, CreatePartitionsResponse { results, ..Default::default() }))
    }

    fn add_partitions(
        &mut self,
        request: &CreatePartitionsTopic,
        quota: &mut MutationQuota,
    ) -> Result<Vec<VersionedRecord>, ApiError> {
        let topic = self.image.topic(&request.name).cloned();
        let topic = topic.ok_or_else(|| ApiError::plain(ErrorCode::UnknownTopicOrPartition))?;
        let present = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        let refuse = |message: String| Err(ApiError::new(ErrorCode::InvalidPartitions, message));
        if request.count == present {
            return refuse(format!("Topic already has {present} partition(s)."));
        }
        if request.count < present {
            return refuse(format!(
                "The topic {} currently has {present} partition(s); {} would not be an increase.",
                request.name, request.count
            ));
        }
        let additional = request.count - present;
        let added = usize::try_from(additional).unwrap_or(usize::MAX);
        if let Some(assignments) = &request.assignments
            && assignments.len() != added
        {
            let message = format!(
                "Attempted to add {additional} additional partition(s), but only {} assignment(s) were specified.",
                assignments.len()
            );
            return Err(ApiError::new(ErrorCode::InvalidReplicaAssignment, message));
        }
        if added > RECORDS_PER_REQUEST_MAX {
            return Err(super::too_many_records());
        }
        quota.take(added)?;
        let factor = topic.partitions.values().next().map_or(1, |partition| partition.replicas.len());
        let placed = match &request.assignments {
            Some(assignments) => {
                let placed: Vec<_> =
                    assignments.iter().map(|assignment| BrokerId::list(&assignment.broker_ids)).collect();
                for replicas in &placed {
                    self.check_assignment(replicas, Some(factor))?;
                }
                placed
            }
            None => self.place(additional, i16::try_from(factor).unwrap_or(i16::MAX))?,
        };
        let version = self.metadata_version();
        let mut records = Vec::with_capacity(placed.len());
        for (index, replicas) in (present..).map(PartitionIndex).zip(placed) {
            let Some(partition) = self.new_partition(replicas) else {
                return Err(if request.assignments.is_some() {
                    let message = format!(
                        "All brokers specified in the manual partition assignment for partition {index} are fenced \
                         or in controlled shutdown."
                    );
                    ApiError::new(ErrorCode::InvalidReplicaAssignment, message)
                } else {
                    let message = format!(
                        "Unable to replicate the partition {factor} time(s): All brokers are currently fenced or in \
                         controlled shutdown."
                    );
                    ApiError::new(ErrorCode::InvalidReplicationFactor, message)
                });
            };
            records.push(partition.to_record(topic.id, index, version));
        }
        Ok(records)
    }
}
