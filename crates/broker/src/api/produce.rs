//! Produce (key 0), versions 3 to 13.
//!
//! The request is split by partition, and each part is appended inline under its partition's lock: when
//! `handle` returns, the order of all records in the request is fixed. The answer is ready at once, unless
//! acks=all waits for replicas or the flush policy for the disk; the connection continues to read meanwhile.
//!
//! One refused partition does not fail the others. A request with acks=0 gets no answer; if a partition
//! fails, closing the connection is the only possible signal. Version 8 adds errors for single records
//! (KIP-467), version 10 the current leader (KIP-951), version 11 TRANSACTION_ABORTABLE, version 12 adds
//! partitions to their transaction implicitly (KIP-890), version 13 names topics by id (KIP-516). Versions 0
//! to 2 are refused (KIP-896).
//!
//! The producer needs WRITE on each topic, and on its transactional id if a batch is transactional; for
//! topics on which brokers act, also a right on the cluster (`also_needed`). Permissions are checked before
//! an answer reveals if a topic exists.
//!
//! The first batch of a transaction waits for verification by its coordinator (`verify`), and a batch that
//! takes long to validate waits for a thread (`large_batches`); the connection serves no further request
//! meanwhile, which keeps the order.

mod large_batches;
mod own;
mod refusal;
pub mod together;
mod verify;

use super::Call;
use super::entry::{Api, ByResource, Cost};
use super::serve::elsewhere::{self, TopicRef};
use super::serve::large_requests;
use super::slow::{self, Stage};
use crate::authorization::Denials;
use crate::broker::Broker;
use crate::request_metrics::{Purgatory, RequestMetrics, milliseconds};
use bytes::Bytes;
use large_batches::LargeBatch;
pub use own::{VERSION as OWN_VERSION, produce_own};
use refusal::{BatchRefusal, refused, refused_by};
use std::sync::Arc;
use std::time::Duration;
use thalweg_config::BrokerConfig;
use thalweg_hash::HashSet;
use thalweg_log::{Clock, VerificationGuard};
use thalweg_metadata::topic_name::{self, STREAM_DEFINITIONS};
use thalweg_metadata::{ImageCell, PartitionIndex, TopicIdPartition};
use thalweg_net::Reply;
use thalweg_record::{BatchHeader, Compression};
use thalweg_replica::partition::{AppendOutcome, DecompressionBudget, Partition, Partitions, PendingAppend};
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::request::produce_request::{PartitionProduceData, TopicProduceData};
use thalweg_wire::request::produce_response::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
};
use thalweg_wire::request::{ProduceRequest, ProduceResponse};
use thalweg_wire::{ApiKey, DecodeError, DecodeProblem, Decoder, ErrorCode, Message, Records, Uuid};
use tokio::time::Instant;
use verify::{Guards, VerificationNeed};

pub(super) const API: Api = Api::new(ApiKey::Produce, 3..=13, ByResource, handle).cost(Cost::Own);

/// The first version whose answers name the current leader (KIP-951).
const LEADER_FROM: i16 = 10;
/// The first version that names topics by their ids (KIP-516).
const TOPIC_IDS_FROM: i16 = 13;
/// The first version with batches compressed by zstd (KIP-110).
const ZSTD_FROM: i16 = 7;
/// Number of partitions from which on a request is served outside the runtime's workers: each takes some
/// microseconds.
const MANY_PARTITIONS: usize = 1_000;
/// Number of elements from which on a request is also decoded outside the workers.
const MANY_ELEMENTS: usize = 2 * MANY_PARTITIONS;

/// Appends the request's batches, and answers according to its acks.
pub fn handle(broker: &Arc<Broker>, call: Call, d: Decoder) -> Result<Reply, DecodeError> {
    let few = ProduceRequest::decode(&mut d.clone().with_elements_max(MANY_ELEMENTS), call.version);
    match few {
        Err(error) if matches!(error.problem, DecodeProblem::Elements { .. }) => {
            Ok(large_requests::serve(broker, handle_many, call, d))
        }
        few => Ok(begin(broker, call, few?)),
    }
}

fn handle_many(broker: &Arc<Broker>, call: Call, mut d: Decoder) -> Result<Reply, DecodeError> {
    let request = ProduceRequest::decode(&mut d, call.version)?;
    Ok(begin(broker, call, request))
}

