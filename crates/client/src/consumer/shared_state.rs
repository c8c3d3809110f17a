//! The state that a consumer shares with its fetchers and its commits: the assignment, and the demand for
//! records.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::assignment::Assignment;

/// State shared by a consumer, its fetchers and its commits.
#[derive(Debug, Default)]
pub(super) struct SharedState {
    pub(super) assignment: Mutex<Assignment>,
    /// Notified when partitions to fetch are added or removed.
    pub(super) changed: Notify,
    pub(super) demand: Demand,
}

/// The consumer's demand for records. Without demand, a broker without records is not polled: with
/// `fetch.max.wait.ms=0`, polling would be a busy loop.
#[derive(Debug, Default)]
pub(super) struct Demand {
    waiting: AtomicBool,
    changed: Notify,
}

impl Demand {
    pub(super) fn set(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Relaxed);
        if waiting {
            self.changed.notify_waiters();
        }
    }

    pub(super) async fn wait(&self) {
        let changed = self.changed.notified();
        if !self.waiting.load(Ordering::Relaxed) {
            changed.await;
        }
    }
}
