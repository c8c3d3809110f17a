//! A consumer of assigned partitions, or of its share of a group's partitions.
//!
//! A fetcher task per broker is one request ahead of the caller. Fetched batches are returned as [`Chunk`]s
//! of the received bytes; records are read in place. A member of a group has a task that joins and keeps the
//! session alive (`member`). [`Consumer::poll`] does the rest: positions, leaders, commits. Dropping the
//! poll's future loses nothing.
//!
//! An idle consumer is small: a few waiting tasks, a connection to its coordinator, and a connection to each
//! broker that it reads from. Consumers of one [`Cluster`] share its metadata and its other connections.

mod assignment;
mod assignor;
mod chunk;
mod commits;
mod config;
mod fetch_session;
mod fetcher;
mod group;
mod leader_requests;
mod member;
mod membership;
mod positions;
mod protocol;
mod shared_state;
mod subscription;
mod validation;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use thalweg_dial::{Backoff, ClientError};
use thalweg_record::Offset;
use thalweg_wire::ErrorCode;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::cluster::{Cluster, CoordinatorKind};
use crate::coordinator::Coordinator;
use crate::offsets::{CommittedOffset, GroupMetadata, OffsetSpec, TopicPartition};
use assignment::Assignment;
use commits::Commits;
use fetcher::{FetchResult, Fetcher};
use group::{Group, PollGuard};
use leader_requests::LeaderRequests;
use membership::{Event, SubscribedTopics};
use shared_state::SharedState;
use subscription::Subscription;

pub use assignor::AssignmentStrategy;
pub use chunk::{Chunk, ChunkError};
pub use commits::CommitInFlight;
pub use config::{ConsumerConfig, GroupProtocol, OffsetReset};
pub use protocol::read_assignment;
pub use subscription::InvalidPattern;

/// Minimum time for a poll to find missing offsets and leaders.
const KEEP_UP_MIN: Duration = Duration::from_secs(1);
/// Time limit for the leaders of newly assigned partitions to give offsets. Without one, a partition is
/// reported as assigned without a position, so that it does not hold back the records of the others.
const LEADER_OFFSETS_MAX: Duration = Duration::from_secs(1);

/// Errors that stop a consumer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConsumerError {
    /// A request to the cluster failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A partition has no offset to continue from.
    #[error(transparent)]
    NoOffset(#[from] NoOffset),
    /// Records read before are no longer in the log.
    #[error(transparent)]
    Truncated(#[from] LogTruncated),
    /// The group has rebalanced without this consumer.
    #[error(transparent)]
    CommitFailed(#[from] CommitFailed),
    /// The call needs a consumer with a group.
    #[error(transparent)]
    NoGroup(#[from] NoGroup),
    /// A subscription pattern is not a regular expression.
    #[error(transparent)]
    InvalidPattern(#[from] InvalidPattern),
}

impl ConsumerError {
    /// True if the same call may succeed later.
    pub fn is_retriable(&self) -> bool {
        matches!(self, ConsumerError::Client(error) if error.is_retriable())
    }

    /// The error code of a broker's answer, if there was one.
    pub fn error_code(&self) -> Option<ErrorCode> {
        match self {
            ConsumerError::Client(error) => error.error_code(),
            ConsumerError::CommitFailed(failed) => failed.error_code,
            ConsumerError::NoOffset(_)
            | ConsumerError::Truncated(_)
            | ConsumerError::NoGroup(_)
            | ConsumerError::InvalidPattern(_) => None,
        }
    }
}

/// A partition has no offset to continue from, and `auto.offset.reset` allows no other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at} has no offset to read from{}, and auto.offset.reset is none: earliest or latest would choose one",
    offset.map(|offset| format!(" ({offset} is not in its log)")).unwrap_or_default())]
pub struct NoOffset {
    pub at: TopicPartition,
    /// The offset missing in its log, if there was one.
    pub offset: Option<Offset>,
}

/// The log of a partition was truncated before the position, as after an unclean election, and
/// `auto.offset.reset` allows no other position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at} was read up to offset {offset}, and its log was truncated before that{}, and auto.offset.reset is none: \
    earliest or latest would go back",
    divergent.map(|offset| format!(" (it is the same up to offset {offset})")).unwrap_or_default())]
