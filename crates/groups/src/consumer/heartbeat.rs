//! A heartbeat: a member joins, changes, or moves towards its target.

use super::error::ConsumerGroupError;
use super::member::{ConsumerGroupMember, PartitionEpochs, target_record};
use super::reconcile::Reconciliation;
use super::{ConsumerContext, ConsumerGroup};
use crate::assignor::Assignment;
use crate::client::ClientInfo;
use crate::deadlines::DeadlineChange;
use crate::member_epoch::{self, LEAVING_FOR_A_WHILE};
use crate::modern::{Target, changed_topics};
use crate::record::CoordinatorRecord;
use crate::regex::validate;
use std::borrow::Cow;
use std::sync::Arc;
use thalweg_wire::Uuid;
use thalweg_wire::request::consumer_group_heartbeat_request::TopicPartitions;
use thalweg_wire::request::consumer_group_heartbeat_response::{
    Assignment as AssignmentAnswer, TopicPartitions as AssignedPartitions,
};
use thalweg_wire::request::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};

/// A heartbeat of a member that is not leaving.
pub(in super::super) struct ConsumerHeartbeat<'a> {
    pub(in super::super) client: &'a ClientInfo,
    pub(in super::super) request: &'a ConsumerGroupHeartbeatRequest,
}

/// The outcome of a request.
pub(in super::super) struct ConsumerDecision<R> {
    pub(in super::super) records: Vec<CoordinatorRecord>,
    pub(in super::super) response: R,
    /// The changes of deadlines, once the records are written.
    pub(in super::super) changes: Vec<(Arc<str>, DeadlineChange)>,
}

/// The owned partitions in a request.
pub(super) type ReportedPartitions<'a> = &'a [TopicPartitions];

/// A member after its step.
pub(super) struct Step<'a> {
    pub(super) member: Cow<'a, ConsumerGroupMember>,
    pub(super) change: Option<DeadlineChange>,
}

/// The change of a member's regular expression.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RegexChange {
    Same,
    /// The new expression is not resolved yet: the group rebalances once it is.
    Unresolved,
    Resolved,
}

impl ConsumerGroup {
    /// Handles a heartbeat of a member or of a joining member.
    pub(in super::super) fn heartbeat(
        &self,
        cx: &mut ConsumerContext<'_>,
        beat: &ConsumerHeartbeat<'_>,
    ) -> Result<ConsumerDecision<ConsumerGroupHeartbeatResponse>, ConsumerGroupError> {
        let request = beat.request;
        let max = cx.config.consumer.group_size_max;
        if !self.modern.has_room_for(&request.member_id, max) {
            return Err(ConsumerGroupError::Full { max });
        }
        let mut records = Vec::new();
        let (before, replaces) = match request.instance_id.as_deref() {
            None => (self.dynamic_member(beat)?, None),
            Some(instance_id) => self.static_member_of(beat, instance_id, &mut records)?,
        };
        let updated = updated(&before, beat);
        let after = updated.map_or(Cow::Borrowed(&*before), Cow::Owned);
        let reported = request.topic_partitions.as_deref();
        let step = self.advance(cx, &before, after, replaces, reported, &mut records)?;
        let member = &step.member;
        let is_full = request.rebalance_timeout_ms != -1
            && (request.subscribed_topic_names.is_some() || request.subscribed_topic_regex.is_some())
            && reported.is_some();
        let shows = request.member_epoch == 0 || is_full || member.assigned != before.assigned;
        let response = ConsumerGroupHeartbeatResponse {
            member_id: Some(member.id.to_string()),
            member_epoch: member.epoch,
            heartbeat_interval_ms: cx.times.heartbeat_interval_ms,
            assignment: shows.then(|| answer(&member.assigned)),
            ..ConsumerGroupHeartbeatResponse::default()
        };
        let session = DeadlineChange::Session(cx.times.session_timeout_ms);
        let changes = step.change.into_iter().chain([session]).map(|change| (member.id.clone(), change));
        Ok(ConsumerDecision { records, response, changes: changes.collect() })
    }

