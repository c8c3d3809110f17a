//! Messages for tests.

use thalweg_browse::{BatchFacts, Message};
use thalweg_record::{LeaderEpoch, Offset, TimestampType};

/// A message without key, value and headers.
pub fn message(partition: i32, offset: i64, timestamp: i64) -> Message {
    let batch = BatchFacts {
        base_offset: Offset(offset),
        records: 1,
        size_bytes: 70,
        compression: None,
        timestamp_type: TimestampType::CreateTime,
        leader_epoch: LeaderEpoch(0),
        producer: None,
        sequence: None,
        is_transactional: false,
        control: None,
    };
    Message {
        topic: "t".into(),
        partition,
        offset: Offset(offset),
        timestamp,
        key: None,
        value: None,
        headers: Vec::new(),
        headers_omitted: 0,
        is_masked: false,
        batch,
    }
}
