//! A shard's writes, and their batches.

use super::follow_up::FollowUp;
use crate::answer::GroupAnswer;
use crate::classic::Completion;
use crate::kind::Group;
use crate::offsets::TransactionOutcome;
use crate::record::CoordinatorRecord;
use bytes::Bytes;
use thalweg_log::VerificationGuard;
use thalweg_record::{BatchBuilder, BatchOptions, Compression, ProducerEpoch, ProducerId};
use thalweg_replica::partition::{EndMarker, marker_batch};
use thalweg_shard::{BATCH_BYTES, Moment, Ticket, TransactionalAppendOptions, WriteError};

/// The producer of a transactional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionalProducer {
    /// Producer id of the transaction.
    pub id: ProducerId,
    /// Producer epoch of the transaction.
    pub epoch: ProducerEpoch,
    /// Proof of verification by the transaction's coordinator; `None` if verification is off.
    pub guard: Option<VerificationGuard>,
}

/// The end of a transaction, as ordered by its coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndOfTransaction {
    /// Commit or abort.
    pub outcome: TransactionOutcome,
    /// Epoch of the transaction coordinator.
    pub coordinator_epoch: i32,
    /// The level of transaction.version of the transaction.
    pub transaction_version: i16,
}

/// Records to append as one batch.
#[derive(Debug)]
pub struct Write {
    /// At least one record unless there is a marker.
    pub records: Vec<CoordinatorRecord>,
    /// The producer in whose transaction the records are written.
    pub producer: Option<TransactionalProducer>,
    /// Written instead of records: the marker that ends the producer's transaction.
    pub marker: Option<EndOfTransaction>,
    pub(super) answers: Vec<(Ticket, GroupAnswer)>,
    pub(super) completion: Option<Completion>,
    /// The group without members, of another type, that the new group replaces.
    pub(super) replaced: Option<Group>,
    /// Work to do as soon as the records are in the log.
    pub(super) after: Option<FollowUp>,
    /// True if the state follows the records (see `thalweg_shard::Shard`); false for the membership of groups
    /// of the classic protocol.
    pub(super) is_applied: bool,
    /// True if each record is independent, so that a write beyond the limit may be divided.
    pub(super) is_divisible: bool,
}

impl Write {
    /// Takes out the first half of the records, if the records are independent.
    pub(super) fn take_first_half(&mut self) -> Option<Write> {
        if !self.is_divisible || self.records.len() < 2 {
            return None;
        }
        let rest = self.records.split_off(self.records.len() / 2);
        Some(Write {
            records: std::mem::replace(&mut self.records, rest),
            producer: self.producer,
            marker: None,
            answers: Vec::new(),
            completion: None,
            replaced: None,
            after: None,
            is_applied: self.is_applied,
            is_divisible: true,
        })
    }

    /// True if the other members' records alone are also larger than a batch. In that case the member's
    /// records are removed from the write.
    pub(super) fn is_too_large_without(
        &mut self,
        member: &str,
        batch_bytes_max: usize,
        compression: Compression,
        now: Moment,
    ) -> bool {
        self.records.retain(|record| match record {
            CoordinatorRecord::Consumer(record) => record.member() != Some(member),
            _ => true,
        });
        self.batch(compression, now).map_or(true, |(batch, _)| batch.len() > batch_bytes_max)
    }

    /// The batch, and the checks that the partition applies to it.
    pub(super) fn batch(
        &self,
        compression: Compression,
        now: Moment,
    ) -> Result<(Bytes, TransactionalAppendOptions), WriteError> {
        let mut options = BatchOptions { compression, ..BatchOptions::default() };
        let mut append_as = TransactionalAppendOptions::default();
        if let Some(producer) = self.producer {
            let (producer_id, producer_epoch) = (producer.id, producer.epoch);
            // Like Kafka's coordinators, every batch has sequence 0; their sequences are not compared.
            let base_sequence = 0;
            options =
                BatchOptions { producer_id, producer_epoch, base_sequence, transactional: true, ..options };
            append_as.guard = producer.guard;
        }
        if let (Some(marker), Some(producer)) = (self.marker, self.producer) {
            append_as.transaction_version = marker.transaction_version;
            let end = EndMarker {
                aborts: marker.outcome == TransactionOutcome::Abort,
                coordinator_epoch: marker.coordinator_epoch,
                timestamp: now.wall_ms,
            };
            return Ok((marker_batch(producer.id, producer.epoch, end), append_as));
        }
        let mut builder = BatchBuilder::with_capacity(options, BATCH_BYTES);
        for record in &self.records {
            let (key, value) = record.encode().map_err(|_| WriteError::Unencodable)?;
            builder
                .append(now.wall_ms, Some(&key), value.as_deref(), &[])
                .map_err(|_| WriteError::TooLarge)?;
        }
        Ok((builder.build(), append_as))
    }
}
