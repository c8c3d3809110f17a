//! Errors of workers.

use super::link::LinkError;

/// Why a worker failed. The lab gets the text.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A protocol error between lab and worker, or the lab has exited.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A thread could not be started.
    #[error("Failed to start a worker thread: {0}")]
    Thread(#[from] std::io::Error),
    /// An error of the driver.
    #[error(transparent)]
    Driver(Box<dyn std::error::Error + Send + Sync>),
}

impl WorkerError {
    /// An error of a driver.
    pub(crate) fn driver(error: impl std::error::Error + Send + Sync + 'static) -> WorkerError {
        WorkerError::Driver(Box::new(error))
    }
}
