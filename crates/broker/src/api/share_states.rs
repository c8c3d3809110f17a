//! The APIs of the state of share partitions (KIP-932): InitializeShareGroupState (83), ReadShareGroupState
//! (84), WriteShareGroupState (85), DeleteShareGroupState (86), ReadShareGroupStateSummary (87). Version 1 of
//! the writes and summaries adds the count of completed deliveries (KIP-1226).
//!
//! The APIs are for other brokers and need CLUSTER_ACTION on the cluster. The coordinator
//! (`thalweg_share_groups`) does the work. As in Kafka, a request without a group or with an empty list gets
//! an empty answer. A share partition that a request names twice is served twice, and answered once.

use super::entry::{Api, cluster, later};
use std::sync::Arc;
use thalweg_metadata::PartitionIndex;
use thalweg_net::answer_parts::merge;
use thalweg_security::acl::Operation;
use thalweg_share::SharePartitionKey;
use thalweg_share_groups::{ShareCoordinator, StateError, StateReply, StateRequest, StateRun, StateWrite};
use thalweg_wire::request::*;
use thalweg_wire::request::{
    delete_share_group_state_request as delete, delete_share_group_state_response as deleted,
    initialize_share_group_state_request as initialize, initialize_share_group_state_response as initialized,
    read_share_group_state_request as read, read_share_group_state_response as states,
    read_share_group_state_summary_request as summarize,
    read_share_group_state_summary_response as summaries, write_share_group_state_request as write,
    write_share_group_state_response as written,
};
use thalweg_wire::{ApiKey, ErrorCode, Uuid};

pub(super) const INITIALIZE: Api = Api::new(
    ApiKey::InitializeShareGroupState,
    0..=0,
    cluster::<InitializeShareGroupStateRequest>(&[Operation::ClusterAction]),
    |b, c, d| later(b, c, d, async |b, _, r| initialize(&b.share_states, r).await),
);
pub(super) const READ: Api = Api::new(
    ApiKey::ReadShareGroupState,
    0..=0,
    cluster::<ReadShareGroupStateRequest>(&[Operation::ClusterAction]),
    |b, c, d| later(b, c, d, async |b, _, r| read(&b.share_states, r).await),
);
pub(super) const WRITE: Api = Api::new(
    ApiKey::WriteShareGroupState,
    0..=1,
    cluster::<WriteShareGroupStateRequest>(&[Operation::ClusterAction]),
    |b, c, d| later(b, c, d, async |b, _, r| write(&b.share_states, r).await),
);
pub(super) const DELETE: Api = Api::new(
    ApiKey::DeleteShareGroupState,
    0..=0,
    cluster::<DeleteShareGroupStateRequest>(&[Operation::ClusterAction]),
    |b, c, d| later(b, c, d, async |b, _, r| delete(&b.share_states, r).await),
);
pub(super) const READ_SUMMARY: Api = Api::new(
    ApiKey::ReadShareGroupStateSummary,
    0..=1,
    cluster::<ReadShareGroupStateSummaryRequest>(&[Operation::ClusterAction]),
    |b, c, d| later(b, c, d, async |b, _, r| read_summary(&b.share_states, r).await),
);

type PartitionReply = ((Uuid, i32), Result<StateReply, StateError>);

/// A topic of a request, with its partitions.
type RequestedTopic<P> = (Uuid, Vec<P>);

/// Serves the operation of a request for each of its partitions, in order. Without a group, the result is
/// empty.
async fn serve<P>(
    share_states: &ShareCoordinator,
    group: String,
    topics: Vec<RequestedTopic<P>>,
    read: fn(P) -> (i32, StateRequest),
) -> Vec<PartitionReply> {
    if group.is_empty() {
        return Vec::new();
    }
    let group: Arc<str> = group.into();
    let mut requests = Vec::new();
    for (topic, partitions) in topics {
        requests.extend(partitions.into_iter().map(|one| {
            let (partition, request) = read(one);
            (
                SharePartitionKey { group: Arc::clone(&group), topic, partition: PartitionIndex(partition) },
                request,
            )
        }));
    }
    let answers = share_states.serve(&requests).await;
    requests.into_iter().map(|(key, _)| (key.topic, key.partition.0)).zip(answers).collect()
}

