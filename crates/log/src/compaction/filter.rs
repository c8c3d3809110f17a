//! Decides what compaction does with one batch (Kafka's `RecordFilter` in `Cleaner.cleanInto`).
//!
//! Owns: the rules. Refuses: reading or writing files.

use thalweg_hash::HashMap;
use thalweg_record::{
    Batch, BatchHeader, ControlRecordType, DecompressBuffer, Offset, ProducerEpoch, ProducerId, Record,
    RecordError, RecordIter, emptied, rebuild,
};

use super::offset_map::OffsetMap;
use super::transactions::Transactions;
use crate::scan::BatchFault;
use crate::segment::transactions::AbortedTransaction;

/// Maximum buffer memory kept after a large batch.
const KEPT_BUFFER_BYTES: usize = 1024 * 1024;

/// The last data record of a producer; only its epoch if a marker was last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastRecord {
    pub(crate) offset: Option<Offset>,
    pub(crate) epoch: ProducerEpoch,
}

/// The parameters of one round of compaction.
pub(super) struct Round<'a> {
    pub(super) map: &'a OffsetMap,
    pub(super) producers: &'a HashMap<ProducerId, LastRecord>,
    /// The end of the range that this round may compact.
    pub(super) upper_bound: Offset,
    pub(super) now_ms: i64,
    pub(super) delete_retention_ms: i64,
}

/// State of earlier batches that affects later ones.
#[derive(Debug, Default)]
pub(super) struct EarlierBatches {
    pub(super) transactions: Transactions,
    /// True if a batch with unreadable records was kept. Such a batch may contain any key, so a later
    /// tombstone may be needed to keep a key deleted.
    pub(super) has_unread: bool,
}

/// Memory reused from batch to batch.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    buffer: DecompressBuffer,
    /// True for each kept record of a batch.
    kept: Vec<bool>,
}

impl Scratch {
    /// Releases memory that only a large batch needed.
    pub(super) fn shrink(&mut self) {
        if self.buffer.capacity() > KEPT_BUFFER_BYTES {
            self.buffer.shrink_to(KEPT_BUFFER_BYTES);
        }
        self.kept.clear();
        self.kept.shrink_to(KEPT_BUFFER_BYTES);
    }

    /// Reads the kind of a control batch's record.
    pub(super) fn control_kind(&mut self, batch: &Batch<'_>) -> Option<ControlRecordType> {
        let record = batch.records(&mut self.buffer).ok()?.next()?.ok()?;
        ControlRecordType::parse_key(record.key?).ok()?
    }

    /// The records of a batch, if all are readable.
    pub(super) fn whole_records<'a>(
        &'a mut self,
        batch: &Batch<'a>,
    ) -> Result<RecordIter<'a>, UnreadableReason> {
        let records = batch.records(&mut self.buffer)?;
        records.clone().try_for_each(|record| within(&batch.header, record).map(drop))?;
        Ok(records)
    }
}

/// Why the records of a batch are ignored, although its CRC is valid.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnreadableReason {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("a record has offset {0}, which is outside its batch")]
    Outside(Offset),
}

/// The record, if it is readable and its offset is within its batch; another offset might supersede later
/// records.
fn within<'a>(
    header: &BatchHeader,
    record: Result<Record<'a>, RecordError>,
) -> Result<Record<'a>, UnreadableReason> {
    let record = record?;
    let is_within = (header.base_offset..=header.last_offset()).contains(&record.offset);
    if is_within { Ok(record) } else { Err(UnreadableReason::Outside(record.offset)) }
}

/// The decision on a batch.
pub(super) enum BatchRetention {
    /// The batch is kept unchanged.
    Keep,
    /// The batch is kept unchanged, because its records are unreadable.
    KeepUnread(UnreadableReason),
    /// The batch is kept with fewer records, or with a delete horizon.
    Replace(Vec<u8>),
    /// The batch is removed.
    Drop,
}

/// The retention, and the transaction needed in the new transaction index.
pub(super) struct BatchRetentionResult {
    pub(super) retention: BatchRetention,
    pub(super) aborted: Option<AbortedTransaction>,
}

