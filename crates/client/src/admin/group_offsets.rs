//! The offsets of groups: committed offsets of classic and consumer groups, start offsets of share groups.

use std::collections::BTreeMap;

use thalweg_dial::{ClientError, Connection};
use thalweg_record::Offset;
use thalweg_wire::request::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use thalweg_wire::request::delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic;
use thalweg_wire::request::describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestGroup;
use thalweg_wire::request::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use thalweg_wire::request::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use thalweg_wire::request::{
    AlterShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequest,
    OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, OffsetFetchResponse,
};
use thalweg_wire::{ApiKey, Request};

use super::{Admin, Outcomes, by_topic, refused};
use crate::cluster::CoordinatorKind;
use crate::offsets::{
    CommittedOffset, FETCH_GROUPS_FROM, GroupMetadata, NAMES_UNTIL, TopicPartition, check_commit,
    commit_request, committed_request, read_committed_offsets,
};

/// The start of a share group in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareOffset {
    /// The first offset that is not finished.
    pub start: Offset,
    /// Number of later records that are not finished, from version 1 on.
    pub lag: Option<i64>,
}

impl Admin {
    /// The committed offsets of a group: of these partitions, or of all.
    pub async fn list_group_offsets(
        &self,
        group: &str,
        partitions: Option<&[TopicPartition]>,
    ) -> Result<BTreeMap<TopicPartition, CommittedOffset>, ClientError> {
        let make = |connection: &Connection| -> Result<(OffsetFetchRequest, i16), ClientError> {
            committed_request(connection, group, partitions, false)
        };
        let read =
            |response: <OffsetFetchRequest as Request>::Response, _| read_committed_offsets(response, group);
        self.coordinator(group).request(self.retry(), make, read).await
    }

    /// The committed offsets of many groups, in these partitions or in all, by one request per coordinator if
    /// the coordinator supports it.
    pub async fn list_offsets_of_groups(
        &self,
        groups: &[String],
        partitions: Option<&[TopicPartition]>,
    ) -> Outcomes<String, BTreeMap<TopicPartition, CommittedOffset>> {
        let any = self.cluster.any().await;
        let newest = any.ok().and_then(|any| any.versions().newest(ApiKey::OffsetFetch, NAMES_UNTIL));
        if newest.is_some_and(|newest| newest < FETCH_GROUPS_FROM) {
            let mut outcomes = Outcomes::new();
            for group in groups {
                outcomes.insert(group.clone(), self.list_group_offsets(group, partitions).await);
            }
            return outcomes;
        }
        let topics = partitions.map(|partitions| {
            let topics = by_topic(partitions.iter()).into_iter();
            let topics = topics.map(|(name, partition_indexes)| OffsetFetchRequestTopics {
                name: name.to_owned(),
                partition_indexes,
                ..Default::default()
            });
            topics.collect::<Vec<_>>()
        });
        let request = |groups: Vec<String>| OffsetFetchRequest {
            groups: groups
                .into_iter()
                .map(|group_id| OffsetFetchRequestGroup {
                    group_id,
                    topics: topics.clone(),
                    ..Default::default()
                })
                .collect(),
            ..OffsetFetchRequest::default()
        };
        self.send_to_coordinators_up_to(CoordinatorKind::Group, groups, NAMES_UNTIL, request, |response| {
            let outcomes = response.groups.into_iter().map(|group| {
                let name = group.group_id.clone();
                let alone = OffsetFetchResponse { groups: vec![group], ..OffsetFetchResponse::default() };
                let offsets = read_committed_offsets(alone, &name);
                (name, offsets)
            });
            outcomes.collect()
        })
        .await
    }

    /// Sets offsets of a group without members.
    pub async fn alter_group_offsets(
        &self,
        group: &str,
        offsets: &BTreeMap<TopicPartition, CommittedOffset>,
    ) -> Result<(), ClientError> {
        let by = GroupMetadata::without_member(group);
        let make = |connection: &Connection| -> Result<(OffsetCommitRequest, i16), ClientError> {
            commit_request(connection, &by, offsets)
        };
        let read = |response: <OffsetCommitRequest as Request>::Response, _| check_commit(response, group);
        self.coordinator(group).request(self.retry(), make, read).await
    }

