//! Quantiles of arbitrary numbers in bounded memory: counts in buckets whose bounds grow by a factor, so that
//! a quantile is within one percent of the number at its rank.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, TryGetError};

/// The relative error.
const ERROR: f64 = 0.01;
/// Smaller magnitudes count as zero.
const LEAST: f64 = 1e-9;
/// Maximum number of buckets of either sign, enough for numbers between 1 and 10^17. Beyond it, the smallest
/// magnitudes are counted together, and their quantiles are less exact.
const BUCKETS_MAX: usize = 2048;

/// The distribution of added numbers.
#[derive(Clone, Debug, Default)]
pub struct Quantiles {
    negative: BTreeMap<i32, u64>,
    zero: u64,
    positive: BTreeMap<i32, u64>,
    count: u64,
}

fn factor() -> f64 {
    (1.0 + ERROR) / (1.0 - ERROR)
}

fn bucket(size: f64) -> i32 {
    (size.ln() / factor().ln()).ceil() as i32
}

/// The number that represents a bucket.
fn middle(bucket: i32) -> f64 {
    2.0 * factor().powi(bucket) / (factor() + 1.0)
}

/// Counts the smallest magnitudes together if there are too many buckets.
fn limit(side: &mut BTreeMap<i32, u64>) {
    while side.len() > BUCKETS_MAX
        && let Some((_, count)) = side.pop_first()
        && let Some(mut next) = side.first_entry()
    {
        *next.get_mut() += count;
    }
}

impl Quantiles {
    /// Adds a number.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        if value.abs() < LEAST {
            self.zero += 1;
        } else {
            let side = if value < 0.0 { &mut self.negative } else { &mut self.positive };
            *side.entry(bucket(value.abs().min(f64::MAX))).or_default() += 1;
            limit(side);
        }
    }

    /// Adds the numbers of another distribution.
    pub fn merge(&mut self, other: &Quantiles) {
        self.count += other.count;
        self.zero += other.zero;
        let sides = [(&mut self.negative, &other.negative), (&mut self.positive, &other.positive)];
        for (side, other) in sides {
            other.iter().for_each(|(bucket, count)| *side.entry(*bucket).or_default() += count);
            limit(side);
        }
    }

    /// Writes the counts: those of zero, and for each sign the number of buckets, and each bucket (four
    /// bytes) with its count (eight bytes).
    pub fn write(&self, out: &mut Vec<u8>) {
        out.put_u64(self.zero);
        for side in [&self.negative, &self.positive] {
            out.put_u32(side.len() as u32);
            for (bucket, count) in side {
                out.put_i32(*bucket);
                out.put_u64(*count);
            }
        }
    }

    /// Reads the counts as written by [`Quantiles::write`].
    pub fn read(bytes: &mut impl Buf) -> Result<Quantiles, TryGetError> {
        let mut read = Quantiles { zero: bytes.try_get_u64()?, ..Quantiles::default() };
        for side in [&mut read.negative, &mut read.positive] {
            for _ in 0..bytes.try_get_u32()? {
                let bucket = bytes.try_get_i32()?;
                side.insert(bucket, bytes.try_get_u64()?);
            }
        }
        read.count = read.zero + read.negative.values().chain(read.positive.values()).sum::<u64>();
        Ok(read)
    }

    /// The quantile; `None` if no number was added.
    pub fn at(&self, share: f64) -> Option<f64> {
        let rank = (share * self.count as f64).ceil().max(1.0) as u64;
        let negative = self.negative.iter().rev().map(|(bucket, count)| (-middle(*bucket), *count));
        let positive = self.positive.iter().map(|(bucket, count)| (middle(*bucket), *count));
        let mut seen = 0;
        negative.chain([(0.0, self.zero)]).chain(positive).find_map(|(value, count)| {
            seen += count;
            (seen >= rank && count > 0).then_some(value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_magnitudes_need_bounded_memory() {
        let mut quantiles = Quantiles::default();
        let mut value = 1e-9;
        let mut count = 0;
        while value < 1e300 {
            value *= 1.01;
            count += 1;
            quantiles.add(value);
        }
        assert_eq!((quantiles.positive.len(), quantiles.count), (BUCKETS_MAX, count));
        let highest = quantiles.at(1.0).expect("there are numbers");
        assert!((highest / value - 1.0).abs() < 0.02, "{highest} for {value}");
    }

    #[test]
    fn quantiles_are_within_a_percent() {
        let mut quantiles = Quantiles::default();
        assert_eq!(quantiles.at(0.5), None);
        for value in -1000..=10_000 {
            quantiles.add(f64::from(value));
        }
        for (share, expected) in [(0.01, -890.0), (0.5, 4500.0), (0.99, 9890.0), (1.0, 10_000.0)] {
            let found = quantiles.at(share).expect("there are numbers");
            assert!((found - expected).abs() <= expected.abs() * 0.0101, "{share}: {found}, not {expected}");
        }
    }
}
