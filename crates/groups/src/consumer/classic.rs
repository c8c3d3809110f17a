//! Members of the classic protocol in a consumer group. To them the group is a classic group that rebalances
//! automatically.
//!
//! ```text
//! JoinGroup   description and owned partitions, as in a heartbeat; the generation is the member epoch
//! SyncGroup   the assigned partitions
//! Heartbeat   REBALANCE_IN_PROGRESS when the member has to revoke, or gets more partitions
//! ```

use super::error::ConsumerGroupError;
use super::leave::Removal;
use super::member::{ClassicMember, ConsumerGroupMember, MemberState, PartitionEpochs};
use super::migration::Downgrade;
use super::{ConsumerContext, ConsumerGroup};
use crate::classic::PendingJoin;
use crate::deadlines::DeadlineChange;
use crate::error::MembershipError;
use crate::record::CoordinatorRecord;
use crate::subscription::{consumer_subscription, encode_assignment};
use crate::topics::TopicsView;
use bytes::Bytes;
use std::borrow::Cow;
use std::sync::Arc;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::consumer_group_heartbeat_request::TopicPartitions;
use thalweg_wire::request::leave_group_request::MemberIdentity;
use thalweg_wire::request::leave_group_response::MemberResponse;
use thalweg_wire::request::{
    HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse,
};

/// The protocol type of consumers.
const CONSUMER: &str = "consumer";

/// The outcome of a join.
pub(in super::super) struct JoinOutcome {
    pub(in super::super) records: Vec<CoordinatorRecord>,
    pub(in super::super) response: JoinGroupResponse,
    pub(in super::super) changes: Vec<(Arc<str>, DeadlineChange)>,
    /// The classic group that remains if the joining member replaced the last member of the consumer
    /// protocol.
    pub(in super::super) downgrade: Option<Downgrade>,
}

/// An answer, and the changes of the member's deadlines.
pub(in super::super) type ClassicOutcome<R> = (Result<R, MembershipError>, Vec<(Arc<str>, DeadlineChange)>);

impl ConsumerGroup {
    /// Handles a JoinGroup request. `new_id` is for a member without an id.
    pub(in super::super) fn join_classic(
        &self,
        cx: &mut ConsumerContext<'_>,
        joining: &PendingJoin<'_>,
        new_id: &str,
    ) -> Result<JoinOutcome, MembershipError> {
        let request = joining.request;
        let id = if request.member_id.is_empty() { new_id } else { request.member_id.as_str() };
        if cx.config.consumer.migration.is_off() {
            return Err(MembershipError::InconsistentProtocol);
        }
        if !self.modern.has_room_for(id, cx.config.consumer.group_size_max) {
            return Err(MembershipError::GroupFull);
        }
        if !self.supports(request) {
            return Err(MembershipError::InconsistentProtocol);
        }
        let is_dynamic = request.group_instance_id.is_none();
        if joining.version >= 4 && is_dynamic && request.member_id.is_empty() {
            let response = JoinGroupResponse {
                member_id: id.to_owned(),
                error_code: MembershipError::MemberIdRequired.code().code(),
                ..JoinGroupResponse::default()
            };
            return Ok(JoinOutcome { records: Vec::new(), response, changes: Vec::new(), downgrade: None });
        }
        let mut records = Vec::new();
        let (before, replaces) = self.joining_member(request, id, &mut records)?;
        let after = described_by_join(&before, joining).ok_or(MembershipError::InconsistentProtocol)?;
        let first = request.protocols.first().ok_or(MembershipError::InconsistentProtocol)?;
        let reported = reported(&first.metadata, cx.topics);
        let existing = request.group_instance_id.as_deref().and_then(|instance| self.static_member(instance));
        let replaced = existing.filter(|existing| self.is_classic_with_another(cx, existing));
        let (member, downgrade) = match replaced {
            Some(replaced) => {
                let (member, downgrade) = self
                    .join_and_downgrade(cx, &before, after, replaced, replaces, &reported, &mut records)
                    .map_err(refusal)?;
                (member, Some(downgrade))
            }
            None => {
                let after = Cow::Owned(after);
                let step = self
                    .advance(cx, &before, after, replaces, Some(&reported), &mut records)
                    .map_err(refusal)?;
                (step.member.into_owned(), None)
            }
        };
        let response = JoinGroupResponse {
            member_id: member.id.to_string(),
            generation_id: member.epoch,
            protocol_type: Some(CONSUMER.to_owned()),
            protocol_name: Some(first.name.clone()),
            ..JoinGroupResponse::default()
        };
        let deadlines = [
            DeadlineChange::Joined(request.rebalance_timeout_ms),
            DeadlineChange::Session(request.session_timeout_ms),
        ];
        let changes = deadlines.into_iter().map(|change| (member.id.clone(), change)).collect();
        Ok(JoinOutcome { records, response, changes, downgrade })
    }

