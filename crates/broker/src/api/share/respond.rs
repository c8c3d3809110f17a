//! Builds the answers of ShareFetch and ShareAcknowledge.

use super::plan::{ShareFetchEntry, ShareFetchOutcome, ShareFetchPlan};
use crate::api::Call;
use crate::api::serve::elsewhere::{self, TopicRef};
use crate::broker::Broker;
use crate::request_metrics::{RequestMetrics, milliseconds};
use std::time::Duration;
use thalweg_log::LogSlice;
use thalweg_metadata::{BrokerId, ImageCell, TopicIdPartition};
use thalweg_net::{Frame, Reply};
use thalweg_share_groups::{AcknowledgementOutcome, AcquiredBatches};
use thalweg_wire::frame::encode_response;
use thalweg_wire::request::share_fetch_response::{
    AcquiredRecords, LeaderIdAndEpoch, NodeEndpoint, PartitionData, ShareFetchableTopicResponse,
};
use thalweg_wire::request::{
    ShareAcknowledgeResponse, ShareFetchRequest, ShareFetchResponse, share_acknowledge_response,
};
use thalweg_wire::{ErrorCode, Records};

/// A fetch that fails as a whole.
pub fn failed(requests: &RequestMetrics, call: &Call, error: ErrorCode) -> Reply {
    let response = ShareFetchResponse { error_code: error.code(), ..Default::default() };
    call.answered_with(requests, None, Duration::ZERO, &response);
    call.reply::<ShareFetchRequest>(&response)
}

/// True if the client has to look up the leader.
fn has_moved(error: ErrorCode) -> bool {
    matches!(error, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch)
}

/// The answer to a fetch. `spent` is the broker's work time.
pub fn fetched(
    broker: &Broker,
    call: &Call,
    mut plan: ShareFetchPlan,
    outcomes: Vec<(TopicIdPartition, AcknowledgementOutcome)>,
    spent: Duration,
) -> Reply {
    let bytes = plan.entries.iter().map(|entry| match &entry.outcome {
        ShareFetchOutcome::Acquired(batch) => batch.slice.len,
        _ => 0,
    });
    let throttle_time_ms = broker.quotas.charge_fetch(&call.caller(), bytes.sum(), spent);
    if throttle_time_ms > 0 {
        take_back(&mut plan);
    }
    count(&broker.requests, call, &plan, throttle_time_ms, spent);
    let lock_ms = i32::try_from(plan.settings.limits.lock_ms).unwrap_or(i32::MAX);
    let mut response =
        ShareFetchResponse { throttle_time_ms, acquisition_lock_timeout_ms: lock_ms, ..Default::default() };
    let (mut slices, mut leaders, mut listed) = (Vec::new(), Vec::new(), Vec::new());
    for ShareFetchEntry { id, is_new, outcome, .. } in std::mem::take(&mut plan.entries) {
        let (error, mut data, slice) = match outcome {
            ShareFetchOutcome::Acquired(batch) => acquired(batch),
            ShareFetchOutcome::Failed(error) => (error, no_records(), None),
            ShareFetchOutcome::Nothing if is_new && throttle_time_ms == 0 => {
                (ErrorCode::None, no_records(), None)
            }
            ShareFetchOutcome::Nothing | ShareFetchOutcome::Loading => continue,
        };
        (data.partition_index, data.error_code) = (id.1.0, error.code());
        if is_new && error == ErrorCode::None {
            listed.push(id);
        }
        if has_moved(error) {
            let (leader_id, leader_epoch) =
                TopicRef::Id(id.0).leader(&broker.partitions, broker.images(), id.1);
            data.current_leader = LeaderIdAndEpoch { leader_id: leader_id.0, leader_epoch };
            leaders.push(leader_id);
        }
        let topic = topic_of(&mut response, id);
        let partitions = &mut response.responses[topic].partitions;
        slices.extend(slice.map(|slice| ((topic, partitions.len()), slice)));
        partitions.push(data);
    }
    // Slices in the order of the answer.
    slices.sort_by_key(|(position, _)| *position);
    let slices = slices.into_iter().map(|(_, slice)| slice).collect();
    broker.share_partitions.sessions.note_listed(&plan.key, &listed);
    for (id, outcome) in outcomes {
        let (error, message) = code_and_message(outcome);
        let code = error.code();
        let topic = topic_of(&mut response, id);
        let partitions = &mut response.responses[topic].partitions;
        match partitions.iter_mut().find(|data| data.partition_index == id.1.0) {
            Some(data) => (data.acknowledge_error_code, data.acknowledge_error_message) = (code, message),
            None => partitions.push(PartitionData {
                partition_index: id.1.0,
                acknowledge_error_code: code,
                acknowledge_error_message: message,
                ..no_records()
            }),
        }
    }
    response.node_endpoints = endpoints(broker.images(), call, &leaders);
    match encode_response(&response, call.key, call.version, call.correlation_id) {
        Ok((head, gaps)) => Reply::Now(Frame::with_slices(head, &gaps, slices)),
        Err(error) => Reply::Close(format!("the answer to a share fetch could not be encoded: {error}")),
    }
}

