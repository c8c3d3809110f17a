//! One shard with its lock: its writes go into the log while the lock is held, its answers to whoever waits.

use super::super::answer::{Answer, Ticket};
use super::super::config::GroupConfig;
use super::super::log::{Acknowledged, AppendAs, Appended, CoordinatorLog, ReplayError};
use super::super::offsets::TransactionOutcome;
use super::super::shard::{Moment, Shard, Write};
use super::Time;
use crate::partition::{EndMarker, marker_batch};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use thalweg_record::{BatchBuilder, BatchOptions};
use thalweg_wire::ErrorCode;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

/// A batch of one record has room in this; larger ones make more.
const BATCH_BYTES: usize = 512;

/// A partition of `__consumer_offsets` in one leader epoch.
pub(super) struct Cell {
    partition: i32,
    leader_epoch: i32,
    log: Arc<dyn CoordinatorLog>,
    config: Arc<GroupConfig>,
    time: Time,
    /// Tells the sleeper that a deadline came nearer.
    wake: Arc<Notify>,
    runtime: Handle,
    next_deadline_ms: AtomicI64,
    state: Mutex<State>,
}

enum State {
    Loading,
    Active(Box<Active>),
    /// The log could not be read.
    Failed,
    /// Another broker's, or another epoch's.
    Gone,
}

struct Active {
    shard: Shard,
    replies: HashMap<Ticket, oneshot::Sender<Answer>>,
}

impl Cell {
    pub(super) fn new(
        partition: i32,
        leader_epoch: i32,
        log: Arc<dyn CoordinatorLog>,
        config: Arc<GroupConfig>,
        time: Time,
        wake: Arc<Notify>,
        runtime: Handle,
    ) -> Cell {
        let next_deadline_ms = AtomicI64::new(i64::MAX);
        let state = Mutex::new(State::Loading);
        Cell { partition, leader_epoch, log, config, time, wake, runtime, next_deadline_ms, state }
    }

    pub(super) fn leader_epoch(&self) -> i32 {
        self.leader_epoch
    }

    pub(super) fn next_deadline_ms(&self) -> i64 {
        self.next_deadline_ms.load(Ordering::Acquire)
    }

    /// The log is replayed into the shard, which serves from now on.
    pub(super) fn load(self: &Arc<Cell>, mut shard: Shard) {
        let mut state = self.state.lock();
        if matches!(*state, State::Loading) {
            let now = self.time.now();
            shard.loaded(now);
            let answers = self.finish_turn(&mut shard, now);
            debug_assert!(answers.is_empty(), "nobody has asked yet");
            let (partition, leader_epoch, groups) = (self.partition, self.leader_epoch, shard.group_count());
            if groups > 0 {
                tracing::info!(partition, leader_epoch, groups, "Loaded groups and offsets");
            }
            *state = State::Active(Box::new(Active { shard, replies: HashMap::new() }));
        }
    }

    /// The log could not be replayed.
    pub(super) fn fail(&self, error: &ReplayError) {
        let mut state = self.state.lock();
        if matches!(*state, State::Loading) {
            *state = State::Failed;
            let (partition, leader_epoch) = (self.partition, self.leader_epoch);
            if matches!(error, ReplayError::NotLeader) {
                tracing::info!(
                    partition,
                    leader_epoch,
                    "Groups are not loaded: the partition is led elsewhere"
                );
            } else {
                tracing::error!(partition, leader_epoch, %error, "Groups and offsets could not be loaded");
            }
        }
    }

    /// The shard is let go.
    pub(super) fn unload(&self) {
        self.next_deadline_ms.store(i64::MAX, Ordering::Release);
        if let State::Active(active) = std::mem::replace(&mut *self.state.lock(), State::Gone) {
            let Active { shard, mut replies } = *active;
            let (partition, leader_epoch, groups) = (self.partition, self.leader_epoch, shard.group_count());
            reply(&mut replies, shard.unload());
            if groups > 0 {
                tracing::info!(partition, leader_epoch, groups, "Unloaded groups and offsets");
            }
        }
    }

    /// Looks at the shard, without a turn.
    pub(super) fn read<R>(&self, read: impl FnOnce(&Shard) -> R) -> Result<R, ErrorCode> {
        match &*self.state.lock() {
            State::Active(active) => Ok(read(&active.shard)),
            other => Err(other.error()),
        }
    }

    /// A turn that nobody waits for.
    pub(super) fn turn(self: &Arc<Cell>, turn: impl FnOnce(&mut Shard, Moment)) {
        let mut state = self.state.lock();
        if let State::Active(active) = &mut *state {
            let now = self.time.now();
            turn(&mut active.shard, now);
            let answers = self.finish_turn(&mut active.shard, now);
            reply(&mut active.replies, answers);
        }
    }

