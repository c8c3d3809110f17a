//! Record values, created before the run and taken from a pool in rotation.
//!
//! Creating each value during the run would cost more than a broker needs to store it. A pool depends only on
//! kind, size and seed, so that readers can reproduce the values and compare.

use std::path::PathBuf;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::workload::{Payload, RecordSpec};

/// Minimum size of a pool. Codecs other than zstd look back less far, so repetition of the pool does not help
/// them.
const POOL_BYTES_MIN: usize = 1 << 20;
/// Size above which pools contain fewer values.
const LARGE_BYTES: usize = 1 << 20;
/// Maximum size of a payload file.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// A pool of values. The pool's size is a power of two.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    bytes: Vec<u8>,
    cut: Cut,
    mask: u64,
}

#[derive(Clone, Debug)]
enum Cut {
    /// Values of this size.
    Even(usize),
    /// Values between consecutive offsets.
    At(Vec<usize>),
}

/// Why a pool cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// The file is missing or unreadable.
    #[error("Cannot read the payload file {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// The file is empty.
    #[error("The payload file {} has no non-empty line", path.display())]
    Empty { path: PathBuf },
    /// The file is too large.
    #[error("The payload file {} is larger than {FILE_BYTES_MAX} bytes", path.display())]
    TooLarge { path: PathBuf },
}

impl Pool {
    /// The pool for `spec`.
    pub(crate) fn new(spec: &RecordSpec, seed: u64) -> Result<Pool, PayloadError> {
        let size = spec.size_bytes as usize;
        let mut random = SmallRng::seed_from_u64(seed);
        let count = count(size, POOL_BYTES_MIN);
        let mut bytes = vec![0; count * size];
        match &spec.payload {
            Payload::Random => random.fill(&mut bytes[..]),
            Payload::Zeros | Payload::Shared => {}
            Payload::Compressible => compressible(&mut bytes, &mut random),
            Payload::Json => bytes.chunks_exact_mut(size.max(1)).for_each(|value| json(value, &mut random)),
            Payload::File(path) => return Pool::file(path.into(), size),
        }
        Ok(Pool { bytes, cut: Cut::Even(size), mask: count as u64 - 1 })
    }

    /// Random letters from A to Z, `size` per value, without repetition within `bytes_min`.
    pub(crate) fn letters(size: usize, bytes_min: usize, seed: u64) -> Pool {
        let mut random = SmallRng::seed_from_u64(seed);
        let count = count(size, bytes_min);
        let bytes = (0..count * size).map(|_| random.random_range(b'A'..=b'Z')).collect();
        Pool { bytes, cut: Cut::Even(size), mask: count as u64 - 1 }
    }

