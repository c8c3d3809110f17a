//! OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete: resolves topics by name or id, and answers
//! for missing topics without the group.

use super::GroupCoordinator;
use super::bounds;
use crate::answer::GroupAnswer;
use crate::error::{MembershipError, ViewError};
use thalweg_hash::{HashMap, HashSet};
use thalweg_log::VerificationGuard;
use thalweg_metadata::PartitionIndex;
use thalweg_net::answer_parts::{AnswerRoom, merge};
use thalweg_shard::{RequestError, WriteError};
use thalweg_wire::request::offset_commit_request::OffsetCommitRequestTopic;
use thalweg_wire::request::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use thalweg_wire::request::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use thalweg_wire::request::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use thalweg_wire::request::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use thalweg_wire::request::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use thalweg_wire::request::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse, OffsetFetchRequest,
    OffsetFetchResponse, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};
use thalweg_wire::{ErrorCode, Uuid};

/// First version that identifies topics by id.
const COMMIT_BY_TOPIC_ID: i16 = 10;
const FETCH_BY_TOPIC_ID: i16 = 10;

impl GroupCoordinator {
    /// OffsetCommit, versions 2 to 10.
    pub async fn offset_commit(
        &self,
        mut request: OffsetCommitRequest,
        version: i16,
    ) -> OffsetCommitResponse {
        let mut refused = Vec::new();
        let topics = std::mem::take(&mut request.topics);
        request.topics =
            topics.into_iter().filter_map(|topic| self.known_parts(topic, version, &mut refused)).collect();
        let mut response = OffsetCommitResponse { topics: refused, ..OffsetCommitResponse::default() };
        if request.topics.is_empty() {
            return response;
        }
        let committed = if self.is_beyond_a_batch(&request.group_id, &request.topics) {
            all_failed(&request, WriteError::TooLarge.into())
        } else {
            let answer = self.request(&request.group_id, |shard, ticket, now| {
                shard.commit_offsets(&request, version, ticket, now);
            });
            match answer.await {
                Ok(GroupAnswer::OffsetCommit(committed)) => committed.topics,
                Ok(_) => all_failed(&request, RequestError::WrongAnswer),
                Err(error) => all_failed(&request, error.into()),
            }
        };
        let by_id = version >= COMMIT_BY_TOPIC_ID;
        let key = |topic: &OffsetCommitResponseTopic| {
            (topic.name.clone(), if by_id { topic.topic_id } else { Uuid::ZERO })
        };
        merge(&mut response.topics, committed, key, |topic, more| {
            topic.partitions.extend(more.partitions);
        });
        for topic in &mut response.topics {
            if version >= COMMIT_BY_TOPIC_ID {
                topic.name.clear();
            } else {
                topic.topic_id = Uuid::ZERO;
            }
        }
        response
    }

    /// The part of a topic's commits whose partitions exist, with name and id; the rest is refused.
    fn known_parts(
        &self,
        mut topic: OffsetCommitRequestTopic,
        version: i16,
        refused: &mut Vec<OffsetCommitResponseTopic>,
    ) -> Option<OffsetCommitRequestTopic> {
        let unknown = if version >= COMMIT_BY_TOPIC_ID {
            topic.name = self.topics().name(topic.topic_id).unwrap_or_default();
            topic.name.is_empty().then_some(ErrorCode::UnknownTopicId)
        } else {
            topic.topic_id = self.topics().id(&topic.name).unwrap_or_default();
            topic.topic_id.is_zero().then_some(ErrorCode::UnknownTopicOrPartition)
        };
        let missing = match unknown {
            Some(_) => topic.partitions.drain(..).map(|partition| partition.partition_index).collect(),
            None => self.remove_missing(&topic.name, &mut topic.partitions, |p| p.partition_index),
        };
        if !missing.is_empty() {
            let error_code = unknown.unwrap_or(ErrorCode::UnknownTopicOrPartition).code();
            let failed = |partition_index| OffsetCommitResponsePartition { partition_index, error_code };
            let (name, topic_id) = (topic.name.clone(), topic.topic_id);
            let partitions = missing.into_iter().map(failed).collect();
            refused.push(OffsetCommitResponseTopic { name, topic_id, partitions });
        }
        if topic.partitions.is_empty() { None } else { Some(topic) }
    }

