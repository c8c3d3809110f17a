//! StreamsGroupHeartbeat and StreamsGroupDescribe: validates the form of a request before passing it to the
//! group.

use super::GroupCoordinator;
use super::describing::GroupDescription;
use crate::answer::GroupAnswer;
use crate::client::ClientInfo;
use crate::member_epoch::{LEAVING, LEAVING_FOR_A_WHILE};
use crate::shard::GroupShard;
use crate::streams::{StreamsAnswer, StreamsGroupError};
use thalweg_shard::RequestError;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::streams_group_describe_response::{Assignment, DescribedGroup, Subtopology};
use thalweg_wire::request::streams_group_heartbeat_request::{self as sent, Topology};
use thalweg_wire::request::{
    StreamsGroupDescribeRequest, StreamsGroupDescribeResponse, StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
};

/// Maximum number of names in a topology and of tasks that a member may report. Kafka has no such limit; here
/// the topology is kept.
const NAMES_MAX: usize = 100_000;

impl GroupCoordinator {
    /// StreamsGroupHeartbeat, version 0: the answer, and the internal topics to create.
    pub async fn streams_group_heartbeat(
        &self,
        client: &ClientInfo,
        request: &StreamsGroupHeartbeatRequest,
    ) -> (StreamsGroupHeartbeatResponse, Vec<CreatableTopic>) {
        if let Err(error) = validate(request) {
            return (error.response(), Vec::new());
        }
        let answer = self.request(&request.group_id, |shard, ticket, now| {
            shard.streams_heartbeat(client, request, ticket, now);
        });
        let error = match answer.await {
            Ok(GroupAnswer::Streams(StreamsAnswer::Heartbeat(response, topics))) => {
                return (*response, topics);
            }
            Ok(_) => StreamsGroupError::from(RequestError::WrongAnswer),
            Err(error) => StreamsGroupError::from(error),
        };
        (error.response(), Vec::new())
    }

    /// StreamsGroupDescribe, version 0. Authorized operations are added by the caller.
    pub async fn streams_group_describe(
        &self,
        request: StreamsGroupDescribeRequest,
    ) -> StreamsGroupDescribeResponse {
        let groups = self.describe_each(request.group_ids, GroupShard::describe_streams_groups).await;
        StreamsGroupDescribeResponse { groups, ..Default::default() }
    }
}

fn invalid(reason: &str) -> Result<(), StreamsGroupError> {
    Err(StreamsGroupError::Invalid(reason.to_owned()))
}

fn validate(request: &StreamsGroupHeartbeatRequest) -> Result<(), StreamsGroupError> {
    refuse_unsupported(request)?;
    let is_blank = |text: &str| text.trim().is_empty();
    if is_blank(&request.member_id) {
        return invalid("MemberId can't be empty.");
    }
    if is_blank(&request.group_id) {
        return invalid("GroupId can't be empty.");
    }
    if request.rack_id.as_deref().is_some_and(is_blank) {
        return invalid("RackId can't be empty.");
    }
    let tasks = [&request.active_tasks, &request.standby_tasks, &request.warmup_tasks];
    if request.member_epoch == 0 {
        if request.rebalance_timeout_ms == -1 {
            return invalid("RebalanceTimeoutMs must be provided in first request.");
        }
        let names = ["ActiveTasks", "StandbyTasks", "WarmupTasks"];
        let has_some = |tasks: &Option<Vec<_>>| tasks.as_ref().is_none_or(|tasks| !tasks.is_empty());
        if let Some((_, name)) = tasks.into_iter().zip(names).find(|(tasks, _)| has_some(tasks)) {
            return invalid(&format!("{name} must be empty when (re-)joining."));
        }
        let Some(topology) = &request.topology else {
            return invalid("Topology must be non-null when (re-)joining.");
        };
        validate_topology(topology)?;
    } else if request.member_epoch == LEAVING_FOR_A_WHILE {
        return invalid("InstanceId can't be null.");
    } else if request.member_epoch < LEAVING {
        let epoch = request.member_epoch;
        return invalid(&format!("MemberEpoch is {epoch}, but must be greater than or equal to -2."));
    }
    if tasks.iter().any(|tasks| tasks.is_some()) && tasks.iter().any(|tasks| tasks.is_none()) {
        return invalid("If one task-type is non-null, all must be non-null.");
    }
    if request.member_epoch != 0 && request.topology.is_some() {
        return invalid("Topology can only be provided when (re-)joining.");
    }
    let reported = tasks.into_iter().flatten().flatten().map(|ids| 1 + ids.partitions.len());
    if reported.sum::<usize>() > NAMES_MAX {
        return invalid("The request names more than 100000 tasks");
    }
    Ok(())
}

