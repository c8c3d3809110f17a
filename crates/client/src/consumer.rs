//! A lean consumer, for measuring and for tools: partitions that it is told to read, or its share of a classic group's.
//!
//! A fetcher task per broker is one request ahead of the caller. What was fetched is handed out as [`Chunk`]s, the bytes
//! that came; records are read in place. [`Consumer::poll`] does the rest: joining, committing, finding offsets and leaders.

mod assignor;
mod chunk;
mod config;
mod fetcher;
mod group;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use thalweg_record::{LeaderEpoch, Offset};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::error::ClientError;
use crate::offsets::{CommittedOffset, OffsetSpec, TopicPartition, commit, committed};
use fetcher::{Demand, Fetched, Fetcher, Target};
use group::Member;

pub use chunk::{Chunk, ChunkError};
pub use config::{ConsumerConfig, OffsetReset};
pub use group::read_assignment;

/// Why a consumer cannot go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConsumerError {
    /// The cluster.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There is no offset to go on from.
    #[error(transparent)]
    NoOffset(#[from] NoOffset),
    /// Only members of groups subscribe and commit.
    #[error(transparent)]
    NoGroup(#[from] NoGroup),
}

/// A partition has no offset to go on from, and `auto.offset.reset` allows no other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at} has no offset to read from{}, and auto.offset.reset is none: earliest or latest would choose one",
    offset.map(|offset| format!(" ({offset} is not in its log)")).unwrap_or_default())]
pub struct NoOffset {
    /// The partition.
    pub at: TopicPartition,
    /// The offset that its log does not have.
    pub offset: Option<Offset>,
}

/// A group is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("group.id is not set: subscribing and committing need a group")]
pub struct NoGroup;

/// Where to begin in a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartAt {
    /// At this offset.
    Offset(Offset),
    /// At one that the leader finds.
    Spec(OffsetSpec),
    /// Where the group left off, else as `auto.offset.reset` says.
    Committed,
}

/// What a poll brought.
#[derive(Debug)]
pub enum Polled {
    /// Records.
    Chunk(Chunk),
    /// The group gave these partitions to this member.
    Assigned(Vec<TopicPartition>),
    /// The group rebalances: these partitions are no longer this member's.
    Revoked(Vec<TopicPartition>),
    /// Nothing, in the time allowed.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
struct Position {
    next: Offset,
    leader_epoch: LeaderEpoch,
    /// What is known to be committed.
    committed: Option<Offset>,
}

/// A consumer.
#[derive(Debug)]
pub struct Consumer {
    cluster: Cluster,
    config: Arc<ConsumerConfig>,
    member: Option<Member>,
    positions: BTreeMap<TopicPartition, Position>,
    fetchers: JoinSet<()>,
    fetched: Option<mpsc::Receiver<Fetched>>,
    ready: VecDeque<Chunk>,
    demand: Arc<Demand>,
    /// When to look at the metadata again and begin new fetches.
    restart_at: Option<Instant>,
    refresh_at: Instant,
    commit_at: Option<Instant>,
}

impl Consumer {
    /// A consumer of the cluster behind `bootstrap`.
    pub async fn connect(bootstrap: &[String], config: ConsumerConfig) -> Result<Consumer, ClientError> {
        let cluster = Cluster::connect(bootstrap, &config.connection).await?;
        Ok(Consumer::new(cluster, config))
    }

