//! Figures of many groups for lists: lags, members and assignments. Groups whose figure is unknown are left
//! out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thalweg_record::Offset;

use super::{Admin, GroupDescription, GroupKind};
use crate::metadata::Metadata;
use crate::offsets::{OffsetSpec, TopicPartition};

/// Groups per request for offsets. The limit bounds the memory of a list.
const LAGS_AT_ONCE: usize = 100;

/// The members of a group and the partitions that they read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupAssignment {
    /// The number of members.
    pub members: usize,
    pub partitions: BTreeSet<TopicPartition>,
}

/// The lag of a group over all partitions with a committed offset or a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupLag {
    Records {
        /// An offset beyond the end counts as 0.
        lag: i64,
        /// Number of partitions whose offset is beyond the end.
        beyond_end: usize,
    },
    /// The group has committed nothing, or nothing in a partition that it reads and that has records.
    Uncommitted,
}

impl GroupLag {
    /// The number of records; none if it is undefined.
    pub fn records(self) -> Option<i64> {
        match self {
            GroupLag::Records { lag, .. } => Some(lag),
            GroupLag::Uncommitted => None,
        }
    }

    /// Number of partitions whose offset is beyond the end, which count as 0.
    pub fn beyond_end(self) -> usize {
        match self {
            GroupLag::Records { beyond_end, .. } => beyond_end,
            GroupLag::Uncommitted => 0,
        }
    }

    /// The lag of a group with these committed offsets, whose members read the partitions of `read`; `None`
    /// if the end of a partition is unknown. A partition that never had a record has no lag.
    pub fn of<'a>(
        offsets: &BTreeMap<TopicPartition, Offset>,
        read: impl Iterator<Item = &'a TopicPartition>,
        end: impl Fn(&TopicPartition) -> Option<i64>,
    ) -> Option<GroupLag> {
        let of_each = offsets.iter().map(|(at, offset)| Some(end(at)? - offset.0));
        let of_each = of_each.collect::<Option<Vec<i64>>>()?;
        let uncommitted = read.filter(|at| !offsets.contains_key(*at));
        let uncommitted: Vec<i64> = uncommitted.map(&end).collect::<Option<_>>()?;
        let lag = of_each.iter().map(|lag| (*lag).max(0)).sum();
        let beyond_end = of_each.iter().filter(|lag| **lag < 0).count();
        let is_without_offsets = offsets.is_empty() && uncommitted.is_empty();
        Some(match is_without_offsets || uncommitted.iter().any(|end| *end > 0) {
            true => GroupLag::Uncommitted,
            false => GroupLag::Records { lag, beyond_end },
        })
    }
}

impl Admin {
    /// The lag of each of these groups; not for share groups. Without groups whose offsets cannot be read, or
    /// those of a partition.
    pub async fn group_lags<'a>(
        &self,
        groups: impl IntoIterator<Item = (&'a str, &'a GroupAssignment)>,
    ) -> BTreeMap<String, GroupLag> {
        let groups: BTreeMap<&str, &GroupAssignment> = groups.into_iter().collect();
        let names: Vec<String> = groups.keys().map(|group| (*group).to_owned()).collect();
        let mut lags = BTreeMap::new();
        for names in names.chunks(LAGS_AT_ONCE) {
            let read = self.list_offsets_of_groups(names, None).await;
            let offsets = read.into_iter().filter_map(|(group, found)| {
                let found = found.ok()?.into_iter().map(|(at, committed)| (at, committed.offset));
                Some((group, found.collect()))
            });
            let offsets: Vec<(String, BTreeMap<TopicPartition, Offset>)> = offsets.collect();
            let mut partitions: BTreeSet<&TopicPartition> =
                offsets.iter().flat_map(|(_, found)| found.keys()).collect();
            partitions.extend(names.iter().flat_map(|group| &groups[group.as_str()].partitions));
            let (metadata, ends) = self.ends(partitions.into_iter().cloned().collect()).await;
            let known = offsets.into_iter().filter_map(|(group, found)| {
                let read = groups.get(group.as_str())?.partitions.iter();
                // Tasks of a streams group may name more partitions than a topic has.
                let read = read.filter(|at| exists(&metadata, at));
                let lag = GroupLag::of(&found, read, |at| ends.get(at).copied())?;
                Some((group, lag))
            });
            lags.extend(known);
        }
        lags
    }

    /// The members and the assignment of each group, without groups that cannot be described.
    pub async fn group_assignments(
        &self,
        groups: &BTreeMap<GroupKind, Vec<String>>,
    ) -> BTreeMap<String, GroupAssignment> {
        let mut found = BTreeMap::new();
        for (kind, groups) in groups.iter().filter(|(_, groups)| !groups.is_empty()) {
            let described = self.describe_groups_as(*kind, groups).await.into_iter();
            found.extend(described.filter_map(|(group, found)| Some((group, found.ok()?.into()))));
        }
        found
    }

    /// The end offsets of existing partitions, and the metadata of their topics.
    async fn ends(&self, partitions: Vec<TopicPartition>) -> (Arc<Metadata>, BTreeMap<TopicPartition, i64>) {
        let topics: BTreeSet<String> = partitions.iter().map(|at| at.topic.to_string()).collect();
        let topics: Vec<String> = topics.into_iter().collect();
        if topics.is_empty() {
            return Default::default();
        }
        let Ok(metadata) = self.cluster.refresh(&topics, false).await else { return Default::default() };
        let wanted: Vec<_> = partitions.into_iter().map(|at| (at, OffsetSpec::Latest)).collect();
        let found = self.cluster.list_offsets(&wanted, false).await;
        let known = found.into_iter().filter_map(|(at, offset)| Some((at, offset.ok()?.offset.0)));
        (metadata, known.filter(|(_, offset)| *offset >= 0).collect())
    }
}