/// Releases the acquired records of a throttled fetch. The answer has no records, and the member retries
/// after the throttle time.
fn take_back(plan: &mut ShareFetchPlan) {
    for entry in &mut plan.entries {
        let ShareFetchOutcome::Acquired(batch) = &entry.outcome else { continue };
        if let Some((led, _)) = &entry.led {
            led.take_back(&plan.key.member, &batch.runs);
        }
        entry.outcome = ShareFetchOutcome::Nothing;
    }
}

/// Counts a fetch, its bytes, and its failures.
fn count(
    requests: &RequestMetrics,
    call: &Call,
    plan: &ShareFetchPlan,
    throttle_time_ms: i32,
    spent: Duration,
) {
    call.answered(requests, Some(spent), milliseconds(throttle_time_ms));
    let label = requests.label(call.key);
    for entry in &plan.entries {
        match &entry.outcome {
            ShareFetchOutcome::Acquired(batch) => {
                if let Some((_, partition)) = &entry.led {
                    partition.sent(batch.slice.len, false);
                }
            }
            ShareFetchOutcome::Failed(error) => requests.failed(label, error.code()),
            ShareFetchOutcome::Nothing | ShareFetchOutcome::Loading => {}
        }
    }
}

/// Kafka's clients want records to be empty, not null.
fn no_records() -> PartitionData {
    PartitionData { records: Some(Records::default()), ..Default::default() }
}

fn acquired(batch: AcquiredBatches) -> (ErrorCode, PartitionData, Option<LogSlice>) {
    let AcquiredBatches { slice, runs, .. } = batch;
    let acquired_records = runs.iter().map(|run| AcquiredRecords {
        first_offset: run.first,
        last_offset: run.last,
        delivery_count: run.deliveries,
    });
    let acquired_records = acquired_records.collect();
    let records = Some(Records::Elsewhere(slice.len));
    (ErrorCode::None, PartitionData { records, acquired_records, ..Default::default() }, Some(slice))
}

/// Kafka's code and message for an outcome.
fn code_and_message(outcome: AcknowledgementOutcome) -> (ErrorCode, Option<String>) {
    match outcome {
        Ok(()) => (ErrorCode::None, None),
        Err(error) => (error.code(), Some(error.to_string())),
    }
}

/// The place of a topic in the answer.
fn topic_of(response: &mut ShareFetchResponse, id: TopicIdPartition) -> usize {
    let topics = &mut response.responses;
    topics.iter().rposition(|topic| topic.topic_id == id.0).unwrap_or_else(|| {
        topics.push(ShareFetchableTopicResponse { topic_id: id.0, partitions: Vec::new() });
        topics.len() - 1
    })
}

fn endpoints(images: &ImageCell, call: &Call, leaders: &[BrokerId]) -> Vec<NodeEndpoint> {
    elsewhere::node_endpoints(images, &call.peer.listener, leaders, |node_id, host, port, rack| {
        NodeEndpoint { node_id, host, port, rack }
    })
}

/// The answer to a ShareAcknowledge.
pub fn acknowledged(
    broker: &Broker,
    call: &Call,
    group: &str,
    outcomes: Vec<(TopicIdPartition, AcknowledgementOutcome)>,
) -> ShareAcknowledgeResponse {
    use share_acknowledge_response as parts;
    let lock_ms = i32::try_from(broker.share_partitions.settings(group).limits.lock_ms).unwrap_or(i32::MAX);
    let mut response =
        ShareAcknowledgeResponse { acquisition_lock_timeout_ms: lock_ms, ..Default::default() };
    let mut leaders = Vec::new();
    for (id, outcome) in outcomes {
        let (error, error_message) = code_and_message(outcome);
        let mut data = parts::PartitionData {
            partition_index: id.1.0,
            error_code: error.code(),
            error_message,
            ..Default::default()
        };
        if has_moved(error) {
            let (leader_id, leader_epoch) =
                TopicRef::Id(id.0).leader(&broker.partitions, broker.images(), id.1);
            data.current_leader = parts::LeaderIdAndEpoch { leader_id: leader_id.0, leader_epoch };
            leaders.push(leader_id);
        }
        match response.responses.iter_mut().rfind(|topic| topic.topic_id == id.0) {
            Some(topic) => topic.partitions.push(data),
            None => response
                .responses
                .push(parts::ShareAcknowledgeTopicResponse { topic_id: id.0, partitions: vec![data] }),
        }
    }
    let endpoints = endpoints(broker.images(), call, &leaders).into_iter();
    let endpoints = endpoints.map(|NodeEndpoint { node_id, host, port, rack }| parts::NodeEndpoint {
        node_id,
        host,
        port,
        rack,
    });
    response.node_endpoints = endpoints.collect();
    response
}
