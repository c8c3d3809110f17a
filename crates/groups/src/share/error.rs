//! Why a share group refuses a request, and Kafka's codes for it.

use thalweg_shard::{RequestError, Unavailable, WriteError};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::ShareGroupHeartbeatResponse;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareGroupError {
    /// A field of the request has no sensible value.
    #[error("{0}")]
    Invalid(&'static str),
    /// There is no group of that name, and the request makes none.
    #[error("Share group {0} not found.")]
    NoGroup(String),
    /// The name is another kind of group's.
    #[error("Group {0} is not a share group.")]
    OtherKind(String),
    /// The group has `group.share.max.size` members.
    #[error("The share group has {max} members, the most that group.share.max.size allows")]
    Full {
        /// The setting.
        max: usize,
    },
    /// The group has no such member.
    #[error("The group has no member {0}")]
    UnknownMember(String),
    /// The member's epoch is another.
    #[error(
        "The member is at epoch {actual}, not {received}: it has to give up its partitions and join again"
    )]
    FencedEpoch {
        /// The request's.
        received: i32,
        /// The group's.
        actual: i32,
    },
    /// The group has members.
    #[error("The group is not empty.")]
    NotEmpty,
    /// The group did not get the request, or could not be written.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl From<Unavailable> for ShareGroupError {
    fn from(error: Unavailable) -> ShareGroupError {
        ShareGroupError::Request(error.into())
    }
}

impl From<WriteError> for ShareGroupError {
    fn from(error: WriteError) -> ShareGroupError {
        ShareGroupError::Request(error.into())
    }
}

impl ShareGroupError {
    /// Kafka's code for it.
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

    /// The refusal of a heartbeat.
    pub(in super::super) fn response(&self) -> ShareGroupHeartbeatResponse {
        ShareGroupHeartbeatResponse {
            error_code: self.code().code(),
            error_message: Some(self.to_string()),
            ..ShareGroupHeartbeatResponse::default()
        }
    }
}