    /// The dynamic member of a heartbeat, or a new one.
    fn dynamic_member<'a>(
        &'a self,
        beat: &ConsumerHeartbeat<'_>,
    ) -> Result<Cow<'a, ConsumerGroupMember>, ConsumerGroupError> {
        let epoch = beat.request.member_epoch;
        let Ok(member) = self.member(&beat.request.member_id) else {
            if epoch == 0 {
                tracing::info!(group = %self.modern.id, member = beat.request.member_id, "Member joins the consumer group");
                return Ok(Cow::Owned(ConsumerGroupMember::new(beat.request.member_id.as_str().into())));
            }
            return Err(ConsumerGroupError::UnknownMember(beat.request.member_id.clone()));
        };
        validate_epoch(member, beat.request)?;
        Ok(Cow::Borrowed(member))
    }

    /// The static member of a heartbeat, or a new one, and the id of the member that it replaces.
    fn static_member_of<'a>(
        &'a self,
        beat: &ConsumerHeartbeat<'_>,
        instance_id: &str,
        records: &mut Vec<CoordinatorRecord>,
    ) -> Result<(Cow<'a, ConsumerGroupMember>, Option<&'a str>), ConsumerGroupError> {
        let (instance, id) = (instance_id.to_owned(), beat.request.member_id.as_str());
        let existing = self.static_member(instance_id);
        if beat.request.member_epoch != 0 {
            let member = existing.ok_or(ConsumerGroupError::UnknownInstance(instance.clone()))?;
            if *member.id != *id {
                return Err(ConsumerGroupError::FencedInstance { instance, owner: member.id.to_string() });
            }
            validate_epoch(member, beat.request)?;
            return Ok((Cow::Borrowed(member), None));
        }
        let Some(existing) = existing else {
            tracing::info!(group = %self.modern.id, member = id, instance, "Static member joins the consumer group");
            let known = self.modern.members.get(id).map(Cow::Borrowed);
            return Ok((known.unwrap_or_else(|| Cow::Owned(ConsumerGroupMember::new(id.into()))), None));
        };
        if existing.classic.is_none() && existing.epoch != LEAVING_FOR_A_WHILE {
            return Err(ConsumerGroupError::UnreleasedInstance { instance, owner: existing.id.to_string() });
        }
        let member = self.replace(existing, id, records);
        Ok((Cow::Owned(member), Some(&existing.id)))
    }

    /// Replaces a static member that returns under another id.
    pub(super) fn replace(
        &self,
        old: &ConsumerGroupMember,
        id: &str,
        records: &mut Vec<CoordinatorRecord>,
    ) -> ConsumerGroupMember {
        tracing::info!(group = %self.modern.id, old = %old.id, new = id, "Static member returns");
        let member = ConsumerGroupMember { id: id.into(), epoch: 0, previous_epoch: 0, ..old.clone() };
        self.push_member_tombstones(&old.id, records);
        records.push(member.to_record(&self.modern.id));
        records.push(target_record(&self.modern.id, id, &self.modern.target_of(&old.id)).into());
        records.push(member.to_current_record(&self.modern.id));
        member
    }

    /// Advances a member, now described by `after`, by one step.
    pub(super) fn advance<'a>(
        &self,
        cx: &mut ConsumerContext<'_>,
        before: &ConsumerGroupMember,
        after: Cow<'a, ConsumerGroupMember>,
        replaces: Option<&str>,
        reported: Option<ReportedPartitions<'_>>,
        records: &mut Vec<CoordinatorRecord>,
    ) -> Result<Step<'a>, ConsumerGroupError> {
        let (epoch, subscription_changed) = self.push_subscription(cx, before, &after, replaces, records)?;
        let target = self.target(cx, epoch, &after, replaces, records);
        self.reconcile(cx, after, &target, replaces, reported, subscription_changed, records)
    }

    /// The member's next step towards a target.
    #[expect(clippy::too_many_arguments, reason = "a member, and all that it depends on")]
    pub(super) fn reconcile<'a>(
        &self,
        cx: &ConsumerContext<'_>,
        after: Cow<'a, ConsumerGroupMember>,
        target: &Target<Assignment>,
        replaces: Option<&str>,
        reported: Option<ReportedPartitions<'_>>,
        subscription_changed: bool,
        records: &mut Vec<CoordinatorRecord>,
    ) -> Result<Step<'a>, ConsumerGroupError> {
        if !subscription_changed && after.is_reconciled_to(target.epoch) {
            return Ok(Step { member: after, change: None });
        }
        let subscribes =
            |topic: Uuid| cx.topics.name(topic).is_some_and(|name| self.subscribes(&after, &name));
        let reconciliation = Reconciliation {
            target_epoch: target.epoch,
            target: &target.of_member,
            subscribes: &subscribes,
            subscription_changed,
            is_owned: &|topic, partition| self.is_owned_by_another(topic, partition, replaces),
            reported,
        };
        let Some(member) = reconciliation.step(&after)? else {
            return Ok(Step { member: after, change: None });
        };
        records.push(member.to_current_record(&self.modern.id));
        let change = member.classic.is_none().then(|| DeadlineChange::of_revocation(&member));
        Ok(Step { member: Cow::Owned(member), change })
    }

    /// True if another member owns a partition. A replaced member leaves its partitions to its successor.
    fn is_owned_by_another(&self, topic: Uuid, partition: i32, replaced: Option<&str>) -> bool {
        let owner = self.owners.get(&topic).and_then(|partitions| partitions.get(&partition));
        owner.is_some_and(|owner| replaced != Some(&**owner))
    }

    /// Pushes the record of the member's description, and that of a higher group epoch if the description or
    /// the topics need another assignment. Returns the epoch, and true if the member's subscription changed.
    pub(super) fn push_subscription(
        &self,
        cx: &mut ConsumerContext<'_>,
        before: &ConsumerGroupMember,
        after: &ConsumerGroupMember,
        replaces: Option<&str>,
        records: &mut Vec<CoordinatorRecord>,
    ) -> Result<(i32, bool), ConsumerGroupError> {
        let is_new = replaces.is_none() && !self.modern.members.contains_key(&after.id);
        let is_same = std::ptr::eq(before, after) || after.has_same_description(before);
        let mut topics_changed = false;
        if is_new || !is_same {
            records.push(after.to_record(&self.modern.id));
            topics_changed = after.topics != before.topics;
        }
        let regex = self.change_regex(before, after, records)?;
        let bumps = topics_changed || regex == RegexChange::Resolved;
        let mut epoch = self.modern.epoch;
        if bumps || self.are_topics_stale() {
            let old: &[&ConsumerGroupMember] = match self.modern.members.get(replaces.unwrap_or(&before.id)) {
                Some(_) => &[before],
                None => &[],
            };
            let hash = cx.hashes.of_group(self.topics_with(old, Some(after)).into_iter(), cx.topics);
            if bumps || hash != self.modern.metadata_hash {
                epoch = self.raise_epoch(hash, records);
            }
            self.hashed_at.set(Some(epoch));
            if self.has_partition_metadata {
                records.push(self.partition_metadata_tombstone());
            }
        }
        Ok((epoch, topics_changed || regex != RegexChange::Same))
    }

    /// True if the topics have to be read again: the topics have changed, or the last result was not written.
    fn are_topics_stale(&self) -> bool {
        self.hashed_at.get().is_none_or(|at| self.modern.epoch < at)
    }

    /// Deletes the topics of a regular expression without subscribers, and checks a new expression.
    fn change_regex(
        &self,
        before: &ConsumerGroupMember,
        after: &ConsumerGroupMember,
        records: &mut Vec<CoordinatorRecord>,
    ) -> Result<RegexChange, ConsumerGroupError> {
        let (old, new) = (before.regex(), after.regex());
        if old == new {
            return Ok(RegexChange::Same);
        }
        let subscribed = |regex: &str| self.regexes.get(regex).copied().unwrap_or(0);
        if let Some(old) = old
            && subscribed(old) == 1
        {
            records.push(self.regex_record(old, None));
        }
        let Some(new) = new else { return Ok(RegexChange::Resolved) };
        if subscribed(new) == 0 {
            validate(new)?;
        }
        Ok(if self.resolved.contains_key(new) { RegexChange::Resolved } else { RegexChange::Unresolved })
    }
}

