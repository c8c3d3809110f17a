//! The one task that owns the controller's state and its log.
//!
//! Events: a request arrives, a sync ends, a snapshot is written, a deadline passes (a waiting Fetch, a
//! broker's session, leader balancing, expired delegation tokens, a snapshot). A request is decided, and its
//! records are replayed on a copy of the image, appended, and synced in the background. Only then the answer
//! is sent. Requests that arrive during a sync are decided and appended meanwhile, and the next sync covers
//! all of them. Large requests are decided on a separate thread (`drafts`).
//!
//! After a failed write or sync the task ends: the content of the disk is then unknown, and a restart reads
//! the log again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thalweg_log::{Clock, FlushTarget, LogError};
use thalweg_metadata::{Image, VersionedRecord};
use thalweg_wire::request::{FetchRequest, FetchResponse, FetchSnapshotResponse};
use thalweg_wire::{Message, Refuse};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

use crate::dispatch::HandleError;
use crate::published::PublishedState;
use crate::quorum::{
    AppendFailure, Leader, MetadataLog, Observers, ParsedFetch, Ready, describe_quorum, encode_batch,
    fetch_snapshot,
};
use crate::request_context::{RequestContext, Rulings, Witness};
use crate::state::{
    Api, ApiError, Batch, Call, Claim, Decider, Decision, Extent, Moment, QuotaUse, State, TaskRequest,
    Unwritable,
};

mod drafts;
mod opening;
mod session_clock;
mod snapshots;

use drafts::{Drafts, drafted};
use session_clock::SessionClock;
use snapshots::{Snapshotting, snapshot_written};

/// Maximum number of waiting Fetches. Beyond that, the oldest is answered early.
const PARKED_MAX: usize = 1024;
/// Maximum number of requests taken from the queue before a sync starts.
const DECIDED_AT_ONCE_MAX: usize = 64;
/// Maximum number of decisions on one request that the task itself logs. More are logged on a thread.
const RULINGS_LOGGED_HERE_MAX: usize = 100;
/// Delay after a full disk until the controller writes again without a request, and fills its reserve.
const RETRY: Duration = Duration::from_secs(1);
/// Delay of the retry after a flush with too many open files.
const FLUSH_AGAIN: Duration = Duration::from_millis(200);

pub(crate) type Reply = oneshot::Sender<Result<Bytes, HandleError>>;

/// A command to the task.
#[derive(Debug)]
pub(crate) enum Command {
    Request {
        request: TaskRequest,
        reply: Reply,
    },
    /// Checks the right to an API on the cluster.
    MayUse {
        api: &'static Api,
        by: RequestContext,
        reply: oneshot::Sender<bool>,
    },
    Stop(oneshot::Sender<bool>),
}

/// An answer that waits for its records.
struct PendingReply {
    /// The high watermark at which the answer may be sent.
    until: i64,
    frame: Bytes,
    reply: Reply,
}

/// A Fetch that waits for news.
struct ParkedFetch {
    fetch: ParsedFetch,
    call: Call,
    deadline: Instant,
    reply: Reply,
}

struct Flush {
    task: JoinHandle<SyncOutcome>,
    /// The image that a successful sync commits.
    image: Arc<Image>,
}

/// The state, the log, and the waiting requests.
pub(crate) struct Driver {
    state: State,
    log: MetadataLog,
    /// This node as leader of its epoch.
    leader: Leader,
    observers: Observers,
    drafts: Drafts,
    waiting: VecDeque<PendingReply>,
    parked: VecDeque<ParkedFetch>,
    flush: Option<Flush>,
    /// Time of the retry after a flush with too many open files.
    flush_again_at: Option<Instant>,
    snapshotting: Option<Snapshotting>,
    committed: Arc<Image>,
    snapshot_bytes: u64,
    snapshot_interval: Duration,
    snapshot_at: Option<Instant>,
    rebalance_interval: Option<Duration>,
    rebalance_at: Option<Instant>,
    unclean_election_interval: Duration,
    unclean_election_at: Option<Instant>,
    expire_tokens_at: Option<Instant>,
    /// Time of the next attempt to fill the log's reserve; `None` while the reserve is complete.
    reserve_at: Option<Instant>,
    sessions: SessionClock,
    clock: Clock,
    witness: Option<Arc<dyn Witness>>,
    published: Arc<PublishedState>,
    /// True after an append without room on the disk.
    is_full: bool,
    /// The last unwritable decision.
    unwritable: Option<Unwritable>,
    dead: bool,
}

