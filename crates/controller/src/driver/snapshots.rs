//! Snapshots of the image: after a number of bytes or a time, and to spare the next start a long replay: at a
//! stop after many changes, and after a start with a long replay.

use std::sync::Arc;

use bytes::Bytes;
use thalweg_metadata::Image;
use thalweg_record::ControlRecordType;
use tokio::task::{JoinError, JoinHandle};

use super::Driver;
use crate::quorum::{SnapshotContent, SnapshotError, SnapshotId};

/// An image to write.
struct Snapshot {
    id: SnapshotId,
    quorum: Vec<(ControlRecordType, Bytes)>,
    image: Arc<Image>,
    now_ms: i64,
}

impl Snapshot {
    fn content(&self) -> SnapshotContent {
        SnapshotContent {
            id: self.id,
            last_timestamp_ms: self.image.provenance().timestamp_ms,
            now_ms: self.now_ms,
            quorum: self.quorum.clone(),
            records: self.image.to_records(),
        }
    }
}

/// The snapshot being written.
pub(super) struct Snapshotting {
    pub id: SnapshotId,
    pub task: JoinHandle<Result<u64, SnapshotError>>,
}

impl Driver {
    /// Writes a snapshot of the committed image, in the background.
    pub(super) fn begin_snapshot(&mut self) {
        self.snapshot_at = None;
        if self.snapshotting.is_some() {
            return;
        }
        let Some(snapshot) = self.next_snapshot(self.committed.clone()) else { return };
        self.log.bytes_since_snapshot = 0;
        let (disk, dir) = self.log.snapshot_place();
        let id = snapshot.id;
        let writer = disk.clone();
        let task = disk.spawn(move || snapshot.content().write(&writer, &dir));
        self.snapshotting = Some(Snapshotting { id, task });
    }

    /// The snapshot of an image, unless it exists already.
    fn next_snapshot(&self, image: Arc<Image>) -> Option<Snapshot> {
        let last = image.provenance();
        let id = SnapshotId { end_offset: last.offset + 1, epoch: last.epoch };
        let is_new = self.log.latest_snapshot().is_none_or(|latest| id > latest);
        let snapshot = Snapshot { id, quorum: self.quorum_records(), image, now_ms: self.clock.now_ms() };
        (is_new && !snapshot.image.is_empty()).then_some(snapshot)
    }

    /// Writes a last snapshot, to spare the next start a long replay. The log is synced before. Blocks.
    pub(super) fn snapshot_at_the_end(&mut self) {
        if !self.log.replay_is_long() {
            return;
        }
        let Some(snapshot) = self.next_snapshot(self.state.image().clone()) else { return };
        let (disk, dir) = self.log.snapshot_place();
        let written = snapshot.content().write(&disk, &dir);
        self.on_snapshot((snapshot.id, Ok(written)));
    }

    /// Processes the outcome of a written snapshot.
    pub(super) fn on_snapshot(
        &mut self,
        written: (SnapshotId, Result<Result<u64, SnapshotError>, JoinError>),
    ) {
        let (id, outcome) = written;
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return self.die(&error),
        };
        match outcome {
            Ok(size) => {
                tracing::info!(
                    end_offset = id.end_offset,
                    epoch = id.epoch,
                    size,
                    "Wrote a metadata snapshot"
                );
                match self.log.add_snapshot(id, size, self.clock.now_ms()) {
                    Ok(()) => {}
                    Err(error) if error.is_shortage() => {
                        tracing::warn!(%error, "Failed to delete old metadata records, retrying at the next snapshot");
                    }
                    Err(error) => self.die(&error),
                }
            }
            // The log still has all records, so only space is lost.
            Err(error) => tracing::error!(%error, "Failed to write a metadata snapshot"),
        }
    }
}

/// Waits for the snapshot being written; forever if there is none.
pub(super) async fn snapshot_written(
    snapshotting: &mut Option<Snapshotting>,
) -> (SnapshotId, Result<Result<u64, SnapshotError>, JoinError>) {
    match snapshotting {
        None => std::future::pending().await,
        Some(running) => {
            let written = (&mut running.task).await;
            let id = snapshotting.take().expect("it was there before the wait").id;
            (id, written)
        }
    }
}