fn begin(broker: &Arc<Broker>, mut call: Call, request: ProduceRequest) -> Reply {
    // The request's memory is freed when the records are appended, not when the answer is sent.
    call.frame = Bytes::new();
    let denied = denied_topics(broker, &call, &request);
    match verify::begin(&broker.verifier, &broker.partitions, &call, &request, &denied) {
        Ok(VerificationNeed::Ready(guards)) => append(broker, call, request, guards, &denied),
        Ok(VerificationNeed::Unverified(unverified)) => {
            let broker = Arc::clone(broker);
            Reply::Later(Box::pin(async move {
                let guards = unverified.verify(&broker.config(), &broker.verifier).await;
                append(&broker, call, request, guards, &denied).resolved().await
            }))
        }
        Err(error) => refuse_all(&broker.requests, &call, request, error),
    }
}

/// The topics that the producer may not write to.
fn denied_topics(broker: &Broker, call: &Call, request: &ProduceRequest) -> Denials {
    if call.permissions.are_unlimited() {
        return Denials::default();
    }
    let (image, config) = (broker.image(), broker.config());
    Denials::among(&request.topic_data, |topic| {
        let may = |name: &str| {
            let count = topic.partition_data.len();
            call.permissions.may_each(Operation::Write, ResourceType::Topic, name, count)
                && also_needed(&config, name).is_none_or(|right| call.permissions.may_on_cluster(right))
        };
        match call.version >= TOPIC_IDS_FROM {
            // An unknown topic id needs no permission: it is reported as unknown to every client.
            true => image.topic_by_id(topic.topic_id).is_none_or(|topic| may(&topic.name)),
            false => may(&topic.name),
        }
    })
}

/// The right on the cluster that a client needs for a topic besides WRITE on it. Hosts run the streams in the
/// topic of definitions, so this topic needs the right that the streams API needs. The audit trail is written
/// by brokers.
fn also_needed(config: &BrokerConfig, topic: &str) -> Option<Operation> {
    if topic == STREAM_DEFINITIONS {
        return Some(Operation::Alter);
    }
    (config.audit.topic.as_deref() == Some(topic)).then_some(Operation::ClusterAction)
}

/// True if a topic belongs to a coordinator, and is closed even to clients with all rights. Kafka makes an
/// exception for one client id.
fn is_closed(call: &Call, topic: &str) -> bool {
    topic_name::is_of_coordinators(topic) && call.client_id.as_deref() != Some("__admin_client")
}

/// Appends all batches, and returns the answer or the wait for replicas, disk or validation.
fn append(
    broker: &Arc<Broker>,
    call: Call,
    request: ProduceRequest,
    mut guards: Guards,
    denied: &Denials,
) -> Reply {
    let mut appends = Appends::new(request.acks);
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let begun = Instant::now();
    let mut response = ProduceResponse::default();
    let partitions: usize = request.topic_data.iter().map(|topic| topic.partition_data.len()).sum();
    let append_all = || {
        for (topic_index, topic) in request.topic_data.into_iter().enumerate() {
            if denied.contains(topic_index) {
                response.responses.push(all_refused(topic, ErrorCode::TopicAuthorizationFailed));
                continue;
            }
            let mut guard = |index| guards.take((topic_index, index));
            let entry = append_topic(broker, &call, &mut appends, topic_index, topic, &mut guard);
            response.responses.push(entry);
        }
    };
    if partitions < MANY_PARTITIONS {
        append_all();
    } else {
        // Other connections are served meanwhile. This connection waits, so that the order of its requests
        // holds.
        broker.log_dirs.disk().work_in_place(append_all);
    }
    let Appends { acks, waits, large, .. } = appends;
    let local = begun.elapsed();
    response.throttle_time_ms = broker.quotas.charge_produce(&call.caller(), acks, || local);
    if large.is_empty() {
        return acknowledge(broker, call, local, acks, timeout, response, waits);
    }
    let broker = Arc::clone(broker);
    Reply::Later(Box::pin(async move {
        let mut waits = waits;
        large_batches::append(&broker, &call.holder(), acks, large, &mut response, &mut waits).await;
        acknowledge(&broker, call, begun.elapsed(), acks, timeout, response, waits).resolved().await
    }))
}

