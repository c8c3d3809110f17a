//! Finds batches in flight that a producer snapshot lacks.
//!
//! A snapshot holds the last batch of each producer, but a producer has up to five requests in flight, and
//! resends all of them if the answers were lost with the process. If few batches follow the snapshot, the
//! other batches in flight are before it, in the last megabytes of the log. The search goes backwards, block
//! by block, until no recent producer can lack a batch.
//!
//! Owns: the extent of the search. Refuses: reading more than headers, and more than the end of the log; an
//! earlier batch was answered long before the stop.

use std::collections::VecDeque;

use thalweg_hash::HashMap;
use thalweg_record::ProducerId;

use super::error::LogError;
use crate::producers::{BATCHES_REMEMBERED, BatchMetadata, Producers};
use crate::scan::{HeaderScan, ScanError};
use crate::segment::{Home, Segment};

/// Bytes at the end of the log that can contain batches in flight: five large ones of several producers, or
/// five of the usual size of hundreds.
const IN_FLIGHT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Size of the first block searched. Each further block is twice as large.
const FIRST_BLOCK_BYTES: u64 = 64 * 1024;
/// A producer gives up a batch after `delivery.timeout.ms`, two minutes by default: a producer that was
/// silent for longer before the newest batch has no relevant batches in flight.
const SILENT_MS: i64 = 120_000;

/// Adds the batches at the end of the log that may still be in flight to `producers`.
pub(super) fn recall_in_flight(
    home: &Home,
    segments: &mut [Segment],
    producers: &mut Producers,
) -> Result<(), LogError> {
    let mut recall =
        Recall { home, producers, budget_bytes: IN_FLIGHT_BYTES_MAX, block_bytes: FIRST_BLOCK_BYTES };
    for segment in segments.iter_mut().rev() {
        match recall.search(segment) {
            Ok(true) => break,
            Ok(false) => {}
            Err(ScanError::Io(error)) => return Err(error.into()),
            // As in a replay, damage is no reason to refuse the rest.
            Err(ScanError::Corrupt(fault)) => {
                let (dir, segment) = (home.dir.display(), segment.base_offset.0);
                tracing::error!(%dir, segment, %fault, "Segment is damaged");
                break;
            }
        }
    }
    Ok(())
}

/// A walk backwards from the end of the log.
struct Recall<'a> {
    home: &'a Home,
    producers: &'a mut Producers,
    budget_bytes: u64,
    block_bytes: u64,
}

impl Recall<'_> {
    /// Searches one segment from its end; returns true if the search is complete.
    fn search(&mut self, segment: &mut Segment) -> Result<bool, ScanError> {
        let mut end = segment.size_bytes();
        loop {
            if self.budget_bytes == 0 || !self.producers.may_miss_batches(SILENT_MS) {
                return Ok(true);
            }
            if end == 0 {
                return Ok(false);
            }
            // A small segment is read from its beginning, without its index.
            let start = match end.saturating_sub(self.block_bytes.min(self.budget_bytes)) {
                0 => 0,
                limit => segment.boundary_before(self.home, 0, limit)?.position,
            };
            self.read_block(segment, start, end)?;
            self.budget_bytes = self.budget_bytes.saturating_sub(end - start);
            self.block_bytes *= 2;
            end = start;
        }
    }

    fn read_block(&mut self, segment: &mut Segment, start: u64, end: u64) -> Result<(), ScanError> {
        let file = segment.file(self.home)?;
        let mut scan = HeaderScan::new(&file, start, end);
        let mut found: HashMap<ProducerId, VecDeque<BatchMetadata>> = HashMap::default();
        while let Some(placed) = scan.next()? {
            let Some(batch) = self.producers.missed(&placed.header) else { continue };
            let batches = found.entry(placed.header.producer_id).or_default();
            if batches.len() == BATCHES_REMEMBERED {
                batches.pop_front();
            }
            batches.push_back(batch);
        }
        for (producer_id, batches) in found {
            self.producers.recall(producer_id, batches);
        }
        Ok(())
    }
}
