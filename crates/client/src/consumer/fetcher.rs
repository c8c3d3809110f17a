//! The fetcher task of one broker: fetches one request ahead of the consumer, over a dedicated connection,
//! because the broker holds a fetch that finds no records. An idle consumer sends one fetch per
//! `fetch.max.wait.ms`.
//!
//! While the consumer reads an answer, the next request is in flight: a fetch needs only the offset after the
//! last batch, which is in the batch's header. The targets are read before each request; a later change makes
//! the answer stale. If the broker may hold a fetch for long, a change that adds a target abandons the fetch
//! with its connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thalweg_dial::{BrokerUnknown, ClientError, Connection, RefusedRequest, RequestOptions};
use thalweg_record::Offset;
use thalweg_wire::request::fetch_response::PartitionData;
use thalweg_wire::request::{FetchRequest, FetchResponse};
use thalweg_wire::{ApiKey, ErrorCode, Records, Uuid};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::ConsumerConfig;
use super::assignment::{Assignment, Target};
use super::chunk::Chunk;
use super::fetch_session::FetchSession;
use super::shared_state::SharedState;
use crate::cluster::{Cluster, SILENCE};
use crate::metadata::BrokerAddress;
use crate::offsets::TopicPartition;

/// The first version of Fetch with topic ids.
const TOPIC_IDS_FROM: i16 = 13;
/// No session requested or assigned.
const NO_SESSION: (i32, i32) = (0, -1);

/// Kafka's default `fetch.max.wait.ms`. A fetch held at most this long is never abandoned.
const HELD_SHORTLY: Duration = Duration::from_millis(500);
/// Ticks per `fetch.max.wait.ms`, for longer waits. Fetches without records end at common ticks, so that a
/// process with many idle consumers wakes up rarely.
const WAIT_TICKS: u32 = 4;

/// A result of a fetcher.
#[derive(Debug)]
pub(super) enum FetchResult {
    /// Batches, of one partition each.
    Chunks(Vec<Chunk>),
    /// The leader's log no longer has the offset, or does not have it yet.
    OutOfRange(TopicPartition, Offset),
    /// A partition must be read from a follower.
    Redirected,
    /// The broker's answer is late: another broker may lead by now.
    Silent,
    /// Partitions have moved, or the broker is unavailable: metadata is needed.
    Stale(ClientError),
    /// The fetcher cannot continue.
    Failed(ClientError),
}

pub(super) struct Fetcher {
    pub(super) cluster: Cluster,
    pub(super) broker: i32,
    pub(super) config: Arc<ConsumerConfig>,
    pub(super) shared: Arc<SharedState>,
    /// Boxed, because a channel allocates space for 32 items.
    pub(super) to: mpsc::Sender<Box<FetchResult>>,
}

/// A decoded answer.
#[derive(Default)]
struct Answer {
    chunks: Vec<Chunk>,
    problems: Vec<FetchResult>,
}

impl Fetcher {
    /// Fetches until the broker is unavailable or has no more partitions to read.
    pub(super) async fn run(self) {
        let Err(error) = self.fetch_all().await else { return };
        {
            let mut assignment = self.shared.assignment.lock();
            for target in assignment.targets(self.broker, Instant::now()) {
                assignment.leader_lost(&target);
            }
        }
        self.send_result(if error.is_retriable() {
            FetchResult::Stale(error)
        } else {
            FetchResult::Failed(error)
        })
        .await;
    }

