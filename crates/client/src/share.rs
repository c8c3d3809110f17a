//! A share consumer (KIP-932): members of a share group read the same partitions, and each record is
//! delivered to one member at a time, which acknowledges the record.
//!
//! A fetch acquires records for a limited time, the broker's acquisition lock. Accepted and rejected records
//! are not delivered again. Released records, and records with an expired lock, are, up to the group's
//! delivery limit. A member has a task that joins the group and keeps the session with the coordinator
//! (`member`), and a share session with each broker that leads partitions (`session`).
//! [`ShareConsumer::poll`] does the rest. Requests continue while the caller is busy, one to each broker.
//! Acknowledgements are sent with the next fetch, or alone while fetched records are left. Dropping a poll's
//! future loses nothing.
//!
//! A share session ends with its connection. The broker then delivers the session's records again, so their
//! acknowledgements are refused with an error that the next poll reports.

mod chunk;
mod config;
mod member;
mod ranges;
mod requests;
mod session;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use thalweg_dial::{Backoff, ClientError, RefusedRequest};
use thalweg_record::{DecompressBuffer, Offset};
use thalweg_watch as watch;
use thalweg_wire::{ErrorCode, Uuid};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::{Cluster, CoordinatorKind};
use crate::coordinator::Coordinator;
use crate::offsets::{TopicIdPartition, TopicPartition};
use member::{ShareAssignment, ShareGroupMember, Wish};
use requests::{AnsweredRequest, BrokerSession};

pub use chunk::{AcquiredRange, ShareChunk};
pub use config::{AcknowledgementMode, AcquireMode, ShareConfig};

/// Acknowledgement types of delivered records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcknowledgeType {
    /// The record was processed.
    Accept,
    /// The record may be delivered again, to any member.
    Release,
    /// The record cannot be processed, and is not delivered again.
    Reject,
    /// The record is still being processed: its lock is renewed (KIP-1222). Needs brokers of Kafka 4.2 or
    /// later.
    Renew,
}

/// Acknowledgement type for offsets without a record.
const GAP: i8 = 0;

impl AcknowledgeType {
    /// The type's code in requests.
    fn code(self) -> i8 {
        match self {
            AcknowledgeType::Accept => 1,
            AcknowledgeType::Release => 2,
            AcknowledgeType::Reject => 3,
            AcknowledgeType::Renew => 4,
        }
    }

    /// The type with this Kafka name, in any case.
    pub fn from_name(name: &str) -> Option<AcknowledgeType> {
        let named = [
            ("accept", AcknowledgeType::Accept),
            ("release", AcknowledgeType::Release),
            ("reject", AcknowledgeType::Reject),
            ("renew", AcknowledgeType::Renew),
        ];
        named.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, one)| one)
    }
}

/// The result of a poll.
#[derive(Debug)]
pub enum SharePollEvent {
    /// Acquired records of one partition.
    Chunk(ShareChunk),
    /// A broker refused acknowledgements of a partition: their records may be delivered again.
    NotAcknowledged(TopicPartition, ClientError),
    /// No event within the timeout.
    Nothing,
}

/// Records are not acquired by this consumer: not delivered, acknowledged already, or of an ended session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Offsets {first} to {last} of {at} are not acquired: they were acknowledged before, or the session with the broker has ended"
)]
pub struct NotAcquired {
    pub at: TopicPartition,
    /// The first offset.
    pub first: Offset,
    /// The last offset.
    pub last: Offset,
}

/// The outcome of acknowledgements, by partition.
pub type AcknowledgementOutcomes = BTreeMap<TopicPartition, Result<(), ClientError>>;

/// A share consumer.
#[derive(Debug)]
pub struct ShareConsumer {
    cluster: Cluster,
    config: Arc<ShareConfig>,
    member_id: String,
    wish: watch::Sender<Wish>,
    assigned: watch::Receiver<ShareAssignment>,
    member: JoinSet<Result<(), ClientError>>,
    /// The assigned partitions.
    partitions: Arc<BTreeSet<TopicIdPartition>>,
    /// The topics of assigned and delivered partitions.
    names: BTreeMap<Uuid, Arc<str>>,
    brokers: BTreeMap<i32, BrokerSession>,
    requests: JoinSet<AnsweredRequest>,
    ready: VecDeque<ShareChunk>,
    /// The chunk returned by the last poll, accepted by the next one in implicit mode.
    returned: Option<ShareChunk>,
    outcomes: VecDeque<(TopicPartition, Result<(), ClientError>)>,
    /// The error of a partition, not yet reported by a poll.
    refused: Option<ClientError>,
    /// Number of reported refusals of the member.
    refusals: u64,
    failure: Option<ClientError>,
    lock_timeout: Option<Duration>,
    sessions: u64,
    refresh_at: Instant,
    backoff: Backoff,
    buffer: DecompressBuffer,
}

