//! The group coordinator's part of share groups; the share coordinator's part is in `thalweg_share_groups`.

use super::GroupCoordinator;
use super::describing::GroupDescription;
use crate::answer::GroupAnswer;
use crate::client::ClientInfo;
use crate::member_epoch::LEAVING;
use crate::shard::GroupShard;
use crate::share::{
    AlteredOffsets, DeletedOffsets, Initialization, ShareAnswer, ShareGroupError, SharePartitions,
};
use std::collections::BTreeSet;
use thalweg_shard::{Moment, RequestError, Ticket, Unavailability};
use thalweg_wire::request::alter_share_group_offsets_request::AlterShareGroupOffsetsRequestTopic;
use thalweg_wire::request::share_group_describe_response::DescribedGroup;
use thalweg_wire::request::{
    ShareGroupDescribeRequest, ShareGroupDescribeResponse, ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
};
use thalweg_wire::{ErrorCode, Uuid};

/// Maximum number of topics that a member may name. Kafka has no such limit; here the group keeps each
/// subscription, and compares it on each heartbeat that has one.
const NAMES_MAX: usize = 100_000;

impl GroupCoordinator {
    /// ShareGroupHeartbeat, version 1: the answer, and the work for the share coordinator.
    pub async fn share_heartbeat(
        &self,
        client: &ClientInfo,
        request: &ShareGroupHeartbeatRequest,
    ) -> (ShareGroupHeartbeatResponse, Option<Initialization>) {
        if let Err(error) = validate(request) {
            return (error.response(), None);
        }
        let answer = self.request_share(&request.group_id, |shard, ticket, now| {
            shard.share_heartbeat(client, request, ticket, now);
        });
        match answer.await {
            Ok(ShareAnswer::Heartbeat(response, initialization)) => (response, initialization),
            Ok(_) => (ShareGroupError::from(RequestError::WrongAnswer).response(), None),
            Err(error) => (ShareGroupError::from(error).response(), None),
        }
    }

    /// ShareGroupDescribe, version 1. Authorized operations are added by the caller.
    pub async fn share_group_describe(
        &self,
        request: ShareGroupDescribeRequest,
    ) -> ShareGroupDescribeResponse {
        let groups = self.describe_each(request.group_ids, GroupShard::describe_share_groups).await;
        ShareGroupDescribeResponse { groups, ..Default::default() }
    }

    /// True if the name belongs to a share group. Unavailable while the group's records are being loaded.
    pub fn is_share_group(&self, id: &str) -> Result<bool, Unavailability> {
        self.shards.cell(self.partition_for(id))?.peek(|shard| shard.is_share_group(id))
    }

    /// The initialized share partitions of a group.
    pub async fn initialized_share_partitions(&self, id: &str) -> Result<SharePartitions, RequestError> {
        let answer = self.request_share(id, |shard, ticket, _| shard.show_initialized(id, ticket));
        match answer.await? {
            ShareAnswer::Initialized(result) => Ok(result?),
            _ => Err(RequestError::WrongAnswer),
        }
    }

    /// AlterShareGroupOffsets: the answer, and the partitions to initialize.
    pub async fn alter_share_offsets(
        &self,
        id: &str,
        topics: &[AlterShareGroupOffsetsRequestTopic],
    ) -> Result<AlteredOffsets, ShareGroupError> {
        let answer = self.request_share(id, |shard, ticket, now| {
            shard.alter_share_offsets(id, topics, ticket, now);
        });
        match answer.await? {
            ShareAnswer::Altered(altered) => altered,
            _ => Err(RequestError::WrongAnswer.into()),
        }
    }

    /// DeleteShareGroupOffsets: the refused topics, and the states to delete.
    pub async fn delete_share_offsets(
        &self,
        id: &str,
        names: &[String],
    ) -> Result<DeletedOffsets, ShareGroupError> {
        let answer = self.request_share(id, |shard, ticket, now| {
            shard.delete_share_offsets(id, names, ticket, now);
        });
        match answer.await? {
            ShareAnswer::DeletedOffsets(deleted) => deleted,
            _ => Err(RequestError::WrongAnswer.into()),
        }
    }

