//! A member of a consumer group (`ConsumerGroupMember`), and its records.

use crate::assignor::{Assignment, by_topic};
use crate::client::ClientInfo;
use crate::record::{ConsumerRecord, CoordinatorRecord, ModernRecord};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_wire::Uuid;
use thalweg_wire::group::consumer_group_current_member_assignment_value::TopicPartitions as OwnedPartitions;
use thalweg_wire::group::consumer_group_member_metadata_value::{ClassicMemberMetadata, ClassicProtocol};
use thalweg_wire::group::consumer_group_target_assignment_member_value::TopicPartition;
use thalweg_wire::group::*;

/// A member's distance from its target assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum MemberState {
    /// The member owns its target at its epoch.
    Stable,
    /// The member has to revoke partitions before it moves to the next epoch.
    UnrevokedPartitions,
    /// The member waits for partitions that other members still own.
    UnreleasedPartitions,
    /// A state of a later version: the member has to join again.
    Unknown,
}

impl MemberState {
    fn of(value: i8) -> MemberState {
        match value {
            0 => MemberState::Stable,
            1 => MemberState::UnrevokedPartitions,
            2 => MemberState::UnreleasedPartitions,
            _ => MemberState::Unknown,
        }
    }

    fn value(self) -> i8 {
        match self {
            MemberState::Stable => 0,
            MemberState::UnrevokedPartitions => 1,
            MemberState::UnreleasedPartitions => 2,
            MemberState::Unknown => 127,
        }
    }
}

/// Partitions by the id of their topic, each with the epoch of the member at which it was assigned.
pub(in super::super) type PartitionEpochs = BTreeMap<Uuid, BTreeMap<i32, i32>>;

/// The protocols of a member that uses the classic protocol (KIP-848, migration).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct ClassicMember {
    pub(super) session_timeout_ms: i32,
    /// Names and metadata, in the order of preference.
    pub(super) protocols: Vec<(String, Bytes)>,
}

/// A member. Every change makes a new value that shares the large, unchanged parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct ConsumerGroupMember {
    pub(super) id: Arc<str>,
    pub(super) epoch: i32,
    pub(super) previous_epoch: i32,
    pub(super) state: MemberState,
    pub(super) instance_id: Option<Arc<str>>,
    pub(super) rack_id: Option<String>,
    pub(super) rebalance_timeout_ms: i32,
    pub(super) client: ClientInfo,
    pub(super) topics: Arc<BTreeSet<String>>,
    /// The record's value: null, or empty for none.
    pub(super) regex: Option<Arc<str>>,
    pub(super) assignor: Option<String>,
    /// Partitions that the member may use.
    pub(super) assigned: Arc<PartitionEpochs>,
    /// Partitions that the member has to revoke.
    pub(super) revoking: Arc<PartitionEpochs>,
    pub(super) classic: Option<Arc<ClassicMember>>,
}

impl ConsumerGroupMember {
    /// A member without a description.
    pub(super) fn new(id: Arc<str>) -> ConsumerGroupMember {
        ConsumerGroupMember {
            id,
            epoch: 0,
            previous_epoch: -1,
            state: MemberState::Stable,
            instance_id: None,
            rack_id: None,
            rebalance_timeout_ms: -1,
            client: ClientInfo { client_id: String::new(), client_host: String::new() },
            topics: Arc::default(),
            regex: Some("".into()),
            assignor: None,
            assigned: Arc::default(),
            revoking: Arc::default(),
            classic: None,
        }
    }

    /// The subscribed regular expression.
    pub(super) fn regex(&self) -> Option<&str> {
        self.regex.as_deref().filter(|regex| !regex.is_empty())
    }

    /// True if the member has reached its target at this epoch.
    pub(super) fn is_reconciled_to(&self, epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == epoch
    }

    /// Moves to an epoch, and remembers the previous one.
    pub(super) fn move_to_epoch(&mut self, epoch: i32) {
        self.previous_epoch = self.epoch;
        self.epoch = epoch;
    }

    /// True if both members have the same description.
    pub(super) fn has_same_description(&self, other: &ConsumerGroupMember) -> bool {
        self.instance_id == other.instance_id
            && self.rack_id == other.rack_id
            && self.rebalance_timeout_ms == other.rebalance_timeout_ms
            && self.client == other.client
            && self.topics == other.topics
            && self.regex == other.regex
            && self.assignor == other.assignor
            && self.classic == other.classic
            && self.id == other.id
    }

