//! Walks over the batches of a segment file.
//!
//! Owns: reading headers without their records, in few and small reads, and reading whole batches with CRC
//! checks. Refuses: repair; faults are reported with their position.

use std::io;
use std::ops::{ControlFlow, Deref, Range};

use thalweg_record::{BatchError, BatchHeader, Offset};

use crate::disk::LogFile;

/// Bytes per read for headers: an index interval, so that one read usually suffices.
const HEADER_CHUNK: usize = 4096;
/// Bytes per read for whole batches.
const BATCH_CHUNK: usize = 1024 * 1024;

/// Bytes at a position that are not a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no valid batch at position {position}: {reason}")]
pub struct CorruptBatch {
    /// Position in the segment file.
    pub position: u64,
    pub reason: BatchFault,
}

/// A fault of a stored batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchFault {
    /// The batch is malformed.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The file ends within the batch.
    #[error("the batch needs {needed} bytes and the segment has {available} left")]
    Torn {
        /// Bytes of the batch, or of a header if even that is incomplete.
        needed: u64,
        /// Bytes left in the file.
        available: u64,
    },
    /// The records inside are unreadable.
    #[error("its records cannot be read: {0}")]
    Records(String),
    /// Offsets do not increase, or do not belong to the segment.
    #[error("offsets {base_offset} to {last_offset} do not follow {expected}")]
    OffsetsOutOfOrder {
        /// Base offset of the batch.
        base_offset: i64,
        /// Last offset of the batch.
        last_offset: i64,
        /// The smallest valid offset.
        expected: i64,
    },
    /// The file ends before its written bytes: another program has cut it.
    #[error("the file has {found} bytes, and had {expected}")]
    Shortened {
        /// Length of the file in bytes.
        found: u64,
        /// Number of written bytes.
        expected: u64,
    },
    /// The next segment does not continue where this one ends: segments between them, or batches, are
    /// missing.
    #[error("the records with the offsets {from} to {} are missing", .to - 1)]
    Missing {
        /// End offset of the segment's batches.
        from: i64,
        /// Base offset of the next segment.
        to: i64,
    },
    /// The batch has offsets of the next segment.
    #[error(
        "offsets {base_offset} to {last_offset} reach into the next segment, which begins at {next_base}"
    )]
    Overlap {
        /// Base offset of the batch.
        base_offset: i64,
        /// Last offset of the batch.
        last_offset: i64,
        /// Base offset of the next segment.
        next_base: i64,
    },
    /// The leader epoch differs from the epoch in which the offset was written.
    #[error("its leader epoch is {found}, and that of its offset is {expected}")]
    LeaderEpoch {
        /// The epoch in the batch.
        found: i32,
        /// The epoch in the checkpoint for the batch's offset.
        expected: i32,
    },
}

impl BatchFault {
    /// The offsets of a batch do not follow.
    pub fn out_of_order(header: &BatchHeader, expected: Offset) -> BatchFault {
        let (base_offset, last_offset) = (header.base_offset.0, header.last_offset().0);
        BatchFault::OffsetsOutOfOrder { base_offset, last_offset, expected: expected.0 }
    }
}

/// The header of a batch that begins with these bytes, with `available` bytes left in the file.
pub fn whole_header(bytes: &[u8], available: u64) -> Result<BatchHeader, BatchFault> {
    let header = BatchHeader::parse(bytes)?;
    let needed = header.size_bytes() as u64;
    if needed > available { Err(BatchFault::Torn { needed, available }) } else { Ok(header) }
}

impl CorruptBatch {
    /// The fault of a batch with offsets of the next segment.
    pub fn reaching_into(batch: &BatchPlace, next_base: Offset) -> CorruptBatch {
        let (base_offset, last_offset) = (batch.header.base_offset.0, batch.header.last_offset().0);
        let reason = BatchFault::Overlap { base_offset, last_offset, next_base: next_base.0 };
        CorruptBatch { position: batch.position, reason }
    }
}

/// Why a walk ended early.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The file could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The bytes are not a batch.
    #[error(transparent)]
    Corrupt(#[from] CorruptBatch),
}

/// A batch's place in a segment file.
#[derive(Clone, Copy, Debug)]
pub struct BatchPlace {
    /// Position of its first byte.
    pub position: u64,
    /// The batch's header.
    pub header: BatchHeader,
}

impl BatchPlace {
    /// Position after its last byte.
    pub fn end(&self) -> u64 {
        self.position + self.header.size_bytes() as u64
    }
}

