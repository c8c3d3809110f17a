//! Conversion of groups with running members (`group.consumer.migration.policy`): a classic group of
//! consumers becomes a consumer group when a member of the consumer protocol joins, and a consumer group
//! becomes a classic one when its last member of the consumer protocol leaves.

use super::error::ConsumerGroupError;
use super::heartbeat::ReportedPartitions;
use super::member::{ClassicMember, ConsumerGroupMember, PartitionEpochs, target_record};
use super::{ConsumerContext, ConsumerGroup};
use crate::classic::{ClassicGroup, ClassicGroupMember, Protocol, Terms};
use crate::deadlines::DeadlineChange;
use crate::record::{ConsumerRecord, CoordinatorRecord, ModernRecord};
use crate::subscription::{consumer_assignment, consumer_subscription, encode_assignment};
use crate::timers::Deadline;
use std::borrow::Cow;
use std::sync::Arc;
use thalweg_shard::WriteError;

/// The conversion of a consumer group to a classic one.
#[derive(Debug)]
pub(in super::super) struct Downgrade {
    pub(in super::super) group: Box<ClassicGroup>,
    /// True if the members have to agree on another assignment.
    pub(in super::super) rebalances: bool,
}

impl ConsumerGroup {
    /// True if the group becomes a classic one without these members.
    pub(super) fn is_classic_without(
        &self,
        cx: &ConsumerContext<'_>,
        leaving: &[&ConsumerGroupMember],
    ) -> bool {
        let left = self.modern.members.len() - leaving.len();
        let classic = leaving.iter().filter(|member| member.classic.is_some()).count();
        left > 0
            && self.classic_members - classic == left
            && left <= cx.config.group_size_max
            && self.may_downgrade(cx)
    }

    /// True if the group becomes a classic one when a classic member replaces this member.
    pub(super) fn is_classic_with_another(
        &self,
        cx: &ConsumerContext<'_>,
        replaced: &ConsumerGroupMember,
    ) -> bool {
        replaced.classic.is_none()
            && self.classic_members == self.modern.members.len() - 1
            && self.modern.members.len() <= cx.config.group_size_max
            && self.may_downgrade(cx)
    }

    fn may_downgrade(&self, cx: &ConsumerContext<'_>) -> bool {
        let is_refused = self.downgrade_refused_until_ms.is_some_and(|ms| cx.now.monotonic_ms < ms);
        cx.config.consumer.migration.downgrades && !is_refused
    }

    /// Delays the downgrade, whose records were larger than a batch. Until this time, the group stays a
    /// consumer group when members leave, so that an expired member does not keep its partitions.
    pub(in super::super) fn refuse_downgrade_until(&mut self, monotonic_ms: i64) {
        self.downgrade_refused_until_ms = Some(monotonic_ms);
    }

    /// The remaining members form a classic group, which starts with a rebalance.
    pub(super) fn downgrade_without(
        &self,
        cx: &ConsumerContext<'_>,
        leaving: &[&ConsumerGroupMember],
        records: &mut Vec<CoordinatorRecord>,
    ) -> Downgrade {
        self.push_tombstones(records);
        let is_leaving = |member: &ConsumerGroupMember| leaving.iter().any(|other| other.id == member.id);
        let left = self.modern.members.values().filter(|member| !is_leaving(member)).map(|m| (m, &*m.id));
        let group = self.to_classic(cx, left);
        records.push(group.snapshot());
        Downgrade { group: Box::new(group), rebalances: true }
    }

