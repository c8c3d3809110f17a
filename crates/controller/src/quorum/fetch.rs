//! Fetch and FetchSnapshot of the metadata log, as the leader of its quorum serves them.
//!
//! Versions: Fetch 13 to 18 (before 13 the topic has no id, which Kafka's controller refuses too),
//! FetchSnapshot 0 and 1. Records are served only up to the high watermark, as an observer must not apply
//! more.

use std::collections::BTreeMap;

use bytes::Bytes;
use thalweg_metadata::Endpoint;
use thalweg_wire::request::fetch_response::{
    EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
    SnapshotId as WireSnapshotId,
};
use thalweg_wire::request::fetch_snapshot_response::{self, PartitionSnapshot, TopicSnapshot};
use thalweg_wire::request::{FetchRequest, FetchResponse, FetchSnapshotRequest, FetchSnapshotResponse};
use thalweg_wire::{ErrorCode, Records, Uuid};

use super::{MetadataLog, SnapshotId};
use crate::state::CLUSTER_METADATA_TOPIC;

/// Maximum size of a response, for any request (Kafka's `MAX_FETCH_SIZE_BYTES`).
const RESPONSE_BYTES_MAX: i32 = 8 * 1024 * 1024;
/// Maximum number of observers listed by DescribeQuorum.
const OBSERVERS_MAX: usize = 1024;
/// Time without a Fetch after which an observer is dropped (Kafka's `OBSERVER_SESSION_TIMEOUT_MS`).
const OBSERVER_SESSION_MS: i64 = 300_000;

/// The leader, for the head of each response.
#[derive(Debug)]
pub(crate) struct Leader {
    pub node_id: i32,
    pub epoch: i32,
    pub cluster_id: String,
    pub endpoints: Vec<Endpoint>,
    /// The directory id of the leader's log.
    pub directory_id: Uuid,
}

/// A replica that follows the log without a vote.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observer {
    pub directory_id: Uuid,
    pub log_end_offset: i64,
    pub last_fetch_ms: i64,
    pub last_caught_up_ms: i64,
}

/// The observers by their node ids.
#[derive(Debug, Default)]
pub(crate) struct Observers(BTreeMap<i32, Observer>);

impl Observers {
    fn note(&mut self, replica: i32, directory_id: Uuid, fetch_offset: i64, log_end: i64, now_ms: i64) {
        if self.0.len() >= OBSERVERS_MAX && !self.0.contains_key(&replica) {
            return;
        }
        let new = Observer { directory_id, log_end_offset: -1, last_fetch_ms: -1, last_caught_up_ms: -1 };
        let observer = self.0.entry(replica).or_insert(new);
        observer.directory_id = directory_id;
        observer.log_end_offset = fetch_offset;
        observer.last_fetch_ms = now_ms;
        if fetch_offset >= log_end {
            observer.last_caught_up_ms = now_ms;
        }
    }

    /// The observers with a recent Fetch.
    pub fn live(&mut self, now_ms: i64) -> impl Iterator<Item = (i32, Observer)> {
        self.0.retain(|_, observer| now_ms - observer.last_fetch_ms <= OBSERVER_SESSION_MS);
        self.0.iter().map(|(id, observer)| (*id, *observer))
    }
}

/// A well-formed Fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParsedFetch {
    replica: i32,
    directory_id: Uuid,
    pub offset: i64,
    last_fetched_epoch: i32,
    current_epoch: i32,
    max_bytes: i32,
    /// The high watermark known to the observer.
    high_watermark: i64,
    pub max_wait_ms: i32,
}

/// An answer to a Fetch, and its readiness.
pub(crate) struct FetchAnswer {
    pub response: FetchResponse,
    pub ready: Ready,
}

/// The readiness of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ready {
    /// There is news.
    Now,
    /// There is no news, and the observer may wait.
    MayWait,
}

