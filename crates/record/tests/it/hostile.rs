//! Seeded damage never panics and never takes more memory than allowed.

use std::cell::RefCell;
use std::io::Write;

use lz4_flex::frame::{FrameEncoder, FrameInfo};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use thalweg_record::{
    Batch, Compression, ControlRecordType, DecompressBuffer, RecordRules, RecordScratch,
    ValidateRecordsError, batches, check, stamp_log_append_time, validate_each, validate_records, verify,
};

use crate::samples::{CODECS, T, golden, golden_names, pattern};

const LIMIT_BYTES: usize = 300_000;

thread_local! {
    /// Reused for every batch, as in a broker: leftovers of a damaged one must not affect the next.
    static SCRATCH: RefCell<RecordScratch> = RefCell::default();
}

/// Everything that reads a batch, over bytes that may be anything.
fn read_all(bytes: &[u8], buffer: &mut DecompressBuffer) {
    let _ = check(bytes);
    let _ = verify(bytes);
    let rules = RecordRules { compacted: true, timestamp_before_max_ms: 1000, ..RecordRules::defaults(T) };
    for batch in batches(bytes).flatten() {
        let header = &batch.header;
        assert_eq!(header.size_bytes(), batch.bytes.len());
        let _ = (
            header.last_offset(),
            header.next_offset(),
            header.last_sequence(),
            rules.header_suffices(header),
        );
        // The walk and the reader of records agree on every batch that claims any.
        let walked =
            SCRATCH.with_borrow_mut(|scratch| validate_records(&batch, &rules, scratch, LIMIT_BYTES));
        let read = validate_each(&batch, &rules, buffer, |_| {});
        match (&walked, &read) {
            (Ok(walked), Ok(read)) => assert_eq!(walked, read),
            (Err(ValidateRecordsError::Refused(walked)), Err(ValidateRecordsError::Refused(read))) => {
                assert_eq!(walked, read);
            }
            (Err(ValidateRecordsError::Unreadable(_)), Err(ValidateRecordsError::Unreadable(_))) => {}
            _ if header.record_count == 0 => {}
            _ => panic!("the walk says {walked:?}, the reader {read:?} of {bytes:?}"),
        }
        read_records(&batch, buffer);
        let _ = stamp_log_append_time(&mut batch.bytes.to_vec(), T);
    }
    assert!(buffer.capacity() <= LIMIT_BYTES, "{} bytes of memory", buffer.capacity());
}

fn read_records(batch: &Batch<'_>, buffer: &mut DecompressBuffer) {
    let Ok(records) = batch.records(buffer) else { return };
    let mut count = 0;
    for record in records.flatten() {
        count += 1;
        assert!(record.headers.count() <= batch.bytes.len().max(LIMIT_BYTES));
        let _ = record.key.map(ControlRecordType::parse_key);
    }
    assert!(count <= batch.header.record_count);
}

#[test]
fn truncated_batches() {
    let mut buffer = DecompressBuffer::new(LIMIT_BYTES);
    for name in golden_names() {
        let bytes = golden(&format!("{name}.bin"));
        for len in (0..bytes.len()).step_by(bytes.len().div_ceil(600)) {
            read_all(&bytes[..len], &mut buffer);
            // With a matching length, so that the walk reaches the torn records.
            let mut torn = bytes[..len].to_vec();
            if len >= 61 {
                torn[8..12].copy_from_slice(&u32::try_from(len - 12).expect("small").to_be_bytes());
                read_all(&torn, &mut buffer);
            }
        }
    }
}