impl Driver {
    /// The controller's published state.
    pub fn published(&self) -> &Arc<PublishedState> {
        &self.published
    }

    /// The time for decisions. `monotonic_ms` excludes pauses of the controller, which must not end sessions.
    fn now(&mut self) -> Moment {
        if let Some(stall) = self.sessions.look(Instant::now())
            && self.state.has_open_sessions(self.sessions.elapsed_ms())
        {
            let stall_ms = u64::try_from(stall.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(stall_ms, "Controller was paused; extended all broker sessions by the pause");
        }
        Moment { wall_ms: self.clock.now_ms(), monotonic_ms: self.sessions.elapsed_ms() }
    }

    /// Appends a prepared batch, then adopts it.
    fn write(&mut self, batch: Batch, now: Moment, claim: Claim) -> Result<(), AppendFailure> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut next = self.log.end_offset();
        assert_eq!(batch.base_offset(), next, "a batch was prepared for the end of the log");
        let mut encoded = Vec::with_capacity(batch.parts().len());
        for values in batch.parts() {
            encoded.push(encode_batch(next, self.leader.epoch, now.wall_ms, values));
            next += i64::try_from(values.len()).expect("a batch has a bounded number of records");
        }
        let appended = self.log.append_all(&encoded, self.leader.epoch, claim);
        self.plan_reserve();
        appended?;
        self.note_room();
        self.published.wrote(batch.records(), next);
        self.state.adopt(batch, self.leader.epoch, now);
        Ok(())
    }

    /// Plans to fill the reserve, if a part is missing.
    fn plan_reserve(&mut self) {
        if !self.log.has_whole_reserve() {
            let next = Instant::now().checked_add(RETRY);
            self.reserve_at = self.reserve_at.or(next);
        }
    }

    fn fill_reserve(&mut self) {
        self.reserve_at = None;
        self.log.fill_reserve();
        self.plan_reserve();
        self.note_room();
    }

    /// Notes that the disk has room. While a part of the reserve is missing, a successful append is no proof
    /// of room, because it may have used that part.
    fn note_room(&mut self) {
        if self.log.has_whole_reserve() && std::mem::take(&mut self.is_full) {
            tracing::warn!("The metadata log has room again");
        }
    }

