//! Loading a shard: attempts follow one another until one succeeds, or the leader epoch is over.
//!
//! Owns: the rests between attempts, and the log lines about failed ones. Refuses: resting with a permit, so that partitions
//! that cannot be read hold up no others.

use super::{Cell, ReplayError, Shard};
use std::sync::Arc;
use std::time::Duration;
use thalweg_log::disk::Disk;
use tokio::sync::Semaphore;

/// The rest after the first failed attempt. Each further one is twice as long.
const REST_MIN: Duration = Duration::from_millis(100);
/// The longest rest while the failure may pass at any moment.
const REST_MAX: Duration = Duration::from_secs(5);
/// The longest rest after damage and the like. It lasts until another replica leads or the records are restored, and
/// each attempt reads all that comes before it.
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
        if matches!(error, ReplayError::NotLeader) {
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

/// Logs why an attempt has failed, unless that is known.
fn report<S: Shard>(cell: &Cell<S>, error: &ReplayError, reported: &mut String) {
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
