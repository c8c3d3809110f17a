//! The groups that read a topic: those with committed offsets in it, and those whose members are assigned
//! partitions of it.
//!
//! Kafka's protocol answers for groups, not for topics, so that all groups are looked at, within limits:
//! [`TopicGroups::omitted`] has the number of groups that were not.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_dial::{ClientError, RefusedRequest};
use thalweg_record::Offset;
use thalweg_wire::ErrorCode;

use super::group_reading::{GroupReading, kind};
use super::{Admin, GroupDescription, GroupKind, GroupListing, GroupMember};
use crate::offsets::{ListedOffset, OffsetSpec, TopicPartition};

/// Maximum number of different offsets of a partition whose records are requested for their age.
const AGES_MAX: usize = 50;
/// The groups that read a topic, by group id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicGroups {
    /// The groups that read the topic.
    pub groups: Vec<TopicGroup>,
    /// Number of groups that were not looked at, or not completely: beyond a limit of number or time, without
    /// an answer of their coordinator, or hidden from the login.
    pub omitted: usize,
}

/// A group that reads a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicGroup {
    /// The group id.
    pub group: String,
    pub kind: GroupKind,
    /// The group's state, such as `Stable` or `Empty`.
    pub state: String,
    /// The members that read partitions of the topic.
    pub members: Vec<GroupMember>,
    /// The partitions with a committed offset or a reader, in order.
    pub partitions: Vec<TopicGroupPartition>,
}

/// A partition that a group reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicGroupPartition {
    pub partition: i32,
    /// The committed offset, or the share group's start offset.
    pub offset: Option<Offset>,
    /// Records up to the end; negative if the offset is beyond the end.
    pub lag: Option<i64>,
    /// The age of the first unread record in milliseconds; 0 without a lag.
    pub lag_ms: Option<i64>,
    /// The members that read the partition, as indexes into the group's `members`.
    pub readers: Vec<usize>,
}

impl TopicGroup {
    /// The lag in records over all partitions; `None` if the lag of one is unknown, as without a committed
    /// offset. An offset beyond the end counts as 0.
    pub fn lag(&self) -> Option<i64> {
        let mut lags = self.partitions.iter().map(|partition| partition.lag);
        lags.try_fold(0_i64, |sum, lag| Some(sum.saturating_add(lag?.max(0))))
    }

    /// Number of partitions whose offset is beyond the end.
    pub fn beyond_end(&self) -> usize {
        self.partitions.iter().filter(|partition| partition.lag.is_some_and(|lag| lag < 0)).count()
    }

    /// The largest lag in time of all partitions, in milliseconds; `None` if that of one is unknown.
    pub fn lag_ms(&self) -> Option<i64> {
        self.partitions.iter().try_fold(0, |oldest: i64, partition| Some(oldest.max(partition.lag_ms?)))
    }
}

/// Offsets of a group in the topic, by partition, with the lag that a share group reports.
type OffsetsInTopic = BTreeMap<i32, (Offset, Option<i64>)>;

impl Admin {
    /// The groups among `listed` that read a topic, with their lag. `now_ms` is the time for ages.
    pub async fn groups_of_topic(
        &self,
        topic: &str,
        listed: &[GroupListing],
        now_ms: impl Fn() -> i64,
    ) -> Result<TopicGroups, ClientError> {
        let metadata = self.cluster().refresh(&[topic.to_owned()], false).await?;
        let found = metadata.topics.get(topic);
        let error_code = found.map_or(Some(ErrorCode::UnknownTopicOrPartition), |found| found.error);
        if let Some(error_code) = error_code {
            return Err(RefusedRequest { what: format!("Topic {topic}"), error_code, message: None }.into());
        }
        let partitions = found.into_iter().flat_map(|found| &found.partitions);
        let partitions: Vec<TopicPartition> =
            partitions.map(|partition| TopicPartition::new(topic, partition.index)).collect();
        let mut reading = GroupReading::new(self);
        let mut offsets: BTreeMap<&str, OffsetsInTopic> = BTreeMap::new();
        let omitted = reading
            .positions(Some(&partitions), listed, |group, found| {
                let found =
                    found.into_iter().map(|(at, found)| (at.partition, (found.offset, found.share_lag)));
                offsets.insert(group.group.as_str(), found.collect());
            })
            .await;
        let has_offsets = |group: &str| offsets.contains_key(group);
        let (mut described, undescribed) = reading.assignments(has_offsets, listed).await;
        let omitted: BTreeSet<&str> = omitted.into_iter().chain(undescribed).collect();
        let mut groups = Vec::new();
        for group in listed {
            let offsets = offsets.remove(group.group.as_str()).unwrap_or_default();
            let described = described.remove(group.group.as_str());
            groups.extend(topic_group(topic, group, offsets, described));
        }
        // Tasks of a streams group may name more partitions than the topic has.
        let indexes: BTreeSet<i32> = partitions.iter().map(|at| at.partition).collect();
        for group in &mut groups {
            group.partitions.retain(|found| indexes.contains(&found.partition));
        }
        groups.retain(|group| !group.partitions.is_empty());
        self.add_lag(topic, &partitions, &mut groups, now_ms).await;
        Ok(TopicGroups { groups, omitted: omitted.len() })
    }

