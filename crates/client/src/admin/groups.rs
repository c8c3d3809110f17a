//! Groups of every type and their members, from their coordinators.

use std::collections::BTreeMap;
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

/// True if a group in this state has no members. Groups in other states may have some.
pub fn is_without_members(state: &str) -> bool {
    matches!(state, "Empty" | "Dead")
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

/// A group whose offsets only its members set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Offsets can only be reset while the group is inactive: {group} is {state} with {members}. Stop them first"
)]
pub struct ActiveGroup {
    /// The group id.
    pub group: String,
    /// The group's state.
    pub state: String,
    /// The number of members, and the first of them by client id and host.
    pub members: String,
}

impl GroupDescription {
    /// Checks that the group has no active members. The coordinator refuses offsets of other clients for an
    /// active group with UNKNOWN_MEMBER_ID.
    pub fn unless_active(&self, group: &str) -> Result<(), ActiveGroup> {
        if self.members.is_empty() && is_without_members(&self.state) {
            return Ok(());
        }
        let named = |member: &GroupMember| format!("{} ({})", member.client_id, member.client_host);
        let named: Vec<String> = self.members.iter().take(ACTIVE_NAMED_MAX).map(named).collect();
        let count = match self.members.len() {
            0 => "members that join or leave".to_owned(),
            1 => "1 member: ".to_owned(),
            count => format!("{count} members: "),
        };
        let more = if self.members.len() > named.len() { ", ..." } else { "" };
        let members = format!("{count}{}{more}", named.join(", "));
        Err(ActiveGroup { group: group.to_owned(), state: self.state.clone(), members })
    }
}

impl GroupDescription {
    /// The members that read each partition, as indexes into `members`: one, and in a share group any number.
    /// A member of a streams group reads the topics of its active tasks.
    pub fn owners(&self) -> BTreeMap<TopicPartition, Vec<usize>> {
        let mut topics: BTreeMap<&str, Vec<Arc<str>>> = BTreeMap::new();
        for part in &self.subtopologies {
            let read = part.source_topics.iter().chain(&part.repartition_source_topics);
            topics.entry(&part.id).or_default().extend(read.map(|topic| Arc::from(topic.as_str())));
        }
        let mut owners: BTreeMap<TopicPartition, Vec<usize>> = BTreeMap::new();
        for (index, member) in self.members.iter().enumerate() {
            let active = member.tasks.iter().filter(|task| task.role == StreamsTaskRole::Active);
            let of_tasks = active.flat_map(|task| {
                let topics = topics.get(task.subtopology.as_str()).into_iter().flatten();
                topics.map(|topic| TopicPartition::new(Arc::clone(topic), task.partition))
            });
            for at in member.assignment.iter().cloned().chain(of_tasks) {
                owners.entry(at).or_default().push(index);
            }
        }
        owners
    }
}

/// Members that [`ActiveGroup`] names.
const ACTIVE_NAMED_MAX: usize = 10;

