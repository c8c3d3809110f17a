//! A shard with its lock: appends its writes under the lock, and sends its answers to waiting requests.

use super::answers::{HeldAnswers, ReplicatedValue};
use super::context::CellContext;
use super::log::LostOffsets;
use super::{
    AppendedBatch, DividedWrites, Moment, Part, Shard, ShardAnswer, ShardLoadError, Ticket, Unavailability,
    WriteError,
};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use thalweg_hash::HashMap;
use thalweg_metadata::PartitionIndex;
use thalweg_record::{DecompressBuffer, Offset};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// Maximum number of writes of a shard that wait for the replicas. Each takes memory while the replicas are
/// away.
const AWAITED_MAX: usize = 1 << 16;

/// A partition of a coordinator's topic in one leader epoch.
pub struct Cell<S: Shard> {
    partition: PartitionIndex,
    leader_epoch: i32,
    context: Arc<CellContext<S>>,
    next_deadline_ms: AtomicI64,
    state: Mutex<State<S>>,
    /// Notified when the shard is unloaded.
    gone: Notify,
}

enum State<S: Shard> {
    Loading,
    Active(Box<ActiveShard<S>>),
    /// The log could not be read, and the cause is not temporary. Attempts continue all the same.
    Failed,
    /// The shard belongs to another broker or another epoch.
    Gone,
}

/// The loading state of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Loading,
    Active,
    Failed,
    Gone,
}

struct ActiveShard<S: Shard> {
    shard: S,
    held: HeldAnswers<S::Answer>,
    replies: Replies<S::Answer>,
    /// Unacknowledged writes, in the order of the log.
    awaited: VecDeque<AppendedBatch>,
    /// True if a task waits for the first of these writes.
    is_followed: bool,
}

type Replies<A> = HashMap<Ticket, oneshot::Sender<A>>;

impl<S: Shard> fmt::Debug for Cell<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}-{} in epoch {}", S::KEEPS, S::TOPIC, self.partition, self.leader_epoch)
    }
}

impl<S: Shard> Cell<S> {
    pub(super) fn new(partition: PartitionIndex, leader_epoch: i32, context: Arc<CellContext<S>>) -> Cell<S> {
        let (next_deadline_ms, state) = (AtomicI64::new(i64::MAX), Mutex::new(State::Loading));
        Cell { partition, leader_epoch, context, next_deadline_ms, state, gone: Notify::new() }
    }

    pub(super) fn leader_epoch(&self) -> i32 {
        self.leader_epoch
    }

    pub(super) fn next_deadline_ms(&self) -> i64 {
        self.next_deadline_ms.load(Ordering::Acquire)
    }

    /// The loading state of the shard.
    pub(super) fn progress(&self) -> Progress {
        match *self.state.lock() {
            State::Loading => Progress::Loading,
            State::Active(_) => Progress::Active,
            State::Failed => Progress::Failed,
            State::Gone => Progress::Gone,
        }
    }

    /// True if the shard is loaded, so that its pending work still matters.
    pub fn is_active(&self) -> bool {
        matches!(*self.state.lock(), State::Active(_))
    }

    /// Returns when the shard is unloaded. Only one task may wait.
    pub(super) async fn gone(&self) {
        self.gone.notified().await;
    }

    /// True if the shard has yet to be loaded.
    fn is_awaited(&self) -> bool {
        matches!(*self.state.lock(), State::Loading | State::Failed)
    }