    /// The record of the member's description.
    pub(super) fn to_record(&self, group: &str) -> CoordinatorRecord {
        let classic = self.classic.as_ref().map(|classic| ClassicMemberMetadata {
            session_timeout_ms: classic.session_timeout_ms,
            supported_protocols: classic
                .protocols
                .iter()
                .map(|(name, metadata)| ClassicProtocol { name: name.clone(), metadata: metadata.clone() })
                .collect(),
        });
        let value = ConsumerGroupMemberMetadataValue {
            instance_id: self.instance_id.as_deref().map(str::to_owned),
            rack_id: self.rack_id.clone(),
            client_id: self.client.client_id.clone(),
            client_host: self.client.client_host.clone(),
            subscribed_topic_names: self.topics.iter().cloned().collect(),
            subscribed_topic_regex: self.regex.as_deref().map(str::to_owned),
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            server_assignor: self.assignor.clone(),
            classic_member_metadata: classic,
        };
        ConsumerRecord::description(group, &self.id, Some(value)).into()
    }

    /// Takes over the description in a record.
    pub(super) fn set_description(&mut self, value: ConsumerGroupMemberMetadataValue) {
        self.instance_id = value.instance_id.map(Arc::from);
        self.rack_id = value.rack_id;
        self.client = ClientInfo { client_id: value.client_id, client_host: value.client_host };
        self.topics = Arc::new(value.subscribed_topic_names.into_iter().collect());
        self.regex = value.subscribed_topic_regex.map(Arc::from);
        self.rebalance_timeout_ms = value.rebalance_timeout_ms;
        self.assignor = value.server_assignor;
        self.classic = value.classic_member_metadata.map(|classic| {
            let protocols = classic.supported_protocols.into_iter().map(|p| (p.name, p.metadata)).collect();
            Arc::new(ClassicMember { session_timeout_ms: classic.session_timeout_ms, protocols })
        });
    }

    /// The record of the member's epoch, state and partitions.
    pub(super) fn to_current_record(&self, group: &str) -> CoordinatorRecord {
        let value = ConsumerGroupCurrentMemberAssignmentValue {
            member_epoch: self.epoch,
            previous_member_epoch: self.previous_epoch,
            state: self.state.value(),
            assigned_partitions: to_owned_partitions(&self.assigned),
            partitions_pending_revocation: to_owned_partitions(&self.revoking),
        };
        ConsumerRecord::current(group, &self.id, Some(value)).into()
    }

    /// Takes over epoch, state and partitions of a record.
    pub(super) fn own(&mut self, value: ConsumerGroupCurrentMemberAssignmentValue) {
        self.epoch = value.member_epoch;
        self.previous_epoch = value.previous_member_epoch;
        self.state = MemberState::of(value.state);
        self.assigned = Arc::new(from_owned_partitions(value.assigned_partitions, value.member_epoch));
        self.revoking =
            Arc::new(from_owned_partitions(value.partitions_pending_revocation, value.member_epoch));
    }

    /// The epoch at which a partition was assigned, if the member owns it.
    pub(super) fn assigned_at(&self, topic: Uuid, partition: i32) -> Option<i32> {
        let find = |owned: &PartitionEpochs| owned.get(&topic)?.get(&partition).copied();
        find(&self.assigned).or_else(|| find(&self.revoking))
    }
}

fn to_owned_partitions(owned: &PartitionEpochs) -> Vec<OwnedPartitions> {
    let topic = |(topic_id, partitions): (&Uuid, &BTreeMap<i32, i32>)| OwnedPartitions {
        topic_id: *topic_id,
        partitions: partitions.keys().copied().collect(),
        assignment_epochs: Some(partitions.values().copied().collect()),
    };
    owned.iter().map(topic).collect()
}

/// Records before Kafka 4.3 have no assignment epochs; the member's epoch is used instead.
fn from_owned_partitions(topics: Vec<OwnedPartitions>, member_epoch: i32) -> PartitionEpochs {
    let topic = |topic: OwnedPartitions| {
        let epochs = topic.assignment_epochs.filter(|epochs| epochs.len() == topic.partitions.len());
        let partitions = match epochs {
            Some(epochs) => topic.partitions.into_iter().zip(epochs).collect(),
            None => topic.partitions.into_iter().map(|partition| (partition, member_epoch.max(0))).collect(),
        };
        (topic.topic_id, partitions)
    };
    topics.into_iter().map(topic).collect()
}

/// The record of a member's target.
pub(super) fn target_record(group: &str, member: &str, target: &Assignment) -> ConsumerRecord {
    let topic_partitions = by_topic(target, |topic_id, partitions| TopicPartition { topic_id, partitions });
    let value = ConsumerGroupTargetAssignmentMemberValue { topic_partitions };
    ConsumerRecord::member_target(group, member, Some(value))
}

/// The target in a record.
pub(super) fn target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> Assignment {
    let topic = |topic: TopicPartition| (topic.topic_id, topic.partitions.into_iter().collect());
    value.topic_partitions.into_iter().map(topic).collect()
}
