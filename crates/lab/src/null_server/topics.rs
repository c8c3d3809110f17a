//! The topics: the number of records per partition and, if stored, the batches.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use thalweg_record::BatchHeader;
use thalweg_wire::ErrorCode;

use super::{Settings, lock};

const TOPICS_MAX: usize = 10_000;
/// Maximum partitions per topic.
pub(super) const PARTITIONS_MAX: i32 = 10_000;

/// Acknowledged records that are lost, for the evidence to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Every n-th batch, counted over all partitions.
    pub every_nth_batch: u64,
    /// True if end offsets include lost records, so that only reading back can find them; otherwise end
    /// offsets show them.
    pub hidden: bool,
}

/// Counts of received data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of Produce requests.
    pub requests: u64,
    pub batches: u64,
    /// Records acknowledged, including lost ones.
    pub records: u64,
    /// Records acknowledged and dropped.
    pub lost_records: u64,
    /// Bytes of the batches.
    pub bytes: u64,
}

#[derive(Debug)]
pub(super) struct Topics {
    by_name: RwLock<BTreeMap<String, Arc<Topic>>>,
    partitions: i32,
    loss: Option<Loss>,
    keep_bytes_max: u64,
    kept_bytes: AtomicU64,
    requests: AtomicU64,
    batches: AtomicU64,
    records: AtomicU64,
    lost_records: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Topic {
    partitions: Vec<Mutex<Partition>>,
}

#[derive(Debug, Default)]
struct Partition {
    end_offset: i64,
    /// The stored batches, in offset order.
    kept: Vec<KeptBatch>,
}

#[derive(Debug)]
struct KeptBatch {
    next_offset: i64,
    batch: Bytes,
    /// The time of the answer to its producer, before which no consumer gets it; `None` until it is known.
    visible_at: Option<Instant>,
}

/// Batches of a partition.
pub(super) struct FetchedBatches {
    pub(super) end_offset: i64,
    pub(super) records: Bytes,
    /// Without records: when the next batch becomes visible, if there is one.
    pub(super) next_at: Option<Instant>,
}

impl Topics {
    pub(super) fn new(settings: &Settings) -> Topics {
        Topics {
            by_name: RwLock::default(),
            partitions: settings.partitions,
            loss: settings.loss,
            keep_bytes_max: settings.keep_bytes_max,
            kept_bytes: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            records: AtomicU64::new(0),
            lost_records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            requests: of(&self.requests),
            batches: of(&self.batches),
            records: of(&self.records),
            lost_records: of(&self.lost_records),
            bytes: of(&self.bytes),
        }
    }

    /// All topics with their number of partitions.
    pub(super) fn list(&self) -> Vec<(String, i32)> {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        by_name.iter().map(|(name, topic)| (name.clone(), topic.partition_count())).collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<Topic>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Creates a topic; -1 partitions means the default.
    pub(super) fn create(&self, name: &str, partitions: i32) -> Result<Arc<Topic>, ErrorCode> {
        let count = if partitions == -1 { self.partitions } else { partitions };
        if !(1..=PARTITIONS_MAX).contains(&count) {
            return Err(ErrorCode::InvalidPartitions);
        }
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        if by_name.contains_key(name) {
            return Err(ErrorCode::TopicAlreadyExists);
        }
        if by_name.len() >= TOPICS_MAX {
            return Err(ErrorCode::PolicyViolation);
        }
        let topic = Arc::new(Topic { partitions: (0..count).map(|_| Mutex::default()).collect() });
        by_name.insert(name.to_owned(), Arc::clone(&topic));
        Ok(topic)
    }

    pub(super) fn delete(&self, name: &str) -> Result<(), ErrorCode> {
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        by_name.remove(name).map(drop).ok_or(ErrorCode::UnknownTopicOrPartition)
    }

    pub(super) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Accepts the batches of a partition. Returns the offset of the first record, and their number.
    pub(super) fn append(&self, topic: &Topic, index: i32, batches: &Bytes) -> Result<(i64, u64), ErrorCode> {
        let partition = topic.partition(index)?;
        let headers = headers(batches)?;
        let mut partition = lock(partition);
        let (base_offset, mut records) = (partition.end_offset, 0);
        for (start, header) in headers {
            let count = u64::from(header.record_count.unsigned_abs());
            records += count;
            let number = self.batches.fetch_add(1, Ordering::Relaxed) + 1;
            self.records.fetch_add(count, Ordering::Relaxed);
            let lost = self.loss.filter(|loss| number.is_multiple_of(loss.every_nth_batch));
            if let Some(loss) = lost {
                self.lost_records.fetch_add(count, Ordering::Relaxed);
                if loss.hidden {
                    partition.end_offset += i64::from(header.record_count);
                }
                continue;
            }
            let batch = batches.slice(start..start + header.size_bytes());
            if self.keep_bytes_max > 0 {
                self.keep(&mut partition, &batch)?;
            }
            partition.end_offset += i64::from(header.record_count);
        }
        self.bytes.fetch_add(batches.len() as u64, Ordering::Relaxed);
        Ok((base_offset, records))
    }

    /// Copies a batch, because the frame's memory is reused, and sets its offset, which the CRC excludes.
    fn keep(&self, partition: &mut Partition, batch: &Bytes) -> Result<(), ErrorCode> {
        let length = batch.len() as u64;
        if self.kept_bytes.fetch_add(length, Ordering::Relaxed) + length > self.keep_bytes_max {
            self.kept_bytes.fetch_sub(length, Ordering::Relaxed);
            return Err(ErrorCode::KafkaStorageError);
        }
        let base_offset = partition.end_offset;
        let mut copy = BytesMut::from(&batch[..]);
        copy[..8].copy_from_slice(&base_offset.to_be_bytes());
        let header = BatchHeader::parse(&copy).map_err(|_| ErrorCode::CorruptMessage)?;
        let next_offset = header.next_offset().0;
        partition.kept.push(KeptBatch { next_offset, batch: copy.freeze(), visible_at: None });
        Ok(())
    }
}

impl Topic {
    pub(super) fn partition_count(&self) -> i32 {
        i32::try_from(self.partitions.len()).expect("bounded when the topic was made")
    }