    async fn add_lag(
        &self,
        topic: &str,
        partitions: &[TopicPartition],
        groups: &mut [TopicGroup],
        now_ms: impl Fn() -> i64,
    ) {
        let latest: Vec<_> = partitions.iter().map(|at| (at.clone(), OffsetSpec::Latest)).collect();
        let mut ends = BTreeMap::new();
        for (at, end) in self.cluster().list_offsets(&latest, false).await {
            ends.extend(end.ok().map(|end| (at.partition, end.offset)));
        }
        let each = |groups: &mut [TopicGroup], set: &mut dyn FnMut(&mut TopicGroupPartition)| {
            groups.iter_mut().flat_map(|group| &mut group.partitions).for_each(set);
        };
        for group in groups.iter_mut().filter(|group| group.kind != GroupKind::Share) {
            for found in &mut group.partitions {
                let end = ends.get(&found.partition);
                let to_end = found.offset.zip(end);
                found.lag = to_end.map(|(offset, end)| *end - offset);
                // A partition that never had a record needs no committed offset.
                found.lag = found.lag.or_else(|| end.filter(|end| end.0 == 0).map(|_| 0));
            }
        }
        let mut behind: BTreeMap<i32, BTreeSet<Offset>> = BTreeMap::new();
        each(groups, &mut |found| match (found.lag, found.offset) {
            (Some(1..), Some(offset)) => drop(behind.entry(found.partition).or_default().insert(offset)),
            (lag, _) => found.lag_ms = lag.map(|_| 0),
        });
        let unread = self.first_records_in(topic, behind).await;
        let now_ms = now_ms();
        each(groups, &mut |found| {
            let record = found.offset.and_then(|offset| unread.get(&(found.partition, offset)));
            found.lag_ms = found.lag_ms.or_else(|| record?.age_ms(now_ms));
        });
    }

    /// The first records at or after offsets of the partitions of a topic. A request has each partition once,
    /// so that the n-th offsets of all partitions are requested together.
    async fn first_records_in(
        &self,
        topic: &str,
        mut offsets: BTreeMap<i32, BTreeSet<Offset>>,
    ) -> BTreeMap<(i32, Offset), ListedOffset> {
        let mut records = BTreeMap::new();
        for _ in 0..AGES_MAX {
            offsets.retain(|_, of_partition| !of_partition.is_empty());
            if offsets.is_empty() {
                break;
            }
            // The oldest first.
            let wanted: BTreeMap<i32, Offset> = offsets
                .iter_mut()
                .filter_map(|(partition, of_partition)| Some((*partition, of_partition.pop_first()?)))
                .collect();
            let at = |(partition, offset): (&i32, &Offset)| (TopicPartition::new(topic, *partition), *offset);
            for (at, record) in self.cluster().first_records(wanted.iter().map(at)).await {
                records.insert((at.partition, wanted[&at.partition]), record);
            }
        }
        records
    }
}

