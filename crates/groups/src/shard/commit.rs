//! OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete.

use super::{EndOfTransaction, GroupShard, TransactionalProducer, Write};
use crate::answer::GroupAnswer;
use crate::classic::GroupState;
use crate::commits::{Commit, CommitPermission};
use crate::error::{CommitError, MembershipError};
use crate::kind::Group;
use crate::offsets::{OffsetAndMetadata, OffsetsVersion, TransactionOutcome};
use crate::record::CoordinatorRecord;
use thalweg_log::VerificationGuard;
use thalweg_metadata::PartitionIndex;
use thalweg_record::{ProducerEpoch, ProducerId};
use thalweg_shard::{Moment, ReplicatedValue, Ticket};
use thalweg_wire::request::offset_commit_request::OffsetCommitRequestPartition;
use thalweg_wire::request::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use thalweg_wire::request::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use thalweg_wire::request::offset_fetch_request::OffsetFetchRequestGroup;
use thalweg_wire::request::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use thalweg_wire::request::txn_offset_commit_request::TxnOffsetCommitRequestPartition;
use thalweg_wire::request::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use thalweg_wire::request::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};
use thalweg_wire::{ErrorCode, Uuid};

impl GroupShard {
    /// Handles an OffsetCommit request. All topics have names, and ids where known.
    pub fn commit_offsets(
        &mut self,
        request: &OffsetCommitRequest,
        version: i16,
        ticket: Ticket,
        now: Moment,
    ) {
        let refused = self.validate_commit(request, version, now).err();
        let expire_timestamp_ms = match request.retention_time_ms {
            -1 => None,
            retention_ms => Some(now.wall_ms.saturating_add(retention_ms)),
        };
        let mut records = Vec::new();
        let mut response = OffsetCommitResponse::default();
        for topic in &request.topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for partition in &topic.partitions {
                let error = refused.or_else(|| self.refuse_metadata(partition.committed_metadata.as_deref()));
                if error.is_none() {
                    let value = committed(partition, topic.topic_id, expire_timestamp_ms, now);
                    let index = PartitionIndex(partition.partition_index);
                    records.push(value.to_record(&request.group_id, &topic.name, index));
                }
                let error_code = error.map_or(ErrorCode::None, CommitError::code).code();
                let partition_index = partition.partition_index;
                partitions.push(OffsetCommitResponsePartition { partition_index, error_code });
            }
            let (name, topic_id) = (topic.name.clone(), topic.topic_id);
            response.topics.push(OffsetCommitResponseTopic { name, topic_id, partitions });
        }
        self.write(records, None, vec![(ticket, GroupAnswer::OffsetCommit(response))]);
    }

    fn validate_commit(
        &mut self,
        request: &OffsetCommitRequest,
        version: i16,
        now: Moment,
    ) -> Result<(), CommitError> {
        let generation = request.generation_id_or_member_epoch;
        let commit = Commit {
            member_id: &request.member_id,
            instance_id: request.group_instance_id.as_deref(),
            epoch: generation,
            version,
            is_transactional: false,
        };
        if let Some(may) = self.group(&request.group_id).and_then(|group| group.commits(&commit)) {
            let may = may?;
            for topic in &request.topics {
                for partition in &topic.partitions {
                    // A partition with refused metadata is not committed, so its epoch does not matter.
                    if self.refuse_metadata(partition.committed_metadata.as_deref()).is_none() {
                        may.check(&topic.name, topic.topic_id, partition.partition_index)?;
                    }
                }
            }
            return Ok(());
        }
        if self.is_share_group(&request.group_id) {
            return Err(CommitError::UnknownGroup);
        }
        let validated = self.with_classic_group(&request.group_id, now, |group, cx| {
            let (id, instance_id) = (request.member_id.as_str(), request.group_instance_id.as_deref());
            group.validate_commit(id, instance_id, generation, false)?;
            if matches!(group.state(), GroupState::Stable | GroupState::PreparingRebalance) {
                group.restart_session(cx.timers, cx.now.monotonic_ms, id);
            }
            Ok(())
        });
        match validated {
            Some((result, _)) => result.map_err(CommitError::Membership),
            // A consumer without a group creates one to keep its offsets.
            None if generation < 0 => Ok(()),
            None if version >= 9 => Err(CommitError::UnknownGroup),
            None => Err(MembershipError::IllegalGeneration.into()),
        }
    }

    /// Handles a TxnOffsetCommit request. The offsets take effect when the transaction commits.
    pub fn commit_transactional_offsets(
        &mut self,
        request: &TxnOffsetCommitRequest,
        guard: Option<VerificationGuard>,
        ticket: Ticket,
        now: Moment,
    ) {
        let refused = match self.group(&request.group_id) {
            Some(Group::Classic(group)) => {
                let instance_id = request.group_instance_id.as_deref();
                let valid =
                    group.validate_commit(&request.member_id, instance_id, request.generation_id, true);
                valid.err().map(CommitError::Membership)
            }
            Some(Group::Share(_)) => Some(CommitError::UnknownGroup),
            Some(group) => {
                let valid = self.validate_transactional_commit(group, request);
                valid.err().map(CommitError::Membership)
            }
            None if request.generation_id < 0 => None,
            None => Some(MembershipError::IllegalGeneration.into()),
        };
        let mut records = Vec::new();
        let mut response = TxnOffsetCommitResponse::default();
        for topic in &request.topics {
            let topic_id = self.shared.topics.id(&topic.name).unwrap_or_default();
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for partition in &topic.partitions {
                let error = refused.or_else(|| self.refuse_metadata(partition.committed_metadata.as_deref()));
                if error.is_none() {
                    let value = committed_in_transaction(partition, topic_id, now);
                    let index = PartitionIndex(partition.partition_index);
                    records.push(value.to_record(&request.group_id, &topic.name, index));
                }
                let error_code = error.map_or(ErrorCode::None, CommitError::code).code();
                let partition_index = partition.partition_index;
                partitions.push(TxnOffsetCommitResponsePartition { partition_index, error_code });
            }
            response.topics.push(TxnOffsetCommitResponseTopic { name: topic.name.clone(), partitions });
        }
        let (id, epoch) = (ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch));
        let producer = TransactionalProducer { id, epoch, guard };
        self.write(records, Some(producer), vec![(ticket, GroupAnswer::TxnOffsetCommit(response))]);
    }

    fn validate_transactional_commit(
        &self,
        group: &Group,
        request: &TxnOffsetCommitRequest,
    ) -> Result<(), MembershipError> {
        // Producers have no member epochs, only generations.
        let of_producer = |error| match error {
            MembershipError::StaleEpoch => MembershipError::IllegalGeneration,
            error => error,
        };
        let commit = Commit {
            member_id: &request.member_id,
            instance_id: request.group_instance_id.as_deref(),
            epoch: request.generation_id,
            version: 0,
            is_transactional: true,
        };
        let Some(may) = group.commits(&commit) else { return Ok(()) };
        let may = may.map_err(of_producer)?;
        for topic in &request.topics {
            let id = self.shared.topics.id(&topic.name).unwrap_or_default();
            if id.is_zero() && !matches!(may, CommitPermission::Any) {
                return Err(MembershipError::IllegalGeneration);
            }
            for partition in &topic.partitions {
                if self.refuse_metadata(partition.committed_metadata.as_deref()).is_none() {
                    may.check(&topic.name, id, partition.partition_index).map_err(of_producer)?;
                }
            }
        }
        Ok(())
    }

    /// Ends a transaction whose marker is in the replayed log.
    pub(super) fn end_replayed_transaction(
        &mut self,
        producer_id: ProducerId,
        outcome: TransactionOutcome,
        at: Option<i64>,
    ) {
        self.offsets.end_transaction(producer_id.0, outcome, at);
    }

    /// Ends a transaction: writes its marker, from which on the transaction's commits take effect. The answer
    /// follows the acknowledgement of the marker.
    pub fn complete_transaction(
        &mut self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        end: EndOfTransaction,
        ticket: Ticket,
    ) {
        self.writes.push_back(Write {
            records: Vec::new(),
            producer: Some(TransactionalProducer { id: producer_id, epoch: producer_epoch, guard: None }),
            marker: Some(end),
            answers: vec![(ticket, GroupAnswer::TransactionEnded(Ok(())))],
            completion: None,
            replaced: None,
            after: None,
            is_applied: true,
            is_divisible: false,
        });
    }

    fn refuse_metadata(&self, metadata: Option<&str>) -> Option<CommitError> {
        let max = self.shared.config.offset_metadata_len_max;
        let is_too_long = |text: &str| text.len() > max && text.encode_utf16().count() > max;
        metadata.is_some_and(is_too_long).then_some(CommitError::MetadataTooLarge)
    }

    /// Handles OffsetFetch for one group, at once and from the acknowledged state. Returns `None` if the
    /// sender's membership fails the check: that membership may be unacknowledged, so the request is repeated
    /// with a ticket.
    pub(in super::super) fn show_offsets(
        &self,
        request: &OffsetFetchRequestGroup,
    ) -> ReplicatedValue<Option<OffsetFetchResponseGroup>> {
        let group = self.fetch_offsets(request);
        ReplicatedValue::of((group.error_code == ErrorCode::None.code()).then_some(group))
    }

    pub(in super::super) fn fetch_offsets(
        &self,
        request: &OffsetFetchRequestGroup,
    ) -> OffsetFetchResponseGroup {
        self.offsets_of(request, OffsetsVersion::Acknowledged)
    }

    /// Handles OffsetFetch after the acknowledgement of all earlier commits. If `is_stable`, offsets of open
    /// transactions get UNSTABLE_OFFSET_COMMIT, because they could still change.
    pub fn fetch_offsets_after_writes(
        &mut self,
        request: &OffsetFetchRequestGroup,
        is_stable: bool,
        ticket: Ticket,
    ) {
        let version = if is_stable { OffsetsVersion::Latest } else { OffsetsVersion::Acknowledged };
        let group = self.offsets_of(request, version);
        self.release_after_writes(vec![(ticket, GroupAnswer::OffsetFetch(group))]);
    }

    fn offsets_of(
        &self,
        request: &OffsetFetchRequestGroup,
        version: OffsetsVersion,
    ) -> OffsetFetchResponseGroup {
        let group = request.group_id.as_str();
        let member_id = request.member_id.as_deref();
        let known = self.group(group);
        if let Some(Err(error)) = known.map(|known| known.validate_fetch(member_id, request.member_epoch)) {
            let error_code = error.code().code();
            return OffsetFetchResponseGroup { group_id: group.to_owned(), error_code, topics: Vec::new() };
        }
        let mut topics: Vec<OffsetFetchResponseTopics> = Vec::new();
        let partition_of = |topic: &str, partition: PartitionIndex, value: Option<&OffsetAndMetadata>| {
            if version == OffsetsVersion::Latest && self.offsets.is_unstable(group, topic, partition) {
                let error_code = ErrorCode::UnstableOffsetCommit.code();
                OffsetFetchResponsePartitions { error_code, ..no_offset(partition) }
            } else {
                value.map_or_else(|| no_offset(partition), |value| fetched(partition, value))
            }
        };
        if let Some(wanted) = &request.topics {
            for topic in wanted {
                let id = match topic.topic_id.is_zero() {
                    true => self.shared.topics.id(&topic.name).unwrap_or_default(),
                    false => topic.topic_id,
                };
                let value_of = |&index: &i32| {
                    let partition = PartitionIndex(index);
                    let value = self.offsets.get(version, group, &topic.name, partition);
                    let value = value.filter(|value| is_same_topic(value.topic_id, id));
                    partition_of(&topic.name, partition, value)
                };
                topics.push(OffsetFetchResponseTopics {
                    name: topic.name.clone(),
                    topic_id: topic.topic_id,
                    partitions: topic.partition_indexes.iter().map(value_of).collect(),
                });
            }
        } else {
            let mut current = ("", Uuid::ZERO);
            for (topic, partition, value) in self.offsets.of_group(version, group) {
                if current.0 != topic {
                    current = (topic, self.shared.topics.id(topic).unwrap_or_default());
                }
                if !is_same_topic(value.topic_id, current.1) {
                    continue;
                }
                if topics.last().is_none_or(|last| last.name != topic) {
                    let name = topic.to_owned();
                    topics.push(OffsetFetchResponseTopics { name, ..OffsetFetchResponseTopics::default() });
                }
                let last = topics.last_mut().expect("one was just put there");
                last.partitions.push(partition_of(topic, partition, Some(value)));
            }
        }
        OffsetFetchResponseGroup { group_id: group.to_owned(), topics, error_code: ErrorCode::None.code() }
    }

    /// Handles OffsetDelete for existing topics and partitions. Offsets of topics that members read are kept.
    pub fn delete_offsets(&mut self, request: &OffsetDeleteRequest, ticket: Ticket) {
        let id = request.group_id.as_str();
        let mut records = Vec::new();
        let mut response = OffsetDeleteResponse::default();
        match self.group(id) {
            None | Some(Group::Share(_)) => response.error_code = ErrorCode::GroupIdNotFound.code(),
            Some(group) if !group.is_empty() && !group.is_of_consumers() => {
                response.error_code = ErrorCode::NonEmptyGroup.code();
            }
            Some(group) => {
                for topic in &request.topics {
                    let is_read = group.is_subscribed_to(&topic.name);
                    let error = if is_read { ErrorCode::GroupSubscribedToTopic } else { ErrorCode::None };
                    let mut partitions = Vec::with_capacity(topic.partitions.len());
                    for partition in &topic.partitions {
                        let index = PartitionIndex(partition.partition_index);
                        let is_there =
                            self.offsets.get(OffsetsVersion::Latest, id, &topic.name, index).is_some()
                                || self.offsets.is_unstable(id, &topic.name, index);
                        if !is_read && is_there {
                            records.push(CoordinatorRecord::offset_tombstone(id, &topic.name, index));
                        }
                        let error_code = error.code();
                        partitions
                            .push(OffsetDeleteResponsePartition { partition_index: index.0, error_code });
                    }
                    response.topics.push(OffsetDeleteResponseTopic { name: topic.name.clone(), partitions });
                }
            }
        }
        self.write(records, None, vec![(ticket, GroupAnswer::OffsetDelete(response))]);
    }
}