    /// Records that the share coordinator has deleted the states of topics.
    pub async fn share_offsets_deleted(&self, id: &str, topics: &BTreeSet<Uuid>) -> Result<(), RequestError> {
        let answer = self.request_share(id, |shard, ticket, now| {
            shard.share_offsets_deleted(id, topics, ticket, now);
        });
        noted(answer.await?)
    }

    /// Prepares the deletion of a share group: the states that have to be deleted first.
    pub async fn delete_share_states(&self, id: &str) -> Result<SharePartitions, ShareGroupError> {
        let answer = self.request_share(id, |shard, ticket, now| shard.delete_share_states(id, ticket, now));
        match answer.await? {
            ShareAnswer::DeletedStates(states) => states,
            _ => Err(RequestError::WrongAnswer.into()),
        }
    }

    /// Records that the share coordinator has initialized partitions, or failed to.
    pub async fn share_states_answered(
        &self,
        id: &str,
        partitions: &SharePartitions,
        succeeded: bool,
    ) -> Result<(), RequestError> {
        let answer = self.request_share(id, |shard, ticket, now| {
            shard.share_states_answered(id, partitions, succeeded, ticket, now);
        });
        noted(answer.await?)
    }

    async fn request_share(
        &self,
        id: &str,
        request: impl FnOnce(&mut GroupShard, Ticket, Moment),
    ) -> Result<ShareAnswer, RequestError> {
        match self.request(id, request).await? {
            GroupAnswer::Share(answer) => Ok(answer),
            _ => Err(RequestError::WrongAnswer),
        }
    }
}

fn noted(answer: ShareAnswer) -> Result<(), RequestError> {
    match answer {
        ShareAnswer::Noted(result) => Ok(result?),
        _ => Err(RequestError::WrongAnswer),
    }
}

fn validate(request: &ShareGroupHeartbeatRequest) -> Result<(), ShareGroupError> {
    let is_blank = |text: &str| text.trim().is_empty();
    let invalid = |reason| Err(ShareGroupError::Invalid(reason));
    if is_blank(&request.member_id) {
        return invalid("MemberId can't be empty.");
    }
    if is_blank(&request.group_id) {
        return invalid("GroupId can't be empty.");
    }
    if request.rack_id.as_deref().is_some_and(is_blank) {
        return invalid("RackId can't be empty.");
    }
    let names = request.subscribed_topic_names.as_ref().map_or(0, Vec::len);
    if request.member_epoch == 0 && names == 0 {
        return invalid("SubscribedTopicNames must be set in first request.");
    }
    if request.member_epoch < LEAVING {
        return invalid("MemberEpoch is invalid.");
    }
    if names > NAMES_MAX {
        return invalid("The request names more than 100000 topics");
    }
    Ok(())
}

impl GroupDescription for DescribedGroup {
    fn refused(group_id: String, error: ErrorCode) -> DescribedGroup {
        DescribedGroup { group_id, error_code: error.code(), ..DescribedGroup::default() }
    }

    fn of(answer: GroupAnswer) -> Option<Vec<DescribedGroup>> {
        match answer {
            GroupAnswer::Share(ShareAnswer::Described(groups)) => Some(groups),
            _ => None,
        }
    }

    fn bytes(&self) -> usize {
        let members = self.members.iter().map(|member| {
            let topics = &member.assignment.topic_partitions;
            let assigned =
                topics.iter().map(|topic| 24 + topic.topic_name.len() + 4 * topic.partitions.len());
            let subscribed = member.subscribed_topic_names.iter().map(|name| 4 + name.len());
            let names = member.member_id.len() + member.client_id.len() + member.client_host.len();
            64 + names + assigned.sum::<usize>() + subscribed.sum::<usize>()
        });
        64 + self.group_id.len() + members.sum::<usize>()
    }
}
