//! ConsumerGroupHeartbeat and ConsumerGroupDescribe: validates the form of a request before passing it to the
//! group.

use super::GroupCoordinator;
use super::describing::GroupDescription;
use crate::answer::GroupAnswer;
use crate::client::ClientInfo;
use crate::consumer::ConsumerGroupError;
use crate::member_epoch::{LEAVING, LEAVING_FOR_A_WHILE};
use crate::shard::GroupShard;
use crate::topic_filter::TopicFilter;
use thalweg_shard::RequestError;
use thalweg_wire::request::consumer_group_describe_response::DescribedGroup;
use thalweg_wire::request::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
};
use thalweg_wire::{ErrorCode, Uuid};

/// Maximum number of topics that a member may name, and of partitions that it may report. Kafka has no such
/// limit; here the group keeps each subscription, and compares it on each heartbeat that has one.
const NAMES_MAX: usize = 100_000;

impl GroupCoordinator {
    /// ConsumerGroupHeartbeat, versions 0 and 1. Since version 1 members generate their own ids.
    pub async fn consumer_group_heartbeat(
        &self,
        client: &ClientInfo,
        mut request: ConsumerGroupHeartbeatRequest,
        version: i16,
        filter: &TopicFilter,
    ) -> ConsumerGroupHeartbeatResponse {
        if let Err(error) = self.validate(&request, version) {
            return error.response();
        }
        // Version 0: the member gets its id from the answer.
        if request.member_id.is_empty() && request.member_epoch == 0 {
            request.member_id = Uuid::random().to_string();
        }
        let answer = self.request(&request.group_id, |shard, ticket, now| {
            shard.consumer_heartbeat(client, &request, filter, ticket, now);
        });
        match answer.await {
            Ok(GroupAnswer::ConsumerHeartbeat(response)) => response,
            Ok(_) => ConsumerGroupError::from(RequestError::WrongAnswer).response(),
            Err(error) => ConsumerGroupError::from(error).response(),
        }
    }

    fn validate(
        &self,
        request: &ConsumerGroupHeartbeatRequest,
        version: i16,
    ) -> Result<(), ConsumerGroupError> {
        let is_blank = |text: &str| text.trim().is_empty();
        let is_blank_option = |text: &Option<String>| text.as_deref().is_some_and(is_blank);
        let invalid = |reason| Err(ConsumerGroupError::Invalid(reason));
        let epoch = request.member_epoch;
        if (version >= 1 || epoch > 0 || epoch == LEAVING) && is_blank(&request.member_id) {
            return invalid("MemberId is empty");
        }
        if is_blank(&request.group_id) {
            return invalid("GroupId is empty");
        }
        if is_blank_option(&request.instance_id) {
            return invalid("InstanceId is empty: it is null for a dynamic member");
        }
        if is_blank_option(&request.rack_id) {
            return invalid("RackId is empty: it is null for a member without a rack");
        }
        if epoch == 0 {
            if request.rebalance_timeout_ms == -1 {
                return invalid("RebalanceTimeoutMs must be provided in first request.");
            }
            if request.topic_partitions.as_ref().is_none_or(|topics| !topics.is_empty()) {
                return invalid("TopicPartitions is not empty in a request to join");
            }
            if request.subscribed_topic_names.is_none() && request.subscribed_topic_regex.is_none() {
                return invalid(
                    "SubscribedTopicNames and SubscribedTopicRegex are missing in a request to join",
                );
            }
        } else if epoch == LEAVING_FOR_A_WHILE && request.instance_id.is_none() {
            return invalid("InstanceId is missing in a request to leave for a while");
        } else if epoch < LEAVING_FOR_A_WHILE {
            return invalid("MemberEpoch is below -2");
        }
        let reported = request.topic_partitions.iter().flatten().map(|topic| 1 + topic.partitions.len());
        let names = request.subscribed_topic_names.as_ref().map_or(0, Vec::len);
        if names > NAMES_MAX || reported.sum::<usize>() > NAMES_MAX {
            return invalid("The request names more than 100000 topics or partitions");
        }
        let offered = &self.config().consumer.assignors;
        match &request.server_assignor {
            Some(requested) if !offered.iter().any(|assignor| assignor.name() == requested) => {
                let names: Vec<&str> = offered.iter().map(|assignor| assignor.name()).collect();
                Err(ConsumerGroupError::UnsupportedAssignor {
                    requested: requested.clone(),
                    offered: names.join(", "),
                })
            }
            _ => Ok(()),
        }
    }

    /// ConsumerGroupDescribe, versions 0 and 1. Authorized operations are added by the caller.
    pub async fn consumer_group_describe(
        &self,
        request: ConsumerGroupDescribeRequest,
    ) -> ConsumerGroupDescribeResponse {
        let groups = self.describe_each(request.group_ids, GroupShard::describe_consumer_groups).await;
        ConsumerGroupDescribeResponse { groups, ..Default::default() }
    }
}

impl GroupDescription for DescribedGroup {
    fn refused(group_id: String, error: ErrorCode) -> DescribedGroup {
        DescribedGroup { group_id, error_code: error.code(), ..DescribedGroup::default() }
    }

    fn of(answer: GroupAnswer) -> Option<Vec<DescribedGroup>> {
        match answer {
            GroupAnswer::ConsumerDescribe(groups) => Some(groups),
            _ => None,
        }
    }

    fn bytes(&self) -> usize {
        let members = self.members.iter().map(|member| {
            let topics =
                member.assignment.topic_partitions.iter().chain(&member.target_assignment.topic_partitions);
            let assigned = topics.map(|topic| 24 + topic.topic_name.len() + 4 * topic.partitions.len());
            let subscribed = member.subscribed_topic_names.iter().map(|name| 4 + name.len());
            let names = member.member_id.len() + member.client_id.len() + member.client_host.len();
            64 + names + assigned.sum::<usize>() + subscribed.sum::<usize>()
        });
        64 + self.group_id.len() + members.sum::<usize>()
    }
}