    /// True if the joining member is a consumer and has a protocol that all classic members follow.
    fn supports(&self, request: &JoinGroupRequest) -> bool {
        let followers = |name: &str| self.classic_protocols.get(name).copied().unwrap_or(0);
        request.protocol_type == CONSUMER
            && request.protocols.iter().any(|protocol| followers(&protocol.name) == self.classic_members)
    }

    /// The joining member, and the id of the static member that it replaces.
    fn joining_member<'a>(
        &'a self,
        request: &JoinGroupRequest,
        id: &str,
        records: &mut Vec<CoordinatorRecord>,
    ) -> Result<(Cow<'a, ConsumerGroupMember>, Option<&'a str>), MembershipError> {
        let known = || match self.modern.members.get(id) {
            Some(member) => Cow::Borrowed(member),
            None => Cow::Owned(ConsumerGroupMember::new(id.into())),
        };
        let Some(instance_id) = request.group_instance_id.as_deref() else {
            return Ok((known(), None));
        };
        if !request.member_id.is_empty() {
            return Ok((Cow::Borrowed(self.classic_sender(id, Some(instance_id))?), None));
        }
        match self.static_member(instance_id) {
            None => Ok((known(), None)),
            Some(existing) => Ok((Cow::Owned(self.replace(existing, id, records)), Some(&existing.id))),
        }
    }

    /// The member that a request of the classic protocol names.
    fn classic_sender(
        &self,
        id: &str,
        instance_id: Option<&str>,
    ) -> Result<&ConsumerGroupMember, MembershipError> {
        let member = match instance_id {
            None => self.modern.members.get(id),
            Some(instance_id) => self.static_member(instance_id),
        };
        let member = member.ok_or(MembershipError::UnknownMember)?;
        if *member.id == *id { Ok(member) } else { Err(MembershipError::FencedInstance) }
    }

    /// Handles a SyncGroup request.
    pub(in super::super) fn sync_classic(
        &self,
        request: &SyncGroupRequest,
        topics: &dyn TopicsView,
    ) -> ClassicOutcome<SyncGroupResponse> {
        let sender = self.classic_sender(&request.member_id, request.group_instance_id.as_deref());
        let (member, classic) = match sender.and_then(|member| Ok((member, protocols_of(member)?))) {
            Ok(found) => found,
            Err(error) => return (Err(error), Vec::new()),
        };
        let Some((name, metadata)) = classic.protocols.first() else {
            return (Err(MembershipError::UnknownMember), Vec::new());
        };
        if member.epoch != request.generation_id {
            return (Err(MembershipError::IllegalGeneration), Vec::new());
        }
        let differs = |theirs: &Option<String>, ours: &str| theirs.as_ref().is_some_and(|name| name != ours);
        if differs(&request.protocol_type, CONSUMER) || differs(&request.protocol_name, name) {
            return (Err(MembershipError::InconsistentProtocol), Vec::new());
        }
        if self.modern.target_epoch > member.epoch && member.state != MemberState::UnrevokedPartitions {
            let join = DeadlineChange::Join(member.rebalance_timeout_ms);
            return (Err(MembershipError::RebalanceInProgress), vec![(member.id.clone(), join)]);
        }
        let response = SyncGroupResponse {
            protocol_type: request.protocol_type.clone(),
            protocol_name: request.protocol_name.clone(),
            assignment: assignment(&member.assigned, metadata, topics),
            ..SyncGroupResponse::default()
        };
        let changes = [DeadlineChange::Synced, DeadlineChange::Session(classic.session_timeout_ms)];
        (Ok(response), changes.into_iter().map(|change| (member.id.clone(), change)).collect())
    }

    /// Handles a Heartbeat request.
    pub(in super::super) fn heartbeat_classic(&self, request: &HeartbeatRequest) -> ClassicOutcome<()> {
        let sender = self.classic_sender(&request.member_id, request.group_instance_id.as_deref());
        let (member, classic) = match sender.and_then(|member| Ok((member, protocols_of(member)?))) {
            Ok(found) => found,
            Err(error) => return (Err(error), Vec::new()),
        };
        if member.epoch != request.generation_id {
            return (Err(MembershipError::IllegalGeneration), Vec::new());
        }
        let session = (member.id.clone(), DeadlineChange::Session(classic.session_timeout_ms));
        let must_join = match member.state {
            _ if member.epoch < self.modern.target_epoch => true,
            MemberState::UnrevokedPartitions => true,
            MemberState::UnreleasedPartitions => !self.waits_for_others(member),
            MemberState::Stable | MemberState::Unknown => false,
        };
        if must_join {
            let join = (member.id.clone(), DeadlineChange::Join(member.rebalance_timeout_ms));
            return (Err(MembershipError::RebalanceInProgress), vec![session, join]);
        }
        (Ok(()), vec![session])
    }

    /// True if another member still owns a partition of the member's target.
    fn waits_for_others(&self, member: &ConsumerGroupMember) -> bool {
        let target = self.modern.target_of(&member.id);
        target.iter().any(|(topic, partitions)| {
            let assigned = member.assigned.get(topic);
            partitions.iter().any(|partition| {
                assigned.is_none_or(|assigned| !assigned.contains_key(partition))
                    && self.is_owned(*topic, *partition)
            })
        })
    }

    /// Handles a LeaveGroup request, by which an administrator may also remove members of the consumer
    /// protocol.
    pub(in super::super) fn leave_classic(
        &self,
        cx: &mut ConsumerContext<'_>,
        identities: &[MemberIdentity],
    ) -> (Removal, Vec<MemberResponse>) {
        let mut leaving: Vec<&ConsumerGroupMember> = Vec::new();
        let mut responses = Vec::with_capacity(identities.len());
        for identity in identities {
            let instance_id = identity.group_instance_id.as_deref();
            let found = match instance_id {
                Some(instance_id) if identity.member_id.is_empty() => {
                    self.static_member(instance_id).ok_or(MembershipError::UnknownMember)
                }
                _ => self.classic_sender(&identity.member_id, instance_id),
            };
            if let Ok(member) = found
                && !leaving.iter().any(|other| other.id == member.id)
            {
                let reason = identity.reason.as_deref().unwrap_or("not provided");
                tracing::info!(group = %self.modern.id, member = %member.id, reason, "Member left");
                leaving.push(member);
            }
            responses.push(MemberResponse {
                member_id: identity.member_id.clone(),
                group_instance_id: identity.group_instance_id.clone(),
                error_code: found.err().map_or(ErrorCode::None, MembershipError::code).code(),
            });
        }
        (self.remove_members(cx, &leaving), responses)
    }
}

