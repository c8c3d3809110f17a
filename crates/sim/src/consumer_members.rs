//! Members of a consumer protocol group (KIP-848), implemented without the client. Invariants: a partition
//! has one owner at any moment; a new owner starts at the last acknowledged commit or later; in the end every
//! partition has an owner.
//!
//! A member counts as the owner of a partition from its first acknowledged commit on, until it reports that
//! it has given the partition up. It also gives up all partitions when its session may have ended: one
//! session timeout after the heartbeat before its last acknowledged commit. Heartbeats alone prove nothing,
//! because a deposed broker that does not know of its successor still answers heartbeats without changes.

use crate::chance::Chance;
use crate::clients::{AGAIN, Clients};
use crate::history::{GROUP, PartitionOwner, TOPIC};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;
use thalweg_client::{Cluster, Connection, CoordinatorKind};
use thalweg_wire::request::consumer_group_heartbeat_request::TopicPartitions;
use thalweg_wire::request::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use thalweg_wire::request::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use thalweg_wire::request::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, OffsetCommitRequest, OffsetFetchRequest,
};
use thalweg_wire::{ErrorCode, Uuid};
use tokio::time::{Instant, timeout_at};

/// `group.consumer.session.timeout.ms` of the brokers.
pub(crate) const SESSION: Duration = Duration::from_secs(6);
/// Longer than a member takes to give partitions up, which happens at the latest when its session ends.
const REBALANCE_TIMEOUT_MS: i32 = 20_000;
/// Maximum time until a member gives a partition up.
const REVOKES_WITHIN: Duration = Duration::from_secs(3);
/// The group in which all members use the consumer protocol.
const OWN_GROUP: &str = "balanced";
/// The newest versions that identify topics by name.
const COMMIT_VERSION: i16 = 9;
const FETCH_VERSION: i16 = 9;
const LEAVES: i32 = -1;
const LEAVES_FOR_A_WHILE: i32 = -2;

/// The member is no longer in the group, or does not know: it starts again.
struct LostMembership;

/// The life of a member, from joining to leaving.
struct Member<'a> {
    clients: &'a Clients,
    cluster: Cluster,
    owner: PartitionOwner,
    group: &'static str,
    instance_id: Option<String>,
    by_regex: bool,
    epoch: i32,
    topic: Uuid,
    /// Partitions assigned by the coordinator.
    assigned: BTreeSet<i32>,
    /// Owned partitions with their positions.
    owned: BTreeMap<i32, i64>,
    /// Time of the coordinator's request to revoke partitions.
    asked_to_revoke: Option<Instant>,
    /// True if the next heartbeat has all fields.
    is_full: bool,
    /// True if the coordinator knows the owned partitions.
    is_reported: bool,
    /// Time at which the session may end while partitions are owned.
    ends: Instant,
}

