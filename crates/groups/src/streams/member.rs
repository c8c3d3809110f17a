//! A member of a streams group (`StreamsGroupMember`), and its records.

use super::tasks::{ActiveTasks, OwnedTasks, TargetTasks, ids, tasks};
use crate::client::ClientInfo;
use crate::record::{CoordinatorRecord, ModernRecord, StreamsGroupRecord};
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_wire::group::streams_group_current_member_assignment_value::TaskIds;
use thalweg_wire::group::streams_group_member_metadata_value::{Endpoint, KeyValue};
use thalweg_wire::group::streams_group_target_assignment_member_value::TaskIds as TargetIds;
use thalweg_wire::group::*;

/// A member's distance from its target assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberState {
    /// The member has its target at its epoch.
    Stable,
    /// The member has to revoke tasks before it moves to the next epoch.
    UnrevokedTasks,
    /// The member waits for tasks that other members still have.
    UnreleasedTasks,
    /// A state of a later version: the member has to join again.
    Unknown,
}

impl MemberState {
    fn of(value: i8) -> MemberState {
        match value {
            1 => MemberState::Stable,
            2 => MemberState::UnrevokedTasks,
            3 => MemberState::UnreleasedTasks,
            _ => MemberState::Unknown,
        }
    }

    fn value(self) -> i8 {
        match self {
            MemberState::Stable => 1,
            MemberState::UnrevokedTasks => 2,
            MemberState::UnreleasedTasks => 3,
            MemberState::Unknown => 127,
        }
    }
}

/// A member. Every change makes a new value that shares the large, unchanged parts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StreamsGroupMember {
    pub(super) id: Arc<str>,
    pub(super) epoch: i32,
    pub(super) previous_epoch: i32,
    pub(super) state: MemberState,
    /// The record's value; members with an instance id are refused.
    pub(super) instance_id: Option<String>,
    pub(super) rack_id: Option<String>,
    pub(super) client: ClientInfo,
    pub(super) rebalance_timeout_ms: i32,
    pub(super) topology_epoch: i32,
    /// The member's process. Members of a process share its disk.
    pub(super) process_id: Arc<str>,
    /// The endpoint at which the member's state can be queried.
    pub(super) endpoint: Option<Endpoint>,
    pub(super) client_tags: BTreeMap<String, String>,
    /// Tasks that the member may process or copy.
    pub(super) assigned: Arc<OwnedTasks>,
    /// Tasks that the member has to revoke.
    pub(super) revoking: Arc<OwnedTasks>,
}

impl StreamsGroupMember {
    /// A member without a description.
    pub(super) fn new(id: Arc<str>) -> StreamsGroupMember {
        StreamsGroupMember {
            id,
            epoch: 0,
            previous_epoch: 0,
            state: MemberState::Stable,
            instance_id: None,
            rack_id: None,
            client: ClientInfo { client_id: String::new(), client_host: String::new() },
            rebalance_timeout_ms: -1,
            topology_epoch: -1,
            process_id: "".into(),
            endpoint: None,
            client_tags: BTreeMap::new(),
            assigned: Arc::default(),
            revoking: Arc::default(),
        }
    }

    /// True if the member has reached its target at this epoch.
    pub(super) fn is_reconciled_to(&self, epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == epoch
    }

    /// The epoch at which an active task was assigned, if the member has the task or has to revoke it.
    pub(super) fn assigned_at(&self, subtopology: &str, partition: i32) -> Option<i32> {
        let of = |tasks: &OwnedTasks| tasks.active.get(subtopology)?.get(&partition).copied();
        of(&self.assigned).or_else(|| of(&self.revoking))
    }

    /// The record of the member's description.
    pub(super) fn to_record(&self, group: &str) -> CoordinatorRecord {
        let tag = |(key, value): (&String, &String)| KeyValue { key: key.clone(), value: value.clone() };
        let value = StreamsGroupMemberMetadataValue {
            instance_id: self.instance_id.clone(),
            rack_id: self.rack_id.clone(),
            client_id: self.client.client_id.clone(),
            client_host: self.client.client_host.clone(),
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            topology_epoch: self.topology_epoch,
            process_id: self.process_id.to_string(),
            user_endpoint: self.endpoint.clone(),
            client_tags: self.client_tags.iter().map(tag).collect(),
        };
        StreamsGroupRecord::description(group, &self.id, Some(value)).into()
    }

