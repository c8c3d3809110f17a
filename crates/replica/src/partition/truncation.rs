//! The offset to truncate to when a log has diverged from its leader's. Pure.

use thalweg_log::EpochEnd;
use thalweg_record::{LeaderEpoch, Offset};

/// Where a leader's log parts from a follower's, by the answer to a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The largest epoch there that is not above the last one here.
    pub leader_epoch: LeaderEpoch,
    /// Where it ends there.
    pub end_offset: Offset,
    /// Where the leader's log begins for its followers.
    pub leader_start: Offset,
}

impl Divergence {
    /// The end of the epoch in the leader's log.
    pub(super) fn epoch_end(&self) -> EpochEnd {
        EpochEnd { leader_epoch: self.leader_epoch, end_offset: self.end_offset }
    }
}

/// Where to cut a log that has parted from its leader's (KIP-595, Kafka's `getOffsetTruncationState`). `leader` is the
/// largest epoch there that is not above the last one here, and where it ends; `own` the same looked up here.
pub fn truncation(leader: EpochEnd, own: Option<EpochEnd>, log_end: Offset) -> Offset {
    match own {
        // Nothing here is as old as that.
        None => leader.end_offset.min(log_end),
        // The next fetch sends the epoch that both have.
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