/// The member as described by the request; `None` if nothing changed.
fn updated(member: &ConsumerGroupMember, beat: &ConsumerHeartbeat<'_>) -> Option<ConsumerGroupMember> {
    let request = beat.request;
    let differs = |new: &Option<String>, old: Option<&str>| new.is_some() && new.as_deref() != old;
    let topics = changed_topics(request.subscribed_topic_names.as_ref(), &member.topics);
    let timeout_ms = Some(request.rebalance_timeout_ms).filter(|&ms| ms != -1);
    let is_same = !differs(&request.instance_id, member.instance_id.as_deref())
        && !differs(&request.rack_id, member.rack_id.as_deref())
        && !differs(&request.server_assignor, member.assignor.as_deref())
        && !differs(&request.subscribed_topic_regex, member.regex.as_deref())
        && timeout_ms.is_none_or(|ms| ms == member.rebalance_timeout_ms)
        && topics.is_none()
        && *beat.client == member.client
        && member.classic.is_none();
    if is_same {
        return None;
    }
    let mut member = member.clone();
    if let Some(instance_id) = &request.instance_id {
        member.instance_id = Some(instance_id.as_str().into());
    }
    if request.rack_id.is_some() {
        member.rack_id.clone_from(&request.rack_id);
    }
    if request.server_assignor.is_some() {
        member.assignor.clone_from(&request.server_assignor);
    }
    if let Some(regex) = &request.subscribed_topic_regex {
        member.regex = Some(regex.as_str().into());
    }
    if let Some(topics) = topics {
        member.topics = topics;
    }
    member.rebalance_timeout_ms = timeout_ms.unwrap_or(member.rebalance_timeout_ms);
    member.client = beat.client.clone();
    member.classic = None;
    Some(member)
}

