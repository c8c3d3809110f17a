//! A member of a classic consumer group: finds the coordinator, joins, gets partitions, and keeps the session alive.
//!
//! The eager protocol with the range assignor. A task of its own sends heartbeats between rebalances, so that a consumer
//! that is slow to poll stays a member; what it learns makes the next poll join again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use thalweg_wire::data::consumer_protocol_assignment::TopicPartition as AssignedTopic;
use thalweg_wire::data::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use thalweg_wire::request::join_group_request::JoinGroupRequestProtocol;
use thalweg_wire::request::leave_group_request::MemberIdentity;
use thalweg_wire::request::sync_group_request::SyncGroupRequestAssignment;
use thalweg_wire::request::{
    HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, SyncGroupRequest,
};
use thalweg_wire::{ApiKey, DecodeError, Decoder, ErrorCode, Message};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::ConsumerConfig;
use super::assignor::{RANGE, assign_by_range};
use crate::cluster::{Cluster, CoordinatorKind};
use crate::connection::{Connection, RequestOptions};
use crate::error::{ClientError, Refused, UnreadableResponse};
use crate::offsets::{GroupMetadata, TopicPartition};

/// The version of the embedded consumer protocol that is written; every member reads it.
const SUBSCRIPTION_VERSION: i16 = 1;
/// Added to the time that a rebalance may take before the coordinator is given up.
const JOIN_GRACE: Duration = Duration::from_secs(5);

/// Why a member must join again.
#[derive(Clone, Debug)]
enum Rejoin {
    /// The group rebalances.
    Rebalance,
    /// The coordinator has forgotten the member.
    Forgotten,
    /// The coordinator is elsewhere, or gone.
    CoordinatorLost,
    /// For good.
    Fenced(ClientError),
}

/// What the heartbeats tell.
#[derive(Debug, Default)]
struct Pulse {
    rejoin: Mutex<Option<Rejoin>>,
    changed: Notify,
}

impl Pulse {
    fn tell(&self, rejoin: Rejoin) {
        *self.rejoin.lock() = Some(rejoin);
        self.changed.notify_one();
    }
}

/// A member of a group.
#[derive(Debug)]
pub(super) struct Member {
    cluster: Cluster,
    config: Arc<ConsumerConfig>,
    group: String,
    topics: Vec<String>,
    member_id: String,
    generation: i32,
    coordinator: Option<Connection>,
    pulse: Arc<Pulse>,
    heartbeats: JoinSet<()>,
}

impl Member {
    pub(super) fn new(
        cluster: Cluster,
        config: Arc<ConsumerConfig>,
        group: String,
        topics: Vec<String>,
    ) -> Member {
        let pulse = Arc::new(Pulse::default());
        pulse.tell(Rejoin::Rebalance);
        Member {
            cluster,
            config,
            group,
            topics,
            member_id: String::new(),
            generation: -1,
            coordinator: None,
            pulse,
            heartbeats: JoinSet::new(),
        }
    }

    pub(super) fn topics(&self) -> &[String] {
        &self.topics
    }

    /// Whether the member has to join, for the first time or again.
    pub(super) fn must_join(&self) -> bool {
        self.pulse.rejoin.lock().is_some()
    }

    /// Makes the member join again: the topics have changed.
    pub(super) fn rejoin(&self) {
        self.pulse.tell(Rejoin::Rebalance);
    }

    /// Returns when [`Member::must_join`] may have changed.
    pub(super) async fn changed(&self) {
        self.pulse.changed.notified().await;
    }

    pub(super) fn committer(&self) -> GroupMetadata {
        GroupMetadata {
            group: self.group.clone(),
            generation: self.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.config.group_instance_id.clone(),
        }
    }

