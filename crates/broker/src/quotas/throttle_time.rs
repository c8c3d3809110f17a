//! The place of the throttle time in answers.

use std::any::Any;
use thalweg_wire::request::*;

/// Sets the throttle time of an answer, if it has one.
pub(super) fn set(response: &mut dyn Any, ms: i32) {
    macro_rules! each {
        ($($response:ident)*) => {
            $(if let Some(response) = response.downcast_mut::<$response>() {
                response.throttle_time_ms = ms;
                return;
            })*
        };
    }
    each! {
        AddOffsetsToTxnResponse AddPartitionsToTxnResponse AlterConfigsResponse AlterReplicaLogDirsResponse
        ApiVersionsResponse CreateAclsResponse DeleteAclsResponse DeleteGroupsResponse DeleteRecordsResponse
        DescribeAclsResponse DescribeClientQuotasResponse DescribeClusterResponse DescribeConfigsResponse
        DescribeGroupsResponse DescribeLogDirsResponse DescribeProducersResponse
        DescribeTopicPartitionsResponse DescribeTransactionsResponse DescribeUserScramCredentialsResponse
        EndTxnResponse FindCoordinatorResponse HeartbeatResponse IncrementalAlterConfigsResponse
        InitProducerIdResponse JoinGroupResponse LeaveGroupResponse ListConfigResourcesResponse ListGroupsResponse
        ListOffsetsResponse ListTransactionsResponse MetadataResponse OffsetCommitResponse OffsetDeleteResponse
        OffsetFetchResponse OffsetForLeaderEpochResponse SyncGroupResponse TxnOffsetCommitResponse
    }
}