    /// Deletes offsets of a group for topics without subscribed members.
    pub async fn delete_group_offsets(
        &self,
        group: &str,
        partitions: &[TopicPartition],
    ) -> Result<Outcomes<TopicPartition>, ClientError> {
        let topics = by_topic(partitions.iter()).into_iter().map(|(name, partitions)| {
            let partitions = partitions.into_iter();
            OffsetDeleteRequestTopic {
                name: name.to_owned(),
                partitions: partitions
                    .map(|partition_index| OffsetDeleteRequestPartition { partition_index })
                    .collect(),
            }
        });
        let request = OffsetDeleteRequest { group_id: group.to_owned(), topics: topics.collect() };
        self.request(group, &request, |response| {
            refused(response.error_code, None, || format!("Deleting offsets of group {group}"))?;
            let mut outcomes = Outcomes::new();
            for topic in response.topics {
                for partition in topic.partitions {
                    let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
                    let what = || format!("Deleting the offset of group {group} in {at}");
                    let outcome = refused(partition.error_code, None, what);
                    outcomes.insert(at, outcome);
                }
            }
            Ok(outcomes)
        })
        .await
    }

    /// The start offsets of a share group in all partitions that it has read. A partition without a start
    /// offset is left out.
    pub async fn list_share_group_offsets(
        &self,
        group: &str,
    ) -> Result<Outcomes<TopicPartition, ShareOffset>, ClientError> {
        let of_group = DescribeShareGroupOffsetsRequestGroup { group_id: group.to_owned(), topics: None };
        let request = DescribeShareGroupOffsetsRequest { groups: vec![of_group] };
        self.request(group, &request, |response| {
            let mut outcomes = Outcomes::new();
            for of_group in response.groups {
                let what = || format!("Offsets of share group {group}");
                refused(of_group.error_code, of_group.error_message.as_deref(), what)?;
                for topic in of_group.topics {
                    for partition in topic.partitions {
                        let at = TopicPartition::new(topic.topic_name.as_str(), partition.partition_index);
                        let what = || format!("Offset of share group {group} in {at}");
                        let outcome = refused(partition.error_code, partition.error_message.as_deref(), what);
                        let lag = Some(partition.lag).filter(|&lag| lag >= 0);
                        let offset = ShareOffset { start: Offset(partition.start_offset), lag };
                        if outcome.is_err() || partition.start_offset >= 0 {
                            outcomes.insert(at, outcome.map(|()| offset));
                        }
                    }
                }
            }
            Ok(outcomes)
        })
        .await
    }

    /// Sets the start offsets of a share group without members.
    pub async fn alter_share_group_offsets(
        &self,
        group: &str,
        offsets: &BTreeMap<TopicPartition, Offset>,
    ) -> Result<Outcomes<TopicPartition>, ClientError> {
        let mut topics: BTreeMap<&str, Vec<AlterShareGroupOffsetsRequestPartition>> = BTreeMap::new();
        for (at, offset) in offsets {
            let partition = AlterShareGroupOffsetsRequestPartition {
                partition_index: at.partition,
                start_offset: offset.0,
            };
            topics.entry(&at.topic).or_default().push(partition);
        }
        let topics = topics.into_iter().map(|(name, partitions)| AlterShareGroupOffsetsRequestTopic {
            topic_name: name.to_owned(),
            partitions,
        });
        let request = AlterShareGroupOffsetsRequest { group_id: group.to_owned(), topics: topics.collect() };
        self.request(group, &request, |response| {
            let what = || format!("Setting offsets of share group {group}");
            refused(response.error_code, response.error_message.as_deref(), what)?;
            let mut outcomes = Outcomes::new();
            for topic in response.responses {
                for partition in topic.partitions {
                    let at = TopicPartition::new(topic.topic_name.as_str(), partition.partition_index);
                    let what = || format!("Setting the offset of share group {group} in {at}");
                    let outcome = refused(partition.error_code, partition.error_message.as_deref(), what);
                    outcomes.insert(at, outcome);
                }
            }
            Ok(outcomes)
        })
        .await
    }

    /// Deletes the offsets of a share group without members for these topics.
    pub async fn delete_share_group_offsets(
        &self,
        group: &str,
        topics: &[String],
    ) -> Result<Outcomes<String>, ClientError> {
        let topics =
            topics.iter().map(|name| DeleteShareGroupOffsetsRequestTopic { topic_name: name.clone() });
        let request = DeleteShareGroupOffsetsRequest { group_id: group.to_owned(), topics: topics.collect() };
        self.request(group, &request, |response| {
            let what = || format!("Deleting offsets of share group {group}");
            refused(response.error_code, response.error_message.as_deref(), what)?;
            let outcomes = response.responses.into_iter().map(|topic| {
                let what = || format!("Deleting the offsets of share group {group} in {}", topic.topic_name);
                let outcome = refused(topic.error_code, topic.error_message.as_deref(), what);
                (topic.topic_name, outcome)
            });
            Ok(outcomes.collect())
        })
        .await
    }
}
