//! Figures of many groups for lists: lags and numbers of members. Groups whose figure is unknown are left
//! out.

use std::collections::{BTreeMap, BTreeSet};

use super::{Admin, GroupKind};
use crate::offsets::{CommittedOffset, OffsetSpec, TopicPartition};

/// Groups per request for offsets. The limit bounds the memory of a list.
const LAGS_AT_ONCE: usize = 100;

impl Admin {
    /// The lag of each group in records, over all partitions with a committed offset. Without share groups,
    /// and without groups whose offsets the login may not read.
    pub async fn group_lags(&self, groups: &[String]) -> BTreeMap<String, i64> {
        let mut lags = BTreeMap::new();
        for groups in groups.chunks(LAGS_AT_ONCE) {
            let read = self.list_offsets_of_groups(groups, None).await;
            let offsets: Vec<_> =
                read.into_iter().filter_map(|(group, found)| Some((group, found.ok()?))).collect();
            let partitions: BTreeSet<&TopicPartition> =
                offsets.iter().flat_map(|(_, found)| found.keys()).collect();
            let ends = self.ends(partitions.into_iter().cloned().collect()).await;
            let known = offsets.into_iter().filter_map(|(group, found)| Some((group, lag(&found, &ends)?)));
            lags.extend(known);
        }
        lags
    }

    /// The number of members of each group.
    pub async fn group_member_counts(
        &self,
        groups: &BTreeMap<GroupKind, Vec<String>>,
    ) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (kind, groups) in groups.iter().filter(|(_, groups)| !groups.is_empty()) {
            let described = self.describe_groups_as(*kind, groups).await.into_iter();
            counts.extend(described.filter_map(|(group, found)| Some((group, found.ok()?.members.len()))));
        }
        counts
    }

    /// The end offsets of existing partitions.
    async fn ends(&self, partitions: Vec<TopicPartition>) -> BTreeMap<TopicPartition, i64> {
        let topics: BTreeSet<String> = partitions.iter().map(|at| at.topic.to_string()).collect();
        let topics: Vec<String> = topics.into_iter().collect();
        if topics.is_empty() || self.cluster.refresh(&topics, false).await.is_err() {
            return BTreeMap::new();
        }
        let wanted: Vec<_> = partitions.into_iter().map(|at| (at, OffsetSpec::Latest)).collect();
        let found = self.cluster.list_offsets(&wanted, false).await;
        let known = found.into_iter().filter_map(|(at, offset)| Some((at, offset.ok()?.offset.0)));
        known.filter(|(_, offset)| *offset >= 0).collect()
    }
}

/// The lag over all partitions; `None` if the end of one is unknown, as without a leader.
fn lag(
    offsets: &BTreeMap<TopicPartition, CommittedOffset>,
    ends: &BTreeMap<TopicPartition, i64>,
) -> Option<i64> {
    let of_each = offsets.iter().map(|(at, committed)| Some((ends.get(at)? - committed.offset.0).max(0)));
    of_each.sum()
}

#[cfg(test)]
mod tests {
    use thalweg_record::Offset;

    use super::*;

    #[test]
    fn a_lag_is_unknown_without_the_end_of_a_partition() {
        let at = |partition| TopicPartition::new("orders", partition);
        let committed = |offset| CommittedOffset::new(Offset(offset));
        let mut offsets = BTreeMap::from([(at(0), committed(100))]);
        assert_eq!(lag(&offsets, &BTreeMap::new()), None, "the partition has no leader");
        let ends = BTreeMap::from([(at(0), 130)]);
        assert_eq!(lag(&offsets, &ends), Some(30));
        offsets.insert(at(1), committed(5));
        assert_eq!(lag(&offsets, &ends), None, "a part of the lag is not the lag");
        assert_eq!(lag(&BTreeMap::new(), &ends), Some(0));
    }
}
