//! The task of a member of a classic consumer group: finds the coordinator, joins, assigns partitions as the
//! leader, and keeps the session alive, until the consumer leaves.
//!
//! With the eager protocol a member releases all partitions before it rejoins; with the cooperative protocol
//! (KIP-429) only partitions of topics to which it no longer subscribes. A cooperative member keeps the
//! others, releases those missing in the new assignment, and rejoins so that they can be assigned. Heartbeats
//! share a connection with the consumer's commits. A join has a separate connection, closed after the join:
//! the broker holds it until all members have joined.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thalweg_dial::{Backoff, ClientError, Connection, RefusedRequest, RequestOptions, UnreadableResponse};
use thalweg_wire::request::join_group_request::JoinGroupRequestProtocol;
use thalweg_wire::request::leave_group_request::MemberIdentity;
use thalweg_wire::request::sync_group_request::SyncGroupRequestAssignment;
use thalweg_wire::request::{
    HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, SyncGroupRequest,
};
use thalweg_wire::{ApiKey, ErrorCode};
use tokio::time::Instant;

use super::{millis, warn_of_stall};
use crate::cluster::Cluster;
use crate::consumer::ConsumerConfig;
use crate::consumer::assignor::{AssignmentStrategy, assign};
use crate::consumer::membership::{Event, Membership};
use crate::consumer::protocol::{
    MemberSubscription, read_assignment, read_subscriber, write_assignment, write_subscription,
};
use crate::coordinator::Coordinator;
use crate::offsets::{GroupMetadata, TopicPartition};

/// Added to the rebalance timeout before a join request times out.
const JOIN_GRACE: Duration = Duration::from_secs(5);

/// A member of a classic group.
pub(super) struct ClassicGroupMember {
    cluster: Cluster,
    config: Arc<ConsumerConfig>,
    membership: Arc<Membership>,
    coordinator: Arc<Coordinator>,
    /// The member id in the next join; empty until the coordinator has given one, and again if the
    /// coordinator has forgotten the member.
    member_id: String,
    /// The connection for a join.
    joining: Option<Connection>,
    /// Assigned partitions that are not released.
    owned: BTreeSet<TopicPartition>,
    /// The generation of that assignment.
    owned_in: i32,
    /// True if the last join was refused.
    refused: bool,
    /// Time of the next heartbeat.
    beat_at: Instant,
    backoff: Backoff,
}

/// The reason for the end of a heartbeat phase.
#[derive(Debug)]
enum Pulse {
    /// The revoked partitions were released.
    Done,
    /// The group rebalances, or the consumer's subscription has changed.
    Rejoin,
    /// The coordinator has forgotten the member.
    Forgotten,
    /// The group has another generation, and the member still belongs to it.
    Outdated,
    /// The consumer has not polled for `max.poll.interval.ms`.
    Stalled,
    /// The consumer leaves.
    Leaving,
    /// The member has failed permanently.
    Failed(ClientError),
}

impl ClassicGroupMember {
    pub(super) fn new(
        cluster: Cluster,
        config: Arc<ConsumerConfig>,
        coordinator: Arc<Coordinator>,
        membership: Arc<Membership>,
    ) -> ClassicGroupMember {
        ClassicGroupMember {
            cluster,
            membership,
            coordinator,
            member_id: String::new(),
            joining: None,
            owned: BTreeSet::new(),
            owned_in: -1,
            refused: false,
            beat_at: Instant::now(),
            backoff: Backoff::new(config.retry_backoff),
            config,
        }
    }

    fn is_cooperative(&self) -> bool {
        self.config.assignment_strategies.iter().all(|strategy| strategy.is_cooperative())
    }

    /// Runs until the consumer leaves. Final errors are passed to the consumer.
    pub(super) async fn run(mut self) -> Result<(), ClientError> {
        // Boxed, because these futures are rare, and large in a task that mostly waits for its next
        // heartbeat.
        loop {
            self.membership.loss_processed().await;
            match self.be_member().await {
                Pulse::Done | Pulse::Rejoin => {}
                Pulse::Forgotten => self.forget(),
                // With a new member id, the group would wait for the session timeout of this one.
                Pulse::Outdated => self.lose(),
                Pulse::Stalled => Box::pin(self.pause()).await,
                Pulse::Leaving => return Box::pin(self.leave()).await,
                Pulse::Failed(error) => {
                    self.lose();
                    self.membership.push_event(Event::Failed(error));
                    return Ok(());
                }
            }
        }
    }