impl From<GroupDescription> for GroupAssignment {
    fn from(described: GroupDescription) -> GroupAssignment {
        let partitions = described.owners().into_keys().collect();
        GroupAssignment { members: described.members.len(), partitions }
    }
}

/// False for a partition that the topic does not have.
fn exists(metadata: &Metadata, at: &TopicPartition) -> bool {
    let topic = metadata.topics.get(&*at.topic).filter(|topic| topic.error.is_none());
    topic.is_none_or(|topic| topic.partition(at.partition).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_is_unknown_without_the_end_of_a_partition() {
        let at = |partition| TopicPartition::new("orders", partition);
        let lag = |offsets: &BTreeMap<_, _>, ends: &BTreeMap<_, i64>| {
            GroupLag::of(offsets, [].iter(), |at| ends.get(at).copied())
        };
        let mut offsets = BTreeMap::from([(at(0), Offset(100))]);
        assert_eq!(lag(&offsets, &BTreeMap::new()), None, "the partition has no leader");
        let ends = BTreeMap::from([(at(0), 130)]);
        let records = |lag| Some(GroupLag::Records { lag, beyond_end: 0 });
        assert_eq!(lag(&offsets, &ends), records(30));
        let beyond = BTreeMap::from([(at(0), 60)]);
        assert_eq!(lag(&offsets, &beyond), Some(GroupLag::Records { lag: 0, beyond_end: 1 }));
        offsets.insert(at(1), Offset(5));
        assert_eq!(lag(&offsets, &ends), None, "a part of the lag is not the lag");
        let uncommitted = Some(GroupLag::Uncommitted);
        assert_eq!(lag(&BTreeMap::new(), &ends), uncommitted, "the group has committed nothing");
    }

    #[test]
    fn a_lag_is_unknown_without_a_commit_in_a_partition_that_the_group_reads() {
        let at = |partition| TopicPartition::new("orders", partition);
        let offsets = BTreeMap::from([(at(0), Offset(100))]);
        let ends = BTreeMap::from([(at(0), 130), (at(1), 7), (at(2), 0)]);
        let lag = |offsets: &BTreeMap<_, _>, read: &[TopicPartition]| {
            GroupLag::of(offsets, read.iter(), |at| ends.get(at).copied())
        };
        assert_eq!(lag(&offsets, &[at(0), at(1)]), Some(GroupLag::Uncommitted));
        let records = |lag| Some(GroupLag::Records { lag, beyond_end: 0 });
        let whole = records(30);
        assert_eq!(lag(&offsets, &[at(0), at(2)]), whole, "partition 2 never had a record");
        assert_eq!(lag(&BTreeMap::new(), &[at(2)]), records(0));
        assert_eq!(lag(&offsets, &[at(3)]), None, "the partition has no leader");
    }
}
