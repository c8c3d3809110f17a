//! A member of a consumer group whose coordinator assigns the partitions (KIP-848). The protocol has a single
//! request, ConsumerGroupHeartbeat.
//!
//! The member chooses its id and joins with epoch 0. An answer has the epoch, the heartbeat interval, and
//! after a change the target assignment. The member first gives up the partitions missing in the target, once
//! the consumer has committed and released them, and reports the partitions it holds. Only then does the
//! coordinator assign the released partitions to other members, and raise the epoch. A heartbeat has the
//! fields that changed since the last answer, and after a failure all fields, because the coordinator may
//! have missed some.
//!
//! Partitions arrive with topic ids. Unknown ids are looked up in the metadata; their partitions follow when
//! the topic is known. As in Kafka's client, a static member leaves with epoch -2 and keeps its partitions
//! while away; other members leave with epoch -1.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thalweg_dial::{Backoff, ClientError, RefusedRequest};
use thalweg_wire::request::consumer_group_heartbeat_request::TopicPartitions;
use thalweg_wire::request::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use thalweg_wire::{ErrorCode, Uuid};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{millis, warn_of_stall};
use crate::cluster::Cluster;
use crate::consumer::ConsumerConfig;
use crate::consumer::membership::{Event, Membership, SubscribedTopics};
use crate::coordinator::Coordinator;
use crate::offsets::{TopicIdPartition, TopicPartition};

/// The epoch of a heartbeat that joins.
const JOINS: i32 = 0;
/// The epoch of a heartbeat that leaves.
const LEAVES: i32 = -1;
/// The epoch of a heartbeat of a static member that leaves temporarily.
const LEAVES_FOR_A_WHILE: i32 = -2;
/// The first version of the heartbeat with a regular expression.
const REGEX_FROM: i16 = 1;
/// The remedy if brokers do not serve the heartbeat.
const NEEDS: &str = "group.protocol=consumer needs brokers of Kafka 4.0 or later with group.version=1 (KIP-848): expected \
                     group.protocol=classic";

/// A member of a consumer group.
pub(super) struct ConsumerGroupMember {
    cluster: Cluster,
    config: Arc<ConsumerConfig>,
    membership: Arc<Membership>,
    coordinator: Arc<Coordinator>,
    /// The member id, chosen by the member for the life of the consumer.
    id: String,
    /// The member epoch; [`JOINS`] until the coordinator has accepted the member.
    epoch: i32,
    /// True if a join was sent, so that the coordinator may know the member.
    has_joined: bool,
    /// The coordinator's state of the member; `None` if uncertain.
    known: Option<SentFields>,
    /// The target assignment, until reached.
    target: Option<BTreeSet<TopicIdPartition>>,
    /// The held partitions, with names.
    owned: BTreeMap<TopicIdPartition, TopicPartition>,
    /// The held partitions that the consumer must release.
    releasing: BTreeSet<TopicIdPartition>,
    /// True if the consumer has received an assignment since the member joined.
    is_assigned: bool,
    /// The lookup of topic ids, which no heartbeat waits for.
    looking_up: JoinSet<()>,
    /// Time of the next lookup.
    look_up_at: Instant,
    beat_at: Instant,
    backoff: Backoff,
}

/// Fields of a heartbeat that the coordinator keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SentFields {
    topics: SubscribedTopics,
    owned: BTreeSet<TopicIdPartition>,
}

/// The reason why the membership ends or restarts.
#[derive(Debug)]
enum End {
    /// The coordinator has reassigned the partitions.
    Fenced,
    /// The consumer has not polled for `max.poll.interval.ms`.
    Stalled,
    /// The consumer leaves.
    Leaving,
    /// The member has failed permanently.
    Failed(ClientError),
}

impl ConsumerGroupMember {
    pub(super) fn new(
        cluster: Cluster,
        config: Arc<ConsumerConfig>,
        coordinator: Arc<Coordinator>,
        membership: Arc<Membership>,
    ) -> ConsumerGroupMember {
        let now = Instant::now();
        ConsumerGroupMember {
            cluster,
            membership,
            coordinator,
            id: Uuid::random().to_string(),
            epoch: JOINS,
            has_joined: false,
            known: None,
            target: None,
            owned: BTreeMap::new(),
            releasing: BTreeSet::new(),
            is_assigned: false,
            looking_up: JoinSet::new(),
            look_up_at: now,
            beat_at: now,
            backoff: Backoff::new(config.retry_backoff),
            config,
        }
    }

