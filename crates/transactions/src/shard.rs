//! All transactional ids of one partition of `__transaction_state`: a state machine without clock, I/O or
//! waiting.
//!
//! The shard is driven in turns (`thalweg_shard::Shard`). Besides writes and answers, a turn produces markers
//! to send ([`TransactionShard::take_orders`]) and ids that wait for a producer id
//! ([`TransactionShard::take_needing_ids`]).
//!
//! An id changes when its record is acknowledged, and has at most one pending change. Loaded records may not
//! be acknowledged yet: each answer waits for the acknowledgement of the record from which the id's state
//! follows. A failing broker therefore loses neither an answer nor a state seen by the next request.

mod admin;
mod context;
mod end;
mod expiry;
mod init;
mod marker_queue;
mod partitions;
mod replay;

pub use admin::{TransactionFigures, TransactionFilter};
pub use context::{SharedState, TransactionsView};
pub use end::EndRequest;
pub use init::InitRequest;
pub use marker_queue::Marker;
pub(super) use marker_queue::{MarkerDelivery, MarkerQueue, PartitionResult, TopicPartitions};

use super::answer::TransactionAnswer;
use super::config::TransactionConfig;
use super::metadata::{EPOCH_PER_TRANSACTION, TransactionMetadata};
use super::record::{encode_key, encode_value};
use super::state::TransactionState;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use thalweg_groups::TransactionOutcome;
use thalweg_hash::HashMap;
use thalweg_metadata::PartitionIndex;
use thalweg_metadata::topic_name::TRANSACTIONS;
use thalweg_record::{BatchBuilder, BatchOptions, DecompressBuffer};
use thalweg_shard::{
    self, Answers, BATCH_BYTES, Basis, Cell, Moment, Piece, ShardLoadError, Ticket,
    TransactionalAppendOptions, UnacknowledgedWrites, WriteError,
};

/// Retry backoff for a completion that could not be written.
const RETRY_MS: i64 = 100;

/// The context of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnContext {
    /// Time of the turn.
    pub now: Moment,
    /// The cluster's level of transaction.version.
    pub transaction_version: i16,
}

/// Records to append as one batch: keys with values, or tombstones that delete ids.
#[derive(Debug)]
pub struct Write {
    /// At least one record.
    pub records: Vec<(Bytes, Option<Bytes>)>,
    change: Change,
    answer: Option<(Ticket, TransactionAnswer)>,
}

impl Write {
    /// Takes out the first half of the deletions. Other writes are not divided.
    fn take_first_half(&mut self) -> Option<Write> {
        let Change::Forget(ids) = &mut self.change else { return None };
        if ids.len() < 2 {
            return None;
        }
        let middle = ids.len() / 2;
        let (rest, rest_of_ids) = (self.records.split_off(middle), ids.split_off(middle));
        let records = std::mem::replace(&mut self.records, rest);
        let change = Change::Forget(std::mem::replace(ids, rest_of_ids));
        Some(Write { records, change, answer: None })
    }
}

/// The effect of an acknowledged write.
#[derive(Debug)]
enum Change {
    /// Moves an id to its next state.
    To { id: Arc<str>, target: Box<TransactionMetadata> },
    /// Deletes expired ids.
    Forget(Vec<Arc<str>>),
}

#[derive(Debug)]
struct Entry {
    current: TransactionMetadata,
    /// The offset of the record from which the state follows; `None` until the id's first record is
    /// acknowledged.
    at: Option<i64>,
    /// The state after the pending change.
    pending: Option<TransactionState>,
    /// `client.id` of the last InitProducerId, for log lines; unknown after a change of the coordinator.
    client_id: Option<Arc<str>>,
}

impl Entry {
    fn new(current: TransactionMetadata, at: Option<i64>) -> Entry {
        Entry { current, at, pending: None, client_id: None }
    }
}

