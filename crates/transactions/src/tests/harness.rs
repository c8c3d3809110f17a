//! A shard with a log in memory, a manual clock, and partitions that accept its markers: acts as the driver,
//! step by step.

use crate::answer::{Producer, TransactionAnswer};
use crate::config::TransactionConfig;
use crate::error::TransactionError;
use crate::metadata::{TransactionMetadata, TransactionPartitions};
use crate::shard::{EndRequest, InitRequest, MarkerOrder, TransactionShard, TurnContext};
use crate::state::TransactionState;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use thalweg_groups::TransactionOutcome;
use thalweg_metadata::PartitionIndex;
use thalweg_record::{BatchBuilder, BatchOptions, DecompressBuffer, Offset, batches};
use thalweg_shard::{DividedWrites, HeldAnswers, Moment, Piece, Shard as _, Ticket, WriteError};
use thalweg_wire::ErrorCode;

/// The transactional id of most tests.
pub(super) const ID: &str = "app";
pub(super) const TIMEOUT_MS: i32 = 60_000;
/// The leader epoch of the first shard of a harness; each restart adds one.
pub(super) const EPOCH: i32 = 3;

pub(super) struct Harness {
    pub(super) shard: TransactionShard,
    config: Arc<TransactionConfig>,
    pub(super) now_ms: i64,
    pub(super) level: i16,
    epoch: i32,
    /// The log: one encoded batch per write.
    pub(super) log: Vec<Bytes>,
    next_offset: i64,
    /// True if appends wait for [`Harness::acknowledge`].
    pub(super) holds: bool,
    /// Last offsets of the unacknowledged batches.
    pub(super) held: VecDeque<i64>,
    /// The last replicated offset.
    acknowledged_to: i64,
    /// The next appends fail with this error.
    pub(super) refuses: Option<WriteError>,
    /// Maximum size of the keys and values of a batch.
    pub(super) batch_bytes_max: usize,
    /// True if markers wait for [`Harness::write_markers`].
    pub(super) keeps_markers: bool,
    pub(super) orders: Vec<MarkerOrder>,
    /// The markers in the partitions, in order.
    pub(super) markers: Vec<MarkerOrder>,
    next_ticket: u64,
    /// Answers that wait for the log.
    waiting: HeldAnswers<TransactionAnswer>,
    pub(super) next_producer_id: i64,
    pub(super) answers: BTreeMap<Ticket, TransactionAnswer>,
}

impl Harness {
    /// A harness for the newer protocol.
    pub(super) fn new() -> Harness {
        Harness::at_level(2)
    }

    pub(super) fn at_level(level: i16) -> Harness {
        Harness::with(TransactionConfig::default(), level)
    }

    pub(super) fn with(config: TransactionConfig, level: i16) -> Harness {
        let config = Arc::new(config);
        let now_ms = 1_000_000;
        Harness {
            shard: TransactionShard::of(config.clone(), EPOCH, moment(now_ms)),
            config,
            now_ms,
            level,
            epoch: EPOCH,
            log: Vec::new(),
            next_offset: 0,
            holds: false,
            held: VecDeque::new(),
            acknowledged_to: -1,
            refuses: None,
            batch_bytes_max: usize::MAX,
            keeps_markers: false,
            orders: Vec::new(),
            markers: Vec::new(),
            next_ticket: 0,
            waiting: HeldAnswers::new(-1, -1),
            next_producer_id: 1000,
            answers: BTreeMap::new(),
        }
    }

    pub(super) fn now(&self) -> TurnContext {
        TurnContext { now: moment(self.now_ms), transaction_version: self.level }
    }

    /// A new coordinator, loaded from the log.
    pub(super) fn reloaded(&self, epoch: i32) -> TransactionShard {
        let mut shard = TransactionShard::of(self.config.clone(), epoch, moment(self.now_ms));
        let mut buffer = DecompressBuffer::default();
        for batch in &self.log {
            shard
                .replay(Piece::acknowledged(batch), &mut buffer, self.now())
                .expect("the log was written here");
        }
        shard
    }

    /// Elects another coordinator: waiting requests and markers in flight are lost.
    pub(super) fn restart(&mut self) {
        self.epoch += 1;
        self.shard = self.reloaded(self.epoch);
        self.held.clear();
        self.orders.clear();
        self.acknowledged_to = self.next_offset - 1;
        self.waiting = HeldAnswers::new(self.acknowledged_to, self.acknowledged_to);
        self.shard.loaded(None, self.now());
        self.finish_turn();
    }

    /// Number of unacknowledged batches.
    pub(super) fn unacknowledged(&self) -> usize {
        self.log.iter().filter(|batch| end(batch) > self.acknowledged_to).count()
    }

    /// Restarts with a last loaded record that waits for [`Harness::acknowledge`].
    pub(super) fn restart_behind(&mut self) {
        let last = self.next_offset - 1;
        self.acknowledged_to = last - 1;
        self.waiting = HeldAnswers::new(last, self.acknowledged_to);
        self.epoch += 1;
        self.shard = self.reloaded(self.epoch);
        self.held = VecDeque::from([last]);
        self.orders.clear();
        self.shard.loaded(Some(last), self.now());
        self.finish_turn();
    }