    /// Runs until the consumer leaves. Final errors are passed to the consumer.
    pub(super) async fn run(mut self) -> Result<(), ClientError> {
        loop {
            self.membership.loss_processed().await;
            match self.be_member().await {
                End::Fenced => {
                    let was_member = self.epoch != JOINS;
                    self.start_over();
                    if !was_member {
                        // Without this pause, a coordinator that refuses every join would receive joins in a
                        // busy loop.
                        self.beat_at += self.backoff.next_pause();
                    }
                }
                End::Stalled => Box::pin(self.pause()).await,
                End::Leaving => return Box::pin(self.leave()).await,
                End::Failed(error) => {
                    self.start_over();
                    self.membership.push_event(Event::Failed(error));
                    return Ok(());
                }
            }
        }
    }

    /// Heartbeats and reconciles, until the membership ends.
    async fn be_member(&mut self) -> End {
        loop {
            if self.membership.is_leaving() {
                return End::Leaving;
            }
            if self.membership.is_stalled(self.config.rebalance_timeout) {
                return End::Stalled;
            }
            if self.membership.take_rejoin() | self.membership.take_doubt() {
                self.beat_at = Instant::now();
            }
            let wake_at = self.reconcile().map_or(self.beat_at, |at| at.min(self.beat_at));
            tokio::select! {
                biased;
                () = self.membership.changed(), if self.beat_at > Instant::now() => continue,
                Some(_) = self.looking_up.join_next() => continue,
                () = tokio::time::sleep_until(wake_at) => {}
            }
            if self.beat_at <= Instant::now()
                && let Err(end) = self.beat().await
            {
                return end;
            }
        }
    }

    /// Moves towards the target: gives up partitions, then takes the new ones. Returns the time of the next
    /// lookup, if any topic ids are unknown.
    fn reconcile(&mut self) -> Option<Instant> {
        if !self.releasing.is_empty() {
            if self.membership.has_revoked() {
                return None;
            }
            let released = std::mem::take(&mut self.releasing);
            let released: Vec<_> = released.iter().filter_map(|key| self.owned.remove(key)).collect();
            self.membership.release(released.iter());
            self.beat_at = Instant::now();
        }
        let target = self.target.as_ref()?;
        self.releasing = self.owned.keys().filter(|key| !target.contains(key)).copied().collect();
        if !self.releasing.is_empty() {
            let revoked = self.releasing.iter().map(|key| self.owned[key].clone());
            self.membership.push_event(Event::Revoked(revoked.collect()));
            return None;
        }
        let missing = target.iter().filter(|key| !self.owned.contains_key(key)).copied().collect();
        let (added, unknown) = self.named(&missing);
        if !added.is_empty() || (unknown.is_empty() && !self.is_assigned) {
            let partitions: Vec<TopicPartition> = added.values().cloned().collect();
            self.membership.hold(&partitions);
            self.membership.push_event(Event::Assigned(partitions));
            self.is_assigned = true;
        }
        if !added.is_empty() {
            self.owned.extend(added);
            self.beat_at = Instant::now();
        }
        if unknown.is_empty() {
            self.target = None;
            return None;
        }
        if self.look_up_at <= Instant::now() && self.looking_up.is_empty() {
            self.look_up_at = Instant::now() + self.backoff.next_pause();
            let cluster = self.cluster.clone();
            self.looking_up.spawn(async move {
                if let Err(error) = cluster.refresh_ids(&unknown).await {
                    cluster.options().failed("metadata", &error);
                }
            });
        }
        self.looking_up.is_empty().then_some(self.look_up_at)
    }

