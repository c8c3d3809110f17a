//! A second check of stored batches that a reader rejects because of their CRC.
//!
//! Owns: comparing their headers with each other again, under the partition's lock
//! ([`PartitionLog::doubt_batches`]), and their CRCs, without it ([`BatchCheck::run`]). Refuses: deciding
//! when to check: no read of a consumer or follower should pay for it.

use std::path::Path;
use std::sync::Arc;

use thalweg_record::Offset;

use super::error::{LogError, ReadError};
use super::{PartitionLog, ReadHints};
use crate::disk::{LogFile, check_may_wait};
use crate::scan::BatchScan;

/// Maximum bytes of batches checked at a time, unless a single batch is larger.
const CHECKED_BYTES_MAX: usize = 16 << 20;

/// Batches whose CRCs will be checked.
#[derive(Debug)]
pub struct BatchCheck {
    file: Arc<LogFile>,
    segment: Offset,
    position: u64,
    end: u64,
    rewrites: u64,
}

impl PartitionLog {
    /// Finds the batches that a read from `offset` returns, and compares their headers with each other again;
    /// damage found is noted. `None` if there are none.
    pub fn doubt_batches(
        &mut self,
        offset: Offset,
        max_bytes: usize,
    ) -> Result<Option<BatchCheck>, ReadError> {
        if let Some(index) = self.floor_index(offset) {
            self.segments[index].distrust();
            self.hints = ReadHints::default();
        }
        self.batches_read(offset, max_bytes)
    }

    /// Finds the batches that a read from `offset` returns, without another comparison. `None` if there are
    /// none.
    pub fn batches_read(
        &mut self,
        offset: Offset,
        max_bytes: usize,
    ) -> Result<Option<BatchCheck>, ReadError> {
        let read = self.read(offset, max_bytes.min(CHECKED_BYTES_MAX), self.log_end, true)?;
        Ok(read.map(|slice| BatchCheck {
            segment: self.segments[self.floor_index(slice.end_offset - 1).unwrap_or(0)].base_offset,
            position: slice.position,
            end: slice.position + slice.len as u64,
            file: slice.file,
            rewrites: self.rewrites,
        }))
    }

    /// True if a failed check may have read truncated or replaced bytes.
    pub fn has_outrun_check(&self, check: &BatchCheck) -> bool {
        check.rewrites != self.rewrites
    }
}

impl BatchCheck {
    /// Reads the batches, and returns the first damage as an error. Call it without the partition's lock.
    pub fn run(&self) -> Result<(), LogError> {
        check_may_wait("A check of batches", Path::new("a segment"));
        let mut scan = BatchScan::new(Arc::clone(&self.file), self.position, self.end);
        while scan.next().map_err(LogError::in_segment(self.segment))?.is_some() {}
        Ok(())
    }
}