/// The headers of a segment file between two positions. Checks lengths and magic, no CRC.
pub struct HeaderScan<'a> {
    file: &'a LogFile,
    position: u64,
    end: u64,
    chunk: Box<[u8; HEADER_CHUNK]>,
    chunk_start: u64,
    chunk_len: usize,
}

impl<'a> HeaderScan<'a> {
    /// A walk from `position`, the start of a batch, to `end`.
    pub fn new(file: &'a LogFile, position: u64, end: u64) -> HeaderScan<'a> {
        HeaderScan { file, position, end, chunk: Box::new([0; HEADER_CHUNK]), chunk_start: 0, chunk_len: 0 }
    }

    /// The next batch; `None` at the end.
    pub fn next(&mut self) -> Result<Option<BatchPlace>, ScanError> {
        let position = self.position;
        if position >= self.end {
            return Ok(None);
        }
        let available = self.end - position;
        let corrupt = |reason| ScanError::Corrupt(CorruptBatch { position, reason });
        if available < BatchHeader::LEN as u64 {
            return Err(corrupt(BatchFault::Torn { needed: BatchHeader::LEN as u64, available }));
        }
        let in_chunk = position >= self.chunk_start
            && position + BatchHeader::LEN as u64 <= self.chunk_start + self.chunk_len as u64;
        if !in_chunk {
            let wanted = usize::try_from(available).map_or(HEADER_CHUNK, |bytes| bytes.min(HEADER_CHUNK));
            self.chunk_len = self.file.read_at(&mut self.chunk[..wanted], position)?;
            self.chunk_start = position;
        }
        let from = usize::try_from(position - self.chunk_start).expect("the position is inside the chunk");
        let header = whole_header(&self.chunk[from..self.chunk_len], available).map_err(corrupt)?;
        // Such a batch would seem to be below the searched offset, and be skipped.
        if header.last_offset_delta < 0 {
            return Err(corrupt(BatchFault::out_of_order(&header, header.base_offset)));
        }
        self.position += header.size_bytes() as u64;
        Ok(Some(BatchPlace { position, header }))
    }
}

/// Maximum bytes verified per byte searched for batches. Records may contain bytes that look like headers of
/// long batches, on purpose.
const VERIFIED_PER_BYTE: u64 = 16;

/// The position of the first complete batch with a valid CRC between two positions of a file, with an offset
/// that can follow `expected`: the bytes before it are damage, not the end of the log. If checking takes too
/// long, the position of a batch with an unchecked CRC.
pub fn find_batch(file: &LogFile, from: u64, to: u64, expected: Offset) -> io::Result<Option<u64>> {
    // A record takes more than a byte, so offsets grow more slowly than positions, unless compacted.
    let reach = i64::try_from(to - from).unwrap_or(i64::MAX);
    let offsets = expected.0..expected.0.saturating_add(reach);
    let mut left = (to - from).saturating_mul(VERIFIED_PER_BYTE);
    let mut found = None;
    each_header(file, from..to, &mut |position, header| {
        let size = header.size_bytes();
        if offsets.contains(&header.base_offset.0) && size as u64 <= to - position {
            if is_sound(file, position, size)? || left < size as u64 {
                found = Some(position);
                return Ok(ControlFlow::Break(()));
            }
            left -= size as u64;
        }
        Ok(ControlFlow::Continue(position + 1))
    })?;
    Ok(found)
}

/// Calls back for each apparent header between two positions of a file, with its position. The return value
/// is the position to continue at.
pub fn each_header(
    file: &LogFile,
    Range { start: from, end: to }: Range<u64>,
    each: &mut dyn FnMut(u64, BatchHeader) -> io::Result<ControlFlow<(), u64>>,
) -> io::Result<()> {
    let mut chunk = vec![0; BATCH_CHUNK];
    let mut at = from;
    while at.saturating_add(BatchHeader::LEN as u64) <= to {
        let wanted = usize::try_from(to - at).map_or(BATCH_CHUNK, |bytes| bytes.min(BATCH_CHUNK));
        let read = file.read_at(&mut chunk[..wanted], at)?;
        // Another program may have cut the file.
        let Some(starts) = read.checked_sub(BatchHeader::LEN - 1).filter(|starts| *starts > 0) else { break };
        let (chunk_at, chunk_end) = (at, at + starts as u64);
        while at < chunk_end {
            let start = usize::try_from(at - chunk_at).expect("the position is inside the chunk");
            at = match BatchHeader::parse(&chunk[start..read]) {
                Ok(header) => match each(at, header)? {
                    ControlFlow::Continue(next) => next.max(at + 1),
                    ControlFlow::Break(()) => return Ok(()),
                },
                Err(_) => at + 1,
            };
        }
    }
    Ok(())
}

/// True if a batch has all its bytes, and a matching CRC.
pub fn is_sound(file: &LogFile, position: u64, size: usize) -> io::Result<bool> {
    let mut bytes = vec![0; size];
    let read = file.read_at(&mut bytes, position)?;
    Ok(thalweg_record::verify(&bytes[..read]).is_ok())
}

/// The unit in which a power failure loses unsynced data.
const PAGE: u64 = 4096;

/// True if a power failure can explain the damage between two positions of a file, the second being the start
/// of a sound batch: a page that did not reach the disk reads as zeros.
pub fn lacks_page(file: &LogFile, from: u64, to: u64, expected: Offset) -> io::Result<bool> {
    let mut at = from;
    while let page_end = (at / PAGE + 1) * PAGE
        && page_end <= to
    {
        // Most offsets begin with zeros.
        let head = usize::try_from(page_end - at).unwrap_or(usize::MAX);
        let begins_with_zeros = at == from
            && expected.0.to_be_bytes().get(..head).is_some_and(|head| head.iter().all(|byte| *byte == 0));
        if !begins_with_zeros && is_zeros(file, at, page_end)? {
            return Ok(true);
        }
        at = page_end;
    }
    Ok(false)
}

/// True if a file contains only zeros between two positions.
pub fn is_zeros(file: &LogFile, from: u64, to: u64) -> io::Result<bool> {
    let mut chunk = [0; HEADER_CHUNK];
    let mut position = from;
    while position < to {
        let wanted = usize::try_from(to - position).map_or(HEADER_CHUNK, |bytes| bytes.min(HEADER_CHUNK));
        let read = file.read_at(&mut chunk[..wanted], position)?;
        if read == 0 || chunk[..read].iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        position += read as u64;
    }
    Ok(true)
}

/// The whole batches of a segment file from a position on, each with its CRC checked.
#[derive(Debug)]
pub struct BatchScan<F> {
    file: F,
    position: u64,
    end: u64,
    buffer: Vec<u8>,
    buffer_start: u64,
}

impl<F: Deref<Target = LogFile>> BatchScan<F> {
    /// A walk from `position`, the start of a batch, to `end`.
    pub fn new(file: F, position: u64, end: u64) -> BatchScan<F> {
        BatchScan { file, position, end, buffer: Vec::new(), buffer_start: position }
    }

