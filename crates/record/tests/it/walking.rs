//! The walk over the records of a producer's batch: accepted and refused records, in pieces and at once, and
//! its cost.

use std::io::Write;

use allocation_counter::measure;
use thalweg_record::{
    Batch, BatchBuilder, BatchHeader, BatchOptions, Compression, DECOMPRESSED_BYTES_MAX_DEFAULT,
    DecompressBuffer, DecompressError, Header, Offset, RecordError, RecordFault, RecordRules, RecordScratch,
    RecordsSummary, ValidateRecordsError, crc, validate_each, validate_records,
};

use crate::samples::{CODECS, T, append_large, append_shapes, golden, golden_names, pattern};

fn validate(bytes: &[u8], scratch: &mut RecordScratch) -> Result<RecordsSummary, ValidateRecordsError> {
    let batch = Batch::parse(bytes).expect("a whole batch");
    validate_records(
        &batch,
        &RecordRules { timestamp_after_max_ms: i64::MAX, ..RecordRules::defaults(T) },
        scratch,
        DECOMPRESSED_BYTES_MAX_DEFAULT,
    )
}

/// A batch that claims `count` records and holds these bytes in their place.
fn batch_of(codec: Compression, payload: &[u8], count: i32) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions { compression: codec, ..BatchOptions::default() });
    builder.append(T, None, Some(b"v"), &[]).expect("far from full");
    let mut batch = builder.build()[..BatchHeader::LEN].to_vec();
    batch.extend(payload);
    let length = i32::try_from(batch.len() - 12).expect("small");
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    batch[57..61].copy_from_slice(&count.to_be_bytes());
    let crc = crc(&batch);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// These bytes, compressed with a codec.
fn compressed(codec: Compression, bytes: &[u8]) -> Vec<u8> {
    match codec {
        Compression::None => bytes.to_vec(),
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(bytes).expect("memory takes all");
            encoder.finish().expect("memory takes all")
        }
        Compression::Snappy => snap::raw::Encoder::new().compress_vec(bytes).expect("small enough"),
        Compression::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(bytes).expect("memory takes all");
            encoder.finish().expect("memory takes all")
        }
        Compression::Zstd => zstd::encode_all(bytes, 3).expect("memory takes all"),
    }
}

/// The bytes of the records of an uncompressed batch that `fill` appends to.
fn records(fill: impl FnOnce(&mut BatchBuilder)) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    fill(&mut builder);
    builder.build()[BatchHeader::LEN..].to_vec()
}

fn few(builder: &mut BatchBuilder) {
    for i in 0..3 {
        builder.append(T + i, None, Some(b"value"), &[]).expect("far from full");
    }
}

#[test]
fn records_of_every_size_are_walked_in_pieces() {
    let mut scratch = RecordScratch::new();
    for codec in CODECS {
        let options = BatchOptions { compression: codec, ..BatchOptions::default() };
        let mut builder = BatchBuilder::new(options);
        append_shapes(&mut builder);
        append_large(&mut builder);
        // Around the sizes of pieces and blocks, with headers that are torn between them.
        let long = pattern(200_000);
        for len in [65_510, 65_530, 65_536, 65_560, 131_072, 200_000, 3_000_000] {
            let value = pattern(len);
            let headers =
                [Header::new("h", Some(&long)), Header::new("null", None), Header::new("", Some(b""))];
            builder.append(T + 1, Some(b"k"), Some(&value), &headers).expect("far from full");
            builder.append(T, Some(&value), None, &[]).expect("far from full");
        }
        for _ in 0..30_000 {
            builder.append(T, None, None, &[]).expect("far from full");
        }
        let bytes = builder.build();
        let summary = validate(&bytes, &mut scratch).unwrap_or_else(|error| panic!("{codec}: {error}"));
        assert_eq!(summary.max_timestamp, T + 40_000_000_000);
        assert_eq!(summary.max_timestamp_offset, Offset(5));
        let mut buffer = DecompressBuffer::default();
        let batch = Batch::parse(&bytes).expect("a whole batch");
        assert_eq!(summary.payload_bytes, batch.records(&mut buffer).expect("readable").payload_bytes());
    }
}

