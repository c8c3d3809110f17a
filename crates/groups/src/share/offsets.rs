//! Setting and deleting the offsets of a share group without members, and deleting the group: the states that
//! the share coordinator has to change, and the records before and after.

use super::error::ShareGroupError;
use super::states::{States, StatesByTopic, TopicStates};
use super::{Initialization, ShareContext, ShareGroup, SharePartitions};
use crate::record::CoordinatorRecord;
use crate::topics::TopicsView;
use std::collections::{BTreeMap, BTreeSet};
use thalweg_wire::request::alter_share_group_offsets_request::AlterShareGroupOffsetsRequestTopic;
use thalweg_wire::request::alter_share_group_offsets_response::{
    AlterShareGroupOffsetsResponsePartition, AlterShareGroupOffsetsResponseTopic,
};
use thalweg_wire::request::delete_share_group_offsets_response::DeleteShareGroupOffsetsResponseTopic;
use thalweg_wire::{ErrorCode, Uuid};

/// The outcome of a request to set offsets.
#[derive(Clone, Debug, PartialEq)]
pub struct AlteredOffsets {
    /// The answer, if all states are initialized.
    pub topics: Vec<AlterShareGroupOffsetsResponseTopic>,
    /// The states to initialize.
    pub initialization: Initialization,
}

/// The outcome of a request to delete the offsets of topics.
#[derive(Clone, Debug, PartialEq)]
pub struct DeletedOffsets {
    /// Topics without offsets.
    pub refused: Vec<DeleteShareGroupOffsetsResponseTopic>,
    /// The states to delete.
    pub states: SharePartitions,
}

const UNKNOWN: ErrorCode = ErrorCode::UnknownTopicOrPartition;
const NO_SUCH_PARTITION: &str = "The topic has no such partition";

impl ShareGroup {
    fn check_empty(&self) -> Result<(), ShareGroupError> {
        if self.modern.members.is_empty() { Ok(()) } else { Err(ShareGroupError::NotEmpty) }
    }

    /// The states that the group has or may have.
    fn known_states(&self, topics: &dyn TopicsView) -> SharePartitions {
        let mut known = self.initialized();
        for (id, topic) in &self.states.initializing {
            known.entry(*id).or_default().extend(&topic.partitions);
        }
        // A failed deletion is repeated.
        for id in &self.states.deleting {
            if let Some(count) = topics.partition_count(*id) {
                known.entry(*id).or_default().extend(0..count);
            }
        }
        known
    }

    /// Sets offsets, at which the states start again.
    pub(in super::super) fn alter_offsets(
        &self,
        cx: &ShareContext<'_>,
        topics: &[AlterShareGroupOffsetsRequestTopic],
    ) -> Result<(Vec<CoordinatorRecord>, AlteredOffsets), ShareGroupError> {
        self.check_empty()?;
        let mut answered = Vec::with_capacity(topics.len());
        let mut offsets: BTreeMap<Uuid, BTreeMap<i32, i64>> = BTreeMap::new();
        let mut initializing = StatesByTopic::new();
        for topic in topics {
            let id = cx.topics.id(&topic.topic_name);
            let count = id.and_then(|id| cx.topics.partition_count(id)).unwrap_or(0);
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for requested in &topic.partitions {
                let partition_index = requested.partition_index;
                let mut answer =
                    AlterShareGroupOffsetsResponsePartition { partition_index, ..Default::default() };
                match id {
                    // Like Kafka, which forwards a negative index to the share coordinator for refusal.
                    Some(id) if partition_index < count => {
                        offsets.entry(id).or_default().insert(partition_index, requested.start_offset);
                    }
                    _ => {
                        answer.error_code = UNKNOWN.code();
                        answer.error_message = Some(NO_SUCH_PARTITION.to_owned());
                    }
                }
                partitions.push(answer);
            }
            if let Some(id) = id {
                let partitions = offsets.get(&id).map(|some| some.keys().copied().collect());
                let (name, partitions) = (topic.topic_name.clone(), partitions.unwrap_or_default());
                initializing.insert(id, TopicStates { name, partitions, at_ms: cx.now.wall_ms });
            }
            answered.push(AlterShareGroupOffsetsResponseTopic {
                topic_name: topic.topic_name.clone(),
                topic_id: id.unwrap_or_default(),
                partitions,
            });
        }
        let mut records = Vec::new();
        if !initializing.is_empty() {
            records.push(self.states.initializing(&initializing).to_record(&self.modern.id, cx.topics));
        }
        let initialization =
            Initialization { group: self.modern.id.clone(), state_epoch: self.modern.epoch, offsets };
        Ok((records, AlteredOffsets { topics: answered, initialization }))
    }