impl ShareConsumer {
    /// A share consumer of the cluster behind `bootstrap`.
    pub async fn connect(bootstrap: &[String], config: ShareConfig) -> Result<ShareConsumer, ClientError> {
        let cluster = Cluster::connect(bootstrap, &config.connection).await?;
        Ok(ShareConsumer::new(cluster, config))
    }

    /// A share consumer of a cluster, which joins the group when it subscribes.
    pub fn new(cluster: Cluster, config: ShareConfig) -> ShareConsumer {
        let (wish, _) = watch::channel(Wish::default());
        let (_, assigned) = watch::channel(ShareAssignment::default());
        ShareConsumer {
            cluster,
            backoff: Backoff::new(config.retry_backoff),
            config: Arc::new(config),
            member_id: Uuid::random().to_string(),
            wish,
            assigned,
            member: JoinSet::new(),
            partitions: Arc::default(),
            names: BTreeMap::new(),
            brokers: BTreeMap::new(),
            requests: JoinSet::new(),
            ready: VecDeque::new(),
            returned: None,
            outcomes: VecDeque::new(),
            refused: None,
            refusals: 0,
            failure: None,
            lock_timeout: None,
            sessions: 0,
            refresh_at: Instant::now(),
            buffer: DecompressBuffer::default(),
        }
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Subscribes to topics as a member of the group.
    pub fn subscribe(&mut self, mut topics: Vec<String>) {
        topics.sort_unstable();
        topics.dedup();
        if !self.member.is_empty() {
            self.wish.send_if_modified(|wish| {
                let differs = wish.topics != topics;
                wish.topics = topics;
                differs
            });
            self.refresh_at = Instant::now();
            return;
        }
        let (wish, wished) = watch::channel(Wish { topics, leaves: false });
        let (assigned, of_member) = watch::channel(ShareAssignment::default());
        let coordinator =
            Coordinator::dedicated(self.cluster.clone(), CoordinatorKind::Group, &*self.config.group);
        let (cluster, config, id) = (self.cluster.clone(), Arc::clone(&self.config), self.member_id.clone());
        self.member.spawn(ShareGroupMember::new(cluster, config, coordinator, id, wished, assigned).run());
        (self.wish, self.assigned) = (wish, of_member);
        self.refresh_at = Instant::now();
    }

    /// The assigned partitions whose topic names are known.
    pub fn assignment(&self) -> Vec<TopicPartition> {
        self.partitions.iter().filter_map(|key| self.name(*key)).collect()
    }

    /// Waits until the group has assigned partitions to this member. No records are fetched before the first
    /// poll.
    pub async fn wait_for_assignment(&mut self) -> Result<(), ClientError> {
        loop {
            self.follow_member()?;
            self.take_refusal()?;
            if !self.partitions.is_empty() {
                return Ok(());
            }
            // The task ends with a reported failure, or with the consumer.
            let _ = self.assigned.changed().await;
        }
    }

    /// Duration of the broker's lock on the last acquired records.
    pub fn acquisition_lock_timeout(&self) -> Option<Duration> {
        self.lock_timeout
    }

    /// The next result: acquired records of a partition, or a failed acknowledgement. Waits up to `timeout`.
    /// In implicit mode, accepts the records of the last poll. The future can be dropped.
    pub async fn poll(&mut self, timeout: Duration) -> Result<SharePollEvent, ClientError> {
        let deadline = Instant::now() + timeout;
        self.accept_returned();
        loop {
            self.follow_member()?;
            self.take_refusal()?;
            while let Some((at, outcome)) = self.outcomes.pop_front() {
                if let Err(error) = outcome {
                    return Ok(SharePollEvent::NotAcknowledged(at, error));
                }
            }
            while let Some(chunk) = self.ready.pop_front() {
                if self.is_current(&chunk) {
                    self.acknowledge_alone(false);
                    let is_implicit = self.config.acknowledgement_mode == AcknowledgementMode::Implicit;
                    self.returned = is_implicit.then(|| chunk.clone());
                    return Ok(SharePollEvent::Chunk(chunk));
                }
            }
            let mut due = deadline.min(self.refresh_when_due().await?);
            due = due.min(self.fetch());
            tokio::select! {
                biased;
                Some(done) = self.requests.join_next() => self.take(done),
                // The task ends with a reported failure, or with the consumer.
                Ok(()) = self.assigned.changed() => {}
                () = tokio::time::sleep_until(due) => {
                    if Instant::now() >= deadline {
                        return Ok(SharePollEvent::Nothing);
                    }
                }
            }
        }
    }

    /// Acknowledges all unacknowledged records of a chunk.
    pub fn acknowledge_chunk(
        &mut self,
        chunk: &ShareChunk,
        with: AcknowledgeType,
    ) -> Result<(), NotAcquired> {
        let (Some(first), Some(last)) = (chunk.acquired.first(), chunk.acquired.last()) else {
            return Ok(());
        };
        let gone = || NotAcquired { at: chunk.at.clone(), first: first.first, last: last.last };
        let broker = self.brokers.get_mut(&chunk.broker).filter(|broker| broker.number == chunk.session);
        let broker = broker.ok_or_else(gone)?;
        for range in &chunk.acquired {
            broker.acknowledge_held(chunk.topic_id_partition(), range.first.0, range.last.0, with.code());
        }
        Ok(())
    }

    /// Acknowledges the records of a chunk from offset `first` to `last`, which must be acquired.
    pub fn acknowledge(
        &mut self,
        chunk: &ShareChunk,
        first: Offset,
        last: Offset,
        with: AcknowledgeType,
    ) -> Result<(), NotAcquired> {
        let gone = || NotAcquired { at: chunk.at.clone(), first, last };
        let broker = self.brokers.get_mut(&chunk.broker).filter(|broker| broker.number == chunk.session);
        match broker.ok_or_else(gone)?.acknowledge(chunk.topic_id_partition(), first.0, last.0, with.code()) {
            true => Ok(()),
            false => Err(gone()),
        }
    }

    /// Sends the acknowledgements, and waits for the answers. In implicit mode, first accepts the records of
    /// the last poll. Returns the outcomes of partitions, including earlier outcomes that no poll has
    /// reported.
    pub async fn commit(&mut self) -> Result<AcknowledgementOutcomes, ClientError> {
        self.accept_returned();
        let until = Instant::now() + self.config.connection.request_timeout;
        loop {
            self.follow_member()?;
            self.acknowledge_alone(true);
            if !self.brokers.values().any(BrokerSession::has_unanswered) {
                break;
            }
            match tokio::time::timeout_at(until, self.requests.join_next()).await {
                Ok(Some(done)) => self.take(done),
                // An acknowledgement waits for a broker that has just failed.
                Ok(None) => tokio::time::sleep(self.config.retry_backoff).await,
                Err(_) => return Err(self.no_answer()),
            }
        }
        let mut outcomes = AcknowledgementOutcomes::new();
        for (at, outcome) in self.outcomes.drain(..) {
            match outcomes.get_mut(&at) {
                Some(Err(_)) => {}
                _ => drop(outcomes.insert(at, outcome)),
            }
        }
        Ok(outcomes)
    }

    /// Commits, releases unacknowledged records, and leaves the group.
    pub async fn close(mut self) -> Result<AcknowledgementOutcomes, ClientError> {
        let committed = self.commit().await;
        self.end_sessions().await;
        self.wish.send_if_modified(|wish| {
            wish.leaves = true;
            true
        });
        let left = match self.member.join_next().await {
            Some(Ok(left)) => left,
            Some(Err(failure)) if failure.is_panic() => std::panic::resume_unwind(failure.into_panic()),
            Some(Err(_)) | None => Ok(()),
        };
        let committed = committed?;
        left?;
        Ok(committed)
    }

    fn accept_returned(&mut self) {
        if self.config.acknowledgement_mode == AcknowledgementMode::Implicit
            && let Some(chunk) = self.returned.take()
        {
            // The session may have ended: then the records are delivered again.
            let _ = self.acknowledge_chunk(&chunk, AcknowledgeType::Accept);
        }
    }

    /// Takes the assignment of the member, or its failure.
    fn follow_member(&mut self) -> Result<(), ClientError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let assigned = self.assigned.borrow_and_update().clone();
        if let Some(failure) = assigned.failure {
            return Err(failure);
        }
        if self.partitions != assigned.partitions {
            self.partitions = assigned.partitions;
            self.refresh_at = Instant::now();
        }
        Ok(())
    }

