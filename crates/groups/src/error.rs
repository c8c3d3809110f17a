//! Reasons why a group refuses a request, and their mapping to Kafka's codes.

use thalweg_shard::{RequestError, Unavailability, WriteError};
use thalweg_wire::ErrorCode;

/// Why the request of a member or a joining client is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MembershipError {
    /// The group has no name.
    #[error("The group id is empty")]
    InvalidGroupId,
    /// The session timeout is not within the broker's bounds.
    #[error("The session timeout is out of bounds")]
    InvalidSessionTimeout,
    /// The member's protocols are not the group's.
    #[error("The member's protocols are not the group's")]
    InconsistentProtocol,
    /// The group has no room for another member.
    #[error("The group is full")]
    GroupFull,
    /// The member has to join again with the id in the answer (KIP-394).
    #[error("The member has to join with its new id")]
    MemberIdRequired,
    /// The group has no such member.
    #[error("The group has no such member")]
    UnknownMember,
    /// Another member has taken over the instance id.
    #[error("Another member has the instance id")]
    FencedInstance,
    /// A static member uses an id that was given to a dynamic one.
    #[error("A static member uses the id of a dynamic one")]
    UnexpectedInstance,
    /// The group is in another generation.
    #[error("The group is in another generation")]
    IllegalGeneration,
    /// The member of a consumer group is at another epoch.
    #[error("The member is at another epoch")]
    StaleEpoch,
    /// A member of the consumer protocol commits by a version without member epochs.
    #[error("Members of the consumer protocol commit by version 9 or later")]
    OldCommit,
    /// The group rebalances: the member has to join again.
    #[error("The group rebalances")]
    RebalanceInProgress,
    /// The group did not get the request, or could not be written.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl From<Unavailability> for MembershipError {
    fn from(error: Unavailability) -> MembershipError {
        MembershipError::Request(error.into())
    }
}

impl From<WriteError> for MembershipError {
    fn from(error: WriteError) -> MembershipError {
        MembershipError::Request(error.into())
    }
}

impl MembershipError {
    /// Kafka's error code.
    pub(super) fn code(self) -> ErrorCode {
        match self {
            MembershipError::InvalidGroupId => ErrorCode::InvalidGroupId,
            MembershipError::InvalidSessionTimeout => ErrorCode::InvalidSessionTimeout,
            MembershipError::InconsistentProtocol => ErrorCode::InconsistentGroupProtocol,
            MembershipError::GroupFull => ErrorCode::GroupMaxSizeReached,
            MembershipError::MemberIdRequired => ErrorCode::MemberIdRequired,
            MembershipError::UnknownMember => ErrorCode::UnknownMemberId,
            MembershipError::FencedInstance => ErrorCode::FencedInstanceId,
            MembershipError::UnexpectedInstance => ErrorCode::UnknownServerError,
            MembershipError::IllegalGeneration => ErrorCode::IllegalGeneration,
            MembershipError::StaleEpoch => ErrorCode::StaleMemberEpoch,
            MembershipError::OldCommit => ErrorCode::UnsupportedVersion,
            MembershipError::RebalanceInProgress => ErrorCode::RebalanceInProgress,
            MembershipError::Request(error) => error.code(),
        }
    }
}

/// Why an offset is not committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CommitError {
    /// The committer is not a member of the group in its generation.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// The commit names a member of a group that does not exist.
    #[error("The group does not exist")]
    UnknownGroup,
    /// The client's metadata for the offset is too long.
    #[error("The metadata exceeds offset.metadata.max.bytes")]
    MetadataTooLarge,
}

impl CommitError {
    /// Kafka's error code.
    pub(super) fn code(self) -> ErrorCode {
        match self {
            CommitError::Membership(error) => error.code(),
            CommitError::UnknownGroup => ErrorCode::GroupIdNotFound,
            CommitError::MetadataTooLarge => ErrorCode::OffsetMetadataTooLarge,
        }
    }
}

/// Why a group or its offsets are not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ViewError {
    /// The group did not get the request.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The answer has no room for the group.
    #[error("The answer is full")]
    AnswerFull,
}

impl From<Unavailability> for ViewError {
    fn from(error: Unavailability) -> ViewError {
        ViewError::Request(error.into())
    }
}

impl ViewError {
    /// Kafka's error code.
    pub(super) fn code(self) -> ErrorCode {
        match self {
            ViewError::Request(error) => error.code(),
            ViewError::AnswerFull => ErrorCode::InvalidRequest,
        }
    }
}
