//! A batch as a slice of bytes, and the walk over the batches of a fetch response, a request or a segment.

use crate::crc::verify_crc;
use crate::error::{BatchError, CrcMismatch, TruncatedBatch};
use crate::header::BatchHeader;

/// A whole batch: its parsed header, and all its bytes including the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch<'a> {
    /// The parsed header.
    pub header: BatchHeader,
    /// The whole batch; `header.size_bytes()` long.
    pub bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// Checks that the bytes match the CRC.
    pub fn check_crc(&self) -> Result<(), CrcMismatch> {
        verify_crc(&self.header, self.bytes)
    }

    /// The batch at the beginning of `bytes`; following bytes are ignored. The CRC is not checked.
    pub fn parse(bytes: &'a [u8]) -> Result<Batch<'a>, BatchError> {
        let header = BatchHeader::parse(bytes)?;
        let size = header.size_bytes();
        match bytes.get(..size) {
            Some(bytes) => Ok(Batch { header, bytes }),
            None => Err(TruncatedBatch { needed: size, available: bytes.len() }.into()),
        }
    }

    /// The stored records, compressed according to the attributes.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[BatchHeader::LEN..]
    }
}

/// Walks over the batches in `bytes`, without checking CRCs. See [`Batches`].
pub fn batches(bytes: &[u8]) -> Batches<'_> {
    Batches { bytes, position: 0, failed: false }
}

/// The batches of a slice, in order. Ends at the end of the bytes, or after the first error: an incomplete
/// last batch is [`BatchError::Truncated`]. A reader of a fetch response drops such a batch, and recovery
/// truncates a segment before it ([`Batches::position`]).
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    position: usize,
    failed: bool,
}

impl Batches<'_> {
    /// Total size of the returned batches: the position of the next batch, or of the failure.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.position == self.bytes.len() {
            return None;
        }
        let batch = Batch::parse(&self.bytes[self.position..]);
        match &batch {
            Ok(batch) => self.position += batch.bytes.len(),
            Err(_) => self.failed = true,
        }
        Some(batch)
    }
}

impl std::iter::FusedIterator for Batches<'_> {}
