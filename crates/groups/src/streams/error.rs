//! Why a streams group refuses a request, and Kafka's codes for it.

use thalweg_shard::{RequestError, Unavailability, WriteError};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::StreamsGroupHeartbeatResponse;

/// Why a request of a streams group is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum StreamsGroupError {
    /// A field of the request has no sensible value.
    #[error("{0}")]
    Invalid(String),
    /// The topology is invalid for any topics.
    #[error("{0}")]
    InvalidTopology(String),
    /// The group does not exist, and the request does not create it.
    #[error("Streams group {0} not found.")]
    NoGroup(String),
    /// The name belongs to a group of another type.
    #[error("Group {0} is not a streams group.")]
    OtherKind(String),
    /// The group has `group.streams.max.size` members.
    #[error("The streams group has reached its maximum capacity of {max} members.")]
    Full {
        /// Value of the setting.
        max: usize,
    },
    /// The group has no such member.
    #[error("Member {member} is not a member of group {group}.")]
    UnknownMember {
        /// The member id in the request.
        member: String,
        group: String,
    },
    /// The member is at another epoch.
    #[error("The member is at epoch {actual}, not {received}: it has to give up its tasks and join again")]
    FencedEpoch {
        /// Epoch in the request.
        received: i32,
        /// Current epoch of the member.
        actual: i32,
    },
    /// The member's state belongs to a later version.
    #[error("The member's state is unknown to this version: it has to give up its tasks and join again")]
    UnknownState,
    /// A request for which Kafka has no better code than UNKNOWN_SERVER_ERROR.
    #[error("{0}")]
    Unexpected(String),
    /// The group did not get the request, or could not be written.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl From<Unavailability> for StreamsGroupError {
    fn from(error: Unavailability) -> StreamsGroupError {
        StreamsGroupError::Request(error.into())
    }
}

impl From<WriteError> for StreamsGroupError {
    fn from(error: WriteError) -> StreamsGroupError {
        StreamsGroupError::Request(error.into())
    }
}

impl StreamsGroupError {
    /// Kafka's error code.
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

    /// The answer to the refused heartbeat.
    pub(in super::super) fn response(&self) -> StreamsGroupHeartbeatResponse {
        StreamsGroupHeartbeatResponse {
            error_code: self.code().code(),
            error_message: Some(self.to_string()),
            ..StreamsGroupHeartbeatResponse::default()
        }
    }
}