pub struct LogTruncated {
    pub at: TopicPartition,
    /// The consumer's position.
    pub offset: Offset,
    /// The first offset whose record may differ now; `None` if the leader does not know.
    pub divergent: Option<Offset>,
}

/// The group has rebalanced, and this consumer is no longer the member that read the partitions: their new
/// owners may have read and committed more. Corresponds to Kafka's `CommitFailedException`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the offsets of group {} are not committed: the consumer is not an active member of the group, which rebalances or has \
    rebalanced without it, and other members read its partitions. Poll to join again, and continue at the committed offsets. \
    If this happens again, poll more often, with less work between polls, or raise max.poll.interval.ms", by.group)]
pub struct CommitFailed {
    /// The member that read the partitions.
    pub by: GroupMetadata,
    /// The coordinator's error; `None` if no request was sent.
    pub error_code: Option<ErrorCode>,
}

/// The consumer has no group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("group.id is not set: subscribing and committing need a group")]
pub struct NoGroup;

/// The start position in a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartAt {
    Offset(Offset),
    /// An offset found by the leader: the beginning, the end, a time.
    Spec(OffsetSpec),
    /// The committed offset of the group; without one, by `auto.offset.reset`.
    Committed,
}

/// The result of a poll.
#[derive(Debug)]
pub enum PollEvent {
    Chunk(Chunk),
    /// The group has rebalanced and assigned these partitions, in addition to the kept ones. The positions of
    /// the new partitions are known, except for partitions without a committed offset whose leader has given
    /// none for a second, such as partitions without a leader: [`Consumer::unavailable`] returns them, and
    /// they are read as soon as their offsets are known.
    Assigned(Vec<TopicPartition>),
    /// The group rebalances and revokes these partitions. Revoked partitions stay assigned until the next
    /// poll: their positions can be committed before it, and the group waits up to `max.poll.interval.ms`.
    Revoked(Vec<TopicPartition>),
    /// The group has reassigned these partitions already, because the coordinator received no heartbeats from
    /// this member. No offset can be committed for them.
    Lost(Vec<TopicPartition>),
    /// No event within the timeout.
    Nothing,
}

/// Reads records of partitions that the caller or a group assigns.
#[derive(Debug)]
pub struct Consumer {
    cluster: Cluster,
    config: Arc<ConsumerConfig>,
    shared: Arc<SharedState>,
    subscription: Subscription,
    group: Option<Group>,
    /// The coordinator of `group.id`.
    coordinator: Option<Coordinator>,
    commits: Option<Arc<Commits>>,
    fetchers: JoinSet<()>,
    fetching: BTreeMap<i32, AbortHandle>,
    to: mpsc::Sender<Box<FetchResult>>,
    fetched: mpsc::Receiver<Box<FetchResult>>,
    /// Requests for positions.
    leaders: LeaderRequests,
    ready: VecDeque<Chunk>,
    /// Newly assigned partitions, unreported until their positions are known.
    assigned: Option<NewAssignment>,
    refresh_at: Instant,
    positions_at: Instant,
    commit_at: Option<Instant>,
    /// The automatic commit before revoked partitions are reported. If a poll ends early, the next one waits
    /// for the same commit.
    commit_of_revoked: Option<CommitInFlight>,
    /// Backoff after failures of fetches and metadata requests.
    backoff: Backoff,
}

/// Newly assigned partitions.
#[derive(Debug)]
struct NewAssignment {
    partitions: Vec<TopicPartition>,
    /// The time from which missing offsets of leaders do not delay the report.
    leaders_until: Instant,
}

impl Consumer {
    /// A consumer of the cluster behind `bootstrap`.
    pub async fn connect(bootstrap: &[String], config: ConsumerConfig) -> Result<Consumer, ClientError> {
        let cluster = Cluster::connect(bootstrap, &config.connection).await?;
        Ok(Consumer::new(cluster, config))
    }