    /// Elects another broker with some of the unacknowledged batches; the other batches are lost.
    pub(super) fn fail_over(&mut self, kept: usize) {
        let acknowledged_to = self.acknowledged_to;
        self.log.truncate(self.log.len() - self.unacknowledged() + kept);
        let last = self.log.last().map_or(-1, end);
        self.next_offset = last + 1;
        self.epoch += 1;
        self.shard = self.reloaded(self.epoch);
        self.waiting = HeldAnswers::new(last, acknowledged_to.min(last));
        self.orders.clear();
        self.held = VecDeque::from_iter((last > acknowledged_to).then_some(last));
        self.shard.loaded(self.held.front().copied(), self.now());
        self.finish_turn();
    }

    /// One turn of the shard, for a request.
    pub(super) fn turn(&mut self, turn: impl FnOnce(&mut TransactionShard, Ticket, TurnContext)) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        let now = self.now();
        turn(&mut self.shard, ticket, now);
        self.finish_turn();
        ticket
    }

    fn finish_turn(&mut self) {
        loop {
            self.append_writes();
            self.waiting.take_in(self.shard.answers(), self.now_ms + self.config.write_timeout_ms);
            for (ticket, answer) in self.waiting.drain() {
                let earlier = self.answers.insert(ticket, answer);
                assert_eq!(earlier, None, "{ticket:?} was answered before");
            }
            self.orders.extend(self.shard.take_orders());
            let needing = self.shard.take_needing_ids();
            if needing.is_empty() && (self.keeps_markers || self.orders.is_empty()) {
                return;
            }
            for id in needing {
                let (new_id, now) = (self.new_id(), self.now());
                self.shard.abort_timed_out(&id, Some(new_id), now);
            }
            if !self.keeps_markers && !self.orders.is_empty() {
                let order = self.orders.remove(0);
                self.take_marker(order);
            }
        }
    }

    fn append_writes(&mut self) {
        let now = self.now();
        let mut divided = DividedWrites::default();
        while let Some(write) = divided.next(&mut self.shard) {
            let sizes =
                write.records.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Bytes::len));
            let is_too_large = sizes.sum::<usize>() > self.batch_bytes_max;
            if let Some(error) = self.refuses.or(is_too_large.then_some(WriteError::TooLarge)) {
                divided.refused(&mut self.shard, write, error, usize::MAX, now);
                continue;
            }
            let options = BatchOptions { base_offset: Offset(self.next_offset), ..BatchOptions::default() };
            let mut builder = BatchBuilder::new(options);
            for (key, value) in &write.records {
                builder.append(self.now_ms, Some(key), value.as_deref(), &[]).expect("a small batch");
            }
            let last = self.next_offset + i64::from(builder.record_count()) - 1;
            self.next_offset = last + 1;
            self.log.push(builder.build());
            self.shard.written(write, last, now);
            self.waiting.written(last);
            if self.holds || !self.held.is_empty() {
                self.held.push_back(last);
            } else {
                self.acknowledged_to = last;
                self.shard.acknowledged(last, now);
                self.waiting.acknowledged(last);
            }
        }
    }

    fn take_marker(&mut self, order: MarkerOrder) {
        let now = self.now();
        self.shard.markers_written(&order.id, &order.partitions, now);
        self.markers.push(order);
    }

    /// Writes the kept markers to the partitions.
    pub(super) fn write_markers(&mut self) {
        for order in std::mem::take(&mut self.orders) {
            self.take_marker(order);
        }
        self.finish_turn();
    }

    /// Acknowledges the oldest held write.
    pub(super) fn acknowledge(&mut self) -> bool {
        let Some(last) = self.held.pop_front() else { return false };
        self.acknowledged_to = last;
        let now = self.now();
        self.shard.acknowledged(last, now);
        self.waiting.acknowledged(last);
        self.finish_turn();
        true
    }

    /// Fails the oldest held write.
    pub(super) fn lose(&mut self, error: WriteError) {
        let last = self.held.pop_front().expect("a write waits");
        let now = self.now();
        self.shard.unacknowledged(last, error, now);
        self.waiting.unacknowledged(last, error);
        self.finish_turn();
    }

    /// Advances the clock, and runs due work in time.
    pub(super) fn advance(&mut self, ms: i64) {
        let until_ms = self.now_ms + ms;
        let next_ms = |h: &Harness| h.shard.next_deadline_ms().min(h.waiting.next_deadline_ms());
        while next_ms(self) <= until_ms {
            self.now_ms = self.now_ms.max(next_ms(self));
            let now = self.now();
            if self.waiting.next_deadline_ms() <= self.now_ms {
                self.waiting.expire(self.now_ms);
            } else {
                assert!(self.shard.expire_next(now), "a deadline that comes has something to do");
            }
            self.finish_turn();
        }
        self.now_ms = until_ms;
    }

    fn new_id(&mut self) -> i64 {
        self.next_producer_id += 1;
        self.next_producer_id
    }

    fn with_id(
        &mut self,
        request: impl Fn(&mut TransactionShard, Option<i64>, Ticket, TurnContext),
    ) -> Ticket {
        let ticket = self.turn(|shard, ticket, turn| request(shard, None, ticket, turn));
        if self.answers.get(&ticket) != Some(&TransactionAnswer::NeedsProducerId) {
            return ticket;
        }
        let new_id = self.new_id();
        self.turn(|shard, ticket, turn| request(shard, Some(new_id), ticket, turn))
    }

    pub(super) fn send_init(&mut self, id: &str, expected: Option<Producer>) -> Ticket {
        let request = InitRequest { id: id.to_owned(), timeout_ms: TIMEOUT_MS, expected, client_id: None };
        self.with_id(|shard, new_id, ticket, turn| shard.init_producer_id(&request, new_id, ticket, turn))
    }

    pub(super) fn init_as(&mut self, expected: Option<Producer>) -> Result<Producer, ErrorCode> {
        let ticket = self.send_init(ID, expected);
        self.producer(ticket)
    }

    pub(super) fn init(&mut self) -> Producer {
        self.init_as(None).expect("nothing is in the way")
    }

    pub(super) fn producer(&self, ticket: Ticket) -> Result<Producer, ErrorCode> {
        match self.answers.get(&ticket) {
            Some(TransactionAnswer::Producer(result)) => result.map_err(TransactionError::code),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn send_add(&mut self, producer: Producer, partitions: &[(&str, i32)]) -> Ticket {
        let (added, level) = (named(partitions), self.level);
        self.turn(|shard, ticket, turn| shard.add_partitions(ID, producer, &added, level, ticket, turn))
    }

    pub(super) fn add(&mut self, producer: Producer, partitions: &[(&str, i32)]) -> Result<(), ErrorCode> {
        let ticket = self.send_add(producer, partitions);
        self.added(ticket)
    }

    pub(super) fn added(&self, ticket: Ticket) -> Result<(), ErrorCode> {
        match self.answers.get(&ticket) {
            Some(TransactionAnswer::Added(result)) => result.map_err(TransactionError::code),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn send_verify(&mut self, producer: Producer, partitions: &[(&str, i32)]) -> Ticket {
        let asked = named(partitions);
        self.turn(|shard, ticket, _| shard.verify_partitions(ID, producer, &asked, ticket))
    }

    /// A code per partition, or one for all.
    pub(super) fn verified(&self, ticket: Ticket) -> Result<Vec<ErrorCode>, ErrorCode> {
        let code = |result: &Result<(), TransactionError>| {
            result.err().map_or(ErrorCode::None, TransactionError::code)
        };
        match self.answers.get(&ticket) {
            Some(TransactionAnswer::Verified(Ok(all))) => Ok(all.iter().map(code).collect()),
            Some(TransactionAnswer::Verified(Err(error))) => Err(error.code()),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn send_end(&mut self, producer: Producer, outcome: TransactionOutcome) -> Ticket {
        let request = EndRequest { id: ID.to_owned(), producer, outcome, client_version: self.level };
        self.with_id(|shard, new_id, ticket, turn| shard.end_transaction(&request, new_id, ticket, turn))
    }

    pub(super) fn end(
        &mut self,
        producer: Producer,
        outcome: TransactionOutcome,
    ) -> Result<Producer, ErrorCode> {
        let ticket = self.send_end(producer, outcome);
        self.producer(ticket)
    }

    pub(super) fn metadata(&self) -> &TransactionMetadata {
        self.shard.metadata(ID).expect("the id is known")
    }

    pub(super) fn state(&self) -> TransactionState {
        self.metadata().state
    }

    /// Sets the producer epoch of the id, as if the producer had used all earlier epochs.
    pub(super) fn wear_epochs_down(&mut self, epoch: i16) -> Producer {
        let mut metadata = self.metadata().clone();
        metadata.producer_epoch = epoch;
        let key = crate::record::encode_key(ID).expect("short");
        let value = crate::record::encode_value(&metadata, self.level).expect("short");
        let options = BatchOptions { base_offset: Offset(self.next_offset), ..BatchOptions::default() };
        let mut builder = BatchBuilder::new(options);
        builder.append(self.now_ms, Some(&key), Some(&value), &[]).expect("a small batch");
        self.next_offset += 1;
        self.log.push(builder.build());
        self.restart();
        Producer { id: metadata.producer_id, epoch }
    }
}

/// The last offset of a batch.
fn end(batch: &Bytes) -> i64 {
    batches(batch).next().expect("one").expect("whole").header.last_offset().0
}

pub(super) fn named(partitions: &[(&str, i32)]) -> TransactionPartitions {
    partitions.iter().map(|(topic, partition)| (Arc::from(*topic), PartitionIndex(*partition))).collect()
}

pub(super) fn moment(ms: i64) -> Moment {
    Moment { wall_ms: ms, monotonic_ms: ms }
}