/// Records written by Kafka's own classes give the same result in pieces as at once.
#[test]
fn golden_batches_are_walked_as_they_are_read() {
    let mut scratch = RecordScratch::new();
    let rules = RecordRules { timestamp_after_max_ms: i64::MAX, ..RecordRules::defaults(T) };
    for name in golden_names() {
        let bytes = golden(&format!("{name}.bin"));
        let batch = Batch::parse(&bytes).expect("a whole batch");
        let walked = validate_records(&batch, &rules, &mut scratch, DECOMPRESSED_BYTES_MAX_DEFAULT);
        let read = validate_each(&batch, &rules, &mut DecompressBuffer::default(), |_| {});
        assert_eq!(walked, read, "{name}");
        assert!(!matches!(walked, Err(ValidateRecordsError::Unreadable(_))), "{name}: {walked:?}");
    }
}

#[test]
fn payloads_that_contradict_the_header_are_refused() {
    let good = records(few);
    let noise: Vec<u8> = (0..32u8).map(|i| i.wrapping_mul(37).wrapping_add(11)).collect();
    let mut scratch = RecordScratch::new();
    for codec in CODECS {
        let whole = compressed(codec, &good);
        validate(&batch_of(codec, &whole, 3), &mut scratch).expect("as many as it claims");
        let mut check = |what: &str, payload: &[u8], count: i32| {
            let result = validate(&batch_of(codec, payload, count), &mut scratch);
            assert!(
                matches!(result, Err(ValidateRecordsError::Unreadable(_))),
                "{codec}, {what}: {result:?}"
            );
        };
        check("noise", &noise, 3);
        check("noise that claims all offsets", &noise, i32::MAX);
        check("nothing", &[], 3);
        check("fewer than claimed", &whole, 4);
        check("far fewer than claimed", &whole, i32::MAX);
        check("more than claimed", &whole, 2);
        check("torn records", &compressed(codec, &good[..good.len() - 4]), 3);
        check("bytes behind the records", &compressed(codec, &[&good[..], &[0]].concat()), 3);
        check("a torn stream", &whole[..whole.len() - 3], 3);
    }
}

#[test]
fn malformed_records_are_named_in_every_codec() {
    // length, attributes, timestamp delta, offset delta, key, value, headers
    let cases: &[(&[u8], RecordFault)] = &[
        (&[14, 0, 0, 0, 1, 2, b'v', 1], RecordFault::HeaderCount),
        (&[14, 0, 0, 0, 1, 2, b'v', 2], RecordFault::HeaderCount),
        (&[18, 0, 0, 0, 1, 2, b'v', 2, 1, 0], RecordFault::NullHeaderKey),
        (&[12, 0, 0, 0, 1, 2, b'v', 0], RecordFault::Short),
        (&[16, 0, 0, 0, 1, 2, b'v', 0, 9], RecordFault::Long),
        (&[14, 0, 0, 0, 1, 20, b'v', 0], RecordFault::Short),
        (&[14, 0, 0, 0, 90, 2, b'v', 0], RecordFault::Short),
        (&[13, 0, 0, 0, 1, 2, b'v', 0], RecordFault::Short),
        (&[0, 0, 0, 0, 1, 2, b'v', 0], RecordFault::Short),
        (&[22, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80], RecordFault::Varint),
        (&[0x80, 0x80, 0x80, 0x80, 0x80, 0x01], RecordFault::Varint),
    ];
    let mut scratch = RecordScratch::new();
    let first = &records(few)[..12];
    for codec in CODECS {
        for (second, fault) in cases {
            let payload = compressed(codec, &[first, second].concat());
            let error = validate(&batch_of(codec, &payload, 2), &mut scratch).expect_err("malformed");
            let ValidateRecordsError::Unreadable(RecordError::Malformed(error)) = error else {
                panic!("{codec}, {second:?}: {error}")
            };
            assert_eq!((error.index, error.fault), (1, *fault), "{codec}, {second:?}");
        }
    }
}

