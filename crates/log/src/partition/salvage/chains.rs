//! Batches behind damage whose place no header tells.
//!
//! Such a batch is found by its bytes, and records may contain bytes that look like a batch, on purpose. A batch of the log is
//! followed by others up to the end of the segment, or up to further damage. One in a record is followed by the rest of that
//! record: so a chain of batches that ends elsewhere is believed only if the bytes from the damage before it to the next chain are
//! more than one batch has, and if offsets are missing behind it.
//!
//! One risk remains: bytes of a record may still pass for batches where their offsets fit by chance, and the record ends with its
//! batch, or the next batch is damaged, too, or the damage is to a length, which then leads into the record.
//!
//! Owns: that judgement. Refuses: repairing offsets: a batch with a damaged one ends a chain.

use std::io;
use std::ops::{ControlFlow, Range, RangeInclusive};

use thalweg_record::{BatchHeader, LeaderEpoch, Offset};

use crate::disk::LogFile;
use crate::scan::{HeaderScan, ScanError, each_header, is_sound};

/// Bytes verified per byte that was searched. Records may contain headers of long batches, on purpose.
const VERIFIED_PER_BYTE: u64 = 16;
/// Larger batches are not verified while more was verified than that. The others would be lost for the headers in a record.
const SMALL: u64 = 4096;

/// Batches that lie next to each other, with rising offsets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    /// Position of the first.
    pub(super) start: u64,
    /// Its base offset.
    pub(super) first: Offset,
    /// Position behind the last.
    pub(super) end: u64,
    /// Offset behind the last.
    next_offset: Offset,
}

/// Where chains are looked for.
pub(super) struct Search<'a> {
    pub(super) file: &'a LogFile,
    /// Positions from behind the damage to the end of the segment.
    pub(super) bytes: Range<u64>,
    /// The offsets that are free there.
    pub(super) offsets: Range<Offset>,
    /// The leader epochs of the segment.
    pub(super) epochs: &'a RangeInclusive<LeaderEpoch>,
    /// The size of the largest batch.
    pub(super) batch_bytes_max: u64,
}

impl Search<'_> {
    /// The chains that are believed, in their order.
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

    /// The chain that begins at a position, with an offset that is not below one; `None` if no batch begins there. Checks no CRC.
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
