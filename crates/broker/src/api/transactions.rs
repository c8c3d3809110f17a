//! The APIs of transactional producers: AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26),
//! TxnOffsetCommit (28); and the APIs that describe transactions: DescribeTransactions (65), ListTransactions
//! (66).
//!
//! The transaction coordinator decides (`thalweg_transactions`), for offsets the group coordinator
//! (`thalweg_groups`).

use super::Call;
use super::entry::{Api, ByResource, Cost, later, not_on_cluster, now};
use super::serve::topic_rights::take_denied;
use crate::authorization::{Denials, Permissions};
use crate::broker::Broker;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_groups::{GroupCoordinator, TransactionOutcome};
use thalweg_hash::HashMap;
use thalweg_log::VerificationGuard;
use thalweg_metadata::topic_name::{self, OFFSETS};
use thalweg_metadata::{ImageCell, PartitionIndex};
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_transactions::{
    EndRequest, Producer, ProducerIds, TransactionCoordinator, TransactionError, TransactionFilter,
    TransactionPartitions, TransactionState, Verification, begin_verification, needs_verification,
};
use thalweg_wire::request::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use thalweg_wire::request::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use thalweg_wire::request::describe_transactions_response::TransactionState as DescribedTransaction;
use thalweg_wire::request::txn_offset_commit_request::TxnOffsetCommitRequestTopic;
use thalweg_wire::request::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const ADD_PARTITIONS: Api = Api::new(ApiKey::AddPartitionsToTxn, 0..=5, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| add_partitions(&b.transactions, b.images(), &c, r).await)
});
pub(super) const ADD_OFFSETS: Api = Api::new(ApiKey::AddOffsetsToTxn, 0..=4, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| add_offsets(&b.transactions, &b.groups, &c, r).await)
});
pub(super) const END: Api = Api::new(ApiKey::EndTxn, 0..=5, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| end(&b.transactions, &b.producer_ids, &c, r).await)
});
pub(super) const COMMIT_OFFSETS: Api =
    Api::new(ApiKey::TxnOffsetCommit, 0..=5, ByResource, |b, c, d| later(b, c, d, commit_offsets));
pub(super) const DESCRIBE: Api = Api::new(ApiKey::DescribeTransactions, 0..=0, ByResource, |b, c, d| {
    now(b, c, d, |b, c, r| describe(&b.transactions, c, r))
});
pub(super) const LIST: Api = Api::new(ApiKey::ListTransactions, 0..=2, ByResource, |b, c, d| {
    now(b, c, d, |b, c, r| list(&b.transactions, c, r))
})
.cost(Cost::Always);

/// The first version of AddPartitionsToTxn that comes from brokers and has several transactions.
const BROKERS_FROM: i16 = 4;
/// The first version of EndTxn with an epoch per transaction (KIP-890).
const EPOCH_PER_TRANSACTION_FROM: i16 = 5;
/// The first version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn with PRODUCER_FENCED.
const FENCED_FROM: i16 = 2;
/// The first version of TxnOffsetCommit with COORDINATOR_LOAD_IN_PROGRESS.
const LOADING_FROM: i16 = 2;
/// The level of transaction.version of a client with an epoch per transaction.
const NEWER: i16 = 2;