    /// The next batch and its bytes; `None` at the end.
    pub fn next(&mut self) -> Result<Option<(BatchPlace, &[u8])>, ScanError> {
        let position = self.position;
        if position >= self.end {
            return Ok(None);
        }
        let available = self.end - position;
        let corrupt = |reason| ScanError::Corrupt(CorruptBatch { position, reason });
        if available < BatchHeader::LEN as u64 {
            return Err(corrupt(BatchFault::Torn { needed: BatchHeader::LEN as u64, available }));
        }
        let from = self.fill(BatchHeader::LEN)?;
        let header =
            BatchHeader::parse(&self.buffer[from..]).map_err(|error| corrupt(BatchFault::Batch(error)))?;
        let size = header.size_bytes();
        if size as u64 > available {
            return Err(corrupt(BatchFault::Torn { needed: size as u64, available }));
        }
        let from = self.fill(size)?;
        let Some(bytes) = self.buffer.get(from..from + size) else {
            // The file shrank below its length at the beginning of the walk.
            return Err(corrupt(BatchFault::Torn { needed: size as u64, available: 0 }));
        };
        thalweg_record::verify(bytes).map_err(|error| corrupt(BatchFault::Batch(error)))?;
        self.position += size as u64;
        Ok(Some((BatchPlace { position, header }, bytes)))
    }

    /// Reads `len` bytes at the current position into the buffer, limited by the file; returns their start in
    /// the buffer. `len` was checked against the file size.
    fn fill(&mut self, len: usize) -> io::Result<usize> {
        let from = usize::try_from(self.position - self.buffer_start).expect("a buffer fits into memory");
        if from + len <= self.buffer.len() {
            return Ok(from);
        }
        let kept = from.min(self.buffer.len());
        self.buffer.drain(..kept);
        self.buffer_start = self.position;
        let held = self.buffer.len();
        let left = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
        let wanted = len.max(BATCH_CHUNK).min(left);
        if wanted > held {
            self.buffer.resize(wanted, 0);
            let read = self.file.read_at(&mut self.buffer[held..], self.position + held as u64)?;
            self.buffer.truncate(held + read);
        }
        Ok(0)
    }
}