    /// Removes the partitions that do not exist from a topic of a request, and returns their indexes.
    fn remove_missing<P>(&self, topic: &str, partitions: &mut Vec<P>, index: impl Fn(&P) -> i32) -> Vec<i32> {
        let is_missing =
            |partition: &mut P| !self.topics().has_partition(topic, PartitionIndex(index(partition)));
        partitions.extract_if(.., is_missing).map(|partition| index(&partition)).collect()
    }

    /// TxnOffsetCommit, versions 0 to 5. The log decides whether the transaction may commit; `guard` proves
    /// that the transaction coordinator has verified the transaction.
    pub async fn txn_offset_commit(
        &self,
        mut request: TxnOffsetCommitRequest,
        guard: Option<VerificationGuard>,
    ) -> TxnOffsetCommitResponse {
        let mut response = TxnOffsetCommitResponse::default();
        for topic in &mut request.topics {
            let missing = self.remove_missing(&topic.name, &mut topic.partitions, |p| p.partition_index);
            if !missing.is_empty() {
                let error_code = ErrorCode::UnknownTopicOrPartition.code();
                let failed =
                    |partition_index| TxnOffsetCommitResponsePartition { partition_index, error_code };
                let (name, partitions) = (topic.name.clone(), missing.into_iter().map(failed).collect());
                response.topics.push(TxnOffsetCommitResponseTopic { name, partitions });
            }
        }
        request.topics.retain(|topic| !topic.partitions.is_empty());
        if request.topics.is_empty() {
            return response;
        }
        let error = if request.group_id.is_empty() {
            MembershipError::InvalidGroupId
        } else if self.is_beyond_a_transactional_batch(&request.group_id, &request.topics) {
            WriteError::TooLarge.into()
        } else {
            let answer = self.request(&request.group_id, |shard, ticket, now| {
                shard.commit_transactional_offsets(&request, guard, ticket, now);
            });
            match answer.await {
                Ok(GroupAnswer::TxnOffsetCommit(committed)) => {
                    let key = |topic: &TxnOffsetCommitResponseTopic| topic.name.clone();
                    merge(&mut response.topics, committed.topics, key, |topic, more| {
                        topic.partitions.extend(more.partitions);
                    });
                    return response;
                }
                Ok(_) => RequestError::WrongAnswer.into(),
                Err(error) => error.into(),
            }
        };
        let error_code = error.code().code();
        for topic in request.topics {
            let failed = |partition_index| TxnOffsetCommitResponsePartition { partition_index, error_code };
            let partitions = topic.partitions.iter().map(|p| failed(p.partition_index)).collect();
            response.topics.push(TxnOffsetCommitResponseTopic { name: topic.name, partitions });
        }
        response
    }

