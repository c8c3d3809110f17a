//! Target assignments, as groups whose coordinator assigns have them.

use super::assignor::Assignment;
use std::sync::Arc;

/// The target of a member, and the epoch that it is for.
pub(super) struct Target {
    pub(super) epoch: i32,
    pub(super) of_member: Arc<Assignment>,
}

/// The group epoch after the present one, above that of the target, too: the log may lack the record of that epoch, and members
/// would then wait for a target of an epoch that is never assigned.
pub(super) fn next_epoch(epoch: i32, target_epoch: i32) -> i32 {
    epoch.max(target_epoch) + 1
}

/// Whether a target may be computed again, by the time of the last one (0 for none) and the interval between them.
pub(super) fn is_due(made_ms: i64, interval_ms: i32, now_ms: i64) -> bool {
    made_ms == 0
        || interval_ms == 0
        || now_ms >= made_ms.saturating_add(i64::from(interval_ms))
        // The clock was set back.
        || now_ms < made_ms
}
