//! A batch: the records, written straight into the bytes that will be sent, and the report of their outcome.

use thalweg_record::{
    BUILT_BATCH_BYTES_MAX, Batch as ReadBatch, BatchBuilder, BatchOptions, DecompressBuffer, Header,
    ProducerEpoch, ProducerId,
};
use tokio::time::Instant;

use super::{ProducerConfig, TopicRef};

/// Maximum size of a batch before compression, in multiples of `batch.size`: bounds its memory if records
/// compress well.
const UNCOMPRESSED_FACTOR: usize = 8;

/// A record to send.
#[derive(Clone, Copy, Debug)]
pub struct ProducerRecord<'a> {
    /// The topic, from [`Producer::topic`](super::Producer::topic).
    pub topic: TopicRef,
    /// The partition; `None` to let the key decide, or without a key the producer.
    pub partition: Option<i32>,
    /// The timestamp, in milliseconds since 1970.
    pub timestamp: i64,
    /// The key; `None` for null.
    pub key: Option<&'a [u8]>,
    /// The value; `None` for null.
    pub value: Option<&'a [u8]>,
    /// The headers, in order.
    pub headers: &'a [Header<'a>],
    /// Actual or intended time of the record's addition, the start of its latency. Linger time and delivery
    /// timeout start when the batch was opened.
    pub sent_at: Instant,
    /// The caller's number of the record, returned in [`SentRun`]. Consecutive numbers cost nothing.
    pub number: u64,
}

/// Records with the same `sent_at` and consecutive numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentRun {
    /// The common `sent_at`.
    pub at: Instant,
    /// The number of the first record.
    pub number: u64,
    /// Number of records.
    pub records: u32,
}

/// A batch that waits or is in flight. Batches and their buffers are reused.
#[derive(Debug)]
pub(crate) struct Batch {
    builder: BatchBuilder,
    /// The batch's rank within its partition: its number in the order of opening, and for a part of a split
    /// batch the number of records before it.
    pub(super) rank: (u64, usize),
    /// Time of the batch's creation.
    pub(super) created: Instant,
    /// Number of times that the batch was sent.
    pub(super) attempts: u32,
    /// The sequence of the first record, once assigned.
    pub(super) sequence: Option<i32>,
    /// The batch's share of `buffer.memory`, in bytes.
    pub(super) charged: usize,
    /// Total bytes of the values.
    pub(super) value_bytes: u64,
    /// True if the batch accepts no more records.
    pub(super) sealed: bool,
    /// True if header and CRC are written.
    finished: bool,
    pub(super) sent: Vec<SentRun>,
}

impl Batch {
    pub(super) fn new(config: &ProducerConfig, now: Instant) -> Box<Batch> {
        let options = BatchOptions {
            compression: config.compression,
            compression_level: config.compression_level,
            transactional: config.transactional_id.is_some(),
            ..BatchOptions::default()
        };
        Box::new(Batch {
            builder: BatchBuilder::with_capacity(options, config.batch_bytes),
            rank: (0, 0),
            created: now,
            attempts: 0,
            sequence: None,
            charged: 0,
            value_bytes: 0,
            sealed: false,
            finished: false,
            sent: Vec::new(),
        })
    }

    /// Empties a used batch for reuse.
    pub(super) fn reset(&mut self, now: Instant) {
        self.builder.reset();
        self.created = now;
        self.attempts = 0;
        self.sequence = None;
        self.value_bytes = 0;
        self.sealed = false;
        self.finished = false;
        self.sent.clear();
    }

    /// True if the record fits. The first record always fits.
    #[inline]
    pub(super) fn has_room(&self, record: &ProducerRecord<'_>, config: &ProducerConfig) -> bool {
        let batch_bytes = config.batch_bytes;
        let bytes = self.record_bytes(record);
        self.builder.is_empty()
            || (self.builder.record_count() < config.batch_records_max
                && self.builder.size_estimate() + bytes <= batch_bytes
                && self.builder.uncompressed_bytes() + bytes
                    <= batch_bytes.saturating_mul(UNCOMPRESSED_FACTOR))
    }

    pub(super) fn record_bytes(&self, record: &ProducerRecord<'_>) -> usize {
        self.builder.record_bytes(record.timestamp, record.key, record.value, record.headers)
    }

    #[inline]
    pub(super) fn push(&mut self, record: &ProducerRecord<'_>) {
        self.builder
            .append(record.timestamp, record.key, record.value, record.headers)
            .expect("a record is checked against max.request.size, far below what a batch can hold");
        self.value_bytes += record.value.map_or(0, |value| value.len() as u64);
        match self.sent.last_mut() {
            Some(run)
                if run.at == record.sent_at
                    && run.number.wrapping_add(u64::from(run.records)) == record.number =>
            {
                run.records += 1;
            }
            _ => self.sent.push(SentRun { at: record.sent_at, number: record.number, records: 1 }),
        }
    }

    /// Two batches with the records of this one, for a broker that finds it too large. Both are sealed, were
    /// never sent, and have no sequences. The batch is finished and has several records.
    pub(super) fn halves(&self, config: &ProducerConfig) -> [Box<Batch>; 2] {
        let mut halves = [0, 1].map(|_| Batch::new(config, self.created));
        let half_bytes = self.builder.uncompressed_bytes() / 2;
        let count = self.record_count();
        let mut buffer = DecompressBuffer::new(BUILT_BATCH_BYTES_MAX);
        let whole = ReadBatch::parse(self.bytes()).expect("the batch was built here");
        let records = whole.records(&mut buffer).expect("the batch was built here");
        let sent = self.sent.iter().flat_map(|run| {
            (0..u64::from(run.records)).map(move |place| (run.at, run.number.wrapping_add(place)))
        });
        let mut headers = Vec::new();
        for (place, (record, (sent_at, number))) in (0..).zip(records.zip(sent)) {
            let record = record.expect("the batch was built here");
            headers.clear();
            headers.extend(record.headers);
            let [first, second] = &halves;
            let is_first = first.builder.is_empty()
                || (second.builder.is_empty()
                    && first.builder.uncompressed_bytes() < half_bytes
                    && place + 1 < count);
            halves[usize::from(!is_first)].push(&ProducerRecord {
                topic: TopicRef(0),
                partition: None,
                timestamp: record.timestamp,
                key: record.key,
                value: record.value,
                headers: &headers,
                sent_at,
                number,
            });
        }
        let (number, before) = self.rank;
        let mut behind = before;
        for half in &mut halves {
            half.rank = (number, behind);
            half.charged = half.size_estimate();
            half.sealed = true;
            behind += usize::try_from(half.record_count()).expect("a count is not negative");
        }
        halves
    }

    pub(super) fn record_count(&self) -> i32 {
        self.builder.record_count()
    }

    /// Estimated size of the batch in a request, until it is finished.
    pub(super) fn size_estimate(&self) -> usize {
        if self.finished { self.builder.finished().len() } else { self.builder.size_estimate() }
    }

    /// Sets the batch's identity. A batch finished with another identity is finished again.
    pub(super) fn identify(&mut self, id: ProducerId, epoch: ProducerEpoch, sequence: i32) {
        self.builder.set_producer(id, epoch, sequence);
        self.sequence = Some(sequence);
        self.finished = false;
    }

    /// Compresses the records, writes the header and computes the CRC, once.
    pub(super) fn finish(&mut self) {
        if !self.finished {
            self.builder.finish();
            self.finished = true;
        }
    }

    /// The bytes to send.
    pub(super) fn bytes(&self) -> &[u8] {
        debug_assert!(self.finished, "a batch is finished before it is sent");
        self.builder.finished()
    }
}