    /// OffsetFetch, versions 1 to 10: one group, or from version 8 several.
    pub async fn offset_fetch(&self, request: OffsetFetchRequest, version: i16) -> OffsetFetchResponse {
        let require_stable = request.require_stable && version >= 7;
        if version >= 8 {
            let mut groups = Vec::with_capacity(request.groups.len());
            let (mut room, mut whole) = (AnswerRoom::default(), HashSet::default());
            for group in request.groups {
                // Kafka repeats repeated groups; clients do not notice the difference.
                if group.topics.is_some() || whole.insert(group.group_id.clone()) {
                    groups.push(self.fetch_group(group, require_stable, version, &mut room).await);
                }
            }
            return OffsetFetchResponse { groups, ..OffsetFetchResponse::default() };
        }
        let by_name = |topic: thalweg_wire::request::offset_fetch_request::OffsetFetchRequestTopic| {
            let (name, partition_indexes) = (topic.name, topic.partition_indexes);
            OffsetFetchRequestTopics { name, partition_indexes, ..OffsetFetchRequestTopics::default() }
        };
        let topics = request.topics.map(|topics| topics.into_iter().map(by_name).collect());
        let group = OffsetFetchRequestGroup { group_id: request.group_id, topics, ..Default::default() };
        let group = self.fetch_group(group, require_stable, version, &mut AnswerRoom::default()).await;
        OffsetFetchResponse {
            // Version 1 has an error field only in the partitions.
            error_code: if version >= 2 { group.error_code } else { ErrorCode::None.code() },
            topics: group.topics.into_iter().map(single_group_topic).collect(),
            ..OffsetFetchResponse::default()
        }
    }

    async fn fetch_group(
        &self,
        mut request: OffsetFetchRequestGroup,
        require_stable: bool,
        version: i16,
        room: &mut AnswerRoom,
    ) -> OffsetFetchResponseGroup {
        if let Some(topics) = &mut request.topics {
            bounds::merge_repeated(topics);
        }
        let topics = if version < 2 { request.topics.clone() } else { None };
        let mut unknown = Vec::new();
        if version >= FETCH_BY_TOPIC_ID
            && let Some(topics) = &mut request.topics
        {
            topics.retain_mut(|topic| {
                topic.name = self.topics().name(topic.topic_id).unwrap_or_default();
                if topic.name.is_empty() {
                    unknown.push(unknown_topic(topic));
                }
                !topic.name.is_empty()
            });
        }
        let group_id = request.group_id.clone();
        let is_whole = request.topics.is_none();
        let fetched = self.fetch_in_pieces(request, require_stable, room).await;
        let failed = |error: ErrorCode| OffsetFetchResponseGroup {
            group_id,
            topics: topics.unwrap_or_default().iter().map(|topic| failed_topic(topic, error)).collect(),
            error_code: error.code(),
        };
        let mut group = match fetched {
            Ok(group) if group.error_code == ErrorCode::None.code() => group,
            Ok(group) => {
                let error = ErrorCode::from_i16(group.error_code).unwrap_or(ErrorCode::UnknownServerError);
                return failed(error);
            }
            Err(error) => return failed(error.code()),
        };
        if version >= FETCH_BY_TOPIC_ID {
            if is_whole {
                for topic in &mut group.topics {
                    topic.topic_id = self.topics().id(&topic.name).unwrap_or_default();
                }
                // A deleted topic has no id to report.
                group.topics.retain(|topic| !topic.topic_id.is_zero());
            }
            group.topics.extend(unknown);
            for topic in &mut group.topics {
                topic.name.clear();
            }
        }
        group
    }

    /// The requested offsets of a group, or all of its offsets.
    async fn fetch_in_pieces(
        &self,
        mut request: OffsetFetchRequestGroup,
        require_stable: bool,
        room: &mut AnswerRoom,
    ) -> Result<OffsetFetchResponseGroup, ViewError> {
        let pieces = match request.topics.take() {
            None => vec![None],
            Some(topics) => bounds::pieces(topics).into_iter().map(Some).collect(),
        };
        let mut fetched =
            OffsetFetchResponseGroup { group_id: request.group_id.clone(), ..Default::default() };
        for topics in pieces {
            request.topics = topics;
            let shown = match require_stable {
                true => None,
                false => self.read(&request.group_id, |shard| shard.show_offsets(&request))?,
            };
            let piece = match shown {
                Some(piece) => piece,
                None => self.request_offsets(&request, require_stable).await?,
            };
            if piece.error_code != ErrorCode::None.code() {
                return Ok(piece);
            }
            if !room.take(bounds::answer_bytes(&piece.topics)) {
                return Err(ViewError::AnswerFull);
            }
            bounds::join_pieces(&mut fetched.topics, piece.topics);
        }
        Ok(fetched)
    }