/// Results by topic: each partition once, with its last answer.
fn by_topic<P>(
    answered: Vec<PartitionReply>,
    result: impl Fn(i32, ErrorCode, Option<String>, Option<StateReply>) -> P,
    index: impl Fn(&P) -> i32,
) -> Vec<(Uuid, Vec<P>)> {
    let mut topics: Vec<(Uuid, Vec<P>)> = Vec::new();
    let each = answered.into_iter().map(|((topic, partition), answer)| {
        let result = match answer {
            Ok(done) => result(partition, ErrorCode::None, None, Some(done)),
            Err(error) => result(partition, error.code(), Some(error.to_string()), None),
        };
        (topic, vec![result])
    });
    merge(&mut topics, each.collect(), |(topic, _)| *topic, |(_, first), (_, again)| first.extend(again));
    for (_, partitions) in &mut topics {
        let each = std::mem::take(partitions);
        merge(partitions, each, &index, |first, again| *first = again);
    }
    topics
}

/// InitializeShareGroupState, version 0.
pub async fn initialize(
    share_states: &ShareCoordinator,
    request: InitializeShareGroupStateRequest,
) -> InitializeShareGroupStateResponse {
    let topics = request.topics.into_iter().map(|topic| (topic.topic_id, topic.partitions)).collect();
    let read = |one: initialize::PartitionData| {
        let (state_epoch, start_offset) = (one.state_epoch, one.start_offset);
        (one.partition, StateRequest::Initialize { state_epoch, start_offset })
    };
    let answered = serve(share_states, request.group_id, topics, read).await;
    let result = |partition, error: ErrorCode, error_message, _| initialized::PartitionResult {
        partition,
        error_code: error.code(),
        error_message,
    };
    let results = by_topic(answered, result, |one| one.partition).into_iter();
    let results =
        results.map(|(topic_id, partitions)| initialized::InitializeStateResult { topic_id, partitions });
    InitializeShareGroupStateResponse { results: results.collect() }
}

/// ReadShareGroupState, version 0.
pub async fn read(
    share_states: &ShareCoordinator,
    request: ReadShareGroupStateRequest,
) -> ReadShareGroupStateResponse {
    if request.topics.iter().any(|topic| topic.partitions.is_empty()) {
        return ReadShareGroupStateResponse::default();
    }
    let topics = request.topics.into_iter().map(|topic| (topic.topic_id, topic.partitions)).collect();
    let read =
        |one: read::PartitionData| (one.partition, StateRequest::Read { leader_epoch: one.leader_epoch });
    let answered = serve(share_states, request.group_id, topics, read).await;
    let result = |partition, error: ErrorCode, error_message, done| {
        let mut result = states::PartitionResult {
            partition,
            error_code: error.code(),
            error_message,
            ..Default::default()
        };
        if let Some(StateReply::State { state_epoch, start_offset, runs }) = done {
            result.state_epoch = state_epoch;
            result.start_offset = start_offset;
            result.state_batches = runs.into_iter().map(batch).collect();
        }
        result
    };
    let results = by_topic(answered, result, |one| one.partition).into_iter();
    let results = results.map(|(topic_id, partitions)| states::ReadStateResult { topic_id, partitions });
    ReadShareGroupStateResponse { results: results.collect() }
}

fn batch(run: StateRun) -> states::StateBatch {
    states::StateBatch {
        first_offset: run.first_offset,
        last_offset: run.last_offset,
        delivery_state: run.delivery_state,
        delivery_count: run.delivery_count,
    }
}

