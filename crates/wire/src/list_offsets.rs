//! The special timestamps of ListOffsets requests (Kafka's `ListOffsetsRequest`), and Thalweg's own, by which
//! a request names a record by its offset.

/// The end of the log: for clients the high watermark, or the last stable offset.
pub const LATEST_TIMESTAMP: i64 = -1;
/// The log start.
pub const EARLIEST_TIMESTAMP: i64 = -2;
/// The record with the largest timestamp (KIP-734).
pub const MAX_TIMESTAMP: i64 = -3;
/// The log start on the broker's disk (KIP-405).
pub const EARLIEST_LOCAL_TIMESTAMP: i64 = -4;
/// The last offset in tiered storage (KIP-1005).
pub const LATEST_TIERED_TIMESTAMP: i64 = -5;
/// The first offset not yet in tiered storage (KIP-1023).
pub const EARLIEST_PENDING_UPLOAD_TIMESTAMP: i64 = -6;

/// The timestamps of requests for a record by its offset end here: this value stands for offset 0, and lower
/// ones for higher offsets. Kafka has no such request, and refuses the timestamps with UNSUPPORTED_VERSION.
const RECORD_AT_ZERO: i64 = -(1 << 62);
/// The offsets that such a timestamp can name: far above those of any partition, and few among all
/// timestamps.
const RECORD_OFFSETS: i64 = 1 << 52;

/// The timestamp of a request for the first data record at or after `offset`, whose time the answer has;
/// `None` for an offset out of range.
pub fn record_from(offset: i64) -> Option<i64> {
    (0..RECORD_OFFSETS).contains(&offset).then(|| RECORD_AT_ZERO - offset)
}

/// The offset in a timestamp of [`record_from`].
pub fn record_offset(timestamp: i64) -> Option<i64> {
    let offset = RECORD_AT_ZERO.checked_sub(timestamp)?;
    (0..RECORD_OFFSETS).contains(&offset).then_some(offset)
}

/// The age in milliseconds of the record of an answer: 0 without a record, `None` for a record without a
/// timestamp.
pub fn age_ms(offset: i64, timestamp: i64, now_ms: i64) -> Option<i64> {
    match (offset, timestamp) {
        (..0, _) => Some(0),
        (_, ..0) => None,
        _ => Some(now_ms.saturating_sub(timestamp).max(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_record_with_a_time_has_an_age() {
        assert_eq!(age_ms(7, 1_000, 3_500), Some(2_500));
        assert_eq!(age_ms(7, 9_000, 3_500), Some(0), "a producer's clock is ahead");
        assert_eq!(age_ms(-1, -1, 3_500), Some(0), "only markers of transactions are unread");
        assert_eq!(age_ms(7, -1, 3_500), None);
    }

    #[test]
    fn a_record_is_named_by_timestamps_that_kafka_refuses() {
        for offset in [0, 1, RECORD_OFFSETS - 1] {
            let timestamp = record_from(offset).expect("in range");
            assert!(timestamp < EARLIEST_PENDING_UPLOAD_TIMESTAMP);
            assert_eq!(record_offset(timestamp), Some(offset));
        }
        assert_eq!((record_from(-1), record_from(RECORD_OFFSETS)), (None, None));
        for timestamp in [0, 1_700_000_000_000, -1, -7, i64::MIN, i64::MAX, RECORD_AT_ZERO + 1] {
            assert_eq!(record_offset(timestamp), None, "{timestamp}");
        }
    }
}
