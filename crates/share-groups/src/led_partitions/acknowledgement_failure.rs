//! Reasons why acknowledgements have no effect, or an unknown one.

use thalweg_share::AcknowledgeError;
use thalweg_wire::ErrorCode;

/// Why acknowledgements of one partition failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcknowledgementFailure {
    /// The batches in the request are invalid; the text gives the reason.
    Malformed(&'static str),
    /// The share partition refuses the acknowledgements.
    Refused(AcknowledgeError),
    /// The partition is not served here or not to this member, or its state cannot be written.
    Unserved(ErrorCode),
}

impl AcknowledgementFailure {
    /// Kafka's error code.
    pub fn code(self) -> ErrorCode {
        match self {
            AcknowledgementFailure::Malformed(_) => ErrorCode::InvalidRequest,
            AcknowledgementFailure::Refused(error) => match error {
                AcknowledgeError::UnknownType(_)
                | AcknowledgeError::WrongTypes
                | AcknowledgeError::NeverDelivered => ErrorCode::InvalidRequest,
                AcknowledgeError::NotAcquired | AcknowledgeError::RenewDisabled => {
                    ErrorCode::InvalidRecordState
                }
            },
            AcknowledgementFailure::Unserved(code) => code,
        }
    }
}

impl std::fmt::Display for AcknowledgementFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AcknowledgementFailure::Malformed(why) => f.write_str(why),
            AcknowledgementFailure::Refused(error) => error.fmt(f),
            AcknowledgementFailure::Unserved(code) => match code {
                ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId => {
                    f.write_str("the group reads no such partition from this broker")
                }
                ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch => {
                    f.write_str("this broker does not lead the partition any more, or the group was set to another offset")
                }
                ErrorCode::CoordinatorNotAvailable => {
                    f.write_str("the share coordinator did not answer: the records are acquired as before")
                }
                ErrorCode::TopicAuthorizationFailed => f.write_str("READ on the topic is missing"),
                other => f.write_str(other.name()),
            },
        }
    }
}