/// WriteShareGroupState, versions 0 and 1.
pub async fn write(
    share_states: &ShareCoordinator,
    request: WriteShareGroupStateRequest,
) -> WriteShareGroupStateResponse {
    if request.topics.iter().any(|topic| topic.partitions.is_empty()) {
        return WriteShareGroupStateResponse::default();
    }
    let topics = request.topics.into_iter().map(|topic| (topic.topic_id, topic.partitions)).collect();
    let answered = serve(share_states, request.group_id, topics, update).await;
    let result = |partition, error: ErrorCode, error_message, _| written::PartitionResult {
        partition,
        error_code: error.code(),
        error_message,
    };
    let results = by_topic(answered, result, |one| one.partition).into_iter();
    let results = results.map(|(topic_id, partitions)| written::WriteStateResult { topic_id, partitions });
    WriteShareGroupStateResponse { results: results.collect() }
}

fn update(one: write::PartitionData) -> (i32, StateRequest) {
    let run = |batch: write::StateBatch| StateRun {
        first_offset: batch.first_offset,
        last_offset: batch.last_offset,
        delivery_count: batch.delivery_count,
        delivery_state: batch.delivery_state,
    };
    let update = StateWrite {
        state_epoch: one.state_epoch,
        leader_epoch: one.leader_epoch,
        start_offset: one.start_offset,
        delivery_complete_count: one.delivery_complete_count,
        runs: one.state_batches.into_iter().map(run).collect(),
    };
    (one.partition, StateRequest::Write(update))
}

/// DeleteShareGroupState, version 0.
pub async fn delete(
    share_states: &ShareCoordinator,
    request: DeleteShareGroupStateRequest,
) -> DeleteShareGroupStateResponse {
    if request.topics.iter().any(|topic| topic.partitions.is_empty()) {
        return DeleteShareGroupStateResponse::default();
    }
    let topics = request.topics.into_iter().map(|topic| (topic.topic_id, topic.partitions)).collect();
    let read = |one: delete::PartitionData| (one.partition, StateRequest::Delete);
    let answered = serve(share_states, request.group_id, topics, read).await;
    let result = |partition, error: ErrorCode, error_message, _| deleted::PartitionResult {
        partition,
        error_code: error.code(),
        error_message,
    };
    let results = by_topic(answered, result, |one| one.partition).into_iter();
    let results = results.map(|(topic_id, partitions)| deleted::DeleteStateResult { topic_id, partitions });
    DeleteShareGroupStateResponse { results: results.collect() }
}

/// ReadShareGroupStateSummary, versions 0 and 1.
pub async fn read_summary(
    share_states: &ShareCoordinator,
    request: ReadShareGroupStateSummaryRequest,
) -> ReadShareGroupStateSummaryResponse {
    if request.topics.iter().any(|topic| topic.partitions.is_empty()) {
        return ReadShareGroupStateSummaryResponse::default();
    }
    let topics = request.topics.into_iter().map(|topic| (topic.topic_id, topic.partitions)).collect();
    let read = |one: summarize::PartitionData| {
        (one.partition, StateRequest::Summarize { leader_epoch: one.leader_epoch })
    };
    let answered = serve(share_states, request.group_id, topics, read).await;
    let result = |partition, error: ErrorCode, error_message, done| {
        let mut result = summaries::PartitionResult {
            partition,
            error_code: error.code(),
            error_message,
            ..Default::default()
        };
        if let Some(StateReply::Summary(summary)) = done {
            result.state_epoch = summary.state_epoch;
            result.leader_epoch = summary.leader_epoch;
            result.start_offset = summary.start_offset;
            result.delivery_complete_count = summary.delivery_complete_count;
        }
        result
    };
    let results = by_topic(answered, result, |one| one.partition).into_iter();
    let results =
        results.map(|(topic_id, partitions)| summaries::ReadStateSummaryResult { topic_id, partitions });
    ReadShareGroupStateSummaryResponse { results: results.collect() }
}
