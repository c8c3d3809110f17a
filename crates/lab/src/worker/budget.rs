//! Shares the records of a measurement with a record limit among the sending clients.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Assignment, StopWhen};

/// Maximum number of records that a client takes at once.
const SHARE_MAX: u64 = 256;

/// The records left for all clients within the measurement.
#[derive(Debug)]
pub(super) struct Budget {
    left: Option<AtomicU64>,
    share_max: u64,
}

impl Budget {
    /// The budget of an assignment.
    pub(super) fn new(assignment: &Assignment) -> Budget {
        match assignment.stop {
            StopWhen::Records(records) => {
                let fair = records / u64::from(assignment.clients.max(1)) / 16;
                Budget { left: Some(AtomicU64::new(records)), share_max: fair.clamp(1, SHARE_MAX) }
            }
            StopWhen::Seconds(_) | StopWhen::OnCommand => Budget { left: None, share_max: 0 },
        }
    }

    /// Takes a share; 0 if nothing is left.
    pub(super) fn take(&self) -> u64 {
        let Some(left) = &self.left else { return u64::MAX };
        let take = |left: u64| left.checked_sub(self.share_max.min(left));
        let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).unwrap_or(0);
        before.min(self.share_max)
    }
}
