//! Builds the answer of a fetch: a head in memory and slices of log segments.

use super::plan::{FetchEntry, FetchPlan, named};
use super::{FetchFailed, is_silent};
use crate::api::Call;
use crate::api::serve::elsewhere;
use crate::broker::Broker;
use crate::fetch_sessions::{PartitionAnswer, PartitionResult, SessionFetch, TOPIC_IDS_FROM};
use crate::request_metrics::{RequestMetrics, milliseconds};
use std::time::Duration;
use thalweg_log::LogSlice;
use thalweg_metadata::BrokerId;
use thalweg_net::{Frame, Reply};
use thalweg_record::Offset;
use thalweg_replica::partition::{FetchRead, Isolation, PartitionSnapshot, Reader};
use thalweg_wire::frame::encode_response;
use thalweg_wire::request::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
};
use thalweg_wire::request::{FetchRequest, FetchResponse};
use thalweg_wire::{ErrorCode, Records};

/// The first version whose answers name the current leader and its address (KIP-951).
const LEADER_FROM: i16 = 16;

/// The outcome of one partition.
#[derive(Debug)]
pub struct FetchOutcome {
    error: ErrorCode,
    read: Option<FetchRead>,
    /// For a follower that fetches below the log start: the first lost offset, if records were lost and not
    /// deleted.
    lost_from: Option<Offset>,
}

impl FetchOutcome {
    pub fn failed(error: ErrorCode) -> Self {
        Self { error, read: None, lost_from: None }
    }

    /// The outcome for a follower that fetches below the log start, if records from `lost_from` on are lost.
    pub fn beginning_lost(error: ErrorCode, lost_from: Offset) -> Self {
        Self { lost_from: Some(lost_from), ..Self::failed(error) }
    }

    pub fn read(read: FetchRead) -> Self {
        Self { error: ErrorCode::None, read: Some(read), lost_from: None }
    }

    /// Number of bytes of records.
    pub fn bytes(&self) -> usize {
        self.read.as_ref().and_then(|read| read.slice.as_ref()).map_or(0, |slice| slice.len)
    }

    /// State of the partition when it was read; `None` if it was not read.
    pub fn snapshot(&self) -> Option<PartitionSnapshot> {
        self.read.as_ref().map(|read| read.snapshot)
    }

    /// True if the answer must not wait for more records.
    pub fn is_urgent(&self) -> bool {
        self.error != ErrorCode::None
            || self.read.as_ref().is_some_and(|read| {
                read.diverging.is_some() || read.behind || read.preferred_read_replica.is_some()
            })
    }

    /// True if the reader has all records that it may see.
    fn is_read_to_end(&self, entry: &FetchEntry, isolation: Isolation) -> bool {
        self.read.as_ref().is_some_and(|read| {
            let end = match isolation {
                Isolation::ReadUncommitted => read.high_watermark,
                Isolation::ReadCommitted => read.last_stable_offset,
            };
            is_silent(read) && entry.fetch_offset >= end
        })
    }

    fn answered(&self) -> PartitionAnswer {
        PartitionAnswer {
            error_code: self.error.code(),
            high_watermark: self.read.as_ref().map_or(-1, |read| read.high_watermark.0),
            log_start_offset: self.log_start_offset(),
        }
    }

    fn log_start_offset(&self) -> i64 {
        self.read.as_ref().map(|read| read.log_start_offset).or(self.lost_from).unwrap_or(Offset::NONE).0
    }
}

/// A fetch that fails as a whole.
pub fn failed(call: &Call, error: FetchFailed) -> Reply {
    call.reply::<FetchRequest>(&FetchResponse { error_code: error.code(), ..Default::default() })
}