    /// One generation, from joining to the next reason to join.
    async fn be_member(&mut self) -> Pulse {
        let given_up = self.give_up();
        if !given_up.is_empty() {
            match self.revoke(given_up).await {
                Pulse::Done | Pulse::Rejoin => {}
                end => return end,
            }
        }
        self.membership.take_rejoin();
        let assigned = match Box::pin(self.join()).await {
            Ok(assigned) => assigned,
            Err(pulse) => {
                // One refusal is normal: the first join returns the member id. Without this pause, a
                // coordinator that refuses every join would receive joins in a busy loop.
                let is_again = std::mem::replace(&mut self.refused, true);
                if is_again && matches!(pulse, Pulse::Rejoin | Pulse::Forgotten | Pulse::Outdated) {
                    tokio::time::sleep(self.config.retry_backoff).await;
                }
                return pulse;
            }
        };
        self.refused = false;
        self.membership.joined();
        self.beat_at = self.next_beat();
        let revoked: BTreeSet<TopicPartition> = self.owned.difference(&assigned).cloned().collect();
        let added: Vec<TopicPartition> = assigned.difference(&self.owned).cloned().collect();
        self.owned = assigned;
        if revoked.is_empty() {
            self.membership.push_event(Event::Assigned(added));
            return self.beat_until(false).await;
        }
        // No other member may get these partitions before their release, which the next join reports.
        match self.revoke(revoked).await {
            Pulse::Done => {
                self.membership.push_event(Event::Assigned(added));
                Pulse::Rejoin
            }
            end => end,
        }
    }

    /// The partitions to release before the join: all, or with the cooperative protocol only those of topics
    /// to which the consumer no longer subscribes. Other members may get these partitions at once.
    fn give_up(&mut self) -> BTreeSet<TopicPartition> {
        let owned = std::mem::take(&mut self.owned);
        if !self.is_cooperative() {
            return owned;
        }
        let topics: BTreeSet<String> = self.membership.topics().names.into_iter().collect();
        let (kept, given_up) = owned.into_iter().partition(|at| topics.contains(&*at.topic));
        self.owned = kept;
        given_up
    }

    /// Waits until the consumer has released partitions. A rebalance that starts meanwhile waits, too.
    async fn revoke(&mut self, partitions: BTreeSet<TopicPartition>) -> Pulse {
        self.membership.push_event(Event::Revoked(partitions.into_iter().collect()));
        self.beat_until(true).await
    }

    /// Sends heartbeats until the consumer has released the revoked partitions, or until an event.
    async fn beat_until(&mut self, revoking: bool) -> Pulse {
        loop {
            if self.membership.is_leaving() {
                return Pulse::Leaving;
            }
            if revoking && !self.membership.has_revoked() {
                return Pulse::Done;
            }
            if !revoking && self.membership.take_rejoin() {
                return Pulse::Rejoin;
            }
            if self.membership.is_stalled(self.config.rebalance_timeout) {
                return Pulse::Stalled;
            }
            if self.membership.take_doubt() {
                self.beat_at = Instant::now();
            }
            let due = tokio::select! {
                biased;
                () = self.membership.changed() => false,
                () = tokio::time::sleep_until(self.beat_at) => true,
            };
            if due {
                self.beat_at = self.next_beat();
                match self.beat().await {
                    Pulse::Done => {}
                    Pulse::Rejoin if revoking => {}
                    end => return end,
                }
            }
        }
    }

    fn next_beat(&self) -> Instant {
        self.cluster.beat_after(self.config.heartbeat_interval)
    }

    /// Sends one heartbeat. After a retriable error, the next heartbeat finds the coordinator again.
    async fn beat(&mut self) -> Pulse {
        let GroupMetadata { group, generation, member_id, group_instance_id } = self.membership.metadata();
        let timeout = self.config.session_timeout;
        let beaten = async {
            let connection = self.coordinator.connection().await?;
            let version = connection.version_of::<HeartbeatRequest>()?;
            let request = HeartbeatRequest {
                group_id: group.clone(),
                generation_id: generation,
                member_id,
                group_instance_id: group_instance_id.filter(|_| version >= 3),
            };
            let options = RequestOptions { version: Some(version), timeout: Some(timeout) };
            let response = connection.send_with(&request, options).await?;
            RefusedRequest::check(response.error_code, None, || format!("Heartbeat of group {group}"))?;
            Ok::<(), ClientError>(())
        };
        match beaten.await {
            Ok(()) => Pulse::Done,
            Err(error) => match self.judge(error) {
                // The session continues with the new coordinator, if found in time.
                Ok(_) => {
                    self.beat_at = Instant::now() + self.backoff.next_pause();
                    Pulse::Done
                }
                Err(pulse) => pulse,
            },
        }
    }

