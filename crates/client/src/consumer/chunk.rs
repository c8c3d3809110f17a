//! Fetched records of one partition: whole batches, as received, and the walk over their records.

use std::ops::ControlFlow;

use bytes::Bytes;
use thalweg_record::{
    Batch, BatchError, BatchHeader, ControlRecordType, DecompressBuffer, LeaderEpoch, Offset, Record,
    RecordError, batches, verify,
};
use thalweg_wire::request::fetch_response::AbortedTransaction;

use crate::offsets::TopicPartition;

/// Batches of one partition.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// The partition of the batches.
    pub at: TopicPartition,
    /// The batches, possibly with the beginning of another one.
    pub bytes: Bytes,
    /// The requested offset; the first batch may start before it.
    pub start: Offset,
    /// The offset after the last record.
    pub next: Offset,
    /// The leader epoch of the last batch.
    pub leader_epoch: LeaderEpoch,
    /// The end of the replicated records, when the broker answered.
    pub high_watermark: Offset,
    /// The end of the records before the first open transaction, where reading with read_committed ends.
    pub last_stable_offset: Offset,
    pub(super) aborted: Vec<AbortedTransaction>,
    pub(super) check_crcs: bool,
    /// The version of the partition's position when it was fetched.
    pub(super) version: u64,
}

/// Why batches are unreadable.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChunkError {
    /// A batch has an invalid header or CRC.
    #[error("{at}, from offset {start}: {source}")]
    Batch {
        at: TopicPartition,
        /// The start offset of the fetch.
        start: Offset,
        /// The fault in the batch.
        source: BatchError,
    },
    /// The records of a batch are malformed.
    #[error("{at}, in the batch at offset {base}: {source}")]
    Records {
        at: TopicPartition,
        /// The base offset of the batch.
        base: Offset,
        /// The fault in the records.
        source: RecordError,
    },
}

impl Chunk {
    /// The end of the whole batches in fetched bytes: the offset after the last batch, and its leader epoch;
    /// `None` without a whole batch.
    pub(super) fn end_of(bytes: &[u8]) -> Option<(Offset, LeaderEpoch)> {
        let last = batches(bytes).map_while(Result::ok).last()?;
        Some((last.header.next_offset(), last.header.leader_epoch))
    }

