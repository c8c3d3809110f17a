//! Failures of consumers.

use std::sync::Arc;

use crate::compression::CompressionFault;
use crate::error::PulsarError;
use crate::frame::FrameFault;
use crate::message_id::MessageId;

/// Why a consumer has no message to return.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConsumeError {
    /// An entry is damaged or has a form that this client lacks. The next call returns the next entry; the
    /// broker keeps the unreadable one until it is acknowledged.
    #[error(transparent)]
    Unreadable(#[from] UnreadableEntry),
    /// The topic is terminated, and all its messages were returned.
    #[error("The topic is terminated and has no more messages")]
    EndOfTopic,
    /// The consumer could not reconnect.
    #[error("The consumer has stopped: {0}")]
    Disconnected(#[source] Arc<PulsarError>),
    /// A request of the consumer failed. The consumer goes on.
    #[error(transparent)]
    Request(Arc<PulsarError>),
    #[error("The consumer is closed")]
    Closed,
}

/// An entry of the topic cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("Cannot read the entry {id}: {fault}")]
pub struct UnreadableEntry {
    /// The entry, without a place in its batch.
    pub id: MessageId,
    pub fault: EntryFault,
}

/// Why an entry cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EntryFault {
    /// The bytes are not what the protocol allows, or do not match their checksum.
    #[error(transparent)]
    Frame(#[from] FrameFault),
    #[error(transparent)]
    Compression(#[from] CompressionFault),
    /// The entry has fewer bytes than its messages need.
    #[error("message {index} of the batch announces {length} bytes where {available} are left")]
    Batch { index: i32, length: i64, available: usize },
    /// The entry is a part of a message in several entries.
    #[error("a message in {0} chunks, which this client lacks")]
    Chunked(i32),
    /// The payload is encrypted.
    #[error("a message encrypted by {0}, which this client lacks")]
    Encrypted(String),
}

/// Why a message cannot be acknowledged together with all before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("A {0:?} subscription takes no cumulative acknowledgements: its consumers do not get all messages")]
pub struct NotCumulative(pub crate::SubscriptionType);
