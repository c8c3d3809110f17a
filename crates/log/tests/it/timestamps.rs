//! Finding records by their time, and the time of a record by its offset.

use thalweg_log::{LogConfig, LogError, TimestampedOffset};
use thalweg_record::{BatchBuilder, BatchOptions, Compression, ControlRecordType, LeaderEpoch, Offset};

use crate::support::*;

fn found(offset: i64, timestamp: i64) -> Option<TimestampedOffset> {
    Some(TimestampedOffset { offset: Offset(offset), timestamp, leader_epoch: Some(LeaderEpoch(0)) })
}

#[test]
fn the_first_record_at_or_after_a_time_is_found_inside_batches_of_any_codec() {
    let config = LogConfig { segment_bytes: 3000, index_interval_bytes: 300, ..LogConfig::default() };
    let bench = Bench::with(config);
    let mut log = bench.create();
    let codecs =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    for batch in 0..100i64 {
        let codec = codecs[batch as usize % codecs.len()];
        append(&mut log, &Spec::new(5).compression(codec).timestamp(NOW_MS + batch * 10).build());
    }
    assert!(log.segment_offsets().len() > 2);
    log.close().expect("closes");
    for mut log in [bench.open_clean(), bench.open_unclean()] {
        assert_eq!(log.offset_for_timestamp(0).expect("searches"), found(0, NOW_MS));
        for batch in 0..100i64 {
            let time = NOW_MS + batch * 10;
            assert_eq!(log.offset_for_timestamp(time + 3).expect("searches"), found(batch * 5 + 3, time + 3));
            let after = if batch == 99 { None } else { found(batch * 5 + 5, time + 10) };
            assert_eq!(log.offset_for_timestamp(time + 5).expect("searches"), after);
        }
        assert_eq!(log.max_timestamp_offset().expect("searches"), found(499, NOW_MS + 994));
        log.close().expect("closes");
    }
}

#[test]
fn times_out_of_order_and_a_raised_log_start() {
    let bench = Bench::with(LogConfig { index_interval_bytes: 0, ..LogConfig::default() });
    let mut log = bench.create();
    for time in [50, 90, 20, 90, 10] {
        append(&mut log, &Spec::new(1).timestamp(NOW_MS + time).build());
    }
    log.set_high_watermark(Offset(5));
    let search = |log: &mut thalweg_log::PartitionLog, time| {
        log.offset_for_timestamp(NOW_MS + time).expect("searches")
    };
    assert_eq!(search(&mut log, 51), found(1, NOW_MS + 90));
    assert_eq!(search(&mut log, 15), found(0, NOW_MS + 50));
    assert_eq!(search(&mut log, 91), None);
    assert_eq!(log.max_timestamp_offset().expect("searches"), found(1, NOW_MS + 90));
    log.delete_records(Offset(2)).expect("deletes");
    assert_eq!(search(&mut log, 15), found(2, NOW_MS + 20));
    assert_eq!(search(&mut log, 30), found(3, NOW_MS + 90));
}

#[test]
fn unreadable_records_are_distinct_from_a_damaged_disk() {
    let bench = Bench::new();
    let mut log = bench.create();
    append(&mut log, &Spec::new(1).timestamp(NOW_MS - 10).build());
    append(&mut log, &unreadable(2));
    append(&mut log, &Spec::new(1).timestamp(NOW_MS + 10).build());
    assert_eq!(log.offset_for_timestamp(NOW_MS - 10).expect("it comes before"), found(0, NOW_MS - 10));
    assert_eq!(log.offset_for_timestamp(NOW_MS + 10).expect("it comes behind"), found(3, NOW_MS + 10));
    let error = log.offset_for_timestamp(NOW_MS).expect_err("it has to be read");
    assert!(
        matches!(&error, LogError::UnreadableRecords { base_offset: Offset(1), reason } if reason.contains("gzip")),
        "{error}"
    );
    // The same batch, changed on the disk.
    log.close().expect("closes");
    let mut bytes = bench.read_file(&log_name(0));
    let end = bytes.iter().rposition(|&byte| byte == 0x77).expect("the payload is there");
    bytes[end] ^= 1;
    bench.write_file(&log_name(0), &bytes);
    let error = bench.open_clean().offset_for_timestamp(NOW_MS).expect_err("it has to be read");
    assert!(matches!(error, LogError::Corrupt { .. }), "{error}");
}

#[test]
fn an_empty_log_has_no_times() {
    let mut log = Bench::new().create();
    assert_eq!(log.offset_for_timestamp(0).expect("searches"), None);
    assert_eq!(log.max_timestamp_offset().expect("searches"), None);
}

