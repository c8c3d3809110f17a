//! State shared by the cells of a coordinator.

use super::{CoordinatorLog, Moment, Shard};
use std::sync::Arc;
use thalweg_histogram::Histogram;
use thalweg_log::Clock;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

/// State shared by the cells of a coordinator.
pub(super) struct CellContext<S: Shard> {
    pub(super) shared: S::SharedState,
    pub(super) log: Arc<dyn CoordinatorLog>,
    pub(super) runtime: Handle,
    /// Notifies the sleeping task of an earlier deadline.
    pub(super) wake: Notify,
    /// Durations of loads.
    pub(super) loads: Histogram,
    pub(super) clock: Clock,
    pub(super) started: Instant,
}

impl<S: Shard> CellContext<S> {
    pub(super) fn now(&self) -> Moment {
        let monotonic_ms = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        Moment { wall_ms: self.clock.now_ms(), monotonic_ms }
    }

    /// The time, and the context of a turn at this time.
    pub(super) fn turn(&self) -> (Moment, S::TurnContext) {
        let now = self.now();
        (now, S::turn(&self.shared, now))
    }
}
