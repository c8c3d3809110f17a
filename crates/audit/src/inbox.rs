//! The receiving end of an outlet's queue: batches of events, and reports of dropped events.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use thalweg_log::Clock;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::drops::{DropReason, KINDS, OutletState};
use crate::event::Event;
use crate::ocsf::{Origin, line, report};

/// Maximum events of a batch.
const BATCH_MAX: usize = 512;
/// Minimum interval between reports of dropped events.
const REPORT: Duration = Duration::from_secs(1);

/// The receiving end of an outlet's queue.
#[derive(Debug)]
pub struct Inbox {
    events: mpsc::Receiver<Arc<Event>>,
    shared: Arc<OutletState>,
    origin: Arc<Origin>,
    clock: Clock,
    reported_at: Option<Instant>,
}

/// A batch of events to write.
#[derive(Debug)]
pub struct Batch {
    events: Vec<Arc<Event>>,
    dropped: Option<[u64; KINDS]>,
    time_ms: i64,
    origin: Arc<Origin>,
    shared: Arc<OutletState>,
}

impl Inbox {
    pub(crate) fn new(
        events: mpsc::Receiver<Arc<Event>>,
        shared: Arc<OutletState>,
        origin: Origin,
        clock: Clock,
    ) -> Inbox {
        Inbox { events, shared, origin: Arc::new(origin), clock, reported_at: None }
    }

    /// Waits for events or unreported drops. None once the trail is closed and the queue is empty.
    pub async fn next(&mut self) -> Option<Batch> {
        loop {
            let mut events = Vec::new();
            // A report waits for further events, but no longer than the interval of reports.
            let report_at = self
                .shared
                .has_unreported()
                .then(|| self.reported_at.map_or_else(Instant::now, |at| at + REPORT));
            let is_closing = self.shared.is_closing.load(Ordering::Acquire);
            if is_closing {
                while events.len() < BATCH_MAX
                    && let Ok(event) = self.events.try_recv()
                {
                    events.push(event);
                }
            } else {
                let shared = Arc::clone(&self.shared);
                tokio::select! {
                    biased;
                    count = self.events.recv_many(&mut events, BATCH_MAX) => if count == 0 {
                        // The trail was dropped.
                        self.shared.is_closing.store(true, Ordering::Release);
                    },
                    () = shared.noticed.notified() => continue,
                    () = until(report_at) => {}
                }
            }
            let may_report = is_closing || report_at.is_some_and(|at| at <= Instant::now());
            let dropped = may_report.then(|| self.shared.take_unreported()).flatten();
            if dropped.is_some() {
                self.reported_at = Some(Instant::now());
            }
            if events.is_empty() && dropped.is_none() {
                if is_closing {
                    return None;
                }
                continue;
            }
            let (origin, shared) = (Arc::clone(&self.origin), Arc::clone(&self.shared));
            return Some(Batch { events, dropped, time_ms: self.clock.now_ms(), origin, shared });
        }
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

impl Batch {
    /// The lines of the batch, without line ends. The report of dropped events comes first.
    pub fn lines(&self) -> impl Iterator<Item = Vec<u8>> {
        let report = self.dropped.map(|dropped| report(&dropped, self.time_ms, &self.origin));
        report.into_iter().chain(self.events.iter().map(|event| line(event, &self.origin)))
    }

    /// Records a successful write.
    pub fn written(&self) {
        self.shared.written.fetch_add(self.events.len() as u64, Ordering::Relaxed);
    }

    /// Records a failed write. The events count as dropped, and the counts of the report return to the next
    /// report.
    pub fn unwritten(&self) {
        for event in &self.events {
            self.shared.drop_some(event.what.kind() as usize, DropReason::Unwritten, 1);
        }
        for (kind, count) in self.dropped.into_iter().flatten().enumerate() {
            if count > 0 {
                self.shared.report_later(kind, count);
            }
        }
    }
}
