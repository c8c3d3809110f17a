//! The state of a partition in a share group, on the leader of the partition. Kafka: `SharePartition`.
//!
//! ```text
//!            start                                        next new
//!   ──────────┬──────────┬───────────┬─────┬────────────────┬───────────────►
//!   complete  │ acquired │ available │  …  │ acquired       │ never delivered
//!   ──────────┴──────────┴───────────┴─────┴────────────────┴───────────────►
//!             └────────────── in flight ────────────────────┘
//! ```
//! Records in flight are stored as runs of offsets. Offsets between two runs do not exist in the log, because
//! of compaction.
//!
//! The caller writes persistent changes ([`StateBatch`]). Acknowledgements and releases take effect at once
//! and are pending until [`SharePartition::written`] or [`SharePartition::not_written`]; meanwhile no other
//! member can acquire the records. Lock expiry is not pending, as in Kafka: if its write fails, one delivery
//! is not counted.

use crate::members::Members;
use crate::run::{NO_ONE, Phase, Run, Runs};
use crate::state::{DeliveryState, ShareState, StateBatch};

/// Settings of a share group for acquisition and delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareLimits {
    /// Maximum deliveries of a record: `share.delivery.count.limit`.
    pub deliveries: i16,
    /// Duration of an acquisition lock: `share.record.lock.duration.ms`.
    pub lock_ms: i64,
    /// Maximum offsets in flight: `share.partition.max.record.locks`.
    pub in_flight: i64,
    /// True if members may renew locks: `share.renew.acknowledge.enable`.
    pub may_renew: bool,
}

/// An invalid persisted state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidState {
    /// The start offset.
    pub start_offset: i64,
    /// The batch that lies before the start offset, ends before its first offset, overlaps another batch, or
    /// ends at the largest offset.
    pub batch: StateBatch,
}

/// The effect of expired acquisition locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiredLocks {
    /// The number of records with an expired lock.
    pub records: i64,
    /// The state to write.
    pub batches: Vec<StateBatch>,
}

/// A partition in a share group.
#[derive(Clone, Debug)]
pub struct SharePartition {
    pub(crate) start: i64,
    pub(crate) next_new: i64,
    pub(crate) runs: Runs,
    pub(crate) members: Members,
    /// No record below this offset is available.
    pub(crate) available_from: i64,
    /// No lock ends before this time.
    next_deadline_ms: i64,
    /// The number of acknowledged and archived records from the start offset on.
    complete: i64,
    state_epoch: i32,
}

/// The phase of a record after its release.
pub(crate) fn given_back(deliveries: i16, limits: &ShareLimits) -> Phase {
    if deliveries >= limits.deliveries { Phase::Archived } else { Phase::Available }
}

/// The state of a run's offsets from `first` to `last`. Acquired records persist as available.
pub(crate) fn batch_of(first: i64, last: i64, run: &Run) -> StateBatch {
    let state = match run.phase {
        Phase::Available | Phase::Acquired => DeliveryState::Available,
        Phase::Acknowledged => DeliveryState::Acknowledged,
        Phase::Archived => DeliveryState::Archived,
    };
    StateBatch { first_offset: first, last_offset: last, state, delivery_count: run.deliveries }
}

/// Appends a batch, merged with the last batch if contiguous and equal in state.
pub(crate) fn add_batch(batches: &mut Vec<StateBatch>, batch: StateBatch) {
    match batches.last_mut() {
        Some(last)
            if last.last_offset + 1 == batch.first_offset
                && last.state == batch.state
                && last.delivery_count == batch.delivery_count =>
        {
            last.last_offset = batch.last_offset;
        }
        _ => batches.push(batch),
    }
}

impl SharePartition {
    /// Loads a persisted state with a known start offset.
    ///
    /// Offsets between batches were acquired or never delivered when the last leader stopped, and become
    /// available.
    pub fn load(state: &ShareState) -> Result<SharePartition, InvalidState> {
        let start = state.start_offset;
        let mut partition = SharePartition {
            start,
            next_new: start,
            runs: Runs::default(),
            members: Members::default(),
            available_from: start,
            next_deadline_ms: i64::MAX,
            complete: 0,
            state_epoch: state.state_epoch,
        };
        for batch in &state.batches {
            let is_countable = start >= 0 && batch.last_offset < i64::MAX;
            if !is_countable
                || batch.first_offset < partition.next_new
                || batch.last_offset < batch.first_offset
            {
                return Err(InvalidState { start_offset: start, batch: *batch });
            }
            if batch.first_offset > partition.next_new {
                partition.add(partition.next_new, batch.first_offset - 1, Phase::Available, 0);
            }
            let phase = match batch.state {
                DeliveryState::Available => Phase::Available,
                DeliveryState::Acknowledged => Phase::Acknowledged,
                DeliveryState::Archived => Phase::Archived,
            };
            partition.add(batch.first_offset, batch.last_offset, phase, batch.delivery_count);
        }
        partition.advance_start();
        Ok(partition)
    }

    fn add(&mut self, first: i64, last: i64, phase: Phase, deliveries: i16) {
        let run = Run {
            last,
            deadline_ms: 0,
            owner: NO_ONE,
            batch_len: u32::try_from(last - first + 1).unwrap_or(u32::MAX),
            deliveries,
            phase,
            is_pending: false,
            starts_batch: true,
        };
        self.insert(first, run);
        self.runs.join(first, last);
    }

    /// Appends a run after all others.
    pub(crate) fn insert(&mut self, first: i64, run: Run) {
        self.count(first, None, Some(&run));
        self.runs.insert(first, run);
        self.next_new = run.last + 1;
    }