    /// A turn for a request, and the wait for its answer.
    pub(super) async fn ask(
        self: &Arc<Cell>,
        ticket: Ticket,
        request: impl FnOnce(&mut Shard, Ticket, Moment),
    ) -> Result<Answer, ErrorCode> {
        let receiver = {
            let mut state = self.state.lock();
            let active = match &mut *state {
                State::Active(active) => active,
                other => return Err(other.error()),
            };
            let now = self.time.now();
            request(&mut active.shard, ticket, now);
            let mut answers = self.finish_turn(&mut active.shard, now);
            if let Some(own) = answers.iter().position(|(released, _)| *released == ticket) {
                let (_, answer) = answers.swap_remove(own);
                reply(&mut active.replies, answers);
                return Ok(answer);
            }
            let (sender, receiver) = oneshot::channel();
            active.replies.insert(ticket, sender);
            reply(&mut active.replies, answers);
            receiver
        };
        receiver.await.map_err(|_| ErrorCode::NotCoordinator)
    }

    /// Appends what the shard wants written, does what is due, and takes the answers.
    fn finish_turn(self: &Arc<Cell>, shard: &mut Shard, now: Moment) -> Vec<(Ticket, Answer)> {
        loop {
            while let Some(write) = shard.next_write() {
                match self.append(&write, now) {
                    Ok(Appended { last_offset, acknowledged }) => {
                        shard.written(write, last_offset.0, now);
                        match acknowledged {
                            Acknowledged::Now => shard.acknowledged(last_offset.0, now),
                            Acknowledged::Later(later) => self.await_acknowledgement(last_offset.0, later),
                        }
                    }
                    Err(error) => shard.refused(write, error, now),
                }
            }
            if shard.next_deadline_ms() > now.monotonic_ms || !shard.expire_next(now) {
                break;
            }
        }
        let next_ms = shard.next_deadline_ms();
        if self.next_deadline_ms.swap(next_ms, Ordering::AcqRel) > next_ms {
            self.wake.notify_one();
        }
        shard.take_released()
    }

    fn append(&self, write: &Write, now: Moment) -> Result<Appended, ErrorCode> {
        let mut options =
            BatchOptions { compression: self.config.offsets_topic_compression, ..BatchOptions::default() };
        let mut append_as = AppendAs::default();
        if let Some(producer) = write.producer {
            let (producer_id, producer_epoch) = (producer.id, producer.epoch);
            options = BatchOptions { producer_id, producer_epoch, transactional: true, ..options };
            append_as.guard = producer.guard;
        }
        if let (Some(marker), Some(producer)) = (write.marker, write.producer) {
            append_as.transaction_version = marker.transaction_version;
            let end = EndMarker {
                aborts: marker.outcome == TransactionOutcome::Abort,
                coordinator_epoch: marker.coordinator_epoch,
                timestamp: now.wall_ms,
            };
            let batch = marker_batch(producer.id, producer.epoch, end);
            return self.log.append(self.partition, self.leader_epoch, batch, append_as);
        }
        let mut builder = BatchBuilder::with_capacity(options, BATCH_BYTES);
        for record in &write.records {
            let (key, value) = record.encode().map_err(|_| ErrorCode::InvalidRequest)?;
            builder
                .append(now.wall_ms, Some(&key), value.as_deref(), &[])
                .map_err(|_| ErrorCode::RecordListTooLarge)?;
        }
        self.log.append(self.partition, self.leader_epoch, builder.build(), append_as)
    }

    fn await_acknowledgement(
        self: &Arc<Cell>,
        last_offset: i64,
        later: impl Future<Output = Result<(), ErrorCode>> + Send + 'static,
    ) {
        let cell = self.clone();
        self.runtime.spawn(async move {
            let result = later.await;
            cell.turn(|shard, now| match result {
                Ok(()) => shard.acknowledged(last_offset, now),
                Err(error) => shard.unacknowledged(last_offset, error, now),
            });
        });
    }
}

impl State {
    /// What a request is told when there is no shard to serve it.
    fn error(&self) -> ErrorCode {
        match self {
            State::Loading => ErrorCode::CoordinatorLoadInProgress,
            State::Failed | State::Gone => ErrorCode::NotCoordinator,
            State::Active(_) => unreachable!("an active shard serves"),
        }
    }
}

/// Hands answers to whoever waits. Those who have gone need none.
fn reply(replies: &mut HashMap<Ticket, oneshot::Sender<Answer>>, answers: Vec<(Ticket, Answer)>) {
    for (ticket, answer) in answers {
        if let Some(sender) = replies.remove(&ticket) {
            let _ = sender.send(answer);
        }
    }
}
