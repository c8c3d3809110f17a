//! Counters of dropped events, by reason and kind, and of drops not yet reported in the trail. Both ends of
//! an outlet's queue share these counters.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thalweg_config::AuditKind;
use tokio::sync::Notify;

/// The number of event kinds.
pub(crate) const KINDS: usize = AuditKind::ALL.len();

/// The reason for a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Above the rate of `thalweg.audit.events.per.second`.
    Rate,
    /// The queue of a slow outlet was full.
    Queue,
    /// The outlet failed to write the event.
    Unwritten,
}

impl DropReason {
    pub const ALL: [DropReason; 3] = [DropReason::Rate, DropReason::Queue, DropReason::Unwritten];

    /// The name of the reason in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Rate => "rate",
            DropReason::Queue => "queue",
            DropReason::Unwritten => "unwritten",
        }
    }
}

/// State shared by the two ends of an outlet's queue.
#[derive(Debug, Default)]
pub(crate) struct OutletState {
    /// Drops not yet reported in the trail, by kind.
    unreported: [AtomicU64; KINDS],
    pub dropped: [[AtomicU64; KINDS]; DropReason::ALL.len()],
    pub written: AtomicU64,
    pub is_closing: AtomicBool,
    /// Notified on drops, and when the trail closes.
    pub noticed: Notify,
}

impl OutletState {
    pub fn drop_some(&self, kind: usize, reason: DropReason, count: u64) {
        self.dropped[reason as usize][kind].fetch_add(count, Ordering::Relaxed);
        self.report_later(kind, count);
    }

    /// Adds drops to the next report.
    pub fn report_later(&self, kind: usize, count: u64) {
        if self.unreported[kind].fetch_add(count, Ordering::Relaxed) == 0 {
            self.noticed.notify_one();
        }
    }

    /// Takes the counts for a report; none if all are zero.
    pub fn take_unreported(&self) -> Option<[u64; KINDS]> {
        let counts = std::array::from_fn(|kind| self.unreported[kind].swap(0, Ordering::Relaxed));
        (counts != [0; KINDS]).then_some(counts)
    }

    pub fn has_unreported(&self) -> bool {
        self.unreported.iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }
}
