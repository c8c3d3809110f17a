//! A share group of KIP-932 (`ShareGroup`): several members may read one partition, and each record goes to
//! one of them.
//!
//! ```text
//! heartbeat ──► heartbeat    the member's description; a change raises the group epoch
//!                 target     a target assignment for that epoch, of the initialized partitions
//!                 states     partitions whose state the share coordinator has to initialize
//!                    │
//!                    ▼
//!                 records ──► the log ──► apply: the group's state, here and wherever the log is loaded
//! ```
//!
//! As in a consumer group, a decision returns records, and the group changes when they are in the log. A
//! member gets its target at once, because nothing has to be revoked. A decision also returns the work of the
//! share coordinator; `thalweg_share_groups` has this work done and reports the outcome.

mod answer;
mod apply;
mod describe;
mod error;
mod heartbeat;
mod member;
mod offsets;
mod states;
mod target;

pub use answer::ShareAnswer;
pub use error::ShareGroupError;
pub(super) use heartbeat::ShareHeartbeat;
pub use offsets::{AlteredOffsets, DeletedOffsets};

use super::assignor::Assignment;
use super::config::ShareGroupTimes;
use super::modern::ModernGroup;
use super::record::{CoordinatorRecord, ShareGroupRecord};
use super::timers::Deadline;
use member::ShareGroupMember;
use states::States;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_wire::Uuid;
use thalweg_wire::group::*;
use thalweg_wire::request::list_groups_response::ListedGroup;

/// Partitions by the id of their topic.
pub type SharePartitions = BTreeMap<Uuid, BTreeSet<i32>>;

/// Share partitions whose state has to be initialized, each at an offset, or at -1 if the offset is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initialization {
    pub group: Arc<str>,
    /// Epoch of the state, which is the group epoch.
    pub state_epoch: i32,
    /// Start offsets by topic id and partition.
    pub offsets: BTreeMap<Uuid, BTreeMap<i32, i64>>,
}

/// Inputs of a group decision besides the group.
pub(super) type ShareContext<'a> = super::context::GroupContext<'a, ShareGroupTimes>;

/// A share group.
#[derive(Debug)]
pub(super) struct ShareGroup {
    modern: ModernGroup<ShareGroupMember, Assignment>,
    /// Number of members that subscribe to each topic.
    subscribers: BTreeMap<String, usize>,
    states: States,
    /// The epoch since which the hash of the topics is current; `None` when the hash has to be computed
    /// again.
    hashed_at: Cell<Option<i32>>,
    /// True if all subscribed and initialized partitions are assigned; `None` when this has to be checked
    /// again.
    is_assigned: Cell<Option<bool>>,
    /// True if all subscribed partitions are known to be initialized.
    is_initialized: Cell<bool>,
    sessions: HashMap<Arc<str>, Deadline>,
}

impl ShareGroup {
    /// A group without members or history.
    pub(super) fn new(id: Arc<str>) -> ShareGroup {
        ShareGroup {
            modern: ModernGroup::new(id),
            subscribers: BTreeMap::new(),
            states: States::default(),
            hashed_at: Cell::new(None),
            is_assigned: Cell::new(None),
            is_initialized: Cell::new(false),
            sessions: HashMap::default(),
        }
    }

    /// Kafka's name of the group's state.
    pub(super) fn state_name(&self) -> &'static str {
        if self.modern.members.is_empty() { "Empty" } else { "Stable" }
    }

    /// Number of members.
    pub(super) fn size(&self) -> usize {
        self.modern.members.len()
    }

    /// The group's entry in ListGroups.
    pub(super) fn list(&self) -> ListedGroup {
        self.modern.list("share", self.state_name())
    }

    /// True if members read the topic.
    pub(super) fn is_subscribed_to(&self, topic: &str) -> bool {
        self.subscribers.contains_key(topic)
    }

    /// Marks the topics as changed: the next heartbeat reads them.
    pub(super) fn refresh_topics(&mut self) {
        self.hashed_at.set(None);
        self.is_assigned.set(None);
        self.is_initialized.set(false);
    }

    /// The partitions whose state is initialized.
    pub(super) fn initialized(&self) -> SharePartitions {
        self.states.initialized.iter().map(|(id, topic)| (*id, topic.partitions.clone())).collect()
    }

    /// The whole state that follows from the group's records.
    #[cfg(test)]
    pub(super) fn picture(&self) -> String {
        let epochs = (
            self.modern.epoch,
            self.modern.metadata_hash,
            self.modern.target_epoch,
            self.modern.target_made_ms,
        );
        let states = [&self.states.initializing, &self.states.initialized].map(|by_topic| {
            let topic = |(id, topic): (&Uuid, &states::TopicStates)| {
                (*id, topic.name.clone(), topic.partitions.clone())
            };
            by_topic.iter().map(topic).collect::<Vec<_>>()
        });
        let deleting = &self.states.deleting;
        format!(
            "{epochs:?}\n{:?}\n{states:?}\n{deleting:?}\n{:#?}\n{:#?}",
            self.subscribers, self.modern.members, self.modern.targets
        )
    }

    fn member(&self, id: &str) -> Result<&ShareGroupMember, ShareGroupError> {
        self.modern.members.get(id).ok_or_else(|| ShareGroupError::UnknownMember(id.to_owned()))
    }

    /// Raises the group epoch, and returns it.
    fn raise_epoch(&self, metadata_hash: i64, records: &mut Vec<CoordinatorRecord>) -> i32 {
        let record = |epoch| {
            let value = ShareGroupMetadataValue { epoch, metadata_hash };
            ShareGroupRecord::Group(self.group_key(), Some(value)).into()
        };
        self.modern.raise_epoch(record, records)
    }

    fn group_key(&self) -> ShareGroupMetadataKey {
        ShareGroupMetadataKey { group_id: self.modern.id.to_string() }
    }

    /// Sorted names of the subscribed topics, without the member `without` and including the member `with`.
    fn topics_with<'a>(
        &'a self,
        without: Option<&'a ShareGroupMember>,
        with: Option<&'a ShareGroupMember>,
    ) -> BTreeSet<&'a str> {
        let is_last = |topic: &str, count: usize| {
            count == 1 && without.is_some_and(|member| member.topics.contains(topic))
        };
        let left = self.subscribers.iter().filter(|(topic, count)| !is_last(topic, **count));
        let mut names: BTreeSet<&str> = left.map(|(topic, _)| topic.as_str()).collect();
        names.extend(with.iter().flat_map(|member| member.topics.iter().map(String::as_str)));
        names
    }

    /// Tombstones for the targets of members whose own records are lost: the partitions of these targets
    /// would seem assigned.
    pub(super) fn stray_target_tombstones(&self) -> Vec<CoordinatorRecord> {
        let mut records = Vec::new();
        self.modern.push_member_tombstones::<ShareGroupRecord>(self.modern.lost_members(), &mut records);
        records
    }

    /// Pushes the records that delete the group.
    pub(super) fn push_tombstones(&self, records: &mut Vec<CoordinatorRecord>) {
        let ids = self.modern.members.keys().map(|id| &**id);
        self.modern.push_tombstones::<ShareGroupRecord>(ids, records);
        records.push(states::tombstone(&self.modern.id));
        records.push(ShareGroupRecord::Group(self.group_key(), None).into());
    }
}
