//! Finding records by their time.
//!
//! Owns: the answers to ListOffsets, inside compressed batches too. Refuses: knowing how far a client may read;
//! the caller compares the answer with its bound.

use thalweg_record::{
    Batch, DECOMPRESSED_BYTES_MAX_DEFAULT, DecompressBuffer, LeaderEpoch, Offset, RecordError,
};

use super::PartitionLog;
use super::error::LogError;
use crate::scan::{BatchFault, CorruptBatch, HeaderScan, Placed};

/// A record that was found by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampedOffset {
    /// The record's offset.
    pub offset: Offset,
    /// The record's timestamp.
    pub timestamp: i64,
    /// The epoch of the leader that appended it; `None` when the batch does not say.
    pub leader_epoch: Option<LeaderEpoch>,
}

impl PartitionLog {
    /// The first record, at or after the log start, whose timestamp is not below `timestamp`.
    pub fn offset_for_timestamp(&mut self, timestamp: i64) -> Result<Option<TimestampedOffset>, LogError> {
        for index in 0..self.segments.len() {
            if self.segments[index].is_empty() || self.newest_record_ms(index)? < timestamp {
                continue;
            }
            let (base, from) = (self.segments[index].base_offset, self.log_start);
            let segment = &mut self.segments[index];
            let position = segment
                .position_for_timestamp(&self.home, timestamp, from)
                .map_err(LogError::in_segment(base))?;
            let wanted = |batch: &Placed| {
                batch.header.max_timestamp >= timestamp && batch.header.last_offset() >= from
            };
            let found = self
                .find_record(index, position, wanted, |offset, time| time >= timestamp && offset >= from)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The first of the records with the largest timestamp (ListOffsets' -3).
    pub fn max_timestamp_offset(&mut self) -> Result<Option<TimestampedOffset>, LogError> {
        let mut newest: Option<(usize, i64, Offset)> = None;
        for index in 0..self.segments.len() {
            let base = self.segments[index].base_offset;
            let (timestamp, offset) =
                self.segments[index].max_timestamp(&self.home).map_err(LogError::in_segment(base))?;
            if timestamp >= 0 && newest.is_none_or(|(_, known, _)| timestamp > known) {
                newest = Some((index, timestamp, offset));
            }
        }
        let Some((index, timestamp, offset)) = newest else { return Ok(None) };
        let (base, log_start) = (self.segments[index].base_offset, self.log_start);
        let at = self.segments[index].locate(&self.home, offset).map_err(LogError::in_segment(base))?;
        let Some(at) = at else { return Ok(None) };
        let wanted = |batch: &Placed| batch.header.max_timestamp == timestamp;
        self.find_record(index, at.position, wanted, |offset, time| time == timestamp && offset >= log_start)
    }

    /// The first record that `accepts`, in the batches that are `wanted`, from a position on.
    fn find_record(
        &mut self,
        index: usize,
        position: u64,
        wanted: impl Fn(&Placed) -> bool,
        accepts: impl Fn(Offset, i64) -> bool,
    ) -> Result<Option<TimestampedOffset>, LogError> {
        let segment = &mut self.segments[index];
        let base = segment.base_offset;
        let file = segment.file(&self.home)?;
        let mut scan = HeaderScan::new(&file, position, segment.size_bytes());
        let mut buffer = DecompressBuffer::new(DECOMPRESSED_BYTES_MAX_DEFAULT);
        while let Some(placed) = scan.next().map_err(LogError::in_segment(base))? {
            if !wanted(&placed) {
                continue;
            }
            let mut bytes = vec![0; placed.header.size_bytes()];
            let read = file.read_at(&mut bytes, placed.position)?;
            let corrupt = |reason| LogError::Corrupt {
                segment: base,
                fault: CorruptBatch { position: placed.position, reason },
            };
            let batch = Batch::parse(&bytes[..read]).map_err(|error| corrupt(BatchFault::Batch(error)))?;
            // The CRC tells a damaged disk from a producer that sent nonsense.
            let unreadable = |error: RecordError| match thalweg_record::verify(batch.bytes) {
                Err(damage) => corrupt(BatchFault::Batch(damage)),
                Ok(_) => LogError::UnreadableRecords {
                    base_offset: placed.header.base_offset,
                    reason: error.to_string(),
                },
            };
            for record in batch.records(&mut buffer).map_err(unreadable)? {
                let record = record.map_err(unreadable)?;
                if accepts(record.offset, record.timestamp) {
                    let epoch = placed.header.leader_epoch;
                    return Ok(Some(TimestampedOffset {
                        offset: record.offset,
                        timestamp: record.timestamp,
                        leader_epoch: (epoch != LeaderEpoch::NONE).then_some(epoch),
                    }));
                }
            }
        }
        Ok(None)
    }
}
