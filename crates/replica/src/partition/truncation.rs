//! The offset to truncate to when a log has diverged from its leader's. Pure.

use thalweg_log::EpochEnd;
use thalweg_record::{LeaderEpoch, Offset};

/// The divergence of a follower's log from its leader's, from a fetch answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The largest epoch of the leader that is not above the follower's last epoch.
    pub leader_epoch: LeaderEpoch,
    /// The end of that epoch in the leader's log.
    pub end_offset: Offset,
    /// The leader's log start, as followers see it.
    pub leader_start: Offset,
}

impl Divergence {
    /// The end of the epoch in the leader's log.
    pub(super) fn epoch_end(&self) -> EpochEnd {
        EpochEnd { leader_epoch: self.leader_epoch, end_offset: self.end_offset }
    }
}

/// The offset to which to cut a diverged log (KIP-595, Kafka's `getOffsetTruncationState`). `leader` is the
/// largest epoch in the leader's log that is not above the last local epoch, and its end; `own` is the result
/// of the same lookup in the local log.
pub fn truncation(leader: EpochEnd, own: Option<EpochEnd>, log_end: Offset) -> Offset {
    match own {
        // The local log has no epoch that old.
        None => leader.end_offset.min(log_end),
        // The next fetch sends the common epoch.
        Some(own) if own.leader_epoch != leader.leader_epoch => own.end_offset.min(log_end),
        Some(own) => own.end_offset.min(leader.end_offset).min(log_end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(epoch: i32, offset: i64) -> EpochEnd {
        EpochEnd { leader_epoch: LeaderEpoch(epoch), end_offset: Offset(offset) }
    }

    #[test]
    fn a_log_is_cut_where_the_common_epoch_ends_on_either_side() {
        assert_eq!(truncation(end(3, 40), Some(end(3, 50)), Offset(60)), Offset(40));
        assert_eq!(truncation(end(3, 50), Some(end(3, 40)), Offset(60)), Offset(40));
        assert_eq!(truncation(end(3, 90), Some(end(3, 80)), Offset(60)), Offset(60));
        assert_eq!(truncation(end(3, 10), Some(end(2, 40)), Offset(60)), Offset(40), "epoch 3 is not here");
        assert_eq!(truncation(end(3, 10), None, Offset(60)), Offset(10));
        assert_eq!(truncation(end(3, 90), None, Offset(60)), Offset(60));
    }
}
