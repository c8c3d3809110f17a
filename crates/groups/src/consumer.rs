//! A consumer group of KIP-848 (`ConsumerGroup`), whose coordinator assigns partitions: its state, and the
//! changes of state by records.
//!
//! ```text
//! heartbeat ──► heartbeat    the member's description; a change raises the group epoch
//!                 target     a target assignment for that epoch, by an assignor
//!                 reconcile  the member's next step towards its target
//!                    │
//!                    ▼
//!                 records ──► the log ──► apply: the group's state, here and wherever the log is loaded
//! ```
//!
//! A decision returns records and changes only caches (`hashed_at`, `is_resolving`). The group changes when
//! the records are in the log, and the members' deadlines follow that write. A loaded group therefore equals
//! a group that was in memory all the time. A heartbeat without a change looks at its member only, and leaves
//! no record.
//!
//! Members of the classic protocol may be in the group (`classic`), and the whole group may change its type
//! (`migration`).

mod apply;
mod classic;
mod deadlines;
mod describe;
mod error;
mod heartbeat;
mod leave;
mod member;
mod migration;
mod reconcile;
mod resolution;
mod subscription;
mod target;

pub(super) use error::ConsumerGroupError;
pub(super) use heartbeat::ConsumerHeartbeat;
pub(super) use leave::Removal;
pub(super) use migration::Downgrade;
pub(super) use resolution::{Matches, Resolution};

use super::assignor::Assignment;
use super::commits::{Commit, CommitPermission, validate_fetch};
use super::config::ConsumerGroupTimes;
use super::deadlines::Deadlines;
use super::error::MembershipError;
use super::modern::ModernGroup;
use super::record::{ConsumerRecord, CoordinatorRecord};
use member::ConsumerGroupMember;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use subscription::{ResolvedRegex, SubscriberCounts};
use thalweg_hash::HashMap;
use thalweg_wire::Uuid;
use thalweg_wire::group::*;
use thalweg_wire::request::list_groups_response::ListedGroup;

/// Inputs of a group decision besides the group.
pub(super) type ConsumerContext<'a> = super::context::GroupContext<'a, ConsumerGroupTimes>;

/// A consumer group.
#[derive(Debug)]
pub(super) struct ConsumerGroup {
    modern: ModernGroup<ConsumerGroupMember, Assignment>,
    static_members: BTreeMap<Arc<str>, Arc<str>>,
    /// The subscribed topics.
    subscribers: BTreeMap<String, SubscriberCounts>,
    /// The subscribed regular expressions, with the number of their members.
    regexes: BTreeMap<Arc<str>, usize>,
    resolved: BTreeMap<Arc<str>, ResolvedRegex>,
    /// Number of members that request each assignor.
    assignors: BTreeMap<String, usize>,
    /// Number of members of the classic protocol, and number of these that follow each classic protocol.
    classic_members: usize,
    classic_protocols: BTreeMap<String, usize>,
    /// The member that owns a partition or has yet to revoke it.
    owners: HashMap<Uuid, HashMap<i32, Arc<str>>>,
    /// True if a record from before Kafka 4.1 has to be deleted.
    has_partition_metadata: bool,
    /// The epoch since which the hash of the topics is current; `None` when the hash has to be computed
    /// again.
    hashed_at: Cell<Option<i32>>,
    /// True while the group's regular expressions are being resolved.
    is_resolving: Cell<bool>,
    deadlines: Deadlines,
    /// Monotonic time until which the group stays a consumer group because the records of a downgrade were
    /// too large.
    downgrade_refused_until_ms: Option<i64>,
}

impl ConsumerGroup {
    /// A group without members or history.
    pub(super) fn new(id: Arc<str>) -> ConsumerGroup {
        ConsumerGroup {
            deadlines: Deadlines::new(id.clone()),
            modern: ModernGroup::new(id),
            static_members: BTreeMap::new(),
            subscribers: BTreeMap::new(),
            regexes: BTreeMap::new(),
            resolved: BTreeMap::new(),
            assignors: BTreeMap::new(),
            classic_members: 0,
            classic_protocols: BTreeMap::new(),
            owners: HashMap::default(),
            has_partition_metadata: false,
            hashed_at: Cell::new(None),
            is_resolving: Cell::new(false),
            downgrade_refused_until_ms: None,
        }
    }

