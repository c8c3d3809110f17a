//! Appending to a partition that is led here.

use super::intake::{self, DecompressionBudget, ValidatedBatch};
use super::{LeaderAppendError, Partition, State};
use crate::context::ReplicaContext;
use bytes::Bytes;
use thalweg_log::{AppendInfo, AppendOptions, AppendOrigin, EndMarker, VerificationGuard};
use thalweg_record::{
    BatchBuilder, BatchOptions, ControlRecordType, LeaderEpoch, Offset, ProducerEpoch, ProducerId,
};

/// Upper bound of the size of a marker's batch.
const MARKER_BYTES: usize = 128;

/// Options of an append for batches of transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionalAppendOptions {
    /// Proof of verification by the transaction's coordinator; `None` if verification is off.
    pub guard: Option<VerificationGuard>,
    /// For a marker: the level of transaction.version of the transaction that it ends.
    pub transaction_version: i16,
}

/// The outcome of an append.
#[derive(Clone, Copy, Debug)]
pub struct AppendOutcome {
    /// The offset of the first record.
    pub base_offset: Offset,
    /// The offset behind the last record.
    pub next_offset: Offset,
    /// The broker's time if the topic uses LogAppendTime, else -1.
    pub log_append_time_ms: i64,
    /// The log start.
    pub log_start_offset: Offset,
    /// The leader epoch of the append.
    pub leader_epoch: LeaderEpoch,
    /// True if all counting replicas have the records already.
    pub is_replicated: bool,
    /// True if the flush policy requires a sync before the records are acknowledged.
    pub flush_due: bool,
}

impl Partition {
    /// Appends a producer's batch. The batch's offsets are fixed when this function returns.
    ///
    /// A transactional batch has the guard of its verification, or none if transactions are not verified.
    /// Returns `None`, without any effect, if validating the batch exceeds the budget.
    pub fn append_from_client(
        &self,
        records: &Bytes,
        acks: i16,
        guard: Option<VerificationGuard>,
        now_ms: i64,
        budget: &mut DecompressionBudget,
    ) -> Result<Option<AppendOutcome>, LeaderAppendError> {
        let appended = self.take_from_client(records, acks, guard, now_ms, budget);
        if appended.is_err() {
            let mut state = self.state.lock();
            state.traffic.produce_requests += 1;
            state.traffic.failed_produce_requests += 1;
        }
        appended
    }

    fn take_from_client(
        &self,
        records: &Bytes,
        acks: i16,
        guard: Option<VerificationGuard>,
        now_ms: i64,
        budget: &mut DecompressionBudget,
    ) -> Result<Option<AppendOutcome>, LeaderAppendError> {
        let settings = self.leader_settings.read().clone();
        let settings = settings.ok_or_else(|| self.state.lock().not_led())?;
        let taken = intake::take(records, &settings, now_ms, budget)?;
        let records = match &taken {
            None => return Ok(None),
            Some(ValidatedBatch::Unchanged) => records,
            Some(ValidatedBatch::Rewritten(rewritten)) => rewritten,
        };
        self.append(records, acks, None, AppendOptions { guard, ..AppendOptions::default() }).map(Some)
    }

    /// Appends the non-transactional batches of several requests of one client, in order. Returns `None`,
    /// without any effect, if the batches must be appended one by one, so that an error or a costly
    /// validation affects only its own request.
    pub fn append_together_from_client(
        &self,
        requests: &[Bytes],
        acks: i16,
        now_ms: i64,
    ) -> Option<Vec<AppendOutcome>> {
        let settings = self.leader_settings.read().clone()?;
        let mut taken = Vec::with_capacity(requests.len());
        let mut budget = DecompressionBudget::inline();
        for records in requests {
            match intake::take(records, &settings, now_ms, &mut budget).ok()?? {
                ValidatedBatch::Unchanged => taken.push(records.clone()),
                ValidatedBatch::Rewritten(rewritten) => taken.push(rewritten),
            }
        }
        let mut state = self.state.lock();
        state.check_appends(None).ok()?;
        if acks == -1 && !state.has_min_isr() {
            return None;
        }
        let leader_epoch = state.leader_epoch();
        let records: Vec<&[u8]> = taken.iter().map(|records| &records[..]).collect();
        let infos = state.log.append_together(&records, leader_epoch)?;
        infos.iter().for_each(|info| state.traffic.count_append(info));
        state.after_append(&self.context, infos.iter().map(|info| info.appended_bytes).sum());
        let high_watermark = state.high_watermark();
        drop(state);
        let outcome = |info: &AppendInfo| appended(info, leader_epoch, high_watermark > info.last_offset);
        Some(infos.iter().map(outcome).collect())
    }

