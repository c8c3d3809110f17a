//! Keys, timestamps and offsets of records, and what the header alone decides.

use thalweg_record::{
    Batch, BatchBuilder, BatchOptions, Compression, DECOMPRESSED_BYTES_MAX_DEFAULT, Offset, RecordRules,
    RecordScratch, RecordsSummary, RefusalReason, RefusedRecords, TimestampType, ValidateRecordsError,
    batches, crc, validate_records,
};

use crate::samples::{T, golden};

const HOUR_MS: i64 = 3_600_000;

fn batch(compression: Compression, records: &[(i64, Option<&[u8]>)]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions { compression, ..Default::default() });
    for (timestamp, key) in records {
        builder.append(*timestamp, *key, Some(b"value"), &[]).expect("far from full");
    }
    builder.build().to_vec()
}

fn validate(bytes: &[u8], rules: &RecordRules) -> Result<RecordsSummary, ValidateRecordsError> {
    let batch = Batch::parse(bytes).expect("a whole batch");
    validate_records(&batch, rules, &mut RecordScratch::new(), DECOMPRESSED_BYTES_MAX_DEFAULT)
}

fn refused(bytes: &[u8], rules: &RecordRules) -> RefusedRecords {
    match validate(bytes, rules) {
        Err(ValidateRecordsError::Refused(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_compacted_topic_names_the_records_without_keys() {
    let rules = RecordRules { compacted: true, ..RecordRules::defaults(T) };
    for compression in [Compression::None, Compression::Zstd] {
        let good = batch(compression, &[(T, Some(b"a")), (T, Some(b""))]);
        assert_eq!(validate(&good, &rules).expect("keys everywhere").max_timestamp, T);
        let bad = batch(compression, &[(T, None), (T, Some(b"a")), (T, None)]);
        let refused = refused(&bad, &rules);
        assert_eq!(refused.records.iter().map(|record| record.index).collect::<Vec<_>>(), [0, 2]);
        assert!(refused.records.iter().all(|record| record.reason == RefusalReason::MissingKey));
        assert!(!refused.for_timestamp);
        assert!(!rules.header_suffices(&Batch::parse(&good).expect("a whole batch").header));
    }
}

#[test]
fn timestamps_out_of_bounds_are_named() {
    let rules = RecordRules { timestamp_before_max_ms: 1000, ..RecordRules::defaults(T) };
    let bytes = batch(
        Compression::Lz4,
        &[
            (T, None),
            (T - 1000, None),
            (T - 1001, None),
            (T + HOUR_MS, None),
            (T + HOUR_MS + 1, None),
            (-1, None),
        ],
    );
    let refused = refused(&bytes, &rules);
    assert_eq!(refused.records.iter().map(|record| record.index).collect::<Vec<_>>(), [2, 4]);
    assert!(refused.for_timestamp);
    assert_eq!(
        refused.records[0].reason,
        RefusalReason::TimestampOutOfRange { timestamp: T - 1001, earliest: T - 1000, latest: T + HOUR_MS }
    );
    let by_broker = RecordRules { timestamp_type: TimestampType::LogAppendTime, ..rules };
    validate(&bytes, &by_broker).expect("the broker's time replaces theirs");
}

#[test]
fn with_kafkas_defaults_the_header_suffices_until_the_future_begins() {
    let rules = RecordRules::defaults(T);
    let header = |bytes: &[u8]| Batch::parse(bytes).expect("a whole batch").header;
    assert!(rules.header_suffices(&header(&batch(Compression::None, &[(0, None), (T + HOUR_MS, None)]))));
    let future = batch(Compression::None, &[(0, None), (T + HOUR_MS + 1, None)]);
    assert!(!rules.header_suffices(&header(&future)));
    assert_eq!(refused(&future, &rules).records[0].index, 1);
    assert!(rules.header_suffices(&header(&golden("no-timestamp.bin"))));
    let by_broker = RecordRules { timestamp_type: TimestampType::LogAppendTime, ..rules };
    assert!(by_broker.header_suffices(&header(&future)));
    let limited = RecordRules { timestamp_before_max_ms: 5, ..rules };
    assert!(!limited.header_suffices(&header(&batch(Compression::None, &[(T, None)]))));
}

/// Kafka computes the difference to its clock in wrapping 64 bits.
#[test]
fn timestamps_too_old_for_64_bits_are_out_of_range() {
    let rules = RecordRules::defaults(T);
    for timestamp in [i64::MIN, T.wrapping_add(i64::MIN)] {
        let bytes = batch(Compression::None, &[(timestamp, None)]);
        assert!(!rules.header_suffices(&Batch::parse(&bytes).expect("a whole batch").header));
        assert!(refused(&bytes, &rules).for_timestamp, "{timestamp}");
        let by_broker = RecordRules { timestamp_type: TimestampType::LogAppendTime, ..rules };
        validate(&bytes, &by_broker).expect("the broker's time replaces theirs");
    }
    for timestamp in [T - i64::MAX, -1_000_000_000_000_000, -2, -1] {
        validate(&batch(Compression::None, &[(timestamp, None)]), &rules).expect("the past is not limited");
    }
    // The sum of base and delta wraps too.
    let wrapped = batch(Compression::Lz4, &[(T, None), (T.wrapping_add(i64::MIN), None)]);
    assert_eq!(refused(&wrapped, &rules).records[0].index, 1);
}

#[test]
fn a_max_timestamp_below_the_base_is_found_out() {
    let mut bytes = batch(Compression::None, &[(T, None), (T + 8, None), (T + 2, None)]);
    bytes[35..43].copy_from_slice(&(-1i64).to_be_bytes());
    let crc = crc(&bytes);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    let rules = RecordRules::defaults(T);
    assert!(!rules.header_suffices(&Batch::parse(&bytes).expect("a whole batch").header));
    let summary = validate(&bytes, &rules).expect("good records");
    assert_eq!((summary.max_timestamp, summary.max_timestamp_offset), (T + 8, Offset(1)));
}

#[test]
fn offsets_with_gaps_are_named() {
    let bytes = golden("compacted.bin");
    let refused = refused(&bytes, &RecordRules::defaults(T + HOUR_MS));
    assert_eq!(refused.total, 3);
    assert_eq!(refused.records[0].index, 1);
    assert_eq!(
        refused.records[0].reason,
        RefusalReason::OffsetGap { expected: Offset(101), found: Offset(103) }
    );
}

#[test]
fn the_list_of_refused_records_is_bounded() {
    let bytes = batch(Compression::Gzip, &[(T, None); 5000]);
    let refused = refused(&bytes, &RecordRules { compacted: true, ..RecordRules::defaults(T) });
    assert_eq!((refused.total, refused.records.len()), (5000, 1000));
}

#[test]
fn a_count_that_lies_is_noticed() {
    let bytes = batch(Compression::Snappy, &[(T, None); 3]);
    for count in [2i32, 4, i32::MAX] {
        let mut bytes = bytes.clone();
        bytes[57..61].copy_from_slice(&count.to_be_bytes());
        let error = validate(&bytes, &RecordRules::defaults(T)).expect_err("the count is wrong");
        assert!(matches!(error, ValidateRecordsError::Unreadable(_)), "{error}");
    }
    assert_eq!(batches(&bytes).count(), 1);
}
