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
mod commit;
mod commit_queue;
mod config;
mod error;
mod fetch_session;
mod fetcher;
mod group;
mod leader_requests;
mod member;
mod membership;
mod poll;
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
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::cluster::{Cluster, CoordinatorKind};
use crate::coordinator::Coordinator;
use crate::offsets::{GroupMetadata, OffsetSpec, TopicPartition};
use commit_queue::CommitQueue;
use fetcher::{FetchResult, Fetcher};
use group::Group;
use leader_requests::LeaderRequests;
use membership::SubscribedTopics;
use poll::NewAssignment;
use shared_state::SharedState;
use subscription::Subscription;

pub use assignor::AssignmentStrategy;
pub use chunk::{Chunk, ChunkError};
pub use commit_queue::CommitInFlight;
pub use config::{ConsumerConfig, GroupProtocol, OffsetReset};
pub use error::{CommitFailed, ConsumerError, LogTruncated, NoGroup, NoOffset};
pub use poll::PollEvent;
pub use protocol::read_assignment;
pub use subscription::InvalidPattern;

/// The start position in a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartAt {
    Offset(Offset),
    /// An offset found by the leader: the beginning, the end, a time.
    Spec(OffsetSpec),
    /// The committed offset of the group; without one, by `auto.offset.reset`.
    Committed,
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
    commits: Option<Arc<CommitQueue>>,
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
            Arc::new(CommitQueue::new(coordinator, Arc::clone(&config), Arc::clone(&shared)))
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

fn sorted(topics: BTreeSet<String>) -> Vec<String> {
    topics.into_iter().collect()
}