/// The same faults in a record of which only a part is in memory at any time.
#[test]
fn malformed_records_larger_than_a_piece_are_named() {
    let value = pattern(200_000);
    let headers = [Header::new("h", Some(b"v"))];
    let good = records(|builder| {
        builder.append(T, None, Some(&value), &headers).expect("far from full");
    });
    let ends = good.len();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let cases = [
        (with(ends - 5, 1), RecordFault::HeaderCount),
        (with(ends - 5, 90), RecordFault::HeaderCount),
        (with(ends - 4, 1), RecordFault::NullHeaderKey),
        (with(ends - 2, 6), RecordFault::Short),
        (with(ends - 2, 0), RecordFault::Long),
        (good[..ends - 1].to_vec(), RecordFault::Short),
        (good[..150_000].to_vec(), RecordFault::Short),
    ];
    let mut scratch = RecordScratch::new();
    for codec in CODECS {
        validate(&batch_of(codec, &compressed(codec, &good), 1), &mut scratch).expect("a good record");
        for (payload, fault) in &cases {
            let error = validate(&batch_of(codec, &compressed(codec, payload), 1), &mut scratch);
            let Err(ValidateRecordsError::Unreadable(RecordError::Malformed(error))) = error else {
                panic!("{codec}, {fault}: {error:?}")
            };
            assert_eq!((error.index, error.fault), (0, *fault), "{codec}");
        }
    }
}

#[test]
fn a_good_batch_allocates_nothing_once_scratch_is_warm() {
    let mut scratch = RecordScratch::new();
    for codec in CODECS {
        for value_bytes in [100, 1000, 100_000] {
            let mut builder = BatchBuilder::new(BatchOptions { compression: codec, ..Default::default() });
            let value = pattern(value_bytes);
            while builder.uncompressed_bytes() < 500_000 {
                builder.append(T, Some(b"key"), Some(&value), &[]).expect("far from full");
            }
            let bytes = builder.build();
            validate(&bytes, &mut scratch).expect("a good batch");
            let mut result = None;
            let allocations = measure(|| result = Some(validate(&bytes, &mut scratch)));
            result.expect("it ran").expect("a good batch");
            assert_eq!(allocations.count_total, 0, "{codec}, values of {value_bytes} bytes");
        }
    }
}

/// Streams that become more than the limit: the walk stops there, in little memory.
#[test]
fn what_a_batch_becomes_is_limited() {
    const LIMIT: usize = 8 << 20;
    // One record whose length covers everything, so that nothing but the limit stops the walk.
    let mut zeroes = vec![0; 64 << 20];
    zeroes[..5].copy_from_slice(&[0xfe, 0xff, 0xff, 0xff, 0x0f]);
    zeroes[5..16].copy_from_slice(&[0, 0, 0, 1, 0xe0, 0xff, 0xff, 0xff, 0x0f, 0, 0]);
    for codec in CODECS {
        if codec == Compression::None {
            continue;
        }
        let bytes = batch_of(codec, &compressed(codec, &zeroes), 1);
        let batch = Batch::parse(&bytes).expect("a whole batch");
        let mut result = None;
        let memory = measure(|| {
            let mut scratch = RecordScratch::new();
            result = Some(validate_records(&batch, &RecordRules::defaults(T), &mut scratch, LIMIT));
        });
        let error = result.expect("it ran").expect_err("too large");
        let ValidateRecordsError::Unreadable(RecordError::Decompress(DecompressError::TooLarge(error))) =
            error
        else {
            panic!("{codec}: {error}")
        };
        assert_eq!(error.limit_bytes, LIMIT);
        assert!(memory.bytes_max < 10 << 20, "{codec} took {} bytes", memory.bytes_max);
    }
}

/// Reaching the count ends the walk, whatever else the stream contains.
#[test]
fn records_beyond_the_count_are_not_decompressed() {
    let payload = [&records(few)[..], &vec![0; 64 << 20]].concat();
    for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd] {
        let bytes = batch_of(codec, &compressed(codec, &payload), 3);
        let batch = Batch::parse(&bytes).expect("a whole batch");
        let mut scratch = RecordScratch::new();
        let error =
            validate_records(&batch, &RecordRules::defaults(T), &mut scratch, 4 << 20).expect_err("more");
        assert!(
            matches!(error, ValidateRecordsError::Unreadable(RecordError::TrailingBytes(_))),
            "{codec}: {error}"
        );
    }
}
