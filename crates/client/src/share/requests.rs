//! The requests of a share consumer: one at a time to each broker, since each carries the next epoch of the
//! session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thalweg_dial::{BrokerUnknown, ClientError, Connection, RefusedRequest, RequestOptions};
use thalweg_record::Offset;
use thalweg_wire::request::share_fetch_response::PartitionData;
use thalweg_wire::request::{
    ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareFetchRequest, ShareFetchResponse,
};
use thalweg_wire::{ErrorCode, Records};
use tokio::task::JoinError;
use tokio::time::Instant;

use super::chunk::{AcquiredRange, ShareChunk};
use super::member::NEEDS;
use super::ranges::Ranges;
use super::session::{Acknowledgements, ENDS, Session, named};
use super::{AcknowledgeType, AcquireMode, GAP, ShareConsumer};
use crate::cluster::Cluster;
use crate::metadata::BrokerAddress;
use crate::offsets::{TopicIdPartition, TopicPartition};

/// The first version with renewals and acquire modes.
const RENEWALS_FROM: i16 = 2;

/// Number of lock timeouts after which acquired records are forgotten unless acknowledged. Renewals may have
/// prolonged their locks.
const LOCK_PATIENCE: u32 = 10;
/// Kafka's default of `group.share.record.lock.duration.ms`, until a broker reports its own value.
const LOCK_DEFAULT: Duration = Duration::from_secs(30);

/// A broker that partitions are read from.
#[derive(Debug)]
pub(super) struct BrokerSession {
    session: Session,
    /// The session's number among all sessions of the consumer.
    pub(super) number: u64,
    connection: Option<Connection>,
    /// Delivered records without a final acknowledgement, each with the time from which the broker has
    /// certainly released it.
    held: BTreeMap<TopicIdPartition, Ranges<Instant>>,
    /// Acknowledgements not sent yet.
    pending: Acknowledgements,
    in_flight: bool,
    /// True if the request in flight has acknowledgements.
    is_acknowledging: bool,
    /// Time of the next try after a failure.
    not_before: Instant,
    /// Partitions refused by the broker, each with the time of the next try. Fetches leave them out until
    /// then, since the broker would refuse at once; other partitions are read meanwhile.
    held_back: BTreeMap<TopicIdPartition, Instant>,
}

impl BrokerSession {
    fn new(number: u64) -> BrokerSession {
        BrokerSession {
            session: Session::default(),
            number,
            connection: None,
            held: BTreeMap::new(),
            pending: Acknowledgements::new(),
            in_flight: false,
            is_acknowledging: false,
            not_before: Instant::now(),
            held_back: BTreeMap::new(),
        }
    }

    /// Removes held-back partitions from `wanted`. Returns the time when the first of them is due.
    fn leave_out_held_back(&mut self, wanted: &mut BTreeSet<TopicIdPartition>) -> Option<Instant> {
        let now = Instant::now();
        self.held_back.retain(|_, until| *until > now);
        let mut due: Option<Instant> = None;
        for (key, until) in &self.held_back {
            if wanted.remove(key) {
                due = Some(due.map_or(*until, |due| due.min(*until)));
            }
        }
        due
    }

    pub(super) fn holds(&self, key: TopicIdPartition) -> bool {
        self.held.get(&key).is_some_and(|held| !held.is_empty())
    }

    /// True if acknowledgements wait for a request or its answer.
    pub(super) fn has_unanswered(&self) -> bool {
        self.is_acknowledging || !self.pending.is_empty()
    }

    /// Holds these offsets, and forgets offsets of the partition whose locks have certainly expired.
    fn hold(&mut self, key: TopicIdPartition, acquired: &[AcquiredRange], lock: Duration) {
        let now = Instant::now();
        let held = self.held.entry(key).or_default();
        let over: Vec<(i64, i64)> =
            held.iter().filter(|(_, _, until)| *until <= now).map(|(first, last, _)| (first, last)).collect();
        for (first, last) in over {
            held.remove(first, last);
        }
        for range in acquired {
            held.insert(range.first.0, range.last.0, now + lock * LOCK_PATIENCE);
        }
    }