/// Markers that end a transaction, for the leaders of its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkerOrder {
    /// The transactional id.
    pub id: Arc<str>,
    /// Producer id of the transaction.
    pub producer_id: i64,
    /// Producer epoch of the marker.
    pub producer_epoch: i16,
    /// Coordinator epoch, by which partitions refuse a replaced coordinator.
    pub coordinator_epoch: i32,
    /// Commit or abort.
    pub outcome: TransactionOutcome,
    /// The level of transaction.version of the transaction.
    pub transaction_version: i16,
    /// Partitions that get the marker.
    pub partitions: Vec<(Arc<str>, PartitionIndex)>,
}

/// The transactional ids of one partition of `__transaction_state`, driven by `thalweg_shard::Shards`.
#[derive(Debug)]
pub struct TransactionShard {
    config: Arc<TransactionConfig>,
    /// Leader epoch of the partition.
    coordinator_epoch: i32,
    entries: HashMap<Arc<str>, Entry>,
    /// The offset of the last tombstone.
    forgotten_at: i64,
    /// Open transactions by timeout.
    ongoing: BTreeSet<(i64, Arc<str>)>,
    writes: VecDeque<Write>,
    /// Unacknowledged writes, in the order of the log.
    pending: UnacknowledgedWrites<Write>,
    /// The offset of the last loaded record, until it is acknowledged.
    take_up_at: Option<i64>,
    /// Completions that could not be written, with the times of their retries.
    retries: VecDeque<(i64, Arc<str>)>,
    answers: Answers<TransactionAnswer>,
    orders: Vec<MarkerOrder>,
    needing_ids: Vec<Arc<str>>,
    next_timeout_check_ms: i64,
    next_expiry_check_ms: i64,
}

impl thalweg_shard::Shard for TransactionShard {
    const KEEPS: &'static str = "transactional ids";
    const TOPIC: &'static str = TRANSACTIONS;
    // A lost record may be a decision whose markers are partly written, or the epoch that fences a producer.
    // The state before it could abort a transaction that is committed in other partitions.
    const LOSS: Option<&'static str> = None;
    type SharedState = SharedState;
    type TurnContext = TurnContext;
    type Write = Write;
    type Answer = TransactionAnswer;

    fn turn(shared: &SharedState, now: Moment) -> TurnContext {
        TurnContext { now, transaction_version: shared.cluster.transaction_version() }
    }

    fn new(shared: &SharedState, coordinator_epoch: i32, turn: TurnContext) -> TransactionShard {
        TransactionShard::of(Arc::clone(&shared.config), coordinator_epoch, turn.now)
    }

    fn replay(
        &mut self,
        piece: Piece<'_>,
        buffer: &mut DecompressBuffer,
        _: TurnContext,
    ) -> Result<(), ShardLoadError> {
        self.replay_batches(piece.bytes, buffer)
    }

    fn loaded(&mut self, unacknowledged_to: Option<i64>, turn: TurnContext) {
        match unacknowledged_to {
            // The decision may be unknown to the next coordinator, so it must not reach the partitions yet.
            Some(at) => self.take_up_at = Some(at),
            None => self.take_up(turn),
        }
    }

    fn count(&self) -> usize {
        self.entries.len()
    }

    fn batch(
        _: &SharedState,
        write: &Write,
        now: Moment,
    ) -> Result<(Bytes, TransactionalAppendOptions), WriteError> {
        let mut builder = BatchBuilder::with_capacity(BatchOptions::default(), BATCH_BYTES);
        for (key, value) in &write.records {
            builder
                .append(now.wall_ms, Some(key), value.as_deref(), &[])
                .map_err(|_| WriteError::TooLarge)?;
        }
        Ok((builder.build(), TransactionalAppendOptions::default()))
    }

    fn next_deadline_ms(&self) -> i64 {
        self.nearest_deadline_ms()
    }

    fn expire_next(&mut self, turn: TurnContext) -> bool {
        self.expire_one(turn)
    }