    /// A classic member replaces the last member of the consumer protocol.
    #[expect(clippy::too_many_arguments, reason = "a join, and all that it has found out so far")]
    pub(super) fn join_and_downgrade(
        &self,
        cx: &mut ConsumerContext<'_>,
        before: &ConsumerGroupMember,
        joining: ConsumerGroupMember,
        replaced: &ConsumerGroupMember,
        replaces: Option<&str>,
        reported: ReportedPartitions<'_>,
        records: &mut Vec<CoordinatorRecord>,
    ) -> Result<(ConsumerGroupMember, Downgrade), ConsumerGroupError> {
        let (epoch, changed) = self.push_subscription(cx, before, &joining, replaces, records)?;
        let rebalances = self.modern.target_epoch < epoch;
        let mut member = joining;
        if !rebalances {
            let target = self.modern.last_target(replaces.unwrap_or(&member.id));
            let after = Cow::Owned(member);
            let step = self.reconcile(cx, after, &target, replaces, Some(reported), changed, records)?;
            member = step.member.into_owned();
        }
        self.push_tombstones_with(|id| if *id == *replaced.id { &*member.id } else { id }, records);
        let others =
            self.modern.members.values().filter(|other| other.id != replaced.id && other.id != member.id);
        let all = others.map(|other| (other, &*other.id)).chain([(&member, &*replaced.id)]);
        let group = self.to_classic(cx, all);
        records.push(group.snapshot());
        Ok((member.clone(), Downgrade { group: Box::new(group), rebalances }))
    }

    /// A classic group of members that all use the classic protocol, each with the id of its target.
    fn to_classic<'a>(
        &self,
        cx: &ConsumerContext<'_>,
        members: impl Iterator<Item = (&'a ConsumerGroupMember, &'a str)>,
    ) -> ClassicGroup {
        let mut targets = thalweg_hash::HashMap::default();
        let mut converted = Vec::new();
        for (place, (member, target_of)) in (0..).zip(members) {
            targets.insert(member.id.clone(), self.modern.target_of(target_of));
            converted.push(to_classic(member, place));
        }
        ClassicGroup::of_consumers(
            self.modern.id.clone(),
            self.modern.epoch,
            cx.now.wall_ms,
            converted,
            |member, metadata| {
                let target = targets[&member.id].iter();
                let target = target.map(|(topic, partitions)| (*topic, partitions.iter().copied().collect()));
                encode_assignment(target, metadata, cx.topics)
            },
        )
    }

    /// The consumer group that replaces a classic group when this member joins. Its members keep their
    /// partitions, and join again.
    pub(in super::super) fn of_classic(
        classic: &ClassicGroup,
        id: &Arc<str>,
        joining: &str,
        cx: &mut ConsumerContext<'_>,
    ) -> Result<ConsumerGroup, ConsumerGroupError> {
        let refused = |reason| Err(ConsumerGroupError::NotUpgraded { group: id.to_string(), reason });
        if !cx.config.consumer.migration.upgrades {
            return refused("group.consumer.migration.policy does not allow upgrades");
        }
        if !classic.is_of_consumers() {
            return refused("its members are not consumers");
        }
        if classic.size() > cx.config.consumer.group_size_max {
            return refused("it has more members than group.consumer.max.size");
        }
        if classic.refused_upgrades().has(joining, cx.now.monotonic_ms) {
            return Err(WriteError::TooLarge.into());
        }
        let mut group = ConsumerGroup::new(id.clone());
        (group.modern.epoch, group.modern.target_epoch) = (classic.generation(), classic.generation());
        for member in classic.in_order() {
            match of_classic(member, classic, cx) {
                Ok(member) => {
                    let ids = |(topic, partitions): (&_, &std::collections::BTreeMap<i32, i32>)| {
                        (*topic, partitions.keys().copied().collect())
                    };
                    group
                        .modern
                        .targets
                        .insert(member.id.clone(), Arc::new(member.assigned.iter().map(ids).collect()));
                    group.put(member);
                }
                Err(reason) => return refused(reason),
            }
        }
        group.modern.metadata_hash =
            cx.hashes.of_group(group.subscribers.keys().map(String::as_str), cx.topics);
        Ok(group)
    }

    /// The records that create the group.
    pub(in super::super) fn to_records(&self, records: &mut Vec<CoordinatorRecord>) {
        records.extend(self.modern.members.values().map(|member| member.to_record(&self.modern.id)));
        records.push(self.epoch_record(self.modern.epoch, self.modern.metadata_hash));
        records.extend(
            self.modern
                .members
                .keys()
                .map(|id| target_record(&self.modern.id, id, &self.modern.target_of(id)).into()),
        );
        let made = (self.modern.target_epoch, self.modern.target_made_ms);
        records.push(ConsumerRecord::target(&self.modern.id, Some(made)).into());
        records.extend(self.modern.members.values().map(|member| member.to_current_record(&self.modern.id)));
    }

    /// The initial sessions of the group's classic members.
    pub(in super::super) fn classic_sessions(&self) -> Vec<(Arc<str>, DeadlineChange)> {
        let session = |member: &ConsumerGroupMember| {
            let classic = member.classic.as_ref()?;
            Some((member.id.clone(), DeadlineChange::Session(classic.session_timeout_ms)))
        };
        self.modern.members.values().filter_map(session).collect()
    }
}

