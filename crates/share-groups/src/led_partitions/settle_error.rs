//! Reasons why acknowledgements have no effect, or an unknown one.

use thalweg_share::AcknowledgeError;
use thalweg_wire::ErrorCode;

/// Why acknowledgements of one partition failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleError {
    /// The batches in the request are invalid; the text gives the reason.
    Malformed(&'static str),
    /// The share partition refuses the acknowledgements.
    Refused(AcknowledgeError),
    /// The partition is not served here or not to this member, or its state cannot be written.
    Unserved(ErrorCode),
}

impl SettleError {
    /// Kafka's error code.
    pub fn code(self) -> ErrorCode {
        match self {
            SettleError::Malformed(_) => ErrorCode::InvalidRequest,
            SettleError::Refused(error) => match error {
                AcknowledgeError::UnknownType(_)
                | AcknowledgeError::WrongTypes
                | AcknowledgeError::NeverDelivered => ErrorCode::InvalidRequest,
                AcknowledgeError::NotAcquired | AcknowledgeError::RenewDisabled => {
                    ErrorCode::InvalidRecordState
                }
            },
            SettleError::Unserved(code) => code,
        }
    }
}

impl std::fmt::Display for SettleError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SettleError::Malformed(why) => f.write_str(why),
            SettleError::Refused(error) => error.fmt(f),
            SettleError::Unserved(code) => match code {
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
