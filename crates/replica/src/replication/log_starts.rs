//! Syncs the log starts that followers have taken over from their leaders, as after DeleteRecords. Until the
//! sync, a follower reports the earlier start ([`crate::partition::FetchPosition`]), so the leader knows that
//! a crash could restore the deleted records, and does not answer the client yet. Fetching continues
//! meanwhile: the sync of a busy disk may take long.

use super::Replication;
use super::answer::backoff;
use std::sync::Arc;
use std::time::Duration;

/// Maximum pause after a failure.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Syncs as long as the broker runs, whenever a fetcher has an unsynced log start to report.
pub async fn run(replication: Arc<Replication>) {
    let mut failures = 0u32;
    loop {
        replication.log_starts_owed.notified().await;
        let dirs = Arc::clone(&replication.log_dirs);
        let work = move || dirs.checkpoint_log_starts().len() >= dirs.online_count();
        let is_written = replication.log_dirs.disk().spawn(work).await;
        if is_written.expect("writing a checkpoint does not panic") {
            failures = 0;
        } else {
            failures = failures.saturating_add(1);
            tokio::time::sleep(backoff(failures, RETRY_MAX)).await;
        }
    }
}
