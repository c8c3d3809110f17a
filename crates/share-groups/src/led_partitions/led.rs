//! A share partition whose partition is led here: its state behind one lock, and the writes of its persistent
//! state.
//!
//! The state is loaded from the share coordinator when a member first reads the partition. Changes are
//! written in order, one write at a time; changes that arrive meanwhile share the next write. A write task
//! runs only while there are changes. When another broker becomes the leader or the state is reset, the share
//! partition ends here, and waiting requests fail or retry.

use super::LedSharePartitions;
use super::acknowledgement_failure::AcknowledgementFailure;
use super::settings::ShareSettings;
use crate::states::PersistError;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use thalweg_config::ShareOffsetReset;
use thalweg_record::LeaderEpoch;
use thalweg_replica::partition::{Isolation, Partition, Reader, Waiter, Waiters};
use thalweg_share::{
    AcknowledgeError, Acknowledgement, AcquiredRun, SharePartition, SharePartitionKey, ShareState,
    StateBatch, StateUpdate,
};
use thalweg_wire::ErrorCode;
use thalweg_wire::list_offsets::{EARLIEST_TIMESTAMP, LATEST_TIMESTAMP};
use tokio::sync::{Notify, oneshot};

/// The outcome of an acknowledgement, once it is written.
pub type AcknowledgementOutcome = Result<(), AcknowledgementFailure>;

/// The pending result of an acknowledgement.
pub enum PendingAcknowledgement {
    /// The outcome is decided.
    Now(AcknowledgementOutcome),
    /// The acknowledgements are being written.
    Later(oneshot::Receiver<AcknowledgementOutcome>),
}

impl PendingAcknowledgement {
    pub async fn outcome(self) -> AcknowledgementOutcome {
        match self {
            PendingAcknowledgement::Now(outcome) => outcome,
            // A write always sends an outcome, unless the broker stops.
            PendingAcknowledgement::Later(answer) => {
                answer.await.unwrap_or(Err(AcknowledgementFailure::Unserved(ErrorCode::NotLeaderOrFollower)))
            }
        }
    }
}

enum Stage {
    /// The state has been requested from the coordinator.
    Loading,
    Active(SharePartition),
    /// Not served here.
    Ended(ErrorCode),
}

/// A change to write.
struct Change {
    batches: Vec<StateBatch>,
    /// True if the records wait for the write. Expired locks do not.
    is_pending: bool,
    done: Option<oneshot::Sender<AcknowledgementOutcome>>,
}

struct State {
    stage: Stage,
    queue: VecDeque<Change>,
    is_writing: bool,
    waiters: Waiters,
}

/// A share partition led here. Requests of its members drive it, and one write task while there are changes.
pub struct LedSharePartition {
    key: SharePartitionKey,
    leader_epoch: LeaderEpoch,
    state: Mutex<State>,
    /// End of the next acquisition lock; `i64::MAX` for none.
    next_deadline_ms: AtomicI64,
    written: Notify,
}

/// Counts of a share partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareFigures {
    /// Offsets in flight.
    pub offsets: i64,
    /// Runs of offsets with one state.
    pub runs: usize,
}

/// The error code that members get for a failure of the share coordinator.
fn code_for_members(error: PersistError) -> ErrorCode {
    match error {
        PersistError::Unavailable => ErrorCode::CoordinatorNotAvailable,
        PersistError::FencedLeaderEpoch | PersistError::FencedStateEpoch => ErrorCode::NotLeaderOrFollower,
        PersistError::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
        PersistError::Invalid | PersistError::Refused(_) => ErrorCode::UnknownServerError,
    }
}

/// Remedy for an administrator if the failure lasts.
fn remedy(error: PersistError) -> Option<&'static str> {
    let is_gone = error == PersistError::Invalid;
    is_gone.then_some(
        "if that lasts, the state is lost: stop the members, then reset the group's offsets of the topic",
    )
}

impl LedSharePartition {
    pub(super) fn new(key: SharePartitionKey, leader_epoch: LeaderEpoch) -> LedSharePartition {
        let stage = Stage::Loading;
        let state = State { stage, queue: VecDeque::new(), is_writing: false, waiters: Waiters::default() };
        LedSharePartition {
            key,
            leader_epoch,
            state: Mutex::new(state),
            next_deadline_ms: AtomicI64::new(i64::MAX),
            written: Notify::new(),
        }
    }

    /// Group, topic and partition.
    pub fn key(&self) -> &SharePartitionKey {
        &self.key
    }