    /// A consumer of a cluster, whose metadata it takes over.
    pub fn new(cluster: Cluster, config: ConsumerConfig) -> Consumer {
        let now = Instant::now();
        Consumer {
            cluster,
            member: None,
            positions: BTreeMap::new(),
            fetchers: JoinSet::new(),
            fetched: None,
            ready: VecDeque::new(),
            demand: Arc::default(),
            restart_at: None,
            refresh_at: now + config.metadata_max_age,
            commit_at: None,
            config: Arc::new(config),
        }
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Joins the group's readers of these topics; [`Consumer::poll`] does it, and tells.
    pub fn subscribe(&mut self, topics: Vec<String>) -> Result<(), NoGroup> {
        let group = self.config.group.clone().ok_or(NoGroup)?;
        self.stop();
        self.positions.clear();
        self.member = Some(Member::new(self.cluster.clone(), Arc::clone(&self.config), group, topics));
        self.commit_at = self.config.auto_commit.map(|interval| Instant::now() + interval);
        Ok(())
    }

    /// Reads these partitions, in no group's name.
    pub async fn assign(&mut self, partitions: Vec<(TopicPartition, StartAt)>) -> Result<(), ConsumerError> {
        self.stop();
        self.member = None;
        self.commit_at = None;
        let topics: BTreeSet<String> = partitions.iter().map(|(at, _)| at.topic.to_string()).collect();
        let topics: Vec<String> = topics.into_iter().collect();
        self.cluster.refresh(&topics, self.config.create_topics).await?;
        self.begin(partitions).await
    }

    /// The partitions that are read.
    pub fn assignment(&self) -> impl Iterator<Item = &TopicPartition> {
        self.positions.keys()
    }

    /// The offset after the last record that was handed out of a partition.
    pub fn position(&self, at: &TopicPartition) -> Option<Offset> {
        self.positions.get(at).map(|position| position.next)
    }

    /// Goes on with this offset. What was fetched and not handed out is dropped.
    pub fn seek(&mut self, at: &TopicPartition, offset: Offset) {
        if let Some(position) = self.positions.get_mut(at) {
            position.next = offset;
            self.stop();
            self.restart_at = Some(Instant::now());
        }
    }

    /// What comes next: records, or a change of the assignment. Waits up to `timeout` for it; joining a group takes the
    /// time that it takes.
    pub async fn poll(&mut self, timeout: Duration) -> Result<Polled, ConsumerError> {
        let deadline = Instant::now() + timeout;
        self.commit_when_due().await?;
        loop {
            if self.member.as_ref().is_some_and(Member::must_join) {
                return self.rejoin().await;
            }
            if let Some(chunk) = self.ready.pop_front() {
                return Ok(self.hand_out(chunk));
            }
            if self.restart_at.is_some_and(|at| at <= Instant::now()) {
                self.restart().await?;
            }
            if self.refresh_at <= Instant::now() {
                self.refresh().await;
            }
            let wake_at = self.restart_at.map_or(deadline, |at| at.min(deadline)).min(self.refresh_at);
            self.demand.set(true);
            let fetched = tokio::select! {
                biased;
                fetched = next(&mut self.fetched) => Some(fetched),
                () = changed(self.member.as_ref()) => None,
                () = tokio::time::sleep_until(wake_at) => None,
            };
            self.demand.set(false);
            match fetched {
                Some(fetched) => self.take(fetched).await?,
                None if Instant::now() >= deadline => return Ok(Polled::Nothing),
                None => {}
            }
        }
    }

    fn hand_out(&mut self, chunk: Chunk) -> Polled {
        if let Some(position) = self.positions.get_mut(&chunk.at) {
            position.next = chunk.next;
            position.leader_epoch = chunk.leader_epoch;
        }
        Polled::Chunk(chunk)
    }

    async fn take(&mut self, fetched: Fetched) -> Result<(), ConsumerError> {
        match fetched {
            Fetched::Chunks(chunks) => self.ready.extend(chunks),
            Fetched::OutOfRange(at, offset) => {
                let spec = self.reset_spec(&at, Some(offset))?;
                tracing::warn!(partition = %at, %offset, "The log does not have the offset; the position is reset");
                self.stop();
                self.begin(vec![(at, StartAt::Spec(spec))]).await?;
            }
            Fetched::Stale(error) => {
                tracing::debug!(%error, "A fetch failed; looking for the leaders");
                self.stop();
                self.restart_at = Some(Instant::now() + self.config.retry_backoff);
            }
            Fetched::Failed(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Ends the fetches. Positions are those of what was handed out, so nothing is lost.
    fn stop(&mut self) {
        self.fetchers.abort_all();
        self.fetchers = JoinSet::new();
        self.fetched = None;
        self.ready.clear();
    }

    async fn restart(&mut self) -> Result<(), ConsumerError> {
        match self.refresh_topics().await {
            Ok(()) => self.start(),
            Err(error) if error.is_retriable() => {
                self.restart_at = Some(Instant::now() + self.config.retry_backoff);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Looks at the metadata, because it has grown old. New partitions make a group's member join again.
    async fn refresh(&mut self) {
        self.refresh_at = Instant::now() + self.config.metadata_max_age;
        let before = self.cluster.metadata();
        if self.refresh_topics().await.is_ok()
            && let Some(member) = &self.member
        {
            let after = self.cluster.metadata();
            let count = |metadata: &crate::Metadata, topic: &String| {
                metadata.topics.get(topic).map(|topic| topic.partitions.len())
            };
            if member.topics().iter().any(|topic| count(&before, topic) != count(&after, topic)) {
                member.rejoin();
            }
        }
    }

    async fn refresh_topics(&self) -> Result<(), ClientError> {
        let mut topics: BTreeSet<String> = self.positions.keys().map(|at| at.topic.to_string()).collect();
        topics.extend(self.member.iter().flat_map(Member::topics).cloned());
        let topics: Vec<String> = topics.into_iter().collect();
        self.cluster.refresh(&topics, self.config.create_topics).await.map(|_| ())
    }

    /// Begins the fetches of all partitions whose leader is known.
    fn start(&mut self) {
        self.stop();
        self.restart_at = None;
        let metadata = self.cluster.metadata();
        let mut by_leader: BTreeMap<i32, Vec<Target>> = BTreeMap::new();
        for (at, position) in &self.positions {
            let topic = metadata.topics.get(&*at.topic);
            let known = topic.and_then(|topic| Some((topic.id, topic.partition(at.partition)?)));
            let Some((topic_id, Some(leader), leader_epoch)) =
                known.map(|(id, partition)| (id, partition.leader, partition.leader_epoch))
            else {
                self.restart_at = Some(Instant::now() + self.config.retry_backoff);
                continue;
            };
            let target = Target { at: at.clone(), topic_id, leader_epoch, position: position.next };
            by_leader.entry(leader).or_default().push(target);
        }
        let (to, fetched) = mpsc::channel(by_leader.len().max(1));
        for (broker, targets) in by_leader {
            let (cluster, config, to) = (self.cluster.clone(), Arc::clone(&self.config), to.clone());
            let demand = Arc::clone(&self.demand);
            self.fetchers.spawn(Fetcher { cluster, broker, config, targets, to, demand }.run());
        }
        self.fetched = Some(fetched);
    }

    /// Finds the offsets of partitions, and begins the fetches.
    async fn begin(&mut self, partitions: Vec<(TopicPartition, StartAt)>) -> Result<(), ConsumerError> {
        let mut wanted: Vec<(TopicPartition, OffsetSpec)> = Vec::new();
        let mut left_off = Vec::new();
        for (at, start) in partitions {
            match start {
                StartAt::Offset(offset) => self.set(at, offset, None),
                StartAt::Spec(spec) => wanted.push((at, spec)),
                StartAt::Committed => left_off.push(at),
            }
        }
        for (at, known) in self.left_off(left_off).await? {
            match known {
                Some(known) => self.set(at, known.offset, Some(known.offset)),
                None => {
                    let spec = self.reset_spec(&at, None)?;
                    wanted.push((at, spec));
                }
            }
        }
        while !wanted.is_empty() {
            let found = self.cluster.list_offsets(&wanted, self.config.read_committed).await;
            let mut again = Vec::new();
            for (at, spec) in wanted {
                match found.get(&at) {
                    // No record is that young: begin with the next.
                    Some(Ok(found)) if found.offset.0 < 0 => again.push((at, OffsetSpec::Latest)),
                    Some(Ok(found)) => self.set(at, found.offset, None),
                    Some(Err(error)) if !error.is_retriable() => return Err(error.clone().into()),
                    Some(Err(_)) | None => again.push((at, spec)),
                }
            }
            wanted = again;
            if !wanted.is_empty() {
                tokio::time::sleep(self.config.retry_backoff).await;
                let topics: BTreeSet<String> = wanted.iter().map(|(at, _)| at.topic.to_string()).collect();
                let mut topics: Vec<String> = topics.into_iter().collect();
                topics.extend(self.positions.keys().map(|at| at.topic.to_string()));
                topics.sort_unstable();
                topics.dedup();
                // The next round tells when the cluster is not there.
                let _ = self.cluster.refresh(&topics, self.config.create_topics).await;
            }
        }
        self.start();
        Ok(())
    }

    fn set(&mut self, at: TopicPartition, next: Offset, committed: Option<Offset>) {
        self.positions.insert(at, Position { next, leader_epoch: LeaderEpoch::NONE, committed });
    }

    async fn left_off(
        &mut self,
        partitions: Vec<TopicPartition>,
    ) -> Result<Vec<(TopicPartition, Option<CommittedOffset>)>, ConsumerError> {
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        let group = self.config.group.clone().ok_or(NoGroup)?;
        loop {
            let coordinator = match &mut self.member {
                Some(member) => member.coordinator().await?,
                None => self.cluster.coordinator(crate::CoordinatorKind::Group, &group).await?,
            };
            match committed(&coordinator, &group, Some(&partitions), true).await {
                Ok(mut known) => {
                    let with_offset = partitions.into_iter().map(|at| {
                        let offset = known.remove(&at);
                        (at, offset)
                    });
                    return Ok(with_offset.collect());
                }
                Err(error) if error.is_retriable() => {
                    if let Some(member) = &mut self.member {
                        member.doubt_coordinator(&error);
                    }
                    tokio::time::sleep(self.config.retry_backoff).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn reset_spec(&self, at: &TopicPartition, offset: Option<Offset>) -> Result<OffsetSpec, NoOffset> {
        match self.config.offset_reset {
            OffsetReset::Earliest => Ok(OffsetSpec::Earliest),
            OffsetReset::Latest => Ok(OffsetSpec::Latest),
            OffsetReset::None => Err(NoOffset { at: at.clone(), offset }),
        }
    }

    /// First gives the partitions back, then, in the next poll, joins.
    async fn rejoin(&mut self) -> Result<Polled, ConsumerError> {
        self.stop();
        if !self.positions.is_empty() {
            if self.config.auto_commit.is_some()
                && let Err(error) = self.commit().await
            {
                // Another member will read some records again; that is what at-least-once means.
                tracing::warn!(%error, "Offsets were not committed before the rebalance");
            }
            let revoked = std::mem::take(&mut self.positions);
            return Ok(Polled::Revoked(revoked.into_keys().collect()));
        }
        let member = self.member.as_mut().expect("only a group's member rejoins");
        let assigned = member.join().await?;
        let topics = member.topics().to_vec();
        self.cluster.refresh(&topics, self.config.create_topics).await?;
        self.begin(assigned.iter().map(|at| (at.clone(), StartAt::Committed)).collect()).await?;
        Ok(Polled::Assigned(assigned))
    }

    async fn commit_when_due(&mut self) -> Result<(), ConsumerError> {
        let (Some(at), Some(interval)) = (self.commit_at, self.config.auto_commit) else { return Ok(()) };
        if at > Instant::now() {
            return Ok(());
        }
        self.commit_at = Some(Instant::now() + interval);
        match self.commit().await {
            // The next poll, or the next commit, takes care of it.
            Err(ConsumerError::Client(error)) => {
                tracing::warn!(%error, "Offsets were not committed");
                Ok(())
            }
            other => other,
        }
    }

    /// Commits the offsets after what was handed out, as far as they are not committed.
    pub async fn commit(&mut self) -> Result<(), ConsumerError> {
        let member = self.member.as_mut().ok_or(NoGroup)?;
        let moved = self.positions.iter().filter(|(_, position)| position.committed != Some(position.next));
        let offsets: BTreeMap<TopicPartition, CommittedOffset> = moved
            .map(|(at, position)| {
                let (offset, leader_epoch) = (position.next, position.leader_epoch);
                (at.clone(), CommittedOffset { offset, leader_epoch, metadata: String::new() })
            })
            .collect();
        if offsets.is_empty() {
            return Ok(());
        }
        let coordinator = member.coordinator().await?;
        if let Err(error) = commit(&coordinator, &member.committer(), &offsets).await {
            member.doubt_coordinator(&error);
            return Err(error.into());
        }
        for (at, committed) in offsets {
            if let Some(position) = self.positions.get_mut(&at) {
                position.committed = Some(committed.offset);
            }
        }
        Ok(())
    }

    /// Commits, where that is automatic, and leaves the group. A coordinator that has moved is looked for, as long as a
    /// session lasts.
    pub async fn close(mut self) -> Result<(), ConsumerError> {
        self.stop();
        let until = Instant::now() + self.config.session_timeout;
        let committed = loop {
            if self.member.is_none() || self.config.auto_commit.is_none() {
                break Ok(());
            }
            match self.commit().await {
                Err(ConsumerError::Client(error)) if error.is_retriable() && Instant::now() < until => {
                    tokio::time::sleep(self.config.retry_backoff).await;
                }
                committed => break committed,
            }
        };
        if let Some(member) = &mut self.member {
            member.leave(until).await?;
        }
        committed
    }
}

async fn next(fetched: &mut Option<mpsc::Receiver<Fetched>>) -> Fetched {
    let next = match fetched {
        Some(fetched) => fetched.recv().await,
        None => None,
    };
    match next {
        Some(next) => next,
        // All fetchers have ended and told why; the restart that follows brings new ones.
        None => std::future::pending().await,
    }
}

async fn changed(member: Option<&Member>) {
    match member {
        Some(member) => member.changed().await,
        None => std::future::pending().await,
    }
}