    /// Replays the log into a new shard, which then starts serving. Blocks. A failed attempt may be followed
    /// by another one.
    pub(super) fn load(self: &Arc<Cell<S>>) -> Result<(), ShardLoadError> {
        let begun = Instant::now();
        let (_, turn) = self.context.turn();
        let mut shard = S::new(&self.context.shared, self.leader_epoch, turn);
        let mut buffer = DecompressBuffer::default();
        let mut acknowledged_before = Offset(0);
        let mut lost = LostOffsets::default();
        let mut each = |part: Part<'_>| {
            if !self.is_awaited() {
                return Err(ShardLoadError::NotLeader);
            }
            match part {
                Part::Piece(piece) => {
                    piece.check()?;
                    acknowledged_before = piece.acknowledged_before;
                    shard.replay(piece, &mut buffer, turn)
                }
                Part::Lost(offsets) if S::LOSS.is_some() => {
                    shard.skip_lost();
                    lost.add(offsets);
                    Ok(())
                }
                Part::Lost(offsets) => Err(ShardLoadError::DamagedLog { offset: offsets.start.0 }),
            }
        };
        let unacknowledged = self.context.log.replay(self.partition, self.leader_epoch, &mut each)?;
        if let Some(consequences) = S::LOSS.filter(|_| !lost.is_empty()) {
            tracing::error!(
                cell = ?self, offsets = %lost, consequences,
                "Records are damaged, and no replica has them: serving without them"
            );
        }
        self.context.loads.record_time(begun.elapsed());
        self.loaded(shard, acknowledged_before, unacknowledged);
        Ok(())
    }

    fn loaded(
        self: &Arc<Cell<S>>,
        mut shard: S,
        acknowledged_before: Offset,
        unacknowledged: Option<AppendedBatch>,
    ) {
        let mut state = self.state.lock();
        if matches!(*state, State::Loading | State::Failed) {
            let (now, turn) = self.context.turn();
            let unacknowledged_to = unacknowledged.map(|appended| appended.last_offset.0);
            let replicated_to = acknowledged_before.0.max(0) - 1;
            let held = HeldAnswers::new(unacknowledged_to.unwrap_or(replicated_to), replicated_to);
            shard.loaded(unacknowledged_to, turn);
            let awaited = unacknowledged.into_iter().collect();
            let mut active =
                ActiveShard { shard, held, replies: HashMap::default(), awaited, is_followed: false };
            self.finish_turn(&mut active, now, turn);
            debug_assert_eq!(active.held.drain().count(), 0, "nobody has asked yet");
            self.log_count("Loaded", active.shard.count());
            *state = State::Active(Box::new(active));
        }
    }

    /// Redirects requests, because the log cannot be read.
    pub(super) fn fail(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Loading) {
            *state = State::Failed;
        }
    }

    /// Unloads the shard.
    pub(super) fn unload(&self) {
        self.next_deadline_ms.store(i64::MAX, Ordering::Release);
        self.gone.notify_one();
        if let State::Active(active) = std::mem::replace(&mut *self.state.lock(), State::Gone) {
            let ActiveShard { mut shard, mut held, mut replies, .. } = *active;
            self.log_count("Unloaded", shard.count());
            shard.unload();
            held.take_in(shard.answers(), i64::MAX);
            held.fail_all(WriteError::NotLeader);
            reply(&mut replies, &mut held);
        }
    }

    fn log_count(&self, what: &str, count: usize) {
        if count > 0 {
            let (partition, leader_epoch) = (self.partition, self.leader_epoch);
            tracing::info!(%partition, leader_epoch, count, "{what} {}", S::KEEPS);
        }
    }

    /// Reads the acknowledged state of the shard, without a turn.
    pub fn read<R>(&self, read: impl FnOnce(&S) -> ReplicatedValue<R>) -> Result<R, Unavailability> {
        self.peek(|shard| read(shard).into_inner())
    }

    /// Reads the latest state of the shard, for figures and for preparing requests. Clients must not see the
    /// result.
    pub fn peek<R>(&self, read: impl FnOnce(&S) -> R) -> Result<R, Unavailability> {
        match &*self.state.lock() {
            State::Active(active) => Ok(read(&active.shard)),
            other => Err(other.error()),
        }
    }

    /// Runs a turn without an answer.
    pub fn turn(self: &Arc<Cell<S>>, change: impl FnOnce(&mut S, S::TurnContext)) {
        let mut state = self.state.lock();
        if let State::Active(active) = &mut *state {
            let (now, turn) = self.context.turn();
            change(&mut active.shard, turn);
            self.finish_turn(active, now, turn);
            reply(&mut active.replies, &mut active.held);
        }
    }

    /// Runs a turn for a request, and waits for its answer.
    pub(super) async fn request(
        self: &Arc<Cell<S>>,
        ticket: Ticket,
        request: impl FnOnce(&mut S, Ticket, S::TurnContext),
    ) -> Result<S::Answer, Unavailability> {
        let receiver = {
            let mut state = self.state.lock();
            let active = match &mut *state {
                State::Active(active) => active,
                other => return Err(other.error()),
            };
            let (now, turn) = self.context.turn();
            request(&mut active.shard, ticket, turn);
            self.finish_turn(active, now, turn);
            let own = active.held.take(ticket);
            reply(&mut active.replies, &mut active.held);
            if let Some(answer) = own {
                return Ok(answer);
            }
            let (sender, receiver) = oneshot::channel();
            active.replies.insert(ticket, sender);
            receiver
        };
        receiver.await.map_err(|_| Unavailability::NotCoordinator)
    }

    /// Appends the shard's writes, collects the answers, runs due work, and passes on other effects.
    fn finish_turn(self: &Arc<Cell<S>>, active: &mut ActiveShard<S>, now: Moment, turn: S::TurnContext) {
        let ActiveShard { shard, held, awaited, is_followed, .. } = active;
        let expires_ms = now.monotonic_ms.saturating_add(S::answer_timeout_ms(&self.context.shared));
        let mut divided = DividedWrites::default();
        loop {
            while let Some(write) = divided.next(shard) {
                match self.append(&write, awaited, now) {
                    Ok(appended) => {
                        let last_offset = appended.last_offset.0;
                        shard.written(write, last_offset, turn);
                        held.written(last_offset);
                        if awaited.is_empty() && appended.is_replicated && appended.is_flushed {
                            shard.acknowledged(last_offset, turn);
                            held.acknowledged(last_offset);
                        } else {
                            awaited.push_back(appended);
                        }
                    }
                    Err(error) => {
                        let batch_bytes_max = self.context.log.batch_bytes_max(self.partition);
                        divided.refused(shard, write, error, batch_bytes_max, turn);
                    }
                }
            }
            held.take_in(shard.answers(), expires_ms);
            if shard.next_deadline_ms() > now.monotonic_ms || !shard.expire_next(turn) {
                break;
            }
        }
        held.expire(now.monotonic_ms);
        if !awaited.is_empty() && !std::mem::replace(is_followed, true) {
            self.context.runtime.spawn(Arc::clone(self).follow());
        }
        let is_wanted = shard.pass_on(&self.context.shared, self);
        let next_ms = shard.next_deadline_ms().min(held.next_deadline_ms());
        let is_nearer = self.next_deadline_ms.swap(next_ms, Ordering::AcqRel) > next_ms;
        if is_nearer || is_wanted {
            self.context.wake.notify_one();
        }
    }

    fn append(
        &self,
        write: &S::Write,
        awaited: &VecDeque<AppendedBatch>,
        now: Moment,
    ) -> Result<AppendedBatch, WriteError> {
        if awaited.len() >= AWAITED_MAX {
            return Err(WriteError::TooManyWait);
        }
        let (batch, options) = S::batch(&self.context.shared, write, now)?;
        self.context.log.append(self.partition, self.leader_epoch, batch, options)
    }

    /// Waits for the acknowledgements of writes, one after the other.
    async fn follow(self: Arc<Cell<S>>) {
        while let Some(first) = self.first_awaited() {
            let result = self.context.log.acknowledgement(self.partition, self.leader_epoch, first).await;
            self.acknowledge(first, result);
        }
    }

    fn first_awaited(&self) -> Option<AppendedBatch> {
        let mut state = self.state.lock();
        let State::Active(active) = &mut *state else { return None };
        active.is_followed = !active.awaited.is_empty();
        active.awaited.front().copied()
    }

    /// Handles the acknowledgement of the first awaited write and of all writes up to the offset, or its
    /// failure.
    fn acknowledge(self: &Arc<Cell<S>>, first: AppendedBatch, result: Result<Offset, WriteError>) {
        let mut state = self.state.lock();
        let State::Active(active) = &mut *state else { return };
        let (now, turn) = self.context.turn();
        active.awaited.pop_front();
        match result {
            Ok(before) => {
                let mut last_offset = first.last_offset;
                let counts = |next: &mut AppendedBatch| next.is_flushed && next.last_offset < before;
                while let Some(next) = active.awaited.pop_front_if(counts) {
                    last_offset = next.last_offset;
                }
                active.shard.acknowledged(last_offset.0, turn);
                active.held.acknowledged(last_offset.0);
            }
            // The shard is about to be unloaded, which answers all requests.
            Err(WriteError::NotLeader) => active.awaited.clear(),
            Err(error) => {
                active.shard.unacknowledged(first.last_offset.0, error, turn);
                active.held.unacknowledged(first.last_offset.0, error);
            }
        }
        self.finish_turn(active, now, turn);
        reply(&mut active.replies, &mut active.held);
    }
}

impl<S: Shard> State<S> {
    /// The error for a request in this state.
    fn error(&self) -> Unavailability {
        match self {
            State::Loading => Unavailability::Loading,
            State::Failed | State::Gone => Unavailability::NotCoordinator,
            State::Active(_) => unreachable!("an active shard serves"),
        }
    }
}

/// Sends released answers to requests that still wait.
fn reply<A: ShardAnswer>(replies: &mut Replies<A>, held: &mut HeldAnswers<A>) {
    for (ticket, answer) in held.drain() {
        if let Some(sender) = replies.remove(&ticket) {
            let _ = sender.send(answer);
        }
    }
}