    /// Maps an error to the member's next step. Returns retriable errors, and forgets the coordinator if it
    /// may have moved.
    fn judge(&mut self, error: ClientError) -> Result<ClientError, Pulse> {
        match error.error_code() {
            Some(ErrorCode::RebalanceInProgress | ErrorCode::MemberIdRequired) => Err(Pulse::Rejoin),
            Some(ErrorCode::UnknownMemberId) => Err(Pulse::Forgotten),
            Some(ErrorCode::IllegalGeneration) => Err(Pulse::Outdated),
            Some(ErrorCode::CoordinatorLoadInProgress) => Ok(error),
            _ if error.is_retriable() => {
                self.joining = None;
                self.coordinator.forget();
                Ok(error)
            }
            _ => Err(Pulse::Failed(error)),
        }
    }

    /// The connection for a join, reused by retries.
    async fn joining(&mut self) -> Result<Connection, ClientError> {
        if let Some(connection) = self.joining.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let connection = self.coordinator.another().await?;
        self.joining = Some(connection.clone());
        Ok(connection)
    }

    /// Joins, with retries, until the member has an assignment or the phase ends for another reason.
    async fn join(&mut self) -> Result<BTreeSet<TopicPartition>, Pulse> {
        loop {
            let membership = Arc::clone(&self.membership);
            let joined = tokio::select! {
                biased;
                () = membership.left() => None,
                joined = self.try_join() => Some(joined),
            };
            let error = match joined {
                Some(Ok(partitions)) => return Ok(partitions),
                Some(Err(error)) => error,
                None => {
                    // The broker answers no request on this connection before all members have joined.
                    self.joining = None;
                    return Err(Pulse::Leaving);
                }
            };
            let again = self.judge(error)?;
            self.config.connection.failed("group", &again);
            tracing::debug!(error = %again, "Rejoining the group");
            tokio::time::sleep(self.backoff.next_pause()).await;
        }
    }

    async fn try_join(&mut self) -> Result<BTreeSet<TopicPartition>, ClientError> {
        let coordinator = self.joining().await?;
        let joined = self.send_join(&coordinator).await?;
        let assignments = match joined.leader == joined.member_id {
            true => self.lead(&joined).await?,
            false => {
                self.membership.set_shared_out(BTreeMap::new());
                Vec::new()
            }
        };
        let version = coordinator.version_of::<SyncGroupRequest>()?;
        let GroupMetadata { group, generation, member_id, group_instance_id } = self.membership.metadata();
        let request = SyncGroupRequest {
            group_id: group.clone(),
            generation_id: generation,
            member_id,
            group_instance_id: group_instance_id.filter(|_| version >= 3),
            protocol_type: joined.protocol_type.filter(|_| version >= 5),
            protocol_name: joined.protocol_name.filter(|_| version >= 5),
            assignments,
        };
        let timeout = Some(self.config.rebalance_timeout + JOIN_GRACE);
        let response = coordinator.send_with(&request, RequestOptions { version: None, timeout }).await?;
        RefusedRequest::check(response.error_code, None, || format!("Sync of group {group}"))?;
        let assigned = read_assignment(response.assignment).map_err(|source| {
            let (peer, api) = (Arc::clone(coordinator.peer()), ApiKey::SyncGroup);
            UnreadableResponse { peer, api, version, source }
        })?;
        self.owned_in = generation;
        self.joining = None;
        self.coordinator.keep(coordinator);
        Ok(assigned.into_iter().collect())
    }

    async fn send_join(&mut self, coordinator: &Connection) -> Result<JoinGroupResponse, ClientError> {
        let version = coordinator.version_of::<JoinGroupRequest>()?;
        let GroupMetadata { group, group_instance_id, .. } = self.membership.metadata();
        let member_id = self.member_id.clone();
        let topics = self.membership.topics().names;
        let (owned, rack) = (&self.owned, self.config.rack.as_deref());
        let generation = if owned.is_empty() { -1 } else { self.owned_in };
        let subscription = MemberSubscription { topics: &topics, owned, generation, rack };
        let protocol = |strategy: &AssignmentStrategy| JoinGroupRequestProtocol {
            name: strategy.name().to_owned(),
            metadata: write_subscription(&subscription, *strategy),
        };
        let request = JoinGroupRequest {
            group_id: group.clone(),
            session_timeout_ms: millis(self.config.session_timeout),
            rebalance_timeout_ms: millis(self.config.rebalance_timeout),
            member_id,
            group_instance_id: group_instance_id.filter(|_| version >= 5),
            protocol_type: "consumer".to_owned(),
            protocols: self.config.assignment_strategies.iter().map(protocol).collect(),
            reason: None,
        };
        let timeout = Some(self.config.rebalance_timeout + JOIN_GRACE);
        let response = coordinator.send_with(&request, RequestOptions { version: None, timeout }).await?;
        if response.error_code == ErrorCode::MemberIdRequired.code() {
            self.member_id.clone_from(&response.member_id);
        }
        RefusedRequest::check(response.error_code, None, || format!("Join of group {group}"))?;
        self.member_id.clone_from(&response.member_id);
        self.membership.set_member(&response.member_id, response.generation_id);
        Ok(response)
    }