#[test]
fn flipped_bits_and_overwritten_bytes() {
    let mut random = SmallRng::seed_from_u64(0x7a1e);
    let mut buffer = DecompressBuffer::new(LIMIT_BYTES);
    for name in golden_names() {
        let bytes = golden(&format!("{name}.bin"));
        for _ in 0..400 {
            let mut damaged = bytes.clone();
            for _ in 0..random.random_range(1..6) {
                // The length and magic stay mostly, for without them nothing else is read.
                let from = if random.random_bool(0.9) { 21 } else { 0 };
                let at = random.random_range(from..damaged.len());
                if random.random_bool(0.5) {
                    damaged[at] ^= 1 << random.random_range(0..8);
                } else {
                    damaged[at] = random.random();
                }
            }
            read_all(&damaged, &mut buffer);
        }
    }
}

#[test]
fn records_of_random_bytes() {
    let mut random = SmallRng::seed_from_u64(99);
    let mut buffer = DecompressBuffer::new(LIMIT_BYTES);
    let mut heads = vec![golden("none.bin")];
    heads.extend(CODECS.map(|codec| golden(&format!("{codec}.bin"))));
    for _ in 0..3000 {
        let mut bytes = heads[random.random_range(0..heads.len())].clone();
        let from = random.random_range(61..bytes.len());
        random.fill_bytes(&mut bytes[from..]);
        if random.random_bool(0.3) {
            // Small numbers make more varints that mean something.
            bytes[from..].iter_mut().for_each(|byte| *byte &= 0x0f);
        }
        bytes[57..61].copy_from_slice(&random.random_range(0..2000i32).to_be_bytes());
        read_all(&bytes, &mut buffer);
    }
}

#[test]
fn streams_of_random_bytes() {
    let mut random = SmallRng::seed_from_u64(5);
    let mut buffer = DecompressBuffer::new(LIMIT_BYTES);
    let starts: [&[u8]; 5] = [
        &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255],
        b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\0\0",
        &[0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82],
        &[0x28, 0xb5, 0x2f, 0xfd],
        &[],
    ];
    for _ in 0..20_000 {
        let mut bytes = starts[random.random_range(0..starts.len())].to_vec();
        let from = bytes.len();
        bytes.resize(from + random.random_range(0..300), 0);
        random.fill_bytes(&mut bytes[from..]);
        for codec in CODECS {
            let _ = buffer.decompress(codec, &bytes);
        }
        assert!(buffer.capacity() <= LIMIT_BYTES);
    }
}

#[test]
fn damaged_streams_of_other_clients() {
    let bytes = pattern(100_000);
    let checked = FrameInfo::new().block_checksums(true).content_checksum(true);
    let mut encoder = FrameEncoder::with_frame_info(checked, Vec::new());
    encoder.write_all(&bytes).expect("memory takes all");
    let streams = [
        (Compression::Lz4, encoder.finish().expect("memory takes all")),
        (Compression::Snappy, snap::raw::Encoder::new().compress_vec(&bytes).expect("small enough")),
        (Compression::Zstd, zstd::encode_all(&bytes[..], 22).expect("memory takes all")),
    ];
    let mut random = SmallRng::seed_from_u64(31);
    let mut buffer = DecompressBuffer::new(LIMIT_BYTES);
    for (codec, stream) in &streams {
        for _ in 0..1500 {
            let mut damaged = stream.clone();
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(0..damaged.len());
                damaged[at] = random.random();
            }
            damaged.truncate(random.random_range(damaged.len() / 2..=damaged.len()));
            let _ = buffer.decompress(*codec, &damaged);
            assert!(buffer.capacity() <= LIMIT_BYTES, "{codec} took {}", buffer.capacity());
        }
    }
}

#[test]
fn random_bytes() {
    let mut random = SmallRng::seed_from_u64(1);
    let mut buffer = DecompressBuffer::new(LIMIT_BYTES);
    for _ in 0..20_000 {
        let mut bytes = vec![0; random.random_range(0..200)];
        random.fill_bytes(&mut bytes);
        if bytes.len() > 16 && random.random_bool(0.8) {
            bytes[16] = 2;
            bytes[8..12].copy_from_slice(&random.random_range(40..200i32).to_be_bytes());
        }
        read_all(&bytes, &mut buffer);
    }
}