    /// Runs until a stop, until all senders are dropped, or until the log cannot be written.
    pub async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        self.schedule();
        loop {
            let deadline = self.next_deadline();
            tokio::select! {
                biased;
                done = flushed(&mut self.flush) => self.on_flushed(done),
                written = snapshot_written(&mut self.snapshotting) => self.on_snapshot(written),
                drafted = drafted(&mut self.drafts) => self.on_drafted(drafted),
                command = commands.recv() => {
                    let mut next = command;
                    for left in (0..DECIDED_AT_ONCE_MAX).rev() {
                        match next {
                            None => {
                                self.stop().await;
                                return;
                            }
                            Some(Command::Stop(done)) => {
                                let is_clean = self.stop().await;
                                // The caller may have given up waiting.
                                let _ = done.send(is_clean);
                                return;
                            }
                            Some(Command::Request { request, reply }) => self.on_request(request, reply),
                            Some(Command::MayUse { api, by, reply }) => {
                                // The caller may have given up waiting.
                                let _ = reply.send(self.authorize(api, &by).is_ok());
                            }
                        }
                        // A command is taken only if it can be served here; otherwise it stays in the queue.
                        match (left > 0).then(|| commands.try_recv()) {
                            Some(Ok(command)) => next = Some(command),
                            Some(Err(_)) | None => break,
                        }
                    }
                }
                () = sleep_until(deadline) => self.on_time(),
            }
            self.begin_flush();
            if self.dead {
                tracing::error!("Controller stops: failed to write the metadata log");
                return;
            }
        }
    }

    fn on_request(&mut self, request: TaskRequest, reply: Reply) {
        match request {
            TaskRequest::Decide { decide, is_large: false } => self.on_decide(&decide, reply),
            TaskRequest::Decide { decide, is_large: true } => self.on_large(decide, reply),
            TaskRequest::Fetch { request, call } => match self.authorize(call.api, &call.by) {
                Ok(()) => self.on_fetch(&request, call, reply),
                Err(error) => {
                    let response = FetchResponse { error_code: error.code.code(), ..Default::default() };
                    respond(reply, &call, &response);
                }
            },
            TaskRequest::FetchSnapshot { request, call } => {
                let response = match self.authorize(call.api, &call.by) {
                    Ok(()) => fetch_snapshot(&request, &self.log, &self.leader, call.version),
                    Err(error) => {
                        FetchSnapshotResponse { error_code: error.code.code(), ..Default::default() }
                    }
                };
                respond(reply, &call, &response);
            }
            TaskRequest::DescribeQuorum { request, call } => {
                let (version, now_ms) = (call.version, self.clock.now_ms());
                let authorized = self.authorize(call.api, &call.by);
                let (log, observers) = (&self.log, &mut self.observers);
                let response = match authorized {
                    Ok(()) => describe_quorum(&request, log, observers, &self.leader, version, now_ms),
                    Err(error) => request.refuse(error.code, error.message.as_deref(), version),
                };
                respond(reply, &call, &response);
            }
        }
    }

    /// Checks the right to an API on the cluster.
    fn authorize(&self, api: &Api, by: &RequestContext) -> Result<(), ApiError> {
        let authorized = api.authorize(&self.state, by);
        self.log_rulings(by.take_rulings());
        authorized
    }

    /// Logs decisions, and passes them to the witness, on a thread if there are many.
    fn log_rulings(&self, rulings: Option<Rulings>) {
        let Some(rulings) = rulings else { return };
        if rulings.len() <= RULINGS_LOGGED_HERE_MAX {
            return rulings.publish(self.witness.as_deref());
        }
        let ((disk, _), witness) = (self.log.snapshot_place(), self.witness.clone());
        drop(disk.spawn(move || rulings.publish(witness.as_deref())));
    }

    fn on_decide(&mut self, decide: &Decider, reply: Reply) {
        let now = self.now();
        self.published.requested();
        let decision = decide(&mut self.state, now);
        self.carry_out(decision, now, reply);
    }

    /// Writes a decision, and answers when it is committed.
    fn carry_out(&mut self, decision: Decision, now: Moment, reply: Reply) {
        let Decision { batch, claim, unwritable, answer, spent, rulings } = decision;
        self.spend(spent.as_ref());
        self.log_rulings(rulings);
        self.note_fault(unwritable.as_ref());
        let frame = match answer {
            Ok(frame) => frame,
            Err(error) => return send(reply, Err(error.into())),
        };
        match self.write(batch, now, claim) {
            Ok(()) => {}
            Err(AppendFailure::Full(error)) => {
                self.published.disk_was_full();
                self.note_full(&error);
                return send(reply, Err(HandleError::DiskFull));
            }
            Err(AppendFailure::Dead(error)) => {
                self.die(&error);
                return send(reply, Err(HandleError::Stopped));
            }
        }
        self.answer_after(self.log.end_offset(), frame, reply);
    }

    /// Decides a request and appends its records, without a sync or an answer.
    #[cfg(test)]
    pub fn decide_unsynced(&mut self, decide: &Decider) -> Result<Bytes, Unwritable> {
        let now = self.now();
        let Decision { batch, unwritable, answer, .. } = decide(&mut self.state, now);
        self.write(batch, now, Claim::Ordinary).expect("the disk has room");
        unwritable.map_or_else(|| Ok(answer.expect("an answer can be written")), Err)
    }

    /// The image with all records so far.
    #[cfg(test)]
    pub fn image(&self) -> &Arc<Image> {
        self.state.image()
    }

    /// Charges the use of a decision to its client's quota.
    fn spend(&mut self, spent: Option<&QuotaUse>) {
        if let Some(spent) = spent {
            let now = self.now();
            let tokens = self.state.spend(spent, now);
            self.published.spent(spent, tokens);
        }
    }

    /// Answers once everything before an offset is committed.
    fn answer_after(&mut self, until: i64, frame: Bytes, reply: Reply) {
        if until <= self.log.high_watermark() {
            send(reply, Ok(frame));
        } else {
            self.waiting.push_back(PendingReply { until, frame, reply });
        }
    }

    fn on_fetch(&mut self, request: &FetchRequest, call: Call, reply: Reply) {
        let fetch = match ParsedFetch::read(request, &self.leader, call.version) {
            Ok(fetch) => fetch,
            Err(response) => return respond(reply, &call, &*response),
        };
        let wait = Duration::from_millis(u64::try_from(fetch.max_wait_ms).unwrap_or(0));
        let deadline = Instant::now() + wait;
        let parked = ParkedFetch { fetch, call, deadline, reply };
        if let Some(parked) = self.serve(parked, wait.is_zero()) {
            if self.parked.len() >= PARKED_MAX
                && let Some(oldest) = self.parked.pop_front()
            {
                self.serve(oldest, true);
            }
            self.parked.push_back(parked);
        }
    }

    /// Answers a Fetch if there is news or it must not wait. Otherwise returns the Fetch.
    fn serve(&mut self, parked: ParkedFetch, at_once: bool) -> Option<ParkedFetch> {
        let now_ms = self.clock.now_ms();
        let (log, observers) = (&mut self.log, &mut self.observers);
        match parked.fetch.answer(log, observers, &self.leader, parked.call.version, now_ms) {
            Ok(answer) if answer.ready == Ready::Now || at_once => {
                respond(parked.reply, &parked.call, &answer.response);
                None
            }
            Ok(_) => Some(parked),
            Err(error) if error.is_shortage() => {
                tracing::warn!(%error, "Failed to read the metadata log, retrying");
                send(parked.reply, Err(HandleError::DiskFull));
                None
            }
            Err(error) => {
                self.die(&error);
                None
            }
        }
    }

    fn serve_parked(&mut self) {
        for parked in std::mem::take(&mut self.parked) {
            if let Some(parked) = self.serve(parked, false) {
                self.parked.push_back(parked);
            }
        }
    }

    fn begin_flush(&mut self) {
        let is_early = self.flush_again_at.is_some_and(|at| Instant::now() < at);
        if self.flush.is_some() || self.dead || is_early {
            return;
        }
        self.flush_again_at = None;
        match self.log.flush_target() {
            Ok(None) => {}
            Ok(Some(target)) => {
                let image = self.state.image().clone();
                let (disk, recovery_point) = (target.disk().clone(), self.log.recovery_point());
                let task = disk.spawn(move || {
                    let outcome = target.sync();
                    if outcome.is_ok() {
                        recovery_point.write(target.up_to());
                    }
                    (target, outcome)
                });
                self.flush = Some(Flush { task, image });
            }
            Err(error) => self.flush_later(error),
        }
    }

    /// Retries a flush that failed for lack of descriptors. Any other error ends the task.
    fn flush_later(&mut self, error: LogError) {
        if !error.is_shortage() || self.log.is_poisoned() {
            return self.die(&error);
        }
        tracing::warn!(%error, "Failed to flush the metadata log, retrying");
        self.flush_again_at = Some(Instant::now() + FLUSH_AGAIN);
    }

    fn on_flushed(&mut self, done: FlushOutcome) {
        match done {
            Ok(((target, outcome), image)) => match self.log.complete_flush(&target, outcome) {
                Ok(()) => self.commit(image),
                Err(error) => return self.flush_later(error),
            },
            Err(error) => return self.die(&error),
        }
        let high_watermark = self.log.high_watermark();
        while self.waiting.front().is_some_and(|waiting| waiting.until <= high_watermark) {
            let waiting = self.waiting.pop_front().expect("there is a first one");
            send(waiting.reply, Ok(waiting.frame));
        }
        self.serve_parked();
        if self.log.bytes_since_snapshot >= self.snapshot_bytes {
            self.begin_snapshot();
        } else if self.snapshot_at.is_none() && !self.snapshot_interval.is_zero() {
            self.snapshot_at = Instant::now().checked_add(self.snapshot_interval);
        }
    }

    fn commit(&mut self, image: Arc<Image>) {
        self.published.commit(&image);
        self.committed = image;
    }

    fn schedule(&mut self) {
        self.rebalance_at = self.rebalance_interval.and_then(|interval| Instant::now().checked_add(interval));
        self.unclean_election_at = Instant::now().checked_add(self.unclean_election_interval);
        let interval = self.state.expire_tokens_interval();
        self.expire_tokens_at = interval.and_then(|interval| Instant::now().checked_add(interval));
        if !self.snapshot_interval.is_zero() {
            self.snapshot_at = Instant::now().checked_add(self.snapshot_interval);
        }
        if self.log.replay_is_long() {
            // A snapshot spares the next start this replay.
            self.begin_snapshot();
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let session = self.state.next_session_end_ms().map(|ms| {
            // An expired session that could not be processed is retried a little later.
            self.sessions.instant_of(ms).max(Instant::now() + Duration::from_millis(1))
        });
        let has_sessions = self.state.has_open_sessions(self.sessions.elapsed_ms());
        let look = has_sessions.then(|| self.sessions.next_look());
        let fetch = self.parked.iter().map(|parked| parked.deadline).min();
        let periodic = [self.snapshot_at, self.rebalance_at, self.unclean_election_at, self.expire_tokens_at];
        [session, look, fetch, self.flush_again_at, self.reserve_at]
            .into_iter()
            .chain(periodic)
            .flatten()
            .min()
    }

    fn on_time(&mut self) {
        let instant = Instant::now();
        for parked in std::mem::take(&mut self.parked) {
            if parked.deadline <= instant {
                self.serve(parked, true);
            } else {
                self.parked.push_back(parked);
            }
        }
        let now = self.now();
        if let Some(fencing) = self.state.fence_stale_brokers(now) {
            if !self.write_of_itself(fencing.records, now) {
                return;
            }
            self.published.sessions_ended(fencing.brokers);
        }
        if self.reserve_at.is_some_and(|at| at <= instant) {
            self.fill_reserve();
        }
        if self.snapshot_at.is_some_and(|at| at <= instant) {
            self.begin_snapshot();
        }
        if self.rebalance_at.is_some_and(|at| at <= instant) {
            let pass = self.state.balance_leaders();
            let more = self.write_of_itself(pass.records, now) && pass.more;
            let next = |interval| instant.checked_add(if more { Duration::ZERO } else { interval });
            self.rebalance_at = self.rebalance_interval.and_then(next);
        }
        if self.unclean_election_at.is_some_and(|at| at <= instant) {
            let pass = self.state.elect_unclean_leaders();
            let more = self.write_of_itself(pass.records, now) && pass.more;
            let next = if more { Duration::ZERO } else { self.unclean_election_interval };
            self.unclean_election_at = instant.checked_add(next);
        }
        if self.expire_tokens_at.is_some_and(|at| at <= instant) {
            let expired = self.state.remove_expired_tokens(now);
            let more = self.write_of_itself(expired.records, now) && expired.more;
            let next = |interval| instant.checked_add(if more { Duration::ZERO } else { interval });
            self.expire_tokens_at = self.state.expire_tokens_interval().and_then(next);
        }
    }

    /// Writes records without a request. Returns true if the records were appended.
    fn write_of_itself(&mut self, records: Vec<VersionedRecord>, now: Moment) -> bool {
        let batch = match self.state.prepare(records, Extent::Several) {
            Ok(batch) => batch,
            Err(unwritable) => {
                self.note_unwritable(&unwritable);
                self.state.postpone_sessions(now, RETRY);
                return false;
            }
        };
        match self.write(batch, now, Claim::Ordinary) {
            Ok(()) => true,
            Err(AppendFailure::Full(error)) => {
                self.note_full(&error);
                self.state.postpone_sessions(now, RETRY);
                false
            }
            Err(AppendFailure::Dead(error)) => {
                self.die(&error);
                false
            }
        }
    }

    /// Logs a full disk once until an append finds room, because brokers retry many times per second.
    fn note_full(&mut self, error: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.is_full, true) {
            tracing::error!(%error, "The metadata log has no room; requests are refused until it has");
        }
    }

    /// Logs the reason for a refusal, if the decision is at fault.
    fn note_fault(&mut self, unwritable: Option<&Unwritable>) {
        if let Some(fault) = unwritable.filter(|unwritable| unwritable.is_fault()) {
            self.note_unwritable(fault);
        }
    }

    /// Logs an unwritable decision, once while it is repeated.
    fn note_unwritable(&mut self, unwritable: &Unwritable) {
        if self.unwritable.as_ref() != Some(unwritable) {
            tracing::error!(
                offset = self.state.next_offset(), %unwritable,
                "A decision does not fit the metadata image: refused it, and wrote nothing. Please report this"
            );
            self.unwritable = Some(unwritable.clone());
        }
    }

    fn die(&mut self, error: &dyn std::fmt::Display) {
        tracing::error!(%error, "The metadata log failed and is closed for writes");
        self.dead = true;
    }

    /// Stops, and returns true if the log was closed cleanly.
    async fn stop(mut self) -> bool {
        if let Some(flush) = self.flush.take()
            && let Ok((target, outcome)) = flush.task.await
            && let Err(error) = self.log.complete_flush(&target, outcome)
        {
            self.die(&error);
        }
        if let Some(snapshotting) = self.snapshotting.take() {
            let outcome = snapshotting.task.await;
            self.on_snapshot((snapshotting.id, outcome));
        }
        if self.dead {
            return false;
        }
        let (disk, _) = self.log.snapshot_place();
        let closed = disk.spawn(move || {
            let flushed = self.log.flush();
            let high_watermark = self.log.high_watermark();
            for waiting in self.waiting.drain(..).filter(|waiting| waiting.until <= high_watermark) {
                send(waiting.reply, Ok(waiting.frame));
            }
            if flushed.is_ok() {
                self.snapshot_at_the_end();
            }
            flushed.and_then(|()| self.log.close())
        });
        match closed.await {
            Ok(Ok(())) => {
                tracing::info!("Controller stopped");
                return true;
            }
            Ok(Err(error)) => tracing::error!(%error, "Failed to close the metadata log"),
            Err(error) => tracing::error!(%error, "Failed to close the metadata log"),
        }
        false
    }
}

fn respond<M: Message>(reply: Reply, call: &Call, response: &M) {
    send(reply, call.encode(response).map_err(HandleError::from));
}

/// Sends an answer. The caller may have given up waiting.
fn send(reply: Reply, answer: Result<Bytes, HandleError>) {
    let _ = reply.send(answer);
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The outcome of a sync.
type SyncOutcome = (FlushTarget, std::io::Result<()>);
/// The outcome of a sync, with the image that it commits.
type FlushOutcome = Result<(SyncOutcome, Arc<Image>), JoinError>;

async fn flushed(flush: &mut Option<Flush>) -> FlushOutcome {
    match flush {
        None => std::future::pending().await,
        Some(running) => {
            let done = (&mut running.task).await;
            let image = flush.take().expect("it was there before the wait").image;
            done.map(|synced| (synced, image))
        }
    }
}
