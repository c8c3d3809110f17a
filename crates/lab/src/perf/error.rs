//! Why a perf tool gave up.

use std::path::PathBuf;

use thalweg_client::{
    BootstrapError, ChunkError, ClientError, ConsumerError, InvalidProperty, InvalidSetting, NoGroup,
    SendError,
};

/// Why a perf tool gave up.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// Options that do not go together, or have no meaning.
    #[error("{0}")]
    Usage(String),
    /// A `key=value` without a key or a value.
    #[error(transparent)]
    Property(#[from] InvalidProperty),
    /// A setting with a wrong value.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// No address.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// A file cannot be read.
    #[error("Cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A thread cannot be started.
    #[error("No thread for the senders: {0}")]
    Thread(#[source] std::io::Error),
    /// The cluster.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The consumer.
    #[error(transparent)]
    Consumer(#[from] ConsumerError),
    /// What came cannot be read.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// A group is needed.
    #[error(transparent)]
    NoGroup(#[from] NoGroup),
    /// A record was not taken.
    #[error(transparent)]
    Send(#[from] SendError),
    /// Records were not stored.
    #[error("{failed} of {records} records were not stored; the first: {first}")]
    NotStored {
        /// How many.
        failed: u64,
        /// Of how many.
        records: u64,
        /// Why the first was not.
        first: String,
    },
    /// What was read is not what was written.
    #[error("{0}")]
    Mismatch(String),
    /// The results cannot be written.
    #[error("Cannot write the results: {0}")]
    Output(#[from] std::io::Error),
}

impl PerfError {
    /// Whether the caller asked for the wrong thing: exit code 2.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            PerfError::Usage(_) | PerfError::Property(_) | PerfError::Setting(_) | PerfError::Bootstrap(_)
        )
    }
}