/// The answer to a request that is refused as a whole: as in Kafka, with an entry for each partition if the
/// version names topics by name.
pub fn refused(call: &Call, request: &FetchRequest, error: ErrorCode) -> Reply {
    let named = request.topics.iter().filter(|_| call.version < TOPIC_IDS_FROM);
    let responses = named.map(|topic| FetchableTopicResponse {
        topic: topic.topic.clone(),
        partitions: topic
            .partitions
            .iter()
            .map(|partition| PartitionData {
                partition_index: partition.partition,
                error_code: error.code(),
                high_watermark: -1,
                aborted_transactions: Some(Vec::new()),
                records: Some(Records::default()),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    });
    let response =
        FetchResponse { error_code: error.code(), responses: responses.collect(), ..Default::default() };
    call.reply::<FetchRequest>(&response)
}

/// Counts a fetch, its bytes, and its failures.
fn count(
    requests: &RequestMetrics,
    call: &Call,
    plan: &FetchPlan,
    outcomes: &[FetchOutcome],
    spent: Duration,
) {
    let is_follower = matches!(plan.reader, Reader::Follower { .. });
    let label = match is_follower {
        true => requests.label_of_followers(),
        false => requests.label(call.key),
    };
    requests.answered(label, &call.answer(Some(spent), Duration::ZERO));
    for (entry, outcome) in plan.entries.iter().zip(outcomes) {
        match (outcome.bytes(), &entry.partition) {
            (0, _) if outcome.error == ErrorCode::None => {}
            (0, _) | (_, Err(_)) => requests.failed(label, outcome.error.code()),
            (bytes, Ok(partition)) if is_follower => partition.sent_to_follower(bytes),
            (bytes, Ok(partition)) => partition.sent(bytes, false),
        }
    }
}

/// The answer to a client that is above its quota: without records, so that the client repeats the fetch
/// after the throttle time.
fn throttled(
    broker: &Broker,
    call: &Call,
    session: SessionFetch,
    throttle_time_ms: i32,
    spent: Duration,
) -> Reply {
    call.answered(&broker.requests, Some(spent), milliseconds(throttle_time_ms));
    let session_id = match session {
        SessionFetch::Incremental { id } => id,
        // The first answer of a session must list every partition. The session is dropped, and the client
        // asks for a new one.
        SessionFetch::Full { id } => {
            broker.fetch_sessions.forget(id);
            0
        }
        SessionFetch::None => 0,
    };
    call.reply::<FetchRequest>(&FetchResponse { throttle_time_ms, session_id, ..Default::default() })
}

/// The answer to a fetch. `spent` is the broker's work time.
pub fn answer(
    broker: &Broker,
    call: &Call,
    plan: FetchPlan,
    outcomes: Vec<FetchOutcome>,
    spent: Duration,
) -> Reply {
    if plan.reader == Reader::Client {
        let bytes = outcomes.iter().map(FetchOutcome::bytes).sum();
        let throttle_time_ms = broker.quotas.charge_fetch(&call.caller(), bytes, spent);
        if throttle_time_ms > 0 {
            return throttled(broker, call, plan.session, throttle_time_ms, spent);
        }
    }
    count(&broker.requests, call, &plan, &outcomes, spent);
    let reads: Vec<_> = plan
        .entries
        .iter()
        .zip(&outcomes)
        .map(|(entry, outcome)| PartitionResult {
            key: entry.key.clone(),
            slot: entry.slot,
            answered: outcome.answered(),
            has_news: outcome.read.as_ref().is_some_and(|read| !is_silent(read)),
            is_read_to_end: outcome.is_read_to_end(entry, plan.isolation),
        })
        .collect();
    let mentioned = broker.fetch_sessions.finish(plan.session, &reads);
    let mut response = FetchResponse { session_id: plan.session.id(), ..Default::default() };
    let mut slices = Vec::new();
    let mut leaders = Vec::new();
    for ((entry, outcome), mentioned) in plan.entries.iter().zip(outcomes).zip(mentioned) {
        if !mentioned {
            continue;
        }
        let moved = matches!(outcome.error, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch);
        let mut data = partition_data(&plan, entry, outcome, &mut slices);
        if moved && call.version >= LEADER_FROM {
            let (topic, index) = (named(call.version, &entry.key), entry.key.partition);
            let (leader_id, leader_epoch) = topic.leader(&broker.partitions, broker.images(), index);
            data.current_leader = LeaderIdAndEpoch { leader_id: leader_id.0, leader_epoch };
            // Followers get addresses from the metadata log.
            if plan.reader == Reader::Client {
                leaders.push(leader_id);
            }
        }
        let same = |topic: &FetchableTopicResponse| {
            *topic.topic == *entry.key.topic && topic.topic_id == entry.key.topic_id
        };
        match response.responses.last_mut().filter(|topic| same(topic)) {
            Some(topic) => topic.partitions.push(data),
            None => response.responses.push(FetchableTopicResponse {
                topic: entry.key.topic.to_string(),
                topic_id: entry.key.topic_id,
                partitions: vec![data],
            }),
        }
    }
    let listener = &call.peer.listener;
    response.node_endpoints =
        elsewhere::node_endpoints(broker.images(), listener, &leaders, |node_id, host, port, rack| {
            NodeEndpoint { node_id, host, port, rack }
        });
    match encode_response(&response, call.key, call.version, call.correlation_id) {
        Ok((head, gaps)) => Reply::Now(Frame::with_slices(head, &gaps, slices)),
        Err(error) => Reply::Close(format!("the answer to a fetch could not be encoded: {error}")),
    }
}

fn partition_data(
    plan: &FetchPlan,
    entry: &FetchEntry,
    outcome: FetchOutcome,
    slices: &mut Vec<LogSlice>,
) -> PartitionData {
    let mut data = PartitionData {
        partition_index: entry.key.partition.0,
        error_code: outcome.error.code(),
        high_watermark: -1,
        log_start_offset: outcome.log_start_offset(),
        // Kafka's clients want records to be empty, not null.
        records: Some(Records::default()),
        aborted_transactions: None,
        ..Default::default()
    };
    let Some(read) = outcome.read else {
        // As in Kafka, errors of a topic have an empty list of aborted transactions.
        let is_early = matches!(
            outcome.error,
            ErrorCode::TopicAuthorizationFailed
                | ErrorCode::UnknownTopicId
                | ErrorCode::UnknownTopicOrPartition
        );
        data.aborted_transactions = is_early.then(Vec::new);
        return data;
    };
    data.high_watermark = read.high_watermark.0;
    data.last_stable_offset = read.last_stable_offset.0;
    // Only versions with this field redirect consumers.
    data.preferred_read_replica = read.preferred_read_replica.unwrap_or(BrokerId::NONE).0;
    if let Some((epoch, end_offset)) = read.diverging {
        data.diverging_epoch = EpochEndOffset { epoch: epoch.0, end_offset: end_offset.0 };
    }
    if plan.isolation == Isolation::ReadCommitted && outcome.error == ErrorCode::None {
        let aborted = read.aborted.iter().map(|transaction| AbortedTransaction {
            producer_id: transaction.producer_id.0,
            first_offset: transaction.first_offset.0,
        });
        data.aborted_transactions = Some(aborted.collect());
    }
    if let Some(slice) = read.slice {
        data.records = Some(Records::Elsewhere(slice.len));
        slices.push(slice);
    }
    data
}