/// Answers once the appended batches are as durable as requested.
fn acknowledge(
    broker: &Arc<Broker>,
    call: Call,
    local: Duration,
    acks: i16,
    timeout: Duration,
    mut response: ProduceResponse,
    waits: Vec<(AnswerPosition, PendingAppend)>,
) -> Reply {
    slow::note(broker.slow_request, &call, Stage::Handling, call.received_at);
    if acks == 0 {
        count(&broker.requests, &call, local, &response);
        return without_answer(&response);
    }
    if waits.is_empty() {
        return answer(broker, &call, local, response);
    }
    let began = Instant::now();
    let deadline = began + timeout;
    let broker = Arc::clone(broker);
    Reply::Ordered(Box::pin(async move {
        let waiting = broker.requests.waits(Purgatory::Produce);
        for ((topic, partition), wait) in waits {
            if let Err(error) = wait.wait_until_acked(deadline).await {
                let entry = &mut response.responses[topic].partition_responses[partition];
                // The records are in the log and may yet become durable: the offset stays in the answer, as
                // in Kafka.
                entry.error_code = error.code().code();
            }
        }
        drop(waiting);
        slow::note(broker.slow_request, &call, Stage::Replicas, began);
        answer(&broker, &call, local, response)
    }))
}

fn answer(broker: &Broker, call: &Call, local: Duration, mut response: ProduceResponse) -> Reply {
    count(&broker.requests, call, local, &response);
    if call.version >= LEADER_FROM {
        add_leaders(&broker.partitions, broker.images(), call, &mut response);
    }
    call.reply::<ProduceRequest>(&response)
}

/// Adds the leader and its address to each partition led elsewhere, so that the producer can resend without
/// asking for metadata.
fn add_leaders(partitions: &Partitions, images: &ImageCell, call: &Call, response: &mut ProduceResponse) {
    let mut leaders = Vec::new();
    for topic in &mut response.responses {
        for data in &mut topic.partition_responses {
            if data.error_code == ErrorCode::NotLeaderOrFollower.code() {
                let topic = TopicRef::of(call.version >= TOPIC_IDS_FROM, &topic.name, topic.topic_id);
                let (leader_id, leader_epoch) = topic.leader(partitions, images, PartitionIndex(data.index));
                data.current_leader = LeaderIdAndEpoch { leader_id: leader_id.0, leader_epoch };
                leaders.push(leader_id);
            }
        }
    }
    response.node_endpoints =
        elsewhere::node_endpoints(images, &call.peer.listener, &leaders, |node_id, host, port, rack| {
            NodeEndpoint { node_id, host, port, rack }
        });
}

/// The answer to a request that is refused as a whole.
fn refuse_all(requests: &RequestMetrics, call: &Call, request: ProduceRequest, error: ErrorCode) -> Reply {
    let responses = request.topic_data.into_iter().map(|topic| all_refused(topic, error));
    let response = ProduceResponse { responses: responses.collect(), ..Default::default() };
    count(requests, call, call.received_at.elapsed(), &response);
    if request.acks == 0 { without_answer(&response) } else { call.reply::<ProduceRequest>(&response) }
}

fn all_refused(topic: TopicProduceData, error: ErrorCode) -> TopicProduceResponse {
    let error = BatchRefusal::from(error);
    let partitions = topic.partition_data.iter().map(|data| refused(data.index, &error));
    TopicProduceResponse {
        partition_responses: partitions.collect(),
        name: topic.name,
        topic_id: topic.topic_id,
    }
}

fn count(requests: &RequestMetrics, call: &Call, local: Duration, response: &ProduceResponse) {
    call.answered(requests, Some(local), milliseconds(response.throttle_time_ms));
    for partition in response.responses.iter().flat_map(|topic| &topic.partition_responses) {
        if partition.error_code != 0 {
            requests.failed(requests.label(call.key), partition.error_code);
        }
    }
}

/// The reply with acks=0: nothing, or the end of the connection if a batch failed, so that the client looks
/// up the leader.
fn without_answer(response: &ProduceResponse) -> Reply {
    let failed = response.responses.iter().flat_map(|t| &t.partition_responses).find(|p| p.error_code != 0);
    match failed {
        None => Reply::Nothing,
        Some(failed) => {
            let error = ErrorCode::from_i16(failed.error_code);
            Reply::Close(format!("a produce request with acks=0 failed: {error:?}"))
        }
    }
}

/// The position of a partition in request and answer: the index of the topic, and the index in the topic.
type AnswerPosition = (usize, usize);