    /// Deletes the offsets of topics by deleting their states.
    pub(in super::super) fn delete_offsets(
        &self,
        cx: &ShareContext<'_>,
        names: &[String],
    ) -> Result<(Vec<CoordinatorRecord>, DeletedOffsets), ShareGroupError> {
        self.check_empty()?;
        let mut next = self.states.clone();
        let (mut refused, mut states) = (Vec::new(), SharePartitions::new());
        for name in names {
            let refusal = |message: &str| DeleteShareGroupOffsetsResponseTopic {
                topic_name: name.clone(),
                error_code: UNKNOWN.code(),
                error_message: Some(message.to_owned()),
                ..Default::default()
            };
            let Some(id) = cx.topics.id(name) else {
                refused.push(refusal("The topic does not exist"));
                continue;
            };
            if let Some(topic) = next.initialized.remove(&id) {
                states.insert(id, topic.partitions);
                next.deleting.insert(id);
            } else if next.deleting.contains(&id) {
                let count = cx.topics.partition_count(id).unwrap_or(0);
                states.insert(id, (0..count).collect());
            } else {
                refused.push(refusal("There is no offset information to delete."));
            }
        }
        let records = match self.states == States::default() {
            // The group never had a state.
            true => Vec::new(),
            false => vec![next.to_record(&self.modern.id, cx.topics)],
        };
        Ok((records, DeletedOffsets { refused, states }))
    }

    /// Records the deletion of the states of topics.
    pub(in super::super) fn offsets_deleted(
        &self,
        topics: &BTreeSet<Uuid>,
        all: &dyn TopicsView,
    ) -> Vec<CoordinatorRecord> {
        let mut next = self.states.clone();
        next.deleting.retain(|topic| !topics.contains(topic));
        vec![next.to_record(&self.modern.id, all)]
    }

    /// Prepares the deletion of the group, before which all states are deleted.
    pub(in super::super) fn delete_states(
        &self,
        topics: &dyn TopicsView,
    ) -> Result<(Vec<CoordinatorRecord>, SharePartitions), ShareGroupError> {
        self.check_empty()?;
        if self.states == States::default() {
            return Ok((Vec::new(), SharePartitions::new()));
        }
        let states = self.known_states(topics);
        let deleting = States { deleting: states.keys().copied().collect(), ..States::default() };
        Ok((vec![deleting.to_record(&self.modern.id, topics)], states))
    }

    /// Records that partitions were initialized, or failed to be. Topics that were deleted meanwhile have no
    /// states.
    pub(in super::super) fn states_answered(
        &self,
        partitions: &SharePartitions,
        succeeded: bool,
        topics: &dyn TopicsView,
        now_ms: i64,
    ) -> Vec<CoordinatorRecord> {
        let topic = |(id, partitions): (&Uuid, &BTreeSet<i32>)| {
            let name = topics.name(*id)?;
            Some((*id, TopicStates { name, partitions: partitions.clone(), at_ms: now_ms }))
        };
        let answered: StatesByTopic = partitions.iter().filter_map(topic).collect();
        let next = match succeeded {
            true => self.states.initialized(&answered),
            false => self.states.failed(&answered),
        };
        let is_gone = |id| partitions.contains_key(&id) && !answered.contains_key(&id);
        let next = next.without_topics(is_gone).unwrap_or(next);
        if next == self.states { Vec::new() } else { vec![next.to_record(&self.modern.id, topics)] }
    }

    /// Removes deleted topics, whose states the share coordinator deletes too.
    pub(in super::super) fn topics_deleted(
        &self,
        gone: impl Fn(Uuid) -> bool,
        topics: &dyn TopicsView,
    ) -> Option<CoordinatorRecord> {
        let next = self.states.without_topics(gone)?;
        Some(next.to_record(&self.modern.id, topics))
    }
}
