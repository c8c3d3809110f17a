//! Groups of every type and their members, from their coordinators.

use std::sync::Arc;

use thalweg_dial::{ClientError, Connection, RefusedRequest};
use thalweg_wire::request::leave_group_request::MemberIdentity;
use thalweg_wire::request::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, DeleteGroupsRequest, DescribeGroupsRequest,
    DescribeGroupsResponse, LeaveGroupRequest, ListGroupsRequest, ShareGroupDescribeRequest,
    ShareGroupDescribeResponse, StreamsGroupDescribeRequest, StreamsGroupDescribeResponse,
    consumer_group_describe_response, streams_group_describe_response,
};
use thalweg_wire::{ApiKey, ErrorCode, Request};

use super::{Admin, Outcomes, refused};
use crate::cluster::CoordinatorKind;
use crate::consumer::read_assignment;
use crate::coordinator::{Coordinator, version_up_to};
use crate::offsets::TopicPartition;

/// The protocol of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupKind {
    /// The members assign partitions themselves, after JoinGroup and SyncGroup. Connect and other
    /// applications use it too.
    Classic,
    /// The coordinator assigns partitions (KIP-848).
    Consumer,
    /// The members share partitions (KIP-932).
    Share,
    /// Kafka Streams (KIP-1071).
    Streams,
}

impl GroupKind {
    /// All group types.
    pub const ALL: [GroupKind; 4] =
        [GroupKind::Classic, GroupKind::Consumer, GroupKind::Share, GroupKind::Streams];

    /// Kafka's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            GroupKind::Classic => "classic",
            GroupKind::Consumer => "consumer",
            GroupKind::Share => "share",
            GroupKind::Streams => "streams",
        }
    }

    /// The type with this Kafka name, in any case.
    pub fn from_name(name: &str) -> Option<GroupKind> {
        GroupKind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }
}

/// A filter of listed groups; all by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupFilter {
    /// States to list, such as `Empty`; from version 4 on.
    pub states: Vec<String>,
    /// Types to list; from version 5 on.
    pub kinds: Vec<GroupKind>,
}

/// A group, as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupListing {
    /// The group's name.
    pub group: String,
    /// The protocol type of the members: usually `consumer`.
    pub protocol_type: String,
    /// The group's state, such as `Stable` or `Empty`; empty if the broker does not report it.
    pub state: String,
    /// The group's type, such as `classic` or `consumer`; empty if the broker does not report it.
    pub kind: String,
}

/// The description of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// The group's type.
    pub kind: GroupKind,
    /// The group's state, such as `Stable` or `Empty`.
    pub state: String,
    /// The protocol type of the members: usually `consumer`.
    pub protocol_type: String,
    /// The assignor; empty for a classic group without members.
    pub protocol: String,
    /// Group epoch and assignment epoch; `None` for classic groups.
    pub epochs: Option<(i32, i32)>,
    /// The group's members.
    pub members: Vec<GroupMember>,
    /// The subtopologies of a streams group.
    pub subtopologies: Vec<Subtopology>,
}

/// A member of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMember {
    /// The member id.
    pub member_id: String,
    /// `group.instance.id` of a static member.
    pub group_instance_id: Option<String>,
    /// `client.id`.
    pub client_id: String,
    /// The client's address.
    pub client_host: String,
    /// `client.rack`.
    pub rack: Option<String>,
    /// The member epoch; `None` in classic groups.
    pub epoch: Option<i32>,
    /// The member's protocol in a consumer group during migration, if the broker reports it (KIP-1099).
    pub protocol: Option<GroupKind>,
    /// The subscribed topics or regular expression, if the broker reports them.
    pub subscribed: Vec<String>,
    /// The partitions currently assigned.
    pub assignment: Vec<TopicPartition>,
    /// The partitions of the target assignment, if the broker reports them.
    pub target: Vec<TopicPartition>,
    /// The tasks of a member of a streams group.
    pub tasks: Vec<StreamsTask>,
}

/// A subtopology of a streams group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subtopology {
    /// The subtopology's id.
    pub id: String,
    /// The topics that the subtopology reads.
    pub source_topics: Vec<String>,
    /// The topics that it writes for other subtopologies.
    pub repartition_topics: Vec<String>,
    /// The changelog topics of its state stores.
    pub changelog_topics: Vec<String>,
}

/// A task of a streams group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsTask {
    /// The member's role for the task.
    pub role: StreamsTaskRole,
    /// The id of the subtopology.
    pub subtopology: String,
    /// The partition of the task.
    pub partition: i32,
}

/// The role of a member for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamsTaskRole {
    /// The member processes records.
    Active,
    /// The member keeps a copy of the state.
    Standby,
    /// The member copies the state, in order to take over the task.
    Warmup,
}

