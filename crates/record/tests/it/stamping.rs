//! Stamping keeps a batch valid.

use thalweg_record::{
    Batch, BatchBuilder, BatchError, BatchOptions, DecompressBuffer, LeaderEpoch, Offset, TimestampType,
    stamp_head, stamp_log_append_time, stamp_max_timestamp, stamped_head, stamped_header, verify,
};

use crate::samples::{CODECS, T, append_shapes, batch_of, golden};

fn sent(options: BatchOptions) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    append_shapes(&mut builder);
    builder.build().to_vec()
}

#[test]
fn base_offset_and_epoch_leave_the_crc_valid() {
    let batch = batch_of(4);
    let header = verify(&batch).expect("a good batch");
    let head = stamped_head(&header, Offset(77_000_000_000), LeaderEpoch(5));
    let stored = [&head[..], &batch[16..]].concat();
    let mut in_place = batch.clone();
    stamp_head(&mut in_place, Offset(77_000_000_000), LeaderEpoch(5));
    assert_eq!(stored, in_place);
    let stored = verify(&stored).expect("still a good batch");
    assert_eq!((stored.base_offset, stored.leader_epoch), (Offset(77_000_000_000), LeaderEpoch(5)));
    assert_eq!(stored.next_offset(), Offset(77_000_000_004));
    assert_eq!(stored.crc, header.crc);
}

#[test]
fn log_append_time_is_the_time_of_every_record() {
    for compression in CODECS {
        let mut batch = sent(BatchOptions { compression, transactional: true, ..Default::default() });
        let stamped = stamp_log_append_time(&mut batch, T + 9).expect("a whole batch");
        let header = verify(&batch).expect("the CRC is written anew");
        assert_eq!(stamped, header);
        assert_eq!(header.attributes.timestamp_type(), TimestampType::LogAppendTime);
        assert!(header.attributes.is_transactional());
        assert_eq!(header.attributes.compression(), Ok(compression));
        let mut buffer = DecompressBuffer::default();
        let batch = Batch::parse(&batch).expect("a whole batch");
        let records = batch.records(&mut buffer).expect("readable");
        assert!(records.map(|record| record.expect("good").timestamp).eq([T + 9; 6]), "{compression}");
    }
}

#[test]
fn a_stamped_header_before_the_untouched_records_is_the_batch_stamped_in_place() {
    for compression in CODECS {
        let mut batch = sent(BatchOptions { compression, ..Default::default() });
        let parsed = Batch::parse(&batch).expect("a whole batch");
        for time_ms in [None, Some(T + 5)] {
            let head = stamped_header(&parsed, Offset(10), LeaderEpoch(2), time_ms);
            let stored = [&head[..], parsed.payload()].concat();
            let mut in_place = parsed.bytes.to_vec();
            stamp_head(&mut in_place, Offset(10), LeaderEpoch(2));
            if let Some(time_ms) = time_ms {
                stamp_log_append_time(&mut in_place, time_ms).expect("a whole batch");
            }
            assert_eq!(stored, in_place);
        }
        batch.clear();
    }
}

#[test]
fn a_stamped_batch_is_the_one_that_kafka_builds_for_a_log_append_time_topic() {
    let mut batch = sent(BatchOptions::default());
    stamp_log_append_time(&mut batch, T + 500).expect("a whole batch");
    assert_eq!(batch, golden("none-log-append-time.bin"));
}

#[test]
fn a_max_timestamp_is_corrected_and_one_that_is_right_costs_nothing() {
    let mut batch = batch_of(2);
    let before = batch.clone();
    stamp_max_timestamp(&mut batch, TimestampType::CreateTime, T + 1).expect("a whole batch");
    assert_eq!(batch, before);
    stamp_max_timestamp(&mut batch, TimestampType::CreateTime, T + 2).expect("a whole batch");
    assert_eq!(verify(&batch).expect("a good batch").max_timestamp, T + 2);
}

#[test]
fn stamping_touches_its_batch_only_and_refuses_half_of_one() {
    let batch = batch_of(2);
    let mut two = [&batch[..], &batch[..]].concat();
    stamp_log_append_time(&mut two, T).expect("a whole batch");
    assert_eq!(two[batch.len()..], batch);
    verify(&two[..batch.len()]).expect("a good batch");
    let torn = batch.len() - 1;
    assert!(matches!(stamp_log_append_time(&mut two[..torn], T), Err(BatchError::Truncated(_))));
}
