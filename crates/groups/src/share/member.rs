//! A member of a share group (`ShareGroupMember`), and its records.

use crate::assignor::{Assignment, by_topic};
use crate::client::ClientInfo;
use crate::record::{CoordinatorRecord, ModernRecord, ShareGroupRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_wire::Uuid;
use thalweg_wire::group::share_group_current_member_assignment_value::TopicPartitions;
use thalweg_wire::group::share_group_target_assignment_member_value::TopicPartition;
use thalweg_wire::group::*;

/// A member that has its target partitions. Members of share groups have no other state.
const STABLE: i8 = 0;

/// A member. Every change makes a new value that shares the large, unchanged parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShareGroupMember {
    pub(super) id: Arc<str>,
    pub(super) epoch: i32,
    pub(super) previous_epoch: i32,
    /// State code of the record.
    pub(super) state: i8,
    pub(super) rack_id: Option<String>,
    pub(super) client: ClientInfo,
    pub(super) topics: Arc<BTreeSet<String>>,
    /// Partitions that the member reads.
    pub(super) assigned: Arc<Assignment>,
}

impl ShareGroupMember {
    /// A member without a description.
    pub(super) fn new(id: Arc<str>) -> ShareGroupMember {
        ShareGroupMember {
            id,
            epoch: 0,
            previous_epoch: -1,
            state: STABLE,
            rack_id: None,
            client: ClientInfo { client_id: String::new(), client_host: String::new() },
            topics: Arc::default(),
            assigned: Arc::default(),
        }
    }

    /// True if the member has reached its target at this epoch.
    pub(super) fn is_reconciled_to(&self, epoch: i32) -> bool {
        self.state == STABLE && self.epoch == epoch
    }

    /// The member at the epoch of a target, with the target's partitions.
    pub(super) fn at_target(&self, epoch: i32, assigned: Arc<Assignment>) -> ShareGroupMember {
        if epoch == self.epoch {
            return ShareGroupMember { assigned, ..self.clone() };
        }
        ShareGroupMember { epoch, previous_epoch: self.epoch, state: STABLE, assigned, ..self.clone() }
    }

    /// The record of the member's description.
    pub(super) fn to_record(&self, group: &str) -> CoordinatorRecord {
        let value = ShareGroupMemberMetadataValue {
            rack_id: self.rack_id.clone(),
            client_id: self.client.client_id.clone(),
            client_host: self.client.client_host.clone(),
            subscribed_topic_names: self.topics.iter().cloned().collect(),
        };
        ShareGroupRecord::description(group, &self.id, Some(value)).into()
    }

    /// Takes over the description in a record.
    pub(super) fn set_description(&mut self, value: ShareGroupMemberMetadataValue) {
        self.rack_id = value.rack_id;
        self.client = ClientInfo { client_id: value.client_id, client_host: value.client_host };
        self.topics = Arc::new(value.subscribed_topic_names.into_iter().collect());
    }

    /// The record of the member's epoch and partitions.
    pub(super) fn to_current_record(&self, group: &str) -> CoordinatorRecord {
        let make = |topic_id, partitions| TopicPartitions { topic_id, partitions };
        let value = ShareGroupCurrentMemberAssignmentValue {
            member_epoch: self.epoch,
            previous_member_epoch: self.previous_epoch,
            state: self.state,
            assigned_partitions: by_topic(&self.assigned, make),
        };
        ShareGroupRecord::current(group, &self.id, Some(value)).into()
    }

    /// Takes over epoch and partitions of a record.
    pub(super) fn own(&mut self, value: ShareGroupCurrentMemberAssignmentValue) {
        self.epoch = value.member_epoch;
        self.previous_epoch = value.previous_member_epoch;
        self.state = value.state;
        let topic = |topic: TopicPartitions| (topic.topic_id, topic.partitions.into_iter().collect());
        self.assigned = Arc::new(value.assigned_partitions.into_iter().map(topic).collect());
    }
}

/// The record of a member's target.
pub(super) fn target_record(group: &str, member: &str, target: &Assignment) -> ShareGroupRecord {
    let topic_partitions = by_topic(target, |topic_id, partitions| TopicPartition { topic_id, partitions });
    let value = ShareGroupTargetAssignmentMemberValue { topic_partitions };
    ShareGroupRecord::member_target(group, member, Some(value))
}

/// The target in a record.
pub(super) fn target_of(value: ShareGroupTargetAssignmentMemberValue) -> Assignment {
    let topic = |topic: TopicPartition| (topic.topic_id, topic.partitions.into_iter().collect());
    value.topic_partitions.into_iter().map(topic).collect()
}

/// Partitions by topic, without topics that `keeps` rejects. Shares the allocation if no topic is removed.
pub(super) fn filtered(target: &Arc<Assignment>, keeps: impl Fn(Uuid) -> bool) -> Arc<Assignment> {
    if target.keys().all(|topic| keeps(*topic)) {
        return Arc::clone(target);
    }
    let kept: BTreeMap<_, _> =
        target.iter().filter(|(topic, _)| keeps(**topic)).map(|(topic, p)| (*topic, p.clone())).collect();
    Arc::new(kept)
}
