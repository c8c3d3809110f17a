//! One shard with its lock: its writes go into the log while the lock is held, its answers to whoever waits, its markers
//! to the queue from which they are sent.

use super::super::answer::Answer;
use super::super::shard::{Shard, Turn, Write};
use super::Surroundings;
use crate::group::{Acknowledged, AppendAs, Appended, CoordinatorLog, ReplayError, Ticket};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use thalweg_record::{BatchBuilder, BatchOptions};
use thalweg_wire::ErrorCode;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// A batch of one record has room in this; larger ones make more.
const BATCH_BYTES: usize = 512;

/// A partition of `__transaction_state` in one leader epoch.
pub(in super::super) struct Cell {
    partition: i32,
    leader_epoch: i32,
    log: Arc<dyn CoordinatorLog>,
    surroundings: Arc<Surroundings>,
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

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transactions of partition {} in epoch {}", self.partition, self.leader_epoch)
    }
}

impl Cell {
    pub(super) fn new(
        partition: i32,
        leader_epoch: i32,
        log: Arc<dyn CoordinatorLog>,
        surroundings: Arc<Surroundings>,
        runtime: Handle,
    ) -> Cell {
        let (next_deadline_ms, state) = (AtomicI64::new(i64::MAX), Mutex::new(State::Loading));
        Cell { partition, leader_epoch, log, surroundings, runtime, next_deadline_ms, state }
    }

    pub(super) fn leader_epoch(&self) -> i32 {
        self.leader_epoch
    }

    pub(super) fn next_deadline_ms(&self) -> i64 {
        self.next_deadline_ms.load(Ordering::Acquire)
    }

    /// Whether the shard is here, so that what it has begun is still its business.
    pub(in super::super) fn is_active(&self) -> bool {
        matches!(*self.state.lock(), State::Active(_))
    }

    /// The log is replayed into the shard, which serves from now on.
    pub(super) fn load(self: &Arc<Cell>, mut shard: Shard) {
        let mut state = self.state.lock();
        if matches!(*state, State::Loading) {
            let turn = self.surroundings.turn();
            shard.loaded(turn);
            let answers = self.finish_turn(&mut shard, turn);
            debug_assert!(answers.is_empty(), "nobody has asked yet");
            let (partition, leader_epoch, ids) = (self.partition, self.leader_epoch, shard.id_count());
            if ids > 0 {
                tracing::info!(partition, leader_epoch, ids, "Loaded transactional ids");
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
                    "Transactions are not loaded: the partition is led elsewhere"
                );
            } else {
                tracing::error!(partition, leader_epoch, %error, "Transactions could not be loaded");
            }
        }
    }

    /// The shard is let go.
    pub(super) fn unload(&self) {
        self.next_deadline_ms.store(i64::MAX, Ordering::Release);
        if let State::Active(active) = std::mem::replace(&mut *self.state.lock(), State::Gone) {
            let Active { shard, mut replies } = *active;
            let (partition, leader_epoch, ids) = (self.partition, self.leader_epoch, shard.id_count());
            reply(&mut replies, shard.unload());
            if ids > 0 {
                tracing::info!(partition, leader_epoch, ids, "Unloaded transactional ids");
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
    pub(in super::super) fn turn(self: &Arc<Cell>, change: impl FnOnce(&mut Shard, Turn)) {
        let mut state = self.state.lock();
        if let State::Active(active) = &mut *state {
            let turn = self.surroundings.turn();
            change(&mut active.shard, turn);
            let answers = self.finish_turn(&mut active.shard, turn);
            reply(&mut active.replies, answers);
        }
    }

    /// A turn for a request, and the wait for its answer.
    pub(super) async fn ask(
        self: &Arc<Cell>,
        ticket: Ticket,
        request: impl FnOnce(&mut Shard, Ticket, Turn),
    ) -> Result<Answer, ErrorCode> {
        let receiver = {
            let mut state = self.state.lock();
            let active = match &mut *state {
                State::Active(active) => active,
                other => return Err(other.error()),
            };
            let turn = self.surroundings.turn();
            request(&mut active.shard, ticket, turn);
            let mut answers = self.finish_turn(&mut active.shard, turn);
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

    /// Appends what the shard wants written, does what is due, passes on its markers, and takes the answers.
    fn finish_turn(self: &Arc<Cell>, shard: &mut Shard, turn: Turn) -> Vec<(Ticket, Answer)> {
        loop {
            while let Some(write) = shard.next_write() {
                match self.append(&write, turn) {
                    Ok(Appended { last_offset, acknowledged }) => {
                        shard.written(write, last_offset.0);
                        match acknowledged {
                            Acknowledged::Now => shard.acknowledged(last_offset.0, turn),
                            Acknowledged::Later(later) => self.await_acknowledgement(last_offset.0, later),
                        }
                    }
                    Err(error) => shard.refused(write, error, turn),
                }
            }
            if shard.next_deadline_ms() > turn.now.monotonic_ms || !shard.expire_next(turn) {
                break;
            }
        }
        self.surroundings.markers.add(self, shard.take_orders());
        let needing_ids = shard.take_needing_ids();
        let next_ms = shard.next_deadline_ms();
        let is_nearer = self.next_deadline_ms.swap(next_ms, Ordering::AcqRel) > next_ms;
        if is_nearer || !needing_ids.is_empty() {
            let needing = needing_ids.into_iter().map(|id| (self.clone(), id));
            self.surroundings.needing_ids.lock().extend(needing);
            self.surroundings.wake.notify_one();
        }
        shard.take_released()
    }

    fn append(&self, write: &Write, turn: Turn) -> Result<Appended, ErrorCode> {
        let mut builder = BatchBuilder::with_capacity(BatchOptions::default(), BATCH_BYTES);
        for (key, value) in &write.records {
            builder
                .append(turn.now.wall_ms, Some(key), value.as_deref(), &[])
                .map_err(|_| ErrorCode::RecordListTooLarge)?;
        }
        self.log.append(self.partition, self.leader_epoch, builder.build(), AppendAs::default())
    }

    fn await_acknowledgement(
        self: &Arc<Cell>,
        last_offset: i64,
        later: impl Future<Output = Result<(), ErrorCode>> + Send + 'static,
    ) {
        let cell = self.clone();
        self.runtime.spawn(async move {
            let result = later.await;
            cell.turn(|shard, turn| match result {
                Ok(()) => shard.acknowledged(last_offset, turn),
                Err(error) => shard.unacknowledged(last_offset, error, turn),
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
