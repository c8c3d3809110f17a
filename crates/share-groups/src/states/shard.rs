//! All share partitions of one partition of `__share_group_state`: a state machine without clock, I/O or
//! waiting (Kafka's `ShareCoordinatorShard`).
//!
//! The shard is driven in turns (`thalweg_shard::Shard`). A decision becomes a record, which changes the
//! state once it is in the log. The answer waits for the record's acknowledgement; an answer without a record
//! depends on all earlier records. After a number of updates of a share partition, a snapshot replaces the
//! next update. Records before the oldest of all newest snapshots are no longer needed
//! ([`ShareShard::redundant_before`]).

mod context;
mod decide;
mod upkeep;

pub use context::{ShareStatesView, SharedState};

use super::entry::Entry;
use super::record::ShareRecord;
use super::request::{ShareStateAnswer, StateOutcomes, StateReply, StateRequest};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_metadata::topic_name::SHARE_STATE;
use thalweg_record::{BatchBuilder, BatchOptions, DecompressBuffer};
use thalweg_shard::{
    self, Answers, BATCH_BYTES, Basis, Cell, Moment, Piece, ShardLoadError, Ticket,
    TransactionalAppendOptions, UnacknowledgedWrites, WriteError, replay_records,
};
use thalweg_share::SharePartitionKey;

/// Size of records at which a new batch starts. A larger record gets its own batch.
const WRITE_BYTES: usize = 64 << 10;

/// Records to append as one batch.
#[derive(Debug, Default)]
pub(crate) struct Write {
    records: Vec<ShareRecord>,
    /// The records as bytes.
    encoded: Vec<(Bytes, Option<Bytes>)>,
    bytes: usize,
    /// The waiting request, and the positions of its answers.
    request: Option<RequestPositions>,
}

/// A waiting request, and the positions that a write answers.
type RequestPositions = (Ticket, Vec<usize>);

/// A request whose writes are pending.
#[derive(Debug)]
struct WaitingRequest {
    outcomes: StateOutcomes,
    /// Number of unacknowledged writes.
    writes: usize,
    /// True if every outcome comes from a write. All other outcomes depend on the state.
    is_written: bool,
}

/// The share partitions of one partition of `__share_group_state`, driven by `thalweg_shard::Shards`.
#[derive(Debug)]
pub(crate) struct ShareShard {
    shared: Arc<SharedState>,
    entries: HashMap<SharePartitionKey, Entry>,
    /// The offset of the last tombstone.
    deleted_at: i64,
    /// True if the log lacked records during loading.
    has_lost_records: bool,
    writes: VecDeque<Write>,
    /// Unacknowledged writes, with their waiting requests.
    pending: UnacknowledgedWrites<Option<RequestPositions>>,
    waiting: HashMap<Ticket, WaitingRequest>,
    answers: Answers<ShareStateAnswer>,
    next_cold_check_ms: i64,
}