impl ParsedFetch {
    /// The parameters of a request, or the answer to a malformed one.
    pub fn read(
        request: &FetchRequest,
        leader: &Leader,
        version: i16,
    ) -> Result<ParsedFetch, Box<FetchResponse>> {
        let top_level = |code: ErrorCode| {
            Err(Box::new(FetchResponse { error_code: code.code(), ..FetchResponse::default() }))
        };
        if request.cluster_id.as_ref().is_some_and(|id| *id != leader.cluster_id) {
            return top_level(ErrorCode::InconsistentClusterId);
        }
        let [topic] = request.topics.as_slice() else { return top_level(ErrorCode::InvalidRequest) };
        let [partition] = topic.partitions.as_slice() else { return top_level(ErrorCode::InvalidRequest) };
        if topic.topic_id != Uuid::METADATA_TOPIC || partition.partition != 0 {
            return top_level(ErrorCode::InvalidRequest);
        }
        if request.max_wait_ms < 0
            || partition.fetch_offset < 0
            || partition.last_fetched_epoch < 0
            || partition.last_fetched_epoch > partition.current_leader_epoch
        {
            return Err(Box::new(empty(leader, ErrorCode::InvalidRequest, -1, version)));
        }
        Ok(ParsedFetch {
            replica: if version >= 15 { request.replica_state.replica_id } else { request.replica_id },
            directory_id: partition.replica_directory_id,
            offset: partition.fetch_offset,
            last_fetched_epoch: partition.last_fetched_epoch,
            current_epoch: partition.current_leader_epoch,
            max_bytes: request.max_bytes.clamp(0, RESPONSE_BYTES_MAX),
            high_watermark: partition.high_watermark,
            max_wait_ms: request.max_wait_ms,
        })
    }

    /// The answer at this moment.
    pub fn answer(
        &self,
        log: &mut MetadataLog,
        observers: &mut Observers,
        leader: &Leader,
        version: i16,
        now_ms: i64,
    ) -> Result<FetchAnswer, thalweg_log::LogError> {
        let high_watermark = log.high_watermark();
        if let Some(code) = epoch_error(self.current_epoch, leader.epoch) {
            let response = empty(leader, code, high_watermark, version);
            return Ok(FetchAnswer { response, ready: Ready::Now });
        }
        let mut response = empty(leader, ErrorCode::None, high_watermark, version);
        let data = &mut response.responses[0].partitions[0];
        data.log_start_offset = log.start_offset();
        let mut ready = Ready::Now;
        match position(log, self.offset, self.last_fetched_epoch) {
            Position::Snapshot(id) => {
                data.snapshot_id = WireSnapshotId { end_offset: id.end_offset, epoch: id.epoch };
            }
            Position::Diverging { epoch, end_offset } => {
                data.diverging_epoch = EpochEndOffset { epoch, end_offset };
            }
            Position::Valid => {
                if self.replica >= 0 && self.replica != leader.node_id {
                    observers.note(self.replica, self.directory_id, self.offset, log.end_offset(), now_ms);
                }
                let max_bytes = usize::try_from(self.max_bytes).unwrap_or(0);
                let records = log.read(self.offset, max_bytes, high_watermark)?;
                if records.is_empty() && self.high_watermark >= high_watermark {
                    ready = Ready::MayWait;
                }
                data.records = Some(Records::Inline(records));
            }
        }
        Ok(FetchAnswer { response, ready })
    }
}

/// The error for a request with a different epoch, if any.
fn epoch_error(theirs: i32, ours: i32) -> Option<ErrorCode> {
    match theirs.cmp(&ours) {
        std::cmp::Ordering::Less => Some(ErrorCode::FencedLeaderEpoch),
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(ErrorCode::UnknownLeaderEpoch),
    }
}

enum Position {
    Valid,
    Snapshot(SnapshotId),
    Diverging { epoch: i32, end_offset: i64 },
}

/// The position of an observer that has all records below `offset`, the last one from `epoch`.
fn position(log: &MetadataLog, offset: i64, epoch: i32) -> Position {
    let start = log.start_offset();
    if let Some(latest) = log.latest_snapshot() {
        let earliest = log.earliest_snapshot().unwrap_or(latest);
        // An empty observer gets a snapshot, even if the log still starts at offset 0.
        let behind = offset < start || (start > 0 && offset == start && epoch != earliest.epoch);
        if offset == 0 || behind || epoch < earliest.epoch {
            return Position::Snapshot(latest);
        }
    } else if offset == 0 && start == 0 {
        return Position::Valid;
    }
    let (end_epoch, end_offset) = log.end_of_epoch(epoch);
    if end_epoch != epoch || end_offset < offset {
        return Position::Diverging { epoch: end_epoch, end_offset };
    }
    Position::Valid
}

