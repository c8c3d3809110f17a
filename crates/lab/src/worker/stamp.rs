//! The stamp at the start of each verified value, and the comparison with the sent value.
//!
//! ```text
//! 0        4          8           16                24
//! | magic  | producer | sequence  | intended time   | the rest of value `sequence` of the pool ...
//! | u32    | u32      | u64       | u64, µs         |
//! ```
//!
//! All numbers are big-endian. The magic depends on the seed, so that records of another run are recognised.

use super::Assignment;
use crate::payload::{PayloadError, Pool};
use crate::workload::{RecordSpec, Verification};

/// Size of a stamp.
pub(crate) const STAMP_BYTES: usize = 24;

/// The contents of a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) magic: u32,
    pub(crate) producer: u32,
    pub(crate) sequence: u64,
    pub(crate) intended_us: u64,
}

/// Why records cannot be verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The value has no room for the stamp.
    #[error(
        "records.size_bytes = {size_bytes} is too small to verify, because a stamp takes {STAMP_BYTES} bytes: \
             use {STAMP_BYTES} or more, or verify = \"off\""
    )]
    TooSmall {
        /// The value's size in bytes.
        size_bytes: u32,
    },
    /// The values cannot be created.
    #[error(transparent)]
    Payload(#[from] PayloadError),
}

impl Stamp {
    /// Writes the stamp over the start of a value.
    #[inline]
    pub(crate) fn write(&self, value: &mut [u8]) {
        let value: &mut [u8; STAMP_BYTES] =
            value.first_chunk_mut().expect("sizes were checked before the run");
        value[0..4].copy_from_slice(&self.magic.to_be_bytes());
        value[4..8].copy_from_slice(&self.producer.to_be_bytes());
        value[8..16].copy_from_slice(&self.sequence.to_be_bytes());
        value[16..24].copy_from_slice(&self.intended_us.to_be_bytes());
    }

    /// Reads the stamp of a value that is long enough.
    #[inline]
    pub(crate) fn read(value: &[u8]) -> Option<Stamp> {
        let (magic, rest) = value.split_first_chunk()?;
        let (producer, rest) = rest.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (intended_us, _) = rest.split_first_chunk()?;
        Some(Stamp {
            magic: u32::from_be_bytes(*magic),
            producer: u32::from_be_bytes(*producer),
            sequence: u64::from_be_bytes(*sequence),
            intended_us: u64::from_be_bytes(*intended_us),
        })
    }
}

/// The magic of a run.
pub(crate) fn magic(seed: u64) -> u32 {
    let mixed = (seed ^ 0x7468_616c_7765_6721).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

/// The expected values of a run.
#[derive(Debug)]
pub(crate) struct ExpectedValues {
    magic: u32,
    size: usize,
    pool: Pool,
}

/// A value differs from the sent one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// The value has no stamp of this run.
    Foreign,
    /// The stamp is valid, the rest of the value is not.
    Content(Stamp),
}

impl ExpectedValues {
    /// The expected values of these records with this seed.
    pub(crate) fn new(records: &RecordSpec, seed: u64) -> Result<ExpectedValues, VerifyError> {
        check_size(records)?;
        let pool = Pool::new(records, seed)?;
        Ok(ExpectedValues { magic: magic(seed), size: records.size_bytes as usize, pool })
    }

    /// The stamp of a value, if the value is correct.
    #[inline]
    pub(crate) fn check(&self, value: &[u8]) -> Result<Stamp, Damage> {
        let stamp = Stamp::read(value).filter(|stamp| stamp.magic == self.magic).ok_or(Damage::Foreign)?;
        let sent = self.pool.value(stamp.sequence);
        if value.len() == self.size && value[STAMP_BYTES..] == sent[STAMP_BYTES..] {
            Ok(stamp)
        } else {
            Err(Damage::Content(stamp))
        }
    }
}

/// Checks that values have room for a stamp.
pub(crate) fn check_size(records: &RecordSpec) -> Result<(), VerifyError> {
    let size_bytes = records.size_bytes;
    if (size_bytes as usize) < STAMP_BYTES { Err(VerifyError::TooSmall { size_bytes }) } else { Ok(()) }
}

/// Checks that a verified assignment can be verified.
pub(crate) fn check_assignment(assignment: &Assignment) -> Result<(), VerifyError> {
    if assignment.verify != Verification::Off { check_size(&assignment.records) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Payload;

    fn spec(size_bytes: u32) -> RecordSpec {
        RecordSpec { size_bytes, payload: Payload::Random, keys: None }
    }

    fn value(seed: u64, stamp: Stamp) -> Vec<u8> {
        let mut value = Pool::new(&spec(100), seed).expect("made").value(stamp.sequence).to_vec();
        stamp.write(&mut value);
        value
    }

    #[test]
    fn a_value_that_was_sent_is_recognised() {
        let stamp =
            Stamp { magic: magic(5), producer: 3, sequence: 1 << 40, intended_us: 1_700_000_000_000_000 };
        let stamped = ExpectedValues::new(&spec(100), 5).expect("made");
        assert_eq!(stamped.check(&value(5, stamp)), Ok(stamp));
    }

    #[test]
    fn every_single_flipped_bit_is_found() {
        let stamp = Stamp { magic: magic(5), producer: 3, sequence: 77, intended_us: 1 };
        let stamped = ExpectedValues::new(&spec(100), 5).expect("made");
        let good = value(5, stamp);
        for bit in 0..800 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let found = stamped.check(&bad);
            assert_ne!(found, Ok(stamp), "bit {bit}");
            match bit / 8 {
                0..4 => assert_eq!(found, Err(Damage::Foreign), "bit {bit}"),
                // Another producer or time: the comparison of sequences and the latency show it.
                4..8 | 16..24 => assert!(found.is_ok(), "bit {bit}"),
                8..16 => {}
                _ => assert_eq!(found, Err(Damage::Content(stamp)), "bit {bit}"),
            }
        }
        assert_eq!(stamped.check(&good[..99]), Err(Damage::Content(stamp)), "cut short");
        assert_eq!(stamped.check(&good[..23]), Err(Damage::Foreign), "cut shorter");
    }

    #[test]
    fn another_run_is_foreign_and_small_values_have_no_room() {
        let stamp = Stamp { magic: magic(6), producer: 0, sequence: 0, intended_us: 1 };
        let stamped = ExpectedValues::new(&spec(100), 5).expect("made");
        assert_eq!(stamped.check(&value(6, stamp)), Err(Damage::Foreign));
        let error = ExpectedValues::new(&spec(23), 5).expect_err("no room");
        assert!(error.to_string().starts_with("records.size_bytes = 23 is too small"), "{error}");
        assert!(ExpectedValues::new(&spec(24), 5).is_ok());
    }
}
