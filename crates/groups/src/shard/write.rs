//! A shard's writes, and their batches.

use super::super::answer::Answer;
use super::super::client::TopicFilter;
use super::super::consumer::Downgrade;
use super::super::deadlines::Change;
use super::super::effects::Completion;
use super::super::kind::Group;
use super::super::offsets::TransactionOutcome;
use super::super::record::CoordinatorRecord;
use bytes::Bytes;
use std::sync::Arc;
use thalweg_log::VerificationGuard;
use thalweg_record::{BatchBuilder, BatchOptions, Compression, ProducerEpoch, ProducerId};
use thalweg_replica::partition::{EndMarker, marker_batch};
use thalweg_shard::{AppendAs, BATCH_BYTES, Moment, Ticket, WriteError};

/// The producer of a transactional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionalProducer {
    /// The producer.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Proof of verification by the transaction's coordinator; `None` if verification is off.
    pub guard: Option<VerificationGuard>,
}

/// A transaction ends, by the word of its coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndOfTransaction {
    /// How.
    pub outcome: TransactionOutcome,
    /// The epoch of the transaction's coordinator.
    pub coordinator_epoch: i32,
    /// The level of transaction.version by which the transaction was made.
    pub transaction_version: i16,
}

/// What follows when records of a consumer group are in the log.
#[derive(Debug)]
pub(super) enum After {
    /// Deadlines of members change.
    Changes(Arc<str>, Vec<(Arc<str>, Change)>),
    /// The same after a heartbeat, by whose permissions the group's regular expressions are looked up if it is time.
    Beat(Arc<str>, Vec<(Arc<str>, Change)>, TopicFilter),
    /// The same after a heartbeat of this member, which makes a consumer group of a classic one.
    Upgrade(Arc<str>, Vec<(Arc<str>, Change)>, TopicFilter, String),
    /// Deadlines of members change, and a new streams group waits for more members.
    Delay(Arc<str>, Vec<(Arc<str>, Change)>, i32),
    /// The session of a share group's member begins again.
    ShareSession(Arc<str>, Arc<str>),
    /// The group is a classic one.
    Downgrade(Arc<str>, Downgrade),
}

/// Records to be appended as one batch.
#[derive(Debug)]
pub struct Write {
    /// The records, at least one unless there is a marker.
    pub records: Vec<CoordinatorRecord>,
    /// The producer on whose transaction's behalf they are written.
    pub producer: Option<TransactionalProducer>,
    /// In place of records: the marker that ends the producer's transaction.
    pub marker: Option<EndOfTransaction>,
    pub(super) answers: Vec<(Ticket, Answer)>,
    pub(super) completion: Option<Completion>,
    /// The group without members, of another kind, that a new group takes the place of.
    pub(super) replaced: Option<Group>,
    /// What follows at once when the records are in the log.
    pub(super) after: Option<After>,
    /// Whether the state follows from the records once they are written. Records of a group's membership describe
    /// a state that it has already.
    pub(super) is_applied: bool,
    /// Whether each record counts without the others, and a write that is too large is divided.
    pub(super) is_divisible: bool,
}

impl Write {
    /// The same records in two writes.
    pub(super) fn halves(mut self) -> [Write; 2] {
        let rest = self.records.split_off(self.records.len() / 2);
        let first = Write {
            records: std::mem::replace(&mut self.records, rest),
            producer: self.producer,
            marker: None,
            answers: Vec::new(),
            completion: None,
            replaced: None,
            after: None,
            is_applied: self.is_applied,
            is_divisible: true,
        };
        [first, self]
    }

    /// Whether the records that are not of this member alone are larger than a batch, too. Those of the member are gone then.
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

    /// The batch, and how the partition is to judge it.
    pub(super) fn batch(
        &self,
        compression: Compression,
        now: Moment,
    ) -> Result<(Bytes, AppendAs), WriteError> {
        let mut options = BatchOptions { compression, ..BatchOptions::default() };
        let mut append_as = AppendAs::default();
        if let Some(producer) = self.producer {
            let (producer_id, producer_epoch) = (producer.id, producer.epoch);
            // As Kafka's coordinators, each batch of which is the first: their sequences are not compared.
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