/// AddPartitionsToTxn. Versions 0 to 3 come from producers and have one transaction. Versions 4 and 5 come
/// from brokers (KIP-890) and have several transactions, each to be added to or only verified. Version 2
/// returns PRODUCER_FENCED.
pub async fn add_partitions(
    transactions: &TransactionCoordinator,
    images: &ImageCell,
    call: &Call,
    request: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse {
    let version = call.version;
    if version >= BROKERS_FROM {
        if !call.permissions.may_on_cluster(Operation::ClusterAction) {
            return not_on_cluster(&request, version);
        }
        // The transactions run concurrently: a slow append for one must not delay the others.
        let none = Denials::default();
        let mut adding = Vec::with_capacity(request.transactions.len());
        for transaction in &request.transactions {
            adding.push(add_to_one(transactions, images, version, transaction, &none));
        }
        let results_by_transaction = join_all(adding).await;
        return AddPartitionsToTxnResponse { results_by_transaction, ..Default::default() };
    }
    let transaction = AddPartitionsToTxnTransaction {
        transactional_id: request.v3_and_below_transactional_id,
        producer_id: request.v3_and_below_producer_id,
        producer_epoch: request.v3_and_below_producer_epoch,
        verify_only: false,
        topics: request.v3_and_below_topics,
    };
    let id = &transaction.transactional_id;
    if !call.permissions.may(Operation::Write, ResourceType::TransactionalId, id) {
        let denied = ErrorCode::TransactionalIdAuthorizationFailed;
        let results = transaction.topics.iter().map(|topic| topic_result(topic, |_| denied));
        return AddPartitionsToTxnResponse {
            results_by_topic_v3_and_below: results.collect(),
            ..Default::default()
        };
    }
    // A producer's transaction never includes internal topics. A topic without partitions needs no
    // permission.
    let denied = Denials::among(&transaction.topics, |topic| {
        topic.partitions.is_empty()
            || !topic_name::is_internal(&topic.name)
                && call.permissions.may(Operation::Write, ResourceType::Topic, &topic.name)
    });
    let result = add_to_one(transactions, images, version, &transaction, &denied).await;
    AddPartitionsToTxnResponse { results_by_topic_v3_and_below: result.topic_results, ..Default::default() }
}

/// Adds all partitions to one transaction, or none if a partition is missing or a topic is denied.
async fn add_to_one(
    transactions: &TransactionCoordinator,
    images: &ImageCell,
    version: i16,
    transaction: &AddPartitionsToTxnTransaction,
    denied: &Denials,
) -> AddPartitionsToTxnResult {
    let image = images.get();
    let is_there = |topic: &AddPartitionsToTxnTopic| {
        let mut partitions = topic.partitions.iter().copied().map(PartitionIndex);
        partitions.all(|index| image.partition(&topic.name, index).is_some())
    };
    let mut errors = HashMap::default();
    if denied.is_empty() && transaction.topics.iter().all(is_there) {
        let partitions = named(transaction);
        let producer = Producer { id: transaction.producer_id, epoch: transaction.producer_epoch };
        let id = &transaction.transactional_id;
        let answers = if transaction.verify_only {
            transactions.verify_partitions(id, producer, &partitions).await
        } else {
            let client_version = if version >= BROKERS_FROM { NEWER } else { 0 };
            let added = transactions.add_partitions(id, producer, &partitions, client_version).await;
            added.map(|()| vec![Ok(()); partitions.len()])
        };
        let codes = match answers {
            Ok(answers) => answers.into_iter().map(code).collect(),
            Err(error) => vec![super::fenced_before(FENCED_FROM, version, error.code()); partitions.len()],
        };
        errors.extend(partitions.into_iter().zip(codes));
    }
    let topic_results = transaction.topics.iter().enumerate().map(|(place, topic)| {
        let (name, known): (Arc<str>, _) = (topic.name.as_str().into(), image.topic(&topic.name));
        topic_result(topic, |index| match known.and_then(|known| known.partition(index)) {
            _ if denied.contains(place) => ErrorCode::TopicAuthorizationFailed,
            None => ErrorCode::UnknownTopicOrPartition,
            Some(_) => {
                errors.get(&(name.clone(), index)).copied().unwrap_or(ErrorCode::OperationNotAttempted)
            }
        })
    });
    AddPartitionsToTxnResult {
        topic_results: topic_results.collect(),
        transactional_id: transaction.transactional_id.clone(),
    }
}

fn topic_result(
    topic: &AddPartitionsToTxnTopic,
    error: impl Fn(PartitionIndex) -> ErrorCode,
) -> AddPartitionsToTxnTopicResult {
    let results = topic.partitions.iter().map(|&partition_index| AddPartitionsToTxnPartitionResult {
        partition_index,
        partition_error_code: error(PartitionIndex(partition_index)).code(),
    });
    AddPartitionsToTxnTopicResult { name: topic.name.clone(), results_by_partition: results.collect() }
}

fn code(result: Result<(), TransactionError>) -> ErrorCode {
    result.err().map_or(ErrorCode::None, TransactionError::code)
}

fn named(transaction: &AddPartitionsToTxnTransaction) -> TransactionPartitions {
    let mut partitions = TransactionPartitions::new();
    for topic in &transaction.topics {
        let name: Arc<str> = topic.name.as_str().into();
        partitions.extend(topic.partitions.iter().map(|index| (name.clone(), PartitionIndex(*index))));
    }
    partitions
}

/// AddOffsetsToTxn, versions 0 to 4: the transaction commits offsets of a group. Clients of
/// transaction.version 2 do not use this API.
pub async fn add_offsets(
    transactions: &TransactionCoordinator,
    groups: &GroupCoordinator,
    call: &Call,
    request: AddOffsetsToTxnRequest,
) -> AddOffsetsToTxnResponse {
    let partitions = TransactionCoordinator::offsets_partition(groups.partition_for(&request.group_id));
    let producer = Producer { id: request.producer_id, epoch: request.producer_epoch };
    let id = &request.transactional_id;
    let error = match authorize_offsets(&call.permissions, id, &request.group_id) {
        Ok(()) => code(transactions.add_partitions(id, producer, &partitions, 0).await),
        Err(error) => error,
    };
    AddOffsetsToTxnResponse {
        error_code: super::fenced_before(FENCED_FROM, call.version, error).code(),
        ..Default::default()
    }
}

/// WRITE on the transactional id, READ on the group.
fn authorize_offsets(permissions: &Permissions, id: &str, group: &str) -> Result<(), ErrorCode> {
    if !permissions.may(Operation::Write, ResourceType::TransactionalId, id) {
        return Err(ErrorCode::TransactionalIdAuthorizationFailed);
    }
    match permissions.may(Operation::Read, ResourceType::Group, group) {
        true => Ok(()),
        false => Err(ErrorCode::GroupAuthorizationFailed),
    }
}

/// EndTxn, versions 0 to 5. From version 5 on, each end raises the producer's epoch, and the answer has the
/// new epoch (KIP-890).
pub async fn end(
    transactions: &TransactionCoordinator,
    producer_ids: &ProducerIds,
    call: &Call,
    request: EndTxnRequest,
) -> EndTxnResponse {
    let may_end =
        call.permissions.may(Operation::Write, ResourceType::TransactionalId, &request.transactional_id);
    if !may_end {
        let error_code = ErrorCode::TransactionalIdAuthorizationFailed.code();
        return EndTxnResponse { error_code, ..Default::default() };
    }
    let end = EndRequest {
        id: request.transactional_id,
        producer: Producer { id: request.producer_id, epoch: request.producer_epoch },
        outcome: if request.committed { TransactionOutcome::Commit } else { TransactionOutcome::Abort },
        client_version: if call.version >= EPOCH_PER_TRANSACTION_FROM { NEWER } else { 0 },
    };
    let ended = transactions.end_transaction(end, || producer_ids.next()).await;
    let (error, producer) = match ended {
        Ok(producer) => (ErrorCode::None, producer),
        Err(error) => (super::fenced_before(FENCED_FROM, call.version, error.code()), Producer::NONE),
    };
    EndTxnResponse {
        error_code: error.code(),
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        ..Default::default()
    }
}

/// TxnOffsetCommit, versions 0 to 5: offsets that take effect when the transaction commits. Version 3 adds
/// the member and its generation (KIP-447), version 4 TRANSACTION_ABORTABLE; version 5 adds the group to the
/// transaction automatically.
pub async fn commit_offsets(
    broker: Arc<Broker>,
    call: Arc<Call>,
    mut request: TxnOffsetCommitRequest,
) -> TxnOffsetCommitResponse {
    let permissions = &call.permissions;
    let all_refused = |topics: Vec<TxnOffsetCommitRequestTopic>, error| TxnOffsetCommitResponse {
        topics: topics.into_iter().map(|topic| refused(topic, error)).collect(),
        ..Default::default()
    };
    if let Err(error) = authorize_offsets(permissions, &request.transactional_id, &request.group_id) {
        return all_refused(request.topics, error);
    }
    let denied = take_denied(&mut request.topics, |topic| {
        permissions.may(Operation::Read, ResourceType::Topic, &topic.name)
    });
    if request.topics.is_empty() && !denied.is_empty() {
        return all_refused(denied, ErrorCode::TopicAuthorizationFailed);
    }
    let image = broker.image();
    let is_there = |topic: &str, index| image.partition(topic, PartitionIndex(index)).is_some();
    let is_any_there = request
        .topics
        .iter()
        .any(|topic| topic.partitions.iter().any(|p| is_there(&topic.name, p.partition_index)));
    // As in Kafka, a request without any existing partition is not verified.
    let verified = match is_any_there {
        true => verify_commit(&broker, call.version, &request).await,
        false => Err(ErrorCode::UnknownTopicOrPartition),
    };
    let mut response = match verified {
        Ok(guard) => broker.groups.txn_offset_commit(request, guard).await,
        Err(error) => {
            let mut refused = all_refused(request.topics, error);
            for topic in &mut refused.topics {
                for partition in &mut topic.partitions {
                    if !is_there(&topic.name, partition.partition_index) {
                        partition.error_code = ErrorCode::UnknownTopicOrPartition.code();
                    }
                }
            }
            refused
        }
    };
    response.topics.extend(all_refused(denied, ErrorCode::TopicAuthorizationFailed).topics);
    if call.version < LOADING_FROM {
        let partitions = response.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
        for partition in partitions.filter(|p| p.error_code == ErrorCode::CoordinatorLoadInProgress.code()) {
            partition.error_code = ErrorCode::CoordinatorNotAvailable.code();
        }
    }
    response
}

/// Has the transaction coordinator verify that the transaction includes the group's offsets, or add the
/// group.
async fn verify_commit(
    broker: &Broker,
    version: i16,
    request: &TxnOffsetCommitRequest,
) -> Result<Option<VerificationGuard>, ErrorCode> {
    let verification = Verification::of_offset_commit(version);
    let verifies = broker.config().transactions.verifies_partitions;
    if !verifies && verification != Verification::Adds {
        return Ok(None);
    }
    if request.group_id.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let index = broker.groups.partition_for(&request.group_id);
    let partition = broker.partitions.get(OFFSETS, index).ok_or(ErrorCode::NotCoordinator)?;
    let producer = Producer { id: request.producer_id, epoch: request.producer_epoch };
    let mut guarded = begin_verification(producer, [(partition, 0)], verification);
    if needs_verification(&guarded) {
        let id = &request.transactional_id;
        broker.verifier.verify(id, producer, &mut guarded, verification).await;
    }
    let guard = guarded.pop().map_or(Ok(VerificationGuard::NONE), |(_, guard)| guard);
    let guard = guard.map_err(|error| match error.code() {
        // Older clients retry on this error.
        ErrorCode::NetworkException => ErrorCode::CoordinatorLoadInProgress,
        ErrorCode::NotLeaderOrFollower => ErrorCode::NotCoordinator,
        other => other,
    })?;
    Ok(verifies.then_some(guard))
}

fn refused(topic: TxnOffsetCommitRequestTopic, error: ErrorCode) -> TxnOffsetCommitResponseTopic {
    let partitions = topic.partitions.iter().map(|partition| TxnOffsetCommitResponsePartition {
        partition_index: partition.partition_index,
        error_code: error.code(),
    });
    TxnOffsetCommitResponseTopic { partitions: partitions.collect(), name: topic.name }
}

/// DescribeTransactions, version 0 (KIP-664): DESCRIBE on each id. Topics that the client may not describe
/// are left out.
pub fn describe(
    transactions: &TransactionCoordinator,
    call: &Call,
    request: DescribeTransactionsRequest,
) -> DescribeTransactionsResponse {
    // As in Kafka, each id is answered once, in order.
    let ids: BTreeMap<&String, ()> = request.transactional_ids.iter().map(|id| (id, ())).collect();
    let may = |resource_type, name: &str| call.permissions.may(Operation::Describe, resource_type, name);
    let states = ids.into_keys().map(|id| {
        if !may(ResourceType::TransactionalId, id) {
            return DescribedTransaction {
                transactional_id: id.clone(),
                error_code: ErrorCode::TransactionalIdAuthorizationFailed.code(),
                ..Default::default()
            };
        }
        let mut state = transactions.describe(id);
        state.topics.retain(|topic| may(ResourceType::Topic, &topic.topic));
        state
    });
    DescribeTransactionsResponse { throttle_time_ms: 0, transaction_states: states.collect() }
}

/// ListTransactions, versions 0 to 2: the transactions with ids that the client may describe. Version 1
/// filters by age (KIP-994), version 2 by a pattern of the id (KIP-1152).
pub fn list(
    transactions: &TransactionCoordinator,
    call: &Call,
    request: ListTransactionsRequest,
) -> ListTransactionsResponse {
    let failed =
        |error: ErrorCode| ListTransactionsResponse { error_code: error.code(), ..Default::default() };
    let mut states = Vec::new();
    let mut unknown_state_filters = Vec::new();
    for name in request.state_filters.iter() {
        match TransactionState::from_name(name) {
            Some(state) if states.contains(&state) => {}
            Some(state) => states.push(state),
            None => unknown_state_filters.push(name.clone()),
        }
    }
    let pattern = request.transactional_id_pattern.filter(|pattern| !pattern.is_empty());
    let pattern = match pattern.map(|pattern| regex::Regex::new(&format!("^(?:{pattern})$"))).transpose() {
        Ok(pattern) => pattern,
        Err(_) => return failed(ErrorCode::InvalidRegularExpression),
    };
    let filter = TransactionFilter {
        states: (!request.state_filters.is_empty()).then_some(states),
        producer_ids: request.producer_id_filters.into_iter().collect(),
        longer_than_ms: Some(request.duration_filter).filter(|duration| *duration >= 0),
        pattern,
    };
    match transactions.list(&filter) {
        Ok(mut transaction_states) => {
            transaction_states.retain(|state| {
                let id = &state.transactional_id;
                call.permissions.may(Operation::Describe, ResourceType::TransactionalId, id)
            });
            ListTransactionsResponse { unknown_state_filters, transaction_states, ..Default::default() }
        }
        Err(error) => failed(error.code()),
    }
}
