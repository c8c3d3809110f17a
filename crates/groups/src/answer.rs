//! Answers of shards.

use super::error::MembershipError;
use super::share::ShareAnswer;
use super::streams::StreamsAnswer;
use thalweg_shard::{ShardAnswer, WriteError};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::consumer_group_describe_response::DescribedGroup;
use thalweg_wire::request::delete_groups_response::DeletableGroupResult;
use thalweg_wire::request::offset_fetch_response::OffsetFetchResponseGroup;
use thalweg_wire::request::{
    ConsumerGroupHeartbeatResponse, HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse,
    OffsetCommitResponse, OffsetDeleteResponse, SyncGroupResponse, TxnOffsetCommitResponse,
};

/// A shard's answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupAnswer {
    JoinGroup(JoinGroupResponse),
    SyncGroup(SyncGroupResponse),
    Heartbeat(HeartbeatResponse),
    LeaveGroup(LeaveGroupResponse),
    OffsetCommit(OffsetCommitResponse),
    OffsetFetch(OffsetFetchResponseGroup),
    OffsetDelete(OffsetDeleteResponse),
    DeleteGroups(Vec<DeletableGroupResult>),
    TxnOffsetCommit(TxnOffsetCommitResponse),
    ConsumerHeartbeat(ConsumerGroupHeartbeatResponse),
    ConsumerDescribe(Vec<DescribedGroup>),
    /// The answer to a request of a share group.
    Share(ShareAnswer),
    /// The answer to a request of a streams group.
    Streams(StreamsAnswer),
    /// The answer to a transaction marker.
    TransactionEnded(Result<(), WriteError>),
}

impl ShardAnswer for GroupAnswer {
    fn failed(self, error: WriteError) -> GroupAnswer {
        let code = error.code();
        let error_code = code.code();
        match self {
            GroupAnswer::JoinGroup(_) => GroupAnswer::JoinGroup(join_error("", error.into())),
            GroupAnswer::SyncGroup(_) => GroupAnswer::SyncGroup(sync_error(error.into())),
            GroupAnswer::Heartbeat(_) => {
                GroupAnswer::Heartbeat(HeartbeatResponse { error_code, ..HeartbeatResponse::default() })
            }
            GroupAnswer::LeaveGroup(_) => {
                GroupAnswer::LeaveGroup(LeaveGroupResponse { error_code, ..LeaveGroupResponse::default() })
            }
            GroupAnswer::OffsetCommit(mut response) => {
                for partition in response.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                    partition.error_code = error_code;
                }
                GroupAnswer::OffsetCommit(response)
            }
            GroupAnswer::TxnOffsetCommit(mut response) => {
                for partition in response.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                    partition.error_code = error_code;
                }
                GroupAnswer::TxnOffsetCommit(response)
            }
            GroupAnswer::ConsumerHeartbeat(_) => {
                GroupAnswer::ConsumerHeartbeat(ConsumerGroupHeartbeatResponse {
                    error_code,
                    error_message: Some(error.to_string()),
                    ..ConsumerGroupHeartbeatResponse::default()
                })
            }
            GroupAnswer::ConsumerDescribe(groups) => {
                let failed = |group: DescribedGroup| DescribedGroup {
                    group_id: group.group_id,
                    error_code,
                    ..DescribedGroup::default()
                };
                GroupAnswer::ConsumerDescribe(groups.into_iter().map(failed).collect())
            }
            GroupAnswer::Share(answer) => GroupAnswer::Share(answer.failed(error)),
            GroupAnswer::Streams(answer) => GroupAnswer::Streams(answer.failed(error)),
            GroupAnswer::TransactionEnded(_) => GroupAnswer::TransactionEnded(Err(error)),
            GroupAnswer::OffsetFetch(mut group) => {
                // Kafka redirects the client only for a fetch of stable offsets.
                let error_code = match code {
                    ErrorCode::CoordinatorNotAvailable => ErrorCode::NotCoordinator.code(),
                    _ => error_code,
                };
                group.topics.clear();
                group.error_code = error_code;
                GroupAnswer::OffsetFetch(group)
            }
            GroupAnswer::OffsetDelete(_) => GroupAnswer::OffsetDelete(OffsetDeleteResponse {
                error_code,
                ..OffsetDeleteResponse::default()
            }),
            GroupAnswer::DeleteGroups(mut results) => {
                for result in &mut results {
                    result.error_code = error_code;
                }
                GroupAnswer::DeleteGroups(results)
            }
        }
    }
}

/// The answer to a refused JoinGroup.
pub(super) fn join_error(member_id: &str, error: MembershipError) -> JoinGroupResponse {
    JoinGroupResponse {
        error_code: error.code().code(),
        member_id: member_id.to_owned(),
        ..JoinGroupResponse::default()
    }
}

/// The answer to a refused SyncGroup.
pub(super) fn sync_error(error: MembershipError) -> SyncGroupResponse {
    SyncGroupResponse { error_code: error.code().code(), ..SyncGroupResponse::default() }
}