fn committed(
    partition: &OffsetCommitRequestPartition,
    topic_id: Uuid,
    expire_timestamp_ms: Option<i64>,
    now: Moment,
) -> OffsetAndMetadata {
    OffsetAndMetadata {
        offset: partition.committed_offset,
        leader_epoch: partition.committed_leader_epoch,
        metadata: partition.committed_metadata.clone().unwrap_or_default(),
        commit_timestamp_ms: now.wall_ms,
        expire_timestamp_ms,
        topic_id,
        record_offset: -1,
    }
}

fn committed_in_transaction(
    partition: &TxnOffsetCommitRequestPartition,
    topic_id: Uuid,
    now: Moment,
) -> OffsetAndMetadata {
    OffsetAndMetadata {
        offset: partition.committed_offset,
        leader_epoch: partition.committed_leader_epoch,
        metadata: partition.committed_metadata.clone().unwrap_or_default(),
        commit_timestamp_ms: now.wall_ms,
        expire_timestamp_ms: None,
        topic_id,
        record_offset: -1,
    }
}

fn no_offset(partition: PartitionIndex) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions {
        partition_index: partition.0,
        committed_offset: -1,
        metadata: Some(String::new()),
        ..Default::default()
    }
}

fn fetched(partition: PartitionIndex, value: &OffsetAndMetadata) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions {
        partition_index: partition.0,
        committed_offset: value.offset,
        committed_leader_epoch: value.leader_epoch,
        metadata: Some(value.metadata.clone()),
        error_code: ErrorCode::None.code(),
    }
}

/// True if an offset belongs to the requested topic, and not to an earlier topic of the same name. An unknown
/// id is zero.
fn is_same_topic(committed: Uuid, wanted: Uuid) -> bool {
    committed.is_zero() || wanted.is_zero() || committed == wanted
}