impl thalweg_shard::Shard for ShareShard {
    const KEEPS: &'static str = "share partitions";
    const TOPIC: &'static str = SHARE_STATE;
    // The rest of the log has fewer deliveries: the missing ones are repeated.
    const LOSS: Option<&'static str> = Some(
        "acknowledged records of share partitions may be delivered again; share partitions whose state is gone are not delivered \
         until their offsets are reset",
    );
    type SharedState = Arc<SharedState>;
    type TurnContext = Moment;
    type Write = Write;
    type Answer = ShareStateAnswer;

    fn turn(_: &Arc<SharedState>, now: Moment) -> Moment {
        now
    }

    fn new(shared: &Arc<SharedState>, _leader_epoch: i32, now: Moment) -> ShareShard {
        ShareShard {
            next_cold_check_ms: now.monotonic_ms.saturating_add(shared.config.cold_snapshot_interval_ms),
            shared: Arc::clone(shared),
            entries: HashMap::default(),
            deleted_at: 0,
            has_lost_records: false,
            writes: VecDeque::new(),
            pending: UnacknowledgedWrites::default(),
            waiting: HashMap::default(),
            answers: Answers::default(),
        }
    }

    fn replay(
        &mut self,
        piece: Piece<'_>,
        buffer: &mut DecompressBuffer,
        _: Moment,
    ) -> Result<(), ShardLoadError> {
        replay_records(piece.bytes, buffer, |record| {
            let offset = record.offset.0;
            match ShareRecord::decode(record.key, record.value)? {
                Some(decoded) => self.apply(decoded, offset),
                None => tracing::debug!(offset, "Skipped a __share_group_state record of an unknown kind"),
            }
            Ok(())
        })
    }

    fn skip_lost(&mut self) {
        self.has_lost_records = true;
        self.entries.values_mut().for_each(Entry::forget_runs);
    }

    fn loaded(&mut self, _: Option<i64>, _: Moment) {}

    fn count(&self) -> usize {
        self.entries.len()
    }

    fn next_write(&mut self) -> Option<Write> {
        self.writes.pop_front()
    }

    fn batch(
        shared: &Arc<SharedState>,
        write: &Write,
        now: Moment,
    ) -> Result<(Bytes, TransactionalAppendOptions), WriteError> {
        let compression = shared.config.state_topic_compression;
        let options = BatchOptions { compression, ..BatchOptions::default() };
        let mut builder = BatchBuilder::with_capacity(options, BATCH_BYTES.max(write.bytes));
        for (key, value) in &write.encoded {
            builder
                .append(now.wall_ms, Some(key), value.as_deref(), &[])
                .map_err(|_| WriteError::TooLarge)?;
        }
        Ok((builder.build(), TransactionalAppendOptions::default()))
    }

    fn written(&mut self, write: Write, last_offset: i64, now: Moment) {
        let count = i64::try_from(write.records.len()).expect("a batch has fewer records");
        for (record, offset) in write.records.into_iter().zip(last_offset - count + 1..) {
            self.apply(record, offset);
        }
        let expires_ms = now.monotonic_ms.saturating_add(self.shared.config.write_timeout_ms);
        self.pending.push(last_offset, expires_ms, write.request);
    }

    fn refused(&mut self, write: Write, error: WriteError, _: usize, _: Moment) {
        tracing::warn!(records = write.records.len(), %error, "Share coordinator write was rejected");
        self.finish_write(write.request, Err(error));
    }

    fn acknowledged(&mut self, last_offset: i64, _: Moment) {
        while let Some(write) = self.pending.pop_to(last_offset) {
            self.finish_write(write.content, Ok(write.last_offset));
        }
    }

    fn unacknowledged(&mut self, last_offset: i64, error: WriteError, _: Moment) {
        while let Some(write) = self.pending.pop_to(last_offset) {
            self.finish_write(write.content, Err(error));
        }
    }

    fn next_deadline_ms(&self) -> i64 {
        self.next_cold_check_ms.min(self.pending.next_expiry_ms())
    }

    fn expire_next(&mut self, now: Moment) -> bool {
        if let Some(write) = self.pending.pop_expired(now.monotonic_ms) {
            tracing::warn!(
                offset = write.last_offset,
                "Share coordinator write was not acknowledged in time (share.coordinator.write.timeout.ms)"
            );
            self.finish_write(write.content, Err(WriteError::TimedOut));
            return true;
        }
        if self.next_cold_check_ms > now.monotonic_ms {
            return false;
        }
        let interval_ms = self.shared.config.cold_snapshot_interval_ms.max(1);
        self.next_cold_check_ms = now.monotonic_ms.saturating_add(interval_ms);
        self.snapshot_cold(now);
        true
    }

    fn answers(&mut self) -> &mut Answers<ShareStateAnswer> {
        &mut self.answers
    }

    fn answer_timeout_ms(shared: &Arc<SharedState>) -> i64 {
        shared.config.write_timeout_ms
    }

    fn pass_on(&mut self, _: &Arc<SharedState>, _: &Arc<Cell<ShareShard>>) -> bool {
        false
    }

    fn unload(&mut self) {
        for (ticket, waiting) in self.waiting.drain() {
            self.answers.fail(ticket, ShareStateAnswer::Outcomes(waiting.outcomes), WriteError::NotLeader);
        }
    }
}