    /// Computes the assignment as the leader, by the strategy that the coordinator selected from those common
    /// to all members. A static leader that returns has nothing to assign, but the topics of all members to
    /// watch (KIP-814).
    async fn lead(&self, joined: &JoinGroupResponse) -> Result<Vec<SyncGroupRequestAssignment>, ClientError> {
        let chosen = joined.protocol_name.as_deref().and_then(AssignmentStrategy::from_name);
        let strategy = chosen.unwrap_or(self.config.assignment_strategies[0]);
        let members = joined.members.iter().map(|member| {
            let instance_id = member.group_instance_id.clone();
            read_subscriber(member.member_id.clone(), instance_id, member.metadata.clone())
        });
        let members: Vec<_> = members.collect();
        let topics: BTreeSet<String> = members.iter().flat_map(|member| &member.topics).cloned().collect();
        let topics: Vec<String> = topics.into_iter().collect();
        let metadata = self.cluster.refresh(&topics, self.config.create_topics).await?;
        let count = |topic: &str| metadata.topics.get(topic).map_or(0, |topic| topic.partitions.len());
        let counts = topics.iter().map(|topic| (topic.clone(), count(topic))).collect();
        self.membership.set_shared_out(counts);
        if joined.skip_assignment {
            return Ok(Vec::new());
        }
        let assigned = assign(strategy, members, count);
        let assigned = assigned.into_iter().map(|(member_id, partitions)| SyncGroupRequestAssignment {
            member_id,
            assignment: write_assignment(&partitions),
        });
        Ok(assigned.collect())
    }

    /// Restarts without partitions, because the coordinator has forgotten this member.
    fn forget(&mut self) {
        self.lose();
        self.member_id.clear();
    }

    /// Drops all partitions, and joins again.
    fn lose(&mut self) {
        self.membership.lose(std::mem::take(&mut self.owned));
    }

    /// Leaves the group until the consumer polls again, so that other members can read its partitions.
    async fn pause(&mut self) {
        warn_of_stall(&self.config, &self.membership);
        if let Err(error) = self.leave().await {
            tracing::debug!(%error, "Failed to leave the group; the session will time out");
        }
        self.forget();
        self.membership.polled_or_left(self.config.rebalance_timeout).await;
    }

    /// Leaves the group, with retries for up to the session timeout. Static members stay.
    async fn leave(&mut self) -> Result<(), ClientError> {
        let metadata = GroupMetadata { member_id: self.member_id.clone(), ..self.membership.metadata() };
        if metadata.member_id.is_empty() || metadata.group_instance_id.is_some() {
            return Ok(());
        }
        let until = Instant::now() + self.config.session_timeout;
        loop {
            // Without an answer, the session times out at the coordinator.
            let Ok(left) = tokio::time::timeout_at(until, self.try_to_leave(&metadata)).await else {
                return Ok(());
            };
            match left.map_err(|error| self.judge(error)) {
                Ok(()) | Err(Err(Pulse::Forgotten | Pulse::Outdated)) => return Ok(()),
                Err(Err(Pulse::Failed(error))) => return Err(error),
                Err(Ok(error)) if Instant::now() >= until => return Err(error),
                Err(_) => tokio::time::sleep(self.backoff.next_pause()).await,
            }
        }
    }

    async fn try_to_leave(&self, metadata: &GroupMetadata) -> Result<(), ClientError> {
        let coordinator = self.coordinator.connection().await?;
        let group = &metadata.group;
        let mut request = LeaveGroupRequest { group_id: group.clone(), ..Default::default() };
        if coordinator.version_of::<LeaveGroupRequest>()? >= 3 {
            let member_id = metadata.member_id.clone();
            request.members = vec![MemberIdentity { member_id, ..Default::default() }];
        } else {
            request.member_id.clone_from(&metadata.member_id);
        }
        let response = coordinator.send(&request).await?;
        let of_member = response.members.first().map_or(0, |member| member.error_code);
        for code in [response.error_code, of_member] {
            RefusedRequest::check(code, None, || format!("Leave of group {group}"))?;
        }
        Ok(())
    }
}