    /// A consumer of a cluster, which many consumers can share.
    pub fn new(cluster: Cluster, config: ConsumerConfig) -> Consumer {
        let now = Instant::now();
        let (config, shared) = (Arc::new(config), Arc::<SharedState>::default());
        let (kind, group) = (CoordinatorKind::Group, config.group.as_ref());
        let coordinator = group.map(|group| Coordinator::new(cluster.clone(), kind, group));
        let commits = group.map(|group| {
            let coordinator = Coordinator::dedicated(cluster.clone(), kind, group);
            Arc::new(Commits::new(coordinator, Arc::clone(&config), Arc::clone(&shared)))
        });
        let (to, fetched) = mpsc::channel(1);
        Consumer {
            cluster,
            shared,
            subscription: Subscription::None,
            group: None,
            coordinator,
            commits,
            fetchers: JoinSet::new(),
            fetching: BTreeMap::new(),
            to,
            fetched,
            leaders: LeaderRequests::default(),
            ready: VecDeque::new(),
            assigned: None,
            refresh_at: now + config.metadata_max_age,
            positions_at: now,
            commit_at: None,
            commit_of_revoked: None,
            backoff: Backoff::new(config.retry_backoff),
            config,
        }
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Subscribes to topics as a member of the group. [`Consumer::poll`] reports the assigned partitions.
    pub fn subscribe(&mut self, topics: Vec<String>) -> Result<(), NoGroup> {
        self.config.group.as_ref().ok_or(NoGroup)?;
        self.subscription = Subscription::Topics(topics.clone());
        self.read_only(Some(topics.iter().cloned().collect()));
        self.join(SubscribedTopics { names: topics, pattern: None });
        Ok(())
    }

    /// Subscribes to all topics whose whole name matches a regular expression. New topics are found every
    /// `metadata.max.age.ms`; with `group.protocol=consumer` the coordinator finds them.
    pub fn subscribe_pattern(&mut self, pattern: &str) -> Result<(), ConsumerError> {
        self.config.group.as_ref().ok_or(NoGroup)?;
        let local = Subscription::pattern(pattern)?;
        self.read_only(None);
        match self.config.group_protocol {
            GroupProtocol::Classic => {
                self.subscription = local;
                // The member joins when the topic names are known.
                self.refresh_at = Instant::now();
            }
            GroupProtocol::Consumer => {
                self.subscription = Subscription::OfCoordinator;
                self.join(SubscribedTopics { names: Vec::new(), pattern: Some(pattern.to_owned()) });
            }
        }
        Ok(())
    }

    /// Leaves the group without a commit, and stops reading.
    pub async fn unsubscribe(&mut self) -> Result<(), ConsumerError> {
        self.subscription = Subscription::None;
        self.forget_partitions();
        match self.group.take() {
            Some(group) => Ok(group.leave().await?),
            None => Ok(()),
        }
    }

    /// Reads these partitions, without group membership. Waits until their offsets are known.
    pub async fn assign(&mut self, partitions: Vec<(TopicPartition, StartAt)>) -> Result<(), ConsumerError> {
        self.assign_until(partitions, None).await
    }

    /// Reads these partitions like [`Consumer::assign`], and waits at most `within` for their offsets. The
    /// others, such as partitions without a leader, are read as soon as their offsets are known.
    pub async fn assign_within(
        &mut self,
        partitions: Vec<(TopicPartition, StartAt)>,
        within: Duration,
    ) -> Result<(), ConsumerError> {
        self.assign_until(partitions, Some(Instant::now() + within)).await
    }

    async fn assign_until(
        &mut self,
        partitions: Vec<(TopicPartition, StartAt)>,
        deadline: Option<Instant>,
    ) -> Result<(), ConsumerError> {
        self.group = None;
        self.subscription = Subscription::None;
        self.forget_partitions();
        self.read_only(None);
        let topics = partitions.iter().map(|(at, _)| at.topic.to_string()).collect();
        self.cluster.refresh(&sorted(topics), self.config.create_topics).await?;
        self.begin(partitions);
        self.commit_at = self.first_commit_at();
        while self.shared.assignment.lock().lacks_position() {
            let until = match deadline {
                None => self.keep_up().await?,
                Some(deadline) => match tokio::time::timeout_at(deadline, self.keep_up()).await {
                    Ok(due) => due?.min(deadline),
                    Err(_) => break,
                },
            };
            if !self.shared.assignment.lock().lacks_position() {
                break;
            }
            tokio::select! {
                biased;
                answer = self.leaders.next() => self.take_answer(answer)?,
                () = tokio::time::sleep_until(until) => {}
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
        }
        self.start_fetchers();
        Ok(())
    }

    /// True if the group's coordinator assigns the partitions (`group.protocol=consumer`). Some partitions
    /// may follow later.
    pub fn is_assigned_by_broker(&self) -> bool {
        self.config.group_protocol == GroupProtocol::Consumer
    }

    /// The assigned partitions.
    pub fn assignment(&self) -> impl Iterator<Item = TopicPartition> + use<> {
        self.shared.assignment.lock().iter().cloned().collect::<Vec<_>>().into_iter()
    }

    /// The assigned partitions that are not being read now: without a leader, or without a known offset.
    pub fn unavailable(&self) -> Vec<TopicPartition> {
        self.shared.assignment.lock().unavailable()
    }

    /// The offset after the last returned record of a partition; `None` until the start position is known.
    pub fn position(&self, at: &TopicPartition) -> Option<Offset> {
        self.shared.assignment.lock().position(at)
    }

    /// Continues at this offset. Drops fetched records that were not returned.
    pub fn seek(&mut self, at: &TopicPartition, offset: Offset) {
        self.seek_to(at, StartAt::Offset(offset));
    }

    /// Continues at the beginning, the end, a time, or the committed offset. The next poll determines the
    /// offset.
    pub fn seek_to(&mut self, at: &TopicPartition, start: StartAt) {
        self.shared.assignment.lock().seek(at, start);
        self.positions_at = Instant::now();
        self.shared.changed.notify_waiters();
    }

    /// Stops reading these partitions until they are resumed, without unassigning them.
    pub fn pause(&mut self, partitions: &[TopicPartition]) {
        self.shared.assignment.lock().pause(partitions, true);
    }

    /// Resumes paused partitions.
    pub fn resume(&mut self, partitions: &[TopicPartition]) {
        self.shared.assignment.lock().pause(partitions, false);
        self.shared.changed.notify_waiters();
    }

    /// The paused partitions.
    pub fn paused(&self) -> Vec<TopicPartition> {
        self.shared.assignment.lock().paused()
    }

    /// The group identity of this consumer's commits, for
    /// [`Producer::send_offsets_to_transaction`](crate::Producer::send_offsets_to_transaction): a member of
    /// the last generation that the consumer has joined, or a client without membership. After a loss of the
    /// membership the coordinator refuses that member.
    pub fn group_metadata(&self) -> Result<GroupMetadata, NoGroup> {
        match &self.group {
            Some(group) => Ok(group.membership.metadata()),
            None => Ok(GroupMetadata::without_member(self.config.group.clone().ok_or(NoGroup)?)),
        }
    }

    /// The next result: records, or a change of the assignment. Waits up to `timeout`. The future can be
    /// dropped.
    pub async fn poll(&mut self, timeout: Duration) -> Result<PollEvent, ConsumerError> {
        self.poll_for(timeout, true).await
    }

    /// Polls like [`Consumer::poll`], without returning records: for a caller that has no room for more, and
    /// still takes part in rebalances.
    pub async fn poll_rebalance(&mut self, timeout: Duration) -> Result<PollEvent, ConsumerError> {
        self.poll_for(timeout, false).await
    }

    async fn poll_for(&mut self, timeout: Duration, records: bool) -> Result<PollEvent, ConsumerError> {
        let deadline = Instant::now() + timeout;
        let (_polling, releases) = PollGuard::begin(self.group.as_ref());
        if releases {
            self.shared.assignment.lock().give_up_revoked();
        }
        loop {
            if let Some(polled) = self.handle_event(deadline).await? {
                return Ok(polled);
            }
            // Return available records first: the rest of a poll checks every partition.
            if let Some(polled) = self.hand_out(records) {
                return Ok(polled);
            }
            let mut wake_at = deadline;
            // A caller with very short timeouts must make progress, too.
            let until = deadline.max(Instant::now() + KEEP_UP_MIN);
            let kept_up = tokio::time::timeout_at(until, self.keep_up()).await;
            if let Ok(due) = kept_up {
                wake_at = wake_at.min(due?);
            }
            if let Some(polled) = self.hand_out(records) {
                return Ok(polled);
            }
            self.start_fetchers();
            self.shared.demand.set(records);
            let taken = tokio::select! {
                biased;
                fetched = self.fetched.recv(), if records => fetched.map(|fetched| self.take(*fetched)),
                answer = self.leaders.next() => Some(self.take_answer(answer)),
                () = happened(self.group.as_ref()) => None,
                () = tokio::time::sleep_until(wake_at) => None,
            };
            self.shared.demand.set(false);
            match taken {
                Some(taken) => taken?,
                None if Instant::now() >= deadline => return Ok(PollEvent::Nothing),
                None => {}
            }
        }
    }

    /// The next available result.
    fn hand_out(&mut self, records: bool) -> Option<PollEvent> {
        let mut assignment = self.shared.assignment.lock();
        if self.assigned.as_ref().is_some_and(|assigned| assigned.is_complete(&assignment)) {
            return self.assigned.take().map(|assigned| PollEvent::Assigned(assigned.partitions));
        }
        if !records {
            return None;
        }
        // Records of unreported partitions must wait; other records need not.
        let unreported = self.assigned.as_ref().map_or(&[][..], |assigned| &assigned.partitions);
        while let Some(place) = self.ready.iter().position(|chunk| !unreported.contains(&chunk.at)) {
            let chunk = self.ready.remove(place).expect("it was just found");
            if assignment.hand_out(&chunk) {
                return Some(PollEvent::Chunk(chunk));
            }
        }
        None
    }

    /// Processes an event of the member.
    async fn handle_event(&mut self, deadline: Instant) -> Result<Option<PollEvent>, ConsumerError> {
        while let Some(membership) = self.group.as_ref().map(|group| Arc::clone(&group.membership))
            && let Some(event) = membership.event()
        {
            let polled = match event {
                Event::Assigned(partitions) => {
                    self.begin(partitions.iter().map(|at| (at.clone(), StartAt::Committed)).collect());
                    let leaders_until = Instant::now() + LEADER_OFFSETS_MAX;
                    let new = || NewAssignment { partitions: Vec::new(), leaders_until };
                    self.assigned.get_or_insert_with(new).partitions.extend(partitions);
                    None
                }
                Event::Revoked(partitions) => {
                    self.withdraw(&partitions);
                    if !self.commit_revoked(deadline).await {
                        return Ok(Some(PollEvent::Nothing));
                    }
                    if !membership.has_revoked() {
                        // Lost meanwhile, which is another event.
                        continue;
                    }
                    self.shared.assignment.lock().revoke(&partitions);
                    Some(PollEvent::Revoked(partitions))
                }
                Event::Lost(partitions) => {
                    self.commit_of_revoked = None;
                    self.withdraw(&partitions);
                    self.warn_of_dropped_commit();
                    let lost = self.shared.assignment.lock().remove(&partitions);
                    (!lost.is_empty()).then_some(PollEvent::Lost(lost))
                }
                Event::Reported(error) => {
                    membership.handled();
                    return Err(error.into());
                }
                Event::Failed(error) => return Err(error.into()),
            };
            membership.handled();
            if polled.is_some() {
                return Ok(polled);
            }
        }
        Ok(None)
    }

    /// Commits automatically before partitions are revoked. False if the deadline comes first: a later call
    /// continues.
    async fn commit_revoked(&mut self, deadline: Instant) -> bool {
        if self.config.auto_commit.is_none() {
            return true;
        }
        if self.commit_of_revoked.is_none() {
            let offsets = self.shared.assignment.lock().uncommitted();
            self.commit_of_revoked = self.commit_async(offsets).ok();
        }
        let Some(commit) = &mut self.commit_of_revoked else { return true };
        let Ok(committed) = tokio::time::timeout_at(deadline, commit).await else { return false };
        self.commit_of_revoked = None;
        if let Err(error) = committed {
            // The new owner reads some records again, as at-least-once allows.
            tracing::warn!(%error, "Failed to commit offsets before the rebalance");
        }
        true
    }

    /// Drops partitions from an unreported assignment.
    fn withdraw(&mut self, partitions: &[TopicPartition]) {
        if let Some(assigned) = &mut self.assigned {
            assigned.partitions.retain(|at| !partitions.contains(at));
        }
    }

    fn take(&mut self, fetched: FetchResult) -> Result<(), ConsumerError> {
        match fetched {
            FetchResult::Chunks(chunks) => self.ready.extend(chunks),
            FetchResult::OutOfRange(at, offset) => {
                if !self.shared.assignment.lock().is_at(&at, offset) {
                    return Ok(());
                }
                let spec = self.reset_spec(&at, Some(offset))?;
                tracing::warn!(partition = %at, %offset, "Offset is out of range, resetting the position");
                self.seek_to(&at, StartAt::Spec(spec));
            }
            // The next round starts a fetcher of that broker.
            FetchResult::Redirected => {}
            FetchResult::Silent => self.refresh_soon(),
            FetchResult::Stale(error) => {
                self.config.connection.failed("fetch", &error);
                tracing::debug!(%error, "Fetch failed, refreshing leaders");
                self.refresh_soon();
            }
            FetchResult::Failed(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Commits, refreshes metadata, and finds offsets, if due. Returns the next due time.
    async fn keep_up(&mut self) -> Result<Instant, ConsumerError> {
        self.commit_when_due();
        // Boxed, because these futures are rare, and large in tasks that wait for records.
        if self.refresh_at <= Instant::now() {
            Box::pin(self.refresh()).await?;
        }
        let mut due = self.refresh_at;
        if self.shared.assignment.lock().lacks_position() {
            if self.positions_at <= Instant::now() {
                Box::pin(self.find_positions()).await?;
            }
            if self.shared.assignment.lock().lacks_position() {
                due = due.min(self.positions_at).min(self.refresh_at);
            }
        }
        Ok(self.commit_at.map_or(due, |commit_at| due.min(commit_at)))
    }

    /// Starts reading partitions, in addition to the current ones.
    fn begin(&mut self, partitions: Vec<(TopicPartition, StartAt)>) {
        let metadata = self.cluster.metadata();
        let mut assignment = self.shared.assignment.lock();
        for (at, start) in partitions {
            assignment.add(at, start, &metadata);
        }
        if assignment.without_leader().is_some() {
            self.refresh_at = Instant::now();
        }
        self.positions_at = Instant::now();
        self.shared.changed.notify_waiters();
    }

    /// Reads only these of the assigned topics; `None` for all.
    fn read_only(&mut self, topics: Option<BTreeSet<String>>) {
        self.shared.assignment.lock().subscribe(topics);
        self.shared.changed.notify_waiters();
    }

    fn forget_partitions(&mut self) {
        self.shared.assignment.lock().clear();
        self.ready.clear();
        self.assigned = None;
        (self.commit_at, self.commit_of_revoked) = (None, None);
        self.shared.changed.notify_waiters();
    }

    /// Starts a missing fetcher for each broker that partitions are read from.
    fn start_fetchers(&mut self) {
        while self.fetchers.try_join_next().is_some() {}
        let brokers = self.shared.assignment.lock().brokers(Instant::now());
        for broker in brokers {
            if self.fetching.get(&broker).is_some_and(|task| !task.is_finished()) {
                continue;
            }
            let (cluster, config) = (self.cluster.clone(), Arc::clone(&self.config));
            let (shared, to) = (Arc::clone(&self.shared), self.to.clone());
            let fetcher = Fetcher { cluster, broker, config, shared, to };
            self.fetching.insert(broker, self.fetchers.spawn(fetcher.run()));
        }
    }

    /// Commits the offsets of returned records that are not committed yet.
    pub async fn commit(&mut self) -> Result<(), ConsumerError> {
        let offsets = self.shared.assignment.lock().uncommitted();
        self.commit_offsets(offsets).await
    }

    /// Commits these offsets, with their metadata.
    pub async fn commit_offsets(
        &mut self,
        offsets: BTreeMap<TopicPartition, CommittedOffset>,
    ) -> Result<(), ConsumerError> {
        self.commit_async(offsets)?.await
    }

    /// Commits like [`Consumer::commit_offsets`], without waiting. Commits are sent in order. A subscriber
    /// that is not a member of its group sends none: [`CommitFailed`].
    pub fn commit_async(
        &mut self,
        offsets: BTreeMap<TopicPartition, CommittedOffset>,
    ) -> Result<CommitInFlight, NoGroup> {
        let by = self.group_metadata()?;
        if !offsets.is_empty() && !self.may_commit() {
            return Ok(CommitInFlight::refused(CommitFailed { by, error_code: None }));
        }
        let member = self.group.as_ref().map(|group| Arc::clone(&group.membership));
        Ok(self.commits.as_ref().ok_or(NoGroup)?.commit(by, member, offsets))
    }

    /// The time of the next automatic commit, if any.
    fn first_commit_at(&self) -> Option<Instant> {
        self.config.group.as_ref()?;
        self.config.auto_commit.map(|interval| Instant::now() + interval)
    }

    fn commit_when_due(&mut self) {
        let (Some(at), Some(interval)) = (self.commit_at, self.config.auto_commit) else { return };
        if at > Instant::now() {
            return;
        }
        self.commit_at = Some(Instant::now() + interval);
        if self.warn_of_dropped_commit() {
            return;
        }
        let offsets = self.shared.assignment.lock().uncommitted();
        // The next commit makes up for a failed one.
        drop(self.commit_async(offsets));
    }

    /// True if the consumer is a member of its group, or assigns its partitions itself.
    fn may_commit(&self) -> bool {
        match &self.group {
            Some(group) => group.membership.is_member(),
            None => matches!(self.subscription, Subscription::None),
        }
    }

    /// True, with a warning, if offsets to commit automatically must be dropped, because the partitions
    /// belong to other members.
    fn warn_of_dropped_commit(&self) -> bool {
        if self.config.auto_commit.is_none() || self.may_commit() {
            return false;
        }
        let partitions = self.shared.assignment.lock().uncommitted().len();
        if partitions > 0 {
            tracing::warn!(
                group = self.config.group,
                partitions,
                "Offsets are not committed, because the group has rebalanced without this consumer; records \
                 since the last commit are read again"
            );
        }
        true
    }

    /// Commits if `enable.auto.commit` is set, and leaves the group. A consumer that is no longer a member
    /// commits nothing.
    pub async fn close(mut self) -> Result<(), ConsumerError> {
        let commits = self.config.group.is_some() && self.config.auto_commit.is_some();
        let committed = match commits && !self.warn_of_dropped_commit() {
            true => self.commit().await,
            false => Ok(()),
        };
        self.unsubscribe().await?;
        committed
    }
}

impl NewAssignment {
    /// True if the partitions can be reported: each has a position, or waits only for a leader that has not
    /// answered in time.
    fn is_complete(&self, assignment: &Assignment) -> bool {
        let is_late = Instant::now() >= self.leaders_until;
        self.partitions.iter().all(|at| {
            let is_known = !assignment.contains(at) || assignment.has_valid_position(at);
            is_known || is_late && assignment.lacks_leader_offset(at)
        })
    }
}

async fn happened(group: Option<&Group>) {
    match group {
        Some(group) => group.membership.happened().await,
        None => std::future::pending().await,
    }
}

fn sorted(topics: BTreeSet<String>) -> Vec<String> {
    topics.into_iter().collect()
}