    fn pass_on(&mut self, shared: &SharedState, cell: &Arc<Cell<TransactionShard>>) -> bool {
        shared.markers.add(cell, self.take_orders());
        let needing_ids = self.take_needing_ids();
        let is_needed = !needing_ids.is_empty();
        let needing_ids = needing_ids.into_iter().map(|id| (Arc::clone(cell), id));
        shared.needing_ids.lock().extend(needing_ids);
        is_needed
    }

    fn next_write(&mut self) -> Option<Write> {
        self.writes.pop_front()
    }

    fn answers(&mut self) -> &mut Answers<TransactionAnswer> {
        &mut self.answers
    }

    fn answer_timeout_ms(shared: &SharedState) -> i64 {
        shared.config.write_timeout_ms
    }

    fn written(&mut self, write: Write, last_offset: i64, turn: TurnContext) {
        let expires_ms = turn.now.monotonic_ms.saturating_add(self.config.write_timeout_ms);
        self.pending.push(last_offset, expires_ms, write);
    }

    fn take_first_half(write: &mut Write) -> Option<Write> {
        write.take_first_half()
    }

    fn refused(&mut self, write: Write, error: WriteError, _: usize, turn: TurnContext) {
        self.failed(write, error, turn);
    }

    fn acknowledged(&mut self, last_offset: i64, turn: TurnContext) {
        self.replicated(last_offset, turn);
        while let Some(write) = self.pending.pop_to(last_offset) {
            self.happens(write.content, write.last_offset, turn);
        }
    }

    fn unacknowledged(&mut self, last_offset: i64, error: WriteError, turn: TurnContext) {
        if error == WriteError::TooFewReplicas {
            self.replicated(last_offset, turn);
        }
        while let Some(write) = self.pending.pop_to(last_offset) {
            self.failed(write.content, error, turn);
        }
    }

    fn unload(&mut self) {
        let waiting = self.pending.drain().chain(self.writes.drain(..));
        for (ticket, answer) in waiting.filter_map(|write| write.answer) {
            self.answers.fail(ticket, answer, WriteError::NotLeader);
        }
    }
}

impl TransactionShard {
    /// A shard without ids for this leader epoch.
    pub(super) fn of(
        config: Arc<TransactionConfig>,
        coordinator_epoch: i32,
        now: Moment,
    ) -> TransactionShard {
        let next_timeout_check_ms = now.monotonic_ms.saturating_add(config.abort_timed_out_interval_ms);
        let next_expiry_check_ms = now.monotonic_ms.saturating_add(config.remove_expired_interval_ms);
        TransactionShard {
            config,
            coordinator_epoch,
            entries: HashMap::default(),
            forgotten_at: -1,
            ongoing: BTreeSet::new(),
            writes: VecDeque::new(),
            pending: UnacknowledgedWrites::default(),
            take_up_at: None,
            retries: VecDeque::new(),
            answers: Answers::default(),
            orders: Vec::new(),
            needing_ids: Vec::new(),
            next_timeout_check_ms,
            next_expiry_check_ms,
        }
    }

    /// The state of an id.
    #[cfg(test)]
    pub fn metadata(&self, id: &str) -> Option<&TransactionMetadata> {
        self.entries.get(id).map(|entry| &entry.current)
    }

    /// An id with its state, and the basis of answers about it.
    fn find(&self, id: &str) -> (Basis, Option<(&Arc<str>, &Entry)>) {
        let found = self.entries.get_key_value(id);
        // A missing id depends on the last tombstone. An id without a record is busy until its write
        // ends.
        let at = found.map_or(self.forgotten_at, |(_, entry)| entry.at.unwrap_or(self.forgotten_at));
        (Basis::up_to(at), found)
    }

    /// The markers to send. [`TransactionShard::markers_written`] reports their outcome.
    pub fn take_orders(&mut self) -> Vec<MarkerOrder> {
        std::mem::take(&mut self.orders)
    }