    /// Takes over the description in a record.
    pub(super) fn set_description(&mut self, value: StreamsGroupMemberMetadataValue) {
        self.instance_id = value.instance_id;
        self.rack_id = value.rack_id;
        self.client = ClientInfo { client_id: value.client_id, client_host: value.client_host };
        self.rebalance_timeout_ms = value.rebalance_timeout_ms;
        self.topology_epoch = value.topology_epoch;
        self.process_id = value.process_id.into();
        self.endpoint = value.user_endpoint;
        self.client_tags = value.client_tags.into_iter().map(|tag| (tag.key, tag.value)).collect();
    }

    /// The record of the member's epoch and tasks.
    pub(super) fn to_current_record(&self, group: &str) -> CoordinatorRecord {
        let (assigned, revoking) = (&self.assigned, &self.revoking);
        let value = StreamsGroupCurrentMemberAssignmentValue {
            member_epoch: self.epoch,
            previous_member_epoch: self.previous_epoch,
            state: self.state.value(),
            active_tasks: with_epochs(&assigned.active),
            standby_tasks: ids(&assigned.standby, without_epochs),
            warmup_tasks: ids(&assigned.warmup, without_epochs),
            active_tasks_pending_revocation: with_epochs(&revoking.active),
            standby_tasks_pending_revocation: ids(&revoking.standby, without_epochs),
            warmup_tasks_pending_revocation: ids(&revoking.warmup, without_epochs),
        };
        StreamsGroupRecord::current(group, &self.id, Some(value)).into()
    }

    /// Takes over epoch and tasks of a record.
    pub(super) fn own(&mut self, value: StreamsGroupCurrentMemberAssignmentValue) {
        let epoch = value.member_epoch;
        self.epoch = epoch;
        self.previous_epoch = value.previous_member_epoch;
        self.state = MemberState::of(value.state);
        self.assigned = Arc::new(OwnedTasks {
            active: value.active_tasks.into_iter().map(|ids| at_epochs(ids, epoch)).collect(),
            standby: of_ids(value.standby_tasks),
            warmup: of_ids(value.warmup_tasks),
        });
        let revoking = value.active_tasks_pending_revocation;
        self.revoking = Arc::new(OwnedTasks {
            active: revoking.into_iter().map(|ids| at_epochs(ids, epoch)).collect(),
            standby: of_ids(value.standby_tasks_pending_revocation),
            warmup: of_ids(value.warmup_tasks_pending_revocation),
        });
    }
}

fn with_epochs(active: &ActiveTasks) -> Vec<TaskIds> {
    let ids = active.iter().map(|(id, partitions)| TaskIds {
        subtopology_id: id.to_string(),
        partitions: partitions.keys().copied().collect(),
        assignment_epochs: Some(partitions.values().copied().collect()),
    });
    ids.collect()
}

fn without_epochs(subtopology_id: String, partitions: Vec<i32>) -> TaskIds {
    TaskIds { subtopology_id, partitions, assignment_epochs: None }
}

/// Older records have no assignment epochs; the member's epoch is used instead.
fn at_epochs(ids: TaskIds, member_epoch: i32) -> (Arc<str>, BTreeMap<i32, i32>) {
    let epochs = ids.assignment_epochs.filter(|epochs| epochs.len() == ids.partitions.len());
    let epochs = epochs.unwrap_or_else(|| vec![member_epoch; ids.partitions.len()]);
    (ids.subtopology_id.into(), ids.partitions.into_iter().zip(epochs).collect())
}

fn of_ids(ids: Vec<TaskIds>) -> crate::assignor::Tasks {
    tasks(ids.into_iter().map(|ids| (ids.subtopology_id, ids.partitions)))
}

/// The record of a member's target.
pub(super) fn target_record(group: &str, member: &str, target: &TargetTasks) -> StreamsGroupRecord {
    let make = |subtopology_id, partitions| TargetIds { subtopology_id, partitions };
    let value = StreamsGroupTargetAssignmentMemberValue {
        active_tasks: ids(&target.active, make),
        standby_tasks: ids(&target.standby, make),
        warmup_tasks: ids(&target.warmup, make),
    };
    StreamsGroupRecord::member_target(group, member, Some(value))
}

/// The target in a record.
pub(super) fn target_of(value: StreamsGroupTargetAssignmentMemberValue) -> TargetTasks {
    let of = |ids: Vec<TargetIds>| tasks(ids.into_iter().map(|ids| (ids.subtopology_id, ids.partitions)));
    TargetTasks {
        active: of(value.active_tasks),
        standby: of(value.standby_tasks),
        warmup: of(value.warmup_tasks),
    }
}
