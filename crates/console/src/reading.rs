//! How messages are read, the same for everyone: what rules hide, the registry that decodes, and how much may go on at once.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use thalweg_browse::{Masking, Registry};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::Problem;

/// Searches at once; further ones wait.
const SEARCHES_MAX: usize = 8;
/// Live tails at once; further ones are refused.
const TAILS_MAX: usize = 32;

/// How messages are read.
pub struct Reading {
    pub masking: Masking,
    pub registry: Option<Arc<Registry>>,
    searches: Arc<Semaphore>,
    tails: Arc<Semaphore>,
}

impl Reading {
    pub fn new(masking: Masking, registry: Option<Arc<Registry>>) -> Arc<Reading> {
        let places = |count| Arc::new(Semaphore::new(count));
        Arc::new(Reading { masking, registry, searches: places(SEARCHES_MAX), tails: places(TAILS_MAX) })
    }

    /// Waits for a place to search, for at most this long.
    pub async fn search(&self, patience: Duration) -> Result<OwnedSemaphorePermit, Problem> {
        let place = tokio::time::timeout(patience, Arc::clone(&self.searches).acquire_owned()).await;
        let place = place.map_err(|_| {
            busy(format!("{SEARCHES_MAX} searches are going on at this console: try again in a moment"))
        })?;
        Ok(place.expect("it is never closed"))
    }

    /// A place for a live tail, if there is one.
    pub fn tail(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let place = Arc::clone(&self.tails).try_acquire_owned();
        place.map_err(|_| busy(format!("{TAILS_MAX} live tails are open at this console: close one")))
    }
}

/// A limit is reached.
pub fn busy(message: String) -> Problem {
    Problem { status: StatusCode::TOO_MANY_REQUESTS, kind: "busy".to_owned(), message }
}