/// A group as a reader of the topic; `None` if it reads no partition of it.
fn topic_group(
    topic: &str,
    group: &GroupListing,
    offsets: OffsetsInTopic,
    described: Option<GroupDescription>,
) -> Option<TopicGroup> {
    let mut partitions: BTreeMap<i32, TopicGroupPartition> = BTreeMap::new();
    for (partition, (offset, lag)) in offsets {
        let (offset, readers) = (Some(offset), Vec::new());
        partitions.insert(partition, TopicGroupPartition { partition, offset, lag, lag_ms: None, readers });
    }
    // Members that read other topics are left out.
    let (mut members, mut places) = (Vec::new(), BTreeMap::new());
    let owners = described.as_ref().map(GroupDescription::owners).unwrap_or_default();
    let mut all: Vec<Option<GroupMember>> =
        described.map(|found| found.members.into_iter().map(Some).collect()).unwrap_or_default();
    for (at, owners) in owners.into_iter().filter(|(at, _)| &*at.topic == topic) {
        let found = partitions.entry(at.partition).or_default();
        found.partition = at.partition;
        for owner in owners {
            let place = *places.entry(owner).or_insert_with(|| {
                members.extend(all[owner].take());
                members.len() - 1
            });
            found.readers.push(place);
        }
    }
    let partitions: Vec<TopicGroupPartition> = partitions.into_values().collect();
    (!partitions.is_empty()).then(|| TopicGroup {
        group: group.group.clone(),
        kind: kind(group),
        state: group.state.clone(),
        members,
        partitions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(kind: &str) -> GroupListing {
        let (group, protocol_type) = ("billing".to_owned(), "consumer".to_owned());
        GroupListing { group, protocol_type, state: "Stable".to_owned(), kind: kind.to_owned() }
    }

    fn described(assignments: &[(&str, &[(&str, i32)])]) -> GroupDescription {
        let member = |(id, assigned): &(&str, &[(&str, i32)])| GroupMember {
            member_id: (*id).to_owned(),
            assignment: assigned.iter().map(|(topic, index)| TopicPartition::new(*topic, *index)).collect(),
            ..GroupMember::default()
        };
        GroupDescription {
            kind: GroupKind::Consumer,
            state: "Stable".to_owned(),
            protocol_type: "consumer".to_owned(),
            protocol: "uniform".to_owned(),
            epochs: Some((1, 1)),
            members: assignments.iter().map(member).collect(),
            subtopologies: Vec::new(),
        }
    }

    #[test]
    fn a_group_reads_a_topic_by_its_offsets_or_by_its_assignment() {
        let members: [(&str, &[(&str, i32)]); 3] =
            [("a", &[("other", 0)]), ("b", &[("orders", 1), ("other", 1)]), ("c", &[("orders", 2)])];
        let offsets: OffsetsInTopic = [(0, (Offset(5), None)), (1, (Offset(6), None))].into();
        let group = topic_group("orders", &listing("Consumer"), offsets, Some(described(&members)))
            .expect("it reads the topic");
        assert_eq!((group.kind, group.state.as_str()), (GroupKind::Consumer, "Stable"));
        let ids: Vec<&str> = group.members.iter().map(|member| member.member_id.as_str()).collect();
        assert_eq!(ids, ["b", "c"], "without the member that reads the other topic");
        let found: Vec<_> = group
            .partitions
            .iter()
            .map(|found| (found.partition, found.offset.map(|offset| offset.0), found.readers.clone()))
            .collect();
        assert_eq!(found, [(0, Some(5), vec![]), (1, Some(6), vec![0]), (2, None, vec![1])]);
        assert_eq!(
            topic_group("third", &listing(""), OffsetsInTopic::new(), Some(described(&members))),
            None
        );
        assert_eq!(topic_group("orders", &listing(""), OffsetsInTopic::new(), None), None);
    }

    #[test]
    fn the_lag_of_a_group_is_the_sum_and_the_oldest_record() {
        let partition = |lag, lag_ms| TopicGroupPartition { lag, lag_ms, ..TopicGroupPartition::default() };
        let mut group = topic_group("orders", &listing("classic"), [(0, (Offset(0), None))].into(), None)
            .expect("it has an offset");
        group.partitions = vec![partition(Some(3), Some(1_000)), partition(Some(4), Some(500))];
        assert_eq!((group.lag(), group.lag_ms()), (Some(7), Some(1_000)));
        group.partitions[1].lag_ms = None;
        assert_eq!((group.lag(), group.lag_ms()), (Some(7), None), "the other record may be older");
        group.partitions.push(partition(None, None));
        assert_eq!((group.lag(), group.lag_ms()), (None, None), "a part of the lag is not the lag");
        group.partitions = vec![partition(Some(-40), Some(0)), partition(Some(7), Some(9))];
        assert_eq!(group.beyond_end(), 1);
        assert_eq!(group.lag(), Some(7), "an offset beyond the end makes up for nothing elsewhere");
    }
}
