//! Why a worker cannot go on.

use super::link::LinkError;

/// Why a worker cannot go on. What the lab is told is its text.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The lab and the worker do not understand each other, or the lab is gone.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A thread could not be started.
    #[error("A thread of the worker could not be started: {0}")]
    Thread(#[from] std::io::Error),
    /// What the driver says.
    #[error(transparent)]
    Driver(Box<dyn std::error::Error + Send + Sync>),
}

impl WorkerError {
    /// What a driver says.
    pub(crate) fn driver(error: impl std::error::Error + Send + Sync + 'static) -> WorkerError {
        WorkerError::Driver(Box::new(error))
    }
}