/// Refuses the fields that Kafka 4.3 does not support either.
fn refuse_unsupported(request: &StreamsGroupHeartbeatRequest) -> Result<(), StreamsGroupError> {
    if request.instance_id.is_some() {
        return invalid("Static membership is not yet supported.");
    }
    if request.task_offsets.is_some() {
        return invalid("TaskOffsets are not supported yet.");
    }
    if request.task_end_offsets.is_some() {
        return invalid("TaskEndOffsets are not supported yet.");
    }
    if request.warmup_tasks.as_ref().is_some_and(|tasks| !tasks.is_empty()) {
        return invalid("WarmupTasks are not supported yet.");
    }
    let subtopologies = request.topology.iter().flat_map(|topology| &topology.subtopologies);
    if subtopologies.into_iter().any(|subtopology| !subtopology.source_topic_regex.is_empty()) {
        return invalid("Regular expressions for source topics are not supported yet.");
    }
    Ok(())
}

fn validate_topology(topology: &Topology) -> Result<(), StreamsGroupError> {
    for subtopology in &topology.subtopologies {
        if let Some(topic) = subtopology.state_changelog_topics.iter().find(|topic| topic.partitions != 0) {
            return Err(StreamsGroupError::InvalidTopology(format!(
                "Changelog topic {} must have an undefined partition count, but it is set to {}.",
                topic.name, topic.partitions
            )));
        }
    }
    if topology.subtopologies.iter().map(names).sum::<usize>() > NAMES_MAX {
        return invalid("The topology has more than 100000 names");
    }
    Ok(())
}

/// Number of names in a subtopology.
fn names(subtopology: &sent::Subtopology) -> usize {
    let internal = subtopology.state_changelog_topics.iter().chain(&subtopology.repartition_source_topics);
    let internal = internal.map(|topic| 1 + topic.topic_configs.len()).sum::<usize>();
    let copartitioned = subtopology
        .copartition_groups
        .iter()
        .map(|group| 1 + group.source_topics.len() + group.repartition_source_topics.len());
    1 + subtopology.source_topics.len()
        + subtopology.repartition_sink_topics.len()
        + internal
        + copartitioned.sum::<usize>()
}

impl GroupDescription for DescribedGroup {
    fn refused(group_id: String, error: ErrorCode) -> DescribedGroup {
        DescribedGroup { group_id, error_code: error.code(), ..DescribedGroup::default() }
    }

    fn of(answer: GroupAnswer) -> Option<Vec<DescribedGroup>> {
        match answer {
            GroupAnswer::Streams(StreamsAnswer::Described(groups)) => Some(groups),
            _ => None,
        }
    }

    fn bytes(&self) -> usize {
        let tasks = |assignment: &Assignment| {
            let roles = [&assignment.active_tasks, &assignment.standby_tasks, &assignment.warmup_tasks];
            let ids = roles.into_iter().flatten();
            ids.map(|ids| 8 + ids.subtopology_id.len() + 4 * ids.partitions.len()).sum::<usize>()
        };
        let members = self.members.iter().map(|member| {
            let names = member.member_id.len() + member.client_id.len() + member.client_host.len();
            let tags = member.client_tags.iter().map(|tag| 8 + tag.key.len() + tag.value.len());
            let more = member.process_id.len() + tags.sum::<usize>();
            128 + names + more + tasks(&member.assignment) + tasks(&member.target_assignment)
        });
        let subtopologies = self.topology.iter().flat_map(|topology| topology.subtopologies.iter().flatten());
        let topology = subtopologies.map(subtopology_bytes).sum::<usize>();
        64 + self.group_id.len() + topology + members.sum::<usize>()
    }
}

fn subtopology_bytes(subtopology: &Subtopology) -> usize {
    let names = subtopology.source_topics.iter().chain(&subtopology.repartition_sink_topics);
    let internal = subtopology.repartition_source_topics.iter().chain(&subtopology.state_changelog_topics);
    let internal = internal.map(|topic| {
        let configs = topic.topic_configs.iter().map(|config| 8 + config.key.len() + config.value.len());
        16 + topic.name.len() + configs.sum::<usize>()
    });
    16 + subtopology.subtopology_id.len()
        + names.map(|name| 4 + name.len()).sum::<usize>()
        + internal.sum::<usize>()
}