/// Checks the epoch of a request. The previous epoch is also valid if the request names only assigned
/// partitions, because the answer with the new epoch may be lost.
fn validate_epoch(
    member: &ConsumerGroupMember,
    request: &ConsumerGroupHeartbeatRequest,
) -> Result<(), ConsumerGroupError> {
    let (received, actual) = (request.member_epoch, member.epoch);
    let is_assigned = |topic: &TopicPartitions| {
        let assigned = member.assigned.get(&topic.topic_id);
        assigned.is_some_and(|assigned| topic.partitions.iter().all(|p| assigned.contains_key(p)))
    };
    let names_assigned =
        || request.topic_partitions.as_ref().is_some_and(|topics| topics.iter().all(is_assigned));
    if member_epoch::is_valid(received, actual, member.previous_epoch, names_assigned) {
        Ok(())
    } else {
        Err(ConsumerGroupError::FencedEpoch { received, actual })
    }
}

fn answer(assigned: &PartitionEpochs) -> AssignmentAnswer {
    let topic = |(topic_id, partitions): (&Uuid, &std::collections::BTreeMap<i32, i32>)| AssignedPartitions {
        topic_id: *topic_id,
        partitions: partitions.keys().copied().collect(),
    };
    AssignmentAnswer { topic_partitions: assigned.iter().map(topic).collect() }
}