    /// The partitions whose topics the metadata knows, with names; and the ids of the other topics.
    fn named(
        &self,
        partitions: &BTreeSet<TopicIdPartition>,
    ) -> (BTreeMap<TopicIdPartition, TopicPartition>, Vec<Uuid>) {
        let metadata = self.cluster.metadata();
        let ids: BTreeSet<Uuid> = partitions.iter().map(|(id, _)| *id).collect();
        let topics = metadata.topics.values().filter(|topic| ids.contains(&topic.id));
        let names: BTreeMap<Uuid, &Arc<str>> = topics.map(|topic| (topic.id, &topic.name)).collect();
        let named = partitions.iter().filter_map(|&(id, partition)| {
            let name = Arc::clone(names.get(&id)?);
            Some(((id, partition), TopicPartition::new(name, partition)))
        });
        (named.collect(), ids.into_iter().filter(|id| !names.contains_key(id)).collect())
    }

    /// Sends one heartbeat, and applies its answer.
    async fn beat(&mut self) -> Result<(), End> {
        let membership = Arc::clone(&self.membership);
        let beaten = tokio::select! {
            biased;
            () = membership.left() => return Err(End::Leaving),
            beaten = self.send() => beaten,
        };
        match beaten {
            Ok((response, known)) => {
                self.known = Some(known);
                self.take(response);
                Ok(())
            }
            Err(error) => {
                let error = self.judge(error)?;
                self.config.connection.failed("group", &error);
                tracing::debug!(%error, "Heartbeat failed, sending another");
                self.known = None;
                self.beat_at = Instant::now() + self.backoff.next_pause();
                Ok(())
            }
        }
    }

    async fn send(&mut self) -> Result<(ConsumerGroupHeartbeatResponse, SentFields), ClientError> {
        let connection = self.coordinator.connection().await?;
        let known =
            SentFields { topics: self.membership.topics(), owned: self.owned.keys().copied().collect() };
        let from = if known.topics.pattern.is_some() { REGEX_FROM } else { 0 };
        let version =
            connection.versions().pick_from::<ConsumerGroupHeartbeatRequest>(connection.peer(), from)?;
        let request = self.request(&known, version);
        self.has_joined = true;
        let response = connection.send_at(&request, version).await?;
        self.check(&response)?;
        Ok((response, known))
    }

    /// A heartbeat that brings the coordinator to this state.
    fn request(&self, known: &SentFields, version: i16) -> ConsumerGroupHeartbeatRequest {
        let before = self.known.as_ref().filter(|_| self.epoch != JOINS);
        let is_new = before.is_none();
        let topics_changed = before.is_none_or(|before| before.topics != known.topics);
        let owned_changed = before.is_none_or(|before| before.owned != known.owned);
        let metadata = self.membership.metadata();
        let SubscribedTopics { names, pattern } = &known.topics;
        ConsumerGroupHeartbeatRequest {
            group_id: metadata.group,
            member_id: self.id.clone(),
            member_epoch: self.epoch,
            instance_id: metadata.group_instance_id,
            rack_id: self.config.rack.clone().filter(|_| is_new),
            rebalance_timeout_ms: if is_new { millis(self.config.rebalance_timeout) } else { -1 },
            subscribed_topic_names: topics_changed.then(|| names.clone()),
            // Empty text removes the pattern; without it the coordinator would keep the earlier one.
            subscribed_topic_regex: (topics_changed && version >= REGEX_FROM)
                .then(|| pattern.clone().unwrap_or_default()),
            server_assignor: self.config.remote_assignor.clone().filter(|_| is_new),
            topic_partitions: owned_changed.then(|| by_topic(&known.owned)),
        }
    }

    fn check(&self, response: &ConsumerGroupHeartbeatResponse) -> Result<(), ClientError> {
        let message = response.error_message.as_deref();
        let what = || format!("Heartbeat of group {}", self.coordinator.key());
        Ok(RefusedRequest::check(response.error_code, message, what)?)
    }

    fn take(&mut self, response: ConsumerGroupHeartbeatResponse) {
        self.epoch = response.member_epoch;
        self.membership.set_member(&self.id, self.epoch);
        self.membership.joined();
        self.beat_at = self.cluster.next_beat(response.heartbeat_interval_ms, self.config.retry_backoff);
        if let Some(assignment) = response.assignment {
            let partitions = assignment.topic_partitions.into_iter().flat_map(|topic| {
                let id = topic.topic_id;
                topic.partitions.into_iter().map(move |partition| (id, partition))
            });
            self.target = Some(partitions.collect());
            self.look_up_at = Instant::now();
        }
    }

