//! The errors in an answer, for counting: of the APIs that consumers and producers depend on while they run. Produce and Fetch
//! count theirs where they make them.

use std::any::Any;
use thalweg_wire::request::{
    ConsumerGroupHeartbeatResponse, FindCoordinatorResponse, HeartbeatResponse, InitProducerIdResponse,
    JoinGroupResponse, LeaveGroupResponse, ListGroupsResponse, ListOffsetsResponse, MetadataResponse,
    OffsetCommitResponse, OffsetFetchResponse, ShareAcknowledgeResponse, ShareFetchResponse,
    SyncGroupResponse,
};

/// Hands every error in an answer to `count`; none for an answer of another API.
pub(super) fn each(response: &dyn Any, mut count: impl FnMut(i16)) {
    let mut tell = |code: i16| {
        if code != 0 {
            count(code);
        }
    };
    macro_rules! whole {
        ($($response:ident)*) => {
            $(if let Some(response) = response.downcast_ref::<$response>() {
                return tell(response.error_code);
            })*
        };
    }
    whole! {
        ConsumerGroupHeartbeatResponse HeartbeatResponse JoinGroupResponse SyncGroupResponse LeaveGroupResponse InitProducerIdResponse ListGroupsResponse
        ShareFetchResponse
    }
    if let Some(response) = response.downcast_ref::<ShareAcknowledgeResponse>() {
        tell(response.error_code);
        response.responses.iter().flat_map(|topic| &topic.partitions).for_each(|p| tell(p.error_code));
    } else if let Some(response) = response.downcast_ref::<MetadataResponse>() {
        response.topics.iter().for_each(|topic| tell(topic.error_code));
    } else if let Some(response) = response.downcast_ref::<OffsetCommitResponse>() {
        response.topics.iter().flat_map(|topic| &topic.partitions).for_each(|p| tell(p.error_code));
    } else if let Some(response) = response.downcast_ref::<ListOffsetsResponse>() {
        response.topics.iter().flat_map(|topic| &topic.partitions).for_each(|p| tell(p.error_code));
    } else if let Some(response) = response.downcast_ref::<OffsetFetchResponse>() {
        tell(response.error_code);
        response.groups.iter().for_each(|group| tell(group.error_code));
    } else if let Some(response) = response.downcast_ref::<FindCoordinatorResponse>() {
        tell(response.error_code);
        response.coordinators.iter().for_each(|coordinator| tell(coordinator.error_code));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::request::find_coordinator_response::Coordinator;

    fn errors(response: &dyn Any) -> Vec<i16> {
        let mut found = Vec::new();
        each(response, |code| found.push(code));
        found
    }

    #[test]
    fn errors_are_found_where_an_answer_has_them() {
        assert_eq!(errors(&HeartbeatResponse { error_code: 27, ..Default::default() }), [27]);
        assert!(errors(&HeartbeatResponse::default()).is_empty());
        let coordinator = |error_code| Coordinator { error_code, ..Default::default() };
        let coordinators = vec![coordinator(0), coordinator(15)];
        assert_eq!(errors(&FindCoordinatorResponse { coordinators, ..Default::default() }), [15]);
        assert!(errors(&"of another kind").is_empty());
    }
}