    /// Calls `each` with the records from [`Chunk::start`] on, in order, until it breaks. Skips control
    /// records, and with read_committed the records of aborted transactions. A record borrows the fetched
    /// bytes, or `buffer` if it was compressed.
    pub fn for_each(
        &self,
        buffer: &mut DecompressBuffer,
        mut each: impl FnMut(&Record<'_>) -> ControlFlow<()>,
    ) -> Result<(), ChunkError> {
        self.walk(buffer, false, |_, record| each(record))
    }

    /// Walks like [`Chunk::for_each`], with the header of each record's batch. With `control`, control
    /// records are included.
    pub fn walk(
        &self,
        buffer: &mut DecompressBuffer,
        control: bool,
        mut each: impl FnMut(&BatchHeader, &Record<'_>) -> ControlFlow<()>,
    ) -> Result<(), ChunkError> {
        let mut aborted = AbortedProducers::new(&self.aborted);
        for batch in batches(&self.bytes) {
            let batch = match batch {
                Ok(batch) => batch,
                // The broker cuts the bytes at the size limit.
                Err(BatchError::Truncated(_)) => break,
                Err(source) => return Err(self.broken(source)),
            };
            if self.check_crcs {
                verify(batch.bytes).map_err(|source| self.broken(source))?;
            }
            let header = &batch.header;
            if header.attributes.is_control() {
                aborted.control(&batch, buffer);
                if !control {
                    continue;
                }
            }
            let is_hidden = !header.attributes.is_control() && aborted.hides(&batch);
            if is_hidden || header.last_offset() < self.start {
                continue;
            }
            let records_error =
                |source| ChunkError::Records { at: self.at.clone(), base: header.base_offset, source };
            for record in batch.records(buffer).map_err(records_error)? {
                let record = record.map_err(records_error)?;
                if record.offset >= self.start && each(header, &record).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn broken(&self, source: BatchError) -> ChunkError {
        ChunkError::Batch { at: self.at.clone(), start: self.start, source }
    }
}

/// Producers whose records belong to aborted transactions, tracked from batch to batch (KIP-98).
struct AbortedProducers<'a> {
    /// Sorted by first offset; transactions before `next` have begun.
    transactions: Vec<&'a AbortedTransaction>,
    next: usize,
    producers: Vec<i64>,
}

impl<'a> AbortedProducers<'a> {
    fn new(aborted: &'a [AbortedTransaction]) -> AbortedProducers<'a> {
        let mut transactions: Vec<&AbortedTransaction> = aborted.iter().collect();
        transactions.sort_by_key(|transaction| transaction.first_offset);
        AbortedProducers { transactions, next: 0, producers: Vec::new() }
    }

    fn begin_until(&mut self, offset: Offset) {
        while let Some(transaction) = self.transactions.get(self.next)
            && transaction.first_offset <= offset.0
        {
            self.producers.push(transaction.producer_id);
            self.next += 1;
        }
    }

    fn hides(&mut self, batch: &Batch<'_>) -> bool {
        if self.transactions.is_empty() {
            return false;
        }
        self.begin_until(batch.header.last_offset());
        batch.header.attributes.is_transactional() && self.producers.contains(&batch.header.producer_id.0)
    }

    /// An abort marker ends the hidden records of its producer.
    fn control(&mut self, batch: &Batch<'_>, buffer: &mut DecompressBuffer) {
        if self.transactions.is_empty() {
            return;
        }
        self.begin_until(batch.header.last_offset());
        let marker = batch.records(buffer).ok().and_then(|mut records| records.next()).and_then(Result::ok);
        let kind = marker.and_then(|record| ControlRecordType::parse_key(record.key?).ok().flatten());
        if kind == Some(ControlRecordType::Abort) {
            self.producers.retain(|&producer| producer != batch.header.producer_id.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_record::{BatchBuilder, BatchOptions, ProducerEpoch, ProducerId};

    fn batch(base: i64, producer: i64, values: &[&str], marker: Option<ControlRecordType>) -> Vec<u8> {
        let transactional = producer >= 0;
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset: Offset(base),
            leader_epoch: LeaderEpoch(4),
            producer_id: ProducerId(producer),
            producer_epoch: ProducerEpoch(if transactional { 0 } else { -1 }),
            transactional,
            control: marker.is_some(),
            ..BatchOptions::default()
        });
        for value in values {
            builder.append(1, None, Some(value.as_bytes()), &[]).expect("it fits");
        }
        if let Some(marker) = marker {
            builder.append_control(1, marker, &[0; 6]).expect("it fits");
        }
        builder.finish().to_vec()
    }

    fn chunk(start: i64, bytes: Vec<u8>, aborted: &[(i64, i64)]) -> Chunk {
        let (next, leader_epoch) = Chunk::end_of(&bytes).expect("a batch");
        let aborted = aborted
            .iter()
            .map(|&(producer_id, first_offset)| AbortedTransaction { producer_id, first_offset });
        Chunk {
            at: TopicPartition::new("t", 0),
            bytes: bytes.into(),
            start: Offset(start),
            next,
            leader_epoch,
            high_watermark: next,
            last_stable_offset: next,
            aborted: aborted.collect(),
            check_crcs: true,
            version: 0,
        }
    }

    fn values(chunk: &Chunk) -> Vec<String> {
        let mut values = Vec::new();
        chunk
            .for_each(&mut DecompressBuffer::default(), |record| {
                values.push(String::from_utf8_lossy(record.value.expect("a value")).into_owned());
                ControlFlow::Continue(())
            })
            .expect("readable");
        values
    }

    #[test]
    fn a_chunk_begins_within_a_batch_and_ends_before_one_that_is_cut_off() {
        let mut bytes = [batch(0, -1, &["a", "b", "c"], None), batch(3, -1, &["d"], None)].concat();
        bytes.extend(&batch(4, -1, &["e"], None)[..65]);
        let chunk = chunk(1, bytes, &[]);
        assert_eq!((chunk.next, chunk.leader_epoch), (Offset(4), LeaderEpoch(4)));
        assert_eq!(values(&chunk), ["b", "c", "d"]);
    }

    #[test]
    fn aborted_transactions_are_hidden_until_their_marker() {
        let bytes = [
            batch(0, 7, &["kept"], None),
            batch(1, 7, &[], Some(ControlRecordType::Commit)),
            batch(2, 7, &["aborted"], None),
            batch(3, 8, &["other"], None),
            batch(4, -1, &["plain"], None),
            batch(5, 7, &[], Some(ControlRecordType::Abort)),
            batch(6, 7, &["again"], None),
        ]
        .concat();
        assert_eq!(values(&chunk(0, bytes.clone(), &[(7, 2)])), ["kept", "other", "plain", "again"]);
        assert_eq!(values(&chunk(0, bytes, &[])), ["kept", "aborted", "other", "plain", "again"]);
    }

    #[test]
    fn control_records_are_walked_on_request() {
        let bytes = [
            batch(0, 7, &["a"], None),
            batch(1, 7, &[], Some(ControlRecordType::Commit)),
            batch(2, -1, &["b"], None),
        ]
        .concat();
        let walked = |control| {
            let mut walked = Vec::new();
            let each = |header: &BatchHeader, record: &Record<'_>| {
                walked.push((record.offset.0, header.producer_id.0, header.attributes.is_control()));
                ControlFlow::Continue(())
            };
            chunk(0, bytes.clone(), &[])
                .walk(&mut DecompressBuffer::default(), control, each)
                .expect("readable");
            walked
        };
        assert_eq!(walked(true), [(0, 7, false), (1, 7, true), (2, -1, false)]);
        assert_eq!(walked(false), [(0, 7, false), (2, -1, false)]);
    }

    #[test]
    fn a_broken_batch_is_reported_where_it_is() {
        let mut bytes = batch(9, -1, &["value"], None);
        *bytes.last_mut().expect("not empty") ^= 1;
        let mut broken = chunk(9, bytes, &[]);
        let read =
            |chunk: &Chunk| chunk.for_each(&mut DecompressBuffer::default(), |_| ControlFlow::Continue(()));
        let error = read(&broken).expect_err("the CRC is wrong");
        assert!(error.to_string().starts_with("t-0, from offset 9: "), "{error}");
        broken.check_crcs = false;
        assert!(
            read(&broken).is_err(),
            "the byte is the record's header count, which has no headers behind it"
        );
    }
}
