//! Counts of groups for metrics.

use super::super::kind::Group;
use super::super::offsets::View;
use super::Shard;
use thalweg_metadata::PartitionIndex;

/// A snapshot of a group.
#[derive(Clone, Debug)]
pub struct GroupFigures {
    /// Group id.
    pub id: String,
    /// Kafka's name of the group's state.
    pub state: &'static str,
    /// Number of members.
    pub members: usize,
    /// Committed offsets: topic, partition, offset.
    pub committed: Vec<(String, PartitionIndex, i64)>,
}

impl Shard {
    /// All groups, with their committed offsets.
    pub fn figures(&self) -> Vec<GroupFigures> {
        let figures = |(id, group): (&str, &Group)| {
            let committed = self.offsets.of_group(View::Acknowledged, id);
            let committed = committed.map(|(topic, partition, at)| (topic.to_owned(), partition, at.offset));
            let (state, members) = (group.state_name(), group.size());
            GroupFigures { id: id.to_owned(), state, members, committed: committed.collect() }
        };
        self.acknowledged_groups().into_iter().map(figures).collect()
    }
}
