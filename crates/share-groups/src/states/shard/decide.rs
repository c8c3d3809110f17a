//! Decisions about one share partition. The order of the checks is Kafka's.

use super::{Decision, ShareShard};
use crate::states::entry::Entry;
use crate::states::error::StateError;
use crate::states::record::{ShareRecord, Snapshot, Update};
use crate::states::request::{StateReply, StateRequest, StateWrite};
use crate::states::runs::{Runs, StateRun, overlap_too_much};
use thalweg_shard::Moment;
use thalweg_share::{SharePartitionKey, StateSummary};

impl ShareShard {
    pub(super) fn decide(
        &self,
        key: &SharePartitionKey,
        request: &StateRequest,
        now: Moment,
    ) -> Result<Decision, StateError> {
        if key.partition.0 < 0 {
            return Err(StateError::NegativePartition);
        }
        let entry = self.entries.get(key);
        match request {
            StateRequest::Initialize { state_epoch, start_offset } => {
                if *state_epoch != -1
                    && entry.and_then(|entry| entry.state_epoch_max).is_some_and(|max| max > *state_epoch)
                {
                    return Err(StateError::FencedStateEpoch);
                }
                self.check_exists(key)?;
                let snapshot = initial(entry, *state_epoch, *start_offset, now.wall_ms);
                Ok((StateReply::Changed, Some(ShareRecord::Snapshot(key.clone(), Some(snapshot)))))
            }
            StateRequest::Read { leader_epoch } => {
                let entry = entry.ok_or(StateError::UninitializedRead)?;
                check_leader(entry, *leader_epoch)?;
                self.check_exists(key)?;
                Ok((state(entry), self.note_leader(key, entry, *leader_epoch, now)))
            }
            StateRequest::Write(write) => {
                let entry = entry.ok_or(StateError::UninitializedWrite)?;
                check_leader(entry, write.leader_epoch)?;
                if write.state_epoch != -1 && entry.state_epoch_max.is_some_and(|max| max > write.state_epoch)
                {
                    return Err(StateError::FencedStateEpoch);
                }
                self.check_exists(key)?;
                if !write.runs.iter().all(StateRun::is_filled) || overlap_too_much(&write.runs) {
                    return Err(StateError::InvalidRuns);
                }
                let record = self.change(key, entry, write, entry.leader_epoch, now);
                Ok((StateReply::Changed, Some(record)))
            }
            StateRequest::Delete => {
                self.check_exists(key)?;
                let tombstone = entry.map(|_| ShareRecord::Snapshot(key.clone(), None));
                Ok((StateReply::Changed, tombstone))
            }
            StateRequest::Summarize { .. } => {
                self.check_exists(key)?;
                Ok((StateReply::Summary(summary(entry)), None))
            }
        }
    }

    fn check_exists(&self, key: &SharePartitionKey) -> Result<(), StateError> {
        if self.exists(key) { Ok(()) } else { Err(StateError::UnknownPartition) }
    }

    /// The record of a read by a new leader, which fences earlier leaders. `None` if the epoch is already
    /// known.
    fn note_leader(
        &self,
        key: &SharePartitionKey,
        entry: &Entry,
        leader_epoch: i32,
        now: Moment,
    ) -> Option<ShareRecord> {
        if leader_epoch == -1 || entry.leader_epoch_max == Some(leader_epoch) {
            return None;
        }
        let nothing = StateWrite {
            state_epoch: entry.state_epoch,
            leader_epoch,
            start_offset: entry.start_offset,
            delivery_complete_count: entry.delivery_complete_count,
            runs: Vec::new(),
        };
        Some(self.change(key, entry, &nothing, leader_epoch, now))
    }

    /// An update, or a snapshot after a number of updates.
    fn change(
        &self,
        key: &SharePartitionKey,
        entry: &Entry,
        write: &StateWrite,
        leader_epoch: i32,
        now: Moment,
    ) -> ShareRecord {
        if entry.updates < self.shared.config.updates_per_snapshot {
            let update = Update {
                snapshot_epoch: entry.snapshot_epoch,
                leader_epoch,
                start_offset: write.start_offset,
                delivery_complete_count: write.delivery_complete_count,
                runs: Runs::combined(&write.runs, write.start_offset),
            };
            return ShareRecord::Update(key.clone(), update);
        }
        let start_offset = if write.start_offset == -1 { entry.start_offset } else { write.start_offset };
        let mut runs = entry.runs.clone();
        runs.combine(&write.runs, start_offset);
        let snapshot = Snapshot {
            leader_epoch,
            start_offset,
            delivery_complete_count: write.delivery_complete_count,
            created_ms: now.wall_ms,
            runs,
            ..entry.next_snapshot(now.wall_ms)
        };
        ShareRecord::Snapshot(key.clone(), Some(snapshot))
    }
}

/// An initialized or reset state. The count of completed deliveries is 0 for a known start offset, and
/// unknown otherwise.
fn initial(entry: Option<&Entry>, state_epoch: i32, start_offset: i64, now_ms: i64) -> Snapshot {
    Snapshot {
        snapshot_epoch: entry.map_or(0, |entry| entry.snapshot_epoch.wrapping_add(1)),
        state_epoch,
        leader_epoch: 0,
        start_offset,
        delivery_complete_count: if start_offset == -1 { -1 } else { 0 },
        created_ms: now_ms,
        written_ms: now_ms,
        runs: Runs::of(Vec::new()),
    }
}

fn check_leader(entry: &Entry, leader_epoch: i32) -> Result<(), StateError> {
    match leader_epoch != -1 && entry.leader_epoch_max.is_some_and(|max| max > leader_epoch) {
        true => Err(StateError::FencedLeaderEpoch),
        false => Ok(()),
    }
}

fn state(entry: &Entry) -> StateReply {
    StateReply::State {
        state_epoch: entry.state_epoch,
        start_offset: entry.start_offset,
        runs: entry.runs.as_slice().to_vec(),
    }
}

fn summary(entry: Option<&Entry>) -> StateSummary {
    let unknown =
        StateSummary { state_epoch: 0, leader_epoch: 0, start_offset: -1, delivery_complete_count: -1 };
    entry.map_or(unknown, |entry| StateSummary {
        state_epoch: entry.state_epoch,
        leader_epoch: entry.leader_epoch,
        start_offset: entry.start_offset,
        delivery_complete_count: entry.delivery_complete_count,
    })
}
