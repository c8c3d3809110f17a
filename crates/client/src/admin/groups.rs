//! Consumer groups and their offsets, asked of their coordinators.

use std::collections::BTreeMap;

use thalweg_wire::request::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use thalweg_wire::request::{
    DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest, OffsetCommitRequest, OffsetDeleteRequest,
    OffsetFetchRequest,
};
use thalweg_wire::{ErrorCode, Request};

use super::{Admin, Outcomes, refused};
use crate::cluster::CoordinatorKind;
use crate::connection::Connection;
use crate::consumer::read_assignment;
use crate::coordinator::{Coordinator, version_up_to};
use crate::error::{ClientError, Refused};
use crate::offsets::{
    CommittedOffset, GroupMetadata, TopicPartition, check_commit, commit_request, committed_request,
    read_committed_offsets,
};

/// A group, as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupListing {
    /// Its name.
    pub group: String,
    /// The protocol type of its members: usually `consumer`.
    pub protocol_type: String,
    /// Its state, such as `Stable` or `Empty`; empty when the broker does not report it.
    pub state: String,
    /// Its type, such as `classic` or `consumer`; empty when the broker does not report it.
    pub kind: String,
}

/// A classic group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// Its state, such as `Stable` or `Empty`.
    pub state: String,
    /// The protocol type of its members: usually `consumer`.
    pub protocol_type: String,
    /// How its partitions are assigned, while it has members.
    pub protocol: String,
    /// Its members.
    pub members: Vec<GroupMember>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// Its id.
    pub member_id: String,
    /// `group.instance.id` of a static member.
    pub group_instance_id: Option<String>,
    /// `client.id`.
    pub client_id: String,
    /// Its address.
    pub client_host: String,
    /// The partitions that it reads.
    pub assignment: Vec<TopicPartition>,
}

impl Admin {
    /// The groups of all brokers. One that cannot be asked fails the call, because its groups would be missing.
    pub async fn list_groups(&self) -> Result<Vec<GroupListing>, ClientError> {
        let metadata = self.cluster.refresh(&[], false).await?;
        let mut groups = Vec::new();
        for id in metadata.brokers.keys() {
            let connection = self.cluster.broker(*id).await?;
            let response = connection.send(&ListGroupsRequest::default()).await?;
            refused(response.error_code, None, || format!("Groups of broker {id}"))?;
            groups.extend(response.groups.into_iter().map(|group| GroupListing {
                group: group.group_id,
                protocol_type: group.protocol_type,
                state: group.group_state,
                kind: group.group_type,
            }));
        }
        groups.sort_by(|a, b| a.group.cmp(&b.group));
        Ok(groups)
    }

    /// Describes classic groups.
    pub async fn describe_groups(&self, groups: &[String]) -> Outcomes<String, GroupDescription> {
        let mut outcomes = Outcomes::new();
        for group in groups {
            let request = DescribeGroupsRequest { groups: vec![group.clone()], ..Default::default() };
            let described = self.ask(group, &request, |response| {
                let answer = response.groups.into_iter().next();
                let described = answer.ok_or_else(|| left_out(group))?;
                let message = described.error_message.as_deref();
                refused(described.error_code, message, || format!("Group {group}"))?;
                let members = described.members.into_iter().map(|member| GroupMember {
                    member_id: member.member_id,
                    group_instance_id: member.group_instance_id,
                    client_id: member.client_id,
                    client_host: member.client_host,
                    // Members of other protocols are assigned other things.
                    assignment: read_assignment(member.member_assignment).unwrap_or_default(),
                });
                Ok(GroupDescription {
                    state: described.group_state,
                    protocol_type: described.protocol_type,
                    protocol: described.protocol_data,
                    members: members.collect(),
                })
            });
            outcomes.insert(group.clone(), described.await);
        }
        outcomes
    }

    /// Deletes groups that have no members, with their offsets.
    pub async fn delete_groups(&self, groups: &[String]) -> Outcomes<String> {
        let mut outcomes = Outcomes::new();
        for group in groups {
            let request = DeleteGroupsRequest { groups_names: vec![group.clone()] };
            let deleted = self.ask(group, &request, |response| {
                let result = response.results.first().ok_or_else(|| left_out(group))?;
                refused(result.error_code, None, || format!("Deleting group {group}"))
            });
            outcomes.insert(group.clone(), deleted.await);
        }
        outcomes
    }

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
        self.coordinator(group).ask(self.retry(), make, read).await
    }

    /// Sets offsets of a group that has no members.
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
        self.coordinator(group).ask(self.retry(), make, read).await
    }

    /// Deletes offsets of a group, of topics that no member subscribes to.
    pub async fn delete_group_offsets(
        &self,
        group: &str,
        partitions: &[TopicPartition],
    ) -> Result<Outcomes<TopicPartition>, ClientError> {
        let mut topics: BTreeMap<&str, Vec<OffsetDeleteRequestPartition>> = BTreeMap::new();
        for at in partitions {
            let partition = OffsetDeleteRequestPartition { partition_index: at.partition };
            topics.entry(&at.topic).or_default().push(partition);
        }
        let topics = topics
            .into_iter()
            .map(|(name, partitions)| OffsetDeleteRequestTopic { name: name.to_owned(), partitions });
        let request = OffsetDeleteRequest { group_id: group.to_owned(), topics: topics.collect() };
        self.ask(group, &request, |response| {
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

    fn coordinator(&self, group: &str) -> Coordinator {
        Coordinator::new(self.cluster.clone(), CoordinatorKind::Group, group)
    }

    async fn ask<R: Request + Clone, T>(
        &self,
        group: &str,
        request: &R,
        mut read: impl FnMut(R::Response) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let make = |connection: &Connection| Ok((request.clone(), version_up_to::<R>(connection, i16::MAX)?));
        self.coordinator(group).ask(self.retry(), make, |response, _| read(response)).await
    }
}

fn left_out(group: &str) -> ClientError {
    let message = Some("the broker's answer leaves the group out".to_owned());
    Refused { what: format!("Group {group}"), error_code: ErrorCode::UnknownServerError, message }.into()
}