fn to_classic(member: &ConsumerGroupMember, place: u64) -> ClassicGroupMember {
    let (session_timeout_ms, protocols) = match &member.classic {
        Some(classic) => (classic.session_timeout_ms, classic.protocols.as_slice()),
        None => unreachable!("only members of the classic protocol are left"),
    };
    let protocol = |(name, metadata): &(String, bytes::Bytes)| Protocol {
        name: name.clone(),
        metadata: metadata.clone(),
    };
    ClassicGroupMember {
        id: member.id.clone(),
        instance_id: member.instance_id.as_deref().map(str::to_owned),
        client: member.client.clone(),
        terms: Terms {
            protocols: protocols.iter().map(protocol).collect(),
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            session_timeout_ms,
        },
        assignment: bytes::Bytes::new(),
        place,
        is_new: false,
        awaiting_join: None,
        awaiting_sync: None,
        session: Deadline::default(),
    }
}

fn of_classic(
    member: &ClassicGroupMember,
    group: &ClassicGroup,
    cx: &ConsumerContext<'_>,
) -> Result<ConsumerGroupMember, &'static str> {
    const MALFORMED: &str = "the metadata of a member is not a consumer's";
    let protocols: Vec<(String, bytes::Bytes)> =
        member.terms.protocols.iter().map(|p| (p.name.clone(), p.metadata.clone())).collect();
    let metadata = match group.protocol_name() {
        Some(name) => member.metadata(Some(name)),
        // The group has no generation yet.
        None => protocols.first().map(|(_, metadata)| metadata.clone()).unwrap_or_default(),
    };
    let subscription = consumer_subscription(&metadata).ok_or(MALFORMED)?;
    let mut assigned = PartitionEpochs::new();
    if !member.assignment.is_empty() {
        let assignment = consumer_assignment(&member.assignment).ok_or(MALFORMED)?;
        if assignment.user_data.is_some_and(|data| !data.is_empty()) {
            return Err("a member's own assignor has put data into the assignment, which would be lost");
        }
        for topic in assignment.assigned_partitions {
            let Some(id) = cx.topics.id(&topic.topic) else { continue };
            let partitions = topic.partitions.into_iter().map(|partition| (partition, group.generation()));
            assigned.insert(id, partitions.collect());
        }
    }
    Ok(ConsumerGroupMember {
        epoch: group.generation(),
        previous_epoch: group.generation(),
        instance_id: member.instance_id.as_deref().map(Arc::from),
        rack_id: subscription.rack_id.filter(|rack| !rack.is_empty()),
        rebalance_timeout_ms: member.terms.rebalance_timeout_ms,
        client: member.client.clone(),
        topics: Arc::new(subscription.topics.into_iter().collect()),
        assigned: Arc::new(assigned),
        classic: Some(Arc::new(ClassicMember {
            session_timeout_ms: member.terms.session_timeout_ms,
            protocols,
        })),
        ..ConsumerGroupMember::new(member.id.clone())
    })
}