fn empty(leader: &Leader, code: ErrorCode, high_watermark: i64, version: i16) -> FetchResponse {
    let data = PartitionData {
        partition_index: 0,
        error_code: code.code(),
        high_watermark,
        current_leader: LeaderIdAndEpoch { leader_id: leader.node_id, leader_epoch: leader.epoch },
        records: Some(Records::default()),
        ..PartitionData::default()
    };
    let topic = FetchableTopicResponse {
        topic: CLUSTER_METADATA_TOPIC.to_owned(),
        topic_id: Uuid::METADATA_TOPIC,
        partitions: vec![data],
    };
    let node_endpoints = match leader.endpoints.first() {
        Some(endpoint) if version >= 17 => vec![NodeEndpoint {
            node_id: leader.node_id,
            host: endpoint.host.clone(),
            port: i32::from(endpoint.port),
            rack: None,
        }],
        _ => Vec::new(),
    };
    FetchResponse { responses: vec![topic], node_endpoints, ..FetchResponse::default() }
}

pub(crate) fn fetch_snapshot(
    request: &FetchSnapshotRequest,
    log: &MetadataLog,
    leader: &Leader,
    version: i16,
) -> FetchSnapshotResponse {
    let top_level = |code: ErrorCode| FetchSnapshotResponse {
        error_code: code.code(),
        ..FetchSnapshotResponse::default()
    };
    if request.cluster_id.as_ref().is_some_and(|id| *id != leader.cluster_id) {
        return top_level(ErrorCode::InconsistentClusterId);
    }
    let [topic] = request.topics.as_slice() else { return top_level(ErrorCode::InvalidRequest) };
    let [partition] = topic.partitions.as_slice() else { return top_level(ErrorCode::InvalidRequest) };
    let mut answer = PartitionSnapshot { index: partition.partition, ..PartitionSnapshot::default() };
    answer.current_leader =
        fetch_snapshot_response::LeaderIdAndEpoch { leader_id: leader.node_id, leader_epoch: leader.epoch };
    let code = if topic.name != CLUSTER_METADATA_TOPIC || partition.partition != 0 {
        ErrorCode::UnknownTopicOrPartition
    } else if let Some(code) = epoch_error(partition.current_leader_epoch, leader.epoch) {
        code
    } else {
        let id =
            SnapshotId { end_offset: partition.snapshot_id.end_offset, epoch: partition.snapshot_id.epoch };
        let max_bytes = usize::try_from(request.max_bytes.clamp(0, RESPONSE_BYTES_MAX)).unwrap_or(0);
        let piece = u64::try_from(partition.position).ok().map(|at| log.read_snapshot(id, at, max_bytes));
        match piece {
            None => ErrorCode::PositionOutOfRange,
            Some(Err(error)) => {
                tracing::error!(snapshot = id.file_name(), %error, "Failed to read a metadata snapshot");
                ErrorCode::UnknownServerError
            }
            Some(Ok(None)) => ErrorCode::SnapshotNotFound,
            Some(Ok(Some((_, size)))) if u64::try_from(partition.position).is_ok_and(|at| at >= size) => {
                ErrorCode::PositionOutOfRange
            }
            Some(Ok(Some((bytes, size)))) => {
                answer.snapshot_id =
                    fetch_snapshot_response::SnapshotId { end_offset: id.end_offset, epoch: id.epoch };
                answer.size = i64::try_from(size).unwrap_or(i64::MAX);
                answer.position = partition.position;
                answer.unaligned_records = Records::Inline(Bytes::clone(&bytes));
                ErrorCode::None
            }
        }
    };
    answer.error_code = code.code();
    let node_endpoints = match leader.endpoints.first() {
        Some(endpoint) if version >= 1 => vec![fetch_snapshot_response::NodeEndpoint {
            node_id: leader.node_id,
            host: endpoint.host.clone(),
            port: endpoint.port,
        }],
        _ => Vec::new(),
    };
    let topics = vec![TopicSnapshot { name: topic.name.clone(), partitions: vec![answer] }];
    FetchSnapshotResponse { topics, node_endpoints, ..FetchSnapshotResponse::default() }
}