    async fn fetch_all(&self) -> Result<(), ClientError> {
        let mut connection = self.connect().await?;
        let mut session = FetchSession::default();
        loop {
            let changed = self.shared.changed.notified();
            let now = Instant::now();
            let (targets, of_use) = {
                let assignment = self.shared.assignment.lock();
                (assignment.targets(self.broker, now), assignment.brokers(now).contains(&self.broker))
            };
            if !of_use {
                return Ok(());
            }
            if targets.is_empty() {
                changed.await;
                continue;
            }
            let fetched = tokio::select! {
                biased;
                fetched = self.watched(self.fetch(&connection, &session, &targets)) => Some(fetched?),
                () = self.superseded(&targets) => None,
            };
            let Some((response, by_id)) = fetched else {
                // The broker answers no other request on the old connection before the fetch.
                (connection, session) = (self.connect().await?, FetchSession::default());
                continue;
            };
            match ErrorCode::from_i16(response.error_code).unwrap_or(ErrorCode::UnknownServerError) {
                ErrorCode::None => session.answered(response.session_id, &targets),
                ErrorCode::FetchSessionIdNotFound
                | ErrorCode::InvalidFetchSessionEpoch
                | ErrorCode::FetchSessionTopicIdError => {
                    session = FetchSession::default();
                    continue;
                }
                error_code => {
                    let what = format!("Fetch from {}", connection.peer());
                    return Err(RefusedRequest { what, error_code, message: None }.into());
                }
            }
            let answer = self.read(&targets, response, by_id);
            if answer.chunks.is_empty() && answer.problems.is_empty() {
                self.shared.demand.wait().await;
                continue;
            }
            if !answer.chunks.is_empty() {
                self.send_result(FetchResult::Chunks(answer.chunks)).await;
            }
            let pause = !answer.problems.is_empty();
            for problem in answer.problems {
                self.send_result(problem).await;
            }
            if pause {
                tokio::time::sleep(self.config.retry_backoff).await;
            }
        }
    }

    /// Waits for an answer, and reports at intervals that it is late. Brokers of a stopped process are fenced
    /// long before a request times out.
    async fn watched<T>(&self, answer: impl Future<Output = T>) -> T {
        let mut answer = std::pin::pin!(answer);
        let mut late = self.config.fetch_wait_max + SILENCE;
        loop {
            match tokio::time::timeout(late, answer.as_mut()).await {
                Ok(answer) => return answer,
                // A consumer with results to take needs no other.
                Err(_) => drop(self.to.try_send(Box::new(FetchResult::Silent))),
            }
            late = SILENCE * 2;
        }
    }

    /// Returns when a fetch that may be held for long lacks a wanted partition, or has an outdated position.
    async fn superseded(&self, sent: &[Target]) {
        if self.config.fetch_wait_max <= HELD_SHORTLY {
            return std::future::pending().await;
        }
        loop {
            let changed = self.shared.changed.notified();
            let targets = self.shared.assignment.lock().targets(self.broker, Instant::now());
            // Both lists are sorted by partition.
            let is_sent = |target: &Target| {
                let place = sent.binary_search_by(|sent| sent.at.cmp(&target.at));
                place.is_ok_and(|place| sent[place].version == target.version)
            };
            if !targets.iter().all(is_sent) {
                return;
            }
            changed.await;
        }
    }

    async fn connect(&self) -> Result<Connection, ClientError> {
        let address = self.cluster.metadata().brokers.get(&self.broker).map(BrokerAddress::address);
        let address = address.ok_or(BrokerUnknown { id: self.broker })?;
        let budget = self.config.connection.answer_budget.clone();
        self.cluster.dedicated_within(&address, budget).await
    }

    async fn send_result(&self, fetched: FetchResult) {
        // Fails if the consumer was dropped.
        let _ = self.to.send(Box::new(fetched)).await;
    }

    async fn fetch(
        &self,
        connection: &Connection,
        session: &FetchSession,
        targets: &[Target],
    ) -> Result<(FetchResponse, bool), ClientError> {
        let ids_known = targets.iter().all(|target| !target.topic_id.is_zero());
        let limit = if ids_known { i16::MAX } else { TOPIC_IDS_FROM - 1 };
        let newest = connection.versions().newest(ApiKey::Fetch, limit);
        let version = match newest {
            Some(version) => version,
            None => connection.version_of::<FetchRequest>()?,
        };
        let config = &self.config;
        let (session_id, session_epoch) = if version >= 7 { (session.id, session.epoch) } else { NO_SESSION };
        let forgotten = session.forgotten(targets);
        let request = FetchRequest {
            max_wait_ms: i32::try_from(self.wait().as_millis()).unwrap_or(i32::MAX),
            min_bytes: config.fetch_bytes_min,
            max_bytes: config.fetch_bytes_max,
            isolation_level: i8::from(config.read_committed),
            session_id,
            session_epoch,
            topics: session.named(targets, config.partition_fetch_bytes_max),
            forgotten_topics_data: if version >= 7 { forgotten } else { Vec::new() },
            rack_id: config.rack.clone().filter(|_| version >= 11).unwrap_or_default(),
            ..FetchRequest::default()
        };
        let timeout = config.connection.request_timeout + config.fetch_wait_max;
        let options = RequestOptions { version: Some(version), timeout: Some(timeout) };
        Ok((connection.send_with(&request, options).await?, version >= TOPIC_IDS_FROM))
    }