    /// Updates the counters for an added, changed or removed run.
    fn count(&mut self, first: i64, before: Option<&Run>, after: Option<&Run>) {
        let Some(any) = after.or(before) else { return };
        let len = any.last - first + 1;
        let complete = |run: Option<&Run>| i64::from(run.is_some_and(Run::is_terminal));
        self.complete += (complete(after) - complete(before)) * len;
        let owner = |run: Option<&Run>| run.map_or(NO_ONE, |run| run.owner);
        if owner(before) != owner(after) {
            self.members.count(owner(after), len);
            self.members.count(owner(before), -len);
            self.members.leave_if_idle(owner(before));
        }
        if let Some(run) = after {
            if run.is_available() {
                self.available_from = self.available_from.min(first);
            }
            if run.is_acquired() {
                self.next_deadline_ms = self.next_deadline_ms.min(run.deadline_ms);
            }
        }
    }

    /// Changes the runs from `first` to `last`.
    pub(crate) fn change(&mut self, first: i64, last: i64, mut edit: impl FnMut(i64, &mut Run)) {
        if last < first {
            return;
        }
        let mut runs = std::mem::take(&mut self.runs);
        for (at, run) in runs.cut(first, last) {
            let before = *run;
            edit(*at, run);
            self.count(*at, Some(&before), Some(&*run));
        }
        runs.join(first, last);
        self.runs = runs;
    }

    /// Drops terminal runs at the start.
    pub(crate) fn advance_start(&mut self) {
        while let Some((first, run)) = self.runs.first()
            && run.is_terminal()
            && !run.is_pending
        {
            self.runs.pop_first();
            self.count(first, Some(&run), None);
            self.start = run.last + 1;
        }
        self.start = self.runs.first().map_or(self.next_new, |(first, _)| first);
    }

    /// Moves the start of the log to `log_start`. Drops the records below, including acquired ones.
    pub fn log_start_moved(&mut self, log_start: i64) {
        if log_start <= self.start {
            return;
        }
        let gone: Vec<(i64, Run)> =
            self.runs.cut(self.start, log_start - 1).map(|(at, run)| (*at, *run)).collect();
        for (first, run) in gone {
            self.runs.pop_first();
            self.count(first, Some(&run), None);
        }
        self.next_new = self.next_new.max(log_start);
        self.advance_start();
    }

    /// Completes a pending change after its write.
    pub fn written(&mut self, batches: &[StateBatch]) {
        self.end_pending(batches, |run| run.owner = NO_ONE);
        self.advance_start();
    }

    /// Reverts a pending change after a failed write. The members hold the records again, unless the lock has
    /// expired.
    pub fn not_written(&mut self, batches: &[StateBatch], limits: &ShareLimits, now_ms: i64) {
        self.end_pending(batches, |run| {
            run.phase = Phase::Acquired;
            if run.deadline_ms <= now_ms {
                run.phase = given_back(run.deliveries, limits);
                run.owner = NO_ONE;
            }
        });
        self.advance_start();
    }

    fn end_pending(&mut self, batches: &[StateBatch], mut edit: impl FnMut(&mut Run)) {
        for batch in batches {
            self.change(batch.first_offset.max(self.start), batch.last_offset, |_, run| {
                if run.is_pending {
                    run.is_pending = false;
                    edit(run);
                }
            });
        }
    }

    /// The earliest time at which a lock may end.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        (self.next_deadline_ms != i64::MAX).then_some(self.next_deadline_ms)
    }

    /// Releases the records whose lock has expired.
    pub fn expire(&mut self, now_ms: i64, limits: &ShareLimits) -> ExpiredLocks {
        let mut expired = ExpiredLocks::default();
        if now_ms < self.next_deadline_ms {
            return expired;
        }
        self.next_deadline_ms = i64::MAX;
        let mut over = Vec::new();
        for (at, run) in self.runs.iter().filter(|(_, run)| run.is_acquired()) {
            if run.deadline_ms <= now_ms {
                over.push((at, run.last));
            } else {
                self.next_deadline_ms = self.next_deadline_ms.min(run.deadline_ms);
            }
        }
        for (first, last) in over {
            self.change(first, last, |at, run| {
                run.phase = given_back(run.deliveries, limits);
                run.owner = NO_ONE;
                expired.records += run.last - at + 1;
                add_batch(&mut expired.batches, batch_of(at, run.last, run));
            });
        }
        self.advance_start();
        expired
    }

    /// The next offset to read for a member. `None` while the limit of offsets in flight is reached.
    pub fn fetch_offset(&mut self, limits: &ShareLimits) -> Option<i64> {
        let available = self.runs.within(self.available_from, i64::MAX).find(|(_, run)| run.is_available());
        match available {
            Some((first, _)) => {
                self.available_from = first;
                Some(first)
            }
            None => {
                self.available_from = self.next_new;
                (self.in_flight() < limits.in_flight).then_some(self.next_new)
            }
        }
    }

    /// The share-partition start offset: the first offset that is not yet acknowledged or archived.
    pub fn start_offset(&self) -> i64 {
        self.start
    }

    /// The epoch of the persisted state.
    pub fn state_epoch(&self) -> i32 {
        self.state_epoch
    }

    /// The number of acknowledged and archived records from the start offset on (KIP-1226).
    pub fn delivery_complete_count(&self) -> i64 {
        self.complete
    }

    /// The number of offsets in flight.
    pub fn in_flight(&self) -> i64 {
        self.next_new - self.start
    }

    /// The number of runs in flight.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// The number of members that hold records.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// The runs in flight with offsets, state and delivery count.
    pub fn in_flight_runs(&self) -> impl Iterator<Item = StateBatch> {
        self.runs.iter().map(|(first, run)| batch_of(first, run.last, &run))
    }
}
