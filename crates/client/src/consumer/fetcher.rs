//! The fetcher task of one broker: asks for records one request ahead of the consumer.
//!
//! While the consumer reads one answer, the next is under way: a fetch needs only the offset after the last batch, which is
//! in the batch's head. Fetch sessions (KIP-227) keep requests small: only partitions that moved are named.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thalweg_hash::HashMap;
use thalweg_record::{LeaderEpoch, Offset};
use thalweg_wire::request::fetch_request::{FetchPartition, FetchTopic};
use thalweg_wire::request::fetch_response::PartitionData;
use thalweg_wire::request::{FetchRequest, FetchResponse};
use thalweg_wire::{ApiKey, ErrorCode, Records, Uuid};
use tokio::sync::{Notify, mpsc};

use super::ConsumerConfig;
use super::chunk::Chunk;
use crate::cluster::Cluster;
use crate::connection::{Connection, RequestOptions};
use crate::error::{ClientError, Refused};
use crate::offsets::TopicPartition;

/// The first version of Fetch that names topics by their ids.
const TOPIC_IDS_FROM: i16 = 13;
/// A session that is not wanted, or was not given.
const NO_SESSION: (i32, i32) = (0, -1);

/// What a fetcher tells the consumer.
#[derive(Debug)]
pub(super) enum Fetched {
    /// Batches, of one partition each.
    Chunks(Vec<Chunk>),
    /// The log no longer has the offset, or does not have it yet.
    OutOfRange(TopicPartition, Offset),
    /// The partition has moved, or the broker is gone: look at the metadata and begin again.
    Stale(ClientError),
    /// It makes no sense to go on.
    Failed(ClientError),
}

/// A partition to fetch.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) at: TopicPartition,
    pub(super) topic_id: Uuid,
    pub(super) leader_epoch: LeaderEpoch,
    pub(super) position: Offset,
}

pub(super) struct Fetcher {
    pub(super) cluster: Cluster,
    pub(super) broker: i32,
    pub(super) config: Arc<ConsumerConfig>,
    pub(super) targets: Vec<Target>,
    pub(super) to: mpsc::Sender<Fetched>,
    pub(super) demand: Arc<Demand>,
}

/// Whether the consumer waits for records. While it does not, a broker that has none is not asked again and again: with
/// `fetch.max.wait.ms=0` that would be a loop without an end.
#[derive(Debug, Default)]
pub(super) struct Demand {
    waiting: AtomicBool,
    changed: Notify,
}

impl Demand {
    pub(super) fn set(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Relaxed);
        if waiting {
            self.changed.notify_waiters();
        }
    }

    async fn wait(&self) {
        let changed = self.changed.notified();
        if !self.waiting.load(Ordering::Relaxed) {
            changed.await;
        }
    }
}

/// A fetch session, as the broker keeps it.
struct Session {
    id: i32,
    epoch: i32,
    /// The positions that the broker knows, by target.
    known: HashMap<usize, Offset>,
}

impl Session {
    fn new() -> Session {
        Session { id: 0, epoch: 0, known: HashMap::default() }
    }
}

impl Fetcher {
    /// Fetches until the consumer is gone or something is wrong.
    pub(super) async fn run(mut self) {
        let connection = match self.cluster.broker(self.broker).await {
            Ok(connection) => connection,
            Err(error) => return self.tell(Fetched::Stale(error)).await,
        };
        let mut session = Session::new();
        loop {
            let answer = self.fetch(&connection, &session).await;
            let (response, by_id) = match answer {
                Ok(answer) => answer,
                Err(error) if error.is_retriable() => return self.tell(Fetched::Stale(error)).await,
                Err(error) => return self.tell(Fetched::Failed(error)).await,
            };
            match ErrorCode::from_i16(response.error_code).unwrap_or(ErrorCode::UnknownServerError) {
                ErrorCode::None => {}
                ErrorCode::FetchSessionIdNotFound
                | ErrorCode::InvalidFetchSessionEpoch
                | ErrorCode::FetchSessionTopicIdError => {
                    session = Session::new();
                    continue;
                }
                error_code => {
                    let what = format!("Fetch from {}", connection.peer());
                    let error = ClientError::from(Refused { what, error_code, message: None });
                    let stale = error.is_retriable();
                    return self
                        .tell(if stale { Fetched::Stale(error) } else { Fetched::Failed(error) })
                        .await;
                }
            }
            self.advance_session(&mut session, &response);
            match self.read(response, by_id) {
                Ok(chunks) if chunks.is_empty() => self.demand.wait().await,
                Ok(chunks) => {
                    if self.to.send(Fetched::Chunks(chunks)).await.is_err() {
                        return;
                    }
                }
                Err((chunks, end)) => {
                    if !chunks.is_empty() {
                        self.tell(Fetched::Chunks(chunks)).await;
                    }
                    return self.tell(end).await;
                }
            }
        }
    }

    async fn tell(&self, fetched: Fetched) {
        // The consumer may be gone; then nobody wants to know.
        let _ = self.to.send(fetched).await;
    }

