//! Interprets a leader's answer for one partition of a follower. Pure.

use crate::partition::Divergence;
use std::time::Duration;
use thalweg_record::{LeaderEpoch, Offset};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::fetch_response::PartitionData;

/// The shortest rest after an error. Most pass quickly: one of the two has not seen the latest image yet.
const BACKOFF_MIN: Duration = Duration::from_millis(20);

/// The action for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Append the records, and take over the high watermark and the log start.
    Take,
    /// The logs have parted: cut this one, by where their largest common epoch ends in the leader's.
    Truncate(Divergence),
    /// The leader's log does not contain this offset: ask for its bounds.
    OutOfRange,
    /// Rest, and try again.
    Retry(ErrorCode),
    /// Wait for another leader epoch: in this one the leader will not serve.
    Stop(ErrorCode),
}

/// Interprets a partition's part of an answer.
pub fn judge(data: &PartitionData) -> Verdict {
    match ErrorCode::from_i16(data.error_code) {
        Some(ErrorCode::None) if data.diverging_epoch.epoch >= 0 => Verdict::Truncate(Divergence {
            leader_epoch: LeaderEpoch(data.diverging_epoch.epoch),
            end_offset: Offset(data.diverging_epoch.end_offset.max(0)),
            leader_start: Offset(data.log_start_offset.max(0)),
        }),
        Some(ErrorCode::None) => Verdict::Take,
        Some(ErrorCode::OffsetOutOfRange) => Verdict::OutOfRange,
        // The epoch is the one that the image names here, so the leader has a newer image.
        Some(code @ ErrorCode::FencedLeaderEpoch) => Verdict::Stop(code),
        Some(code @ ErrorCode::OffsetMovedToTieredStorage) => Verdict::Stop(code),
        Some(code) => Verdict::Retry(code),
        None => Verdict::Retry(ErrorCode::UnknownServerError),
    }
}

/// How long to pause after consecutive failures: twice as long each time, up to `replica.fetch.backoff.ms`.
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
        assert_eq!(of(ErrorCode::OffsetOutOfRange), Verdict::OutOfRange);
        assert_eq!(of(ErrorCode::FencedLeaderEpoch), Verdict::Stop(ErrorCode::FencedLeaderEpoch));
        for code in [ErrorCode::UnknownLeaderEpoch, ErrorCode::NotLeaderOrFollower, ErrorCode::UnknownTopicId]
        {
            assert_eq!(of(code), Verdict::Retry(code));
        }
        assert_eq!(
            judge(&PartitionData { error_code: 9999, ..Default::default() }),
            Verdict::Retry(ErrorCode::UnknownServerError)
        );
    }

    #[test]
    fn a_diverging_epoch_is_told_without_an_error() {
        for (log_start_offset, leader_start) in [(7, 7), (-1, 0)] {
            let diverging_epoch = EpochEndOffset { epoch: 4, end_offset: 12 };
            let data = PartitionData { diverging_epoch, log_start_offset, ..Default::default() };
            let (leader_epoch, end_offset, leader_start) = (LeaderEpoch(4), Offset(12), Offset(leader_start));
            let expected = Divergence { leader_epoch, end_offset, leader_start };
            assert_eq!(judge(&data), Verdict::Truncate(expected));
        }
        let none = PartitionData::default();
        assert_eq!(judge(&none), Verdict::Take);
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
