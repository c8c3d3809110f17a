//! A streams group of KIP-1071 (`StreamsGroup`): the instances of a Kafka Streams application, to which the
//! coordinator assigns tasks.
//!
//! ```text
//! heartbeat ──► heartbeat    the member's description; a change raises the group epoch
//!                 configure  the topology, fitted to the existing topics; internal topics to create
//!                 target     a target assignment for that epoch, by the assignor sticky
//!                 reconcile  the member's next step towards its target
//!                    │
//!                    ▼
//!                 records ──► the log ──► apply: the group's state, here and wherever the log is loaded
//! ```
//!
//! As in a consumer group, a decision returns records, and the group changes when they are in the log. State
//! that follows from the topics alone is not recorded: the next heartbeat computes it again.
//!
//! As in Kafka 4.3.1, there are no static members, warm-up tasks, sources by regular expression, or changes
//! of a topology: requests with any of these are refused.
//!
//! Kafka 4.3.1 answers with tasks only when a member joins or the heartbeat changes the tasks. If that answer
//! is lost, the member does not learn of new tasks, which stay idle until the next change, or of tasks that
//! it has to revoke. Here the answer has the tasks whenever the member reports other tasks than it has; Kafka
//! Streams reports all its tasks after a failure.
//!
//! Kafka 4.3.1 fails on a member with an endpoint as long as a source topic is missing; here such a member
//! gets the status like other members. The names in a topology and the number of its tasks are limited.

mod answer;
mod apply;
mod configure;
mod deadlines;
mod describe;
mod endpoints;
mod error;
mod hash_order;
mod heartbeat;
mod leave;
mod member;
mod owners;
mod reconcile;
mod target;
mod tasks;
mod topology;

pub use answer::StreamsAnswer;
pub(super) use error::StreamsGroupError;
pub(super) use heartbeat::{StreamsDecision, StreamsHeartbeat};

use super::commits::{Commit, CommitPermission, validate_fetch};
use super::config::StreamsGroupTimes;
use super::deadlines::Deadlines;
use super::error::MembershipError;
use super::modern::ModernGroup;
use super::record::{CoordinatorRecord, StreamsGroupRecord};
use super::timers::Deadline;
use configure::ConfiguredTopology;
use member::StreamsGroupMember;
use owners::TaskOwners;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use tasks::TargetTasks;
use thalweg_wire::group::streams_group_metadata_value::LastAssignmentConfig;
use thalweg_wire::group::*;
use thalweg_wire::request::list_groups_response::ListedGroup;
use topology::Topology;

/// Name in records of the only setting on which an assignment depends: the number of standbys for each task
/// with state.
const STANDBY_REPLICAS: &str = "num.standby.replicas";

/// Inputs of a group decision besides the group.
pub(super) type StreamsContext<'a> = super::context::GroupContext<'a, StreamsGroupTimes>;

/// A streams group.
#[derive(Debug)]
pub(super) struct StreamsGroup {
    modern: ModernGroup<StreamsGroupMember, TargetTasks>,
    /// Epoch of the topology that was last validated against its topics.
    validated_epoch: i32,
    /// Settings used by the last assignment.
    assignment_configs: BTreeMap<String, String>,
    topology: Option<Arc<Topology>>,
    owners: TaskOwners,
    deadlines: Deadlines,
    /// Deadline of the initial delay of a new group.
    delay: Deadline,
    /// The topology fitted to the topics with this hash; `None` when it has to be fitted.
    configured: RefCell<Option<(i64, Arc<ConfiguredTopology>)>>,
    /// Hash of the topics when last read; `None` if the topics have changed since. While this hash differs
    /// from the recorded one, the topics are read again.
    hashed: Cell<Option<i64>>,
    /// Number of changes of members' endpoints or of their partitions.
    endpoint_epoch: Cell<i32>,
    /// The member that requested the shutdown of the application.
    shutdown: RefCell<Option<Arc<str>>>,
}

impl StreamsGroup {
    /// A group without members or history.
    pub(super) fn new(id: Arc<str>) -> StreamsGroup {
        StreamsGroup {
            deadlines: Deadlines::new(id.clone()),
            modern: ModernGroup::new(id),
            validated_epoch: 0,
            assignment_configs: BTreeMap::new(),
            topology: None,
            owners: TaskOwners::default(),
            delay: Deadline::default(),
            configured: RefCell::new(None),
            hashed: Cell::new(None),
            endpoint_epoch: Cell::new(0),
            shutdown: RefCell::new(None),
        }
    }