    /// Starts verification before the first batch of a transaction. Returns the guard for the append once the
    /// coordinator has confirmed the partition; [`VerificationGuard::NONE`] if the transaction is already
    /// known to this partition.
    pub fn start_verification(
        &self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        sequence: i32,
        supports_epoch_bump: bool,
    ) -> Result<VerificationGuard, LeaderAppendError> {
        let mut state = self.state.lock();
        state.check_leader(None)?;
        let started = state.log.start_verification(producer_id, sequence, epoch, supports_epoch_bump);
        started.map_err(|error| LeaderAppendError::Log(error.into()))
    }

    /// Appends the marker that ends a producer's transaction, as acks=all.
    pub fn append_marker(
        &self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        end: EndMarker,
        transaction_version: i16,
    ) -> Result<AppendOutcome, LeaderAppendError> {
        let options =
            AppendOptions { origin: AppendOrigin::Coordinator, transaction_version, ..Default::default() };
        self.append(&marker_batch(producer_id, epoch, end), -1, None, options)
    }

    /// Appends a batch of one of this broker's coordinators, as acks=all, in the coordinator's leader epoch.
    pub fn append_from_coordinator(
        &self,
        batch: &[u8],
        epoch: LeaderEpoch,
        options: TransactionalAppendOptions,
    ) -> Result<AppendOutcome, LeaderAppendError> {
        let TransactionalAppendOptions { guard, transaction_version } = options;
        let options = AppendOptions { origin: AppendOrigin::Coordinator, guard, transaction_version };
        let max = self.batch_bytes_max();
        if batch.len() > max {
            return Err(LeaderAppendError::TooLarge { size: batch.len(), max });
        }
        self.append(batch, -1, Some(epoch), options)
    }

    /// Maximum size of a batch in bytes, `max.message.bytes`.
    pub fn batch_bytes_max(&self) -> usize {
        self.state.lock().settings.max_message_bytes as usize
    }

    fn append(
        &self,
        records: &[u8],
        acks: i16,
        current_epoch: Option<LeaderEpoch>,
        options: AppendOptions,
    ) -> Result<AppendOutcome, LeaderAppendError> {
        let mut state = self.state.lock();
        state.check_appends(current_epoch)?;
        if acks == -1 && !state.has_min_isr() {
            return Err(LeaderAppendError::TooFewReplicas);
        }
        let leader_epoch = state.leader_epoch();
        let info = state.log.append_as_leader(records, leader_epoch, options)?;
        state.traffic.count_append(&info);
        state.after_append(&self.context, info.appended_bytes);
        let is_replicated = state.high_watermark() > info.last_offset;
        drop(state);
        Ok(appended(&info, leader_epoch, is_replicated))
    }
}

impl State {
    /// Counts the append, notifies the readers of the log end, and raises the high watermark if no other
    /// replica is in sync.
    fn after_append(&mut self, context: &ReplicaContext, appended_bytes: u64) {
        let State { replicas, woken, .. } = self;
        replicas.count(usize::try_from(appended_bytes).unwrap_or(usize::MAX), woken);
        let leader = self.leader_mut().expect("only a leader comes here, and the lock was held since");
        leader.unreplicated_bytes += appended_bytes;
        if leader.replicates_alone() {
            self.raise_high_watermark(context);
        }
    }
}

/// The control batch that ends a producer's transaction (Kafka's `EndTransactionMarker`).
pub fn marker_batch(producer_id: ProducerId, producer_epoch: ProducerEpoch, end: EndMarker) -> Bytes {
    let kind = if end.aborts { ControlRecordType::Abort } else { ControlRecordType::Commit };
    let options = BatchOptions {
        producer_id,
        producer_epoch,
        transactional: true,
        control: true,
        ..BatchOptions::default()
    };
    let mut builder = BatchBuilder::with_capacity(options, MARKER_BYTES);
    // Version 0, then EndTxnMarker.
    let mut value = [0; 6];
    value[2..].copy_from_slice(&end.coordinator_epoch.to_be_bytes());
    builder.append_control(end.timestamp, kind, &value).expect("a marker fits into a batch");
    builder.build()
}

fn appended(info: &AppendInfo, leader_epoch: LeaderEpoch, is_replicated: bool) -> AppendOutcome {
    AppendOutcome {
        base_offset: info.first_offset,
        next_offset: info.last_offset + 1,
        log_append_time_ms: info.log_append_time,
        log_start_offset: info.log_start_offset,
        leader_epoch,
        is_replicated,
        flush_due: info.flush_due,
    }
}