impl StreamsTaskRole {
    /// Kafka's name of the role.
    pub fn name(self) -> &'static str {
        match self {
            StreamsTaskRole::Active => "active",
            StreamsTaskRole::Standby => "standby",
            StreamsTaskRole::Warmup => "warmup",
        }
    }
}

/// A member to remove from a classic group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemberToRemove {
    /// A member, by member id.
    Member(String),
    /// A static member, by its `group.instance.id`.
    Instance(String),
}

impl Admin {
    /// The groups of all brokers. An unreachable broker fails the call, because its groups would be missing.
    pub async fn list_groups(&self) -> Result<Vec<GroupListing>, ClientError> {
        let mut groups = Vec::new();
        for listed in self.list_groups_by_broker(&GroupFilter::default()).await?.into_values() {
            groups.extend(listed?);
        }
        groups.sort_by(|a, b| a.group.cmp(&b.group));
        Ok(groups)
    }

    /// The groups that each broker coordinates.
    pub async fn list_groups_by_broker(
        &self,
        filter: &GroupFilter,
    ) -> Result<Outcomes<i32, Vec<GroupListing>>, ClientError> {
        let request = |_| ListGroupsRequest {
            states_filter: filter.states.clone(),
            types_filter: filter.kinds.iter().map(|kind| kind.name().to_owned()).collect(),
        };
        self.ask_brokers(None, request, |broker, response| {
            refused(response.error_code, None, || format!("Groups of broker {broker}"))?;
            let groups = response.groups.into_iter().map(|group| GroupListing {
                group: group.group_id,
                protocol_type: group.protocol_type,
                state: group.group_state,
                kind: group.group_type,
            });
            Ok(groups.collect())
        })
        .await
    }

    /// Describes groups of every kind.
    pub async fn describe_groups(&self, groups: &[String]) -> Outcomes<String, GroupDescription> {
        let mut outcomes = self.describe_groups_as(GroupKind::Classic, groups).await;
        // A broker knows a group of another type only by the API of that type.
        for kind in GroupKind::ALL.into_iter().skip(1) {
            let absent = outcomes.iter().filter(|(_, outcome)| outcome.as_ref().is_err_and(is_absent));
            let left: Vec<String> = absent.map(|(group, _)| group.clone()).collect();
            if left.is_empty() {
                break;
            }
            if !self.serves(describes(kind)).await {
                continue;
            }
            let found = self.describe_groups_as(kind, &left).await.into_iter();
            outcomes.extend(found.filter(|(_, outcome)| !outcome.as_ref().is_err_and(is_absent)));
        }
        outcomes
    }

    /// Describes groups of one type. Groups of other types result in GROUP_ID_NOT_FOUND.
    pub async fn describe_groups_as(
        &self,
        kind: GroupKind,
        groups: &[String],
    ) -> Outcomes<String, GroupDescription> {
        let by = CoordinatorKind::Group;
        match kind {
            GroupKind::Classic => {
                let request = |groups| DescribeGroupsRequest { groups, ..Default::default() };
                self.ask_coordinators(by, groups, request, classic).await
            }
            GroupKind::Consumer => {
                let request = |group_ids| ConsumerGroupDescribeRequest { group_ids, ..Default::default() };
                self.ask_coordinators(by, groups, request, consumer).await
            }
            GroupKind::Share => {
                let request = |group_ids| ShareGroupDescribeRequest { group_ids, ..Default::default() };
                self.ask_coordinators(by, groups, request, share).await
            }
            GroupKind::Streams => {
                let request = |group_ids| StreamsGroupDescribeRequest { group_ids, ..Default::default() };
                self.ask_coordinators(by, groups, request, streams).await
            }
        }
    }

    /// True if the connected broker serves an API.
    async fn serves(&self, api: ApiKey) -> bool {
        self.cluster.any().await.is_ok_and(|any| any.versions().newest(api, i16::MAX).is_some())
    }

    /// Deletes groups without members, and their offsets.
    pub async fn delete_groups(&self, groups: &[String]) -> Outcomes<String> {
        let request = |groups_names| DeleteGroupsRequest { groups_names };
        self.ask_coordinators(CoordinatorKind::Group, groups, request, |response| {
            let outcomes = response.results.into_iter().map(|result| {
                let what = || format!("Deleting group {}", result.group_id);
                let outcome = refused(result.error_code, None, what);
                (result.group_id, outcome)
            });
            outcomes.collect()
        })
        .await
    }

