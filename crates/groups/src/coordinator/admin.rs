//! ListGroups, DescribeGroups and DeleteGroups, across the shards of this broker.

use super::GroupCoordinator;
use crate::answer::GroupAnswer;
use crate::error::ViewError;
use std::collections::BTreeMap;
use thalweg_hash::HashSet;
use thalweg_metadata::PartitionIndex;
use thalweg_net::answer_parts::AnswerRoom;
use thalweg_shard::{ReplicatedValue, RequestError};
use thalweg_wire::request::delete_groups_response::DeletableGroupResult;
use thalweg_wire::request::describe_groups_response::DescribedGroup;
use thalweg_wire::request::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    ListGroupsRequest, ListGroupsResponse,
};

/// Groups deleted under one hold of a shard's lock.
const DELETED_AT_ONCE: usize = 500;

impl GroupCoordinator {
    /// ListGroups, versions 0 to 5.
    pub async fn list_groups(&self, request: ListGroupsRequest) -> ListGroupsResponse {
        let listed = self.shards.read_all(|shard| {
            ReplicatedValue::of(shard.list_groups(&request.states_filter, &request.types_filter))
        });
        match listed {
            Ok(groups) => {
                ListGroupsResponse { groups: groups.into_iter().flatten().collect(), ..Default::default() }
            }
            Err(error) => ListGroupsResponse { error_code: error.code().code(), ..Default::default() },
        }
    }

    /// DescribeGroups, versions 0 to 6. Authorized operations are added by the caller.
    pub async fn describe_groups(
        &self,
        request: DescribeGroupsRequest,
        version: i16,
    ) -> DescribeGroupsResponse {
        let mut room = AnswerRoom::default();
        let describe = |id: &String| {
            let described = self.read(id, |shard| ReplicatedValue::of(shard.describe_group(id, version)));
            let described = described.map_err(ViewError::from);
            // A full answer omits whole groups: a group is described completely or not at all.
            let described = described.and_then(|group| match room.take(answer_bytes(&group)) {
                true => Ok(group),
                false => Err(ViewError::AnswerFull),
            });
            described.unwrap_or_else(|error| DescribedGroup {
                group_id: id.clone(),
                error_code: error.code().code(),
                ..DescribedGroup::default()
            })
        };
        // Kafka repeats repeated groups; clients do not notice the difference.
        let mut seen = HashSet::default();
        let groups = request.groups.iter().filter(|id| seen.insert(id.as_str())).map(describe).collect();
        DescribeGroupsResponse { groups, ..DescribeGroupsResponse::default() }
    }

    /// DeleteGroups, versions 0 to 2.
    pub async fn delete_groups(&self, request: DeleteGroupsRequest) -> DeleteGroupsResponse {
        let mut by_partition: BTreeMap<PartitionIndex, Vec<String>> = BTreeMap::new();
        let mut seen = HashSet::default();
        for id in request.groups_names {
            if seen.insert(id.clone()) {
                by_partition.entry(self.partition_for(&id)).or_default().push(id);
            }
        }
        let mut response = DeleteGroupsResponse::default();
        for ids in by_partition.values().flat_map(|ids| ids.chunks(DELETED_AT_ONCE)) {
            let failed = |error: RequestError| {
                let error_code = error.code().code();
                let failed = |id: &String| DeletableGroupResult { group_id: id.clone(), error_code };
                ids.iter().map(failed).collect()
            };
            let answer = self.request(&ids[0], |shard, ticket, _| shard.delete_groups(ids, ticket));
            response.results.extend(match answer.await {
                Ok(GroupAnswer::DeleteGroups(results)) => results,
                Ok(_) => failed(RequestError::WrongAnswer),
                Err(error) => failed(error.into()),
            });
        }
        response
    }
}

/// Size of a group and its members in an answer.
fn answer_bytes(group: &DescribedGroup) -> usize {
    let members = group.members.iter().map(|member| {
        let names = member.member_id.len() + member.client_id.len() + member.client_host.len();
        48 + names + member.member_metadata.len() + member.member_assignment.len()
    });
    64 + group.group_id.len() + members.sum::<usize>()
}
