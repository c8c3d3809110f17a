//! Payloads of records.

use std::path::Path;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::PerfError;
use super::output::PerfOutput;
use crate::payload::Pool;

/// Minimum number of random bytes created before the run. Kafka's tool creates each payload separately; this
/// tool takes payloads from a pool in rotation, so that none repeats within a batch.
const POOL_BYTES_MIN: usize = 64 << 10;

/// The source of payloads.
#[derive(Debug)]
pub(super) enum Payloads {
    /// Random letters from A to Z.
    Random {
        pool: Pool,
        /// Number of payloads drawn.
        drawn: u64,
    },
    /// Lines of a file, drawn at random.
    Lines { lines: Vec<Vec<u8>>, random: SmallRng, drawn: usize },
    /// 0, 1, 2 and so on, as text.
    Monotonic { next: u64, text: String },
}

impl Payloads {
    /// Random letters, `size` per payload, without repetition within `batch_bytes`.
    pub(super) fn random(size: usize, batch_bytes: usize) -> Payloads {
        let pool = Pool::letters(size, (2 * batch_bytes).max(POOL_BYTES_MIN), 0);
        Payloads::Random { pool, drawn: 0 }
    }

    /// The parts of a file between delimiters.
    pub(super) fn file(path: &Path, delimiter: &str, output: &PerfOutput) -> Result<Payloads, PerfError> {
        output.progress(&format!("Reading payloads from: {}", std::path::absolute(path)?.display()))?;
        let text = std::fs::read(path).map_err(|source| PerfError::File { path: path.to_owned(), source })?;
        if text.is_empty() {
            return Err(PerfError::Usage(format!("{}: --payload-file is empty", path.display())));
        }
        let text = String::from_utf8_lossy(&text);
        let mut lines: Vec<Vec<u8>> = text.split(delimiter).map(|line| line.as_bytes().to_vec()).collect();
        // Like Java's String.split.
        while lines.len() > 1 && lines.last().is_some_and(Vec::is_empty) {
            lines.pop();
        }
        output.progress(&format!("Number of records read: {}", lines.len()))?;
        Ok(Payloads::Lines { lines, random: SmallRng::seed_from_u64(0), drawn: 0 })
    }

    /// Counts from 0.
    pub(super) fn monotonic() -> Payloads {
        Payloads::Monotonic { next: 0, text: String::new() }
    }

    /// Draws the next payload.
    #[inline]
    pub(super) fn draw(&mut self) {
        match self {
            Payloads::Random { drawn, .. } => *drawn += 1,
            Payloads::Lines { lines, random, drawn } => *drawn = random.random_range(0..lines.len()),
            Payloads::Monotonic { next, text } => {
                use std::fmt::Write;
                text.clear();
                write!(text, "{next}").expect("writing to a string does not fail");
                *next += 1;
            }
        }
    }

    /// The current payload.
    #[inline]
    pub(super) fn drawn(&self) -> &[u8] {
        match self {
            Payloads::Random { pool, drawn } => pool.value(*drawn),
            Payloads::Lines { lines, drawn, .. } => &lines[*drawn],
            Payloads::Monotonic { text, .. } => text.as_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(payloads: &mut Payloads) -> Vec<u8> {
        payloads.draw();
        payloads.drawn().to_vec()
    }

    #[test]
    fn random_payloads_are_letters_and_do_not_repeat_within_a_batch() {
        let mut payloads = Payloads::random(100, 16 << 10);
        let seen: Vec<Vec<u8>> = std::iter::repeat_with(|| next(&mut payloads)).take(160).collect();
        assert!(seen.iter().flatten().all(u8::is_ascii_uppercase));
        let mut distinct = seen.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), seen.len());
    }

    #[test]
    fn a_file_is_cut_as_java_cuts_it() {
        let directory = std::env::temp_dir().join(format!("thalweg-payload-{}", std::process::id()));
        std::fs::write(&directory, "a\nbb\n\nccc\n\n").expect("written");
        let read = Payloads::file(&directory, "\n", &PerfOutput::to(Vec::new()));
        std::fs::remove_file(&directory).expect("removed");
        let Payloads::Lines { lines, .. } = read.expect("read") else { panic!("lines") };
        assert_eq!(lines, [b"a".to_vec(), b"bb".to_vec(), b"".to_vec(), b"ccc".to_vec()]);
    }

    #[test]
    fn monotonic_payloads_count() {
        let mut payloads = Payloads::monotonic();
        assert_eq!(next(&mut payloads), b"0");
        assert_eq!(next(&mut payloads), b"1");
    }
}