    /// Maximum time that the broker may hold a fetch that starts now.
    fn wait(&self) -> Duration {
        let wait = self.config.fetch_wait_max;
        if wait <= HELD_SHORTLY {
            return wait;
        }
        let now = Instant::now();
        self.cluster.tick_until(now + wait, wait / WAIT_TICKS).duration_since(now)
    }

    /// Takes the batches from an answer and advances the positions.
    fn read(&self, targets: &[Target], response: FetchResponse, by_id: bool) -> Answer {
        let mut answer = Answer::default();
        let names: BTreeMap<Uuid, &Arc<str>> =
            targets.iter().filter(|_| by_id).map(|target| (target.topic_id, &target.at.topic)).collect();
        let mut assignment = self.shared.assignment.lock();
        for topic in response.responses {
            let name = match by_id {
                true => names.get(&topic.topic_id).map(|name| Arc::clone(name)),
                false => Some(topic.topic.into()),
            };
            // Ignore partitions that were not requested.
            let Some(name) = name else { continue };
            for partition in topic.partitions {
                let at = TopicPartition::new(Arc::clone(&name), partition.partition_index);
                // The targets are sorted by partition.
                if let Ok(place) = targets.binary_search_by(|target| target.at.cmp(&at)) {
                    self.read_partition(&mut assignment, &targets[place], partition, &mut answer);
                }
            }
        }
        answer
    }

    fn read_partition(
        &self,
        assignment: &mut Assignment,
        target: &Target,
        data: PartitionData,
        answer: &mut Answer,
    ) {
        match ErrorCode::from_i16(data.error_code).unwrap_or(ErrorCode::UnknownServerError) {
            ErrorCode::None => {}
            ErrorCode::OffsetOutOfRange => {
                if assignment.out_of_range(target) {
                    answer.problems.push(FetchResult::OutOfRange(target.at.clone(), target.offset));
                }
                return;
            }
            error_code => {
                let what = format!("Fetch of {} at offset {}", target.at, target.offset);
                let error = ClientError::from(RefusedRequest { what, error_code, message: None });
                // As in Kafka's consumer, an unknown error may be transient.
                let may_pass = error.is_retriable() || error_code == ErrorCode::UnknownServerError;
                if may_pass && error_code != ErrorCode::CorruptMessage {
                    assignment.leader_lost(target);
                    answer.problems.push(FetchResult::Stale(error));
                } else {
                    answer.problems.push(FetchResult::Failed(error));
                }
                return;
            }
        }
        if data.preferred_read_replica >= 0 && data.preferred_read_replica != self.broker {
            let until = Instant::now() + self.config.metadata_max_age;
            assignment.prefer_replica(target, data.preferred_read_replica, until);
            answer.problems.push(FetchResult::Redirected);
        }
        let Some(Records::Inline(bytes)) = data.records else { return };
        let Some((next, leader_epoch)) = Chunk::end_of(&bytes) else { return };
        if !assignment.fetched(target, next) {
            return;
        }
        answer.chunks.push(Chunk {
            at: target.at.clone(),
            bytes,
            start: target.offset,
            next,
            leader_epoch,
            high_watermark: Offset(data.high_watermark),
            // Old brokers do not send it.
            last_stable_offset: Offset(match data.last_stable_offset {
                -1 => data.high_watermark,
                offset => offset,
            }),
            aborted: data.aborted_transactions.unwrap_or_default(),
            check_crcs: self.config.check_crcs,
            version: target.version,
        });
    }
}
