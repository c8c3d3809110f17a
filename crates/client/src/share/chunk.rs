//! Records of one partition that a share consumer has acquired: whole batches, as received, with the list of
//! acquired offsets.

use std::ops::ControlFlow;

use bytes::Bytes;
use thalweg_record::{Batch, BatchError, BatchHeader, DecompressBuffer, Offset, Record, batches, verify};
use thalweg_wire::Uuid;

use super::ranges::Ranges;
use crate::consumer::ChunkError;
use crate::offsets::{TopicIdPartition, TopicPartition};

/// Adjacent records that were acquired together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcquiredRange {
    /// The first offset.
    pub first: Offset,
    /// The last offset.
    pub last: Offset,
    /// Number of deliveries of the records, including this one.
    pub delivery_count: i16,
}

/// Acquired records of one partition.
#[derive(Clone, Debug)]
pub struct ShareChunk {
    /// The partition of the batches.
    pub at: TopicPartition,
    /// The batches, possibly with other batches between them.
    pub bytes: Bytes,
    /// The acquired offsets, in ascending order. An offset may lack a record, after compaction or for a
    /// control record.
    pub acquired: Vec<AcquiredRange>,
    pub(super) check_crcs: bool,
    pub(super) topic_id: Uuid,
    /// The id of the delivering broker.
    pub(super) broker: i32,
    /// The broker's session.
    pub(super) session: u64,
}

impl ShareChunk {
    /// Calls `each` with the acquired records in order, each with its delivery count, until it breaks. A
    /// record borrows the fetched bytes, or `buffer` if it was compressed.
    pub fn for_each(
        &self,
        buffer: &mut DecompressBuffer,
        mut each: impl FnMut(&Record<'_>, i16) -> ControlFlow<()>,
    ) -> Result<(), ChunkError> {
        self.walk(buffer, |_, record, delivery_count| each(record, delivery_count))
    }

    /// Walks like [`ShareChunk::for_each`], with the header of each record's batch.
    pub fn walk(
        &self,
        buffer: &mut DecompressBuffer,
        mut each: impl FnMut(&BatchHeader, &Record<'_>, i16) -> ControlFlow<()>,
    ) -> Result<(), ChunkError> {
        let mut acquired = self.acquired.iter().copied().peekable();
        for batch in batches(&self.bytes) {
            let batch = match batch {
                Ok(batch) => batch,
                // The broker cuts the bytes at the size limit.
                Err(BatchError::Truncated(_)) => break,
                Err(source) => return Err(self.broken(source)),
            };
            let header = &batch.header;
            while acquired.next_if(|range| range.last < header.base_offset).is_some() {}
            let is_wanted = acquired.peek().is_some_and(|range| range.first <= header.last_offset());
            if header.attributes.is_control() || !is_wanted {
                continue;
            }
            if self.check_crcs {
                verify(batch.bytes).map_err(|source| self.broken(source))?;
            }
            for record in batch.records(buffer).map_err(|source| self.unreadable(&batch, source))? {
                let record = record.map_err(|source| self.unreadable(&batch, source))?;
                while acquired.next_if(|range| range.last < record.offset).is_some() {}
                let Some(range) = acquired.peek() else { return Ok(()) };
                if range.first <= record.offset && each(header, &record, range.delivery_count).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The acquired offsets without a record for a consumer. Batches with a record for each offset, as
    /// without compaction, are not opened.
    pub(super) fn gaps(&self, buffer: &mut DecompressBuffer) -> Result<Vec<(i64, i64)>, ChunkError> {
        let mut gaps = Ranges::default();
        for range in &self.acquired {
            gaps.insert(range.first.0, range.last.0, ());
        }
        for batch in batches(&self.bytes) {
            let Ok(batch) = batch else { break };
            let header = &batch.header;
            if header.attributes.is_control() {
                continue;
            }
            let (first, last) = (header.base_offset.0, header.last_offset().0);
            if i64::from(header.record_count) == last - first + 1 {
                gaps.remove(first, last);
                continue;
            }
            for record in batch.records(buffer).map_err(|source| self.unreadable(&batch, source))? {
                let offset = record.map_err(|source| self.unreadable(&batch, source))?.offset.0;
                gaps.remove(offset, offset);
            }
        }
        Ok(gaps.iter().map(|(first, last, ())| (first, last)).collect())
    }

    /// The partition by topic id.
    pub(super) fn topic_id_partition(&self) -> TopicIdPartition {
        (self.topic_id, self.at.partition)
    }

    fn broken(&self, source: BatchError) -> ChunkError {
        ChunkError::Batch { at: self.at.clone(), start: self.start(), source }
    }

    fn unreadable(&self, batch: &Batch<'_>, source: thalweg_record::RecordError) -> ChunkError {
        ChunkError::Records { at: self.at.clone(), base: batch.header.base_offset, source }
    }

    fn start(&self) -> Offset {
        self.acquired.first().map_or(Offset::NONE, |range| range.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_record::{BatchBuilder, BatchOptions, ControlRecordType, LeaderEpoch};

    fn batch(base: i64, values: &[&str], marker: bool) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset: Offset(base),
            leader_epoch: LeaderEpoch(4),
            control: marker,
            transactional: marker,
            ..BatchOptions::default()
        });
        for value in values {
            builder.append(1, None, Some(value.as_bytes()), &[]).expect("it fits");
        }
        if marker {
            builder.append_control(1, ControlRecordType::Commit, &[0; 6]).expect("it fits");
        }
        builder.finish().to_vec()
    }

    fn chunk(acquired: &[(i64, i64, i16)]) -> ShareChunk {
        let bytes = [batch(5, &["a", "b", "c"], false), batch(8, &[], true), batch(11, &["d"], false)];
        let acquired = acquired.iter().map(|&(first, last, delivery_count)| AcquiredRange {
            first: Offset(first),
            last: Offset(last),
            delivery_count,
        });
        ShareChunk {
            at: TopicPartition::new("t", 0),
            bytes: bytes.concat().into(),
            acquired: acquired.collect(),
            check_crcs: true,
            topic_id: Uuid(1),
            broker: 1,
            session: 1,
        }
    }

    fn read(chunk: &ShareChunk) -> Vec<(i64, i16)> {
        let mut read = Vec::new();
        let each = |record: &Record<'_>, delivery_count| {
            read.push((record.offset.0, delivery_count));
            ControlFlow::Continue(())
        };
        chunk.for_each(&mut DecompressBuffer::default(), each).expect("readable");
        read
    }

    #[test]
    fn only_acquired_records_are_read() {
        assert_eq!(read(&chunk(&[(6, 6, 1), (7, 11, 3)])), [(6, 1), (7, 3), (11, 3)]);
        assert_eq!(read(&chunk(&[(0, 5, 2), (20, 25, 1)])), [(5, 2)]);
        assert!(read(&chunk(&[])).is_empty());
    }

    #[test]
    fn control_records_and_what_was_compacted_are_gaps() {
        let gaps = |acquired| chunk(acquired).gaps(&mut DecompressBuffer::default()).expect("readable");
        assert_eq!(gaps(&[(5, 11, 1)]), [(8, 10)]);
        assert!(gaps(&[(5, 7, 1), (11, 11, 1)]).is_empty());
        assert_eq!(gaps(&[(3, 5, 1), (12, 13, 1)]), [(3, 4), (12, 13)]);
    }
}
