//! Errors of the perf tools.

use std::path::PathBuf;

use thalweg_client::{
    BootstrapError, ChunkError, ClientError, ConsumerError, DeliveryError, InvalidProperty, InvalidSetting,
    NoGroup, SendError, TransactionError, UnresolvedSetting,
};

/// Why a perf tool failed.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// Options that cannot be combined, or are invalid.
    #[error("{0}")]
    Usage(String),
    /// A `key=value` without a key or a value.
    #[error(transparent)]
    Property(#[from] InvalidProperty),
    /// A placeholder without a value.
    #[error(transparent)]
    Placeholder(#[from] UnresolvedSetting),
    /// A setting with an invalid value.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// The bootstrap servers are missing or invalid.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// A file cannot be read.
    #[error("Cannot read {}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// A thread cannot be started.
    #[error("Failed to start a sender thread: {0}")]
    Thread(#[source] std::io::Error),
    /// A request to the cluster failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The consumer failed.
    #[error(transparent)]
    Consumer(#[from] ConsumerError),
    /// The records are unreadable.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// The consumer has no group.
    #[error(transparent)]
    NoGroup(#[from] NoGroup),
    /// A record was rejected.
    #[error(transparent)]
    Send(#[from] SendError),
    /// A transaction failed.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// Records were not stored.
    #[error("{failed} of {records} records were not stored; first error: {first}")]
    NotStored {
        /// Number of failed records.
        failed: u64,
        /// Number of records sent.
        records: u64,
        /// The first error.
        first: DeliveryError,
    },
    /// A cluster of Pulsar does not answer, or refuses a request.
    #[error(transparent)]
    Pulsar(#[from] Box<thalweg_pulsar::PulsarError>),
    /// A message was rejected by the client of Pulsar.
    #[error(transparent)]
    PulsarSend(#[from] Box<thalweg_pulsar::SendError>),
    /// Messages of Pulsar cannot be read.
    #[error(transparent)]
    PulsarConsume(#[from] Box<thalweg_pulsar::ConsumeError>),
    /// Entries of Pulsar could not be read; all others were.
    #[error("{entries} entries could not be read; first: {first}")]
    UnreadableOfPulsar {
        /// Number of unreadable entries.
        entries: u64,
        /// The first one.
        first: Box<thalweg_pulsar::UnreadableEntry>,
    },
    /// Messages were not stored by Pulsar.
    #[error("{failed} of {records} messages were not stored; first error: {first}")]
    NotStoredByPulsar {
        /// Number of failed messages.
        failed: u64,
        /// Number of messages sent.
        records: u64,
        /// The first error.
        first: Box<thalweg_pulsar::SendError>,
    },
    /// Messages are not known to be stored by Pulsar.
    #[error("{unanswered} of {records} messages had no answer at the end, and may be stored")]
    UnansweredByPulsar {
        /// Number of messages without an answer.
        unanswered: u64,
        /// Number of messages sent.
        records: u64,
    },
    /// Fewer records arrived than expected.
    #[error("{read} of {wanted} records were read: no record for --timeout {timeout_ms} ms")]
    TimedOut {
        /// Number of records read.
        read: u64,
        /// Number of expected records.
        wanted: u64,
        /// The time without a record, in milliseconds.
        timeout_ms: u64,
    },
    /// The record that was read differs from the one written.
    #[error("{0}")]
    Mismatch(String),
    /// The results cannot be written.
    #[error("Cannot write the results: {0}")]
    Output(#[from] std::io::Error),
}

impl PerfError {
    /// True if the caller's arguments are wrong: exit code 2.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            PerfError::Usage(_) | PerfError::Property(_) | PerfError::Setting(_) | PerfError::Bootstrap(_)
        )
    }
}
