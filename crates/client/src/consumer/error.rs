//! The errors of a consumer.

use thalweg_dial::ClientError;
use thalweg_record::Offset;
use thalweg_wire::ErrorCode;

use super::InvalidPattern;
use crate::offsets::{GroupMetadata, TopicPartition};

/// Errors that stop a consumer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConsumerError {
    /// A request to the cluster failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A partition has no offset to continue from.
    #[error(transparent)]
    NoOffset(#[from] NoOffset),
    /// Records read before are no longer in the log.
    #[error(transparent)]
    Truncated(#[from] LogTruncated),
    /// The group has rebalanced without this consumer.
    #[error(transparent)]
    CommitFailed(#[from] CommitFailed),
    /// The call needs a consumer with a group.
    #[error(transparent)]
    NoGroup(#[from] NoGroup),
    /// A subscription pattern is not a regular expression.
    #[error(transparent)]
    InvalidPattern(#[from] InvalidPattern),
}

impl ConsumerError {
    /// True if the same call may succeed later.
    pub fn is_retriable(&self) -> bool {
        matches!(self, ConsumerError::Client(error) if error.is_retriable())
    }

    /// The error code of a broker's answer, if there was one.
    pub fn error_code(&self) -> Option<ErrorCode> {
        match self {
            ConsumerError::Client(error) => error.error_code(),
            ConsumerError::CommitFailed(failed) => failed.error_code,
            ConsumerError::NoOffset(_)
            | ConsumerError::Truncated(_)
            | ConsumerError::NoGroup(_)
            | ConsumerError::InvalidPattern(_) => None,
        }
    }
}

/// A partition has no offset to continue from, and `auto.offset.reset` allows no other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at} has no offset to read from{}, and auto.offset.reset is none: earliest or latest would choose one",
    offset.map(|offset| format!(" ({offset} is not in its log)")).unwrap_or_default())]
pub struct NoOffset {
    pub at: TopicPartition,
    /// The offset missing in its log, if there was one.
    pub offset: Option<Offset>,
}

/// The log of a partition was truncated before the position, as after an unclean election, and
/// `auto.offset.reset` allows no other position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at} was read up to offset {offset}, and its log was truncated before that{}, and auto.offset.reset is none: \
    earliest or latest would go back",
    divergent.map(|offset| format!(" (it is the same up to offset {offset})")).unwrap_or_default())]
pub struct LogTruncated {
    pub at: TopicPartition,
    /// The consumer's position.
    pub offset: Offset,
    /// The first offset whose record may differ now; `None` if the leader does not know.
    pub divergent: Option<Offset>,
}

/// The group has rebalanced, and this consumer is no longer the member that read the partitions: their new
/// owners may have read and committed more. Corresponds to Kafka's `CommitFailedException`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the offsets of group {} are not committed: the consumer is not an active member of the group, which rebalances or has \
    rebalanced without it, and other members read its partitions. Poll to join again, and continue at the committed offsets. \
    If this happens again, poll more often, with less work between polls, or raise max.poll.interval.ms", by.group)]
pub struct CommitFailed {
    /// The member that read the partitions.
    pub by: GroupMetadata,
    /// The coordinator's error; `None` if no request was sent.
    pub error_code: Option<ErrorCode>,
}

/// The consumer has no group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("group.id is not set: subscribing and committing need a group")]
pub struct NoGroup;
