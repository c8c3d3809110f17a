//! Batches after damage that no header leads to.
//!
//! Such a batch is found by its bytes, and records may contain bytes that look like a batch, on purpose. A
//! batch of the log is followed by other batches up to the end of the segment, or up to further damage. A
//! fake batch in a record is followed by the rest of that record. So a chain of batches that ends elsewhere
//! is accepted only if the bytes from the damage before it to the next chain exceed the size of a batch, and
//! if offsets are missing after it.
//!
//! One risk remains: bytes of a record may still be accepted as batches if their offsets fit by chance, and
//! the record ends with its batch, or the next batch is damaged, too, or a damaged length leads into the
//! record.
//!
//! Owns: that judgement. Refuses: repairing offsets: a batch with a damaged offset ends a chain.

use std::io;
use std::ops::{ControlFlow, Range, RangeInclusive};

use thalweg_record::{BatchHeader, LeaderEpoch, Offset};

use crate::disk::LogFile;
use crate::scan::{HeaderScan, ScanError, each_header, is_sound};

/// Maximum bytes verified per byte searched. Records may contain headers of long batches, on purpose.
const VERIFIED_PER_BYTE: u64 = 16;
/// Batches above this size are not verified while the bound is exceeded. Smaller batches are always verified,
/// so that fake headers in a record cannot hide them.
const SMALL: u64 = 4096;

/// Adjacent batches with increasing offsets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    /// Position of the first batch.
    pub(super) start: u64,
    /// Base offset of the first batch.
    pub(super) first: Offset,
    /// Position after the last batch.
    pub(super) end: u64,
    /// Offset after the last batch.
    next_offset: Offset,
}

/// The range of a search for chains.
pub(super) struct ChainSearch<'a> {
    pub(super) file: &'a LogFile,
    /// Positions from the damage to the end of the segment.
    pub(super) bytes: Range<u64>,
    /// The free offsets in this range.
    pub(super) offsets: Range<Offset>,
    /// The leader epochs of the segment.
    pub(super) epochs: &'a RangeInclusive<LeaderEpoch>,
    /// The size of the largest batch.
    pub(super) batch_bytes_max: u64,
}

impl ChainSearch<'_> {
    /// The accepted chains, in order.
    pub(super) fn run(&self) -> io::Result<Vec<Chain>> {
        let found = self.all()?;
        let mut believed: Vec<Chain> = Vec::new();
        for (index, chain) in found.iter().enumerate().rev() {
            let damage = index.checked_sub(1).map_or(self.bytes.start, |before| found[before].end);
            let (next_start, next_offset) =
                believed.last().map_or((self.bytes.end, self.offsets.end), |next| (next.start, next.first));
            let is_within_one = next_start - damage <= self.batch_bytes_max;
            if chain.end == self.bytes.end || !is_within_one && chain.next_offset < next_offset {
                believed.push(*chain);
            }
        }
        believed.reverse();
        Ok(believed)
    }

    /// All chains whose first batch is sound.
    fn all(&self) -> io::Result<Vec<Chain>> {
        let (mut found, mut verified) = (Vec::new(), 0);
        each_header(self.file, self.bytes.clone(), &mut |position, header| {
            let (next, size) = (ControlFlow::Continue(position + 1), header.size_bytes() as u64);
            let allowed = (position - self.bytes.start).saturating_mul(VERIFIED_PER_BYTE);
            let is_too_much = verified > allowed && size > SMALL;
            if !self.may_be(&header) || size > self.bytes.end - position || is_too_much {
                return Ok(next);
            }
            verified += size;
            if !is_sound(self.file, position, header.size_bytes())? {
                return Ok(next);
            }
            let Some(chain) = self.follow(position, header.base_offset)? else { return Ok(next) };
            found.push(chain);
            Ok(ControlFlow::Continue(chain.end))
        })?;
        Ok(found)
    }

    fn may_be(&self, header: &BatchHeader) -> bool {
        header.last_offset_delta >= 0
            && self.offsets.contains(&header.base_offset)
            && self.epochs.contains(&header.leader_epoch)
    }

    /// The chain that begins at a position, with an offset of at least `expected`; `None` if no batch begins
    /// there. Checks no CRC.
    pub(super) fn follow(&self, start: u64, expected: Offset) -> io::Result<Option<Chain>> {
        let mut scan = HeaderScan::new(self.file, start, self.bytes.end);
        let mut chain: Option<Chain> = None;
        loop {
            let batch = match scan.next() {
                Ok(Some(batch)) => batch,
                Ok(None) | Err(ScanError::Corrupt(_)) => return Ok(chain),
                Err(ScanError::Io(error)) => return Err(error),
            };
            let (first, next_offset) = (batch.header.base_offset, batch.header.next_offset());
            if first < chain.map_or(expected, |chain| chain.next_offset) || next_offset > self.offsets.end {
                return Ok(chain);
            }
            let (start, first) = chain.map_or((start, first), |chain| (chain.start, chain.first));
            chain = Some(Chain { start, first, end: batch.end(), next_offset });
        }
    }
}