    /// Removes members from a classic group. Running members join again. The coordinator logs the reason.
    pub async fn remove_members(
        &self,
        group: &str,
        members: &[MemberToRemove],
        reason: Option<&str>,
    ) -> Result<Outcomes<MemberToRemove>, ClientError> {
        let identity = |member: &MemberToRemove| match member {
            MemberToRemove::Member(id) => MemberIdentity { member_id: id.clone(), ..Default::default() },
            MemberToRemove::Instance(id) => {
                MemberIdentity { group_instance_id: Some(id.clone()), ..Default::default() }
            }
        };
        let make = |connection: &Connection| {
            let version = version_up_to::<LeaveGroupRequest>(connection, i16::MAX)?;
            let reason = reason.filter(|_| version >= REASON_FROM).map(str::to_owned);
            let members =
                members.iter().map(|member| MemberIdentity { reason: reason.clone(), ..identity(member) });
            let request = LeaveGroupRequest {
                group_id: group.to_owned(),
                members: members.collect(),
                ..LeaveGroupRequest::default()
            };
            Ok((request, version))
        };
        let read = |response: <LeaveGroupRequest as Request>::Response, _| {
            refused(response.error_code, None, || format!("Removing members of group {group}"))?;
            let outcomes = response.members.into_iter().map(|member| {
                let removed = match member.group_instance_id {
                    Some(id)
                        if member.member_id.is_empty()
                            || members.contains(&MemberToRemove::Instance(id.clone())) =>
                    {
                        MemberToRemove::Instance(id)
                    }
                    _ => MemberToRemove::Member(member.member_id),
                };
                let what = || match &removed {
                    MemberToRemove::Member(id) => format!("Removing member {id} of group {group}"),
                    MemberToRemove::Instance(id) => format!("Removing instance {id} of group {group}"),
                };
                let outcome = refused(member.error_code, None, what);
                (removed, outcome)
            });
            Ok(outcomes.collect())
        };
        self.coordinator(group).ask(self.retry(), make, read).await
    }

    pub(super) fn coordinator(&self, group: &str) -> Coordinator {
        Coordinator::new(self.cluster.clone(), CoordinatorKind::Group, group)
    }

    /// Sends a request to the coordinator of a group.
    pub(super) async fn ask<R: Request + Clone, T>(
        &self,
        group: &str,
        request: &R,
        mut read: impl FnMut(R::Response) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let make = |connection: &Connection| Ok((request.clone(), version_up_to::<R>(connection, i16::MAX)?));
        self.coordinator(group).ask(self.retry(), make, |response, _| read(response)).await
    }
}

/// The first version of LeaveGroup that carries a reason (KIP-800).
const REASON_FROM: i16 = 5;

/// The API that describes groups of a type.
fn describes(kind: GroupKind) -> ApiKey {
    match kind {
        GroupKind::Classic => ApiKey::DescribeGroups,
        GroupKind::Consumer => ApiKey::ConsumerGroupDescribe,
        GroupKind::Share => ApiKey::ShareGroupDescribe,
        GroupKind::Streams => ApiKey::StreamsGroupDescribe,
    }
}

/// True if the group does not exist with the requested type, or the cluster lacks that type.
fn is_absent(error: &ClientError) -> bool {
    let code = error.error_code();
    matches!(code, Some(ErrorCode::GroupIdNotFound | ErrorCode::UnsupportedVersion))
        || matches!(error, ClientError::VersionMismatch(_))
}

fn classic(response: DescribeGroupsResponse) -> Outcomes<String, GroupDescription> {
    let outcomes = response.groups.into_iter().map(|group| {
        let (name, what) = (group.group_id, |name: &str| format!("Group {name}"));
        if let Err(error) = refused(group.error_code, group.error_message.as_deref(), || what(&name)) {
            return (name, Err(error));
        }
        // Before version 6, an unknown group is "Dead", without an error.
        if group.group_state == "Dead" {
            let error_code = ErrorCode::GroupIdNotFound;
            let refused = RefusedRequest { what: what(&name), error_code, message: None };
            return (name, Err(refused.into()));
        }
        let members = group.members.into_iter().map(|member| GroupMember {
            member_id: member.member_id,
            group_instance_id: member.group_instance_id,
            client_id: member.client_id,
            client_host: member.client_host,
            // Members of other protocols have assignments in other formats.
            assignment: read_assignment(member.member_assignment).unwrap_or_default(),
            ..GroupMember::default()
        });
        let described = GroupDescription {
            kind: GroupKind::Classic,
            state: group.group_state,
            protocol_type: group.protocol_type,
            protocol: group.protocol_data,
            epochs: None,
            members: members.collect(),
            subtopologies: Vec::new(),
        };
        (name, Ok(described))
    });
    outcomes.collect()
}

fn partitions(topics: impl Iterator<Item = (String, Vec<i32>)>) -> Vec<TopicPartition> {
    topics
        .flat_map(|(topic, partitions)| {
            let topic: Arc<str> = topic.into();
            partitions.into_iter().map(move |partition| TopicPartition::new(Arc::clone(&topic), partition))
        })
        .collect()
}