    /// Acknowledges these offsets, if all are held.
    pub(super) fn acknowledge(&mut self, key: TopicIdPartition, first: i64, last: i64, kind: i8) -> bool {
        let Some(held) = self.held.get_mut(&key).filter(|held| first <= last && held.covers(first, last))
        else {
            return false;
        };
        if kind != AcknowledgeType::Renew.code() {
            held.remove(first, last);
        }
        self.pending.entry(key).or_default().insert(first, last, kind);
        true
    }

    /// Acknowledges the held offsets in this range.
    pub(super) fn acknowledge_held(&mut self, key: TopicIdPartition, first: i64, last: i64, kind: i8) {
        let Some(held) = self.held.get(&key) else { return };
        let within: Vec<(i64, i64)> = held
            .iter()
            .filter(|(start, end, _)| *start <= last && *end >= first)
            .map(|(start, end, _)| (start.max(first), end.min(last)))
            .collect();
        for (first, last) in within {
            self.acknowledge(key, first, last, kind);
        }
    }

    /// True if acknowledgements other than those of gaps wait.
    fn has_answers(&self) -> bool {
        self.pending.values().any(|ranges| ranges.iter().any(|(_, _, kind)| kind != GAP))
    }

    fn is_idle(&self) -> bool {
        !self.in_flight && self.not_before <= Instant::now()
    }

    fn renews(&self) -> bool {
        let renewal = AcknowledgeType::Renew.code();
        self.pending.values().any(|ranges| ranges.iter().any(|(_, _, kind)| kind == renewal))
    }
}

/// A request, and its answer.
#[derive(Debug)]
pub(super) struct AnsweredRequest {
    broker: i32,
    /// The number of the request's session.
    number: u64,
    acknowledged: Acknowledgements,
    connection: Option<Connection>,
    answer: Result<Answer, ClientError>,
}

#[derive(Debug)]
enum Answer {
    Fetched(BTreeSet<TopicIdPartition>, ShareFetchResponse),
    Acknowledged(ShareAcknowledgeResponse),
}

impl ShareConsumer {
    /// Fetches from the brokers without a request in flight, with pending acknowledgements. Returns the time
    /// of the next check.
    pub(super) fn fetch(&mut self) -> Instant {
        let mut due = Instant::now() + self.config.metadata_max_age;
        let mut leaders = self.by_leader();
        for (&broker, of_broker) in &self.brokers {
            // Include open sessions, to forget moved partitions and to send acknowledgements.
            if of_broker.session.is_open() {
                leaders.entry(broker).or_default();
            }
        }
        for (broker, mut wanted) in leaders {
            let sessions = &mut self.sessions;
            let of_broker = self.brokers.entry(broker).or_insert_with(|| {
                *sessions += 1;
                BrokerSession::new(*sessions)
            });
            if !of_broker.is_idle() {
                if !of_broker.in_flight {
                    due = due.min(of_broker.not_before);
                }
                continue;
            }
            let tried_again = of_broker.leave_out_held_back(&mut wanted);
            due = tried_again.map_or(due, |at| due.min(at));
            if of_broker.renews() {
                self.send_acknowledgements(broker, false);
            } else if wanted.is_empty() {
                // Keep the session while any of its records may be acknowledged, or a partition will be tried
                // again.
                let is_done = tried_again.is_none() && of_broker.held.values().all(Ranges::is_empty);
                if is_done || !of_broker.pending.is_empty() {
                    self.send_acknowledgements(broker, is_done);
                }
            } else {
                self.send_fetch(broker, wanted);
            }
        }
        due
    }

    /// Sends waiting acknowledgements without a fetch. Acknowledgements of gaps alone wait for the next
    /// fetch, unless `all` is set.
    pub(super) fn acknowledge_alone(&mut self, all: bool) {
        let waits = |broker: &BrokerSession| broker.has_answers() || (all && !broker.pending.is_empty());
        let waiting = self.brokers.iter().filter(|(_, broker)| broker.is_idle() && waits(broker));
        let waiting: Vec<i32> = waiting.map(|(id, _)| *id).collect();
        for broker in waiting {
            self.send_acknowledgements(broker, false);
        }
    }

