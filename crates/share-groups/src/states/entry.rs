//! The state of one share partition, and its changes by records (Kafka's maps in `ShareCoordinatorShard`).

use super::record::{Snapshot, Update};
use super::runs::Runs;

/// A share partition's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) snapshot_epoch: i32,
    pub(super) state_epoch: i32,
    pub(super) leader_epoch: i32,
    pub(super) start_offset: i64,
    pub(super) delivery_complete_count: i32,
    pub(super) created_ms: i64,
    pub(super) written_ms: i64,
    pub(super) runs: Runs,
    /// The highest epochs of any record: earlier epochs are fenced.
    pub(super) leader_epoch_max: Option<i32>,
    pub(super) state_epoch_max: Option<i32>,
    /// Updates since the last snapshot caused by the number of updates.
    pub(super) updates: usize,
    /// The offset of the newest snapshot: earlier records of the share partition are no longer needed.
    pub(super) snapshot_at: Option<i64>,
}

impl Entry {
    /// Replaces the state by a snapshot at this offset. `updates_max` is the number of updates before a
    /// snapshot.
    pub(super) fn apply_snapshot(&mut self, snapshot: Snapshot, at: i64, updates_max: usize) {
        self.leader_epoch_max = self.leader_epoch_max.max(Some(snapshot.leader_epoch));
        self.state_epoch_max = self.state_epoch_max.max(Some(snapshot.state_epoch));
        self.snapshot_epoch = snapshot.snapshot_epoch;
        self.state_epoch = snapshot.state_epoch;
        self.leader_epoch = snapshot.leader_epoch;
        self.start_offset = snapshot.start_offset;
        self.delivery_complete_count = snapshot.delivery_complete_count;
        self.created_ms = snapshot.created_ms;
        self.written_ms = snapshot.written_ms;
        self.runs = snapshot.runs;
        self.snapshot_at = Some(at);
        if self.updates >= updates_max {
            self.updates = 0;
        }
    }

    /// Applies an update.
    pub(super) fn apply_update(&mut self, update: &Update) {
        self.leader_epoch_max = self.leader_epoch_max.max(Some(update.leader_epoch));
        if update.start_offset != -1 {
            self.start_offset = update.start_offset;
        }
        if update.leader_epoch != -1 {
            self.leader_epoch = update.leader_epoch;
        }
        self.delivery_complete_count = update.delivery_complete_count;
        self.runs.combine(update.runs.as_slice(), self.start_offset);
        self.updates += 1;
    }

    /// Drops the runs after records were lost. The lost records may have reset the state, or deleted and
    /// created it, which later epochs need not show: old runs would keep records from being delivered.
    pub(super) fn forget_runs(&mut self) {
        self.runs = Runs::default();
    }

    /// The state from an update whose snapshot is missing.
    pub(super) fn of_update(update: Update) -> Entry {
        Entry {
            snapshot_epoch: update.snapshot_epoch,
            leader_epoch: update.leader_epoch,
            start_offset: update.start_offset,
            delivery_complete_count: update.delivery_complete_count,
            runs: update.runs,
            leader_epoch_max: Some(update.leader_epoch),
            updates: 1,
            ..Entry::default()
        }
    }

    /// True if the newest snapshot only repeats an earlier one.
    pub(super) fn is_repeated(&self) -> bool {
        self.created_ms != self.written_ms
    }

    /// The state as a snapshot of the next epoch.
    pub(super) fn next_snapshot(&self, written_ms: i64) -> Snapshot {
        Snapshot {
            snapshot_epoch: self.snapshot_epoch.wrapping_add(1),
            state_epoch: self.state_epoch,
            leader_epoch: self.leader_epoch,
            start_offset: self.start_offset,
            delivery_complete_count: self.delivery_complete_count,
            created_ms: self.created_ms,
            written_ms,
            runs: self.runs.clone(),
        }
    }
}