fn consumer(response: ConsumerGroupDescribeResponse) -> Outcomes<String, GroupDescription> {
    let assigned = |assignment: consumer_group_describe_response::Assignment| {
        partitions(assignment.topic_partitions.into_iter().map(|topic| (topic.topic_name, topic.partitions)))
    };
    let outcomes = response.groups.into_iter().map(|group| {
        let what = || format!("Group {}", group.group_id);
        let outcome = refused(group.error_code, group.error_message.as_deref(), what);
        let members = group.members.into_iter().map(|member| GroupMember {
            member_id: member.member_id,
            group_instance_id: member.instance_id,
            client_id: member.client_id,
            client_host: member.client_host,
            rack: member.rack_id,
            epoch: Some(member.member_epoch),
            protocol: match member.member_type {
                0 => Some(GroupKind::Classic),
                1 => Some(GroupKind::Consumer),
                _ => None,
            },
            subscribed: member
                .subscribed_topic_names
                .into_iter()
                .chain(member.subscribed_topic_regex.filter(|regex| !regex.is_empty()))
                .collect(),
            assignment: assigned(member.assignment),
            target: assigned(member.target_assignment),
            tasks: Vec::new(),
        });
        let described = GroupDescription {
            kind: GroupKind::Consumer,
            state: group.group_state,
            protocol_type: "consumer".to_owned(),
            protocol: group.assignor_name,
            epochs: Some((group.group_epoch, group.assignment_epoch)),
            members: members.collect(),
            subtopologies: Vec::new(),
        };
        (group.group_id, outcome.map(|()| described))
    });
    outcomes.collect()
}

fn share(response: ShareGroupDescribeResponse) -> Outcomes<String, GroupDescription> {
    let outcomes = response.groups.into_iter().map(|group| {
        let what = || format!("Group {}", group.group_id);
        let outcome = refused(group.error_code, group.error_message.as_deref(), what);
        let members = group.members.into_iter().map(|member| {
            let topics = member.assignment.topic_partitions.into_iter();
            GroupMember {
                member_id: member.member_id,
                client_id: member.client_id,
                client_host: member.client_host,
                rack: member.rack_id,
                epoch: Some(member.member_epoch),
                subscribed: member.subscribed_topic_names,
                assignment: partitions(topics.map(|topic| (topic.topic_name, topic.partitions))),
                ..GroupMember::default()
            }
        });
        let described = GroupDescription {
            kind: GroupKind::Share,
            state: group.group_state,
            protocol_type: "share".to_owned(),
            protocol: group.assignor_name,
            epochs: Some((group.group_epoch, group.assignment_epoch)),
            members: members.collect(),
            subtopologies: Vec::new(),
        };
        (group.group_id, outcome.map(|()| described))
    });
    outcomes.collect()
}

fn streams(response: StreamsGroupDescribeResponse) -> Outcomes<String, GroupDescription> {
    let outcomes = response.groups.into_iter().map(|group| {
        let what = || format!("Group {}", group.group_id);
        let outcome = refused(group.error_code, group.error_message.as_deref(), what);
        let members = group.members.into_iter().map(|member| GroupMember {
            member_id: member.member_id,
            group_instance_id: member.instance_id,
            client_id: member.client_id,
            client_host: member.client_host,
            rack: member.rack_id,
            epoch: Some(member.member_epoch),
            tasks: tasks(member.assignment),
            ..GroupMember::default()
        });
        let topology = group.topology.and_then(|topology| topology.subtopologies).unwrap_or_default();
        let subtopologies = topology.into_iter().map(|part| Subtopology {
            id: part.subtopology_id,
            source_topics: part.source_topics,
            repartition_topics: part.repartition_sink_topics,
            changelog_topics: part.state_changelog_topics.into_iter().map(|topic| topic.name).collect(),
        });
        let described = GroupDescription {
            kind: GroupKind::Streams,
            state: group.group_state,
            protocol_type: "streams".to_owned(),
            protocol: String::new(),
            epochs: Some((group.group_epoch, group.assignment_epoch)),
            members: members.collect(),
            subtopologies: subtopologies.collect(),
        };
        (group.group_id, outcome.map(|()| described))
    });
    outcomes.collect()
}

fn tasks(assignment: streams_group_describe_response::Assignment) -> Vec<StreamsTask> {
    let roles = [
        (StreamsTaskRole::Active, assignment.active_tasks),
        (StreamsTaskRole::Standby, assignment.standby_tasks),
        (StreamsTaskRole::Warmup, assignment.warmup_tasks),
    ];
    let tasks = roles.into_iter().flat_map(|(role, of_role)| {
        of_role.into_iter().flat_map(move |ids| {
            ids.partitions.into_iter().map(move |partition| StreamsTask {
                role,
                subtopology: ids.subtopology_id.clone(),
                partition,
            })
        })
    });
    tasks.collect()
}