    fn partition(&self, index: i32) -> Result<&Mutex<Partition>, ErrorCode> {
        let at = usize::try_from(index).ok();
        at.and_then(|at| self.partitions.get(at)).ok_or(ErrorCode::UnknownTopicOrPartition)
    }

    /// The end offset.
    pub(super) fn end_offset(&self, index: i32) -> Result<i64, ErrorCode> {
        Ok(lock(self.partition(index)?).end_offset)
    }

    /// Total bytes of the stored batches.
    pub(super) fn kept_bytes(&self, index: i32) -> u64 {
        let partition = self.partition(index).map(lock);
        partition.map_or(0, |partition| partition.kept.iter().map(|kept| kept.batch.len() as u64).sum())
    }

    /// Makes the appended batches with these offsets visible to consumers, at the time of the answer to their
    /// producer.
    pub(super) fn show(&self, index: i32, offsets: Range<i64>, at: Instant) {
        let Ok(mut partition) = self.partition(index).map(lock) else { return };
        let first = partition.kept.partition_point(|kept| kept.next_offset <= offsets.start);
        for kept in partition.kept[first..].iter_mut().take_while(|kept| kept.next_offset <= offsets.end) {
            kept.visible_at.get_or_insert(at);
        }
    }

    /// The batches that are visible at `at`, from the one that contains `offset`, or the first after it, up
    /// to `bytes_max`; at least one, if any is visible.
    pub(super) fn fetch(
        &self,
        index: i32,
        offset: i64,
        bytes_max: usize,
        at: Instant,
    ) -> Result<FetchedBatches, ErrorCode> {
        let partition = lock(self.partition(index)?);
        let end_offset = partition.end_offset;
        if offset < 0 || offset > end_offset {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        let first = partition.kept.partition_point(|kept| kept.next_offset <= offset);
        let mut records = BytesMut::new();
        for kept in &partition.kept[first..] {
            let is_visible = kept.visible_at.is_some_and(|visible_at| visible_at <= at);
            if !is_visible || (!records.is_empty() && records.len() + kept.batch.len() > bytes_max) {
                break;
            }
            records.extend_from_slice(&kept.batch);
        }
        let next = partition.kept.get(first).filter(|_| records.is_empty());
        let next_at = next.and_then(|kept| kept.visible_at);
        Ok(FetchedBatches { end_offset, records: records.freeze(), next_at })
    }
}

/// The start and header of each batch. Lengths are checked against the available bytes.
fn headers(batches: &Bytes) -> Result<Vec<(usize, BatchHeader)>, ErrorCode> {
    let (mut headers, mut at) = (Vec::with_capacity(1), 0);
    while at < batches.len() {
        let header = BatchHeader::parse(&batches[at..]).map_err(|_| ErrorCode::CorruptMessage)?;
        let size = header.size_bytes();
        if size > batches.len() - at || header.record_count < 1 {
            return Err(ErrorCode::CorruptMessage);
        }
        headers.push((at, header));
        at += size;
    }
    Ok(headers)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "only differences of instants matter here")]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_consumer_gets_a_batch_once_its_producer_has_the_answer() {
        let topic = Topic { partitions: vec![Mutex::default()] };
        let batch = |next_offset| KeptBatch { next_offset, batch: Bytes::from("batch"), visible_at: None };
        topic.partitions[0].lock().expect("no panic").kept.extend([batch(3), batch(5)]);
        topic.partitions[0].lock().expect("no panic").end_offset = 5;
        let now = Instant::now();
        let after = |ms| now + Duration::from_millis(ms);
        let fetch = |offset, at| {
            let fetched = topic.fetch(0, offset, 1000, at).expect("a partition");
            (fetched.records.len(), fetched.next_at)
        };
        assert_eq!(fetch(0, after(900)), (0, None), "no answer is due yet");
        topic.show(0, 0..3, after(50));
        topic.show(0, 3..5, after(80));
        assert_eq!(fetch(0, now), (0, Some(after(50))));
        assert_eq!(fetch(0, after(50)), (5, None));
        assert_eq!(fetch(3, after(50)), (0, Some(after(80))));
        assert_eq!(fetch(0, after(80)), (10, None));
        assert_eq!(fetch(5, after(80)), (0, None), "the end");
    }
}
