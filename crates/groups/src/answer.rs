//! Answers of shards.

use super::error::MembershipError;
use super::heartbeat_error::HeartbeatError;
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
pub enum Answer {
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

impl ShardAnswer for Answer {
    fn failed(self, error: WriteError) -> Answer {
        let code = error.code();
        let error_code = code.code();
        match self {
            Answer::JoinGroup(_) => Answer::JoinGroup(join_error("", error.into())),
            Answer::SyncGroup(_) => Answer::SyncGroup(sync_error(error.into())),
            Answer::Heartbeat(_) => {
                Answer::Heartbeat(HeartbeatResponse { error_code, ..HeartbeatResponse::default() })
            }
            Answer::LeaveGroup(_) => {
                Answer::LeaveGroup(LeaveGroupResponse { error_code, ..LeaveGroupResponse::default() })
            }
            Answer::OffsetCommit(mut response) => {
                for partition in response.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                    partition.error_code = error_code;
                }
                Answer::OffsetCommit(response)
            }
            Answer::TxnOffsetCommit(mut response) => {
                for partition in response.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                    partition.error_code = error_code;
                }
                Answer::TxnOffsetCommit(response)
            }
            Answer::ConsumerHeartbeat(_) => Answer::ConsumerHeartbeat(HeartbeatError::from(error).response()),
            Answer::ConsumerDescribe(groups) => {
                let failed = |group: DescribedGroup| DescribedGroup {
                    group_id: group.group_id,
                    error_code,
                    ..DescribedGroup::default()
                };
                Answer::ConsumerDescribe(groups.into_iter().map(failed).collect())
            }
            Answer::Share(answer) => Answer::Share(answer.failed(error)),
            Answer::Streams(answer) => Answer::Streams(answer.failed(error)),
            Answer::TransactionEnded(_) => Answer::TransactionEnded(Err(error)),
            Answer::OffsetFetch(mut group) => {
                // Kafka redirects the client only for a fetch of stable offsets.
                let error_code = match code {
                    ErrorCode::CoordinatorNotAvailable => ErrorCode::NotCoordinator.code(),
                    _ => error_code,
                };
                group.topics.clear();
                group.error_code = error_code;
                Answer::OffsetFetch(group)
            }
            Answer::OffsetDelete(_) => {
                Answer::OffsetDelete(OffsetDeleteResponse { error_code, ..OffsetDeleteResponse::default() })
            }
            Answer::DeleteGroups(mut results) => {
                for result in &mut results {
                    result.error_code = error_code;
                }
                Answer::DeleteGroups(results)
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