    /// Leader epoch of the partition when the share partition was created.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// End of the next acquisition lock.
    pub(super) fn next_deadline_ms(&self) -> i64 {
        self.next_deadline_ms.load(Ordering::Relaxed)
    }

    /// Counts of the share partition; zero while it is not loaded.
    pub fn figures(&self) -> ShareFigures {
        match &self.state.lock().stage {
            Stage::Active(partition) => {
                ShareFigures { offsets: partition.in_flight(), runs: partition.runs() }
            }
            Stage::Loading | Stage::Ended(_) => ShareFigures::default(),
        }
    }

    /// True if the share partition is no longer served here.
    pub(super) fn is_ended(&self) -> bool {
        matches!(self.state.lock().stage, Stage::Ended(_))
    }

    /// True if changes are being written.
    pub(super) fn is_writing(&self) -> bool {
        self.state.lock().is_writing
    }

    /// Adds a waiting fetch. Returns true if the fetch could use new records, because there is room for them.
    pub fn watch(&self, waiter: &Arc<Waiter>, settings: &ShareSettings) -> bool {
        let mut state = self.state.lock();
        state.waiters.add(waiter);
        match &mut state.stage {
            Stage::Active(partition) => partition.fetch_offset(&settings.limits).is_some(),
            Stage::Loading | Stage::Ended(_) => false,
        }
    }

    /// Runs `work` on the loaded state. Returns `Ok(None)` while the state is loading, and an error after its
    /// end.
    pub fn with<T>(&self, work: impl FnOnce(&mut SharePartition) -> T) -> Result<Option<T>, ErrorCode> {
        let mut state = self.state.lock();
        match &mut state.stage {
            Stage::Loading => Ok(None),
            Stage::Ended(error) => Err(*error),
            Stage::Active(partition) => {
                let done = work(partition);
                self.note_deadline(partition);
                Ok(Some(done))
            }
        }
    }

    /// Releases acquired records that were not sent to the member.
    pub fn take_back(&self, member: &str, runs: &[AcquiredRun]) {
        let taken = self.with(|share| {
            for run in runs {
                share.take_back(member, run.first, run.last);
            }
        });
        // An ended share partition has no acquired records.
        if taken.is_ok() {
            self.state.lock().waiters.wake_all();
        }
    }

    fn note_deadline(&self, partition: &SharePartition) {
        let deadline_ms = partition.next_deadline_ms().unwrap_or(i64::MAX);
        self.next_deadline_ms.store(deadline_ms, Ordering::Relaxed);
    }

