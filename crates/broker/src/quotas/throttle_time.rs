//! The place of the throttle time in answers.

use std::any::Any;
use std::ops::Range;
use std::time::Duration;
use thalweg_wire::ApiKey;
use thalweg_wire::frame::response_header_version;
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
        ApiVersionsResponse ConsumerGroupDescribeResponse ConsumerGroupHeartbeatResponse CreateAclsResponse DeleteAclsResponse DeleteGroupsResponse DeleteRecordsResponse
        DescribeAclsResponse DescribeClientQuotasResponse DescribeClusterResponse DescribeConfigsResponse
        DescribeGroupsResponse DescribeLogDirsResponse DescribeProducersResponse
        DescribeTopicPartitionsResponse DescribeTransactionsResponse DescribeUserScramCredentialsResponse
        EndTxnResponse FindCoordinatorResponse GetTelemetrySubscriptionsResponse HeartbeatResponse IncrementalAlterConfigsResponse
        InitProducerIdResponse JoinGroupResponse LeaveGroupResponse ListConfigResourcesResponse ListGroupsResponse
        ListOffsetsResponse ListTransactionsResponse MetadataResponse OffsetCommitResponse OffsetDeleteResponse
        OffsetFetchResponse OffsetForLeaderEpochResponse PushTelemetryResponse ShareAcknowledgeResponse SyncGroupResponse TxnOffsetCommitResponse
    }
}

/// The bytes of the throttle time in an answer of the controller, without its length; `None` where it has none.
pub(super) fn place(key: ApiKey, version: i16, answer: &[u8]) -> Option<Range<usize>> {
    let is_flexible = usize::from(response_header_version(key, version) > 0);
    let begin = match key {
        ApiKey::DescribeQuorum => return None,
        // It comes last, before the tags of a flexible message, of which there are none.
        ApiKey::CreateDelegationToken | ApiKey::RenewDelegationToken | ApiKey::ExpireDelegationToken => {
            answer.len().checked_sub(is_flexible + 4)?
        }
        // It comes first, behind the correlation id and the tags of a flexible header, of which there are none.
        _ => 4 + is_flexible,
    };
    (begin + 4 <= answer.len()).then_some(begin..begin + 4)
}

/// The pause that an answer of the controller asks for.
pub fn of_answer(key: ApiKey, version: i16, answer: &[u8]) -> Option<Duration> {
    let bytes = answer.get(place(key, version, answer)?)?.first_chunk()?;
    let ms = i32::from_be_bytes(*bytes);
    u64::try_from(ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}
