//! The share partitions of a group with a state at the share coordinator
//! (`ShareGroupStatePartitionMetadataInfo`).
//!
//! A group assigns a partition only once the partition's state is initialized. A subscribed topic is first
//! recorded as initializing; then the share coordinator is asked; then the outcome is recorded. A request
//! without an answer for `group.share.initialize.retry.interval.ms`, as after a crash, is repeated. Topics
//! whose state is being deleted are recorded too, so that a failed deletion can be repeated.

use crate::record::CoordinatorRecord;
use crate::record::ShareGroupRecord;
use crate::topics::TopicsView;
use std::collections::{BTreeMap, BTreeSet};
use thalweg_wire::Uuid;
use thalweg_wire::group::share_group_state_partition_metadata_value::{TopicInfo, TopicPartitionsInfo};
use thalweg_wire::group::{ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue};

/// Kafka's name of a deleted topic in records.
const UNKNOWN: &str = "<UNKNOWN>";

/// Partitions of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopicStates {
    pub(super) name: String,
    pub(super) partitions: BTreeSet<i32>,
    /// Wall-clock time at which the record was applied.
    pub(super) at_ms: i64,
}

/// Partitions by their topic.
pub(super) type StatesByTopic = BTreeMap<Uuid, TopicStates>;

/// The share partitions of a group by the progress of their states at the share coordinator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct States {
    pub(super) initializing: StatesByTopic,
    pub(super) initialized: StatesByTopic,
    pub(super) deleting: BTreeSet<Uuid>,
}

/// The union of two maps. The later name and time win.
pub(super) fn union(one: &StatesByTopic, other: &StatesByTopic) -> StatesByTopic {
    let mut all = one.clone();
    for (topic, more) in other {
        match all.get_mut(topic) {
            Some(known) => {
                known.partitions.extend(&more.partitions);
                known.name.clone_from(&more.name);
                known.at_ms = more.at_ms;
            }
            None => drop(all.insert(*topic, more.clone())),
        }
    }
    all
}

impl States {
    /// The states of a record that is applied at `now_ms`.
    pub(super) fn of(value: ShareGroupStatePartitionMetadataValue, now_ms: i64) -> States {
        let topic = |topic: TopicPartitionsInfo| {
            let partitions = topic.partitions.into_iter().collect();
            (topic.topic_id, TopicStates { name: topic.topic_name, partitions, at_ms: now_ms })
        };
        States {
            initializing: value.initializing_topics.into_iter().map(topic).collect(),
            initialized: value.initialized_topics.into_iter().map(topic).collect(),
            deleting: value.deleting_topics.into_iter().map(|topic| topic.topic_id).collect(),
        }
    }

    /// The record of a group's states.
    pub(super) fn to_record(&self, group: &str, topics: &dyn TopicsView) -> CoordinatorRecord {
        let partitions = |(topic_id, topic): (&Uuid, &TopicStates)| TopicPartitionsInfo {
            topic_id: *topic_id,
            topic_name: topic.name.clone(),
            partitions: topic.partitions.iter().copied().collect(),
        };
        let deleting = |topic_id: &Uuid| TopicInfo {
            topic_id: *topic_id,
            topic_name: topics.name(*topic_id).unwrap_or_else(|| UNKNOWN.to_owned()),
        };
        let value = ShareGroupStatePartitionMetadataValue {
            initializing_topics: self.initializing.iter().map(partitions).collect(),
            initialized_topics: self.initialized.iter().map(partitions).collect(),
            deleting_topics: self.deleting.iter().map(deleting).collect(),
        };
        ShareGroupRecord::States(key(group), Some(value)).into()
    }

    /// True if the state of a partition is initialized.
    pub(super) fn is_initialized(&self, topic: Uuid, partition: i32) -> bool {
        self.initialized.get(&topic).is_some_and(|topic| topic.partitions.contains(&partition))
    }

    /// The partitions of these topics that are neither initialized nor were recently being initialized.
    pub(super) fn missing<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
        topics: &dyn TopicsView,
        now_ms: i64,
        retry_ms: i64,
    ) -> StatesByTopic {
        let mut missing = StatesByTopic::new();
        for name in names {
            let Some(id) = topics.id(name) else { continue };
            let Some(count) = topics.partition_count(id) else { continue };
            // A time in the future means that the clock was set back.
            let is_lately = |at_ms: i64| (0..retry_ms).contains(&now_ms.saturating_sub(at_ms));
            let fresh = self.initializing.get(&id).filter(|topic| is_lately(topic.at_ms));
            let known = [self.initialized.get(&id), fresh];
            let is_known = |index: &i32| known.iter().flatten().any(|topic| topic.partitions.contains(index));
            let partitions: BTreeSet<i32> = (0..count).filter(|index| !is_known(index)).collect();
            if !partitions.is_empty() {
                missing.insert(id, TopicStates { name: name.to_owned(), partitions, at_ms: now_ms });
            }
        }
        missing
    }

    /// The states with more partitions to initialize. A topic that was being deleted no longer is.
    pub(super) fn initializing(&self, more: &StatesByTopic) -> States {
        let initializing = union(&self.initializing, more);
        let deleting = self.deleting.iter().copied().filter(|topic| !initializing.contains_key(topic));
        States { deleting: deleting.collect(), initializing, initialized: self.initialized.clone() }
    }

    /// The states after the share coordinator has initialized partitions.
    pub(super) fn initialized(&self, done: &StatesByTopic) -> States {
        States {
            initializing: without(&self.initializing, done),
            initialized: union(&self.initialized, done),
            deleting: self.deleting.clone(),
        }
    }

    /// The states after the initialization of partitions failed.
    pub(super) fn failed(&self, failed: &StatesByTopic) -> States {
        States { initializing: without(&self.initializing, failed), ..self.clone() }
    }

    /// The states without deleted topics; `None` if nothing changes.
    pub(super) fn without_topics(&self, gone: impl Fn(Uuid) -> bool) -> Option<States> {
        let mut states = self.clone();
        states.initializing.retain(|topic, _| !gone(*topic));
        states.initialized.retain(|topic, _| !gone(*topic));
        states.deleting.retain(|topic| !gone(*topic));
        (states != *self).then_some(states)
    }
}

fn without(all: &StatesByTopic, some: &StatesByTopic) -> StatesByTopic {
    let mut rest = all.clone();
    rest.retain(|topic, of_topic| {
        if let Some(gone) = some.get(topic) {
            of_topic.partitions.retain(|index| !gone.partitions.contains(index));
        }
        !of_topic.partitions.is_empty()
    });
    rest
}

fn key(group: &str) -> ShareGroupStatePartitionMetadataKey {
    ShareGroupStatePartitionMetadataKey { group_id: group.to_owned() }
}

/// The tombstone of a group's states.
pub(super) fn tombstone(group: &str) -> CoordinatorRecord {
    ShareGroupRecord::States(key(group), None).into()
}