/// A member of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMember {
    /// The member id.
    pub member_id: String,
    /// `group.instance.id` of a static member.
    pub group_instance_id: Option<String>,
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
    /// The topics that it reads from other subtopologies.
    pub repartition_source_topics: Vec<String>,
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
        self.list_groups_of(None, filter).await
    }

    /// The groups that each of these brokers coordinates, or each of all.
    pub(super) async fn list_groups_of(
        &self,
        brokers: Option<&[i32]>,
        filter: &GroupFilter,
    ) -> Result<Outcomes<i32, Vec<GroupListing>>, ClientError> {
        let request = |_| ListGroupsRequest {
            states_filter: filter.states.clone(),
            types_filter: filter.kinds.iter().map(|kind| kind.name().to_owned()).collect(),
        };
        self.send_to_brokers(brokers, request, |broker, response| {
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
                self.send_to_coordinators(by, groups, request, classic).await
            }
            GroupKind::Consumer => {
                let request = |group_ids| ConsumerGroupDescribeRequest { group_ids, ..Default::default() };
                self.send_to_coordinators(by, groups, request, consumer).await
            }
            GroupKind::Share => {
                let request = |group_ids| ShareGroupDescribeRequest { group_ids, ..Default::default() };
                self.send_to_coordinators(by, groups, request, share).await
            }
            GroupKind::Streams => {
                let request = |group_ids| StreamsGroupDescribeRequest { group_ids, ..Default::default() };
                self.send_to_coordinators(by, groups, request, streams).await
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
        self.send_to_coordinators(CoordinatorKind::Group, groups, request, |response| {
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
        self.coordinator(group).request(self.retry(), make, read).await
    }

    pub(super) fn coordinator(&self, group: &str) -> Coordinator {
        Coordinator::new(self.cluster.clone(), CoordinatorKind::Group, group)
    }

    /// Sends a request to the coordinator of a group.
    pub(super) async fn request<R: Request + Clone, T>(
        &self,
        group: &str,
        request: &R,
        mut read: impl FnMut(R::Response) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let make = |connection: &Connection| Ok((request.clone(), version_up_to::<R>(connection, i16::MAX)?));
        self.coordinator(group).request(self.retry(), make, |response, _| read(response)).await
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

/// A group whose coordinator assigns, without its assignor, members and subtopologies.
fn described(kind: GroupKind, state: String, epochs: (i32, i32)) -> GroupDescription {
    GroupDescription {
        kind,
        state,
        protocol_type: kind.name().to_owned(),
        protocol: String::new(),
        epochs: Some(epochs),
        members: Vec::new(),
        subtopologies: Vec::new(),
    }
}

/// The description of a group, or its error.
fn outcome(
    group_id: String,
    error_code: i16,
    message: Option<&str>,
    described: GroupDescription,
) -> (String, Result<GroupDescription, ClientError>) {
    let checked = refused(error_code, message, || format!("Group {group_id}"));
    (group_id, checked.map(|()| described))
}

fn consumer(response: ConsumerGroupDescribeResponse) -> Outcomes<String, GroupDescription> {
    let assigned = |assignment: consumer_group_describe_response::Assignment| {
        TopicPartition::of_topics(
            assignment.topic_partitions.into_iter().map(|topic| (topic.topic_name, topic.partitions)),
        )
    };
    let outcomes = response.groups.into_iter().map(|group| {
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
            protocol: group.assignor_name,
            members: members.collect(),
            ..described(GroupKind::Consumer, group.group_state, (group.group_epoch, group.assignment_epoch))
        };
        outcome(group.group_id, group.error_code, group.error_message.as_deref(), described)
    });
    outcomes.collect()
}

fn share(response: ShareGroupDescribeResponse) -> Outcomes<String, GroupDescription> {
    let outcomes = response.groups.into_iter().map(|group| {
        let members = group.members.into_iter().map(|member| {
            let topics = member.assignment.topic_partitions.into_iter();
            GroupMember {
                member_id: member.member_id,
                client_id: member.client_id,
                client_host: member.client_host,
                rack: member.rack_id,
                epoch: Some(member.member_epoch),
                subscribed: member.subscribed_topic_names,
                assignment: TopicPartition::of_topics(
                    topics.map(|topic| (topic.topic_name, topic.partitions)),
                ),
                ..GroupMember::default()
            }
        });
        let described = GroupDescription {
            protocol: group.assignor_name,
            members: members.collect(),
            ..described(GroupKind::Share, group.group_state, (group.group_epoch, group.assignment_epoch))
        };
        outcome(group.group_id, group.error_code, group.error_message.as_deref(), described)
    });
    outcomes.collect()
}

fn streams(response: StreamsGroupDescribeResponse) -> Outcomes<String, GroupDescription> {
    let names = |topics: Vec<streams_group_describe_response::TopicInfo>| {
        topics.into_iter().map(|topic| topic.name).collect()
    };
    let outcomes = response.groups.into_iter().map(|group| {
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
            repartition_source_topics: names(part.repartition_source_topics),
            repartition_topics: part.repartition_sink_topics,
            changelog_topics: names(part.state_changelog_topics),
        });
        let described = GroupDescription {
            members: members.collect(),
            subtopologies: subtopologies.collect(),
            ..described(GroupKind::Streams, group.group_state, (group.group_epoch, group.assignment_epoch))
        };
        outcome(group.group_id, group.error_code, group.error_message.as_deref(), described)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn group(state: &str, members: usize) -> GroupDescription {
        let member = |number| GroupMember {
            client_id: format!("c{number}"),
            client_host: "/10.0.0.1".to_owned(),
            ..GroupMember::default()
        };
        GroupDescription {
            kind: GroupKind::Consumer,
            state: state.to_owned(),
            protocol_type: "consumer".to_owned(),
            protocol: "uniform".to_owned(),
            epochs: Some((1, 1)),
            members: (0..members).map(member).collect(),
            subtopologies: Vec::new(),
        }
    }

    #[test]
    fn a_partition_is_read_by_its_owners() {
        let mut shared = group("Stable", 3);
        shared.members[0].assignment = vec![TopicPartition::new("t", 0), TopicPartition::new("t", 1)];
        shared.members[2].assignment = vec![TopicPartition::new("t", 1)];
        let expected = [(TopicPartition::new("t", 0), vec![0]), (TopicPartition::new("t", 1), vec![0, 2])];
        assert_eq!(shared.owners(), expected.into());

        let mut streams = group("Stable", 2);
        streams.subtopologies = vec![Subtopology {
            id: "0".to_owned(),
            source_topics: vec!["orders".to_owned()],
            repartition_source_topics: vec!["by-user".to_owned()],
            repartition_topics: vec!["written".to_owned()],
            changelog_topics: vec!["stored".to_owned()],
        }];
        let task = |role, partition| StreamsTask { role, subtopology: "0".to_owned(), partition };
        streams.members[0].tasks = vec![task(StreamsTaskRole::Active, 3), task(StreamsTaskRole::Standby, 4)];
        streams.members[1].tasks = vec![task(StreamsTaskRole::Active, 4)];
        let owners = streams.owners();
        let reads = |topic, partition| owners.get(&TopicPartition::new(topic, partition)).map(Vec::as_slice);
        assert_eq!((reads("orders", 3), reads("orders", 4)), (Some(&[0][..]), Some(&[1][..])));
        assert_eq!(
            (reads("by-user", 3), reads("written", 3), reads("stored", 3)),
            (Some(&[0][..]), None, None)
        );
    }

    #[test]
    fn an_active_group_names_its_members() {
        assert_eq!(group("Empty", 0).unless_active("g"), Ok(()));
        assert_eq!(group("Dead", 0).unless_active("g"), Ok(()));
        let said = |state, members| {
            let active = group(state, members).unless_active("g").expect_err("active");
            active.to_string().rsplit_once("inactive: ").expect("a reason").1.to_owned()
        };
        assert_eq!(said("Stable", 1), "g is Stable with 1 member: c0 (/10.0.0.1). Stop them first");
        let two = "g is Stable with 2 members: c0 (/10.0.0.1), c1 (/10.0.0.1). Stop them first";
        assert_eq!(said("Stable", 2), two);
        assert!(said("Stable", 11).contains("c9 (/10.0.0.1), ...") && !said("Stable", 11).contains("c10"));
        let joining = "g is PreparingRebalance with members that join or leave. Stop them first";
        assert_eq!(said("PreparingRebalance", 0), joining);
    }
}