#[test]
fn the_newest_record_is_looked_for_from_the_log_start_on() {
    for segment_bytes in [400, 1 << 20] {
        let bench = Bench::with(LogConfig { segment_bytes, index_interval_bytes: 0, ..LogConfig::default() });
        let mut log = bench.create();
        // Offsets 0 to 2, 3 to 5, 6 to 8, 9 to 11; within a batch times rise.
        for time in [NOW_MS + 5_000, NOW_MS + 9_000, NOW_MS + 1_000, NOW_MS + 3_000] {
            append(&mut log, &Spec::new(3).timestamp(time).build());
        }
        log.set_high_watermark(log.log_end_offset());
        let after = |log_start: i64| match log_start {
            0..=5 => found(5, NOW_MS + 9_002),
            6..=11 => found(11, NOW_MS + 3_002),
            _ => None,
        };
        for log_start in 0..=12 {
            log.delete_records(Offset(log_start)).expect("deletes");
            let newest = log.max_timestamp_offset().expect("searches");
            assert_eq!(newest, after(log_start), "from {log_start} on, segments of {segment_bytes} bytes");
        }
    }
    // Within a batch times fall.
    let bench = Bench::new();
    let mut log = bench.create();
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for time in [9, 5, 7, 1] {
        builder.append(NOW_MS + time, None, None, &[]).expect("fits");
    }
    append(&mut log, &builder.build());
    log.set_high_watermark(log.log_end_offset());
    for (log_start, newest) in
        [(0, found(0, NOW_MS + 9)), (1, found(2, NOW_MS + 7)), (3, found(3, NOW_MS + 1))]
    {
        log.delete_records(Offset(log_start)).expect("deletes");
        assert_eq!(log.max_timestamp_offset().expect("searches"), newest, "from {log_start} on");
    }
}

#[test]
fn the_first_data_record_from_an_offset_is_found_without_reading_more_than_its_batch() {
    let bench = Bench::with(LogConfig { segment_bytes: 1000, ..LogConfig::default() });
    let mut log = bench.create();
    for batch in 0..40i64 {
        let codec = if batch % 2 == 0 { Compression::None } else { Compression::Zstd };
        append(&mut log, &Spec::new(5).compression(codec).timestamp(NOW_MS + batch * 10).build());
    }
    assert!(log.segment_offsets().len() > 2);
    log.set_high_watermark(log.log_end_offset());
    let from = |log: &mut thalweg_log::PartitionLog, offset| {
        log.first_record_from(Offset(offset)).expect("searches")
    };
    let time = |offset: i64| NOW_MS + offset / 5 * 10 + offset % 5;
    for offset in 0..200 {
        assert_eq!(from(&mut log, offset), found(offset, time(offset)), "from {offset} on");
    }
    assert_eq!((from(&mut log, 200), from(&mut log, i64::MAX)), (None, None));
    log.delete_records(Offset(12)).expect("deletes");
    assert_eq!(from(&mut log, 3), found(12, time(12)), "the log start");
    // A header suffices for a batch that begins at the offset.
    append(&mut log, &unreadable(2));
    assert!(from(&mut log, 200).is_some_and(|found| found.offset == Offset(200)));
    log.first_record_from(Offset(201)).expect_err("inside the batch its records are read");
}

#[test]
fn markers_of_transactions_are_no_unread_records() {
    let bench = Bench::new();
    let mut log = bench.create();
    append(&mut log, &Spec::new(2).producer(7, 0, 0).transactional().timestamp(NOW_MS).build());
    append_marker(&mut log, &marker(7, 0, ControlRecordType::Commit, 0));
    let from = |log: &mut thalweg_log::PartitionLog, offset| {
        log.first_record_from(Offset(offset)).expect("searches")
    };
    assert_eq!(from(&mut log, 1), found(1, NOW_MS + 1));
    assert_eq!(from(&mut log, 2), None, "the marker");
    append(&mut log, &Spec::new(1).timestamp(NOW_MS + 50).build());
    assert_eq!(from(&mut log, 2), found(3, NOW_MS + 50));
}

#[test]
fn a_compacted_batch_is_read_for_its_first_record() {
    let bench = Bench::new();
    let mut log = bench.create();
    // Offsets 0 to 4, of which the cleaner has removed the last two.
    let mut compacted = Spec::new(3).at(0, 0).build();
    compacted[23..27].copy_from_slice(&4i32.to_be_bytes());
    let sum = thalweg_record::crc(&compacted);
    compacted[17..21].copy_from_slice(&sum.to_be_bytes());
    log.append_as_follower(&compacted, LeaderEpoch(0)).expect("is accepted");
    log.append_as_follower(&Spec::new(1).at(5, 0).timestamp(NOW_MS + 90).build(), LeaderEpoch(0))
        .expect("too");
    let from = |log: &mut thalweg_log::PartitionLog, offset| {
        log.first_record_from(Offset(offset)).expect("searches")
    };
    assert_eq!(from(&mut log, 0), found(0, NOW_MS));
    assert_eq!(from(&mut log, 2), found(2, NOW_MS + 2));
    assert_eq!(from(&mut log, 3), found(5, NOW_MS + 90), "removed records");
}