impl ShareShard {
    /// Applies a record at an offset to the state.
    fn apply(&mut self, record: ShareRecord, at: i64) {
        let updates_max = self.shared.config.updates_per_snapshot;
        match record {
            ShareRecord::Snapshot(key, None) => {
                self.entries.remove(&key);
                self.deleted_at = at;
            }
            ShareRecord::Snapshot(key, Some(snapshot)) => {
                self.entries.entry(key).or_default().apply_snapshot(snapshot, at, updates_max);
            }
            ShareRecord::Update(key, update) => match self.entries.get_mut(&key) {
                Some(entry) => {
                    if self.has_lost_records {
                        entry.snapshot_epoch = update.snapshot_epoch;
                    }
                    entry.apply_update(&update);
                }
                None => drop(self.entries.insert(key, Entry::of_update(update))),
            },
        }
    }

    /// Finishes the outcomes at these positions of a request after a write was acknowledged up to an offset,
    /// or failed. The request is answered after its last write.
    fn finish_write(&mut self, request: Option<RequestPositions>, result: Result<i64, WriteError>) {
        let Some((ticket, places)) = request else { return };
        let Some(waiting) = self.waiting.get_mut(&ticket) else { return };
        if let Err(error) = result {
            for place in places {
                waiting.outcomes[place] = Err(error.into());
            }
        }
        waiting.writes -= 1;
        if waiting.writes == 0
            && let Some(waiting) = self.waiting.remove(&ticket)
        {
            let basis = match result {
                Ok(last_offset) => Basis::up_to(last_offset),
                Err(error) if waiting.is_written => Basis::failed(error),
                Err(_) => Basis::LATEST,
            };
            self.answers.give(ticket, ShareStateAnswer::Outcomes(waiting.outcomes), basis);
        }
    }

    /// Serves requests for share partitions, each of which occurs once.
    pub(super) fn serve(
        &mut self,
        requests: &[&(SharePartitionKey, StateRequest)],
        ticket: Ticket,
        now: Moment,
    ) {
        let mut outcomes = StateOutcomes::with_capacity(requests.len());
        let mut writes: Vec<Write> = Vec::new();
        let mut is_written = true;
        for (place, (key, request)) in requests.iter().enumerate() {
            let decided = self.decide(key, request, now).and_then(|(done, record)| {
                is_written &= record.is_some();
                if let Some(record) = record {
                    add(&mut writes, record, Some((ticket, place)))?;
                }
                Ok(done)
            });
            is_written &= decided.is_ok();
            outcomes.push(decided);
        }
        if writes.is_empty() {
            return self.answers.give(ticket, ShareStateAnswer::Outcomes(outcomes), Basis::LATEST);
        }
        self.waiting.insert(ticket, WaitingRequest { outcomes, writes: writes.len(), is_written });
        self.writes.extend(writes);
    }

    /// The state of a share partition.
    #[cfg(test)]
    pub(super) fn entry(&self, key: &SharePartitionKey) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// True if the topic has the partition.
    fn exists(&self, key: &SharePartitionKey) -> bool {
        self.shared.cluster.has_partition(key.topic, key.partition)
    }
}

/// Adds a record to the last write that has room.
fn add(
    writes: &mut Vec<Write>,
    record: ShareRecord,
    request: Option<(Ticket, usize)>,
) -> Result<(), WriteError> {
    let (key, value) = record.encode().map_err(|_| WriteError::Unencodable)?;
    let bytes = key.len() + value.as_ref().map_or(0, Bytes::len);
    if writes.last().is_none_or(|last| last.bytes + bytes > WRITE_BYTES) {
        writes.push(Write::default());
    }
    let last = writes.last_mut().expect("there is one now");
    last.bytes += bytes;
    last.records.push(record);
    last.encoded.push((key, value));
    if let Some((ticket, place)) = request {
        last.request.get_or_insert_with(|| (ticket, Vec::new())).1.push(place);
    }
    Ok(())
}

/// The result of a request, and the record that it needs.
type Decision = (StateReply, Option<ShareRecord>);