    async fn fetch(
        &self,
        connection: &Connection,
        session: &Session,
    ) -> Result<(FetchResponse, bool), ClientError> {
        let ids_known = self.targets.iter().all(|target| !target.topic_id.is_zero());
        let limit = if ids_known { i16::MAX } else { TOPIC_IDS_FROM - 1 };
        let newest = connection.versions().newest(ApiKey::Fetch, limit);
        let version = match newest {
            Some(version) => version,
            None => connection.version_of::<FetchRequest>()?,
        };
        let config = &self.config;
        let (session_id, session_epoch) = if version >= 7 { (session.id, session.epoch) } else { NO_SESSION };
        let request = FetchRequest {
            max_wait_ms: i32::try_from(config.fetch_wait_max.as_millis()).unwrap_or(i32::MAX),
            min_bytes: config.fetch_bytes_min,
            max_bytes: config.fetch_bytes_max,
            isolation_level: i8::from(config.read_committed),
            session_id,
            session_epoch,
            topics: self.moved(session),
            ..FetchRequest::default()
        };
        let timeout = config.connection.request_timeout + config.fetch_wait_max;
        let options = RequestOptions { version: Some(version), timeout: Some(timeout) };
        Ok((connection.send_with(&request, options).await?, version >= TOPIC_IDS_FROM))
    }

    /// The partitions whose position the broker does not know.
    fn moved(&self, session: &Session) -> Vec<FetchTopic> {
        let mut topics: Vec<FetchTopic> = Vec::new();
        for (index, target) in self.targets.iter().enumerate() {
            if session.epoch > 0 && session.known.get(&index) == Some(&target.position) {
                continue;
            }
            if topics.last().is_none_or(|last| *last.topic != *target.at.topic) {
                topics.push(FetchTopic {
                    topic: target.at.topic.to_string(),
                    topic_id: target.topic_id,
                    partitions: Vec::new(),
                });
            }
            topics.last_mut().expect("it was just added").partitions.push(FetchPartition {
                partition: target.at.partition,
                current_leader_epoch: target.leader_epoch.0,
                fetch_offset: target.position.0,
                partition_max_bytes: self.config.partition_fetch_bytes_max,
                ..FetchPartition::default()
            });
        }
        topics
    }

    /// Notes what the broker knows now. Without a session, everything is named again the next time.
    fn advance_session(&self, session: &mut Session, response: &FetchResponse) {
        if response.session_id == 0 {
            // With epoch 0, the next request asks for a session again; the broker may have room then.
            *session = Session::new();
            return;
        }
        session.id = response.session_id;
        session.epoch = session.epoch.checked_add(1).unwrap_or(1);
        session.known =
            self.targets.iter().enumerate().map(|(index, target)| (index, target.position)).collect();
    }

    /// Takes the batches out of an answer and moves the positions behind them.
    fn read(&mut self, response: FetchResponse, by_id: bool) -> Result<Vec<Chunk>, (Vec<Chunk>, Fetched)> {
        let mut chunks = Vec::new();
        let mut end = None;
        for topic in response.responses {
            for partition in topic.partitions {
                let wanted = |target: &Target| {
                    target.at.partition == partition.partition_index
                        && if by_id {
                            target.topic_id == topic.topic_id
                        } else {
                            *target.at.topic == *topic.topic
                        }
                };
                let Some(index) = self.targets.iter().position(wanted) else { continue };
                match self.read_partition(index, partition) {
                    Ok(chunk) => chunks.extend(chunk),
                    Err(problem) => {
                        end.get_or_insert(problem);
                    }
                }
            }
        }
        match end {
            None => Ok(chunks),
            Some(end) => Err((chunks, end)),
        }
    }

    fn read_partition(&mut self, index: usize, data: PartitionData) -> Result<Option<Chunk>, Fetched> {
        let target = &mut self.targets[index];
        match ErrorCode::from_i16(data.error_code).unwrap_or(ErrorCode::UnknownServerError) {
            ErrorCode::None => {}
            ErrorCode::OffsetOutOfRange => {
                return Err(Fetched::OutOfRange(target.at.clone(), target.position));
            }
            error_code => {
                let what = format!("Fetch of {} at offset {}", target.at, target.position);
                let error = ClientError::from(Refused { what, error_code, message: None });
                let stale = error.is_retriable() && error_code != ErrorCode::CorruptMessage;
                return Err(if stale { Fetched::Stale(error) } else { Fetched::Failed(error) });
            }
        }
        let Some(Records::Inline(bytes)) = data.records else { return Ok(None) };
        let Some((next, leader_epoch)) = Chunk::end_of(&bytes) else { return Ok(None) };
        let start = target.position;
        target.position = next;
        Ok(Some(Chunk {
            at: target.at.clone(),
            bytes,
            start,
            next,
            leader_epoch,
            high_watermark: Offset(data.high_watermark),
            aborted: data.aborted_transactions.unwrap_or_default(),
            check_crcs: self.config.check_crcs,
        }))
    }
}
