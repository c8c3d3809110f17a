//! Why a share group refuses a request, and Kafka's codes for it.

use thalweg_shard::{RequestError, Unavailability, WriteError};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::ShareGroupHeartbeatResponse;

/// Why a request of a share group is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareGroupError {
    /// A field of the request has no sensible value.
    #[error("{0}")]
    Invalid(&'static str),
    /// The group does not exist, and the request does not create it.
    #[error("Share group {0} not found.")]
    NoGroup(String),
    /// The name belongs to a group of another type.
    #[error("Group {0} is not a share group.")]
    OtherKind(String),
    /// The group has `group.share.max.size` members.
    #[error("The share group has {max} members, the most that group.share.max.size allows")]
    Full {
        /// Value of the setting.
        max: usize,
    },
    /// The group has no such member.
    #[error("The group has no member {0}")]
    UnknownMember(String),
    /// The member is at another epoch.
    #[error(
        "The member is at epoch {actual}, not {received}: it has to give up its partitions and join again"
    )]
    FencedEpoch {
        /// Epoch in the request.
        received: i32,
        /// Current epoch of the member.
        actual: i32,
    },
    /// The group has members.
    #[error("The group is not empty.")]
    NotEmpty,
    /// The group did not get the request, or could not be written.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl From<Unavailability> for ShareGroupError {
    fn from(error: Unavailability) -> ShareGroupError {
        ShareGroupError::Request(error.into())
    }
}

impl From<WriteError> for ShareGroupError {
    fn from(error: WriteError) -> ShareGroupError {
        ShareGroupError::Request(error.into())
    }
}

impl ShareGroupError {
    /// Kafka's error code.
    pub fn code(&self) -> ErrorCode {
        match self {
            ShareGroupError::Invalid(_) => ErrorCode::InvalidRequest,
            ShareGroupError::NoGroup(_) | ShareGroupError::OtherKind(_) => ErrorCode::GroupIdNotFound,
            ShareGroupError::Full { .. } => ErrorCode::GroupMaxSizeReached,
            ShareGroupError::UnknownMember(_) => ErrorCode::UnknownMemberId,
            ShareGroupError::FencedEpoch { .. } => ErrorCode::FencedMemberEpoch,
            ShareGroupError::NotEmpty => ErrorCode::NonEmptyGroup,
            ShareGroupError::Request(error) => error.code(),
        }
    }

    /// The answer to the refused heartbeat.
    pub(in super::super) fn response(&self) -> ShareGroupHeartbeatResponse {
        ShareGroupHeartbeatResponse {
            error_code: self.code().code(),
            error_message: Some(self.to_string()),
            ..ShareGroupHeartbeatResponse::default()
        }
    }
}
