//! Batches that several tests use: the golden files, and the records of `golden/Golden.java` built here.

use std::path::Path;

use thalweg_record::{BatchBuilder, BatchOptions, Compression, Header};

/// The time that the golden records count from.
pub const T: i64 = 1_700_000_000_000;

pub const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

/// The bytes of a golden file.
pub fn golden(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of the golden batches, as batches.txt lists them.
pub fn golden_names() -> Vec<String> {
    let listing = String::from_utf8(golden("batches.txt")).expect("the listing is UTF-8");
    listing.lines().filter_map(|line| line.strip_prefix("# ")).map(str::to_owned).collect()
}

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from(i * 31 % 251).expect("below 251")).collect()
}

/// Appends the records of every shape that `Golden.java` appends.
pub fn append_shapes(builder: &mut BatchBuilder) {
    let mut append = |timestamp, key: Option<&str>, value: Option<&[u8]>, headers: &[Header<'_>]| {
        builder.append(timestamp, key.map(str::as_bytes), value, headers).expect("far from full");
    };
    append(T, Some("key"), Some(b"value"), &[]);
    append(T + 7, None, Some(b"no key"), &[]);
    append(T + 3, Some("tombstone"), None, &[]);
    append(T - 100, None, None, &[]);
    append(T, Some(""), Some(b""), &[]);
    let long = pattern(100);
    let headers = [
        Header::new("trace", Some(b"abc")),
        Header::new("null", None),
        Header::new("", Some(b"")),
        Header::new("trace", Some(b"again")),
        Header::new("schlüssel-鍵", Some(&long)),
    ];
    append(T + 40_000_000_000, Some("k"), Some(&pattern(300)), &headers);
}

/// Appends the four large records of the compressed golden batches.
pub fn append_large(builder: &mut BatchBuilder) {
    for i in 0..4 {
        let key = format!("large-{i}");
        builder.append(T + 9, Some(key.as_bytes()), Some(&pattern(50_000 + i)), &[]).expect("far from full");
    }
}

/// A good batch of a producer, uncompressed, of `count` records of 20 bytes or so.
pub fn batch_of(count: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for i in 0..count {
        let value = format!("value {i}");
        builder.append(T + 1, Some(b"key"), Some(value.as_bytes()), &[]).expect("far from full");
    }
    builder.build().to_vec()
}