    /// Applies a member's acknowledgements.
    pub fn acknowledge(
        self: &Arc<Self>,
        share_partitions: &Arc<LedSharePartitions>,
        member: &str,
        acknowledgements: &[Acknowledgement<'_>],
    ) -> PendingAcknowledgement {
        let (limits, now_ms) = (share_partitions.settings(&self.key.group).limits, share_partitions.now_ms());
        let mut state = self.state.lock();
        let taken = match &mut state.stage {
            Stage::Active(partition) => {
                let taken = partition.acknowledge(member, acknowledgements, &limits, now_ms);
                self.note_deadline(partition);
                taken
            }
            Stage::Loading => Err(AcknowledgeError::NotAcquired),
            Stage::Ended(error) => {
                return PendingAcknowledgement::Now(Err(AcknowledgementFailure::Unserved(*error)));
            }
        };
        match taken {
            Err(error) => {
                tracing::debug!(key = ?self.key, member, %error, "Refused acknowledgements");
                PendingAcknowledgement::Now(Err(AcknowledgementFailure::Refused(error)))
            }
            Ok(batches) if batches.is_empty() => PendingAcknowledgement::Now(Ok(())),
            Ok(batches) => {
                let (done, answer) = oneshot::channel();
                self.enqueue(
                    share_partitions,
                    &mut state,
                    Change { batches, is_pending: true, done: Some(done) },
                );
                PendingAcknowledgement::Later(answer)
            }
        }
    }

    /// Releases the records of a member whose session ended.
    pub(super) fn release(self: &Arc<Self>, share_partitions: &Arc<LedSharePartitions>, member: &str) {
        let limits = share_partitions.settings(&self.key.group).limits;
        let mut state = self.state.lock();
        let Stage::Active(partition) = &mut state.stage else { return };
        let batches = partition.release_member(member, &limits);
        if !batches.is_empty() {
            self.enqueue(share_partitions, &mut state, Change { batches, is_pending: true, done: None });
        }
    }

    /// Ends expired acquisition locks.
    pub(super) fn expire(self: &Arc<Self>, share_partitions: &Arc<LedSharePartitions>) {
        let (limits, now_ms) = (share_partitions.settings(&self.key.group).limits, share_partitions.now_ms());
        let mut state = self.state.lock();
        let Stage::Active(partition) = &mut state.stage else { return };
        let expired = partition.expire(now_ms, &limits);
        self.note_deadline(partition);
        if expired.records > 0 {
            share_partitions.counters.count_expired(expired.records);
            state.waiters.wake_all();
            let change = Change { batches: expired.batches, is_pending: false, done: None };
            self.enqueue(share_partitions, &mut state, change);
        }
    }

    /// Ends the share partition here. Waiting fetches retry.
    pub(super) fn end(&self, error: ErrorCode) {
        let mut state = self.state.lock();
        if !matches!(state.stage, Stage::Ended(_)) {
            state.stage = Stage::Ended(error);
            self.next_deadline_ms.store(i64::MAX, Ordering::Relaxed);
        }
        state.waiters.wake_all();
    }

    /// Ends the share partition unless a write is in flight, so that its successor loads the final state.
    pub(super) fn end_if_idle(&self) -> bool {
        let mut state = self.state.lock();
        if state.is_writing {
            return false;
        }
        // Keep an earlier reason, which waiting fetches still have to return.
        if !matches!(state.stage, Stage::Ended(_)) {
            state.stage = Stage::Ended(ErrorCode::NotLeaderOrFollower);
            self.next_deadline_ms.store(i64::MAX, Ordering::Relaxed);
            state.waiters.wake_all();
        }
        true
    }

    fn enqueue(
        self: &Arc<Self>,
        share_partitions: &Arc<LedSharePartitions>,
        state: &mut State,
        change: Change,
    ) {
        state.queue.push_back(change);
        if !state.is_writing {
            state.is_writing = true;
            tokio::spawn(Arc::clone(self).write_all(Arc::clone(share_partitions)));
        }
    }

    async fn write_all(self: Arc<Self>, share_partitions: Arc<LedSharePartitions>) {
        while let Some((update, changes)) = self.next_write() {
            let outcome = tokio::select! {
                biased;
                outcome = share_partitions.persister.write(&self.key, &update) => outcome,
                // Waiting members get no outcome: the write may or may not have happened.
                () = share_partitions.stopped() => return,
            };
            self.finish(&share_partitions, changes, outcome);
        }
        self.written.notify_waiters();
        share_partitions.forget_ended(&self);
    }

    /// The changes of the next write. A change by expired locks is the last one: another member may
    /// acknowledge these records afterwards, in a change of the following write.
    fn next_write(&self) -> Option<(StateUpdate, Vec<Change>)> {
        let mut state = self.state.lock();
        let State { stage, queue, is_writing, .. } = &mut *state;
        let partition = match stage {
            Stage::Active(partition) if !queue.is_empty() => partition,
            Stage::Active(_) | Stage::Loading => {
                *is_writing = false;
                return None;
            }
            Stage::Ended(error) => {
                for done in queue.drain(..).filter_map(|change| change.done) {
                    let _ = done.send(Err(AcknowledgementFailure::Unserved(*error)));
                }
                *is_writing = false;
                return None;
            }
        };
        let together = queue.iter().position(|change| !change.is_pending).map_or(queue.len(), |at| at + 1);
        let changes: Vec<Change> = queue.drain(..together).collect();
        let update = StateUpdate {
            state_epoch: partition.state_epoch(),
            leader_epoch: self.leader_epoch.0,
            start_offset: partition.start_offset(),
            delivery_complete_count: i32::try_from(partition.delivery_complete_count()).unwrap_or(i32::MAX),
            batches: changes.iter().flat_map(|change| change.batches.iter().copied()).collect(),
        };
        Some((update, changes))
    }

    fn finish(
        &self,
        share_partitions: &LedSharePartitions,
        changes: Vec<Change>,
        outcome: Result<(), PersistError>,
    ) {
        let (limits, now_ms) = (share_partitions.settings(&self.key.group).limits, share_partitions.now_ms());
        let mut state = self.state.lock();
        if let Stage::Active(partition) = &mut state.stage {
            for change in changes.iter().filter(|change| change.is_pending) {
                match outcome {
                    Ok(()) => partition.written(&change.batches),
                    Err(_) => partition.not_written(&change.batches, &limits, now_ms),
                }
            }
            self.note_deadline(partition);
        }
        if let Err(error) = outcome {
            tracing::warn!(key = ?self.key, %error, "Failed to write the state of a share partition");
            // An unavailable coordinator may have written the change, too: a later write replaces it. After
            // any other error the share partition starts again from the stored state.
            if error != PersistError::Unavailable {
                state.stage = Stage::Ended(code_for_members(error));
                self.next_deadline_ms.store(i64::MAX, Ordering::Relaxed);
            }
        }
        state.waiters.wake_all();
        drop(state);
        for done in changes.into_iter().filter_map(|change| change.done) {
            let _ =
                done.send(outcome.map_err(|error| AcknowledgementFailure::Unserved(code_for_members(error))));
        }
    }

    /// Returns once no write is in flight.
    async fn drained(&self) {
        loop {
            let written = self.written.notified();
            if !self.is_writing() {
                return;
            }
            written.await;
        }
    }

    /// Loads the state, after the writes of `before`, the share partition that this one replaces.
    pub(super) async fn load(
        self: Arc<Self>,
        share_partitions: Arc<LedSharePartitions>,
        partition: Arc<Partition>,
        before: Option<Arc<LedSharePartition>>,
    ) {
        if let Some(before) = before {
            before.drained().await;
        }
        let began_at = tokio::time::Instant::now();
        let loaded = tokio::select! {
            biased;
            loaded = self.loaded(&share_partitions, &partition) => loaded,
            () = share_partitions.stopped() => return,
        };
        share_partitions.counters.count_load(began_at.elapsed());
        let mut state = self.state.lock();
        // The share partition may have ended meanwhile.
        if matches!(state.stage, Stage::Loading) {
            state.stage = loaded.map_or_else(Stage::Ended, Stage::Active);
        }
        state.waiters.wake_all();
        drop(state);
        share_partitions.forget_ended(&self);
    }

    async fn loaded(
        &self,
        share_partitions: &LedSharePartitions,
        partition: &Partition,
    ) -> Result<SharePartition, ErrorCode> {
        let failed = |error: PersistError| {
            let now = tokio::time::Instant::now();
            if let Some(omitted) = share_partitions.failures.failed(self.key.clone(), &error.to_string(), now)
            {
                let remedy = remedy(error);
                tracing::warn!(key = ?self.key, %error, remedy, omitted, "Failed to read the state of a share partition");
            }
            code_for_members(error)
        };
        let mut state =
            share_partitions.persister.read(&self.key, self.leader_epoch.0).await.map_err(failed)?;
        if state.start_offset == -1 {
            let reset = share_partitions.settings(&self.key.group).reset;
            let epoch = self.leader_epoch;
            let start = share_partitions
                .disk
                .work_in_place(|| initial_offset(partition, reset, epoch, share_partitions.clock_ms()))?;
            state = ShareState { start_offset: start, ..state };
            // Persist the start offset before the first records: otherwise another leader would start after
            // them.
            let update = StateUpdate {
                state_epoch: state.state_epoch,
                leader_epoch: epoch.0,
                start_offset: start,
                delivery_complete_count: 0,
                batches: Vec::new(),
            };
            share_partitions.persister.write(&self.key, &update).await.map_err(failed)?;
        }
        share_partitions.failures.succeeded(&self.key);
        SharePartition::load(&state).map_err(|invalid| {
            tracing::error!(key = ?self.key, ?invalid, "The stored state of a share partition makes no sense");
            ErrorCode::UnknownServerError
        })
    }
}

/// The start offset of a group without one.
fn initial_offset(
    partition: &Partition,
    reset: ShareOffsetReset,
    epoch: LeaderEpoch,
    clock_ms: i64,
) -> Result<i64, ErrorCode> {
    let find = |time: i64| {
        let found =
            partition.offset_for_timestamp(time, Reader::Client, Isolation::ReadUncommitted, Some(epoch));
        found.map(|found| found.offset).map_err(|error| error.code())
    };
    let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    match reset {
        ShareOffsetReset::Latest => find(LATEST_TIMESTAMP),
        ShareOffsetReset::Earliest => find(EARLIEST_TIMESTAMP),
        ShareOffsetReset::ByDuration(duration) => match find(clock_ms.saturating_sub(ms(duration)).max(0))? {
            // No record is that recent.
            -1 => find(LATEST_TIMESTAMP),
            offset => Ok(offset),
        },
    }
}