    /// Kafka's name of the group's state.
    pub(super) fn state_name(&self) -> &'static str {
        if self.modern.members.is_empty() {
            "Empty"
        } else {
            self.modern.progress(ConsumerGroupMember::is_reconciled_to)
        }
    }

    /// Number of members.
    pub(super) fn size(&self) -> usize {
        self.modern.members.len()
    }

    /// The group's entry in ListGroups.
    pub(super) fn list(&self) -> ListedGroup {
        self.modern.list("consumer", self.state_name())
    }

    /// True if members read the topic.
    pub(super) fn is_subscribed_to(&self, topic: &str) -> bool {
        self.subscribers.contains_key(topic)
    }

    /// The whole state that follows from the group's records.
    #[cfg(test)]
    pub(super) fn picture(&self) -> String {
        let owners: BTreeMap<_, BTreeMap<_, _>> =
            self.owners.iter().map(|(topic, owners)| (topic, owners.iter().collect())).collect();
        let epochs = (
            self.modern.epoch,
            self.modern.metadata_hash,
            self.modern.target_epoch,
            self.modern.target_made_ms,
        );
        let counts = (&self.subscribers, &self.regexes, &self.resolved, &self.assignors);
        let classic = (self.classic_members, &self.classic_protocols, self.has_partition_metadata);
        let members = (&self.modern.members, &self.static_members, &self.modern.targets);
        format!("{epochs:?}\n{counts:?}\n{classic:?}\n{owners:?}\n{members:#?}")
    }

    /// Marks the topics as changed: the next heartbeat reads them.
    pub(super) fn refresh_topics(&mut self) {
        self.hashed_at.set(None);
    }

    /// Deadlines of the group's members.
    pub(super) fn deadlines(&mut self) -> &mut Deadlines {
        &mut self.deadlines
    }

    fn member(&self, id: &str) -> Result<&ConsumerGroupMember, ConsumerGroupError> {
        self.modern.members.get(id).ok_or_else(|| ConsumerGroupError::UnknownMember(id.to_owned()))
    }

    fn static_member(&self, instance_id: &str) -> Option<&ConsumerGroupMember> {
        self.modern.members.get(self.static_members.get(instance_id)?)
    }

    fn is_owned(&self, topic: Uuid, partition: i32) -> bool {
        self.owners.get(&topic).is_some_and(|partitions| partitions.contains_key(&partition))
    }

    /// The record of a group epoch.
    fn epoch_record(&self, epoch: i32, metadata_hash: i64) -> CoordinatorRecord {
        let value = ConsumerGroupMetadataValue { epoch, metadata_hash };
        ConsumerRecord::Group(self.group_key(), Some(value)).into()
    }

    /// Raises the group epoch, and returns it.
    fn raise_epoch(&self, metadata_hash: i64, records: &mut Vec<CoordinatorRecord>) -> i32 {
        self.modern.raise_epoch(|epoch| self.epoch_record(epoch, metadata_hash), records)
    }

    fn group_key(&self) -> ConsumerGroupMetadataKey {
        ConsumerGroupMetadataKey { group_id: self.modern.id.to_string() }
    }

    fn partition_metadata_tombstone(&self) -> CoordinatorRecord {
        let key = ConsumerGroupPartitionMetadataKey { group_id: self.modern.id.to_string() };
        ConsumerRecord::PartitionMetadata(key, None).into()
    }

    /// The record of a regular expression with its topics, or its tombstone.
    fn regex_record(
        &self,
        regex: &str,
        value: Option<ConsumerGroupRegularExpressionValue>,
    ) -> CoordinatorRecord {
        let key = ConsumerGroupRegularExpressionKey {
            group_id: self.modern.id.to_string(),
            regular_expression: regex.to_owned(),
        };
        ConsumerRecord::RegularExpression(key, value).into()
    }

    /// Tombstones for the targets of members whose own records are lost: the partitions of these targets
    /// would seem assigned.
    pub(super) fn stray_target_tombstones(&self) -> Vec<CoordinatorRecord> {
        let mut records = Vec::new();
        for id in self.modern.lost_members() {
            self.push_member_tombstones(id, &mut records);
        }
        records
    }

    /// Pushes the tombstones of a member.
    fn push_member_tombstones(&self, id: &str, records: &mut Vec<CoordinatorRecord>) {
        self.modern.push_member_tombstones::<ConsumerRecord>(std::iter::once(id), records);
    }

    /// Pushes the records that delete the group.
    pub(super) fn push_tombstones(&self, records: &mut Vec<CoordinatorRecord>) {
        self.push_tombstones_with(|id| id, records);
    }

    /// Pushes the records that delete the group after earlier records have renamed a member.
    fn push_tombstones_with<'a>(
        &'a self,
        renamed: impl Fn(&'a str) -> &'a str,
        records: &mut Vec<CoordinatorRecord>,
    ) {
        let ids = self.modern.members.keys().map(|id| renamed(id));
        self.modern.push_tombstones::<ConsumerRecord>(ids, records);
        records.extend(self.resolved.keys().map(|regex| self.regex_record(regex, None)));
        records.push(self.partition_metadata_tombstone());
        records.push(ConsumerRecord::Group(self.group_key(), None).into());
    }

    /// The partitions that a member may commit.
    pub(super) fn commits<'a>(
        &'a self,
        commit: &Commit<'_>,
    ) -> Result<CommitPermission<'a>, MembershipError> {
        let Some(member) = commit.sender(&self.modern.members)? else { return Ok(CommitPermission::Any) };
        if member.classic.is_none() {
            commit.validate_version()?;
        }
        let assigned_at = |_: &str, id, partition| member.assigned_at(id, partition);
        commit.by_member(member.epoch, stale(member), assigned_at)
    }

    /// Checks that this member may read offsets.
    pub(super) fn validate_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), MembershipError> {
        let member = |id: &str| self.modern.members.get(id).map(|member| (member.epoch, stale(member)));
        validate_fetch(member_id, epoch, member)
    }
}

fn stale(member: &ConsumerGroupMember) -> MembershipError {
    match member.classic {
        Some(_) => MembershipError::IllegalGeneration,
        None => MembershipError::StaleEpoch,
    }
}