    async fn request_offsets(
        &self,
        request: &OffsetFetchRequestGroup,
        require_stable: bool,
    ) -> Result<OffsetFetchResponseGroup, ViewError> {
        let answer = self.request(&request.group_id, |shard, ticket, _| {
            shard.fetch_offsets_after_writes(request, require_stable, ticket);
        });
        match answer.await? {
            GroupAnswer::OffsetFetch(group) => Ok(group),
            _ => Err(RequestError::WrongAnswer.into()),
        }
    }

    /// OffsetDelete, version 0.
    pub async fn offset_delete(&self, mut request: OffsetDeleteRequest) -> OffsetDeleteResponse {
        let failed =
            |error: ErrorCode| OffsetDeleteResponse { error_code: error.code(), ..Default::default() };
        if request.group_id.is_empty() {
            return failed(ErrorCode::InvalidGroupId);
        }
        let mut refused: Vec<OffsetDeleteResponseTopic> = Vec::new();
        let mut seen: HashMap<String, HashSet<i32>> = HashMap::default();
        for topic in &mut request.topics {
            let missing = self.remove_missing(&topic.name, &mut topic.partitions, |p| p.partition_index);
            // Skip a repeated partition: partitions are processed under a lock.
            let seen = seen.entry(topic.name.clone()).or_default();
            topic.partitions.retain(|partition| seen.insert(partition.partition_index));
            if !missing.is_empty() {
                let error_code = ErrorCode::UnknownTopicOrPartition.code();
                let failed = |partition_index| OffsetDeleteResponsePartition { partition_index, error_code };
                let (name, partitions) = (topic.name.clone(), missing.into_iter().map(failed).collect());
                refused.push(OffsetDeleteResponseTopic { name, partitions });
            }
        }
        request.topics.retain(|topic| !topic.partitions.is_empty());
        let answer =
            self.request(&request.group_id, |shard, ticket, _| shard.delete_offsets(&request, ticket));
        let mut response = match answer.await {
            Ok(GroupAnswer::OffsetDelete(response)) => response,
            Ok(_) => return failed(RequestError::WrongAnswer.code()),
            Err(error) => return failed(error.code()),
        };
        if response.error_code == ErrorCode::None.code() {
            let key = |topic: &OffsetDeleteResponseTopic| topic.name.clone();
            merge(&mut response.topics, refused, key, |topic, more| {
                topic.partitions.extend(more.partitions);
            });
        }
        response
    }
}

fn all_failed(request: &OffsetCommitRequest, error: RequestError) -> Vec<OffsetCommitResponseTopic> {
    let error_code = error.code().code();
    let failed = |topic: &OffsetCommitRequestTopic| OffsetCommitResponseTopic {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|p| OffsetCommitResponsePartition { partition_index: p.partition_index, error_code })
            .collect(),
    };
    request.topics.iter().map(failed).collect()
}

fn failed_topic(topic: &OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics {
    let failed = |&partition_index: &i32| OffsetFetchResponsePartitions {
        partition_index,
        committed_offset: -1,
        error_code: error.code(),
        ..OffsetFetchResponsePartitions::default()
    };
    OffsetFetchResponseTopics {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partitions: topic.partition_indexes.iter().map(failed).collect(),
    }
}

fn unknown_topic(topic: &OffsetFetchRequestTopics) -> OffsetFetchResponseTopics {
    failed_topic(topic, ErrorCode::UnknownTopicId)
}

fn single_group_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic {
    let partitions = topic.partitions.into_iter().map(|partition| OffsetFetchResponsePartition {
        partition_index: partition.partition_index,
        committed_offset: partition.committed_offset,
        committed_leader_epoch: partition.committed_leader_epoch,
        metadata: partition.metadata,
        error_code: partition.error_code,
    });
    OffsetFetchResponseTopic { name: topic.name, partitions: partitions.collect() }
}
