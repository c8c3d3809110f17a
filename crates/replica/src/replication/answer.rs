//! Interprets a leader's answer for one partition of a follower. Pure.

use crate::partition::Divergence;
use std::time::Duration;
use thalweg_record::{LeaderEpoch, Offset};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::fetch_response::PartitionData;

/// Minimum pause after an error. Most errors pass quickly: either broker has not seen the latest image yet.
const BACKOFF_MIN: Duration = Duration::from_millis(20);

/// The action for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerAction {
    /// Append the records, and take over the high watermark and the log start.
    Take,
    /// The logs have diverged: cut this log, by the end of the largest common epoch in the leader's log.
    Truncate(Divergence),
    /// The leader's log does not contain the fetch offset: request its bounds.
    OutOfRange,
    /// Retry after a pause.
    Retry(ErrorCode),
    /// Wait for another leader epoch: the leader does not serve in this epoch.
    Stop(ErrorCode),
}

/// Interprets one partition's part of a Fetch response.
pub fn judge(data: &PartitionData) -> FollowerAction {
    match ErrorCode::from_i16(data.error_code) {
        Some(ErrorCode::None) if data.diverging_epoch.epoch >= 0 => FollowerAction::Truncate(Divergence {
            leader_epoch: LeaderEpoch(data.diverging_epoch.epoch),
            end_offset: Offset(data.diverging_epoch.end_offset.max(0)),
            leader_start: Offset(data.log_start_offset.max(0)),
        }),
        Some(ErrorCode::None) => FollowerAction::Take,
        Some(ErrorCode::OffsetOutOfRange) => FollowerAction::OutOfRange,
        // The fetch used the epoch of this broker's image, so the leader has a newer image.
        Some(code @ ErrorCode::FencedLeaderEpoch) => FollowerAction::Stop(code),
        Some(code @ ErrorCode::OffsetMovedToTieredStorage) => FollowerAction::Stop(code),
        Some(code) => FollowerAction::Retry(code),
        None => FollowerAction::Retry(ErrorCode::UnknownServerError),
    }
}

/// The pause after consecutive failures, doubled each time, up to `replica.fetch.backoff.ms`.
pub fn backoff(failures: u32, longest: Duration) -> Duration {
    (BACKOFF_MIN * 2u32.saturating_pow(failures.saturating_sub(1).min(16))).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::request::fetch_response::EpochEndOffset;

    #[test]
    fn each_code_has_its_verdict() {
        let of = |code: ErrorCode| judge(&PartitionData { error_code: code.code(), ..Default::default() });
        assert_eq!(of(ErrorCode::OffsetOutOfRange), FollowerAction::OutOfRange);
        assert_eq!(of(ErrorCode::FencedLeaderEpoch), FollowerAction::Stop(ErrorCode::FencedLeaderEpoch));
        for code in [ErrorCode::UnknownLeaderEpoch, ErrorCode::NotLeaderOrFollower, ErrorCode::UnknownTopicId]
        {
            assert_eq!(of(code), FollowerAction::Retry(code));
        }
        assert_eq!(
            judge(&PartitionData { error_code: 9999, ..Default::default() }),
            FollowerAction::Retry(ErrorCode::UnknownServerError)
        );
    }

    #[test]
    fn a_diverging_epoch_comes_without_an_error() {
        for (log_start_offset, leader_start) in [(7, 7), (-1, 0)] {
            let diverging_epoch = EpochEndOffset { epoch: 4, end_offset: 12 };
            let data = PartitionData { diverging_epoch, log_start_offset, ..Default::default() };
            let (leader_epoch, end_offset, leader_start) = (LeaderEpoch(4), Offset(12), Offset(leader_start));
            let expected = Divergence { leader_epoch, end_offset, leader_start };
            assert_eq!(judge(&data), FollowerAction::Truncate(expected));
        }
        let none = PartitionData::default();
        assert_eq!(judge(&none), FollowerAction::Take);
    }

    #[test]
    fn rests_grow_to_the_longest() {
        let longest = Duration::from_secs(1);
        assert_eq!(backoff(1, longest), BACKOFF_MIN);
        assert_eq!(backoff(3, longest), BACKOFF_MIN * 4);
        assert_eq!(backoff(400, longest), longest);
        assert_eq!(backoff(400, Duration::ZERO), Duration::ZERO);
    }
}
