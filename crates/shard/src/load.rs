//! Loading of a shard: attempts follow until one succeeds or the leader epoch ends.
//!
//! Owns: the pauses between attempts, and the log lines about failed attempts. Refuses: pausing with a
//! permit, so that unreadable partitions do not delay the loads of other partitions.

use super::{Cell, Shard, ShardLoadError};
use std::sync::Arc;
use std::time::Duration;
use thalweg_log::disk::Disk;
use tokio::sync::Semaphore;

/// The pause after the first failed attempt. Each further pause is twice as long.
const REST_MIN: Duration = Duration::from_millis(100);
/// Maximum pause while the failure may end at any moment.
const REST_MAX: Duration = Duration::from_secs(5);
/// Maximum pause after damage and similar failures. These last until another replica leads or the records are
/// restored, and each attempt reads all earlier records.
const DAMAGED_REST_MAX: Duration = Duration::from_secs(600);

/// Loads a shard, with a permit for each attempt.
pub(super) async fn load<S: Shard>(cell: Arc<Cell<S>>, permits: Arc<Semaphore>, disk: Disk) {
    let (mut rest, mut reported) = (REST_MIN, String::new());
    loop {
        let attempt = {
            let _permit = permits.acquire().await.expect("the semaphore is never closed");
            let cell = Arc::clone(&cell);
            disk.spawn(move || cell.load()).await
        };
        let error = match attempt {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(error) => {
                tracing::error!(?cell, %error, "Loading was aborted");
                return cell.fail();
            }
        };
        if !error.passes() {
            cell.fail();
        }
        if matches!(error, ShardLoadError::NotLeader) {
            tracing::info!(?cell, "Leadership has moved, not loading");
            return;
        }
        report(&cell, &error, &mut reported);
        tokio::select! {
            biased;
            () = cell.gone() => return,
            () = tokio::time::sleep(rest) => {}
        }
        rest = (rest * 2).min(if error.passes() { REST_MAX } else { DAMAGED_REST_MAX });
    }
}

/// Logs the reason of a failed attempt, unless it was logged before.
fn report<S: Shard>(cell: &Cell<S>, error: &ShardLoadError, reported: &mut String) {
    let reason = error.to_string();
    if reason == *reported {
        tracing::debug!(?cell, reason, "Failed again to load");
    } else if error.passes() {
        tracing::warn!(?cell, reason, "Failed to load, retrying");
    } else {
        tracing::error!(
            ?cell,
            reason,
            "Failed to load: requests are refused until another replica leads or the records are restored"
        );
    }
    *reported = reason;
}