    /// Reports a transient error of the member once, such as a topic without the right to read it.
    fn take_refusal(&mut self) -> Result<(), ClientError> {
        let of_member = self.assigned.borrow().refused.clone();
        if let Some((count, error)) = of_member.filter(|(count, _)| *count > self.refusals) {
            self.refusals = count;
            return Err(error);
        }
        self.refused.take().map_or(Ok(()), Err)
    }

    /// True if the session that delivered a chunk still holds its records.
    fn is_current(&self, chunk: &ShareChunk) -> bool {
        self.brokers.get(&chunk.broker).is_some_and(|broker| broker.number == chunk.session)
    }

    fn name(&self, (id, partition): TopicIdPartition) -> Option<TopicPartition> {
        self.names.get(&id).map(|name| TopicPartition::new(Arc::clone(name), partition))
    }

    /// Refreshes the metadata if due: subscribed topics, so that brokers may create them, and assigned
    /// topics. Returns the next due time.
    async fn refresh_when_due(&mut self) -> Result<Instant, ClientError> {
        if self.refresh_at > Instant::now() {
            return Ok(self.refresh_at);
        }
        let topics = self.wish.borrow().topics.clone();
        let ids: Vec<Uuid> = member::ids(&self.partitions).into_iter().collect();
        let answer = async {
            let metadata = self.cluster.refresh(&topics, self.config.create_topics).await?;
            let known = |id: &Uuid| metadata.topics.values().any(|topic| topic.id == *id);
            let unknown: Vec<Uuid> = ids.iter().filter(|id| !known(id)).copied().collect();
            if !unknown.is_empty() {
                self.cluster.refresh_ids(&unknown).await?;
            }
            Ok::<(), ClientError>(())
        };
        let answer = Box::pin(answer).await;
        if let Err(error) = answer {
            if !error.is_retriable() {
                return Err(error);
            }
            self.config.connection.failed("metadata", &error);
            self.refresh_at = Instant::now() + self.backoff.next_pause();
            return Ok(self.refresh_at);
        }
        let led: usize = self.by_leader().values().map(BTreeSet::len).sum();
        let is_complete = led == self.partitions.len();
        let pause = if is_complete { self.config.metadata_max_age } else { self.backoff.next_pause() };
        self.refresh_at = Instant::now() + pause;
        Ok(self.refresh_at)
    }

    /// The assigned partitions of each leader. Updates the names of their topics.
    fn by_leader(&mut self) -> BTreeMap<i32, BTreeSet<TopicIdPartition>> {
        let metadata = self.cluster.metadata();
        let mut leaders: BTreeMap<i32, BTreeSet<TopicIdPartition>> = BTreeMap::new();
        for topic in metadata.topics.values() {
            let partitions = self.partitions.range((topic.id, 0)..=(topic.id, i32::MAX));
            for &(id, partition) in partitions {
                self.names.entry(id).or_insert_with(|| Arc::clone(&topic.name));
                if let Some(leader) = topic.partition(partition).and_then(|partition| partition.leader) {
                    leaders.entry(leader).or_default().insert((id, partition));
                }
            }
        }
        leaders
    }

    fn refresh_soon(&mut self) {
        self.refresh_at = self.refresh_at.min(Instant::now() + self.backoff.next_pause());
    }

    fn no_answer(&self) -> ClientError {
        let what = format!("Acknowledgements of share group {}", self.config.group);
        let message = Some("no answer within the time allowed".to_owned());
        RefusedRequest { what, error_code: ErrorCode::RequestTimedOut, message }.into()
    }
}
