//! Flushing with group commit: waiters queue for a turn, and one sync serves all of them.

use super::{FlushError, Partition};
use std::sync::Arc;
use thalweg_log::FlushTarget;
use thalweg_record::Offset;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The lock that serializes flushes of a partition.
#[derive(Debug, Default)]
pub(super) struct FlushLock {
    turn: Mutex<()>,
}

/// The log that was synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyncedLog {
    /// The partition's current log.
    This,
    /// An earlier log of the partition, replaced since the sync began.
    Another,
}

impl Partition {
    /// Returns when all records below `offset` are synced.
    pub(super) async fn flush_to(partition: &Arc<Partition>, offset: Offset) -> Result<(), FlushError> {
        let _turn = partition.flushing.turn.lock().await;
        if partition.state.lock().log.recovery_point() >= offset {
            return Ok(());
        }
        loop {
            let target = partition.state.lock().log.flush_target();
            // The synced log may have been replaced by a copy in another directory meanwhile.
            if Partition::sync(partition, target).await? != SyncedLog::Another {
                return Ok(());
            }
        }
    }

    /// Flushes as far as the policy requires by now: old records, and rolled segments.
    pub async fn flush_if_due(partition: &Arc<Partition>, now_ms: i64) {
        // One flush at a time, as for waiters for durability: one sync serves all.
        let _turn = partition.flushing.turn.lock().await;
        let target = {
            let log = &mut partition.state.lock().log;
            if log.needs_flush(now_ms) {
                log.flush_target()
            } else if log.needs_background_flush() {
                log.background_flush_target()
            } else {
                return;
            }
        };
        // The log reports the failure, and is then closed for appends.
        let _ = Partition::sync(partition, target).await;
    }

    /// Syncs, and passes the outcome to the log even if the caller is cancelled: the kernel reports a failure
    /// once, and a closed connection must not lose that report.
    async fn sync(
        partition: &Arc<Partition>,
        target: Result<Option<FlushTarget>, thalweg_log::LogError>,
    ) -> Result<SyncedLog, FlushError> {
        let target = match target {
            Ok(Some(target)) => target,
            // Nothing to sync, or a failed log, whose next append returns the reason.
            Ok(None) => return Ok(SyncedLog::This),
            Err(error) => {
                tracing::error!(?partition, %error, "Failed to flush a log");
                return Err(FlushError);
            }
        };
        let (disk, synced) = (target.disk().clone(), Arc::clone(partition));
        let completed = disk.spawn(move || {
            let begun = Instant::now();
            let outcome = target.sync();
            synced.context.flushes.record_time(begun.elapsed());
            let completed = {
                let mut state = synced.state.lock();
                let is_this = target.is_of(&state.log);
                let completed = state.log.complete_flush(&target, outcome);
                state.raise_high_watermark(&synced.context);
                completed.map(|()| if is_this { SyncedLog::This } else { SyncedLog::Another })
            };
            completed.map_err(|error| {
                tracing::error!(partition = ?synced, %error, "Failed to flush a log");
                FlushError
            })
        });
        completed.await.expect("a sync does not panic")
    }
}
