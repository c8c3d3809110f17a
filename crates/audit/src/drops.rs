//! Events that were dropped: why, how many of each kind, and how many the trail itself has yet to report. Both ends of an
//! outlet's queue count here.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thalweg_config::AuditKind;
use tokio::sync::Notify;

/// The number of kinds.
pub(crate) const KINDS: usize = AuditKind::ALL.len();

/// Why an event was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// More in a second than `thalweg.audit.events.per.second`.
    Rate,
    /// The outlet is slower than the events.
    Queue,
    /// The outlet could not write.
    Unwritten,
}

impl DropReason {
    /// All reasons.
    pub const ALL: [DropReason; 3] = [DropReason::Rate, DropReason::Queue, DropReason::Unwritten];

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Rate => "rate",
            DropReason::Queue => "queue",
            DropReason::Unwritten => "unwritten",
        }
    }
}

/// What the two ends of an outlet's queue share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Dropped and not reported in the trail yet, by kind.
    unreported: [AtomicU64; KINDS],
    pub dropped: [[AtomicU64; KINDS]; DropReason::ALL.len()],
    pub written: AtomicU64,
    pub is_closing: AtomicBool,
    /// Something was dropped, or the trail is closing.
    pub noticed: Notify,
}

impl Shared {
    pub fn drop_some(&self, kind: usize, reason: DropReason, count: u64) {
        self.dropped[reason as usize][kind].fetch_add(count, Ordering::Relaxed);
        self.report_later(kind, count);
    }

    /// Counts dropped events for the next report.
    pub fn report_later(&self, kind: usize, count: u64) {
        if self.unreported[kind].fetch_add(count, Ordering::Relaxed) == 0 {
            self.noticed.notify_one();
        }
    }

    /// Takes the counts of a report; none if there is nothing to report.
    pub fn take_unreported(&self) -> Option<[u64; KINDS]> {
        let counts = std::array::from_fn(|kind| self.unreported[kind].swap(0, Ordering::Relaxed));
        (counts != [0; KINDS]).then_some(counts)
    }

    pub fn has_unreported(&self) -> bool {
        self.unreported.iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }
}