    /// Lines of a file, up to a power of two. With a size, each value starts with a line and continues with
    /// the following lines; without, each line is a value.
    fn file(path: PathBuf, size: usize) -> Result<Pool, PayloadError> {
        let read = std::fs::metadata(&path).and_then(|about| {
            if about.len() > FILE_BYTES_MAX { Ok(None) } else { std::fs::read(&path).map(Some) }
        });
        let text = match read {
            Ok(Some(text)) => text,
            Ok(None) => return Err(PayloadError::TooLarge { path }),
            Err(source) => return Err(PayloadError::Unreadable { path, source }),
        };
        let lines: Vec<&[u8]> = text
            .split(|&byte| byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .filter(|line| !line.is_empty())
            .collect();
        if lines.is_empty() {
            return Err(PayloadError::Empty { path });
        }
        let count = match size {
            0 => lines.len().next_power_of_two(),
            size => count(size, POOL_BYTES_MIN.max(text.len())),
        };
        let mut bytes = Vec::with_capacity(count * size.max(64));
        let mut cuts = vec![0];
        let mut next = 0;
        for _ in 0..count {
            let begin = bytes.len();
            bytes.extend_from_slice(lines[next % lines.len()]);
            next += 1;
            while size > 0 && bytes.len() - begin < size {
                bytes.push(b'\n');
                bytes.extend_from_slice(lines[next % lines.len()]);
                next += 1;
            }
            if size > 0 {
                bytes.truncate(begin + size);
            }
            cuts.push(bytes.len());
        }
        let cut = if size > 0 { Cut::Even(size) } else { Cut::At(cuts) };
        Ok(Pool { bytes, cut, mask: count as u64 - 1 })
    }

    /// Value number `n`.
    #[inline]
    pub(crate) fn value(&self, n: u64) -> &[u8] {
        let at = (n & self.mask) as usize;
        match &self.cut {
            Cut::Even(size) => &self.bytes[at * size..(at + 1) * size],
            Cut::At(cuts) => &self.bytes[cuts[at]..cuts[at + 1]],
        }
    }

    /// Value number `n`, mutable, for writing a stamp over its beginning.
    #[inline]
    pub(crate) fn value_mut(&mut self, n: u64) -> &mut [u8] {
        let at = (n & self.mask) as usize;
        match &self.cut {
            Cut::Even(size) => &mut self.bytes[at * size..(at + 1) * size],
            Cut::At(cuts) => &mut self.bytes[cuts[at]..cuts[at + 1]],
        }
    }
}

fn count(size: usize, bytes_min: usize) -> usize {
    let least = if size > LARGE_BYTES { 2 } else { 4 };
    (bytes_min / size.max(1)).max(least).next_power_of_two()
}

/// A quarter of random letters and digits within constant text: fast codecs compress the text, thorough ones
/// save a little on the letters, too.
fn compressible(bytes: &mut [u8], random: &mut SmallRng) {
    const TEXT: &[u8; 48] = b" measured at the station below the old mill, id=";
    const TOKEN: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
    for block in bytes.chunks_mut(64) {
        for (at, byte) in block.iter_mut().enumerate() {
            *byte = match TEXT.get(at) {
                Some(&same) => same,
                None => TOKEN[random.random_range(0..TOKEN.len())],
            };
        }
    }
}

/// A JSON object of exactly the value's size: some fields, and a note as filler. Small values have only the
/// note, and are cut if still too large.
fn json(value: &mut [u8], random: &mut SmallRng) {
    const KINDS: [&str; 4] = ["order_created", "order_paid", "parcel_sent", "parcel_received"];
    const WORDS: [&str; 8] = ["left", "at", "the", "door", "of", "neighbour", "with", "signature"];
    let (id, user) = (random.random_range(0..1u64 << 40), random.random_range(0..100_000u32));
    let cents = random.random_range(100..100_000u32);
    let kind = KINDS[random.random_range(0..KINDS.len())];
    let mut text = format!(
        "{{\"id\":\"{id:010x}\",\"user\":{user},\"kind\":\"{kind}\",\"amount\":{}.{:02},\"note\":\"",
        cents / 100,
        cents % 100
    );
    if text.len() + 2 > value.len() {
        text = "{\"note\":\"".to_owned();
    }
    while text.len() + 2 < value.len() {
        text.push_str(WORDS[random.random_range(0..WORDS.len())]);
        text.push(' ');
    }
    text.truncate(value.len().saturating_sub(2));
    text.push_str("\"}");
    let length = value.len();
    value.copy_from_slice(&text.as_bytes()[..length]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_record::{BatchBuilder, BatchOptions, Compression};

    fn spec(size_bytes: u32, payload: Payload) -> RecordSpec {
        RecordSpec { size_bytes, payload, keys: None }
    }

    fn pool(size_bytes: u32, payload: Payload) -> Pool {
        Pool::new(&spec(size_bytes, payload), 7).expect("made")
    }

    /// The compression ratio of a batch.
    fn ratio(pool: &Pool, compression: Compression) -> f64 {
        let mut builder = BatchBuilder::new(BatchOptions { compression, ..BatchOptions::default() });
        let mut bytes = 0;
        for n in 0..500 {
            bytes += pool.value(n).len();
            builder.append(0, None, Some(pool.value(n)), &[]).expect("it fits");
        }
        builder.finish().len() as f64 / bytes as f64
    }

    #[test]
    fn the_same_seed_makes_the_same_values() {
        let again = pool(100, Payload::Random);
        let other = Pool::new(&spec(100, Payload::Random), 8).expect("made");
        for n in [0, 1, 10_000, u64::MAX] {
            assert_eq!(pool(100, Payload::Random).value(n), again.value(n));
            assert_ne!(other.value(n), again.value(n));
            assert_eq!(again.value(n).len(), 100);
        }
    }

    #[test]
    fn kinds_shrink_as_they_promise() {
        let codecs = [Compression::Lz4, Compression::Snappy, Compression::Zstd, Compression::Gzip];
        for codec in codecs {
            assert!(ratio(&pool(512, Payload::Random), codec) > 0.99, "{codec:?}");
            assert!(ratio(&pool(512, Payload::Zeros), codec) < 0.1, "{codec:?}");
            let quarter = ratio(&pool(512, Payload::Compressible), codec);
            assert!((0.18..0.33).contains(&quarter), "{codec:?}: {quarter}");
        }
    }

    #[test]
    fn json_is_json_of_the_requested_size() {
        for size in [11, 40, 128, 1000] {
            let pool = pool(size, Payload::Json);
            for n in 0..50 {
                let value = pool.value(n);
                assert_eq!(value.len(), size as usize);
                serde_json::from_slice::<serde_json::Value>(value).expect("an object");
            }
        }
        assert_eq!(pool(3, Payload::Json).value(0).len(), 3);
        assert_eq!(pool(0, Payload::Json).value(9), b"");
    }

    #[test]
    fn lines_of_a_file_are_values_or_fill_them() {
        let path = std::env::temp_dir().join(format!("thalweg-payloads-{}", std::process::id()));
        std::fs::write(&path, "one\r\n\ntwo\nthree\n").expect("written");
        let payload = Payload::File(path.to_string_lossy().into_owned());
        let lines = pool(0, payload.clone());
        let values: Vec<&[u8]> = (0..4).map(|n| lines.value(n)).collect();
        assert_eq!(values, [&b"one"[..], b"two", b"three", b"one"]);
        assert_eq!(pool(9, payload).value(0), b"one\ntwo\nt");
        std::fs::remove_file(&path).expect("removed");
        let missing = Pool::new(&spec(9, Payload::File("/no/such/file".into())), 7).expect_err("not there");
        assert!(missing.to_string().starts_with("Cannot read the payload file /no/such/file: "), "{missing}");
    }
}