fn protocols_of(member: &ConsumerGroupMember) -> Result<&ClassicMember, MembershipError> {
    member.classic.as_deref().ok_or(MembershipError::UnknownMember)
}

/// The member as described by its join. The metadata is copied: a slice would keep the whole frame in memory.
fn described_by_join(before: &ConsumerGroupMember, joining: &PendingJoin<'_>) -> Option<ConsumerGroupMember> {
    let request = joining.request;
    let subscription = consumer_subscription(&request.protocols.first()?.metadata)?;
    let protocols = request.protocols.iter();
    let protocols = protocols.map(|p| (p.name.clone(), Bytes::copy_from_slice(&p.metadata))).collect();
    let mut member = before.clone();
    if let Some(instance_id) = &request.group_instance_id {
        member.instance_id = Some(instance_id.as_str().into());
    }
    if let Some(rack) = subscription.rack_id.filter(|rack| !rack.is_empty()) {
        member.rack_id = Some(rack);
    }
    if request.rebalance_timeout_ms != -1 {
        member.rebalance_timeout_ms = request.rebalance_timeout_ms;
    }
    let topics = subscription.topics.into_iter().collect();
    if *member.topics != topics {
        member.topics = Arc::new(topics);
    }
    member.regex = Some("".into());
    member.client = joining.client.clone();
    let session_timeout_ms = request.session_timeout_ms;
    member.classic = Some(Arc::new(ClassicMember { session_timeout_ms, protocols }));
    Some(member)
}

/// The owned partitions in a member's metadata.
fn reported(metadata: &Bytes, topics: &dyn TopicsView) -> Vec<TopicPartitions> {
    let subscription = consumer_subscription(metadata).unwrap_or_default();
    let owned = subscription.owned_partitions.into_iter();
    owned
        .filter_map(|owned| {
            let topic_id = topics.id(&owned.topic)?;
            Some(TopicPartitions { topic_id, partitions: owned.partitions })
        })
        .collect()
}

/// An assignment in the format of the classic protocol.
fn assignment(assigned: &PartitionEpochs, metadata: &Bytes, topics: &dyn TopicsView) -> Bytes {
    let named = assigned.iter().map(|(topic, partitions)| (*topic, partitions.keys().copied().collect()));
    encode_assignment(named, metadata, topics)
}

/// Maps a heartbeat error to the error of a join.
fn refusal(error: ConsumerGroupError) -> MembershipError {
    match error {
        ConsumerGroupError::Full { .. } => MembershipError::GroupFull,
        ConsumerGroupError::FencedInstance { .. } | ConsumerGroupError::UnreleasedInstance { .. } => {
            MembershipError::FencedInstance
        }
        ConsumerGroupError::Request(error) => MembershipError::Request(error),
        _ => MembershipError::UnknownMember,
    }
}