/// The progress of a request's batches, besides their entries in the answer.
struct Appends {
    acks: i16,
    /// The remaining budget for validation on this task.
    budget: DecompressionBudget,
    waits: Vec<(AnswerPosition, PendingAppend)>,
    /// Batches that take too long to validate on this task.
    large: Vec<LargeBatch>,
    /// Partitions of deferred batches: later batches for the same partition are deferred too, to keep their
    /// order.
    held_up: HashSet<TopicIdPartition>,
}

impl Appends {
    fn new(acks: i16) -> Appends {
        let (waits, large, held_up) = (Vec::new(), Vec::new(), HashSet::default());
        Appends { acks, budget: DecompressionBudget::inline(), waits, large, held_up }
    }
}

fn append_topic(
    broker: &Broker,
    call: &Call,
    appends: &mut Appends,
    topic_index: usize,
    topic: TopicProduceData,
    guard: &mut dyn FnMut(usize) -> Result<Option<VerificationGuard>, BatchRefusal>,
) -> TopicProduceResponse {
    let named = TopicRef::of(call.version >= TOPIC_IDS_FROM, &topic.name, topic.topic_id);
    let found = named.here(&broker.partitions);
    let topic_id = if call.version >= TOPIC_IDS_FROM { topic.topic_id } else { Uuid::ZERO };
    let mut partition_responses = Vec::with_capacity(topic.partition_data.len());
    for (entry_index, data) in topic.partition_data.into_iter().enumerate() {
        let index = PartitionIndex(data.index);
        let result = match found.as_ref().and_then(|topic| topic.partition(index)) {
            Some(partition) => guard(entry_index)
                .and_then(|guard| {
                    let position = (topic_index, entry_index);
                    append_partition(&broker.clock, call, appends, position, &partition, guard, data)
                })
                .unwrap_or_else(|error| refused_by(&partition, &error)),
            None => {
                refused(index.0, &BatchRefusal::from(named.missing(broker.node_id, &broker.image(), index)))
            }
        };
        partition_responses.push(result);
    }
    TopicProduceResponse { name: topic.name, topic_id, partition_responses }
}

/// Appends a batch. The entry of a deferred batch is filled in after its append.
fn append_partition(
    clock: &Clock,
    call: &Call,
    appends: &mut Appends,
    position: AnswerPosition,
    partition: &Arc<Partition>,
    guard: Option<VerificationGuard>,
    data: PartitionProduceData,
) -> Result<PartitionProduceResponse, BatchRefusal> {
    let Some(Records::Inline(records)) = data.records else { return Err(ErrorCode::InvalidRecord.into()) };
    if call.version < ZSTD_FROM && is_zstd(&records) {
        return Err(ErrorCode::UnsupportedCompressionType.into());
    }
    if !(-1..=1).contains(&appends.acks) {
        return Err(ErrorCode::InvalidRequiredAcks.into());
    }
    if is_closed(call, &partition.topic) {
        return Err(ErrorCode::InvalidTopicException.into());
    }
    let now_ms = clock.now_ms();
    let own = (partition.topic_id, partition.index);
    let appended = if appends.held_up.contains(&own) {
        None
    } else {
        partition.append_from_client(&records, appends.acks, guard, now_ms, &mut appends.budget)?
    };
    let Some(appended) = appended else {
        appends.held_up.insert(own);
        appends.large.push(LargeBatch { position, partition: Arc::clone(partition), records, guard });
        return Ok(PartitionProduceResponse { index: data.index, ..Default::default() });
    };
    Ok(accepted(partition, appends.acks, position, &appended, &mut appends.waits))
}

fn is_zstd(records: &[u8]) -> bool {
    let header = BatchHeader::parse(records);
    header.is_ok_and(|header| header.attributes.compression() == Ok(Compression::Zstd))
}

/// The entry of an appended batch. A wait for durability is added to `waits`.
fn accepted(
    partition: &Arc<Partition>,
    acks: i16,
    position: AnswerPosition,
    appended: &AppendOutcome,
    waits: &mut Vec<(AnswerPosition, PendingAppend)>,
) -> PartitionProduceResponse {
    let wait = Partition::ack_wait(partition, acks, appended);
    waits.extend(wait.map(|wait| (position, wait)));
    PartitionProduceResponse {
        index: partition.index.0,
        base_offset: appended.base_offset.0,
        log_append_time_ms: appended.log_append_time_ms,
        log_start_offset: appended.log_start_offset.0,
        ..Default::default()
    }
}