    /// Maps an error to the end of the membership. Returns retriable errors, and forgets the coordinator if
    /// it may have moved.
    fn judge(&self, error: ClientError) -> Result<ClientError, End> {
        match error.error_code() {
            Some(ErrorCode::FencedMemberEpoch | ErrorCode::UnknownMemberId) => Err(End::Fenced),
            Some(ErrorCode::CoordinatorLoadInProgress) => Ok(error),
            // The member keeps its partitions, and continues once it has the right to describe the topic.
            Some(ErrorCode::TopicAuthorizationFailed) => {
                self.membership.report(error.clone());
                Ok(error)
            }
            _ if error.is_retriable() => {
                self.coordinator.forget();
                Ok(error)
            }
            _ => {
                let what = format!("Heartbeat of group {}", self.coordinator.key());
                Err(End::Failed(error.if_unserved(what, NEEDS)))
            }
        }
    }

    /// Drops all partitions, and joins again.
    fn start_over(&mut self) {
        self.releasing.clear();
        self.membership.lose(std::mem::take(&mut self.owned).into_values().collect());
        (self.epoch, self.known, self.target) = (JOINS, None, None);
        (self.has_joined, self.is_assigned) = (false, false);
        self.beat_at = Instant::now();
    }

    /// Leaves the group until the consumer polls again, so that other members can read its partitions.
    async fn pause(&mut self) {
        warn_of_stall(&self.config, &self.membership);
        if let Err(error) = self.leave().await {
            tracing::debug!(%error, "Failed to leave the group; the session will time out");
        }
        self.start_over();
        self.membership.polled_or_left(self.config.rebalance_timeout).await;
        self.beat_at = Instant::now();
    }

    /// Leaves the group, with retries. The partitions of a static member stay reserved until its session
    /// times out.
    async fn leave(&mut self) -> Result<(), ClientError> {
        if !self.has_joined {
            return Ok(());
        }
        let until = Instant::now() + self.config.connection.request_timeout;
        loop {
            // Without an answer, the session times out at the coordinator.
            let Ok(left) = tokio::time::timeout_at(until, self.try_to_leave()).await else {
                return Ok(());
            };
            // The group does not exist, so there is nothing to leave.
            let is_gone = |error: &ClientError| error.error_code() == Some(ErrorCode::GroupIdNotFound);
            match left.map_err(|error| if is_gone(&error) { Err(End::Fenced) } else { self.judge(error) }) {
                Ok(()) | Err(Err(End::Fenced)) => return Ok(()),
                Err(Err(End::Failed(error))) => return Err(error),
                Err(Ok(error)) if Instant::now() >= until => return Err(error),
                Err(_) => tokio::time::sleep(self.backoff.next_pause()).await,
            }
        }
    }

    async fn try_to_leave(&self) -> Result<(), ClientError> {
        let connection = self.coordinator.connection().await?;
        let metadata = self.membership.metadata();
        let is_static = metadata.group_instance_id.is_some();
        let request = ConsumerGroupHeartbeatRequest {
            group_id: metadata.group,
            member_id: self.id.clone(),
            member_epoch: if is_static { LEAVES_FOR_A_WHILE } else { LEAVES },
            instance_id: metadata.group_instance_id,
            ..ConsumerGroupHeartbeatRequest::default()
        };
        self.check(&connection.send(&request).await?)
    }
}

fn by_topic(partitions: &BTreeSet<TopicIdPartition>) -> Vec<TopicPartitions> {
    let mut topics: Vec<TopicPartitions> = Vec::new();
    for &(topic_id, partition) in partitions {
        match topics.last_mut().filter(|last| last.topic_id == topic_id) {
            Some(topic) => topic.partitions.push(partition),
            None => topics.push(TopicPartitions { topic_id, partitions: vec![partition] }),
        }
    }
    topics
}