impl Clients {
    /// Joins, owns partitions and leaves repeatedly, as long as the future is polled. If classic members
    /// share the group, the time at which these give a partition up is unknown.
    pub(crate) async fn be_consumer_member(self, id: u32, mixes: bool) {
        let mut chance = Chance::new(self.seed, 5000 + u64::from(id));
        for life in 0.. {
            let name = format!("consumer-member-{id}");
            let mut member = Member {
                clients: &self,
                cluster: self.cluster(&name).await,
                owner: (id, life),
                group: if mixes { GROUP } else { OWN_GROUP },
                instance_id: (id % 2 == 1).then_some(name),
                by_regex: id % 3 == 2,
                epoch: 0,
                topic: Uuid::default(),
                assigned: BTreeSet::new(),
                owned: BTreeMap::new(),
                asked_to_revoke: None,
                is_full: true,
                is_reported: false,
                ends: Instant::now() + SESSION,
            };
            let left = member.live(&mut chance).await;
            member.give_up(|_| true);
            if left.is_ok() {
                // A killed member sends nothing.
                match (chance.below(3), &member.instance_id) {
                    (0, _) => {}
                    (1, Some(_)) => member.leave(LEAVES_FOR_A_WHILE).await,
                    _ => member.leave(LEAVES).await,
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

impl Member<'_> {
    /// Runs from joining until the member wants to leave.
    async fn live(&mut self, chance: &mut Chance) -> Result<(), LostMembership> {
        loop {
            match timeout_at(self.ends, self.round(chance)).await {
                Ok(Ok(())) => {}
                Ok(Err(lost)) => return Err(lost),
                // The session may be over, which does not matter without partitions.
                Err(_) if self.owned.is_empty() => {
                    self.is_full = true;
                    self.ends = Instant::now() + SESSION;
                }
                Err(_) => return Err(LostMembership),
            }
            let is_ending = self.clients.ending.load(Ordering::SeqCst);
            if self.epoch > 0 && chance.one_in(100) && !is_ending {
                return Ok(());
            }
        }
    }

    /// Sends a heartbeat, and acts on the answer.
    async fn round(&mut self, chance: &mut Chance) -> Result<(), LostMembership> {
        tokio::time::sleep(Duration::from_millis(chance.between(100, 400))).await;
        self.revoke(chance);
        let Ok(connection) = self.cluster.coordinator(CoordinatorKind::Group, self.group).await else {
            return Ok(());
        };
        let sent = Instant::now();
        let answer = match connection.send(&self.heartbeat()).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::info!(owner = ?self.owner, %error, "Heartbeat was not answered");
                self.is_full = true;
                return Ok(());
            }
        };
        if self.handle_answer(answer)? {
            self.work(&connection, sent, chance).await?;
        }
        Ok(())
    }

    fn heartbeat(&self) -> ConsumerGroupHeartbeatRequest {
        let partitions: Vec<i32> = self.owned.keys().copied().collect();
        let topic = TopicPartitions { topic_id: self.topic, partitions };
        let reported = if self.owned.is_empty() { Vec::new() } else { vec![topic] };
        let says_all = self.is_full || self.epoch == 0;
        let names = if self.by_regex { Vec::new() } else { vec![TOPIC.to_owned()] };
        ConsumerGroupHeartbeatRequest {
            instance_id: self.instance_id.clone(),
            rebalance_timeout_ms: if says_all { REBALANCE_TIMEOUT_MS } else { -1 },
            subscribed_topic_names: says_all.then_some(names),
            subscribed_topic_regex: (says_all && self.by_regex).then(|| "eve.*s".to_owned()),
            topic_partitions: (says_all || !self.is_reported).then_some(reported),
            ..self.farewell(self.epoch)
        }
    }

    fn farewell(&self, member_epoch: i32) -> ConsumerGroupHeartbeatRequest {
        let (id, life) = self.owner;
        ConsumerGroupHeartbeatRequest {
            group_id: self.group.to_owned(),
            member_id: format!("member-{id}-{life}"),
            member_epoch,
            instance_id: self.instance_id.clone(),
            ..ConsumerGroupHeartbeatRequest::default()
        }
    }

    async fn leave(&self, epoch: i32) {
        if let Ok(connection) = self.cluster.coordinator(CoordinatorKind::Group, self.group).await
            && let Err(error) = connection.send(&self.farewell(epoch)).await
        {
            tracing::info!(owner = ?self.owner, %error, "Farewell was not answered: the session ends in time");
        }
    }

    /// Handles an answer. Returns true if the member is at an epoch of the group.
    fn handle_answer(&mut self, answer: ConsumerGroupHeartbeatResponse) -> Result<bool, LostMembership> {
        let code = ErrorCode::from_i16(answer.error_code).unwrap_or(ErrorCode::UnknownServerError);
        match code {
            ErrorCode::None => {}
            ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator
            | ErrorCode::RequestTimedOut
            // The previous member with the instance id was killed, and its session is not over.
            | ErrorCode::UnreleasedInstanceId => {
                self.is_full = true;
                return Ok(false);
            }
            ErrorCode::FencedMemberEpoch
            | ErrorCode::UnknownMemberId
            | ErrorCode::FencedInstanceId
            | ErrorCode::GroupIdNotFound
            // A starting broker does not know `group.version` yet.
            | ErrorCode::UnsupportedVersion => return Err(LostMembership),
            _ => {
                let (owner, message) = (self.owner, &answer.error_message);
                self.clients.history.violation(format!("member {owner:?} got {code:?}: {message:?}"));
                return Err(LostMembership);
            }
        }
        self.epoch = answer.member_epoch;
        self.is_full = false;
        self.is_reported = true;
        if let Some(assignment) = answer.assignment {
            self.assigned.clear();
            for topic in assignment.topic_partitions {
                self.topic = topic.topic_id;
                self.assigned.extend(topic.partitions);
            }
        }
        let is_asked = self.owned.keys().any(|partition| !self.assigned.contains(partition));
        self.asked_to_revoke = is_asked.then(|| self.asked_to_revoke.unwrap_or_else(Instant::now));
        Ok(true)
    }

    /// Gives up the requested partitions, some time later.
    fn revoke(&mut self, chance: &mut Chance) {
        let Some(asked) = self.asked_to_revoke else { return };
        if chance.one_in(3) || asked.elapsed() > REVOKES_WITHIN {
            let assigned = self.assigned.clone();
            self.give_up(|partition| !assigned.contains(&partition));
            self.asked_to_revoke = None;
        }
    }

    fn give_up(&mut self, which: impl Fn(i32) -> bool) {
        let (owner, history) = (self.owner, &self.clients.history);
        self.is_reported = false;
        self.owned.retain(|&partition, _| {
            if which(partition) {
                history.with(|known| known.disown(partition, owner));
            }
            !which(partition)
        });
    }

    /// Advances and commits positions, and starts new partitions.
    async fn work(
        &mut self,
        connection: &Connection,
        sent: Instant,
        chance: &mut Chance,
    ) -> Result<(), LostMembership> {
        let before = self.clients.history.with(|known| known.commits_of(self.group).clone());
        let mut positions = self.owned.clone();
        let new: Vec<i32> =
            self.assigned.iter().copied().filter(|partition| !self.owned.contains_key(partition)).collect();
        if !new.is_empty() {
            let Some(found) = self.fetch(connection, &new).await else { return Ok(()) };
            positions.extend(found);
        }
        if positions.is_empty() {
            self.ends = sent + SESSION;
            return Ok(());
        }
        for (partition, position) in &mut positions {
            let end = self.clients.history.with(|known| {
                let last = known.read.get(partition).and_then(|read| read.last_key_value());
                last.map_or(0, |(at, _)| at + 1)
            });
            if self.owned.contains_key(partition) && end > *position {
                let most = u64::try_from(end - *position).unwrap_or(0);
                *position += i64::try_from(chance.between(1, most)).unwrap_or(0);
            }
        }
        if !self.commit(connection, &positions).await? {
            return Ok(());
        }
        // The session of the previous heartbeat belongs to this coordinator.
        self.ends = sent + SESSION;
        if Instant::now() >= self.ends {
            return Err(LostMembership);
        }
        for (partition, position) in positions {
            self.own(partition, position, &before);
        }
        Ok(())
    }

    /// Handles an acknowledged commit: the member owns the partition.
    fn own(&mut self, partition: i32, position: i64, before: &BTreeMap<i32, i64>) {
        let (owner, history) = (self.owner, &self.clients.history);
        let least = before.get(&partition).copied().unwrap_or(0);
        if position < least {
            history.violation(format!(
                "partition {partition}: member {owner:?} has {position}, although the commit of {least} was acknowledged"
            ));
        }
        let is_mixed = self.group == GROUP;
        history.with(|known| {
            let committed = known.commits_of(self.group).entry(partition).or_default();
            *committed = position.max(*committed);
        });
        let other = history.with(|known| known.owners.insert(partition, owner));
        if let Some(other) = other.filter(|other| *other != owner && !is_mixed) {
            history.violation(format!(
                "partition {partition}: member {owner:?} owns it at epoch {}, while member {other:?} does",
                self.epoch
            ));
        }
        if self.owned.insert(partition, position).is_none() {
            self.is_reported = false;
        }
    }

    /// The committed offsets of partitions, if the coordinator returns them to this member.
    async fn fetch(&self, connection: &Connection, partitions: &[i32]) -> Option<BTreeMap<i32, i64>> {
        let topic = OffsetFetchRequestTopics {
            name: TOPIC.to_owned(),
            partition_indexes: partitions.to_vec(),
            ..OffsetFetchRequestTopics::default()
        };
        let group = OffsetFetchRequestGroup {
            group_id: self.group.to_owned(),
            member_id: Some(self.farewell(0).member_id),
            member_epoch: self.epoch,
            topics: Some(vec![topic]),
        };
        let request = OffsetFetchRequest { groups: vec![group], ..OffsetFetchRequest::default() };
        let answer = connection.send_at(&request, FETCH_VERSION).await.ok()?;
        let group = answer.groups.into_iter().next().filter(|group| group.error_code == 0)?;
        let partitions = group.topics.into_iter().flat_map(|topic| topic.partitions);
        let found = partitions.filter(|partition| partition.error_code == 0);
        Some(found.map(|found| (found.partition_index, found.committed_offset.max(0))).collect())
    }

    /// Commits positions. Returns true if all are committed. A commit without an answer may still arrive as
    /// long as a member with this id and epoch exists, so the member starts again under another id.
    async fn commit(
        &self,
        connection: &Connection,
        positions: &BTreeMap<i32, i64>,
    ) -> Result<bool, LostMembership> {
        let partition = |(&partition_index, &committed_offset)| OffsetCommitRequestPartition {
            partition_index,
            committed_offset,
            ..OffsetCommitRequestPartition::default()
        };
        let topic = OffsetCommitRequestTopic {
            name: TOPIC.to_owned(),
            partitions: positions.iter().map(partition).collect(),
            ..OffsetCommitRequestTopic::default()
        };
        let request = OffsetCommitRequest {
            group_id: self.group.to_owned(),
            generation_id_or_member_epoch: self.epoch,
            member_id: self.farewell(0).member_id,
            group_instance_id: self.instance_id.clone(),
            topics: vec![topic],
            ..OffsetCommitRequest::default()
        };
        let answer = connection.send_at(&request, COMMIT_VERSION).await.map_err(|_| LostMembership)?;
        let mut codes =
            answer.topics.iter().flat_map(|topic| &topic.partitions).map(|found| found.error_code);
        // After an error of the log, the records may be written all the same.
        let certain = [ErrorCode::None, ErrorCode::StaleMemberEpoch, ErrorCode::NotCoordinator];
        let is_certain = |code| certain.iter().any(|known| known.code() == code);
        if codes.clone().any(|code| !is_certain(code)) {
            return Err(LostMembership);
        }
        Ok(codes.all(|code| code == 0))
    }
}
