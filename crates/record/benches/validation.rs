//! The cost of validating producers' batches: nanoseconds per record and megabytes of decompressed records
//! per second, for each codec and size of batch, by the header alone and by the walk over the records.
//!
//! `cargo bench -p thalweg-record --bench validation` prints a table, or, with names of codecs after `--`,
//! only these. The figure is the best of several runs, so that other load on the machine matters little.
//! Copies of a batch are visited in turn, because a broker's batches come from the network. With
//! `BATCHES_TO=DIR` the batches are written there, for `KafkaValidation.java` beside this file.

#![expect(clippy::print_stdout, reason = "the table is what it is for")]

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::time::Instant;

use thalweg_record::{
    Batch, BatchBuilder, BatchHeader, BatchOptions, Compression, DECOMPRESSED_BYTES_MAX_DEFAULT, RecordRules,
    RecordScratch, check, validate_records,
};

const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
const NOW_MS: i64 = 1_700_000_000_000;
const RUNS: usize = 40;
/// Bytes of the copies of a batch, more than a core's own cache holds.
const COPIES_BYTES: usize = 2 << 20;

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    println!("| codec | batch | records of | compressed | header | records | walk per record | walk |");
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    let is_wanted = |codec: &Compression| only.is_empty() || only.iter().any(|name| name == codec.name());
    for codec in CODECS.into_iter().filter(is_wanted) {
        for batch_bytes in [16 << 10, 256 << 10, 1 << 20] {
            for record_bytes in [128..=128, 1024..=1024, 50..=500] {
                measure(codec, batch_bytes, &record_bytes);
            }
        }
    }
}

fn measure(codec: Compression, batch_bytes: usize, record_bytes: &RangeInclusive<usize>) {
    let (batch, record_count) = batch(codec, batch_bytes, record_bytes);
    let sizes = match (record_bytes.start(), record_bytes.end()) {
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least}-{most}"),
    };
    if let Some(dir) = std::env::var_os("BATCHES_TO") {
        let name = format!("{codec}-{:04}KiB-{sizes:0>4}B", batch_bytes >> 10);
        std::fs::write(std::path::Path::new(&dir).join(name), &batch).expect("the folder takes a file");
    }
    let copies = vec![batch.clone(); (COPIES_BYTES / batch.len()).clamp(4, 512)];
    let rules = RecordRules::defaults(NOW_MS);
    let mut scratch = RecordScratch::new();
    let header_ns = best_ns(&copies, |bytes| {
        let header = check(bytes).expect("a good batch");
        assert!(rules.header_suffices(&header));
    });
    let records_ns = best_ns(&copies, |bytes| {
        let header: BatchHeader = check(bytes).expect("a good batch");
        let batch = Batch { header, bytes };
        let walked = validate_records(&batch, &rules, &mut scratch, DECOMPRESSED_BYTES_MAX_DEFAULT);
        black_box(walked.expect("a good batch"));
    });
    let walk_ns = records_ns - header_ns;
    println!(
        "| {codec} | {} KiB | {sizes} B | {:.2} | {:.3} µs | {:.3} µs | {:.1} ns | {:.0} MB/s |",
        batch_bytes >> 10,
        batch.len() as f64 / batch_bytes as f64,
        header_ns / 1e3,
        records_ns / 1e3,
        walk_ns / record_count as f64,
        batch_bytes as f64 / walk_ns * 1e3,
    );
}

/// Nanoseconds per batch in the best of several runs.
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn best_ns(copies: &[Vec<u8>], mut visit: impl FnMut(&[u8])) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let began = Instant::now();
        for bytes in copies {
            visit(black_box(bytes));
        }
        best = best.min(began.elapsed().as_nanos() as f64 / copies.len() as f64);
    }
    best
}

/// A batch whose records take about `batch_bytes` before they are compressed: half of each is words, the
/// other half random hexadecimal digits, which codecs halve.
fn batch(codec: Compression, batch_bytes: usize, sizes: &RangeInclusive<usize>) -> (Vec<u8>, usize) {
    let mut builder = BatchBuilder::new(BatchOptions { compression: codec, ..BatchOptions::default() });
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut record_count = 0;
    loop {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let record_bytes = sizes.start() + (random >> 33) as usize % (sizes.end() - sizes.start() + 1);
        if builder.uncompressed_bytes() + record_bytes >= batch_bytes {
            break;
        }
        let mut value = Vec::with_capacity(record_bytes);
        while value.len() < record_bytes - 16 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            value.extend_from_slice(format!("\"field\":{:08x},", random >> 32).as_bytes());
        }
        let key = (random >> 40).to_be_bytes();
        let timestamp = NOW_MS + i64::try_from(record_count / 10).expect("small");
        builder.append(timestamp, Some(&key), Some(&value[..record_bytes - 16]), &[]).expect("far from full");
        record_count += 1;
    }
    (builder.build().to_vec(), record_count)
}