    /// The ids with a timed-out transaction whose producers have no epoch left: each needs
    /// [`TransactionShard::abort_timed_out`] with a new producer id.
    pub fn take_needing_ids(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.needing_ids)
    }

    fn answer(&mut self, ticket: Ticket, answer: TransactionAnswer, basis: Basis) {
        self.answers.give(ticket, answer, basis);
    }

    /// Writes the next state of an id, which is busy until the write is acknowledged.
    fn change(
        &mut self,
        id: &Arc<str>,
        target: TransactionMetadata,
        answer: Option<(Ticket, TransactionAnswer)>,
        turn: TurnContext,
    ) {
        let encoded =
            encode_key(id).and_then(|key| Ok((key, Some(encode_value(&target, turn.transaction_version)?))));
        let Ok(record) = encoded else {
            if let Some((ticket, answer)) = answer {
                self.answers.fail(ticket, answer, WriteError::Unencodable);
            }
            return self.end_pending(id);
        };
        let entry = self.entries.get_mut(id).expect("what changes is there");
        debug_assert!(entry.pending.is_none_or(|pending| pending == target.state), "one change at a time");
        entry.pending = Some(target.state);
        let change = Change::To { id: id.clone(), target: Box::new(target) };
        self.writes.push_back(Write { records: vec![record], change, answer });
    }

    /// Handles replication of the log up to this offset. Once all loaded records are replicated, loaded
    /// decisions continue.
    fn replicated(&mut self, last_offset: i64, turn: TurnContext) {
        if self.take_up_at.take_if(|at| *at <= last_offset).is_some() {
            self.take_up(turn);
        }
    }

    /// Ends the pending change of an id. An id without a record is removed.
    fn end_pending(&mut self, id: &Arc<str>) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        entry.pending = None;
        if entry.at.is_none() {
            self.entries.remove(id);
        }
    }

    /// Applies a write that is acknowledged up to an offset.
    fn happens(&mut self, write: Write, last_offset: i64, turn: TurnContext) {
        if let Some((ticket, answer)) = write.answer {
            self.answer(ticket, answer, Basis::up_to(last_offset));
        }
        match write.change {
            Change::To { id, target } => {
                let Some(entry) = self.entries.get_mut(&id) else { return };
                (entry.pending, entry.at) = (None, Some(last_offset));
                self.replace(&id, *target);
                self.complete_if_prepared(&id, turn);
            }
            Change::Forget(ids) => {
                self.forgotten_at = last_offset;
                for id in ids {
                    self.entries.remove(&id);
                }
            }
        }
    }

    fn failed(&mut self, write: Write, error: WriteError, turn: TurnContext) {
        if let Some((ticket, answer)) = write.answer {
            self.answers.fail(ticket, answer, error);
        }
        match write.change {
            Change::To { id, target } => {
                if matches!(target.state, TransactionState::CompleteCommit | TransactionState::CompleteAbort)
                {
                    // All partitions have the marker; only the log lacks the completion.
                    self.retries.push_back((turn.now.monotonic_ms.saturating_add(RETRY_MS), id));
                    return;
                }
                tracing::info!(transactional_id = &*id, %error, "Failed to write a transaction change");
                self.end_pending(&id);
            }
            Change::Forget(ids) => {
                tracing::info!(ids = ids.len(), %error, "Failed to remove expired transactional ids");
                ids.iter().for_each(|id| self.end_pending(id));
            }
        }
    }

    /// Moves an id to its next state.
    fn replace(&mut self, id: &Arc<str>, target: TransactionMetadata) {
        let entry = self.entries.get_mut(id).expect("what changes is there");
        let before = std::mem::replace(&mut entry.current, target);
        let after = &entry.current;
        if before.state == TransactionState::Ongoing {
            self.ongoing.remove(&(before.deadline_ms(), id.clone()));
        }
        if after.state == TransactionState::Ongoing && !after.is_two_phase_commit() {
            self.ongoing.insert((after.deadline_ms(), id.clone()));
        }
    }
}