    /// Ends all sessions, so that brokers deliver unacknowledged records to other members.
    pub(super) async fn end_sessions(&mut self) {
        let until = Instant::now() + self.config.connection.request_timeout;
        loop {
            let open = self.brokers.iter().filter(|(_, broker)| broker.session.is_open() && broker.is_idle());
            let open: Vec<i32> = open.map(|(id, _)| *id).collect();
            for broker in open {
                self.send_acknowledgements(broker, true);
            }
            match tokio::time::timeout_at(until, self.requests.join_next()).await {
                Ok(Some(done)) => self.take(done),
                // Without an answer, the sessions end with their connections.
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn send_fetch(&mut self, broker: i32, wanted: BTreeSet<TopicIdPartition>) {
        let config = Arc::clone(&self.config);
        let of_broker = self.brokers.get_mut(&broker).expect("the caller has looked it up");
        // A request that opens a session has no acknowledgements.
        let acknowledged = match of_broker.session.is_open() {
            true => std::mem::take(&mut of_broker.pending),
            false => Acknowledgements::new(),
        };
        let request = ShareFetchRequest {
            group_id: Some(config.group.clone()),
            member_id: Some(self.member_id.clone()),
            share_session_epoch: of_broker.session.epoch,
            max_wait_ms: i32::try_from(config.fetch_wait_max.as_millis()).unwrap_or(i32::MAX),
            min_bytes: config.fetch_bytes_min,
            max_bytes: config.fetch_bytes_max,
            max_records: config.records_max,
            batch_size: config.records_max,
            share_acquire_mode: i8::from(config.acquire_mode == AcquireMode::RecordLimit),
            topics: of_broker.session.fetched(&wanted, &acknowledged),
            forgotten_topics_data: of_broker.session.forgotten(&wanted, &acknowledged),
            ..ShareFetchRequest::default()
        };
        of_broker.in_flight = true;
        of_broker.is_acknowledging = !acknowledged.is_empty();
        let (number, connection) = (of_broker.number, of_broker.connection.clone());
        let (cluster, timeout) =
            (self.cluster.clone(), config.connection.request_timeout + config.fetch_wait_max);
        self.requests.spawn(async move {
            let mut used = connection.clone();
            let answer = async {
                let connection = connected(&cluster, broker, connection).await?;
                used = Some(connection.clone());
                let from = if config.acquire_mode == AcquireMode::RecordLimit { RENEWALS_FROM } else { 0 };
                let version =
                    connection.versions().pick_from::<ShareFetchRequest>(connection.peer(), from)?;
                let options = RequestOptions { version: Some(version), timeout: Some(timeout) };
                let response = connection.send_with(&request, options).await?;
                Ok(Answer::Fetched(wanted, response))
            };
            let answer = answer.await;
            AnsweredRequest { broker, number, acknowledged, connection: used, answer }
        });
    }

    fn send_acknowledgements(&mut self, broker: i32, ends: bool) {
        let of_broker = self.brokers.get_mut(&broker).expect("the caller has looked it up");
        let renews = of_broker.renews();
        let acknowledged = std::mem::take(&mut of_broker.pending);
        let request = ShareAcknowledgeRequest {
            group_id: Some(self.config.group.clone()),
            member_id: Some(self.member_id.clone()),
            share_session_epoch: if ends { ENDS } else { of_broker.session.epoch },
            is_renew_ack: renews,
            topics: named(&acknowledged),
        };
        of_broker.in_flight = true;
        of_broker.is_acknowledging = true;
        let (number, connection) = (of_broker.number, of_broker.connection.clone());
        if ends {
            // The next fetch opens another session.
            self.sessions += 1;
            *of_broker = BrokerSession {
                in_flight: true,
                is_acknowledging: true,
                ..BrokerSession::new(self.sessions)
            };
            of_broker.connection.clone_from(&connection);
        }
        let cluster = self.cluster.clone();
        self.requests.spawn(async move {
            let mut used = connection.clone();
            let answer = async {
                let connection = connected(&cluster, broker, connection).await?;
                used = Some(connection.clone());
                let from = if renews { RENEWALS_FROM } else { 0 };
                let version =
                    connection.versions().pick_from::<ShareAcknowledgeRequest>(connection.peer(), from)?;
                Ok(Answer::Acknowledged(connection.send_at(&request, version).await?))
            };
            let answer = answer.await;
            AnsweredRequest { broker, number, acknowledged, connection: used, answer }
        });
    }

    /// Takes the answer to a request.
    pub(super) fn take(&mut self, done: Result<AnsweredRequest, JoinError>) {
        let done = match done {
            Ok(done) => done,
            Err(failure) if failure.is_panic() => std::panic::resume_unwind(failure.into_panic()),
            // The runtime is shutting down.
            Err(_) => return,
        };
        let Some(broker) = self.brokers.get_mut(&done.broker) else { return };
        (broker.in_flight, broker.is_acknowledging) = (false, false);
        let is_current = broker.number == done.number;
        if is_current {
            broker.connection = done.connection;
        }
        let (error_code, message) = match &done.answer {
            Ok(Answer::Fetched(_, response)) => (response.error_code, response.error_message.clone()),
            Ok(Answer::Acknowledged(response)) => (response.error_code, response.error_message.clone()),
            Err(_) => (0, None),
        };
        let what = || format!("Share session of group {} with broker {}", self.config.group, done.broker);
        let checked = RefusedRequest::check(error_code, message.as_deref(), what).map_err(ClientError::from);
        match done.answer.and_then(|answer| checked.map(|()| answer)) {
            Ok(Answer::Fetched(wanted, response)) => {
                if is_current {
                    broker.session.fetch_answered(wanted);
                }
                self.fetched(done.broker, done.acknowledged, response);
            }
            Ok(Answer::Acknowledged(response)) => {
                if is_current {
                    broker.session.answered();
                }
                self.acknowledged(done.acknowledged, response);
            }
            Err(error) => self.failed(done.broker, is_current, &done.acknowledged, error),
        }
    }

    /// Handles a failed request: its session has ended, or is assumed to have ended.
    fn failed(&mut self, broker: i32, is_current: bool, acknowledged: &Acknowledgements, error: ClientError) {
        for key in acknowledged.keys() {
            self.record_outcome(*key, Err(error.clone()));
        }
        if !is_current {
            return;
        }
        let Some(before) = self.brokers.remove(&broker) else { return };
        for key in before.pending.keys() {
            self.record_outcome(*key, Err(error.clone()));
        }
        self.sessions += 1;
        let again = BrokerSession {
            connection: before.connection.filter(|connection| !connection.is_closed()),
            not_before: Instant::now() + self.backoff.next_pause(),
            ..BrokerSession::new(self.sessions)
        };
        self.brokers.insert(broker, again);
        let is_of_session = matches!(
            error.error_code(),
            Some(ErrorCode::ShareSessionNotFound | ErrorCode::InvalidShareSessionEpoch)
        );
        if !error.is_retriable() {
            let what = format!("Share fetch of group {}", self.config.group);
            self.failure = Some(error.if_unserved(what, NEEDS));
        } else if !is_of_session {
            self.config.connection.failed("share fetch", &error);
            tracing::debug!(%error, broker, "Share fetch failed, refreshing leaders");
            self.refresh_soon();
        }
    }

    fn fetched(&mut self, broker: i32, acknowledged: Acknowledgements, response: ShareFetchResponse) {
        self.lock(response.acquisition_lock_timeout_ms);
        let mut not_acknowledged: BTreeMap<TopicIdPartition, ClientError> = BTreeMap::new();
        let mut refused: Vec<(TopicIdPartition, ClientError)> = Vec::new();
        for topic in response.responses {
            for partition in topic.partitions {
                let key = (topic.topic_id, partition.partition_index);
                let Some(at) = self.name(key) else { continue };
                let what = || format!("Acknowledgement of {at}");
                let message = partition.acknowledge_error_message.as_deref();
                if let Err(error) = RefusedRequest::check(partition.acknowledge_error_code, message, what) {
                    not_acknowledged.insert(key, error.into());
                }
                let what = || format!("Share fetch of {at}");
                match RefusedRequest::check(partition.error_code, partition.error_message.as_deref(), what) {
                    Ok(()) => self.take_partition(broker, key, &at, partition),
                    Err(error) => refused.push((key, error.into())),
                }
            }
        }
        if !refused.is_empty() {
            self.hold_back(broker, refused);
        }
        for key in acknowledged.keys() {
            self.record_outcome(*key, not_acknowledged.remove(key).map_or(Ok(()), Err));
        }
    }

    /// Handles partitions refused by a broker. As in Java, a refusal does not end the consumer
    /// (`ShareFetchCollector`), since the right may be granted, and the broker's other partitions are still
    /// read.
    fn hold_back(&mut self, broker: i32, refused: Vec<(TopicIdPartition, ClientError)>) {
        let until = Instant::now() + self.backoff.next_pause();
        if let Some(of_broker) = self.brokers.get_mut(&broker) {
            of_broker.held_back.extend(refused.iter().map(|(key, _)| (*key, until)));
        }
        let mut is_passing = false;
        for (_, error) in refused {
            if error.is_retriable() || error.error_code() == Some(ErrorCode::UnknownServerError) {
                self.config.connection.failed("share fetch", &error);
                is_passing = true;
            } else {
                self.refused = Some(error);
            }
        }
        if is_passing {
            self.refresh_soon();
        }
    }

    fn take_partition(
        &mut self,
        broker: i32,
        key: TopicIdPartition,
        at: &TopicPartition,
        data: PartitionData,
    ) {
        let Some(of_broker) = self.brokers.get_mut(&broker) else { return };
        let acquired = data.acquired_records.iter().map(|range| AcquiredRange {
            first: Offset(range.first_offset),
            last: Offset(range.last_offset),
            delivery_count: range.delivery_count,
        });
        let acquired: Vec<AcquiredRange> = acquired.filter(|range| range.first <= range.last).collect();
        if acquired.is_empty() {
            return;
        }
        let bytes = match data.records {
            Some(Records::Inline(bytes)) => bytes,
            _ => bytes::Bytes::new(),
        };
        of_broker.hold(key, &acquired, self.lock_timeout.unwrap_or(LOCK_DEFAULT));
        let chunk = ShareChunk {
            at: at.clone(),
            bytes,
            acquired,
            check_crcs: self.config.check_crcs,
            topic_id: key.0,
            broker,
            session: of_broker.number,
        };
        // The caller sees an unreadable chunk, and can reject it.
        let gaps = chunk.gaps(&mut self.buffer).unwrap_or_default();
        for (first, last) in gaps {
            of_broker.acknowledge_held(key, first, last, GAP);
        }
        if of_broker.holds(key) {
            self.ready.push_back(chunk);
        }
    }

    fn acknowledged(&mut self, acknowledged: Acknowledgements, response: ShareAcknowledgeResponse) {
        self.lock(response.acquisition_lock_timeout_ms);
        let mut refused: BTreeMap<TopicIdPartition, ClientError> = BTreeMap::new();
        for topic in response.responses {
            for partition in topic.partitions {
                let key = (topic.topic_id, partition.partition_index);
                let what = || match self.name(key) {
                    Some(at) => format!("Acknowledgement of {at}"),
                    None => "Acknowledgement".to_owned(),
                };
                let message = partition.error_message.as_deref();
                if let Err(error) = RefusedRequest::check(partition.error_code, message, what) {
                    refused.insert(key, error.into());
                }
            }
        }
        for key in acknowledged.keys() {
            self.record_outcome(*key, refused.remove(key).map_or(Ok(()), Err));
        }
    }

    fn record_outcome(&mut self, key: TopicIdPartition, outcome: Result<(), ClientError>) {
        if outcome.is_err() {
            self.refresh_soon();
        }
        if let Some(at) = self.name(key) {
            self.outcomes.push_back((at, outcome));
        }
    }

    fn lock(&mut self, timeout_ms: i32) {
        if let Ok(ms @ 1..) = u64::try_from(timeout_ms) {
            self.lock_timeout = Some(Duration::from_millis(ms));
        }
    }
}

/// The connection of a session, opened if there is no live one.
async fn connected(
    cluster: &Cluster,
    broker: i32,
    connection: Option<Connection>,
) -> Result<Connection, ClientError> {
    match connection.filter(|connection| !connection.is_closed()) {
        Some(connection) => Ok(connection),
        None => {
            let address = cluster.metadata().brokers.get(&broker).map(BrokerAddress::address);
            cluster.dedicated(&address.ok_or(BrokerUnknown { id: broker })?).await
        }
    }
}
