//! Counts of groups for metrics.

use super::GroupShard;
use crate::kind::Group;
use crate::offsets::OffsetsVersion;
use thalweg_metadata::PartitionIndex;

/// A snapshot of a group.
#[derive(Clone, Debug)]
pub struct GroupFigures {
    pub id: String,
    /// Kafka's name of the group's state.
    pub state: &'static str,
    /// Number of members.
    pub members: usize,
    /// Committed offsets: topic, partition, offset.
    pub committed: Vec<(String, PartitionIndex, i64)>,
}

impl GroupShard {
    /// Passes each committed offset on, with its group, topic and partition, group by group.
    pub fn each_committed(&self, each: &mut dyn FnMut(&str, &str, PartitionIndex, i64)) {
        for (id, _) in self.acknowledged_groups() {
            for (topic, partition, at) in self.offsets.of_group(OffsetsVersion::Acknowledged, id) {
                each(id, topic, partition, at.offset);
            }
        }
    }

    /// All groups, with their committed offsets.
    pub fn figures(&self) -> Vec<GroupFigures> {
        let figures = |(id, group): (&str, &Group)| {
            let committed = self.offsets.of_group(OffsetsVersion::Acknowledged, id);
            let committed = committed.map(|(topic, partition, at)| (topic.to_owned(), partition, at.offset));
            let (state, members) = (group.state_name(), group.size());
            GroupFigures { id: id.to_owned(), state, members, committed: committed.collect() }
        };
        self.acknowledged_groups().into_iter().map(figures).collect()
    }
}
