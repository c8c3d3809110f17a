//! Why a consumer group refuses a request, and Kafka's codes for it.

use crate::regex::InvalidRegex;
use thalweg_shard::{RequestError, Unavailability, WriteError};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::ConsumerGroupHeartbeatResponse;

/// Why a request of a consumer group is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum ConsumerGroupError {
    /// A field of the request has no sensible value.
    #[error("{0}")]
    Invalid(&'static str),
    /// The broker has no assignor with this name.
    #[error("Assignor {requested} is not offered by this broker, which has: {offered}")]
    UnsupportedAssignor {
        /// The name in the request.
        requested: String,
        /// The names in `group.consumer.assignors`.
        offered: String,
    },
    /// The group does not exist, and the request does not create it.
    #[error("There is no consumer group {0}")]
    NoGroup(String),
    /// A classic group has this name, and may not become a consumer group.
    #[error("Group {group} is a classic group and stays one: {reason}")]
    NotUpgraded {
        group: String,
        /// The setting, or the members' protocol, that prevents it.
        reason: &'static str,
    },
    /// The group has `group.consumer.max.size` members.
    #[error("The group has {max} members, the most that group.consumer.max.size allows")]
    Full {
        /// Value of the setting.
        max: usize,
    },
    /// The group has no such member.
    #[error("The group has no member {0}")]
    UnknownMember(String),
    /// The group has no member with this instance id.
    #[error("The group has no member with instance id {0}")]
    UnknownInstance(String),
    /// Another member has the instance id.
    #[error("Member {owner} has taken over instance id {instance}")]
    FencedInstance {
        instance: String,
        /// The member that owns the instance id.
        owner: String,
    },
    /// Another member has the instance id, and has not left.
    #[error("Member {owner} has instance id {instance} and has not left the group")]
    UnreleasedInstance {
        instance: String,
        /// The member that owns the instance id.
        owner: String,
    },
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
    /// The member's state belongs to a later version.
    #[error("The member's state is unknown to this version: it has to give up its partitions and join again")]
    UnknownState,
    /// The regular expression cannot be compiled.
    #[error(transparent)]
    InvalidRegex(#[from] InvalidRegex),
    /// The group did not get the request, or could not be written.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl From<Unavailability> for ConsumerGroupError {
    fn from(error: Unavailability) -> ConsumerGroupError {
        ConsumerGroupError::Request(error.into())
    }
}

impl From<WriteError> for ConsumerGroupError {
    fn from(error: WriteError) -> ConsumerGroupError {
        ConsumerGroupError::Request(error.into())
    }
}

impl ConsumerGroupError {
    /// Kafka's error code.
    pub(in super::super) fn code(&self) -> ErrorCode {
        match self {
            ConsumerGroupError::Invalid(_) => ErrorCode::InvalidRequest,
            ConsumerGroupError::UnsupportedAssignor { .. } => ErrorCode::UnsupportedAssignor,
            ConsumerGroupError::NoGroup(_) | ConsumerGroupError::NotUpgraded { .. } => {
                ErrorCode::GroupIdNotFound
            }
            ConsumerGroupError::Full { .. } => ErrorCode::GroupMaxSizeReached,
            ConsumerGroupError::UnknownMember(_) | ConsumerGroupError::UnknownInstance(_) => {
                ErrorCode::UnknownMemberId
            }
            ConsumerGroupError::FencedInstance { .. } => ErrorCode::FencedInstanceId,
            ConsumerGroupError::UnreleasedInstance { .. } => ErrorCode::UnreleasedInstanceId,
            ConsumerGroupError::FencedEpoch { .. } | ConsumerGroupError::UnknownState => {
                ErrorCode::FencedMemberEpoch
            }
            ConsumerGroupError::InvalidRegex(_) => ErrorCode::InvalidRegularExpression,
            ConsumerGroupError::Request(error) => error.code(),
        }
    }

    /// The answer to the refused heartbeat.
    pub(in super::super) fn response(&self) -> ConsumerGroupHeartbeatResponse {
        ConsumerGroupHeartbeatResponse {
            error_code: self.code().code(),
            error_message: Some(self.to_string()),
            ..ConsumerGroupHeartbeatResponse::default()
        }
    }
}
