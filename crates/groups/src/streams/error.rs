//! Why a streams group refuses a request, and Kafka's codes for it.

use thalweg_shard::{RequestError, Unavailable, WriteError};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::StreamsGroupHeartbeatResponse;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum StreamsGroupError {
    /// A field of the request has no sensible value.
    #[error("{0}")]
    Invalid(String),
    /// The topology cannot be processed, whatever topics there are.
    #[error("{0}")]
    InvalidTopology(String),
    /// There is no group of that name, and the request makes none.
    #[error("Streams group {0} not found.")]
    NoGroup(String),
    /// The name is another kind of group's.
    #[error("Group {0} is not a streams group.")]
    OtherKind(String),
    /// The group has `group.streams.max.size` members.
    #[error("The streams group has reached its maximum capacity of {max} members.")]
    Full {
        /// The setting.
        max: usize,
    },
    /// The group has no such member.
    #[error("Member {member} is not a member of group {group}.")]
    UnknownMember {
        /// The id in the request.
        member: String,
        /// The group.
        group: String,
    },
    /// The member's epoch is another.
    #[error("The member is at epoch {actual}, not {received}: it has to give up its tasks and join again")]
    FencedEpoch {
        /// The request's.
        received: i32,
        /// The group's.
        actual: i32,
    },
    /// The member's state is one that only a later version knows.
    #[error("The member's state is unknown to this version: it has to give up its tasks and join again")]
    UnknownState,
    /// A request for which Kafka has no better code than UNKNOWN_SERVER_ERROR.
    #[error("{0}")]
    Unexpected(String),
    /// The group did not get the request, or could not be written.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl From<Unavailable> for StreamsGroupError {
    fn from(error: Unavailable) -> StreamsGroupError {
        StreamsGroupError::Request(error.into())
    }
}

impl From<WriteError> for StreamsGroupError {
    fn from(error: WriteError) -> StreamsGroupError {
        StreamsGroupError::Request(error.into())
    }
}

impl StreamsGroupError {
    /// Kafka's code for it.
    pub(in super::super) fn code(&self) -> ErrorCode {
        match self {
            StreamsGroupError::Invalid(_) => ErrorCode::InvalidRequest,
            StreamsGroupError::InvalidTopology(_) => ErrorCode::StreamsInvalidTopology,
            StreamsGroupError::NoGroup(_) | StreamsGroupError::OtherKind(_) => ErrorCode::GroupIdNotFound,
            StreamsGroupError::Full { .. } => ErrorCode::GroupMaxSizeReached,
            StreamsGroupError::UnknownMember { .. } => ErrorCode::UnknownMemberId,
            StreamsGroupError::FencedEpoch { .. } | StreamsGroupError::UnknownState => {
                ErrorCode::FencedMemberEpoch
            }
            StreamsGroupError::Unexpected(_) => ErrorCode::UnknownServerError,
            StreamsGroupError::Request(error) => error.code(),
        }
    }

    /// The refusal of a heartbeat.
    pub(in super::super) fn response(&self) -> StreamsGroupHeartbeatResponse {
        StreamsGroupHeartbeatResponse {
            error_code: self.code().code(),
            error_message: Some(self.to_string()),
            ..StreamsGroupHeartbeatResponse::default()
        }
    }
}