impl Round<'_> {
    /// Decides on one batch; call it in log order.
    pub(super) fn judge(
        &self,
        batch: &Batch<'_>,
        passed: &mut EarlierBatches,
        scratch: &mut Scratch,
    ) -> Result<BatchRetentionResult, BatchFault> {
        let header = &batch.header;
        let is_control = header.attributes.is_control();
        let (mut discard, mut aborted, mut is_marker_of_nothing) = (false, None, false);
        if is_control {
            let kind = scratch.control_kind(batch);
            let (transaction_is_gone, entry) = passed.transactions.end(header, kind);
            aborted = entry;
            is_marker_of_nothing = transaction_is_gone;
            discard = transaction_is_gone && self.has_expired(header, passed);
        } else if passed.transactions.is_aborted(header) {
            discard = true;
        }
        let holds_its_place = self.is_last_of_producer(header) || header.next_offset() == self.upper_bound;
        let retention = if discard {
            if holds_its_place { BatchRetention::Replace(emptied(header)) } else { BatchRetention::Drop }
        } else {
            self.judge_records(batch, is_marker_of_nothing, holds_its_place, passed, scratch)?
        };
        passed.has_unread |= matches!(retention, BatchRetention::KeepUnread(_));
        Ok(BatchRetentionResult { retention, aborted })
    }

    fn is_last_of_producer(&self, header: &BatchHeader) -> bool {
        header.producer_id.is_some()
            && self.producers.get(&header.producer_id).is_some_and(|last| match last.offset {
                Some(offset) => header.last_offset() == offset,
                None => header.attributes.is_control() && header.producer_epoch == last.epoch,
            })
    }

    fn judge_records(
        &self,
        batch: &Batch<'_>,
        is_marker_of_nothing: bool,
        holds_its_place: bool,
        passed: &EarlierBatches,
        scratch: &mut Scratch,
    ) -> Result<BatchRetention, BatchFault> {
        let header = &batch.header;
        let Scratch { buffer, kept } = scratch;
        let records = match batch.records(buffer) {
            Ok(records) => records,
            Err(error) => return Ok(BatchRetention::KeepUnread(error.into())),
        };
        let (mut some_kept, mut all_kept, mut has_tombstones) = (false, true, false);
        kept.clear();
        for record in records.clone() {
            let record = match within(header, record) {
                Ok(record) => record,
                Err(error) => return Ok(BatchRetention::KeepUnread(error)),
            };
            let keeps = header.attributes.is_control() || self.keeps(header, &record, passed);
            some_kept |= keeps;
            all_kept &= keeps;
            has_tombstones |= keeps && record.value.is_none();
            kept.push(keeps);
        }
        if !some_kept {
            let is_empty_already = header.record_count == 0;
            return Ok(match (holds_its_place, is_empty_already) {
                (true, true) => BatchRetention::Keep,
                (true, false) => BatchRetention::Replace(emptied(header)),
                (false, _) => BatchRetention::Drop,
            });
        }
        let begins_to_expire =
            (has_tombstones || is_marker_of_nothing) && header.delete_horizon_ms().is_none();
        if all_kept && !begins_to_expire {
            return Ok(BatchRetention::Keep);
        }
        let horizon_ms = if begins_to_expire {
            Some(self.now_ms.saturating_add(self.delete_retention_ms))
        } else {
            header.delete_horizon_ms()
        };
        let staying = records.zip(&*kept).filter(|(_, keeps)| **keeps);
        let staying = staying.map(|(record, _)| record.expect("the first walk read it"));
        Ok(BatchRetention::Replace(rebuild(header, staying, horizon_ms)?))
    }

    /// True if tombstones and markers of a batch may be removed: the delete horizon has passed, and no
    /// earlier batch is unread.
    fn has_expired(&self, header: &BatchHeader, passed: &EarlierBatches) -> bool {
        !passed.has_unread && header.delete_horizon_ms().is_some_and(|horizon| horizon <= self.now_ms)
    }

    fn keeps(&self, header: &BatchHeader, record: &Record<'_>, passed: &EarlierBatches) -> bool {
        if record.offset > self.map.latest() {
            return true;
        }
        // A record without a key cannot be superseded; the broker refuses such records in compacted topics.
        let Some(key) = record.key else { return false };
        let is_last = !self.map.supersedes(key, record.offset);
        is_last && (record.value.is_some() || !self.has_expired(header, passed))
    }
}
