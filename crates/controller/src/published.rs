//! The controller's published state: the committed image, and counters since the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use thalweg_metadata::{Image, LeaderRecoveryState, VersionedRecord};
use thalweg_wire::MetadataRecord;

/// See the module. Written by the controller's task only.
#[derive(Debug, Default)]
pub struct Published {
    committed: Mutex<Arc<Image>>,
    epoch: AtomicI64,
    end_offset: AtomicI64,
    elections: AtomicU64,
    unclean_elections: AtomicU64,
    ended_sessions: AtomicU64,
    requests: AtomicU64,
    refused_on_full_disk: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Debug)]
pub struct ControllerFigures {
    /// The cluster, as far as it is committed.
    pub committed: Arc<Image>,
    /// The epoch in which the controller leads.
    pub epoch: i64,
    /// The offset of the next record of the metadata log.
    pub end_offset: i64,
    /// Leaders of partitions that were elected.
    pub elections: u64,
    /// Those of them that were not in sync.
    pub unclean_elections: u64,
    /// Brokers that were fenced because their sessions had ended.
    pub ended_sessions: u64,
    /// Requests that were decided.
    pub requests: u64,
    /// Requests that were refused because the disk of the metadata log was full.
    pub refused_on_full_disk: u64,
    /// Requests that wait for the controller's task.
    pub waiting_requests: usize,
}

impl Published {
    pub(crate) fn lead(&self, epoch: i32) {
        self.epoch.store(i64::from(epoch), Ordering::Relaxed);
    }

    pub(crate) fn commit(&self, image: &Arc<Image>) {
        *self.committed.lock() = Arc::clone(image);
    }

    pub(crate) fn image(&self) -> Arc<Image> {
        Arc::clone(&self.committed.lock())
    }

    pub(crate) fn requested(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sessions_ended(&self, count: usize) {
        self.ended_sessions.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn disk_was_full(&self) {
        self.refused_on_full_disk.fetch_add(1, Ordering::Relaxed);
    }

    /// Records were appended, and the log ends here.
    pub(crate) fn wrote(&self, records: &[VersionedRecord], end_offset: i64) {
        self.end_offset.store(end_offset, Ordering::Relaxed);
        for record in records {
            let MetadataRecord::PartitionChange(change) = &record.record else { continue };
            if change.leader < 0 {
                continue;
            }
            self.elections.fetch_add(1, Ordering::Relaxed);
            if change.leader_recovery_state == LeaderRecoveryState::Recovering.id() {
                self.unclean_elections.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn figures(&self, waiting_requests: usize) -> ControllerFigures {
        ControllerFigures {
            committed: Arc::clone(&self.committed.lock()),
            epoch: self.epoch.load(Ordering::Relaxed),
            end_offset: self.end_offset.load(Ordering::Relaxed),
            elections: self.elections.load(Ordering::Relaxed),
            unclean_elections: self.unclean_elections.load(Ordering::Relaxed),
            ended_sessions: self.ended_sessions.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            refused_on_full_disk: self.refused_on_full_disk.load(Ordering::Relaxed),
            waiting_requests,
        }
    }
}