    /// The coordinator's connection.
    pub(super) async fn coordinator(&mut self) -> Result<Connection, ClientError> {
        if let Some(connection) = &self.coordinator
            && !connection.is_closed()
        {
            return Ok(connection.clone());
        }
        loop {
            match self.cluster.coordinator(CoordinatorKind::Group, &self.group).await {
                Ok(connection) => {
                    self.coordinator = Some(connection.clone());
                    return Ok(connection);
                }
                // A group's first member has the offsets topic created; that takes a moment.
                Err(error) if error.is_retriable() => tokio::time::sleep(self.config.retry_backoff).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// After this error another broker may be the coordinator, which is asked for again.
    pub(super) fn doubt_coordinator(&mut self, error: &ClientError) {
        if error.is_retriable() {
            self.coordinator = None;
        }
    }

    /// Joins, until it has partitions or it makes no sense to go on.
    pub(super) async fn join(&mut self) -> Result<Vec<TopicPartition>, ClientError> {
        loop {
            let why = self.pulse.rejoin.lock().take();
            match why {
                Some(Rejoin::Fenced(error)) => return Err(error),
                Some(Rejoin::CoordinatorLost) => self.coordinator = None,
                Some(Rejoin::Forgotten) => self.forget(),
                Some(Rejoin::Rebalance) | None => {}
            }
            self.heartbeats.abort_all();
            let error = match self.try_join().await {
                Ok(partitions) => {
                    self.start_heartbeats().await?;
                    return Ok(partitions);
                }
                Err(error) => error,
            };
            match error.error_code() {
                Some(ErrorCode::MemberIdRequired | ErrorCode::RebalanceInProgress) => {}
                Some(ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration) => self.forget(),
                _ if error.is_retriable() => {
                    self.coordinator = None;
                    tokio::time::sleep(self.config.retry_backoff).await;
                }
                _ => return Err(error),
            }
        }
    }

    fn forget(&mut self) {
        self.member_id.clear();
        self.generation = -1;
    }

    async fn try_join(&mut self) -> Result<Vec<TopicPartition>, ClientError> {
        let coordinator = self.coordinator().await?;
        let joined = self.send_join(&coordinator).await?;
        let assignments = match joined.leader == joined.member_id && !joined.skip_assignment {
            true => self.assign(&joined).await?,
            false => Vec::new(),
        };
        let version = coordinator.version_of::<SyncGroupRequest>()?;
        let request = SyncGroupRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.config.group_instance_id.clone().filter(|_| version >= 3),
            protocol_type: joined.protocol_type.filter(|_| version >= 5),
            protocol_name: joined.protocol_name.filter(|_| version >= 5),
            assignments,
        };
        let timeout = Some(self.config.rebalance_timeout + JOIN_GRACE);
        let response = coordinator.send_with(&request, RequestOptions { version: None, timeout }).await?;
        Refused::check(response.error_code, None, || format!("Sync of group {}", self.group))?;
        read_assignment(response.assignment).map_err(|source| {
            let (peer, api) = (Arc::clone(coordinator.peer()), ApiKey::SyncGroup);
            UnreadableResponse { peer, api, version, source }.into()
        })
    }

    async fn send_join(&mut self, coordinator: &Connection) -> Result<JoinGroupResponse, ClientError> {
        let version = coordinator.version_of::<JoinGroupRequest>()?;
        let subscription = ConsumerProtocolSubscription { topics: self.topics.clone(), ..Default::default() };
        let request = JoinGroupRequest {
            group_id: self.group.clone(),
            session_timeout_ms: millis(self.config.session_timeout),
            rebalance_timeout_ms: millis(self.config.rebalance_timeout),
            member_id: self.member_id.clone(),
            group_instance_id: self.config.group_instance_id.clone().filter(|_| version >= 5),
            protocol_type: "consumer".to_owned(),
            protocols: vec![JoinGroupRequestProtocol {
                name: RANGE.to_owned(),
                metadata: with_version(&subscription, SUBSCRIPTION_VERSION),
            }],
            reason: None,
        };
        let timeout = Some(self.config.rebalance_timeout + JOIN_GRACE);
        let response = coordinator.send_with(&request, RequestOptions { version: None, timeout }).await?;
        if response.error_code == ErrorCode::MemberIdRequired.code() {
            self.member_id.clone_from(&response.member_id);
        }
        Refused::check(response.error_code, None, || format!("Join of group {}", self.group))?;
        self.member_id.clone_from(&response.member_id);
        self.generation = response.generation_id;
        Ok(response)
    }

    /// The leader's work: who gets what.
    async fn assign(
        &self,
        joined: &JoinGroupResponse,
    ) -> Result<Vec<SyncGroupRequestAssignment>, ClientError> {
        let mut subscriptions = BTreeMap::new();
        for member in &joined.members {
            let subscription = read_with_version::<ConsumerProtocolSubscription>(member.metadata.clone());
            // A member whose subscription cannot be read gets nothing, and the others their share.
            let topics = subscription.map(|subscription| subscription.topics).unwrap_or_default();
            subscriptions.insert(member.member_id.clone(), topics);
        }
        let mut topics: Vec<String> = subscriptions.values().flatten().cloned().collect();
        topics.sort_unstable();
        topics.dedup();
        let metadata = self.cluster.refresh(&topics, self.config.create_topics).await?;
        let count = |topic: &str| metadata.topics.get(topic).map_or(0, |topic| topic.partitions.len());
        let assigned = assign_by_range(&subscriptions, count).into_iter().map(|(member_id, partitions)| {
            SyncGroupRequestAssignment { member_id, assignment: write_assignment(&partitions) }
        });
        Ok(assigned.collect())
    }

    async fn start_heartbeats(&mut self) -> Result<(), ClientError> {
        let coordinator = self.coordinator().await?;
        let version = coordinator.version_of::<HeartbeatRequest>()?;
        let request = HeartbeatRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.config.group_instance_id.clone().filter(|_| version >= 3),
        };
        let (pulse, interval) = (Arc::clone(&self.pulse), self.config.heartbeat_interval);
        self.heartbeats = JoinSet::new();
        self.heartbeats.spawn(beat(coordinator, request, interval, pulse));
        Ok(())
    }

    /// Leaves the group, so that the others need not wait for the session to end. Static members stay. What can be tried
    /// again is, until then.
    pub(super) async fn leave(&mut self, until: Instant) -> Result<(), ClientError> {
        self.heartbeats.abort_all();
        loop {
            if self.member_id.is_empty() || self.config.group_instance_id.is_some() {
                return Ok(());
            }
            // The session ends by itself where nobody can be told.
            let Ok(left) = tokio::time::timeout_at(until, self.try_to_leave()).await else { return Ok(()) };
            match left {
                Err(error) if error.is_retriable() && Instant::now() < until => {
                    self.doubt_coordinator(&error);
                    tokio::time::sleep(self.config.retry_backoff).await;
                }
                left => return left,
            }
        }
    }

    async fn try_to_leave(&mut self) -> Result<(), ClientError> {
        let coordinator = self.coordinator().await?;
        let mut request = LeaveGroupRequest { group_id: self.group.clone(), ..Default::default() };
        if coordinator.version_of::<LeaveGroupRequest>()? >= 3 {
            let member = MemberIdentity { member_id: self.member_id.clone(), ..Default::default() };
            request.members = vec![member];
        } else {
            request.member_id.clone_from(&self.member_id);
        }
        let response = coordinator.send(&request).await?;
        if response.error_code != ErrorCode::UnknownMemberId.code() {
            Refused::check(response.error_code, None, || format!("Leave of group {}", self.group))?;
        }
        self.forget();
        Ok(())
    }
}

/// Heartbeats until something has changed.
async fn beat(coordinator: Connection, request: HeartbeatRequest, interval: Duration, pulse: Arc<Pulse>) {
    let rejoin = loop {
        tokio::time::sleep(interval).await;
        let response = match coordinator.send(&request).await {
            Ok(response) => response,
            Err(_) => break Rejoin::CoordinatorLost,
        };
        match ErrorCode::from_i16(response.error_code).unwrap_or(ErrorCode::UnknownServerError) {
            ErrorCode::None => {}
            ErrorCode::RebalanceInProgress => break Rejoin::Rebalance,
            ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration => break Rejoin::Forgotten,
            error_code if error_code.is_retriable() => break Rejoin::CoordinatorLost,
            error_code => {
                let what = format!("Heartbeat of group {}", request.group_id);
                break Rejoin::Fenced(Refused { what, error_code, message: None }.into());
            }
        }
    };
    pulse.tell(rejoin);
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

/// A message of the consumer protocol, behind its version.
fn with_version<M: Message>(message: &M, version: i16) -> Bytes {
    let bytes = message.to_bytes(version).expect("the fields that are set exist at the version");
    let mut framed = BytesMut::with_capacity(2 + bytes.len());
    framed.put_i16(version);
    framed.put_slice(&bytes);
    framed.freeze()
}

/// As [`with_version`], the other way. Versions that are not known yet are read as the newest that is.
fn read_with_version<M: Message>(bytes: Bytes) -> Result<M, DecodeError> {
    let mut d = Decoder::new(bytes);
    let version = d.i16()?.clamp(M::MIN_VERSION, M::MAX_VERSION);
    M::decode(&mut d, version)
}

fn write_assignment(partitions: &[TopicPartition]) -> Bytes {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for at in partitions {
        topics.entry(&at.topic).or_default().push(at.partition);
    }
    let assigned_partitions = topics
        .into_iter()
        .map(|(topic, partitions)| AssignedTopic { topic: topic.to_owned(), partitions })
        .collect();
    let assignment = ConsumerProtocolAssignment { assigned_partitions, user_data: None };
    with_version(&assignment, SUBSCRIPTION_VERSION)
}

/// The partitions in an assignment. Empty bytes are an empty assignment.
pub fn read_assignment(bytes: Bytes) -> Result<Vec<TopicPartition>, DecodeError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let assignment: ConsumerProtocolAssignment = read_with_version(bytes)?;
    let topics = assignment.assigned_partitions.into_iter();
    Ok(topics
        .flat_map(|topic| {
            let name: Arc<str> = topic.topic.into();
            topic
                .partitions
                .into_iter()
                .map(move |partition| TopicPartition::new(Arc::clone(&name), partition))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_survive_the_wire() {
        let partitions =
            vec![TopicPartition::new("a", 0), TopicPartition::new("a", 3), TopicPartition::new("b", 1)];
        assert_eq!(read_assignment(write_assignment(&partitions)), Ok(partitions));
        assert_eq!(read_assignment(Bytes::new()), Ok(Vec::new()));
        assert!(read_assignment(Bytes::from_static(b"\0")).is_err());
    }
}
