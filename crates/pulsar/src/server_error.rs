//! Error codes of the protocol, by Pulsar's names.

use std::fmt;

/// A broker's reason for refusing a request or message. The names are Pulsar's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum ServerError {
    /// Also any code that this client does not know.
    UnknownError = 0,
    /// The metadata store failed.
    MetadataError = 1,
    /// BookKeeper failed to write or read.
    PersistenceError = 2,
    AuthenticationError = 3,
    AuthorizationError = 4,
    /// Another consumer holds the exclusive subscription.
    ConsumerBusy = 5,
    /// The broker does not own the topic at the moment; a new lookup is needed.
    ServiceNotReady = 6,
    /// The backlog quota is used up (policy `producer_request_hold`).
    ProducerBlockedQuotaExceededError = 7,
    /// The backlog quota is used up (policy `producer_exception`).
    ProducerBlockedQuotaExceededException = 8,
    /// The message's checksum is wrong.
    ChecksumError = 9,
    UnsupportedVersionError = 10,
    TopicNotFound = 11,
    SubscriptionNotFound = 12,
    ConsumerNotFound = 13,
    /// Too many lookups at once.
    TooManyRequests = 14,
    /// The topic takes no more messages.
    TopicTerminatedError = 15,
    /// Another producer of this name is connected.
    ProducerBusy = 16,
    InvalidTopicName = 17,
    IncompatibleSchema = 18,
    /// The subscription cannot take another consumer.
    ConsumerAssignError = 19,
    TransactionCoordinatorNotFound = 20,
    InvalidTxnStatus = 21,
    /// The request is forbidden by a policy or a limit, such as the size of a message.
    NotAllowedError = 22,
    TransactionConflict = 23,
    TransactionNotFound = 24,
    /// Another producer has taken over the exclusive access.
    ProducerFenced = 25,
}

impl ServerError {
    /// The error of a code; unknown codes are [`ServerError::UnknownError`].
    pub(crate) fn of(code: i32) -> ServerError {
        ServerError::try_from(code).unwrap_or(ServerError::UnknownError)
    }

    /// True if the first attempt to open a producer or consumer may succeed later: the topic moves, or the
    /// broker is busy.
    pub fn is_retriable(self) -> bool {
        matches!(
            self,
            ServerError::MetadataError
                | ServerError::PersistenceError
                | ServerError::ServiceNotReady
                | ServerError::TooManyRequests
        )
    }

    /// True if a reconnection may succeed later. In addition, the broker may not have noticed the end of the
    /// last connection, so that its producer or consumer seems to be another one.
    pub(crate) fn is_retriable_again(self) -> bool {
        self.is_retriable()
            || matches!(
                self,
                ServerError::UnknownError
                    | ServerError::ConsumerBusy
                    | ServerError::ProducerBusy
                    | ServerError::ConsumerAssignError
                    | ServerError::ProducerBlockedQuotaExceededError
            )
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_pulsars_names() {
        assert_eq!(ServerError::of(11).to_string(), "TopicNotFound");
        assert_eq!(ServerError::of(25), ServerError::ProducerFenced);
        assert_eq!(ServerError::of(26), ServerError::UnknownError);
        assert_eq!(ServerError::of(-1), ServerError::UnknownError);
    }

    #[test]
    fn a_name_in_use_is_final_at_first_and_passing_later() {
        assert!(!ServerError::ProducerBusy.is_retriable());
        assert!(ServerError::ProducerBusy.is_retriable_again());
        assert!(!ServerError::AuthorizationError.is_retriable_again());
    }
}
