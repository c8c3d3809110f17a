//! What becomes of one batch in a compaction (Kafka's `RecordFilter` in `Cleaner.cleanInto`).
//!
//! Owns: the rules. Refuses: reading or writing files.

use thalweg_hash::HashMap;
use thalweg_record::{
    Batch, BatchHeader, ControlRecordType, DecompressBuffer, Offset, ProducerEpoch, ProducerId, Record,
    RecordError, emptied, rebuild,
};

use super::offset_map::OffsetMap;
use super::transactions::Transactions;
use crate::scan::BatchFault;
use crate::segment::transactions::AbortedTransaction;

/// The last data record of a producer, or only its epoch when a marker came last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastRecord {
    pub(crate) offset: Option<Offset>,
    pub(crate) epoch: ProducerEpoch,
}

/// What one round of compaction goes by.
pub(super) struct Round<'a> {
    pub(super) map: &'a OffsetMap,
    pub(super) producers: &'a HashMap<ProducerId, LastRecord>,
    /// The end of what this round may compact.
    pub(super) upper_bound: Offset,
    pub(super) now_ms: i64,
    pub(super) delete_retention_ms: i64,
}

/// What becomes of a batch.
pub(super) enum Verdict {
    /// It stays as it is.
    Keep,
    /// It stays as it is, since its records cannot be read.
    KeepUnread,
    /// It stays with fewer records, or with a delete horizon.
    Replace(Vec<u8>),
    /// It goes.
    Drop,
}

/// The verdict, and the transaction that the new transaction index must name.
pub(super) struct Judgement {
    pub(super) verdict: Verdict,
    pub(super) aborted: Option<AbortedTransaction>,
}

/// Reads the kind of a control batch's record.
pub(super) fn control_kind(batch: &Batch<'_>, buffer: &mut DecompressBuffer) -> Option<ControlRecordType> {
    let record = batch.records(buffer).ok()?.next()?.ok()?;
    ControlRecordType::parse_key(record.key?).ok()?
}

/// All records of a batch, or none.
pub(super) fn all_records<'a>(
    batch: &Batch<'a>,
    buffer: &'a mut DecompressBuffer,
) -> Result<Vec<Record<'a>>, RecordError> {
    batch.records(buffer)?.collect()
}

impl Round<'_> {
    /// Judges one batch; batches come in the order of the log.
    pub(super) fn judge(
        &self,
        batch: &Batch<'_>,
        transactions: &mut Transactions,
        buffer: &mut DecompressBuffer,
    ) -> Result<Judgement, BatchFault> {
        let header = &batch.header;
        let is_control = header.attributes.is_control();
        let (mut discard, mut aborted, mut is_marker_of_nothing) = (false, None, false);
        if is_control {
            let kind = control_kind(batch, buffer);
            let (transaction_is_gone, entry) = transactions.end(header, kind);
            aborted = entry;
            is_marker_of_nothing = transaction_is_gone;
            discard = transaction_is_gone
                && header.delete_horizon_ms().is_some_and(|horizon| horizon <= self.now_ms);
        } else if transactions.is_aborted(header) {
            discard = true;
        }
        let holds_its_place = self.is_last_of_producer(header) || header.next_offset() == self.upper_bound;
        let verdict = if discard {
            if holds_its_place { Verdict::Replace(emptied(header)) } else { Verdict::Drop }
        } else {
            self.judge_records(batch, is_marker_of_nothing, holds_its_place, buffer)?
        };
        Ok(Judgement { verdict, aborted })
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
        buffer: &mut DecompressBuffer,
    ) -> Result<Verdict, BatchFault> {
        let header = &batch.header;
        let mut kept: Vec<Record<'_>> = Vec::new();
        let mut all_kept = true;
        let mut has_tombstones = false;
        let Ok(records) = all_records(batch, buffer) else { return Ok(Verdict::KeepUnread) };
        for record in records {
            if header.attributes.is_control() || self.keeps(header, &record) {
                has_tombstones |= record.value.is_none();
                kept.push(record);
            } else {
                all_kept = false;
            }
        }
        if kept.is_empty() {
            let is_empty_already = header.record_count == 0;
            return Ok(match (holds_its_place, is_empty_already) {
                (true, true) => Verdict::Keep,
                (true, false) => Verdict::Replace(emptied(header)),
                (false, _) => Verdict::Drop,
            });
        }
        let begins_to_expire =
            (has_tombstones || is_marker_of_nothing) && header.delete_horizon_ms().is_none();
        if all_kept && !begins_to_expire {
            return Ok(Verdict::Keep);
        }
        let horizon_ms = if begins_to_expire {
            Some(self.now_ms.saturating_add(self.delete_retention_ms))
        } else {
            header.delete_horizon_ms()
        };
        Ok(Verdict::Replace(rebuild(header, &kept, horizon_ms)?))
    }

    fn keeps(&self, header: &BatchHeader, record: &Record<'_>) -> bool {
        if record.offset > self.map.latest() {
            return true;
        }
        // A record without a key cannot be asked for by its key; the broker refuses them in compacted topics.
        let Some(key) = record.key else { return false };
        let is_last = !self.map.supersedes(key, record.offset);
        let has_expired = header.delete_horizon_ms().is_some_and(|horizon| horizon <= self.now_ms);
        is_last && (record.value.is_some() || !has_expired)
    }
}