    /// Kafka's name of the group's state.
    pub(super) fn state_name(&self) -> &'static str {
        let topology_epoch = self.topology.as_ref().map(|topology| topology.epoch);
        if self.modern.members.is_empty() {
            "Empty"
        } else if topology_epoch != Some(self.validated_epoch) {
            "NotReady"
        } else {
            self.modern.progress(StreamsGroupMember::is_reconciled_to)
        }
    }

    /// Number of members.
    pub(super) fn size(&self) -> usize {
        self.modern.members.len()
    }

    /// The group's entry in ListGroups.
    pub(super) fn list(&self) -> ListedGroup {
        self.modern.list("streams", self.state_name())
    }

    /// True if members read the topic.
    pub(super) fn is_subscribed_to(&self, topic: &str) -> bool {
        let reads = |topology: &Arc<Topology>| topology.reader(topic).is_some();
        !self.modern.members.is_empty() && self.topology.as_ref().is_some_and(reads)
    }

    /// True if the topology requires the topic, with the right number of partitions.
    pub(super) fn requires(&self, topic: &str) -> bool {
        self.topology.as_ref().is_some_and(|topology| topology.requires(topic))
    }

    /// Marks the topics as changed: the next heartbeat reads them.
    pub(super) fn refresh_topics(&mut self) {
        self.hashed.set(None);
    }

    /// Deadlines of the group's members.
    pub(super) fn deadlines(&mut self) -> &mut Deadlines {
        &mut self.deadlines
    }

    /// The whole state that follows from the group's records.
    #[cfg(test)]
    pub(super) fn picture(&self) -> String {
        let epochs =
            (self.modern.epoch, self.modern.metadata_hash, self.validated_epoch, self.modern.target_epoch);
        let last = (self.modern.target_made_ms, &self.assignment_configs);
        let members = (&self.modern.members, &self.modern.targets, &self.owners);
        let topology = self.topology.as_ref().map(|topology| (topology.epoch, &topology.subtopologies));
        format!("{epochs:?}\n{last:?}\n{topology:?}\n{members:#?}")
    }

    fn member(&self, id: &str) -> Result<&StreamsGroupMember, StreamsGroupError> {
        let unknown =
            || StreamsGroupError::UnknownMember { member: id.to_owned(), group: self.modern.id.to_string() };
        self.modern.members.get(id).ok_or_else(unknown)
    }

    /// Number of standbys that the last assignment gave each task with state.
    fn followed_standbys(&self) -> Option<usize> {
        self.assignment_configs.get(STANDBY_REPLICAS)?.parse().ok()
    }

    /// True if the last assignment used this number of standbys and no other setting.
    fn has_followed(&self, standbys: usize) -> bool {
        self.assignment_configs.len() == 1 && self.followed_standbys() == Some(standbys)
    }

    /// Raises the group epoch, and returns it.
    fn raise_epoch(
        &self,
        metadata_hash: i64,
        validated_topology_epoch: i32,
        configs: &BTreeMap<String, String>,
        records: &mut Vec<CoordinatorRecord>,
    ) -> i32 {
        let config = |(key, value): (&String, &String)| LastAssignmentConfig {
            key: key.clone(),
            value: value.clone(),
        };
        let record = |epoch| {
            let value = StreamsGroupMetadataValue {
                epoch,
                metadata_hash,
                validated_topology_epoch,
                last_assignment_configs: Some(configs.iter().map(config).collect()),
            };
            StreamsGroupRecord::Group(self.group_key(), Some(value)).into()
        };
        self.modern.raise_epoch(record, records)
    }

    fn group_key(&self) -> StreamsGroupMetadataKey {
        StreamsGroupMetadataKey { group_id: self.modern.id.to_string() }
    }

    /// Tombstones for the targets of members whose own records are lost: the tasks of these targets would
    /// seem assigned.
    pub(super) fn stray_target_tombstones(&self) -> Vec<CoordinatorRecord> {
        let mut records = Vec::new();
        self.modern.push_member_tombstones::<StreamsGroupRecord>(self.modern.lost_members(), &mut records);
        records
    }

    /// Pushes the records that delete the group.
    pub(super) fn push_tombstones(&self, records: &mut Vec<CoordinatorRecord>) {
        let ids = self.modern.members.keys().map(|id| &**id);
        self.modern.push_tombstones::<StreamsGroupRecord>(ids, records);
        records.push(StreamsGroupRecord::Group(self.group_key(), None).into());
        let key = StreamsGroupTopologyKey { group_id: self.modern.id.to_string() };
        records.push(StreamsGroupRecord::Topology(key, None).into());
    }

    /// The partitions that a member may commit.
    pub(super) fn commits<'a>(
        &'a self,
        commit: &Commit<'_>,
    ) -> Result<CommitPermission<'a>, MembershipError> {
        let Some(member) = commit.sender(&self.modern.members)? else { return Ok(CommitPermission::Any) };
        commit.validate_version()?;
        let assigned_at = |topic: &str, _, partition| {
            let subtopology = self.topology.as_ref()?.reader(topic)?;
            member.assigned_at(subtopology, partition)
        };
        commit.by_member(member.epoch, MembershipError::StaleEpoch, assigned_at)
    }

    /// Checks that this member may read offsets.
    pub(super) fn validate_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), MembershipError> {
        let member =
            |id: &str| self.modern.members.get(id).map(|member| (member.epoch, MembershipError::StaleEpoch));
        validate_fetch(member_id, epoch, member)
    }
}
